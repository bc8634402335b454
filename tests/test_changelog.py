"""The changelog begins with the version. Of names that changed, the old ones are gone and the new ones are there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import penstock

_ROW = re.compile(r"^\| `(penstock\.[^`]+)` \| `(penstock\.[^`]+)` \|$", re.MULTILINE)
_ROOT = Path(__file__).parents[1]
NAMES = _ROW.findall((_ROOT / "docs/migration/names.md").read_text(encoding="utf-8"))


def is_there(name: str) -> bool:
    """Whether a dotted name can be reached, and is public; of ``NAME(argument=)``, whether it takes that argument."""
    path, _, argument = name.removesuffix("=)").partition("(")
    found: object = importlib.import_module("penstock")
    for part in path.split(".")[1:]:
        if part not in getattr(found, "__all__", [part]) and not inspect.ismodule(getattr(found, part, None)):
            return False
        if not hasattr(found, part):
            return part in getattr(found, "__annotations__", {})
        found = getattr(found, part)
    return not argument or argument in inspect.signature(found).parameters  # type: ignore[arg-type]


def test_it_begins_with_the_version() -> None:
    heading = re.findall(r"^## (\S+)", (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    assert heading == penstock.__version__


def test_the_table_was_found() -> None:
    assert len(NAMES) > 25


@pytest.mark.parametrize(("old", "new"), NAMES)
def test_an_old_name_has_a_new_one(old: str, new: str) -> None:
    assert not is_there(old)
    assert is_there(new)
