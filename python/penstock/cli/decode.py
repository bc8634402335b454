"""``penstock decode``"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from penstock.cli.endpoints import (
    FIFO_PREFIX,
    STANDARD,
    check_standard_output,
    opened_destinations,
    refuse_same,
    show_name,
)
from penstock.cli.messages import in_one_line, told
from penstock.cli.options import option_pairs, parsed
from penstock.cli.outputs import (
    VIDEO_SUFFIXES,
    ImageOutput,
    Output,
    RawOutput,
    Times,
    are_images,
    check_images,
    is_file_name,
    to_be_made,
)
from penstock.cli.progress import PERIOD_S, is_wanted
from penstock.cli.signals import Stopped
from penstock.errors import DecoderError, FFmpegWarning, StalledError
from penstock.ffmpeg import Decoder, endpoints
from penstock.ffmpeg.bar import Bar
from penstock.ffmpeg.find import find_decoding_ffmpeg
from penstock.images import SourceError

#: Leaves the pixels as they are in the file.
SAME = "same"


def scaled_size(text: str) -> tuple[int | None, int | None]:
    """Width and height, as in ``1920x1080``, or one of them; None for the other."""
    match = re.fullmatch(r"(?:0*([1-9]\d*))?[x×](?:0*([1-9]\d*))?", text.strip().lower(), re.ASCII)
    if match is None or match[1] is match[2] is None:
        raise ValueError(
            f"{text!r} is not a width and a height in pixels such as 1280x720, or one of them as in 1280x and x720"
        )
    return int(match[1]) if match[1] else None, int(match[2]) if match[2] else None


def moment(text: str) -> float:
    """Seconds: a number, or hours, minutes and seconds with colons between them."""
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?|\.\d+)", text.strip(), re.ASCII)
    hours, minutes, seconds = match.groups(default="0") if match else ("0", "0", "nan")
    is_clock = ":" in text
    if match is None or (is_clock and float(seconds) >= 60) or (match[1] and int(minutes) >= 60):
        raise ValueError(f"{text!r} is not a time such as 90, 12.5, 1:30 or 0:01:30.5")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


class Shown:
    """The bar, drawn often enough; nothing if it is not wanted."""

    def __init__(self, bar: Bar | None, began_s: float) -> None:
        self._bar = bar
        self._began_s = began_s
        self._next_s = 0.0

    def update(self, output: Output, *, is_last: bool = False) -> None:
        now_s = time.monotonic()
        if self._bar is None or (now_s < self._next_s and not is_last):
            return
        self._next_s = now_s + PERIOD_S
        self._bar.show(output.frames, output.frames / (now_s - self._began_s), output.output_bytes)


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock decode in.mp4 > frames.rgb\n"
    "  penstock decode in.mkv frames/%05d.png --start 1:30 --count 100\n"
    "  penstock decode in.mov shot.jpg --start 12.5 --count 1 --size 640x\n"
    "  penstock decode in.mp4 -p gray --size x360 | analyse\n"
    "  penstock decode in.mp4 frames.yuv -p same --timestamps times.csv"
)
@click.argument("source", metavar="INPUT")
@click.argument("destination", metavar="[OUTPUT]", default=STANDARD)
@click.option(
    "-p",
    "--pixel-format",
    metavar="NAME",
    default="rgb24",
    show_default=True,
    help="What frames are made of: rgb24, bgra, gray, rgb48le, yuv420p, or any other that `ffmpeg -pix_fmts` lists; "
    f"'{SAME}' for what the file has.",
)
@click.option(
    "--size",
    metavar="WxH",
    callback=parsed(scaled_size),
    help="Scale to so many pixels: 1280x720; 1280x or x720 keeps the picture's shape.",
)
@click.option(
    "--start",
    metavar="TIME",
    callback=parsed(moment),
    help="Leave out the frames before it: seconds, or 0:01:30.5.",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="Deliver at most N frames.")
@click.option(
    "--stream",
    metavar="N",
    type=click.IntRange(min=0),
    help="Which of the streams of video, from 0; by default the best.",
)
@click.option(
    "--start-number",
    metavar="N",
    type=click.IntRange(min=0),
    help="The number of the first image; 1 without this.",
)
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parsed(option_pairs),
    help="An option of FFmpeg's for images, without its dash: q=5 (of JPEG, 2 is best), compression_level=1 (of PNG). "
    "May be repeated.",
)
@click.option(
    "--convert",
    type=click.Choice(["auto", "native", "ffmpeg"]),
    help="Who converts pixels: Penstock while it copies them, FFmpeg, or (auto) Penstock where it can.",
)
@click.option(
    "--color-matrix",
    type=click.Choice(["auto", "bt601", "bt709", "bt2020"]),
    help="How the file's YUV stands for RGB. By default (auto) as it is tagged, and bt601 without a tag.",
)
@click.option(
    "--color-range",
    type=click.Choice(["auto", "limited", "full"]),
    help="Whether the file's black and white are 16 and 235 of 255 (limited) or 0 and 255. By default (auto) as it is "
    "tagged, and limited without a tag.",
)
@click.option(
    "--conceal-errors", is_flag=True, help="Go on after damage in the file, with what FFmpeg makes of it."
)
@click.option(
    "--follow-playlists",
    is_flag=True,
    help="INPUT may be a local playlist (HLS, DASH, ffconcat): open the local files that it leads to.",
)
@click.option(
    "--timestamps",
    metavar="FILE",
    help="Write a line for each frame: its number from 0, its timestamp, its time in seconds (CSV).",
)
@click.option("--ffmpeg", metavar="PATH", help="The FFmpeg to run; by default the one on PATH.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show a bar on standard error, and a summary at the end. By default if that is a terminal.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors, as with --no-progress.")
@click.option("--json", "as_json", is_flag=True, help="When all is delivered, print a report for programs.")
def decode(
    source: str,
    destination: str,
    timestamps: str | None,
    start_number: int | None,
    options: Mapping[str, str | None],
    progress: bool | None,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Decode the video INPUT to raw frames, or to images.

    INPUT is a path, or a URL that FFmpeg knows. Each frame of it is delivered once, in the order of presentation,
    turned as the file says.

    OUTPUT is - or left out for standard output, a FIFO that must be there (fifo:PATH), or a file: raw frames then come
    one after another, with nothing between them. Or it is a pattern with a number (frames/%05d.png): images, of the
    kind that the name tells, one for each frame; their folder is made if it is missing. Files are overwritten, once the
    first frame is there.

    Of a file that is damaged or was cut off, all frames before that are delivered; where
    FFmpeg's decoder does not mark damage, the last of them may show it.

    Exit status: 0 when all frames are delivered; 1 after a failure; 2 for wrong usage; 130 after Ctrl-C, 143 after
    SIGTERM; 141, without a word, when nobody reads standard output any more.
    """
    if quiet and progress:
        raise click.UsageError("--quiet and --progress exclude each other")
    has_images = are_images(destination)
    _check_image_options(has_images, start_number, options)
    _check_source(source)
    _check_destinations(destination, timestamps, settings["count"], as_json=as_json)
    wanted = is_wanted(False if quiet else progress, [])
    began_s = time.monotonic()
    try:
        with told():
            settings["ffmpeg"] = find_decoding_ffmpeg(settings["ffmpeg"])
            decoder = Decoder(source, **_decoder_settings(settings))
        with decoder, _warnings_told(is_quiet=quiet):
            first = _next(decoder)
            images = (1 if start_number is None else start_number, options, settings["ffmpeg"])
            with (
                _opened(source, destination, timestamps, decoder, images) as (output, times),
                _shown(decoder, settings, began_s, wanted=wanted) as shown,
            ):
                fault = _deliver(decoder, first, output, times, shown)
            seconds = time.monotonic() - began_s
    except Stopped as stopped:
        stopped.progress = stopped.progress or "frames delivered: 0"
        raise
    except SourceError as error:
        raise click.ClickException(f"{error.message}; nothing was written") from None
    if as_json:
        click.echo(json.dumps(_report(decoder, source, output, seconds, fault), indent=2))
    if wanted:
        click.echo(_summary(decoder, output, seconds), err=True)
    if fault is not None:
        raise click.ClickException(f"{fault.message}; frames delivered: {output.frames}")


