"""``penstock bench encode``"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from penstock.bench import machine
from penstock.bench.encode.cases import JOBS, METHODS, Job, Settings, parse_size
from penstock.bench.encode.report import print_goals, print_group
from penstock.bench.encode.run import has_errors, make_record, run_groups
from penstock.bench.options import keep, list_of, names, status_line, table_console
from penstock.bench.parsing import by_name
from penstock.commands.parameters import parsed
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg

#: A third of a second for the fastest, so that FFmpeg's start weighs much: a look, and no claim.
QUICK_JOBS = (replace(by_name(JOBS, "ultrafast-720p"), frames=150),)
QUICK_ROUNDS = 2


@click.command()
@click.option(
    "--job",
    "jobs",
    multiple=True,
    callback=parsed(list_of(lambda name: by_name(JOBS, name))),
    help=f"{names(JOBS)}; repeat it or separate by commas.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    callback=parsed(list_of(lambda name: by_name(METHODS, name))),
    help=f"{names(METHODS)}; all of them by default.",
)
@click.option("--size", callback=parsed(parse_size), help="WIDTHxHEIGHT, instead of each job's own.")
@click.option("--frames", type=click.IntRange(min=1), help="Frames of each run, instead of each job's own.")
@click.option("--rounds", type=click.IntRange(min=1), help="Runs of each method, interleaved.")
@click.option("--quick", is_flag=True, help="About half a minute: 720p ultrafast with few frames, 2 rounds.")
@click.option("--no-content-check", is_flag=True, help="Leave out the untimed pass that compares frames.")
@click.option(
    "--ffmpeg",
    "ffmpegs",
    multiple=True,
    metavar="PATH",
    help="The FFmpeg of all methods that take one; else the best that is found. Repeat it to run all with each.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the record there; - is standard output.")
@click.option("--record", is_flag=True, help="Keep the record as benchmarks/DATE-encode-MACHINE.json.")
def encode(
    jobs: tuple[Job, ...],
    size: tuple[int, int] | None,
    frames: int | None,
    quick: bool,
    no_content_check: bool,
    ffmpegs: tuple[str, ...],
    json_path: str | None,
    record: bool,
    **chosen: Any,
) -> None:
    """Frames from memory into a video file, by every library in turn.

    By default: six jobs, every method that is installed, 5 rounds; half an hour, and 5 GB of shared memory. The
    same FFmpeg serves all methods that take one. Every option that says what to run also narrows --quick. A
    method that loses, tears or adds a frame is an error, and has no speed; the exit status is then 1.
    """
    if importlib.util.find_spec("numpy") is None:
        raise click.ClickException("the frames are NumPy arrays: pip install numpy")
    settings = Settings(
        ffmpegs=tuple(dict.fromkeys(map(_working_ffmpeg, ffmpegs or (None,)))),
        jobs=_changed(jobs or (QUICK_JOBS if quick else JOBS), size, frames),
        check_content=not no_content_check,
        **({"rounds": QUICK_ROUNDS} if quick else {})
        | {name: value for name, value in chosen.items() if value},
    )
    console = table_console(json_path)
    before = machine.describe_machine()
    groups = []
    with status_line(console) as report:
        for group in run_groups(settings, report):
            groups.append(group)
            print_group(console, group)
    if not groups:
        raise click.UsageError("none of these methods can run any of these jobs")
    print_goals(console, groups, settings.rounds)
    keep(make_record(settings, before, groups), console, json_path, record)
    if has_errors(groups):
        sys.exit(1)


def _changed(jobs: Sequence[Job], size: tuple[int, int] | None, frames: int | None) -> tuple[Job, ...]:
    return tuple(_renamed(job, size, frames) for job in jobs)


def _renamed(job: Job, size: tuple[int, int] | None, frames: int | None) -> Job:
    """A job of another size has another name, for the goals are about the job as it was."""
    if size is not None:
        width, height = size
        job = replace(job, name=f"{job.name}-at-{width}x{height}", width=width, height=height)
    return job if frames is None else replace(job, frames=frames)


def _working_ffmpeg(path: str | None) -> str:
    try:
        found = find_ffmpeg(path)
        machine.ffmpeg_version(found)
    except (PenstockError, OSError) as error:
        raise click.ClickException(str(error)) from None
    return found
