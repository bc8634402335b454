"""Prints a group: its table, and below it what the rows cannot say in numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness.results import Group, Row


@dataclass(frozen=True)
class Column:
    """A column beside the names of the methods."""

    heading: str
    #: Called for rows that were measured.
    cell: Callable[[Group, Row], str]


def print_group(
    console: Console, group: Group, columns: Sequence[Column], note: Callable[[Row], str | None]
) -> None:
    """Print a group. ``note`` is what there is to say of a row that was measured, if anything."""
    print_title(console, group)
    table = new_table("method", *(column.heading for column in columns))
    for row in group.rows:
        table.add_row(row.name, *(column.cell(group, row) if row.is_measured else "-" for column in columns))
    console.print(table)
    print_remarks(console, group, note)


def print_remarks(console: Console, group: Group, note: Callable[[Row], str | None]) -> None:
    """Print errors, what was skipped and why, notes, and findings."""
    for row in group.rows:
        if row.error:
            console.print(Text(f"{row.name}: ERROR: {row.error}", style="red"))
        elif row.skipped:
            console.print(Text(f"{row.name}: skipped: {row.skipped}", style="yellow"))
        elif row.is_measured and (said := note(row)):
            console.print(Text(f"{row.name}: {said}", style="dim"))
    for finding in group.findings:
        console.print(Text(finding))
    console.print()


def print_title(console: Console, group: Group) -> None:
    """Print what the group is about."""
    console.print(Text(group.title, style="bold"))
    if group.ffmpeg:
        console.print(Text(group.ffmpeg, style="dim"))


def new_table(first: str, *others: str, title: str | None = None) -> Table:
    """A table whose first column has words, and all others numbers."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def median(heading: str, figure: str, show: Callable[[float], str]) -> Column:
    """A figure's median; empty where it is unknown."""
    return _figure(heading, lambda row: row.median(figure), show)


def largest(heading: str, figure: str, show: Callable[[float], str]) -> Column:
    """The largest of all rounds."""
    return _figure(heading, lambda row: row.max(figure), show)


def iqr(heading: str, figure: str, show: Callable[[float], str]) -> Column:
    """How far apart the middle half of the rounds lies."""
    return _figure(heading, lambda row: spread.iqr if (spread := row.spread(figure)) else None, show)


def _figure(heading: str, read: Callable[[Row], float | None], show: Callable[[float], str]) -> Column:
    def cell(_group: Group, row: Row) -> str:
        value = read(row)
        return "" if value is None else show(value)

    return Column(heading, cell)


def rates(figure: str = "fps") -> list[Column]:
    """The main figure: its median, and from where to where the rounds lie."""

    def both_ends(_group: Group, row: Row) -> str:
        spread = row.spread(figure)
        return f"{rate(spread.min)}-{rate(spread.max)}" if spread else ""

    return [median(figure, figure, rate), Column(f"{figure}\nmin-max", both_ends)]


def gain(*standards: str, figure: str = "fps") -> Column:
    """How many times the standard method's figure it is. The first of the standards that was measured counts."""

    def cell(group: Group, row: Row) -> str:
        ratio = _ratio(group, row, standards, figure)
        return "" if ratio is None else f"{ratio:.2f}x"

    return Column("gain", cell)


def part_of(bound: str, figure: str = "fps") -> Column:
    """Which part of the bound's figure it is."""

    def cell(group: Group, row: Row) -> str:
        ratio = _ratio(group, row, (bound,), figure)
        return "" if ratio is None else f"{ratio:.0%}"

    return Column("of\nbound", cell)


def _ratio(group: Group, row: Row, standards: Sequence[str], figure: str) -> float | None:
    medians = group.medians(figure)
    standard = next((medians[name] for name in standards if name in medians), None)
    return medians[row.name] / standard if standard and row.name in medians else None


def rate(value: float) -> str:
    """With few digits, so that a table fits a terminal."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def hundredths(value: float) -> str:
    """Seconds, or milliseconds."""
    return f"{value:.2f}"


def mebibytes(nbytes: float) -> str:
    """Of bytes."""
    return f"{nbytes / 2**20:.1f}" if nbytes < 10 * 2**20 else f"{nbytes / 2**20:.0f}"
