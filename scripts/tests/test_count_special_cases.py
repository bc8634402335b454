"""The counts of a small package are right."""

from __future__ import annotations

from pathlib import Path

from scripts.count_special_cases import Place, measures, outside, tables

ROOT = Path(__file__).parents[2]

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
    assert list(measures(tmp_path).values()) == [4, 4, 0, 1, 4, 2, 1, 12, 6, 3, 2]


FORMATS = """
RAW = "rawvideo"
"""
OTHERS = """
from penstock._formats.raw import RAW

# Every player shows it.
WRITTEN = "mp4"


class Request:
    pixel_format: str = "rgb24"


def write(path):
    run("-f", "nut", path)
    raise ValueError(argument("codec", "ffv1"))
    return RAW, "webm"  # what browsers take
"""


def test_names_outside_their_room_are_listed_with_a_reason(tmp_path: Path) -> None:
    for name, source in (("_formats/raw.py", FORMATS), ("cli.py", OTHERS)):
        (path := tmp_path / "python/penstock" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert sorted(outside(tmp_path), key=lambda place: place.line) == [
        Place("cli.py", 5, "mp4", "Every player shows it."),
        Place("cli.py", 9, "rgb24", "a default"),
        Place("cli.py", 13, "nut", "FFmpeg's -f"),
        Place("cli.py", 14, "ffv1", "advice in a message"),
        Place("cli.py", 15, "RAW", "what browsers take"),
        Place("cli.py", 15, "webm", "what browsers take"),
    ]


def test_few_names_are_outside_their_room_and_each_has_a_reason() -> None:
    found = outside(ROOT)
    assert len(found) <= 60
    assert [place for place in found if not place.reason] == []


def test_no_table_of_formats_is_outside_their_room() -> None:
    assert tables(ROOT) == []
