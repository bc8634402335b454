"""The machine's CPUs, and what the calling thread has of them.

::

    with cpu.policy(priority="highest", near=os.getpid()) as applied:
        print(applied.priority, applied.cpus, applied.notes)  # what was granted, and why not more

`set_priority`, `pin` and `policy` are for the calling thread; worker threads, and FFmpeg, take a
`penstock.ThreadPolicy`. What the system refuses is in the answer, and never raised.

`topology` tells who shares a core, a cache, a package and a memory node with whom::

    topology = cpu.topology()
    fast = [p.id for p in topology.logical_processors if p.allowed and p.kind == "performance"]
    for domain in topology.l3_domains:
        print(domain.size_bytes, domain.logical_processors)

Its records are flat, and name each other by number: a tree of packages cannot hold caches that only some cores of a
package share.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock import _native
from penstock._policy import pin, policy, set_priority, try_priorities

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

__all__ = [
    "CacheDomain",
    "Core",
    "LogicalProcessor",
    "NumaNode",
    "Package",
    "Topology",
    "pin",
    "policy",
    "set_priority",
    "topology",
    "try_priorities",
]

CoreKind = Literal["performance", "efficiency", "low-power efficiency"]
KindSource = Literal["cpu_core/cpu_atom", "cpu_capacity", "maximum frequency", "base frequency", "assumed"]


@dataclass(frozen=True, slots=True)
class Package:
    """A package: a chip, or several, in one socket.

    Attributes:
        id: the kernel's number of it, or a free one where the kernel has none or has it twice.
        cores: numbers of its cores.
        logical_processors: numbers of its logical processors that are online.
    """

    id: int
    cores: tuple[int, ...]
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A node of memory, as seen from the CPUs near to it.

    Attributes:
        id: the kernel's number of it.
        memory_bytes: the memory of it; 0 for a node of CPUs alone, None where it is not told.
        logical_processors: numbers of its logical processors that are online: none in a node of memory alone.
    """

    id: int
    memory_bytes: int | None
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Core:
    """A core.

    Attributes:
        id: our number, unique on the machine, from 0. The kernel's ``core_id`` is not: packages and dies repeat it.
        package: the number of its package.
        kind: ``"performance"``, ``"efficiency"`` or ``"low-power efficiency"``; where all are alike, the first.
        kind_source: what the kind was read from: ``"cpu_core/cpu_atom"`` (Intel's lists of hybrid machines),
            ``"cpu_capacity"``, ``"maximum frequency"``, ``"base frequency"`` (among those of one maximum), or
            ``"assumed"`` if nothing tells kinds apart.
        logical_processors: numbers of its logical processors that are online.
    """

    id: int
    package: int
    kind: CoreKind
    kind_source: KindSource
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalProcessor:
    """What the system schedules a thread on: a core, or a hardware thread of one.

    Attributes:
        id: the kernel's number of it.
        core: the number of its core; None if it is offline.
        package: the number of its package; None if it is offline.
        numa_node: the number of its memory node; None where it is not told.
        online: whether the system schedules anything on it.
        allowed: whether the thread that asked may run on it, by its affinity and the process's control group.
        smt_siblings: numbers of the others of its core that are online (simultaneous multithreading).
        kind: its core's kind; None if it is offline.
        kind_source: what its core's kind was read from; None if it is offline.
    """

    id: int
    core: int | None
    package: int | None
    numa_node: int | None
    online: bool
    allowed: bool
    smt_siblings: tuple[int, ...]
    kind: CoreKind | None
    kind_source: KindSource | None


@dataclass(frozen=True, slots=True)
class CacheDomain:
    """Logical processors that share a cache.

    Attributes:
        size_bytes: the cache's size; None where it is not told.
        logical_processors: numbers of those that share it and are online.
    """

    size_bytes: int | None
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Topology:
    """The CPUs of a machine.

    Every logical processor that is online is in one core and one package; at each level of cache it is in one domain
    or, where it has no such cache or nothing tells, in none.

    Attributes:
        model: the processor's name, for people; None where it is not told.
        packages: what sits in a socket.
        numa_nodes: memory, and who is near to it; one for all where the kernel tells of none.
        cores: what executes.
        logical_processors: what threads are scheduled on, those that are offline as well.
        l1d_domains: who shares a first-level cache for data.
        l2_domains: who shares a second-level cache.
        l3_domains: who shares a third-level cache.
        notes: what was missing or broken, and what was taken for it.
    """

    model: str | None
    packages: tuple[Package, ...]
    numa_nodes: tuple[NumaNode, ...]
    cores: tuple[Core, ...]
    logical_processors: tuple[LogicalProcessor, ...]
    l1d_domains: tuple[CacheDomain, ...]
    l2_domains: tuple[CacheDomain, ...]
    l3_domains: tuple[CacheDomain, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        # The records of a machine with hundreds of CPUs would fill screens.
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "model"}
        counted = ", ".join(f"{len(records)} {name.replace('_', ' ')}" for name, records in counts.items())
        return f"<Topology {self.model!r}: {counted}>"


def topology(root: StrOrBytesPath = "/") -> Topology:
    """Read the machine's CPUs, or those of a recorded machine.

    Never raises for an odd machine: files that are missing or broken give the best answer that remains, and ``notes``.

    Args:
        root: where the machine's ``/sys`` and ``/proc`` are. With another than ``"/"``, ``allowed`` is as of the
            process that recorded them.

    Raises:
        TypeError: ``root`` is no path.
    """
    found = _native._topology(os.fsdecode(root))
    return Topology(
        model=found["model"],
        packages=_records(Package, found["packages"]),
        numa_nodes=_records(NumaNode, found["numa_nodes"]),
        cores=_records(Core, found["cores"]),
        logical_processors=_records(LogicalProcessor, found["logical_processors"]),
        l1d_domains=_records(CacheDomain, found["l1d_domains"]),
        l2_domains=_records(CacheDomain, found["l2_domains"]),
        l3_domains=_records(CacheDomain, found["l3_domains"]),
        notes=found["notes"],
    )


Record = TypeVar("Record")


def _records(kind: type[Record], fields: Iterable[dict[str, Any]]) -> tuple[Record, ...]:
    return tuple(kind(**one) for one in fields)
