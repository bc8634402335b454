"""Measures what a render is made of, for the simulation, and compares the simulation with real renders."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.accounts import accounted, children
from benchmarks.harness.methods import Method, Methods
from benchmarks.harness.results import Row, Run
from benchmarks.render import pool, scenes
from benchmarks.render.jobs import FRAMES_PER_S, WORKERS, Job
from benchmarks.render.methods import RenderTask, cluster, render
from benchmarks.render.simulation import Parts, losses_in, simulate
from penstock.rendering import Plan
from penstock.rendering.chunk import data_name
from penstock.rendering.engines import Done, Engine, Event, Failed
from penstock.rendering.engines.processes import Processes
from penstock.rendering.job import Job as Render
from penstock.rendering.join import joined
from penstock.rendering.planning import lengths_of
from penstock.rendering.storage import RemoteStorage, storage_of
from penstock.results import ChunkReport, RenderProgress

#: Chunks from which the parts are measured: their lengths, in a mixed order, so many times.
LENGTHS, REPEATED = (4, 8, 16, 24), 5
#: Of a plan that costs nothing but the driver's time.
DRIVEN_CHUNKS = 10_000
#: Of the files that go to the storage, and how many.
STORED_BYTES, STORED_FILES = 8 * 2**20, 10
#: Of the joins: chunks of a few frames that are tiny, chunks of a second, and how often; the fastest counts, for the
#: time of a small one is mostly that of FFmpeg's start.
SMALL_CHUNKS, LARGE_CHUNKS, JOINS = 200, 300, 3
#: Of the simulated cluster: how many workers, what part of them is lost in an hour, how long a frame takes, and after
#: how long a loss is noticed. Ray's health checks notice a silent machine after some 30 s with their defaults.
CLUSTER_WORKERS, LOST_PER_HOUR, CLUSTER_FRAME_S, NOTICED_AFTER_S = 1000, 0.01, 1.0, 30.0
CLUSTER_CHUNK_FRAMES = (30, 60, 120, 240, 480, 1200, 2400)

METHODS = Methods()


# --- the parts --------------------------------------------------------------------------------------------


def timed(plan: Plan, engine: Engine) -> Iterator[tuple[ChunkReport, float]]:
    """Has all chunks rendered, and gives their reports, with how long each took as the driver sees it."""
    missing = list(range(len(plan.lengths)))[::-1]
    submitted_s: dict[int, float] = {}
    try:
        while missing or submitted_s:
            while missing and engine.has_room():
                number = missing.pop()
                submitted_s[number] = time.perf_counter()
                engine.submit(number)
            for event in engine.events(1.0):
                if isinstance(event, Failed):
                    raise RuntimeError(event.failure.reason)
                if isinstance(event, Done):
                    yield event.report, time.perf_counter() - submitted_s.pop(event.number)
    finally:
        engine.close()


def measure_engine(task: RenderTask, run: Run, engine: Callable[[Plan], Engine]) -> None:
    """The start of workers and chunks, frames and their spread, and the driver's time."""
    lengths = list(LENGTHS) * REPEATED
    random.Random(1).shuffle(lengths)
    made = pool.planned(task.output, task.job, lengths, scenes.working)
    with accounted(run):
        seen = list(timed(made, engine(made)))
    first: dict[str, float] = {}
    later = []
    for report, took_s in seen:
        if report.worker in first:
            later.append(took_s - report.elapsed_s)
        else:
            first[report.worker] = took_s - report.elapsed_s
    # Theil and Sen's line: the median of the slopes, which a few slow chunks do not move.
    slopes = [
        (one.elapsed_s - other.elapsed_s) / (one.frames - other.frames)
        for (one, _), (other, _) in itertools.combinations(seen, 2)
        if one.frames != other.frames
    ]
    frame_s = statistics.median(slopes)
    start_s = max(0.0, statistics.median(one.elapsed_s - one.frames * frame_s for one, _ in seen))
    relative = [math.log(one.elapsed_s / (start_s + one.frames * frame_s)) for one, _ in seen]
    between_s = statistics.median(later)
    run.figures |= {
        "worker_start_s": max(0.0, statistics.mean(first.values()) - between_s),
        "chunk_start_s": start_s + between_s,
        "frame_s": frame_s,
        "spread": statistics.stdev(relative),
        "driver_s": (run.figures["cpu_own_s"] or 0.0) / len(seen),
    }


