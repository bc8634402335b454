"""One video by several workers: what processes and Ray gain, what chunks and the join cost, and a lost node.

The jobs `parts`, `checked` and `cluster` are a simulation: what a render is made of is measured (`parts`), real renders
that were not used for that are compared with the simulation (`checked`), and a cluster of 1,000 workers is simulated.
Without `parts` they take the parts of the newest kept record.

By default: all jobs, 5 rounds; an hour and a half, and 7 GB of shared memory and of disk. A render that loses a frame
is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from benchmarks.harness import tables
from benchmarks.harness.command import Benchmark, JobSettings, Measure
from benchmarks.harness.files import folder_in_memory
from benchmarks.harness.goals import Verdict, below, over
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.options import by_name, chosen, counted
from benchmarks.harness.record import FOLDER
from benchmarks.harness.results import Group, Row, Run
from benchmarks.render import methods, parts, pool
from benchmarks.render.jobs import CHUNK_FRAMES, JOBS, QUICK_JOBS, Job
from benchmarks.render.simulation import Parts

METHODS = [*methods.METHODS, *parts.METHODS]


def measure(task: Task[Job]) -> Run:
    """Run a method once, in its process."""
    task.load()
    run = Run()
    with tempfile.TemporaryDirectory(dir=task.folder or None) as folder:
        task.method.start(replace(task, folder=folder), run)
    return run


class Preparation:
    """Prepares the jobs, and keeps the parts that were measured for the jobs that follow."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, float]] | None = None

    @contextmanager
    def __call__(self, job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[None, Measure]]:
        """Make a folder for the videos, and the chunks of a join."""
        memory = nullcontext(tempfile.gettempdir()) if job.on_disk else folder_in_memory()
        with memory as above, tempfile.TemporaryDirectory(dir=above) as folder:
            match job.kind:
                case "join":
                    source = pool.fill(Path(folder), job)
                case "checked":
                    source = parts.as_json(self.measured())
                case "cluster":
                    yield None, parts.cluster_measure(job, Parts.of("ray", self.measured()))
                    return
                case _:
                    source = "-"
            yield None, isolated(measure, job, ffmpeg, folder=folder, source=source)
            if job.kind == "python":
                group.findings = findings(group)
            if job.kind == "parts":
                self._parts = {row.name: _medians(row) for row in group.rows if row.is_measured}

    def measured(self) -> dict[str, dict[str, float]]:
        """The medians of the parts, of this run or of the newest record."""
        if self._parts is None:
            self._parts = kept_parts()
        return self._parts


def _medians(row: Row) -> dict[str, float]:
    found = {name: row.median(name) for name in row.runs[-1].figures}
    return {name: median for name, median in found.items() if median is not None}


def kept_parts() -> dict[str, dict[str, float]]:
    """The parts of the newest kept record that has them."""
    records = [json.loads(path.read_text()) for path in FOLDER.glob("*-render-*.json")]
    for record in sorted(records, key=lambda one: str(one["date"]), reverse=True):
        for group in record["groups"]:
            if group["name"] == "parts":
                return {
                    row["name"]: {name: figure["median"] for name, figure in row["figures"].items()}
                    for row in group["methods"]
                    if "figures" in row
                }
    raise click.UsageError("no kept record has the parts: measure them first, with --job parts")


# --- findings, goals and report ---------------------------------------------------------------------------

SOURCE = (
    "the goals of Penstock's rendering, for a 2-core x86-64 virtual machine that is idle; medians of one run with at "
    "least 5 interleaved rounds"
)
OVER_ONE_PROCESS, RAY_OVER_PROCESSES = 1.75, 0.95
#: With the default length of chunks, over one encoder.
TIME_OVER_ENCODER, SIZE_OVER_ENCODER = 1.10, 1.03
JOIN_OVER_CP, DRIVER_MIB = 0.5, 200.0
TIME_AFTER_LOSS = 1.6
CLUSTER_EFFICIENCY = 0.9


def findings(group: Group) -> list[str]:
    """What Ray itself costs on this machine, beside the goal of `ray`."""
    fps = group.medians("fps")
    if not {methods.DRAWN_ON_RAY, methods.DRAWN_TWICE, methods.RAY, methods.TWO} <= fps.keys():
        return []
    bound, ours = fps[methods.DRAWN_ON_RAY] / fps[methods.DRAWN_TWICE], fps[methods.RAY] / fps[methods.TWO]
    return [
        f"{methods.RAY} / {methods.TWO} is {ours:.2f}x. {methods.DRAWN_ON_RAY} / {methods.DRAWN_TWICE} is "
        f"{bound:.2f}x: bare Ray tasks against bare processes, without Penstock."
    ]


