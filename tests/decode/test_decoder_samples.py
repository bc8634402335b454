"""Samples of more than 8 bits: shapes, types, order, by iteration and by number, and a warning where bits are lost."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import run
from support.engines import engine as engine
from support.media import ffmpeg as run_ffmpeg

from penstock import Decoder, FFmpegWarning
from penstock._ffmpeg.command.settings import with_overrides
from penstock.video import DecoderSettings

WIDTH, HEIGHT = 66, 50
PICTURE = ("-f", "lavfi", "-i", f"testsrc2=s={WIDTH}x{HEIGHT}:r=25:d=0.12")


def made(path: Path, pixel_format: str, *arguments: str) -> Path:
    """A moving picture in that pixel format."""
    run_ffmpeg(*PICTURE, "-vf", f"format={pixel_format}", *arguments, path)
    return path


def by_ffmpeg(path: Path, pixel_format: str) -> bytes:
    """The first frame, as FFmpeg writes it raw."""
    return run_ffmpeg("-i", path, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", pixel_format, "-")


def first_frames(path: Path | bytes, **options: Any) -> tuple[Any, Any]:
    """The first frame by iteration and by number."""
    with Decoder(path, **options) as decoder:
        return next(decoder), decoder[0]


# In the file, and what a decoder gives: the pixel format, and the type and shape of frames.
STORED = {
    "gray16be": ("png", "gray16le", "<u2", (HEIGHT, WIDTH)),
    "ya16be": ("png", "ya16le", "<u2", (HEIGHT, WIDTH, 2)),
    "rgb48be": ("png", "rgb48le", "<u2", (HEIGHT, WIDTH, 3)),
    "rgba64be": ("png", "rgba64le", "<u2", (HEIGHT, WIDTH, 4)),
    "rgb48le": ("tiff", "rgb48le", "<u2", (HEIGHT, WIDTH, 3)),
}


@pytest.mark.parametrize("stored", STORED)
def test_the_files_own_samples_are_in_the_order_of_this_machine(
    tmp_path: Path, ffmpeg: str, stored: str
) -> None:
    ending, name, dtype, shape = STORED[stored]
    path = made(tmp_path / f"picture.{ending}", stored, "-frames:v", "1")
    expected = np.frombuffer(by_ffmpeg(path, stored), ">u2" if stored.endswith("be") else "<u2")
    with Decoder(path, pixel_format="source", settings=DecoderSettings(ffmpeg=ffmpeg)) as decoder:
        told = decoder.pixel_format, decoder.dtype, decoder.shape, decoder.converted_by
        assert told == (name, dtype, shape, None)
        for frame in (next(decoder), decoder[0], decoder.batch([0])[0]):
            assert (frame.dtype, frame.shape) == (dtype, shape)
            assert np.array_equal(frame.ravel(), expected)


def test_dtype_states_the_other_byte_order(tmp_path: Path) -> None:
    path = made(tmp_path / "picture.png", "rgb48be", "-frames:v", "1")
    with Decoder(path, pixel_format="rgb48be") as decoder:
        assert (decoder.converted_by, decoder.shape) == (None, (HEIGHT, WIDTH, 3))
    for other in first_frames(path, pixel_format="rgb48be"):
        assert (other.dtype, other.shape) == (">u2", (HEIGHT, WIDTH, 3))
        assert np.array_equal(other, first_frames(path, pixel_format="rgb48le")[0])


# Letters of the planes, the type of samples, and the shape of chroma where it is smaller.
PLANAR = {
    "gbrp16le": ("gbr", "<u2", None),
    "gbrp14le": ("gbr", "<u2", None),
    "gbrap": ("gbra", "<u1", None),
    "gbrapf32le": ("gbra", "<f4", None),
    "yuv420p16le": ("yuv", "<u2", (25, 33)),
    "yuv411p": ("yuv", "<u1", (HEIGHT, 17)),
    "yuva444p12le": ("yuva", "<u2", None),
}


@pytest.mark.parametrize("name", PLANAR)
def test_planes_have_names(tmp_path: Path, name: str) -> None:
    letters, dtype, chroma = PLANAR[name]
    kind = ("video.nut", "-c:v", "rawvideo") if dtype != "<f4" else ("picture.exr", "-frames:v", "1")
    path = made(tmp_path / kind[0], name, *kind[1:])
    for frame in first_frames(path, pixel_format="source"):
        planes = frame.planes
        assert frame.dtype == dtype
        assert b"".join(plane.tobytes() for plane in planes) == by_ffmpeg(path, name)
        for letter, plane in zip(letters, planes, strict=True):
            assert getattr(planes, letter) is plane
            assert plane.shape == (chroma if chroma and letter in "uv" else (HEIGHT, WIDTH))


def test_planes_of_semi_planar_formats_have_one_chroma_plane_and_packed_formats_have_none(
    tmp_path: Path,
) -> None:
    path = made(tmp_path / "video.nut", "yuv420p", "-c:v", "rawvideo")
    planes = first_frames(path, pixel_format="p010le")[0].planes
    assert (planes.y.shape, planes.uv.shape) == ((HEIGHT, WIDTH), (25, 33, 2))
    packed = first_frames(path, pixel_format="rgb24")[0].planes
    with pytest.raises(AttributeError):
        packed.r  # noqa: B018


@pytest.mark.parametrize("name", ["rgb565le", "x2rgb10le", "yuyv422", "rgb4_byte", "monow"])
def test_samples_that_share_bytes_are_flat_bytes(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "video.nut", "rgb24", "-c:v", "rawvideo")
    for frame in first_frames(path, pixel_format=name)[:1]:
        assert (frame.dtype, frame.ndim) == ("u1", 1)


# --- bits that are lost -------------------------------------------------------------------------------------------

# What loses bits by default, and what keeps them.
CUT = {
    "gray16le": "gray16le",
    "gray10le": "gray16le",
    "gbrp10le": "rgb48le",
    "gbrp16le": "rgb48le",
    "yuv444p14le": "rgb48le",
}
KEPT = ("yuv420p10le", "yuv422p12le", "yuv420p", "bgr0", "gray")


def ffv1(folder: Path, pixel_format: str) -> Path:
    return made(folder / "video.mkv", pixel_format, "-c:v", "ffv1", "-strict", "-2")


def said_of(path: Path, **options: Any) -> list[str]:
    """The warnings of a decoder that reads by iteration and by number."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first_frames(path, **options)
    assert all(one.category is FFmpegWarning and one.filename == __file__ for one in said)
    return [str(one.message) for one in said]


