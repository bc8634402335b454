"""The frames of a confined FFmpeg program: another confined process reads its NUT, and sends the frames as they are.

This process parses nothing that the program writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from io import FileIO
from typing import TYPE_CHECKING, Any

from penstock._decoding.confined_engine import END_GRACE_S
from penstock._decoding.confined_records import FRAME, RECORD, write_record, writer_to
from penstock._decoding.program_frames import written_frames
from penstock._facts.confined_process import ConfinedProcess
from penstock._facts.isolated_facts import confined
from penstock._native import Reader
from penstock.errors import TruncatedStreamError

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.isolation import Isolation
    from penstock._native import ReaderStats, ThreadPolicy


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the process says after the last frame."""

    frames: int


def main(request: dict[str, Any], records: int) -> None:
    """Sends the frames of the NUT in its standard input, after it has confined itself."""
    _, answered = confined(request)

    def sent() -> _Sent:
        count = 0
        with writer_to(records) as writer:
            for pts, packet in written_frames(0, request["frame_bytes"], Fraction(*request["time_base"])):
                write_record(writer, FRAME, count, pts, packet)
                count += 1
        return _Sent(count)

    answered(sent)


class ConfinedOutput:
    """Reads the frames one after another, as `ProgramFrames` does.

    Args:
        isolation: the file that the program reads.
        output, frame_bytes, time_base, policy: as for `ProgramFrames`.
    """

    def __init__(
        self,
        isolation: Isolation,
        output: FileIO,
        frame_bytes: int,
        time_base: Fraction,
        policy: ThreadPolicy | Priority | None,
    ) -> None:
        self._isolation = isolation
        self._is_cut = False
        request = {
            "frame_bytes": frame_bytes,
            "time_base": [time_base.numerator, time_base.denominator],
        }
        command, sandbox = isolation.command(__name__, request, isolation.sandbox.cpu_s)
        self._process = ConfinedProcess(command, sandbox, 1, stdin=output)
        try:
            self._process.start()
            self._reader = Reader(
                self._process.records,
                frame_bytes=RECORD.size + frame_bytes,
                queue_items=1,
                policy=policy,
            )
        except BaseException:
            self._process.end()
            raise
        self._process.records.close()  # the reader has a duplicate

    def read(self, _: float | None = None) -> tuple[int, memoryview] | None:
        """The next frame and its timestamp; None at the end. Waits as long as it takes."""
        try:
            record = self._reader.read()
        except TruncatedStreamError:
            record, self._is_cut = None, True
        if record is None:
            self._end()
            return None
        kind, index, pts = RECORD.unpack_from(record)
        if kind != FRAME or index != record.index:
            raise self._strange()
        return pts, memoryview(record)[RECORD.size :]

    def _end(self) -> None:
        """Takes what the process says at its end."""
        process, frames = self._process, self._reader.stats.frames_read
        printed = process.answer(0, END_GRACE_S) or b""
        process.wait(END_GRACE_S)
        sent = self._isolation.answer(printed, _Sent, process, frames)
        if self._is_cut or sent.frames != frames:
            raise self._strange()

    def _strange(self) -> Exception:
        reason = f"{self._isolation.path}: libav's process sent something else than frames"
        return self._isolation.failure(reason, self._process, self._reader.stats.frames_delivered)

    def waits(self) -> bool:
        """No: this process can't see whether the other one has read all."""
        return False

    @property
    def stats(self) -> ReaderStats:
        """How many frames were read, as `frames_delivered`."""
        return self._reader.stats

    def release(self) -> None:
        """Does nothing: `close` has."""

    def close(self) -> None:
        """Ends the process. May be called again."""
        self._process.kill()
        self._reader.close()
        self._process.close_pipes()
