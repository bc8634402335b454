"""Frames from a video file, or from a pipe, into memory, by every library in turn.

The clock runs from before the method is started until it has given its last frame and ended everything it started, for
every method and for the bound. Each frame is sampled while the clock runs, at pixels of rows all over it, so that a
frame counts only if it is there. The samples are compared afterwards.

By default: all jobs, every method that is installed, 5 rounds; a quarter of an hour. The files are made first, which
takes some minutes the first time: they are kept in build/bench-decode. The last table has the goals, and which of them
were missed. Every option that selects what to run also narrows --quick. A method that loses a frame, or shows another
one or other colors, is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import mmap
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import content as films
from benchmarks.harness.accounts import accounted, children, note_children_peak
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import Content, Film, Frame, apart, noise
from benchmarks.harness.ffmpeg import FFmpegFailedError, start, version
from benchmarks.harness.goals import Goal, judge
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import FrameJob, Methods
from benchmarks.harness.options import FRAMES, SIZE, by_name
from benchmarks.harness.results import CannotDoError, Group, Measure, Run
from penstock import Decoder, Encoder, Reader
from penstock.errors import PenstockError
from penstock.video import Colors, DecoderSettings, EncoderSettings, prefetch

#: Options of the encoders, set so that the record has them. libx264's and libx265's are their own defaults.
ENCODERS: dict[str, dict[str, Any]] = {
    "libx264": {"preset": "medium", "crf": 23},
    "libx265": {"preset": "medium", "crf": 23},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": 6, "row-mt": 1, "b:v": "4M"},
    "libsvtav1": {"preset": 10, "crf": 35},
}
#: About so many rows of a frame are sampled, and pixels of a row at the same distance.
SAMPLED_ROWS = 64
#: Frames of a batch, and of a file of which only the first frame is read.
BATCH_FRAMES, FIRST_OF_FRAMES = 30, 60
#: What an unprivileged process may have (pipe-max-size in proc(5)).
LARGE_PIPE_BYTES = 1 << 20

#: Gains are ratios to this method, for each kind of source.
STANDARD, PIPE_STANDARD, PICKED_STANDARD = "pyav-threaded", "readinto", "opencv-seeks"
SAMPLES_STANDARD = "opencv-samples"
#: Nobody decodes faster in the process.
BOUND = "pyav-no-conversion"

#: How frames are read: all in sequence by every library, or by the quick ones; the same beside a Python thread that
#: never sleeps; in batches, one after another; from several files; the first of a file, which is opened again and
#: again; from anywhere in a file; some at the same distance, as a data loader does, of a file that is opened for them;
#: the same of one that stays open; or from a pipe.
Kind: TypeAlias = Literal[
    "survey", "file", "busy", "batches", "clips", "first", "picked", "samples", "windows", "pipe"
]
#: FFmpeg's sources ``testsrc2`` and ``mandelbrot``, or a film.
Shown: TypeAlias = Content | Literal["testsrc2", "mandelbrot"]


@dataclass(frozen=True)
class Job(FrameJob):
    """The frames that every method has to read."""

    kind: Kind = "file"
    #: Of the file. The frames in a pipe are raw.
    encoder: str = "libx264"
    content: Shown = "motion"
    video_pixel_format: str = "yuv420p"
    #: Width and height of the arrays, if they are not those of the file.
    scaled_to: tuple[int, int] | None = None
    #: How many CPUs the method has; None for all.
    cpus: int | None = None
    #: So many files have the same number of frames each.
    clips: int = 1
    #: The file has so many frames, of which some are read; 0 for all of them.
    file_frames: int = 0
    #: Distance of keyframes; 0 for the encoder's default.
    gop: int = 0
    #: So many frames are wanted at once, and their distance. They begin anywhere in the file, or with its first frame.
    sample_frames: int = 1
    apart: int = 1
    from_anywhere: bool = True
    goals: tuple[Goal, ...] = ()

    @property
    def numbers(self) -> list[int]:
        """Which frames are picked, the same in every run."""
        if self.kind in ("samples", "windows"):
            return [number for sample in self.samples for number in sample]
        return random.Random(0).sample(range(self.file_frames), self.frames)

    @property
    def samples(self) -> list[list[int]]:
        """The same for each time that some are wanted at once."""
        anywhere, span = random.Random(0), (self.sample_frames - 1) * self.apart + 1
        last = self.file_frames - span if self.from_anywhere else 0
        firsts = [anywhere.randint(0, last) for _ in range(self.frames // self.sample_frames)]
        return [[*range(first, first + span, self.apart)] for first in firsts]

    @property
    def openings(self) -> list[list[list[int]]]:
        """The same for each time that the file is opened."""
        return [self.samples] if self.kind == "windows" else [[sample] for sample in self.samples]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an array: height × width × channels."""
        width, height = self.scaled_to or self.size
        return height, width, 3

    @property
    def sample_step(self) -> int:
        """The distance of sampled rows, and of sampled pixels."""
        # All pixels of small arrays: edges that were shrunk in another way cancel out only in the mean of many.
        return 1 if self.scaled_to else max(1, self.height // SAMPLED_ROWS)

    @property
    def title(self) -> str:
        of_kind = {
            "busy": " beside a busy Python thread",
            "batches": f" in batches of {BATCH_FRAMES}",
            "clips": f" in {self.clips} files",
            "first": ", the first one each time",
            "picked": f" at random of {self.file_frames}, a keyframe each {self.gop}",
            "samples": f", {self.sample_frames} of {self.file_frames} each time, {self.apart} apart",
            "windows": f", {self.sample_frames} of {self.file_frames} at once, {self.apart} apart",
        }
        scaled = f" to {self.shape[1]}x{self.shape[0]} (bicubic)" if self.scaled_to else ""
        cpus = f", on {self.cpus} CPU" if self.cpus else ""
        source = "from another process's write(2)" if self.kind == "pipe" else f"of {self.encoder}"
        what = f"{self.width}x{self.height} {self.content} {source}{scaled}"
        return f"{self.name}: {what}, {self.frames} frames{of_kind.get(self.kind, '')}{cpus}"

    @property
    def about(self) -> dict[str, Any]:
        about = super().about | {"options": ENCODERS.get(self.encoder)}
        del about["goals"]
        return about


def faster_than(**ratios: float) -> tuple[Goal, ...]:
    """So many times the speed of PyAV with threads and of OpenCV, or what the bound leaves."""
    others = {"pyav": STANDARD, "opencv": "opencv"}
    return tuple(Goal("penstock", others[name], ratio, bound=BOUND) for name, ratio in ratios.items())


def for_each_content(job: Job, survey: Shown | None = None) -> Iterator[Job]:
    """The job with each content; with one of them, by every library."""
    contents: tuple[Shown, ...] = ("testsrc2", "mandelbrot", "motion")
    for content in contents:
        kind = "survey" if content == survey else job.kind
        yield replace(job, name=f"{job.name}-{content}", content=content, kind=kind)


LITTLE_MEMORY = Goal("penstock", STANDARD, 1.2, "at most", "peak_own_bytes")
SOON = Goal("penstock", STANDARD, 1.3, "at most", "first_frame_s")
IN_BATCHES = tuple(Goal(name, "penstock", 0.95) for name in ("penstock-batches", "penstock-batches-out"))
AS_FAST_AS_OPENCV = faster_than(pyav=1.05, opencv=1.0)
# Threads that decode ahead gain more where there are more of them.
HAS_16_CPUS = len(os.sched_getaffinity(0)) >= 16
IN_SEQUENCE = faster_than(pyav=1.3 if HAS_16_CPUS else 1.15, opencv=1.1)

# Less than a second for each run, on 2 cores: there are many.
IN_SEQUENCE_JOBS = (
    *for_each_content(
        Job("h264-1080p", 1920, 1080, 150, goals=(*IN_SEQUENCE, LITTLE_MEMORY)), survey="motion"
    ),
    *for_each_content(Job("h264-1080p-one-core", 1920, 1080, 75, cpus=1, goals=faster_than(pyav=0.95))),
    *for_each_content(
        Job(
            "hevc-10-bit-1080p",
            1920,
            1080,
            75,
            encoder="libx265",
            video_pixel_format="yuv420p10le",
            goals=faster_than(pyav=1.4, opencv=1.2),
        ),
    ),
    *for_each_content(Job("h264-2160p", 3840, 2160, 40, goals=AS_FAST_AS_OPENCV)),
    *for_each_content(Job("vp9-1080p", 1920, 1080, 100, encoder="libvpx-vp9", goals=AS_FAST_AS_OPENCV)),
    *for_each_content(Job("av1-1080p", 1920, 1080, 100, encoder="libsvtav1", goals=AS_FAST_AS_OPENCV)),
    *for_each_content(Job("h264-720p-to-224", 1280, 720, 200, scaled_to=(224, 224), goals=AS_FAST_AS_OPENCV)),
)
#: The distance of keyframes, and the least that `Decoder.batch` and ``decoder[number]`` have to be by ``pyav-seeks``:
#: as fast as when only frames by number were read in the process. Measured 2026-11-27 on two cores of an EPYC, 3 rounds
#: (1.03 and 0.84, 2.15 and 0.97, 5.29 and 1.08, 13.7 and 1.51), and rounded down by what two runs differed.
PICKED_AS_BEFORE = {12: (1.0, 0.8), 60: (2.0, 0.8), 250: (5.0, 1.0), 600: (12.0, 1.3)}


def samples(
    name: str, frames: int, sample_frames: int, apart: int = 1, ratio: float = 1.2, **more: Any
) -> Job:
    """A data loader's, in 480p, by so many times the speed of each rival."""
    rivals = (SAMPLES_STANDARD, "pyav-samples", "decord-samples", "torchcodec-samples")
    settings: dict[str, Any] = {"kind": "samples", "file_frames": 300, "gop": 250, "scaled_to": (224, 224)}
    goals = tuple(Goal("penstock-samples", rival, ratio) for rival in rivals)
    return Job(
        name, 854, 480, frames, sample_frames=sample_frames, apart=apart, goals=goals, **settings | more
    )


JOBS = (
    *IN_SEQUENCE_JOBS,
    Job("busy-thread", 1920, 1080, 75, "busy", goals=faster_than(pyav=1.0)),
    Job("batches", 1920, 1080, 600, "batches", goals=IN_BATCHES),
    Job("clips-480p", 854, 480, 6000, "clips", clips=200, goals=faster_than(pyav=1.0, opencv=1.2)),
    Job("first-frame", 1920, 1080, 20, "first", file_frames=FIRST_OF_FRAMES, goals=(SOON,)),
    *(
        Job(
            f"picked-{gop}",
            640,
            360,
            40,
            "picked",
            file_frames=600,
            gop=gop,
            goals=(
                Goal("penstock-batch", "pyav-seeks", batch),
                Goal("penstock-one-by-one", "pyav-seeks", one),
            ),
        )
        for gop, (batch, one) in PICKED_AS_BEFORE.items()
    ),
    samples("sample-spread", 40, 8, 42, 1.3),
    samples("sample-every-second", 160, 16, 2),
    samples("sample-first", 20, 1, from_anywhere=False, scaled_to=None),
    samples("windows", 320, 16, 4, 1.3, kind="windows", file_frames=1800),
    Job("reader", 1920, 1080, 500, "pipe", content="noise"),
)


# --- methods ----------------------------------------------------------------------------------------------

# Each is an iterator of arrays, and has ended everything it started when it is exhausted or closed. Each is used as its
# own documentation shows, with the options that make it faster. An array is the caller's until the next one is asked
# for. Some methods give the same array again and again.

#: The argument of every method. Its source is the video, or a folder of videos; for a pipe, the number of its read end,
#: which the method closes.
Target: TypeAlias = Task[Job]

METHODS = Methods()
QUICK_ONES = ("survey", "file", "busy", "clips")
of_file = partial(METHODS.add, serves=(*QUICK_ONES, "batches", "first"))
of_survey = partial(METHODS.add, serves=("survey",))
of_clips = partial(METHODS.add, serves=("clips",))
of_batches = partial(METHODS.add, serves=("batches",))
of_pipe = partial(METHODS.add, serves=("pipe",))
of_picked = partial(METHODS.add, serves=("picked",))
of_samples = partial(METHODS.add, serves=("samples", "windows"))


def clips_in(folder: str) -> list[str]:
    """The files of a job with several."""
    return sorted(str(path) for path in Path(folder).iterdir())


def _read_into_one(file: IO[bytes], shape: tuple[int, int, int]) -> Iterator[Frame]:
    frame = np.empty(shape, np.uint8)
    # A buffered file reads so much at once into the array itself.
    while file.readinto(frame.data) == frame.nbytes:  # type: ignore[attr-defined]
        yield frame


def pyav(target: Target, thread_type: str | None = None) -> Iterator[Frame]:
    """``decode`` and ``to_ndarray``, as its documentation begins."""
    width, height = target.job.scaled_to or (None, None)
    with import_module("av").open(target.source) as container:
        if thread_type is not None:
            container.streams.video[0].thread_type = thread_type
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24", width=width, height=height, interpolation="BICUBIC")


# With threads for frames, the first frame waits for several packets.
METHODS.add("pyav", needs=("av",), own_ffmpeg=True, serves=("survey", "first"))(pyav)
THREADED = "The same with threads for frames and slices"
of_file(STANDARD, "rival", THREADED, needs=("av",), own_ffmpeg=True)(partial(pyav, thread_type="AUTO"))


@of_file("opencv", needs=("cv2",), pixel_format="bgr24", own_ffmpeg=True)
def opencv(target: Target) -> Iterator[Frame]:
    """``VideoCapture.read``, which gives BGR, on the FFmpeg of its wheel."""
    import cv2

    capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
    try:
        # read fills this array instead of allocating one.
        frame = np.empty((target.job.height, target.job.width, 3), np.uint8)
        if not capture.read(frame)[0]:
            raise CannotDoError("its FFmpeg cannot decode this file")
        yield _scaled(frame, target.job)
        while capture.read(frame)[0]:
            yield _scaled(frame, target.job)
    finally:
        capture.release()


def _scaled(frame: Frame, job: Job) -> Frame:
    """In the size of the job. OpenCV's bicubic looks at 4 × 4 pixels however much it shrinks; FFmpeg's at all."""
    import cv2

    return cv2.resize(frame, job.scaled_to, interpolation=cv2.INTER_CUBIC) if job.scaled_to else frame


@of_survey("opencv-rgb", needs=("cv2",), own_ffmpeg=True)
def opencv_rgb(target: Target) -> Iterator[Frame]:
    """The same, and ``cvtColor``."""
    import cv2

    rgb = np.empty(target.job.shape, np.uint8)
    for frame in opencv(target):
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB, dst=rgb)


