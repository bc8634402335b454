"""What to expect of other machines: the hot paths under limits that this process puts upon itself.

Each job runs as the machine is, with the system calls of kernels before Linux 6.4, without vmsplice(2), without huge
pages, on one core, and with 512 MB of memory (a control group, for which it takes root). Each run has its own process.
By default each runs 5 times; some 7 minutes.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.compare import jobs
from benchmarks.harness import seccomp
from benchmarks.harness.accounts import status_bytes
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import Film, there_and_back
from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import Method, Methods, PlainJob
from benchmarks.harness.options import by_name
from benchmarks.harness.results import Group, Measure, Row, Run

MEMORY_BYTES = 512 * 2**20
#: The folder of the memory controller, and its file for the limit: of version 2 of control groups, and of version 1.
CONTROLLERS = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", Path("/sys/fs/cgroup"): "memory.max"}
# From linux/prctl.h.
_PR_SET_THP_DISABLE = 41


@dataclass(frozen=True)
class Case(jobs.Case):
    """A run of a job under a limit."""

    limit: Method
    #: The control group that has little memory.
    cgroup: Path | None


METHODS = Methods()


@METHODS.add("unlimited", "ours")
def as_it_is(_case: Case) -> None:
    """No limit."""


@METHODS.add("before-6.4", "other")
def before_6_4(_case: Case) -> None:
    """No write to a pipe that returns instead of waiting."""
    seccomp.refuse(errno.EOPNOTSUPP, "preadv2", "pwritev2")


@METHODS.add("no-vmsplice", "other")
def no_vmsplice(_case: Case) -> None:
    """No pages for pipes, as in gVisor, and where vmsplice(2) copies."""
    seccomp.refuse(errno.ENOSYS, "vmsplice")


@METHODS.add("no-huge-pages", "other")
def no_huge_pages(_case: Case) -> None:
    """No transparent huge pages for this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "huge pages could not be disabled")


@METHODS.add("one-core", "other")
def one_core(_case: Case) -> None:
    """One core for this process and its programs."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@METHODS.add("512-MB", "other")
def little_memory(case: Case) -> None:
    """512 MB for this process, its programs and their files in memory."""
    assert case.cgroup is not None
    (case.cgroup / "cgroup.procs").write_text(str(os.getpid()))


def measure(case: Case) -> Run:
    """The seconds of an operation, and the largest memory of the process."""
    case.limit.start(case)
    run = jobs.measure(case)
    run.figures["resident_bytes"] = status_bytes("self", "VmHWM")
    return run


def motion() -> Iterator[Any]:
    """A rendered animation."""
    return itertools.cycle(there_and_back(Film("motion", jobs.WIDTH, jobs.HEIGHT).pictures()))


ULTRAFAST = {"codec": "libx264", "preset": "ultrafast"}
HOT_PATHS = (
    Method("Writer", "720p frames, to any reader", start=partial(jobs.write, "auto", False)),
    *jobs.JOBS,
    Method("x264", "720p frames, preset ultrafast", start=partial(jobs.encoder, ULTRAFAST, motion)),
)


def jobs_of(run_s: float) -> list[PlainJob]:
    """Each hot path, repeated for so long."""
    return [
        PlainJob(one.name, f"{one.name}: {one.summary}", {"summary": one.summary, "run_s": run_s})
        for one in HOT_PATHS
    ]


@contextmanager
def control_group() -> Iterator[Path]:
    """A control group of `MEMORY_BYTES`, or an OSError: it takes root, and a system that lets one have it."""
    folder = next((one for one in CONTROLLERS if one.is_dir()), None)
    if folder is None:
        raise FileNotFoundError(errno.ENOENT, "there are no control groups here")
    group = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=folder))
    try:
        (group / CONTROLLERS[folder]).write_text(str(MEMORY_BYTES))
        yield group
    finally:
        group.rmdir()


@contextmanager
def prepare(job: PlainJob, _ffmpeg: str, group: Group) -> Iterator[tuple[None, Measure]]:
    """A video to decode, and the control group."""
    method = by_name(HOT_PATHS, job.name)
    with ExitStack() as stack:
        video = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "video.mkv"
        jobs.make_video(video)
        cgroup = None
        try:
            cgroup = stack.enter_context(control_group())
        except OSError as error:
            for row in group.rows:
                if row.method.start is little_memory:
                    row.skipped = f"a control group could not be made: {error}"

        def measured(row: Row) -> Run:
            case = Case(method, ROOT / "python", video, job.about["run_s"], row.method, cgroup)
            return jobs.run(case, measure)

        yield None, measured


BENCHMARK = Benchmark(
    "machines",
    settings=JobSettings(jobs_of(0.5), METHODS),
    quick=JobSettings(jobs_of(0.05), METHODS, rounds=1),
    quick_help="A minute: short runs, once each.",
    prepare=prepare,
    figures=["op_s"],
    standards=["unlimited"],
)
main = BENCHMARK.command(__name__, __doc__)
