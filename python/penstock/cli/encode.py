"""``penstock encode``"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import click
from rich.filesize import decimal

from penstock import images
from penstock.cli.endpoints import FIFO_PREFIX, STANDARD, End, opened, show_name
from penstock.cli.messages import by_option, in_one_line, told
from penstock.cli.options import option_pairs, parsed
from penstock.cli.progress import expected_bytes, is_wanted
from penstock.cli.signals import Stopped
from penstock.errors import FFmpegWarning, PenstockError
from penstock.ffmpeg import Encoder, endpoints, find_ffmpeg
from penstock.ffmpeg.capabilities import check_codec
from penstock.ffmpeg.formats import AUTO, output_format
from penstock.ffmpeg.pixels import divides_evenly, frame_layout
from penstock.images import Images, SourceError

#: Leaves the pixel format of the video to FFmpeg.
ANY = "any"


class Source(Protocol):
    """Where frames come from."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of each frame, in pixels."""

    @property
    def total_frames(self) -> int | None:
        """How many there will be; None if only the end can tell."""

    def fill(self, frame: memoryview) -> int:
        """Puts the next frame into `frame`. Returns its bytes, of which the input's end may leave too few, or 0."""


class RawFrames:
    """Frames that come through a descriptor, one after another."""

    def __init__(self, end: End, size: tuple[int, int], frame_bytes: int) -> None:
        self.title = end.title
        self.size = size
        nbytes = expected_bytes(end, None, None)
        self.total_frames = None if nbytes is None else nbytes // frame_bytes
        self._fd = end.fd

    def fill(self, frame: memoryview) -> int:
        filled = 0
        try:
            while filled < frame.nbytes and (nbytes := os.readv(self._fd, [frame[filled:]])):
                filled += nbytes
        except OSError as error:
            raise SourceError(f"{self.title}: {error.strerror}") from None
        return filled


