"""What is moved: ways, sizes and paces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

KIB, MIB, GIB = 2**10, 2**20, 2**30
#: The pace of the slowest reader, far below that of any relay, so that the reader is the limit.
BASE_PACE_BYTES_PER_S = 200e6
PACES = (1.0, 1.5, 2.0, 3.0)
ENDS = {"file": "file in memory", "pipe": "pipe", "unix": "Unix socket", "tcp": "TCP socket"}


@dataclass(frozen=True)
class Way:
    """A source, and one or more sinks."""

    name: str
    source: Literal["file", "pipe"]
    sink: Literal["file", "pipe", "unix", "tcp"]
    #: Bytes that an operation moves.
    sizes: tuple[int, ...]
    #: How many readers get a tee's stream; 0 for a way to one sink.
    readers: int = 0
    #: Whether each reader takes time for what it has read.
    is_paced: bool = False

    @property
    def is_tee(self) -> bool:
        """Whether the stream goes to many. Such a stream ends with its source and cannot be repeated."""
        return self.readers > 0

    def pace_bytes_per_s(self, reader: int) -> float | None:
        """The pace of a reader; None for as fast as it can. The first is the slowest."""
        return BASE_PACE_BYTES_PER_S * PACES[reader % len(PACES)] if self.is_paced else None


@dataclass(frozen=True)
class Job:
    """What every method of a group has to move."""

    way: Way
    nbytes: int
    #: A run lasts so long, so that the start and end of its threads matter little.
    run_s: float

    @property
    def name(self) -> str:
        return f"{self.way.name}, {show_size(self.nbytes)}"

    @property
    def title(self) -> str:
        sink = f"each of {self.way.readers} pipes" if self.way.readers > 1 else f"a {ENDS[self.way.sink]}"
        pace = ", read at a pace" if self.way.is_paced else ""
        return f"{self.name}: from a {ENDS[self.way.source]} to {sink}{pace}"

    @property
    def kind(self) -> str:
        """The way, or that it is a tee."""
        return "tee" if self.way.is_tee else self.way.name

    @property
    def about(self) -> dict[str, Any]:
        return {"way": self.way.name, "bytes": self.nbytes}


def show_size(nbytes: int) -> str:
    """Such as ``64 KiB``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


#: The sizes of the table that the Go library ``pipes`` publishes, and two more.
FILE_TO_PIPE = (*(16 * KIB << n for n in range(7)), 10 * MIB, 100 * MIB, GIB)
FEW = (MIB, 100 * MIB)
#: Some tens of milliseconds.
FLAT_OUT = (256 * MIB,)
#: A third of a second at the slowest pace.
PACED = (64 * MIB,)
TEE_READERS = (1, 2, 4, 8)

WAYS = (
    # Nothing is moved: the cost of a call.
    Way("call", "file", "pipe", (0,)),
    Way("file-pipe", "file", "pipe", FILE_TO_PIPE),
    Way("pipe-file", "pipe", "file", FEW),
    Way("pipe-pipe", "pipe", "pipe", FEW),
    Way("file-unix", "file", "unix", FEW),
    Way("file-tcp", "file", "tcp", FEW),
    *(Way(f"tee-{readers}", "pipe", "pipe", FLAT_OUT, readers) for readers in TEE_READERS),
    *(Way(f"tee-{readers}-paced", "pipe", "pipe", PACED, readers, is_paced=True) for readers in TEE_READERS),
)
