"""The methods: each is an iterator of arrays, and has ended everything it started when it is exhausted.

Each is used as its own documentation shows, with the options that make it faster. An array is the caller's until the
next one is asked for. Some methods give the same array again and again.

To add a rival, write a generator ``(target) -> frames`` here, and decorate it with ``@METHODS.add(NAME)``.
"""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from benchmarks.harness.content import Content, Frame
from benchmarks.harness.ffmpeg import start
from benchmarks.harness.methods import FrameJob, Method, Methods
from penstock import Decoder, Reader
from penstock.media import prefetch

#: x264's own defaults, set so that the record has them. x265 gets the same.
PRESET, CRF = "medium", "23"
#: About so many rows of a frame are sampled, and pixels of a row at the same distance.
SAMPLED_ROWS = 64
#: What an unprivileged process may have (pipe-max-size in proc(5)).
LARGE_PIPE_BYTES = 1 << 20

#: Gains are ratios to this method, for each kind of source.
STANDARD, PIPE_STANDARD, PICKED_STANDARD = "stdout.readinto", "readinto", "opencv-seeks"
#: FFmpeg alone. It decodes, and nobody gets the frames.
BOUND = "decode-only"


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


@dataclass(frozen=True)
class Target:
    """The argument of every method."""

    job: Job
    ffmpeg: str
    #: The video, or a folder of videos. For a pipe, what the feeder writes.
    path: str
    #: The read end of the pipe. The method closes it.
    fd: int = -1
    #: What the method reports about itself, for the record.
    notes: dict[str, Any] = field(default_factory=dict)


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
    with start(target.ffmpeg, "-i", target.path, *output, stdin=False, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield from _read_into_one(child.stdout, target.job)


@of_file("imageio-ffmpeg", needs=("imageio_ffmpeg",))
def imageio_ffmpeg(target: Target) -> Iterator[Frame]:
    """``read_frames``, which gives the metadata and then bytes, and ``np.frombuffer``."""
    import imageio_ffmpeg

    frames = imageio_ffmpeg.read_frames(target.path, pix_fmt="rgb24")
    next(frames)
    for frame in frames:
        yield np.frombuffer(frame, np.uint8).reshape(target.job.shape)


@of_file("ffmpegcv", needs=("ffmpegcv",))
def ffmpegcv(target: Target) -> Iterator[Frame]:
    """``VideoCapture`` for rgb24, on the FFmpeg that is first on ``PATH``."""
    import ffmpegcv

    with ffmpegcv.VideoCapture(target.path, pix_fmt="rgb24") as capture:
        while True:
            success, frame = capture.read()
            if not success:
                return
            yield frame


@of_file("opencv", needs=("cv2",), pixel_format="bgr24", own_ffmpeg=True)
def opencv(target: Target) -> Iterator[Frame]:
    """``VideoCapture.read``, which gives BGR, on the FFmpeg of its wheel."""
    import cv2

    capture = cv2.VideoCapture(target.path, cv2.CAP_FFMPEG)
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
    with import_module("av").open(target.path) as container:
        if thread_type is not None:
            container.streams.video[0].thread_type = thread_type
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


@of_file("pyav-threaded", needs=("av",), own_ffmpeg=True)
def pyav_threaded(target: Target) -> Iterator[Frame]:
    """The same with threads for frames and slices."""
    return pyav(target, thread_type="AUTO")


@of_file("decord", needs=("decord",), own_ffmpeg=True)
def decord(target: Target) -> Iterator[Frame]:
    """``VideoReader``, one frame after another: its batches are no faster."""
    import decord

    for frame in decord.VideoReader(target.path, ctx=decord.cpu(0), num_threads=0):
        yield frame.asnumpy()


@of_file("penstock", "ours")
def penstock_decoder(target: Target, pixel_format: str = "rgb24") -> Iterator[Frame]:
    """`penstock.Decoder`. It finds FFmpeg by ``PENSTOCK_FFMPEG``."""
    with Decoder(target.path, pixel_format=pixel_format) as decoder:
        yield from decoder


@of_file("penstock-bgr", "ours", pixel_format="bgr24")
def penstock_bgr(target: Target) -> Iterator[Frame]:
    """The same for bgr24."""
    return penstock_decoder(target, pixel_format="bgr24")


@of_clips("penstock.prefetch", "ours")
def penstock_prefetch(target: Target) -> Iterator[Frame]:
    """`penstock.media.prefetch`, which opens two files ahead."""
    for decoder in prefetch(clips_in(target.path)):
        yield from decoder


@of_clips("penstock-slice", "ours")
def penstock_slice(target: Target) -> Iterator[Frame]:
    """``decoder[:]`` of each file, which is decoded in this process."""
    for path in clips_in(target.path):
        with Decoder(path) as decoder:
            yield from decoder[:]


METHODS.append(Method(BOUND, "FFmpeg decodes to null", "bound", serves=("file",)))


@of_picked(PICKED_STANDARD, needs=("cv2",), own_ffmpeg=True)
def opencv_seeks(target: Target) -> Iterator[Frame]:
    """``CAP_PROP_POS_FRAMES``, ``read`` and ``cvtColor``, for each frame."""
    import cv2

    capture = cv2.VideoCapture(target.path, cv2.CAP_FFMPEG)
    for number in target.job.numbers:
        capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        yield cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
    capture.release()


@of_picked("pyav-seeks", needs=("av",), own_ffmpeg=True)
def pyav_seeks(target: Target) -> Iterator[Frame]:
    """By hand: ``seek`` to the frame's time at a constant rate, and ``decode`` up to it, with all threads."""
    with import_module("av").open(target.path) as container:
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

    reader = decord.VideoReader(target.path, ctx=decord.cpu(0), num_threads=0)
    yield from reader.get_batch(target.job.numbers).asnumpy()


@of_picked("torchcodec-batch", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_batch(target: Target) -> Iterator[Frame]:
    """``VideoDecoder.get_frames_at``, whose index is exact."""
    decoders = import_module("torchcodec.decoders")
    decoder = decoders.VideoDecoder(
        target.path, dimension_order="NHWC", num_ffmpeg_threads=0, seek_mode="exact"
    )
    yield from decoder.get_frames_at(indices=target.job.numbers).data.numpy()


@of_picked("penstock-batch", "ours")
def penstock_batch(target: Target) -> Iterator[Frame]:
    """`Decoder.batch`."""
    with Decoder(target.path) as decoder:
        yield from decoder.batch(target.job.numbers)


@of_picked("penstock-one-by-one", "ours")
def penstock_one_by_one(target: Target) -> Iterator[Frame]:
    """``decoder[number]`` for each frame, in the given order."""
    with Decoder(target.path) as decoder:
        for number in target.job.numbers:
            yield decoder[number]


@of_picked("penstock-all", "other")
def penstock_all(target: Target) -> Iterator[Frame]:
    """All frames in sequence, of which the picked ones are kept."""
    wanted = set(target.job.numbers)
    with Decoder(target.path) as decoder:
        kept = {frame.index: frame for frame in decoder if frame.index in wanted}
    for number in target.job.numbers:
        yield kept[number]


@of_pipe(PIPE_STANDARD)
def readinto(target: Target) -> Iterator[Frame]:
    """``readinto`` from a pipe of the default size."""
    with os.fdopen(target.fd, "rb") as pipe:
        yield from _read_into_one(pipe, target.job)


@of_pipe("readinto-1MiB", "other")
def readinto_large(target: Target) -> Iterator[Frame]:
    """The same from a pipe enlarged to 1 MiB."""
    target.notes["capacity_bytes"] = fcntl.fcntl(target.fd, fcntl.F_SETPIPE_SZ, LARGE_PIPE_BYTES)
    yield from readinto(target)


@of_pipe("penstock.Reader", "ours")
def penstock_reader(target: Target) -> Iterator[Frame]:
    """`penstock.Reader`, which reads ahead."""
    with os.fdopen(target.fd, "rb"), Reader(target.fd, frame_bytes=target.job.frame_bytes) as reader:
        for frame in reader:
            yield np.asarray(frame).reshape(target.job.shape)
        stats = reader.stats
    reported = ("capacity_bytes", "caller_wait_s", "input_wait_s", "output_wait_s")
    target.notes.update({name: getattr(stats, name) for name in reported})
