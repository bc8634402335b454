"""Programs in processes of their own, what is left of them, and what they call."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from support.cases import PATIENCE_S, eventually
from support.this_process import are_asleep, only_on_linux, state

if sys.platform == "win32":
    from support import windows

    Program: type[subprocess.Popen[bytes]] = windows.Hearing
else:
    Program = subprocess.Popen

# In the environment of all that the tests of this process start, and of what those start.
_MARK = "PENSTOCK_TESTED_BY"


_MARKED = f"{os.environ.get(_MARK, '')}{os.getpid()}/"


os.environ[_MARK] = _MARKED


PRELUDE = f"""
import os, signal, sys, threading, time
import penstock
sys.path.append({str(Path(__file__).parents[1])!r})
from support.this_process import are_asleep, pixel_threads, threads, workers
if sys.platform == "win32":
    from support.windows import have_signals, hear_signals
    have_signals()
    hear_signals()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(newline="\\n")
"""


# What programs of tests use that only Linux has.
_ON_LINUX = re.compile(
    r"/proc/|\b(?:fcntl|pty|resource)\b|os\.(?:fork|mkfifo|geteuid)|SIGALRM|SIGUSR|setitimer|pthread_"
)


def start_script(code: str, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """A Python program in a process of its own; its stderr is kept. Skips the test if the program is for Linux."""
    if calls := _ON_LINUX.search(code):
        only_on_linux(f"a program calls {calls[0]}")
    program = PRELUDE + textwrap.dedent(code)
    # Since Python 3.12: our threads touch no Python, and a fork leaves their locks alone.
    no_warning = "ignore:This process:DeprecationWarning"
    command = [sys.executable, "-W", no_warning, "-c", program, *map(str, arguments)]
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return Program(command, **(settings | options))


def run_script(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Runs a Python program to its end; one that hangs is killed and fails the test."""
    with start_script(code, *arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            pytest.fail(f"the program did not end: {err.decode()}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def succeeded(done: subprocess.CompletedProcess[bytes]) -> bytes:
    """The output of a program that must have gone well, and must have had nothing to complain of."""
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return done.stdout


# Windows programs get no signals from others. A console's Ctrl-C is one that a thread of the program raises.
_CTRL_C = """
def interrupt():
    os.read(0, 1)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""


def interrupted(code: str, *arguments: object) -> bytes:
    """The output of a program that says "waiting", gets Ctrl-C in its wait, and then must go well."""
    by_itself = sys.platform == "win32"
    code = (_CTRL_C if by_itself else "") + textwrap.dedent(code)
    with start_script(code, *arguments, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"waiting"
        assert eventually(lambda: are_asleep(lambda: {process.pid}))
        if not by_itself:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(b"!" if by_itself else None, timeout=PATIENCE_S)
    return succeeded(subprocess.CompletedProcess(process.args, process.returncode, out, err))


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of that size, by default of 1 MiB. Skips the test if it cannot be mounted."""
    only_on_linux("a small file system is mounted")
    folder.mkdir(exist_ok=True)
    with mounted(["mount", "-t", "tmpfs", "-o", f"size={size}", "penstock-test", folder]):
        yield folder


@contextlib.contextmanager
def mounted(command: list[str | Path]) -> Iterator[None]:
    """Mounts by a command whose last word is the place. Skips the test if that can't be done."""
    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"can't mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", command[-1]], check=True)


def script(path: Path, *lines: str) -> Path:
    """Writes a shell script in place of a program. Skips the test where there is no shell."""
    only_on_linux("a shell script stands in for a program")
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def has_ended(pid: int) -> bool:
    """Whether a process has ended, even if its new parent has not reaped it yet."""
    return not windows.runs(pid) if sys.platform == "win32" else state(pid) in ("", "Z")


@functools.cache
def _why_no_strace() -> str | None:
    """Why strace cannot inject faults here; None if it can."""
    try:
        command = ["strace", "-o", "/dev/null", "-e", "inject=getppid:error=EINTR", "true"]
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return "strace is not installed"
    return None if done.returncode == 0 else f"strace does not work here: {done.stderr.decode().strip()}"


def trace(
    code: str, *arguments: object, options: Sequence[str]
) -> tuple[subprocess.CompletedProcess[bytes], str]:
    """Runs a Python program in strace, whose record comes second. Skips the test where strace does not work."""
    if (reason := _why_no_strace()) is not None:
        pytest.skip(reason)
    with tempfile.NamedTemporaryFile("r") as record:
        program = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)]
        command = ["strace", "-o", record.name, *options, *program]
        return subprocess.run(command, capture_output=True, timeout=60, check=False), record.read()


def system_calls(code: str) -> list[list[str]]:
    """Runs a program in strace, and returns the calls of its first thread between each two of its ``os.getppid()``.

    Without those of memory, which depend on what malloc has left.
    """
    done, record = trace(code, options=())
    assert succeeded(done) == b""
    _, *parts, _ = record.split("getppid()")
    of_memory = {"brk", "madvise", "mmap", "mprotect", "mremap", "munmap"}
    calls = [[line.partition("(")[0] for line in part.splitlines()[1:]] for part in parts]
    return [[call for call in each if call not in of_memory] for each in calls]


def processes() -> set[int]:
    """All that run on this machine, as far as we see them."""
    if sys.platform == "win32":
        return set(windows.parents())
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}


def started(others: Collection[int] = ()) -> dict[int, bytes]:
    """What the tests of this process started and has not ended, but for `others`: command lines by process id."""
    if sys.platform == "win32":
        return dict.fromkeys(windows.descendants().difference(others), b"")
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


def kill_started(others: Collection[int] = ()) -> None:
    """Ends what the tests started and left running, whoever its parent is by now."""
    for pid in started(others):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
