"""Frames from a video file, or from a pipe, into memory, by every library in turn.

The clock runs from before the method is started until it has given its last frame and ended everything it started, for
every method and for the bound. Each frame is sampled while the clock runs, at pixels of rows all over it, so that a
frame counts only if it is there. The samples are compared afterwards.

By default: twelve jobs, every method that is installed, 5 rounds; 40 minutes. The files are made first.
Every option that selects what to run also narrows --quick. A method that loses a frame, or shows another one or other
colours, is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.decode import feeder
from benchmarks.decode.methods import (
    CRF,
    METHODS,
    PICKED_STANDARD,
    PIPE_STANDARD,
    PRESET,
    STANDARD,
    Job,
    Target,
    clips_in,
    stdout_readinto,
)
from benchmarks.harness.accounts import accounted, children, note_children_peak
from benchmarks.harness.command import Benchmark, JobSettings, Measure
from benchmarks.harness.content import Film, Frame, apart
from benchmarks.harness.ffmpeg import FFmpegFailedError, frame_count, output_of, start
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.options import SIZE_OPTIONS, by_name, chosen
from benchmarks.harness.results import Group, Run
from penstock import Encoder
from penstock.errors import PenstockError
from penstock.ffmpeg import Colors, Tuning

#: Pixels of rows all over each frame.
Samples = Frame

# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("h264-720p", 1280, 720, 900, "libx264"),
    Job("h264-1080p", 1920, 1080, 600, "libx264"),
    Job("h264-2160p", 3840, 2160, 150, "libx264"),
    Job("camera-1080p", 1920, 1080, 300, "libx264", "camera"),
    Job("text-1080p", 1920, 1080, 300, "libx264", "text"),
    Job("h265-1080p", 1920, 1080, 240, "libx265"),
    Job("clips-240p", 320, 240, 1200, "libx264", clips=40),
    Job("reader", 1920, 1080, 1000, None, "noise"),
    *(
        Job(f"picked-{gop}", 1920, 1080, 40, "libx264", picked_from=600, gop=gop)
        for gop in (12, 60, 250, 600)
    ),
)
FRAMES_PER_S = 30
#: Different frames in the pipe: a prime, so that they have no period in common with any method's buffers.
PIPE_FRAMES = 5
#: How often FFmpeg's memory is read. It is gone after the last frame, and each look takes time.
LOOKS = 4
#: The file with samples of the input's frames, in the folder of a task.
REFERENCE = "reference.npy"

#: Frames are compared by so many tiles, across and down. Another way to enlarge chroma changes sharp edges, which
#: cancels out within a tile. The error of a wrong matrix does not.
TILES = 8
# The limit on the difference between a method's frame and FFmpeg's own, in code values: the absolute mean errors of
# the tiles, and their mean. Measured from 96x64 to 1080p with FFmpeg 5.1: another rounding and another way to enlarge
# chroma (accurate_rnd+full_chroma_int) make at most 1.7; a wrong matrix makes 3.3 or more, a wrong range 8.2.
MAX_DIFFERENCE = 2.5


# --- one case, in its own process -------------------------------------------------------------------------


def measure(task: Task[Job]) -> Run:
    """Time one run, and compare its frames with the input's."""
    task.load()
    os.environ["PATH"] = os.pathsep.join((str(Path(task.ffmpeg).parent), os.environ.get("PATH", os.defpath)))
    run = Run()
    frames = _run_bound(task, run) if task.method.kind == "bound" else _run_method(task, run)
    run.count_frames(task.job.frames, frames)
    return run


def _run_method(task: Task[Job], run: Run) -> int:
    job = task.job
    rows, columns = (len(range(0, pixels, job.sample_step)) for pixels in (job.height, job.width))
    # Filled, so that it is resident before the memory is measured.
    samples = np.full((job.frames, rows, columns, 3), 255, np.uint8)
    others = children()
    fd = _start_feeder(task) if job.kind == "pipe" else -1
    target = Target(job, task.ffmpeg, task.source, fd, run.notes)
    with accounted(run, others):
        frames = _consume(_decoding(task, target), job, samples, run)
    reference = np.load(Path(task.folder) / REFERENCE)
    if task.method.pixel_format == "bgr24":
        reference = reference[..., ::-1]
    run.figures["difference"], run.error = compare(samples[:frames], reference, exact=job.kind == "pipe")
    return frames


