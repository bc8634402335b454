"""``penstock decode``"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.filesize import decimal

from penstock._common.command_line import CommandOption
from penstock._common.messages import show_name
from penstock._common.progress import VideoBar
from penstock._common.reports import DecoderStats
from penstock._decoding.decoder import Decoder
from penstock._decoding.image_files import has_image_name
from penstock._decoding.options import DecodeOptions
from penstock._decoding.video_frame import VideoFrame
from penstock._encoding.encoder import Encoder
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT, SOURCE
from penstock._ffmpeg.command.settings import DecoderSettings, EncoderSettings
from penstock._formats.pixel_formats import is_gray, is_rgb
from penstock._platform import descriptors
from penstock.cli.failures import (
    InputError,
    as_click_errors,
    held_up_by,
    in_one_line,
    name_options_in_messages,
    shown_warnings,
)
from penstock.cli.names import (
    FIFO_PREFIX,
    STANDARD,
    as_standard,
    check_standard_output,
    found_at,
    names_media,
    refuse_repeats,
)
from penstock.cli.opening import opened_destinations
from penstock.cli.options import (
    file_names,
    json_option,
    moment,
    option,
    options_of,
    parsed,
    progress_option,
    quiet_option,
)
from penstock.cli.outputs import QUEUE_FRAMES, ImageOutput, Output, RawOutput, TimestampOutput
from penstock.cli.progress import PERIOD_S, is_wanted
from penstock.cli.signals import Stopped
from penstock.errors import DecoderError, StalledError

# An image is shown at no time, and FFmpeg wants a rate all the same.
_ANY_RATE = 25


def moments(text: str) -> list[float]:
    """Parse times with commas between them."""
    return [moment(one) for one in text.split(",")]


class Progress:
    """Draws the bar from time to time; nothing without a bar."""

    def __init__(self, bar: VideoBar | None, began_s: float) -> None:
        self._bar = bar
        self._began_s = began_s
        self._next_s = 0.0

    def update(self, output: Output, *, is_last: bool = False) -> None:
        now_s = time.monotonic()
        if self._bar is None or (now_s < self._next_s and not is_last):
            return
        self._next_s = now_s + PERIOD_S
        self._bar.show(output.frames, output.frames / (now_s - self._began_s), output.output_bytes)


@dataclass(frozen=True)
class Destinations:
    """Where the user wants frames and timestamps."""

    frames: str
    timestamps: str | None
    start_number: int | None
    options: Mapping[str, str | None]

    @property
    def are_images(self) -> bool:
        """Whether frames go to image files: their name ends as an image's, or has a number such as ``%05d``."""
        return is_file_name(self.frames) and (
            has_image_name(self.frames) or endpoints.has_number(self.frames)
        )


# Chosen: if a frame is so much earlier than the time asked for, it is checked whether it is the last one.
_LONG_S = 0.5


@dataclass(frozen=True)
class Selection:
    """Which of the frames that the decoder has the user wants."""

    count: int | None
    every: int
    at: Sequence[float] | None

    @property
    def most_frames(self) -> int | None:
        """How many they are at the most, if that is known without the file."""
        return self.count if self.at is None else len(self.at)

    @property
    def decoded(self) -> int | None:
        """How many frames the decoder has to give for them; None for all."""
        return None if self.count is None else (self.count - 1) * self.every + 1

    def frames(self, decoder: Decoder, *, is_quiet: bool) -> Iterator[VideoFrame]:
        """Yields the selected frames. Warns of times after the last frame unless `is_quiet`."""
        if self.at is None:
            yield from islice(decoder, 0, None, self.every)
            return
        for time_s in self.at:
            frame = decoder.frame_at(time_s)
            shown_s = frame.time_s
            is_long = not is_quiet and shown_s is not None and time_s > shown_s + _LONG_S
            if is_long and decoder[-1].time_s == shown_s:
                click.echo(
                    f"Warning: {time_s:g} s is after the last frame, which is at {shown_s:.3f} s", err=True
                )
            yield frame