class _NoFrame(Exception):
    """Leaves a leased frame that is not to be submitted, because there are not enough bytes for it."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


def picture_size(text: str) -> tuple[int, int]:
    """Width and height, as in ``1920x1080``."""
    match = re.fullmatch(r"0*([1-9]\d*)[x×]0*([1-9]\d*)", text.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a width and a height in pixels such as 1920x1080")
    return int(match[1]), int(match[2])


def frame_rate(text: str) -> Fraction:
    """Frames per second: a number, or a fraction of two."""
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if rate <= 0:
        raise ValueError(f"{text!r} is not a number of frames per second such as 60, 23.976 or 30000/1001")
    return rate


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock encode frames/ out.mp4 --fps 30\n"
    "  penstock encode 'shots/*.png' out.mkv --fps 24 --codec libx265 --crf 20\n"
    "  render | penstock encode out.mp4 --size 1920x1080 --fps 60 --preset fast\n"
    "  penstock encode dump.bgra out.mp4 --size 1280x720 --fps 30 --pixel-format bgr0\n"
    "  render | penstock encode rtmp://host/key --size 1280x720 --fps 30 --option g=60"
)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.argument("output")
@click.option(
    "--fps",
    metavar="N",
    required=True,
    callback=parsed(frame_rate),
    help="Frames per second: 60, 23.976 or 30000/1001.",
)
@click.option(
    "--size",
    metavar="WxH",
    callback=parsed(picture_size),
    help="Width and height of raw frames, in pixels: 1920x1080.",
)
@click.option(
    "--pixel-format",
    metavar="NAME",
    help="What raw frames are made of: rgb24 (the default), bgra, gray, yuv420p, nv12, rgb48le, or any other that "
    "`ffmpeg -pix_fmts` lists.",
)
@click.option(
    "--total-frames",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many raw frames will come, for the bar. Of files it is known.",
)
@click.option(
    "--codec",
    metavar="NAME",
    default="libx264",
    show_default=True,
    help="FFmpeg's encoder: libx265, libsvtav1, h264_nvenc; `penstock info` lists them.",
)
@click.option(
    "--preset", metavar="NAME", help="How hard the codec works for a small file: ultrafast, medium, slow."
)
@click.option(
    "--crf",
    metavar="N",
    type=float,
    help="The quality: less is better and larger. With libx264 0 to 51, and 23 without this.",
)
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parsed(option_pairs),
    help="Any other option of FFmpeg's for the output, without its dash: tune=film. May be repeated.",
)
@click.option(
    "--output-pixel-format",
    metavar="NAME",
    default=AUTO,
    show_default=True,
    help="Pixel format of the video. By default that of the frames for a lossless codec, one with alpha where frames "
    f"and codec have it, and else yuv420p, which plays everywhere; '{ANY}' leaves it to FFmpeg.",
)
@click.option(
    "--convert",
    type=click.Choice(["auto", "native", "ffmpeg"]),
    help="Who converts pixels: Penstock while it copies them, FFmpeg, or (auto) Penstock where it can.",
)
@click.option(
    "--color-matrix",
    type=click.Choice(["auto", "bt601", "bt709", "bt2020"]),
    help="How the video's YUV stands for RGB. By default (auto) bt709 from 720 lines on, and bt601 below.",
)
@click.option(
    "--color-range",
    type=click.Choice(["limited", "full"]),
    help="Whether black and white are 16 and 235 of 255 (limited, the default) or 0 and 255.",
)
@click.option(
    "--odd-size",
    type=click.Choice(["error", "pad", "crop"]),
    help="What to do with a width or height that the video cannot have: fail (the default), repeat the last column "
    "or row, or drop it.",
)
@click.option("--vflip", is_flag=True, help="The first row of a frame is its lowest, as OpenGL has it.")
@click.option(
    "--format",
    "container_format",
    metavar="NAME",
    help="The container, where OUTPUT's name does not tell it: mp4, matroska, mpegts, flv, hls.",
)
@click.option("--ffmpeg", metavar="PATH", help="The FFmpeg to run; by default the one on PATH.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show a bar on standard error, and a summary at the end. By default if that is a terminal.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors: no bar, no summary, no warnings.")
@click.option("--json", "as_json", is_flag=True, help="When the video is done, print a report for programs.")
def encode(
    inputs: tuple[str, ...],
    output: str,
    size: tuple[int, int] | None,
    pixel_format: str | None,
    total_frames: int | None,
    output_pixel_format: str,
    progress: bool | None,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Encode raw frames, or images, to the video OUTPUT.

    Raw frames come without anything between them, through standard input (INPUT is - or left out), from a FIFO that
    must be there (fifo:PATH), or from a file; they need --size.

    Images are a folder, a glob in quotes ('shots/*.png'), a pattern with a number (shots/%04d.png) or files. They come
    in the order of their numbers, files as they are given. All must have one size. Transparency is dropped, and a
    camera's note on how to turn the picture is ignored.

    OUTPUT is a path, a URL that FFmpeg knows, or - for standard output, with --format. A file is overwritten, once the
    first frame is there. Ctrl-C ends the video after the frames that have come so far, so that it plays; a second one
    ends everything at once.

    Exit status: 0 when all frames are encoded; 1 after a failure, also when the input ends in the middle of a frame,
    after all whole ones were encoded; 2 for wrong usage; 130 after Ctrl-C, 143 after SIGTERM.
    """
    if quiet and progress:
        raise click.UsageError("--quiet and --progress exclude each other")
    with told():
        _check_output(output, settings["container_format"], as_json=as_json)
    has_images = images.are_images(inputs)
    _check_raw_options(inputs, has_images, size, pixel_format, total_frames)
    wanted = is_wanted(False if quiet else progress, [])
    settings = _encoder_settings(settings) | {
        "pixel_format": images.PIXEL_FORMAT if has_images else pixel_format or "rgb24",
        "output_pixel_format": None if output_pixel_format == ANY else output_pixel_format,
        "progress": wanted,
    }
    try:
        with told():
            settings["ffmpeg"] = find_ffmpeg(settings.get("ffmpeg"))
            check_codec(settings["ffmpeg"], settings["codec"])
        with _opened(inputs, has_images, size, settings, output) as source:
            total_frames = source.total_frames if total_frames is None else total_frames
            encoder, left_over = _encode(source, output, settings | {"total_frames": total_frames})
    except Stopped as stopped:
        stopped.progress = stopped.progress or "frames encoded: 0"
        raise
    except SourceError as error:
        raise click.ClickException(f"{error.message}; nothing was written") from None
    report = encoder.close()
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    for warning in () if quiet else report.warnings:
        click.echo(f"Warning: {by_option(warning)}", err=True)
    if wanted:
        click.echo(_summary(encoder), err=True)
    if left_over:
        raise click.ClickException(
            f"{source.title}: ended in the middle of a frame: {left_over} of its {encoder.frame_bytes} bytes are left "
            f"over; are --size and --pixel-format right? Frames encoded: {encoder.frames_encoded}"
        )


