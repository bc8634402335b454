"""Frames from memory into a video file, by every library in turn.

The clock runs from before the method is started until the file is complete, for every method and for the bound: FFmpeg
has exited, or the library has closed the file. Afterwards the frames in the file are counted, and some are compared
with what was sent. A method whose file has another quality or size than ours is shown, and is no rival.

By default: eight jobs, every method that is installed, 5 rounds; half an hour, and 5 GB of shared memory. All methods
that take an FFmpeg get the same one, but those whose name ends with "default". Every option that selects what to run
also narrows --quick. A method that loses, tears or adds a frame is an error and has no speed; the exit status is
then 1.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np

from benchmarks.harness import senders
from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import Content, Film, Frame, apart, psnr_db, there_and_back
from benchmarks.harness.ffmpeg import frame_count, output_of, raw_input, start
from benchmarks.harness.files import bound_files, folder_in_memory
from benchmarks.harness.isolated import FFMPEG_VARIABLES, Task, isolated
from benchmarks.harness.methods import FrameJob, Method, Methods
from benchmarks.harness.options import FRAMES, SIZE, by_name
from benchmarks.harness.results import Group, Measure, Row, Run
from benchmarks.harness.senders import Sender, feed
from penstock import Encoder
from penstock._ffmpeg.command.settings import with_overrides
from penstock.video import Colors, EncoderSettings

CODEC = "libx264"
OUTPUT_PIXEL_FORMAT = "yuv420p"
FRAMES_PER_S = 30
#: x264's own default, for libraries that have another one.
CRF = "23"
#: What all others make. Our default is BT.709 from 720 lines on.
COLORS = Colors(matrix="bt601")

#: Gains are ratios to this method.
STANDARD = "stdin.write"


@dataclass(frozen=True)
class Job(FrameJob):
    """The video that every method has to make."""

    preset: str
    content: Content
    #: Frames come no faster than this; None for as fast as the method takes them.
    paced_fps: int | None = None
    #: Each video has so many frames, one after another; None for one video of all.
    clip_frames: int | None = None

    @property
    def kind(self) -> Literal["paced", "flat out", "clips"]:
        if self.clip_frames:
            return "clips"
        return "paced" if self.paced_fps else "flat out"

    @property
    def title(self) -> str:
        pace = f", paced at {self.paced_fps} fps" if self.paced_fps else ""
        what = f"{self.width}x{self.height} {self.content} to x264 {self.preset}"
        each = f" in videos of {self.clip_frames}" if self.clip_frames else ""
        return f"{self.name}: {what}{pace}, {self.frames} frames{each}"

    @property
    def timeout_s(self) -> float:
        return super().timeout_s + (self.frames / self.paced_fps if self.paced_fps else 0)

    @property
    def about(self) -> dict[str, Any]:
        return super().about | {"codec": CODEC, "output_pixel_format": OUTPUT_PIXEL_FORMAT}


# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("motion-720p", 1280, 720, 400, "ultrafast", "motion"),
    Job("motion-1080p", 1920, 1080, 200, "ultrafast", "motion"),
    Job("motion-2160p", 3840, 2160, 60, "ultrafast", "motion"),
    Job("camera-1080p", 1920, 1080, 200, "ultrafast", "camera"),
    Job("text-1080p", 1920, 1080, 200, "ultrafast", "text"),
    Job("medium-camera-1080p", 1920, 1080, 60, "medium", "camera"),
    Job("clips-480p", 640, 480, 600, "medium", "motion", clip_frames=30),
    Job("paced-motion-1080p", 1920, 1080, 150, "ultrafast", "motion", paced_fps=30),
)


# --- methods ----------------------------------------------------------------------------------------------

# Each takes frames from the same loop and makes the same video of them. Each is used as its own documentation shows,
# with the options that make it faster. All get the same codec, preset, quality, pixel format and frame rate. All
# convert by BT.601 and a bicubic filter or a mean, so that the encoder has the same work: that is FFmpeg's default.

#: The argument of every method.
Target: TypeAlias = Task[Job]


def h264(preset: str) -> list[str]:
    """FFmpeg's options for the video."""
    return ["-c:v", CODEC, "-preset", preset, "-pix_fmt", OUTPUT_PIXEL_FORMAT]


def ffmpeg_arguments(target: Target, pixel_format: str) -> list[str]:
    """FFmpeg's arguments for raw frames from the target's source."""
    read = raw_input(*target.job.size, pixel_format, FRAMES_PER_S, target.source)
    return ["-y", *read, *h264(target.job.preset), target.output]


