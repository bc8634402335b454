"""The frames of a video in the order in which they are shown, by libav, with an account of what each packet gave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from av.error import FFmpegError as LibavError

from penstock._decoding.account import Account, Shown
from penstock._decoding.open_video import MOST_THREADS, OpenVideo, VideoInput
from penstock._facts import completeness
from penstock._facts.completeness import End, times_go_back
from penstock._facts.index import (
    REORDERED,
    Facts,
    TimeGuess,
    WholeFrom,
    are_times_of_decoding,
    facts_of,
    has_hidden_frames,
    names_frames,
    packet_of,
    packets_of,
    table_of,
)
from penstock._facts.opening import only_frame, times_may_jump
from penstock._facts.part import Part
from penstock._facts.seeking import SEEKABLE, may_seek
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

    from penstock._facts.index import Packet, Packets
    from penstock._facts.info import Track

# Packets after which a frame that has not come is lost: reordered ones, those in libav's threads, and some.
_AGE = REORDERED + MOST_THREADS + 2
_LOST, _PART = "the frame is damaged or missing", "a part is missing"
# Groups of pictures before that of a frame with which a decode is tried again. Guessed: one is enough for open groups.
_EARLIER_GROUPS = 2
# How far before a time the file is sought, in seconds, until a keyframe comes before it. Containers without an index
# seek by guessing. Guessed: broadcasts have a keyframe every 0.5 to 2 s.
_MARGINS_S = (0, 1, 10, 60)
# The same where the packets' times don't name the frames. Guessed: keyframes are closer together than this.
_PLAIN_MARGIN_S = 10


@dataclass(frozen=True, slots=True)
class SequenceFrame:
    """A frame in sequence: its number from 0, its time in units of the stream's time base, and libav's frame."""

    index: int
    pts: int
    samples: VideoFrame


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a sequence begins: with the frame that is on screen at the start of a part.

    Attributes:
        may_seek: whether a decoder that begins with a later keyframe makes the same pictures.
    """

    part: Part
    may_seek: bool


class _LostError(Exception):
    """A frame does not come."""


class UnnamedError(Exception):
    """The times of the packets do not name the frames after all."""


class _Ready(deque[tuple[int, "VideoFrame"]]):
    """Frames that may be given out, with their times."""


