"""A process group, its pipes by number, poll(2) and pidfd_open(2)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO

from penstock._platform.linux import processes
from penstock._platform.linux.descriptors import above_standard, url_of
from penstock._platform.linux.processes import cpu_ticks

__all__ = ["Channel", "Inlet", "Program", "cpu_ticks", "pipe", "read_together", "usable_cpus"]

PipeReader = Callable[[bytes], None]

# Guessed: how often a wait polls, where nothing may wake it.
_POLL_INTERVAL_S = 0.1
_READ_BYTES = 1 << 16


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def pipe() -> tuple[FileIO, FileIO]:
    """The reading and the writing end of a pipe. Neither is 0, 1 or 2, even if those are closed.

    Otherwise FFmpeg's ``pipe:1`` would mean its standard output, and what the host prints would go into the pipe.
    """
    reading, writing = os.pipe()
    try:
        reading = above_standard(reading)
        writing = above_standard(writing)
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    return FileIO(reading, "rb"), FileIO(writing, "wb")


def read_together(pipes: Iterable[FileIO]) -> Iterator[tuple[FileIO, bytes]]:
    """What comes out of pipes until all have ended: the pipe, and some bytes."""
    open_pipes = {pipe.fileno(): pipe for pipe in pipes}
    waiting = select.poll()
    for fd in open_pipes:
        waiting.register(fd, select.POLLIN)
    while open_pipes:
        for fd, _ in waiting.poll():
            if read := open_pipes[fd].read(_READ_BYTES):
                yield open_pipes[fd], read
            else:
                waiting.unregister(fd)
                del open_pipes[fd]


class Channel:
    """A pipe from a program besides its standard streams. `with` closes the program's end, once it has started.

    Attributes:
        ours: our end.
        number: the number of its end; on Windows, there is none.
        url: its end, for FFmpeg.
        path: its end, for programs that open files.
    """

    def __init__(self) -> None:
        self.ours, self._its = pipe()
        self.number = self._its.fileno()
        self.url, self.path = f"pipe:{self.number}", f"/dev/fd/{self.number}"

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._its.close()


class Inlet:
    """A pipe to a program that opens it by its name.

    Attributes:
        url: its end, for FFmpeg.
        is_open: `close` wasn't called.
    """

    def __init__(self) -> None:
        self._its, self._ours = os.pipe()
        self.url, self.is_open = url_of(self._its), True

    def ours(self) -> int:
        """Our end, once a write may wait for the program to read."""
        return self._ours

    def close(self) -> None:
        """Ends the writing, unless a program has opened it. May be called again."""
        if self.is_open:
            self.is_open = False
            os.close(self._its)

    def close_ours(self) -> None:
        """Closes our end. May be called again."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


class Program:
    """A program in a process group of its own.

    Attributes:
        pid: its process id.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | FileIO,
        stdout: int | FileIO | None,
        stderr: int | FileIO,
        channels: Sequence[Channel] = (),
        inherited: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(*(channel.number for channel in channels), *inherited),
            env=env,
            # Its own process group: Ctrl-C on the terminal must not reach FFmpeg, which has to finish its file.
            process_group=0,
        )
        popen.returncode = 0  # so that Popen never waits for it: we do
        self.pid = popen.pid
        self._is_over = False

    def kill(self) -> None:
        """Kills it and its process group, because it may be a wrapper."""
        if not self._is_over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def attend(
        self, pipes: Mapping[FileIO, PipeReader], ended: Callable[[int | None], None], grace_s: float
    ) -> None:
        """Reads the pipes until the program has ended, and reaps it.

        Args:
            pipes: our ends, and what takes their data, b"" at the end.
            ended: called with the exit status, negative for a signal, before another process may get its number.
            grace_s: how long the pipes are read after that, if its own children hold them open.
        """
        readers = {pipe.fileno(): take for pipe, take in pipes.items()}
        waiting = select.poll()
        for fd in readers:
            waiting.register(fd, select.POLLIN)
        with processes.pidfd(self.pid) as pidfd:
            if pidfd is not None:
                waiting.register(pidfd, select.POLLIN)
            while readers and not self._has_exited(pidfd, _read_ready(waiting, readers, pidfd)):
                pass
            self._reap(pidfd, ended)
            if pidfd is not None:
                waiting.unregister(pidfd)
        ended_at_s = time.monotonic()
        # All that it wrote is in the pipes by now. Its own children may hold them open for ever.
        while readers and time.monotonic() - ended_at_s < grace_s and _read_ready(waiting, readers, None, 0):
            pass

    def forget(self) -> None:
        """In the child of a fork: it is the parent's."""
        self._is_over = True

    def _has_exited(self, pidfd: int | None, ready: set[int]) -> bool:
        if pidfd is not None:
            return pidfd in ready
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def _reap(self, pidfd: int | None, report: Callable[[int | None], None]) -> None:
        """Waits for the program to end, reports its exit status, and leaves no zombie.

        The kernel may reap it first if SIGCHLD is ignored, and so may another thread that calls os.wait(). Popen would
        report 0 then.
        """
        target = (os.P_PID, self.pid) if pidfd is None else (os.P_PIDFD, pidfd)
        try:
            ended = os.waitid(*target, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            report(None if pidfd is None else processes.status_after_reap(pidfd))
            self._is_over = True
            return
        assert ended is not None
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        # Set before it is reaped: after that, another process may get its number.
        report(status)
        self._is_over = True
        with suppress(ChildProcessError):
            os.waitid(*target, os.WEXITED)


def _read_ready(
    waiting: select.poll, readers: dict[int, PipeReader], pidfd: int | None, timeout_ms: int = -1
) -> set[int]:
    """Reads the pipes that are ready, and drops those that have ended. Returns the descriptors that were ready."""
    if timeout_ms < 0 and pidfd is None:
        timeout_ms = int(_POLL_INTERVAL_S * 1000)
    ready = {fd for fd, _ in waiting.poll(timeout_ms)}
    for fd in ready & readers.keys():
        data = os.read(fd, _READ_BYTES)
        readers[fd](data)
        if not data:
            waiting.unregister(fd)
            del readers[fd]
    return ready
