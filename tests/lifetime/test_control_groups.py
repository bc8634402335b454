"""CPU quotas and memory of control groups: of recorded machines, and what this process makes of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.clips import clip

import penstock
from penstock import cpu
from penstock._common import control_groups
from penstock._common.control_groups import available_bytes, cpu_quota
from penstock.cli.commands.info import _usable_line

pytestmark = pytest.mark.linux("control groups")

V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "33 31 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct"
SLICE = "sys/fs/cgroup/user.slice"


def record(root: Path, cgroup: str, mountinfo: str, **files: str) -> Path:
    """A machine with these files; the names of `files` are in `at`."""
    for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    where = f"sys/fs/cgroup/cpu,cpuacct/{folder}"
    return {f"{where}/cpu.cfs_quota_us": str(quota), f"{where}/cpu.cfs_period_us": str(period)}


def test_cgroup_v2_quota_is_the_smallest_of_the_group_and_its_parents(tmp_path: Path) -> None:
    files = {
        f"{SLICE}/cpu.max": "150000 100000",
        f"{SLICE}/a/cpu.max": "max 100000",
        f"{SLICE}/a/b/cpu.max": "40000 20000",
        f"{SLICE}/other/cpu.max": "1000 100000",
    }
    assert cpu_quota(record(tmp_path, "0::/user.slice/a/b", V2, **files)) == 1.5
    (tmp_path / f"{SLICE}/a/b/cpu.max").write_text("5000 20000")
    assert cpu_quota(tmp_path) == 0.25


@pytest.mark.parametrize("text", ["max 100000", "", "max", "1 0", "x y"])
def test_cgroup_v2_without_a_limit_has_no_quota(tmp_path: Path, text: str) -> None:
    assert cpu_quota(record(tmp_path, "0::/user.slice", V2, **{f"{SLICE}/cpu.max": text})) is None


def test_cgroup_v1_quota_is_the_smallest_of_the_group_and_its_parents(tmp_path: Path) -> None:
    cgroup = "9:memory:/elsewhere\n4:cpu,cpuacct:/docker/abc/deep\n1:name=systemd:/"
    files = v1("", -1) | v1("docker", 300_000) | v1("docker/abc", 50_000, 20_000) | v1("docker/abc/deep", -1)
    assert cpu_quota(record(tmp_path, cgroup, V1.format(root="/"), **files)) == 2.5


def test_cgroup_v1_quota_is_found_in_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    cgroup = "4:cpu,cpuacct:/docker/abc/inner"
    files = v1("", 250_000) | v1("inner", 125_000)
    assert cpu_quota(record(tmp_path, cgroup, V1.format(root="/docker/abc"), **files)) == 1.25
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/docker/abc")
    assert cpu_quota(tmp_path) == 2.5


@pytest.mark.parametrize("group", ["/docker/abcd", "/", "/../other"])
def test_mounted_group_that_is_no_parent_is_ignored(tmp_path: Path, group: str) -> None:
    record(tmp_path, f"4:cpu,cpuacct:{group}", V1.format(root="/docker/abc"), **v1("", 1000))
    assert cpu_quota(tmp_path) is None


def test_cgroup_v1_quota_is_found_if_both_versions_are_mounted(tmp_path: Path) -> None:
    cgroup = "4:cpu,cpuacct:/docker\n0::/user.slice"
    unified = V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")
    mountinfo = f"{V1.format(root='/')}\n{unified}\n20 1 0:4 / /proc rw - proc proc rw"
    record(tmp_path, cgroup, mountinfo, **v1("docker", 70_000))
    assert cpu_quota(tmp_path) == 0.7


def test_quota_is_found_at_a_path_with_blanks_and_a_group_with_a_colon(tmp_path: Path) -> None:
    mountinfo = V2.replace("/sys/fs/cgroup ", "/sys/control\\040groups ")
    record(tmp_path, "0::/a:b", mountinfo, **{"sys/control groups/a:b/cpu.max": "50000 100000"})
    assert cpu_quota(tmp_path) == 0.5


def test_a_machine_without_these_files_has_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    record(tmp_path, "0::/user.slice", "20 1 0:4 / /proc rw - proc proc rw")
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "workers"), [(0.3, 1), (1.5, 2), (1000.0, None), (None, None)])
def test_quota_limits_usable_cpus_and_threads(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, workers: int | None
) -> None:
    allowed = {0, 1, 2, 3}
    monkeypatch.setattr(cpu, "cpu_quota", lambda: quota)
    monkeypatch.setattr(control_groups, "_first_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    assert cpu.usable() == (quota if workers else 4.0)
    assert control_groups.whole_cpus() == (workers or 4)


@pytest.mark.parametrize(("quota", "threads"), [(1.5, 3), (1.0, 0), (40.0, 16)])
def test_a_decoder_starts_no_more_threads_than_a_quota_keeps_busy(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int
) -> None:
    monkeypatch.setattr(control_groups, "_first_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    with penstock.Decoder(clip("h264")) as decoder:
        next(decoder), next(decoder)  # the first frame alone starts none
        started = [(task / "comm").read_text() for task in set(tasks.iterdir()) - before]
    assert sum(name.startswith("av:") for name in started) == threads  # libav names its own


def test_info_says_what_a_quota_leaves() -> None:
    topology = cpu.topology()
    allowed = sum(one.allowed for one in topology.logical_processors)
    assert "quota" not in _usable_line(topology, float(allowed))
    assert " quota lets it keep 0.25 busy" in _usable_line(topology, 0.25)


MEMINFO = {"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:  8000 kB\nHugePages_Total:  0"}


def test_cgroup_v2_memory_is_the_smallest_of_the_group_and_its_parents(tmp_path: Path) -> None:
    files = MEMINFO | {
        f"{SLICE}/memory.max": "5000000",
        f"{SLICE}/memory.current": "4000000",
        f"{SLICE}/memory.stat": "anon 100000\ninactive_file 3000000\nactive_file 7",
        f"{SLICE}/a/memory.max": "max",
        f"{SLICE}/a/memory.current": "10",
    }
    assert available_bytes(record(tmp_path, "0::/user.slice/a", V2, **files)) == 4_000_000
    (tmp_path / f"{SLICE}/memory.max").write_text("500000")
    assert available_bytes(tmp_path) == 0


def test_cgroup_v1_memory_is_that_of_its_group(tmp_path: Path) -> None:
    mountinfo = "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    limits = {"": 2**63 - 4096, "/docker": 6_000_000}
    files = {f"sys/fs/cgroup/memory{name}/memory.limit_in_bytes": str(one) for name, one in limits.items()}
    files |= {f"sys/fs/cgroup/memory{name}/memory.usage_in_bytes": "1000000" for name in limits}
    record(tmp_path, "9:memory:/docker\n4:cpu:/elsewhere", mountinfo, **MEMINFO, **files)
    assert available_bytes(tmp_path) == 5_000_000


def test_machine_memory_is_available_without_a_limit(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    assert available_bytes(record(tmp_path, "0::/", V2, **MEMINFO)) == 8_192_000


def test_this_machines_files_can_be_read() -> None:
    assert 0 < (available_bytes() or 0) < 1 << 50
    quota = cpu_quota()
    assert quota is None or quota > 0
    assert 0 < cpu.usable() <= len(os.sched_getaffinity(0))
