"""A video stream of a file that libav has open in this process, and the stream's decoder."""

from __future__ import annotations

import ctypes
import errno
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._common.control_groups import whole_cpus
from penstock._facts.fields import Fields
from penstock._facts.index import Unwrapped
from penstock._facts.opening import EXACT_CROP, decode, demux, only_frame, open_media
from penstock._ffmpeg.command import endpoints
from penstock._formats import codecs
from penstock._platform.forks import at_fork
from penstock._platform.programs import usable_cpus

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from penstock._facts.index import Packet

#: Threads of libav at most. Chosen: each has a frame in flight, and libav itself starts no more if it may choose.
MOST_THREADS = 16
#: What to say of a URL that may have been cut.
NO_LENGTH = "the server told no length and closed the connection, so the file may be cut. Check where it ends"
# libav counts in signed 64 bits; what lies beyond any of them lies beyond the file, too.
_LAST_PLACE = 2**63 - 1
# What the child of a fork inherits, and must not free.
_living: weakref.WeakSet[object] = weakref.WeakSet()


def keep_in_child(one: object) -> None:
    """Has the child of a fork never free an object, which holds decoders of libav's, or frames.

    Freeing a decoder waits for threads that only the parent has. Freeing a frame waits for a lock that one of those may
    have held.
    """
    _living.add(one)


def _leak_inherited() -> None:
    for one in list(_living):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


at_fork(after_in_child=_leak_inherited)


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
        stall_timeout: how many seconds a read may wait for a URL; None for any time.
        decodes_first: as for `open_media`.
    """

    source: str
    path: str
    container: str
    index: int
    decoder: str | None
    is_strict: bool
    threads: int | None
    stall_timeout: float | None = None
    decodes_first: bool = True

    @property
    def is_opened_once(self) -> bool:
        """Whether it can't be opened again, or not at the same place, as a URL."""
        return not endpoints.is_path(self.source)


