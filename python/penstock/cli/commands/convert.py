"""``penstock convert``"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import click
from rich.filesize import decimal

from penstock._common.messages import show_name
from penstock._common.reports import EncodeReport
from penstock._decoding.image_files import find_images, has_image_name, is_sequence
from penstock._decoding.options import DecodeOptions, DecoderOptions
from penstock._encoding.request import Request
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import DecoderSettings
from penstock._platform import descriptors
from penstock.cli.conversion import Conversion
from penstock.cli.failures import as_click_errors, name_options_in_messages
from penstock.cli.names import FIFO_PREFIX, STANDARD, as_path
from penstock.cli.options import (
    encoder_arguments,
    file_names,
    json_option,
    options_of,
    progress_option,
    quiet_option,
)
from penstock.cli.progress import is_wanted
from penstock.cli.signals import Stopped
from penstock.errors import FFmpegWarning, PenstockError

# What only the encoder gets of the options that a decoder has, too; and a file that isn't trusted has its audio read.
_OF_ENCODER = ("color_matrix", "color_range", "isolated", "settings")
# Chosen: how late Ctrl-C may come. On Windows, no signal ends a wait for other threads.
_LOOK_S = 0.05
# The warnings of the conversion in this context.
_sentences: ContextVar[list[str]] = ContextVar("sentences")


@dataclass(frozen=True)
class Outcome:
    """How a conversion has ended. Without a report and an error, it was skipped."""

    conversion: Conversion
    report: EncodeReport | None
    error: Exception | None
    warnings: Sequence[str]


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock convert in.mov out.mp4\n"
    "  penstock convert in.mkv out.webm --size 1280x --quality good\n"
    "  penstock convert in.mp4 part.mp4 --start 1:30 --duration 10\n"
    "  penstock convert screen.mkv steady.mp4 --fps 30\n"
    "  penstock convert *.mov converted/ --suffix .mp4 --jobs 2"
)
@click.argument("inputs", metavar="INPUT...", shell_complete=file_names, nargs=-1, required=True)
@click.argument("output", callback=as_path, shell_complete=file_names)
@click.option(
    "--suffix",
    metavar=".EXT",
    help="With a folder as OUTPUT: the ending of its files, such as .mp4, which determines their container and codec.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace existing files that weren't made of this INPUT by these options.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many videos are converted at the same time.",
)
@click.option(
    "-p",
    "--pixel-format",
    metavar="NAME",
    help="Pixel format in which frames are read. The default is the file's own, which keeps the pixels if the codec "
    f"has it, and {DEFAULT_FORMAT} for JPEG, which says nothing of its colors.",
)
@options_of(DecodeOptions, but=_OF_ENCODER)
@options_of(Request)
@progress_option
@quiet_option
@json_option("Print a line of JSON for each INPUT when its video is done, or has failed.")
def convert(
    inputs: tuple[str, ...],
    output: str,
    suffix: str | None,
    overwrite: bool,
    jobs: int,
    progress: bool | None,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Convert videos to another codec, container, size or rate.

    Each frame keeps its time, also at a variable frame rate. The output keeps the pixel aspect ratio, colors, HDR
    metadata, tags, time code, chapters and best audio track of INPUT, but for those that you pass. If it can't keep
    something, there is a warning.

    INPUT is a path, a URL that FFmpeg knows, or - for standard input. OUTPUT is a path, or a folder if it exists or
    ends with /. Several INPUTs need a folder and --suffix: a.mov becomes OUTPUT/a.mp4 with --suffix .mp4.

    A file appears under its name when it's whole. A hidden file beside it (.a.mp4.convert) records what it was made
    of: the path, size and time of INPUT, and the options. The same command skips a file that it has made already, so
    you can repeat it after an interruption. Any other existing file is refused, unless you pass --overwrite.

    If an INPUT fails, the others are converted all the same.

    Exit status: 0 when all videos are there; 1 if some failed, which the last line names; 2 for wrong usage; 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    name_options_in_messages()
    wanted = is_wanted(progress, quiet=quiet)
    with as_click_errors():
        conversions = _conversions(inputs, output, suffix, settings)
        _check(conversions, as_json=as_json)
        left = _left(conversions, overwrite=overwrite)
    shown = Shown(len(conversions) > 1, quiet, wanted, as_json)
    for one in conversions:
        if one not in left:
            shown.show(Outcome(one, None, None, ()))
    _run(left, jobs, shown.show, progress=wanted and jobs == 1)
    shown.finish(len(conversions))


def _conversions(
    inputs: Sequence[str], output: str, suffix: str | None, settings: Mapping[str, Any]
) -> list[Conversion]:
    """What is to be done, with each output that an `Encoder` can write to, as far as that is known."""
    is_folder = output.endswith(("/", os.sep)) or Path(output).is_dir()
    if len(inputs) > 1 and not is_folder:
        raise click.UsageError(
            f"several INPUTs need a folder as OUTPUT, which {show_name(output)} is not. If it's missing, create it "
            f"with: mkdir {show_name(output)}"
        )
    if is_folder != (suffix is not None):
        raise click.UsageError(
            f"OUTPUT {show_name(output)} is a folder. Pass --suffix .mp4, or another ending"
            if is_folder
            else "--suffix needs a folder as OUTPUT. Leave it out, or end OUTPUT with /"
        )
    names = {name for name in DecoderOptions.__annotations__ if not name.startswith("color_")}
    reading = {name: settings[name] for name in names & settings.keys() if settings[name] is not None}
    reading["settings"] = DecoderSettings(ffmpeg=settings["ffmpeg"])
    arguments = {name: value for name, value in settings.items() if name not in names}
    writing = encoder_arguments(arguments)
    return [
        Conversion(
            _source(name, is_alone=len(inputs) == 1),
            output if suffix is None else _inside(output, name, suffix),
            reading,
            writing,
            settings,
        )
        for name in inputs
    ]


def _source(name: str, *, is_alone: bool) -> str:
    if not is_alone and (
        name == STANDARD or name.startswith(FIFO_PREFIX) or has_image_name(name) or is_sequence(name)
    ):
        raise click.UsageError(
            f"several INPUTs must be videos, which {show_name(name)} is not. Pass it alone; for images, use "
            "`penstock encode`"
        )
    if name == STANDARD:
        # FFmpeg opens a file once more for its audio, and has another standard input.
        path = descriptors.path_of_standard_input()
        return path if Path(path).is_file() else "/dev/stdin"
    name = name.removeprefix(FIFO_PREFIX)
    # Both raise if it is missing.
    find_images([name]) if is_sequence(name) else endpoints.source(name)
    return name


def _inside(folder: str, source: str, suffix: str) -> str:
    """The name of the output in the folder."""
    is_url = endpoints.is_url(source)
    stem = PurePosixPath(source.partition("?")[0]).stem if is_url else Path(source).stem
    if not stem or source == STANDARD:
        raise click.UsageError(f"{show_name(source)} has no name for its output. Pass a file as OUTPUT")
    return str(Path(folder, f"{stem}.{suffix.removeprefix('.')}"))


def _check(conversions: Sequence[Conversion], *, as_json: bool) -> None:
    """Raise what no conversion finds out: that one writes what another reads or writes."""
    outputs: dict[str, Conversion] = {}
    for one in conversions:
        if has_image_name(one.output) and "f" not in (one.writing.get("options") or {}):
            raise click.UsageError(
                f"OUTPUT {show_name(one.output)} is an image by its name. Use `penstock decode` to get images"
            )
        if as_json and endpoints.uses_stdout(one.to.target):
            raise click.UsageError("--json and the video can't both go to standard output")
        if (other := outputs.setdefault(one.to.target, one)) is not one:
            raise click.UsageError(
                f"{show_name(other.source)} and {show_name(one.source)} would both become {show_name(one.output)}. "
                "Convert them to different folders"
            )
        for read in conversions:
            if not endpoints.is_url(read.source) and endpoints.is_same_file(
                f"file:{read.source}", one.to.target
            ):
                raise click.UsageError(
                    f"OUTPUT {show_name(one.output)} is also an INPUT, which it would replace. Write another file"
                )


def _left(conversions: Sequence[Conversion], *, overwrite: bool) -> list[Conversion]:
    """Those whose output isn't there. Raises if another file is in its place."""
    left = [one for one in conversions if not one.is_done]
    in_the_way = [show_name(one.output) for one in left if one.to.path.is_file()]
    if in_the_way and not overwrite:
        raise click.UsageError(
            f"{', '.join(in_the_way)}: there is a file that wasn't made of this INPUT by these options. Pass "
            "--overwrite to replace it"
        )
    return left


