"""The CPUs of the machine, and the priority and CPUs of the calling thread.

```python
with cpu.applied(priority="highest", near=os.getpid()) as applied:
    print(applied.priority, applied.cpus, applied.notes)  # what was granted, and why not more
```

`set_priority`, `pin` and `applied` are for the calling thread. For worker threads and FFmpeg, pass a `ThreadPolicy`. If
the system refuses something, the calls don't raise; the result reports what was applied.

`topology` reports which processors share a core, a cache, a package and a memory node:

```python
topology = cpu.topology()
fast = [p.id for p in topology.logical_processors if p.allowed and p.kind == "performance"]
for domain in topology.l3_domains:
    print(domain.size_bytes, domain.logical_processors)
```

Its records are flat and refer to each other by number, because a tree of packages can't describe caches that only some
cores of a package share.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock import _native
from penstock._common.control_groups import cpu_quota
from penstock._common.notebook import HtmlTable
from penstock._common.types import Near, Priority
from penstock._native import AppliedPolicy, ThreadPolicy
from penstock._platform.programs import usable_cpus

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

__all__ = [
    "AppliedPolicy",
    "ThreadPolicy",
    "Topology",
    "applied",
    "pin",
    "set_priority",
    "topology",
    "usable",
]

CoreKind = Literal["performance", "efficiency", "low-power efficiency"]
KindSource = Literal[
    "cpu_core/cpu_atom", "cpu_capacity", "maximum frequency", "base frequency", "efficiency class", "assumed"
]


@dataclass(frozen=True, slots=True, repr=False)
class Topology(HtmlTable):
    """The CPUs of a machine.

    Each logical processor that is online belongs to one core and one package. At each level of cache, it belongs to one
    domain, or to none if it has no such cache or this is unknown.

    Attributes:
        model: name of the processor; None if unknown.
        packages: the packages.
        numa_nodes: the memory nodes; a single node if the kernel reports none.
        cores: the cores.
        logical_processors: the logical processors, including offline ones.
        l1d_domains: the processors that share a first-level data cache.
        l2_domains: the processors that share a second-level cache.
        l3_domains: the processors that share a third-level cache.
        notes: facts that were missing or malformed, and what was assumed instead.
    """

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
        """A core of a processor.

        Attributes:
            id: a number from 0, unique on the machine. The kernel's ``core_id`` isn't unique: packages and dies repeat
                it.
            package: number of its package.
            kind: ``"performance"``, ``"efficiency"`` or ``"low-power efficiency"``; if all cores are alike, the first.
            kind_source: the source of the kind: ``"cpu_core/cpu_atom"`` (Intel's lists of hybrid machines),
                ``"cpu_capacity"``, ``"maximum frequency"``, ``"base frequency"`` (among those of one maximum),
                ``"efficiency class"`` (Windows), or ``"assumed"`` if nothing distinguishes kinds.
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

    model: str | None
    packages: tuple[Topology.Package, ...]
    numa_nodes: tuple[Topology.NumaNode, ...]
    cores: tuple[Topology.Core, ...]
    logical_processors: tuple[Topology.LogicalProcessor, ...]
    l1d_domains: tuple[Topology.CacheDomain, ...]
    l2_domains: tuple[Topology.CacheDomain, ...]
    l3_domains: tuple[Topology.CacheDomain, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        # The records of a machine with hundreds of CPUs would fill screens.
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "model"}
        counted = ", ".join(f"{len(records)} {name.replace('_', ' ')}" for name, records in counts.items())
        return f"<Topology {self.model!r}: {counted}>"


def topology() -> Topology:
    """Reads the CPUs of this machine.

    If files are missing or malformed, the call doesn't raise. The result is the best that remains, and its ``notes``
    say what is wrong.
    """
    return _topology_at("/")


def _topology_at(root: StrOrBytesPath) -> Topology:
    """The CPUs of the machine whose ``sys`` and ``proc`` are in that directory, as in a recording."""
    found = _native._topology(os.fsdecode(root))
    kinds: dict[str, type[Any]] = dict.fromkeys(
        ("l1d_domains", "l2_domains", "l3_domains"), Topology.CacheDomain
    )
    kinds |= {"packages": Topology.Package, "numa_nodes": Topology.NumaNode, "cores": Topology.Core}
    kinds["logical_processors"] = Topology.LogicalProcessor
    records = {name: tuple(kind(**one) for one in found[name]) for name, kind in kinds.items()}
    return Topology(**found | records)


def usable() -> float:
    """Returns how many CPUs this process can keep busy.

    The number counts the CPUs that the calling thread may run on, or fewer if a control group limits the time on them:
    in a container with a quota of 1.5 CPUs, it is 1.5. Python's ``os.process_cpu_count`` ignores quotas.
    """
    allowed = float(usable_cpus())
    quota = cpu_quota()
    return allowed if quota is None else min(allowed, quota)


def set_priority(level: Priority) -> AppliedPolicy:
    """Sets the priority of the calling thread permanently.

    Threads and processes that the thread starts later inherit the priority.

    Args:
        level: as for `ThreadPolicy`.

    Returns:
        The scheduling of the thread, read back from the system. Its ``notes`` say what was refused, why, and by which
        limit. They also say if the thread can't return to its earlier priority: on Linux, a thread needs a privilege to
        raise its priority, but not to lower it.

    Raises:
        ValueError: if the level is unknown.
        TypeError: if ``level`` isn't a str.
    """
    if level is None:
        raise TypeError("level must be a str, not None")
    return _native._apply_policy(ThreadPolicy(priority=level), try_undo=True)


def pin(cpus: Iterable[int]) -> AppliedPolicy:
    """Restricts the calling thread to these CPUs permanently.

    Threads and processes that the thread starts later inherit the CPUs.

    Args:
        cpus: numbers of the CPUs.

    Returns:
        The scheduling of the thread. Its ``notes`` name the CPUs that were refused and the CPUs that the system allows.
        If none was granted, the thread's CPUs don't change.

    Raises:
        ValueError: if ``cpus`` is empty, or a number is impossible for a CPU.
        TypeError: if ``cpus`` isn't an iterable of integers.
    """
    if cpus is None:
        raise TypeError("cpus must be CPU numbers, such as [0, 1], not None")
    return _native._apply_policy(ThreadPolicy(cpus=cpus), try_undo=True)


def applied(
    policy: ThreadPolicy | Priority | None = None,
    *,
    priority: Priority | None = None,
    nice: int | None = None,
    cpus: Iterable[int] | None = None,
    near: Near | None = None,
) -> AbstractContextManager[AppliedPolicy]:
    """Applies a policy to the calling thread for the length of a ``with`` block.

    ```python
    with cpu.applied(priority="below-normal", near=encoder.pid) as applied:
        print(applied.nice, applied.cpus, applied.notes)
    ```

    The block gets the `AppliedPolicy`. Its ``notes`` also say what can't be restored: on Linux, a thread needs a
    privilege to raise its priority, but not to lower it. The end of the block restores what the thread had before, if
    the system allows it.

    Args:
        policy: the policy, or a level. Or pass the fields of a policy by name, as for `ThreadPolicy`.

    Raises:
        ValueError, TypeError: as for `ThreadPolicy`; or if you pass both a policy and fields.
        RuntimeError: if the block has started already, or ends on another thread than it started on.
    """
    fields = ThreadPolicy(priority=priority, nice=nice, cpus=cpus, near=near)
    if policy is not None and fields != ThreadPolicy():
        raise ValueError("policy can't be combined with priority, nice, cpus or near. Pass one or the other")
    return _Block(fields if policy is None else _native._thread_policy(policy))


class _Block(AbstractContextManager[AppliedPolicy]):
    def __init__(self, policy: ThreadPolicy) -> None:
        self._policy = policy
        self._begun: tuple[int, AppliedPolicy] | None = None

    def __enter__(self) -> AppliedPolicy:
        if self._begun is not None:
            raise RuntimeError(
                "the block of this policy has already begun. Call applied() again for another one"
            )
        self._begun = (threading.get_ident(), _native._current_policy())
        return _native._apply_policy(self._policy, try_undo=True)

    def __exit__(self, *_: object) -> None:
        assert self._begun is not None
        thread, before = self._begun
        if thread != threading.get_ident():  # the policy is that thread's
            raise RuntimeError("a policy's block must end on the thread that began it")
        self._begun = None
        before._restore()
