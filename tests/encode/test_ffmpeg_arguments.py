"""FFmpeg's command line: colors, sizes and filters, checked in the files that FFmpeg writes."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from penstock._ffmpeg.command import colors
from penstock._ffmpeg.command.arguments import (
    conversion_filters,
    input_arguments,
    option_arguments,
    output_arguments,
    output_size,
    with_filters,
)
from penstock._ffmpeg.command.colors import VideoColors
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock._ffmpeg.program import capabilities
from penstock.video import Colors

SIZE = WIDTH, HEIGHT = (64, 48)
# Weights of red and of blue in luma (ITU-R BT.601, BT.709, BT.2020).
WEIGHTS = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
TAGS = {
    "bt601": ("smpte170m", "smpte170m", "smpte170m"),
    "bt709": ("bt709", "bt709", "bt709"),
    "bt2020": ("bt2020nc", "bt2020", "bt2020-10"),
}


def run(
    ffmpeg: str,
    frames: bytes,
    output: str | Path,
    pixel_format: str,
    *,
    codec: str = "rawvideo",
    output_pixel_format: str = "yuv420p",
    matrix: str = "bt709",
    color_range: str = "limited",
    size: tuple[int, int] = SIZE,
    container_format: str | None = None,
    odd_size: str = "error",
    vflip: bool = False,
    centered: bool = True,
    **options: object,
) -> subprocess.CompletedProcess[bytes]:
    """Encodes with the arguments of an `Encoder` that leaves the conversion to FFmpeg. Captures FFmpeg's output."""
    layout = frame_layout(pixel_format, *size)
    tags = VideoColors(matrix, color_range)
    filters = conversion_filters(layout, output_pixel_format, tags, odd_size=odd_size, vflip=vflip)
    inputs = colors.input_color_arguments(pixel_format, tags, centered=centered)
    outputs = colors.output_color_arguments(output_pixel_format, tags, centered=centered)
    arguments = [
        *(ffmpeg, "-hide_banner", "-nostats", "-loglevel", "verbose", "-xerror"),
        *input_arguments(layout, Fraction(30), inputs),
        *output_arguments(
            Output.of(output, container_format),
            codec,
            output_pixel_format,
            with_filters(options, filters),
            outputs,
        ),
    ]
    done = subprocess.run(arguments, input=frames, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done


def raw(ffmpeg: str, frame: np.ndarray, pixel_format: str, **options: object) -> bytes:
    """The bytes of the frame that FFmpeg makes of `frame`."""
    height, width = frame.shape[:2]
    arguments = {"size": (width, height), "container_format": "rawvideo", **options}
    return run(ffmpeg, frame.tobytes(), "-", pixel_format, **arguments).stdout  # type: ignore[arg-type]


def tags(path: Path) -> dict[str, str]:
    entries = "stream=pix_fmt,color_range,color_space,color_primaries,color_transfer,chroma_location"
    probe = ["ffprobe", "-v", "error", "-show_entries", entries, "-of", "json", str(path)]
    done = subprocess.run(probe, capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)["streams"][0]
    return found


needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="no ffprobe")


# Colors


def test_auto_matrix_depends_on_the_height() -> None:
    matrices = [colors.colors_for("libx264", Colors(), height).matrix for height in (480, 719, 720, 2160)]
    assert matrices == ["bt601"] * 2 + ["bt709"] * 2
    assert colors.colors_for("libx264", Colors(matrix="bt2020"), 480).matrix == "bt2020"


def test_chroma_location_is_stated_if_chroma_was_converted() -> None:
    assert colors.is_centered("rgb24", "yuv420p10") and colors.is_centered("gray", "yuva420p")
    assert not colors.is_centered("yuv444p", "yuv420p") and not colors.is_centered("rgb24", "yuv444p")
    center = ["-chroma_sample_location", "center"]
    tags = VideoColors("bt709", "full")
    assert colors.output_color_arguments("yuv420p", tags, centered=True)[-2:] == center
    assert colors.input_color_arguments("rgb24", tags, centered=True)[-2:] == center
    assert colors.output_color_arguments(None, tags) == []


