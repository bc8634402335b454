"""A running FFmpeg: its start, progress and signs of life, whether it succeeded, and its end at exit and in a fork."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from errno import ENXIO
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, TypeVarTuple, Unpack

from penstock._common import exits
from penstock._common.deadline import Deadline
from penstock._common.log import logger
from penstock._common.ownership import Owned
from penstock._common.types import Priority
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.child import Child, Flag, Lines, NotStartedError
from penstock._ffmpeg.program.messages import StderrLog
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._native import ThreadPolicy
from penstock._platform import programs
from penstock._platform.programs import Program
from penstock.errors import DecoderError, FFmpegError, StalledError

if TYPE_CHECKING:
    from penstock._common.event_loops import Watchable

# Guessed: longer lines are cut, so that what is kept stays bounded.
_LINE_BYTES = 4096
UNATTENDED_CHECK_INTERVAL_S = 0.1
# AV_LOG_INFO in libavutil.
_INFORMATION = 32


class FFmpegProcess(Child):
    """An FFmpeg that we write frames to, or read frames from.

    The child's thread reads its standard error, because FFmpeg blocks when that pipe is full, and its progress report.

    Args:
        program: path of FFmpeg.
        arguments: its arguments, without those for logging and progress; or a function that returns them, given the
            URL of an additional pipe that FFmpeg writes to and whose other end is `side`.
        policy: the priority and CPUs to start it with.
        is_fed: whether we write to its standard input, `stdin`. Otherwise it reads /dev/null: it must not inherit our
            standard input, from which it would take commands.
        is_strict: whether it exits at the first error (``-xerror``) instead of going on.
        stdout: its standard output: ``subprocess.PIPE`` for us, ``subprocess.DEVNULL``, or None to inherit ours.
        fifo: the FIFO that it writes to; None if it writes to none.
        sandbox: what it may do; None if it may do all.
        with_warnings: whether `log` has warnings, too. Otherwise it has what decoders conceal, unless FFREPORT is set.
        error: the class to raise if it cannot be started.

    Attributes:
        frames: encoded frames, from FFmpeg's progress report, which comes twice a second.
        output_bytes: written bytes, from the same report; None if it does not say.
        is_complete: whether FFmpeg has reported ``progress=end``.
        waiting: what `waits_for` returned when it was started.
        log: what it wrote to its standard error.
        stdin, stdout, side: our ends of these pipes. Use their descriptors only, not their ``read`` and ``write``.
    """

    stdin: FileIO
    stdout: FileIO
    side: FileIO

    def __init__(
        self,
        program: str,
        arguments: Sequence[str] | Callable[[str], Sequence[str]],
        policy: ThreadPolicy | Priority | None = None,
        *,
        is_fed: bool = False,
        is_strict: bool,
        stdout: int | None,
        with_warnings: bool = False,
        fifo: Path | None = None,
        sandbox: Sandbox | None = None,
        error: type[FFmpegError],
    ) -> None:
        super().__init__()
        self._program = program
        self._arguments = arguments
        self._policy = policy
        self._is_fed = is_fed
        self._is_strict = is_strict
        self._stdout_of_child = stdout
        # "repeat" has FFmpeg write a line again instead of how often it was repeated.
        self._loglevel = "repeat+level+warning" if with_warnings else "error"
        self._with_warnings = with_warnings
        self._fifo = fifo
        self._sandbox = sandbox
        self._error = error
        self.frames = 0
        self.output_bytes: int | None = None
        self.is_complete = False
        self.waiting: str | None = None
        self._is_done = Flag()
        self.log = StderrLog()

    def start(self) -> None:
        """Starts FFmpeg. Call it in a ``try`` that calls `end`, as for `Child.start`."""
        try:
            super().start()
        except NotStartedError as failure:
            raise self._error(f"FFmpeg couldn't be started: {failure}", command=self.command) from failure

    def spawn(self) -> Program:
        self.waiting = self.waits_for()
        with ExitStack() as child_ends:
            progress = self.captured_channel(Lines(self._take_progress, _LINE_BYTES))
            channels = [child_ends.enter_context(progress)]
            stderr = child_ends.enter_context(self.captured_pipe(Lines(self.log.take, _LINE_BYTES)))
            stdin: int | FileIO = subprocess.DEVNULL
            stdout: int | FileIO | None = self._stdout_of_child
            environment = _environment()
            if self._sandbox is not None:  # without the caller's FFREPORT: it could write none
                environment = self._sandbox.environment(environment)
            if not self._with_warnings and "FFREPORT" not in environment:
                report = self.captured_channel(Lines(self.log.take_report, _LINE_BYTES))
                channels.append(child_ends.enter_context(report))
                environment["FFREPORT"] = f"file={report.path}:level={_INFORMATION}"
            if self._is_fed:
                self.stdin, stdin = self.pipe_to()
                child_ends.enter_context(stdin)
            if stdout == subprocess.PIPE:
                self.stdout, stdout = self.pipe_from()
                child_ends.enter_context(stdout)
            elif stdout is None:
                os.fstat(1)  # if it is closed, its number would go to the first file that FFmpeg opens
            if callable(self._arguments):
                side = self.channel_from()
                channels.append(child_ends.enter_context(side))
                self.side, arguments = side.ours, self._arguments(side.url)
            else:
                arguments = self._arguments
            # Without -xerror, FFmpeg 5.1 exits with 0 if the disk is full at the end of the file.
            strict = ["-xerror"] if self._is_strict else []
            self.command = (
                *(self._program, "-hide_banner", "-nostats", "-loglevel", self._loglevel),
                *("-progress", progress.url, *strict, *arguments),
            )
            return self.popen(
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                channels=channels,
                env=environment,
                policy=self._policy,
                sandbox=self._sandbox,
            )

    def wait_until_done(self, timeout_s: float) -> bool:
        """Waits until FFmpeg has written everything, or has ended. Returns whether that is so.

        The unloading of its libraries takes 2 to 6 ms more (2-core x86-64 VM, 2026-11-26).
        """
        return self._is_done.wait(timeout_s)

    def _live(self) -> None:
        try:
            super()._live()
        finally:
            self._is_done.set()

    @property
    def has_succeeded(self) -> bool:
        """Whether its exit status is 0 and its report is complete. An unknown status is no success."""
        return self.returncode == 0 and self.is_complete

    @property
    def ending(self) -> str:
        """How it ended, as the end of a sentence."""
        unreported = self.has_ended and self.returncode == 0 and not self.is_complete
        return f"{super().ending}{', and did not report that it was done' * unreported}"

    def wait_unless_stuck(self, stuck_s: float) -> None:
        """Waits for FFmpeg to end, and kills it after `stuck_s` seconds without a sign of life."""
        watch = Watch(self)
        while not self.wait(UNATTENDED_CHECK_INTERVAL_S):
            if watch.idle_s() >= stuck_s:
                self.kill()

    def waits_for(self) -> str | None:
        """What FFmpeg waits for that is not ours to give, in a sentence; None if that is nothing that we know."""
        if self._fifo is None:
            return None
        try:
            # It stays open: FFmpeg may not have opened it yet, and the reader sees the end when the last writer goes.
            self.keep_open(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:  # FFmpeg reports others
            if error.errno == ENXIO:
                return f"nobody has opened the FIFO {self._fifo} for reading"
        return None

    def signs_of_life(self) -> tuple[int, int]:
        """Encoded frames and CPU time. While FFmpeg works, at least one of them grows.

        The CPU time tells a slow codec, some of which take many seconds for a frame, from a stuck one.
        """
        return self.frames, programs.cpu_ticks(self.pid)

    def _take_progress(self, line: bytes) -> None:
        if line.rstrip() == b"progress=end":
            self.is_complete = True
            self._is_done.set()
        key, _, value = line.partition(b"=")
        if re.fullmatch(rb"\s*\d{1,19}\s*", value):
            if key == b"frame":
                self.frames = int(value)
            elif key == b"total_size":
                self.output_bytes = int(value)


def reports_of(
    program: str, arguments: Sequence[str], patience_s: float | None, sandbox: Sandbox | None
) -> Counter[str]:
    """What FFmpeg reports when it reads with these arguments and writes nothing, by its lines.

    Raises:
        DecoderError: it could not be started.
    """
    process = FFmpegProcess(
        program, arguments, is_strict=False, stdout=subprocess.DEVNULL, sandbox=sandbox, error=DecoderError
    )
    try:
        process.start()
        process.wait(patience_s)
    finally:
        process.end()
    return process.log.reports


class Watch:
    """Watches an FFmpeg for signs of life."""

    def __init__(self, process: FFmpegProcess) -> None:
        self._process = process
        self._signs = process.signs_of_life()
        self._since_s = time.monotonic()

    def idle_s(self) -> float:
        """Seconds since the last sign of life that a call of this method has seen."""
        now_s = time.monotonic()
        signs = self._process.signs_of_life()
        if signs != self._signs:
            self._signs, self._since_s = signs, now_s
        return now_s - self._since_s


# Of glibc's malloc, for FFmpeg, which allocates a packet for each raw frame, often on one thread, and frees it on
# another. With huge pages, one arena, and no memory given back between frames, there are fewer page faults: 11 instead
# of 772 a frame (rgb24 of 1080p, FFmpeg 7.1). Measured on 2026-11-22, 2-core x86-64 VM, Linux 6.18, against huge pages
# alone: an `Encoder` of raw frames into ``-f null`` is 1.13 (FFmpeg 5.1, 1080p), 1.63 (7.1, 1080p) and 1.16 times (9,
# 2160p) as fast, a `Decoder` of 1080p to yuv420p 1.06 to 1.08 times. x264 and decoding to RGB are equal within the
# spread, as is peak memory. mallopt(3) allows no larger mmap_threshold.
_TUNABLES = {"hugetlb": 1, "arena_max": 1, "mmap_threshold": 32 << 20, "trim_threshold": 256 << 20}


def _environment() -> dict[str, str]:
    """Our environment, without colors, and with our tunables of malloc unless the user tunes it or glibc himself."""
    ours = {}
    if not any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        ours["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items())
    # Colors would come before the levels of FFmpeg's messages.
    return {**os.environ, **ours, "AV_LOG_FORCE_NOCOLOR": "1"}


R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

# How often a wait checks FFmpeg's signs of life. Chosen: much shorter than any `stall_timeout`.
CHECK_INTERVAL_S = 0.5


class Session(Owned):
    """A running FFmpeg and the native worker at its pipe. `title` is the ``repr`` of the owner.

    Attributes:
        is_open: it was started, and neither closed nor aborted.
        new_file: the one new file that FFmpeg writes under its own name, without links; None if there is none.
    """

    error: ClassVar[type[FFmpegError]]

    def __init__(
        self, process: FFmpegProcess, title: str, stall_timeout: float | None, new_file: Path | None = None
    ) -> None:
        super().__init__()
        self.process = process
        self.title = title
        self.is_open = False
        self.new_file = new_file
        self._stall_timeout = stall_timeout

    def start(self) -> None:
        """Starts FFmpeg and the worker. Nothing is left running if this raises."""
        try:
            self.process.start()
            if self.process.waiting is not None:
                logger.warning("%s waits: %s", self.title, self.process.waiting)
            self.connect()
            self.is_open = True
            _open_sessions.add(self)
            # Before writers are drained: a session waits for a slow FFmpeg, and a writer gives up on a stalled pipe.
            exits.at_exit(_end_all, 2)
        except BaseException:  # for example of a signal handler
            self.discard()
            raise

    def discard(self) -> None:
        """Kills FFmpeg and drops everything."""
        self.mark_closed()
        self.process.end()
        self.disconnect()

    def connect(self) -> None:
        """Creates the native worker. Called once FFmpeg runs."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Ends the native worker, if there is one, without waiting for FFmpeg."""
        raise NotImplementedError

    def end_at_exit(self) -> None:
        """Called when the interpreter exits and the session is still open."""
        raise NotImplementedError

    def mark_closed(self) -> None:
        """Marks the session as closed: it is no longer ended at exit."""
        self.is_open = False
        _open_sessions.discard(self)

    def limit_stalls(self, seconds: float) -> None:
        """Gives up an FFmpeg that shows no sign of life for so long, where no caller waits."""
        self._stall_timeout = seconds

    def wait_for(
        self,
        step: Callable[[Unpack[Arguments], float], R],
        deadline: Deadline,
        late: str,
        *arguments: *Arguments,
    ) -> R:
        """Waits for `step` as long as FFmpeg shows signs of life.

        Args:
            step: waits for so many seconds at most, its last argument, and raises `StalledError` if that was too short.
            deadline: until when.
            late: what the error says after that.
            arguments: the arguments of `step` before.

        Raises:
            StalledError: after `deadline`, or without a sign of life for ``stall_timeout``.
        """
        watch: Watch | None = None
        while True:
            try:
                return step(*arguments, deadline.at_most(CHECK_INTERVAL_S))
            except StalledError as stalled:
                if deadline.is_over():
                    raise deadline.late(self.process.waits_for() or late, stalled.bytes_pending) from None
                # Most waits end before the first look at FFmpeg, which reads /proc.
                watch = watch or Watch(self.process)
                self._check_alive(watch, stalled)

    async def wait_for_async(
        self,
        step: Callable[[Unpack[Arguments], float], R],
        event: Callable[[], Watchable | Future[Any] | None],
        *arguments: *Arguments,
    ) -> R:
        """`wait_for` for asyncio: the event loop goes on while this waits. A cancellation takes no step.

        Args:
            event: returns what to wait for before the next `step`; None to try it at once.
        """
        watch: Watch | None = None
        while True:
            try:
                return step(*arguments, 0.0)
            except StalledError as error:
                stalled = error
            watch = watch or Watch(self.process)
            await _until(event(), CHECK_INTERVAL_S)
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
        """The error of an FFmpeg that failed. The message has what to do first, then `reason` and FFmpeg's words."""
        process = self.process
        with suppress(OSError):  # a shortage, which must not hide the failure
            advice = capabilities.too_old(process.command[0]) or advice
        lines = [advice, f"{reason}{self._said()}"]
        lines += (f"FFmpeg warned: {line}" for line in process.log.warnings)
        return self.error(
            "\n".join(filter(None, lines)),
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
        late = f"FFmpeg gave no sign of life for {idle_s:.1f} s. It had {self.progress()}{self._said()}"
        if (waiting := self.process.waits_for()) is not None:
            late = f"{waiting}, and FFmpeg has waited for {idle_s:.1f} s. Start the reader, and call again"
        raise StalledError(late, idle_s, stalled.bytes_pending)

    def _said(self) -> str:
        """FFmpeg's last lines, each once, as the end of a message."""
        said = "\n".join(dict.fromkeys(self.process.log.text.splitlines()))
        return said and f"\nFFmpeg said: {said}"


def warn_unclosed(session: Session) -> None:
    """Warns that the owner of `session` was never closed."""
    warnings.warn(
        f"{session.title} was never closed. Use it in a with block, or call close()",
        ResourceWarning,
        source=session,
        stacklevel=3,
    )


async def _until(event: Watchable | Future[Any] | None, timeout_s: float) -> None:
    import asyncio  # slow to import; a program that uses asyncio has done so

    from penstock._common.event_loops import until_done

    if event is None:
        await asyncio.sleep(0)
        return
    if isinstance(event, Future):
        # Not the future itself: its failure is the caller's, and a cancellation must not reach it.
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        event.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(ended.set))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await ended.wait()
        return
    # Not asyncio.wait_for, which before Python 3.12 may swallow a cancellation.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await until_done(event)


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def is_unfinished(path: str) -> bool:
    """Whether an open session makes the file at `path`, and FFmpeg is not done with it."""
    real = Path(os.path.realpath(path))
    return any(
        session.new_file == real and not session.process.is_complete for session in list(_open_sessions)
    )


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
                    exits.report_loss(f"{session.title} was cut off: {failure!r}")
    for raised in failures:
        sys.excepthook(type(raised), raised, raised.__traceback__)