@METHODS.add("parts-processes", "ours", serves=("parts",))
def of_processes(task: RenderTask, run: Run) -> None:
    """Chunks of several lengths, by a process for each CPU."""
    measure_engine(task, run, lambda made: Processes(made, WORKERS, None))


@METHODS.add("parts-ray", "ours", serves=("parts",), needs=("ray",))
def of_ray(task: RenderTask, run: Run) -> None:
    """The same by Ray, which is up before the clock starts."""
    from penstock.rendering.engines.ray import RayTasks

    with cluster(nodes=1, cpus=WORKERS):
        measure_engine(task, run, lambda made: RayTasks(made, WORKERS, None, {}, progress=False))


class _Instant:
    """An engine whose chunks are done at once: what is left is the driver's own time."""

    def __init__(self) -> None:
        self._done: list[Event] = []

    def has_room(self) -> bool:
        return not self._done

    def submit(self, number: int) -> None:
        self._done.append(Done(number, ChunkReport(number, 1, 0, "", 1.0, "worker")))

    def events(self, timeout_s: float) -> list[Event]:
        done, self._done = self._done, []
        return done

    def workers(self) -> int:
        return 0

    def close(self) -> None:
        pass


class _Enough(Exception):
    """All chunks are done; there is nothing to join."""


@METHODS.add("parts-driver", "ours", serves=("parts",))
def of_driver(task: RenderTask, run: Run) -> None:
    """The driver alone, with a plan of 10,000 chunks that are done at once."""
    made = pool.planned(task.output, task.job, [1] * DRIVEN_CHUNKS, scenes.working)

    def stop(progress: RenderProgress) -> None:
        if progress.chunks_done == progress.chunks:
            raise _Enough

    storage = storage_of(made.storage)
    job = Render(made, resume=False)
    for number in range(DRIVEN_CHUNKS):
        storage.write(f"{data_name(made, number)}.json", "{}")
    started_s = time.perf_counter()
    with suppress(_Enough):
        job.run(lambda _: _Instant(), stop)
    seconds = time.perf_counter() - started_s
    run.figures |= {"seconds": seconds, "driver_s": seconds / DRIVEN_CHUNKS}


@METHODS.add("parts-storage", "ours", serves=("parts",), needs=("fsspec",))
def of_storage(task: RenderTask, run: Run) -> None:
    """Files to a storage that fsspec opens: a folder of this machine, for want of a network."""
    storage = RemoteStorage(f"file://{task.folder}/storage")

    def put(nbytes: int) -> float:
        started_s = time.perf_counter()
        for number in range(STORED_FILES):
            with storage.new_file(f"{nbytes}/{number}") as part:
                part.write_bytes(bytes(nbytes))
        return (time.perf_counter() - started_s) / STORED_FILES

    small_s, large_s = put(1), put(STORED_BYTES)
    run.figures |= {
        "seconds": small_s + large_s,
        "storage_start_s": small_s,
        "storage_bytes_per_s": STORED_BYTES / max(large_s - small_s, 1e-9),
    }


@METHODS.add("parts-join", "ours", serves=("parts",))
def of_join(task: RenderTask, run: Run) -> None:
    """Joins of a few small chunks, of many, and of large ones."""
    small = Job("small", 64, 48, 4 * SMALL_CHUNKS, "join", task.job.encoder, joined_frames=4)
    few = replace(small, frames=4 * pool.RENDERED)
    # As a render has it without options.
    large = Job("large", 1920, 1080, LARGE_CHUNKS * FRAMES_PER_S, "join")
    seconds, nbytes = [], []
    for job in (few, small, large):
        folder = Path(task.folder) / f"{job.name}-{job.chunks}"
        folder.mkdir()
        source = pool.fill(folder, job)
        nbytes.append(sum(Path(path).stat().st_size for path in pool.files(source)))
        seconds.append(min(_join_s(folder / str(number), job, source) for number in range(JOINS)))
    chunk_s = max(0.0, (seconds[1] - seconds[0]) / (small.chunks - few.chunks))
    moved_s = seconds[2] - seconds[0] - (large.chunks - few.chunks) * chunk_s
    run.figures |= {
        "seconds": sum(seconds),
        "join_start_s": seconds[0] - few.chunks * chunk_s,
        "join_chunk_s": chunk_s,
        "join_bytes_per_s": nbytes[2] / max(moved_s, 1e-9),
        "frame_bytes": nbytes[2] / large.frames,
    }