def test_jpeg_has_its_own_colors() -> None:
    assert colors.colors_for("mjpeg", Colors(), 1080) == VideoColors("bt601", "full")
    assert colors.colors_for("libx264", Colors(), 1080) == VideoColors("bt709", "limited")
    assert colors.jpeg_pixel_format("mjpeg", "yuv422p") == "yuvj422p"
    assert colors.jpeg_pixel_format("libx264", "yuv422p") == "yuv422p"
    with pytest.raises(ValueError):
        colors.colors_for("mjpeg", Colors(matrix="bt709"), 1080)


KINDS = [
    ("libx264", "yuv420p", "mp4"),
    ("libx264", "yuv420p", "mkv"),
    ("libx264", "yuv444p", "mp4"),
    ("libx264", "yuv420p10le", "mp4"),
    ("libx265", "yuv420p", "mp4"),
    ("libvpx-vp9", "yuv420p", "webm"),
    ("ffv1", "yuv420p", "mkv"),
    ("mpeg4", "yuv420p", "mp4"),
    ("prores_ks", "yuv422p10le", "mov"),
]
# Codecs that cannot store them.
NO_RANGE = ("prores_ks",)
NO_SITING = ("prores_ks", "mpeg4")


@needs_ffprobe
@pytest.mark.parametrize(("codec", "pixel_format", "ending"), KINDS)
@pytest.mark.parametrize(
    ("matrix", "color_range", "native"),
    [
        ("bt709", "limited", False),
        ("bt601", "full", True),
        *(
            pytest.param(*colors, marks=pytest.mark.exhaustive)
            for colors in (
                *(("bt709", "limited", True), ("bt601", "full", False)),
                *(("bt2020", "limited", True), ("bt2020", "limited", False)),
            )
        ),
    ],
)
def test_tags_arrive_and_nothing_else_is_converted(
    ffmpeg: str,
    tmp_path: Path,
    codec: str,
    pixel_format: str,
    ending: str,
    matrix: str,
    color_range: str,
    native: bool,
) -> None:
    if codec not in capabilities.encoders(ffmpeg):
        pytest.skip(f"this FFmpeg has no {codec}")
    output = tmp_path / f"video.{ending}"
    source = pixel_format if native else "rgb24"
    frames = bytes(3 * frame_layout(source, *SIZE).frame_bytes)
    colors = {"matrix": matrix, "color_range": color_range}
    done = run(ffmpeg, frames, output, source, codec=codec, output_pixel_format=pixel_format, **colors)  # type: ignore[arg-type]
    assert b"auto_scale" not in done.stderr
    found = tags(output)
    assert (found["color_space"], found["color_primaries"], found["color_transfer"]) == TAGS[matrix]
    if codec not in NO_RANGE:
        assert found["color_range"] == {"limited": "tv", "full": "pc"}[color_range]
    if pixel_format != "yuv444p" and codec not in NO_SITING:
        assert found["chroma_location"] == "center"


def test_lists_and_tuples_repeat_an_option() -> None:
    options = {"metadata": ["title=x", "artist=y"], "map": ("0",), "an": None, "crf": 20}
    assert option_arguments(options) == [
        *("-metadata", "title=x", "-metadata", "artist=y", "-map", "0", "-an", "-crf", "20")
    ]


@needs_ffprobe
def test_rgb_gets_no_matrix(ffmpeg: str, tmp_path: Path) -> None:
    output = tmp_path / "video.mkv"
    frames = bytes(3 * 4 * WIDTH * HEIGHT)
    run(ffmpeg, frames, output, "bgr0", codec="ffv1", output_pixel_format="bgr0")
    assert tags(output).get("color_space") in (None, "gbr")


