"""``penstock bench …``"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from penstock.bench import machine
from penstock.bench.cases import (
    ENCODES,
    METHODS,
    QUICK_METHODS,
    SIZES,
    Settings,
    by_name,
    parse_bytes,
    parse_list,
    parse_size,
)
from penstock.bench.report import describe, print_goals, print_group
from penstock.bench.run import GroupResult, has_errors, make_record, run_groups
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg

QUICK = Settings(
    sizes=(by_name(SIZES, "1080p"),),
    methods=tuple(by_name(METHODS, name) for name in QUICK_METHODS),
    bytes_per_case=10**9,
    rounds=3,
)
FULL = Settings(encodes=ENCODES, buffers=(1, 4))


@click.group()
def bench() -> None:
    """Measure Penstock against the other ways."""


def _parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that turns a ValueError into a usage error."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _list_of(parse: Callable[[str], Any]) -> Callable[[Sequence[str]], tuple[Any, ...]]:
    return lambda texts: parse_list(texts, parse)


def _names(entries: Sequence[Any]) -> str:
    return ", ".join(entry.name for entry in entries)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{number} buffers cannot hold a frame")
    return number


@bench.command()
@click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=_parsed(_list_of(parse_size)),
    help=f"{_names(SIZES)} or WIDTHxHEIGHT; repeat it or separate by commas.",
)
@click.option(
    "--buffers",
    multiple=True,
    callback=_parsed(_list_of(_at_least_one)),
    help="How many buffers the frames go round in; 1 and 4 are the table's.",
)
@click.option(
    "--encode",
    "encodes",
    multiple=True,
    callback=_parsed(_list_of(lambda name: by_name(ENCODES, name))),
    help=f"What FFmpeg does with the frames: {_names(ENCODES)} (x264 presets, but for null).",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    callback=_parsed(_list_of(lambda name: by_name(METHODS, name))),
    help=f"{_names(METHODS)}; all of them by default.",
)
@click.option(
    "--bytes",
    "bytes_per_case",
    metavar="BYTES",
    callback=_parsed(parse_bytes),
    help="Bytes sent in each run, such as 500M, 4G or 2GiB; ultrafast gets a quarter, slow a twentieth.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="Runs of each method, interleaved.")
@click.option("--quick", is_flag=True, help="About 30 s: 1080p, null, the main methods, 3 rounds.")
@click.option(
    "--all", "full", is_flag=True, help="The full table, with 1 and 4 buffers and every encode. Hours."
)
@click.option("--no-content-check", is_flag=True, help="Leave out the untimed pass that compares frames.")
@click.option("--ffmpeg", metavar="PATH", help="The FFmpeg to use; else the best that is found.")
@click.option("--json", "json_path", metavar="PATH", help="Write the record there; - is standard output.")
@click.option("--record", is_flag=True, help="Keep the record as benchmarks/DATE-pipe-MACHINE.json.")
def pipe(
    quick: bool,
    full: bool,
    no_content_check: bool,
    ffmpeg: str | None,
    json_path: str | None,
    record: bool,
    **chosen: Any,
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
        ffmpeg=_working_ffmpeg(ffmpeg),
        check_content=not no_content_check,
        **{name: value for name, value in chosen.items() if value},
    )
    # The tables make way for a record on standard output.
    console = Console(stderr=json_path == "-", width=None if sys.stdout.isatty() else 160)
    before = machine.describe_machine()
    results = _run(settings, console)
    finished = make_record(settings, before, results)
    print_goals(console, results, settings.rounds)
    console.print(describe(finished), style="dim", highlight=False)
    if json_path:
        _write_json(finished, json_path)
    if record:
        path = record_path(before)
        _write_json(finished, str(path))
        console.print(f"record: {path}", highlight=False)
    if has_errors(results):
        sys.exit(1)


def _run(settings: Settings, console: Console) -> list[GroupResult]:
    results = []
    # On one terminal, one console must draw both: two would write over each other.
    with _status(console if console.is_terminal else Console(stderr=True)) as status:

        def report(what: str) -> None:
            if status is not None:
                status.update(what)

        for result in run_groups(settings, report):
            results.append(result)
            print_group(console, result)
    return results


def _status(console: Console) -> AbstractContextManager[Any]:
    """A line that says what is running, on a terminal; nothing in a log."""
    return console.status("starting") if console.is_terminal else nullcontext(None)


def _working_ffmpeg(path: str | None) -> str:
    try:
        found = find_ffmpeg(path)
        machine.ffmpeg_version(found)
    except (PenstockError, OSError) as error:
        raise click.ClickException(str(error)) from None
    return found


def record_path(described: dict[str, Any]) -> Path:
    """A file that is not there yet, in ``benchmarks`` of the repository or else of the current directory."""
    folder = (machine.checkout() or Path.cwd()) / "benchmarks"
    folder.mkdir(exist_ok=True)
    stem = f"{datetime.now(UTC):%Y-%m-%d}-pipe-{machine.slug(described)}"
    candidates = (folder / f"{stem}{suffix}.json" for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(path for path in candidates if not path.exists())


def _write_json(record: dict[str, Any], path: str) -> None:
    text = json.dumps(record, indent=1) + "\n"
    if path == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise click.ClickException(f"the record cannot be written: {error}") from None
