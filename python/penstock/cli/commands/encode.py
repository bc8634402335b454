"""``penstock encode``"""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import click
from rich.filesize import decimal

from penstock._common.command_line import CommandOption
from penstock._common.messages import show_name
from penstock._common.reports import EncoderStats
from penstock._decoding.image_files import find_images, has_image_name, is_sequence
from penstock._encoding.encoder import Encoder
from penstock._encoding.listed import by_quickest
from penstock._encoding.plan import plan
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT, FrameLayout
from penstock._formats import images
from penstock._platform import descriptors
from penstock.cli.failures import (
    InputError,
    as_click_errors,
    held_up_by,
    in_one_line,
    name_options_in_messages,
    shown_warnings,
)
from penstock.cli.names import FIFO_PREFIX, STANDARD, as_path, found_at, names_media, refuse_repeats
from penstock.cli.opening import opened
from penstock.cli.options import (
    encoder_arguments,
    file_names,
    json_option,
    option,
    options_of,
    progress_option,
    quiet_option,
)
from penstock.cli.progress import expected_bytes, is_wanted
from penstock.cli.signals import Stopped
from penstock.errors import DecoderError, FFmpegWarning, PenstockError

# Chosen: containers round lengths, and a frame more or less moves nothing.
_SAME_LENGTH_S = 0.1


@dataclass(frozen=True)
class FrameSource:
    """Where frames come from.

    Attributes:
        title: its name in messages.
        size: width and height of each frame, in pixels.
        total_frames: how many frames will come; None if that is not known before the end.
        readinto: reads the next frame into a buffer of its size. Returns the number of bytes, which are fewer at the
            end.
    """

    title: str
    size: tuple[int, int]
    total_frames: int | None
    readinto: Callable[[memoryview], int]

    def fill(self, frame: memoryview) -> int:
        """Read the next frame. Return its bytes: too few at the end, or 0. A failure raises `InputError`."""
        with _input_errors(self.title):
            return self.readinto(frame)


