"""Sound and frames from memory into one file, and sound alone, by every library in turn.

The clock runs from before the method is started until the file is complete. Afterwards the file is decoded: all frames
and all of the sound must be there, and claps and flashes at most a frame apart. By default: a video and two files of
sound, 5 rounds; 10 minutes. A method whose file is wrong is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.encode.methods import FRAMES_PER_S
from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, JobSettings, Measure
from benchmarks.harness.content import SEED, Film, Frame, there_and_back
from benchmarks.harness.ffmpeg import output_of
from benchmarks.harness.files import folder_in_memory
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.options import chosen, counted
from benchmarks.harness.results import Group, Run
from benchmarks.sound.methods import (
    CHANNELS,
    CONTENT,
    METHODS,
    OURS,
    SAMPLE_RATE,
    SAMPLES_PER_FRAME,
    Job,
    Samples,
    Target,
)

#: In seconds.
Times = NDArray[np.float64]

JOBS = (
    Job("video", 1280, 720, 20 * FRAMES_PER_S, "out.mp4", "aac"),
    Job("wav", 0, 0, 600 * FRAMES_PER_S, "out.wav", "pcm_s16le"),
    Job("aac", 0, 0, 600 * FRAMES_PER_S, "out.m4a", "aac"),
)

#: A clap is a tone at the beginning of each second, in noise that is far below.
CLAP_S, CLAP_HZ, CLAP_LEVEL, NOISE_LEVEL = 0.05, 1000, 0.5, 0.02
#: Above this level a sample belongs to a clap.
LOUD = 0.1
#: Above this mean luma, of 16 to 235, a frame is a flash. That of rendered motion is about 100.
BRIGHT = 210
#: What may be missing of the sound, or too much: a codec's frame of 1,024 samples, or a frame of the picture.
MAX_LENGTH_DIFFERENCE_S = MAX_APART_S = 1 / FRAMES_PER_S


def pictures(job: Job) -> list[Frame]:
    """A loop of a second. Its first frame is a flash."""
    frames = there_and_back(Film(CONTENT, *job.size).pictures())
    assert len(frames) == FRAMES_PER_S
    frames[0][...] = 255
    return frames


def claps(job: Job) -> Samples:
    """All samples of the job, in the order samples × channels."""
    times_s = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    tone = CLAP_LEVEL * np.sin(2 * np.pi * CLAP_HZ * times_s) * (times_s < CLAP_S)
    noise = np.random.default_rng(SEED).uniform(-NOISE_LEVEL, NOISE_LEVEL, (SAMPLE_RATE, CHANNELS))
    second = (tone[:, np.newaxis] + noise).astype(np.float32)
    return np.tile(second, (math.ceil(job.seconds), 1))[: job.frames * SAMPLES_PER_FRAME]


# --- one case, in its own process -------------------------------------------------------------------------


def measure(task: Task[Job]) -> Run:
    """Time one run, and decode its file."""
    task.load()
    job, run = task.job, Run()
    frames = pictures(job) if job.has_picture else []
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        target = Target(job, task.ffmpeg, str(Path(folder) / job.file), frames, claps(job))
        with accounted(run):
            task.method.start(target)
        seconds = run.figures["seconds"] or math.inf
        run.figures = {"realtime": job.seconds / seconds, **run.figures}
        run.figures["output_bytes"] = Path(target.output).stat().st_size
        flashes_s = check_picture(target, run) if job.has_picture else np.arange(0, job.seconds)
        check_sound(target, flashes_s, run)
    return run


def check_picture(target: Target, run: Run) -> Times:
    """Count the frames. Returns when the flashes are, in seconds."""
    luma = "lavfi.signalstats.YAVG"
    show = f"scale=32:32:flags=area,signalstats,metadata=mode=print:key={luma}:file=-"
    shown = output_of(target.ffmpeg, "-i", target.output, "-map", "0:v:0", "-vf", show, "-f", "null", "-")
    frames = re.findall(rf"pts_time:(\S+)\s+{luma}=(\S+)", shown.decode())
    run.count_frames(target.job.frames, len(frames))
    flashes_s = np.array([float(time_s) for time_s, mean in frames if float(mean) > BRIGHT])
    if len(flashes_s) != math.ceil(target.job.seconds):
        run.error = (
            run.error or f"{math.ceil(target.job.seconds)} flashes were sent, {len(flashes_s)} are shown"
        )
    return flashes_s


def check_sound(target: Target, expected_s: Times, run: Run) -> None:
    """Compare the length of the sound, and the claps with the flashes, or else with the seconds."""
    # Silence is inserted where the sound's own times have a gap.
    aligned = f"aresample={SAMPLE_RATE}:async=1:min_hard_comp=0.001:first_pts=0"
    decode = ["-map", "0:a:0", "-af", aligned, "-ac", "1", "-f", "f32le", "-"]
    samples = np.frombuffer(output_of(target.ffmpeg, "-i", target.output, *decode), "<f4")
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    heard_s = loud[np.diff(loud, prepend=-SAMPLE_RATE) > SAMPLE_RATE / 2] / SAMPLE_RATE
    length_s = len(samples) / SAMPLE_RATE
    run.figures["sound_s"] = length_s
    if abs(length_s - target.job.seconds) > MAX_LENGTH_DIFFERENCE_S:
        run.error = run.error or f"the sound takes {length_s:.3f} s, and not {target.job.seconds:.3f} s"
    if len(heard_s) != len(expected_s):
        run.error = run.error or f"there are {len(expected_s)} seconds, and {len(heard_s)} claps"
        return
    apart_s = float(np.abs(heard_s - expected_s).max())
    run.figures["apart_ms"] = 1e3 * apart_s
    if apart_s > MAX_APART_S:
        run.error = run.error or f"claps and flashes are {1e3 * apart_s:.1f} ms apart"


# --- groups and report -----------------------------------------------------------------------------


@contextmanager
def prepare(job: Job, ffmpeg: str, _group: Group) -> Iterator[tuple[None, Measure]]:
    """Make a folder for the files. Each run checks its own file."""
    with folder_in_memory() as folder:
        yield None, isolated(measure, job, ffmpeg, folder=folder)


BENCHMARK = Benchmark(
    "sound",
    settings=JobSettings(JOBS, tuple(METHODS)),
    quick=JobSettings(tuple(replace(job, frames=job.frames // 10) for job in JOBS), tuple(METHODS), rounds=2),
    quick_help="A minute: a tenth of the length, 2 rounds.",
    prepare=prepare,
    options=[
        chosen("--job", "jobs", JOBS),
        chosen("--method", "methods", METHODS),
        counted(
            "--frames", "frames", f"Frames of each file, {FRAMES_PER_S} for a second, instead of each job's."
        ),
    ],
    figures=["realtime"],
    standards=[OURS],
)
main = BENCHMARK.command(__doc__)
