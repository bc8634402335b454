"""The ways to render a job. Each is a function of a task and a run: it sets the run's figures, and checks the frames.

Its process is its own, so that memory and CPU time are its own, too. CPU seconds are those of all processes that it
started, Ray's included.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import penstock
from benchmarks.harness.accounts import accounted, tree_cpu_s
from benchmarks.harness.content import Frame, psnr_db
from benchmarks.harness.isolated import Task
from benchmarks.harness.methods import Method, Methods
from benchmarks.harness.results import Run
from benchmarks.render import pool, scenes
from benchmarks.render.jobs import CHUNK_FRAMES, FRAMES_PER_S, WORKERS, Job
from penstock.media import probe
from penstock.rendering import assemble
from penstock.rendering.join import joined
from penstock.rendering.storage import storage_of

DRAWN, DRAWN_TWICE, DRAWN_ON_RAY, ENCODER = "drawing", f"{WORKERS}-drawings", "ray-drawings", "encoder"
ONE, TWO, RAY = "1-process", f"{WORKERS}-processes", "ray"
CP, FFMPEG, JOIN, ASSEMBLE = "cp", "ffmpeg", "join", "assemble"
WHOLE = "one-encoder"
#: Every so many frames of the moving picture are decoded and compared.
COMPARED_STEP = 12

RenderTask: TypeAlias = Task[Job]
METHODS = Methods()


@contextmanager
def measured(run: Run) -> Iterator[None]:
    """Wall time, CPU seconds of all processes, and memory of this one."""
    before_s = tree_cpu_s()
    with accounted(run):
        yield
    run.figures["cpu_s"] = tree_cpu_s() - before_s


def render(task: RenderTask, run: Run, scene: Any, **more: Any) -> penstock.results.RenderReport:
    """Render the job's video, and count its frames."""
    job = task.job
    with measured(run):
        report = penstock.render(
            scene,
            frames=job.frames,
            size=job.size,
            fps=FRAMES_PER_S,
            output=task.output,
            resume=False,
            encoder=job.encoder,
            **more,
        )
    run.count_frames(job.frames, report.frames)
    run.figures |= {"join_s": report.join_s, "output_bytes": report.output_bytes, "chunks": report.chunks}
    run.notes = {"retries": report.retries, "workers": len(report.workers)}
    return report


def encode(task: RenderTask, run: Run, scene: Any) -> None:
    """Draw and encode the job's video by one encoder, in this process."""
    job = task.job
    with (
        measured(run),
        penstock.Encoder(task.output, size=job.size, fps=FRAMES_PER_S, **job.encoder) as encoder,
    ):
        for index in range(job.frames):
            with encoder.frame() as view:
                scene(index, index / FRAMES_PER_S, view)
    run.count_frames(job.frames, encoder.close().frames_encoded)
    run.figures["output_bytes"] = Path(task.output).stat().st_size


# --- a scene of pure Python -------------------------------------------------------------------------------


def draw(size: tuple[int, int], frames: int) -> None:
    """The scene into one array, and nothing is encoded."""
    view = np.empty((*size[::-1], 3), np.uint8)
    for index in range(frames):
        scenes.working(index, index / FRAMES_PER_S, view)


@METHODS.add(DRAWN, "bound", serves=("python",))
def drawing(task: RenderTask, run: Run) -> None:
    """The scene into an array, without an encoder: what one process can reach."""
    with measured(run):
        draw(task.job.size, task.job.frames)
    run.count_frames(task.job.frames, task.job.frames)


