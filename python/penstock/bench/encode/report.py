"""Results for people: a table for each group, and how they compare with the goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.bench import machine
from penstock.bench.encode.cases import BOUND, STANDARD
from penstock.bench.encode.run import Group, Row, Summary
from penstock.bench.goals import print_if_too_few, print_verdicts

COLUMNS = (
    "method",
    "fps",
    "fps\nmin-max",
    "gain",
    "of\nbound",
    "CPU s\nours",
    "CPU s\nFFmpeg",
    "blocked\np50 ms",
    "blocked\np99 ms",
    "memcpy\np99 ms",
    "peak\nMiB",
    "file\nMB",
)


def print_group(console: Console, group: Group) -> None:
    """Print a group's table, and below it what its rows cannot say in numbers."""
    console.print(Text(group.job.title, style="bold"))
    console.print(Text(machine.ffmpeg_version(group.ffmpeg), style="dim"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    summaries = group.summaries()
    for row in group.rows:
        table.add_row(row.method.name, *_numbers(summaries.get(row.method.name), summaries))
    console.print(table)
    for note, style in _notes(group.rows):
        console.print(Text(note, style=style))
    console.print()


def _numbers(summary: Summary | None, summaries: dict[str, Summary]) -> list[str]:
    if summary is None:
        return ["-"] * (len(COLUMNS) - 1)
    return [
        _rate(summary.fps),
        f"{_rate(summary.fps_min)}-{_rate(summary.fps_max)}",
        f"{summary.fps / summaries[STANDARD].fps:.2f}x" if STANDARD in summaries else "",
        f"{summary.fps / summaries[BOUND].fps:.0%}" if BOUND in summaries else "",
        f"{summary.cpu_own_s:.2f}",
        f"{summary.cpu_child_s:.2f}",
        _milliseconds(summary.blocked_p50_ms),
        _milliseconds(summary.blocked_p99_ms),
        _milliseconds(summary.copy_p99_ms),
        _peak(summary),
        f"{summary.output_bytes / 1e6:.1f}",
    ]


def _rate(fps: float) -> str:
    return f"{fps:.0f}" if fps >= 100 else f"{fps:.1f}"


def _milliseconds(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms:.2f}"


def _peak(summary: Summary) -> str:
    """Of both processes: an FFmpeg that runs in ours has its memory there."""
    if summary.blocked_p50_ms is None or summary.peak_own_bytes is None:
        return ""
    return f"{(summary.peak_own_bytes + (summary.peak_child_bytes or 0)) / 2**20:.0f}"


def _notes(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Errors, what was skipped and why, what cannot be compared, and what our own say of themselves."""
    for row in rows:
        if row.error:
            yield f"{row.method.name}: ERROR: {row.error}", "red"
        elif row.skipped:
            yield f"{row.method.name}: skipped: {row.skipped}", "yellow"
        elif row.method.own_ffmpeg:
            other = "" if row.method.kind == "rival" else f"; no rival: {row.method.summary}"
            yield f"{row.method.name}: an FFmpeg of its own, in its process{other}", "dim"
        elif row.rounds and (notes := row.rounds[-1].notes):
            who = f"converted by {notes['converted_by']}, {notes['transport']}"
            yield f"{row.method.name}: {who}; the last round's bottleneck: {notes['bottleneck']}", "dim"


def print_goals(console: Console, groups: Sequence[Group], rounds: int) -> None:
    """Print which goals the results reach, as far as they have the rows that it takes."""
    for group in groups:
        judgements = group.judgements()
        if judgements:
            console.print(machine.ffmpeg_version(group.ffmpeg), style="dim", highlight=False)
        print_verdicts(console, judgements)
    if any(group.judgements() for group in groups):
        print_if_too_few(console, rounds)
