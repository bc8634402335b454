"""A running FFmpeg: what it says, how far it is, and whether it ended well."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

from penstock import _native
from penstock._native import ThreadPolicy
from penstock.errors import DecoderError, EncoderError
from penstock.ffmpeg.child import Child, Lines, NotStartedError
from penstock.ffmpeg.diagnostics import StderrLog

# Guessed: longer lines are cut, so that what is kept stays bounded.
_LINE_BYTES = 4096
WATCH_INTERVAL_S = 0.1

# Without it FFmpeg 5.1 exits with 0 when the disk is full at the file's end ("Error writing trailer").
_STRICT = ("-xerror",)
_ALWAYS = ("-hide_banner", "-nostats", "-loglevel")


def checked_stall_timeout(seconds: float | None) -> float | None:
    """The argument ``stall_timeout_s``.

    Raises:
        ValueError: it is not more than 0.
        TypeError: it is no number.
    """
    seconds = _native._seconds("stall_timeout_s", seconds)
    if seconds == 0:
        raise ValueError("stall_timeout_s must be None or more than 0 seconds, not 0")
    return seconds


class FFmpegProcess(Child):
    """A started FFmpeg that we feed, or that feeds us.

    The child's thread hears its standard error (when that pipe is full, FFmpeg stops) and counts its frames.

    Args:
        program: path of FFmpeg.
        arguments: its arguments, without those on logging and progress; or what makes them of the number of another
            descriptor of FFmpeg's, whose other end is `side`.
        policy: priority and CPUs that it starts with.
        is_fed: we write to its standard input, `stdin`; else it has none. It is never ours, for FFmpeg takes commands
            from it.
        is_strict: it is to fail where it would go on after an error.
        stdout: where its standard output goes: ``subprocess.PIPE`` for us, ``subprocess.DEVNULL``, or None for our own.
        with_warnings: FFmpeg is to say its warnings, too.
        error: what is raised if it cannot be started.

    Attributes:
        frames: frames that it has encoded, by its report, which it gives twice a second.
        output_bytes: what it has written, by the same report; None if it does not say.
        is_complete: it has said that its report is at its end, which it does when all is encoded.
        stdin, stdout, side: our ends of these pipes: for their descriptors only, never for their ``read`` and
            ``write``.
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
        error: type[EncoderError] | type[DecoderError],
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
        self._error = error
        self.frames = 0
        self.output_bytes: int | None = None
        self.is_complete = False
        self._log = StderrLog()

    def start(self) -> None:
        """Starts FFmpeg. What follows is done in a ``try`` that ends with `end`, as is this.

        Raises:
            EncoderError, DecoderError: the program could not be started.
        """
        try:
            super().start()
        except NotStartedError as failure:
            raise self._error(f"could not start FFmpeg: {failure}", command=self.command) from failure

    def spawn(self) -> subprocess.Popen[bytes]:
        with ExitStack() as of_child:
            progress = of_child.enter_context(self.captured_pipe(Lines(self._take_progress, _LINE_BYTES)))
            stderr = of_child.enter_context(self.captured_pipe(Lines(self._log.take, _LINE_BYTES)))
            stdin: int | FileIO = subprocess.DEVNULL
            stdout: int | FileIO | None = self._stdout_of_child
            pass_fds = [progress.fileno()]
            if self._is_fed:
                self.stdin, stdin = self.pipe_to()
                of_child.enter_context(stdin)
            if stdout == subprocess.PIPE:
                self.stdout, stdout = self.pipe_from()
                of_child.enter_context(stdout)
            elif stdout is None:
                os.fstat(1)  # closed, it would be the number of whatever FFmpeg opens first
            if callable(self._arguments):
                self.side, told = self.pipe_from()
                pass_fds.append(of_child.enter_context(told).fileno())
                arguments = self._arguments(told.fileno())
            else:
                arguments = self._arguments
            reporting = ("-progress", f"pipe:{progress.fileno()}")
            strict = _STRICT if self._is_strict else ()
            self.command = (self._program, *_ALWAYS, self._loglevel, *reporting, *strict, *arguments)
            return self.popen(
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                env=_environment(),
                policy=self._policy,
            )

    @property
    def stderr(self) -> str:
        """The last 50 lines that FFmpeg wrote to standard error, without warnings."""
        return self._log.text

    @property
    def warnings(self) -> tuple[str, ...]:
        """The first 20 warnings, each once, without those that mean nothing here."""
        return self._log.warnings

    @property
    def errors(self) -> tuple[str, ...]:
        """The first 20 errors, each once, if `with_warnings`. After an error FFmpeg may go on and exit with 0."""
        return self._log.errors

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended well, by its exit status and by its report. An unknown status is no success."""
        return self.returncode == 0 and self.is_complete

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        unsaid = self.has_ended and self.returncode == 0 and not self.is_complete
        return f"{super().ending}{', and did not report that it was done' * unsaid}"

    def wait_unless_stuck(self, stuck_s: float) -> None:
        """Waits for FFmpeg to end, and kills it after `stuck_s` seconds without a sign of life."""
        watch = Watch(self)
        while not self.wait(WATCH_INTERVAL_S):
            if watch.idle_s() >= stuck_s:
                self.kill()

    def signs_of_life(self) -> tuple[int, int]:
        """Frames encoded and CPU time used: of a working FFmpeg at least one of them grows.

        The CPU time is what tells a slow codec from a stuck one: some take many seconds for a frame.
        """
        return self.frames, _cpu_ticks(self.pid)

    def _take_progress(self, line: bytes) -> None:
        if line.rstrip() == b"progress=end":
            self.is_complete = True
        for key, count in _counts([line.decode("ascii", "replace")]):
            if key == "frame":
                self.frames = count
            elif key == "total_size":
                self.output_bytes = count


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


def _environment() -> dict[str, str]:
    """Our environment, with huge pages for FFmpeg's memory unless the user has tuned glibc himself, and no colours.

    FFmpeg allocates a packet for each raw frame, and huge pages spare it most of the page faults: +15 % on
    raw 1080p frames into ``-f null`` (measured 2026-11-21, 2-core x86-64 VM, FFmpeg 5.1, glibc 2.36).
    """
    # Colours would stand before the levels of what FFmpeg says.
    return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ, "AV_LOG_FORCE_NOCOLOR": "1"}


def _counts(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    """The whole numbers in FFmpeg's ``-progress`` report, with their keys."""
    for line in lines:
        key, _, value = line.partition("=")
        if re.fullmatch(r"\s*\d{1,19}\s*", value, re.ASCII):
            yield key, int(value)


def _cpu_ticks(pid: int) -> int:
    """User and system time of a process in clock ticks (proc_pid_stat(5)); 0 where it cannot be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
    return int(fields[11]) + int(fields[12])
