"""libav in the process and the FFmpeg program read random files alike: the same frames, times and pixels."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.cases import examples
from support.clips import as_, moving
from support.engines import by_program
from support.media import ffmpeg
from support.media import nothing_is_left as nothing_is_left

from penstock import Decoder, DecoderError
from penstock.video import DecoderSettings


class Codec(NamedTuple):
    """FFmpeg's arguments, endings of files, pixel formats, and what else a file of this codec may have.

    Attributes:
        odd: pixel formats in which width and height may be odd.
        b_frames: how many between two others, at most.
        lossless: arguments for no loss; None if the codec has none.
        tolerance: by how many levels a sample of two decoders may differ.
        least: width and height at least, in pixels.
    """

    arguments: tuple[str, ...]
    endings: tuple[str, ...]
    pixel_formats: tuple[str, ...]
    odd: tuple[str, ...] = ()
    b_frames: int = 0
    lossless: tuple[str, ...] | None = None
    tolerance: int = 0
    least: int = 32


X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-threads", "1")
X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:pools=none")
CODECS = {
    "h264": Codec(
        X264,
        ("mp4", "mkv", "ts"),
        ("yuv420p", "yuv422p", "yuv444p", "yuv420p10le"),
        odd=("yuv444p",),
        b_frames=3,
        lossless=("-crf", "0"),
    ),
    # libx265 3.5 has aborted at 34x32, with 10 bits ("free(): invalid pointer").
    "h265": Codec(X265, ("mp4",), ("yuv420p", "yuv444p", "yuv420p10le"), b_frames=3, least=64),
    # The inverse transform of MPEG-4 and JPEG isn't specified bit for bit: FFmpeg's versions may round differently.
    # Without B-frames: in AVI, which has no presentation times, either engine guesses the times of those.
    "mpeg4": Codec(("-c:v", "mpeg4", "-q:v", "4"), ("avi",), ("yuv420p",), tolerance=3),
    "mjpeg": Codec(
        ("-c:v", "mjpeg", "-q:v", "3"), ("avi",), ("yuvj420p", "yuvj422p"), odd=("yuvj420p",), tolerance=3
    ),
    "vp9": Codec(
        ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-threads", "1"),
        ("webm",),
        ("yuv420p", "yuv444p", "yuv420p10le"),
        odd=("yuv420p", "yuv444p"),
        lossless=("-lossless", "1"),
    ),
    "ffv1": Codec(
        ("-c:v", "ffv1", "-level", "3"),
        ("mkv",),
        ("yuv420p", "yuv422p10le", "yuv444p", "gray", "bgr0", "gbrp10le"),
        odd=("yuv420p", "yuv422p10le", "yuv444p", "gray", "bgr0", "gbrp10le"),
    ),
    "rawvideo": Codec(
        ("-c:v", "rawvideo"),
        ("nut",),
        ("yuv420p", "yuv422p", "rgb24", "gray"),
        odd=("yuv420p", "rgb24", "gray"),
    ),
}


class File(NamedTuple):
    """A random video: its codec, its file's ending, and what FFmpeg makes it by."""

    codec: str
    ending: str
    size: tuple[int, int]
    frames: int
    rate: Fraction
    arguments: tuple[str, ...]


@st.composite
def files(draw: st.DrawFn) -> File:
    name = draw(st.sampled_from(sorted(CODECS)))
    codec = CODECS[name]
    pixel_format = draw(st.sampled_from(codec.pixel_formats))
    step = 1 if pixel_format in codec.odd else 2
    size = draw(st.tuples(*[st.integers(codec.least // step, 96 // step).map(lambda half: half * step)] * 2))
    rate = draw(st.sampled_from([Fraction(10), Fraction(25), Fraction(60), Fraction(30000, 1001)]))
    arguments = [*codec.arguments, *as_(pixel_format), "-g", str(draw(st.integers(1, 20)))]
    if codec.b_frames:
        arguments += ["-bf", str(draw(st.integers(0, codec.b_frames)))]
    if codec.lossless is not None and draw(st.booleans()):
        arguments += codec.lossless
    ending = draw(st.sampled_from(codec.endings))
    return File(name, ending, size, draw(st.integers(1, 40)), rate, tuple(arguments))


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """A `start` is a share of the file's length here."""
    return {
        "pixel_format": draw(st.sampled_from(["rgb24", "gray", "source", "gbrp", "rgb48le", "yuv420p"])),
        "start": draw(st.none() | st.floats(0, 0.95)),
        "count": draw(st.none() | st.integers(1, 12)),
        "size": draw(st.none() | st.sampled_from([(48, 32), (33, 57), (None, 40)])),
    }


class Outcome(NamedTuple):
    """The frames, their numbers and times, who converted them, and how many came before an error; None without one."""

    places: list[tuple[int | None, int | None, float | None]]
    frames: list[np.ndarray]
    converted_by: str | None
    failed_after: int | None


def outcome(path: Path, settings: DecoderSettings, wanted: dict[str, Any]) -> Outcome:
    frames: list[Any] = []
    failed_after = None
    with Decoder(path, settings=settings, **wanted) as decoder:
        try:
            frames.extend(decoder)
        except DecoderError as error:  # there are no frames from the start on
            failed_after = error.frames
    places = [(frame.index, frame.pts, frame.time_s) for frame in frames]
    return Outcome(places, frames, decoder.converted_by, failed_after)


@examples(75)
@given(files(), options())
def test_both_engines_give_the_same_frames(file: File, wanted: dict[str, Any]) -> None:
    if wanted["start"] is not None:
        wanted = wanted | {"start": float(wanted["start"] * file.frames / file.rate)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"video.{file.ending}"
        ffmpeg(*moving(file.size, file.frames, file.rate), *file.arguments, path)
        by_libav = outcome(path, DecoderSettings(), wanted)
        by_ffmpeg = outcome(path, by_program(), wanted)
    assert by_libav.places == by_ffmpeg.places
    assert (by_libav.converted_by, by_libav.failed_after) == (by_ffmpeg.converted_by, by_ffmpeg.failed_after)
    tolerance = CODECS[file.codec].tolerance
    for frame, same in zip(by_libav.frames, by_ffmpeg.frames, strict=True):
        assert np.abs(frame.astype(int) - same.astype(int)).max() <= tolerance