class Sequence:
    """The frames of a video stream, each once, in the order in which they are shown.

    libav's threads decode ahead. Each packet is accounted for as it goes by: a frame is given out when the frames of
    all packets up to its own have come. If one does not come, that stretch is decoded again without threads, from at
    most two groups of pictures back: threads lose frames beside a damaged one, too. What is missing then is damaged. At
    last that stretch is decoded up to the damaged packet and no further, because with that packet's error, libav loses
    the frames that it has held back for reordering. So the frames before damage don't depend on the number of threads.

    The first frame is made of its packet alone, because many callers want no other: threads begin with the second one.

    This needs packets whose times name the frames (`names_frames`). Of other files, and if that turns out wrong, libav
    decodes one packet after another without threads, and what it says is damaged is damage. So it does with what can be
    opened only once; with threads if the codec doesn't mark damage, or if they are asked for.

    Args:
        chosen: the stream.
        beginning: where to begin; None for all of it.
        video: the stream, if it is open already; at its beginning, and not decoded yet.
    """

    def __init__(
        self, chosen: VideoInput, beginning: Beginning | None = None, video: OpenVideo | None = None
    ) -> None:
        self._chosen, self._beginning = chosen, beginning
        self._video = video or OpenVideo(chosen, has_threads=chosen.is_strict)
        self._ready = _Ready()
        self._run: _Run | None = None
        self._then: Callable[[], None] | None = None  # what follows the frames that are ready
        self._given = 0  # frames that were given out
        self._last_pts: int | None = None  # of the last one
        self._retries = 0
        self._is_last_try = False
        self._is_named = self._has_threads = self._has_sought = self._is_lent = False
        self._account: Account | None = None
        self._counts = False  # the times of the packets are those of the frames, one after another
        self._longest = 0  # the longest step between the times of two frames

    # --- what a reader calls ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Decides how the stream is read, by its first packets. Reading calls it, too."""
        if self._run is not None:
            return
        if self._chosen.is_opened_once:
            self._run_plain(None if self._beginning is None else self._beginning.part.at)
            return
        is_named, self._counts = _judged(self._video)
        self._is_named = is_named and self._chosen.is_strict
        if self._is_named:
            self._begin_named(groups_back=0, has_threads=self._chosen.threads != 1)
            self._decode_first()
        else:
            self._begin_plain()

    def _decode_first(self) -> None:
        """Decodes the first packet alone, if its frame then is the same."""
        video, run = self._video, self._run
        codec = video.codec
        if self._beginning is not None or not may_seek(video.codec_name, codec.pix_fmt):
            return
        [packet] = islice(video.packets(), 1)
        video.give_back([packet])
        is_sound = packet.size and not packet.is_discard and not packet.is_corrupt
        frame = only_frame(video.decoder_of_one(), packet) if is_sound else None
        if run is not None and frame is not None and not frame.is_corrupt:
            pts = facts_of(packet).pts
            self._ready.append((pts, frame))
            run.leave_out_before(pts + 1)

    def lend(self) -> OpenVideo | None:
        """The open file, if no frame but the first was decoded; else None. To read on, the file is opened again."""
        run = self._run
        if not isinstance(run, _NamedRun) or run.facts or self._given != 1 or self._is_lent:
            return None
        self._is_lent = True
        self._then = partial(self._begin_named, groups_back=0, has_threads=self._has_threads, seeks=False)
        return self._video

    def _gives_parts(self) -> bool:
        """Whether the demuxer gives the part of a packet that a cut has left, as that of MPEG-TS does."""
        return times_may_jump(self._video.container.format.name)

    def advance(self) -> SequenceFrame | None:
        """Decodes a packet, unless a frame waits already. Returns the next frame, or None if it is not there yet.

        Raises:
            DecoderError: the next frame is damaged or missing.
            StopIteration: there are no more frames.
            OSError: no memory is left, or no thread.
        """
        self.begin()
        if not self._ready:
            self._step()
        if not self._ready:
            return None
        pts, frame = self._ready.popleft()
        if self._last_pts is not None:
            self._longest = max(self._longest, pts - self._last_pts)
        self._given, self._last_pts = self._given + 1, pts
        return SequenceFrame(self._given - 1, pts, frame)

    def resume(self, given: int, last_pts: int | None) -> None:
        """Goes on behind so many frames, after an exception of a signal handler has interrupted a call.

        Args:
            last_pts: the time of the last one; None if there is none.
        """
        self._given, self._last_pts = given, last_pts
        self._then = None
        if self._run is None:
            self.begin()
        elif self._is_named:
            self._begin_named(groups_back=0, has_threads=self._has_threads)
        else:
            self._begin_plain()

    def end(self, track: Track) -> End:
        """What shows at the end of the file, once `advance` has come there."""
        if not self._chosen.is_strict:
            return End()
        unit = float(track.video.time_base)
        delivered = completeness.Delivered(
            frames=self._given if self._beginning is None else None,
            last_s=(self._last_pts or 0) * unit,
            longest_s=self._longest * unit,
        )
        end = completeness.end_of(track, delivered, (self._video.container, self._packets))
        if end.reason is None and self._begins_inside:
            return End(warning=completeness.BEGINS_INSIDE)
        return End(end.reason, end.warning or self._video.warning)

    @property
    def account(self) -> Account | None:
        """Which packet gave which frame; None if not all of them were read."""
        run, is_part = self._run, self._has_sought or self._chosen.is_opened_once
        if self._account is None and run and run.is_at_end and run.error is None and not is_part:
            self._account = run.account
        return self._account

    @property
    def _packets(self) -> Packets:
        """The facts about the packets that were read since the beginning, or since the last seek."""
        return table_of([] if self._run is None else [*self._run.facts])

    @property
    def _begins_inside(self) -> bool:
        """Whether the file begins inside a group of pictures, so that its first frames may be missing or wrong."""
        run = self._run
        if not isinstance(run, _PlainRun) or self._has_sought or not run.begins_inside:
            return False
        return any(facts.is_key for facts in run.facts)  # otherwise the container marks no keyframes

    @property
    def how(self) -> str:
        """How libav reads it, for a caller."""
        if self._run is None:
            return "it has not begun"
        if self._is_named:
            return f"it decodes with {'threads' if self._has_threads else 'one thread'}"
        if self._chosen.is_opened_once:
            return "it is opened once"
        why = (
            "the times of packets don't name the frames" if self._chosen.is_strict else "errors are concealed"
        )
        return f"it decodes with one thread, because {why}"

    @property
    def video(self) -> OpenVideo:
        """The open file."""
        return self._video

    def close(self) -> None:
        """Closes the file."""
        self._ready.clear()
        self._run = self._then = None
        if not self._is_lent:
            self._video.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        then, self._then = self._then, None
        run = self._run
        assert run is not None
        if then is not None:
            then()
        elif run.error is not None:
            self._fail(run.error)
        elif run.is_at_end:
            raise StopIteration
        else:
            try:
                run.step()
            except _LostError:
                self._then = self._retry
            except UnnamedError:
                self._then = self._begin_unnamed

    def _retry(self) -> None:
        """Decodes again without threads, from the group of pictures of the next frame, then from earlier ones."""
        run, most = self._run, _EARLIER_GROUPS if self._wanted() is not None else 0
        assert isinstance(run, _NamedRun)
        if self._is_last_try:
            self._fail(_LOST)
        groups_back = min(self._retries, most)
        self._is_last_try = self._retries > most
        may_be_empty = self._video.conceals or has_hidden_frames(self._packets, self._video.stream)
        if self._is_last_try and not run.has_failed and may_be_empty:
            self._begin_unnamed()  # nothing was damaged: a packet has no frame, such as a second field
            return
        self._retries += 1
        until = run.first_lost if self._is_last_try else None
        self._begin_named(groups_back=groups_back, has_threads=False, until=until)

    def _fail(self, why: str) -> NoReturn:
        message = f"{self._chosen.path}: frame {self._given} can't be decoded: {why}"
        raise DecoderError(message, frames=self._given)

    # --- beginning, and beginning again ------------------------------------------------------------------------------

    def _wanted(self) -> int | None:
        """The time from which on frames are wanted; None for all."""
        if self._last_pts is not None:
            return self._last_pts + 1
        return None if self._beginning is None else self._beginning.part.at

    def _begin_named(
        self, *, groups_back: int, has_threads: bool, until: Facts | None = None, seeks: bool = True
    ) -> None:
        begins_again = self._run is not None
        if self._is_lent or (begins_again and has_threads != self._has_threads):
            self._open(has_threads=has_threads)
            begins_again = False
        self._has_threads, wanted = has_threads, self._wanted()
        found = None
        if wanted is not None and seeks and self._may_seek:
            found = self._seek_before(wanted, groups_back)
        self._has_sought = found is not None
        if begins_again and not self._has_sought:
            self._video.rewind()
        self._ready.clear()
        self._run = _NamedRun(
            self._video,
            self._ready,
            wanted,
            beginning=self._beginning if self._last_pts is None else None,
            floor=found and found.floor,
            until=until,
            has_threads=has_threads,
        )

    @cached_property
    def _may_seek(self) -> bool:
        """Whether a seek leads to the first frame of a time, from which a decoder makes the same pictures."""
        if self._beginning is not None and not self._beginning.may_seek:
            return False
        return not times_go_back(self._chosen.source, self._chosen.container, self._chosen.index)

    def _seek_before(self, wanted: int, groups_back: int) -> _FromKey | None:
        """Goes to a keyframe at or before a time; or to one so many groups of pictures before it.

        Returns None if the file is to be read from its beginning.
        """
        if wanted <= (self._video.stream.start_time or 0):
            return None
        unit = self._video.stream.time_base or 1
        for margin_s in _MARGINS_S:
            if not self._video.seek(wanted - round(margin_s / unit)):
                break
            if (found := _from_key_before(self._video.packets(), wanted, groups_back)) is not None:
                self._video.give_back(found.packets)
                return found
        self._video.rewind()
        return None

    def _begin_unnamed(self) -> None:
        self._is_named = False
        self._begin_plain()

    def _begin_plain(self) -> None:
        self._open(has_threads=False)
        self._has_threads = False
        self._run_plain(None if self._beginning is None else self._beginning.part.at)

    def _run_plain(self, wanted: int | None) -> None:
        self._has_sought = wanted is not None and not self._counts and self._seek_plain(wanted)
        self._ready.clear()
        self._run = _PlainRun(
            self._video,
            self._ready,
            wanted,
            beginning=self._beginning if wanted is not None else None,
            skipped=self._given,
            is_strict=self._chosen.is_strict,
            is_sought=self._has_sought,
            counts=self._counts,
            is_once=self._chosen.is_opened_once,
            is_awaited=self._chosen.is_opened_once and self._gives_parts() and _judged(self._video)[0],
        )

    def _seek_plain(self, wanted: int) -> bool:
        """Goes to a keyframe some seconds before a time, where that is possible."""
        if not self._may_seek or self._chosen.container not in SEEKABLE:
            return False
        unit = self._video.stream.time_base or 1
        target, latest = wanted - round(_PLAIN_MARGIN_S / unit), self._video.latest_read
        if target <= (self._video.stream.start_time or 0) or (latest is not None and target <= latest):
            return False
        found = None
        with suppress(LibavError):  # of a server that can't seek
            if self._video.seek(target):
                found = _from_key_before(self._video.packets(), wanted, 0, latest)
        if found is None:
            self._video.rewind()
            return False
        self._video.give_back(found.packets)
        return True

    def _open(self, *, has_threads: bool) -> None:
        if self._chosen.is_opened_once:
            self._fail("it can't be opened again, to read on after an interruption")
        if self._video.use_threads(has_threads=has_threads):
            return
        if not self._is_lent:
            self._video.close()
        self._video, self._is_lent = OpenVideo(self._chosen, has_threads=has_threads), False


