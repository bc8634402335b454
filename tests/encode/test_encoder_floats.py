"""Frames of floats, and frames with their channels first: what an encoder makes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.cases import a_few

from penstock import Decoder, Encoder, FanOut, FFmpegWarning, Writer, map_video
from penstock._encoding.frame_check import frame_buffer
from penstock._encoding.input_layout import InputLayout
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock.rendering import plan

Array = npt.NDArray[Any]

W, H = 64, 48
# The layout of a frame in memory: each makes the same picture look the same.
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "as it is": lambda frame: frame,
    "planes": lambda frame: np.ascontiguousarray(frame.transpose(2, 0, 1)).transpose(1, 2, 0),
    "columns first": lambda frame: np.ascontiguousarray(frame.transpose(1, 0, 2)).transpose(1, 0, 2),
    "upside down": lambda frame: np.ascontiguousarray(frame[::-1])[::-1],
    "channels reversed": lambda frame: np.ascontiguousarray(frame[..., ::-1])[..., ::-1],
    "every second": lambda frame: np.repeat(frame, 2, axis=1)[:, ::2],
    "big": lambda frame: np.pad(frame, ((0, 0), (0, 3), (0, 1)))[:, :-3, :-1],
}


def floats(shape: tuple[int, ...], value_range: tuple[float, float], dtype: Any = np.float32) -> Array:
    """Floats, of which some are outside of the range."""
    low, high = value_range
    values = np.random.default_rng(7).uniform(-0.002, 1.002, shape)
    return (low + values * (high - low)).astype(dtype)


def whole(frame: Array, value_range: tuple[float, float], most: int = 255) -> Array:
    """The samples of a frame of floats, by NumPy in 64 bits."""
    low, high = value_range
    scaled = np.rint((frame.astype(np.float64) - low) * (most / (high - low)))
    return np.clip(scaled, 0, most).astype(np.uint8 if most == 255 else "<u2")


def outside(frame: Array, value_range: tuple[float, float]) -> int:
    low, high = (frame.dtype.type(bound) for bound in value_range)
    return int(((frame < low) | (frame > high)).sum())


def lossless(output: Path, **arguments: Any) -> Encoder:
    return Encoder(output, **{"fps": 30, "codec": "ffv1"} | arguments)


def decoded(path: Path, pixel_format: str = "rgb24") -> list[Array]:
    with Decoder(path, pixel_format=pixel_format) as decoder:
        return [np.asarray(frame) for frame in decoder]


@pytest.mark.parametrize(
    ("pixel_format", "shape", "most", "dtype", "channels_first"),
    a_few(
        (
            (*kind, dtype, channels_first)
            for channels_first in (False, True)
            for kind in (
                ("rgb24", (H, W, 3), 255),
                ("bgr24", (H, W, 3), 255),
                ("rgba", (H, W, 4), 255),
                ("gray", (H, W), 255),
                ("gray10le", (H, W), 1023),
                ("gray16le", (H, W), 65535),
                ("rgb48le", (H, W, 3), 65535),
                ("rgba64le", (H, W, 4), 65535),
            )
            for dtype in (np.float16, np.float32, np.float64)
        ),
        4,
    ),
)
def test_floats_are_scaled_to_the_samples_of_the_pixel_format(
    tmp_path: Path, pixel_format: str, shape: tuple[int, ...], most: int, dtype: Any, channels_first: bool
) -> None:
    frame = floats(shape, (0.0, 1.0), dtype)
    given_frame = np.moveaxis(frame.reshape(H, W, -1), -1, 0) if channels_first else frame
    with lossless(
        tmp_path / "v.mkv", pixel_format=pixel_format, value_range=(0.0, 1.0), channels_first=channels_first
    ) as encoder:
        encoder.write(given_frame)
        encoder.write(np.ascontiguousarray(given_frame))
    wanted = whole(frame, (0.0, 1.0), most)
    for read in decoded(tmp_path / "v.mkv", pixel_format):
        np.testing.assert_array_equal(read, wanted)
    assert encoder.report is not None
    assert encoder.report.clipped_samples == encoder.stats.clipped_samples == 2 * outside(frame, (0.0, 1.0))
    assert encoder.report.warnings == ()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_channels_first_frames_are_transposed(tmp_path: Path, dtype: Any) -> None:
    pixel_format = "rgb24" if dtype is np.uint8 else "rgb48le"
    frame = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, (H, W, 3), dtype)
    with lossless(tmp_path / "v.mkv", pixel_format=pixel_format, channels_first=True) as encoder:
        for layout in LAYOUTS.values():
            encoder.write(layout(frame).transpose(2, 0, 1))
        encoder.submit(np.ascontiguousarray(frame.transpose(2, 0, 1))).wait()
    for read in decoded(tmp_path / "v.mkv", pixel_format):
        np.testing.assert_array_equal(read, frame)


@pytest.mark.parametrize(
    ("size", "vflip", "fps"), a_few(product([(W, H), (W + 1, H + 1)], [False, True], [30, None]), 3)
)
def test_video_of_floats_matches_a_video_of_their_samples(
    tmp_path: Path, size: tuple[int, int], vflip: bool, fps: int | None
) -> None:
    """Through the conversion to YUV, by the worker, by the caller, and behind a header."""
    given_range = (-1.0, 1.0)
    frames = [np.roll(floats((*size[::-1], 3), given_range), index, 0) for index in range(5)]
    shared: dict[str, Any] = {"fps": fps, "vflip": vflip, "odd_size": "pad", "codec": "ffv1"}
    shared["output_pixel_format"] = "yuv420p"
    for name, form, seen in [
        (
            "floats.mkv",
            {"value_range": given_range, "channels_first": True},
            lambda one: one.transpose(2, 0, 1),
        ),
        ("samples.mkv", {}, lambda one: whole(one, given_range)),
    ]:
        with Encoder(tmp_path / name, **shared, **form) as encoder:
            for index, frame in enumerate(frames):
                encoder.write(seen(frame), time_s=None if fps else Fraction(index, 30))
        assert encoder.converted_by == "penstock"
    for one, other in zip(
        decoded(tmp_path / "floats.mkv", "yuv420p"), decoded(tmp_path / "samples.mkv", "yuv420p"), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_infinity_is_clipped_and_a_wrong_range_warned_of(tmp_path: Path) -> None:
    frame = np.full((H, W, 3), 0.5, np.float32)
    frame[0, 0] = np.inf, -np.inf, 2.0
    with lossless(tmp_path / "v.mkv", value_range=(0.0, 1.0)) as encoder:
        encoder.write(frame)
    assert encoder.report is not None
    assert (encoder.report.clipped_samples, encoder.report.warnings) == (3, ())
    [read] = decoded(tmp_path / "v.mkv")
    assert read[0, 0].tolist() == [255, 0, 255]
    with pytest.warns(FFmpegWarning), lossless(tmp_path / "v.mkv", value_range=(0.0, 1.0)) as encoder:
        encoder.write(frame * 255)
    assert encoder.report is not None
    assert encoder.report.clipped_samples == frame.size
    assert "100%" in encoder.report.warnings[0]


def test_nan_is_refused_at_the_call_and_nothing_is_written(tmp_path: Path) -> None:
    frame = floats((H, W, 3), (0.0, 1.0))
    wrong = frame.copy()
    wrong[7, 5, 1] = np.nan
    with lossless(tmp_path / "v.mkv", value_range=(0.0, 1.0)) as encoder:
        encoder.write(frame)
        for call in (encoder.write, encoder.submit, lambda one: asyncio.run(encoder.awrite(one))):
            with pytest.raises(ValueError):
                call(wrong)
        assert encoder.frames_submitted == 1
        encoder.write(np.nan_to_num(wrong, nan=0.0))
    assert encoder.report is not None
    assert encoder.report.frames_encoded == 2


def test_leased_memory_has_the_samples_of_the_pixel_format(tmp_path: Path) -> None:
    samples = np.random.default_rng(3).integers(0, 255, (H, W, 3), np.uint8)
    form: dict[str, Any] = {"value_range": (0.0, 1.0), "channels_first": True}
    with lossless(tmp_path / "v.mkv", size=(W, H), **form) as encoder, encoder.lease() as view:
        assert (view.shape, view.dtype) == ((H, W, 3), np.uint8)
        view[:] = samples
    np.testing.assert_array_equal(decoded(tmp_path / "v.mkv"), [samples])


FORMS: list[Any] = [
    ({"value_range": (0.0, 1.0)}, np.zeros((H, W, 3), np.uint8), r"value_range out, or pass frame\.astype\("),
    ({"value_range": (0.0, 1.0)}, np.zeros((H, W, 3), np.int32), r"frame\.astype\(np\.float32\)$"),
    ({"value_range": (0.0, 1.0)}, np.zeros((H, W, 3), ">f4"), r"big-endian.*astype\('<f4'\)"),
    pytest.param(
        {"value_range": (0.0, 1.0)}, np.zeros((H, W, 3), np.longdouble), r"frame\.astype\(np\.float32\)$",
        marks=pytest.mark.linux("a long double of more than 64 bits"),
    ),
    ({"value_range": (0.0, 1.0)}, np.zeros((3, H, W), np.float32), "channels_first=True$"),
    ({"value_range": (0.0, 1.0)}, np.zeros((H, W, 4), np.float32), r"pixel_format='rgba' \(or 'bgra'\)$"),
    ({"value_range": (0.0, 1.0)}, np.zeros((2, H, W, 3), np.float32), "its 2 frames one by one$"),
    ({"value_range": (0.0, 1.0)}, bytes(H * W * 3), "not 9216 bytes$"),
    ({"channels_first": True}, np.zeros((H, W, 3), np.uint8), "channels_first=True out$"),
    ({"channels_first": True}, np.zeros((3, H, W), np.float32), r"value_range=\(0\.0, 1\.0\) or \(-1\.0, 1\.0\)"),
    ({"channels_first": True}, np.zeros((4, H, W), np.uint8), "pixel_format='rgba'"),
    ({"channels_first": True}, np.zeros((5, 3, H, W), np.uint8), "its 5 frames one by one$"),
    ({"channels_first": True}, np.zeros((3, H - 1, W), np.uint8), "[Ss]cale"),
    ({"channels_first": True}, bytes(H * W * 3), "not 9216 bytes$"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "frame", "words"), FORMS)
def test_frame_of_another_form_is_refused_with_advice(form: dict[str, Any], frame: Any, words: str) -> None:
    given_form = InputLayout.of("rgb24", form.get("value_range"), form.get("channels_first", False))
    with pytest.raises(ValueError, match=words):
        frame_buffer(frame, frame_layout("rgb24", W, H), input_layout=given_form)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(["u1", "u2", ">u2", "i4", "f2", "f4", ">f4", "f8", "g", "?"]),
    channels=st.sampled_from([("gray", 1), ("rgb24", 3), ("rgba", 4), ("rgb48le", 3)]),
    value_range=st.sampled_from([None, (0.0, 1.0)]),
    channels_first=st.booleans(),
)
def test_a_frame_of_another_form_is_taken_exactly_or_refused(
    shape: tuple[int, ...],
    dtype: str,
    channels: tuple[str, int],
    value_range: tuple[float, float] | None,
    channels_first: bool,
) -> None:
    """Against the rule in one line: channels × height × width or the other way, axes of length 1 aside."""
    assume(value_range or channels_first)
    pixel_format, count = channels
    layout = frame_layout(pixel_format, 4, 3)
    form = InputLayout.of(pixel_format, value_range, channels_first)
    frame = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    wanted = (count, 3, 4) if channels_first else (3, 4, count)
    dtypes = ("f2", "f4", "f8") if value_range else (layout.dtype,)
    is_frame = [n for n in shape if n != 1] == [n for n in wanted if n != 1]
    is_frame = is_frame and frame.dtype in map(np.dtype, dtypes)
    try:
        rows_first = frame_buffer(frame, layout, input_layout=form)
    except ValueError:
        assert not is_frame
    else:
        assert is_frame
        looks = np.moveaxis(frame.reshape(wanted), 0, -1) if channels_first else frame.reshape(wanted)
        assert rows_first.shape == layout.shape
        np.testing.assert_array_equal(rows_first.reshape(looks.shape), looks)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_fan_out_converts_floats_once_for_all_encoders(tmp_path: Path, is_shared: bool) -> None:
    form: dict[str, Any] = {"value_range": (0.0, 1.0), "channels_first": True}
    frame = floats((H, W, 3), (0.0, 1.0))
    raw = np.ascontiguousarray(frame.transpose(2, 0, 1))
    read_end, write_end = (tmp_path / "raw").open("wb"), tmp_path / "raw"
    with FanOut([lossless(tmp_path / "a.mkv", **form), Writer(read_end)]) as fan_out:
        if is_shared:
            fan_out.add(lossless(tmp_path / "b.mkv", **form))
            fan_out.add(lossless(tmp_path / "c.mkv", **form | {"fps": None}))
        fan_out.write(raw, time_s=0)
        wrong = raw.copy()
        wrong[0, 0, 0] = np.nan
        with pytest.raises(ValueError):
            fan_out.write(wrong, time_s=Fraction(1, 30))
        fan_out.write(raw, time_s=Fraction(1, 30))
        reports = fan_out.close()
    read_end.close()
    for report in reports:
        assert report.error is None
        if not isinstance(report.output, Writer):
            assert report.result.clipped_samples == 2 * outside(frame, (0.0, 1.0))
    for path in tmp_path.glob("*.mkv"):
        np.testing.assert_array_equal(decoded(path), [whole(frame, (0.0, 1.0))] * 2)
    assert write_end.read_bytes() == raw.tobytes() * 2, "a writer gets the bytes as they are"


def halved(frame: Array) -> Array:
    return frame.astype(np.float32).transpose(2, 0, 1) / 510


@pytest.mark.slow
def test_map_video_takes_floats_that_the_function_returns(tmp_path: Path) -> None:
    frames = np.random.default_rng(2).integers(0, 255, (6, H, W, 3), np.uint8)
    with lossless(tmp_path / "a.mkv") as encoder:
        for frame in frames:
            encoder.write(frame)
    options = {"codec": "ffv1", "value_range": (0.0, 1.0), "channels_first": True}
    map_video(halved, tmp_path / "a.mkv", tmp_path / "b.mkv", workers=1, encoder_options=options)
    wanted = [whole(frame.astype(np.float32) / 510, (0.0, 1.0)) for frame in frames]
    np.testing.assert_array_equal(decoded(tmp_path / "b.mkv"), wanted)


def drawn(index: int, time_s: float, view: Array) -> None:
    view[:] = index


def test_a_scene_draws_samples_of_the_pixel_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        plan(
            drawn, tmp_path / "v.mp4", frames=3, size=(W, H), fps=30, encoder_options={"value_range": (0, 1)}
        )
    text = plan(drawn, tmp_path / "v.mp4", frames=3, size=(W, H), fps=30).to_json()
    assert "value_range" not in json.loads(text)["request"]
