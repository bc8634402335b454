"""The methods under test: each is an iterator of arrays, and has ended what it started when it is exhausted.

Each is used as its own documentation has it, with what makes it faster where it has such a thing. An array is the
caller's until the next one is asked for; some methods give the same one again and again.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from penstock.bench.decode.cases import OUR_READER, OURS, PIPE_STANDARD, STANDARD, Job, Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Frame = NDArray[np.uint8]

#: What an unprivileged process may have (pipe-max-size in proc(5)).
LARGE_PIPE_BYTES = 1 << 20
#: Of our own stats.
TIMES = ("caller_blocked_s", "worker_blocked_s", "worker_full_s")


@dataclass(frozen=True)
class Target:
    """What every method is asked for."""

    job: Job
    ffmpeg: str
    #: The video; of a pipe, what the feeder writes.
    path: str
    pixel_format: str = "rgb24"
    #: Where a pipe is read; the method closes it.
    fd: int = -1
    #: What the method says of itself, for the record.
    notes: dict[str, object] = field(default_factory=dict)


Decoding = Callable[[Target], Iterator["Frame"]]


def ffmpeg_command(ffmpeg: str, path: str, *output: str) -> list[str]:
    """FFmpeg's command line to read the file."""
    return [ffmpeg, "-hide_banner", "-loglevel", "error", "-nostats", "-i", path, *output]


def check_exit(returncode: int) -> None:
    """Raise if FFmpeg failed: what it said is on our standard error."""
    if returncode != 0:
        raise RuntimeError(f"FFmpeg exited with {returncode}")


def _read_into_one(file: IO[bytes], job: Job) -> Iterator[Frame]:
    import numpy as np

    frame = np.empty(job.shape, np.uint8)
    # For so much at once, a buffered file reads into the array itself.
    while file.readinto(frame.data) == frame.nbytes:  # type: ignore[attr-defined]
        yield frame


def stdout_readinto(target: Target) -> Iterator[Frame]:
    """What the careful do by themselves: no bytes object for each frame, and no copy of it."""
    command = ffmpeg_command(target.ffmpeg, target.path, "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield from _read_into_one(child.stdout, target.job)
    check_exit(child.returncode)


def imageio_ffmpeg(target: Target) -> Iterator[Frame]:
    """Its generator gives the metadata first, and then bytes."""
    import imageio_ffmpeg
    import numpy as np

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
    import numpy as np

    capture = cv2.VideoCapture(target.path, cv2.CAP_FFMPEG)
    # Given an array, read fills it, and allocates none.
    frame = np.empty(target.job.shape, np.uint8)
    while capture.read(frame)[0]:
        yield frame
    capture.release()


def opencv_rgb(target: Target) -> Iterator[Frame]:
    """The caller wants RGB."""
    import cv2
    import numpy as np

    rgb = np.empty(target.job.shape, np.uint8)
    for frame in opencv(target):
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB, dst=rgb)


def pyav(target: Target, thread_type: str | None = None) -> Iterator[Frame]:
    """PyAV as its documentation begins."""
    import av

    with av.open(target.path) as container:
        if thread_type is not None:
            container.streams.video[0].thread_type = thread_type
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


def pyav_threaded(target: Target) -> Iterator[Frame]:
    """PyAV as its documentation has it for speed."""
    return pyav(target, "AUTO")


def decord(target: Target) -> Iterator[Frame]:
    """One after another: its batches are no faster."""
    import decord

    for frame in decord.VideoReader(target.path, ctx=decord.cpu(0), num_threads=0):
        yield frame.asnumpy()


def penstock_decoder(target: Target) -> Iterator[Frame]:
    """Our own. It finds the FFmpeg by ``PENSTOCK_FFMPEG``."""
    from penstock import Decoder

    with Decoder(target.path, pixel_format=target.pixel_format) as decoder:
        yield from decoder


def readinto(target: Target) -> Iterator[Frame]:
    """A pipe of the size that it was born with."""
    with os.fdopen(target.fd, "rb") as pipe:
        yield from _read_into_one(pipe, target.job)


def readinto_large(target: Target) -> Iterator[Frame]:
    """A pipe that somebody has thought of enlarging."""
    target.notes["capacity_bytes"] = fcntl.fcntl(target.fd, fcntl.F_SETPIPE_SZ, LARGE_PIPE_BYTES)
    yield from readinto(target)


def penstock_reader(target: Target) -> Iterator[Frame]:
    """Our own, which reads ahead."""
    import numpy as np

    from penstock import Reader

    with os.fdopen(target.fd, "rb"), Reader(target.fd, frame_bytes=target.job.frame_bytes) as reader:
        for frame in reader:
            yield np.asarray(frame).reshape(target.job.shape)
        stats = reader.stats
    target.notes.update({name: getattr(stats, name) for name in ("capacity_bytes", *TIMES)})


_METHODS: dict[str, Any] = {
    STANDARD: stdout_readinto,
    "imageio-ffmpeg": imageio_ffmpeg,
    "ffmpegcv": ffmpegcv,
    "opencv": opencv,
    "opencv-rgb": opencv_rgb,
    "pyav": pyav,
    "pyav-threaded": pyav_threaded,
    "decord": decord,
    OURS: penstock_decoder,
    "penstock-bgr": penstock_decoder,
    PIPE_STANDARD: readinto,
    "readinto-1MiB": readinto_large,
    OUR_READER: penstock_reader,
}


def decoding_of(method: Method) -> Decoding:
    """What gives the method's frames."""
    decoding: Decoding = _METHODS[method.name]
    return decoding
