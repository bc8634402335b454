"""Child processes: starts a program, reads its pipes and reaps it. All of FFmpeg's programs run through this."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from io import FileIO

from penstock import _native
from penstock._common.deadline import Deadline
from penstock._common.shortage import raise_shortage
from penstock._common.types import Priority
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._native import AppliedPolicy, ThreadPolicy
from penstock._platform import descriptors
from penstock._platform.forks import at_fork
from penstock._platform.programs import Channel, Program, pipe

# Guessed: after a program has exited, its pipes are read for this long, if its own children hold them open.
DRAIN_GRACE_S = 1.0
# Guessed: how often a wait polls, where nothing may wake it.
POLL_INTERVAL_S = 0.1


UNKNOWN_STATUS = (
    "ended with an unknown exit status, because this process ignores SIGCHLD, or another part of it waits for all "
    "children"
)

PipeReader = Callable[[bytes], None]


class ProgramError(Exception):
    """A program did not do what it was run for. Not an OSError, because a signal handler may raise one of those."""


class NotStartedError(ProgramError):
    """The program could not be started."""


class Child:
    """A program in a process group of its own, and the daemon thread that starts it, reads its pipes and reaps it.

    Python runs signal handlers on the main thread, where an exception from one can come between any two steps. The
    child's thread runs no handlers, so it does everything that must not be cut short: a step that it skipped would
    leak a process or a descriptor. Call `start` in a ``try`` whose ``finally`` or ``except`` calls `end`; then nothing
    leaks, wherever the exception comes.

    The thread holds no reference to the object that owns the child, which can be collected while the program runs.

    Attributes:
        command: the program and its arguments.
        pid: its process id; 0 before it runs.
        returncode: the exit status, negative for a signal; None while it runs, or if the status is unknown.
        policy: the applied policy; None if it was started without one.
        our_ends: our ends of the pipes that the caller reads or writes.
    """

    def __init__(self) -> None:
        self.command: Sequence[str] = ()
        self.pid = 0
        self.returncode: int | None = None
        self.policy: AppliedPolicy | None = None
        self.our_ends: list[FileIO] = []
        self._kept_open: list[FileIO] = []
        self._readers: dict[FileIO, PipeReader] = {}
        self._failure: BaseException | None = None
        self._thread: int | None = None
        self._is_cancelled = False
        self._running: Program | None = None
        self._started, self._ended = Flag(), Flag()
        self._started_at_s = time.monotonic()
        self._ended_at_s: float | None = None

    def spawn(self) -> Program:
        """Starts the program with `popen`. Called once, on the child's thread."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts the program, and returns when it runs.

        Raises:
            NotStartedError: there is no such program, or the system does not run it.
            OSError: no descriptor, memory, process or thread is left.
        """
        try:
            # Not threading.Thread: an exception during its `start` can leave a lock locked.
            self._thread = _thread.start_new_thread(self._live, ())
        except RuntimeError as refused:
            if refused.__traceback__ is not None and refused.__traceback__.tb_next is not None:
                raise  # from a signal handler
            raise_shortage(refused)
            raise NotStartedError(str(refused)) from refused
        self._started.wait()
        failure, self._failure = self._failure, None
        if failure is None:
            return
        raise_shortage(failure)
        if isinstance(failure, OSError):
            raise NotStartedError(str(failure)) from failure
        raise failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the program to end. Returns whether it has; its pipes have been read to their end then."""
        return self._ended.wait(timeout_s)

    def kill(self) -> None:
        """Kills the program and its process group, because the program may be a wrapper."""
        if self._running is not None:
            self._running.kill()

    def close_pipes(self) -> None:
        """Closes our ends of its pipes."""
        _close(self.our_ends)

    def end(self) -> None:
        """Kills the program, also one that is about to start, and closes everything."""
        # The thread stores the pid first and reads this flag second. Here the order is reversed, so one of us kills it.
        self._is_cancelled = True
        self.kill()
        self.close_pipes()
        if self._thread is not None:
            self.wait()
            self.close_pipes()
        _close(self._kept_open)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the end, or to now."""
        return (self._ended_at_s or time.monotonic()) - self._started_at_s

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set

    @property
    def ending(self) -> str:
        """How it ended, as the end of a sentence."""
        if self.returncode is None:
            return UNKNOWN_STATUS if self.has_ended else "still runs"
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}"
        try:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        except ValueError:
            return f"was killed by signal {-self.returncode}"

    def pipe_from(self) -> tuple[FileIO, FileIO]:
        """A pipe from the program to the caller: our end and the program's end."""
        ours, its = pipe()
        self.our_ends.append(ours)
        return ours, its

    def channel_from(self) -> Channel:
        """A pipe from the program to the caller besides its standard streams."""
        channel = Channel()
        self.our_ends.append(channel.ours)
        return channel

    def pipe_to(self) -> tuple[FileIO, FileIO]:
        """A pipe from the caller to the program: our end and the program's end."""
        its, ours = pipe()
        self.our_ends.append(ours)
        return ours, its

    def keep_open(self, fd: int) -> None:
        """Takes a descriptor, and closes it when the program has ended."""
        self._kept_open.append(FileIO(descriptors.above_standard(fd)))

    def captured_pipe(self, take: PipeReader) -> FileIO:
        """A pipe from the program to the child's thread, which calls `take` with the data, and with b"" at the end.

        Returns the program's end.
        """
        ours, its = pipe()
        self._readers[ours] = take
        return its

    def captured_channel(self, take: PipeReader) -> Channel:
        """As `captured_pipe`, besides its standard streams."""
        channel = Channel()
        self._readers[channel.ours] = take
        return channel

    def popen(
        self,
        *,
        stdin: int | FileIO,
        stdout: int | FileIO | None,
        stderr: int | FileIO,
        channels: Sequence[Channel] = (),
        inherited: tuple[int, ...] = (),
        env: Mapping[str, str] | None = None,
        policy: ThreadPolicy | Priority | None = None,
        sandbox: Sandbox | None = None,
    ) -> Program:
        """Starts `command`, in a sandbox if there is one."""
        command = self.command
        if sandbox is not None:
            command, inherited = sandbox.launch(command), (*inherited, sandbox.source)
            env = sandbox.environment(os.environ) if env is None else env

        def start() -> Program:
            return Program(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                channels=channels,
                inherited=inherited,
                env=env,
            )

        program, self.policy = _start_with_policy(policy, start)
        return program

    def _live(self) -> None:
        try:
            try:
                self._spawn()
            except BaseException as failure:
                # The caller raises it, and gets no pipes: they are closed below.
                self._failure = failure
                self._is_cancelled = True
                return
            finally:
                self._started.set()
            if self._is_cancelled:
                self.kill()
            if self._running is not None:
                self._running.attend(self._readers, self._note_end, DRAIN_GRACE_S)
        finally:
            _children.discard(self)
            _close(self._readers)
            self._readers.clear()
            _close(self._kept_open)
            if self._is_cancelled:
                self.close_pipes()
            self._ended.set()

    def _spawn(self) -> None:
        with _starting:
            _children.add(self)
            self._started_at_s = time.monotonic()
            self._running = self.spawn()
            self.pid = self._running.pid

    def _note_end(self, status: int | None) -> None:
        self.returncode, self._ended_at_s = status, time.monotonic()

    def seconds_since_end(self) -> float:
        return 0.0 if self._ended_at_s is None else time.monotonic() - self._ended_at_s

    def _forget(self) -> None:
        """Closes everything in a forked child."""
        if self._running is not None:
            self._running.forget()
        _close((*self._readers, *self.our_ends, *self._kept_open))


