"""Which packet of a file holds which frame, in the order in which the frames are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from av import Codec

from penstock._facts.opening import demux, has_no_times, open_stream, times_may_jump
from penstock._formats import codecs

if TYPE_CHECKING:
    from av.packet import Packet as AnyPacket
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    Packet = AnyPacket[VideoStream]

#: Frames that come later than their packets at most: as many as H.264 and H.265 may hold back.
REORDERED = 16
#: AV_NOPTS_VALUE in libavutil.
NO_TIME = -(1 << 63)
# Times of MPEG's containers begin again at 0 after 26.5 hours: they have 33 bits, in units of 1/90000 s.
_WRAP, _WRAPPING_UNIT = 2**33, Fraction(1, 90_000)
# Units by which containers round times, each by itself.
_ROUNDED = 2
# AVFieldOrder in libavcodec.
_UNKNOWN_ORDER, _PROGRESSIVE = 0, 1
# FFmpeg's rate of streams that state none.
_ANY_RATE = Fraction(25)
# Guessed: a field lasts for less than this share of a frame, whatever was rounded.
_FIELD_SHARE = 0.75


def expected_frames(name: str, packets: int) -> int | None:
    """The number of frames in so many shown, non-empty packets; None if the codec does not determine that."""
    return packets if codecs.known(name).has_no_fields or _is_alone(name) else None


@cache
def _is_alone(codec: str) -> bool:
    """Whether frames of a codec need no other."""
    with suppress(ValueError):  # libav has no such decoder
        return Codec(codec, "r").intra_only
    return False


@dataclass(frozen=True, slots=True)
class PacketTable:
    """All packets of a stream, in the order of the file.

    Attributes:
        pts: when each is shown, in units of the stream's time base.
        dts: when each is decoded, in those units; `NO_TIME` where the container does not tell.
        position: the byte of the file at which each begins; -1 where the container does not tell.
        size: bytes.
        duration: for how long each is shown, in those units; 0 where the container does not tell.
        is_key: whether a decoder may begin with it.
        is_hidden: whether an edit list hides its frame.
        has_pts: whether it has that time.
        is_corrupt: whether the container says that a part of it is missing.
        first, last: its first byte, and its last one.
    """

    pts: npt.NDArray[np.int64]
    dts: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]
    is_key: npt.NDArray[np.bool_]
    is_hidden: npt.NDArray[np.bool_]
    has_pts: npt.NDArray[np.bool_]
    is_corrupt: npt.NDArray[np.bool_]
    first: npt.NDArray[np.uint8]
    last: npt.NDArray[np.uint8]

    @property
    def have_distinct_times(self) -> bool:
        """Whether every packet has a time of its own."""
        # Not by np.unique, whose first call imports numpy.ma: as long as a small file takes.
        return bool(self.has_pts.all()) and len({*self.pts.tolist()}) == len(self.pts)

    @property
    def is_shown(self) -> npt.NDArray[np.bool_]:
        """Whether each has something, and no edit list hides that."""
        return (self.size > 0) & ~self.is_hidden

    def are(self, number: int, packet: Packet) -> bool:
        """Whether the packet is the one of that number."""
        return bool(self.size[number] == packet.size and self.position[number] == _position(packet))

    def find(self, packet: Packet) -> int | None:
        """The number of the packet; None if no packet, or more than one, has its time and size."""
        numbers = np.flatnonzero((self.pts == packet.pts) & (self.size == packet.size))
        return int(numbers[0]) if len(numbers) == 1 and self.are(int(numbers[0]), packet) else None


class PacketInfo(NamedTuple):
    """The facts about a packet, as `PacketTable` has them."""

    pts: int
    dts: int
    position: int
    size: int
    duration: int
    is_key: bool
    is_hidden: bool
    has_pts: bool
    is_corrupt: bool
    first: int
    last: int


# Those of `PacketTable`, column by column.
_TYPES = [*[np.int64] * 5, *[np.bool_] * 4, *[np.uint8] * 2]


def packet_info(packet: Packet) -> PacketInfo:
    """The facts about a packet."""
    pts, dts = packet.pts, packet.dts
    data = memoryview(packet) if packet.size else b"\0"  # type: ignore[arg-type]
    return PacketInfo(
        *(pts or 0, NO_TIME if dts is None else dts),
        *(_position(packet), packet.size, packet.duration or 0),
        *(packet.is_keyframe, packet.is_discard, pts is not None, packet.is_corrupt),
        *(data[0], data[-1]),
    )


def table_of(facts: Sequence[PacketInfo]) -> PacketTable:
    """The facts about packets, by columns."""
    columns = zip(*facts, strict=True) if facts else [()] * len(_TYPES)
    return PacketTable(*map(cast("Any", np.array), columns, _TYPES))


def packets_of(packets: Iterable[Packet]) -> PacketTable:
    """The facts about all packets of a stream."""
    return table_of([packet_info(packet) for packet in packets])


class Unwrapped:
    """Lets the times of a stream's packets go on where those of its container begin again."""

    def __init__(self, stream: VideoStream) -> None:
        wraps = times_may_jump(stream.container.format.name) and stream.time_base == _WRAPPING_UNIT
        self._near: int | None = stream.start_time if wraps else None  # the time of the last packet

    def move(self, pts: int) -> None:
        """The next packet has about that time."""
        if self._near is not None:
            self._near = pts

    def all(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """The same packets."""
        for packet in packets:
            if self._near is not None:
                if packet.dts is not None:
                    packet.dts = self._near = _nearest(packet.dts, self._near)
                if packet.pts is not None:
                    packet.pts = _nearest(packet.pts, self._near)
            yield packet


def _nearest(time: int, near: int) -> int:
    """The time nearest to another one, of those that the container writes alike."""
    return time + round((near - time) / _WRAP) * _WRAP


def read_packets(source: str, container: str, index: int) -> PacketTable:
    """The facts about all packets of a stream of a file, which are as for `opening.open_stream`."""
    with open_stream(source, container, index) as opened:
        return packets_of(Unwrapped(opened[1]).all(demux(*opened)))


def packet_of(frame: VideoFrame) -> int:
    """The number of the packet that a frame was made of, where each packet was sent with its number as its time."""
    assert frame.pts is not None, "each packet has a number"
    return frame.pts


def names_frames(packets: PacketTable, stream: VideoStream) -> bool:
    """Whether each packet seems to hold one frame, which is shown at the packet's time.

    Reading and decoding check that: a frame that does not come, or not in the order of the times, shows that it isn't
    so.

    Args:
        packets: all packets of the stream, or the first ones.
    """
    codec = stream.codec_context
    name = codec.codec.canonical_name
    if not len(packets.pts) or not (codecs.known(name).has_frame_in_each or _is_alone(name)):
        return False
    if not (packets.is_key[0] and packets.have_distinct_times) or has_hidden_frames(packets, stream):
        return False
    # Otherwise the stream begins inside a group of pictures, of which a decoder may show a part.
    if (packets.pts < packets.pts[0])[~packets.is_hidden].any():
        return False
    if codec.field_order == _UNKNOWN_ORDER:  # libav hasn't looked at the second field
        return (codec.framerate or 0) * 2 != stream.average_rate
    return codec.field_order == _PROGRESSIVE or not _has_fields(packets, stream)


def has_hidden_frames(packets: PacketTable, stream: VideoStream) -> bool:
    """Whether packets of VP9 hold a frame that isn't shown, and no other.

    Usually such a frame is in one packet with the next one. In such a file, a packet of which only a hidden frame is
    left is damaged.
    """
    if stream.codec_context.codec.canonical_name != "vp9":  # whose header is read here
        return False
    is_empty = shows_nothing("vp9", packets.first, packets.last)
    return bool(is_empty.any()) and not _holds_several(packets.last).any()


def shows_nothing(codec: str, first: Any, last: Any) -> Any:
    """Whether a packet of that codec holds a hidden frame only, by its first byte and its last one; or by arrays."""
    if codec == "vp8":  # RFC 6386, 9.1
        return first & 0b1_0000 == 0
    # The uncompressed header (VP9 bitstream specification, 6.2): 10, two bits of the profile, 0 in profile 3, whether
    # it repeats a frame, whether it depends on others, and whether it's shown.
    header = first << (first >> 4 & 3 == 3)
    return (codec == "vp9") & (first >> 6 == 2) & (header & 0b1010 == 0) & ~_holds_several(last)


def _holds_several(last: Any) -> Any:
    """Whether a packet of VP9 holds several frames: their index ends with a byte whose bits begin so (annex B)."""
    return np.equal(last >> 5, 0b110)


def _has_fields(packets: PacketTable, stream: VideoStream) -> bool:
    """Whether a packet lasts for less than a frame, or for an unknown time: it may be a field."""
    rate = stream.codec_context.framerate or stream.average_rate
    if not rate or not stream.time_base:
        return True
    frames = packets.duration[:-1] * float(stream.time_base * rate)
    return bool((frames < _FIELD_SHARE).any())


def are_times_of_decoding(packets: PacketTable, stream: VideoStream) -> bool:
    """Whether the times of packets, which `names_frames`, seem to be those at which the frames are decoded.

    The frames then have these times, too, one after another.
    """
    return bool(stream.codec_context.has_b_frames and (np.diff(packets.pts) > 0).all())


def has_false_beginning(packets: Iterable[PacketInfo]) -> bool:
    """Whether the first packet's time seems to be that at which it is decoded, where packets have no others.

    libav takes it for that of its frame as long as it doesn't know that frames are reordered.
    """
    first, *others = packets
    is_alike = all(not one.has_pts or one.pts == one.dts for one in (first, *others))
    return first.has_pts and is_alike and not all(one.has_pts for one in others)


def tells_order(packets: PacketTable, stream: VideoStream) -> bool:
    """Whether the times of all packets, which `names_frames`, are the order in which a decoder gives the frames.

    An encoder decodes frames at the times of earlier ones. Where a container's times differ from that, it may have
    wrong ones, and only decoding shows.
    """
    in_order = np.sort(packets.pts)
    if np.array_equal(in_order, packets.pts):
        return not are_times_of_decoding(packets, stream)
    decoded = packets.dts[packets.dts != NO_TIME]
    decoded = decoded[int(np.searchsorted(decoded, in_order[0] - _ROUNDED)) :]
    return bool((np.abs(in_order[: len(decoded)] - decoded) <= _ROUNDED).all())


class WholeFrom:
    """Finds the packet from which on no frame needs a packet before the first keyframe.

    Args:
        begins_inside: the first packet, although it is a keyframe, is in the middle of the file.
    """

    def __init__(self, *, begins_inside: bool) -> None:
        self._begins_inside, self._is_whole = begins_inside, False
        self._key_pts: int | None = None

    def has_come(self, facts: PacketInfo) -> bool:
        """Whether a packet is that one, or a later one. To be called for each packet."""
        if not self._is_whole and self._key_pts is None:
            self._is_whole = facts.is_key and not self._begins_inside
            self._key_pts = facts.pts if facts.is_key else None
            self._begins_inside = True
        elif not self._is_whole:
            self._is_whole = self._key_pts is not None and facts.pts >= self._key_pts
        return self._is_whole


def _position(packet: Packet) -> int:
    return -1 if packet.pos is None else packet.pos


class TimeGuess:
    """The times of frames, by FFmpeg's rule for files with wrong ones (guess_correct_pts in libavcodec/decode.c)."""

    def __init__(self, stream: VideoStream) -> None:
        rate, unit = stream.average_rate or stream.guessed_rate, stream.time_base
        if rate and unit == _WRAPPING_UNIT and rate * unit == 1:
            rate = _ANY_RATE  # libav knows none, and tells the frequency of the clock
        self._usual = round(1 / (rate * unit)) if rate and unit else 0
        self._is_raw = has_no_times(stream.container.format.name)
        self._faulty_pts = self._faulty_dts = self._next = 0
        self._last_pts = self._last_dts = -(1 << 63)

    def of(self, pts: int | None, dts: int | None, duration: int) -> int:
        """The time of the next frame. All times are in units of the stream's time base.

        Frames of a raw stream follow each other from 0 on, whatever libav makes of when they are decoded.
        """
        if self._is_raw:
            pts = dts = None
        if dts is not None:
            self._faulty_dts += dts <= self._last_dts
            self._last_dts = dts
        if pts is not None:
            self._faulty_pts += pts <= self._last_pts
            self._last_pts = pts
        time = pts if pts is not None and (self._faulty_pts <= self._faulty_dts or dts is None) else dts
        best = self._next if time is None else time
        # libav knows the duration of none that it has not looked at before, and then tells of one unit.
        self._next = best + (duration if duration > 1 else self._usual)
        return best
