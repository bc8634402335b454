"""What `check_imports` finds in a package."""

from pathlib import Path

from scripts.check_imports import borrowed


def test_a_rooms_own_attribute_is_refused_elsewhere(tmp_path: Path) -> None:
    for room in ("_encoding", "cli"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text(
            "self._encoder._session.process\nself._session\nencoder._intake\n"
        )
    assert list(borrowed(tmp_path)) == ["cli/a.py:1: self._encoder._session"]
