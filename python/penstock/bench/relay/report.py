"""Results for people: a table for each way and size, and how they compare with the goals."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.bench.goals import print_if_too_few, print_verdicts
from penstock.bench.relay.methods import READ_WRITE, WRITE_ALL
from penstock.bench.relay.run import Group, Row, Summary

COLUMNS = ("method", "µs", "µs\nIQR", "GB/s", "GB/s\nIQR", "gain", "operations\na run")
#: The methods that gains are counted from.
STANDARDS = (READ_WRITE, WRITE_ALL)


def print_group(console: Console, group: Group) -> None:
    """Print a group's table, and below it what its rows cannot say in numbers."""
    console.print(Text(group.title, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    rates = group.rates()
    standard = next((rates[name] for name in STANDARDS if name in rates), None)
    for row in group.rows:
        table.add_row(row.method.name, *_numbers(row, row.summary(), standard))
    console.print(table)
    for row in group.rows:
        if row.error:
            console.print(Text(f"{row.method.name}: ERROR: {row.error}", style="red"))
        elif row.skipped:
            console.print(Text(f"{row.method.name}: skipped: {row.skipped}", style="yellow"))
        elif row.notes:
            used = f"{row.method.name}: {row.notes['method']} ({row.notes['reason']})"
            console.print(Text(used, style="dim"))
    console.print()


def _numbers(row: Row, summary: Summary | None, standard: float | None) -> list[str]:
    if summary is None:
        return ["-"] * (len(COLUMNS) - 1)
    moves = summary.gb_per_s > 0
    return [
        _short(summary.op_s * 1e6),
        _short(summary.op_iqr_s * 1e6),
        f"{summary.gb_per_s:.2f}" if moves else "",
        f"{summary.gb_per_s_iqr:.2f}" if moves else "",
        "" if standard is None else f"{1 / summary.op_s / standard:.2f}x",
        str(row.repeats),
    ]


def _short(microseconds: float) -> str:
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.2f}"


def print_goals(console: Console, groups: Sequence[Group], rounds: int) -> None:
    """Print which goals the results reach, as far as they have the rows that it takes."""
    verdicts = [verdict for group in groups for verdict in group.verdicts()]
    print_verdicts(console, verdicts)
    if verdicts:
        print_if_too_few(console, rounds)