class _Recent:
    """The facts about the last packets of a stream that may never end, by their numbers from the first one on."""

    def __init__(self) -> None:
        self._last: deque[Facts] = deque(maxlen=4 * _AGE)
        self._count = 0

    def append(self, facts: Facts) -> None:
        self._last.append(facts)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Facts]:
        return iter(self._last)

    def __reversed__(self) -> Iterator[Facts]:
        return reversed(self._last)

    def __getitem__(self, number: int) -> Facts:
        return self._last[number - self._count]


def _judged(video: OpenVideo) -> tuple[bool, bool]:
    """Whether the first packets name the frames, and whether their times are those of decoding."""
    ahead: list[Packet] = []
    with suppress(LibavError):  # the run will meet it, too
        ahead.extend(islice(video.packets(), REORDERED + 1))
    video.give_back(ahead)
    packets = packets_of(ahead)
    if not names_frames(packets, video.stream):
        return False, False
    return True, are_times_of_decoding(packets, video.stream)


def account_by_decoding(chosen: VideoInput) -> Account:
    """Decodes all of a stream once, past damage, for which packet gives which frame."""
    ready = _Ready()
    with OpenVideo(replace(chosen, is_strict=False), has_threads=False) as video:
        run = _PlainRun(video, ready, None, counts=_judged(video)[1])
        while not run.is_at_end:
            run.step()
            ready.clear()
        return run.account


