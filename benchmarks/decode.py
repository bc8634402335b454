"""Frames from a video file, or from a pipe, into memory, by every library in turn.

The clock runs from before the method is started until it has given its last frame and ended everything it started, for
every method and for the bound. Each frame is sampled while the clock runs, at pixels of rows all over it, so that a
frame counts only if it is there. The samples are compared afterwards.

By default: twelve jobs, every method that is installed, 5 rounds; 40 minutes. The files are made first.
Every option that selects what to run also narrows --quick. A method that loses a frame, or shows another one or other
colors, is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.accounts import accounted, children, note_children_peak
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import Content, Film, Frame, apart, noise
from benchmarks.harness.ffmpeg import FFmpegFailedError, frame_count, output_of, start
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.methods import FrameJob, Method, Methods
from benchmarks.harness.options import FRAMES, SIZE, by_name
from benchmarks.harness.results import Group, Measure, Run
from penstock import Decoder, Encoder, Reader
from penstock.errors import PenstockError
from penstock.video import Colors, EncoderSettings, prefetch

#: x264's own defaults, set so that the record has them. x265 gets the same.
PRESET, CRF = "medium", "23"
#: About so many rows of a frame are sampled, and pixels of a row at the same distance.
SAMPLED_ROWS = 64
#: What an unprivileged process may have (pipe-max-size in proc(5)).
LARGE_PIPE_BYTES = 1 << 20

#: Gains are ratios to this method, for each kind of source.
STANDARD, PIPE_STANDARD, PICKED_STANDARD = "stdout.readinto", "readinto", "opencv-seeks"


@dataclass(frozen=True)
class Job(FrameJob):
    """The frames that every method has to read."""

    #: Of the file; None for raw frames from a pipe.
    encoder: str | None
    content: Content = "motion"
    #: So many files have the same number of frames each.
    clips: int = 1
    #: The frames are picked at random from a file of so many; 0 for all of them, in sequence.
    picked_from: int = 0
    #: Distance of keyframes; 0 for the encoder's default.
    gop: int = 0

    @property
    def kind(self) -> Literal["file", "clips", "picked", "pipe"]:
        """Where the frames come from: a file, several files, anywhere in a file, or a pipe."""
        if self.encoder is None:
            return "pipe"
        if self.picked_from:
            return "picked"
        return "clips" if self.clips > 1 else "file"

    @property
    def numbers(self) -> list[int]:
        """Which frames are picked, the same in every run."""
        return random.Random(0).sample(range(self.picked_from), self.frames)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a frame: height × width × channels."""
        return self.height, self.width, 3

    @property
    def sample_step(self) -> int:
        """The distance of sampled rows, and of sampled pixels."""
        return max(1, self.height // SAMPLED_ROWS)

    @property
    def title(self) -> str:
        what = "from another process's write(2)" if self.encoder is None else f"of {self.encoder} {PRESET}"
        what += f" in {self.clips} files" * (self.clips > 1)
        frames = f"{self.frames} frames"
        if self.picked_from:
            frames += f" at random of {self.picked_from}, a keyframe each {self.gop}"
        return f"{self.name}: {self.width}x{self.height} {self.content} {what}, {frames}"

    @property
    def about(self) -> dict[str, Any]:
        return super().about | {"preset": PRESET, "crf": CRF, "clips": self.clips}


GOPS = (12, 60, 250, 600)
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
    *(Job(f"picked-{gop}", 1920, 1080, 40, "libx264", picked_from=600, gop=gop) for gop in GOPS),
)


# --- methods ----------------------------------------------------------------------------------------------

# Each is an iterator of arrays, and has ended everything it started when it is exhausted. Each is used as its own
# documentation shows, with the options that make it faster. An array is the caller's until the next one is asked for.
# Some methods give the same array again and again.

#: The argument of every method. Its source is the video, or a folder of videos; for a pipe, the number of its read end,
#: which the method closes.
Target: TypeAlias = Task[Job]

METHODS = Methods()
#: Several files are given one after another.
of_file = partial(METHODS.add, serves=("file", "clips"))
of_clips = partial(METHODS.add, serves=("clips",))
of_pipe = partial(METHODS.add, serves=("pipe",))
of_picked = partial(METHODS.add, serves=("picked",))


def clips_in(folder: str) -> list[str]:
    """The files of a job with several."""
    return sorted(str(path) for path in Path(folder).iterdir())


def _read_into_one(file: IO[bytes], job: Job) -> Iterator[Frame]:
    frame = np.empty(job.shape, np.uint8)
    # A buffered file reads so much at once into the array itself.
    while file.readinto(frame.data) == frame.nbytes:  # type: ignore[attr-defined]
        yield frame


