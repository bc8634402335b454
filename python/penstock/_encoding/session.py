"""A running FFmpeg that encodes: its start, what it is fed, how it ends, and what its result lacks."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock._common import exits
from penstock._common.deadline import Deadline
from penstock._common.log import logger
from penstock._common.messages import in_short, warn
from penstock._common.progress import Reporter
from penstock._common.reports import EncodeReport, EncoderStats
from penstock._encoding.advice import explain
from penstock._encoding.feed import feed_of
from penstock._encoding.judging import EMPTY, Findings, Judge
from penstock._encoding.output import Destination, ReplacedError
from penstock._encoding.plan import EncodePlan
from penstock._encoding.timing import FrameTimeCheck
from penstock._ffmpeg.program.process import (
    FFmpegProcess,
    Session,
    warn_unclosed,
)
from penstock._native import Writer
from penstock.errors import (
    BrokenStreamError,
    ClosedError,
    EncoderError,
    PenstockError,
    StalledError,
)

if TYPE_CHECKING:
    pass

# Where no caller waits for FFmpeg (at exit, after an exception), FFmpeg is killed after so long without a sign of life.
# The same as the native writers give a reader at exit.
STUCK_S = 5.0

FULL = "FFmpeg hasn't read enough from the queue"
NOT_DONE = "FFmpeg has all frames, but is still encoding"


class EncodeSession(Session):
    """A running FFmpeg that encodes the frames of `plan`.

    Attributes:
        time_check: where the frames come from.
        feed: what FFmpeg is fed.
        judge: what says what the result lacks.
        outcome: the result of `close`, or why there is none, which every later call raises: a `ClosedError` after
            `abort`. None until then.
    """

    kind = "encoder"
    error = EncoderError

    def __init__(
        self, plan: EncodePlan, *, title: str, reporter: Reporter | None, time_check: FrameTimeCheck
    ) -> None:
        self.destination = destination = Destination(plan.output)
        process = FFmpegProcess(
            plan.program,
            [*plan.arguments[:-1], destination.url],
            plan.request.settings.ffmpeg_policy,
            is_fed=True,
            is_strict=True,
            stdout=destination.stdout,
            with_warnings=True,
            fifo=destination.fifo,
            error=EncoderError,
        )
        super().__init__(process, title, plan.request.settings.stall_timeout, destination.new_file)
        self.plan, self.time_check = plan, time_check
        self.feed = feed_of(plan)
        self.judge = Judge(plan, time_check, self.feed, process, destination)
        self.outcome: EncodeReport | PenstockError | None = None
        self._reporter = reporter
        self._closing_at_s: float | None = None
        self._close_lock = threading.RLock()  # a signal handler may close in a `close`

    def connect(self) -> None:
        self.feed.start(self.process.stdin)
        self.destination.start(self.process)
        if self._reporter is not None:
            self._reporter.start(_stats_of(weakref.ref(self)))

    def disconnect(self) -> None:
        self.feed.end()
        self.destination.leave(self.process)

    @property
    def writer(self) -> Writer:
        """The native writer that feeds FFmpeg."""
        return self.feed.writer

    @property
    def report(self) -> EncodeReport | None:
        """The result of `close`; None before, and if it failed."""
        return self.outcome if isinstance(self.outcome, EncodeReport) else None

    @property
    def is_aborted(self) -> bool:
        return isinstance(self.outcome, ClosedError)

    @property
    def stats(self) -> EncoderStats:
        writer, process, feed = self.writer.stats, self.process, self.feed
        elapsed_s, submitted = process.elapsed_s, feed.submitted
        fed_s = elapsed_s if self._closing_at_s is None else self._closing_at_s
        fps = process.frames / elapsed_s
        # A closed writer stopped counting what FFmpeg reads. With a report, FFmpeg has read everything.
        read_bytes = writer.bytes_delivered if self.report is None else writer.bytes_accepted
        return EncoderStats(
            frames_submitted=submitted,
            frames_written=feed.frames_until(read_bytes),
            frames_encoded=process.frames,
            bytes_written=read_bytes,
            output_bytes=process.output_bytes,
            elapsed_s=elapsed_s,
            fps=fps,
            speed=float(feed.video_s) * process.frames / max(1, submitted) / elapsed_s,
            caller_wait_s=writer.caller_wait_s + feed.waited_s,
            output_wait_s=writer.output_wait_s,
            input_wait_s=max(0.0, fed_s - writer.busy_s - feed.filling_s),
            converting_s=writer.converting_s + feed.filling_s,
            writer=writer,
            clipped_samples=feed.clipped_samples,
        )

    @property
    def submitted(self) -> int:
        return self.feed.submitted

    def check_open(self) -> None:
        """Checks that frames are still accepted."""
        if self.outcome is None:
            self.check_owner()
            if self.plan.is_one_picture and self.submitted:
                raise ValueError(
                    f"{self.plan.output.name} holds one picture. Use a name such as frames/%05d.png"
                )
        elif isinstance(self.outcome, EncodeReport):
            raise ClosedError("the encoder is closed")
        else:
            # The same exception is raised by every later call, and would collect a traceback of each.
            raise self.outcome.with_traceback(None)

    def close(self, timeout: float | None, *, reads_back: bool = True) -> EncodeReport:
        """Delivers what is queued and waits for FFmpeg's end. Can be called again after a `StalledError`.

        Args:
            reads_back: the file is compared with the plan.
        """
        deadline = Deadline(timeout)
        if self.outcome is None:
            self.check_owner()
            with self.logged_stalls():
                self._finish(deadline, reads_back=reads_back)
        if isinstance(self.outcome, EncodeReport):
            return self.outcome
        assert self.outcome is not None
        raise self.outcome.with_traceback(None)

    def _finish(self, deadline: Deadline, *, reads_back: bool) -> None:
        self.note_all_submitted()
        if reads_back and self.writer.stats.bytes_pending:
            Findings.prepared()  # while FFmpeg reads what is queued
        self._deliver(deadline)
        self.process.close_pipes()
        findings = Findings.prepared() if reads_back else Findings()  # while FFmpeg ends
        self.wait_for(self._await_file, deadline, NOT_DONE)
        if not self.process.has_ended:
            findings = self.judge.read_back(findings)  # while FFmpeg exits
        self.wait_for(self._await_end, deadline, NOT_DONE)
        # Several threads may come here, or a signal handler in one of the waits above. The first ends it.
        with self._close_lock:
            if self.outcome is None:
                self._end(findings)

    def note_all_submitted(self) -> None:
        """Notes that the caller has no more frames: from now on, an exception makes the video no shorter."""
        if self._closing_at_s is None:
            self._closing_at_s = self.process.elapsed_s

    def _end(self, findings: Findings) -> None:
        """Checks the file once FFmpeg has exited, and moves it into place. Stores what came of it."""
        process, destination = self.process, self.destination
        if not process.has_succeeded or process.frames != self.submitted or self.judge.lost():
            self._fail()
            return
        findings = self.judge.read_back(findings)
        if self.outcome is not None:  # of a signal handler
            return
        try:
            # Before `_mark_ended`, which takes a file that is not in its place for an unfinished one.
            destination.put_in_place(process, is_blended=self.judge.has_blended_frames)
        except ReplacedError as error:
            self._fail(str(error))
            return
        self._mark_ended()
        missing = self.judge.missing(findings)
        self.outcome = self._make_report(missing)
        for what in missing:
            warn(what)

    def abort(self) -> None:
        """Kills FFmpeg, drops what is queued, and removes what FFmpeg has written. Does nothing after the end."""
        self._kill(is_kept=False)

    def cut_off(self, error: BaseException | None) -> None:
        """Kills FFmpeg and drops what is queued, while `error` propagates. Does nothing after the end.

        What FFmpeg has written is left, and a note of `error` says where.
        """
        self._kill(is_kept=True)
        if error is not None and self.is_aborted and (left := self.destination.left_part):
            error.add_note(left)
            if not isinstance(error, Exception | KeyboardInterrupt):  # whose notes hardly anybody sees
                warn(left)

    def _kill(self, *, is_kept: bool) -> None:
        if not self.is_open or self.is_inherited:
            return
        # Before FFmpeg ends: a thread that this wakes from a write then finds why.
        self.outcome = ClosedError("the encoder was aborted")
        self.process.end()
        if not is_kept:
            self.destination.discard()
        self._mark_ended()

    def finish(self, *, reads_back: bool = True) -> Exception | None:
        """Closes, or kills an FFmpeg that is stuck. Returns the error instead of raising it.

        Unless `close` was called before, nobody has said that the frames are all: an old file stays.
        """
        self.feed.limit_waits(STUCK_S / 2)
        self.limit_stalls(STUCK_S)
        self.destination.is_cut_short = self._closing_at_s is None
        try:
            self.close(None, reads_back=reads_back)
        except (PenstockError, OSError) as error:
            self.cut_off(None)
            return error
        return None

    def finish_during(self, error: BaseException) -> None:
        """Finishes the video while `error` propagates. A note of `error` says where it is, or why it is not."""
        was_closed = self.report is not None
        failure = self.finish()
        if failure is not None:
            if not isinstance(error, EncoderError):  # which says it already
                error.add_note(self._unfinished(failure))
        elif not was_closed and self.destination.is_cut_short:
            error.add_note(where := self.destination.whereabouts(self.submitted))
            if self.destination.keeps_old_file:
                logger.warning("%s was cut short: %s", self.title, where)
                if not isinstance(error, Exception | KeyboardInterrupt):  # whose notes hardly anybody sees
                    warn(where)

    def _unfinished(self, failure: Exception) -> str:
        """A note on why the video could not be finished, in one line: the exception above it is usually the cause."""
        if not self.submitted:
            return f"and {EMPTY}"
        why, left_part = in_short(failure), self.destination.left_part
        left = "" if left_part is None or left_part in why else f". {left_part}"
        return f"and {self.title} couldn't be finished: {why}{left}"

    def finish_forgotten(self) -> None:
        """Finishes the video of an encoder that was collected. A failure becomes a `RuntimeWarning`."""
        # Python hides a ResourceWarning by default, and frames were lost, or are not where they were to be.
        if (loss := self._loss(self.finish())) is not None:
            warnings.warn(loss, RuntimeWarning, stacklevel=2)

    def end_collected(self) -> None:
        """Finishes in the background, when the garbage collector takes the encoder."""
        if not self.is_open or self.is_inherited:
            return
        if sys.is_finalizing():
            # A thread would not start, and before Python 3.12 its `start` waits for ever. FFmpeg sees the end of its
            # input and finishes alone.
            self.process.close_pipes()
            return
        try:
            # A finalizer runs on any thread, inside any call, and FFmpeg may take long.
            threading.Thread(target=self.finish_forgotten, name="penstock-encoder-finish").start()
        except RuntimeError:  # the interpreter is about to exit, or no thread is left
            self.process.close_pipes()
        warn_unclosed(self)

    def end_at_exit(self) -> None:
        # Nothing can be imported any more.
        if (loss := self._loss(self.finish(reads_back=False))) is not None:
            exits.report_loss(loss)
        warn_unclosed(self)

    def _loss(self, failure: Exception | None) -> str | None:
        """What an encoder that was never closed lost, in a sentence; None if all is where it was to be."""
        if failure is not None:
            return f"{self.title} couldn't be finished: {failure}"
        if self.destination.keeps_old_file:
            return f"{self.title} was never closed: {self.destination.whereabouts(self.submitted)}"
        return None

    def progress(self) -> str:
        return f"encoded {self.process.frames} frames"

    def _deliver(self, deadline: Deadline) -> None:
        if self.writer.closed:
            return
        try:
            self.wait_for(self.feed.finish, deadline, FULL)
            # After a late flush the writer stays open, so that a second `close` can continue.
            self.wait_for(self.writer.flush, deadline, FULL)
            self.writer.close()
        except ClosedError:  # another thread has done it
            if self.is_aborted:
                self.check_open()
        except BrokenStreamError as broken:
            raise self.failed() from broken

    def _await_file(self, timeout_s: float) -> None:
        if not self.process.wait_until_done(timeout_s):
            raise StalledError(NOT_DONE, timeout_s)

    def _await_end(self, timeout_s: float) -> None:
        deadline = Deadline(timeout_s)
        if not (self.process.wait(timeout_s) and self.destination.wait(deadline.at_most(timeout_s))):
            raise StalledError(NOT_DONE, timeout_s)

    def failed(self) -> PenstockError:
        """The error of an FFmpeg that reads no more, once it has ended."""
        if self.outcome is None:
            self.check_owner()
            # FFmpeg has said everything only when it has ended, and ends when its input does.
            self.writer.abort()
            self.process.close_pipes()
            self.process.wait_unless_stuck(STUCK_S)
            with self._close_lock:
                if self.outcome is None:
                    self._fail()
        if isinstance(self.outcome, EncodeReport):  # of another thread
            return ClosedError("the encoder is closed")
        assert self.outcome is not None
        return self.outcome.with_traceback(None)

    def _fail(self, reason: str | None = None) -> None:
        """Stores the failure of an FFmpeg that has ended, with why, if FFmpeg has succeeded."""
        self._mark_ended()
        process, submitted = self.process, self.submitted
        ending = f"FFmpeg encoded {process.frames} of {submitted} frames and {process.ending}"
        advice = None
        with suppress(OSError):  # a shortage, which must not hide the failure
            advice = explain(self.plan, f"{process.log.text}\n{ending}")
        left = self.destination.left_part if reason is None else None
        reasons = [*self.judge.lost(), reason, ending, left]
        self.outcome = self.failure(". ".join(filter(None, reasons)), process.frames, advice)

    def _make_report(self, missing: list[str]) -> EncodeReport:
        # FFmpeg has succeeded. Its errors may still matter more than its warnings.
        messages = (*missing, *self.process.log.errors, *self.process.log.warnings)
        for line in messages:
            logger.warning("FFmpeg: %s", line)
        plan, destination = self.plan, self.destination
        submitted, elapsed_s = self.submitted, self.process.elapsed_s
        return EncodeReport(
            output=destination.name,
            frames_submitted=submitted,
            frames_encoded=self.process.frames,
            samples_submitted=self.feed.samples,
            bytes_submitted=submitted * self.plan.frames.frame_bytes,
            output_bytes=destination.nbytes,
            elapsed_s=elapsed_s,
            fps=self.process.frames / elapsed_s,
            warnings=(
                *self.time_check.lost,
                *plan.warnings,
                *filter(None, [destination.warning]),
                *messages,
            ),
            codec=plan.codec,
            skipped_encoders=self.plan.skipped_encoders,
            clipped_samples=self.feed.clipped_samples,
        )

    def _mark_ended(self) -> None:
        self.mark_closed()
        self.feed.end()
        self.destination.leave(self.process)
        if self._reporter is not None:
            self._reporter.stop(self.stats)


def _stats_of(session: weakref.ref[EncodeSession]) -> Callable[[], EncoderStats | None]:
    """Gives the statistics of an open session, and does not keep it from being collected."""

    def look() -> EncoderStats | None:
        alive = session()
        return None if alive is None or not alive.is_open else alive.stats

    return look