@pytest.mark.parametrize("stored", CUT)
def test_default_of_8_bits_warns_once(tmp_path: Path, stored: str, engine: str) -> None:
    path = ffv1(tmp_path, stored)
    [said] = said_of(path)
    assert f"pixel_format={CUT[stored]!r}" in said
    assert said_of(path, pixel_format=CUT[stored]) == []


@pytest.mark.parametrize(("stored", "keeps"), [("gbrpf32le", "gbrpf32le"), ("grayf32le", "grayf32le")])
def test_conversion_from_floats_to_8_bits_warns(tmp_path: Path, stored: str, keeps: str) -> None:
    [said] = said_of(made(tmp_path / "picture.pfm", stored, "-frames:v", "1"))
    assert f"pixel_format={keeps!r}" in said


@pytest.mark.parametrize("stored", KEPT)
def test_formats_of_cameras_and_films_do_not_warn(tmp_path: Path, stored: str) -> None:
    assert said_of(ffv1(tmp_path, stored)) == []


@pytest.mark.parametrize(
    "options",
    [{"pixel_format": "rgb24"}, {"pixel_format": "gray"}, {"pixel_format": "source"}, {"size": (32, 24)}],
)
def test_explicit_format_or_size_does_not_warn(tmp_path: Path, options: dict[str, Any]) -> None:
    assert said_of(ffv1(tmp_path, "gray16le"), **options) == []


def test_hdr_has_its_own_warning_alone(tmp_path: Path) -> None:
    tagged = ("setparams=color_trc=smpte2084", "-color_trc", "smpte2084")  # FFmpeg 9, and 5.1
    [said] = said_of(made(tmp_path / "video.mkv", f"gbrp16le,{tagged[0]}", "-c:v", "ffv1", *tagged[1:]))
    assert "HDR" in said