def is_file_name(name: str) -> bool:
    return name != STANDARD and not name.startswith(FIFO_PREFIX)


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock decode in.mp4 > frames.rgb\n"
    "  penstock decode in.mkv frames/%05d.png --start 1:30 --count 100\n"
    "  penstock decode in.mov shot.jpg --at 12.5 --size 640x\n"
    "  penstock decode in.mp4 %03d.jpg --every 250 --filters yadif\n"
    "  penstock decode in.mp4 -p gray --size x360 | analyze\n"
    "  penstock decode in.mp4 frames.yuv -p source --timestamps times.csv"
)
@click.argument("source", metavar="INPUT", shell_complete=file_names)
@click.argument(
    "destination", metavar="[OUTPUT]", shell_complete=file_names, default=STANDARD, callback=as_standard
)
@click.option(
    "-p",
    "--pixel-format",
    metavar="NAME",
    default=str(DEFAULT_FORMAT),
    show_default=True,
    help="Pixel format of the frames: rgb24, bgra, gray, rgb48le, yuv420p, or any other that `ffmpeg -pix_fmts` "
    f"lists. '{SOURCE}' is the file's own.",
)
@options_of(DecodeOptions)
@click.option(
    "--every",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Deliver the first frame, and each Nth after it.",
)
@click.option(
    "--at",
    metavar="TIME,...",
    callback=parsed(moments),
    help="Deliver only the frames that are on screen at these times, in this order: 1.0,2.5,1:30.",
)
@click.option(
    "--start-number",
    metavar="N",
    type=click.IntRange(min=0),
    help="Number of the first image. The default is 1.",
)
@option(
    CommandOption(
        "--option NAME=VALUE",
        "FFmpeg option for images, without its dash: q=5 (JPEG; 2 is best), compression_level=1 (PNG). May be "
        "repeated.",
        is_repeated=True,
    )
)
@click.option(
    "--timestamps",
    metavar="FILE",
    shell_complete=file_names,
    callback=as_standard,
    help="Write a line of CSV for each frame: its number from 0, its timestamp, its time in seconds.",
)
@progress_option
@quiet_option
@json_option("Print a report as JSON when all frames are delivered.")
def decode(
    source: str,
    destination: str,
    timestamps: str | None,
    start_number: int | None,
    count: int | None,
    every: int,
    at: Sequence[float] | None,
    option: Mapping[str, str | None],
    progress: bool | None,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Decode a video to raw frames or to images.

    INPUT is a path, a URL that FFmpeg knows, - for standard input, or an existing FIFO (fifo:PATH). Each frame is
    delivered once, in presentation order, and rotated as the file says.

    OUTPUT is - or left out for standard output, an existing FIFO (fifo:PATH), or a file: raw frames follow one another,
    with nothing between them. Or OUTPUT is a pattern with a number (frames/%05d.png) for an image sequence: each frame
    becomes an image in the format of the suffix, and the folder is created if it's missing. Existing files are
    overwritten once the first frame is there.

    If the file is damaged or was cut off, all frames before the damage are delivered. If the decoder doesn't mark
    damage, the last of them may show it.

    Exit status: 0 when all frames are delivered; 1 after a failure; 2 for wrong usage; 130 after Ctrl-C, 143 after
    SIGTERM; 141, without a message, when nobody reads standard output any more.
    """
    name_options_in_messages()
    wanted = is_wanted(progress, quiet=quiet)
    destinations = Destinations(destination, timestamps, start_number, option)
    selection = Selection(count, every, at)
    settings["count"] = selection.decoded
    source = _as_path(source)
    _check_selection(selection, settings)
    _check_destinations(destinations, selection, as_json=as_json)
    began_s = time.monotonic()
    try:
        with shown_warnings(is_quiet=quiet), _decoder(source, settings) as decoder:
            frames = selection.frames(decoder, is_quiet=quiet)
            first = _next(frames)
            with (
                _opened(source, destinations, decoder, settings["ffmpeg"]) as (output, times),
                _progress(decoder, selection, settings, began_s, wanted=wanted) as shown,
            ):
                failure = _deliver(decoder, chain([first], frames), output, times, shown)
            seconds = time.monotonic() - began_s
    except Stopped as stopped:
        stopped.progress = stopped.progress or "frames delivered: 0"
        raise
    except InputError as error:
        raise click.ClickException(f"{error.message}; nothing was written") from None
    if as_json:
        click.echo(json.dumps(_report(decoder, source, output, seconds, failure), indent=2))
    if wanted:
        click.echo(_summary(decoder, selection, output, seconds), err=True)
    if failure is not None:
        raise click.ClickException(f"{failure.message}; frames delivered: {output.frames}")


def _as_path(source: str) -> str:
    return "/dev/stdin" if source == STANDARD else source.removeprefix(FIFO_PREFIX)


def _check_selection(selection: Selection, settings: Mapping[str, Any]) -> None:
    """Raise if ``--at`` is given together with options that exclude it."""
    others = ("start", "end", "duration", "fps", "filters", "follow_playlists")
    given = ["--count"] * (selection.count is not None) + ["--every"] * (selection.every > 1)
    given += [f"--{name.replace('_', '-')}" for name in others if settings[name] not in (None, False)]
    if selection.at is not None and given:
        raise click.UsageError(f"--at can't be combined with {', '.join(given)}")


def _check_destinations(destinations: Destinations, selection: Selection, *, as_json: bool) -> None:
    """Raise what can be known before the first frame."""
    frames, timestamps = destinations.frames, destinations.timestamps
    of_images = {
        "--start-number": destinations.start_number is not None,
        "--option": bool(destinations.options),
    }
    given = [name for name, is_given in of_images.items() if is_given]
    if given and not destinations.are_images:
        raise click.UsageError(f"raw frames as OUTPUT don't support {', '.join(given)}. Leave that out")
    uses = {"the frames": frames == STANDARD, "--timestamps": timestamps == STANDARD, "--json": as_json}
    users = [name for name, is_user in uses.items() if is_user]
    if len(users) > 1:
        raise click.UsageError(f"{' and '.join(users)} can't all go to standard output")
    check_standard_output()
    if frames == STANDARD:
        _refuse_terminal(1, "standard output")
    path = Path(frames)
    if is_file_name(frames) and not destinations.are_images and names_media(frames):
        raise click.UsageError(
            f"OUTPUT {show_name(frames)} must not have the name of a video, sound or image, because it would get raw "
            "frames. Use `penstock convert` to write a video, or decode several INPUTs one at a time"
        )
    with as_click_errors():
        if destinations.are_images and selection.most_frames != 1 and not endpoints.has_number(frames):
            several = path.with_name(f"{path.stem}-%05d{path.suffix}")
            one = "Add --count 1" if selection.at is None else "Pass --at one time"
            raise click.UsageError(f"{show_name(frames)} is one image only. {one}, or name many: {several}")
        for name in filter(is_file_name, filter(None, (frames, timestamps))):
            if not Path(name).is_fifo():  # such as >(program) of a shell: /dev/fd/63
                # As FFmpeg calls image files.
                endpoints.Output.of(
                    Path(name), "image2" if name == frames and destinations.are_images else None
                )


def _refuse_terminal(fd: int, title: str) -> None:
    if descriptors.is_terminal(fd):
        raise click.UsageError(
            f"{title} is a terminal, which can't show raw frames. Name an OUTPUT, or pipe into another program"
        )


def _decoder(source: str, settings: dict[str, Any]) -> Decoder:
    with as_click_errors():
        # The Decoder has its own defaults for options that were not given.
        given = {name: value for name, value in settings.items() if value is not None}
        given["settings"] = DecoderSettings(ffmpeg=given.pop("ffmpeg", None))
        if click.get_current_context().get_parameter_source("pixel_format") is ParameterSource.DEFAULT:
            given["pixel_format"] = DEFAULT_FORMAT
        return Decoder(source, **given)


def _next(frames: Iterator[VideoFrame]) -> Any:
    """The next frame; None at the end."""
    try:
        return next(frames, None)
    except (DecoderError, StalledError) as error:
        raise InputError(in_one_line(error)) from None


@contextmanager
def _opened(
    source: str, destinations: Destinations, decoder: Decoder, ffmpeg: str | None
) -> Iterator[tuple[Output, TimestampOutput | None]]:
    """Open where frames and their timestamps go: all FIFOs at once. Empty the files."""
    frames, timestamps = destinations.frames, destinations.timestamps
    names = [*([] if destinations.are_images else [frames]), *([] if timestamps is None else [timestamps])]
    with opened_destinations(names, source) as opened:
        times = (
            None if timestamps is None else TimestampOutput(opened[-1], is_standard=timestamps == STANDARD)
        )
        if destinations.are_images:
            refuse_repeats([*found_at(source), *found_at(frames)])
            with as_click_errors():
                encoder = _image_encoder(destinations, decoder, ffmpeg)
            yield ImageOutput(frames, encoder), times
        else:
            _refuse_terminal(opened[0].fd, opened[0].title)
            yield RawOutput(opened[0], decoder.frame_bytes, is_standard=frames == STANDARD), times


def _image_encoder(destinations: Destinations, decoder: Decoder, ffmpeg: str | None) -> Encoder:
    number, pixel_format = destinations.start_number, decoder.pixel_format
    if not (is_rgb(pixel_format) or is_gray(pixel_format)):  # the encoder does not know the video's matrix
        raise ValueError(
            f"images must be RGB or gray, not {pixel_format}. Use --pixel-format rgb24 or gray, or rgb48le or gray16le "
            "for 16 bits"
        )
    # FFmpeg takes the name of one image literally if it may update that.
    naming = {} if number is None else {"start_number": number}
    if not endpoints.has_number(destinations.frames):
        naming = {"update": 1}
    return Encoder(
        Path(destinations.frames),
        size=decoder.size,
        fps=_ANY_RATE,
        pixel_format=pixel_format,
        options={"f": "image2", **naming, **destinations.options},
        settings=EncoderSettings(queue_items=QUEUE_FRAMES, ffmpeg=ffmpeg),
    )


@contextmanager
def _progress(
    decoder: Decoder, selection: Selection, settings: Mapping[str, Any], began_s: float, *, wanted: bool
) -> Iterator[Progress]:
    if not wanted:
        yield Progress(None, began_s)
        return
    total, is_estimate = _expected_frames(decoder, selection, settings)
    rate = decoder.stream.frame_rate
    with VideoBar(total, None if rate is None else float(rate), is_estimate=is_estimate) as bar:
        yield Progress(bar, began_s)


def _expected_frames(
    decoder: Decoder, selection: Selection, settings: Mapping[str, Any]
) -> tuple[int | None, bool]:
    """How many frames will come, None if that is not known, and whether it is an estimate."""
    if selection.at is not None:
        return len(selection.at), False
    info, start, count = decoder.stream, settings["start"] or 0.0, selection.count
    end = settings["end"] if settings["duration"] is None else start + settings["duration"]
    frames, is_estimate = (info.frames, False) if settings["fps"] is None else (None, True)
    if frames is None and info.duration_s and (rate := settings["fps"] or info.frame_rate):
        frames, is_estimate = round(info.duration_s * rate), True
    if frames is not None and (start or end is not None):
        is_estimate, lasts_s = True, info.duration_s or 0.0
        share = (min(lasts_s, lasts_s if end is None else end) - start) / lasts_s if lasts_s else 0.0
        frames = max(1, round(frames * share)) if lasts_s else None
    if frames is not None:
        frames = math.ceil(frames / selection.every)
    if count is not None and (frames is None or count <= frames):
        return count, is_estimate
    return frames, is_estimate


def _deliver(
    decoder: Decoder,
    frames: Iterator[VideoFrame],
    output: Output,
    times: TimestampOutput | None,
    shown: Progress,
) -> InputError | None:
    """Deliver all frames. Return the failure that ended the input, after all frames before it were delivered."""
    try:
        failure = _deliver_until_failure(frames, output, times, shown)
        output.finish()
        shown.update(output, is_last=True)
    except BaseException as error:
        decoder.close()
        is_all = output.stop()
        if isinstance(error, Stopped):
            error.progress = f"frames delivered: {'' if is_all else 'at least '}{output.frames}"
        raise
    return failure


def _deliver_until_failure(
    frames: Iterator[VideoFrame], output: Output, times: TimestampOutput | None, shown: Progress
) -> InputError | None:
    try:
        while (frame := _next(frames)) is not None:
            output.write(frame)
            if times is not None:
                times.write(frame)
            shown.update(output)
    except InputError as failure:
        return failure
    return None


def _report(
    decoder: Decoder, source: str, output: Output, seconds: float, failure: InputError | None
) -> dict[str, Any]:
    """What ``--json`` prints."""
    width, height = decoder.size
    return {
        "input": source,
        "output": output.title,
        "frames": output.frames,
        "bytes": output.frames * decoder.frame_bytes,
        "elapsed_s": seconds,
        "fps": output.frames / seconds,
        "width": width,
        "height": height,
        "pixel_format": decoder.pixel_format,
        "frame_bytes": decoder.frame_bytes,
        "converted_by": decoder.converted_by,
        "error": None if failure is None else failure.message,
    }


def _summary(decoder: Decoder, selection: Selection, output: Output, seconds: float) -> str:
    size = "" if output.output_bytes is None else f", {decimal(output.output_bytes)}"
    # Frames at times come without the FFmpeg that has statistics.
    held_up = f"; {_held_up_by(decoder.stats)}" if selection.at is None else ""
    return (
        f"frames delivered: {output.frames} in {seconds:.2f} s, {output.frames / seconds:.1f} frames/s; "
        f"{output.title}{size}{held_up}"
    )


def _held_up_by(stats: DecoderStats) -> str:
    texts = {
        "ffmpeg": (stats.input_wait_s, "FFmpeg decoding: the worker waited for it {:.0%} of the time"),
        "caller": (stats.output_wait_s, "the output: frames waited for it {:.0%} of the time"),
        "conversion": (stats.converting_s, "the conversion: the worker spent {:.0%} of the time on it"),
    }
    return held_up_by(stats, texts)