def into_ffmpeg(target: Target, fill: Callable[[IO[bytes]], Sender]) -> Sender:
    """An FFmpeg, and a sender that fills its pipe."""
    child = start(target.ffmpeg, *ffmpeg_arguments(target, "rgb24"))
    assert child.stdin is not None
    sender = fill(child.stdin)

    def finish() -> None:
        with child:
            sender.finish()

    return Sender(sender.write, finish, sender.notes)


METHODS = Methods()


@METHODS.add(STANDARD)
def stdin_write(target: Target) -> Sender:
    """``stdin.write(frame.tobytes())`` into FFmpeg."""
    return into_ffmpeg(target, senders.stdin_write)


def by_own_choice(start: Callable[[Target], Sender], target: Target) -> Sender:
    """A method with the FFmpeg that its library finds, as in a program that names none."""
    for name in FFMPEG_VARIABLES:
        os.environ.pop(name, None)
    return start(target)


@METHODS.add("imageio-ffmpeg", needs=("imageio_ffmpeg",))
def imageio_ffmpeg(target: Target) -> Sender:
    """``write_frames``, which gets the array itself; its own quality and block size are off."""
    import imageio_ffmpeg

    writer = imageio_ffmpeg.write_frames(
        target.output,
        target.job.size,
        pix_fmt_in="rgb24",
        pix_fmt_out=OUTPUT_PIXEL_FORMAT,
        fps=FRAMES_PER_S,
        quality=None,
        codec=CODEC,
        macro_block_size=1,
        ffmpeg_log_level="error",
        output_params=["-preset", target.job.preset],
    )
    writer.send(None)
    return Sender(writer.send, writer.close)


METHODS.add(
    "imageio-ffmpeg-default",
    summary="the same with the FFmpeg of its wheel",
    needs=("imageio_ffmpeg",),
    serves=("clips",),
)(partial(by_own_choice, imageio_ffmpeg))


@METHODS.add("moviepy", needs=("moviepy.video.io.ffmpeg_writer",))
def moviepy(target: Target) -> Sender:
    """``FFMPEG_VideoWriter``, which ``write_videofile`` uses."""
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    preset = target.job.preset
    writer = FFMPEG_VideoWriter(target.output, target.job.size, FRAMES_PER_S, codec=CODEC, preset=preset)
    return Sender(writer.write_frame, writer.close)


@METHODS.add("vidgear", needs=("vidgear.gears", "cv2"))
def vidgear(target: Target) -> Sender:
    """``WriteGear`` in compression mode, with x264's quality instead of its own default."""
    from vidgear.gears import WriteGear

    options: dict[str, Any] = {"-vcodec": CODEC, "-preset": target.job.preset, "-crf": CRF}
    options |= {"-pix_fmt": OUTPUT_PIXEL_FORMAT, "-input_framerate": FRAMES_PER_S}
    how = {"compression_mode": True, "custom_ffmpeg": target.ffmpeg, "logging": False}
    writer = WriteGear(output=target.output, **how, **options)
    return Sender(partial(writer.write, rgb_mode=True), writer.close)


@METHODS.add("turbopipe", needs=("turbopipe",))
def turbopipe(target: Target) -> Sender:
    """TurboPipe into FFmpeg, with ``sync`` before a buffer is used again."""
    return into_ffmpeg(target, senders.turbopipe)


def pyav_frames(container: Any, size: tuple[int, int], preset: str) -> Callable[[Frame | None], None]:
    """A stream of video in a container of PyAV's: a function that encodes a frame, and for None what is left.

    Threads as in the ``ffmpeg`` program: as many as x264 wants, one per frame (PyAV's default is slices), and for the
    conversion. The conversion is bicubic, as FFmpeg's own: PyAV's ``encode`` has a bilinear filter, which takes
    color from small text.
    """
    av = import_module("av")
    stream = container.add_stream(CODEC, rate=FRAMES_PER_S, options={"preset": preset, "crf": CRF})
    stream.width, stream.height = size
    stream.pix_fmt = OUTPUT_PIXEL_FORMAT
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = 0
    convert = partial(
        av.video.reformatter.VideoReformatter().reformat,
        format=OUTPUT_PIXEL_FORMAT,
        interpolation="BICUBIC",
        threads=0,
    )
    times = itertools.count()

    def encode(array: Frame | None) -> None:
        frame = None
        if array is not None:
            frame = convert(av.VideoFrame.from_numpy_buffer(array, format="rgb24"))
            frame.pts = next(times)
        container.mux(stream.encode(frame))

    return encode


