"""A running FFmpeg: its pipes, its progress, and whether it succeeded."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

from penstock._native import ThreadPolicy
from penstock.errors import FFmpegError
from penstock.ffmpeg.program.child import Child, Flag, Lines, NotStartedError
from penstock.ffmpeg.program.messages import StderrLog

# Guessed: longer lines are cut, so that what is kept stays bounded.
_LINE_BYTES = 4096
WATCH_INTERVAL_S = 0.1
# AV_LOG_INFO in libavutil.
_INFORMATION = 32


class FFmpegProcess(Child):
    """An FFmpeg that we write frames to, or read frames from.

    The child's thread reads its standard error, because FFmpeg blocks when that pipe is full, and its progress report.

    Args:
        program: path of FFmpeg.
        arguments: its arguments, without those for logging and progress; or a function that returns them, given the
            descriptor of an additional pipe that FFmpeg writes to and whose other end is `side`.
        policy: the priority and CPUs to start it with.
        is_fed: whether we write to its standard input, `stdin`. Otherwise it reads /dev/null: it must not inherit our
            standard input, from which it would take commands.
        is_strict: whether it exits at an error after which it would go on.
        stdout: its standard output: ``subprocess.PIPE`` for us, ``subprocess.DEVNULL``, or None to inherit ours.
        with_warnings: whether `log` has warnings, too. Otherwise it has what decoders conceal, unless FFREPORT is set.
        error: the class to raise if it cannot be started.

    Attributes:
        frames: encoded frames, from FFmpeg's progress report, which comes twice a second.
        output_bytes: written bytes, from the same report; None if it does not say.
        is_complete: whether the report has ended as it does when everything is encoded.
        log: what it wrote to its standard error.
        stdin, stdout, side: our ends of these pipes. Use their descriptors only, not their ``read`` and ``write``.
    """

    stdin: FileIO
    stdout: FileIO
    side: FileIO

    def __init__(
        self,
        program: str,
        arguments: Sequence[str] | Callable[[int], Sequence[str]],
        policy: ThreadPolicy | None = None,
        *,
        is_fed: bool = False,
        is_strict: bool,
        stdout: int | None,
        with_warnings: bool = False,
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
        self._error = error
        self.frames = 0
        self.output_bytes: int | None = None
        self.is_complete = False
        self._is_done = Flag()
        self.log = StderrLog()

    def start(self) -> None:
        """Starts FFmpeg. Call it in a ``try`` that calls `end`, as for `Child.start`."""
        try:
            super().start()
        except NotStartedError as failure:
            raise self._error(f"could not start FFmpeg: {failure}", command=self.command) from failure

    def spawn(self) -> subprocess.Popen[bytes]:
        with ExitStack() as of_child:
            progress = of_child.enter_context(self.captured_pipe(Lines(self._take_progress, _LINE_BYTES)))
            stderr = of_child.enter_context(self.captured_pipe(Lines(self.log.take, _LINE_BYTES)))
            stdin: int | FileIO = subprocess.DEVNULL
            stdout: int | FileIO | None = self._stdout_of_child
            pass_fds = [progress.fileno()]
            environment = _environment()
            if not self._with_warnings and "FFREPORT" not in environment:
                report = of_child.enter_context(self.captured_pipe(Lines(self.log.take_report, _LINE_BYTES)))
                pass_fds.append(report.fileno())
                environment["FFREPORT"] = f"file=/dev/fd/{report.fileno()}:level={_INFORMATION}"
            if self._is_fed:
                self.stdin, stdin = self.pipe_to()
                of_child.enter_context(stdin)
            if stdout == subprocess.PIPE:
                self.stdout, stdout = self.pipe_from()
                of_child.enter_context(stdout)
            elif stdout is None:
                os.fstat(1)  # if it is closed, its number would go to the first file that FFmpeg opens
            if callable(self._arguments):
                self.side, told = self.pipe_from()
                pass_fds.append(of_child.enter_context(told).fileno())
                arguments = self._arguments(told.fileno())
            else:
                arguments = self._arguments
            # Without -xerror, FFmpeg 5.1 exits with 0 if the disk is full at the end of the file.
            strict = ["-xerror"] if self._is_strict else []
            self.command = (
                *(self._program, "-hide_banner", "-nostats", "-loglevel", self._loglevel),
                *("-progress", f"pipe:{progress.fileno()}", *strict, *arguments),
            )
            return self.popen(
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                env=environment,
                policy=self._policy,
            )

    def wait_until_done(self, timeout_s: float) -> bool:
        """Waits until FFmpeg has written everything, or has ended. Returns whether that is so.

        The unloading of its libraries takes milliseconds more: 6 with Debian's FFmpeg 5.1, 2 with a static 9
        (2-core x86-64 VM, 2026-11-26).
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
        while not self.wait(WATCH_INTERVAL_S):
            if watch.idle_s() >= stuck_s:
                self.kill()

    def signs_of_life(self) -> tuple[int, int]:
        """Encoded frames and CPU time. While FFmpeg works, at least one of them grows.

        The CPU time tells a slow codec, some of which take many seconds for a frame, from a stuck one.
        """
        return self.frames, _cpu_ticks(self.pid)

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
    """Our environment, without colours, and with our tunables of malloc unless the user tunes it or glibc himself."""
    ours = {}
    if not any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        ours["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items())
    # Colours would come before the levels of FFmpeg's messages.
    return {**os.environ, **ours, "AV_LOG_FORCE_NOCOLOR": "1"}


def _cpu_ticks(pid: int) -> int:
    """User and system time of a process in clock ticks (proc_pid_stat(5)); 0 if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The name before it may contain spaces, and be cut inside a character.
    fields = stat.rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])
