"""The counts of a small package are right."""

from __future__ import annotations

from pathlib import Path

from scripts.count_special_cases import measures

SESSION = """
'''mkv'''

# FFmpeg 5.1 forgets it, and PyAV before 19, but not FFmpeg alone.
CONTAINERS = ("mkv", "mkv", ".mp4", "of mkv", "x")
ENCODERS = re.compile("(libx26[45]|h264_nvenc|gif)$"), "yuv420p10le"


class EncodeSession:
    kind = "encoder"
    writer: Writer

    def start(self):
        from penstock import cli

        self.report, (self._a, other.b) = None, pair
        self._a = 1
        return self._feed is None or self._feed is not None
"""
TESTS = """
def test_it():
    with pytest.raises(ValueError, match="size") as caught:
        fail()
    assert "size" in str(caught.value) and "the size" in str(caught.value)
    with pytest.warns(match=r"a\\.mp4 ends"):
        warn()
"""


def test_special_cases_are_counted(tmp_path: Path) -> None:
    sources = {
        "python/penstock/_encoding/session.py": SESSION,
        "python/penstock/_encoding/stub.pyi": SESSION,
        "python/penstock/cli.py": "",
        "tests/test_it.py": TESTS,
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    (tmp_path / "python/penstock/__init__.py").touch()
    assert list(measures(tmp_path).values()) == [4, 1, 4, 2, 1, 12, 6, 3, 2]
