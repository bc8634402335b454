"""Helpers of the tests on the writer: real readers, scripts in processes of their own, and what a process has open."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import textwrap
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import penstock

# A shell's background jobs ignore SIGINT and SIGQUIT, nohup's SIGHUP, and what they start inherits that. A program that
# is started by one that handles a signal has the signal's default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda _number, _frame: None)

IS_THOROUGH = "PENSTOCK_THOROUGH" in os.environ
"""Whether property tests try many examples, as in make test-all."""

hypothesis.settings.register_profile("penstock", deadline=None, max_examples=100 if IS_THOROUGH else 20)
hypothesis.settings.load_profile("penstock")


def examples(thorough: int) -> hypothesis.settings:
    """That many examples for a property test, or a fifth of them if the tests are not thorough."""
    return hypothesis.settings(max_examples=thorough if IS_THOROUGH else max(10, thorough // 5))


# In the environment of all that the tests of this process start, and of what those start.
_MARK = "PENSTOCK_TESTED_BY"
_MARKED = f"{os.environ.get(_MARK, '')}{os.getpid()}/"
os.environ[_MARK] = _MARKED

MODES = ["auto", "write", "staged", "zero-copy"]

PIPE_BYTES = 64 << 10
"""What Linux gives a new pipe (pipe(7))."""

PATIENCE_S = 60.0
"""How long a test waits for what must happen at all; how fast is nobody's claim."""


def a_few(cases: Iterable[Any], one_in: int = 4) -> list[Any]:
    """A test's cases. Only one in four, or in `one_in`, is not slow."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*value, marks=[pytest.mark.slow] if number % one_in else [])
        for number, value in enumerate(values)
    ]


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that differ everywhere, so that a lost, doubled or exchanged piece shows."""
    return random.Random(seed).randbytes(size)