@of_file(STANDARD)
def stdout_readinto(target: Target) -> Iterator[Frame]:
    """FFmpeg's rawvideo, by readinto into one array: no bytes object for a frame, and no copy."""
    output = ["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    with start(target.ffmpeg, "-i", target.source, *output, stdin=False, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield from _read_into_one(child.stdout, target.job)


@of_file("imageio-ffmpeg", needs=("imageio_ffmpeg",))
def imageio_ffmpeg(target: Target) -> Iterator[Frame]:
    """``read_frames``, which gives the metadata and then bytes, and ``np.frombuffer``."""
    import imageio_ffmpeg

    frames = imageio_ffmpeg.read_frames(target.source, pix_fmt="rgb24")
    next(frames)
    for frame in frames:
        yield np.frombuffer(frame, np.uint8).reshape(target.job.shape)


@of_file("ffmpegcv", needs=("ffmpegcv",))
def ffmpegcv(target: Target) -> Iterator[Frame]:
    """``VideoCapture`` for rgb24, on the FFmpeg that is first on ``PATH``."""
    import ffmpegcv

    with ffmpegcv.VideoCapture(target.source, pix_fmt="rgb24") as capture:
        while True:
            success, frame = capture.read()
            if not success:
                return
            yield frame


@of_file("opencv", needs=("cv2",), pixel_format="bgr24", own_ffmpeg=True)
def opencv(target: Target) -> Iterator[Frame]:
    """``VideoCapture.read``, which gives BGR, on the FFmpeg of its wheel."""
    import cv2

    capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
    # read fills this array instead of allocating one.
    frame = np.empty(target.job.shape, np.uint8)
    while capture.read(frame)[0]:
        yield frame
    capture.release()


@of_file("opencv-rgb", needs=("cv2",), own_ffmpeg=True)
def opencv_rgb(target: Target) -> Iterator[Frame]:
    """The same, and ``cvtColor``."""
    import cv2

    rgb = np.empty(target.job.shape, np.uint8)
    for frame in opencv(target):
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB, dst=rgb)


@of_file("pyav", needs=("av",), own_ffmpeg=True)
def pyav(target: Target, thread_type: str | None = None) -> Iterator[Frame]:
    """``decode`` and ``to_ndarray``, as its documentation begins."""
    with import_module("av").open(target.source) as container:
        if thread_type is not None:
            container.streams.video[0].thread_type = thread_type
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


THREADED = "The same with threads for frames and slices"
of_file("pyav-threaded", "rival", THREADED, needs=("av",), own_ffmpeg=True)(partial(pyav, thread_type="AUTO"))


@of_file("decord", needs=("decord",), own_ffmpeg=True)
def decord(target: Target) -> Iterator[Frame]:
    """``VideoReader``, one frame after another: its batches are no faster."""
    import decord

    for frame in decord.VideoReader(target.source, ctx=decord.cpu(0), num_threads=0):
        yield frame.asnumpy()


@of_file("penstock", "ours")
def penstock_decoder(target: Target, pixel_format: str = "rgb24") -> Iterator[Frame]:
    """`penstock.Decoder`. It finds FFmpeg by ``PENSTOCK_FFMPEG``."""
    with Decoder(target.source, pixel_format=pixel_format) as decoder:
        yield from decoder


BGR = "bgr24"
of_file("penstock-bgr", "ours", "The same for bgr24", pixel_format=BGR)(
    partial(penstock_decoder, pixel_format=BGR)
)


@of_clips("penstock.prefetch", "ours")
def penstock_prefetch(target: Target) -> Iterator[Frame]:
    """`penstock.video.prefetch`, which opens two files ahead."""
    for decoder in prefetch(clips_in(target.source)):
        yield from decoder


@of_clips("penstock-slice", "ours")
def penstock_slice(target: Target) -> Iterator[Frame]:
    """``decoder[:]`` of each file, which is decoded in this process."""
    for path in clips_in(target.source):
        with Decoder(path) as decoder:
            yield from decoder[:]


METHODS.append(Method("decode-only", "FFmpeg decodes to null", "bound", serves=("file",)))


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


@of_picked("decord-batch", needs=("decord",), own_ffmpeg=True)
def decord_batch(target: Target) -> Iterator[Frame]:
    """``VideoReader.get_batch``."""
    import decord

    reader = decord.VideoReader(target.source, ctx=decord.cpu(0), num_threads=0)
    yield from reader.get_batch(target.job.numbers).asnumpy()


