"""The check of imports keeps what only one operating system has in one room."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_imports


def test_words_of_one_system_are_refused_outside_of_its_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check_imports, "STILL_OF_ONE_SYSTEM", {"known.py": {"fcntl"}, "moved.py": {"/proc/"}})
    (tmp_path / "_platform").mkdir()
    for name in ("_platform/descriptors.py", "known.py", "new.py"):
        (tmp_path / name).write_text("import os\nimport fcntl\n")
    (tmp_path / "moved.py").write_text("import os\n")
    said = list(check_imports.of_one_system(tmp_path))
    assert [line.partition(":")[0] for line in said] == ["moved.py", "new.py"]


def test_a_rooms_own_attribute_is_refused_elsewhere(tmp_path: Path) -> None:
    for room in ("_encoding", "cli"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text(
            "self._encoder._session.process\nself._session\nencoder._intake\n"
        )
    assert list(check_imports.borrowed(tmp_path)) == ["cli/a.py:1: self._encoder._session"]
