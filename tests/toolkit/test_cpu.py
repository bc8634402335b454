"""The machine's CPUs, as Python gets them: of a machine made up here, and of this one."""

from __future__ import annotations

import dataclasses
import inspect
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from support.this_process import policy_of

from penstock import cpu

RECORDS = [
    cpu.Topology.Package,
    cpu.Topology.NumaNode,
    cpu.Topology.Core,
    cpu.Topology.LogicalProcessor,
    cpu.Topology.CacheDomain,
    cpu.Topology,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two cores, one with two threads, the other for efficiency; a third that is offline."""
    files = {
        "proc/cpuinfo": "processor : 0\nmodel name : A Model\n",
        "proc/self/status": "Cpus_allowed_list:\t1-3\n",
        "sys/devices/cpu_core/cpus": "0-1\n",
        "sys/devices/cpu_atom/cpus": "2\n",
        "sys/devices/system/cpu/online": "0-2\n",
        "sys/devices/system/cpu/cpu3/online": "0\n",
        "sys/devices/system/node/node0/cpumap": "7\n",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 4 kB\n",
    }
    for number, siblings in ((0, "3"), (1, "3"), (2, "4")):
        folder = f"sys/devices/system/cpu/cpu{number}"
        files |= {
            f"{folder}/topology/core_cpus": siblings,
            f"{folder}/topology/package_cpus": "7",
            f"{folder}/topology/physical_package_id": "4",
            f"{folder}/cache/index0/level": "1",
            f"{folder}/cache/index0/type": "Data",
            f"{folder}/cache/index0/size": "32K",
            f"{folder}/cache/index0/shared_cpu_map": siblings,
            f"{folder}/cache/index3/level": "3",
            f"{folder}/cache/index3/type": "Unified",
            f"{folder}/cache/index3/shared_cpu_map": "7",
        }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.linux("machines recorded by /sys")
def test_topology_has_every_field(root: Path) -> None:
    core, package = "cpu_core/cpu_atom", 4
    assert cpu._topology_at(root) == cpu.Topology(
        model="A Model",
        packages=(cpu.Topology.Package(id=package, cores=(0, 1), logical_processors=(0, 1, 2)),),
        numa_nodes=(cpu.Topology.NumaNode(id=0, memory_bytes=4096, logical_processors=(0, 1, 2)),),
        cores=(
            cpu.Topology.Core(0, package, "performance", core, (0, 1)),
            cpu.Topology.Core(1, package, "efficiency", core, (2,)),
        ),
        logical_processors=(
            cpu.Topology.LogicalProcessor(0, 0, package, 0, True, False, (1,), "performance", core),
            cpu.Topology.LogicalProcessor(1, 0, package, 0, True, True, (0,), "performance", core),
            cpu.Topology.LogicalProcessor(2, 1, package, 0, True, True, (), "efficiency", core),
            cpu.Topology.LogicalProcessor(3, None, None, None, False, False, (), None, None),
        ),
        l1d_domains=(cpu.Topology.CacheDomain(32768, (0, 1)), cpu.Topology.CacheDomain(32768, (2,))),
        l2_domains=(),
        l3_domains=(cpu.Topology.CacheDomain(None, (0, 1, 2)),),
        notes=("the size of an L3 cache is unknown (CPUs 0-2)",),
    )


@pytest.mark.linux("machines recorded by /sys")
def test_an_odd_machine_raises_nothing(root: Path) -> None:
    nothing = cpu._topology_at(root / "nothing")
    assert [processor.id for processor in nothing.logical_processors] == [0]
    assert any("one is assumed" in note for note in nothing.notes)
    name = os.fsdecode(b"\xff")
    (root / name).symlink_to(root)
    assert cpu._topology_at(root / name) == cpu._topology_at(root)
    (root / "proc/cpuinfo").write_bytes(bytes(range(256)))
    assert cpu._topology_at(root).model is None


def field_values(record: object) -> list[object]:
    return [getattr(record, field.name) for field in dataclasses.fields(record)]


@pytest.mark.parametrize("kind", RECORDS)
def test_records_are_frozen_and_documented(kind: type, root: Path) -> None:
    topology = cpu._topology_at(root)
    record = next(
        one
        for one in (topology, *(one for many in field_values(topology)[1:] for one in many))
        if type(one) is kind
    )
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, 1)
    assert hash(record) == hash(dataclasses.replace(record))
    for field in dataclasses.fields(kind):
        assert f"\n    {field.name}: " in inspect.cleandoc(kind.__doc__)


@pytest.mark.linux("machines recorded by /sys")
def test_the_repr_is_short_however_large_the_machine(root: Path) -> None:
    text = repr(cpu._topology_at(root))
    assert text.startswith("<Topology 'A Model': 1 packages, 1 numa nodes, 2 cores, 4 logical processors, ")
    assert "\n" not in text
    assert len(text) < 250


# This machine


def test_allowed_cpus_match_the_system() -> None:
    topology = cpu.topology()
    assert {one.id for one in topology.logical_processors if one.allowed} == policy_of().cpus
    assert sum(one.online for one in topology.logical_processors) == os.cpu_count()


def test_allowed_cpus_are_those_of_the_calling_thread() -> None:
    allowed: list[set[int]] = []
    first = min(policy_of().cpus)

    def ask() -> None:
        cpu.pin([first])
        allowed.append({one.id for one in cpu.topology().logical_processors if one.allowed})

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert allowed == [{first}]


def test_cores_and_packages_match_lscpu() -> None:
    if shutil.which("lscpu") is None:
        pytest.skip("lscpu is not installed")
    printed = subprocess.run(["lscpu", "-p=CPU,CORE,SOCKET"], capture_output=True, check=True, text=True)
    lines = [line.split(",") for line in printed.stdout.splitlines() if not line.startswith("#")]
    if not all(field for line in lines for field in line):
        pytest.skip("lscpu does not know this machine's cores")
    topology = cpu.topology()

    def groups(keys: dict[int, object]) -> set[frozenset[int]]:
        return {frozenset(one for one in keys if keys[one] == key) for key in keys.values()}

    online = [one for one in topology.logical_processors if one.online]
    assert groups({one.id: one.core for one in online}) == groups({int(one): core for one, core, _ in lines})
    assert groups({one.id: one.package for one in online}) == groups(
        {int(one): package for one, _, package in lines}
    )