class _Run:
    """A decoder that reads one packet after another.

    Args:
        ready: what it adds frames to.
        wanted: frames that are shown before this time are left out; None for no such time.
        beginning: the one that is on screen at `wanted` is not; None for no such frame.

    Attributes:
        facts: about the packets that it has read.
        is_at_end: it has read all of them.
        error: why it can't go on; None if nothing is wrong. Frames that are ready come before that.
    """

    def __init__(
        self, video: OpenVideo, ready: _Ready, wanted: int | None, beginning: Beginning | None = None
    ) -> None:
        self._beginning = beginning
        self._before: tuple[int, int, VideoFrame] | None = None  # the last frame before `wanted`, and its end
        self.facts: list[Facts] | _Recent = []
        self.is_at_end = False
        self.error: str | None = None
        self._video, self._ready, self._wanted = video, ready, wanted
        self._is_strict = True
        self._why_short: str | None = None
        self._packets = video.packets()

    def leave_out_before(self, pts: int) -> None:
        """Leaves out the frames that are shown before a time."""
        self._wanted = pts

    def step(self) -> None:
        """Reads a packet, and lets the frames that come of it be ready."""
        try:
            packet = next(self._packets, None)
        except LibavError as error:
            packet, self._why_short = None, f"the file is damaged: {error.strerror}"
            if self._is_strict:
                self.error = self._why_short
        if packet is None:
            self._finish()
            if self._before is not None and self._beginning is not None:
                pts, end, frame = self._before
                if self._beginning.part.least < end:
                    self._let(pts, frame)
            self.is_at_end = True
            return
        number = len(self.facts)
        self.facts.append(facts_of(packet))
        if packet.size:
            self._send(number, packet)

    @property
    def account(self) -> Account:
        """Which packet gave which frame, once it is at the end."""
        raise NotImplementedError

    def _offer(self, number: int, pts: int, frame: VideoFrame) -> bool:
        """Lets a frame of a packet be ready, unless it is left out. Returns whether that is so."""
        if self._wanted is not None and pts < self._wanted:
            if self._beginning is not None:
                self._before = pts, self._beginning.part.end_of(pts, self.facts[number].duration), frame
            return False
        if self._before is not None and pts != self._wanted:
            self._let(self._before[0], self._before[2])
        self._before = None
        self._let(pts, frame)
        return True

    def _let(self, pts: int, frame: VideoFrame) -> None:
        self._ready.append((pts, frame))

    def _send(self, number: int, packet: Packet) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