class _NoFrame(Exception):
    """Leaves the block of a leased frame that is not submitted, because there are not enough bytes for it."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock encode frames/ out.mp4 --fps 30\n"
    "  penstock encode 'shots/*.png' out.mkv --fps 24 --codec libx265 --crf 20\n"
    "  penstock encode frames/ out.mp4 --fps 30 --audio music.flac --option b:a=192k\n"
    "  render | penstock encode out.mp4 --size 1920x1080 --fps 60 --preset fast\n"
    "  penstock encode dump.bgra out.mp4 --size 1280x720 --fps 30 --pixel-format bgr0\n"
    "  render | penstock encode rtmp://host/key --size 1280x720 --fps 30 --option g=60"
)
@click.argument("inputs", metavar="[INPUT]...", shell_complete=file_names, nargs=-1)
@click.argument("output", callback=as_path, shell_complete=file_names)
@option(CommandOption("--fps RATE", "Frames per second: 60, 23.976 or 30000/1001."))
@option(CommandOption("--size WIDTHxHEIGHT", "Width and height of raw frames, in pixels: 1920x1080."))
@click.option(
    "--pixel-format",
    metavar="NAME",
    help="Pixel format of raw frames: rgb24 (the default), bgra, gray, yuv420p, nv12, rgb48le, or any other that "
    "`ffmpeg -pix_fmts` lists.",
)
@click.option(
    "--total-frames",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of raw frames to expect, for the bar. It's known for files.",
)
@click.option(
    "--like",
    metavar="FILE",
    shell_complete=file_names,
    help="Take settings that you don't pass from this video: size and rate of raw frames, pixel aspect ratio, "
    "colors, audio, metadata, chapters. Warns if the result isn't as long.",
)
@options_of(Request)
@progress_option
@quiet_option
@json_option("Print a report as JSON when the video is done.")
def encode(
    inputs: tuple[str, ...],
    output: str,
    size: tuple[int, int] | None,
    pixel_format: str | None,
    total_frames: int | None,
    like: str | None,
    progress: bool | None,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Encode raw frames or images to a video.

    Raw frames follow one another with nothing between them: on standard input (INPUT is - or left out), from an
    existing FIFO (fifo:PATH), or from a file. They need --size and --fps, or --like.

    Images are a folder, a glob in quotes ('shots/*.png'), a pattern with a number (shots/%04d.png) or files. They are
    sorted by their numbers; files keep the order in which you list them. All must have one size. Transparency is
    dropped, and orientation tags are ignored.

    OUTPUT is a path, an existing FIFO (fifo:PATH), a URL that FFmpeg knows, or - for standard output, with --format. An
    existing file is replaced when the video is complete. Ctrl-C, or an input that fails, ends the video after the
    frames so far, so that it plays. The video is then in OUTPUT if that is a new file, and otherwise in out.part.mp4,
    beside the old file. A second Ctrl-C ends everything at once.

    Exit status: 0 when all frames are encoded; 1 after a failure, also if the input ends in the middle of a frame,
    after all whole ones were encoded; 2 for wrong usage; 130 after Ctrl-C, 143 after SIGTERM.
    """
    name_options_in_messages()
    wanted = is_wanted(progress, quiet=quiet)
    with as_click_errors():
        _check_output(inputs, output, settings["format"], as_json=as_json)
    has_images = _are_images(inputs)
    _check_raw_options(inputs, has_images, size, pixel_format, total_frames, has_size=bool(size or like))
    lost: Sequence[str] = ()
    source_s: float | None = None
    settings = encoder_arguments(settings) | {"pixel_format": pixel_format or DEFAULT_FORMAT}
    try:
        with as_click_errors():
            if like is not None:
                size_like, settings, lost, source_s = _like(like, output, size, settings)
                size = None if has_images else size_like
            elif "fps" not in settings:
                raise click.UsageError(
                    "raw frames and images have no frame rate. Pass --fps 30, another rate, or --like VIDEO"
                )
            request, beside = by_quickest(Request(output, size=size, **settings))
            made = plan(request, size, beside)
            frame_bytes = None if size is None else made.frames.frame_bytes
        with shown_warnings(is_quiet=quiet), _opened(inputs, frame_bytes, size, output) as source:
            with as_click_errors():
                total = wanted and (total_frames or source.total_frames or True)
                request = replace(made.request, size=source.size, progress=total)
                made = working_plan(request, source.size, beside=made.beside)
            # Before the encoder starts, which may empty the file that it overwrites.
            first = _first_frame(source, made.frames)
            # Its warnings are shown from its report.
            with as_click_errors(), warnings.catch_warnings():
                warnings.simplefilter("ignore", FFmpegWarning)
                encoder = Encoder._planned(made)
                if (waiting := encoder._intake.waiting) is not None and not quiet:
                    click.echo(f"Waiting: {waiting}", err=True)
                cut_off = _encode(source, encoder, first)
    except Stopped as stopped:
        stopped.progress = stopped.progress or "frames encoded: 0"
        raise
    except InputError as error:
        raise click.ClickException(f"{error.message}; nothing was written") from None
    report = encoder.close()
    moved = () if like is None else _moved(like, source_s, encoder._intake.video_s)
    report = replace(report, warnings=(*lost, *report.warnings, *moved))
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    for warning in () if quiet else report.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if wanted:
        click.echo(_summary(encoder), err=True)
    if cut_off is not None:
        reached = _progress(encoder, cut_off)
        raise click.ClickException(
            f"{source.title} ended in the middle of a frame, after {cut_off.nbytes} of its {encoder.frame_bytes} "
            f"bytes. Check --size and --pixel-format. {reached[0].upper()}{reached[1:]}"
        )


def _are_images(names: Sequence[str]) -> bool:
    """Whether the names of an input stand for images, and not for one stream of raw frames."""
    if len(names) != 1:
        return len(names) > 1
    [name] = names
    if name in ("", STANDARD) or name.startswith(FIFO_PREFIX):
        return False
    return has_image_name(name) or is_sequence(name)


def _mode(name: str) -> int:
    """The mode of what is there, as in stat(2); 0 if stat fails."""
    with suppress(OSError):
        return Path(name).stat().st_mode
    return 0


