"""The changelog begins with the version."""

from __future__ import annotations

import re
from pathlib import Path

import penstock

_ROOT = Path(__file__).parents[2]


def test_changelog_begins_with_the_version() -> None:
    heading = re.findall(r"^## (\S+)", (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    assert heading == penstock.__version__
