"""A running child that reads a file in a sandbox: each call of it is a line of JSON, and so is each answer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO

from penstock._facts.exact_json import pack
from penstock._ffmpeg.program.child import Flag, Lines
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._platform.programs import Program
from penstock.errors import DecoderError

_LINE_BYTES = 4096
# Guessed: the times of all frames of a week; and what it prints must stay bounded.
_ANSWER_BYTES = 64 << 20


class ConfinedProcess(FFmpegProcess):
    """FFmpeg's libraries in a process of their own: Python, to which the number of a pipe for frames is passed last.

    Args:
        command: what it runs.
        request: its first line: not in its arguments, which any user may read.
        passed: a descriptor that it gets, too.

    Attributes:
        records: our end of that pipe.
        stdin: our end of its standard input.
    """

    records: FileIO

    def __init__(
        self,
        command: Sequence[str],
        sandbox: Sandbox,
        request: Mapping[str, object],
        passed: int | None = None,
    ) -> None:
        super().__init__(
            command[0], command[1:], is_strict=True, stdout=None, sandbox=sandbox, error=DecoderError
        )
        self.sandbox: Sandbox = sandbox
        self._python, self._request, self._passed = command, request, passed
        self._pending, self._has_stopped = bytearray(), False
        self._answers: list[bytes] = []
        self._came: list[Flag] = []  # for each call

    @property
    def stderr(self) -> str:
        """The last lines of its standard error."""
        return self.log.text

    def start(self) -> None:
        super().start()
        self._write(self._request)

    def call(self, name: str, *arguments: object) -> int:
        """Calls one of its functions. Returns the number of the call, for `answer`."""
        self._came.append(Flag())
        # In this order: `_live` sets the flags that it finds, after it has said that it has stopped.
        if self._has_stopped:
            self._came[-1].set()
        self._write([name, pack(arguments)])
        return len(self._came) - 1

    def answer(self, number: int, timeout_s: float | None) -> bytes | None:
        """The answer to a call; empty if it has ended without. None if it doesn't come in time."""
        if not self._came[number].wait(timeout_s):
            return None
        return self._answers[number] if number < len(self._answers) else b""

    def spawn(self) -> Program:
        records = self.channel_from()
        self.records = records.ours
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
                inherited=() if self._passed is None else (self._passed,),
                sandbox=self.sandbox,
            )

    def _write(self, message: object) -> None:
        with suppress(BrokenPipeError):  # it has ended, which its answer shows
            os.write(self.stdin.fileno(), json.dumps(message).encode() + b"\n")

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            # An answer to no call: the process was taken over.
            if len(self._answers) == len(self._came):
                self.kill()
                return
            self._answers.append(bytes(self._pending) + line)
            self._pending.clear()
            self._came[len(self._answers) - 1].set()
        self._pending += rest
        if len(self._pending) > _ANSWER_BYTES:
            self.kill()

    def _live(self) -> None:
        try:
            super()._live()
        finally:
            # No answer comes any more: whoever waits for one must not wait for ever.
            self._has_stopped = True
            for flag in self._came:
                flag.set()
