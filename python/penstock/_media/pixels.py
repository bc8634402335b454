"""Makes the arrays of a `Decoder` from libav's frames: by FFmpeg's filters where needed, and the native conversion."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt
from av.error import FFmpegError as LibavError
from av.filter import Graph

from penstock._media.info import RANGES, matrix_name
from penstock._media.planes import plane_rows
from penstock._messages import argument
from penstock._native import _PlaneConverter
from penstock._shortage import raise_shortage
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame as LibavFrame

    from penstock._media.decode_plan import DecodePlan

#: Threads that convert, in all decoders of a process together. Measured: with 16 CPUs, a third adds less than 10 %.
CONVERSION_THREADS = 2
# Slots that are kept for the next frames. Chosen: those that wait for a caller, and two that it may hold.
_KEPT_SLOTS = 4


class Job(Protocol):
    """The making of a frame's array."""

    def wait(self) -> Any:
        """Its memory, once it is made; None if it was made in memory that the caller gave.

        Raises:
            DecoderError: libav cannot convert the frame.
            OSError: no memory is left.
        """


class Pixels:
    """Makes the bytes of a `Decoder`'s frames from libav's.

    A small pool of native threads, which all decoders share, converts. What it can't convert goes through FFmpeg's
    filters, on a Python thread of this object.

    Attributes:
        ahead: how many frames to begin before the one that is waited for, so that the threads have work.
    """

    def __init__(self, plan: DecodePlan) -> None:
        self._plan, self._conversion = plan, plan.whole_conversion()
        self._size = plan.layout.width, plan.layout.height
        told = plan.options.settings.conversion_threads
        cpus = len(os.sched_getaffinity(0))
        usable = CONVERSION_THREADS if cpus > 1 else 0
        self._threads = usable if told is None else told
        # Each is a frame more in memory.
        self.ahead = min(self._threads, cpus - 1)
        self._converter: _PlaneConverter | None = None
        self._input_bytes, self._converted_s = 0, 0.0
        self._filterer: ThreadPoolExecutor | None = None
        # Size, format and colors may change in the middle of a file. Each combination has a filter graph.
        self._graphs: dict[tuple[Any, ...], Graph] = {}

    @property
    def input_bytes(self) -> int:
        """Bytes of a frame before the native conversion; 0 before the first one."""
        return self._input_bytes

    @property
    def converting_s(self) -> float:
        """Seconds that threads have spent on conversions."""
        return self._converted_s if self._converter is None else self._converter.converting_s

    def begin(self, frame: LibavFrame, out: npt.NDArray[Any] | None = None) -> Job:
        """Begins to make a frame's array: in `out`, if it is given, else in recycled memory."""
        if not self._is_as_delivered(frame):
            if not self._threads:
                return self._begin_filtered(frame, out)
            if self._filterer is None:
                self._filterer = ThreadPoolExecutor(1, thread_name_prefix="penstock-filter")
            return _Filtering(self._filterer.submit(self._begin_filtered, frame, out))
        if out is None and self._conversion is None and (plane := self._whole_plane(frame)) is not None:
            return _Borrowed(plane)
        return self._begin_native(frame, out)

    def close(self) -> None:
        """Returns the recycled memory."""
        self._converted_s, self._converter = self.converting_s, None
        self._graphs.clear()
        if self._filterer is not None:
            self._filterer.shutdown(wait=False, cancel_futures=True)

    def _begin_filtered(self, frame: LibavFrame, out: npt.NDArray[Any] | None) -> Job:
        return self._begin_native(self._filtered(frame), out)

    def _begin_native(self, frame: LibavFrame, out: npt.NDArray[Any] | None) -> Job:
        planes = frame.planes
        if self._converter is None:
            rows = plane_rows(frame)
            self._input_bytes = sum(count * row_bytes for count, row_bytes in rows)
            self._converter = _PlaneConverter(self._conversion, rows, _KEPT_SLOTS, self._threads)
        return self._converter.begin(planes, [plane.line_size for plane in planes], out)

    def _whole_plane(self, frame: LibavFrame) -> Any | None:
        """The only plane of a frame, if it lies in memory as it is delivered: nobody may write to it."""
        if len(frame.planes) != 1:
            return None
        plane, [(rows, row_bytes)] = frame.planes[0], plane_rows(frame)
        is_whole = plane.line_size == row_bytes and rows * row_bytes == self._plan.layout.frame_bytes
        return memoryview(plane)[: rows * row_bytes].toreadonly() if is_whole else None

    def _is_as_delivered(self, frame: LibavFrame) -> bool:
        return (
            (frame.width, frame.height) == self._size
            and frame.format.name == self._plan.ffmpeg_format
            and (self._conversion is None or self._has_colors_of_first(frame))
            and not self._plan.rotation_filters
        )

    def _has_colors_of_first(self, frame: LibavFrame) -> bool:
        video = self._plan.track.video
        told = matrix_name(frame.colorspace), RANGES.get(frame.color_range)
        return told == (video.color_matrix, video.color_range)

    def _filtered(self, frame: LibavFrame) -> LibavFrame:
        """The frame turned, scaled, and in the pixel format that FFmpeg would write."""
        kind = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range)
        try:
            if kind not in self._graphs:
                self._graphs[kind] = self._graph(frame)
            graph = self._graphs[kind]
            graph.vpush(frame)
            return graph.vpull()
        except LibavError as error:
            raise_shortage(error)
            if frame.format.has_palette:
                remedy = f"{argument('pixel_format', 'rgb24')} scales all frames to the size of the first one"
                raise DecoderError(
                    f"the pictures change their size, which is not supported with a palette: {remedy}"
                ) from error
            raise DecoderError(f"libav cannot convert {frame.format.name}: {error.strerror}") from error

    def _graph(self, frame: LibavFrame) -> Graph:
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
        filters = [*self._plan.rotation_filters, *self._plan.filters]
        nodes = [graph.add(*one.split("=", 1)) for one in filters]
        graph.link_nodes(source, *nodes, graph.add("buffersink")).configure()
        return graph


class _Borrowed:
    """A frame that needs no copy."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def wait(self) -> Any:
        return self._memory


class _Filtering:
    """A frame that goes through filters first, on another thread."""

    def __init__(self, begun: Future[Job]) -> None:
        self._begun = begun

    def wait(self) -> Any:
        return self._begun.result().wait()
