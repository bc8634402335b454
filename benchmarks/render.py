"""One video by several workers: what processes and Ray gain, and what chunks and the join cost.

By default: all jobs, 5 rounds; 18 minutes, and 7 GB of shared memory. A render that loses a frame
is an error and has no speed; the exit status is then 1.

Each method is a function of a task and a run: it sets the run's figures, and checks the frames. Its process is its own,
so that memory and CPU time are its own, too. CPU seconds are those of all processes that it started, Ray's included.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import penstock
from benchmarks.harness.accounts import accounted, tree_cpu_s
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import Film, Frame, psnr_db
from benchmarks.harness.files import folder_in_memory
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.methods import FrameJob, Methods
from benchmarks.harness.options import FRAMES
from benchmarks.harness.results import Group, Measure, Run
from penstock import probe
from penstock.rendering import Plan, assemble, plan, render_chunk
from penstock.rendering.chunk import data_name, folder_of
from penstock.rendering.join import join_chunks
from penstock.rendering.storage import storage_of

#: Frames of a chunk in the job about chunks; the first one is the default.
CHUNK_FRAMES = (240, 60, 30)
FRAMES_PER_S = 30


@dataclass(frozen=True)
class Job(FrameJob):
    """A video that is rendered in several ways, or a part of that."""

    #: Of the video's `Encoder`.
    encoder: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> str:
        """What the methods serve."""
        return self.name

    @property
    def chunks(self) -> int:
        """How many chunks of a second are joined."""
        return self.frames // FRAMES_PER_S

    @property
    def video(self) -> dict[str, Any]:
        """The video for `penstock.render` and `plan`."""
        return {"size": self.size, "fps": FRAMES_PER_S, "encoder_options": self.encoder}

    @property
    def title(self) -> str:
        size = f"{self.width}x{self.height}"
        what = {
            "python": f"{self.frames} frames of {size} by a loop of Python",
            "chunk-lengths": f"{self.frames} frames of {size} of rendered motion with noise, {dict(self.encoder)}",
            "join": f"{self.chunks} chunks of {size} and a second each, in shared memory",
        }
        return f"{self.name}: {what[self.name]}"

    @property
    def timeout_s(self) -> float:
        return 600.0


ULTRAFAST, MEDIUM = {"preset": "ultrafast"}, {"preset": "medium"}
JOBS = (
    Job("python", 320, 180, 900, ULTRAFAST),
    Job("chunk-lengths", 640, 360, 960, MEDIUM),
    # Chunks of some 3 MB.
    Job("join", 1920, 1080, 30_000, ULTRAFAST | {"crf": 20}),
)
QUICK_JOBS = (
    Job("python", 320, 180, 60, ULTRAFAST),
    Job("chunk-lengths", 320, 180, 240, MEDIUM),
    Job("join", 640, 360, 1500, ULTRAFAST),
)


# --- scenes -----------------------------------------------------------------------------------------------

# Each draws any frame from its index alone.

#: Steps of a loop of plain Python for a frame: some 30 ms on a 2.5 GHz x86-64.
STEPS = 300_000


def working(index: int, time_s: float, view: Frame) -> None:
    """A loop that holds the interpreter's lock, and a bar whose place tells the index."""
    total = index
    for step in range(STEPS):
        total = (total * 31 + step) & 0xFFFFFFFF
    view[:] = total % 256
    view[:, index % view.shape[1]] = 255


@lru_cache
def _film(height: int, width: int) -> Film:
    return Film("camera", width, height)


def filmed(index: int, time_s: float, view: Frame) -> None:
    """Rendered motion with a sensor's noise, as in the encode benchmark."""
    view[:] = _film(*view.shape[:2]).frame(index)


# --- methods ----------------------------------------------------------------------------------------------

DRAWN_TWICE, DRAWN_ON_RAY, ONE, TWO, RAY = "2-drawings", "ray-drawings", "1-process", "2-processes", "ray"
CP, WHOLE = "cp", "one-encoder"
#: The jobs.
PYTHON, CHUNKS, JOIN = ("python",), ("chunk-lengths",), ("join",)
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


