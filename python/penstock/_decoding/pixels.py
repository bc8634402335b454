"""Makes the arrays of a `Decoder` from libav's frames: by FFmpeg's filters where needed, and the native conversion."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from av import CodecContext
from av.error import FFmpegError as LibavError
from av.filter import Graph

from penstock._common.control_groups import whole_cpus
from penstock._common.messages import argument, warn
from penstock._common.shortage import raise_shortage
from penstock._decoding.plan import DecodePlan, lost_bits, plan_decode
from penstock._decoding.planes import blank_rows, plane_rows, too_large
from penstock._facts.info import RANGES, MediaInfo, matrix_name
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._formats.pixel_formats import is_gray, is_rgb
from penstock._native import _PlaneConverter
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame as LibavFrame


#: Threads that convert, in all decoders of a process together. Measured: with 16 CPUs, a third adds less than 10 %.
CONVERSION_THREADS = 2
# Slots that are kept for the next frames of a kind. Chosen: those that wait for a caller, and two that it may hold.
_KEPT_SLOTS = 4
# FFmpeg's muxers, demuxers and decoders have no larger packets.
_MOST_BYTES = 2**31 - 1
# Kinds of frames whose filters and slots are kept. Chosen: JPEGs have four, and a file may change with every frame.
_KEPT_KINDS = 4


class Job(Protocol):
    """The making of a frame's array."""

    def wait(self) -> Any:
        """Its memory, once it is made; None if it was made in memory that the caller gave.

        Raises:
            DecoderError: libav cannot convert the frame.
            OSError: no memory is left.
        """


class Arrays(Protocol):
    """What makes the arrays of these frames.

    Attributes:
        ahead: how many frames to begin before the one that is waited for.
    """

    ahead: int

    @property
    def input_bytes(self) -> int:
        """Bytes of a frame before the native conversion."""

    @property
    def converting_s(self) -> float:
        """Seconds that threads have spent on conversions."""

    def begin(self, frame: Any, out: npt.NDArray[Any] | None = None) -> Job:
        """Begins to make a frame's array: in `out`, if it is given."""

    def close(self) -> None:
        """Frees memory."""


class Pixels:
    """Makes the bytes of a `Decoder`'s frames from libav's.

    Size, pixel format and colors may change in the middle of a file, and from image to image. Each kind of frame is
    converted from what it has, by a plan of its own with the result of the decoder's plan.

    A small pool of native threads, which all decoders share, converts. What it can't convert goes through FFmpeg's
    filters, on a Python thread of this object.

    Attributes:
        threads: how many convert.
        ahead: how many frames to begin before the one that is waited for, so that the threads have work.
    """

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        told = plan.options.settings.conversion_threads
        cpus = whole_cpus()
        usable = CONVERSION_THREADS if cpus > 1 else 0
        self.threads = usable if told is None else told
        # Each is a frame more in memory.
        self.ahead = min(self.threads, cpus - 1)
        self._filterer: ThreadPoolExecutor | None = None
        self._kinds: dict[tuple[Any, ...], _Kind] = {}  # in the order in which they were made
        self._warned = {None, lost_bits(plan.track.video, plan.options.pixel_format)}
        self._input_bytes, self._converted_s = 0, 0.0  # of kinds that are gone

    # Another thread may ask for these while the kinds change.
    @property
    def input_bytes(self) -> int:
        """Bytes of the largest frame before the native conversion; 0 before the first one."""
        return max((self._input_bytes, *(kind.input_bytes for kind in [*self._kinds.values()])))

    @property
    def converting_s(self) -> float:
        """Seconds that threads have spent on conversions."""
        return self._converted_s + sum(kind.converting_s for kind in [*self._kinds.values()])

    def begin(self, frame: LibavFrame, out: npt.NDArray[Any] | None = None) -> Job:
        """Begins to make a frame's array: in `out`, if it is given, else in recycled memory."""
        kind = self._kind_of(frame)
        if not kind.is_filtered or not self.threads:
            return kind.begin(frame, out)
        if self._filterer is None:
            self._filterer = ThreadPoolExecutor(1, thread_name_prefix="penstock-filter")
        return _Filtering(self._filterer.submit(kind.begin, frame, out))

    def close(self) -> None:
        """Returns the recycled memory."""
        while self._kinds:
            self._drop_oldest()
        if self._filterer is not None:
            self._filterer.shutdown(wait=False, cancel_futures=True)

    def _kind_of(self, frame: LibavFrame) -> _Kind:
        facts = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range)
        if (kind := self._kinds.get(facts)) is None:
            kind = _Kind(frame, self._plan_for(frame), self.threads)
            if len(self._kinds) == _KEPT_KINDS:
                self._drop_oldest()
            self._kinds[facts] = kind
        return kind

    def _drop_oldest(self) -> None:
        kind = self._kinds.pop(next(iter(self._kinds)))
        self._input_bytes = max(self._input_bytes, kind.input_bytes)
        self._converted_s += kind.converting_s

    def _plan_for(self, frame: LibavFrame) -> DecodePlan:
        """The plan for frames with the samples of this one, whatever their size."""
        plan, options = self._plan, self._plan.options
        video, name = samples_like(plan.track.video, frame), plan.layout.pixel_format
        if video == plan.track.video:
            return plan
        is_yuv = not (is_rgb(name) or is_gray(name))
        if is_yuv and plan.converted_by is None and plan.track.source:
            # YUV stays as it is in a file (a list of images has no source), whatever its range: libav calls the same
            # frames yuv420p in sequence, and yuvj420p by number, of which another plan would make limited ones.
            return plan
        said = lost_bits(video, options.pixel_format)
        if options.size is None and said not in self._warned:
            self._warned.add(said)
            warn(f"{plan.track.media.path}: {said}")
        return plan_decode(None, replace(plan.track, video=video), replace(options, pixel_format=name))