@of_survey("decord", needs=("decord",), own_ffmpeg=True)
def decord(target: Target) -> Iterator[Frame]:
    """``VideoReader``, one frame after another: its batches are no faster."""
    import decord

    for frame in decord.VideoReader(target.source, ctx=decord.cpu(0), num_threads=0):
        yield frame.asnumpy()


@of_survey("stdout.readinto")
def stdout_readinto(target: Target) -> Iterator[Frame]:
    """FFmpeg's rawvideo, by readinto into one array: no bytes object for a frame, and no copy."""
    scale = ("-vf", f"scale={target.job.shape[1]}:{target.job.shape[0]}") if target.job.scaled_to else ()
    output = [*scale, "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    with start(target.ffmpeg, "-i", target.source, *output, stdin=False, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield from _read_into_one(child.stdout, target.job.shape)


@of_survey("imageio-ffmpeg", needs=("imageio_ffmpeg",))
def imageio_ffmpeg(target: Target) -> Iterator[Frame]:
    """``read_frames``, which gives the metadata and then bytes, and ``np.frombuffer``."""
    import imageio_ffmpeg

    frames = imageio_ffmpeg.read_frames(target.source, pix_fmt="rgb24")
    next(frames)
    for frame in frames:
        yield np.frombuffer(frame, np.uint8).reshape(target.job.shape)


@of_survey("ffmpegcv", needs=("ffmpegcv",))
def ffmpegcv(target: Target) -> Iterator[Frame]:
    """``VideoCapture`` for rgb24, on the FFmpeg that is first on ``PATH``."""
    import ffmpegcv

    with ffmpegcv.VideoCapture(target.source, pix_fmt="rgb24") as capture:
        while True:
            success, frame = capture.read()
            if not success:
                return
            yield frame


#: PyAV is what ours decodes with: its import is no part of the first frame, nor of the memory.
OURS: dict[str, Any] = {"kind": "ours", "needs": ("av",), "own_ffmpeg": True}


@of_file("penstock", **OURS)
def penstock_decoder(target: Target, pixel_format: str = "rgb24", **how: Any) -> Iterator[Frame]:
    """`penstock.Decoder`, frame by frame."""
    with Decoder(target.source, pixel_format=pixel_format, size=target.job.scaled_to, **how) as decoder:
        yield from decoder


BGR = "bgr24"
BGR_SUMMARY = "The same for bgr24"
of_survey("penstock-bgr", summary=BGR_SUMMARY, pixel_format=BGR, **OURS)(
    partial(penstock_decoder, pixel_format=BGR)
)


@METHODS.add("penstock-program", "ours", needs=("av",), serves=("survey", "busy"))
def penstock_program(target: Target) -> Iterator[Frame]:
    """`penstock.Decoder` with settings that name an FFmpeg program, which then decodes."""
    yield from penstock_decoder(target, settings=DecoderSettings(ffmpeg=target.ffmpeg))


@of_batches("penstock-batches", **OURS)
def penstock_batches(target: Target, out: Frame | None = None) -> Iterator[Frame]:
    """`Decoder.batch` of consecutive frames, one batch after another."""
    with Decoder(target.source) as decoder:
        for first in range(0, target.job.frames, BATCH_FRAMES):
            numbers = range(first, min(first + BATCH_FRAMES, target.job.frames))
            yield from decoder.batch(numbers, None if out is None else out[: len(numbers)])


@of_batches("penstock-batches-out", **OURS)
def penstock_batches_out(target: Target) -> Iterator[Frame]:
    """The same into one array."""
    yield from penstock_batches(target, np.empty((BATCH_FRAMES, *target.job.shape), np.uint8))


@of_batches("penstock-fresh-memory", **OURS)
def penstock_fresh_memory(target: Target) -> Iterator[Frame]:
    """`penstock`, after memory for two batches was written to: what batches cost that their caller holds."""
    fresh = [
        mmap.mmap(-1, BATCH_FRAMES * math.prod(target.job.shape), flags=mmap.MAP_PRIVATE) for _ in range(2)
    ]
    for memory in fresh:
        memory.madvise(mmap.MADV_HUGEPAGE)
        np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1
    yield from penstock_decoder(target)


@of_clips("penstock.prefetch", **OURS)
def penstock_prefetch(target: Target) -> Iterator[Frame]:
    """`penstock.video.prefetch`, which opens two files ahead."""
    for decoder in prefetch(clips_in(target.source)):
        yield from decoder


@METHODS.add(BOUND, "bound", needs=("av",), own_ffmpeg=True, serves=QUICK_ONES)
def pyav_no_conversion(target: Target) -> Iterator[Any]:
    """PyAV decodes with threads for frames and slices, and its frames are thrown away."""
    with import_module("av").open(target.source) as container:
        container.streams.video[0].thread_type = "AUTO"
        yield from container.decode(video=0)


@of_picked(PICKED_STANDARD, needs=("cv2",), own_ffmpeg=True)
def opencv_seeks(target: Target) -> Iterator[Frame]:
    """``CAP_PROP_POS_FRAMES``, ``read`` and ``cvtColor``, for each frame."""
    import cv2

    capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
    for number in target.job.numbers:
        capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        yield cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
    capture.release()


@of_picked("pyav-seeks", needs=("av",), own_ffmpeg=True)
def pyav_seeks(target: Target) -> Iterator[Frame]:
    """By hand: ``seek`` to the frame's time at a constant rate, and ``decode`` up to it, with all threads."""
    with import_module("av").open(target.source) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        step = 1 / (stream.average_rate * stream.time_base)
        for number in target.job.numbers:
            pts = stream.start_time + round(number * step)
            container.seek(pts, stream=stream)
            found = next(frame for frame in container.decode(stream) if frame.pts >= pts)
            yield found.to_ndarray(format="rgb24")


@of_picked("torchcodec-batch", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_batch(target: Target) -> Iterator[Frame]:
    """``VideoDecoder.get_frames_at``, whose index is exact."""
    decoders = import_module("torchcodec.decoders")
    decoder = decoders.VideoDecoder(
        target.source, dimension_order="NHWC", num_ffmpeg_threads=0, seek_mode="exact"
    )
    yield from decoder.get_frames_at(indices=target.job.numbers).data.numpy()


@of_picked("penstock-batch", **OURS)
def penstock_batch(target: Target) -> Iterator[Frame]:
    """`Decoder.batch`."""
    with Decoder(target.source) as decoder:
        yield from decoder.batch(target.job.numbers)


@of_picked("penstock-one-by-one", **OURS)
def penstock_one_by_one(target: Target) -> Iterator[Frame]:
    """``decoder[number]`` for each frame, in the given order."""
    with Decoder(target.source) as decoder:
        for number in target.job.numbers:
            yield decoder[number]


@of_samples(SAMPLES_STANDARD, needs=("cv2",), own_ffmpeg=True)
def opencv_samples(target: Target) -> Iterator[Frame]:
    """``CAP_PROP_POS_FRAMES`` for the first one, and ``grab`` for frames between."""
    import cv2

    for numbers in target.job.openings:
        capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
        for sample in numbers:
            if sample[0]:
                capture.set(cv2.CAP_PROP_POS_FRAMES, sample[0])
            for number in range(sample[0], sample[-1] + 1):
                capture.grab()
                if number in sample:
                    frame = _scaled(capture.retrieve()[1], target.job)
                    yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        capture.release()


@of_samples("pyav-samples", needs=("av",), own_ffmpeg=True)
def pyav_samples(target: Target) -> Iterator[Frame]:
    """By hand, as ``pyav-seeks``, with one seek for a sample."""
    width, height = target.job.scaled_to or (None, None)
    for numbers in target.job.openings:
        with import_module("av").open(target.source) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            step = 1 / (stream.average_rate * stream.time_base)
            for sample in numbers:
                wanted = [stream.start_time + round(number * step) for number in sample]
                container.seek(wanted[0], stream=stream)
                frames = (frame for frame in container.decode(stream) if frame.pts in wanted)
                for frame in islice(frames, len(wanted)):
                    yield frame.to_ndarray(
                        format="rgb24", width=width, height=height, interpolation="BICUBIC"
                    )


@of_samples("decord-samples", needs=("decord",), own_ffmpeg=True)
def decord_samples(target: Target) -> Iterator[Frame]:
    """``VideoReader.get_batch``."""
    import decord

    width, height = target.job.scaled_to or (-1, -1)
    for numbers in target.job.openings:
        reader = decord.VideoReader(target.source, ctx=decord.cpu(0), width=width, height=height)
        for sample in numbers:
            yield from reader.get_batch(sample).asnumpy()


@of_samples("torchcodec-samples", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_samples(target: Target) -> Iterator[Frame]:
    """``VideoDecoder.get_frames_at``, which scales each frame."""
    job = target.job
    transforms = import_module("torchcodec.transforms")
    scaled = [transforms.Resize((job.shape[0], job.shape[1]))] if job.scaled_to else None
    for numbers in job.openings:
        decoder = import_module("torchcodec.decoders").VideoDecoder(
            target.source, dimension_order="NHWC", num_ffmpeg_threads=0, transforms=scaled
        )
        for sample in numbers:
            yield from decoder.get_frames_at(indices=sample).data.numpy()


@of_samples("penstock-samples", **OURS)
def penstock_samples(target: Target) -> Iterator[Frame]:
    """`Decoder.batch`."""
    for numbers in target.job.openings:
        with Decoder(target.source, size=target.job.scaled_to) as decoder:
            for sample in numbers:
                yield from decoder.batch(sample)


@of_pipe(PIPE_STANDARD)
def readinto(target: Target) -> Iterator[Frame]:
    """``readinto`` from a pipe of the default size."""
    with os.fdopen(int(target.source), "rb") as pipe:
        yield from _read_into_one(pipe, target.job.shape)


@of_pipe("readinto-1MiB", "other")
def readinto_large(target: Target) -> Iterator[Frame]:
    """The same from a pipe enlarged to 1 MiB."""
    target.notes["capacity_bytes"] = fcntl.fcntl(int(target.source), fcntl.F_SETPIPE_SZ, LARGE_PIPE_BYTES)
    yield from readinto(target)


@of_pipe("penstock.Reader", "ours")
def penstock_reader(target: Target) -> Iterator[Frame]:
    """`penstock.Reader`, which reads ahead."""
    with (
        os.fdopen(int(target.source), "rb") as pipe,
        Reader(pipe, frame_bytes=target.job.frame_bytes) as reader,
    ):
        for frame in reader:
            yield np.asarray(frame).reshape(target.job.shape)
        stats = reader.stats
    for name in ("capacity_bytes", "caller_wait_s", "input_wait_s", "output_wait_s"):
        target.notes[name] = getattr(stats, name)


# --- one case, in its own process -------------------------------------------------------------------------

#: Pixels of rows all over each frame.
Samples = Frame

FRAMES_PER_S = 30
#: Different frames in the pipe: a prime, so that they have no period in common with any method's buffers.
PIPE_FRAMES = 5
FEEDER = Path(__file__).parent / "harness" / "feeder.py"
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


def measure(task: Task[Job]) -> Run:
    """Time one run, and compare its frames with the input's."""
    # Before the imports: libraries count the CPUs when they are loaded.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task.job.cpus])
    task.load()
    os.environ["PATH"] = os.pathsep.join((str(Path(task.ffmpeg).parent), os.environ.get("PATH", os.defpath)))
    run = Run()
    frames = _run_bound(task, run) if task.method.kind == "bound" else _run_method(task, run)
    run.count_frames(task.job.frames, frames)
    return run


def _run_method(task: Task[Job], run: Run) -> int:
    job = task.job
    rows, columns = (len(range(0, pixels, job.sample_step)) for pixels in job.shape[:2])
    # Filled, so that it is resident before the memory is measured.
    samples = np.full((job.frames, rows, columns, 3), 255, np.uint8)
    others = children()
    source = str(_start_feeder(task)) if job.kind == "pipe" else task.source
    target = replace(task, source=source, notes=run.notes)
    with accounted(run, others), _company(job):
        frames = _consume(_decoding(target, run), job, samples, run)
    reference = np.load(Path(task.folder) / REFERENCE)
    if task.method.pixel_format == "bgr24":
        reference = reference[..., ::-1]
    run.figures["difference"], run.error = compare(samples[:frames], reference, exact=job.kind == "pipe")
    return frames


@contextmanager
def _company(job: Job) -> Iterator[None]:
    """A thread that never sleeps, for a job that has one."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            pass

    thread = threading.Thread(target=work, daemon=True)
    if job.kind == "busy":
        thread.start()
    try:
        yield
    finally:
        is_over.set()


def _decoding(task: Task[Job], run: Run) -> Iterator[Any]:
    """The frames that the method gives, of several files one after another."""
    if task.job.kind == "first":
        return _first_frames(task, run)
    takes_all = task.job.kind != "clips" or task.method.serves == ("clips",)
    sources = [task.source] if takes_all else clips_in(task.source)
    return chain.from_iterable(task.method.start(replace(task, source=one)) for one in sources)


def _first_frames(task: Task[Job], run: Run) -> Iterator[Frame]:
    """The first frame, again and again. The median of the times has none of what is done once in a process."""
    times = []
    for _ in range(task.job.frames):
        started = time.perf_counter()
        frames = task.method.start(task)
        first = next(frames)
        times.append(time.perf_counter() - started)
        yield first
        frames.close()
    run.figures["first_frame_s"] = statistics.median(times)


def _start_feeder(task: Task[Job]) -> int:
    """Start the feeder, and wait for its first bytes, so that its start is not measured."""
    reader, writer = os.pipe()
    arguments = [task.source, str(task.job.frame_bytes), str(task.job.frames)]
    subprocess.Popen([sys.executable, "-I", "-S", FEEDER, *arguments], stdout=writer)
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
    """Count frames that are no arrays, and look at their size."""
    count, started = 0, time.perf_counter()
    with accounted(run), _company(task.job):
        for count, frame in enumerate(_decoding(task, run), 1):
            if count == 1:
                run.figures["start_s"] = time.perf_counter() - started
            if (frame.width, frame.height) != task.job.size:
                raise ValueError(f"frame {count} is {frame.width}x{frame.height}")
    return count


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

#: Videos are kept here, because it takes minutes to encode them all.
KEPT = ROOT / "build" / "bench-decode"


def link_programs(ffmpeg: str, folder: Path) -> str:
    """Link FFmpeg and an ffprobe into the folder, under the names that libraries look for on ``PATH``."""
    program = Path(ffmpeg).absolute()
    (folder / "ffmpeg").symlink_to(program)
    beside = program.with_name("ffprobe")
    ffprobe = str(beside) if beside.exists() else shutil.which("ffprobe")
    if ffprobe:
        (folder / "ffprobe").symlink_to(Path(ffprobe).absolute())
    return str(folder / "ffmpeg")


def make_input(job: Job, ffmpeg: str, folder: Path, kept: Path | None = None) -> tuple[str, Samples]:
    """Make the file that the job reads, or that is fed to it; and samples of its frames.

    Videos are taken from the folder ``kept``, and left there.
    """
    step = job.sample_step
    if job.kind == "pipe":
        frames = np.array(noise(job.size, min(PIPE_FRAMES, job.frames)))
        path = folder / "frames.raw"
        frames.tofile(path)
        return str(path), frames[:, ::step, ::step]
    path = folder / "video.mp4"
    each = replace(job, frames=job.file_frames or job.frames // job.clips, clips=1)
    if kept is None:
        _make_video(each, ffmpeg, path)
    else:
        shutil.copy(_kept_video(each, ffmpeg, kept), path)
    decoded = stdout_readinto(Task(by_name(METHODS, "stdout.readinto"), job, ffmpeg, str(path)))
    samples = np.array([frame[::step, ::step].copy() for frame in decoded])
    if len(samples) != each.frames:
        raise FFmpegFailedError(f"FFmpeg made {len(samples)} frames instead of {each.frames}")
    match job.kind:
        case "picked" | "samples" | "windows":
            return str(path), samples[job.numbers]
        case "first":
            return str(path), samples[:1]
        case "clips":
            clips = folder / "clips"
            clips.mkdir()
            for number in range(job.clips):
                shutil.copy(path, clips / f"{number}.mp4")
            return str(clips), samples
    return str(path), samples


def _kept_video(job: Job, ffmpeg: str, kept: Path) -> Path:
    """The job's video in the folder, by all that it depends on."""
    made_of = job.size, job.frames, job.encoder, ENCODERS.get(job.encoder), job.video_pixel_format, job.gop
    key = hashlib.sha256(repr((*made_of, version(ffmpeg))).encode() + Path(films.__file__).read_bytes())
    path = kept / f"{job.encoder}-{job.width}x{job.height}-{job.content}-{key.hexdigest()[:12]}.mp4"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            _make_video(job, ffmpeg, Path(folder) / "video.mp4")
            (Path(folder) / "video.mp4").rename(path)
    return path


def _make_video(job: Job, ffmpeg: str, path: Path) -> None:
    """Encode the job's frames, which do not repeat."""
    options = ENCODERS.get(job.encoder, {}) | ({"g": job.gop} if job.gop else {})
    how: dict[str, Any] = {
        "codec": job.encoder,
        "options": options,
        "settings": EncoderSettings(ffmpeg=ffmpeg),
    }
    # Tagged: a method that assumes another matrix shows other colors.
    how |= {"colors": Colors(matrix="bt709"), "output_pixel_format": job.video_pixel_format}
    try:
        with Encoder(path, size=job.size, fps=FRAMES_PER_S, **how) as encoder:
            for frame in _pictures(job, ffmpeg):
                encoder.write(frame)
    except PenstockError as error:
        raise FFmpegFailedError(str(error)) from error


def _pictures(job: Job, ffmpeg: str) -> Iterator[Frame]:
    if job.content == "testsrc2" or job.content == "mandelbrot":
        source = f"{job.content}=size={job.width}x{job.height}:rate={FRAMES_PER_S}"
        raw = ["-frames:v", str(job.frames), "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
        with start(ffmpeg, "-f", "lavfi", "-i", source, *raw, stdin=False, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            yield from _read_into_one(child.stdout, (job.height, job.width, 3))
    else:
        yield from map(Film(job.content, *job.size).frame, range(job.frames))


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """Make the input and its samples, and judge the figures at last."""
    with tempfile.TemporaryDirectory() as folder:
        program = link_programs(ffmpeg, Path(folder))
        path, reference = make_input(job, program, Path(folder), KEPT)
        files = clips_in(path) if job.kind == "clips" else [path]
        group.about["input_bytes"] = sum(Path(file).stat().st_size for file in files)
        np.save(Path(folder) / REFERENCE, reference)
        yield isolated(job, program, measure, folder=folder, source=path)
    group.outcomes = judge(job.goals, group)


def _quick(name: str, frames: int, **other: Any) -> Job:
    return replace(by_name(JOBS, name), frames=frames, **other)


# Short runs, and few of them: no claim can rest on it.
QUICK_JOBS = [
    _quick("h264-1080p-testsrc2", 90),
    _quick("hevc-10-bit-1080p-testsrc2", 30),
    _quick("h264-720p-to-224-testsrc2", 120),
    _quick("busy-thread", 30),
    _quick("batches", 90),
    _quick("clips-480p", 300, clips=10),
    _quick("first-frame", 5),
    _quick("picked-60", 40),
    _quick("sample-spread", 16),
    _quick("reader", 200),
]
BENCHMARK = Benchmark(
    "decode",
    settings=JobSettings(JOBS, METHODS),
    quick=JobSettings(QUICK_JOBS, METHODS, rounds=2),
    quick_help="Two minutes at most: one content, few frames, 2 rounds.",
    prepare=prepare,
    options=[SIZE, FRAMES],
    figures=["first_frame_s", "fps"],
    standards=[STANDARD, PIPE_STANDARD, PICKED_STANDARD, SAMPLES_STANDARD],
)
main = BENCHMARK.command(__name__, __doc__)
