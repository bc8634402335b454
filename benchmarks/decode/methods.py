"""The methods: each is an iterator of arrays, and has ended what it started when it is exhausted.

Each is used as its own documentation has it, with what makes it faster where it has such a thing. An array is the
caller's until the next one is asked for; some methods give the same one again and again.

A rival is a function here and an entry of `METHODS`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import IO, Any, Literal

import numpy as np

from benchmarks.harness.ffmpeg import QUIET, check_exit
from benchmarks.harness.pictures import Frame
from benchmarks.harness.results import Method

#: x264's own defaults, said for the record; x265 gets the same.
PRESET, CRF = "medium", "23"
#: A case slower than this has hung. Guessed low, for slow machines.
SLOWEST_BYTES_PER_S = 10e6
#: About so many rows of a frame are sampled, and as many pixels of a row as lie as far apart.
SAMPLED_ROWS = 64
#: What an unprivileged process may have (pipe-max-size in proc(5)).
LARGE_PIPE_BYTES = 1 << 20

#: The method that gains are counted from, for each kind of source.
STANDARD, PIPE_STANDARD = "stdout.readinto", "readinto"
OURS, OUR_READER = "penstock", "penstock.Reader"
#: FFmpeg alone: it decodes, and nobody gets the frames.
BOUND = "decode-only"


@dataclass(frozen=True)
class Job:
    """What every method has to read."""

    name: str
    width: int
    height: int
    frames: int
    #: Of the file; None for frames that come through a pipe as they are.
    encoder: str | None

    @property
    def source(self) -> Literal["file", "pipe"]:
        """Where the frames come from."""
        return "pipe" if self.encoder is None else "file"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a frame: height × width × channels."""
        return self.height, self.width, 3

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame as it is given to the caller."""
        return self.height * self.width * 3

    @property
    def sample_step(self) -> int:
        """Rows and pixels from one that is sampled to the next."""
        return max(1, self.height // SAMPLED_ROWS)

    @property
    def title(self) -> str:
        """For people."""
        what = "from another process's write(2)" if self.encoder is None else f"of {self.encoder} {PRESET}"
        return f"{self.name}: {self.width}x{self.height} {what}, {self.frames} frames"

    @property
    def timeout_s(self) -> float:
        """After this long a case has hung. A minute is for a machine that is busy with something else."""
        return 60 + self.frames * self.frame_bytes / SLOWEST_BYTES_PER_S


@dataclass(frozen=True)
class Target:
    """What every method is asked for."""

    job: Job
    ffmpeg: str
    #: The video; of a pipe, what the feeder writes.
    path: str
    #: Where a pipe is read; the method closes it.
    fd: int = -1
    #: What the method says of itself, for the record.
    notes: dict[str, Any] = field(default_factory=dict)


Decoding = Callable[[Target], Iterator[Frame]]


def _read_into_one(file: IO[bytes], job: Job) -> Iterator[Frame]:
    frame = np.empty(job.shape, np.uint8)
    # For so much at once, a buffered file reads into the array itself.
    while file.readinto(frame.data) == frame.nbytes:  # type: ignore[attr-defined]
        yield frame


def stdout_readinto(target: Target) -> Iterator[Frame]:
    """A plain loop that makes no bytes object for each frame, and no copy of it."""
    output = ["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    command = [target.ffmpeg, *QUIET, "-i", target.path, *output]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield from _read_into_one(child.stdout, target.job)
    check_exit(child.returncode)


def imageio_ffmpeg(target: Target) -> Iterator[Frame]:
    """Its generator gives the metadata first, and then bytes."""
    import imageio_ffmpeg

    frames = imageio_ffmpeg.read_frames(target.path, pix_fmt="rgb24")
    next(frames)
    for frame in frames:
        yield np.frombuffer(frame, np.uint8).reshape(target.job.shape)


def ffmpegcv(target: Target) -> Iterator[Frame]:
    """It takes the FFmpeg that is first on ``PATH``."""
    import ffmpegcv

    with ffmpegcv.VideoCapture(target.path, pix_fmt="rgb24") as capture:
        while True:
            there, frame = capture.read()
            if not there:
                return
            yield frame


def opencv(target: Target) -> Iterator[Frame]:
    """VideoCapture, on the FFmpeg that its wheel brings."""
    import cv2

    capture = cv2.VideoCapture(target.path, cv2.CAP_FFMPEG)
    # Given an array, read fills it, and allocates none.
    frame = np.empty(target.job.shape, np.uint8)
    while capture.read(frame)[0]:
        yield frame
    capture.release()


def opencv_rgb(target: Target) -> Iterator[Frame]:
    """The same, converted to RGB."""
    import cv2

    rgb = np.empty(target.job.shape, np.uint8)
    for frame in opencv(target):
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB, dst=rgb)


def pyav(target: Target, thread_type: str | None = None) -> Iterator[Frame]:
    """PyAV as its documentation begins, or with threads as it has them for speed."""
    with import_module("av").open(target.path) as container:
        if thread_type is not None:
            container.streams.video[0].thread_type = thread_type
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


def decord(target: Target) -> Iterator[Frame]:
    """One after another: its batches are no faster."""
    import decord

    for frame in decord.VideoReader(target.path, ctx=decord.cpu(0), num_threads=0):
        yield frame.asnumpy()


def penstock_decoder(target: Target, pixel_format: str = "rgb24") -> Iterator[Frame]:
    """Ours. It finds FFmpeg by ``PENSTOCK_FFMPEG``."""
    from penstock import Decoder

    with Decoder(target.path, pixel_format=pixel_format) as decoder:
        yield from decoder


def readinto(target: Target) -> Iterator[Frame]:
    """A pipe of the default size."""
    with os.fdopen(target.fd, "rb") as pipe:
        yield from _read_into_one(pipe, target.job)


def readinto_large(target: Target) -> Iterator[Frame]:
    """A pipe enlarged to 1 MiB."""
    target.notes["capacity_bytes"] = fcntl.fcntl(target.fd, fcntl.F_SETPIPE_SZ, LARGE_PIPE_BYTES)
    yield from readinto(target)


def penstock_reader(target: Target) -> Iterator[Frame]:
    """Ours, which reads ahead."""
    from penstock import Reader

    with os.fdopen(target.fd, "rb"), Reader(target.fd, frame_bytes=target.job.frame_bytes) as reader:
        for frame in reader:
            yield np.asarray(frame).reshape(target.job.shape)
        stats = reader.stats
    times = ("capacity_bytes", "caller_wait_s", "input_wait_s", "output_wait_s")
    target.notes.update({name: getattr(stats, name) for name in times})


def _of_file(name: str, summary: str, decoding: Decoding, *needs: str, **more: Any) -> Method:
    return Method(name, summary, more.pop("kind", "rival"), decoding, needs, is_file, **more)


def is_file(job: Job) -> bool:
    """Of jobs that a decoder can do."""
    return job.source == "file"


def is_pipe(job: Job) -> bool:
    """Of jobs that a reader can do."""
    return job.source == "pipe"


METHODS = (
    _of_file(STANDARD, "FFmpeg's rawvideo, by readinto into one array", stdout_readinto),
    _of_file("imageio-ffmpeg", "read_frames, and np.frombuffer", imageio_ffmpeg, "imageio_ffmpeg"),
    _of_file("ffmpegcv", "VideoCapture, for rgb24", ffmpegcv, "ffmpegcv"),
    _of_file(
        "opencv", "VideoCapture.read, which gives BGR", opencv, "cv2", pixel_format="bgr24", own_ffmpeg=True
    ),
    _of_file("opencv-rgb", "the same, and cvtColor", opencv_rgb, "cv2", own_ffmpeg=True),
    _of_file("pyav", "decode, and to_ndarray", pyav, "av", own_ffmpeg=True),
    _of_file(
        "pyav-threaded",
        "the same with threads for frames and slices",
        partial(pyav, thread_type="AUTO"),
        "av",
        own_ffmpeg=True,
    ),
    _of_file("decord", "VideoReader, one frame after another", decord, "decord", own_ffmpeg=True),
    _of_file(OURS, "penstock.Decoder", penstock_decoder, "penstock", kind="ours"),
    _of_file(
        "penstock-bgr",
        "the same for bgr24",
        partial(penstock_decoder, pixel_format="bgr24"),
        "penstock",
        kind="ours",
        pixel_format="bgr24",
    ),
    Method(BOUND, "FFmpeg decodes to null", "bound", serves=is_file),
    Method(PIPE_STANDARD, "readinto from a pipe of the default size", "rival", readinto, serves=is_pipe),
    Method("readinto-1MiB", "the same from a pipe of 1 MiB", "other", readinto_large, serves=is_pipe),
    Method(OUR_READER, "its frames, one after another", "ours", penstock_reader, ("penstock",), is_pipe),
)