def judge(group: Group) -> Iterator[Verdict]:
    """The goals of this job, as far as its rows were measured."""
    if (
        group.name not in {job.name for job in JOBS}
        or group.about["frames"] != by_name(JOBS, group.name).frames
    ):
        return
    match group.name:
        case "python":
            yield from over(group, [methods.TWO], [methods.ONE], OVER_ONE_PROCESS)
            yield from over(group, [methods.RAY], [methods.TWO], RAY_OVER_PROCESSES)
        case "chunking":
            both = f"chunks-{CHUNK_FRAMES[0]}", methods.WHOLE
            what = " / ".join(both)
            yield from below(group, f"time of {what}", "seconds", *both, TIME_OVER_ENCODER)
            yield from below(group, f"size of {what}", "output_bytes", *both, SIZE_OVER_ENCODER)
        case "join" | "join-disk":
            yield from over(group, [methods.JOIN], [methods.CP], JOIN_OVER_CP, "mb_per_s")
            peak = next((row.max("peak_own_bytes") for row in group.rows if row.name == methods.JOIN), None)
            if peak is not None:
                yield Verdict(f"driver's memory, {group.name}", peak / 2**20, DRIVER_MIB, "MiB", at_most=True)
        case "node-loss":
            both = methods.NODE_LOST, methods.UNDISTURBED
            yield from below(group, "time with a lost node", "seconds", *both, TIME_AFTER_LOSS)
        case "cluster":
            efficiencies = group.medians("efficiency")
            if efficiencies:
                best = max(efficiencies, key=efficiencies.__getitem__)
                yield Verdict(f"efficiency, simulated, {best}", efficiencies[best], CLUSTER_EFFICIENCY)


def note(row: Row) -> str | None:
    """How long the machine's schedulers took to be up, and what was rendered again."""
    remarks = []
    if (start_s := row.median("start_s")) is not None:
        remarks.append(f"up after {start_s:.1f} s, which do not count")
    if row.notes.get("retries"):
        remarks.append(f"{row.notes['retries']} chunks failed and were rendered again")
    return "; ".join(remarks) or None


SECONDS = tables.column("s", "seconds", tables.hundredths)
CPU = tables.column("CPU s", "cpu_s", tables.hundredths)
SIZE = tables.column("file\nMB", "output_bytes", lambda nbytes: f"{nbytes / 1e6:.2f}")
PEAK = tables.column("peak\nMiB", "peak_own_bytes", tables.mebibytes, "max")


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _share(value: float) -> str:
    return f"{value:.3f}"


CHUNKING = [
    *tables.rates(),
    tables.gain(methods.WHOLE),
    SECONDS,
    CPU,
    SIZE,
    tables.gain(methods.WHOLE, figure="output_bytes"),
    tables.column("PSNR\ndB", "psnr_db", tables.hundredths),
    tables.column("chunks", "chunks", tables.rate),
]
COLUMNS = {
    "python": [*tables.rates(), tables.gain(methods.ONE), SECONDS, CPU],
    "chunking": CHUNKING,
    "lengths": CHUNKING,
    "join": [*tables.rates("mb_per_s"), tables.gain(methods.CP, figure="mb_per_s"), SECONDS, CPU, PEAK],
    "loss": [
        SECONDS,
        tables.gain(methods.UNDISTURBED, figure="seconds"),
        CPU,
        tables.column("lost\nat s", "lost_at_s", tables.hundredths),
    ],
    "parts": [
        tables.column("worker\nstart ms", "worker_start_s", _milliseconds),
        tables.column("chunk\nstart ms", "chunk_start_s", _milliseconds),
        tables.column("frame\nms", "frame_s", _milliseconds),
        tables.column("spread", "spread", _share),
        tables.column("driver\nms", "driver_s", _milliseconds),
        tables.column("file\nms", "storage_start_s", _milliseconds),
        tables.column("storage\nMB/s", "storage_bytes_per_s", lambda rate: f"{rate / 1e6:.0f}"),
        tables.column("join of\nchunk ms", "join_chunk_s", _milliseconds),
        tables.column("join\nMB/s", "join_bytes_per_s", lambda rate: f"{rate / 1e6:.0f}"),
    ],
    "checked": [
        SECONDS,
        tables.column("predicted\ns", "predicted_s", tables.hundredths),
        tables.column("predicted\n/ real", "predicted_by_real", tables.hundredths),
    ],
    "cluster": [
        tables.column("of linear", "efficiency", _share),
        tables.column("without\njoin", "efficiency_without_join", _share),
        tables.column("s", "seconds", tables.rate),
        tables.column("join s", "join_s", tables.rate),
        tables.column("chunks", "chunks", tables.rate),
        tables.column("lost\nchunks", "losses", tables.rate),
        tables.column("lost\nworker s", "lost_s", tables.rate),
    ],
}


def show(console: Console, group: Group) -> None:
    """Each kind of job has its own table."""
    tables.print_group(console, group, COLUMNS[group.about["kind"]], note)


BENCHMARK = Benchmark(
    "render",
    settings=JobSettings(JOBS, tuple(METHODS)),
    quick=JobSettings(QUICK_JOBS, tuple(METHODS), rounds=1),
    quick_help="About half a minute: small videos, 1 round, no goals, and neither a lost node nor the simulation.",
    prepare=Preparation(),
    options=[
        chosen("--job", "jobs", JOBS),
        chosen("--method", "methods", METHODS),
        counted("--frames", "frames", "Frames of each video, instead of each job's own. No goals then."),
    ],
    columns=[],
    judge=judge,
    source=SOURCE,
    show=show,
)
main = BENCHMARK.command(__doc__)