def _join_s(folder: Path, job: Job, source: str) -> float:
    folder.mkdir()
    made = pool.plan_in(folder, job, source)
    join_s = joined(made, storage_of(made.storage)).elapsed_s
    shutil.rmtree(folder)
    return join_s


# --- real renders -----------------------------------------------------------------------------------------


def check(
    task: RenderTask,
    run: Run,
    *,
    workers: int = WORKERS,
    chunk_frames: int | None = None,
    engine: str = "processes",
    kill: bool = False,
) -> None:
    """Renders, and simulates the same."""
    parts = Parts(**json.loads(task.source)[engine])
    victims = [True] * kill
    lost: list[tuple[float, int]] = []

    def on_progress(progress: RenderProgress) -> None:
        if victims and progress.frames_done >= progress.frames / 2:
            victims.clear()
            lost.append((progress.elapsed_s, 0))
            os.kill(min(children() - others), signal.SIGKILL)

    others = children()
    options: dict[str, Any] = {"workers": workers, "chunk_frames": chunk_frames, "engine": engine}
    with cluster(nodes=1, cpus=WORKERS) if engine == "ray" else nullcontext():
        render(task, run, scenes.working, progress=on_progress, **options)
    lengths = lengths_of(task.job.frames, chunk_frames, workers)
    # The chunks are written where they stay, and they are small.
    local = replace(parts, storage_start_s=0.0, storage_bytes_per_s=math.inf, frame_bytes=0.0)
    found = simulate(lengths, workers, local, losses=lost, is_replaced=True)
    predicted_s = found.render_s + local.join_s(lengths)
    real_s = run.figures["seconds"] or math.inf
    ratio = predicted_s / real_s
    run.figures |= {
        "predicted_s": predicted_s,
        "predicted_by_real": ratio,
        "prediction_error": abs(ratio - 1),
    }
    run.notes["lost_at_s"] = [time_s for time_s, _ in lost]


METHODS += [
    Method(f"checked-{name}", summary, "ours", partial(check, **how), serves=("checked",), needs=needs)
    for name, summary, needs, how in (
        (
            "chunks-50",
            "two processes, with longer chunks than those that were measured",
            (),
            {"chunk_frames": 50},
        ),
        ("chunks-10", "two processes, with short chunks", (), {"chunk_frames": 10}),
        (
            "one-killed",
            "two processes, one of which is killed when half of the frames are there",
            (),
            {"kill": True},
        ),
        # With both CPUs for one worker, a frame may cost less than was measured.
        ("1-process", "one process", (), {"workers": 1}),
        ("ray", "two workers on Ray", ("ray",), {"chunk_frames": 30, "engine": "ray"}),
    )
]


# --- the simulated cluster --------------------------------------------------------------------------------


def simulated(chunk_frames: int, frames: int, parts: Parts, seed: int) -> Run:
    """One render on the simulated cluster."""
    parts = replace(parts, frame_s=CLUSTER_FRAME_S)
    lengths = lengths_of(frames, chunk_frames, CLUSTER_WORKERS)
    linear_s = frames * CLUSTER_FRAME_S / CLUSTER_WORKERS
    losses = losses_in(10 * linear_s, CLUSTER_WORKERS, LOST_PER_HOUR, seed)
    found = simulate(
        lengths, CLUSTER_WORKERS, parts, losses=losses, noticed_after_s=NOTICED_AFTER_S, seed=seed
    )
    join_s = parts.join_s(lengths)
    return Run(
        {
            "efficiency": linear_s / (found.render_s + join_s),
            "efficiency_without_join": linear_s / found.render_s,
            "seconds": found.render_s + join_s,
            "join_s": join_s,
            "chunks": len(lengths),
            "losses": found.losses,
            "lost_s": found.lost_s,
        }
    )


METHODS += [
    Method(
        f"simulated-{frames}", f"{frames} frames a chunk, and fewer at the end", "ours", serves=("cluster",)
    )
    for frames in CLUSTER_CHUNK_FRAMES
]


def cluster_measure(job: Job, parts: Parts) -> Callable[[Row], Run]:
    """The simulation of a row: each round has another seed."""

    def measure(row: Row) -> Run:
        return simulated(int(row.name.rpartition("-")[2]), job.frames, parts, seed=len(row.runs))

    return measure


def as_json(measured: dict[str, dict[str, float]]) -> str:
    """The parts of all engines that were measured."""
    engines = [engine for engine in ("processes", "ray") if f"parts-{engine}" in measured]
    return json.dumps({engine: asdict(Parts.of(engine, measured)) for engine in engines})
