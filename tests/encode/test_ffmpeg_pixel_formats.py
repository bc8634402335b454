"""The bytes of raw frames, against what every FFmpeg of this machine writes."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

import pytest
from support.processes import script

from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock._ffmpeg.program import capabilities
from penstock._formats.pixel_formats import PIXEL_FORMATS, divides_evenly, is_gray, is_rgb, subsampling
from penstock.errors import EncoderError
from penstock.video import find_ffmpeg

ODD = (7, 5)
SIZES = ((64, 48), ODD, (1, 1))


@functools.cache
def written_bytes(ffmpeg: str) -> dict[tuple[str, tuple[int, int]], int]:
    """The bytes of the frames that one run of FFmpeg converts to every writable format, by format and size.

    `frame_layout` asks FFmpeg's reading side; this is its writing side.
    """
    listing = capabilities.stdout_of(ffmpeg, "-pix_fmts")
    writable = re.findall(r"^[I.]O[H.][P.][B.] (\w+) +\d", listing, re.MULTILINE)
    raw = ("-f", "rawvideo", "-pixel_format", "rgb24")
    sources = [(*raw, "-video_size", f"{width}x{height}", "-i", "/dev/zero") for width, height in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [
            (
                "-map",
                str(index),
                "-frames:v",
                "1",
                "-pix_fmt",
                name,
                "-f",
                "rawvideo",
                f"{folder}/{name}-{index}",
            )
            for index, size in enumerate(SIZES)
            for name in (writable if size == ODD else PIXEL_FORMATS)
        ]
        subprocess.run([ffmpeg, "-v", "error", *chain(*sources), *chain(*outputs)], check=True, timeout=60)
        sizes = {path.name: path.stat().st_size for path in Path(folder).iterdir()}
    return {
        (name, SIZES[int(index)]): size
        for key, size in sizes.items()
        for name, _, index in [key.rpartition("-")]
    }


# Bits, palettes, packed and planar formats, floats, Bayer patterns, big-endian ones.
QUICK_FORMATS = ("monow", "pal8", "uyyvyy411", "gbrapf32le", "bayer_bggr8", "xyz12le")
SLOW_FORMATS = (
    *("monob", "rgb4", "rgb565le", "rgb555be", "gray14le", "gray16be", "ya16be", "yuyv422", "uyvy422"),
    *("yuv410p", "yuv411p", "yuv440p", "yuva420p", "nv21", "nv16", "p010be", "gbrap", "gbrap16le"),
    *("x2rgb10le", "bayer_rggb16le", "yuv422p16be"),
)


@pytest.mark.parametrize(
    "pixel_formats",
    [QUICK_FORMATS, pytest.param(SLOW_FORMATS, marks=pytest.mark.exhaustive)],
    ids=["quick", "all"],
)
def test_formats_outside_the_table_have_the_bytes_that_ffmpeg_writes(
    ffmpeg: str, pixel_formats: tuple[str, ...]
) -> None:
    for pixel_format in pixel_formats:
        layout = frame_layout(pixel_format, *ODD, ffmpeg)
        assert layout.planes == ((layout.frame_bytes,),)
        assert written_bytes(ffmpeg).get((pixel_format, ODD), layout.frame_bytes) == layout.frame_bytes, (
            pixel_format
        )


def test_frame_bytes_are_known_for_formats_that_ffmpeg_only_reads(ffmpeg: str) -> None:
    assert frame_layout("bayer_bggr8", 8, 6, ffmpeg).frame_bytes == 48
    assert frame_layout("monow", *ODD, ffmpeg).frame_bytes == 5


@pytest.mark.parametrize("size", SIZES)
def test_the_table_has_the_bytes_that_ffmpeg_writes(ffmpeg: str, size: tuple[int, int]) -> None:
    expected = {name: written_bytes(ffmpeg)[name, size] for name in PIXEL_FORMATS}
    assert {
        name: frame_layout(name, *size, "/missing/ffmpeg").frame_bytes for name in PIXEL_FORMATS
    } == expected


@pytest.mark.parametrize("short", ["rgb48", "rgba64", "gray16", "yuv420p10", "bgr48", "gbrp12"])
def test_format_name_without_byte_order_gets_the_native_byte_order(ffmpeg: str, short: str) -> None:
    layout = frame_layout(short, *ODD, ffmpeg)
    assert layout.pixel_format == f"{short}{'le' if sys.byteorder == 'little' else 'be'}"
    assert layout.frame_bytes == frame_layout(layout.pixel_format, *ODD, ffmpeg).frame_bytes


def test_the_bytes_are_measured_once(tmp_path: Path) -> None:
    program = str(
        script(tmp_path / "program", f"echo asked >> {tmp_path}/asked", f"exec '{find_ffmpeg()}' \"$@\"")
    )
    for _ in range(3):
        assert frame_layout("gbrap", *ODD, program).frame_bytes == 4 * 35
    assert (tmp_path / "asked").read_text().count("asked") == 2  # the names, the bytes


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("yuv402p", "Did you mean 'yuv420p'"),
        ("rgb", "Did you mean 'rgb24'"),
        ("BGR", "Did you mean 'bgr24'"),
        ("RGB24", "Did you mean 'rgb24'"),
        ("nonsense", "unknown raw pixel format 'nonsense'"),
        ("", "unknown raw pixel format ''"),
        ("vaapi", "in GPU memory"),
        ("cuda", "in GPU memory"),
    ],
)
def test_unknown_and_hardware_formats_raise(ffmpeg: str, wrong: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        frame_layout(wrong, 64, 48, ffmpeg)


def test_frame_too_large_for_ffmpeg_raises(ffmpeg: str) -> None:
    with pytest.raises(EncoderError):
        frame_layout("gbrap", 1_000_000, 1_000_000, ffmpeg)


def test_an_unknown_format_needs_an_ffmpeg_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_FFMPEG", "/missing/ffmpeg")
    assert frame_layout("rgb24", 64, 48).frame_bytes == 64 * 48 * 3
    with pytest.raises(EncoderError):
        frame_layout("gbrap", 64, 48)


@pytest.mark.parametrize(
    ("shared", "pixel_formats"),
    [
        ((2, 2), ("yuv420p", "yuvj420p", "yuv420p10le", "yuv420p10", "yuva420p16be", "p010le", "nv21")),
        ((2, 1), ("yuv422p", "yuyv422")),
        ((1, 2), ("yuv440p12le",)),
        ((4, 1), ("yuv411p",)),
        ((4, 4), ("yuv410p",)),
        ((1, 1), ("yuv444p", "rgb24", "gray10le", "nonsense")),
    ],
)
def test_subsampling_matches_the_format(shared: tuple[int, int], pixel_formats: tuple[str, ...]) -> None:
    for pixel_format in pixel_formats:
        assert subsampling(pixel_format) == shared
        assert divides_evenly(pixel_format, *shared)
        assert divides_evenly(pixel_format, 3, 3) == (shared == (1, 1))


def test_rgb_and_gray_formats_are_recognized() -> None:
    assert all(map(is_rgb, ("rgb24", "bgr0", "gbrp10le", "argb", "pal8", "x2rgb10le", "rgb565le")))
    assert all(map(is_gray, ("gray", "gray10le", "ya8", "yaf16le", "yaf32be", "monow")))
    assert not any(
        is_rgb(name) or is_gray(name) for name in ("yuv420p", "nv12", "uyvy422", "p010le", "yuva444p")
    )
