"""What can be measured: the ways that bytes go, and their sizes.

A *way* is a kind of source and a kind of sink. An *operation* moves a number of bytes along it once; a *run*
repeats the operation for long enough to be timed. Only methods of one way and size are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Way:
    """From where to where."""

    name: str
    source: Literal["file", "pipe"]
    sink: Literal["file", "pipe", "unix", "tcp"]
    sizes: tuple[int, ...]
    #: How many get the stream; more than none makes it a tee's.
    readers: int = 0
    #: Each reader takes its time for what it has read, as one does that works on it.
    paced: bool = False

    @property
    def is_tee(self) -> bool:
        """Whether the stream goes to many. It then ends with its source, so that it cannot be repeated."""
        return self.readers > 0


#: The sizes of the table that the Go library ``pipes`` publishes, and two that it has not.
FILE_TO_PIPE = (*(16 * KIB << n for n in range(7)), 10 * MIB, 100 * MIB, GIB)
FEW = (MIB, 100 * MIB)
#: Some tens of milliseconds.
FLAT_OUT = (256 * MIB,)
#: A third of a second at the slowest pace.
PACED = (64 * MIB,)
TEE_READERS = (1, 2, 4, 8)

WAYS = (
    # Nothing is moved: what a call costs.
    Way("call", "file", "pipe", (0,)),
    Way("file-pipe", "file", "pipe", FILE_TO_PIPE),
    Way("pipe-file", "pipe", "file", FEW),
    Way("pipe-pipe", "pipe", "pipe", FEW),
    Way("file-unix", "file", "unix", FEW),
    Way("file-tcp", "file", "tcp", FEW),
    *(Way(f"tee-{readers}", "pipe", "pipe", FLAT_OUT, readers) for readers in TEE_READERS),
    *(Way(f"tee-{readers}-paced", "pipe", "pipe", PACED, readers, paced=True) for readers in TEE_READERS),
)

#: Of the slowest reader: far below what a relay can do, so that the reader is what limits it.
BASE_PACE_BYTES_PER_S = 200e6
PACES = (1.0, 1.5, 2.0, 3.0)


def pace_bytes_per_s(way: Way, reader: int) -> float | None:
    """How fast a reader of the way is; None for as fast as it can. The first is the slowest."""
    return BASE_PACE_BYTES_PER_S * PACES[reader % len(PACES)] if way.paced else None


def show_size(nbytes: int) -> str:
    """Such as ``64 KiB``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"