def compare(task: RenderTask, run: Run) -> None:
    """Compare some of the frames with the scene's: the peak signal-to-noise ratio of luma of them all."""
    wanted = np.empty((task.job.height, task.job.width, 3), np.uint8)

    def pairs() -> Iterator[tuple[Frame, Frame]]:
        with penstock.Decoder(task.output) as decoder:
            for frame in decoder:
                if frame.index % COMPARED_STEP == 0:
                    filmed(frame.index, frame.index / FRAMES_PER_S, wanted)
                    yield frame, wanted

    run.figures["psnr_db"] = psnr_db(pairs())


def render(task: RenderTask, run: Run, scene: Any, **more: Any) -> None:
    """Render the job's video, count its frames, and compare those of the moving picture."""
    job = task.job
    with measured(run):
        how = {"output": task.output, "resume": False, **job.video, **more}
        report = penstock.render(scene, frames=job.frames, **how)
    run.count_frames(job.frames, report.frames)
    run.figures |= {"join_s": report.join_s, "output_bytes": report.output_bytes, "chunks": report.chunks}
    run.notes = {"retries": report.retries, "workers": len(report.workers)}
    if scene is filmed:
        compare(task, run)


def encode(task: RenderTask, run: Run, scene: Any) -> None:
    """The same by one encoder, in this process."""
    job, output = task.job, task.output
    with measured(run), penstock.Encoder(output, size=job.size, fps=FRAMES_PER_S, **job.encoder) as encoder:
        for index in range(job.frames):
            with encoder.lease() as view:
                scene(index, index / FRAMES_PER_S, view)
    run.count_frames(job.frames, encoder.close().frames_encoded)
    run.figures["output_bytes"] = Path(output).stat().st_size
    if scene is filmed:
        compare(task, run)


# --- a scene of pure Python -------------------------------------------------------------------------------


def draw(size: tuple[int, int], frames: int) -> None:
    """The scene into one array, and nothing is encoded."""
    view = np.empty((*size[::-1], 3), np.uint8)
    for index in range(frames):
        working(index, index / FRAMES_PER_S, view)


@METHODS.add("drawing", "bound", serves=PYTHON)
def drawing(task: RenderTask, run: Run) -> None:
    """The scene into an array, without an encoder: what one process can reach."""
    with measured(run):
        draw(task.job.size, task.job.frames)
    run.count_frames(task.job.frames, task.job.frames)


@METHODS.add(DRAWN_TWICE, "bound", serves=PYTHON)
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


@METHODS.add(DRAWN_ON_RAY, "bound", serves=PYTHON, needs=("ray",))
def drawings_on_ray(task: RenderTask, run: Run) -> None:
    """The same as two bare Ray tasks, without Penstock: what Ray leaves of this machine. It is up as for `ray`."""
    frames = task.job.frames
    with cluster_up(run) as ray:
        # By value, so that workers import neither the benchmark nor Penstock.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        with measured(run):
            drawn = ray.remote(draw)
            halves = frames // 2, frames - frames // 2
            ray.get([drawn.remote(task.job.size, half) for half in halves])
    run.count_frames(frames, frames)


IN_PROCESS = "One `Encoder` and a loop, in this process"
METHODS.add("encoder", "other", IN_PROCESS, serves=PYTHON)(partial(encode, scene=working))
METHODS.add(ONE, "ours", "`render` with one worker", serves=PYTHON)(partial(render, scene=working, workers=1))
METHODS.add(TWO, "ours", "`render` with two workers", serves=PYTHON)(
    partial(render, scene=working, workers=2)
)


@METHODS.add(RAY, "ours", serves=PYTHON, needs=("ray",))
def on_ray(task: RenderTask, run: Run) -> None:
    """`render` with two workers on Ray, which is up before the clock starts: `start_s` is what that takes."""
    with cluster_up(run):
        render(task, run, working, workers=2, engine="ray")


