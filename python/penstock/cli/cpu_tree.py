"""A drawing of the machine's CPUs: packages, the L3 caches in them, and the cores of each kind around those."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.text import Text
from rich.tree import Tree

from penstock.cpu import Topology

_STYLES = {"performance": "bold", "efficiency": "green", "low-power efficiency": "cyan"}


def cpu_tree(topology: Topology) -> Tree:
    """Return the packages as a tree. Brackets around logical processors are a core."""
    # Text, because the processor's name is no markup. `penstock.cpu` removes what a terminal would obey.
    tree = Tree(Text(topology.model or "processor of unknown name"), highlight=False)
    allowed = {one.id for one in topology.logical_processors if one.allowed}
    for package in topology.packages:
        branch = tree.add(Text(f"package {package.id}: {counted(len(package.cores), 'core')}"))
        for title, cpus in _caches(topology, package):
            leaf = branch.add(Text(f"{title}: {counted(len(cpus), 'CPU')}"))
            for kind, boxes in _boxes(topology, cpus, allowed):
                name = kind if _has_kinds(topology) else "cores"
                leaf.add(Text(f"{name}: {' '.join(boxes)}", style=_STYLES[kind]))
    return tree


def legend(topology: Topology) -> list[str]:
    """Return lines with what the tree does not show."""
    nodes = [
        f"node {node.id} near CPUs {as_ranges(node.logical_processors) or 'none'}{_memory(node.memory_bytes)}"
        for node in topology.numa_nodes
    ]
    lines = [f"memory: {'; '.join(nodes)}"]
    if barred := [one.id for one in topology.logical_processors if one.online and not one.allowed]:
        lines.append(f"not for this process, in parentheses: {as_ranges(barred)}")
    if offline := [one.id for one in topology.logical_processors if not one.online]:
        lines.append(f"offline: {as_ranges(offline)}")
    if _has_kinds(topology):
        sources = {core.kind_source for core in topology.cores}
        lines.append(f"kinds of cores are read from: {', '.join(sorted(sources))}")
    return lines


def as_ranges(numbers: Collection[int]) -> str:
    """``0-3,8``"""
    firsts = [number for number in sorted(numbers) if number - 1 not in numbers]
    lasts = [number for number in sorted(numbers) if number + 1 not in numbers]
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in zip(firsts, lasts, strict=True)
    )


def in_bytes(nbytes: int | None) -> str:
    """Return a size for people, in the largest unit of which it is at least one."""
    if nbytes is None:
        return "unknown size"
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << shift:
            return (
                f"{nbytes / (1 << shift):.3g} {unit}"
                if nbytes < 1000 << shift
                else f"{nbytes >> shift} {unit}"
            )
    return f"{nbytes} B"


def counted(count: int, name: str) -> str:
    """``1 core``, ``2 cores``"""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _caches(topology: Topology, package: Topology.Package) -> Iterable[tuple[str, list[int]]]:
    """The L3 caches that CPUs of the package share, and the CPUs without one."""
    left = set(package.logical_processors)
    for domain in topology.l3_domains:
        if cpus := left.intersection(domain.logical_processors):
            yield f"L3 cache of {in_bytes(domain.size_bytes)}", sorted(cpus)
            left -= cpus
    if left:
        yield "no L3 cache known", sorted(left)


def _has_kinds(topology: Topology) -> bool:
    return len({core.kind for core in topology.cores}) > 1


def _boxes(
    topology: Topology, cpus: Collection[int], allowed: Collection[int]
) -> Iterable[tuple[str, list[str]]]:
    """The cores of these CPUs, by kind."""
    here = [core for core in topology.cores if not set(cpus).isdisjoint(core.logical_processors)]
    for kind in dict.fromkeys(core.kind for core in here):
        yield kind, [_box(core, allowed) for core in here if core.kind == kind]


def _box(core: Topology.Core, allowed: Collection[int]) -> str:
    # A line may be broken at a blank, and a core must stay in one piece.
    numbers = ",".join(str(cpu) if cpu in allowed else f"({cpu})" for cpu in core.logical_processors)
    return f"[{numbers}]"


def _memory(nbytes: int | None) -> str:
    return "" if nbytes is None else f", {in_bytes(nbytes)}"