@METHODS.add("pyav", needs=("av.video.reformatter",), own_ffmpeg=True)
def pyav(target: Target) -> Sender:
    """Frames on the arrays' own memory, threads for the conversion and the codec."""
    container = import_module("av").open(target.output, "w")
    encode = pyav_frames(container, target.job.size, target.job.preset)

    def close() -> None:
        encode(None)
        container.close()

    return Sender(encode, close)


@METHODS.add("opencv", "other", needs=("cv2",), pixel_format="bgr24", own_ffmpeg=True)
def opencv(target: Target) -> Sender:
    """VideoWriter; its wheels encode no H.264, so that this is MPEG-4 Part 2."""
    import cv2

    codec = cv2.VideoWriter.fourcc(*"mp4v")
    writer = cv2.VideoWriter(target.output, cv2.CAP_FFMPEG, codec, FRAMES_PER_S, target.job.size)
    if not writer.isOpened():
        raise RuntimeError("VideoWriter could not open the file")
    return Sender(writer.write, writer.release)


def our_encoder(
    path: str, size: tuple[int, int], preset: str, ffmpeg: str | None, convert: Any = "auto", **more: Any
) -> Encoder:
    """An `Encoder` of the video that all methods make."""
    return Encoder(
        path,
        size=size,
        fps=FRAMES_PER_S,
        codec=CODEC,
        preset=preset,
        output_pixel_format=OUTPUT_PIXEL_FORMAT,
        colors=COLORS,
        settings=with_overrides(EncoderSettings(ffmpeg=ffmpeg), convert=convert),
        **more,
    )


@METHODS.add("penstock", "ours")
def penstock_encoder(
    target: Target, borrows: bool = False, convert: Any = "auto", names_ffmpeg: bool = True
) -> Sender:
    """`penstock.Encoder.write`, which takes the frame."""
    ffmpeg = target.ffmpeg if names_ffmpeg else None
    encoder = our_encoder(target.output, target.job.size, target.job.preset, ffmpeg, convert)

    def notes() -> dict[str, object]:
        stats = encoder.stats
        assert stats.writer is not None
        notes = {"converted_by": encoder.converted_by, "transport": stats.writer.transport}
        notes |= {"reason": stats.writer.reason, "bottleneck": encoder.bottleneck}
        times = "caller_wait_s", "output_wait_s", "input_wait_s", "converting_s"
        return notes | {name: getattr(stats, name) for name in times}

    def submit(frame: Frame) -> object:
        return encoder.submit(frame).wait

    return Sender(submit if borrows else encoder.write, encoder.close, notes)


BORROWS = "`penstock.Encoder.submit`, which borrows the array until its ticket is done"
METHODS.add("penstock-submit", "ours", BORROWS)(partial(penstock_encoder, borrows=True))
CONVERTS = '`penstock.Encoder` with ``convert="ffmpeg"``'
METHODS.add("penstock-ffmpeg", "ours", CONVERTS)(partial(penstock_encoder, convert="ffmpeg"))
METHODS.add("penstock-default", "ours", "the same with the FFmpeg that it finds", serves=("clips",))(
    partial(by_own_choice, partial(penstock_encoder, names_ffmpeg=False))
)
# As fast as FFmpeg can. The first has nothing to convert.
METHODS += [
    Method(f"tmpfs-{pixel_format}", summary, "bound", serves=("flat out",), pixel_format=pixel_format)
    for pixel_format, summary in (
        ("yuv420p", "FFmpeg reads yuv420p from memory"),
        ("rgb24", "the same with rgb24, which FFmpeg has to convert"),
    )
]


# --- one case, in its own process -------------------------------------------------------------------------

#: The pictures of the job's loop, in the folder of a task.
PICTURES = "pictures.npy"
#: About so many frames of a file are compared with what was sent.
COMPARED_FRAMES = 8

