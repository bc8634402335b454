"""The course of a benchmark: run the groups, print each, judge them, and write the record."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console

from benchmarks.harness import machine, record
from benchmarks.harness.goals import ROUNDS_NEEDED, Verdict
from benchmarks.harness.results import Group, Row
from benchmarks.harness.rounds import Report
from benchmarks.harness.tables import Column, print_group


def no_note(_row: Row) -> None:
    """Of benchmarks with nothing to say below a table."""


@dataclass(frozen=True)
class Benchmark:
    """What the harness needs to know of a benchmark."""

    name: str
    columns: Sequence[Column]
    #: Which goals a group reaches, as far as it has the rows.
    judge: Callable[[Group], Iterable[Verdict]]
    #: Where the goals come from.
    source: str
    #: What there is to say of a row below the table.
    note: Callable[[Row], str | None] = no_note
    #: Packages whose versions bear on the result.
    packages: tuple[str, ...] = ()
    #: Prints a group whose table has another form.
    show: Callable[[Console, Group], None] | None = None

    def print(self, console: Console, group: Group) -> None:
        """Print a group."""
        if self.show is None:
            print_group(console, group, self.columns, self.note)
        else:
            self.show(console, group)


def conduct(
    benchmark: Benchmark,
    groups: Callable[[Report], Iterable[Group]],
    settings: dict[str, Any],
    json_path: str | None,
    is_kept: bool,
) -> None:
    """Run a benchmark. The exit status is 1 if a method failed, or lost or changed a byte.

    ``groups`` is given what to call before each run. ``settings`` go into the record; ``rounds`` is one of them.
    """
    # A run's process is then killed and waited for, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    # Tables make way for a record on standard output.
    console = Console(stderr=json_path == "-", width=None if sys.stdout.isatty() else 160)
    before = machine.describe_machine()
    done = []
    with _status_line(console) as report:
        for group in groups(report):
            done.append(group)
            benchmark.print(console, group)
    if not done:
        raise click.UsageError("none of these methods can do any of these jobs")
    verdicts = [verdict for group in done for verdict in benchmark.judge(group)]
    _print_verdicts(console, verdicts, settings["rounds"])
    software = machine.describe_software(
        **{name: machine.package_version(name) for name in benchmark.packages}
    )
    if ffmpegs := dict.fromkeys(group.ffmpeg for group in done if group.ffmpeg):
        software["ffmpeg"] = "; ".join(ffmpegs)
    made = record.make(benchmark.name, before, software, settings, done, verdicts, benchmark.source)
    _keep(made, console, json_path, is_kept)
    if any(row.error for group in done for row in group.rows):
        sys.exit(1)


def _print_verdicts(console: Console, verdicts: Sequence[Verdict], rounds: int) -> None:
    for verdict in verdicts:
        console.print(str(verdict), style="" if verdict.met else "yellow", highlight=False)
    if verdicts and rounds < ROUNDS_NEEDED:
        few = f"({rounds} rounds: too few for a claim, {ROUNDS_NEEDED} are needed)"
        console.print(few, style="dim", highlight=False)


def _status_line(console: Console) -> AbstractContextManager[Report]:
    """What tells a terminal which case is running. In a log it says nothing."""
    # On one terminal, one console must draw both: two would write over each other.
    drawing = console if console.is_terminal else Console(stderr=True)
    return _updating(drawing) if drawing.is_terminal else nullcontext(lambda _: None)


@contextmanager
def _updating(console: Console) -> Iterator[Report]:
    with console.status("starting") as status:
        yield status.update


def _keep(made: dict[str, Any], console: Console, json_path: str | None, is_kept: bool) -> None:
    console.print(record.describe(made), style="dim", highlight=False)
    try:
        if json_path:
            record.write(made, json_path)
        if is_kept:
            path = record.path_of(made)
            record.write(made, str(path))
            console.print(f"record: {path}", highlight=False)
    except OSError as error:
        raise click.ClickException(f"the record cannot be written: {error}") from None
