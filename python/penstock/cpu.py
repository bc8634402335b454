"""The CPUs of the machine, and the priority and CPUs of the calling thread.

::

    with cpu.policy(priority="highest", near=os.getpid()) as applied:
        print(applied.priority, applied.cpus, applied.notes)  # what was granted, and why not more

`set_priority`, `pin` and `policy` are for the calling thread; worker threads and FFmpeg take a `penstock.ThreadPolicy`.
Refusals of the system don't raise; the result shows what was applied.

`topology` shows which processors share a core, a cache, a package and a memory node::

    topology = cpu.topology()
    fast = [p.id for p in topology.logical_processors if p.allowed and p.kind == "performance"]
    for domain in topology.l3_domains:
        print(domain.size_bytes, domain.logical_processors)

Its records are flat and refer to each other by number, because a tree of packages cannot describe caches that only some
cores of a package share.
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
    """A package: one or several chips in one socket.

    Attributes:
        id: the kernel's number, or a free one if the kernel has none or uses it twice.
        cores: numbers of its cores.
        logical_processors: numbers of its logical processors that are online.
    """

    id: int
    cores: tuple[int, ...]
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node: memory, and the CPUs close to it.

    Attributes:
        id: the kernel's number.
        memory_bytes: its memory; 0 for a node with CPUs only, None if unknown.
        logical_processors: numbers of its logical processors that are online; none in a node with memory only.
    """

    id: int
    memory_bytes: int | None
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Core:
    """A core.

    Attributes:
        id: a number from 0, unique on the machine. The kernel's ``core_id`` is not unique: packages and dies repeat it.
        package: the number of its package.
        kind: ``"performance"``, ``"efficiency"`` or ``"low-power efficiency"``; if all are alike, the first.
        kind_source: the source of the kind: ``"cpu_core/cpu_atom"`` (Intel's lists of hybrid machines),
            ``"cpu_capacity"``, ``"maximum frequency"``, ``"base frequency"`` (among those of one maximum), or
            ``"assumed"`` if nothing distinguishes kinds.
        logical_processors: numbers of its logical processors that are online.
    """

    id: int
    package: int
    kind: CoreKind
    kind_source: KindSource
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalProcessor:
    """A CPU that the system schedules threads on: a core, or one hardware thread of a core.

    Attributes:
        id: the kernel's number.
        core: the number of its core; None if it is offline.
        package: the number of its package; None if it is offline.
        numa_node: the number of its memory node; None if unknown.
        online: whether the system schedules threads on it.
        allowed: whether the calling thread may run on it, by its affinity and the control group of the process.
        smt_siblings: numbers of the other online processors of its core (simultaneous multithreading).
        kind: the kind of its core; None if it is offline.
        kind_source: the source of that kind; None if it is offline.
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
        size_bytes: the size of the cache; None if unknown.
        logical_processors: numbers of the online processors that share it.
    """

    size_bytes: int | None
    logical_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Topology:
    """The CPUs of a machine.

    Each logical processor that is online belongs to one core and one package. At each level of cache, it belongs to one
    domain, or to none if it has no such cache or this is unknown.

    Attributes:
        model: the name of the processor; None if unknown.
        packages: the packages.
        numa_nodes: the memory nodes; a single one if the kernel reports none.
        cores: the cores.
        logical_processors: the logical processors, including those that are offline.
        l1d_domains: the processors that share a first-level data cache.
        l2_domains: the processors that share a second-level cache.
        l3_domains: the processors that share a third-level cache.
        notes: what was missing or malformed, and what was assumed instead.
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
    """Read the CPUs of this machine, or of a recorded one.

    Missing or malformed files don't raise: the result is the best that remains, and its ``notes`` say what is wrong.

    Args:
        root: the directory with ``sys`` and ``proc`` of the machine. For a recording, ``allowed`` is that of the
            process that recorded it.

    Raises:
        TypeError: ``root`` is not a path.
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