class _NamedRun(_Run):
    """Accounts for each packet.

    Args:
        floor: the time of the first frame that must come; None for the first one of the file.
        until: a damaged packet, before which reading ends; None for all packets.

    Raises:
        _LostError: by a step, if a frame does not come.
        UnnamedError: by a step, if the times of the packets do not name the frames.

    Attributes:
        has_failed: libav has told of damage.
    """

    def __init__(
        self,
        video: OpenVideo,
        ready: _Ready,
        wanted: int | None,
        *,
        beginning: Beginning | None,
        floor: int | None,
        until: Facts | None,
        has_threads: bool,
    ) -> None:
        super().__init__(video, ready, wanted, beginning)
        self._floor, self._until, self._has_threads = floor, until, has_threads
        self._awaited: dict[int, None] = {}  # packets whose frames have not come, in their order
        self._held: deque[tuple[int, int, VideoFrame]] = deque()  # frames before which others must come
        self._latest: int | None = None  # the time of the last frame that came
        self._times: set[int] = set()  # of the packets
        self._has_hidden = False  # a packet must be decoded whose frame doesn't come
        self._failed: int | None = None  # the first packet whose damage libav has told of
        self._refused: set[int] = set()  # packets whose frames may come all the same
        self.has_failed = False
        self._disordered: int | None = (
            None  # the packet after which a frame came that is shown before another
        )

    @property
    def first_lost(self) -> Facts:
        """The first packet that is damaged."""
        number = next(iter(self._awaited)) if self._failed is None else self._failed
        return self.facts[number]

    def _send(self, number: int, packet: Packet) -> None:
        is_due = self._await(number)
        if self.facts[number] == self._until:
            self._end_before(number)
            return
        packet.pts = number  # the decoder gives it to the frame
        self._has_hidden |= is_due and self.facts[number].is_hidden
        self._take(number, packet)
        if self._awaited and next(iter(self._awaited)) < number - _AGE:
            raise _LostError
        if self._disordered is not None and self._disordered < number - _AGE:
            raise UnnamedError

    def _await(self, number: int) -> bool:
        """Lets later frames wait for that of a packet. Returns whether the packet must be decoded."""
        facts = self.facts[number]
        if not facts.has_pts or facts.pts in self._times:
            raise UnnamedError
        self._times.add(facts.pts)
        is_due = self._is_due(facts)
        if is_due and not facts.is_hidden:
            self._awaited[number] = None
        return is_due

    def _is_due(self, facts: Facts) -> bool:
        # A hidden frame that is shown before the first keyframe may need packets before it.
        is_late = not facts.is_hidden or facts.pts >= self.facts[0].pts
        return is_late and (self._floor is None or facts.pts >= self._floor)

    def _end_before(self, number: int) -> None:
        """Ends with the frames that are shown before those of a damaged packet and of all later ones."""
        with suppress(LibavError):
            for later, packet in enumerate(islice(self._packets, REORDERED), number + 1):
                self.facts.append(facts_of(packet))
                self._await(later)
        self._take(number, None)
        self.error = _LOST

    def _finish(self) -> None:
        self._take(len(self.facts), None)
        if self._awaited:
            raise _LostError
        if self._disordered is not None:
            raise UnnamedError

    def _take(self, number: int, packet: Packet | None) -> None:
        try:
            frames = self._video.decode(packet)
        except LibavError:
            self._fail(number)
            return  # its frame will be missing
        for frame in frames:
            self._came(number, frame)

    @property
    def account(self) -> Account:
        return Account.by_times(table_of([*self.facts]), self._video.stream)

    def _fail(self, number: int) -> None:
        """Takes note of an error. libav's threads tell of it later, and may give the packet's frame."""
        self.has_failed = True
        if not self._has_threads:
            self._refused.add(number)
            self._is_damaged(number)
        elif self._has_hidden or all(map(self._is_due, islice(reversed(self.facts), MOST_THREADS))):
            raise _LostError

    def _is_damaged(self, number: int) -> None:
        """Takes note of a damaged packet."""
        if number < len(self.facts):
            is_hidden = self.facts[number].is_hidden and self._is_due(self.facts[number])
            if self._failed is None and (is_hidden or number in self._awaited):
                self._failed = number
            if is_hidden:  # later frames may be made of it
                raise _LostError

    def _came(self, sent: int, frame: VideoFrame) -> None:
        number = packet_of(frame)
        if frame.is_corrupt or self.facts[number].is_corrupt or number in self._refused:
            self.has_failed = True
            self._is_damaged(number)
            return
        if number not in self._awaited:
            return
        pts = self.facts[number].pts
        if self._latest is not None and pts <= self._latest and self._disordered is None:
            self._disordered = sent  # either a frame between is lost, or times are wrong
        del self._awaited[number]
        self._latest = pts
        self._held.append((number, pts, frame))
        while self._held and self._disordered is None and self._is_next(*self._held[0][:2]):
            self._offer(*self._held.popleft())

    def _is_next(self, number: int, pts: int) -> bool:
        """Whether all frames have come that this one may be made of, or that are shown before it."""
        return all(number < other and pts < self.facts[other].pts for other in self._awaited)


