"""Video frames as NumPy arrays that know their place in the video, and sound as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from penstock.ffmpeg.pixels import FrameLayout


class VideoFrame(np.ndarray[Any, np.dtype[Any]]):
    """A frame: a writable array of height × width × channels, or height × width if there is one channel.

    The samples of planar pixel formats (yuv420p) lie in one dimension, plane after plane; `planes` has each in its
    shape. The memory is the decoder's, and is used for another frame when the last array on it is gone. Arrays that
    are made of a frame, by slicing, arithmetic, copying or pickling, keep its `index`, `pts` and `time`. What is one
    number, such as ``frame.mean()``, is NumPy's scalar.

    Attributes:
        index: its number among the frames that the decoder gives, from 0.
        pts: its presentation timestamp in units of the stream's ``time_base``; None if the file has none for it.
        time: the same in seconds since the beginning of the file, as `Decoder`'s ``start`` counts.
    """

    index: int
    pts: int | None
    time: float | None
    _layout: FrameLayout | None

    def __array_finalize__(self, source: npt.NDArray[Any] | None) -> None:
        self.index = getattr(source, "index", -1)
        self.pts = getattr(source, "pts", None)
        self.time = getattr(source, "time", None)
        self._layout = None  # of the whole frame only

    def __array_wrap__(
        self, array: npt.NDArray[Any], context: Any = None, return_scalar: bool = False, /
    ) -> Any:
        # NumPy makes a scalar of an array without dimensions, but leaves those of subclasses as they are.
        return array[()] if array.ndim == 0 else super().__array_wrap__(array, context)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, state = cast("tuple[Any, ...]", super().__reduce__())
        return rebuild, arguments, (state, self.index, self.pts, self.time, self._layout)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        samples, self.index, self.pts, self.time, self._layout = state
        super().__setstate__(samples)

    @property
    def planes(self) -> tuple[npt.NDArray[Any], ...]:
        """Its planes, each in its shape: rows × columns, or rows × columns × channels.

        Raises:
            ValueError: this is a part of a frame, or was made of one.
        """
        if self._layout is None:
            raise ValueError("only a whole frame, as the decoder gave it, has planes")
        flat, planes, start = self.reshape(-1).view(np.ndarray), [], 0
        for shape in self._layout.planes:
            planes.append(flat[start : start + prod(shape)].reshape(shape))
            start += prod(shape)
        return tuple(planes)


def frame_of(
    memory: Any, layout: FrameLayout, *, index: int, pts: int | None, time: float | None
) -> VideoFrame:
    """A frame in `memory`, which it keeps."""
    frame = np.frombuffer(memoryview(memory), dtype=layout.dtype).reshape(layout.shape).view(VideoFrame)
    frame.index, frame.pts, frame.time, frame._layout = index, pts, time, layout
    return frame


def samples_of(memory: Any, dtype: str, channels: int) -> npt.NDArray[Any]:
    """The whole samples of all channels in `memory`, which the array keeps: samples × channels."""
    view = memoryview(memory)
    samples = view.nbytes // (np.dtype(dtype).itemsize * channels)
    return np.frombuffer(view, dtype, samples * channels).reshape(samples, channels)


def joined(blocks: Sequence[npt.NDArray[Any]], dtype: str, channels: int) -> npt.NDArray[Any]:
    """All samples of `blocks`, of which there may be none."""
    return np.concatenate(blocks) if blocks else np.empty((0, channels), dtype)
