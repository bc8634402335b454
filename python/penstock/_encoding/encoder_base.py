"""The base of `Encoder`: the start and the end of its FFmpeg."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Self
from weakref import WeakKeyDictionary

from penstock._common import exits
from penstock._common.messages import warn
from penstock._common.ownership import check_owner
from penstock._common.progress import Reporter
from penstock._common.reports import Bottleneck, EncodeReport, EncoderStats
from penstock._common.types import FrameData
from penstock._encoding.frame_check import frame_buffer, frame_size
from penstock._encoding.intake import Intake
from penstock._encoding.listed import by_quickest
from penstock._encoding.plan import EncodePlan, plan
from penstock._encoding.rehearsal import needs_rehearsal, working_plan
from penstock._encoding.request import Request
from penstock._encoding.session import EncodeSession
from penstock._encoding.timing import FrameTimeCheck
from penstock._native import AppliedPolicy
from penstock.errors import ClosedError, EncoderError

if TYPE_CHECKING:
    import asyncio


class EncoderBase:
    """An FFmpeg that encodes, which starts at once, or when the size of the frames is known."""

    _plan: EncodePlan
    _intake: Intake  # set by `_start`
    _reporter: Reporter | None = None

    @classmethod
    def _planned(cls, made: EncodePlan) -> Self:
        """The encoder whose arguments were planned before."""
        encoder = cls.__new__(cls)
        encoder._begin(made, made.request.size is not None)
        return encoder

    def _begin(self, made: EncodePlan, is_ready: bool, time_check: FrameTimeCheck | None = None) -> None:
        self._started: EncodeSession | None = None
        # For the start, and for the end of an encoder that has not started. A signal handler may `abort` in a start.
        self._starting = threading.RLock()
        self._start_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._forks = exits.forks
        self._ended_unstarted: str | None = None
        self._time_check = time_check or FrameTimeCheck()
        self._plan = made
        for lost in made.warnings:
            warn(lost)
        self._reporter = Reporter.of(made.request.progress, made.rate)
        if is_ready:
            self._start(made)

    @property
    def report(self) -> EncodeReport | None:
        """The result of ``close``, also after the ``with`` block closed the encoder; None before."""
        return None if self._started is None else self._started.report

    @property
    def stats(self) -> EncoderStats:
        """Progress so far: frames submitted, written and encoded, and the seconds spent on waits."""
        return EncoderStats() if self._started is None else self._started.stats

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The slowest part so far: ``"caller"``, ``"conversion"`` or ``"ffmpeg"``.

        None if no part clearly is, and before the first frame.
        """
        return self.stats.bottleneck

    @property
    def pid(self) -> int | None:
        """Process id of FFmpeg; None before FFmpeg has started."""
        return None if self._started is None else self._started.process.pid

    @property
    def ffmpeg_policy(self) -> AppliedPolicy | None:
        """The thread policy that FFmpeg started with; None if the settings have none, or before FFmpeg has started."""
        return None if self._started is None else self._started.process.policy

    @property
    def closed(self) -> bool:
        """Whether the encoder refuses frames: after ``close``, ``abort``, a failure of FFmpeg, or a fork."""
        if self._started is None:
            return self._ended_unstarted is not None or self._forks != exits.forks
        return not self._started.is_open or self._started.is_inherited

    def close(self, timeout: float | None = None) -> EncodeReport:
        """Finishes the video: delivers the queued frames, ends FFmpeg's input and waits until FFmpeg exits.

        Another call returns the same report, or raises the same error. Ctrl-C interrupts the wait. After that, you can
        close the encoder again, or abort it.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            EncoderError: if FFmpeg failed, or encoded a different number of frames than you submitted; if an output of
                FFmpeg's ``tee`` muxer failed without ``onfail=ignore``; or if no frame was written.
            StalledError: if FFmpeg isn't done within `timeout`, or shows no sign of life for ``stall_timeout``. Nothing
                is lost: close again, or abort to drop the video.
            ClosedError: if the encoder was aborted.
        """
        if self._end_unstarted("the encoder is closed"):
            raise EncoderError(
                "there is no video, because no frame was written. Call encoder.write(frame) first"
            )
        return self._session.close(timeout)

    def abort(self) -> None:
        """Kills FFmpeg and drops the video: the queued frames, and the file that FFmpeg has written so far.

        An existing file stays as it was, unless it is overwritten in place. Several files (HLS, image sequences) and
        data that was sent elsewhere also stay. Does nothing after ``close``.
        """
        with suppress(ClosedError):  # it has ended, or belongs to the parent of this process
            if not self._end_unstarted("the encoder was aborted"):
                self._session.abort()

    def _cut_off(self, error: BaseException | None) -> None:
        """Kills FFmpeg while `error` propagates, and leaves what it has written, as the session does."""
        with suppress(ClosedError):  # it belongs to the parent of this process
            self._session.cut_off(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, exc: BaseException | None, _traceback: object) -> None:
        if self._started is None:
            if exc is not None:
                self.abort()
            elif self._ended_unstarted is None:
                self.close()
            return
        if self._started.is_aborted:
            return
        try:
            if exc is None:
                self._close_despite_ctrl_c()
            else:
                self._session.finish_during(exc)
        except BaseException as error:  # a second Ctrl-C, for example: nothing is left running
            self._cut_off(error)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _type: object, exc: BaseException | None, _traceback: object) -> None:
        import asyncio  # slow to import; a program that uses asyncio has done so

        exiting = asyncio.ensure_future(asyncio.to_thread(self.__exit__, None, exc, None))
        try:
            await asyncio.shield(exiting)
        except asyncio.CancelledError as cancelled:
            await self._continue_exit(exiting, cancelled, is_second=isinstance(exc, asyncio.CancelledError))
            raise cancelled from None

    async def _continue_exit(
        self, exiting: asyncio.Future[None], cancelled: BaseException, *, is_second: bool
    ) -> None:
        """After a cancellation, which is asyncio's Ctrl-C: the first lets the video finish, the second aborts."""
        import asyncio

        if not is_second:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(exiting)
        if not exiting.done():
            # `abort` makes the thread end with an error. Retrieve it, or asyncio reports it as never retrieved.
            exiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.to_thread(self._cut_off, cancelled)

    def __del__(self) -> None:
        # A constructor that has raised leaves an object without the attribute.
        if getattr(self, "_started", None) is not None:
            self._session.end_collected()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an encoder can't be copied or pickled, because it has a running FFmpeg")

    def __repr__(self) -> str:
        return self._titled("(not started)") if self._started is None else self._started.title

    @property
    def _session(self) -> EncodeSession:
        if self._started is None:
            self._check_unstarted()
            raise ValueError(
                "the encoder has no size yet, because it starts with its first frame. Pass size=(width, height), or "
                "write a frame first"
            )
        return self._started

    async def _start_in_loop(self, frame: FrameData | None = None, timeout: float | None = None) -> Intake:
        """`_intake_for` for asyncio: the event loop goes on during a start."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        loop = asyncio.get_running_loop()
        if self._started is None or loop in self._start_locks:
            async with self._start_locks.setdefault(loop, asyncio.Lock()):  # in the order of the calls
                if self._started is None:
                    await asyncio.to_thread(self._intake_for, frame, timeout)
        return self._intake_for(frame, timeout)

    def _intake_for(self, frame: FrameData | None = None, timeout: float | None = None) -> Intake:
        """What takes frames. FFmpeg starts now if it has not, and `frame` or the request has the size."""
        if self._started is None and (frame is not None or self._plan.request.size is not None):
            check_owner("encoder", self._forks)
            with self._starting:
                if self._started is None:
                    self._check_unstarted()
                    checked = self._plan
                    size = checked.request.size or frame_size(
                        frame, checked.pixel_format, checked.input_layout
                    )
                    made = working_plan(
                        checked.request, size, timeout, checked.beside, is_like=self._time_check.is_like
                    )
                    for lost in made.warnings:
                        if lost not in checked.warnings:
                            warn(lost)
                    if frame is not None:  # before FFmpeg overwrites the output
                        frame_buffer(frame, made.frames, input_layout=made.input_layout)
                    self._plan = made
                    self._start(made)
        _ = self._session  # which must be there
        return self._intake

    def _start(self, plan: EncodePlan) -> None:
        title = self._titled(f"{plan.frames.width}x{plan.frames.height}")
        session = EncodeSession(plan, title=title, reporter=self._reporter, time_check=self._time_check)
        try:
            session.start()
            self._intake, self._started = Intake(session), session
            if (warning := session.destination.warning) is not None:
                warn(warning)
            if self._ended_unstarted is not None:  # by a signal handler
                session.abort()
        except BaseException:  # for example of a signal handler
            session.discard()
            raise

    def _titled(self, size: str) -> str:
        plan = self._plan
        return f"<{type(self).__name__} {plan.output.name!r} {f'{size} {plan.pixel_format}'.strip()}>"

    def _end_unstarted(self, why: str) -> bool:
        """Ends an encoder that has not started. Returns False if it has started."""
        if self._started is None:
            check_owner("encoder", self._forks)  # another thread of the parent may have held the lock
            with self._starting:
                if self._started is None:
                    self._check_unstarted()
                    self._ended_unstarted = why
                    return True
        return False

    def _check_unstarted(self) -> None:
        check_owner("encoder", self._forks)
        if self._ended_unstarted is not None:
            raise ClosedError(self._ended_unstarted)

    def _close_despite_ctrl_c(self) -> None:
        try:
            self.close()
        except KeyboardInterrupt as interrupt:
            # Finish a playable file of what was submitted. A second Ctrl-C propagates.
            self._session.finish_during(interrupt)
            raise


def first_plan(request: Request, *, is_like: bool = False) -> tuple[EncodePlan, bool]:
    """A plan to begin with, and whether the encoder can start by it. Frames may have to tell the size before.

    In an event loop, which a rehearsal would hold up, the plan is only checked. It is tried at the first ``await``.
    """
    size = request.size
    request, beside = by_quickest(request)
    if size is not None and _is_in_loop() and needs_rehearsal(made := plan(request, size, beside)):
        return working_plan(request, None, beside=made.beside), False
    return working_plan(request, size, beside=beside, is_like=is_like), size is not None


def _is_in_loop() -> bool:
    """Whether an event loop runs on this thread."""
    asyncio = sys.modules.get("asyncio")  # slow to import, and without it there is no loop
    return asyncio is not None and asyncio._get_running_loop() is not None