def _check_raw_options(
    inputs: Sequence[str],
    has_images: bool,
    size: tuple[int, int] | None,
    pixel_format: str | None,
    total_frames: int | None,
) -> None:
    if not has_images and size is None:
        if inputs and not _can_be_raw(inputs[0]):
            raise click.ClickException(f"{show_name(inputs[0])}: {os.strerror(errno.ENOENT)}")
        raise click.UsageError(
            "raw frames need --size, such as --size 1920x1080; images are a folder, a pattern, or files that end in "
            + " ".join(suffix[1:] for suffix in images.SUFFIXES)
        )
    given = {"--size": size, "--pixel-format": pixel_format, "--total-frames": total_frames}
    of_raw = [name for name, value in given.items() if value is not None]
    if has_images and of_raw:
        several = "; raw frames come from one INPUT" if len(inputs) > 1 else ""
        raise click.UsageError(f"{', '.join(of_raw)}: only for raw frames, and the input is images{several}")


def _can_be_raw(name: str) -> bool:
    if name == STANDARD or name.startswith(FIFO_PREFIX):
        return True
    with suppress(OSError):
        return Path(name).exists()
    return False


def _encoder_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The Encoder's arguments, of those that it shares with us; what was not given is left to it."""
    settings = {name: value for name, value in given.items() if value is not None}
    options = dict(settings.pop("options"))
    for name in ("preset", "crf"):
        if name in settings and name in options:
            raise click.UsageError(f"--{name} and --option {name} exclude each other")
    return settings | {"options": options}


def _check_output(output: str, container_format: str | None, *, as_json: bool) -> None:
    """Fails now, and not when the first frame has come, of what can be known."""
    if container_format is None and images.has_image_name(Path(output)):
        raise click.UsageError(
            f"OUTPUT {show_name(output)} is an image by its name: is OUTPUT missing? "
            "Images are written with --format image2"
        )
    target = endpoints.target(output, container_format)
    endpoints.container_for(target, container_format)
    if as_json and endpoints.uses_stdout(target):
        raise click.UsageError("--json and the video cannot both go to standard output")


@contextmanager
def _opened(
    inputs: Sequence[str],
    has_images: bool,
    size: tuple[int, int] | None,
    settings: dict[str, Any],
    output: str,
) -> Iterator[Source]:
    """The input; raw frames are waited for, images are looked at."""
    if has_images:
        with Images(images.find_images(inputs), settings["ffmpeg"]) as source:
            yield source
        return
    assert size is not None
    with told():
        frame_bytes = frame_layout(settings["pixel_format"], *size, settings["ffmpeg"]).frame_bytes
    with opened(inputs[0] if inputs else STANDARD, [], append=False) as (end, _):
        if os.isatty(end.fd):
            raise click.UsageError(f"{end.title} is a terminal, and raw frames come from a program or a file")
        _refuse_itself(end, output)
        yield RawFrames(end, size, frame_bytes)


