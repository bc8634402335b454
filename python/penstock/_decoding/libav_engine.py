"""Reads a file in sequence by libav, in this process."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from av.error import FFmpegError as LibavError

from penstock._common.daemon import Daemon
from penstock._common.deadline import Deadline
from penstock._common.messages import plural
from penstock._common.ownership import Closable
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._common.shortage import error_of_libav
from penstock._decoding.engine import Made
from penstock._decoding.open_video import keep_in_child
from penstock._decoding.pixels import Job, Pixels, ProgramPixels
from penstock._decoding.sequence import SequenceFrame
from penstock._facts.completeness import End, why_no_frames
from penstock._facts.questions import InProcess
from penstock.errors import DecoderError, PenstockError, StalledError

if TYPE_CHECKING:
    from penstock._decoding.account import Account
    from penstock._decoding.open_video import OpenVideo
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.info import Track
    from penstock._facts.questions import Questions

_LATE = "libav decoded no frame"


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

    def end(self, track: Track, /) -> End:
        """What shows at the end of the file, once there are no more frames."""

    def close(self) -> None:
        """Ends its threads, and closes the file."""


class _Begun(NamedTuple):
    """A frame whose array is being made: its number and time, without libav's frame, whose memory the job frees."""

    number: int
    pts: int
    job: Job


class Read(NamedTuple):
    """A read on the engine's own thread, by its number."""

    number: int
    outcome: Future[Made | None]


