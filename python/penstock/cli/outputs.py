"""Where ``penstock decode`` delivers frames: raw through a descriptor, or as image files, which an FFmpeg encodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from penstock import Writer
from penstock.cli.endpoints import FIFO_PREFIX, STANDARD, End, show_name
from penstock.cli.messages import in_one_line, told
from penstock.cli.progress import CANCEL_S
from penstock.cli.signals import Stopped
from penstock.errors import PenstockError
from penstock.ffmpeg import Decoder, Encoder
from penstock.ffmpeg.encoder import STUCK_S
from penstock.ffmpeg.pixels import is_gray, is_rgb
from penstock.images import NUMBER, has_image_name

#: FFmpeg's encoders of images, by the ends of their names.
CODECS = {
    **dict.fromkeys((".jpeg", ".jpg"), "mjpeg"),
    **dict.fromkeys((".tif", ".tiff"), "tiff"),
    **{suffix: suffix[1:] for suffix in (".bmp", ".pam", ".png", ".ppm", ".qoi", ".sgi")},
    ".jp2": "jpeg2000",
    ".jxl": "libjxl",
    ".tga": "targa",
    ".webp": "libwebp",
}
#: Ends of the names of videos, which a name too many on the command line would have overwritten with raw frames.
VIDEO_SUFFIXES = (
    *(".avi", ".flv", ".gif", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4"),
    *(".mpeg", ".mpg", ".mxf", ".nut", ".ogv", ".ts", ".webm", ".y4m"),
)
#: The best that FFmpeg advises for JPEG; without a word it aims at the rate of a small video.
JPEG_QUALITY = {"q:v": "2"}
#: Images have no rate, and FFmpeg wants one.
ANY_RATE = 25
#: Frames that wait for who takes them, beside those that the decoder has read ahead. Chosen: it goes on while one is
#: written.
QUEUE_FRAMES = 4


class Output(Protocol):
    """Where frames go."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def frames(self) -> int:
        """How many were delivered whole."""

    @property
    def output_bytes(self) -> int | None:
        """What came of them so far; None if that is not known."""

    def write(self, frame: Any) -> None:
        """Queues a frame, which is kept and not copied; waits while the queue is full.

        Raises:
            click.ClickException: it cannot be delivered.
            Stopped: nobody reads standard output any more.
        """

    def finish(self) -> None:
        """Delivers what is queued. Raises as `write`."""

    def stop(self) -> bool:
        """Delivers what is queued if that is soon done, and ends. Tells whether all of it was."""


class RawOutput:
    """Frames one after another, with nothing between them, to a descriptor.

    Args:
        end: where to.
        frame_bytes: size of a frame.
        is_standard: it is standard output, which ends us in silence if nobody reads it any more.
    """

    def __init__(self, end: End, frame_bytes: int, *, is_standard: bool) -> None:
        self.title = end.title
        self._frame_bytes = frame_bytes
        self._is_standard = is_standard
        with self._told():
            self._writer = Writer(end.fd, queue_items=QUEUE_FRAMES)

    @property
    def frames(self) -> int:
        return self.output_bytes // self._frame_bytes

    @property
    def output_bytes(self) -> int:
        return self._writer.stats.bytes_delivered

    def write(self, frame: Any) -> None:
        with self._told():
            self._writer.write(frame)

    def finish(self) -> None:
        with self._told():
            self._writer.close()

    def stop(self) -> bool:
        try:
            self._writer.close(CANCEL_S)
        except (PenstockError, OSError):  # it took too long, or has failed
            self._writer.abort()
            return False
        return True

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            frames = f"; frames delivered: {self.frames}"
            raise _failure(error, self.title, frames, is_standard=self._is_standard) from None


class Times:
    """A line for each frame: its number, its timestamp, and its time in seconds.

    Args:
        end: where to.
        is_standard: as for `RawOutput`.

    Raises:
        click.ClickException: they cannot be written.
        Stopped: nobody reads standard output any more.
    """

    def __init__(self, end: End, *, is_standard: bool) -> None:
        self._end = end
        self._is_standard = is_standard
        self._put("index,pts,time")

    def write(self, frame: Any) -> None:
        """Writes the line of a `VideoFrame`. Raises as the class."""
        pts, time_s = ("" if value is None else str(value) for value in (frame.pts, frame.time))
        self._put(f"{frame.index},{pts},{time_s}")

    def _put(self, line: str) -> None:
        data = f"{line}\n".encode()
        try:
            while data:
                data = data[os.write(self._end.fd, data) :]
        except OSError as error:
            raise _failure(error, self._end.title, is_standard=self._is_standard) from None


