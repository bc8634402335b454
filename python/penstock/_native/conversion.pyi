"""Conversions of frames, and the memory that frames are copied to."""

from typing import Self, final

from penstock._types import Data

@final
class _Conversion:
    """A conversion of frames from one pixel format to another, which a worker does while it copies them.

    Args:
        input, output: FFmpeg's names of pixel formats.
        width, height: columns and rows of the input.
        matrix: ``"bt601"``, ``"bt709"`` or ``"bt2020"``.
        range: ``"limited"`` or ``"full"``.
        vflip: whether the first row in memory is the bottom row of the picture.
        odd_size: ``"keep"`` or ``"pad"``.

    Raises:
        ValueError: this conversion, or this size of a frame, is not supported.
    """
    def __new__(
        cls,
        input: str,
        output: str,
        width: int,
        height: int,
        *,
        matrix: str,
        range: str,
        vflip: bool,
        odd_size: str,
    ) -> Self: ...
    @property
    def output_size(self) -> tuple[int, int]:
        """Columns and rows of the output."""

@final
class _ValueRange:
    """The range of floating-point samples that become whole ones.

    Args:
        low: what becomes 0.
        high: what becomes the most that the bits hold.
        bits: those of a whole sample, 1 to 16: it has one byte up to 8, and two above.

    Raises:
        ValueError: there is no scale from `low` to `high`.
    """
    def __new__(cls, low: float, high: float, bits: int) -> Self: ...

@final
class _SlotPool:
    """Page-aligned memory in slots of one size, in huge pages where the system has them. Dropped slots are recycled; at
    most ``keep_slots`` of them are kept.
    """
    def __new__(cls, slot_bytes: int, keep_slots: int) -> Self: ...
    def take(self) -> _Slot:
        """A free slot. It holds what its last user left."""
    def filled(
        self,
        data: Data,
        conversion: _Conversion | None = None,
        prefix: bytes | None = None,
        value_range: _ValueRange | None = None,
    ) -> _Slot:
        """A slot with the elements of ``data`` in C order, strided or not, or with their conversion. ``data`` is not
        needed afterwards. The bytes of ``prefix`` come before them.

        With ``value_range``, ``data`` is rows × columns × channels, or rows × columns, of float16, float32 or float64.
        They become whole samples, of which all of the above holds.

        Raises:
            ValueError: the size of ``data`` is not that of the slot, or of the conversion's input; or samples are NaN.
            TypeError: ``data`` has no buffer, or not of floats where ``value_range`` is given.
        """
    @property
    def filling_s(self) -> float:
        """Seconds that all calls of ``filled`` took."""

@final
class _Slot:
    """A writable buffer from a pool. Its memory is recycled once the last view of it is gone, including a writer's."""
    @property
    def clipped_samples(self) -> int:
        """Samples that were outside of the range of values when it was filled."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