def _refuse_itself(end: End, output: str) -> None:
    with suppress(OSError):
        there = Path(output).stat()
        if stat.S_ISREG(there.st_mode) and os.path.samestat(there, end.status):
            raise click.ClickException(
                f"{end.title} and {show_name(output)} are the same; nothing was written"
            )


def _encode(source: Source, output: str, settings: dict[str, Any]) -> tuple[Encoder, int]:
    """Encodes all frames. Returns the closed encoder, and the bytes of a last frame that is not whole."""
    first = _first_frame(source, settings)
    encoder = _started(source, output, settings)
    try:
        with encoder:
            encoder.write(first)
            left_over = _feed(encoder, source)
            # Here and not by leaving the block, so that a Ctrl-C during it lets the block finish the video.
            encoder.close()
    except Stopped as stopped:
        stopped.progress = _how_far(encoder, stopped)
        raise
    except SourceError as error:
        raise click.ClickException(f"{error.message}; {_how_far(encoder, error)}") from None
    except (PenstockError, OSError) as error:
        raise click.ClickException(in_one_line(error)) from None
    return encoder, left_over


def _started(source: Source, output: str, settings: dict[str, Any]) -> Encoder:
    """An encoder whose warnings are left to its report."""
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    with told(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FFmpegWarning)
        return Encoder(output, size=source.size, **settings)


def _first_frame(source: Source, settings: dict[str, Any]) -> bytearray:
    """It is there before the encoder is, which empties a file that it overwrites."""
    _check_even(source.size, settings)
    with told():
        layout = frame_layout(settings["pixel_format"], *source.size, settings["ffmpeg"])
    width, height = source.size
    try:
        frame = bytearray(layout.frame_bytes)
    except (MemoryError, OverflowError):
        raise click.ClickException(
            f"there is no memory for a frame of {width}x{height} pixels, which has {layout.frame_bytes} bytes"
        ) from None
    nbytes = source.fill(memoryview(frame))
    if nbytes < len(frame):
        raise click.ClickException(
            f"{source.title}: {nbytes} bytes came, and a {layout.pixel_format} frame of {width}x{height} pixels has "
            f"{len(frame)}; nothing was written"
        )
    return frame


def _check_even(size: tuple[int, int], settings: dict[str, Any]) -> None:
    """Says in our words what the encoder would say in Python's."""
    with told():
        output_pixel_format = output_format(
            *(settings["ffmpeg"], settings["codec"], settings["options"]),
            *(settings["pixel_format"], settings["output_pixel_format"]),
        ).name
    can_be_resized = {"vf", "filter:v", "s"} & set(settings["options"])
    if output_pixel_format is None or "odd_size" in settings or can_be_resized:
        return
    if not divides_evenly(output_pixel_format, *size):
        raise click.UsageError(
            f"{output_pixel_format} video cannot have {size[0]}x{size[1]} pixels: add --odd-size pad (or crop), or "
            "--output-pixel-format yuv444p, which fewer players know"
        )


def _feed(encoder: Encoder, source: Source) -> int:
    """Submits frames until the source ends. Returns the bytes of a last one that is not whole."""
    try:
        while True:
            with encoder.frame() as frame, memoryview(frame) as view, view.cast("B") as flat:
                nbytes = source.fill(flat)
                if nbytes < flat.nbytes:
                    raise _NoFrame(nbytes)
    except _NoFrame as end:
        return end.nbytes


def _how_far(encoder: Encoder, error: BaseException) -> str:
    """What became of the frames, and what an encoder adds to an error in whose course it could not finish."""
    notes = [in_one_line(note) for note in getattr(error, "__notes__", [])]
    return "; ".join([f"frames encoded: {encoder.frames_encoded}", *notes])


def _summary(encoder: Encoder) -> str:
    report = encoder.close()
    size = "" if report.output_bytes is None else f", {decimal(report.output_bytes)}"
    return (
        f"frames encoded: {report.frames_encoded} in {report.seconds:.2f} s, {report.fps:.1f} frames/s; "
        f"{show_name(report.output)}{size}; held up by {encoder.bottleneck.replace('the caller', 'the input')}"
    )
