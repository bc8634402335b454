"""`write_video` and `read_video`: a whole video in one call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import numpy.typing as npt

from penstock._common.control_groups import available_bytes
from penstock._common.keywords import explains_as
from penstock._common.reports import EncodeReport, EncoderStats
from penstock._common.types import FrameData
from penstock._decoding.decoder import Decoder
from penstock._decoding.image_files import VideoSource
from penstock._decoding.options import DecoderOptions, Fit, FloatType
from penstock._encoding.encoder import Encoder
from penstock._encoding.encoders import Quality
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.request import EncoderOptions, OddSize
from penstock._encoding.sound import Audio, AudioTrack
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_DECODER_SETTINGS,
    DEFAULT_ENCODER_SETTINGS,
    ColorMatrix,
    ColorRange,
    Colors,
    DecoderSettings,
    EncoderSettings,
)
from penstock._formats.pixel_formats import is_gray
from penstock._native import _count

#: Chosen: the share of the available memory that one array may take. The rest is for what the program makes of it.
MEMORY_SHARE = 0.5
# Chosen: the first block of a video whose length is not known, and what it grows by.
_FIRST_BYTES = 64 << 20
_GROWTH = 1.25


@explains_as(Encoder.__init__)
def write_video(
    path: str | os.PathLike[str] | BinaryIO,
    frames: Iterable[FrameData],
    fps: int | float | Fraction | None,
    *,
    progress: bool | Callable[[EncoderStats], object] | None = None,
    size: tuple[int, int] | None = None,
    pixel_format: str = "rgb24",
    value_range: tuple[float, float] | None = None,
    channels_first: bool = False,
    vflip: bool = False,
    odd_size: OddSize = "error",
    codec: str = AUTO,
    quality: Quality | None = None,
    crf: float | None = None,
    preset: str | None = None,
    crash_safe: bool = False,
    options: Mapping[str, object] | None = None,
    output_pixel_format: str = AUTO,
    colors: Colors = DEFAULT_COLORS,
    audio: Audio | Sequence[Audio] | None = None,
    metadata: Mapping[str, str] | None = None,
    timecode: str | None = None,
    chapters: Sequence[tuple[float, str]] | None = None,
    subtitles: str | os.PathLike[str] | None = None,
    settings: EncoderSettings = DEFAULT_ENCODER_SETTINGS,
) -> EncodeReport:
    """Writes all frames to a video file, and returns a report.

    ```python
    report = penstock.write_video("out.mp4", frames, fps=30, crf=20)
    ```

    Frames are written one by one as they come: a generator is never collected into a list, and may reuse one array. If
    an exception of the generator or Ctrl-C ends the call early, the frames so far are kept as an `Encoder` does in its
    ``with`` block.

    The other arguments are those of `Encoder`. `audio` must be files: to write samples, use an `Encoder` and its
    `write_audio`.

    Args:
        path: the output, as for `Encoder`.
        frames: an iterable of frames, each as for `Encoder.write`: arrays, tensors or PIL images. Or one array or
            tensor of frames × height × width × channels. Or a `Decoder`, whose frames are written without its audio and
            metadata: use `Encoder.like` or `map_video` to keep them.
        fps: frames per second, as for `Encoder`. None keeps the times of a `Decoder`'s frames. Other frames have no
            times: write them with ``Encoder.write(frame, time_s=...)``.
        progress: as for `Encoder`. None is True if standard error is a terminal. The bar shows the total if
            ``len(frames)`` is known.

    Raises:
        ValueError: if `frames` is empty; if `fps` is None and a frame has no time; if `audio` has an `AudioTrack`; or
            as for `Encoder` and its ``write``.
        TypeError: if `frames` isn't iterable, or has something that isn't a frame.
        OSError, EncoderError, StalledError: as for `Encoder`.
    """
    if isinstance(frames, str | os.PathLike):
        raise TypeError(
            f"frames must be an iterable of frames, not the path {frames!r}. Call write_video(path, frames, fps)"
        )
    if progress is None:
        progress = sys.stderr is not None and sys.stderr.isatty()
    encoding = EncoderOptions(
        size=size,
        pixel_format=pixel_format,
        value_range=value_range,
        channels_first=channels_first,
        vflip=vflip,
        odd_size=odd_size,
        codec=codec,
        quality=quality,
        crf=crf,
        preset=preset,
        crash_safe=crash_safe,
        options=options,
        output_pixel_format=output_pixel_format,
        colors=colors,
        audio=audio,
        metadata=metadata,
        timecode=timecode,
        chapters=chapters,
        subtitles=subtitles,
        settings=settings,
    )
    encoding["progress"] = (_length(frames) or True) if progress is True else progress
    _check_is_no_picture(frames, encoding)
    _check_audio(audio)
    with Encoder(path, fps=fps, **encoding) as encoder:
        for frame in frames if fps is not None else _timed(frames):
            encoder.write(frame)
        if not encoder.frames_submitted:
            raise ValueError("frames has no frame. A video needs at least one")
    return encoder.close()


@explains_as(Decoder.__init__)
def read_video(
    path: VideoSource,
    *,
    every: int = 1,
    fps: int | float | Fraction | None = None,
    pixel_format: str = DEFAULT_FORMAT,
    size: tuple[int | None, int | None] | None = None,
    start: float | None = None,
    end: float | None = None,
    duration: float | None = None,
    count: int | None = None,
    stream: int | None = None,
    filters: str | None = None,
    color_matrix: ColorMatrix = "auto",
    color_range: ColorRange = "auto",
    conceal_errors: bool = False,
    follow_playlists: bool = False,
    input_options: Mapping[str, object] | None = None,
    isolated: bool | Literal["strict"] = False,
    crop: tuple[int, int, int, int] | None = None,
    fit: Fit = "stretch",
    fill: tuple[float, ...] | None = None,
    channels_first: bool = False,
    dtype: FloatType | None = None,
    value_range: tuple[float, float] | None = None,
    settings: DecoderSettings = DEFAULT_DECODER_SETTINGS,
) -> npt.NDArray[Any]:
    """Reads a video into one array of frames × height × width × channels.

    ```python
    frames = penstock.read_video("in.mp4", start=10, count=100, size=(None, 240), every=2)
    ```

    Decoded frames go straight into the array: there is no second array. The array has no times.
    ``probe(path).best_video.frame_rate`` is the frame rate, and the frames of a `Decoder` have their times.

    The other arguments are those of `Decoder`, such as `start`, `end`, `count`, `fps`, `size` and `pixel_format`. Here,
    `count` is the maximum number of frames in the array.

    Args:
        path: the source, as for `Decoder`.
        every: step between the frames that are returned: 2 returns the first, third, fifth frame and so on. 1 returns
            all.

    Returns:
        An array of uint8, or of the dtype of `pixel_format`. Planar formats (yuv420p) return frames × samples.

    Raises:
        MemoryError: if the array needs more than half of the available memory, which a control group (container) may
            limit. It's raised before decoding if the file states its number of frames, and otherwise while reading.
        ValueError, TypeError, OSError, DecoderError, StalledError: as for `Decoder` and its iteration.
    """
    every = _count("every", every)
    if count is not None:
        # Up to the last frame that is returned, and none that would only be decoded.
        count = (_count("count", count) - 1) * every + 1
    options = DecoderOptions(
        fps=fps,
        pixel_format=pixel_format,
        size=size,
        start=start,
        end=end,
        duration=duration,
        count=count,
        stream=stream,
        filters=filters,
        color_matrix=color_matrix,
        color_range=color_range,
        conceal_errors=conceal_errors,
        follow_playlists=follow_playlists,
        input_options=input_options,
        isolated=isolated,
        crop=crop,
        fit=fit,
        fill=fill,
        channels_first=channels_first,
        dtype=dtype,
        value_range=value_range,
        settings=settings,
    )
    with Decoder(path, **options) as decoder:
        return _collected(decoder, every, available_bytes())


def _collected(decoder: Decoder, every: int, available: int | None) -> npt.NDArray[Any]:
    """Each `every`-th frame, in an array of at most `MEMORY_SHARE` of the `available` bytes."""
    most = sys.maxsize if available is None else int(available * MEMORY_SHARE) // decoder.frame_bytes
    length = _length(decoder)
    wanted = max(1, _FIRST_BYTES // decoder.frame_bytes) if length is None else -(-length // every)
    if length is not None and wanted > most:
        raise _too_large(decoder, wanted, available)
    frames = np.empty((min(wanted, most), *decoder.shape), decoder.dtype)
    taken = 0
    for taken, frame in enumerate(islice(decoder, 0, None, every), start=1):
        if taken > most:
            raise _too_large(decoder, taken, available)
        if taken > len(frames):
            _resize(frames, min(most, int(taken * _GROWTH)))
        frames[taken - 1] = frame
    # Gives back what the last growth took too much.
    _resize(frames, taken)
    return frames


def _resize(frames: npt.NDArray[Any], count: int) -> None:
    """Changes the number of frames in place: the C library moves pages (mremap), and copies nothing."""
    frames.resize((count, *frames.shape[1:]), refcheck=False)


def _too_large(decoder: Decoder, frames: int, available: int | None) -> MemoryError:
    return MemoryError(
        f"{decoder.file.path} has {frames:,} frames of {decoder.shape} {np.dtype(decoder.dtype).name}, which take "
        f"{frames * decoder.frame_bytes:,} bytes, but read_video takes at most half of the {available:,} bytes of "
        "memory that are available. Pass end, every or a smaller size, or iterate over a Decoder"
    )


def _check_is_no_picture(frames: Any, options: EncoderOptions) -> None:
    if hasattr(frames, "convert"):  # a PIL image
        shape = frames.size
    elif hasattr(frames, "ndim") and _is_picture(tuple(frames.shape), options):
        shape = tuple(frames.shape)
    else:
        return
    raise ValueError(f"frames must be an iterable of frames, not one picture of shape {shape}. Pass [frame]")


def _is_picture(shape: tuple[int, ...], options: EncoderOptions) -> bool:
    if len(shape) != 3:
        return len(shape) < 3
    return not is_gray(str(options.get("pixel_format"))) and shape[
        0 if options.get("channels_first") else 2
    ] in (3, 4)


def _check_audio(audio: object) -> None:
    given = audio if isinstance(audio, list | tuple) else [audio]
    if any(isinstance(one, AudioTrack) for one in given):
        raise ValueError(
            "write_video has no samples for an AudioTrack. Use an Encoder, and call its write_audio(samples)"
        )


def _timed(frames: Iterable[FrameData]) -> Iterator[FrameData]:
    """The frames, each of which must have a time."""
    for number, frame in enumerate(frames):
        if getattr(frame, "time_s", None) is None:
            raise ValueError(
                f"fps=None keeps the times of a Decoder's frames, but frame {number} has no time. Pass fps=30, or use "
                "an Encoder and encoder.write(frame, time_s=seconds)"
            )
        yield frame


def _length(frames: object) -> int | None:
    with suppress(TypeError):  # it has none, or does not know it
        return len(cast("Sized", frames))
    return None
