"""The methods: each takes frames from the same loop, and makes the same video of them.

Each is used as its own documentation has it, with what makes it faster where it has such a thing. None gets more
than codec, preset, quality, pixel format and frame rate, which are the same for all.

A rival is a function here and an entry of `METHODS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import IO, Literal

from benchmarks.harness.ffmpeg import check_exit, raw_input, start
from benchmarks.harness.pictures import Content, Frame
from benchmarks.harness.results import Method
from benchmarks.harness.senders import Sender, StdinWrite, TicketSender, TurboPipe

CODEC = "libx264"
OUTPUT_PIXEL_FORMAT = "yuv420p"
FRAMES_PER_S = 30
#: x264's own default, said to those that would take another one.
CRF = "23"

#: The method that gains are counted from.
STANDARD = "stdin.write"
OURS, SUBMIT = "penstock", "penstock-submit"
#: FFmpeg alone, with nothing to convert and no pipe to read.
BOUND = "tmpfs-yuv420p"

#: A case slower than this has hung. Guessed low, for slow machines.
SLOWEST_BYTES_PER_S = 10e6
#: Of our own stats.
TIMES = ("queue_blocked_s", "ffmpeg_blocked_s", "caller_idle_s", "converting_s")


@dataclass(frozen=True)
class Job:
    """What every method has to encode."""

    name: str
    width: int
    height: int
    preset: str
    content: Content
    frames: int
    #: Frames come no faster than this; None for as fast as the method takes them.
    paced_fps: int | None = None

    @property
    def title(self) -> str:
        """For people."""
        pace = f", paced at {self.paced_fps} fps" if self.paced_fps else ""
        what = f"{self.width}x{self.height} {self.content} to x264 {self.preset}"
        return f"{self.name}: {what}{pace}, {self.frames} frames"

    @property
    def timeout_s(self) -> float:
        """After this long a case has hung. A minute is for a machine that is busy with something else."""
        paced_s = self.frames / self.paced_fps if self.paced_fps else 0
        return 60 + paced_s + self.frames * self.width * self.height * 3 / SLOWEST_BYTES_PER_S


@dataclass(frozen=True)
class Target:
    """What every method is asked for."""

    job: Job
    ffmpeg: str
    output: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.job.width, self.job.height


def ffmpeg_arguments(target: Target, pixel_format: str, source: str = "-") -> list[str]:
    """FFmpeg's arguments for raw frames from `source`."""
    read = raw_input(*target.size, pixel_format, FRAMES_PER_S, source)
    encode = ["-c:v", CODEC, "-preset", target.job.preset, "-pix_fmt", OUTPUT_PIXEL_FORMAT]
    return ["-y", *read, *encode, target.output]


class IntoFFmpeg(Sender):
    """A way to fill a pipe, and the FFmpeg that reads it."""

    def __init__(
        self, target: Target, frames: Sequence[Frame], fill: Callable[[IO[bytes], Sequence[Frame]], Sender]
    ) -> None:
        super().__init__(frames)
        self.child = start(target.ffmpeg, *ffmpeg_arguments(target, "rgb24"))
        assert self.child.stdin is not None
        self.stdin = self.child.stdin
        self.filling = fill(self.stdin, frames)

    def wait_until_free(self, index: int) -> None:
        self.filling.wait_until_free(index)

    def send(self, index: int) -> None:
        self.filling.send(index)

    def finish(self) -> None:
        self.filling.finish()
        self.stdin.close()
        check_exit(self.child.wait())


class Library(Sender):
    """A library's writer: a call for each frame, and one that completes the file."""

    def __init__(
        self, frames: Sequence[Frame], write: Callable[[Frame], object], close: Callable[[], object]
    ) -> None:
        super().__init__(frames)
        self.write, self.close = write, close

    def send(self, index: int) -> None:
        self.write(self.frames[index])

    def finish(self) -> None:
        self.close()


