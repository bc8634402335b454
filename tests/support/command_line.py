"""Runs the command line: in this process, or in one of its own for tests of signals, terminals and broken pipes."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from unittest import mock

import pytest

from penstock.cli import penstock_command
from support.cases import PATIENCE_S
from support.processes import Program
from support.processes import succeeded as delivered
from support.streams import ReaderThread
from support.this_process import only_on_linux

if sys.platform == "win32":
    from support import windows

    _HEARING = (
        "from support.windows import hear_signals; from penstock.cli import main; hear_signals(); main()"
    )
    _PROGRAM = ("-c", _HEARING)
else:
    _PROGRAM = ("-m", "penstock")

ENDING = [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")]
if sys.platform != "win32":
    ENDING.append((signal.SIGHUP, "hung up"))
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"

File = int | IO[bytes]


def with_nothing_to_try(folder: Path) -> dict[str, str]:
    """Variables with which ``penstock info`` finds no OpenGL and no FFmpeg, and tries no encoder for seconds."""
    (folder / "moderngl.py").write_text("raise ImportError('no module for you')")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "PENSTOCK_FFMPEG": "/nowhere/ffmpeg"}


def run(
    *arguments: object,
    data: bytes | None = None,
    stdin: File | None = None,
    stdout: File | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line in this process, on descriptors 0, 1 and 2 of its own."""
    command = ["penstock", *map(str, arguments)]
    with contextlib.ExitStack() as stack:
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        if env is not None:
            stack.enter_context(mock.patch.dict(os.environ, env, clear=True))
        outputs = {number: stack.enter_context(_captured(number)) for number in (1, 2)}
        if stdout is not None:
            stack.enter_context(_replaced(1, stdout))
        if data is not None:
            stack.enter_context(_fed(data))
        else:
            stdin = stack.enter_context(Path(os.devnull).open("rb")) if stdin is None else stdin
            stack.enter_context(_replaced(0, stdin))
        with (
            open(1, "w", encoding="utf-8", closefd=False) as out,
            open(2, "w", encoding="utf-8", closefd=False) as err,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            penstock_command.main(command[1:], "penstock")
    out, err = (bytes(each.getvalue()) for each in outputs.values())
    return subprocess.CompletedProcess(command, end.value.code or 0, None if stdout is not None else out, err)


@contextlib.contextmanager
def _replaced(number: int, file: File) -> Iterator[None]:
    saved = os.dup(number)
    os.dup2(file if isinstance(file, int) else file.fileno(), number)
    try:
        yield
    finally:
        os.dup2(saved, number)
        os.close(saved)


@contextlib.contextmanager
def _captured(number: int) -> Iterator[io.BytesIO]:
    """Gives what is written to a descriptor, once the block has ended."""
    captured = io.BytesIO()
    reader, writer = os.pipe()
    thread = ReaderThread(reader)
    with _replaced(number, writer):
        os.close(writer)
        yield captured
    captured.write(thread.result())


@contextlib.contextmanager
def _fed(data: bytes) -> Iterator[None]:
    """Has standard input be a pipe with the data."""
    reader, writer = os.pipe()
    thread = threading.Thread(target=_feed, args=(writer, data), daemon=True)
    thread.start()
    with _replaced(0, reader):
        os.close(reader)
        yield
    thread.join(PATIENCE_S)


def _feed(fd: int, data: bytes) -> None:
    with contextlib.suppress(OSError), open(fd, "wb") as file:
        file.write(data)


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """The command line in a process of its own."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *_PROGRAM, *map(str, arguments)]
    return Program(command, **(settings | options))


def run_process(
    *arguments: object, data: bytes | None = None, patience_s: float = PATIENCE_S, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Runs it in a process of its own to the end; one that hangs is killed and fails the test."""
    if data is not None:
        options["stdin"] = subprocess.PIPE
    with start(*arguments, **options) as process:
        try:
            out, err = process.communicate(data, timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"it did not end: {process.communicate()[1].decode()}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The exit status of a process, and what it wrote to standard error."""
    with process:
        _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, text_of(err)


def text_of(data: bytes) -> str:
    """What a program wrote, as Linux' would have."""
    text = data.decode()
    return windows.in_words_of_c(text.replace("\r\n", "\n")) if sys.platform == "win32" else text


def printed(done: subprocess.CompletedProcess[bytes]) -> str:
    """`delivered` as text."""
    return text_of(delivered(done))


def failed(done: subprocess.CompletedProcess[bytes], status: int = 1) -> str:
    """What a run that failed wrote to standard error, in one line: no traceback."""
    stderr = text_of(done.stderr)
    assert (done.returncode, "Traceback" in stderr) == (status, False), stderr
    return " ".join(stderr.split())


class Terminal:
    """The controlling side of a terminal, and what has been shown there."""

    def __init__(self, controlling: int) -> None:
        self.file = io.FileIO(controlling)
        self.shown = bytearray()

    def until(self, *words: bytes) -> None:
        """Waits until one of these is shown."""
        while not any(word in self.shown for word in words):
            self.shown += self.file.read(1 << 16)

    def rest(self) -> bytes:
        """All that has been shown when the program has ended."""
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while chunk := self.file.read(1 << 16):
                self.shown += chunk
        return bytes(self.shown)


@contextlib.contextmanager
def on_terminal(*arguments: object, **options: Any) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """Starts it in a process of its own with a terminal for standard error."""
    only_on_linux("a terminal that a program holds")
    controlling, user = os.openpty()
    terminal = Terminal(controlling)
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    with terminal.file, start(*arguments, **({"stderr": user, "env": environment} | options)) as process:
        os.close(user)
        yield process, terminal


def run_on_terminal(*arguments: object, **options: Any) -> tuple[int, str, bytes]:
    """Runs it with a terminal for standard error. Returns its exit status, what it showed there, and its output."""
    with on_terminal(*arguments, **options) as (process, terminal):
        output = ReaderThread(os.dup(process.stdout.fileno())) if process.stdout else None
        shown = terminal.rest()
    return process.returncode, shown.decode(), output.result() if output else b""


def open_blocking(path: Path, mode: str) -> IO[bytes]:
    """Opens a FIFO as most programs do, which waits for the other side. Fails if that does not come."""
    opened: list[IO[bytes]] = []
    thread = threading.Thread(target=lambda: opened.append(path.open(mode, 0)), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert opened, f"nobody has opened the other side of {path.name}"
    return opened[0]


def ffmpegs_of(pid: int) -> list[int]:
    """The child processes of a process that run FFmpeg."""
    if sys.platform == "win32":
        return windows.children_named(b"ffmpeg", pid)
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                if b"ffmpeg" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                    found.append(int(child))
    return found
