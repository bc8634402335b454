"""How the streams of an open file begin: their first packets, and the first frame of each video."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._facts.index import REORDERED, has_false_beginning, packet_info, shows_nothing
from penstock._facts.opening import EXACT_CROP, decode, demux, has_no_times, is_encrypted, only_frame
from penstock._formats import containers
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from penstock._facts.index import Packet

#: Guessed: the times of so many frames tell whether the rate varies, and fewer packets than those hold a frame.
FIRST_PACKETS = 60


def videos_of(media: InputContainer) -> list[VideoStream]:
    """The video streams that libav has a decoder for."""
    return [stream for stream in media.streams.video if stream.codec_context is not None]


def audios_of(media: InputContainer) -> list[AudioStream]:
    """The audio streams that libav has a decoder for."""
    return [stream for stream in media.streams.audio if stream.codec_context is not None]


@dataclass(slots=True)
class Beginning:
    """A stream's codec, its first keyframe if one of the first packets has it, and the times of these packets.

    The name is read before decoding: after a failure to open a decoder, PyAV may have none, or crash. `pts` is when the
    first frame is shown that a decoder gives; None if that wasn't decoded. `late_units` is as for `MediaInfo.Video`.
    """

    codec: str
    frame: VideoFrame | None = None
    times: list[int | None] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)
    is_encrypted: bool = False
    late_units: int = 0
    pts: int | None = None

    @property
    def has_leading(self) -> bool:
        """Whether frames are shown before the first keyframe: a decoder may give them, as in VVC, or leave them out."""
        return bool(self.times) and self.packets[0].is_keyframe and self._leads(self.times[0])

    def _leads(self, first: int | None) -> bool:
        return first is not None and any(one is not None and one < first for one in self.times)

    @property
    def shown_times(self) -> list[int | None]:
        """The times of packets that show something.

        Without those of frames that need packets before the first ones, which may be missing.
        """
        first = next((number for number, one in enumerate(self.packets) if one.is_keyframe), 0)
        times = [
            time
            for time, one in zip(self.times[first:], self.packets[first:], strict=False)
            if not shows_nothing(self.codec, *_ends_of(one))
        ]
        return [one for one in times if None in (one, times[0]) or cast("int", one) >= cast("int", times[0])]


def _ends_of(packet: Packet) -> tuple[int, int]:
    """The first byte and the last one."""
    facts = packet_info(packet)
    return facts.first, facts.last


def codec_name(stream: VideoStream | AudioStream) -> str:
    return stream.codec_context.codec.canonical_name


def read_beginnings(
    media: InputContainer, undecoded: int | None = None, *, with_audio: bool = False
) -> tuple[dict[int, Beginning], list[Packet]]:
    """How each stream begins, by its number, and the packets that were read for that.

    Those of audio are read in QuickTime and MP4 files, because their packets say whether they are encrypted.

    Args:
        undecoded: the number of a video whose frame is not decoded here.
        with_audio: none of audio may be left out.
    """
    videos = {stream.index: stream for stream in videos_of(media)}
    decoded = {number: stream.codec_context for number, stream in videos.items() if number != undecoded}
    for codec in decoded.values():
        # A decoder with threads gives the first frame only after as many packets as it has threads.
        codec.thread_type, codec.thread_count = ThreadType.NONE, 1
        codec.flags |= EXACT_CROP
    # The header of QuickTime and MP4 files has the average.
    has_average = containers.known(media.format.name).has_boxes
    has_audio = has_average or (with_audio and bool(videos))
    streams: list[Any] = [*videos.values(), *(audios_of(media) if has_audio else ())]
    beginnings = {stream.index: Beginning(codec_name(stream)) for stream in streams}
    packets: list[Packet] = []
    waiting = set(beginnings)
    try:
        for packet in islice(demux(media, streams) if streams else (), FIRST_PACKETS):
            packets.append(packet)
            number = packet.stream_index
            if (beginning := beginnings.get(number)) is None:
                continue  # FLV tells of a stream when it comes
            if packet.size:
                beginning.packets.append(packet)
            if packet.size and not has_average:
                beginning.times.append(packet.pts)
            beginning.is_encrypted |= is_encrypted(packet)
            is_decoded = number in decoded and not beginning.is_encrypted
            if is_decoded and beginning.frame is None and packet.is_keyframe and packet.size:
                beginning.frame = only_frame(decoded[number], packet)
            if beginning.frame is not None or not is_decoded:
                waiting.discard(number)
            # Other containers leave the rate to the times of more packets.
            if has_average and not waiting:
                break
    except LibavError:
        pass  # the file is damaged there, and its header was read
    for number, codec in decoded.items():
        beginning = beginnings[number]
        if not beginning.is_encrypted and (beginning.frame is None or beginning.has_leading):
            first = _first_frame(codec, beginning.packets)
            if first is not None:
                beginning.frame, beginning.pts = first, first.pts
    for number, stream in videos.items():
        beginning = beginnings[number]
        if not has_no_times(media.format.name):
            beginning.late_units = _late_units(stream.codec_context, beginning.packets)
        if beginning.late_units:
            beginning.times = [packet.dts for packet in beginning.packets]
    return beginnings, packets


def _first_frame(codec: VideoCodecContext, packets: Sequence[Packet]) -> VideoFrame | None:
    """The first frame of packets of which the first keyframe doesn't give it by itself: such as a field."""
    first = next((number for number, one in enumerate(packets) if one.is_keyframe), len(packets))
    frames: list[VideoFrame] = []
    with suppress(LibavError, DecoderError, EOFError, ValueError):
        for packet in packets[first : first + REORDERED + 1]:
            frames += (one for one in decode(codec, packet) if not one.is_corrupt)
    codec.flush_buffers()
    return frames[0] if frames else None


def _late_units(codec: VideoCodecContext, packets: Sequence[Packet]) -> int:
    """`MediaInfo.Video.late_units`: libav gives a frame the time of the packet with which the decoder returns it."""
    if not packets or packets[0].dts is None or not codec.has_b_frames:
        return 0
    if packets[0].pts is not None and not has_false_beginning(map(packet_info, packets)):
        return 0
    # Of its own: the stream's decoder must begin with the first packet, once more.
    own = cast("VideoCodecContext", av.CodecContext.create(codec.codec.name, "r"))
    own.extradata, own.width, own.height, own.thread_count = codec.extradata, codec.width, codec.height, 1
    with suppress(LibavError, DecoderError, EOFError, ValueError):
        for packet in (*packets[: REORDERED + 1], None):
            for frame in decode(own, packet):
                is_first = frame.key_frame and frame.pts == packets[0].pts and frame.dts is not None
                return int(frame.dts - packets[0].dts) if is_first else 0
    return 0