class Lines:
    """A pipe reader that calls `take` with each line, without its newline, in pieces of at most `max_bytes`."""

    def __init__(self, take: Callable[[bytes], None], max_bytes: int) -> None:
        self._take = take
        self._max_bytes = max_bytes
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")  # of Windows
            for at in range(0, max(1, len(line)), self._max_bytes):
                self._take(line[at : at + self._max_bytes])
        while len(self._rest) > self._max_bytes or (self._rest and not data):
            self._take(self._rest[: self._max_bytes])
            self._rest = self._rest[self._max_bytes :]


class Flag:
    """A `threading.Event` whose `wait` may be interrupted anywhere.

    `threading.Event` is Python code: an exception from a signal handler may leave its lock locked, and then `set` and
    every `wait` block for ever.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._unset = _thread.allocate_lock()
        self._unset.acquire()

    def set(self) -> None:
        if not self.is_set:
            self.is_set = True
            self._unset.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        deadline = Deadline(timeout_s)
        while not self.is_set:
            if (left_s := deadline.at_most(POLL_INTERVAL_S)) == 0:
                return False
            # If this is interrupted, the lock stays taken; other waits see `is_set` when they poll again.
            if self._unset.acquire(timeout=left_s):
                self._unset.release()
        return True


def _close(pipes: Iterable[FileIO]) -> None:
    for end in pipes:
        with suppress(OSError):  # the host may have closed all descriptors
            end.close()


def _start_with_policy(
    policy: ThreadPolicy | Priority | None, start: Callable[[], Program]
) -> tuple[Program, AppliedPolicy | None]:
    """Starts a program from a short-lived thread that has the policy.

    A process inherits the policy of the thread that starts it. The calling thread could not always return to its own
    policy, and `preexec_fn`, which runs Python in the child, is not safe beside other threads.
    """
    if policy is None:
        return start(), None
    outcome: Future[tuple[Program, AppliedPolicy]] = Future()

    def start_with_policy() -> None:
        try:
            applied = _native._apply_policy(policy, try_undo=False)
            outcome.set_result((start(), applied))
        except BaseException as failure:
            outcome.set_exception(failure)

    _thread.start_new_thread(start_with_policy, ())
    return outcome.result()


# Running children of this process. A forked process closes its copies of their pipes, which would keep a child from its
# end of file. So a fork waits while a child is being started.
_children: set[Child] = set()
_starting = threading.Lock()


def _forget_all_in_child() -> None:
    for child in list(_children):
        child._forget()
    _children.clear()
    _starting.release()


at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_forget_all_in_child)


# Guessed: FFmpeg's description of an input with many streams and tags fits, and what is captured must stay bounded.
_STDERR_BYTES = 256 << 10


def _text(printed: bytes | bytearray) -> str:
    """What a program has printed, with the ends of lines that Linux has."""
    return printed.decode(errors="replace").replace("\r\n", "\n")


class TimedOutError(ProgramError):
    """The program did not end in time, and was killed."""


class FailedError(ProgramError):
    """The program was killed, or its exit status is not 0."""


# Guessed: what a program in a sandbox prints of a file, and must stay bounded if the file makes it print for ever.
_SANDBOXED_STDOUT_BYTES = 64 << 20


class CapturedChild(Child):
    """A program whose output is captured.

    Attributes:
        sandbox: what it may do; None if it may do all.
        stdout: everything that it wrote to standard output. A program in a sandbox is killed if that is too much.
    """

    def __init__(self, command: Sequence[str], sandbox: Sandbox | None = None) -> None:
        super().__init__()
        self.command = tuple(command)
        self.stdout = bytearray()
        self.sandbox = sandbox
        self._stderr = b""

    @property
    def text(self) -> str:
        """Its standard output."""
        return _text(self.stdout)

    @property
    def stderr(self) -> str:
        """The last 256 KiB of its standard error, without white space around them."""
        return _text(self._stderr).strip()

    def spawn(self) -> Program:
        with (
            self.captured_pipe(self._take_stdout) as stdout,
            self.captured_pipe(self._take_stderr) as stderr,
        ):
            return self.popen(stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, sandbox=self.sandbox)

    def _take_stdout(self, data: bytes) -> None:
        if self.sandbox is not None and len(self.stdout) > _SANDBOXED_STDOUT_BYTES:
            self.kill()
        else:
            self.stdout.extend(data)

    def _take_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-_STDERR_BYTES:]


def run(
    command: Sequence[str], timeout_s: float | None, *, check: bool = True, sandbox: Sandbox | None = None
) -> CapturedChild:
    """Runs a program to its end. When this returns or raises, the program and its process group are gone.

    Raises:
        NotStartedError, OSError: the program could not be started, as in `Child.start`.
        TimedOutError: it did not end within `timeout_s`.
        FailedError: its exit status is not 0, and `check` is set. The message is the last line of its standard error.
    """
    child = CapturedChild(command, sandbox)
    try:
        child.start()
        in_time = child.wait(timeout_s)
    finally:
        child.end()
    if not in_time:
        raise TimedOutError(f"{command[0]} didn't end within {timeout_s:g} s")
    if check and child.returncode != 0:
        raise FailedError(child.stderr.rpartition("\n")[2] or f"{command[0]} {child.ending}")
    return child
