"""Frames from memory into a video file, by every library: ``python -m benchmarks.encode``.

The methods have a file of their own, because one would pass 500 lines. The clock runs from before the method is
started until the file is complete, for every method and for the bound: FFmpeg has then exited, or the library closed
the file. The file is counted afterwards.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.encode.methods import (
    BOUND,
    CODEC,
    FRAMES_PER_S,
    METHODS,
    OURS,
    OUTPUT_PIXEL_FORMAT,
    STANDARD,
    SUBMIT,
    Job,
    Target,
    ffmpeg_arguments,
)
from benchmarks.harness import tables
from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, conduct
from benchmarks.harness.ffmpeg import (
    check_exit,
    frame_count,
    output_of,
    raw_input,
    start,
    version,
    working_ffmpeg,
)
from benchmarks.harness.files import SHARED_MEMORY, bound_files, no_room
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
from benchmarks.harness.pictures import LOOP_FRAMES, Frame, Pictures
from benchmarks.harness.results import Group, Method, Row, Run, rows_for
from benchmarks.harness.rounds import Report, check_content, run_rounds
from benchmarks.harness.senders import feed, feed_repainted

# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("ultrafast-720p", 1280, 720, "ultrafast", "noise", 1000),
    Job("ultrafast-1080p", 1920, 1080, "ultrafast", "noise", 400),
    Job("ultrafast-2160p", 3840, 2160, "ultrafast", "noise", 120),
    Job("medium-1080p", 1920, 1080, "medium", "noise", 120),
    Job("texture-1080p", 1920, 1080, "ultrafast", "texture", 300),
    Job("paced-1080p", 1920, 1080, "ultrafast", "texture", 150, paced_fps=30),
)
#: Makes the pictures the same in every run.
SEED = 1

#: Of the content check: frames, buffers (few, so that each is overwritten often), and frames of the texture's loop
#: from one that is sent to the next: far apart, so that none looks like another.
CHECKED_FRAMES, CHECKED_BUFFERS, CHECKED_STEP = 12, 3, 7
# Between what was sent and what a decoder shows, in code values: the mean of one channel of a frame, and of one
# channel of a row. Measured with the smooth texture in steps of CHECKED_STEP, x264 ultrafast and medium, 64x48 to
# 1080p: the loss of the codec and of 4:2:0 is at most 3.2 and 7.3. A wrong range makes a mean of 4.7 or more, a
# wrong matrix 5.4; a page that was sent too late makes a row of 12 or more, another frame 15.
MOST_MEAN_DIFFERENCE = 4.0
MOST_ROW_DIFFERENCE = 9.0


# --- one case, in a process of its own --------------------------------------------------------------------


def target_of(task: Task[Job], folder: str) -> Target:
    """What the method is asked for."""
    return Target(task.job, task.ffmpeg, str(Path(folder) / "video.mp4"))


def measure(task: Task[Job]) -> Run:
    """Time one run, and count the frames in its file."""
    task.load()
    frames = [] if task.method.kind == "bound" else make_frames(task)
    run = Run()
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        target = target_of(task, folder)
        with accounted(run):
            _encode(task, target, frames, run)
        read = count_frames(task.ffmpeg, target.output)
        run.figures["output_bytes"] = Path(target.output).stat().st_size
    if read != task.job.frames:
        run.error = f"{task.job.frames} frames were sent, and the file has {read}"
    run.figures = {"fps": task.job.frames / (run.figures["seconds"] or math.inf), **run.figures}
    return run


def check(task: Task[Job]) -> Run:
    """Send the texture through buffers that are overwritten as soon as the method allows, and decode the file."""
    task.load()
    pictures = Pictures("smooth", task.job.width, task.job.height, SEED)

    def picture(number: int) -> Frame:
        return pictures.texture(number * CHECKED_STEP % LOOP_FRAMES)

    def paint(frame: Frame, number: int) -> None:
        frame[...] = _in_format(task.method, picture(number))

    frames = [picture(0).copy() for _ in range(CHECKED_BUFFERS)]
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        target = target_of(task, folder)
        feed_repainted(task.start(target, frames), task.job.frames, paint)
        return compare(decode(target), task.job.frames, picture)


def make_frames(task: Task[Job]) -> list[Frame]:
    """The buffers of a timed run, filled."""
    job = task.job
    return [
        _in_format(task.method, frame) for frame in Pictures(job.content, job.width, job.height, SEED).all()
    ]


def _in_format(method: Method, frame: Frame) -> Frame:
    return frame[..., ::-1].copy() if method.pixel_format == "bgr24" else frame


def _encode(task: Task[Job], target: Target, frames: Sequence[Frame], run: Run) -> None:
    if task.method.kind == "bound":
        with start(
            task.ffmpeg, *ffmpeg_arguments(target, task.method.pixel_format, task.source), stdin=False
        ) as child:
            pass
        check_exit(child.returncode)
        return
    started = time.perf_counter()
    sender = task.start(target, frames)
    run.figures["start_s"] = time.perf_counter() - started
    feed(sender, task.job.frames, run, task.job.paced_fps)


def count_frames(ffmpeg: str, path: str) -> int:
    """The frames in the file, by its packets: of a video stream, one is one frame.

    Raises:
        FFmpegFailedError: it is no video.
    """
    copy = ["-i", path, "-map", "0:v:0", "-c", "copy", "-f", "null", "-progress", "pipe:1", "-"]
    return frame_count(output_of(ffmpeg, *copy).decode())


def decode(target: Target) -> Frame:
    """What a decoder shows: frames × height × width × 3 bytes, rgb24.

    Raises:
        FFmpegFailedError: it finds a fault.
    """
    width, height = target.size
    raw = output_of(target.ffmpeg, "-xerror", "-i", target.output, "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def compare(decoded: Frame, frames: int, sent: Callable[[int], Frame]) -> Run:
    """How far a video is from what was sent, the worst of all frames. ``sent`` gives a frame by its number."""
    if len(decoded) != frames:
        return Run(error=f"{frames} frames were sent, and a decoder shows {len(decoded)}")
    worst = Run({"mean_difference": 0.0, "row_difference": 0.0})
    for number, shown in enumerate(decoded):
        mean, row = difference(shown, sent(number))
        worst.figures["mean_difference"] = max(mean, worst.figures["mean_difference"] or 0.0)
        worst.figures["row_difference"] = max(row, worst.figures["row_difference"] or 0.0)
        if mean > MOST_MEAN_DIFFERENCE or row > MOST_ROW_DIFFERENCE:
            off = f"{mean:.1f} code values off, and a row of it {row:.1f}"
            worst.error = f"frame {number} shows something else: it is {off}"
            break
    return worst


def difference(shown: Frame, sent: Frame) -> tuple[float, float]:
    """Of two frames, the mean absolute difference of one channel of the frame, and of one channel of a row.

    A page that was sent too late is hardly more than a row.
    """
    # The larger less the smaller one: in uint8 a plain difference would wrap around.
    apart = np.maximum(shown, sent) - np.minimum(shown, sent)
    rows = apart.mean(axis=1, dtype=np.float32)
    return float(rows.mean(axis=0).max()), float(rows.max())


# --- groups -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are what the goals are about."""

    jobs: tuple[Job, ...] = JOBS
    methods: tuple[Method, ...] = METHODS
    rounds: int = 5


