"""One run of FFmpeg: its start, signs of life, stalls and failure, and what happens to it at exit and in a fork.

`EncodeSession` and `DecodeSession` are sessions with the native worker that feeds FFmpeg, or reads from it.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from penstock import _exit
from penstock._log import logger
from penstock.errors import ClosedError, FFmpegError, StalledError
from penstock.ffmpeg.program import capabilities
from penstock.ffmpeg.program.process import FFmpegProcess, Watch

if TYPE_CHECKING:
    from penstock._asyncio import Watchable

R = TypeVar("R")

# How often a wait checks FFmpeg's signs of life. Chosen: much shorter than any `stall_timeout`.
LOOK_INTERVAL_S = 0.5


class Session:
    """A running FFmpeg and the native worker at its pipe. `title` is the ``repr`` of the owner.

    Attributes:
        is_open: it was started, and neither closed nor aborted.
        makes: the one new file that FFmpeg writes under its own name, without links; None if there is none.
    """

    #: What the owner is, for messages.
    kind: ClassVar[str]
    error: ClassVar[type[FFmpegError]]

    def __init__(self, process: FFmpegProcess, title: str, stall_timeout: float | None) -> None:
        self.process = process
        self.title = title
        self.is_open = False
        self.makes: Path | None = None
        self._stall_timeout = stall_timeout
        self._forks = _exit.forks

    def start(self) -> None:
        """Starts FFmpeg and the worker. Nothing is left running if this raises."""
        try:
            self.process.start()
            self.connect()
            self.is_open = True
            _open_sessions.add(self)
            # Before writers are drained: a slow FFmpeg that is alive is waited for, where a stalled pipe is not.
            _exit.at_exit(_end_all, 2)
        except BaseException:  # for example of a signal handler
            self.discard()
            raise

    def discard(self) -> None:
        """Kills FFmpeg and drops everything."""
        self.mark_closed()
        self.process.end()
        self.disconnect()

    def connect(self) -> None:
        """Makes the native worker. FFmpeg runs."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Ends the native worker, if there is one, without waiting for FFmpeg."""
        raise NotImplementedError

    def end_at_exit(self) -> None:
        """Called when the interpreter exits and the session is still open."""
        raise NotImplementedError

    @property
    def is_inherited(self) -> bool:
        """Whether a fork copied the session into this process. FFmpeg belongs to the parent."""
        return self._forks != _exit.forks

    def mark_closed(self) -> None:
        """Forgets the session at exit."""
        self.is_open = False
        _open_sessions.discard(self)

    def check_owner(self) -> None:
        """Checks that this process started the session."""
        check_owner(self.kind, self._forks)

    def wait_for(self, step: Callable[[float], R], timeout: float | None, late: str) -> R:
        """Waits for `step` as long as FFmpeg shows signs of life.

        Args:
            step: waits for so many seconds at most, and raises `StalledError` if that was too short.
            timeout: seconds to wait; None waits as long as it takes.
            late: what the error says after `timeout`.

        Raises:
            StalledError: after `timeout`, or without a sign of life for ``stall_timeout``.
        """
        start_s = time.monotonic()
        watch: Watch | None = None
        while True:
            left_s = LOOK_INTERVAL_S if timeout is None else start_s + timeout - time.monotonic()
            try:
                return step(max(0.0, min(left_s, LOOK_INTERVAL_S)))
            except StalledError as stalled:
                if timeout is not None and left_s <= LOOK_INTERVAL_S:
                    raise late_error(late, timeout, stalled.bytes_pending) from None
                watch = watch or Watch(self.process)
                self._check_alive(watch, stalled)

    async def wait_for_async(
        self,
        step: Callable[[float], R],
        event: Callable[[], Watchable | None],
    ) -> R:
        """`wait_for` for asyncio: the event loop goes on while this waits. A cancellation takes no step.

        Args:
            event: gives what will end when `step` may succeed; None if it may at once.
        """
        watch: Watch | None = None
        while True:
            try:
                return step(0.0)
            except StalledError as error:
                stalled = error
            watch = watch or Watch(self.process)
            await _until(event(), LOOK_INTERVAL_S)
            self._check_alive(watch, stalled)

    @contextmanager
    def logged_stalls(self) -> Iterator[None]:
        """Logs the `StalledError` that a caller gets, unless its timeout was 0."""
        try:
            yield
        except StalledError as stalled:
            if stalled.seconds > 0:
                logger.warning("%s stalled: %s", self.title, str(stalled))
            raise

    def failure(self, reason: str, frames: int, advice: str | None = None) -> FFmpegError:
        """The error of an FFmpeg that failed: `reason`, FFmpeg's output, `advice` and the command."""
        process = self.process
        advice = capabilities.too_old(process.command[0]) or advice
        lines = [reason, f"FFmpeg said: {process.log.text or '(nothing)'}"]
        if advice is not None:
            lines.append(f"what to do: {advice}")
        lines += (f"FFmpeg warned: {line}" for line in process.log.warnings)
        lines.append(f"command: {shlex.join(process.command)}")
        return self.error(
            "\n".join(lines),
            reason=reason,
            returncode=process.returncode,
            command=process.command,
            stderr=process.log.text,
            frames=frames,
            advice=advice,
        )

    def progress(self) -> str:
        """How far FFmpeg is, for the error about a stall."""
        raise NotImplementedError

    def _check_alive(self, watch: Watch, stalled: StalledError) -> None:
        idle_s = watch.idle_s()
        if self._stall_timeout is None or idle_s < self._stall_timeout:
            return
        output = self.process.log.text and f"\nFFmpeg said: {self.process.log.text}"
        raise StalledError(
            f"FFmpeg gave no sign of life for {idle_s:.1f} s; it had {self.progress()}{output}",
            idle_s,
            stalled.bytes_pending,
        )


def check_owner(kind: str, forks: int) -> None:
    """Checks that no fork lies between this process and the one in which ``_exit.forks`` was `forks`."""
    if forks != _exit.forks:
        raise ClosedError(f"the {kind} belongs to the process that made it, of which this one is a fork")


def late_error(late: str, timeout: float, bytes_pending: int) -> StalledError:
    return StalledError(f"{late} within {timeout:.3g} s", timeout, bytes_pending)


def warn_unclosed(session: Session) -> None:
    """Warns that the owner of `session` was never closed."""
    warnings.warn(f"{session.title} was never closed", ResourceWarning, source=session, stacklevel=3)


async def _until(event: Watchable | None, timeout_s: float) -> None:
    import asyncio  # a program that awaits has it; for others it takes long

    from penstock._asyncio import until_done

    if event is None:
        await asyncio.sleep(0)
        return
    # Not asyncio.wait_for, which before Python 3.12 may swallow a cancellation.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await until_done(event)


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def is_unfinished(path: str) -> bool:
    """Whether an open session makes the file at `path`."""
    real = Path(os.path.realpath(path))
    return any(session.makes == real for session in list(_open_sessions))


def _end_all() -> None:
    """Ends all sessions. One that raises, by Ctrl-C or a warning that is an error, is discarded; the others go on."""
    failures: list[BaseException] = []
    for session in list(_open_sessions):
        if not session.is_inherited:
            try:
                session.end_at_exit()
            except BaseException as failure:
                failures.append(failure)
                is_cut_off = session.is_open
                session.discard()
                if is_cut_off:
                    _exit.report_loss(f"{session.title} was cut off: {failure!r}")
    for raised in failures:
        sys.excepthook(type(raised), raised, raised.__traceback__)
