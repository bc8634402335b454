"""``penstock render``, ``penstock render chunk`` and ``penstock render assemble``"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.filesize import decimal

from penstock import rendering
from penstock._common.messages import show_name, silenced
from penstock._encoding.request import Request
from penstock.cli.messages import in_one_line, name_options_in_messages
from penstock.cli.names import as_path, check_standard_output
from penstock.cli.options import (
    encoder_arguments,
    file_names,
    json_option,
    options_of,
    parsed,
    progress_option,
    quiet_option,
)
from penstock.cli.progress import is_wanted
from penstock.cli.signals import Stopped
from penstock.errors import PenstockError
from penstock.rendering.api import render as render_scene
from penstock.rendering.chunk import Renderer
from penstock.rendering.code import add_cwd_to_sys_path
from penstock.rendering.options import ChunkOptions, RunOptions, SceneOptions
from penstock.rendering.planning import Plan, chunk_of_number
from penstock.rendering.reports import RenderReport

if TYPE_CHECKING:
    from penstock._encoding.request import EncoderOptions

_STANDARD = "-"
# The arguments of a plan, and those of the render beside them.
_OF_PLAN = [one.name for of in (SceneOptions, ChunkOptions) for one in fields(of)]
_OF_RUN = [one.name for one in fields(RunOptions)]


class WithSteps(click.Command):
    """A command that runs one of `steps` if its first argument is the name of that."""

    def __init__(self, *arguments: Any, steps: Iterable[click.Command], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.steps = {str(step.name): step for step in steps}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.steps:
            return self.steps[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def chunk_range(text: str) -> range:
    """Parse the number of a chunk, or the first and the last one, as in ``3-7``."""
    first, dash, last = text.partition("-")
    if (
        not first.isdecimal()
        or not (last.isdecimal() if dash else not last)
        or int(last or first) < int(first)
    ):
        raise ValueError(f"chunks must be a number such as 3, or a range such as 3-7, not {text!r}")
    return range(int(first), int(last or first) + 1)


@contextmanager
def _failures() -> Iterator[None]:
    """Failures in one line, with what is kept; wrong arguments are wrong usage."""
    try:
        yield
    except Stopped as stopped:
        stopped.progress = ". ".join(_notes(stopped)) or "nothing is kept"
        raise
    except (PenstockError, OSError, ImportError, SyntaxError, AttributeError, TypeError) as error:
        raise click.ClickException(". ".join([in_one_line(error), *_notes(error)])) from None
    except ValueError as error:
        raise click.UsageError(in_one_line(error)) from None


@contextmanager
def _stdout_reserved_for(report: bool) -> Iterator[None]:
    """Keep standard output for a report, if there is one: what the scene prints goes to standard error."""
    if not report:
        yield
        return
    check_standard_output()
    standard = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(standard, 1)
        os.close(standard)


def _notes(error: BaseException) -> list[str]:
    """The notes on an error, but for tracebacks."""
    return [note for note in getattr(error, "__notes__", []) if "\n" not in note]


plan_argument = click.argument("plan_file", metavar="PLAN", shell_complete=file_names)


@click.command("chunk")
@plan_argument
@click.argument("numbers", metavar="N", callback=parsed(chunk_range))
@quiet_option
@json_option("Print a report as JSON, one line for each chunk.")
def chunk(plan_file: str, numbers: range, quiet: bool, as_json: bool) -> None:
    """Render a chunk of a plan, or several.

    PLAN is a file that `penstock render --plan-only` wrote. It contains the scene, and its code runs. N is the number
    of a chunk, from 0, or a range such as 3-7. An existing chunk is replaced. Any machine can render it that reaches
    the plan's storage, and has the same version of FFmpeg.

    Exit status: 0 when the chunks are there; 1 after a failure; 2 for wrong usage; 130 after Ctrl-C, 143 after SIGTERM.
    """
    name_options_in_messages()
    planned = _read_plan(plan_file)
    with _failures():
        chunk_of_number(planned, numbers[-1])
        add_cwd_to_sys_path()
        with silenced():  # the report has all warnings
            with _stdout_reserved_for(as_json):
                renderer = Renderer(planned, None)
            for number in numbers:
                with _stdout_reserved_for(as_json):
                    report = renderer.render(number)
                if as_json:
                    click.echo(json.dumps(asdict(report)))
                _show_warnings(report.warnings, quiet=quiet)


@click.command("assemble")
@plan_argument
@quiet_option
@json_option("Print a report as JSON when the video is done.")
def assemble(plan_file: str, quiet: bool, as_json: bool) -> None:
    """Join the chunks of a plan to its video.

    All chunks of PLAN must be in its storage, and this machine must reach it. The chunks are verified, joined without
    encoding again, and removed. The audio is added here.

    Exit status: 0 when the video is complete; 1 after a failure; 2 for wrong usage; 130 after Ctrl-C, 143 after
    SIGTERM.
    """
    name_options_in_messages()
    planned = _read_plan(plan_file)
    with _failures():
        joined = rendering.assemble(planned)
    if as_json:
        click.echo(json.dumps(asdict(joined), indent=2))
    _show_warnings(joined.warnings, quiet=quiet)


def _read_plan(name: str) -> Plan:
    try:
        return Plan.from_json(Path(name).read_text())
    except OSError as error:
        raise click.ClickException(in_one_line(error)) from None
    except ValueError as error:
        raise click.ClickException(f"{show_name(name)}: {error}") from None


@click.command(
    cls=WithSteps,
    steps=(chunk, assemble),
    epilog="\b\n"
    "Examples:\n"
    "  penstock render scenes.py:waves out.mp4 --frames 2400 --size 1920x1080 --fps 60\n"
    "  penstock render shots.film:Intro out.mov --frames 0:480 --size 1280x720 --fps 24 --codec prores_ks\n"
    "\n\b\n"
    "The steps one by one, for a scheduler of your own (`penstock render chunk --help`):\n"
    "  penstock render scenes.py:waves out.mp4 --frames 2400 --size 1920x1080 --fps 60 --plan-only plan.json\n"
    "  penstock render chunk plan.json 0-4\n"
    "  penstock render assemble plan.json",
)
@click.argument("scene", metavar="MODULE:SCENE", shell_complete=file_names)
@click.argument("output", callback=as_path, shell_complete=file_names)
@options_of(SceneOptions)
@options_of(ChunkOptions)
@options_of(RunOptions)
@click.option(
    "--no-resume", is_flag=True, help="Render everything again, without the chunks of an earlier call."
)
@click.option(
    "--plan-only",
    "plan_file",
    metavar="[FILE]",
    shell_complete=file_names,
    is_flag=False,
    flag_value=_STANDARD,
    help="Write the plan to FILE, or to standard output if FILE is - or left out, and render nothing.",
)
@click.option(
    "--pixel-format",
    metavar="NAME",
    help="Pixel format that the scene draws: rgb24 (the default), bgra, gray, or any other that `ffmpeg -pix_fmts` "
    "lists.",
)
@options_of(Request, but=("crash_safe", "audio", "subtitles"))
@progress_option
@quiet_option
@json_option("Print a report as JSON when the video is done.")
def render(
    scene: str,
    output: str,
    no_resume: bool,
    plan_file: str | None,
    progress: bool | None,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Render a scene on several processes or machines.

    MODULE:SCENE names a function that draws a frame, scene(index, time_s, view), or a class: each worker makes one
    object of it to call. MODULE is a module that Python finds from the current folder, or a file, as in
    scenes.py:waves.

    The frames are divided into chunks. One worker draws and encodes each chunk, and the chunks are joined without
    encoding again. OUTPUT is a file, which appears when the video is complete. After a failure or Ctrl-C, the same
    command continues after the finished chunks.

    A plan contains the scene, and rendering it runs the scene's code: only render plans from people whom you trust.

    Exit status: 0 when the video is complete; 1 after a failure; 2 for wrong usage; 130 after Ctrl-C, 143 after
    SIGTERM.
    """
    name_options_in_messages()
    wanted = is_wanted(progress, quiet=quiet)
    if plan_file is not None and as_json:
        raise click.UsageError("--plan-only can't be combined with --json: the plan is JSON already")
    planning, running = (
        {name: given.pop(name) for name in names if name in given} for names in (_OF_PLAN, _OF_RUN)
    )
    planning["encoder_options"] = cast("EncoderOptions", encoder_arguments(given))
    with _failures():
        if plan_file is not None:
            with _stdout_reserved_for(plan_file == _STANDARD):
                planned = rendering.plan(scene, output, **planning)
            with click.open_file(plan_file, "w") as file:  # which takes - for standard output
                file.write(planned.to_json())
            return
        with _stdout_reserved_for(as_json):
            report = render_scene(scene, output, **planning, **running, resume=not no_resume, progress=wanted)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    _show_warnings(report.warnings, quiet=quiet)
    if wanted:
        click.echo(_summary(report), err=True)


def _summary(report: RenderReport) -> str:
    notes = [
        f"chunks: {report.chunks}{f', {report.resumed} of them from before' * bool(report.resumed)}",
        f"workers: {len(report.workers)}",
        *([f"retries: {report.retries}"] if report.retries else []),
        f"joined in {report.join_s:.2f} s",
    ]
    return (
        f"frames rendered: {report.frames} in {report.elapsed_s:.2f} s, {report.fps:.1f} frames/s; "
        f"{show_name(report.output)}, {decimal(report.output_bytes)}; {'; '.join(notes)}"
    )


def _show_warnings(lines: tuple[str, ...], *, quiet: bool) -> None:
    for line in () if quiet else lines:
        click.echo(f"Warning: {line}", err=True)
