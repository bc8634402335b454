"""``penstock bench decode``"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import Any

import click

from penstock.bench import machine
from penstock.bench.decode.cases import JOBS, METHODS, Job, Settings
from penstock.bench.decode.report import print_goals, print_group
from penstock.bench.decode.run import has_errors, make_record, run_groups
from penstock.bench.options import (
    chosen,
    keep,
    resized,
    rounds_and_records,
    shown,
    table_console,
    working_ffmpeg,
)
from penstock.bench.parsing import by_name, parse_even_size
from penstock.commands.parameters import parsed

#: Some tenths of a second for the fastest, so that FFmpeg's start weighs much: a look, and no claim.
QUICK_JOBS = (
    replace(by_name(JOBS, "h264-720p"), frames=150),
    replace(by_name(JOBS, "reader"), frames=200),
)
QUICK_ROUNDS = 2


@click.command()
@chosen("--job", "jobs", JOBS, "repeat it or separate by commas.")
@chosen("--method", "methods", METHODS, "all of them by default.")
@click.option("--size", callback=parsed(parse_even_size), help="WIDTHxHEIGHT, instead of each job's own.")
@click.option("--frames", type=click.IntRange(min=1), help="Frames of each run, instead of each job's own.")
@click.option("--quick", is_flag=True, help="About half a minute: 720p and the reader, few frames, 2 rounds.")
@click.option(
    "--ffmpeg", metavar="PATH", help="The FFmpeg of all methods that take one; else the best that is found."
)
@rounds_and_records("decode")
def decode(
    jobs: tuple[Job, ...],
    size: tuple[int, int] | None,
    frames: int | None,
    quick: bool,
    ffmpeg: str | None,
    json_path: str | None,
    record: bool,
    **given: Any,
) -> None:
    """Frames from a video file, or a pipe, into memory, by every library in turn.

    By default: five jobs, every method that is installed, 5 rounds; a quarter of an hour. The files are made by
    FFmpeg first. Every option that says what to run also narrows --quick. A method that loses a frame, or shows
    another one or other colours, is an error, and has no speed; the exit status is then 1.
    """
    if importlib.util.find_spec("numpy") is None:
        raise click.ClickException("the frames are NumPy arrays: pip install numpy")
    settings = Settings(
        ffmpeg=working_ffmpeg(ffmpeg),
        jobs=resized(jobs or (QUICK_JOBS if quick else JOBS), size, frames),
        **({"rounds": QUICK_ROUNDS} if quick else {})
        | {name: value for name, value in given.items() if value},
    )
    console = table_console(json_path)
    before = machine.describe_machine()
    groups = shown(console, lambda report: run_groups(settings, report), print_group)
    if not groups:
        raise click.UsageError("none of these methods can run any of these jobs")
    print_goals(console, groups, settings.rounds)
    keep(make_record(settings, before, groups), console, json_path, record)
    if has_errors(groups):
        sys.exit(1)
