"""The frames of a confined FFmpeg program: another confined process reads its NUT, and sends the frames as they are.

This process parses nothing that the program writes.
"""

from __future__ import annotations

from fractions import Fraction
from io import FileIO
from typing import TYPE_CHECKING

from penstock._common.deadline import Deadline
from penstock._decoding.confined_engine import Confined

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.isolation import Isolation
    from penstock._native import ReaderStats, ThreadPolicy


class ConfinedOutput(Confined):
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
        super().__init__(isolation, f"<Decoder {isolation.path!r}>", passed=output.fileno())
        self.frame_bytes, self._queue_items, self._policy = frame_bytes, 1, policy
        self._call = "written", output.fileno(), frame_bytes, time_base
        self.start()

    def connect(self) -> None:
        self._sending = self.process.call(*self._call)

    def read(self, _: float | None = None) -> tuple[int, memoryview] | None:
        """The next frame and its timestamp; None at the end. Waits as long as it takes."""
        if (record := self._take(None)) is not None:
            _, pts, memory = self._frame(record, self.reader.stats.frames_delivered - 1)
            return pts, memory
        self._finish(Deadline(None))
        return None

    def waits(self) -> bool:
        """No: this process can't see whether the other one has read all."""
        return False

    @property
    def stats(self) -> ReaderStats:
        """How many frames were read, as `frames_delivered`."""
        return self.reader.stats

    def release(self) -> None:
        """Does nothing: `close` has."""
