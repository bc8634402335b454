"""The frames of a confined FFmpeg program: another confined process reads its NUT, and sends the frames as they are.

This process parses nothing that the program writes.
"""

from __future__ import annotations

from fractions import Fraction
from io import FileIO
from typing import TYPE_CHECKING

from penstock._decoding.confined_engine import Confined

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.isolation import Isolation
    from penstock._native import ThreadPolicy


class ConfinedOutput(Confined):
    """Reads the frames one after another, as `ProgramOutput` does.

    Args:
        isolation: the file that the program reads.
        output, time_base, policy, frame_bytes: as for `ProgramOutput`.
    """

    def __init__(
        self,
        isolation: Isolation,
        output: FileIO,
        time_base: Fraction,
        policy: ThreadPolicy | Priority | None,
        frame_bytes: int,
    ) -> None:
        super().__init__(isolation, f"<Decoder {isolation.path!r}>", passed=output.fileno())
        self.frame_bytes, self._queue_items, self._policy = frame_bytes, 1, policy
        self._call = "written", output.fileno(), time_base, frame_bytes
        self.start()

    def connect(self) -> None:
        self._sending = self.process.call(*self._call)

    def read(self) -> tuple[int, memoryview] | None:
        """The next frame and its timestamp; None at the end. Waits as long as it takes."""
        if (frame := self.next_frame()) is None:
            self.finish()
            return None
        return frame[1:]

    def waits(self) -> bool:
        """No: this process can't see whether the other one has read all."""
        return False

    @property
    def count(self) -> int:
        """How many frames were read."""
        return self.delivered

    def release(self) -> None:
        """Does nothing: `close` has."""
