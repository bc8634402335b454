"""Frames from a video file, or a pipe, into memory, by every library: ``python -m benchmarks.decode``.

The methods have a file of their own, because one would pass 500 lines, and so has the feeder of the pipe, which is a
program. The clock runs from before the method is started until it has given its last frame and ended what it started,
for every method and for the bound. A sample is taken of every frame while the clock runs: pixels of rows all over it,
the same for all methods, so that no frame counts that is not there. They are compared afterwards.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.decode import feeder
from benchmarks.decode.methods import (
    BOUND,
    CRF,
    METHODS,
    OUR_READER,
    OURS,
    PIPE_STANDARD,
    PRESET,
    STANDARD,
    Job,
    Target,
    stdout_readinto,
)
from benchmarks.harness import tables
from benchmarks.harness.accounts import accounted, children, note_children_peak
from benchmarks.harness.command import Benchmark, conduct
from benchmarks.harness.ffmpeg import (
    QUIET,
    FFmpegFailedError,
    check_exit,
    frame_count,
    output_of,
    version,
    working_ffmpeg,
)
from benchmarks.harness.goals import Verdict, over
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.options import (
    by_name,
    chosen,
    common_options,
    ffmpeg_option,
    given_in,
    resized,
    sized_options,
)
from benchmarks.harness.pictures import Frame, Pictures
from benchmarks.harness.results import Group, Method, Row, Run, rows_for
from benchmarks.harness.rounds import Report, run_rounds

#: Pixels of rows all over each frame.
Samples = Frame

# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("h264-720p", 1280, 720, 900, "libx264"),
    Job("h264-1080p", 1920, 1080, 600, "libx264"),
    Job("h264-2160p", 3840, 2160, 150, "libx264"),
    Job("h265-1080p", 1920, 1080, 240, "libx265"),
    Job("reader", 1920, 1080, 1000, None),
)
FRAMES_PER_S = 30
#: Frames that go round in the pipe: a prime, so that they have no period in common with anybody's buffers.
PIPE_FRAMES = 5
#: How often FFmpeg's memory is looked at: it is gone when the last frame has come, and a look takes its time.
LOOKS = 4
#: Samples of the frames that are in the input, in the folder of a task.
REFERENCE = "reference.npy"

#: A frame is looked at in so many tiles, across and down: within a tile, what another way to enlarge chroma makes of
#: sharp edges cancels out, and what a wrong matrix makes does not.
TILES = 8
# Between what FFmpeg makes of the file and what a method does, in code values: the tiles' mean errors, absolute, and
# their mean over a frame. Measured from 96x64 to 1080p with FFmpeg 5.1: another rounding and another way to enlarge
# chroma (accurate_rnd+full_chroma_int) make at most 1.7; a wrong matrix makes 3.3 or more, a wrong range 8.2.
MOST_DIFFERENCE = 2.5


# --- one case, in a process of its own --------------------------------------------------------------------


def measure(task: Task[Job]) -> Run:
    """Time one run, and compare the frames that it gave."""
    task.load()
    os.environ["PATH"] = os.pathsep.join((str(Path(task.ffmpeg).parent), os.environ.get("PATH", os.defpath)))
    run = Run()
    frames = _run_bound(task, run) if task.method.kind == "bound" else _run_method(task, run)
    if run.error is None and frames != task.job.frames:
        run.error = f"there are {task.job.frames} frames, and it read {frames}"
    run.figures = {"fps": frames / (run.figures["seconds"] or math.inf), **run.figures}
    return run


def _run_method(task: Task[Job], run: Run) -> int:
    job = task.job
    rows, columns = (len(range(0, pixels, job.sample_step)) for pixels in (job.height, job.width))
    # Written to, so that it is resident before the memory is looked at.
    samples = np.full((job.frames, rows, columns, 3), 255, np.uint8)
    others = children()
    target = Target(
        job, task.ffmpeg, task.source, -1 if job.source == "file" else _start_feeder(task), run.notes
    )
    with accounted(run, others):
        frames = _consume(task.start(target), job, samples, run)
    reference = np.load(Path(task.folder) / REFERENCE)
    if task.method.pixel_format == "bgr24":
        reference = reference[..., ::-1]
    exact = job.source == "pipe"
    run.figures["difference"], run.error = compare(samples[:frames], reference, exact=exact)
    return frames


def _start_feeder(task: Task[Job]) -> int:
    """A pipe with its first bytes in it, so that the start of the other process is not measured."""
    reader, writer = os.pipe()
    arguments = [task.source, str(task.job.frame_bytes), str(task.job.frames)]
    subprocess.Popen([sys.executable, "-I", "-S", str(feeder.__file__), *arguments], stdout=writer)
    os.close(writer)
    select.select([reader], [], [])
    return reader


def _consume(frames: Iterable[Frame], job: Job, samples: Samples, run: Run) -> int:
    """Sample each frame, and count them."""
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
    command = [task.ffmpeg, *QUIET, "-i", task.source, "-progress", "pipe:1", "-f", "null", "-"]
    progress = ""
    with (
        accounted(run),
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            progress += line
            if line.startswith("progress="):
                note_children_peak(run)
    check_exit(child.returncode)
    return frame_count(progress)


def compare(samples: Samples, reference: Samples, *, exact: bool = False) -> tuple[float, str | None]:
    """How far a method's frames are from what they must be, the worst of all, and what is wrong, if anything.

    Frames by their number; the reference goes round where it is shorter. ``exact`` is for frames that nobody converts.
    """
    worst = 0.0
    for number, shown in enumerate(samples):
        expected = reference[number % len(reference)]
        off = difference(shown, expected)
        worst = max(worst, off)
        if off > MOST_DIFFERENCE or (exact and (shown != expected).any()):
            return worst, f"frame {number} shows something else: it is {off:.1f} code values off"
        for n in (number - 1, number + 1):
            other = reference[n % len(reference)]
            if _pixels_apart(shown, other) < _pixels_apart(shown, expected):
                return worst, f"frame {number} shows what frame {n % len(reference)} has to show"
    return worst, None


def difference(shown: Samples, expected: Samples) -> float:
    """Of two frames, by their tiles."""
    return float(np.abs(_tiles(shown) - _tiles(expected)).mean())


def _tiles(samples: Samples) -> NDArray[np.float64]:
    """The mean of each tile, in each channel."""
    sums = samples.astype(np.float64)
    for axis in (0, 1):
        length = samples.shape[axis]
        starts = np.linspace(0, length, min(TILES, length), endpoint=False).astype(int)
        widths = np.diff(starts, append=length)
        sums = np.add.reduceat(sums, starts, axis=axis) / np.expand_dims(widths, (1 - axis, 2))
    return sums


def _pixels_apart(shown: Samples, expected: Samples) -> float:
    """The mean of all pixels: more than the tiles, it is a matter of where a frame has its edges."""
    # The larger less the smaller one: in uint8 a plain difference would wrap around.
    apart = np.maximum(shown, expected) - np.minimum(shown, expected)
    return float(apart.mean(dtype=np.float32))


# --- inputs -----------------------------------------------------------------------------------------------


def link_programs(ffmpeg: str, folder: Path) -> str:
    """A folder with that FFmpeg, and an ffprobe, under the names that libraries look for on ``PATH``."""
    program = Path(ffmpeg).absolute()
    (folder / "ffmpeg").symlink_to(program)
    beside = program.with_name("ffprobe")
    ffprobe = str(beside) if beside.exists() else shutil.which("ffprobe")
    if ffprobe:
        (folder / "ffprobe").symlink_to(Path(ffprobe).absolute())
    return str(folder / "ffmpeg")


def make_input(job: Job, ffmpeg: str, folder: Path) -> tuple[str, Samples]:
    """The file that the job reads, or whose bytes are fed to it, and samples of the frames that are in it.

    Raises:
        FFmpegFailedError: FFmpeg cannot make or read it.
    """
    step = job.sample_step
    if job.source == "pipe":
        frames = _noise(job)
        path = folder / "frames.raw"
        frames.tofile(path)
        return str(path), frames[:, ::step, ::step]
    path = folder / "video.mp4"
    _make_video(job, ffmpeg, path)
    decoded = stdout_readinto(Target(job, ffmpeg, str(path)))
    samples = np.array([frame[::step, ::step].copy() for frame in decoded])
    if len(samples) != job.frames:
        raise FFmpegFailedError(f"FFmpeg was to make {job.frames} frames, and reads {len(samples)}")
    return str(path), samples


def _noise(job: Job) -> Frame:
    pictures = Pictures("noise", job.width, job.height, seed=1)
    return np.array([pictures.noise() for _ in range(min(PIPE_FRAMES, job.frames))])


def _make_video(job: Job, ffmpeg: str, path: Path) -> None:
    """FFmpeg's own moving test picture, which has sharp edges and all colours, and does not repeat."""
    assert job.encoder is not None, "a pipe has no file"
    source = f"testsrc2=size={job.width}x{job.height}:rate={FRAMES_PER_S}"
    read = ["-f", "lavfi", "-i", source, "-frames:v", str(job.frames)]
    # Tagged and converted alike: who takes another matrix for granted shows other colours.
    convert = ["-vf", "scale=out_color_matrix=bt709:out_range=tv,format=yuv420p"]
    tags = ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
    encode = ["-c:v", job.encoder, "-preset", PRESET, "-crf", CRF]
    output_of(ffmpeg, "-y", *read, *convert, *encode, *tags, str(path))


