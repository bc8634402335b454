"""A video stream of a file that libav has open in this process, and the stream's decoder."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._common.control_groups import whole_cpus
from penstock._facts.opening import decode, demux, open_media

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from penstock._facts.index import Packet

#: Threads of libav at most. Chosen: each has a frame in flight, and libav itself starts no more if it may choose.
MOST_THREADS = 16
# libav counts in signed 64 bits; what lies beyond any of them lies beyond the file, too.
_LAST_PLACE = 2**63 - 1
# Those that the child of a fork inherits.
_living: weakref.WeakSet[OpenVideo] = weakref.WeakSet()


def _leak_inherited() -> None:
    """Runs in the child of a fork: freeing a decoder there would wait forever for threads that only the parent has."""
    for one in list(_living):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


os.register_at_fork(after_in_child=_leak_inherited)


@dataclass(frozen=True, slots=True)
class VideoInput:
    """Which video stream of which file is read, and how strictly.

    Attributes:
        source: what FFmpeg reads, from `endpoints.source`.
        path: the file by its name, for messages.
        container: FFmpeg's names of the container.
        index: the stream's number among all streams of the file.
        decoder: the name of libav's decoder; None leaves the choice to libav.
        is_strict: whether damage is an error.
        threads: how many threads libav uses, `MOST_THREADS` at most; None leaves it to libav, or to a quota of the
            container.
        is_opened_once: it can't be opened again, or not at the same place, as a URL.
    """

    source: str
    path: str
    container: str
    index: int
    decoder: str | None
    is_strict: bool
    threads: int | None
    is_opened_once: bool = False


class OpenVideo:
    """A video stream of an open file, with a decoder.

    Args:
        has_threads: whether libav may decode several frames at once.
        container: the file, if it is open already.
        ahead: packets of the stream that were read from it.
    """

    container: InputContainer
    codec: VideoCodecContext

    def __init__(
        self,
        chosen: VideoInput,
        *,
        has_threads: bool,
        container: InputContainer | None = None,
        ahead: Iterable[Packet] = (),
    ) -> None:
        _living.add(self)
        self._chosen, self._threads = chosen, (chosen.threads or _threads()) if has_threads else 1
        self._begin(container, ahead)

    def _begin(self, container: InputContainer | None = None, ahead: Iterable[Packet] = ()) -> None:
        self.container = container or open_media(self._chosen.source, (self._chosen.container,))
        self._ahead = deque(ahead)
        self._stream: VideoStream = self.container.streams[self._chosen.index]  # type: ignore[assignment]
        self.codec = self._stream.codec_context
        if self._chosen.decoder is not None:
            self.codec = cast("VideoCodecContext", av.CodecContext.create(self._chosen.decoder, "r"))
            self.codec.extradata = self._stream.codec_context.extradata
        # By frames alone: the threads of slices can't be left behind in the child of a fork.
        self.codec.thread_type = ThreadType.NONE if self._threads == 1 else ThreadType.FRAME
        self.codec.thread_count = min(self._threads, MOST_THREADS)
        # To libav's decoder of TIFF, a tag that it does not know would be damage, and most files have one.
        if self._chosen.is_strict and self.codec_name != "tiff":
            self.codec.options = {"err_detect": "explode"}

    @property
    def stream(self) -> VideoStream:
        """The stream."""
        return self._stream

    @property
    def codec_name(self) -> str:
        """FFmpeg's name of the codec."""
        return self.codec.codec.canonical_name

    def packets(self) -> Iterator[Packet]:
        """The packets of the stream from here on."""
        while self._ahead:
            yield self._ahead.popleft()
        yield from demux(self.container, self._stream)

    def give_back(self, packets: Iterable[Packet]) -> None:
        """Lets `packets` give these again, before all others."""
        self._ahead.extendleft(reversed([*packets]))

    def decode(self, packet: Packet | None) -> list[VideoFrame]:
        """The frames that the decoder gives when it gets the packet; None stands for the end of the file.

        Raises:
            LibavError: the packet, or one before, is damaged.
        """
        if packet is not None and packet.size == 0:
            return []  # such as a repeated frame of Theora, which libav would take for the end of the file
        try:
            return decode(self.codec, packet)
        except EOFError:
            return []

    def seek(self, pts: int) -> bool:
        """Goes to a keyframe at or before this time, or so libav believes. False if it can't."""
        return self._sought(pts, stream=self._stream)

    def seek_byte(self, position: int) -> bool:
        """Goes to this byte of the file. False if libav can't."""
        return self._sought(position, unsupported_byte_offset=True)

    def _sought(self, place: int, **options: object) -> bool:
        self._ahead.clear()
        place = max(-_LAST_PLACE, min(place, _LAST_PLACE))
        try:
            self.container.seek(place, **options)  # type: ignore[arg-type]
        except LibavError:
            return False
        self.codec.flush_buffers()
        return True

    def rewind(self) -> None:
        """Opens the file again: not every container can go back to its beginning."""
        self.container.close()
        self._begin()

    def close(self) -> None:
        """Closes the file."""
        self._ahead.clear()
        self.container.close()
        # libav's threads end with the last reference to the codec.
        del self.codec, self._stream

    def __enter__(self) -> OpenVideo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _threads() -> int:
    """As many as libav chooses (0), which knows of no quota: by one, those that it keeps busy, and one that waits."""
    cpus = whole_cpus()
    if cpus == len(os.sched_getaffinity(0)):
        return 0
    return cpus + 1 if cpus > 1 else 1
