"""Results for people: a table for each configuration, one for the throughput, and what they say."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.bench.goals import Verdict, print_if_too_few, print_verdicts
from penstock.bench.pipeline.cases import END_TO_END, PARTS, Settings
from penstock.bench.pipeline.findings import findings
from penstock.bench.pipeline.latency import METRICS, Middle, Row
from penstock.bench.pipeline.throughput import Race


def print_latencies(console: Console, settings: Settings, rows: Sequence[Row]) -> None:
    """Print a table for each configuration, and below them what they say."""
    storage = "a simulated storage" if settings.simulated else "files in the page cache"
    console.print(
        Text(
            f"{settings.chunks} assets of {settings.chunk_bytes} bytes, {settings.codec}, from {storage}, "
            f"{settings.background} workers in the background; medians of {settings.rounds} rounds (IQR)",
            style="bold",
        )
    )
    for row in rows:
        console.print(_latency_table(row))
    for sentence in findings(rows):
        console.print(Text(sentence))
    console.print()


def _latency_table(row: Row) -> Table:
    middle = row.throughput()
    table = _table(
        ("µs", *METRICS),
        f"{row.configuration.name}: {', '.join(row.configuration.priorities)}; "
        f"{middle.median:.0f} MB/s ({middle.iqr:.0f})",
    )
    for part in (*PARTS, END_TO_END):
        table.add_row(part, *(_cell(row.figure(part, metric)) for metric in METRICS))
    return table


def _cell(middle: Middle) -> str:
    return f"{middle.median:.0f} ({middle.iqr:.0f})"


def print_race(console: Console, settings: Settings, race: Race) -> None:
    """Print the throughput of both sides."""
    table = _table(
        ("", "MB/s", "IQR", "gain", "what"),
        f"{settings.assets} {race.codec} assets of {settings.chunk_bytes} bytes, compressed to "
        f"{100 * race.ratio_of_sizes:.0f} %, from the page cache",
    )
    standard = race.contenders[-1].median()
    for side in race.contenders:
        gain = f"{side.median() / standard:.2f}x"
        table.add_row(side.name, f"{side.median():.0f}", f"{side.iqr():.0f}", gain, side.what)
    console.print(table)


def _table(columns: Sequence[str], title: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 or name == "what" else "right", no_wrap=True)
    return table


def print_goals(console: Console, verdicts: Sequence[Verdict], rounds: int) -> None:
    """Print which goals the results reach."""
    print_verdicts(console, verdicts)
    if verdicts:
        print_if_too_few(console, rounds)
