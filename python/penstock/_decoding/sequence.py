"""The frames of a video in the order in which they are shown, by libav, with an account of what each packet gave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from av.error import FFmpegError as LibavError

from penstock._decoding.account import Account
from penstock._decoding.open_video import OpenVideo, VideoInput
from penstock._decoding.random_access import RandomAccess
from penstock._decoding.run import LOST, LostError, NamedRun, PlainRun, UnnamedError, judged
from penstock._facts import completeness
from penstock._facts.completeness import EndOfFile, times_go_back
from penstock._facts.index import PacketInfo, has_hidden_frames, packet_info
from penstock._facts.opening import times_may_jump
from penstock._facts.seeking import may_seek
from penstock._formats import containers
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

    from penstock._facts.index import Packet
    from penstock._facts.info import Track
    from penstock._facts.part import Part

# How far before a time the file is sought, in seconds, until a keyframe comes before it. Containers without an index
# seek by guessing. Guessed: broadcasts have a keyframe every 0.5 to 2 s.
_MARGINS_S = (0, 1, 10, 60)
# The same where the packets' times don't name the frames. Guessed: keyframes are closer together than this.
_PLAIN_MARGINS_S = (10,)


@dataclass(frozen=True, slots=True)
class SequenceFrame:
    """A frame in sequence: its number from 0, its time in units of the stream's time base, and libav's frame."""

    index: int
    pts: int
    samples: VideoFrame


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
        part: what is wanted of it; None for all.
        video: the stream, if it is open already; at its beginning, and not decoded yet.
    """

    def __init__(self, chosen: VideoInput, part: Part | None = None, video: OpenVideo | None = None) -> None:
        self._chosen, self._part = chosen, part
        self._video = video or OpenVideo(chosen, has_threads=chosen.is_strict)
        self._run: NamedRun | PlainRun | None = None
        self._ready: deque[tuple[int, VideoFrame]] = deque()  # frames to give out, with their times
        self._from: int | None = None  # frames that are shown before that time are left out
        # The last of them, with its number, if it may be on screen where the part begins.
        self._before: tuple[int, int, VideoFrame] | None = None
        self._has_before = False
        self._skips = 0  # how many of the others are left out
        self._then: Callable[[], None] | None = None  # what follows the frames that are ready
        self._given = 0  # frames that were given out
        self._last_pts: int | None = None  # of the last one
        self._tries = 0  # after a frame did not come
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
            self._run_plain(self._wanted())
            return
        is_named, self._counts = judged(self._video)
        self._is_named = is_named and self._chosen.is_strict
        if self._is_named:
            self._begin_named(has_threads=self._chosen.threads != 1)
            self._decode_first()
        else:
            self._begin_plain()

    def _decode_first(self) -> None:
        """Decodes the first packet alone, if its frame then is the same."""
        video, codec = self._video, self._video.codec
        if self._part is not None or not may_seek(video.codec_name, codec.pix_fmt):
            return
        [packet] = islice(video.packets(), 1)
        video.unread([packet])
        is_sound = packet.size and not packet.is_discard and not packet.is_corrupt
        frame = video.decode_alone(packet) if is_sound else None
        if frame is not None and not frame.is_corrupt:
            pts = packet_info(packet).pts
            self._ready.append((pts, frame))
            self._from = pts + 1

    def lend(self) -> OpenVideo | None:
        """The open file, if no frame but the first was decoded; else None. To read on, the file is opened again."""
        run = self._run
        if not isinstance(run, NamedRun) or run.facts or self._given != 1 or self._is_lent:
            return None
        self._is_lent = True
        self._then = partial(self._begin_named, has_threads=self._has_threads, seeks=False)
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
            self._begin_named(has_threads=self._has_threads)
        else:
            self._begin_plain()

    def end(self, track: Track) -> EndOfFile:
        """What shows at the end of the file, once `advance` has come there."""
        if not self._chosen.is_strict:
            return EndOfFile()
        unit = float(track.video.time_base)
        delivered = completeness.Delivered(
            frames=self._given if self._part is None else None,
            last_s=(self._last_pts or 0) * unit,
            longest_s=self._longest * unit,
        )
        assert self._run is not None
        end = completeness.end_of(track, delivered, (self._video.stream, self._run.packets))
        if end.reason is None and self._begins_inside:
            return EndOfFile(warning=completeness.BEGINS_INSIDE)
        return EndOfFile(end.reason, end.warning or self._video.warning)

    @property
    def account(self) -> Account | None:
        """Which packet gave which frame; None if not all of them were read."""
        run, is_part = self._run, self._has_sought or self._chosen.is_opened_once
        if self._account is None and run and run.is_at_end and run.error is None and not is_part:
            self._account = run.account
        return self._account

    @property
    def _begins_inside(self) -> bool:
        """Whether the file begins inside a group of pictures, so that its first frames may be missing or wrong."""
        run = self._run
        if not isinstance(run, PlainRun) or self._has_sought or not run.begins_inside:
            return False
        return any(facts.is_key for facts in run.facts.values())  # otherwise the container marks no keyframes

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
            except LostError:
                self._then = self._retry
            except UnnamedError:
                self._then = self._begin_unnamed
            self._sort_out(run)

    def _sort_out(self, run: NamedRun | PlainRun) -> None:
        """Lets frames be ready that are wanted."""
        while run.ready:
            number, pts, frame = run.ready.popleft()
            if self._from is not None and pts < self._from:
                self._before = (number, pts, frame) if self._has_before else None
                continue
            if pts != self._from:
                self._let_before()
            self._before = self._from = None  # later times may go back, where files were joined
            self._let(pts, frame)
        if run.is_at_end and self._before is not None and self._part is not None:
            number, pts, _ = self._before
            if self._part.least < self._part.end_of(pts, run.facts[number].duration):
                self._let_before()

    def _let_before(self) -> None:
        """Lets the frame be ready that is on screen where the part begins."""
        if self._before is not None:
            self._let(*self._before[1:])

    def _let(self, pts: int, frame: VideoFrame) -> None:
        if self._skips:
            self._skips -= 1
        else:
            self._ready.append((pts, frame))

    def _retry(self) -> None:
        """Decodes again without threads: from the keyframe of the next frame, then from where that frame is whole.

        At last up to the first damaged packet and no further.
        """
        run, wanted, from_ = self._run, self._wanted(), None
        assert isinstance(run, NamedRun)
        self._tries += 1
        if self._tries == 2 and (wanted is None or (from_ := self._whole_from(run, wanted)) is None):
            self._tries = 3
        if self._tries > 3:
            self._fail(LOST)
        may_be_empty = self._video.conceals or has_hidden_frames(run.packets, self._video.stream)
        if self._tries == 3 and not run.has_failed and may_be_empty:
            self._begin_unnamed()  # nothing was damaged: a packet has no frame, such as a second field
            return
        until = run.first_lost if self._tries == 3 else None
        self._begin_named(has_threads=False, until=until, from_=from_)

    def _whole_from(self, run: NamedRun, wanted: int) -> tuple[int, int] | None:
        """As `RandomAccess.whole_from`; None if there is none."""
        run.read_on()
        with (
            suppress(LostError, DecoderError),
            closing(RandomAccess(self._chosen, None if self._has_sought else run.account)) as frames,
        ):
            return frames.whole_from(wanted)
        return None

    def _fail(self, why: str) -> NoReturn:
        if self._chosen.is_opened_once:
            # A server may have stopped in the middle of a packet, which libav gives. Then it tells of it.
            with suppress(LibavError):
                next(self._video.packets(), None)
        message = f"{self._chosen.path}: frame {self._given} can't be decoded: {why}"
        raise DecoderError(message, frames=self._given)

    # --- beginning, and beginning again ------------------------------------------------------------------------------

    def _wanted(self) -> int | None:
        """The time from which on frames are wanted; None for all."""
        if self._last_pts is not None:
            return self._last_pts + 1
        return None if self._part is None else self._part.at

    def _begin_named(
        self,
        *,
        has_threads: bool,
        until: PacketInfo | None = None,
        seeks: bool = True,
        from_: tuple[int, int] | None = None,
    ) -> None:
        """Begins before the next frame.

        Args:
            until: a damaged packet, before which reading ends.
            seeks: not at the beginning of the file, if the container may be sought.
            from_: when that frame's keyframe is shown, and the frame; None for the keyframe before it.
        """
        begins_again = self._run is not None
        if self._is_lent or (begins_again and has_threads != self._has_threads):
            self._open(has_threads=has_threads)
            begins_again = False
        self._has_threads, wanted, key = has_threads, self._wanted(), None
        if wanted is not None and seeks and self._may_seek:
            key = self._seek_before(from_[0] if from_ else wanted)
        self._has_sought = key is not None
        if begins_again and not self._has_sought:
            self._video.rewind()
        floor = None if key is None else key.pts if from_ is None else from_[1]
        self._run = NamedRun(self._video, floor, until)
        self._begin_from(wanted, has_before=self._last_pts is None)

    def _begin_from(self, wanted: int | None, *, has_before: bool = True, skips: int = 0) -> None:
        """Leaves out what is shown before a time, but for the frame on screen then, and some frames after that."""
        self._ready.clear()
        self._from, self._before, self._skips = wanted, None, skips
        self._has_before = has_before and self._part is not None

    @cached_property
    def _may_seek(self) -> bool:
        """Whether a seek leads to the first frame of a time, from which a decoder makes the same pictures."""
        if not may_seek(self._video.codec_name, self._video.codec.pix_fmt):
            return False
        return not times_go_back(self._chosen.source, self._chosen.container, self._chosen.index)

    def _seek_before(
        self, wanted: int, margins_s: tuple[int, ...] = _MARGINS_S, latest: int | None = None
    ) -> Packet | None:
        """Goes to a keyframe at or before a time, and returns it; None if the file is read from its beginning.

        Args:
            latest: when the last packet is decoded that is to be given again; None if a seek may lead before it.
        """
        unit, begins = self._video.stream.time_base or 1, self._video.stream.start_time or 0
        targets = [wanted - round(margin_s / unit) for margin_s in margins_s]
        if targets[0] <= begins or (latest is not None and targets[0] <= latest):
            return None
        for target in targets:
            with suppress(LibavError):  # of a server that can't seek
                if target > begins and self._video.seek(target):
                    if found := _from_key_before(self._video.packets(), wanted, latest):
                        self._video.unread(found)
                        return found[0]
                    continue
            break
        self._video.rewind()
        return None

    def _begin_unnamed(self) -> None:
        self._is_named = False
        self._begin_plain()

    def _begin_plain(self) -> None:
        self._open(has_threads=False)
        self._has_threads = False
        self._run_plain(None if self._part is None else self._part.at)

    def _run_plain(self, wanted: int | None) -> None:
        is_seekable = not self._counts and containers.known(self._chosen.container).may_seek
        self._has_sought = False
        if wanted is not None and is_seekable and self._may_seek:
            key = self._seek_before(wanted, _PLAIN_MARGINS_S, self._video.latest_read)
            self._has_sought = key is not None
        self._run = PlainRun(
            self._video,
            is_strict=self._chosen.is_strict,
            is_sought=self._has_sought,
            counts=self._counts,
            is_once=self._chosen.is_opened_once,
            is_awaited=self._chosen.is_opened_once and self._gives_parts() and judged(self._video)[0],
        )
        self._begin_from(wanted, skips=self._given)

    def _open(self, *, has_threads: bool) -> None:
        if self._chosen.is_opened_once:
            self._fail("it can't be opened again, to read on after an interruption")
        if self._video.use_threads(has_threads=has_threads):
            return
        if not self._is_lent:
            self._video.close()
        self._video, self._is_lent = OpenVideo(self._chosen, has_threads=has_threads), False


def _from_key_before(packets: Iterator[Packet], wanted: int, latest: int | None) -> list[Packet]:
    """The packets from the last keyframe on that is shown at or before `wanted`, up to one behind it.

    None if there is no such keyframe, or if a packet is before `latest`: libav takes a failed seek in AVI by URL for
    one to the beginning.
    """
    read: list[Packet] = []
    for packet in packets:
        time = packet.dts if packet.pts is None else packet.pts
        is_before = packet.is_keyframe and time is not None and time <= wanted
        if is_before:
            read.clear()
        if read or is_before:
            read.append(packet)
        decoded = packet.pts if packet.dts is None else packet.dts
        if decoded is not None and latest is not None and decoded < latest:
            return []
        if decoded is not None and decoded > wanted:
            break
    return read