def imageio_ffmpeg(target: Target, frames: Sequence[Frame]) -> Sender:
    """Its generator writes the array itself; its own idea of quality and of block sizes is switched off."""
    import imageio_ffmpeg

    writer = imageio_ffmpeg.write_frames(
        target.output,
        target.size,
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
    return Library(frames, writer.send, writer.close)


def moviepy(target: Target, frames: Sequence[Frame]) -> Sender:
    """What moviepy's ``write_videofile`` writes with."""
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    preset = target.job.preset
    writer = FFMPEG_VideoWriter(target.output, target.size, FRAMES_PER_S, codec=CODEC, preset=preset)
    return Library(frames, writer.write_frame, writer.close)


def vidgear(target: Target, frames: Sequence[Frame]) -> Sender:
    """WriteGear; x264's own quality must be asked for, because it has another default."""
    from vidgear.gears import WriteGear

    options = {
        "-vcodec": CODEC,
        "-preset": target.job.preset,
        "-crf": CRF,
        "-pix_fmt": OUTPUT_PIXEL_FORMAT,
        "-input_framerate": FRAMES_PER_S,
    }
    writer = WriteGear(
        output=target.output, compression_mode=True, custom_ffmpeg=target.ffmpeg, logging=False, **options
    )
    return Library(frames, partial(writer.write, rgb_mode=True), writer.close)


def pyav(target: Target, frames: Sequence[Frame]) -> Sender:
    """Threads as the ``ffmpeg`` program has them: as many as x264 wants, each for a frame. (PyAV's default is slices.)

    A frame lies on the array's memory, and is converted into another one before ``encode`` returns.
    """
    av = import_module("av")
    container = av.open(target.output, "w")
    stream = container.add_stream(CODEC, rate=FRAMES_PER_S, options={"preset": target.job.preset, "crf": CRF})
    stream.width, stream.height = target.size
    stream.pix_fmt = OUTPUT_PIXEL_FORMAT
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = 0  # automatic, of the conversion too
    times = itertools.count()

    def write(array: Frame) -> None:
        frame = av.VideoFrame.from_numpy_buffer(array, format="rgb24")
        frame.pts = next(times)
        container.mux(stream.encode(frame))

    def close() -> None:
        container.mux(stream.encode(None))
        container.close()

    return Library(frames, write, close)


def opencv(target: Target, frames: Sequence[Frame]) -> Sender:
    """VideoWriter, for which the frames are bgr24 from the start."""
    import cv2

    codec = cv2.VideoWriter.fourcc(*"mp4v")
    writer = cv2.VideoWriter(target.output, cv2.CAP_FFMPEG, codec, FRAMES_PER_S, target.size)
    if not writer.isOpened():
        raise RuntimeError("VideoWriter could not open the file")
    return Library(frames, writer.write, writer.release)


class PenstockEncoder(TicketSender):
    """Ours. With ``borrows`` the arrays are submitted, and used again when their tickets are done."""

    def __init__(
        self,
        target: Target,
        frames: Sequence[Frame],
        convert: Literal["auto", "ffmpeg"] = "auto",
        borrows: bool = False,
    ) -> None:
        import penstock

        super().__init__(frames)
        self.borrows = borrows
        self.encoder = penstock.Encoder(
            target.output,
            size=target.size,
            fps=FRAMES_PER_S,
            codec=CODEC,
            options={"preset": target.job.preset},
            output_pixel_format=OUTPUT_PIXEL_FORMAT,
            convert=convert,
            ffmpeg=target.ffmpeg,
        )

    def send(self, index: int) -> None:
        if self.borrows:
            self.tickets[index] = self.encoder.submit(self.frames[index])
        else:
            self.encoder.write(self.frames[index])

    def finish(self) -> None:
        self.encoder.close()

    def notes(self) -> dict[str, object]:
        stats = self.encoder.stats
        return {
            "converted_by": self.encoder.converted_by,
            "transport": stats.writer.transport,
            "reason": stats.writer.reason,
            "bottleneck": self.encoder.bottleneck,
            **{name: getattr(stats, name) for name in TIMES},
        }


def is_flat_out(job: Job) -> bool:
    """Of jobs that FFmpeg alone can do: it has no pace."""
    return job.paced_fps is None


METHODS = (
    Method(
        STANDARD, "stdin.write(frame.tobytes()) into FFmpeg", "rival", partial(IntoFFmpeg, fill=StdinWrite)
    ),
    Method(
        "imageio-ffmpeg", "write_frames, given the array itself", "rival", imageio_ffmpeg, ("imageio_ffmpeg",)
    ),
    Method("moviepy", "FFMPEG_VideoWriter", "rival", moviepy, ("moviepy.video.io.ffmpeg_writer",)),
    Method("vidgear", "WriteGear in compression mode", "rival", vidgear, ("vidgear.gears", "cv2")),
    Method(
        "turbopipe",
        "TurboPipe, with sync before a buffer is used again",
        "rival",
        partial(IntoFFmpeg, fill=TurboPipe),
        ("turbopipe",),
    ),
    Method(
        "pyav",
        "frames on the arrays' own memory, threads for the conversion and the codec",
        "rival",
        pyav,
        ("av",),
        own_ffmpeg=True,
    ),
    Method(
        "opencv",
        "VideoWriter; its wheels encode no H.264, so that this is MPEG-4 Part 2",
        "other",
        opencv,
        ("cv2",),
        pixel_format="bgr24",
        own_ffmpeg=True,
    ),
    Method(OURS, "penstock.Encoder, write: the call takes the frame", "ours", PenstockEncoder),
    Method(
        SUBMIT,
        "penstock.Encoder, submit: the arrays are lent, and painted again when their tickets are done",
        "ours",
        partial(PenstockEncoder, borrows=True),
    ),
    Method(
        "penstock-ffmpeg",
        'penstock.Encoder with convert="ffmpeg"',
        "ours",
        partial(PenstockEncoder, convert="ffmpeg"),
    ),
    Method(BOUND, "FFmpeg reads yuv420p from memory", "bound", serves=is_flat_out, pixel_format="yuv420p"),
    Method("tmpfs-rgb24", "the same with rgb24, which FFmpeg has to convert", "bound", serves=is_flat_out),
)