@of_picked("torchcodec-batch", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_batch(target: Target) -> Iterator[Frame]:
    """``VideoDecoder.get_frames_at``, whose index is exact."""
    decoders = import_module("torchcodec.decoders")
    decoder = decoders.VideoDecoder(
        target.source, dimension_order="NHWC", num_ffmpeg_threads=0, seek_mode="exact"
    )
    yield from decoder.get_frames_at(indices=target.job.numbers).data.numpy()


@of_picked("penstock-batch", "ours")
def penstock_batch(target: Target) -> Iterator[Frame]:
    """`Decoder.batch`."""
    with Decoder(target.source) as decoder:
        yield from decoder.batch(target.job.numbers)


@of_picked("penstock-one-by-one", "ours")
def penstock_one_by_one(target: Target) -> Iterator[Frame]:
    """``decoder[number]`` for each frame, in the given order."""
    with Decoder(target.source) as decoder:
        for number in target.job.numbers:
            yield decoder[number]


@of_picked("penstock-all", "other")
def penstock_all(target: Target) -> Iterator[Frame]:
    """All frames in sequence, of which the picked ones are kept."""
    wanted = set(target.job.numbers)
    with Decoder(target.source) as decoder:
        kept = {frame.index: frame for frame in decoder if frame.index in wanted}
    for number in target.job.numbers:
        yield kept[number]


@of_pipe(PIPE_STANDARD)
def readinto(target: Target) -> Iterator[Frame]:
    """``readinto`` from a pipe of the default size."""
    with os.fdopen(int(target.source), "rb") as pipe:
        yield from _read_into_one(pipe, target.job)


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
    source = str(_start_feeder(task)) if job.kind == "pipe" else task.source
    target = replace(task, source=source, notes=run.notes)
    with accounted(run, others):
        frames = _consume(_decoding(target), job, samples, run)
    reference = np.load(Path(task.folder) / REFERENCE)
    if task.method.pixel_format == "bgr24":
        reference = reference[..., ::-1]
    run.figures["difference"], run.error = compare(samples[:frames], reference, exact=job.kind == "pipe")
    return frames


def _decoding(task: Task[Job]) -> Iterator[Frame]:
    """The frames that the method gives, of several files one after another."""
    takes_all = task.job.kind != "clips" or task.method.serves == ("clips",)
    sources = [task.source] if takes_all else clips_in(task.source)
    return chain.from_iterable(task.method.start(replace(task, source=one)) for one in sources)


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
        frames = np.array(noise(job.size, min(PIPE_FRAMES, job.frames)))
        path = folder / "frames.raw"
        frames.tofile(path)
        return str(path), frames[:, ::step, ::step]
    path = folder / "video.mp4"
    each = replace(job, frames=job.picked_from or job.frames // job.clips, clips=1)
    _make_video(each, ffmpeg, path)
    decoded = stdout_readinto(Task(by_name(METHODS, STANDARD), job, ffmpeg, str(path)))
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
    how: dict[str, Any] = {"codec": job.encoder, "settings": EncoderSettings(ffmpeg=ffmpeg)}
    how["options"] = {"preset": PRESET, "crf": CRF} | ({"g": job.gop} if job.gop else {})
    # Tagged: a method that assumes another matrix shows other colors.
    how["colors"] = Colors(matrix="bt709")
    try:
        with Encoder(path, size=job.size, fps=FRAMES_PER_S, **how) as encoder:
            for number in range(job.frames):
                encoder.write(film.frame(number))
    except PenstockError as error:
        raise FFmpegFailedError(str(error)) from error


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """Make the input and its samples."""
    with tempfile.TemporaryDirectory() as folder:
        program = link_programs(ffmpeg, Path(folder))
        path, reference = make_input(job, program, Path(folder))
        files = clips_in(path) if job.kind == "clips" else [path]
        group.about["input_bytes"] = sum(Path(file).stat().st_size for file in files)
        np.save(Path(folder) / REFERENCE, reference)
        yield isolated(job, program, measure, folder=folder, source=path)


# The fastest takes some tenths of a second, so that FFmpeg's start matters much: no claim can rest on it.
QUICK_JOBS = [replace(by_name(JOBS, "h264-720p"), frames=150), replace(by_name(JOBS, "reader"), frames=200)]
BENCHMARK = Benchmark(
    "decode",
    settings=JobSettings(JOBS, METHODS),
    quick=JobSettings(QUICK_JOBS, METHODS, rounds=2),
    quick_help="About half a minute: 720p and the reader, few frames, 2 rounds.",
    prepare=prepare,
    options=[SIZE, FRAMES],
    standards=[STANDARD, PIPE_STANDARD, PICKED_STANDARD],
)
main = BENCHMARK.command(__name__, __doc__)