def _run(
    conversions: Sequence[Conversion], jobs: int, ended: Callable[[Outcome], None], *, progress: bool
) -> None:
    """Run as many at a time, and call `ended` with the outcome of each. None is left behind."""
    with _collected_warnings(), ThreadPoolExecutor(jobs) as pool:
        try:
            # Each in a context of its own: that of this thread names options in messages.
            left = {pool.submit(copy_context().run, _outcome, one, progress) for one in conversions}
            while left:
                done, left = wait(left, _LOOK_S, FIRST_COMPLETED)
                for future in done:
                    ended(future.result())
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for one in conversions:
                one.stop()
            if isinstance(error, Stopped):
                error.progress = "unfinished videos are gone, and the same command makes them again"
            raise


def _outcome(one: Conversion, progress: bool) -> Outcome:
    sentences: list[str] = []
    _sentences.set(sentences)
    try:
        report = one.run(progress)
    except (PenstockError, OSError, ValueError, MemoryError) as error:
        return Outcome(one, None, error, sentences)
    return Outcome(one, report, None, [*sentences, *report.warnings])


@contextmanager
def _collected_warnings() -> Iterator[None]:
    """Have warnings about videos go to the list of their conversion, whose thread they come on."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FFmpegWarning)
        show = warnings.showwarning

        def collect(message: Any, category: type[Warning], *where: Any, **file: Any) -> None:
            if issubclass(category, FFmpegWarning) and (sentences := _sentences.get(None)) is not None:
                sentences.append(str(message))
            else:
                show(message, category, *where, **file)

        warnings.showwarning = collect
        yield


@dataclass(frozen=True)
class Shown:
    """What the user is shown of each outcome, and in the end."""

    are_several: bool
    quiet: bool
    wanted: bool
    as_json: bool
    failed: list[Outcome] = field(default_factory=list)

    def show(self, outcome: Outcome) -> None:
        """Show how one has ended. Raises if it is the only one, and has failed."""
        one, report = outcome.conversion, outcome.report
        error = None if outcome.error is None else one.in_words(outcome.error)
        sentences = [*dict.fromkeys(map(one.in_words, outcome.warnings))]
        if self.as_json:
            click.echo(json.dumps(_line(outcome, error, sentences)))
        about = f"{show_name(one.source)}: " if self.are_several else ""
        for warning in () if self.quiet else sentences:
            click.echo(f"Warning: {about}{warning}", err=True)
        if error is not None:
            if not self.are_several:
                raise (click.UsageError if isinstance(outcome.error, ValueError) else click.ClickException)(
                    error
                )
            self.failed.append(outcome)
            click.echo(f"Error: {about}{error}", err=True)
        elif self.wanted:
            click.echo(_summary(one, report), err=True)

    def finish(self, count: int) -> None:
        """Raise if some have failed."""
        if self.failed:
            names = ", ".join(show_name(each.conversion.source) for each in self.failed)
            raise click.ClickException(f"{len(self.failed)} of {count} INPUTs failed: {names}")


def _line(outcome: Outcome, error: str | None, sentences: Sequence[str]) -> dict[str, Any]:
    """What ``--json`` prints."""
    one, report = outcome.conversion, outcome.report
    return {
        "input": one.source,
        "output": one.to.name,
        "skipped": error is None and report is None,
        "error": error,
        "warnings": sentences,
        "frames": None if report is None else report.frames_encoded,
        "bytes": None if report is None else report.output_bytes,
        "elapsed_s": None if report is None else report.elapsed_s,
        "codec": None if report is None else report.codec,
    }


def _summary(one: Conversion, report: EncodeReport | None) -> str:
    if report is None:
        return f"skipped: {show_name(one.output)} was made of {show_name(one.source)} before"
    size = "" if report.output_bytes is None else f", {decimal(report.output_bytes)}"
    return (
        f"frames converted: {report.frames_encoded} in {report.elapsed_s:.2f} s, {report.fps:.1f} frames/s; "
        f"{show_name(one.output)}{size}"
    )
