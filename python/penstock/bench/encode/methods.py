"""The methods under test: each takes frames from the same loop, and makes the same video of them.

Each is used as its own documentation has it, with what makes it faster where it has such a thing. None gets more
than codec, preset, quality, pixel format and frame rate, which are the same for all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from penstock.bench.encode.cases import CODEC, CRF, FRAMES_PER_S, OUTPUT_PIXEL_FORMAT, STANDARD, Job, Method

if TYPE_CHECKING:
    from penstock.bench.frames import Frame

#: Of our own stats.
TIMES = ("queue_blocked_s", "ffmpeg_blocked_s", "caller_idle_s", "converting_s")


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


class Sender(Protocol):
    """Sends frames to an encoder, one buffer at a time."""

    def wait_until_free(self, index: int) -> None:
        """Return when buffer ``index`` may be overwritten."""

    def send(self, index: int) -> None:
        """Hand over buffer ``index``."""

    def finish(self) -> None:
        """Return when the file is complete, or raise what went wrong."""

    def notes(self) -> dict[str, object]:
        """What the method says of itself, for the record."""


class _Copying:
    """What has a buffer's bytes when ``send`` returns."""

    def wait_until_free(self, index: int) -> None:
        """At once."""

    def notes(self) -> dict[str, object]:
        return {}


def ffmpeg_command(target: Target, source: str, pixel_format: str) -> list[str]:
    """FFmpeg's command line for raw frames from `source`."""
    read = ["-f", "rawvideo", "-pix_fmt", pixel_format, "-s", "{}x{}".format(*target.size)]
    read += ["-r", str(FRAMES_PER_S), "-i", source]
    encode = ["-c:v", CODEC, "-preset", target.job.preset, "-pix_fmt", OUTPUT_PIXEL_FORMAT]
    return [
        target.ffmpeg,
        "-hide_banner",
        "-loglevel",
        "error",
        "-nostats",
        "-y",
        *read,
        *encode,
        target.output,
    ]


def check_exit(returncode: int) -> None:
    """Raise if FFmpeg failed: what it said is on our standard error."""
    if returncode != 0:
        raise RuntimeError(f"FFmpeg exited with {returncode}")


class _FFmpegChild:
    """An FFmpeg that reads its standard input."""

    def __init__(self, target: Target) -> None:
        command = ffmpeg_command(target, "-", "rgb24")
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    @property
    def stdin(self) -> IO[bytes]:
        assert self.child.stdin is not None
        return self.child.stdin

    def end(self) -> None:
        self.stdin.close()
        check_exit(self.child.wait())


class StdinWrite(_Copying):
    """What most programs do."""

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        self.frames = frames
        self.ffmpeg = _FFmpegChild(target)

    def send(self, index: int) -> None:
        self.ffmpeg.stdin.write(self.frames[index].tobytes())

    def finish(self) -> None:
        self.ffmpeg.end()


class TurboPipe:
    """TurboPipe 2, as its README has it: sync a buffer before it is filled again."""

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        import turbopipe

        self.turbopipe = turbopipe
        self.frames = frames
        self.ffmpeg = _FFmpegChild(target)
        self.fd = self.ffmpeg.stdin.fileno()

    def wait_until_free(self, index: int) -> None:
        self.turbopipe.sync(self.frames[index])

    def send(self, index: int) -> None:
        self.turbopipe.pipe(self.frames[index], self.fd)

    def finish(self) -> None:
        for frame in self.frames:
            self.turbopipe.sync(frame)
            self.turbopipe.done(frame)
        self.ffmpeg.end()

    def notes(self) -> dict[str, object]:
        return {}


