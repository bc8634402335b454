"""The frames of a `Decoder` by their numbers and times: libav decodes them, and they are delivered as in iteration."""

from __future__ import annotations

import math
import operator
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError
from av.filter import Graph

from penstock._ffmpeg.command.settings import check_place
from penstock._media.completeness import Delivered, why_incomplete
from penstock._media.info import RANGES, matrix_name
from penstock._media.random_access import RandomAccess
from penstock._media.seeking import first_pts, last_pts, time_of
from penstock._media.video_frame import VideoFrame, frame_of
from penstock._messages import argument, plural
from penstock._native import _Slot, _SlotPool
from penstock._shortage import raise_shortage
from penstock._tensors import setter_of
from penstock.errors import ClosedError, DecoderError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame as LibavFrame

    from penstock._media.decode_plan import DecodePlan


class FramesByNumber:
    """The frames that a decode gives, in any order.

    Args:
        plan: the decode.

    Attributes:
        is_inherited: this is the child of a fork, which opens the file anew.

    Raises:
        ValueError: the decode has filters or options that libav gets no frames by.
        DecoderError: the source is no regular file, or libav cannot open it.
    """

    def __init__(self, plan: DecodePlan) -> None:
        options = plan.options
        given = {
            "filters": options.filters,
            "input_options": dict(options.input_options),
            "follow_playlists": options.follow_playlists,
        }
        for name, value in given.items():
            if value:
                raise ValueError(f"frames by number do not support {argument(name, value)}: iterate instead")
        self._plan, self._media = plan, plan.track.media
        self._time_base = plan.track.video.time_base
        self._file = RandomAccess(plan)
        self._pixels = Pixels(plan)
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._places: range | None = None
        self._is_closed = False

    @property
    def is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def __getitem__(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        with self._lock:
            if isinstance(key, slice):
                numbers = range(len(self._frame_places()))[key]
                frames = dict(self._decoded(numbers))
                return [frames[number] for number in numbers]
            return self._one(self._number(key))

    def why_incomplete(self) -> str | None:
        """Why frames seem to be missing at the end of the file; None if nothing shows that."""
        with self._lock:
            self._frame_places()
            times = np.array(self._file.index.pts, np.float64) * float(self._time_base)
            longest_s = np.diff(times).max(initial=0.0)
            all_frames = Delivered(
                frames=len(times), last_s=float(times[-1]) if len(times) else 0.0, longest_s=float(longest_s)
            )
            return why_incomplete(self._plan.track, all_frames, self._file.read())

    def frame_at(self, time_s: float | Fraction) -> VideoFrame:
        """As `Decoder.frame_at`."""
        check_place("time_s", time_s)
        with self._lock:
            places = self._frame_places()
            if not places:
                raise DecoderError(f"{self._media.path}: there are no frames")
            last = last_pts(time_s, self._media, self._plan.track.video)
            after = bisect_right(self._file.index.pts, last, places.start, places.stop)
            return self._one(max(0, after - 1 - places.start))

    def batch(self, indices: Iterable[SupportsIndex], out: Any = None) -> Any:
        """As `Decoder.batch`."""
        with self._lock:
            numbers = [self._number(index) for index in indices]
            shape, dtype = (len(numbers), *self._plan.layout.shape), np.dtype(self._plan.layout.dtype)
            out = np.empty(shape, dtype) if out is None else out
            put = setter_of(out, shape, dtype)
            places: dict[int, list[int]] = {}
            for place, number in enumerate(numbers):
                places.setdefault(number, []).append(place)
            for number, frame in self._decoded(places):
                for place in places[number]:
                    put(place, frame)
        return out

    def close(self) -> None:
        """Closes the file. Delivered frames stay valid."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._file.close()

    def _one(self, number: int) -> VideoFrame:
        return dict(self._decoded([number]))[number]

    def _decoded(self, numbers: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """The frames of these numbers, in decoding order. If one is yielded twice, the second one is to be used."""
        first = self._frame_places().start
        for place, decoded in self._file.frames(first + number for number in numbers):
            number, slot = place - first, self._pixels.slot(decoded)
            pts, time_s = self._file.index.pts[place], self._time_s(number)
            yield number, frame_of(slot, self._plan.layout, index=number, pts=pts, time_s=time_s)

    def _time_s(self, number: int) -> float:
        pts = self._file.index.pts[self._frame_places().start + number]
        return time_of(pts, self._media, self._time_base)

    def _number(self, index: SupportsIndex) -> int:
        """The number that an index from either end stands for."""
        count, number = len(self._frame_places()), operator.index(index)
        if not -count <= number < count:
            whole = self._plan.options.start is None and self._plan.options.count is None
            what = "the video" if whole else "the part of the video that `start` and `count` select"
            raise IndexError(f"frame index {number} is out of range: {what} has {plural(count, 'frame')}")
        return number % count

    def _frame_places(self) -> range:
        """The places of the frames in the file's index."""
        if self._is_closed:
            raise ClosedError("the decoder is closed")
        if self._places is None:
            options, index = self._plan.options, self._file.index
            first = 0
            if options.start is not None:
                first = bisect_left(index.pts, first_pts(options.start, self._media, self._plan.track.video))
            last = len(index) if options.count is None else min(len(index), first + options.count)
            self._places = range(first, last)
        return self._places


_KEPT_SLOTS = 4
# FFmpeg's palette behind the pixels of pal8: 256 colors of 4 bytes.
_PALETTE_BYTES = 1024


class Pixels:
    """Makes the bytes of a `Decoder`'s frames from libav's: by the same filters, and the same native conversion."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan, self._conversion = plan, plan.whole_conversion()
        self._size = plan.layout.width, plan.layout.height
        self._slots = _SlotPool(plan.layout.frame_bytes, _KEPT_SLOTS)
        # Size, format and colors may change in the middle of a file. Each combination has a filter graph.
        self._graphs: dict[tuple[Any, ...], Graph] = {}

    def slot(self, frame: LibavFrame) -> _Slot:
        """The bytes of a frame, as it is delivered."""
        return self._slots.filled(_samples(self._filtered(frame)), self._conversion)

    def _filtered(self, frame: LibavFrame) -> LibavFrame:
        """The frame turned, scaled, and in the pixel format that FFmpeg would write."""
        is_as_delivered = (
            (frame.width, frame.height) == self._size
            and frame.format.name == self._plan.ffmpeg_format
            and (self._conversion is None or self._has_colors_of_first(frame))
            and not _is_bottom_up(frame)
        )
        if is_as_delivered and not self._plan.rotation_filters:
            return frame
        # PyAV does not give the rows of a frame that begins with its last one.
        first = ["copy"] if _is_bottom_up(frame) else []
        kind = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range, *first)
        try:
            if kind not in self._graphs:
                filters = [*first, *self._plan.rotation_filters, *self._plan.filters]
                self._graphs[kind] = self._graph(frame, filters)
            graph = self._graphs[kind]
            graph.vpush(frame)
            return graph.vpull()
        except LibavError as error:
            raise_shortage(error)
            raise DecoderError(f"libav cannot convert {frame.format.name}: {error.strerror}") from error

    def _has_colors_of_first(self, frame: LibavFrame) -> bool:
        video = self._plan.track.video
        told = matrix_name(frame.colorspace), RANGES.get(frame.color_range)
        return told == (video.color_matrix, video.color_range)

    def _graph(self, frame: LibavFrame, filters: list[str]) -> Graph:
        graph = Graph()
        graph.threads = 1  # without threads of its own, it can be freed in the child of a fork
        # With the colors, which `add_buffer` does not tell: libav would convert from unspecified ones.
        source = graph.add(
            "buffer",
            video_size=f"{frame.width}x{frame.height}",
            pix_fmt=frame.format.name,
            time_base=str(self._plan.track.video.time_base),
            colorspace=str(int(frame.colorspace)),
            range=str(int(frame.color_range)),
        )
        nodes = [graph.add(*one.split("=", 1)) for one in filters]
        graph.link_nodes(source, *nodes, graph.add("buffersink")).configure()
        return graph


def _is_bottom_up(frame: LibavFrame) -> bool:
    """Whether the rows lie in memory from the last to the first, as PFM, BMP and raw AVI files have them."""
    return any(plane.line_size < 0 for plane in frame.planes)


def _samples(frame: LibavFrame) -> npt.NDArray[np.uint8]:
    """The bytes of a frame without padding, plane after plane."""
    planes = [
        np.frombuffer(cast("Any", plane), np.uint8)[: plane.height * plane.line_size].reshape(
            plane.height, -1
        )
        for plane in frame.planes
    ]
    if frame.format.has_palette:
        planes[1] = np.frombuffer(cast("Any", frame.planes[1]), np.uint8)[np.newaxis, :_PALETTE_BYTES]
    rows = [plane[:, :row_bytes] for plane, row_bytes in zip(planes, _row_bytes(frame), strict=True)]
    return rows[0] if len(rows) == 1 else np.concatenate([plane.reshape(-1) for plane in rows])


def _row_bytes(frame: LibavFrame) -> list[int]:
    """Of each plane, the bytes of a row that hold pixels."""
    if frame.format.has_palette:
        return [frame.width, _PALETTE_BYTES]
    if len(frame.planes) == 1:
        return [math.ceil(frame.format.padded_bits_per_pixel * frame.width / 8)]
    components = frame.format.components
    return [
        plane.width * sum(math.ceil(one.bits / 8) for one in components if one.plane == index)
        for index, plane in enumerate(frame.planes)
    ]
