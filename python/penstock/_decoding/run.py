"""One run of a decoder over the packets of a stream: which frame came of which packet, and what is damaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from av.error import FFmpegError as LibavError

from penstock._decoding.account import Account, Expected, ShownFrame
from penstock._decoding.open_video import MOST_THREADS, OpenVideo, VideoInput
from penstock._facts.index import (
    REORDERED,
    PacketInfo,
    TimeGuess,
    WholeFrom,
    are_times_of_decoding,
    has_false_beginning,
    names_frames,
    packet_info,
    packet_of,
    packets_of,
    table_of,
)

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

    from penstock._facts.index import Packet, PacketTable

# Packets after which a frame that has not come is lost: reordered ones, those in libav's threads, and some.
_AGE = REORDERED + MOST_THREADS + 2
# Chosen: more packets than that.
_KEPT_FACTS = 4 * _AGE
#: Why a frame can't be decoded.
LOST = "the frame is damaged or missing"
_PART = "a part is missing"


class LostError(Exception):
    """A frame does not come."""


class UnnamedError(Exception):
    """The times of the packets do not name the frames after all."""


class Run:
    """A decoder that reads one packet after another.

    Args:
        packets: what it reads, with their numbers; None for all from where the file is, numbered from 0.
        forgets: of those, only the facts about the last ones are kept.

    Attributes:
        facts: about those packets that are numbered here.
        ready: the frames that may be given out: the numbers of their packets, their times, and libav's frames.
        number: that of the last packet that was read; -1 before the first.
        has_failed: libav has told of damage.
        is_at_end: it has read all packets.
        error: why it can't go on; None if nothing is wrong. Frames that are ready come before that.
    """

    def __init__(
        self, video: OpenVideo, packets: Iterator[tuple[int, Packet]] | None = None, *, forgets: bool = False
    ) -> None:
        self.facts: dict[int, PacketInfo] = {}
        self.ready: deque[tuple[int, int, VideoFrame]] = deque()
        self.has_failed = self.is_at_end = False
        self.error: str | None = None
        self._video, self._packets = video, packets or _noted(video.packets(), self.facts, forgets=forgets)
        self._is_strict = True
        self._why_short: str | None = None
        self.number = -1

    def step(self) -> None:
        """Reads a packet, and lets the frames that come of it be ready."""
        packet: Packet | None = None
        try:
            self.number, packet = next(self._packets, (self.number, None))
        except LibavError as error:
            self._why_short = f"the file is damaged: {error.strerror}"
            if self._is_strict:
                self.error = self._why_short
        if packet is None:
            self._finish()
            self.is_at_end = True
        elif packet.size:
            self._send(self.number, packet)

    @property
    def packets(self) -> PacketTable:
        """The facts as a table."""
        return table_of([*self.facts.values()])

    def _send(self, number: int, packet: Packet) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


def _noted(
    packets: Iterator[Packet], facts: dict[int, PacketInfo], *, forgets: bool
) -> Iterator[tuple[int, Packet]]:
    """The packets with their numbers, each once the facts have it. Refers to no run, so that a dropped run ends."""
    for number, packet in enumerate(packets):
        facts[number] = packet_info(packet)
        if forgets:
            facts.pop(number - _KEPT_FACTS, None)
        yield number, packet


class CheckedRun(Run):
    """Gives a frame when all have come that it may be made of, or that are shown before it.

    Args:
        expected: what is known of a packet, by its number; None where a subclass tells.
        skips: whether nobody needs the frame of a packet, so that it isn't decoded.
        is_strict: damage keeps later frames back. Otherwise all frames are given that are not damaged.
        takes_damaged: those that libav calls damaged are given, too.

    Raises:
        LostError: by a step, if a frame does not come.
        UnnamedError: by a step, if frames come in another order.
    """

    def __init__(
        self,
        video: OpenVideo,
        packets: Iterator[tuple[int, Packet]] | None = None,
        expected: Callable[[int], Expected] | None = None,
        *,
        skips: Callable[[int, Packet], bool] = lambda *_: False,
        is_strict: bool = True,
        takes_damaged: bool = False,
    ) -> None:
        super().__init__(video, packets)
        self._known, self._skips = expected, skips
        self._is_strict, self._takes_damaged = is_strict, takes_damaged
        self._awaited: dict[
            int, int
        ] = {}  # packets whose frames have not come, in their order, and their places
        self._held: deque[tuple[int, int, VideoFrame]] = deque()  # frames before which others must come
        self._latest: int | None = None  # the place of the last frame that came
        self._has_hidden = False  # a packet must be decoded whose frame doesn't come
        self._failed: int | None = None  # the first packet whose damage libav has told of
        self._refused: set[int] = set()  # packets whose frames may come all the same
        # The packet after which a frame came that is shown before another.
        self._disordered: int | None = None
        self._are_due: deque[bool] = deque(maxlen=MOST_THREADS)  # the last packets

    def _send(self, number: int, packet: Packet) -> None:
        if self._skips(number, packet):
            return
        self._await(number)
        if packet.is_corrupt:
            self._refused.add(number)
        packet.pts = number  # the decoder gives it to the frame
        self._take(number, packet)
        if self._awaited and next(iter(self._awaited)) < number - _AGE:
            self._miss()
        if self._disordered is not None and self._disordered < number - _AGE:
            raise UnnamedError

    def _expected(self, number: int) -> Expected:
        assert self._known is not None
        return self._known(number)

    def _await(self, number: int) -> None:
        """Lets later frames wait for that of a packet."""
        place, is_shown, is_due = self._expected(number)
        self._are_due.append(is_due)
        if is_due and is_shown:
            self._awaited[number] = place
        self._has_hidden |= is_due and not is_shown

    def _miss(self) -> None:
        """The frame that was awaited for longest does not come."""
        if self._is_strict:
            raise LostError
        del self._awaited[next(iter(self._awaited))]

    def _finish(self) -> None:
        self._take(self.number, None)
        if self._awaited:
            self._miss()
        if self._disordered is not None:
            raise UnnamedError

    def _take(self, number: int, packet: Packet | None) -> None:
        try:
            frames = self._video.decode(packet)
        except LibavError:
            self._fail(None if packet is None else number)
            return  # its frame will be missing
        for frame in frames:
            self._came(number, frame)

    def _fail(self, number: int | None) -> None:
        """Takes note of an error. libav's threads tell of it later, and may give the packet's frame."""
        self.has_failed = True
        if self._video.has_threads:
            if self._is_strict and (self._has_hidden or all(self._are_due)):
                raise LostError
        elif number is not None:
            self._refused.add(number)
            self._is_damaged(number)

    def _is_damaged(self, number: int) -> None:
        """Takes note of a damaged packet."""
        self.has_failed = True
        _, is_shown, is_due = self._expected(number)
        is_hidden = is_due and not is_shown
        if self._failed is None and (is_hidden or number in self._awaited):
            self._failed = number
        if is_hidden and self._is_strict:  # later frames may be made of it
            raise LostError

    def _came(self, sent: int, frame: VideoFrame) -> None:
        number = packet_of(frame)
        if (frame.is_corrupt or number in self._refused) and not self._takes_damaged:
            self._is_damaged(number)
        elif (place := self._awaited.pop(number, None)) is not None:
            if self._latest is not None and place <= self._latest and self._disordered is None:
                self._disordered = sent  # either a frame between is lost, or times are wrong
            self._latest = place
            self._held.append((number, place, frame))
        while self._held and self._disordered is None and self._may_give(*self._held[0][:2]):
            self.ready.append(self._held.popleft())

    def _may_give(self, number: int, place: int) -> bool:
        """Whether all frames have come that this one may be made of, or that are shown before it."""
        if not (self._awaited and self._is_strict):
            return True
        return number < next(iter(self._awaited)) and place < min(self._awaited.values())


class NamedRun(CheckedRun):
    """The same for packets whose times name the frames, as far as is known: that is checked.

    Args:
        floor: the time of the first frame that must come; None for the first one of the file.
        until: a damaged packet, before which reading ends; None for all packets.
    """

    def __init__(self, video: OpenVideo, floor: int | None, until: PacketInfo | None) -> None:
        super().__init__(video)
        self._floor, self._until = floor, until
        self._numbers: dict[int, int] = {}  # of packets, by their times

    def _expected(self, number: int) -> Expected:
        facts = self.facts[number]
        if not facts.has_pts or self._numbers.setdefault(facts.pts, number) != number:
            raise UnnamedError
        # A hidden frame that is shown before the first keyframe may need packets before it.
        is_late = not facts.is_hidden or facts.pts >= self.facts[0].pts
        is_due = is_late and (self._floor is None or facts.pts >= self._floor)
        return Expected(facts.pts, not facts.is_hidden, is_due)

    @property
    def first_lost(self) -> PacketInfo:
        """The first packet that is damaged."""
        return self.facts[next(iter(self._awaited)) if self._failed is None else self._failed]

    def read_on(self) -> None:
        """Reads all packets whose frames may be shown before those of the packets that were read. It can't go on."""
        with suppress(LibavError):
            for _ in islice(self._packets, REORDERED):
                pass

    @property
    def account(self) -> Account:
        """Which packet gave which frame, as far as it has read."""
        return Account.by_times(self.packets, self._video.stream)

    def _send(self, number: int, packet: Packet) -> None:
        if self.facts[number] == self._until:
            self._end_before(number)
        else:
            super()._send(number, packet)

    def _end_before(self, number: int) -> None:
        """Ends with the frames that are shown before those of a damaged packet and of all later ones."""
        self._await(number)
        with suppress(LibavError):
            for later, _ in islice(self._packets, REORDERED):
                self._await(later)
        self._take(number, None)
        self.error = LOST