def _like(
    name: str, output: str, size: tuple[int, int] | None, settings: dict[str, Any]
) -> tuple[tuple[int, int], dict[str, Any], Sequence[str], float | None]:
    """The size and the settings by which the output is like a video, warnings of what it is not, and its length.

    The length is None if it isn't known, or if the rate is not the video's.
    """
    from penstock._encoding.like import arguments_like_file, pictures_s
    from penstock._facts.probing import probe  # libav, which others do without

    media, given = probe(name), settings if size is None else {**settings, "size": size}
    found, origin = arguments_like_file(media, output, given)
    if found["fps"] is None:
        raise click.UsageError(
            f"{show_name(name)} has a variable frame rate, but raw frames have no times. Use `penstock convert`, or "
            "pass --fps 30, or another rate"
        )
    return found.pop("size"), found, origin.lost, None if "fps" in given else pictures_s(media)


def _moved(like: str, source_s: float | None, lasts_s: float) -> Iterator[str]:
    """That frames can't be at their times: raw frames and images have none, and are fewer or more than the video's."""
    if source_s is not None and abs(lasts_s - source_s) > _SAME_LENGTH_S:
        yield (
            f"the video lasts {lasts_s:.3f} s, but {show_name(like)} lasts {source_s:.3f} s, so frames aren't at their "
            "times, and audio from there isn't in sync. Use `penstock convert`, which keeps the times, or in Python "
            "Encoder.like(decoder, output, fps=None) and encoder.write(frame, time_s=frame.time_s)"
        )


def _check_raw_options(
    inputs: Sequence[str],
    has_images: bool,
    size: tuple[int, int] | None,
    pixel_format: str | None,
    total_frames: int | None,
    *,
    has_size: bool,
) -> None:
    if not (has_images or has_size):
        name = inputs[0] if inputs else STANDARD
        if name != STANDARD and not name.startswith(FIFO_PREFIX) and not _mode(name):
            raise click.ClickException(f"{show_name(name)}: {os.strerror(errno.ENOENT)}")
        raise click.UsageError(
            "raw frames need a size. Pass --size 1920x1080, or the size that they have. For images, name a folder, a "
            "pattern, or files that end in " + " ".join(suffix[1:] for suffix in images.READ)
        )
    if not has_images and inputs and names_media(inputs[0]):
        raise click.UsageError(
            f"INPUT must be raw frames, which {show_name(inputs[0])} is not by its name. Use `penstock convert` for a "
            "video, or `penstock decode` to get its raw frames"
        )
    given = {"--size": size, "--pixel-format": pixel_format, "--total-frames": total_frames}
    of_raw = [name for name, value in given.items() if value is not None]
    if has_images and of_raw:
        several = ". Raw frames come from one INPUT" if len(inputs) > 1 else ""
        raise click.UsageError(f"images as INPUT don't support {', '.join(of_raw)}. Leave that out{several}")


def _check_output(inputs: Sequence[str], output: str, container_format: str | None, *, as_json: bool) -> None:
    """Raise errors that an Encoder does not find."""
    # OUTPUT may be an animated WebP. But if it exists and follows other files, it may be an image, with OUTPUT missing.
    is_last_of_them = Path(output).exists() and any(Path(name).is_file() for name in inputs)
    may_move = images.known(Path(output).suffix.lower()).numbered is not None and not is_last_of_them
    if container_format is None and has_image_name(output) and not may_move:
        raise click.UsageError(
            f"OUTPUT {show_name(output)} is an image by its name. If OUTPUT is missing, add it. Pass --format image2 "
            "to write images, or --format webp for an animated one"
        )
    if as_json and endpoints.uses_stdout(endpoints.target(output, container_format)):
        raise click.UsageError("--json and the video can't both go to standard output")


@contextmanager
def _opened(
    inputs: Sequence[str],
    frame_bytes: int | None,
    size: tuple[int, int] | None,
    output: str,
) -> Iterator[FrameSource]:
    """Open the input: wait for raw frames of `frame_bytes`, or look for the images, for which that is None."""
    if frame_bytes is None:
        from penstock._decoding.decoder import Decoder  # libav, which others do without

        with _input_errors("images"):
            found = find_images(inputs)
            if Path(output).exists() and any(one.samefile(output) for one in found):
                raise click.UsageError(
                    f"OUTPUT {show_name(output)} is one of the images. Write it to another folder"
                )
            decoder = Decoder(found)
        with decoder:
            yield FrameSource(f"{len(found)} images", decoder.size, len(found), decoder.readinto)
        return
    assert size is not None
    with opened(inputs[0] if inputs else STANDARD, [], append=False) as (source, _):
        if descriptors.is_terminal(source.fd):
            raise click.UsageError(
                f"{source.title} is a terminal. Name an INPUT, or pipe raw frames from another program"
            )
        if source.keeps_messages:
            raise click.UsageError(f"{source.title} must be a stream of bytes, not of messages")
        refuse_repeats([(source.title, source.status), *found_at(output)])
        nbytes = expected_bytes(source, None, None)
        total = None if nbytes is None else nbytes // frame_bytes
        yield FrameSource(source.title, size, total, source.read_full)


