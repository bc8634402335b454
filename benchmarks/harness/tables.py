"""Prints a group: its table, and remarks below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness.results import Group, Row


@dataclass(frozen=True)
class Column:
    """A column right of the methods' names."""

    heading: str
    #: Called for each row that was measured.
    cell: Callable[[Group, Row], str]


def print_group(
    console: Console, group: Group, columns: Sequence[Column], note: Callable[[Row], str | None]
) -> None:
    """Print a group. ``note`` gives a remark on a row that was measured, or None."""
    print_title(console, group)
    table = new_table("method", *(column.heading for column in columns))
    for row in group.rows:
        table.add_row(row.name, *(column.cell(group, row) if row.is_measured else "-" for column in columns))
    console.print(table)
    print_remarks(console, group, note)


def print_remarks(console: Console, group: Group, note: Callable[[Row], str | None]) -> None:
    """Print errors, skipped rows with the reason, notes, findings, and runs that were disturbed."""
    for row in group.rows:
        if row.error:
            console.print(Text(f"{row.name}: ERROR: {row.error}", style="red"))
        elif row.skipped:
            console.print(Text(f"{row.name}: skipped: {row.skipped}", style="yellow"))
        elif row.is_measured and (remark := note(row)):
            console.print(Text(f"{row.name}: {remark}", style="dim"))
    for finding in group.findings:
        console.print(Text(finding))
    if repeats := sum(row.repeats for row in group.rows):
        console.print(Text(f"runs repeated because other processes used the CPUs: {repeats}", style="dim"))
    if disturbed := [row.name for row in group.rows for _ in row.disturbed_rounds]:
        text = f"runs disturbed by other processes: {len(disturbed)} ({', '.join(dict.fromkeys(disturbed))})"
        console.print(Text(text, style="yellow"))
    console.print()


def print_title(console: Console, group: Group) -> None:
    """Print the title, and the version of FFmpeg."""
    console.print(Text(group.title, style="bold"))
    if group.ffmpeg:
        console.print(Text(group.ffmpeg, style="dim"))


def new_table(first: str, *others: str, title: str | None = None) -> Table:
    """A table with words in its first column and numbers in the others."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def column(
    heading: str,
    figure: str,
    show: Callable[[float], str],
    of: Literal["median", "max", "iqr"] = "median",
) -> Column:
    """A figure's median, largest value or interquartile range. The cell of an unknown figure is empty."""

    def cell(_group: Group, row: Row) -> str:
        spread = row.spread(figure)
        return show(getattr(spread, of)) if spread else ""

    return Column(heading, cell)


def rates(figure: str = "fps") -> list[Column]:
    """Two columns for the main figure: its median, and its smallest and largest value."""

    def both_ends(_group: Group, row: Row) -> str:
        spread = row.spread(figure)
        return f"{rate(spread.min)}-{rate(spread.max)}" if spread else ""

    return [column(figure, figure, rate), Column(f"{figure}\nmin-max", both_ends)]


def cpu_seconds(child: str = "FFmpeg") -> list[Column]:
    """Two columns: the CPU seconds of the calling process, and of its children."""
    return [
        column("CPU s\nours", "cpu_own_s", hundredths),
        column(f"CPU s\n{child}", "cpu_child_s", hundredths),
    ]


def part_of(bound: str) -> Column:
    """The share of the bound's frames per second."""
    return gain(bound, heading="of\nbound", form="{:.0%}")


def gain(*standards: str, figure: str = "fps", heading: str = "gain", form: str = "{:.2f}x") -> Column:
    """The ratio to the first of the standard methods that was measured."""

    def cell(group: Group, row: Row) -> str:
        medians = group.medians(figure)
        standard = next((medians[name] for name in standards if name in medians), None)
        return form.format(medians[row.name] / standard) if standard and row.name in medians else ""

    return Column(heading, cell)


def rate(value: float) -> str:
    """Few digits, so that a table fits a terminal."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def hundredths(value: float) -> str:
    """For seconds and milliseconds."""
    return f"{value:.2f}"


def mebibytes(nbytes: float) -> str:
    """For bytes."""
    return f"{nbytes / 2**20:.1f}" if nbytes < 10 * 2**20 else f"{nbytes / 2**20:.0f}"
