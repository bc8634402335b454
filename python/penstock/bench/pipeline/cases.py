"""What can be measured: the configurations of a pipeline's threads, and the size of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock import ThreadPolicy, cpu

Codec = Literal["zlib", "gzip", "zstd", "lz4"]
CODECS: tuple[Codec, ...] = ("zlib", "gzip", "zstd", "lz4")

#: The parts that are timed, in order, by their names in tables. What a pipeline calls them depends on its source.
PARTS = ("reader", "decompressor", "processor")
END_TO_END = "end to end"

Priority = Literal["normal", "above-normal", "highest"]


@dataclass(frozen=True)
class Configuration:
    """What the threads of the parts run with."""

    name: str
    #: Of reader, decompressor and processor.
    priorities: tuple[Priority, Priority, Priority]
    pins: bool = False

    def policies(self) -> dict[str, ThreadPolicy | None]:
        """A policy for each part; none where it asks for nothing."""
        cpus = pinned_cpus() if self.pins else (None, None, None)
        return {
            part: _policy(priority, number)
            for part, priority, number in zip(PARTS, self.priorities, cpus, strict=True)
        }


def _policy(priority: Priority, number: int | None) -> ThreadPolicy | None:
    if priority == "normal" and number is None:
        return None
    return ThreadPolicy(priority=priority, cpus=None if number is None else [number])


def pinned_cpus() -> tuple[int, int, int]:
    """A CPU for each part: cores of their own where there are three, the fastest first for the decompressor."""
    usable = [one for one in cpu.topology().logical_processors if one.allowed and one.online]
    usable.sort(key=lambda one: (one.kind != "performance", one.id))
    # One of each core before the second of any.
    cores: dict[int | None, list[int]] = {}
    for one in usable:
        cores.setdefault(one.core, []).append(one.id)
    order = sorted(
        ((rank, ids.index(number), number) for rank, ids in enumerate(cores.values()) for number in ids),
        key=lambda entry: (entry[1], entry[0]),
    )
    numbers = [number for _, _, number in order]
    decompressor, reader, processor = (numbers[n % len(numbers)] for n in range(3))
    # With two CPUs the decompressor, which works the most, has one for itself.
    return reader, decompressor, reader if len(numbers) == 2 else processor


NORMAL = Configuration("all normal", ("normal", "normal", "normal"))
PRIORITIES = Configuration("priorities", ("above-normal", "highest", "above-normal"))
PINNED = Configuration("priorities, pinned", ("above-normal", "highest", "above-normal"), pins=True)
#: Of the known example (the streaming pipeline of ``gdt-cpus``).
CONFIGURATIONS = (NORMAL, PRIORITIES, PINNED)


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are those of the known example, but for the storage, which is real."""

    codec: Codec = "zlib"
    chunk_bytes: int = 64 * 2**10
    chunks: int = 100
    #: Workers that burn CPU: every second one at below-normal priority.
    background: int = 4
    rounds: int = 7
    simulated: bool = False
    #: Assets of a run of the throughput part; none leaves it out.
    assets: int = 2000
    #: Threads that decompress in the throughput part, of each side.
    workers: int = 2
    #: Pieces that may wait between two parts.
    depth: int = 16