@contextmanager
def _input_errors(title: str) -> Iterator[None]:
    try:
        yield
    except (DecoderError, OSError, ValueError) as error:
        where = f"{title}: " if isinstance(error, OSError) and error.filename is None else ""
        raise InputError(f"{where}{in_one_line(error)}") from None


def _encode(source: FrameSource, encoder: Encoder, first: bytearray) -> _NoFrame | None:
    """Encode all frames and close the encoder. Return the last frame if it is not whole."""
    try:
        with encoder:
            encoder.write(first)
            if left_over := _feed(encoder, source):
                raise _NoFrame(left_over)  # so that the block finishes the video, and an old file stays
            # Not by leaving the block, which finishes the video after a Ctrl-C during this call.
            encoder.close()
    except Stopped as stopped:
        stopped.progress = _progress(encoder, stopped)
        raise
    except _NoFrame as cut_off:
        try:
            encoder.close()  # raises again if FFmpeg has failed as well
        except (PenstockError, OSError) as error:
            raise click.ClickException(in_one_line(error)) from None
        return cut_off
    except InputError as error:
        raise click.ClickException(f"{error.message}; {_progress(encoder, error)}") from None
    except (PenstockError, OSError) as error:
        raise click.ClickException(in_one_line(error)) from None
    return None


def _first_frame(source: FrameSource, layout: FrameLayout) -> bytearray:
    picture = f"{layout.width}x{layout.height} pixels"
    try:
        frame = bytearray(layout.frame_bytes)
    except (MemoryError, OverflowError):
        raise click.ClickException(
            f"memory ran out for a frame of {picture}, which has {layout.frame_bytes} bytes"
        ) from None
    nbytes = source.fill(memoryview(frame))
    if nbytes < len(frame):
        raise click.ClickException(
            f"{source.title} ended after {nbytes} bytes, but a {layout.pixel_format} frame of {picture} has "
            f"{len(frame)}; nothing was written"
        )
    return frame


def _feed(encoder: Encoder, source: FrameSource) -> int:
    """Submit frames until the source ends. Return the bytes of a last one that is not whole."""
    try:
        while True:
            with encoder.lease() as frame, memoryview(cast(Any, frame)) as view, view.cast("B") as flat:
                nbytes = source.fill(flat)
                if nbytes < flat.nbytes:
                    raise _NoFrame(nbytes)
    except _NoFrame as end:
        return end.nbytes


def _progress(encoder: Encoder, error: BaseException) -> str:
    """How many frames were encoded; and where they are, or why they are lost, if that is not OUTPUT."""
    report = encoder.report
    is_in_place = report is not None and report.output == encoder._plan.output.name
    notes = [] if is_in_place else [in_one_line(note) for note in getattr(error, "__notes__", [])]
    return "; ".join([f"frames encoded: {encoder.frames_encoded}", *notes])


def _summary(encoder: Encoder) -> str:
    report = encoder.close()
    size = "" if report.output_bytes is None else f", {decimal(report.output_bytes)}"
    return (
        f"frames encoded: {report.frames_encoded} in {report.elapsed_s:.2f} s, {report.fps:.1f} frames/s; "
        f"{show_name(report.output)}{size}; {_held_up_by(encoder.stats)}"
    )


def _held_up_by(stats: EncoderStats) -> str:
    texts = {
        "ffmpeg": (stats.output_wait_s, "FFmpeg encoding: the worker waited for it {:.0%} of the time"),
        "caller": (stats.input_wait_s, "the input: no frame was there {:.0%} of the time"),
        "conversion": (stats.converting_s, "the conversion: it took {:.0%} of the time"),
    }
    return held_up_by(stats, texts)