# --- groups -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are what the goals are about."""

    jobs: tuple[Job, ...] = JOBS
    methods: tuple[Method, ...] = METHODS
    rounds: int = 5


def run_groups(settings: Settings, ffmpeg: str, report: Report = lambda _: None) -> Iterator[Group]:
    """Each group as soon as it was run."""
    for job in settings.jobs:
        rows = rows_for(settings.methods, job)
        if not rows:
            continue
        about = asdict(job) | {"preset": PRESET, "crf": CRF}
        group = Group(job.name, job.title, rows, about, version(ffmpeg))
        with tempfile.TemporaryDirectory() as folder:
            _run_group(settings, group, job, ffmpeg, Path(folder), report)
        yield group


def _run_group(settings: Settings, group: Group, job: Job, ffmpeg: str, folder: Path, report: Report) -> None:
    report(f"{job.name}: making what is to be read")
    program = link_programs(ffmpeg, folder)
    try:
        path, reference = make_input(job, program, folder)
    except FFmpegFailedError as error:
        for row in group.rows:
            row.skipped = row.skipped or f"cannot make the file: {error}"
        return
    group.about["input_bytes"] = Path(path).stat().st_size
    np.save(folder / REFERENCE, reference)

    run = isolated(measure, lambda row: Task(row.method, job, program, path, str(folder)), job.timeout_s)
    run_rounds(group, run, settings.rounds, report)


