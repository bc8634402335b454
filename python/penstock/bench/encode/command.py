"""``penstock bench encode``"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import Any

import click

from penstock.bench import machine
from penstock.bench.encode.cases import JOBS, METHODS, Job, Settings
from penstock.bench.encode.report import print_goals, print_group
from penstock.bench.encode.run import has_errors, make_record, run_groups
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

#: A third of a second for the fastest, so that FFmpeg's start weighs much: a look, and no claim.
QUICK_JOBS = (replace(by_name(JOBS, "ultrafast-720p"), frames=150),)
QUICK_ROUNDS = 2


@click.command()
@chosen("--job", "jobs", JOBS, "repeat it or separate by commas.")
@chosen("--method", "methods", METHODS, "all of them by default.")
@click.option("--size", callback=parsed(parse_even_size), help="WIDTHxHEIGHT, instead of each job's own.")
@click.option("--frames", type=click.IntRange(min=1), help="Frames of each run, instead of each job's own.")
@click.option("--quick", is_flag=True, help="About half a minute: 720p ultrafast with few frames, 2 rounds.")
@click.option("--no-content-check", is_flag=True, help="Leave out the untimed pass that compares frames.")
@click.option(
    "--ffmpeg",
    "ffmpegs",
    multiple=True,
    metavar="PATH",
    help="The FFmpeg of all methods that take one; else the best that is found. Repeat it to run all with each.",
)
@rounds_and_records("encode")
def encode(
    jobs: tuple[Job, ...],
    size: tuple[int, int] | None,
    frames: int | None,
    quick: bool,
    no_content_check: bool,
    ffmpegs: tuple[str, ...],
    json_path: str | None,
    record: bool,
    **given: Any,
) -> None:
    """Frames from memory into a video file, by every library in turn.

    By default: six jobs, every method that is installed, 5 rounds; half an hour, and 5 GB of shared memory. The
    same FFmpeg serves all methods that take one. Every option that says what to run also narrows --quick. A
    method that loses, tears or adds a frame is an error, and has no speed; the exit status is then 1.
    """
    if importlib.util.find_spec("numpy") is None:
        raise click.ClickException("the frames are NumPy arrays: pip install numpy")
    settings = Settings(
        ffmpegs=tuple(dict.fromkeys(map(working_ffmpeg, ffmpegs or (None,)))),
        jobs=resized(jobs or (QUICK_JOBS if quick else JOBS), size, frames),
        check_content=not no_content_check,
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