class ImageioFFmpeg(_Copying):
    """Its generator writes the array itself; its own idea of quality and of block sizes is switched off."""

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        import imageio_ffmpeg

        self.frames = frames
        self.writer = imageio_ffmpeg.write_frames(
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
        self.writer.send(None)

    def send(self, index: int) -> None:
        self.writer.send(self.frames[index])

    def finish(self) -> None:
        self.writer.close()


class MoviePy(_Copying):
    """What moviepy's ``write_videofile`` writes with."""

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

        self.frames = frames
        preset = target.job.preset
        self.writer = FFMPEG_VideoWriter(target.output, target.size, FRAMES_PER_S, codec=CODEC, preset=preset)

    def send(self, index: int) -> None:
        self.writer.write_frame(self.frames[index])

    def finish(self) -> None:
        self.writer.close()


class VidGear(_Copying):
    """WriteGear; x264's own quality must be asked for, for it has another default."""

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        from vidgear.gears import WriteGear

        self.frames = frames
        options = {
            "-vcodec": CODEC,
            "-preset": target.job.preset,
            "-crf": CRF,
            "-pix_fmt": OUTPUT_PIXEL_FORMAT,
            "-input_framerate": FRAMES_PER_S,
        }
        self.writer = WriteGear(
            output=target.output, compression_mode=True, custom_ffmpeg=target.ffmpeg, logging=False, **options
        )

    def send(self, index: int) -> None:
        self.writer.write(self.frames[index], rgb_mode=True)

    def finish(self) -> None:
        self.writer.close()


class PyAV(_Copying):
    """Threads as the ``ffmpeg`` program has them: as many as x264 wants, each for a frame. (PyAV's default is slices.)

    A frame lies on the array's memory, and is converted into another one before ``encode`` returns.
    """

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        import av

        self.frames, self.count = frames, 0
        self.frame_on = av.VideoFrame.from_numpy_buffer
        self.container = av.open(target.output, "w")
        self.stream = self.container.add_stream(
            CODEC, rate=FRAMES_PER_S, options={"preset": target.job.preset, "crf": CRF}
        )
        self.stream.width, self.stream.height = target.size
        self.stream.pix_fmt = OUTPUT_PIXEL_FORMAT
        self.stream.thread_type = "AUTO"
        self.stream.codec_context.thread_count = 0  # automatic, of the conversion too

    def send(self, index: int) -> None:
        frame = self.frame_on(self.frames[index], format="rgb24")
        frame.pts, self.count = self.count, self.count + 1
        self.container.mux(self.stream.encode(frame))

    def finish(self) -> None:
        self.container.mux(self.stream.encode(None))
        self.container.close()


class OpenCV(_Copying):
    """VideoWriter, for which the frames are bgr24 from the start."""

    def __init__(self, target: Target, frames: Sequence[Frame]) -> None:
        import cv2

        self.frames = frames
        codec = cv2.VideoWriter.fourcc(*"mp4v")
        self.writer = cv2.VideoWriter(target.output, cv2.CAP_FFMPEG, codec, FRAMES_PER_S, target.size)
        if not self.writer.isOpened():
            raise RuntimeError("VideoWriter could not open the file")

    def send(self, index: int) -> None:
        self.writer.write(self.frames[index])

    def finish(self) -> None:
        self.writer.release()


class PenstockEncoder:
    """Our own."""

    def __init__(self, target: Target, frames: Sequence[Frame], method: Method) -> None:
        import penstock

        self.frames = frames
        self.borrows = method.borrows
        self.tickets: list[penstock.results.Ticket | None] = [None] * len(frames)
        self.encoder = penstock.Encoder(
            target.output,
            size=target.size,
            fps=FRAMES_PER_S,
            codec=CODEC,
            options={"preset": target.job.preset},
            output_pixel_format=OUTPUT_PIXEL_FORMAT,
            convert=method.convert,
            ffmpeg=target.ffmpeg,
        )

    def wait_until_free(self, index: int) -> None:
        ticket = self.tickets[index]
        if ticket is not None:
            ticket.wait()

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


_OTHERS: dict[str, Any] = {
    STANDARD: StdinWrite,
    "turbopipe": TurboPipe,
    "imageio-ffmpeg": ImageioFFmpeg,
    "moviepy": MoviePy,
    "vidgear": VidGear,
    "pyav": PyAV,
    "opencv": OpenCV,
}


def make_sender(method: Method, target: Target, frames: Sequence[Frame]) -> Sender:
    """The sender of a method, ready for its first frame."""
    if method.kind == "ours":
        return PenstockEncoder(target, frames, method)
    sender: Sender = _OTHERS[method.name](target, frames)
    return sender
