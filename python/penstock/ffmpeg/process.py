"""A running FFmpeg: what it says, how far it is, and when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from pathlib import Path
from typing import cast

from penstock import _native
from penstock._native import AppliedPolicy, ThreadPolicy
from penstock.errors import DecoderError, EncoderError

# Guessed: FFmpeg's reason is in its last few lines, and what it says must stay bounded.
STDERR_LINES = 50
STDERR_LINE_BYTES = 4096
# Guessed: whoever has not understood after these does not read on.
WARNING_LINES = 20
# Guessed: what an FFmpeg that has ended left in its two pipes is read within this time.
DRAIN_GRACE_S = 1.0
WATCH_INTERVAL_S = 0.1

_ALWAYS = ("-hide_banner", "-nostats", "-loglevel")
# What FFmpeg puts before a line: the parts that speak, with their addresses, and with "level" what the line is.
_TAGGED = re.compile(r"((?:\[[^\[\]]+ @ 0x[0-9a-f]+\] )*)\[(panic|fatal|error|warning)\] ")
_ADDRESS = re.compile(r" @ 0x[0-9a-f]+(?=\])")
# Warnings that FFmpeg gives for what Penstock asks of it, rightly, or for a default of its own:
_NOISE = re.compile(
    r"deprecated pixel format used, make sure you did set range correctly"  # JPEG's yuvj420p; the range is set
    r"|No accelerated colorspace conversion found"  # the pixels are the same
    r"|Neither bitrate nor constrained quality specified, using default"  # libvpx and libaom without crf
    r"|VBV buffer size not set, using default"  # of MPEG program streams
    r"|Specified chroma sample location \w+ is unsupported on the AV1 bit stream level"  # said to every container
)


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


class FFmpegProcess:
    """A started FFmpeg that we feed, or that feeds us.

    Three daemon threads serve it until it ends: one drains its standard error (when that pipe is full, FFmpeg
    stops), one counts its frames, and one waits for it, so that it is never left a zombie. They know nothing
    of the object that owns this one, which can therefore be collected while they run.

    Args:
        program: path of FFmpeg.
        arguments: its arguments, without those on logging and progress.
        policy: priority and CPUs that it starts with.
        stdin, stdout: as for `subprocess.Popen`. Standard input is never ours, for FFmpeg takes commands from it.
        pass_fds: descriptors that it has as well, by the same numbers.
        with_warnings: FFmpeg is to say its warnings, too.
        error: what is raised if it cannot be started.

    Attributes:
        frames: frames that it has encoded, by its report, which it gives twice a second.
        output_bytes: what it has written, by the same report; None if it does not say.
        policy: what came of the policy; None without one.

    Raises:
        EncoderError, DecoderError: the program could not be started.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        policy: ThreadPolicy | None = None,
        *,
        stdin: int,
        stdout: int | None,
        pass_fds: Sequence[int] = (),
        with_warnings: bool = False,
        error: type[EncoderError] | type[DecoderError],
    ) -> None:
        progress, progress_of_child = os.pipe()
        # "repeat" has FFmpeg write a line again instead of how often it was repeated.
        loglevel = "repeat+level+warning" if with_warnings else "error"
        self.command = (program, *_ALWAYS, loglevel, "-progress", f"pipe:{progress_of_child}", *arguments)
        self.frames = 0
        self.output_bytes: int | None = None
        self._started_at_s = time.monotonic()
        self._ended_at_s: float | None = None
        try:
            start = partial(_start, self.command, stdin, stdout, (progress_of_child, *pass_fds))
            self._popen, self.policy = _start_with_policy(policy, start)
        except BaseException as failure:
            os.close(progress)
            if isinstance(failure, OSError):
                raise error(f"could not start FFmpeg: {failure}", command=self.command) from failure
            raise
        finally:
            os.close(progress_of_child)
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        # Sets that keep the order.
        self._warnings: dict[str, None] = {}
        self._errors: dict[str, None] = {}
        self._ended = _daemon(self._await_end, "wait")
        self._all_read = (
            _daemon(self._drain_stderr, "stderr"),
            _daemon(self._follow_progress, "progress", progress),
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdin(self) -> FileIO:
        """The writing end of FFmpeg's standard input: for its descriptor only, never for its ``write``."""
        return cast(FileIO, self._popen.stdin)

    @property
    def stdout(self) -> FileIO:
        """The reading end of FFmpeg's standard output: for its descriptor only, never for its ``read``."""
        return cast(FileIO, self._popen.stdout)

    def close_pipe(self) -> None:
        """Lets go of our end of the pipe: FFmpeg sees that once others have, too."""
        for end in (self._popen.stdin, self._popen.stdout):
            if end is not None:
                end.close()

    @property
    def seconds(self) -> float:
        """Seconds from FFmpeg's start to its end, or to now."""
        return (self._ended_at_s or time.monotonic()) - self._started_at_s

    @property
    def stderr(self) -> str:
        """The last lines that FFmpeg wrote to its standard error, warnings aside."""
        return "\n".join(self._stderr)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The first warnings that FFmpeg gave, each once, without those in `_NOISE`."""
        return tuple(self._warnings)

    @property
    def errors(self) -> tuple[str, ...]:
        """The first errors that FFmpeg told, each once, if it tells warnings, too: it may go on and end with 0."""
        return tuple(self._errors)

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while FFmpeg runs."""
        return self._popen.returncode

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.returncode is None:
            return "still runs"
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}"
        try:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        except ValueError:
            return f"was killed by signal {-self.returncode}"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for FFmpeg to end, and tells whether it has. Its last words and count are then complete."""
        if not self._ended.wait(timeout_s):
            return False
        for all_read in self._all_read:
            all_read.wait(DRAIN_GRACE_S)
        return True

    def wait_unless_stuck(self, stuck_s: float) -> None:
        """Waits for FFmpeg to end, and kills it after `stuck_s` seconds without a sign of life."""
        watch = Watch(self)
        while not self.wait(WATCH_INTERVAL_S):
            if watch.idle_s() >= stuck_s:
                self.kill()

    def kill(self) -> None:
        self._popen.kill()

    def end(self) -> None:
        """Kills FFmpeg and lets go of everything."""
        self.kill()
        self.close_pipe()
        self.wait()

    def signs_of_life(self) -> tuple[int, int]:
        """Frames encoded and CPU time used: of a working FFmpeg at least one of them grows.

        The CPU time is what tells a slow codec from a stuck one: some take many seconds for a frame.
        """
        return self.frames, _cpu_ticks(self.pid)

    def _await_end(self) -> None:
        self._popen.wait()
        self._ended_at_s = time.monotonic()

    def _drain_stderr(self) -> None:
        assert self._popen.stderr is not None
        # Popen's own file is unbuffered, as its standard input must be, and would read byte by byte.
        with open(self._popen.stderr.fileno(), "rb", closefd=False) as lines, self._popen.stderr:
            for line in iter(lambda: lines.readline(STDERR_LINE_BYTES), b""):
                self._take_line(line.decode(errors="replace").rstrip())

    def _take_line(self, line: str) -> None:
        tagged = _TAGGED.match(line)
        if tagged is None:  # a library's own, or all of them without their levels
            self._stderr.append(line)
            return
        line = tagged[1] + line[tagged.end() :]
        if tagged[2] != "warning":
            self._stderr.append(line)
        told = self._warnings if tagged[2] == "warning" else self._errors
        if len(told) < WARNING_LINES and not _NOISE.search(line):
            told[_ADDRESS.sub("", line)] = None

    def _follow_progress(self, progress: int) -> None:
        with open(progress, encoding="ascii", errors="replace") as lines:
            for key, count in _counts(lines):
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


def _start_with_policy(
    policy: ThreadPolicy | None, start: Callable[[], subprocess.Popen[bytes]]
) -> tuple[subprocess.Popen[bytes], AppliedPolicy | None]:
    """Starts FFmpeg from a thread that has the policy and ends at once.

    A process and all its threads start with the policy of the thread that starts it. Ours could not always go back to
    what it had, and to run Python in the child before the program (`preexec_fn`) is not safe beside other threads.
    """
    if policy is None:
        return start(), None

    def start_so() -> tuple[subprocess.Popen[bytes], AppliedPolicy]:
        applied = _native._apply_policy(policy, try_undo=False)
        return start(), applied

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-ffmpeg-start") as starter:
        return starter.submit(start_so).result()


def _start(
    command: Sequence[str], stdin: int, stdout: int | None, pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        pass_fds=pass_fds,
        env=_environment(),
        # A process group of its own: Ctrl-C on the terminal is for us, and FFmpeg has to finish the file.
        process_group=0,
    )


def _environment() -> dict[str, str]:
    """Our environment, with huge pages for FFmpeg's memory unless the user has tuned glibc himself, and no colours.

    FFmpeg allocates a packet for each raw frame, and huge pages spare it most of the page faults: +15 % on
    raw 1080p frames into ``-f null`` (measured 2026-11-21, 2-core x86-64 VM, FFmpeg 5.1, glibc 2.36).
    """
    # Colours would stand before the levels of what FFmpeg says.
    return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ, "AV_LOG_FORCE_NOCOLOR": "1"}


def _daemon(target: Callable[..., None], name: str, *args: object) -> threading.Event:
    """Runs `target` on a daemon thread; the event is set when it is done.

    An event, because a join of a running thread that Ctrl-C interrupts takes that thread for ended from then on
    (Python 3.11 and 3.12).
    """
    done = threading.Event()

    def run() -> None:
        try:
            target(*args)
        finally:
            done.set()

    threading.Thread(target=run, name=f"penstock-ffmpeg-{name}", daemon=True).start()
    return done


def _counts(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    """The whole numbers in FFmpeg's ``-progress`` report, with their keys."""
    for line in lines:
        key, _, value = line.partition("=")
        if value.strip().isdigit():
            yield key, int(value)


def _cpu_ticks(pid: int) -> int:
    """User and system time of a process in clock ticks (proc_pid_stat(5)); 0 where it cannot be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
    return int(fields[11]) + int(fields[12])
