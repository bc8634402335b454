"""Types that the native module's signatures name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from numpy.typing import NDArray

Mode = Literal["auto", "write", "staged", "zero-copy"]
"""How bytes enter a pipe: by which transport, or by the fastest that is safe."""

RelayMethod = Literal["auto", "read-write"]
"""The methods that a relay may use: the best that the pair allows, or only read(2) and write(2)."""

TeeWhenFull = Literal["block", "evict"]
"""What a tee does about a destination that takes nothing: make all others wait, or remove it."""

Priority = Literal[
    "background", "lowest", "below-normal", "normal", "above-normal", "highest", "time-critical"
]
"""The importance of a thread; `penstock.cpu.ThreadPolicy` lists the niceness of each level."""

SchedulingClass = Literal["other", "batch", "idle", "fifo", "round-robin", "deadline", "unknown"]
"""The scheduling policies of sched(7)."""

Near = int | tuple[Literal["cpu"], int]
"""The owner of the L3 cache to share: a thread or process by its id, or a CPU by its number."""


CodecName = Literal["auto", "zlib", "gzip", "zstd", "lz4"]  # of bytes, not of video
"""A compressed format, or whichever the first bytes show."""

ChecksumName = Literal["xxh3", "crc32"]
"""XXH3 with 64 bits, the fastest; or CRC-32 as in zlib, gzip and PNG."""

OnError = Literal["raise", "skip"]
"""What a pipeline does after a chunk that fails: end, or continue and list it."""


class HasFileno(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int:
        """The descriptor."""


class HasNumpy(Protocol):
    """A tensor on the CPU, whose ``numpy()`` is an array on the same memory."""

    def numpy(self) -> NDArray[Any]:
        """The array."""


class HasMglo(Protocol):
    """A ``moderngl.Buffer``."""

    @property
    def mglo(self) -> object:
        """The native buffer."""


# Type checkers do not see before Python 3.12 that an array is a buffer.
Data: TypeAlias = "ReadableBuffer | NDArray[Any] | HasNumpy | HasMglo"
"""A C-contiguous object with the buffer protocol, a torch tensor on the CPU, or a ``moderngl.Buffer``."""

WritableData: TypeAlias = "WriteableBuffer | NDArray[Any]"
"""A C-contiguous object with the buffer protocol that can be written to."""


class HasArrayInterface(Protocol):
    """A PIL image."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class HasArray(Protocol):
    """A tensor that its library makes an array of."""

    def __array__(self) -> NDArray[Any]: ...


class HasDLPack(Protocol):
    """A tensor of any library that speaks DLPack, on the CPU or on a device."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


FrameData: TypeAlias = "ReadableBuffer | NDArray[Any] | HasArrayInterface | HasArray | HasDLPack | HasMglo"
"""What an `Encoder` takes as a frame."""


class PictureRead(Protocol):
    """A picture that is being read from a renderer."""

    def read_into(self, view: NDArray[Any], /) -> object:
        """Waits for the picture, and copies it into `view`."""


class PictureSource(Protocol):
    """A renderer whose pictures can be captured."""

    def start_read(self) -> PictureRead:
        """Begins to read the picture that was drawn last, without waiting for it."""
