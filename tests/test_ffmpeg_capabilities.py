"""FFmpeg's listings, and the bytes of its raw frames, with every FFmpeg of this machine."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from conftest import script

from penstock.errors import EncoderError
from penstock.ffmpeg import capabilities, find_ffmpeg
from penstock.ffmpeg.pixel_formats import (
    PIXEL_FORMATS,
    divides_evenly,
    frame_layout,
    is_gray,
    is_rgb,
    subsampling,
)

ODD = (7, 5)
SIZES = ((64, 48), ODD, (1, 1))


@functools.cache
def written_bytes(ffmpeg: str) -> dict[tuple[str, tuple[int, int]], int]:
    """The bytes of the frames that one run of FFmpeg converts to every writable format, by format and size.

    `frame_layout` asks FFmpeg's reading side; this is its writing side.
    """
    writable = [one.name for one in capabilities.pixel_formats(ffmpeg).values() if one.writable]
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


# Listings


def test_smoke(ffmpeg: str) -> None:
    assert {"mpeg4", "ffv1", "rawvideo"} <= set(capabilities.encoders(ffmpeg))
    assert "aac" not in capabilities.encoders(ffmpeg)
    assert {"mp4", "matroska", "mpegts", "null"} <= set(capabilities.muxers(ffmpeg))
    assert {"h264", "mpeg4"} <= set(capabilities.codecs(ffmpeg))
    assert {"scale", "vflip"} <= set(capabilities.filters(ffmpeg))
    assert set(PIXEL_FORMATS) <= set(capabilities.pixel_formats(ffmpeg))


@pytest.mark.parametrize(
    ("listing", "names"), [("-encoders", capabilities.encoders), ("-muxers", capabilities.muxers)]
)
def test_listings_are_complete(ffmpeg: str, listing: str, names: Callable[[str], tuple[str, ...]]) -> None:
    said = subprocess.run(
        [ffmpeg, "-hide_banner", listing], capture_output=True, text=True, check=True
    ).stdout
    _, _, lines = said.partition("--\n")
    described = [line for line in lines.splitlines() if listing == "-muxers" or line.startswith(" V")]
    assert len(names(ffmpeg)) == sum(1 + line.split()[1].count(",") for line in described) > 20


def test_options_have_their_values_and_limits(ffmpeg: str) -> None:
    options = capabilities.encoder_options(ffmpeg, "mpeg4")
    assert options["mpv_flags"].kind == "flags"
    assert {"skip_rd", "naq"} <= set(options["mpv_flags"].values)
    assert options["skip_factor"].limits.startswith("from ")
    assert "faststart" in capabilities.muxer_options(ffmpeg, "mp4")["movflags"].values
    assert {"b", "bf", "g", "r", "vf", "filter", "pix_fmt", "colorspace"} <= set(
        capabilities.global_options(ffmpeg)
    )
    assert "crf" not in capabilities.global_options(ffmpeg)  # an encoder's own
    assert capabilities.encoder_options(ffmpeg, "nonsense") == {}


def test_each_listing_is_read_once(tmp_path: Path) -> None:
    program = str(
        script(tmp_path / "program", f"echo asked >> {tmp_path}/asked", f"exec '{find_ffmpeg()}' \"$@\"")
    )
    for _ in range(3):
        assert capabilities.encoders(program)
        assert capabilities.pixel_formats(program)
    assert (tmp_path / "asked").read_text().count("asked") == 2


@pytest.mark.parametrize(
    "lines", [("exit 1",), ("echo nonsense",), ("sleep 1000 & wait",), ("exec sleep 1000",)]
)
def test_without_listings_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    monkeypatch.setattr(capabilities, "PATIENCE_S", 0.3)
    program = str(script(tmp_path / "program", *lines))
    assert (
        capabilities.encoders(program) == capabilities.muxers(program) == capabilities.filters(program) == ()
    )
    assert capabilities.pixel_formats(program) == capabilities.encoder_options(program, "libx264") == {}
    capabilities.check_codec(program, "anything")
    assert capabilities.encoders(str(tmp_path / "missing")) == ()


# Codecs


@pytest.mark.parametrize(
    ("codec", "meant"),
    [
        ("libx246", "libx264"),
        ("lix264", "libx264"),
        ("x264", "libx264"),
        ("LIBX264", "libx264"),
        ("h265", "hevc"),
        ("mpeg-4", "mpeg4"),
        ("svtav1", "libsvtav1"),
    ],
)
def test_an_unknown_codec_raises_with_the_nearest_names(ffmpeg: str, codec: str, meant: str) -> None:
    if meant not in (*capabilities.encoders(ffmpeg), *capabilities.codecs(ffmpeg)):
        pytest.skip(f"this FFmpeg has no {meant}")
    with pytest.raises(EncoderError, match=rf"'{codec}'\. Did you mean .*'{meant}'.* -encoders"):
        capabilities.check_codec(ffmpeg, codec)


@pytest.mark.parametrize("codec", ["nonsense", "aac", ""])
def test_a_codec_without_a_near_name(ffmpeg: str, codec: str) -> None:
    with pytest.raises(EncoderError, match="has no video encoder") as caught:
        capabilities.check_codec(ffmpeg, codec)
    assert codec == "nonsense" or "Did you mean 'av1'" not in str(caught.value)


@pytest.mark.parametrize("codec", ["mpeg4", "huffyuv", "h264", "copy"])
def test_codecs_that_ffmpeg_takes(ffmpeg: str, codec: str) -> None:
    capabilities.check_codec(ffmpeg, codec)


def test_common_codecs_are_not_looked_up(tmp_path: Path) -> None:
    program = str(script(tmp_path / "program", f"touch {tmp_path}/asked"))
    for codec in capabilities.COMMON_CODECS:
        capabilities.check_codec(program, codec)
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("yuv402p", ["yuv422p", "yuv420p", "yuv410p"], "yuv420p"),
        ("fats", ["faster", "fast", "slow"], "fast"),
        ("RGB24", ["bgr24", "rgb24"], "rgb24"),
        ("nvenc", ["hevc_nvenc", "nvdec"], "nvdec"),
    ],
)
def test_the_nearest_name_comes_first(name: str, known: list[str], nearest: str) -> None:
    assert capabilities.nearest(name, known)[0] == nearest


def test_no_name_is_near_nonsense() -> None:
    assert capabilities.nearest("nonsense", ["libx264", "mpeg4"]) == []
    assert capabilities.did_you_mean("nonsense", ["libx264"]) == ""


# Pixel formats


# Bits, palettes, packed and planar formats, floats, Bayer patterns, big-endian ones.
QUICK_FORMATS = ("monow", "pal8", "uyyvyy411", "gbrapf32le", "bayer_bggr8", "xyz12le")
SLOW_FORMATS = (
    *("monob", "rgb4", "rgb565le", "rgb555be", "gray14le", "gray16be", "ya8", "ya16le", "yuyv422", "uyvy422"),
    *("yuv410p", "yuv411p", "yuv440p", "yuva420p", "nv21", "nv16", "p010be", "gbrap", "gbrap16le"),
    *("x2rgb10le", "bayer_rggb16le", "yuv422p16be"),
)


@pytest.mark.parametrize(
    "pixel_formats", [QUICK_FORMATS, pytest.param(SLOW_FORMATS, marks=pytest.mark.slow)], ids=["quick", "all"]
)
def test_formats_outside_the_table_have_the_bytes_that_ffmpeg_writes(
    ffmpeg: str, pixel_formats: tuple[str, ...]
) -> None:
    known = capabilities.pixel_formats(ffmpeg)
    for pixel_format in pixel_formats:
        layout = frame_layout(pixel_format, *ODD, ffmpeg)
        assert layout.planes == ((layout.frame_bytes,),)
        if known[pixel_format].writable:
            assert layout.frame_bytes == written_bytes(ffmpeg)[pixel_format, ODD], pixel_format


def test_the_bytes_of_formats_that_ffmpeg_only_reads(ffmpeg: str) -> None:
    assert frame_layout("bayer_bggr8", 8, 6, ffmpeg).frame_bytes == 48
    assert frame_layout("monow", *ODD, ffmpeg).frame_bytes == 5


@pytest.mark.parametrize("size", SIZES)
def test_the_table_has_the_bytes_that_ffmpeg_writes(ffmpeg: str, size: tuple[int, int]) -> None:
    expected = {name: written_bytes(ffmpeg)[name, size] for name in PIXEL_FORMATS}
    assert {
        name: frame_layout(name, *size, "/missing/ffmpeg").frame_bytes for name in PIXEL_FORMATS
    } == expected


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("rgb48", "rgb48"),
        ("rgba64", "rgba64"),
        ("gray16", "gray16"),
        ("yuv420p10", "yuv420p10"),
        ("bgr48", "bgr48"),
        ("gbrp12", "gbrp12"),
    ],
)
def test_names_without_byte_order_get_that_of_this_machine(ffmpeg: str, short: str, name: str) -> None:
    layout = frame_layout(short, *ODD, ffmpeg)
    assert layout.pixel_format == f"{name}{'le' if sys.byteorder == 'little' else 'be'}"
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
        ("RGB24", "Did you mean 'rgb24'"),
        ("nonsense", "unknown raw pixel format 'nonsense'"),
        ("", "unknown raw pixel format ''"),
        ("vaapi", "no bytes"),
        ("cuda", "no bytes"),
    ],
)
def test_unknown_and_hardware_formats_raise(ffmpeg: str, wrong: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        frame_layout(wrong, 64, 48, ffmpeg)


def test_a_frame_too_large_for_ffmpeg(ffmpeg: str) -> None:
    with pytest.raises(EncoderError, match="did not tell the bytes of a gbrap frame of 1000000x1000000"):
        frame_layout("gbrap", 1_000_000, 1_000_000, ffmpeg)


def test_an_unknown_format_needs_an_ffmpeg_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_FFMPEG", "/missing/ffmpeg")
    assert frame_layout("rgb24", 64, 48).frame_bytes == 64 * 48 * 3
    with pytest.raises(EncoderError, match="/missing/ffmpeg"):
        frame_layout("gbrap", 64, 48)


@pytest.mark.parametrize(
    ("pixel_format", "shared"),
    [
        ("yuv420p", (2, 2)),
        ("yuvj420p", (2, 2)),
        ("yuv420p10le", (2, 2)),
        ("yuv420p10", (2, 2)),
        ("yuva420p16be", (2, 2)),
        ("p010le", (2, 2)),
        ("nv21", (2, 2)),
        ("yuv422p", (2, 1)),
        ("yuyv422", (2, 1)),
        ("yuv440p12le", (1, 2)),
        ("yuv411p", (4, 1)),
        ("yuv410p", (4, 4)),
        ("yuv444p", (1, 1)),
        ("rgb24", (1, 1)),
        ("gray10le", (1, 1)),
        ("nonsense", (1, 1)),
    ],
)
def test_subsampling(pixel_format: str, shared: tuple[int, int]) -> None:
    assert subsampling(pixel_format) == shared
    assert divides_evenly(pixel_format, *shared)
    assert divides_evenly(pixel_format, 3, 3) == (shared == (1, 1))


def test_kinds_of_colours() -> None:
    assert all(map(is_rgb, ("rgb24", "bgr0", "gbrp10le", "argb", "pal8", "x2rgb10le", "rgb565le")))
    assert all(map(is_gray, ("gray", "gray10le", "ya8", "monow")))
    assert not any(
        is_rgb(name) or is_gray(name) for name in ("yuv420p", "nv12", "uyvy422", "p010le", "yuva444p")
    )


def test_a_listing_leaves_no_descriptor_open() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    capabilities.stdout_of(find_ffmpeg(), "-version")
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
