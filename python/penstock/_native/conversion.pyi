"""Conversions of frames, and the memory that frames are copied to."""

from collections.abc import Sequence
from typing import Self, final

from penstock._common.types import Data

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

@final
class _Delivery:
    """Makes arrays of packed pixels: other samples, channels first, and a border.

    Args:
        picture: columns and rows of the picture.
        channels: samples of a pixel.
        size: columns and rows of the array.
        border: columns left of the picture, and rows above it.
        fill: the sample of each channel around the picture.
        channels_first: whether the array is channels × rows × columns, not rows × columns × channels.
        values: what each sample becomes, from 0 on, 256 or 65,536 one after another, of 1, 2 or 4 bytes.
        sample_bytes: bytes of a sample of the picture, 1 or 2.

    Raises:
        ValueError: they do not fit to each other.
    """
    def __new__(
        cls,
        *,
        picture: tuple[int, int],
        channels: int,
        size: tuple[int, int],
        border: tuple[int, int],
        fill: Sequence[int],
        channels_first: bool,
        values: bytes,
        sample_bytes: int,
    ) -> Self: ...

@final
class _PlaneConverter:
    """Makes the bytes of frames from planes that lie anywhere, as a decoder leaves them. The native threads that do it
    serve all converters of the process.

    Args:
        conversion: None copies the rows of the planes one after another, without padding, whatever they hold.
        rows: of each plane, the number of rows, and the bytes of a row that hold samples.
        keep_slots: how many unused frames are kept for use again, until the converter is gone.
        threads: how many threads may work for this converter at the same time. With 0, and in a process that may use a
            single CPU, the thread that waits for a frame makes it.
        delivery: makes arrays of that. None: the frames are those.

    Raises:
        ValueError: ``rows`` are not those of the conversion's input, or too many; or they don't become the picture that
            is delivered.
    """
    def __new__(
        cls,
        conversion: _Conversion | None,
        rows: Sequence[tuple[int, int]],
        keep_slots: int,
        threads: int,
        delivery: _Delivery | None = None,
    ) -> Self: ...
    def begin(self, planes: Sequence[Data], strides: Sequence[int], out: Data | None = None) -> _PlaneJob:
        """Begin a frame. Its job holds ``planes`` and ``out`` until ``wait`` returns or the job is dropped. Nobody may
        write to them meanwhile.

        Args:
            planes: C-contiguous buffers, each with all rows of a plane.
            strides: of each plane, the bytes from a row to the one below it. If they are negative, the rows lie
                bottom-up, and the buffer begins with the last row.
            out: a writable, C-contiguous buffer of a frame's size. None: a slot.

        Raises:
            ValueError: the planes, strides or ``out`` do not fit to the frame or to each other.
            TypeError: one of them is no buffer.
            MemoryError: there is none for a slot.
        """
    @property
    def converting_s(self) -> float:
        """Seconds that threads spent on making frames, all together."""

@final
class _PlaneJob:
    """A frame that is being made. Its drop waits for the threads that are at it, and leaves the rest out."""
    def wait(self) -> _Slot | None:
        """Make what no other thread has begun, wait for the rest, and return the slot; None if ``out`` was given. Can
        be called once. Releases the GIL.

        Raises:
            ValueError: it was waited for before.
            ClosedError: the parent process began it.
        """
    @property
    def done(self) -> bool:
        """Whether ``wait`` would neither wait nor work."""
