"""From the caller's pixels to the video's: by whom, with which colors, and of which size."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.cases import a_few
from support.media import COLORS, decode, described, make, needs_ffprobe, picture, probed

from penstock import Decoder
from penstock._encoding.plan import plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command.settings import with_overrides
from penstock.video import Colors, DecoderSettings, EncoderSettings

LOSSLESS = {"codec": "ffv1", "options": {"f": "matroska"}}
RAW = {"codec": "rawvideo", "options": {"f": "rawvideo"}}
YUV = {"output_pixel_format": "yuv420p"}
BY = {name: {"settings": with_overrides(EncoderSettings(), convert=name)} for name in ("native", "ffmpeg")}
SIZE = (64, 48)
MATRICES = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
# FFmpeg's names of the matrix in the file.
SPACES = {"bt601": "smpte170m", "bt709": "bt709", "bt2020": "bt2020nc"}


def laid_out(rgb: np.ndarray, pixel_format: str) -> np.ndarray:
    alpha = np.full_like(rgb[..., :1], 9)
    return {
        "rgb24": lambda: rgb,
        "bgr24": lambda: rgb[..., ::-1],
        "rgba": lambda: np.concatenate([rgb, alpha], axis=-1),
        "bgra": lambda: np.concatenate([rgb[..., ::-1], alpha], axis=-1),
        "rgb48": lambda: rgb,
        "rgba64": lambda: np.concatenate([rgb, alpha], axis=-1),
    }[pixel_format]().copy()


def reference(rgb: np.ndarray, matrix: str, color_range: str) -> list[np.ndarray]:
    """Y, U and V of 8 bits in floating point, chroma as the mean of 2 × 2 pixels (ITU-T H.273, 8.3)."""
    red, green, blue = np.moveaxis(rgb / np.iinfo(rgb.dtype).max, -1, 0)
    kr, kb = MATRICES[matrix]
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    chroma = [(blue - luma) / (2 - 2 * kb), (red - luma) / (2 - 2 * kr)]
    low, luma_scale, chroma_scale = (16, 219, 224) if color_range == "limited" else (0, 255, 255)
    height, width = luma.shape
    means = [c.reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3)) for c in chroma]
    return [low + luma_scale * luma, *(np.clip(128 + chroma_scale * mean, 0, 255) for mean in means)]


def planes(raw: bytes, size: tuple[int, int] = SIZE) -> list[np.ndarray]:
    """The planes of a yuv420p frame."""
    width, height = size
    samples = np.frombuffer(raw, np.uint8)
    y, u, v = np.split(samples, [width * height, width * height * 5 // 4])
    return [
        plane.reshape(rows, -1).astype(float)
        for plane, rows in ((y, height), (u, height // 2), (v, height // 2))
    ]


def psnr_db(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / max(np.mean((a - b) ** 2), 1e-9)))


# Who converts


@pytest.mark.parametrize(
    ("pixel_format", "matrix", "color_range", "convert"),
    a_few(product(("rgb24", "bgra", "rgb48"), MATRICES, ("limited", "full"), ("native", "ffmpeg")), 5),
)
def test_colors_match_the_definition(
    tmp_path: Path, pixel_format: str, matrix: str, color_range: str, convert: str
) -> None:
    rgb = picture(dtype=np.uint16 if pixel_format == "rgb48" else np.uint8)
    output = tmp_path / "video.yuv"
    options = {"colors": Colors(matrix=matrix, range=color_range), **BY[convert]}
    with make(output, pixel_format=pixel_format, **options, **RAW, **YUV) as encoder:
        encoder.write(laid_out(rgb, pixel_format))
    assert encoder.converted_by == ("penstock" if convert == "native" else "ffmpeg")
    got, expected = planes(output.read_bytes()), reference(rgb, matrix, color_range)
    # FFmpeg's own arithmetic is not ours to answer for: the bound on luma is the native one's.
    assert np.abs(got[0] - np.rint(expected[0])).max() <= (1 if convert == "native" else 3)
    for channel in (1, 2):
        assert psnr_db(got[channel], expected[channel]) >= (45 if convert == "native" else 40)


@pytest.mark.parametrize(
    ("pixel_format", "output_pixel_format", "is_native"),
    [
        ("rgb24", "yuv420p", True),
        ("rgba64", "yuv422p10le", True),
        ("rgb24", "yuv444p10", True),
        ("gray", "nv12", True),
        ("rgb0", "yuv420p", True),
        ("rgb24", "gbrp", False),
        ("yuv420p", "yuv444p", False),
        ("yuv420p", "yuv420p", False),
        ("rgb24", "ffmpeg", False),
    ],
)
def test_auto_conversion_is_native_if_possible(
    pixel_format: str, output_pixel_format: str, is_native: bool
) -> None:
    formats = {"pixel_format": pixel_format, "output_pixel_format": output_pixel_format}
    made = plan(Request("video.nut", fps=30, codec="rawvideo", **formats), SIZE)
    assert (made.conversion is not None) == is_native


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: EncoderSettings(stall_timeout=0), "stall_timeout"),
        (lambda: EncoderSettings(queue_items=0), "queue_items"),
        (lambda: DecoderSettings(threads=0), "threads"),
        (lambda: Colors(matrix="rec709"), "bt709"),
        (lambda: Colors(range="tv"), "limited"),
    ],
)
def test_a_wrong_choice_is_an_error_that_names_the_choices(call: Callable[[], object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        call()


def test_format_that_only_ffmpeg_knows_is_encoded(tmp_path: Path) -> None:
    output = tmp_path / "video.mkv"
    with make(output, size=(48, 32), pixel_format="yuyv422", output_pixel_format="yuv422p", **LOSSLESS) as e:
        assert e.frame_bytes == 48 * 32 * 2
        e.write(bytes([100, 128] * 48 * 32))


# Tags


@needs_ffprobe
@pytest.mark.parametrize("convert", ["native", "ffmpeg"])
@pytest.mark.parametrize(
    ("size", "matrix", "expected"),
    [((64, 48), "auto", "bt601"), ((64, 720), "auto", "bt709"), ((64, 48), "bt2020", "bt2020")],
)
def test_colors_are_written_to_the_file(
    tmp_path: Path, convert: str, size: tuple[int, int], matrix: str, expected: str
) -> None:
    output = tmp_path / "video.mp4"
    with make(output, size=size, colors=Colors(matrix=matrix), **BY[convert]) as encoder:
        encoder.write(picture(size))
    stream = probed(output)
    assert stream["pix_fmt"] == "yuv420p"
    assert (stream["color_space"], stream["color_range"]) == (SPACES[expected], "tv")
    assert {"color_primaries", "color_transfer"} <= stream.keys()
    assert stream["chroma_location"] == "center"


@needs_ffprobe
def test_motion_jpeg_uses_full_range(tmp_path: Path) -> None:
    output = tmp_path / "video.avi"
    with make(output, codec="mjpeg", options={"q:v": 2}) as encoder:
        for _ in range(3):
            encoder.write(np.full((48, 64, 3), 255, np.uint8))
    assert encoder.converted_by == "penstock"
    assert probed(output)["color_range"] == "pc"
    assert decode(output).min() >= 253


@pytest.mark.parametrize("convert", ["native", "ffmpeg"])
def test_player_shows_the_colors_that_were_written(tmp_path: Path, convert: str) -> None:
    output = tmp_path / "video.mkv"
    size = (64, 720)  # where BT.709 is, and where BT.601 would be off by a dozen and more
    with make(output, size=size, **BY[convert], **LOSSLESS, **YUV) as encoder:
        for color in COLORS:
            encoder.write(np.broadcast_to(np.uint8(color), (720, 64, 3)).copy())
    for frame, color in zip(decode(output, size), COLORS, strict=True):
        assert np.abs(frame.astype(int) - color).max() <= 3


# Upside down, and odd sizes


@pytest.mark.parametrize(
    ("output_pixel_format", "convert"),
    [("yuv420p", "native"), ("yuv420p", "ffmpeg"), ("rgb24", "native"), ("ffmpeg", "ffmpeg")],
)
def test_vflip_encodes_bottom_up_frames(tmp_path: Path, output_pixel_format: str, convert: str) -> None:
    rgb = picture()
    raws = []
    for index, frame in enumerate((rgb, np.ascontiguousarray(rgb[::-1]))):
        output = tmp_path / f"{index}.raw"
        options = {"output_pixel_format": output_pixel_format, "vflip": index == 1, **BY[convert]}
        with make(output, **options, **RAW) as encoder:
            encoder.write(frame)
        raws.append(output.read_bytes())
    assert raws[0] == raws[1]


@pytest.mark.parametrize("convert", ["native", "ffmpeg"])
@pytest.mark.parametrize("size", [(63, 47), (64, 47)])
def test_odd_sizes_are_padded(tmp_path: Path, convert: str, size: tuple[int, int]) -> None:
    rgb, even = picture(size), (64, 48)
    rows, columns = (
        np.minimum(np.arange(length), limit - 1) for length, limit in zip(even[::-1], size[::-1], strict=True)
    )
    expected = reference(rgb[rows][:, columns], "bt601", "limited")
    output = tmp_path / "video.yuv"
    with make(output, size=size, odd_size="pad", **BY[convert], **RAW, **YUV) as encoder:
        for _ in range(3):
            encoder.write(rgb)
    raw = output.read_bytes()
    assert len(raw) == 3 * even[0] * even[1] * 3 // 2
    got = planes(raw[: len(raw) // 3], even)
    assert np.abs(got[0] - np.rint(expected[0])).max() <= (1 if convert == "native" else 3)
    assert encoder.close().frames_encoded == 3


def test_user_filters_see_padded_frames(tmp_path: Path) -> None:
    for convert in ("native", "ffmpeg"):
        output = tmp_path / f"{convert}.mkv"
        options = {"f": "matroska", "vf": "scale=iw/2:ih/2"}
        with make(
            output, size=(63, 47), odd_size="pad", options=options, **BY[convert], codec="ffv1", **YUV
        ) as encoder:
            encoder.write(picture((63, 47)))
        assert "32x24" in described(output)


# Leased frames


def numbered(count: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(3)
    return (random.integers(0, 256, (48, 64, 3), np.uint8) for _ in range(count))


@pytest.mark.parametrize("output_pixel_format", ["rgb24", "yuv420p"])
def test_leased_frames_arrive_whole_and_are_used_again(tmp_path: Path, output_pixel_format: str) -> None:
    formats = {"output_pixel_format": output_pixel_format}
    raws, addresses = [], set()
    for leased in (False, True):
        output = tmp_path / f"{leased}.raw"
        with make(output, settings=EncoderSettings(queue_items=4), **formats, **RAW) as encoder:
            for frame in numbered(200):
                if leased:
                    with encoder.lease() as view:
                        assert view.shape == (48, 64, 3) and view.dtype == np.uint8 and view.flags.writeable
                        addresses.add(view.ctypes.data)
                        view[:] = frame
                    del view
                else:
                    encoder.write(frame)
        raws.append(output.read_bytes())
    assert raws[0] == raws[1]
    assert len(addresses) < 50, "memory is leased again"
    assert all(address % 4096 == 0 for address in addresses)


def test_leased_frame_is_read_only_and_unchanged_after_its_block(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4") as encoder:
        kept = []
        for index in range(20):
            with encoder.lease() as view:
                view[:] = index
            kept.append(view)
            with pytest.raises(ValueError):
                view[:] = 0
    assert [int(view[0, 0, 0]) for view in kept] == list(range(20))
    assert all((view == index).all() for index, view in enumerate(kept))


@pytest.mark.parametrize("converts", [False, True])
def test_kept_view_of_a_lease_cannot_change_the_queued_frame(tmp_path: Path, converts: bool) -> None:
    keeps: list[Callable[[np.ndarray], object]] = [
        lambda view: view[:],
        lambda view: view[3:9, ::2],
        memoryview,
        lambda view: np.asarray(view).reshape(-1),
    ]
    formats = {} if converts else {"output_pixel_format": "rgb24"}
    output = tmp_path / "video.raw"
    # FFmpeg reads nothing before the frames are changed.
    with make(output, **formats, **RAW) as encoder:
        os.kill(encoder.pid, signal.SIGSTOP)
        kept = []
        for keep in 2 * keeps:
            with encoder.lease() as view:
                view[:] = 50
                kept.append(keep(view))
            del view
        for part in kept:
            np.asarray(part)[...] = 250
        os.kill(encoder.pid, signal.SIGCONT)
    samples = np.frombuffer(output.read_bytes(), np.uint8)
    assert len(samples) == 8 * 64 * 48 * 3 and (samples.max() < 200)


def test_lease_block_that_raises_submits_nothing(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4") as encoder:
        with pytest.raises(ZeroDivisionError), encoder.lease():
            raise ZeroDivisionError
        with encoder.lease() as view:
            view[:] = 9
    assert encoder.close().frames_encoded == 1


@pytest.mark.parametrize(
    ("pixel_format", "shape", "dtype"),
    [("gray", (48, 64), "u1"), ("rgba64", (48, 64, 4), "u2"), ("yuv420p", (64 * 48 * 3 // 2,), "u1")],
)
def test_leased_frame_has_the_shape_and_dtype_of_its_format(
    tmp_path: Path, pixel_format: str, shape: tuple[int, ...], dtype: str
) -> None:
    made = make(tmp_path / "video.mp4", pixel_format=pixel_format, **YUV)
    with made as encoder, encoder.lease() as view:
        assert (view.shape, view.dtype.str[1:]) == (shape, dtype)
        view[:] = 7


def test_decoded_frame_in_another_pixel_format_is_refused(tmp_path: Path) -> None:
    with make(tmp_path / "nv12.mkv", pixel_format="nv12", **LOSSLESS) as encoder:
        encoder.write(bytes(64 * 48 * 3 // 2))
    with (
        Decoder(tmp_path / "nv12.mkv", pixel_format="nv12") as decoder,
        make(tmp_path / "v.mkv", pixel_format="yuv420p", **LOSSLESS) as encoder,
    ):
        frame = decoder.read()
        assert frame is not None
        with pytest.raises(ValueError):
            encoder.write(frame)
        encoder.write(np.asarray(frame))