class ProgramPixels:
    """Makes the arrays of a plan's frames from the packets of raw video that an FFmpeg program writes.

    Args:
        plan: the plan.
        stored: what FFmpeg writes, if this process makes the frames of that; None if FFmpeg has made all but the native
            conversion.

    Attributes:
        input_bytes: bytes of a frame that FFmpeg writes.
        ahead: as of `Pixels`. None: the next packet gets the memory of this one.
    """

    ahead = 0

    def __init__(self, plan: DecodePlan, stored: DecodePlan | None) -> None:
        self._plan, self._pixels = plan, Pixels(plan)
        self._codec = None if stored is None else _raw_decoder(stored)
        self._converter: _PlaneConverter | None = None
        self._rows: list[tuple[int, int]] = []
        self.input_bytes = (stored or plan).layout.frame_bytes
        if stored is None and (plan.conversion or plan.delivery):
            self._rows = [*blank_rows(plan.layout.width, plan.layout.height, plan.ffmpeg_format)]
            self.input_bytes = sum(rows * row_bytes for rows, row_bytes in self._rows)
            self._converter = _converter(plan, self._rows, self._pixels.threads)
        if self.input_bytes > _MOST_BYTES:
            raise too_large(plan.layout.width, plan.layout.height, plan.ffmpeg_format)

    def begin(self, packet: Any, out: npt.NDArray[Any] | None = None) -> Job:
        """Begins to make a frame's array: of a packet, or of its bytes."""
        if self._codec is not None:
            [frame] = self._codec.decode(packet)
            return self._pixels.begin(frame, out)
        memory = memoryview(packet)
        if self._converter is None:
            return _Borrowed(memory)
        planes, at = [], 0
        for rows, row_bytes in self._rows:
            planes.append(memory[at : at + rows * row_bytes])
            at += rows * row_bytes
        return self._converter.begin(planes, [row_bytes for _, row_bytes in self._rows], out)

    @property
    def converting_s(self) -> float:
        """Seconds that threads have spent on conversions."""
        return self._pixels.converting_s if self._converter is None else self._converter.converting_s

    def close(self) -> None:
        """Returns the recycled memory."""
        self._pixels.close()


class NoPixels:
    """Makes nothing of frames that are arrays already.

    Args:
        input_bytes: bytes of a frame.
    """

    ahead, converting_s = 0, 0.0

    def __init__(self, input_bytes: int) -> None:
        self.input_bytes = input_bytes

    def begin(self, frame: memoryview, out: npt.NDArray[Any] | None = None) -> Job:
        """A frame's array, or its copy in `out`."""
        if out is not None:
            out[...] = np.frombuffer(frame, out.dtype).reshape(out.shape)
        return _Borrowed(frame if out is None else None)

    def close(self) -> None:
        """Has nothing to free."""


def _raw_decoder(plan: DecodePlan) -> VideoCodecContext:
    """A decoder of pictures as they are stored, by their size and format: NUT has no tag for some formats."""
    video = plan.track.video
    codec = cast("VideoCodecContext", CodecContext.create("rawvideo", "r"))  # samples as they are
    codec.width, codec.height = plan.layout.width, plan.layout.height
    codec.pix_fmt = video.pixel_format
    codec.colorspace = next((one for one in range(256) if matrix_name(one) == video.color_matrix), 2)
    codec.color_range = next((one for one, name in RANGES.items() if name == video.color_range), 0)
    return codec