def run_groups(
    settings: Settings, ffmpegs: Sequence[str], report: Report = lambda _: None
) -> Iterator[Group]:
    """Each group as soon as it was run."""
    # In shared memory, so that no disk is measured, or else in the temporary folder.
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if no_room(0) is None else None) as folder:
        for ffmpeg in ffmpegs:
            for job in settings.jobs:
                if rows := rows_for(settings.methods, job):
                    about = asdict(job) | {"codec": CODEC, "output_pixel_format": OUTPUT_PIXEL_FORMAT}
                    group = Group(job.name, job.title, rows, about, version(ffmpeg))
                    _run_group(settings, group, job, ffmpeg, folder, report)
                    yield group


def _run_group(settings: Settings, group: Group, job: Job, ffmpeg: str, folder: str, report: Report) -> None:
    few = replace(job, frames=min(job.frames, CHECKED_FRAMES), paced_fps=None)
    task_of = partial(_task, few, ffmpeg, folder, {})
    check_content(group, isolated(check, task_of, few.timeout_s), report)
    with bound_files(group, partial(_raw_pictures, job, ffmpeg), job.frames) as files:
        task_of = partial(_task, job, ffmpeg, folder, files)
        run_rounds(group, isolated(measure, task_of, job.timeout_s), settings.rounds, report)


def _task(job: Job, ffmpeg: str, folder: str, files: dict[str, str], row: Row) -> Task[Job]:
    return Task(row.method, job, ffmpeg, files.get(row.name, "-"), folder)


def _raw_pictures(job: Job, ffmpeg: str, row: Row) -> list[bytes]:
    """The job's pictures in the bound's format, as FFmpeg converts them."""
    pictures = Pictures(job.content, job.width, job.height, SEED).all()
    read = raw_input(job.width, job.height, "rgb24", FRAMES_PER_S)
    write = ["-f", "rawvideo", "-pix_fmt", row.method.pixel_format, "-"]
    raw = output_of(ffmpeg, *read, *write, sent=b"".join(picture.tobytes() for picture in pictures))
    nbytes = len(raw) // len(pictures)
    return [raw[first : first + nbytes] for first in range(0, len(raw), nbytes)]


# --- goals and report -------------------------------------------------------------------------------------

