"""Video frames as NumPy arrays with their index and timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from penstock._decoding.framing import DeliveredLayout
from penstock._ffmpeg.command.colors import VideoColors
from penstock._ffmpeg.command.pixel_formats import FrameLayout
from penstock._formats.pixel_formats import (
    PIXEL_FORMATS,
    has_alpha,
    has_v_first,
    is_gray,
    is_rgb,
    of_channels,
)
from penstock._native import Frame, _Slot

# A larger picture is made smaller for a notebook, which keeps what it shows, as text.
_MOST_SIDE = 1024


class Planes(tuple[npt.NDArray[Any], ...]):
    """The planes of a frame, in order, and by name.

    The names are ``y``, ``u``, ``v`` and ``a``; ``y`` and ``uv`` for nv12 and the like; ``g``, ``b``, ``r`` and ``a``
    for planar RGB. The plane of a packed format has no name.
    """

    def __new__(cls, planes: Iterable[npt.NDArray[Any]], names: Sequence[str]) -> Planes:
        made = super().__new__(cls, planes)
        made.__dict__.update(zip(names, made, strict=False))
        return made

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        raise AttributeError(
            f"the frame has no plane {name!r}, only {', '.join(self.__dict__) or 'one without a name'}"
        )


class VideoFrame(np.ndarray[Any, np.dtype[Any]]):
    """A frame: a writable NumPy array of height × width × channels, or height × width for one channel.

    The array is read-only only if libav's own memory holds the frame: with ``pixel_format="source"``, if the picture is
    one plane without padding.

    Planar pixel formats (yuv420p) have their samples in one dimension, plane after plane. `planes` returns each plane
    in its shape, also by its name. The memory is recycled once you drop the last array on it.

    Slices, copies and pickles of a frame keep its `index`, `pts` and `time_s`, and so does a frame that you write to.
    Results of arithmetic, such as ``255 - frame``, are plain arrays, as are those of OpenCV: pass the time yourself,
    ``encoder.write(changed, time_s=frame.time_s)``.

    Attributes:
        index: number of the frame among the delivered frames, from 0.
        pts: presentation timestamp in units of the stream's ``time_base``; None if the file has none.
        time_s: presentation time in seconds since `MediaInfo.zero_s`: in MP4, QuickTime, Matroska and WebM, the time
            that was written.
        source_index, source_time_s: with the decoder's `fps`, number and time of the frame in the file. `index` and
            `time_s` then count at that rate, and `pts` is the file's. None without `fps`.
    """

    index: int
    pts: int | None
    time_s: float | None
    source_index: int | None
    source_time_s: float | None
    _layout: FrameLayout | None
    _colors: VideoColors | None  # of YUV

    def _repr_png_(self) -> bytes | None:
        """The picture that notebooks show; None for a part of a frame, for YUV, and for floats and channels first."""
        layout = self._layout
        return None if layout is None or isinstance(layout, DeliveredLayout) else _png(self, layout)

    def __array_finalize__(self, source: npt.NDArray[Any] | None) -> None:
        self.index = getattr(source, "index", -1)
        self.pts = getattr(source, "pts", None)
        self.time_s = getattr(source, "time_s", None)
        self.source_index = getattr(source, "source_index", None)
        self.source_time_s = getattr(source, "source_time_s", None)
        self._colors = getattr(source, "_colors", None)
        self._layout = None  # of the whole frame only

    def __array_wrap__(
        self, array: npt.NDArray[Any], context: Any = None, return_scalar: bool = False, /
    ) -> Any:
        if array is self:  # the output of ``frame //= 2``
            return array
        # NumPy turns arrays without dimensions into scalars, but not those of subclasses.
        return array[()] if array.ndim == 0 else array.view(np.ndarray)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, state = cast("tuple[Any, ...]", super().__reduce__())
        return rebuild, arguments, (state, self.__dict__)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        samples, attributes = state
        super().__setstate__(samples)
        self.__dict__.update(attributes)

    @property
    def planes(self) -> Planes:
        """The planes, each rows × columns, or rows × columns × channels. ``planes.y`` and the like return one by name.

        Raises:
            ValueError: if this is a part of a frame, or was computed from one.
        """
        if self._layout is None:
            raise ValueError("only a whole frame from a decoder has planes")
        flat, planes, start = self.reshape(-1).view(np.ndarray), [], 0
        for shape in self._layout.planes:
            planes.append(flat[start : start + prod(shape)].reshape(shape))
            start += prod(shape)
        return Planes(planes, _plane_names(self._layout))


def _plane_names(layout: FrameLayout) -> Sequence[str]:
    match len(layout.planes):
        case 1:
            return ()
        case 2:
            return ("y", "vu" if has_v_first(layout.pixel_format) else "uv")
    return "gbra" if is_rgb(layout.pixel_format) else "yuva"


def frame_of(
    memory: Frame | _Slot,
    layout: FrameLayout,
    colors: VideoColors | None,
    *,
    index: int,
    pts: int | None,
    time_s: float | None,
) -> VideoFrame:
    """A frame on `memory`, which it keeps alive."""
    frame = np.frombuffer(memoryview(memory), dtype=layout.dtype).reshape(layout.shape).view(VideoFrame)
    frame.index, frame.pts, frame.time_s = index, pts, time_s
    frame._layout, frame._colors = layout, colors
    return frame


def shown_at(source: VideoFrame, index: int, time_s: float, *, copies: bool) -> VideoFrame:
    """A frame of a file as the one of another number and time, on the same memory or a copy."""
    frame = cast("VideoFrame", source.copy() if copies else source.view())
    frame.source_index, frame.source_time_s = source.index, source.time_s
    frame.index, frame.time_s, frame._layout = index, time_s, source._layout
    return frame


def _png(frame: VideoFrame, layout: FrameLayout) -> bytes | None:
    """A frame in PNG, at most 1024 pixels wide and high; None for YUV, of which a frame does not know the matrix."""
    from fractions import Fraction

    import av  # only in notebooks

    name = layout.pixel_format
    if name not in PIXEL_FORMATS or not (is_rgb(name) or is_gray(name)):
        return None
    whole: Any = av.VideoFrame(layout.width, layout.height, name)
    for memory, samples in zip(whole.planes, frame.planes, strict=True):
        rows = np.frombuffer(memory, np.uint8).reshape(memory.height, memory.line_size)
        data = samples.reshape(layout.height, -1).view(np.uint8)
        rows[:, : data.shape[1]] = data
    size = layout.width, layout.height
    width, height = (max(1, round(side * min(1, _MOST_SIDE / max(size)))) for side in size)
    color = of_channels(4 if has_alpha(name) else 1 if is_gray(name) else 3, 1)
    encoder: Any = av.CodecContext.create("png", "w")  # browsers show it
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, height, color, Fraction(1)
    packets = [*encoder.encode(whole.reformat(width, height, color)), *encoder.encode(None)]
    return b"".join(map(bytes, packets))
