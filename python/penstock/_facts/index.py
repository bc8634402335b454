"""Which packet of a file holds which frame, in the order in which the frames are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock._facts.opening import demux, open_stream

if TYPE_CHECKING:
    from av.packet import Packet as AnyPacket
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    Packet = AnyPacket[VideoStream]

#: Frames that come later than their packets at most: as many as H.264 and H.265 may hold back.
REORDERED = 16
# Containers whose packets have the times at which their frames are shown, by FFmpeg's names.
_TIMED_CONTAINERS = frozenset(("mov", "matroska", "mpegts", "flv", "nut"))
# Codecs whose frames need no other, of which each packet holds one, in any container.
_ALONE = frozenset(
    (
        *("mjpeg", "prores", "dnxhd", "ffv1", "huffyuv", "ffvhuff", "utvideo", "png", "rawvideo", "v210"),
        *("cfhd", "gif", "wmv1", "wmv2"),
    )
)
# Codecs of which each packet holds one frame that is shown. Those of others may hold none, such as VP8's alternative
# reference frames and the repeated frames of Theora.
_ONE_FRAME_A_PACKET = _ALONE | {"h264", "hevc", "vp9", "av1", "mpeg1video", "mpeg2video"}


# Of AVFieldOrder in libavcodec.
_UNKNOWN_ORDER, _PROGRESSIVE = 0, 1


def expected_frames(codec: str, packets: int) -> int | None:
    """The number of frames in so many shown, non-empty packets; None if the codec does not determine that."""
    return packets if codec in _ALONE else None


@dataclass(frozen=True, slots=True)
class Packets:
    """All packets of a stream, in the order of the file.

    Attributes:
        pts: when each is shown, in units of the stream's time base.
        position: the byte of the file at which each begins; -1 where the container does not tell.
        size: bytes.
        duration: for how long each is shown, in those units; 0 where the container does not tell.
        is_key: whether a decoder may begin with it.
        is_hidden: whether an edit list hides its frame.
        has_pts: whether it has that time.
        is_corrupt: whether the container says that a part of it is missing.
    """

    pts: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]
    is_key: npt.NDArray[np.bool_]
    is_hidden: npt.NDArray[np.bool_]
    has_pts: npt.NDArray[np.bool_]
    is_corrupt: npt.NDArray[np.bool_]

    @property
    def have_distinct_times(self) -> bool:
        """Whether every packet has a time of its own."""
        return bool(self.has_pts.all()) and len(np.unique(self.pts)) == len(self.pts)

    @property
    def first_key(self) -> int:
        """The number of the first packet with which a decoder may begin; 0 if there is none."""
        return int(np.argmax(self.is_key)) if len(self.is_key) else 0

    @property
    def first_whole(self) -> int:
        """The number of the packet from which on no frame needs a packet before the first keyframe."""
        key = self.first_key
        follows = self.pts[key + 1 :] >= self.pts[key : key + 1]
        return key + 1 + int(np.argmax(follows)) if key and follows.any() else key

    def are(self, number: int, packet: Packet) -> bool:
        """Whether the packet is the one of that number."""
        return bool(self.size[number] == packet.size and self.position[number] == _position(packet))

    def find(self, packet: Packet) -> int | None:
        """The number of the packet; None if no packet, or more than one, has its time and size."""
        found = np.flatnonzero((self.pts == packet.pts) & (self.size == packet.size))
        return int(found[0]) if len(found) == 1 and self.are(int(found[0]), packet) else None


class Facts(NamedTuple):
    """The facts about a packet, as `Packets` has them."""

    pts: int
    position: int
    size: int
    duration: int
    is_key: bool
    is_hidden: bool
    has_pts: bool
    is_corrupt: bool


def facts_of(packet: Packet) -> Facts:
    """The facts about a packet."""
    pts = packet.pts
    return Facts(
        *(pts or 0, _position(packet), packet.size, packet.duration or 0),
        *(packet.is_keyframe, packet.is_discard, pts is not None, packet.is_corrupt),
    )


def table_of(facts: Sequence[Facts]) -> Packets:
    """The facts about packets, by columns."""
    rows = np.array(facts, "i8,i8,i8,i8,?,?,?,?")
    return Packets(*(np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()))


def packets_of(packets: Iterable[Packet]) -> Packets:
    """The facts about all packets of a stream."""
    return table_of([facts_of(packet) for packet in packets])


def read_packets(source: str, container: str, index: int) -> Packets:
    """The facts about all packets of a stream of a file, which are as for `opening.open_stream`."""
    with open_stream(source, container, index) as opened:
        return packets_of(demux(*opened))


def packet_of(frame: VideoFrame) -> int:
    """The number of the packet that a frame was made of, where each packet was sent with its number as its time."""
    assert frame.pts is not None, "each packet has a number"
    return frame.pts


def names_frames(container: str, codec: str, field_order: int, first: Sequence[Facts]) -> bool:
    """Whether each packet holds one frame, and the packets' times are the frames'.

    Args:
        container, codec: by FFmpeg's names.
        field_order: of AVFieldOrder in libavcodec.
        first: the first packets of the stream.
    """
    if not first or not _is_named(container, codec):
        return False
    if field_order not in (_UNKNOWN_ORDER, _PROGRESSIVE) and codec == "h264":
        return False  # a packet may be a field
    begins_whole = first[0].is_key and first[0].has_pts
    return begins_whole and all(one.has_pts and (one.is_hidden or one.pts >= first[0].pts) for one in first)


def _is_named(container: str, codec: str) -> bool:
    return codec in _ONE_FRAME_A_PACKET and not _TIMED_CONTAINERS.isdisjoint(container.split(","))


class WholeFrom:
    """Finds the packet from which on no frame needs a packet before the first keyframe.

    Args:
        begins_inside: the first packet, although it is a keyframe, is in the middle of the file.
    """

    def __init__(self, *, begins_inside: bool) -> None:
        self._begins_inside, self._is_whole = begins_inside, False
        self._key_pts: int | None = None

    def has_come(self, facts: Facts) -> bool:
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


class DecodedFrame(NamedTuple):
    """What a decoder tells of a frame: the number of its packet, its times in units of the stream's time base, and
    whether it needs no other frame.
    """

    packet: int
    dts: int | None
    duration: int
    is_key: bool


class Index:
    """The frames of a stream, in the order in which they are shown.

    Attributes:
        packets: the packets.
        shown: of each frame, the number of its packet.
        pts: of each frame, when it is shown.
        is_timed: whether the packets' times tell the order.
    """

    def __init__(
        self,
        packets: Packets,
        shown: npt.NDArray[np.int64],
        pts: Sequence[int],
        order: npt.NDArray[np.int64],
        *,
        is_timed: bool,
    ) -> None:
        self.packets, self.shown, self.pts, self.is_timed = packets, shown, pts, is_timed
        self._order, self._is_shown = order, np.zeros(len(order), np.bool_)
        self._is_shown[shown] = True
        self._keys = np.flatnonzero(packets.is_key)

    @classmethod
    def by_times(cls, packets: Packets, container: str, codec: str) -> Index | None:
        """The index by the packets' times alone; None if they do not tell it."""
        if not (_is_named(container, codec) and packets.have_distinct_times and packets.is_key.any()):
            return None
        # Otherwise the stream begins inside a group of pictures, of which a decoder may show a part.
        if packets.first_key != 0 or (packets.pts < packets.pts[0])[~packets.is_hidden].any():
            return None
        shown = np.flatnonzero(~packets.is_hidden)
        shown = shown[np.argsort(packets.pts[shown])]
        return cls(packets, shown, packets.pts[shown].tolist(), packets.pts, is_timed=True)

    @classmethod
    def by_frames(cls, packets: Packets, frames: Sequence[DecodedFrame]) -> Index:
        """The index by the decoded frames, in the order in which they came."""
        shown = np.array([frame.packet for frame in frames], np.int64)
        order = np.full(len(packets.size), -1, np.int64)
        order[shown] = np.arange(len(shown))
        # Some containers say of every packet that it is a keyframe.
        is_key = packets.is_key.copy()
        is_key[shown] &= np.array([frame.is_key for frame in frames], np.bool_)
        packets = replace(packets, is_key=is_key)
        return cls(packets, shown, _best_effort(packets, frames), order, is_timed=False)

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def is_in_file_order(self) -> bool:
        """Whether the frames are shown in the order of their packets."""
        return bool((np.diff(self.shown) > 0).all())

    def is_before(self, packet: int, other: int) -> bool:
        """Whether the frame of a packet is shown before that of another."""
        return bool(self._order[packet] < self._order[other])

    def is_shown(self, packet: int) -> bool:
        """Whether the packet's frame is shown."""
        return bool(self._is_shown[packet])

    def in_order(self, packets: Iterable[int]) -> list[int]:
        """The packets in the order in which their frames are shown, the last one first."""
        return sorted(packets, key=lambda packet: self._order[packet], reverse=True)

    def starts(self, packet: int) -> Iterator[int]:
        """The packets with which a decoder may begin to get that packet's frame, the nearest first."""
        for key in self._keys[: np.searchsorted(self._keys, packet, "right")][::-1]:
            # A frame that is shown before a key picture may need the group of pictures before.
            if self._order[key] <= self._order[packet]:
                yield int(key)
        yield 0


class TimeGuess:
    """The times of frames, by FFmpeg's rule for files with wrong ones (guess_correct_pts in libavcodec/decode.c)."""

    def __init__(self) -> None:
        self._faulty_pts = self._faulty_dts = self._next = 0
        self._last_pts = self._last_dts = -(1 << 63)

    def of(self, pts: int | None, dts: int | None, duration: int) -> int:
        """The time of the next frame. All times are in units of the stream's time base."""
        if dts is not None:
            self._faulty_dts += dts <= self._last_dts
            self._last_dts = dts
        if pts is not None:
            self._faulty_pts += pts <= self._last_pts
            self._last_pts = pts
        time = pts if pts is not None and (self._faulty_pts <= self._faulty_dts or dts is None) else dts
        best = self._next if time is None else time
        self._next = best + duration
        return best


def _best_effort(packets: Packets, frames: Sequence[DecodedFrame]) -> list[int]:
    """The frames' times."""
    guess = TimeGuess()
    return [
        guess.of(int(packets.pts[packet]) if packets.has_pts[packet] else None, dts, duration)
        for packet, dts, duration, _ in frames
    ]