def test_the_command_line_warns_of_bits_by_its_option(tmp_path: Path) -> None:
    path = ffv1(tmp_path, "gray16le")
    assert b"--pixel-format gray16le" in run("decode", path, tmp_path / "frames.rgb").stderr
    assert run("decode", path, tmp_path / "frames.rgb", "-p", "rgb24").stderr == b""


# --- the same frames by iteration and by number --------------------------------------------------------------------


def far(path: Path, **options: Any) -> int:
    """By how many levels the first frame differs between iteration and number."""
    first, same = (frame.astype(int) for frame in first_frames(path, **options))
    return int(np.abs(first - same).max())


@pytest.mark.parametrize("stored", ["grayf32le", "gbrpf32le"])
def test_bottom_up_rows_are_decoded_top_down(tmp_path: Path, stored: str) -> None:
    path = made(tmp_path / "picture.pfm", stored, "-frames:v", "1")
    first, same = first_frames(path, pixel_format="source")
    assert np.array_equal(first, same)


@pytest.mark.parametrize(("ending", "codec"), [("avi", "rawvideo"), ("bmp", "bmp")])
@pytest.mark.parametrize("stored", ["bgr24", "rgb555le", "bgra"])
def test_rows_of_raw_avi_and_bmp_are_decoded_top_down(
    tmp_path: Path, stored: str, ending: str, codec: str, engine: str
) -> None:
    path = made(tmp_path / f"picture.{ending}", stored, "-c:v", codec, "-frames:v", "1")
    first, same = first_frames(path, pixel_format="source")
    assert np.array_equal(first, same)


@pytest.mark.parametrize("pixel_format", ["gray", "gray16le"])
@pytest.mark.parametrize("stored", ["bgr24", "gbrp"])
def test_gray_of_rgb_matches_the_frame_by_index(tmp_path: Path, stored: str, pixel_format: str) -> None:
    path = made(tmp_path / "video.nut", stored, "-c:v", "rawvideo")
    assert far(path, pixel_format=pixel_format) == 0


@pytest.mark.parametrize("stored", ["yuv420p", "yuv422p"])
def test_planar_rgb_of_yuv_matches_the_frame_by_index(tmp_path: Path, stored: str) -> None:
    assert far(ffv1(tmp_path, stored), pixel_format="gbrp") <= 2


@pytest.mark.parametrize("pixel_format", ["rgb48le", "bgr48le"])
def test_16_bit_rgb_by_ffmpeg_matches_the_frame_by_index(tmp_path: Path, pixel_format: str) -> None:
    path = ffv1(tmp_path, "yuv422p")
    assert (
        far(path, pixel_format=pixel_format, settings=with_overrides(DecoderSettings(), convert="ffmpeg"))
        <= 2 * 257
    )


@pytest.mark.parametrize("by_number", [False, True])
def test_frames_are_right_after_a_change_of_the_pixel_format(tmp_path: Path, by_number: bool) -> None:
    pictures = [
        made(tmp_path / f"{name}.jpg", name, "-frames:v", "1", "-q:v", "2").read_bytes()
        for name in ("yuvj422p", "yuvj420p", "yuvj444p")
    ]
    path = tmp_path / "video.mjpeg"
    path.write_bytes(b"".join(pictures))
    with Decoder(path) as decoder:
        frames = decoder[:] if by_number else list(decoder)
    for frame, picture in zip(frames, pictures, strict=True):
        assert np.array_equal(frame, first_frames(picture)[0])


def test_frames_that_all_change_are_made_as_before(tmp_path: Path) -> None:
    """More sizes and pixel formats than a decoder keeps filters and memory for."""
    path = tmp_path / "video.mjpeg"
    kinds = [(name, width) for name in ("yuvj422p", "yuvj420p", "gray") for width in (66, 80, 96)]
    for name, width in kinds:
        picture = (
            *(*PICTURE, "-vf", f"scale={width}:60,format={name}", "-frames:v", "1"),
            *("-f", "mjpeg", "-"),
        )
        with path.open("ab") as file:
            file.write(run_ffmpeg(*picture))
    with Decoder(path) as decoder:
        frames = list(decoder)
        assert len(frames) == len(kinds)
        for number in (0, 3, 8, 4, 0):
            assert np.array_equal(decoder[number], frames[number])
        assert all(np.array_equal(*pair) for pair in zip(decoder[:], frames, strict=True))
