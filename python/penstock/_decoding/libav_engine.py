"""Reads a file in sequence by libav, in this process."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from heapq import heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from av.error import FFmpegError as LibavError

from penstock._common.deadline import Deadline
from penstock._common.messages import plural
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._common.shortage import error_of_libav
from penstock._decoding.pixels import Pixels
from penstock._decoding.sequence import SequenceFrame
from penstock._decoding.turns import Turns
from penstock._facts.completeness import EndOfFile, why_no_frames
from penstock._facts.file_checks import FileChecks
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    from penstock._decoding.account import Account
    from penstock._decoding.open_video import OpenVideo
    from penstock._decoding.pixels import Arrays, Job
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.info import Track


class FramesInOrder(Protocol):
    """What the engine reads: a `Sequence`, or pictures."""

    @property
    def how(self) -> str:
        """How libav reads it, for a caller."""

    @property
    def account(self) -> Account | None:
        """Which packet gave which frame; None if that is unknown."""

    def advance(self) -> SequenceFrame | None:
        """The next frame; None if it is not there yet.

        Raises:
            StopIteration: there are no more.
            DecoderError, OSError: it cannot be decoded or read.
        """

    def lend(self) -> OpenVideo | None:
        """The open file, if no frame but the first was decoded; else None. To read on, the file is opened again."""

    def resume(self, given: int, last_pts: int | None, /) -> None:
        """Goes on behind so many frames, the last of which has that time; None if there is none."""

    def end(self, track: Track, /) -> EndOfFile:
        """What shows at the end of the file, once there are no more frames."""

    def close(self) -> None:
        """Ends its threads, and closes the file."""


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame's number from 0, its time in units of the stream's time base, and its memory."""

    index: int
    pts: int | None
    memory: Any


class PendingFrame(NamedTuple):
    """A frame whose array is being made: its number and time, without libav's frame, whose memory the job frees."""

    number: int
    pts: int
    job: Job


