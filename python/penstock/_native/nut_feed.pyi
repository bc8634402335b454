from collections.abc import Sequence
from typing import ClassVar, Self, final

from penstock._native.conversion import _Slot
from penstock._native.ticket import Ticket
from penstock._native.writer import Writer

@final
class _NutFeed:
    """Queues frames and sound of a NUT stream, each numbered in the step that queues it: whatever a signal handler
    raises, its counts are those of the queue.

    A track is a unit's number, what is added to a full time, and the scale, offset and divisor of its times. The
    picture's comes first.
    """

    _PREFIX_BYTES: ClassVar[int]
    """Bytes before each frame, which its slot has room for."""

    def __new__(
        cls,
        writer: Writer,
        head: bytes,
        unit_count: int,
        tracks: Sequence[tuple[int, int, int, int, int]],
    ) -> Self: ...
    def prefix(self, tick: int, nbytes: int) -> bytes:
        """What comes before a frame of so many bytes at that tick."""
    def frame(
        self, slot: _Slot, tick: int | None = None, after: int | None = None, *, timeout: float | None = None
    ) -> Ticket | None:
        """Queue a frame behind its prefix. At a constant rate, without ``tick``, the prefix is written now.

        None if ``after`` is not the tick of the frame before, which another thread has queued meanwhile.
        """
    def samples(
        self,
        track: int,
        samples: bytes,
        sample_bytes: int,
        most_bytes: int,
        *,
        timeout: float | None = None,
    ) -> Ticket:
        """Queue a copy of samples behind those before, in packets of at most ``most_bytes``."""
    def packets(
        self,
        track: int,
        first: int,
        packets: Sequence[tuple[int, bytes]],
        *,
        timeout: float | None = None,
    ) -> None:
        """Queue packets, their times in units and their bytes, unless the first, of that number, was queued before."""
    def count(self, track: int) -> int:
        """Frames or samples of a track that were queued; of packets, the number of the next one."""
    def frames_until(self, nbytes: int) -> int:
        """How many frames are in the first so many bytes of the stream."""
    @property
    def times(self) -> tuple[int, int, int] | None:
        """The first frame's tick, the last one's, and how long that is after the one before; None without frames."""
    @property
    def waited_s(self) -> float:
        """Seconds that calls have waited for room."""