class PlainRun(Run):
    """Takes what libav gives, and what libav says is damaged for damage.

    A decoder that conceals damage marks frames when they come, and frames that are shown before those may be made of
    them. So a frame waits for those of earlier packets, if the decoder reorders frames.

    Args:
        is_strict: whether damage is an error.
        is_sought: the first packet is a keyframe in the middle of the file.
        counts: the times of the packets are those of the frames, one after another.
        is_once: the packets can't be read again, and may never end.
        is_awaited: each packet gives a frame, also the last ones.

    Attributes:
        begins_inside: the first frames may need packets before the first one.
    """

    def __init__(
        self,
        video: OpenVideo,
        *,
        is_strict: bool = False,
        is_sought: bool = False,
        counts: bool = False,
        is_once: bool = False,
        is_awaited: bool = False,
    ) -> None:
        super().__init__(video, forgets=is_once)
        self._forgets, self._is_awaited = is_once, is_awaited
        self._due: deque[int] = deque(maxlen=_AGE)  # of those that must come, packets whose frames have not
        self._is_strict, self._counts = is_strict, counts
        self._whole = WholeFrom(begins_inside=is_sought)
        self._first_whole: int | None = None  # the first packet of which damage counts
        self._early: str | None = None  # the damage before
        self.begins_inside = False
        self._guess = TimeGuess(video.stream)
        self._awaited: dict[int, None] = {}  # packets whose frames have not come
        self._held: deque[VideoFrame] = deque()
        self._shown: list[ShownFrame] = []

    @property
    def account(self) -> Account:
        """Which packet gave which frame, once it is at the end."""
        return Account.by_frames(
            *(self.packets, self._video.stream, self._shown),
            is_damaged=self.has_failed,
            why_short=self._why_short,
        )

    def _send(self, number: int, packet: Packet) -> None:
        facts = self.facts[number]
        if self._whole.has_come(facts) and self._first_whole is None:
            self._first_whole = number
        self.begins_inside |= self._first_whole is None
        if self._is_awaited and self._first_whole is not None and not facts.is_hidden:
            self._due.append(number)
        packet.pts = number  # the decoder gives it to the frame
        if not facts.is_hidden:
            self._awaited[number] = None
        try:
            frames = self._video.decode(packet)
        except LibavError as error:
            self._is_damaged(number, error.strerror or "")
            return  # libav may have lost a frame that it has held back
        if facts.is_corrupt:
            self._is_damaged(number, _PART)
        self._take(number, frames)

    def _finish(self) -> None:
        """Gives the frames that the decoder has held back."""
        try:
            self._take(self.number + 1 + REORDERED, self._video.decode(None))
        except LibavError as error:
            if self._is_strict:
                self.error = self.error or f"the file is damaged: {error.strerror}, at its end"
        if self._is_strict and self._due:
            self.error = self.error or LOST
        if self._early is not None and not any(one.is_key for one in self.facts.values()):
            self.error = self.error or self._early  # the container marks no keyframes

    def _is_damaged(self, number: int, why: str) -> bool:
        """Whether damage of a packet is an error."""
        self.has_failed = True
        message = f"the file is damaged: {why}, at packet {number}"
        is_error = self._is_strict and self._first_whole is not None and number >= self._first_whole
        if is_error:
            self.error = self.error or message
        elif self._is_strict:
            self._early = self._early or message
        return is_error

    def _take(self, sent: int, frames: list[VideoFrame]) -> None:
        for frame in frames:
            number = packet_of(frame)
            with suppress(ValueError):
                self._due.remove(number)
            is_corrupt = frame.is_corrupt or self.facts[number].is_corrupt
            if is_corrupt and self._is_damaged(number, _PART):
                break
            if not self.facts[number].is_hidden:
                self._awaited.pop(number, None)
                self._held.append(frame)
        must_wait = self._is_strict and self._video.conceals and self._video.codec.has_b_frames
        while self._awaited and next(iter(self._awaited)) <= sent - (REORDERED if must_wait else 0):
            del self._awaited[next(iter(self._awaited))]
        while self._held and not any(number < packet_of(self._held[0]) for number in self._awaited):
            self._give(self._held.popleft())

    def _give(self, frame: VideoFrame) -> None:
        number, count = packet_of(frame), len(self._shown)
        facts = self.facts[number]
        is_false = number == 0 and has_false_beginning(self.facts.values())
        pts = self._guess.of(facts.pts if facts.has_pts and not is_false else None, frame.dts, frame.duration)
        if self._counts:
            pts = self.facts[count].pts
        if not self._forgets:
            self._shown.append(ShownFrame(number, pts, frame.key_frame))
        self.ready.append((number, pts, frame))


def judged(video: OpenVideo) -> tuple[bool, bool]:
    """Whether the first packets name the frames, and whether their times are those of decoding."""
    ahead: list[Packet] = []
    with suppress(LibavError):  # the run will meet it, too
        ahead.extend(islice(video.packets(), REORDERED + 1))
    video.unread(ahead)
    packets = packets_of(ahead)
    if not names_frames(packets, video.stream):
        return False, False
    return True, are_times_of_decoding(packets, video.stream)


def account_by_decoding(chosen: VideoInput) -> Account:
    """Decodes all of a stream once, past damage, for which packet gives which frame."""
    with OpenVideo(replace(chosen, is_strict=False), has_threads=False) as video:
        run = PlainRun(video, counts=judged(video)[1])
        while not run.is_at_end:
            run.step()
            run.ready.clear()
        return run.account
