"""Runs a short program to its end and captures what it prints: FFmpeg's listings, version queries."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from penstock.ffmpeg.program.child import Child, ProgramError

# Guessed: FFmpeg's description of an input with many streams and tags fits, and what is captured must stay bounded.
_STDERR_BYTES = 256 << 10


class TimedOutError(ProgramError):
    """The program did not end in time, and was killed."""


class FailedError(ProgramError):
    """The program was killed, or its exit status is not 0."""


class CapturedChild(Child):
    """A program whose output is captured.

    Attributes:
        stdout: everything that it wrote to standard output.
    """

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__()
        self.command = tuple(command)
        self.stdout = bytearray()
        self._stderr = b""

    @property
    def text(self) -> str:
        """Its standard output."""
        return self.stdout.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """The last 256 KiB of its standard error, without white space around them."""
        return self._stderr.decode(errors="replace").strip()

    def spawn(self) -> subprocess.Popen[bytes]:
        with (
            self.captured_pipe(self.stdout.extend) as stdout,
            self.captured_pipe(self._take_stderr) as stderr,
        ):
            return self.popen(stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def _take_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-_STDERR_BYTES:]


def run(command: Sequence[str], timeout_s: float | None, *, check: bool = True) -> CapturedChild:
    """Runs a program to its end. When this returns or raises, the program and its process group are gone.

    Raises:
        NotStartedError: the program could not be started.
        TimedOutError: it did not end within `timeout_s`.
        FailedError: its exit status is not 0, and `check` is set. The message is the last line of its standard error.
    """
    child = CapturedChild(command)
    try:
        child.start()
        in_time = child.wait(timeout_s)
    finally:
        child.end()
    if not in_time:
        raise TimedOutError(f"{command[0]} did not end within {timeout_s:g} s")
    if check and child.returncode != 0:
        raise FailedError(child.stderr.rpartition("\n")[2] or f"{command[0]} {child.ending}")
    return child