#: Of the content check: buffers (few, so that each is overwritten often), and frames of the waves' loop from one that
#: is sent to the next: so many that each looks different.
CHECKED_BUFFERS, CHECKED_STEP = 3, 7
# Limits on the difference between a frame that was sent and the decoded one, in code values: the mean of one channel
# of the frame, and of one channel of a row. Measured with these waves in steps of CHECKED_STEP, x264 ultrafast
# and medium, 64x48 to 1080p: codec and 4:2:0 lose at most 3.2 and 7.3. A wrong range makes a mean of 4.7 or more, a
# wrong matrix 5.4; a page that was sent too late makes a row of 12 or more, another frame 15.
MAX_MEAN_DIFFERENCE = 4.0
MAX_ROW_DIFFERENCE = 9.0


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
        videos = [one.output for one in clips(task)]
        run.count_frames(task.job.frames, sum(count_frames(task.ffmpeg, video) for video in videos))
        run.figures["output_bytes"] = sum(Path(video).stat().st_size for video in videos)
        run.figures["psnr_db"] = quality_db(task, sent)
    return run


def quality_db(task: Task[Job], sent: Sequence[Frame]) -> float:
    """The PSNR of some frames of the file, all over it."""
    [*_, last] = clips(task)
    step = max(1, last.job.frames // COMPARED_FRAMES)
    shown = enumerate(decode(last, step))
    return psnr_db((frame, sent[number * step % len(sent)]) for number, frame in shown)


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
    """Make the video, or the videos in turn."""
    if task.method.kind == "bound":
        output_of(task.ffmpeg, *ffmpeg_arguments(task, task.method.pixel_format))
        return
    for one in clips(task):
        started = time.perf_counter()
        sender: Sender = one.method.start(one)
        run.figures["start_s"] = time.perf_counter() - started
        feed(sender, frames, one.job.frames, run, paced_fps=one.job.paced_fps)


def clips(task: Task[Job]) -> list[Task[Job]]:
    """The task of each video, with its folder; the task itself if it is one video."""
    job, each = task.job, task.job.clip_frames
    if each is None:
        return [task]
    starts = range(0, job.frames, each)
    made = [
        replace(task, folder=f"{task.folder}/{first}", job=replace(job, frames=min(each, job.frames - first)))
        for first in starts
    ]
    for one in made:
        Path(one.folder).mkdir(exist_ok=True)
    return made


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
    run, worst = Run(), (0.0, 0.0)
    for number, shown in enumerate(decoded):
        mean, row = difference(shown, sent(number))
        worst = max(mean, worst[0]), max(row, worst[1])
        if mean > MAX_MEAN_DIFFERENCE or row > MAX_ROW_DIFFERENCE:
            off = f"it is {mean:.1f} code values off, and one of its rows {row:.1f}"
            run.error = run.error or f"frame {number} shows something else: {off}"
    run.figures = {"mean_difference": worst[0], "row_difference": worst[1]}
    return run


def difference(shown: Frame, sent: Frame) -> tuple[float, float]:
    """The mean absolute difference of one channel of the frame, and of one channel of a row; the largest of each.

    A page that was sent too late is hardly longer than a row.
    """
    rows = apart(shown, sent).mean(axis=1, dtype=np.float32)
    return float(rows.mean(axis=0).max()), float(rows.max())


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """Make a folder for the pictures and the videos, and write the files of the bounds."""
    with folder_in_memory() as folder:
        raw = partial(_raw_pictures, save_pictures(job, folder), ffmpeg)
        with bound_files(group, raw, job.frames) as bounds:
            yield isolated(job, ffmpeg, measure, check, folder=folder, bounds=bounds)
    mark(group)


def _raw_pictures(frames: Sequence[Frame], ffmpeg: str, bound: Row) -> list[bytes]:
    """The frames in the bound's format, as the Encoder converts them: x264 gets the same bytes."""
    pixel_format = bound.method.pixel_format
    with folder_in_memory() as folder:
        path = Path(folder) / "pictures"
        colors = COLORS if pixel_format == OUTPUT_PIXEL_FORMAT else Colors()
        options: dict[str, Any] = {"codec": "rawvideo", "options": {"f": "rawvideo"}, "colors": colors}
        options |= {"output_pixel_format": pixel_format, "settings": EncoderSettings(ffmpeg=ffmpeg)}
        with Encoder(path, fps=FRAMES_PER_S, **options) as encoder:
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


BENCHMARK = Benchmark(
    "encode",
    settings=JobSettings(JOBS, METHODS),
    # The fastest takes a third of a second, so that FFmpeg's start matters much: no claim can rest on it.
    quick=JobSettings([replace(by_name(JOBS, "motion-720p"), frames=100)], METHODS, rounds=2),
    quick_help="About half a minute: 720p ultrafast with few frames, 2 rounds.",
    prepare=prepare,
    options=[SIZE, FRAMES],
    standards=[STANDARD],
)
main = BENCHMARK.command(__name__, __doc__)