def _check_image_options(has_images: bool, start_number: int | None, options: Mapping[str, object]) -> None:
    given = {"--start-number": start_number is not None, "--option": bool(options)}
    of_images = [name for name, is_given in given.items() if is_given]
    if of_images and not has_images:
        raise click.UsageError(f"{', '.join(of_images)}: only for images, and OUTPUT is raw frames")


def _check_source(source: str) -> None:
    if source == STANDARD or source.startswith(FIFO_PREFIX):
        raise click.UsageError(
            f"INPUT {show_name(source)}: a video is looked at before it is decoded, and what comes through a pipe can "
            "be read once; save it to a file first. (A file of that name is ./-)"
        )


def _check_destinations(
    destination: str, timestamps: str | None, count: int | None, *, as_json: bool
) -> None:
    """Fails now, and not when the first frame has come, of what can be known."""
    uses = {"the frames": destination == STANDARD, "--timestamps": timestamps == STANDARD, "--json": as_json}
    users = [name for name, is_user in uses.items() if is_user]
    if len(users) > 1:
        raise click.UsageError(f"{' and '.join(users)} cannot all go to standard output")
    check_standard_output()
    if destination == STANDARD:
        _refuse_terminal(1, "standard output")
    if is_file_name(destination) and Path(destination).suffix.lower() in VIDEO_SUFFIXES:
        raise click.UsageError(
            f"OUTPUT {show_name(destination)} is a video by its name, and would get raw frames; several INPUTs are "
            "decoded one at a time"
        )
    if are_images(destination):
        check_images(destination, count)
    for name in filter(None, (destination, timestamps)):
        if is_file_name(name):
            with told():
                endpoints.target(to_be_made(Path(name)))