class OpenVideo:
    """A video stream of an open file, with a decoder.

    Args:
        has_threads: whether libav may decode several frames at once.
        container: the file, if it is open already.
        ahead: packets of the stream that were read from it.

    Attributes:
        codec: what is known of the stream's codec; and its decoder, unless that has decoded one frame alone.
        warning: what is to be said of its end; None if that is nothing.
    """

    container: InputContainer
    codec: VideoCodecContext
    warning: str | None = None

    def __init__(
        self,
        chosen: VideoInput,
        *,
        has_threads: bool,
        container: InputContainer | None = None,
        ahead: Iterable[Packet] = (),
    ) -> None:
        keep_in_child(self)
        self._chosen, self._threads = chosen, _threads_of(chosen) if has_threads else 1
        self._begin(container, ahead)

    @property
    def has_threads(self) -> bool:
        """Whether libav may decode several frames at once."""
        return self._threads != 1

    @property
    def conceals(self) -> bool:
        """Whether the decoder goes on at damage, and marks the frames that it has made up in part."""
        return self._threads == 1 and codecs.known(self.codec_name).marks_damage

    def _begin(self, container: InputContainer | None = None, ahead: Iterable[Packet] = ()) -> None:
        chosen = self._chosen
        self.container = container or open_media(
            chosen.source,
            (chosen.container,),
            path=chosen.path,
            stall_timeout=chosen.stall_timeout,
            decodes_first=chosen.decodes_first and not chosen.is_opened_once,
        )
        self._ahead = deque(ahead)
        self._failure: LibavError | None = None  # of the demuxer
        self._stream: VideoStream = self.container.streams[self._chosen.index]  # type: ignore[assignment]
        self._unwrapped = Unwrapped(self._stream)
        self._fields = Fields(self._stream.codec_context.height)
        self.codec = self._stream.codec_context
        if self._chosen.decoder is not None:
            self.codec = self._decoder_by_name(self._chosen.decoder)
        self._decoder: VideoCodecContext | None = None  # once it has decoded

    def _new_decoder(self) -> VideoCodecContext:
        codec, name = self.codec, self._chosen.decoder
        if codec.is_open:  # it has decoded one frame alone
            if not self.has_threads:
                return codec
            codec = _decoder_like(self._stream) if name is None else self._decoder_by_name(name)
        self._set_up(codec, self._threads)
        return codec

    def _decoder_by_name(self, name: str) -> VideoCodecContext:
        codec = cast("VideoCodecContext", av.CodecContext.create(name, "r"))
        codec.extradata = self._stream.codec_context.extradata
        return codec

    def _set_up(self, codec: VideoCodecContext, threads: int) -> None:
        # By frames alone: the threads of slices can't be left behind in the child of a fork.
        codec.thread_type = ThreadType.NONE if threads == 1 else ThreadType.FRAME
        codec.thread_count = min(threads, MOST_THREADS)
        codec.flags |= EXACT_CROP
        known = codecs.known(self.codec_name)
        conceals = threads == 1 and known.marks_damage
        if self._chosen.is_strict and not known.is_lenient and not conceals:
            codec.options = {"err_detect": "explode"}

    def decode_alone(self, packet: Packet) -> VideoFrame | None:
        """The frame of the first packet, by one thread: there may be no other, and threads take time to begin."""
        self._set_up(self.codec, threads=1)
        return only_frame(self.codec, packet)

    def use_threads(self, *, has_threads: bool) -> bool:
        """Decides again whether libav may decode several frames at once. False if it decodes already."""
        if self._decoder is not None:
            return False
        self._threads = _threads_of(self._chosen) if has_threads else 1
        return True

    @property
    def latest_read(self) -> int | None:
        """The latest time of decoding of the packets that were read, and are given again; None without one."""
        return max((packet.dts for packet in self._ahead if packet.dts is not None), default=None)

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
        if not codecs.known(self.codec_name).may_cut_fields:
            yield from self._packets()
            return
        for packet in self._packets():
            packet.is_corrupt |= self._fields.are_cut(bytes(packet))
            yield packet

    def _packets(self) -> Iterator[Packet]:
        while self._ahead:
            yield self._ahead.popleft()
        if self._failure is not None:
            raise self._failure
        try:
            yield from self._unwrapped.all(demux(self.container, self._stream))
        except LibavError as failure:
            if is_end_of_answer(self.container, self._chosen.source, failure):
                self.warning = NO_LENGTH
                return
            self._failure = failure  # libav may not tell of it twice
            raise

    def unread(self, packets: Iterable[Packet]) -> None:
        """Lets `packets` give these again, before all others."""
        self._ahead.extendleft(reversed([*packets]))

    def decode(self, packet: Packet | None) -> list[VideoFrame]:
        """The frames that the decoder gives when it gets the packet; None stands for the end of the file.

        Raises:
            LibavError: the packet, or one before, is damaged.
        """
        if packet is not None and packet.size == 0:
            return []  # such as a repeated frame of Theora, which libav would take for the end of the file
        if packet is not None and packet.is_discard and self.conceals:
            packet = _visible(packet)
        if self._decoder is None:
            self._decoder = self._new_decoder()
        try:
            return decode(self._decoder, packet)
        except EOFError:
            return []

    def seek(self, pts: int) -> bool:
        """Goes to a keyframe at or before this time, or so libav believes. False if it can't."""
        return self._sought(pts, pts, stream=self._stream)

    def seek_byte(self, position: int, pts: int) -> bool:
        """Goes to this byte of the file, with a packet of that time. False if libav can't."""
        return self._sought(position, pts, unsupported_byte_offset=True)

    def _sought(self, place: int, pts: int, **options: object) -> bool:
        self._ahead.clear()
        self._failure = None
        self._unwrapped.move(pts)
        place = max(-_LAST_PLACE, min(place, _LAST_PLACE))
        try:
            self.container.seek(place, **options)  # type: ignore[arg-type]
        except LibavError:
            return False
        if self._decoder is not None:
            self._decoder.flush_buffers()
        return True

    def rewind(self) -> None:
        """Opens the file again: not every container can go back to its beginning."""
        self.container.close()
        self._begin()

    def close(self) -> None:
        """Closes the file."""
        self._ahead.clear()
        self.container.close()
        # libav's threads end with the last reference to the decoder.
        del self.codec, self._decoder, self._stream

    def __enter__(self) -> OpenVideo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_end_of_answer(container: InputContainer, source: str, failure: LibavError) -> bool:
    """Whether a server has ended an answer without a length by closing the connection, which libav calls EIO."""
    is_http = source.startswith(("http:", "https:"))
    # Unknown sizes are negative in PyAV 18, and None in PyAV 19.
    return is_http and failure.errno == errno.EIO and (container.size or -1) < 0


def _decoder_like(stream: VideoStream) -> VideoCodecContext:
    """Another decoder with all that the container tells of a stream. PyAV makes one only of a stream to be written."""
    with av.open("null", "w", format="null") as output:  # which writes nothing
        codec = cast("VideoCodecContext", output.add_stream_from_template(stream, opaque=True).codec_context)
    codec.codec_tag = stream.codec_context.codec_tag
    return codec


def _visible(packet: Packet) -> Packet:
    """A packet whose frame an edit list hides, so that the decoder gives the frame: it may be marked as damaged.

    The memory is libav's: to free memory of Python's, a thread of libav would wait for the GIL.
    """
    copy: Packet = av.Packet(packet.size)  # type: ignore[assignment]
    copy.update(bytes(packet))
    copy.pts, copy.dts = packet.pts, packet.dts
    return copy


def _threads_of(chosen: VideoInput) -> int:
    """As many as libav chooses (0), which knows of no quota: by one, those that it keeps busy, and one that waits."""
    if chosen.threads is not None:
        return chosen.threads
    cpus = whole_cpus()
    if cpus == usable_cpus():
        return 0
    return cpus + 1 if cpus > 1 else 1