class _PlainRun(_Run):
    """Takes what libav gives, and what libav says is damaged for damage.

    A decoder that conceals damage marks frames when they come, and frames that are shown before those may be made of
    them. So a frame waits for those of earlier packets, if the decoder reorders frames.

    Args:
        skipped: how many frames, of those that are wanted, are left out.
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
        ready: _Ready,
        wanted: int | None,
        *,
        beginning: Beginning | None = None,
        skipped: int = 0,
        is_strict: bool = False,
        is_sought: bool = False,
        counts: bool = False,
        is_once: bool = False,
        is_awaited: bool = False,
    ) -> None:
        super().__init__(video, ready, wanted, beginning)
        if is_once:
            self.facts = _Recent()
        self._is_once, self._is_awaited = is_once, is_awaited
        self._due: deque[int] = deque(maxlen=_AGE)  # of those that must come, packets whose frames have not
        self._skipped, self._is_strict, self._counts = skipped, is_strict, counts
        self._whole = WholeFrom(begins_inside=is_sought)
        self._first_whole: int | None = None  # the first packet of which damage counts
        self._early: str | None = None  # the damage before
        self._has_failed = False
        self.begins_inside = False
        self._guess = TimeGuess(video.stream)
        self._awaited: dict[int, None] = {}  # packets whose frames have not come
        self._held: deque[VideoFrame] = deque()
        self._shown: list[Shown] = []

    @property
    def account(self) -> Account:
        return Account.by_frames(
            *(table_of([*self.facts]), self._video.stream, self._shown),
            is_damaged=self._has_failed,
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
            self._take(len(self.facts) + REORDERED, self._video.decode(None))
        except LibavError as error:
            if self._is_strict:
                self.error = self.error or f"the file is damaged: {error.strerror}, at its end"
        if self._is_strict and self._due:
            self.error = self.error or _LOST
        if self._early is not None and not any(facts.is_key for facts in self.facts):
            self.error = self.error or self._early  # the container marks no keyframes

    def _is_damaged(self, number: int, why: str) -> bool:
        """Whether damage of a packet is an error."""
        self._has_failed = True
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
            if frame.is_corrupt and self._is_damaged(number, _PART):
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
        pts = self._guess.of(facts.pts if facts.has_pts else None, frame.dts, frame.duration)
        if self._counts:
            pts = self.facts[count].pts
        if not self._is_once:
            self._shown.append(Shown(number, pts, frame.key_frame))
        if self._offer(number, pts, frame):
            self._wanted = None  # later times may go back, where files were joined

    def _let(self, pts: int, frame: VideoFrame) -> None:
        if self._skipped:
            self._skipped -= 1
        else:
            super()._let(pts, frame)


class _FromKey(NamedTuple):
    """Packets from a keyframe on, and the time of the first frame that they certainly hold in full."""

    packets: list[Packet]
    floor: int | None


def _from_key_before(
    packets: Iterator[Packet], wanted: int, groups_back: int, latest: int | None = None
) -> _FromKey | None:
    """The packets from a keyframe on that is shown at or before `wanted`, up to one behind it.

    None if there are not so many keyframes. Of several groups, the first is for decoders that make whole pictures only
    some frames after what is called a keyframe (x264's intra-refresh). None, too, if a packet is before `latest`: libav
    takes a failed seek in AVI by URL for one to the beginning.
    """
    read: list[Packet] = []
    keys: list[int] = []
    for packet in packets:
        read.append(packet)
        time = packet.dts if packet.pts is None else packet.pts
        if packet.is_keyframe and time is not None and time <= wanted:
            keys.append(len(read) - 1)
        decoded = packet.pts if packet.dts is None else packet.dts
        if decoded is not None and latest is not None and decoded < latest:
            return None
        if decoded is not None and decoded > wanted:
            break
    if len(keys) <= groups_back:
        return None
    first = keys[-1 - groups_back]
    return _FromKey(read[first:], read[keys[-max(1, groups_back)]].pts)
