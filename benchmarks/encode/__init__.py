"""Frames from memory into a video file, by every library in turn.

The clock runs from before the method is started until the file is complete, for every method and for the bound: FFmpeg
has exited, or the library has closed the file. Afterwards the frames in the file are counted, and some are compared
with what was sent. A method whose file has another quality or size than ours is shown, and is no rival.

By default: seven jobs, every method that is installed, 5 rounds; half an hour, and 5 GB of shared memory. All methods
that take an FFmpeg get the same one. Every option that selects what to run also narrows --quick. A method that loses,
tears or adds a frame is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.encode.methods import (
    COLORS,
    FRAMES_PER_S,
    METHODS,
    OUTPUT_PIXEL_FORMAT,
    STANDARD,
    Job,
    ffmpeg_arguments,
)
from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, JobSettings, Measure
from benchmarks.harness.content import Film, Frame, apart, psnr_db, there_and_back
from benchmarks.harness.ffmpeg import frame_count, output_of
from benchmarks.harness.files import bound_files, folder_in_memory
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.methods import Method
from benchmarks.harness.options import SIZE_OPTIONS, by_name, chosen
from benchmarks.harness.results import Group, Row, Run
from benchmarks.harness.senders import Sender, feed
from penstock import Encoder
from penstock.ffmpeg import Colors, Tuning

# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("motion-720p", 1280, 720, 400, "ultrafast", "motion"),
    Job("motion-1080p", 1920, 1080, 200, "ultrafast", "motion"),
    Job("motion-2160p", 3840, 2160, 60, "ultrafast", "motion"),
    Job("camera-1080p", 1920, 1080, 200, "ultrafast", "camera"),
    Job("text-1080p", 1920, 1080, 200, "ultrafast", "text"),
    Job("medium-camera-1080p", 1920, 1080, 60, "medium", "camera"),
    Job("paced-motion-1080p", 1920, 1080, 150, "ultrafast", "motion", paced_fps=30),
)
#: The pictures of the job's loop, in the folder of a task.
PICTURES = "pictures.npy"
#: About so many frames of a file are compared with what was sent.
COMPARED_FRAMES = 8

#: Of the content check: frames, buffers (few, so that each is overwritten often), and frames of the waves' loop
#: from one that is sent to the next: so many that each looks different.
CHECKED_FRAMES, CHECKED_BUFFERS, CHECKED_STEP = 12, 3, 7
# Limits on the difference between a frame that was sent and the decoded one, in code values: the mean of one channel
# of the frame, and of one channel of a row. Measured with these waves in steps of CHECKED_STEP, x264 ultrafast
# and medium, 64x48 to 1080p: codec and 4:2:0 lose at most 3.2 and 7.3. A wrong range makes a mean of 4.7 or more, a
# wrong matrix 5.4; a page that was sent too late makes a row of 12 or more, another frame 15.
MAX_MEAN_DIFFERENCE = 4.0
MAX_ROW_DIFFERENCE = 9.0


# --- one case, in its own process -------------------------------------------------------------------------


def measure(task: Task[Job]) -> Run:
    """Time one run, count the frames in its file, and compare some of them."""
    task.load()
    sent = there_and_back(np.load(Path(task.folder) / PICTURES))
    frames = [] if task.method.kind == "bound" else [_in_format(task.method, one) for one in sent]
    run = Run()
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        task = replace(task, folder=folder)
        with accounted(run):
            encode(task, frames, run)
        run.count_frames(task.job.frames, count_frames(task.ffmpeg, task.output))
        run.figures["output_bytes"] = Path(task.output).stat().st_size
        run.figures["psnr_db"] = quality_db(task, sent)
    return run


def quality_db(task: Task[Job], sent: Sequence[Frame]) -> float:
    """The PSNR of some frames of the file, all over it."""
    step = max(1, task.job.frames // COMPARED_FRAMES)
    return psnr_db(
        (shown, sent[number * step % len(sent)]) for number, shown in enumerate(decode(task, step))
    )


def check(task: Task[Job]) -> Run:
    """Send smooth waves through buffers that are overwritten as soon as the method allows, and decode the file."""
    task.load()
    waves = Film("waves", *task.job.size)

    def picture(number: int) -> Frame:
        return waves.frame(number * CHECKED_STEP)

    def paint(frame: Frame, number: int) -> None:
        frame[...] = _in_format(task.method, picture(number))

    frames = [picture(0) for _ in range(CHECKED_BUFFERS)]
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        task = replace(task, folder=folder)
        feed(task.method.start(task), frames, task.job.frames, Run(), paint=paint)
        return compare(decode(task), task.job.frames, picture)


def save_pictures(job: Job, folder: str) -> list[Frame]:
    """Draw the pictures of the loop, once for all runs of the job. Returns the loop."""
    pictures = Film(job.content, *job.size).pictures()
    np.save(Path(folder) / PICTURES, pictures)
    return there_and_back(pictures)


def _in_format(method: Method, frame: Frame) -> Frame:
    return frame[..., ::-1].copy() if method.pixel_format == "bgr24" else frame


def encode(task: Task[Job], frames: Sequence[Frame], run: Run) -> None:
    """Make the video."""
    if task.method.kind == "bound":
        output_of(task.ffmpeg, *ffmpeg_arguments(task, task.method.pixel_format))
        return
    started = time.perf_counter()
    sender: Sender = task.method.start(task)
    run.figures["start_s"] = time.perf_counter() - started
    feed(sender, frames, task.job.frames, run, paced_fps=task.job.paced_fps)


def count_frames(ffmpeg: str, path: str) -> int:
    """The number of packets in the video stream, one for each frame."""
    copy = ["-i", path, "-map", "0:v:0", "-c", "copy", "-f", "null", "-progress", "pipe:1", "-"]
    return frame_count(output_of(ffmpeg, *copy).decode())


def decode(task: Task[Job], step: int = 1) -> Frame:
    """Decode the file to frames × height × width × 3 bytes, rgb24: each frame, or the first of each ``step``.

    A fault in the file is an error.
    """
    filters = f"select=not(mod(n\\,{step})),scale=flags=accurate_rnd+full_chroma_int"
    convert = ["-vf", filters, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    raw = output_of(task.ffmpeg, "-xerror", "-i", task.output, *convert, "-")
    return np.frombuffer(raw, np.uint8).reshape(-1, task.job.height, task.job.width, 3)


def compare(decoded: Frame, frames: int, sent: Callable[[int], Frame]) -> Run:
    """The largest differences between the video and what was sent. ``sent`` gives a frame by its number."""
    if len(decoded) != frames:
        return Run(error=f"{frames} frames were sent, {len(decoded)} were decoded")
    worst_mean = worst_row = 0.0
    error = None
    for number, shown in enumerate(decoded):
        mean, row = difference(shown, sent(number))
        worst_mean, worst_row = max(mean, worst_mean), max(row, worst_row)
        if mean > MAX_MEAN_DIFFERENCE or row > MAX_ROW_DIFFERENCE:
            off = f"it is {mean:.1f} code values off, and one of its rows {row:.1f}"
            error = f"frame {number} shows something else: {off}"
            break
    return Run({"mean_difference": worst_mean, "row_difference": worst_row}, error=error)


def difference(shown: Frame, sent: Frame) -> tuple[float, float]:
    """The mean absolute difference of one channel of the frame, and of one channel of a row; the largest of each.

    A page that was sent too late is hardly longer than a row.
    """
    rows = apart(shown, sent).mean(axis=1, dtype=np.float32)
    return float(rows.mean(axis=0).max()), float(rows.max())


# --- groups -----------------------------------------------------------------------------------------------


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure, Measure]]:
    """Make a folder for the pictures and the videos, and write the files of the bounds."""
    few = replace(job, frames=min(job.frames, CHECKED_FRAMES), paced_fps=None)
    with folder_in_memory() as folder:
        loop = save_pictures(job, folder)
        raw = partial(_raw_pictures, loop, ffmpeg)
        with bound_files(group, lambda row: raw(row.method.pixel_format), job.frames) as bounds:
            measured = isolated(measure, job, ffmpeg, folder=folder, bounds=bounds)
            yield isolated(check, few, ffmpeg, folder=folder), measured
    mark(group)


def _raw_pictures(frames: Sequence[Frame], ffmpeg: str, pixel_format: str) -> list[bytes]:
    """The frames in the bound's format, as the Encoder converts them: x264 gets the same bytes."""
    with folder_in_memory() as folder:
        path = Path(folder) / "pictures"
        with Encoder(
            path,
            fps=FRAMES_PER_S,
            codec="rawvideo",
            options={"f": "rawvideo"},
            output_pixel_format=pixel_format,
            colors=COLORS if pixel_format == OUTPUT_PIXEL_FORMAT else Colors(),
            tuning=Tuning(ffmpeg=ffmpeg),
        ) as encoder:
            for frame in frames:
                encoder.write(frame)
        raw = path.read_bytes()
    nbytes = len(raw) // len(frames)
    return [raw[first : first + nbytes] for first in range(0, len(raw), nbytes)]