@METHODS.add(DRAWN_TWICE, "bound", serves=("python",))
def two_drawings(task: RenderTask, run: Run) -> None:
    """Two processes that draw half of the frames each, without an encoder: what this machine can reach."""
    with measured(run):
        child = os.fork()
        if not child:
            draw(task.job.size, task.job.frames - task.job.frames // 2)
            os._exit(0)
        draw(task.job.size, task.job.frames // 2)
        os.waitpid(child, 0)
    run.count_frames(task.job.frames, task.job.frames)


@METHODS.add(DRAWN_ON_RAY, "bound", serves=("python",), needs=("ray",))
def drawings_on_ray(task: RenderTask, run: Run) -> None:
    """The same as two bare Ray tasks, without Penstock: what Ray leaves of this machine. It is up as for `ray`."""
    frames = task.job.frames
    with cluster_up(run) as ray:
        # By value, so that workers import neither the benchmark nor Penstock.
        for module in (scenes, sys.modules[__name__]):
            ray.cloudpickle.register_pickle_by_value(module)
        with measured(run):
            drawn = ray.remote(draw)
            halves = frames // 2, frames - frames // 2
            ray.get([drawn.remote(task.job.size, half) for half in halves])
    run.count_frames(frames, frames)


@METHODS.add(ENCODER, "other", serves=("python",))
def python_encoder(task: RenderTask, run: Run) -> None:
    """One `Encoder` and a loop, in this process."""
    encode(task, run, scenes.working)


@METHODS.add(ONE, "ours", serves=("python",))
def one_process(task: RenderTask, run: Run) -> None:
    """`render` with one worker."""
    render(task, run, scenes.working, workers=1)


@METHODS.add(TWO, "ours", serves=("python",))
def two_processes(task: RenderTask, run: Run) -> None:
    """`render` with two workers."""
    render(task, run, scenes.working, workers=WORKERS)


@METHODS.add(RAY, "ours", serves=("python",), needs=("ray",))
def on_ray(task: RenderTask, run: Run) -> None:
    """`render` with two workers on Ray, which is up before the clock starts: `start_s` is what that takes."""
    with cluster_up(run):
        render(task, run, scenes.working, workers=WORKERS, engine="ray")


@contextmanager
def cluster_up(run: Run) -> Iterator[Any]:
    """The module `ray`, when a node for the workers is up. How long that takes becomes the run's `start_s`."""
    started_s = time.perf_counter()
    # By name, because it has to be neither installed nor typed.
    ray: Any = import_module("ray")
    made: Any = import_module("ray.cluster_utils").Cluster
    system = made(initialize_head=True, head_node_args={"num_cpus": WORKERS, "include_dashboard": False})
    try:
        ray.init(address=system.address, log_to_driver=False, logging_level=logging.ERROR)
        start_s = time.perf_counter() - started_s
        yield ray
    finally:
        ray.shutdown()
        system.shutdown()
    run.figures["start_s"] = start_s


# --- chunks against one encoder ---------------------------------------------------------------------------


@METHODS.add(WHOLE, "other", serves=("chunk-lengths",))
def whole(task: RenderTask, run: Run) -> None:
    """One `Encoder` for the whole video."""
    encode(task, run, scenes.filmed)
    compare(task, run)


def in_chunks(chunk_frames: int, task: RenderTask, run: Run) -> None:
    """`render` with a worker for each CPU."""
    render(task, run, scenes.filmed, chunk_frames=chunk_frames)
    compare(task, run)


METHODS += [
    Method(
        f"chunks-{frames}",
        f"render with a worker for each CPU, {frames} frames a chunk and fewer at the end",
        "ours",
        partial(in_chunks, frames),
        serves=("chunk-lengths",),
    )
    for frames in CHUNK_FRAMES
]


def compare(task: RenderTask, run: Run) -> None:
    """Compare some of the frames with the scene's: the peak signal-to-noise ratio of luma of them all."""
    wanted = np.empty((task.job.height, task.job.width, 3), np.uint8)

    def pairs() -> Iterator[tuple[Frame, Frame]]:
        with penstock.Decoder(task.output) as decoder:
            for frame in decoder:
                if frame.index % COMPARED_STEP == 0:
                    scenes.filmed(frame.index, frame.index / FRAMES_PER_S, wanted)
                    yield frame, wanted

    run.figures["psnr_db"] = psnr_db(pairs())


# --- the join ---------------------------------------------------------------------------------------------


@METHODS.add(CP, "bound", serves=("join",))
def copied(task: RenderTask, run: Run) -> None:
    """cp of the chunks' files into another folder."""
    files = pool.files(task.source)
    target = Path(task.folder) / "copy"
    target.mkdir()
    with measured(run):
        subprocess.run(["cp", "--reflink=never", *files, target], check=True)
    _rate(task, run, task.job.frames)


@METHODS.add(FFMPEG, "bound", serves=("join",))
def by_ffmpeg(task: RenderTask, run: Run) -> None:
    """FFmpeg alone: it copies the same bytes, which cat pipes into it, into a video, and nothing is verified."""
    files = pool.files(task.source)
    copy = [task.ffmpeg, "-v", "error", "-f", "mov", "-i", "pipe:0", "-c", "copy", task.output]
    with measured(run), subprocess.Popen(["cat", *files], stdout=subprocess.PIPE) as cat:
        subprocess.run(copy, stdin=cat.stdout, check=True)
    _rate(task, run, probe(task.output).video[0].frames or 0)


@METHODS.add(JOIN, "ours", serves=("join",))
def join(task: RenderTask, run: Run) -> None:
    """The join of chunks that are known to be whole, as at the end of a render."""
    plan = pool.plan_in(Path(task.folder), task.job, task.source)
    with measured(run):
        report = joined(plan, storage_of(plan.storage))
    _rate(task, run, report.frames)


@METHODS.add(ASSEMBLE, "ours", serves=("join",))
def assembled(task: RenderTask, run: Run) -> None:
    """`assemble`: it reads all chunks before, and compares their SHA-256."""
    plan = pool.plan_in(Path(task.folder), task.job, task.source)
    with measured(run):
        report = assemble(plan)
    _rate(task, run, report.frames)


def _rate(task: RenderTask, run: Run, frames: int) -> None:
    run.count_frames(task.job.frames, frames)
    nbytes = sum(Path(path).stat().st_size for path in pool.files(task.source))
    run.figures["mb_per_s"] = nbytes / 1e6 / (run.figures["seconds"] or math.inf)
    run.figures["output_bytes"] = nbytes