# --- goals and report -------------------------------------------------------------------------------------

SOURCE = (
    "the goals of Penstock's Decoder and Reader, set from what the others reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds and one FFmpeg"
)
FILE_JOB, PIPE_JOB = "h264-1080p", "reader"
OVER_BEST_RIVAL = 1.05
#: Of those that drive FFmpeg by a pipe, as the Decoder does.
OVER_PIPES = 1.4
OVER_READINTO = 1.3
#: Frames that wait for the caller at most, unless it says otherwise.
DEPTH = 4
#: Beyond them one that is being read, one that the caller holds, and one that is free for the next; the fourth is for
#: everything else: threads' stacks, scratch memory, what is loaded at the first call (guessed).
FRAMES_BEYOND_DEPTH = 4


def judge(group: Group) -> Iterator[Verdict]:
    """The goals about this job that its rows can judge."""
    if group.name == PIPE_JOB:
        yield from over(group, [OUR_READER], [PIPE_STANDARD], OVER_READINTO)
        yield from _memory(group, OUR_READER)
    elif group.name == FILE_JOB:
        fps = group.medians("fps")
        rivals = [row.method for row in group.rows if row.method.kind == "rival" and row.name in fps]
        best = max(rivals, key=lambda method: fps[method.name], default=None)
        yield from over(group, [OURS], [method.name for method in rivals], OVER_BEST_RIVAL)
        for method in rivals:
            if method is not best and not method.own_ffmpeg:
                yield from over(group, [OURS], [method.name], OVER_PIPES)
        yield from _memory(group, OURS)