@contextmanager
def cluster_up(run: Run) -> Iterator[Any]:
    """The module `ray`, when a node for the workers is up. How long that takes becomes the run's `start_s`."""
    started_s = time.perf_counter()
    # By name, because it has to be neither installed nor typed.
    ray: Any = import_module("ray")
    made: Any = import_module("ray.cluster_utils").Cluster
    system = made(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        ray.init(address=system.address, log_to_driver=False, logging_level=logging.ERROR)
        start_s = time.perf_counter() - started_s
        yield ray
    finally:
        ray.shutdown()
        system.shutdown()
    run.figures["start_s"] = start_s


# --- chunks against one encoder ---------------------------------------------------------------------------

METHODS.add(WHOLE, "other", "One `Encoder` for the whole video", serves=CHUNKS)(partial(encode, scene=filmed))
for chunk_frames in CHUNK_FRAMES:
    summary = f"render with a worker for each CPU, {chunk_frames} frames a chunk and fewer at the end"
    in_chunks = partial(render, scene=filmed, chunk_frames=chunk_frames)
    METHODS.add(f"chunks-{chunk_frames}", "ours", summary, serves=CHUNKS)(in_chunks)


# --- the join ---------------------------------------------------------------------------------------------

# Its chunks: a few are rendered, and the others are these with later times.

#: So many are rendered.
RENDERED = 4
#: The boxes on the way to the time of a fragment (ISO/IEC 14496-12, 8.8.12), and the bytes before that in its box.
_CONTAINERS = (b"moof", b"traf")
_TIME, _VERSION_BYTES = b"tfdt", 4


def chunk_files(pool: str) -> list[str]:
    """The chunks' data, in their order."""
    return sorted(str(path) for path in Path(pool).iterdir() if path.suffix != ".json")


def planned(output: Path, job: Job) -> Plan:
    """The plan of a video of the job's, with chunks of a second."""
    made = plan(filmed, frames=job.chunks * FRAMES_PER_S, output=output, workers=1, **job.video)
    return replace(made, lengths=(FRAMES_PER_S,) * job.chunks)


def plan_in(folder: Path, job: Job, pool: str) -> Plan:
    """The plan for a video in `folder`, whose chunks are links to those of the pool."""
    made = planned(folder / "video.mp4", job)
    storage = Path(made.storage) / folder_of(made)
    storage.mkdir(parents=True)
    for path in Path(pool).iterdir():
        os.link(path, storage / path.name)
    return made


def fill_pool(folder: Path, job: Job) -> str:
    """Make all chunks of a job, and return their folder."""
    made = planned(folder / "pool.mp4", job)
    storage = Path(made.storage)
    reports = [render_chunk(made, number) for number in range(min(RENDERED, job.chunks))]
    originals = [(storage / data_name(made, report.number)).read_bytes() for report in reports]
    # Of one chunk, in the unit of the file's times.
    step = _times(originals[1])[0][1] - _times(originals[0])[0][1]
    for number in range(RENDERED, job.chunks):
        report = reports[number % RENDERED]
        data = _later(originals[number % RENDERED], (number - report.number) * step)
        path = storage / data_name(made, number)
        path.write_bytes(data)
        told = replace(report, number=number, sha256=hashlib.sha256(data).hexdigest())
        path.with_name(f"{path.name}.json").write_text(json.dumps(asdict(told)))
    return str(storage / folder_of(made))


def _later(data: bytes, step: int) -> bytes:
    """A chunk with all its times later."""
    changed = bytearray(data)
    for place, ticks in _times(data):
        changed[place : place + 8] = (ticks + step).to_bytes(8, "big")
    return bytes(changed)


def _times(data: bytes) -> list[tuple[int, int]]:
    """The times of the fragments, and where in the data they are."""
    places = (place + _VERSION_BYTES for place in _boxes(data, 0, len(data)))
    return [(place, int.from_bytes(data[place : place + 8], "big")) for place in places]


def _boxes(data: bytes, at: int, end: int) -> Iterator[int]:
    """Where the content of each box of the time begins."""
    while at < end:
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind in _CONTAINERS:
            yield from _boxes(data, at + 8, at + length)
        elif kind == _TIME:
            if data[at + 8] != 1:
                raise ValueError("the times have 32 bits")
            yield at + 8
        at += length


@METHODS.add(CP, "bound", serves=JOIN)
def copied(task: RenderTask, run: Run) -> None:
    """cp of the chunks' files into another folder."""
    files = chunk_files(task.source)
    target = Path(task.folder) / "copy"
    target.mkdir()
    with measured(run):
        subprocess.run(["cp", "--reflink=never", *files, target], check=True)
    _rate(task, run, task.job.frames)


@METHODS.add("ffmpeg", "bound", serves=JOIN)
def by_ffmpeg(task: RenderTask, run: Run) -> None:
    """FFmpeg alone: it copies the same bytes, which cat pipes into it, into a video, and nothing is verified."""
    files = chunk_files(task.source)
    copy = [task.ffmpeg, "-v", "error", "-f", "mov", "-i", "pipe:0", "-c", "copy", task.output]
    with measured(run), subprocess.Popen(["cat", *files], stdout=subprocess.PIPE) as cat:
        subprocess.run(copy, stdin=cat.stdout, check=True)
    _rate(task, run, probe(task.output).video[0].frames or 0)


@METHODS.add("join", "ours", serves=JOIN)
def join(task: RenderTask, run: Run, verifies: bool = False) -> None:
    """The join of chunks that are known to be whole, as at the end of a render."""
    plan = plan_in(Path(task.folder), task.job, task.source)
    with measured(run):
        report = assemble(plan) if verifies else join_chunks(plan, storage_of(plan.storage))
    _rate(task, run, report.frames)


VERIFIES = "`assemble`: it reads all chunks before, and compares their SHA-256"
METHODS.add("assemble", "ours", VERIFIES, serves=JOIN)(partial(join, verifies=True))


def _rate(task: RenderTask, run: Run, frames: int) -> None:
    run.count_frames(task.job.frames, frames)
    nbytes = sum(Path(path).stat().st_size for path in chunk_files(task.source))
    run.figures["mb_per_s"] = run.per_second(nbytes / 1e6)
    run.figures["output_bytes"] = nbytes


def measure(task: Task[Job]) -> Run:
    """Run a method once, in its process."""
    task.load()
    run = Run()
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        task.method.start(replace(task, folder=folder), run)
    return run


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """Make a folder for the videos, and the chunks of a join."""
    with folder_in_memory() as folder:
        source = fill_pool(Path(folder), job) if job.name == "join" else "-"
        yield isolated(job, ffmpeg, measure, folder=folder, source=source)
        if job.name == "python":
            group.findings = findings(group)


def findings(group: Group) -> list[str]:
    """What Ray itself costs on this machine."""
    fps = group.medians("fps")
    if not {DRAWN_ON_RAY, DRAWN_TWICE, RAY, TWO} <= fps.keys():
        return []
    bound, ours = (
        f"{ray} / {without} is {fps[ray] / fps[without]:.2f}x"
        for ray, without in ((DRAWN_ON_RAY, DRAWN_TWICE), (RAY, TWO))
    )
    return [f"{ours}. {bound}: bare Ray tasks against bare processes, without Penstock."]


BENCHMARK = Benchmark(
    "render",
    settings=JobSettings(JOBS, METHODS),
    quick=JobSettings(QUICK_JOBS, METHODS, rounds=1),
    quick_help="About half a minute: small videos, 1 round.",
    prepare=prepare,
    options=[FRAMES],
    figures=["mb_per_s", "fps"],
    standards=[ONE, WHOLE, CP],
)
main = BENCHMARK.command(__name__, __doc__)