SOURCE = (
    "the goals of Penstock's Encoder, set from what FFmpeg alone reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds and one FFmpeg"
)
#: Over the fastest rival that was installed.
OVER_BEST_RIVAL = {
    "ultrafast-720p": 1.5,
    "ultrafast-1080p": 1.5,
    "ultrafast-2160p": 1.5,
    "texture-1080p": 1.25,
    "medium-1080p": 1.02,
}
#: Of the ultrafast jobs only.
OVER_BOUND, OVER_SUBMIT = 0.85, 0.95
PACED_JOB = "paced-1080p"
#: How long a call may block the caller in the paced job, at the 99th percentile.
BLOCKED_OVER_MEMCPY_AT_MOST = 1.5


def judge(group: Group) -> Iterator[Verdict]:
    """The goals about this job that its rows can judge."""
    if group.name in OVER_BEST_RIVAL:
        rivals = [row.name for row in group.rows if row.method.kind == "rival" and row.is_measured]
        yield from over(group, [OURS], rivals, OVER_BEST_RIVAL[group.name])
    if group.name.startswith("ultrafast-") and group.name in OVER_BEST_RIVAL:
        yield from over(group, [OURS], [BOUND], OVER_BOUND)
        yield from over(group, [OURS], [SUBMIT], OVER_SUBMIT)
    blocked, copied = (group.medians(figure).get(OURS) for figure in ("blocked_p99_ms", "copy_p99_ms"))
    if group.name == PACED_JOB and blocked and copied:
        what = f"caller blocked, p99, {group.name}"
        yield Verdict(what, blocked / copied, BLOCKED_OVER_MEMCPY_AT_MOST, "x a memcpy", at_most=True)


def note(row: Row) -> str | None:
    """What cannot be compared, and what ours say of themselves."""
    if row.method.own_ffmpeg:
        other = "" if row.method.kind == "rival" else f"; no rival: {row.method.summary}"
        return f"an FFmpeg of its own, in its process{other}"
    if not row.notes:
        return None
    who = f"converted by {row.notes['converted_by']}, {row.notes['transport']}"
    return f"{who}; the last round's bottleneck: {row.notes['bottleneck']}"


def _peak(_group: Group, row: Row) -> str:
    """Of both processes: an FFmpeg that runs in ours has its memory there."""
    own, child = row.max("peak_own_bytes"), row.max("peak_child_bytes")
    return "" if own is None or row.method.kind == "bound" else f"{(own + (child or 0)) / 2**20:.0f}"


BENCHMARK = Benchmark(
    "encode",
    [
        *tables.rates(),
        tables.gain(STANDARD),
        tables.part_of(BOUND),
        tables.median("CPU s\nours", "cpu_own_s", tables.hundredths),
        tables.median("CPU s\nFFmpeg", "cpu_child_s", tables.hundredths),
        tables.median("blocked\np50 ms", "blocked_p50_ms", tables.hundredths),
        tables.median("blocked\np99 ms", "blocked_p99_ms", tables.hundredths),
        tables.median("memcpy\np99 ms", "copy_p99_ms", tables.hundredths),
        tables.Column("peak\nMiB", _peak),
        tables.median("file\nMB", "output_bytes", lambda nbytes: f"{nbytes / 1e6:.1f}"),
    ],
    judge,
    SOURCE,
    note,
    packages=("av", "imageio-ffmpeg", "moviepy", "numpy", "opencv-python-headless", "turbopipe", "vidgear"),
)
#: A third of a second for the fastest, so that FFmpeg's start weighs much: a look, and no claim.
QUICK = Settings((replace(by_name(JOBS, "ultrafast-720p"), frames=150),), rounds=2)


@click.command()
@chosen("--job", "jobs", JOBS)
@chosen("--method", "methods", METHODS)
@sized_options
@ffmpeg_option("ffmpegs", " Repeat it to run all with each.", multiple=True)
@common_options("encode", "About half a minute: 720p ultrafast with few frames, 2 rounds.")
def main(
    quick: bool,
    size: tuple[int, int] | None,
    frames: int | None,
    ffmpegs: tuple[str, ...],
    json_path: str | None,
    is_kept: bool,
    **given: Any,
) -> None:
    """Frames from memory into a video file, by every library in turn.

    By default: six jobs, every method that is installed, 5 rounds; half an hour, and 5 GB of shared memory. The
    same FFmpeg serves all methods that take one. Every option that says what to run also narrows --quick. A
    method that loses, tears or adds a frame is an error, and has no speed; the exit status is then 1.
    """
    settings = given_in(QUICK if quick else Settings(), given)
    settings = replace(settings, jobs=resized(settings.jobs, size, frames))
    programs = tuple(dict.fromkeys(map(working_ffmpeg, ffmpegs or (None,))))
    conduct(
        BENCHMARK, lambda report: run_groups(settings, programs, report), vars(settings), json_path, is_kept
    )