def _refuse_terminal(fd: int, title: str) -> None:
    if os.isatty(fd):
        raise click.UsageError(
            f"{title} is a terminal, and raw frames are for a program or a file: name an OUTPUT, or | another program"
        )


def _decoder_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The Decoder's arguments; what was not given is left to it."""
    settings = {name: value for name, value in given.items() if value is not None}
    return settings | {"pixel_format": None if given["pixel_format"] == SAME else given["pixel_format"]}


def _next(decoder: Decoder) -> Any:
    """The next frame; None at the end.

    Raises:
        SourceError: there is none, and should be.
    """
    try:
        return decoder.read()
    except (DecoderError, StalledError) as error:
        raise SourceError(in_one_line(error)) from None


@contextmanager
def _warnings_told(*, is_quiet: bool) -> Iterator[None]:
    """Says what the decoder warns of in one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FFmpegWarning)
        yield
    for warning in caught:
        if not is_quiet and issubclass(warning.category, FFmpegWarning):
            click.echo(f"Warning: {in_one_line(warning.message)}", err=True)


@contextmanager
def _opened(
    source: str,
    destination: str,
    timestamps: str | None,
    decoder: Decoder,
    images: tuple[int, Mapping[str, str | None], str],
) -> Iterator[tuple[Output, Times | None]]:
    """Where frames and their times go. All FIFOs are opened at once; files are emptied."""
    has_images = are_images(destination)
    names = [*([] if has_images else [destination]), *([] if timestamps is None else [timestamps])]
    with opened_destinations(names, source) as ends:
        times = None if timestamps is None else Times(ends[-1], is_standard=timestamps == STANDARD)
        if has_images:
            refuse_same(source, destination)
            yield ImageOutput(Path(destination), decoder, *images), times
        else:
            _refuse_terminal(ends[0].fd, ends[0].title)
            yield RawOutput(ends[0], decoder.frame_bytes, is_standard=destination == STANDARD), times


@contextmanager
def _shown(decoder: Decoder, settings: Mapping[str, Any], began_s: float, *, wanted: bool) -> Iterator[Shown]:
    if not wanted:
        yield Shown(None, began_s)
        return
    total, is_estimate = _expected_frames(decoder, settings["start"], settings["count"])
    rate = decoder.info.frame_rate
    bar = Bar(total, None if rate is None else float(rate), is_estimate=is_estimate)
    try:
        yield Shown(bar, began_s)
    finally:
        bar.finish()


def _expected_frames(decoder: Decoder, start_s: float | None, count: int | None) -> tuple[int | None, bool]:
    """How many there will be, as far as that is known, and whether it is an estimate."""
    info = decoder.info
    frames, is_estimate = info.frames, False
    if frames is None and info.duration_s and info.frame_rate:
        frames, is_estimate = round(info.duration_s * info.frame_rate), True
    if frames is not None and start_s:
        frames, is_estimate = _left_of(frames, start_s, info.duration_s), True
    if count is not None and (frames is None or count <= frames):
        return count, is_estimate
    return frames, is_estimate


def _left_of(frames: int, start_s: float, duration_s: float | None) -> int | None:
    return round(frames * max(0.0, 1 - start_s / duration_s)) if duration_s else None


def _deliver(
    decoder: Decoder, first: Any, output: Output, times: Times | None, shown: Shown
) -> SourceError | None:
    """Delivers all frames. Returns what the decoder failed of, after those before that were delivered."""
    try:
        fault = _pour(decoder, first, output, times, shown)
        output.finish()
        shown.update(output, is_last=True)
    except BaseException as error:
        decoder.close()  # nobody takes its frames any more
        is_all = output.stop()
        if isinstance(error, Stopped):
            error.progress = f"frames delivered: {'' if is_all else 'at least '}{output.frames}"
        raise
    return fault


def _pour(
    decoder: Decoder, first: Any, output: Output, times: Times | None, shown: Shown
) -> SourceError | None:
    frame = first
    try:
        while frame is not None:
            output.write(frame)
            if times is not None:
                times.write(frame)
            shown.update(output)
            frame = _next(decoder)
    except SourceError as fault:
        return fault
    return None


def _report(
    decoder: Decoder, source: str, output: Output, seconds: float, fault: SourceError | None
) -> dict[str, Any]:
    """What ``--json`` prints."""
    width, height = decoder.size
    return {
        "input": source,
        "output": output.title,
        "frames": output.frames,
        "bytes": output.frames * decoder.frame_bytes,
        "seconds": seconds,
        "fps": output.frames / seconds,
        "width": width,
        "height": height,
        "pixel_format": decoder.pixel_format,
        "frame_bytes": decoder.frame_bytes,
        "converted_by": decoder.converted_by,
        "error": None if fault is None else fault.message,
    }


def _summary(decoder: Decoder, output: Output, seconds: float) -> str:
    size = "" if output.output_bytes is None else f", {decimal(output.output_bytes)}"
    return (
        f"frames delivered: {output.frames} in {seconds:.2f} s, {output.frames / seconds:.1f} frames/s; "
        f"{output.title}{size}; held up by {decoder.bottleneck.replace('the caller', 'the output')}"
    )
