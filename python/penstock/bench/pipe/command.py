"""``penstock bench pipe``"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from penstock.bench import machine
from penstock.bench.options import (
    chosen,
    keep,
    list_of,
    names,
    rounds_and_records,
    shown,
    table_console,
    working_ffmpeg,
)
from penstock.bench.parsing import by_name, parse_bytes
from penstock.bench.pipe.cases import ENCODES, METHODS, QUICK_METHODS, SIZES, Settings, parse_size
from penstock.bench.pipe.report import print_goals, print_group
from penstock.bench.pipe.run import has_errors, make_record, run_groups
from penstock.commands.parameters import UNITS, parsed

QUICK = Settings(
    sizes=(by_name(SIZES, "1080p"),),
    methods=tuple(by_name(METHODS, name) for name in QUICK_METHODS),
    bytes_per_case=10**9,
    rounds=3,
)
FULL = Settings(encodes=ENCODES, buffers=(1, 4))


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{number} buffers cannot hold a frame")
    return number


@click.command()
@click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=parsed(list_of(parse_size)),
    help=f"{names(SIZES)} or WIDTHxHEIGHT; repeat it or separate by commas.",
)
@click.option(
    "--buffers",
    multiple=True,
    callback=parsed(list_of(_at_least_one)),
    help="How many buffers the frames go round in; 1 and 4 are the table's.",
)
@click.option(
    "--encode",
    "encodes",
    multiple=True,
    callback=parsed(list_of(lambda name: by_name(ENCODES, name))),
    help=f"What FFmpeg does with the frames: {names(ENCODES)} (x264 presets, but for null).",
)
@chosen("--method", "methods", METHODS, "all of them by default.")
@click.option(
    "--bytes",
    "bytes_per_case",
    metavar="BYTES",
    callback=parsed(parse_bytes),
    help=f"Bytes sent in each run, such as 500MB or 4GB; ultrafast gets a quarter, slow a twentieth. {UNITS}",
)
@click.option("--quick", is_flag=True, help="About 30 s: 1080p, null, the main methods, 3 rounds.")
@click.option(
    "--all", "full", is_flag=True, help="The full table, with 1 and 4 buffers and every encode. Hours."
)
@click.option("--no-content-check", is_flag=True, help="Leave out the untimed pass that compares frames.")
@click.option("--ffmpeg", metavar="PATH", help="The FFmpeg to use; else the best that is found.")
@rounds_and_records("pipe")
def pipe(
    quick: bool,
    full: bool,
    no_content_check: bool,
    ffmpeg: str | None,
    json_path: str | None,
    record: bool,
    **given: Any,
) -> None:
    """Frames from memory into FFmpeg, by every method in turn.

    By default: all four sizes to null with 4 buffers, 5 rounds, 4 GB a run; some minutes. Every option that
    says what to run also narrows --quick and --all. A method that loses, tears or adds a frame is an error,
    and has no speed; the exit status is then 1.
    """
    if quick and full:
        raise click.UsageError("--quick and --all exclude each other")
    preset = QUICK if quick else FULL if full else Settings()
    settings = replace(
        preset,
        ffmpeg=working_ffmpeg(ffmpeg),
        check_content=not no_content_check,
        **{name: value for name, value in given.items() if value},
    )
    console = table_console(json_path)
    before = machine.describe_machine()
    results = shown(console, lambda report: run_groups(settings, report), print_group)
    finished = make_record(settings, before, results)
    print_goals(console, results, settings.rounds)
    keep(finished, console, json_path, record)
    if has_errors(results):
        sys.exit(1)
