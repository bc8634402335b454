"""Types that the native module's signatures name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

Mode = Literal["auto", "write", "staged", "zero-copy"]
"""How bytes enter a pipe: by which transport, or by the fastest that is safe."""

ReaderKind = Literal["unknown", "reads"]
"""What is known of a pipe's reader: nothing, or that it copies what it takes, with read(2)."""

RelayMethod = Literal["auto", "read-write"]
"""Which methods a relay may use: the best that the pair allows, or read(2) and write(2) only."""

TeePolicy = Literal["block", "evict"]
"""What a tee does about a destination that takes nothing: all wait for it, or it is given up."""

Priority = Literal[
    "background", "lowest", "below-normal", "normal", "above-normal", "highest", "time-critical"
]
"""How important a thread is; which niceness each level has is in `penstock.ThreadPolicy`."""

SchedulingClass = Literal["other", "batch", "idle", "fifo", "round-robin", "deadline", "unknown"]
"""By which rules the kernel gives a thread its time: the scheduling policies of sched(7)."""

Near = int | tuple[Literal["cpu"], int]
"""Whose L3 cache a thread is to share: a thread's or process's, by its id, or a CPU's, by its number."""


CodecName = Literal["auto", "zlib", "gzip", "zstd", "lz4"]
"""A compressed format, or whichever of them the first bytes say."""

ChecksumName = Literal["xxh3", "crc32"]
"""XXH3 with 64 bits, the fastest; or CRC-32 as zlib, gzip and PNG have it."""

OnError = Literal["raise", "skip"]
"""What a pipeline does about a chunk that fails: it ends there, or goes on and lists it."""


class HasFileno(Protocol):
    """Anything that leads to a file descriptor."""

    def fileno(self) -> int:
        """The descriptor."""


class RelayOptions(TypedDict, total=False):
    """The options that every relay takes; ``penstock.relay`` documents them."""

    timeout: float | None
    method: RelayMethod


class HasArrayInterface(Protocol):
    """A PIL image."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class HasArray(Protocol):
    """A tensor in the CPU's memory."""

    def __array__(self) -> npt.NDArray[Any]: ...


class HasMglo(Protocol):
    """A ``moderngl.Buffer``."""

    mglo: Any


FrameData: TypeAlias = "Buffer | npt.NDArray[Any] | HasArrayInterface | HasArray | HasMglo"
"""What an `Encoder` takes as a frame."""

FrameBuffer: TypeAlias = "Buffer | npt.NDArray[Any]"
"""A frame's memory."""
