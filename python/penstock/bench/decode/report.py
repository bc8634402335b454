"""Results for people: a table for each group, and how they compare with the goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.bench.decode.cases import BOUND, PIPE_STANDARD, STANDARD
from penstock.bench.decode.run import Group, Row, Summary
from penstock.bench.goals import print_if_too_few, print_verdicts

COLUMNS = (
    "method",
    "fps",
    "fps\nmin-max",
    "gain",
    "of\nbound",
    "first\nframe s",
    "CPU s\nours",
    "CPU s\nchild",
    "peak MiB\nours",
    "peak MiB\nchild",
    "off by\nlevels",
)


def print_group(console: Console, group: Group) -> None:
    """Print a group's table, and below it what its rows cannot say in numbers."""
    console.print(Text(group.job.title, style="bold"))
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
        _gain(summary, summaries),
        f"{summary.fps / summaries[BOUND].fps:.0%}" if BOUND in summaries else "",
        "" if summary.start_s is None else f"{summary.start_s:.2f}",
        f"{summary.cpu_own_s:.2f}",
        f"{summary.cpu_child_s:.2f}",
        _mebibytes(summary.peak_own_bytes),
        _mebibytes(summary.peak_child_bytes),
        "" if summary.difference is None else f"{summary.difference:.2f}",
    ]


def _gain(summary: Summary, summaries: dict[str, Summary]) -> str:
    standard = summaries.get(STANDARD) or summaries.get(PIPE_STANDARD)
    return f"{summary.fps / standard.fps:.2f}x" if standard else ""


def _rate(fps: float) -> str:
    return f"{fps:.0f}" if fps >= 100 else f"{fps:.1f}"


def _mebibytes(nbytes: float | None) -> str:
    return "" if nbytes is None else f"{nbytes / 2**20:.0f}"


def _notes(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Errors, what was skipped and why, what others have of their own, and what a method says of itself."""
    for row in rows:
        if row.error:
            yield f"{row.method.name}: ERROR: {row.error}", "red"
        elif row.skipped:
            yield f"{row.method.name}: skipped: {row.skipped}", "yellow"
        elif row.method.own_ffmpeg:
            order = "; its frames are BGR" if row.method.pixel_format == "bgr24" else ""
            yield f"{row.method.name}: an FFmpeg of its own, in its process{order}", "dim"
        elif row.rounds and (notes := row.rounds[-1].notes):
            said = ", ".join(f"{name} {_short(value)}" for name, value in notes.items())
            yield f"{row.method.name}: the last round's {said}", "dim"


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def print_goals(console: Console, groups: Sequence[Group], rounds: int) -> None:
    """Print which goals the results reach, as far as they have the rows that it takes."""
    verdicts = [verdict for group in groups for verdict in group.judgements()]
    print_verdicts(console, verdicts)
    if verdicts:
        print_if_too_few(console, rounds)