class LibavEngine(Turns[RawFrame]):
    """Decodes frames in sequence, and makes the arrays of the next ones while the caller has the present one.

    Args:
        plan: what is made of the frames.
        sequence: the frames.
        reason: why libav reads them.
        ahead: the first frame, if it is decoded already, or why it could not be.
        may_hang: the source may keep libav waiting, and libav can't be interrupted: another thread reads.
        pixels: what makes the arrays; None makes them of libav's frames.

    Attributes:
        plan: as above.
        questions: answers what else there is to know of the file.
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    def __init__(
        self,
        plan: DecodePlan,
        sequence: FramesInOrder,
        reason: str,
        ahead: SequenceFrame | DecoderError | None = None,
        *,
        may_hang: bool = False,
        pixels: Arrays | None = None,
    ) -> None:
        super().__init__(may_hang=may_hang)
        self.plan = plan
        self.checks = FileChecks(plan.track)
        self.warning: str | None = None
        self._sequence, self._reason, self._ahead = sequence, reason, ahead
        self._pixels: Arrays = pixels or Pixels(plan)
        self._part = plan.part
        self._most = plan.options.count
        self._begun: deque[PendingFrame] = deque()
        self._last: PendingFrame | None = None  # the one that was given last
        self._read = 0  # frames that were decoded
        self._first_pts: int | None = None  # of the first one
        self._is_fed = False  # all frames were decoded
        self._failure: DecoderError | StalledError | None = None  # after the frames that are begun
        self._given = 0  # frames that callers received

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_ahead(self) -> None:
        """Decodes the first frame before it is asked for."""
        if self._may_hang:
            heappush(self._abandoned, self._begun_read())
            return
        with self._turn(Deadline(None)):
            self._feed(1, Deadline(None))

    def first_pts(self) -> int | None:
        """The time of the first frame, which is decoded for that; None if there is none."""
        if self._first_pts is None and self._may_hang:
            read = self._begun_read()
            try:
                self._await(read, Deadline(None))
            finally:
                heappush(self._abandoned, read)
        elif self._first_pts is None:
            self.read_ahead()
        return self._first_pts

    @property
    def _made_so_far(self) -> int:
        """Frames whose arrays were made."""
        return 0 if self._last is None else self._last.number + 1

    @property
    def is_at_end(self) -> bool:
        """Whether all frames were given."""
        return self._is_fed and not self._begun

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller."""
        return DecoderEngine("libav", f"{self._reason}; {self._sequence.how}")

    @property
    def account(self) -> Account | None:
        """Which packet gave which frame, if iteration has come to the end; else None."""
        return self._sequence.account

    def lend(self) -> tuple[SequenceFrame, OpenVideo | None] | None:
        """The first frame as long as it waits to be read, with the open file if nothing else was decoded."""
        # If another thread reads, more than the first frame will have been decoded.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            is_read = self._reading_thread is not None or self.is_closed
            if is_read or not isinstance(self._ahead, SequenceFrame) or not self._part.has(self._ahead.pts):
                return None
            return self._ahead, self._sequence.lend()
        finally:
            self._lock.release()

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        times, elapsed_s = self._times, self._times.elapsed_s
        return DecoderStats(
            frames_read=self._read,
            frames_delivered=self._given,
            bytes_read=self._read * self._pixels.input_bytes,
            elapsed_s=elapsed_s,
            fps=self._read / elapsed_s if elapsed_s else 0.0,
            caller_wait_s=times.reading_s,
            input_wait_s=times.decoding_s,
            output_wait_s=times.away_s,
            converting_s=self._pixels.converting_s,
        )

    def _took(self, made: RawFrame | None) -> RawFrame | None:
        """Counts what a caller receives."""
        if made is not None:
            self._given = max(self._given, made.index + 1)
        return made

    def _made(self, deadline: Deadline) -> RawFrame | None:
        # One more frame with each call, so that the first ones come at once.
        ahead = 0 if self._may_hang else self._pixels.ahead  # a live frame waits for no other
        self._feed(min(ahead, self._made_so_far) + 1, deadline)
        self.check_usable()  # a signal handler or another thread may have closed it
        if not self._begun:
            if self._failure is not None:
                raise self._failure
            return None
        begun = self._begun[0]
        try:
            memory = begun.job.wait()
        except DecoderError as failure:
            self._begun.clear()
            self._failure, self._is_fed = failure, True
            raise
        self._last = self._begun.popleft()
        return RawFrame(begun.number, begun.pts, memory)

    def _go_back(self) -> None:
        """Goes on behind the frame that was given last: of those that were begun, some may be lost."""
        self._begun.clear()
        self._read = self._made_so_far
        self._ahead = self._failure = None
        self._is_fed = self._read == self._most
        self._sequence.resume(self._read, None if self._last is None else self._last.pts)

    def _feed(self, wanted: int, deadline: Deadline) -> None:
        """Begins to make the next frames, until there are as many as wanted."""
        while len(self._begun) < wanted and not self._is_fed:
            self.check_usable()
            try:
                frame = self._decoded()
                if frame is not None and not self._part.has(frame.pts):
                    self._is_fed = True
                    return
                if frame is not None:
                    self._begun.append(
                        PendingFrame(frame.index, frame.pts, self._pixels.begin(frame.samples))
                    )
            except StopIteration:
                self._end()
                return
            except (DecoderError, StalledError) as failure:
                self._failure, self._is_fed = failure, True
                return
            except LibavError as error:
                self._failure = error_of_libav(error, self.plan.track.media.path, self._read)
                self._is_fed = True
                return
            if frame is not None:
                self._read = frame.index + 1
                self._first_pts = frame.pts if self._first_pts is None else self._first_pts
                self._is_fed = self._read == self._most
            elif deadline.is_over():
                if self._begun:
                    return
                raise deadline.late(self.late)

    def _decoded(self) -> SequenceFrame | None:
        """The next frame; None if it is not there yet."""
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, DecoderError):
            raise ahead
        entered_s = time.perf_counter()
        try:
            return ahead or self._sequence.advance()
        finally:
            self._times.decoding_s += time.perf_counter() - entered_s

    def _end(self) -> None:
        track, frames = self.plan.track, self._read
        end = (
            self._sequence.end(track)
            if frames
            else EndOfFile(why_no_frames(track.media, self.plan.options.start))
        )
        if end.reason is not None:
            after = f", after {plural(frames, 'frame')}" if frames else ""
            self._failure = DecoderError(f"{track.media.path}: {end.reason}{after}", frames=frames)
        self.warning, self._is_fed = end.warning, True

    # --- closing -----------------------------------------------------------------------------------------------------

    def end_collected(self) -> None:
        """Closes the file when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        self._close_collected(self.plan.title, is_used=bool(self._given) and not self.is_at_end)

    def _free(self) -> None:
        self._begun.clear()
        self._sequence.close()
        self._pixels.close()