def samples_like(video: MediaInfo.Video, frame: LibavFrame) -> MediaInfo.Video:
    """The facts about the video if its samples are like those of this frame: the pixel format and colors."""
    depths = {one.bits for one in frame.format.components}
    return replace(
        video,
        pixel_format=frame.format.name,
        color_matrix=matrix_name(frame.colorspace),
        color_range=RANGES.get(frame.color_range),
        bit_depth=depths.pop() if len(depths) == 1 else None,
    )


class _Kind:
    """Makes the arrays of frames of one size, pixel format, matrix and range.

    Args:
        frame: one of them.

    Attributes:
        is_filtered: FFmpeg's filters turn them, scale them, or convert them to what the native conversion takes.
        input_bytes: bytes of a frame before the native conversion; 0 before the first one.
    """

    def __init__(self, frame: LibavFrame, plan: DecodePlan, threads: int) -> None:
        self._plan, self._threads = plan, threads
        self._is_made = bool(plan.conversion or plan.delivery)
        self.is_filtered = (
            (frame.width, frame.height) != (plan.layout.width, plan.layout.height)
            or frame.format.name != plan.ffmpeg_format
            or bool(plan.rotation_filters)
            or plan.is_reframed
        )
        self.input_bytes = 0
        self._converter: _PlaneConverter | None = None
        self._graph: Graph | None = None

    @property
    def converting_s(self) -> float:
        """Seconds that threads have spent on conversions."""
        return 0.0 if self._converter is None else self._converter.converting_s

    def begin(self, frame: LibavFrame, out: npt.NDArray[Any] | None) -> Job:
        """Begins to make a frame's array, after filters if it is filtered."""
        if self.is_filtered:
            frame = self._filtered(frame)
        elif out is None and not self._is_made and (plane := self._whole_plane(frame)) is not None:
            return _Borrowed(plane)
        planes = frame.planes
        if self._converter is None:
            rows = plane_rows(frame)
            self.input_bytes = sum(count * row_bytes for count, row_bytes in rows)
            self._converter = _converter(self._plan, rows, self._threads)
        return self._converter.begin(planes, [plane.line_size for plane in planes], out)

    def _whole_plane(self, frame: LibavFrame) -> Any | None:
        """The only plane of a frame, if it lies in memory as it is delivered: nobody may write to it."""
        if len(frame.planes) != 1:
            return None
        plane, [(rows, row_bytes)] = frame.planes[0], plane_rows(frame)
        is_whole = plane.line_size == row_bytes and rows * row_bytes == self._plan.layout.frame_bytes
        return memoryview(plane)[: rows * row_bytes].toreadonly() if is_whole else None

    def _filtered(self, frame: LibavFrame) -> LibavFrame:
        """The frame turned, scaled, and in the pixel format that FFmpeg would write."""
        try:
            if self._graph is None:
                self._graph = _graph(self._plan, frame)
            self._graph.vpush(frame)
            return self._graph.vpull()
        except LibavError as error:
            raise_shortage(error)
            if frame.format.has_palette:
                raise DecoderError(
                    "the pictures change their size, which a palette doesn't support. Pass "
                    f"{argument('pixel_format', DEFAULT_FORMAT)} to scale all frames to the size of the first one"
                ) from error
            raise DecoderError(f"libav can't convert {frame.format.name}: {error.strerror}") from error


def _converter(plan: DecodePlan, rows: Sequence[tuple[int, int]], threads: int) -> _PlaneConverter:
    delivery = None if plan.delivery is None else plan.delivery.native()
    return _PlaneConverter(plan.conversion, rows, _KEPT_SLOTS, threads, delivery)


def _graph(plan: DecodePlan, frame: LibavFrame) -> Graph:
    """The filters for frames like this one."""
    graph = Graph()
    graph.threads = 1  # without threads of its own, it can be freed in the child of a fork
    # With the colors, which `add_buffer` does not tell: libav would convert from unspecified ones.
    source = graph.add(
        "buffer",
        video_size=f"{frame.width}x{frame.height}",
        pix_fmt=frame.format.name,
        time_base=str(plan.track.video.time_base),
        colorspace=str(int(frame.colorspace)),
        range=str(int(frame.color_range)),
    )
    nodes = [graph.add(*one.split("=", 1)) for one in (*plan.rotation_filters, *plan.filters)]
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
