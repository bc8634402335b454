"""A running child that reads a file in a sandbox, and sends answers in lines of JSON and records of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from io import FileIO

from penstock._ffmpeg.program.child import Flag, Lines
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._platform.programs import Program
from penstock.errors import DecoderError

_LINE_BYTES = 4096
# Guessed: the times of all frames of a week; and what it prints must stay bounded.
_ANSWER_BYTES = 64 << 20


class ConfinedProcess(FFmpegProcess):
    """FFmpeg's libraries in a process of their own: Python, to which the number of a pipe for records is passed last.

    Args:
        command: as from `Isolation.command`.
        answers: how many lines it prints at most.
        stdin: what it reads, which this closes; None for a pipe from us.

    Attributes:
        records: our end of that pipe.
        stdin: our end of its standard input.
    """

    records: FileIO

    def __init__(
        self, command: Sequence[str], sandbox: Sandbox, answers: int, stdin: FileIO | None = None
    ) -> None:
        super().__init__(
            command[0], command[1:], is_strict=True, stdout=None, sandbox=sandbox, error=DecoderError
        )
        self.sandbox: Sandbox = sandbox
        self._python, self._stdin_of_child = command, stdin
        self._printed: list[bytes] = []
        self._pending = bytearray()
        self._came = tuple(Flag() for _ in range(answers))

    @property
    def stderr(self) -> str:
        """The last lines of its standard error."""
        return self.log.text

    def answer(self, number: int, timeout_s: float | None) -> bytes | None:
        """The line of that number, from 0; empty if it has ended without. None if it does not come in time."""
        if not self._came[number].wait(timeout_s):
            return None
        return self._printed[number] if number < len(self._printed) else b""

    def spawn(self) -> Program:
        records = self.channel_from()
        self.records = records.ours
        if (stdin := self._stdin_of_child) is None:
            self.stdin, stdin = self.pipe_to()
        with (
            records,
            stdin,
            self.captured_pipe(self._take) as stdout,
            self.captured_pipe(Lines(self.log.take, _LINE_BYTES)) as stderr,
        ):
            self.command = (*self._python, str(records.number))
            return self.popen(
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                channels=[records],
                sandbox=self.sandbox,
            )

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            if len(self._printed) == len(self._came):
                self.kill()
                return
            self._printed.append(bytes(self._pending) + line)
            self._pending.clear()
            self._came[len(self._printed) - 1].set()
        self._pending += rest
        if len(self._pending) > _ANSWER_BYTES:
            self.kill()

    def _live(self) -> None:
        try:
            super()._live()
        finally:
            for flag in self._came:
                flag.set()
