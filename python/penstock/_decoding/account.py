"""Which packet of a file gave which frame, in the order in which the frames are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock._facts.index import PacketTable, names_frames, tells_order
from penstock._facts.seeking import may_seek

if TYPE_CHECKING:
    from av.video.stream import VideoStream


class ShownFrame(NamedTuple):
    """A frame: the number of its packet, its time in units of the stream's time base, and whether it needs no other."""

    packet: int
    pts: int
    is_key: bool


class Expected(NamedTuple):
    """What is known of a packet before it is decoded.

    Attributes:
        place: when its frame is shown, compared with those of others.
        is_shown: whether it has a frame that is shown.
        is_due: whether it must be decoded without fault.
    """

    place: int
    is_shown: bool
    is_due: bool


class Account:
    """The frames of a stream, in the order in which they are shown.

    Attributes:
        packets: the packets.
        shown: of each frame, the number of its packet.
        pts: of each frame, when it is shown.
        is_decoded: decoding has shown all that. Otherwise the times of the packets name the frames.
        is_damaged: whether libav found damage when it decoded all.
        why_short: why the file ends early; None if it was read to its end.
        may_seek: whether a seek may lead to the packets that were read.
    """

    def __init__(
        self,
        packets: PacketTable,
        stream: VideoStream,
        shown: npt.NDArray[np.int64],
        pts: Sequence[int],
        order: npt.NDArray[np.int64],
        *,
        is_decoded: bool,
        is_damaged: bool = False,
        why_short: str | None = None,
    ) -> None:
        self.packets, self.shown, self.pts = packets, shown, pts
        self.is_decoded, self.is_damaged, self.why_short = is_decoded, is_damaged, why_short
        codec = stream.codec_context
        self.may_seek = may_seek(codec.codec.canonical_name, codec.pix_fmt)
        self._order, self._is_shown = order, np.zeros(len(order), np.bool_)
        self._is_shown[shown] = True
        self._in_file_order = np.sort(shown)
        # Where no seek leads anywhere, decoding begins with the first packet.
        self._keys = np.flatnonzero(packets.is_key) if self.may_seek else np.zeros(1, np.int64)

    @classmethod
    def by_packets(
        cls, packets: PacketTable, stream: VideoStream, why_short: str | None = None
    ) -> Account | None:
        """The account by the times of all packets alone; None if decoding must show it."""
        if not (names_frames(packets, stream) and tells_order(packets, stream)):
            return None
        return cls.by_times(packets, stream, why_short)

    @classmethod
    def by_times(cls, packets: PacketTable, stream: VideoStream, why_short: str | None = None) -> Account:
        """The account by the times of all packets, which name the frames."""
        shown = np.flatnonzero(packets.is_shown)
        shown = shown[np.argsort(packets.pts[shown])]
        pts = packets.pts[shown].tolist()
        return cls(packets, stream, shown, pts, packets.pts, is_decoded=False, why_short=why_short)

    @classmethod
    def by_frames(
        cls,
        packets: PacketTable,
        stream: VideoStream,
        frames: Sequence[ShownFrame],
        *,
        is_damaged: bool,
        why_short: str | None = None,
    ) -> Account:
        """The account by the decoded frames, in the order in which they came."""
        shown = np.array([frame.packet for frame in frames], np.int64)
        order = np.full(len(packets.size), -1, np.int64)
        order[shown] = np.arange(len(shown))
        # Some containers say of every packet that it is a keyframe.
        is_key = packets.is_key.copy()
        is_key[shown] &= np.array([frame.is_key for frame in frames], np.bool_)
        return cls(
            replace(packets, is_key=is_key),
            stream,
            shown,
            [frame.pts for frame in frames],
            order,
            is_decoded=True,
            is_damaged=is_damaged,
            why_short=why_short,
        )

    @cached_property
    def is_sure(self) -> bool:
        """Whether times name the frames, and no program that writes files seems to have moved one.

        Some move a time by a unit where an encoder's times don't increase. Then the order may be another, which only
        decoding shows.
        """
        gaps = np.diff(np.sort(np.array(self.pts, np.int64)))
        return not self.is_decoded and (not len(gaps) or gaps.min() > 1 or bool(np.median(gaps) <= 1))

    @property
    def last_duration(self) -> int:
        """For how long the last frame is shown, in units of the time base, by its packet."""
        return int(self.packets.duration[self.shown[-1]])

    def __len__(self) -> int:
        return len(self.shown)

    def contradicts(self, other: Account) -> bool:
        """Whether the frames came in another order, or fewer of them although nothing is damaged."""
        is_other_order = bool((np.diff(other._order[self.shown]) <= 0).any())
        return is_other_order or not (self.is_damaged or len(self) == len(other))

    def expected(self, floor: int, packet: int) -> Expected:
        """What is known of a packet, for the frames from that of the packet `floor` on."""
        place, is_shown = int(self._order[packet]), self.is_shown(packet)
        if self.is_decoded and not is_shown:
            return Expected(place, is_shown=False, is_due=True)
        # All that is shown comes of the packets from the first one on.
        is_later = place >= int(self._order[floor]) or (is_shown and floor == 0)
        return Expected(place, is_shown, packet >= floor and is_later)

    def is_before(self, packet: int, other: int) -> bool:
        """Whether the frame of a packet is shown before that of another."""
        return bool(self._order[packet] < self._order[other])

    def end_of(self, packet: int) -> int:
        """The last packet before that of another frame: the packets between may be fields of this frame."""
        after = int(np.searchsorted(self._in_file_order, packet, "right"))
        return (
            int(self._in_file_order[after]) - 1 if after < len(self._in_file_order) else len(self._order) - 1
        )

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