def _failure(error: OSError, title: str, how_far: str = "", *, is_standard: bool) -> BaseException:
    """What ends the command when something cannot be written to an end of that title."""
    if not isinstance(error, BrokenPipeError):
        return click.ClickException(f"{title}: {error.strerror or error}{how_far}")
    if is_standard:
        return Stopped(signal.SIGPIPE)
    return click.ClickException(f"{title}: its reader went away{how_far}")


class ImageOutput:
    """Each frame as an image file, by an FFmpeg of its own.

    Args:
        path: its name has one number such as ``%05d``, and its folder is made if it is missing; or none, of one image.
        decoder: whose frames they are.
        start_number: the first one.
        options: FFmpeg's for the images.

    Raises:
        click.ClickException: they cannot be written there, or cannot be of the decoder's pixels.
    """

    output_bytes = None

    def __init__(
        self, path: Path, decoder: Decoder, start_number: int, options: Mapping[str, str | None], ffmpeg: str
    ) -> None:
        self.title = show_name(str(path))
        codec = CODECS[path.suffix.lower()]
        if not (is_rgb(decoder.pixel_format) or is_gray(decoder.pixel_format)):
            raise click.UsageError(
                f"images are of RGB or gray, and frames of {decoder.pixel_format}: give --pixel-format rgb24 or gray, "
                "or rgb48le or gray16le for 16 bits"
            )
        is_jpeg = codec == "mjpeg"
        is_sequence = _is_sequence(path)
        named = {"start_number": str(start_number)} if is_sequence else {"update": "1"}
        with told():
            if is_sequence:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._encoder = Encoder(
                _escaped(path) if is_sequence else path,
                size=decoder.size,
                fps=ANY_RATE,
                pixel_format=decoder.pixel_format,
                codec=codec,
                # With a chroma sample for each pixel, so that all sizes can be had.
                output_pixel_format="yuv444p" if is_jpeg else None,
                container_format="image2",
                options={**(JPEG_QUALITY if is_jpeg else {}), **named, **options},
                queue_items=QUEUE_FRAMES,
                ffmpeg=ffmpeg,
            )

    @property
    def frames(self) -> int:
        return self._encoder.frames_encoded

    def write(self, frame: Any) -> None:
        with self._told():
            self._encoder.submit(frame)  # its memory is the decoder's, and stays as it is

    def finish(self) -> None:
        with self._told():
            self._encoder.close()

    def stop(self) -> bool:
        try:
            self._encoder.close(STUCK_S)
        except (PenstockError, OSError):
            self._encoder.abort()
            return False
        return True

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (PenstockError, OSError) as error:
            self._encoder.abort()
            raise click.ClickException(f"{in_one_line(error)}; frames delivered: {self.frames}") from None


def to_be_made(path: Path) -> Path:
    """The first folder that has to be made for a sequence of images; `path` itself if there is none."""
    if _is_sequence(path):
        path = path.absolute()
        while not path.parent.exists():
            path = path.parent
    return path


def are_images(name: str) -> bool:
    """Whether a name of an output stands for images; none but images have a number such as ``%05d``."""
    path = Path(name)
    return is_file_name(name) and (has_image_name(path) or _is_sequence(path))


def is_file_name(name: str) -> bool:
    """Whether a name of an output is that of files."""
    return name != STANDARD and not name.startswith(FIFO_PREFIX)


def check_images(name: str, count: int | None) -> None:
    """Checks that `count` images, or all there are, can have such names.

    Raises:
        click.UsageError: they cannot.
    """
    path = Path(name)
    if path.suffix.lower() not in CODECS:
        known = " ".join(suffix[1:] for suffix in sorted(CODECS))
        raise click.UsageError(f"{show_name(name)}: images are written by names that end in one of: {known}")
    numbers = len(NUMBER.findall(path.name))
    if numbers > 1:
        raise click.UsageError(f"{show_name(name)}: a pattern has one number, such as %d or %04d")
    if numbers == 0 and count != 1:
        several = path.with_name(f"{path.stem}-%05d{path.suffix}")
        raise click.UsageError(f"{show_name(name)} is one image: add --count 1, or name many, as {several}")
    if numbers and "%" in str(path.parent.absolute()):
        raise click.UsageError(
            f"{show_name(name)}: FFmpeg takes a % in a folder's name for a number; name the folder by a "
            "symbolic link"
        )


def _is_sequence(path: Path) -> bool:
    return NUMBER.search(path.name) is not None


def _escaped(path: Path) -> Path:
    """With each % doubled that is not the number's, as FFmpeg has it."""
    before, digits, after = (part or "" for part in NUMBER.split(path.name))
    number = f"%0{digits}d" if digits else "%d"
    return path.with_name(f"{before.replace('%', '%%')}{number}{after.replace('%', '%%')}")