def pictures() -> dict[str, np.ndarray]:
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    ramps = np.stack([columns * 4, rows * 5, (rows + columns) * 2], axis=-1)
    bars = np.array([[255 * (n & 1), 255 * (n >> 1 & 1), 255 * (n >> 2)] for n in range(8)])
    noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3))
    return {
        "ramps": ramps.astype(np.uint8),
        "bars": bars[columns // 8].astype(np.uint8),
        "noise": noise.astype(np.uint8),
    }


def brightness(rgb: np.ndarray, matrix: str) -> np.ndarray:
    """Y of the full range, in float64: H.273, equations 20 to 30."""
    red_weight, blue_weight = WEIGHTS[matrix]
    return rgb @ [red_weight, 1 - red_weight - blue_weight, blue_weight]


def planes(data: bytes, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    samples = np.frombuffer(data, np.uint8)
    y, uv = samples[: width * height], samples[width * height :]
    return y.reshape(height, width).astype(float), uv.reshape(2, height // 2, width // 2).astype(float)


@pytest.mark.parametrize("color_range", ["limited", "full"])
def test_gray_has_the_full_range(ffmpeg: str, color_range: str) -> None:
    gray = pictures()["noise"][..., 0].copy()
    y, uv = planes(raw(ffmpeg, gray, "gray", color_range=color_range), *SIZE)
    assert np.abs(y - (gray * (219 / 255) + 16 if color_range == "limited" else gray)).max() <= 1
    assert (uv == 128).all()


@pytest.mark.parametrize(
    ("matrix", "color_range"), [("bt601", "full"), ("bt709", "limited"), ("bt2020", "limited")]
)
def test_gray_of_colors_is_their_brightness_of_the_full_range(
    ffmpeg: str, matrix: str, color_range: str
) -> None:
    rgb = np.concatenate([pictures()[name] for name in ("ramps", "bars")])
    colors = {"matrix": matrix, "color_range": color_range}
    for pixel_format, dtype, step, scale, off in (
        ("gray", np.uint8, 1, 1, 1),
        ("ya8", np.uint8, 2, 1, 1),
        # White is 254 × 257 with FFmpeg 5.1 and 7.1, which make 16 bits of 8 by a shift.
        ("gray16le", "<u2", 1, 257, 2),
    ):
        got = np.frombuffer(raw(ffmpeg, rgb, "rgb24", output_pixel_format=pixel_format, **colors), dtype)
        assert (
            np.abs(got[::step].reshape(rgb.shape[:2]) / scale - brightness(rgb, matrix).round()).max() <= off
        )


def test_gray_of_more_bits_keeps_its_range(ffmpeg: str) -> None:
    gray = pictures()["noise"][..., 0].copy()
    got = raw(ffmpeg, gray, "gray", output_pixel_format="gray16le", color_range="limited")
    assert np.abs(np.frombuffer(got, "<u2").reshape(HEIGHT, WIDTH) / 257 - gray).max() <= 1


def test_frames_of_the_outputs_format_pass_untouched(ffmpeg: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH * 3 // 2), np.uint8)
    for color_range in ("limited", "full"):
        assert raw(ffmpeg, noise, "yuv420p", size=SIZE, color_range=color_range) == noise.tobytes()


@pytest.mark.parametrize(
    ("matrix", "color_range"), [("bt709", "limited"), ("bt601", "full"), ("bt2020", "full")]
)
def test_yuv_of_another_layout_keeps_its_colors(ffmpeg: str, matrix: str, color_range: str) -> None:
    y, u, v = 100, 60, 200
    packed = np.tile(np.array([u, y, v, y], np.uint8), (HEIGHT, WIDTH // 2))
    found_y, found_uv = planes(
        raw(ffmpeg, packed, "uyvy422", size=SIZE, matrix=matrix, color_range=color_range), *SIZE
    )
    assert (found_y == y).all()
    assert (found_uv[0] == u).all() and (found_uv[1] == v).all()


# Filters


def test_only_subsampled_dimensions_are_made_even() -> None:
    assert output_size(7, 5, "yuv422p", "pad") == (8, 5)
    assert output_size(7, 5, "yuv444p", "pad") == (7, 5)
    assert output_size(7, 5, None, "pad") == (7, 5)
    assert output_size(7, 5, "yuv420p", "error") == (7, 5)


def test_user_filters_come_last(ffmpeg: str) -> None:
    for name in ("vf", "filter", "filter:v", "filter:v:0"):
        options = with_filters({"g": 3, name: "hflip"}, ["vflip", "scale=2:2"])
        assert options == {"g": 3, "filter:v": "vflip,scale=2:2,hflip"}
    assert with_filters({"vf": "hflip"}, []) == {"vf": "hflip"}
    rgb = pictures()["noise"]
    assert raw(ffmpeg, rgb, "rgb24", vf="hflip") == raw(ffmpeg, np.ascontiguousarray(rgb[:, ::-1]), "rgb24")
