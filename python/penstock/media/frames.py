"""The frames of a `Decoder` by their numbers and times."""

from __future__ import annotations

import operator
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from penstock.errors import ClosedError, DecoderError
from penstock.ffmpeg.frames import VideoFrame, frame_of
from penstock.ffmpeg.naming import argument
from penstock.ffmpeg.plan.settings import check_place
from penstock.media.decode_plan import DecodePlan
from penstock.media.ending import Delivered, early_end
from penstock.media.info import MediaInfo
from penstock.media.pixels import Pixels
from penstock.media.random_access import RandomAccess
from penstock.media.start import first_pts

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Frames:
    """The frames that a decode gives, in any order.

    Args:
        plan: the decode.
        source: what FFmpeg reads, from `endpoints.source`.
        media: the file.

    Attributes:
        is_inherited: this is the child of a fork, which opens the file anew.

    Raises:
        ValueError: the decode has filters or options that libav gets no frames by.
        DecoderError: the source is no regular file, or libav cannot open it.
    """

    def __init__(self, plan: DecodePlan, source: str, media: MediaInfo) -> None:
        options = plan.options
        given = {
            "filters": options.filters,
            "input_options": dict(options.input_options),
            "follow_playlists": options.follow_playlists,
        }
        for name, value in given.items():
            if value:
                raise ValueError(f"frames by number know no {argument(name, value)}: iterate")
        self._plan, self._source, self._media = plan, source, media
        self._time_base = plan.video.time_base
        self._file = RandomAccess(
            source,
            media,
            plan.video.index,
            decoder=plan.decoder,
            threads=options.threads or 0,
            is_strict=not options.conceal_errors,
        )
        self._pixels = Pixels(plan)
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._places: range | None = None
        self._is_closed = False

    @property
    def is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def __len__(self) -> int:
        with self._lock:
            return len(self._opened())

    def __getitem__(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        with self._lock:
            if isinstance(key, slice):
                numbers = range(len(self._opened()))[key]
                frames = dict(self._decoded(numbers))
                return [frames[number] for number in numbers]
            return self._one(self._number(key))

    def early_end(self) -> str | None:
        """Why the file has had more frames than are there; None if nothing says so."""
        with self._lock:
            self._opened()
            times = np.array(self._file.index.pts, np.float64) * float(self._time_base)
            longest_s = np.diff(times).max(initial=0.0)
            all_frames = Delivered(
                frames=len(times), last_s=float(times[-1]) if len(times) else 0.0, longest_s=float(longest_s)
            )
            return early_end(self._source, self._media, self._plan.video, all_frames, self._file.read())

    def at(self, time_s: float) -> VideoFrame:
        """As `Decoder.at`."""
        check_place("time_s", time_s)
        with self._lock:
            numbers = range(len(self._opened()))
            if not numbers:
                raise DecoderError(f"{self._media.path}: there are no frames")
            return self._one(max(0, bisect_right(numbers, time_s, key=self._time_s) - 1))

    def batch(self, indices: Iterable[SupportsIndex], out: object = None) -> npt.NDArray[Any]:
        """As `Decoder.batch`."""
        with self._lock:
            numbers = [self._number(index) for index in indices]
            layout = self._plan.layout
            made = _array(out, (len(numbers), *layout.shape), np.dtype(layout.dtype))
            places: dict[int, list[int]] = {}
            for place, number in enumerate(numbers):
                places.setdefault(number, []).append(place)
            for number, frame in self._decoded(places):
                made[places[number]] = frame
        return made

    def close(self) -> None:
        """Closes the file. Delivered frames stay valid."""
        with self._lock:
            self._is_closed = True
            self._file.close()

    def _one(self, number: int) -> VideoFrame:
        return dict(self._decoded([number]))[number]

    def _decoded(self, numbers: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """The frames of these numbers, as they are decoded. A frame that comes again takes the place of the first."""
        first = self._opened().start
        for place, decoded in self._file.frames(first + number for number in numbers):
            number, slot = place - first, self._pixels.slot(decoded)
            pts, time_s = self._file.index.pts[place], self._time_s(number)
            yield number, frame_of(slot, self._plan.layout, index=number, pts=pts, time_s=time_s)

    def _time_s(self, number: int) -> float:
        pts = self._file.index.pts[self._opened().start + number]
        return float(pts * self._time_base) - self._media.zero_s

    def _number(self, index: SupportsIndex) -> int:
        """The number that an index from either end stands for."""
        count, number = len(self._opened()), operator.index(index)
        if not -count <= number < count:
            raise IndexError(f"frame {number} of {count}")
        return number % count

    def _opened(self) -> range:
        """The places of the frames in the file's index."""
        if self._is_closed:
            raise ClosedError("the decoder is closed")
        if self._places is None:
            options, index = self._plan.options, self._file.index
            first = 0
            if options.start is not None:
                first = bisect_left(index.pts, first_pts(options.start, self._media, self._time_base))
            last = len(index) if options.count is None else min(len(index), first + options.count)
            self._places = range(first, last)
        return self._places


def _array(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """`out` as an array of that shape, or a new one."""
    if out is None:
        return np.empty(shape, dtype)
    # A tensor of torch has no buffer, but its array is on the same memory.
    made = np.asarray(out) if hasattr(out, "__array__") else np.asarray(memoryview(cast("Buffer", out)))
    address = out.data_ptr() if hasattr(out, "data_ptr") else made.ctypes.data
    if made.shape != shape or made.dtype != dtype:
        raise ValueError(f"out is {shape} of {dtype}; got {made.shape} of {made.dtype}")
    if not made.flags.writeable or made.ctypes.data != address:
        raise BufferError("out must be writable, and in the memory of this process")
    return made
