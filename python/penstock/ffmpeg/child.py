"""Starts programs, hears them and reaps them: all that Penstock runs of FFmpeg is run here."""

from __future__ import annotations

import _thread
import fcntl
import os
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO

from penstock import _native
from penstock._native import AppliedPolicy, ThreadPolicy

# Guessed: what a program that has ended left in its pipes is read within this time, while others write to them, too.
DRAIN_GRACE_S = 1.0
# How often a wait looks again, where nothing may wake it.
LOOK_INTERVAL_S = 0.1
_READ_BYTES = 1 << 16

# linux/pidfd.h, since Linux 6.15: the exit status of a process that is gone. Size, mask and place of the status of
# `struct pidfd_info` in its first version.
_PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO_BYTES, _EXIT_STATUS_AT = 64, 60

UNKNOWN_STATUS = (
    "ended, and its exit status is unknown: this process ignores SIGCHLD, or another part of it waits for all "
    "children"
)

Hearer = Callable[[bytes], None]


class ProgramError(Exception):
    """A program did not do what it was run for. Not an OSError, because a signal handler may raise one of those."""


class NotStartedError(ProgramError):
    """The program could not be started."""


class Child:
    """A program in a process group of its own, and the daemon thread that starts, hears and reaps it.

    Python calls signal handlers on the main thread, and what one raises can come between any two steps there. On the
    child's thread it cannot, so everything is done there that would leave a process or a descriptor behind if it were
    cut short. Whoever calls `start` does so in a ``try`` that ends with `end`: from then on nothing is left, wherever
    the exception came.

    The thread knows nothing of the object that owns the child, which can therefore be collected while it runs.

    Attributes:
        command: the program and its arguments.
        pid: its process id; 0 before it runs.
        returncode: the exit status, negative for a signal; None while it runs, and if the status is unknown.
        policy: what came of the policy that it was started with; None without one.
        own: our ends of its pipes that the caller reads or writes.
    """

    def __init__(self) -> None:
        self.command: Sequence[str] = ()
        self.pid = 0
        self.returncode: int | None = None
        self.policy: AppliedPolicy | None = None
        self.own: list[FileIO] = []
        self._hearers: dict[FileIO, Hearer] = {}
        self._failure: BaseException | None = None
        self._thread: int | None = None
        self._is_unwanted = self._is_over = False
        self._started, self._ended = _Flag(), _Flag()
        self._started_at_s = time.monotonic()
        self._ended_at_s: float | None = None

    def spawn(self) -> subprocess.Popen[bytes]:
        """Starts the program, by `popen`; called once, on the child's thread."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts the program, and returns when it runs.

        Raises:
            NotStartedError: that is not possible: no such program; no descriptors, processes or threads to be had.
        """
        try:
            # Not threading.Thread, whose start waits with a lock that an exception in the wrong place leaves locked.
            self._thread = _thread.start_new_thread(self._live, ())
        except RuntimeError as refused:
            if refused.__traceback__ is not None and refused.__traceback__.tb_next is not None:
                raise  # a signal handler's
            raise NotStartedError(str(refused)) from refused
        self._started.wait()
        failure, self._failure = self._failure, None
        if isinstance(failure, OSError | RuntimeError):  # the latter: no thread for the policy
            raise NotStartedError(str(failure)) from failure
        if failure is not None:
            raise failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the program to end, and tells whether it has. All that it said is heard then."""
        return self._ended.wait(timeout_s)

    def kill(self) -> None:
        """Kills the program, and what it has started in its group: it may be a wrapper."""
        if self.pid and not self._is_over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close_pipes(self) -> None:
        """Lets go of our ends of its pipes: it sees that once others have, too."""
        _close(self.own)

    def end(self) -> None:
        """Kills the program and lets go of everything. Of one that is about to start, too."""
        # The thread stores the pid, and then looks at this; here it is the other way round.
        self._is_unwanted = True
        self.kill()
        self.close_pipes()
        if self._thread is not None:
            self.wait()
            self.close_pipes()

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, or to now."""
        return (self._ended_at_s or time.monotonic()) - self._started_at_s

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.returncode is None:
            return UNKNOWN_STATUS if self.has_ended else "still runs"
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}"
        try:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        except ValueError:
            return f"was killed by signal {-self.returncode}"

    def pipe_from(self) -> tuple[FileIO, FileIO]:
        """A pipe that the program writes to and the caller reads: our end, and its."""
        ours, its = _pipe()
        self.own.append(ours)
        return ours, its

    def pipe_to(self) -> tuple[FileIO, FileIO]:
        """A pipe that the caller writes to and the program reads: our end, and its."""
        its, ours = _pipe()
        self.own.append(ours)
        return ours, its

    def heard_pipe(self, hear: Hearer) -> FileIO:
        """A pipe that the child's thread reads: the program's end. `hear` gets what comes, and b"" at the end."""
        ours, its = _pipe()
        self._hearers[ours] = hear
        return its

    def popen(
        self,
        *,
        stdin: int | FileIO,
        stdout: int | FileIO | None,
        stderr: int | FileIO,
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        policy: ThreadPolicy | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts `command`."""

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                self.command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                env=env,
                # A process group of its own: Ctrl-C on the terminal is for us, and FFmpeg has to finish the file.
                process_group=0,
            )

        popen, self.policy = _start_with_policy(policy, start)
        return popen

    def _live(self) -> None:
        try:
            try:
                self._spawn()
            except BaseException as failure:
                self._failure = failure
                self._is_unwanted = True
                return
            finally:
                self._started.set()
            if self._is_unwanted:
                self.kill()
            self._listen()
        finally:
            _children.discard(self)
            _close(self._hearers)
            self._hearers.clear()
            if self._is_unwanted:
                self.close_pipes()
            self._ended.set()

    def _spawn(self) -> None:
        with _starting:
            _children.add(self)
            self._started_at_s = time.monotonic()
            popen = self.spawn()
            popen.returncode = 0  # for Popen it is over: the rest is done here
            self.pid = popen.pid

    def _listen(self) -> None:
        """Hears the program until it has ended, and reaps it."""
        hearers = {pipe.fileno(): hear for pipe, hear in self._hearers.items()}
        waiting = select.poll()
        for fd in hearers:
            waiting.register(fd, select.POLLIN)
        with _pidfd(self.pid) as pidfd:
            if pidfd is not None:
                waiting.register(pidfd, select.POLLIN)
            while hearers and not self._has_exited(pidfd, _hear(waiting, hearers, pidfd)):
                pass
            self._reap(pidfd)
            if pidfd is not None:
                waiting.unregister(pidfd)
        self._ended_at_s = time.monotonic()
        # What it wrote is in the pipes by now. What it has started may hold them open for ever.
        while hearers and self.seconds_since_end() < DRAIN_GRACE_S and _hear(waiting, hearers, None, 0):
            pass

    def seconds_since_end(self) -> float:
        return 0.0 if self._ended_at_s is None else time.monotonic() - self._ended_at_s

    def _has_exited(self, pidfd: int | None, ready: set[int]) -> bool:
        if pidfd is not None:
            return pidfd in ready
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def _reap(self, pidfd: int | None) -> None:
        """Waits for the end, takes the exit status, and leaves no zombie.

        Somebody else may be first to reap it, in which case Popen would say 0: the kernel, if SIGCHLD is ignored, or
        a thread of the host with os.wait().
        """
        who = (os.P_PID, self.pid) if pidfd is None else (os.P_PIDFD, pidfd)
        try:
            ended = os.waitid(*who, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self.returncode = None if pidfd is None else _status_of_the_gone(pidfd)
            self._is_over = True
            return
        assert ended is not None
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        # Before it is reaped: its number may be another's then.
        self.returncode, self._is_over = status, True
        with suppress(ChildProcessError):
            os.waitid(*who, os.WEXITED)

    def _forget(self) -> None:
        """Lets go of everything, in a forked child."""
        self._is_over = True
        _close((*self._hearers, *self.own))


class Lines:
    """Hears lines: gives each to `take`, without its end and cut into pieces of at most `most_bytes`."""

    def __init__(self, take: Callable[[bytes], None], most_bytes: int) -> None:
        self._take = take
        self._most_bytes = most_bytes
        self._rest = b""

    def __call__(self, said: bytes) -> None:
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            for at in range(0, max(1, len(line)), self._most_bytes):
                self._take(line[at : at + self._most_bytes])
        while len(self._rest) > self._most_bytes or (self._rest and not said):
            self._take(self._rest[: self._most_bytes])
            self._rest = self._rest[self._most_bytes :]


class _Flag:
    """A `threading.Event` whose waits may be interrupted anywhere, and which is set once.

    An exception from a signal handler may leave the lock of an Event locked, for its code is Python. Then nobody can
    set it, and whoever waits does so for ever.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._unset = _thread.allocate_lock()
        self._unset.acquire()

    def set(self) -> None:
        self.is_set = True
        self._unset.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_set:
            left_s = LOOK_INTERVAL_S if until_s is None else until_s - time.monotonic()
            if left_s <= 0:
                return False
            # One that is interrupted here keeps the lock: the others see that it is set when they look again.
            if self._unset.acquire(timeout=min(left_s, LOOK_INTERVAL_S)):
                self._unset.release()
        return True


def _hear(
    waiting: select.poll, hearers: dict[int, Hearer], pidfd: int | None, timeout_ms: int = -1
) -> set[int]:
    """Takes what is in the pipes, and drops those that have ended. Returns which descriptors were ready."""
    if timeout_ms < 0 and pidfd is None:
        timeout_ms = int(LOOK_INTERVAL_S * 1000)
    ready = {fd for fd, _ in waiting.poll(timeout_ms)}
    for fd in ready & hearers.keys():
        said = os.read(fd, _READ_BYTES)
        hearers[fd](said)
        if not said:
            waiting.unregister(fd)
            del hearers[fd]
    return ready


def _pipe() -> tuple[FileIO, FileIO]:
    """The reading and the writing end of a pipe. Neither is 0, 1 or 2, if those are closed.

    FFmpeg's ``pipe:1`` would be its standard output, and what the host prints would go to whoever has the number.
    """
    reading, writing = os.pipe()
    try:
        reading = _above_standard(reading)
        writing = _above_standard(writing)
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    return FileIO(reading, "rb"), FileIO(writing, "wb")


def _close(pipes: Iterable[FileIO]) -> None:
    for pipe in pipes:
        with suppress(OSError):  # a host that closes all descriptors closes ours, too
            pipe.close()


def _above_standard(fd: int) -> int:
    """The same descriptor by a number above 2.

    Raises:
        OSError: there is none left; it stays as it is.
    """
    if fd > 2:
        return fd
    above = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return above


@contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    """A descriptor of the process, which tells of its end; None where there is none to be had."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # before Linux 5.3; no descriptors left; it is gone already
        yield None
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def _status_of_the_gone(pidfd: int) -> int | None:
    """The exit status of a process that somebody else has reaped; None before Linux 6.15."""
    info = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (told,) = struct.unpack_from("=Q", info)
    (status,) = struct.unpack_from("=i", info, _EXIT_STATUS_AT)
    return os.waitstatus_to_exitcode(status) if told & _PIDFD_INFO_EXIT else None


def _start_with_policy(
    policy: ThreadPolicy | None, start: Callable[[], subprocess.Popen[bytes]]
) -> tuple[subprocess.Popen[bytes], AppliedPolicy | None]:
    """Starts a program from a thread that has the policy and ends at once.

    A process and all its threads start with the policy of the thread that starts it. Ours could not always go back to
    what it had, and to run Python in the child before the program (`preexec_fn`) is not safe beside other threads.
    """
    if policy is None:
        return start(), None

    made: list[tuple[subprocess.Popen[bytes], AppliedPolicy]] = []
    failures: list[BaseException] = []
    is_done = _Flag()

    def start_so() -> None:
        try:
            applied = _native._apply_policy(policy, try_undo=False)
            made.append((start(), applied))
        except BaseException as failure:
            failures.append(failure)
        finally:
            is_done.set()

    _thread.start_new_thread(start_so, ())
    is_done.wait()
    if failures:
        raise failures.pop()
    return made[0]


# Those that live in this process, for its forks. A fork waits while one is being started: its copies of the pipes would
# be nobody's, and keep the program from its end of file.
_children: set[Child] = set()
_starting = threading.Lock()


def _forget_all_in_child() -> None:
    for child in list(_children):
        child._forget()
    _children.clear()
    _starting.release()


os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_forget_all_in_child
)