class LibavEngine(Closable):
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
        pixels: Pixels | ProgramPixels | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.questions: Questions = InProcess(plan.track)
        self.warning: str | None = None
        self._sequence, self._reason, self._ahead = sequence, reason, ahead
        self._may_hang, self._closing = may_hang, Future[None]()
        self._pixels, self._part = pixels or Pixels(plan), plan.part
        self._most = plan.options.count
        self._lock = threading.RLock()  # which knows its owner
        self._reading_thread: int | None = None
        self._begun: deque[_Begun] = deque()
        self._last: _Begun | None = None  # the one that was given last
        self._read = 0  # frames that were decoded
        self._first_pts: int | None = None  # of the first one
        self._is_fed = False  # all frames were decoded
        self._failure: DecoderError | StalledError | None = None  # after the frames that are begun
        self._is_torn = False  # an exception of a signal handler has interrupted a read
        self._is_released = False
        self._worker: Daemon | None = None
        self._abandoned: list[Read] = []  # reads for which nobody waits any more, as a heap
        self._reads, self._queueing = count(), threading.RLock()
        self._reads_ahead = 0
        self._given = 0  # frames that callers received
        self._times = _Times()
        keep_in_child(self)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, timeout: float | None = None) -> Made | None:
        """The next frame; None at the end."""
        deadline = Deadline(timeout)
        self.check_usable()
        if self._abandoned or self._may_hang:
            return self._read_elsewhere(deadline)
        with self._turn(deadline):
            return self._took(self._next(deadline))

    async def read_async(self) -> Made | None:
        """`read` for asyncio, on a thread of this object. A task that is cancelled while it waits loses no frame."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        self.check_usable()
        read = self._begun_read()
        try:
            return self._took(await asyncio.shield(asyncio.wrap_future(read.outcome)))
        except asyncio.CancelledError:
            heappush(self._abandoned, read)
            raise

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

    def _begun_read(self) -> Read:
        """A read on the thread of this object: the first one for which nobody waits any more, or a new one."""
        with self._queueing:
            if self._worker is None:
                self._worker = Daemon("penstock-decode")
            while len(self._abandoned) <= self._reads_ahead:
                heappush(self._abandoned, Read(next(self._reads), self._worker.submit(self._read_alone)))
            return heappop(self._abandoned)

    def _took(self, made: Made | None) -> Made | None:
        """Counts what a caller receives."""
        if made is not None:
            self._given = max(self._given, made.index + 1)
        return made

    def _read_elsewhere(self, deadline: Deadline) -> Made | None:
        """Waits for a read on the thread of this object. A wait without success leaves it to the next call."""
        read, is_done = self._begun_read(), False
        try:
            is_done = self._await(read, deadline)
        finally:
            if not is_done:
                heappush(self._abandoned, read)
        return self._took(read.outcome.result()) if is_done else None

    def _await(self, read: Read, deadline: Deadline) -> bool:
        """Waits until a read is done."""
        if not self._is_done(read, deadline.left_s()):
            raise deadline.late(_LATE)
        return True

    def _is_done(self, read: Read, timeout_s: float | None) -> bool:
        """Whether a read is done within so many seconds."""
        either: tuple[Future[Any], ...] = (read.outcome, self._closing)
        wait(either, timeout_s, FIRST_COMPLETED)
        if not read.outcome.done():
            self.check_usable()
        return read.outcome.done()

    def _read_alone(self) -> Made | None:
        with self._turn(Deadline(None)):
            return self._next(Deadline(None))

    @contextmanager
    def _turn(self, deadline: Deadline) -> Iterator[None]:
        """Excludes other threads. `close` leaves it to the last of them to close the file."""
        thread = threading.get_ident()
        if self._reading_thread == thread:
            raise RuntimeError("a signal handler can't read from a decoder that its thread is reading")
        try:
            if not self._lock.acquire(timeout=deadline.at_most(threading.TIMEOUT_MAX)):
                raise deadline.late("another thread was reading, and no frame was decoded")
            self._reading_thread = thread
            self.check_usable()
            entered_s = self._times.enter()
            try:
                yield
            finally:
                self._times.leave(entered_s)
        finally:  # a signal handler may have raised right behind `acquire`
            if self._reading_thread == thread:
                self._reading_thread = None
            with suppress(RuntimeError):  # another thread has the lock
                self._lock.release()
            if self._is_closed:
                self._release()

    def _next(self, deadline: Deadline) -> Made | None:
        if self._is_torn:
            self._go_back()
        try:
            return self._made(deadline)
        except BaseException as error:
            self._is_torn = not isinstance(error, PenstockError)
            raise

    def _made(self, deadline: Deadline) -> Made | None:
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
        return Made(begun.number, begun.pts, memory)

    def _go_back(self) -> None:
        """Goes on behind the frame that was given last: of those that were begun, some may be lost."""
        self._begun.clear()
        self._read = self._made_so_far
        self._ahead = self._failure = None
        self._is_fed = self._read == self._most
        self._sequence.resume(self._read, None if self._last is None else self._last.pts)
        self._is_torn = False

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
                    self._begun.append(_Begun(frame.index, frame.pts, self._pixels.begin(frame.samples)))
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
                raise deadline.late(_LATE)

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
            self._sequence.end(track) if frames else End(why_no_frames(track.media, self.plan.options.start))
        )
        if end.reason is not None:
            after = f", after {plural(frames, 'frame')}" if frames else ""
            self._failure = DecoderError(f"{track.media.path}: {end.reason}{after}", frames=frames)
        self.warning, self._is_fed = end.warning, True

    pid = policy = None

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the file, or lets the thread do it that reads. May be called again, also by a signal handler."""
        self._is_closed = True
        if not self.is_inherited:
            if not self._closing.done():
                self._closing.set_result(None)
            self._release()

    def end_collected(self) -> None:
        """Closes the file when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        if self.is_closed:
            return
        if self._given and not self.is_at_end:
            warnings.warn(f"{self.plan.title} was never closed", ResourceWarning, source=self, stacklevel=2)
        self.close()

    def _release(self) -> None:
        if self._reading_thread == threading.get_ident():
            return  # this is a signal handler, and the read that it interrupts closes the file
        while self._is_closed and not self._is_released and self._lock.acquire(blocking=False):
            try:
                if self._is_released:
                    return  # a signal handler has done it, right behind `acquire`
                self._is_released = True
                self._begun.clear()
                self._times.end()
                self._sequence.close()
                self._pixels.close()
                if self._worker is not None:
                    self._worker.end()
            finally:
                self._lock.release()


class _Times:
    """What the time since the first read was spent on."""

    def __init__(self) -> None:
        self.reading_s = self.decoding_s = self.away_s = 0.0
        self._begun_s: float | None = None
        self._left_s: float | None = None
        self._ended_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first read, until the end."""
        if self._begun_s is None:
            return 0.0
        return (self._ended_s or time.perf_counter()) - self._begun_s

    def enter(self) -> float:
        """Begins to count a call of the reader, and adds the time since the last one. Returns what `leave` needs."""
        entered_s = time.perf_counter()
        if self._begun_s is None:
            self._begun_s = entered_s
        elif self._left_s is not None:
            self.away_s += entered_s - self._left_s
        return entered_s

    def leave(self, entered_s: float) -> None:
        """Ends the count of a call."""
        self._left_s = time.perf_counter()
        self.reading_s += self._left_s - entered_s

    def end(self) -> None:
        """Stops the clock."""
        if self._begun_s is not None and self._ended_s is None:
            self._ended_s = self._left_s
