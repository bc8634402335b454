"""What notebooks show: tables, videos and frames as pictures."""

from __future__ import annotations

import os
from base64 import b64decode
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.cases import allowed
from support.clips import VIDEOS, clip
from support.media import ffmpeg

import penstock
from penstock import Decoder, probe
from penstock.video import EncodeReport

FORMATS = {  # and where red, green, blue, alpha are in them
    "rgb24": [0, 1, 2],
    "bgr24": [2, 1, 0],
    "rgba": [0, 1, 2, 3],
    "abgr": [3, 2, 1, 0],
    "0rgb": [1, 2, 3],
    "gray": [],
    "gray10le": [],
    "gray16le": [],
    "grayf32le": [],
    "rgb48le": [0, 1, 2],
    "bgra64le": [2, 1, 0, 3],
    "gbrp": [2, 0, 1],
    "gbrpf32le": [2, 0, 1],
}
MOVING = "testsrc2=size=64x48:rate=10:duration=1"


class Table(HTMLParser):
    """The rows of the only table, by the text of their first cell, and what is shown below it: kind and bytes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.shown: list[tuple[str, bytes]] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str]]) -> None:
        if tag not in ("br", "img"):
            self.open.append(tag)
        if tag in ("img", "video"):
            kind, data = dict(attrs)["src"].removeprefix("data:").split(";base64,")
            self.shown.append((kind, b64decode(data)))
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("th", "td"):
            self.cells[-1] += data

    @property
    def rows(self) -> dict[str, str]:
        return dict(zip(self.cells[::2], self.cells[1::2], strict=True))


def rows(record: object) -> dict[str, str]:
    return Table(record._repr_html_()).rows  # type: ignore[attr-defined]


def shown(record: object) -> list[tuple[str, bytes]]:
    return Table(record._repr_html_()).shown  # type: ignore[attr-defined]


def made(path: Path, *arguments: str) -> Path:
    ffmpeg("-f", "lavfi", "-i", MOVING, *arguments, "-y", f"file:{path}")
    return path


def report_on(path: object) -> EncodeReport:
    return EncodeReport(str(path), 10, 10, 0, 96, None, 0.5, 4.0)


def test_report_is_shown_as_a_table() -> None:
    report = EncodeReport("/a<b>&.mp4", 2, 2, 0, 96, None, 0.5, 4.0, ("alpha is lost", "<b>"))
    assert rows(report)["output"] == "/a<b>&.mp4"
    assert rows(report)["output_bytes"] == ""
    assert rows(report)["warnings"] == "alpha is lost<b>"


def test_video_info_is_shown_as_a_table() -> None:
    info = probe(clip(sorted(VIDEOS)[0])).video[0]
    assert rows(info)["codec"] == info.codec
    assert Fraction(rows(info)["frame_rate"]) == info.frame_rate


def test_a_topology_has_counts_and_no_records() -> None:
    topology = penstock.cpu.topology()
    assert rows(topology)["logical_processors"] == str(len(topology.logical_processors))
    assert len(topology._repr_html_()) < 2000


def test_file_info_is_escaped_and_lists_its_streams(tmp_path: Path) -> None:
    path = made(tmp_path / allowed("<b>&.mp4"), "-f", "lavfi", "-i", "sine=duration=1", "-pix_fmt", "yuv420p")
    html = probe(path)._repr_html_()
    assert "<b>" not in html
    told = Table(html).rows
    assert [*told] == ["file", "#0 video", "#1 audio"]
    assert told["file"].startswith("QuickTime / MOV, 0:00:01.0, ")
    assert told["#0 video"].startswith("h264 (High), yuv420p, 64x48, 10 frames/s, 10 frames, ")
    assert told["#1 audio"].startswith("aac (LC), 44100 Hz, mono, ")


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("v.mp4", ("-pix_fmt", "yuv420p"), "video/mp4"),
        ("v.webm", ("-c:v", "libvpx"), "video/webm"),
        ("v.gif", (), "image/gif"),
        ("v.PNG", ("-frames:v", "1", "-c:v", "png", "-f", "image2", "-update", "1"), "image/png"),
    ],
)
def test_video_that_browsers_play_is_embedded(
    tmp_path: Path, name: str, arguments: tuple[str, ...], kind: str
) -> None:
    path = made(tmp_path / name, *arguments)
    assert shown(report_on(path)) == shown(probe(path)) == [(kind, path.read_bytes())]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("v.mkv", ()), ("v.mp4", ("-pix_fmt", "yuv444p")), ("v.mp4", ("-c:v", "libx265")), ("v.mov", ())],
)
def test_video_that_browsers_do_not_play_is_not_embedded(
    tmp_path: Path, name: str, arguments: tuple[str, ...]
) -> None:
    path = made(tmp_path / name, *arguments)
    assert shown(report_on(path)) == shown(probe(path)) == []


def test_large_video_is_not_embedded(tmp_path: Path) -> None:
    path = made(tmp_path / "v.mp4", "-pix_fmt", "yuv420p")
    os.truncate(path, 8_000_000)
    assert len(shown(report_on(path))) == 1
    os.truncate(path, 8_000_001)
    assert shown(report_on(path)) == shown(probe(path)) == []


@pytest.mark.linux("FIFOs")
def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.mp4")
    assert shown(report_on(tmp_path / "fifo.mp4")) == []


def test_output_that_is_no_video_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    (tmp_path / "folder.mp4").mkdir()
    gone = made(tmp_path / "gone.mp4", "-pix_fmt", "yuv420p")
    info = probe(gone)
    gone.unlink()
    for name in ("broken.mp4", "folder.mp4", "gone.mp4"):
        assert shown(report_on(tmp_path / name)) == []
    assert shown(report_on("rtmp://nowhere/v.mp4")) == shown(info) == []


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("video") / "v.mp4", "-pix_fmt", "yuv420p")


@pytest.mark.parametrize("pixel_format", FORMATS)
def test_frame_is_shown_as_a_picture(video: Path, pixel_format: str) -> None:
    with Decoder(video, pixel_format=pixel_format) as decoder:
        frame = decoder[3]
    picture = frame._repr_png_()
    assert picture is not None
    with Decoder(picture, pixel_format="source") as decoder:
        [seen] = decoder
    channels = FORMATS[pixel_format]
    samples = np.stack(frame.planes, axis=-1) if pixel_format.startswith("gbr") else np.asarray(frame)
    meant = samples[..., channels] if channels else samples
    largest = {"f": 1, "u": 1023 if "10" in pixel_format else 2 ** (8 * frame.itemsize) - 1}
    error = np.abs(seen - 255 * meant.astype(float) / largest[frame.dtype.kind])
    assert error.max() <= (0 if frame.dtype == np.uint8 else 2)


@pytest.mark.parametrize(("size", "shown"), [((3000, 30), (1024, 10)), ((30, 3000), (10, 1024))])
def test_large_frame_is_scaled_down_as_a_picture(
    video: Path, size: tuple[int, int], shown: tuple[int, int]
) -> None:
    with Decoder(video, size=size) as decoder:
        picture = decoder.read()._repr_png_()
    with Decoder(picture) as decoder:
        assert decoder.size == shown


@pytest.mark.parametrize("size", [(1, 1), (1025, 1), (3, 7)])
def test_frames_of_odd_sizes_are_shown_as_pictures(video: Path, size: tuple[int, int]) -> None:
    with Decoder(video, size=size) as decoder, Decoder(decoder.read()._repr_png_()) as picture:
        assert picture.size == (min(size[0], 1024), size[1])


def test_object_that_is_no_frame_is_not_shown_as_a_picture(video: Path) -> None:
    with Decoder(video, pixel_format="source") as decoder:
        assert decoder.read()._repr_png_() is None  # the matrix is not known
    with Decoder(video) as decoder:
        frame = decoder.read()
    assert frame[:10]._repr_png_() is None
    before = frame._repr_png_()
    frame[:] = 0
    assert frame._repr_png_() != before