def _memory(group: Group, ours: str) -> Iterator[Verdict]:
    peak = next((row.max("peak_own_bytes") for row in group.rows if row.name == ours), None)
    if peak is not None:
        frames = peak / (group.about["width"] * group.about["height"] * 3)
        what = f"peak memory of {ours}'s process, {group.name}"
        yield Verdict(what, frames, DEPTH + FRAMES_BEYOND_DEPTH, "frames", at_most=True)


def note(row: Row) -> str | None:
    """What others have of their own, and what a method says of itself."""
    if row.method.own_ffmpeg:
        order = "; its frames are BGR" if row.method.pixel_format == "bgr24" else ""
        return f"an FFmpeg of its own, in its process{order}"
    if not row.notes:
        return None
    said = (
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.notes.items()
    )
    return f"the last round's {', '.join(said)}"


BENCHMARK = Benchmark(
    "decode",
    [
        *tables.rates(),
        tables.gain(STANDARD, PIPE_STANDARD),
        tables.part_of(BOUND),
        tables.median("first\nframe s", "start_s", tables.hundredths),
        tables.median("CPU s\nours", "cpu_own_s", tables.hundredths),
        tables.median("CPU s\nchild", "cpu_child_s", tables.hundredths),
        tables.largest("peak MiB\nours", "peak_own_bytes", tables.mebibytes),
        tables.largest("peak MiB\nchild", "peak_child_bytes", tables.mebibytes),
        tables.largest("off by\nlevels", "difference", tables.hundredths),
    ],
    judge,
    SOURCE,
    note,
    packages=("av", "decord", "ffmpegcv", "imageio-ffmpeg", "numpy", "opencv-python-headless"),
)
#: Some tenths of a second for the fastest, so that FFmpeg's start weighs much: a look, and no claim.
QUICK = Settings(
    (replace(by_name(JOBS, "h264-720p"), frames=150), replace(by_name(JOBS, "reader"), frames=200)), rounds=2
)


@click.command()
@chosen("--job", "jobs", JOBS)
@chosen("--method", "methods", METHODS)
@sized_options
@ffmpeg_option("ffmpeg")
@common_options("decode", "About half a minute: 720p and the reader, few frames, 2 rounds.")
def main(
    quick: bool,
    size: tuple[int, int] | None,
    frames: int | None,
    ffmpeg: str | None,
    json_path: str | None,
    is_kept: bool,
    **given: Any,
) -> None:
    """Frames from a video file, or a pipe, into memory, by every library in turn.

    By default: five jobs, every method that is installed, 5 rounds; a quarter of an hour. The files are made by
    FFmpeg first. Every option that says what to run also narrows --quick. A method that loses a frame, or shows
    another one or other colours, is an error, and has no speed; the exit status is then 1.
    """
    settings = given_in(QUICK if quick else Settings(), given)
    settings = replace(settings, jobs=resized(settings.jobs, size, frames))
    program = working_ffmpeg(ffmpeg)
    conduct(
        BENCHMARK, lambda report: run_groups(settings, program, report), vars(settings), json_path, is_kept
    )