def _decoding(task: Task[Job], target: Target) -> Iterator[Frame]:
    """The frames that the method gives, of several files one after another."""
    if task.job.kind != "clips" or task.method.serves == ("clips",):
        frames: Iterator[Frame] = task.method.start(target)
        return frames
    each = (replace(target, path=path) for path in clips_in(target.path))
    return chain.from_iterable(task.method.start(one) for one in each)


def _start_feeder(task: Task[Job]) -> int:
    """Start the feeder, and wait for its first bytes, so that its start is not measured."""
    reader, writer = os.pipe()
    arguments = [task.source, str(task.job.frame_bytes), str(task.job.frames)]
    subprocess.Popen([sys.executable, "-I", "-S", str(feeder.__file__), *arguments], stdout=writer)
    os.close(writer)
    select.select([reader], [], [])
    return reader


def _consume(frames: Iterable[Frame], job: Job, samples: Samples, run: Run) -> int:
    """Sample and count the frames."""
    started = time.perf_counter()
    step = job.sample_step
    look_every = max(1, job.frames // LOOKS)
    count = 0
    for number, frame in enumerate(frames):
        if number == 0:
            run.figures["start_s"] = time.perf_counter() - started
        if frame.shape != job.shape or frame.dtype != samples.dtype:
            raise ValueError(f"frame {number} is {frame.dtype} of {frame.shape}")
        if number < job.frames:
            samples[number] = frame[::step, ::step]
        if number % look_every == look_every // 2:
            note_children_peak(run)
        count = number + 1
    return count


def _run_bound(task: Task[Job], run: Run) -> int:
    arguments = ["-i", task.source, "-progress", "pipe:1", "-f", "null", "-"]
    progress = ""
    with accounted(run), start(task.ffmpeg, *arguments, stdin=False, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for line in child.stdout:
            progress += line.decode()
            if line.startswith(b"progress="):
                note_children_peak(run)
    started = time.perf_counter()
    output_of(task.ffmpeg, "-i", task.source, "-frames:v", "1", "-f", "null", "-")
    run.figures["start_s"] = time.perf_counter() - started
    return frame_count(progress)


def compare(samples: Samples, reference: Samples, *, exact: bool = False) -> tuple[float, str | None]:
    """The largest difference between a method's frames and the reference, and an error if there is one.

    A shorter reference is repeated. ``exact`` is for frames that nobody converts.
    """
    worst = 0.0
    for number, shown in enumerate(samples):
        expected = reference[number % len(reference)]
        off = difference(shown, expected)
        worst = max(worst, off)
        if off > MAX_DIFFERENCE or (exact and (shown != expected).any()):
            return worst, f"frame {number} shows something else: it is {off:.1f} code values off"
        for n in (number - 1, number + 1):
            other = reference[n % len(reference)]
            if _pixels_apart(shown, other) < _pixels_apart(shown, expected):
                return worst, f"frame {number} shows what frame {n % len(reference)} has to show"
    return worst, None


def difference(shown: Samples, expected: Samples) -> float:
    """The difference of two frames, by their tiles."""
    return float(np.abs(_tiles(shown) - _tiles(expected)).mean())


def _tiles(samples: Samples) -> NDArray[np.float64]:
    """The mean of each channel in each tile."""
    sums = samples.astype(np.float64)
    for axis in (0, 1):
        length = samples.shape[axis]
        starts = np.linspace(0, length, min(TILES, length), endpoint=False).astype(int)
        widths = np.diff(starts, append=length)
        sums = np.add.reduceat(sums, starts, axis=axis) / np.expand_dims(widths, (1 - axis, 2))
    return sums


def _pixels_apart(shown: Samples, expected: Samples) -> float:
    """The mean difference of all values. It depends on the position of edges, which tells one frame from the next."""
    return float(apart(shown, expected).mean(dtype=np.float32))


# --- inputs -----------------------------------------------------------------------------------------------


def link_programs(ffmpeg: str, folder: Path) -> str:
    """Link FFmpeg and an ffprobe into the folder, under the names that libraries look for on ``PATH``."""
    program = Path(ffmpeg).absolute()
    (folder / "ffmpeg").symlink_to(program)
    beside = program.with_name("ffprobe")
    ffprobe = str(beside) if beside.exists() else shutil.which("ffprobe")
    if ffprobe:
        (folder / "ffprobe").symlink_to(Path(ffprobe).absolute())
    return str(folder / "ffmpeg")


def make_input(job: Job, ffmpeg: str, folder: Path) -> tuple[str, Samples]:
    """Make the file that the job reads, or that is fed to it; and samples of its frames."""
    step = job.sample_step
    if job.kind == "pipe":
        film = Film("noise", *job.size)
        frames = np.array([film.frame(number) for number in range(min(PIPE_FRAMES, job.frames))])
        path = folder / "frames.raw"
        frames.tofile(path)
        return str(path), frames[:, ::step, ::step]
    path = folder / "video.mp4"
    each = replace(job, frames=job.picked_from or job.frames // job.clips, clips=1)
    _make_video(each, ffmpeg, path)
    decoded = stdout_readinto(Target(job, ffmpeg, str(path)))
    samples = np.array([frame[::step, ::step].copy() for frame in decoded])
    if len(samples) != each.frames:
        raise FFmpegFailedError(f"FFmpeg made {len(samples)} frames instead of {each.frames}")
    if job.picked_from:
        return str(path), samples[job.numbers]
    if job.clips == 1:
        return str(path), samples
    clips = folder / "clips"
    clips.mkdir()
    for number in range(job.clips):
        shutil.copy(path, clips / f"{number}.mp4")
    return str(clips), samples


def _make_video(job: Job, ffmpeg: str, path: Path) -> None:
    """Encode the job's frames, which do not repeat but for text."""
    assert job.encoder is not None, "a pipe has no file"
    film = Film(job.content, *job.size)
    options = {"preset": PRESET, "crf": CRF} | ({"g": job.gop} if job.gop else {})
    try:
        with Encoder(
            path,
            size=job.size,
            fps=FRAMES_PER_S,
            codec=job.encoder,
            options=options,
            # Tagged: a method that assumes another matrix shows other colours.
            colors=Colors(matrix="bt709"),
            tuning=Tuning(ffmpeg=ffmpeg),
        ) as encoder:
            for number in range(job.frames):
                encoder.write(film.frame(number))
    except PenstockError as error:
        raise FFmpegFailedError(str(error)) from error


# --- groups -----------------------------------------------------------------------------------------------


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[None, Measure]]:
    """Make the input and its samples."""
    with tempfile.TemporaryDirectory() as folder:
        program = link_programs(ffmpeg, Path(folder))
        path, reference = make_input(job, program, Path(folder))
        files = clips_in(path) if job.kind == "clips" else [path]
        group.about["input_bytes"] = sum(Path(file).stat().st_size for file in files)
        np.save(Path(folder) / REFERENCE, reference)
        yield None, isolated(measure, job, program, folder=folder, source=path)


# --- report -------------------------------------------------------------------------------------

# The fastest takes some tenths of a second, so that FFmpeg's start matters much: no claim can rest on it.
QUICK_JOBS = (replace(by_name(JOBS, "h264-720p"), frames=150), replace(by_name(JOBS, "reader"), frames=200))
BENCHMARK = Benchmark(
    "decode",
    settings=JobSettings(JOBS, tuple(METHODS)),
    quick=JobSettings(QUICK_JOBS, tuple(METHODS), rounds=2),
    quick_help="About half a minute: 720p and the reader, few frames, 2 rounds.",
    prepare=prepare,
    options=[chosen("--job", "jobs", JOBS), chosen("--method", "methods", METHODS), *SIZE_OPTIONS],
    standards=[STANDARD, PIPE_STANDARD, PICKED_STANDARD],
)
main = BENCHMARK.command(__doc__)