# --- comparable files -------------------------------------------------------------------------------------

# Measured with x264 ultrafast and 90 frames of each content in 720p. A step of CRF is 0.4 to 0.8 dB, and 7 to 32 % of
# the size; two steps are 0.8 to 1.6 dB, and 14 to 58 %. Methods that convert alike are at most 0.7 dB and 5 % apart.
MAX_PSNR_DB_APART = 1.0
COMPARABLE_SIZES = 0.8, 1.25


def mark(group: Group) -> None:
    """Turn rivals with another file into methods that are only shown. Their notes have the reason.

    A method that is quicker because its encoder gets smoother frames, or another quality, is no rival in that job.
    """
    measured = [row for row in group.rows if row.is_measured]
    ours = next((row for row in measured if row.method.kind == "ours"), None)
    for row in measured:
        if ours and row.method.kind == "rival" and (reason := other_work(ours, row)):
            row.method = replace(row.method, kind="other")
            row.runs[-1].notes = row.notes | {"not_comparable": reason}


def other_work(ours: Row, other: Row) -> str | None:
    """Why the other method's file is not the same work as ours, of a like quality and size."""
    our_bytes, nbytes, our_db, db = (
        row.median(figure) or 0.0 for figure in ("output_bytes", "psnr_db") for row in (ours, other)
    )
    if not COMPARABLE_SIZES[0] <= nbytes / our_bytes <= COMPARABLE_SIZES[1]:
        return f"its file is {nbytes / our_bytes:.2f} x as large as ours"
    if abs(db - our_db) > MAX_PSNR_DB_APART:
        return f"its PSNR is {db:.1f} dB, and ours {our_db:.1f} dB"
    return None


# --- report -------------------------------------------------------------------------------------

BENCHMARK = Benchmark(
    "encode",
    settings=JobSettings(JOBS, tuple(METHODS)),
    # The fastest takes a third of a second, so that FFmpeg's start matters much: no claim can rest on it.
    quick=JobSettings((replace(by_name(JOBS, "motion-720p"), frames=100),), tuple(METHODS), rounds=2),
    quick_help="About half a minute: 720p ultrafast with few frames, 2 rounds.",
    prepare=prepare,
    options=[chosen("--job", "jobs", JOBS), chosen("--method", "methods", METHODS), *SIZE_OPTIONS],
    standards=[STANDARD],
)
main = BENCHMARK.command(__doc__)