def eventually(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
    """Whether the condition comes true before patience ends."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


class ReaderThread:
    """Reads a descriptor to its end on a Python thread, in the same process as the writer."""

    def __init__(self, fd: int, *, chunk_bytes: int = 1 << 20, gate: threading.Event | None = None) -> None:
        self.fd = fd
        self.chunk_bytes = chunk_bytes
        self.gate = gate
        self.got = bytearray()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        if self.gate is not None:
            self.gate.wait()
        while chunk := os.read(self.fd, self.chunk_bytes):
            self.got += chunk
        os.close(self.fd)

    def result(self) -> bytes:
        """All that came until the end of file."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), f"the reader had no end of file; it has {len(self.got)} bytes"
        return bytes(self.got)


def read_exactly(fd: int, size: int) -> bytes:
    """That many bytes, or fewer at the end of file."""
    got = bytearray()
    while len(got) < size and (chunk := os.read(fd, size - len(got))):
        got += chunk
    return bytes(got)


def capacity_bytes(fd: int) -> int:
    """The size of a pipe."""
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def unread_bytes(fd: int) -> int:
    """What is in a pipe."""
    answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def open_fds() -> dict[str, str]:
    """Our descriptors and what they lead to."""
    fds = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            fds[entry.name] = str(entry.readlink())
    return fds


def workers() -> set[int]:
    """Ids of our native threads."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if (task / "comm").read_text().strip() == "penstock":
                found.add(int(task.name))
    return found


def threads() -> set[int]:
    """Ids of all our threads."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def are_asleep(tasks: Callable[[], set[int]]) -> bool:
    """Whether these threads sleep, at ten looks in a row. A thread that polls without a pause is runnable at each."""
    for _ in range(10):
        for task in tasks():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                stat = Path(f"/proc/self/task/{task}/stat").read_text()
                if stat.rpartition(") ")[2][0] != "S":
                    return False
        time.sleep(0.005)
    return True


def rss_bytes() -> int:
    """Our memory that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


PRELUDE = """
import os, signal, sys, threading, time
import penstock
"""


def start_script(code: str, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """A Python program in a process of its own; its stderr is kept."""
    program = PRELUDE + textwrap.dedent(code)
    # Since Python 3.12: our threads touch no Python, and a fork leaves their locks alone.
    no_warning = "ignore:This process:DeprecationWarning"
    command = [sys.executable, "-W", no_warning, "-c", program, *map(str, arguments)]
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **(settings | options))


def run_script(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Runs a Python program to its end; one that hangs is killed and fails the test."""
    with start_script(code, *arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            pytest.fail(f"the program did not end: {err.decode()}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def succeeded(done: subprocess.CompletedProcess[bytes]) -> bytes:
    """The output of a program that must have gone well, and must have had nothing to complain of."""
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return done.stdout


def ffmpegs() -> list[str]:
    """The FFmpegs of this machine: the system's, and the wheel's."""
    found = [shutil.which("ffmpeg")]
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg

        found.append(imageio_ffmpeg.get_ffmpeg_exe())
    return list(dict.fromkeys(program for program in found if program))


def script(path: Path, *lines: str) -> Path:
    """Writes a shell script in place of a program."""
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def has_ended(pid: int) -> bool:
    """Whether a process has ended, even if its new parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


@functools.cache
def no_strace() -> str | None:
    """Why strace cannot inject faults here; None if it can."""
    try:
        command = ["strace", "-o", "/dev/null", "-e", "inject=getppid:error=EINTR", "true"]
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return "strace is not installed"
    return None if done.returncode == 0 else f"strace does not work here: {done.stderr.decode().strip()}"


def system_calls(script: str) -> list[list[str]]:
    """Runs a program in strace, and returns the calls of its first thread between each two of its ``os.getppid()``.

    Without those of memory, which depend on what malloc has left.
    """
    with tempfile.NamedTemporaryFile("r") as record:
        program = [sys.executable, "-c", PRELUDE + textwrap.dedent(script)]
        done = subprocess.run(
            ["strace", "-o", record.name, *program], capture_output=True, timeout=60, check=False
        )
        assert succeeded(done) == b""
        _, *parts, _ = record.read().split("getppid()")
    of_memory = {"brk", "madvise", "mmap", "mprotect", "mremap", "munmap"}
    calls = [[line.partition("(")[0] for line in part.splitlines()[1:]] for part in parts]
    return [[call for call in each if call not in of_memory] for each in calls]


def processes() -> set[int]:
    """All that run on this machine, as far as we see them."""
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}


def started(others: Container[int] = ()) -> dict[int, bytes]:
    """What the tests of this process started and has not ended, but for `others`: command lines by process id."""
    found = {}
    for pid in processes() - {os.getpid()}:
        if pid not in others:
            with contextlib.suppress(OSError):  # it is gone, or another user's
                if _is_ours(process := Path(f"/proc/{pid}")):
                    found[pid] = (process / "cmdline").read_bytes()
    return found


def _is_ours(process: Path) -> bool:
    state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
    if state == "Z":
        return False
    # A fork that has executed nothing shows the environment that its parent was started with.
    return (
        int(parent) == os.getpid()
        or f"\0{_MARK}={_MARKED}".encode() in b"\0" + (process / "environ").read_bytes()
    )


def kill_started(others: Container[int] = ()) -> None:
    """Ends what the tests started and left running, whoever its parent is by now."""
    for pid in started(others):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def nothing_stays_running() -> Iterator[None]:
    """A test that fails may leave programs behind, and some of them spin."""
    others = processes()
    yield
    kill_started(others)


def pytest_unconfigure() -> None:
    """What is left of tests whose process died."""
    kill_started()


@pytest.fixture(params=ffmpegs(), ids=lambda program: "wheel" if "imageio" in program else "system")
def ffmpeg(request: pytest.FixtureRequest) -> str:
    """Each FFmpeg of this machine."""
    return str(request.param)


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """A pipe's two ends, closed afterwards if the test has not."""
    reader, writer = os.pipe()
    inodes = {fd: os.fstat(fd).st_ino for fd in (reader, writer)}
    yield reader, writer
    for fd, inode in inodes.items():
        with contextlib.suppress(OSError):
            if os.fstat(fd).st_ino == inode:
                os.close(fd)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of 3 MiB, larger than any pipe."""
    path = tmp_path / "big"
    path.write_bytes(noise(3 << 20))
    return path


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture(autouse=True)
def nothing_stays_queued() -> Iterator[None]:
    """No test leaves a failure or a write of `pipe` to the next."""
    yield
    with contextlib.suppress(OSError):
        penstock.close(timeout=10)
