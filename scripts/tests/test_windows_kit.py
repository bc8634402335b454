"""The kit for Windows is laid once, and says in one line what a machine lacks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.debian import Refused
from scripts.windows import kit


def test_machine_that_lacks_something_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kit"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as end:
        kit.main()
    said = str(end.value.code)
    assert "root" in said and "mvn" in said and "\n" not in said


def test_part_is_laid_again_only_if_it_was_cut_short_or_has_other_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    laid: list[str] = []

    def recipe(folder: Path) -> None:
        folder.mkdir()
        laid.append(folder.name)
        if len(laid) == 1:
            raise Refused("no such package")

    monkeypatch.setattr(kit, "KIT", tmp_path)
    monkeypatch.setattr(kit, "PARTS", {"part": (recipe, "version 1")})
    with pytest.raises(Refused):
        kit.lay("part")
    for _ in range(2):
        kit.lay("part")
    assert laid == ["part"] * 2
    monkeypatch.setattr(kit, "PARTS", {"part": (recipe, "version 2")})
    kit.lay("part")
    assert laid == ["part"] * 3
