"""The methods: each takes frames from the same loop and makes the same video of them.

Each is used as its own documentation shows, with the options that make it faster. All get the same codec, preset,
quality, pixel format and frame rate. All convert by BT.601 and a bicubic filter or a mean, so that the encoder has the
same work: that is FFmpeg's default.

To add a rival, write a function ``(target) -> Sender`` here, and decorate it with ``@METHODS.add(NAME)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import IO, Any, Literal, TypeAlias

from benchmarks.harness import senders
from benchmarks.harness.content import Content, Frame
from benchmarks.harness.ffmpeg import check_exit, raw_input, start
from benchmarks.harness.isolated import Task
from benchmarks.harness.methods import FrameJob, Method, Methods
from benchmarks.harness.senders import Sender
from penstock import Encoder
from penstock.ffmpeg import Colors, Tuning

CODEC = "libx264"
OUTPUT_PIXEL_FORMAT = "yuv420p"
FRAMES_PER_S = 30
#: x264's own default, for libraries that have another one.
CRF = "23"
#: What all others make. Our default is BT.709 from 720 lines on.
COLORS = Colors(matrix="bt601")

#: Gains are ratios to this method.
STANDARD = "stdin.write"

#: These fields of our stats go into the record.
TIMES = ("caller_wait_s", "output_wait_s", "input_wait_s", "converting_s")


@dataclass(frozen=True)
class Job(FrameJob):
    """The video that every method has to make."""

    preset: str
    content: Content
    #: Frames come no faster than this; None for as fast as the method takes them.
    paced_fps: int | None = None

    @property
    def kind(self) -> Literal["paced", "flat out"]:
        return "paced" if self.paced_fps else "flat out"

    @property
    def title(self) -> str:
        pace = f", paced at {self.paced_fps} fps" if self.paced_fps else ""
        what = f"{self.width}x{self.height} {self.content} to x264 {self.preset}"
        return f"{self.name}: {what}{pace}, {self.frames} frames"

    @property
    def timeout_s(self) -> float:
        return super().timeout_s + (self.frames / self.paced_fps if self.paced_fps else 0)

    @property
    def about(self) -> dict[str, Any]:
        return super().about | {"codec": CODEC, "output_pixel_format": OUTPUT_PIXEL_FORMAT}


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
    stdin, sender = child.stdin, fill(child.stdin)

    def finish() -> None:
        sender.finish()
        stdin.close()
        check_exit(child.wait())

    return Sender(sender.write, finish, sender.notes)


METHODS = Methods()


@METHODS.add(STANDARD)
def stdin_write(target: Target) -> Sender:
    """``stdin.write(frame.tobytes())`` into FFmpeg."""
    return into_ffmpeg(target, senders.stdin_write)


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
    return Sender(partial(writer.write, rgb_mode=True), writer.close)


@METHODS.add("turbopipe", needs=("turbopipe",))
def turbopipe(target: Target) -> Sender:
    """TurboPipe into FFmpeg, with ``sync`` before a buffer is used again."""
    return into_ffmpeg(target, senders.turbopipe)


def pyav_frames(container: Any, size: tuple[int, int], preset: str) -> Callable[[Frame | None], None]:
    """A stream of video in a container of PyAV's: a function that encodes a frame, and for None what is left.

    Threads as in the ``ffmpeg`` program: as many as x264 wants, one per frame (PyAV's default is slices), and for the
    conversion. The conversion is bicubic, as FFmpeg's own: PyAV's ``encode`` has a bilinear filter, which takes
    colour from small text.
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


@METHODS.add("penstock", "ours")
def penstock_encoder(
    target: Target, borrows: bool = False, convert: Literal["auto", "ffmpeg"] = "auto"
) -> Sender:
    """`penstock.Encoder.write`, which takes the frame."""
    encoder = Encoder(
        target.output,
        size=target.job.size,
        fps=FRAMES_PER_S,
        codec=CODEC,
        options={"preset": target.job.preset},
        output_pixel_format=OUTPUT_PIXEL_FORMAT,
        colors=COLORS,
        tuning=Tuning(convert=convert, ffmpeg=target.ffmpeg),
    )

    def notes() -> dict[str, object]:
        stats = encoder.stats
        assert stats.writer is not None
        return {
            "converted_by": encoder.converted_by,
            "transport": stats.writer.transport,
            "reason": stats.writer.reason,
            "bottleneck": encoder.bottleneck,
            **{name: getattr(stats, name) for name in TIMES},
        }

    def submit(frame: Frame) -> object:
        return encoder.submit(frame).wait

    return Sender(submit if borrows else encoder.write, encoder.close, notes)


@METHODS.add("penstock-submit", "ours")
def penstock_submit(target: Target) -> Sender:
    """`penstock.Encoder.submit`, which borrows the array until its ticket is done."""
    return penstock_encoder(target, borrows=True)


@METHODS.add("penstock-ffmpeg", "ours")
def penstock_ffmpeg(target: Target) -> Sender:
    """`penstock.Encoder` with ``convert="ffmpeg"``."""
    return penstock_encoder(target, convert="ffmpeg")


# As fast as FFmpeg can. The first has nothing to convert.
METHODS += [
    Method(
        "tmpfs-yuv420p",
        "FFmpeg reads yuv420p from memory",
        "bound",
        serves=("flat out",),
        pixel_format="yuv420p",
    ),
    Method("tmpfs-rgb24", "the same with rgb24, which FFmpeg has to convert", "bound", serves=("flat out",)),
]
