"""Results for people: a table for each group, and how they compare with the goals."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.bench.goals import print_if_too_few, print_verdicts
from penstock.bench.pipe.cases import STANDARD
from penstock.bench.pipe.goals import MEMORY_LIMIT_BYTES
from penstock.bench.pipe.run import GroupResult, Row, Summary

#: Guessed: below this, other noise is larger.
STARTUP_SHARE_TOLD = 0.15

# Two lines of heading and few digits: the table fits a terminal of 80 columns.
COLUMNS = (
    "method",
    "fps",
    "fps\nmin-max",
    "fps\nIQR",
    "GB/s",
    "gain",
    "CPU s\nours",
    "CPU s\nFFmpeg",
    "peak\nMiB",
)


def print_group(console: Console, result: GroupResult) -> None:
    """Print a group's table, and below it what its rows cannot say in numbers."""
    group = result.group
    title = f"{group.title}: {group.frames} frames, {group.nbytes / 1e9:.2f} GB a run"
    if result.startup_s is not None:
        title += f", FFmpeg's start {result.startup_s:.2f} s"
    console.print(Text(title, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    standard = result.rates().get(STANDARD)
    for row in result.rows:
        table.add_row(row.method.name, *_numbers(row.summary(group.size.frame_bytes), standard))
    console.print(table)
    for note, style in _notes(result):
        console.print(Text(note, style=style))
    console.print()


def _numbers(summary: Summary | None, standard: float | None) -> list[str]:
    if summary is None:
        return ["-"] * (len(COLUMNS) - 1)
    peak = summary.peak_extra_bytes
    return [
        _rate(summary.fps),
        f"{_rate(summary.fps_min)}-{_rate(summary.fps_max)}",
        _rate(summary.fps_iqr),
        f"{summary.gb_per_s:.2f}",
        "" if standard is None else f"{summary.fps / standard:.2f}x",
        f"{summary.cpu_own_s:.2f}",
        f"{summary.cpu_child_s:.2f}",
        "" if peak is None else f"{peak / 2**20:.1f}",
    ]


def _rate(fps: float) -> str:
    return f"{fps:.0f}" if fps >= 100 else f"{fps:.1f}"


def _notes(result: GroupResult) -> Iterator[tuple[str, str]]:
    """Errors, what was skipped and why, and transports that are not what the row's name says."""
    for row in result.rows:
        if row.error:
            yield f"{row.method.name}: ERROR: {row.error}", "red"
        elif row.skipped:
            yield f"{row.method.name}: skipped: {row.skipped}", "yellow"
        elif used := _other_transports(row):
            yield f"{row.method.name}: used {used}", "dim"
    share = result.startup_share()
    if share is not None and share > STARTUP_SHARE_TOLD:
        yield (
            f"FFmpeg's start is {share:.0%} of the fastest run and pulls ratios to 1: send more --bytes",
            "dim",
        )


def _other_transports(row: Row) -> str:
    used = row.rounds[-1].notes.get("bytes_by_transport")
    if not isinstance(used, dict):
        return ""
    names = [name for name, nbytes in used.items() if nbytes]
    return "" if names == [row.method.mode] else ", ".join(names)


def print_goals(console: Console, results: list[GroupResult], rounds: int) -> None:
    """Print which goals the results reach, as far as they have the rows that it takes."""
    verdicts = [verdict for result in results for verdict in result.verdicts()]
    print_verdicts(console, verdicts)
    for line, met in _memory_lines(results):
        console.print(line, style="" if met else "yellow", highlight=False)
    if verdicts:
        print_if_too_few(console, rounds)


def _memory_lines(results: list[GroupResult]) -> list[tuple[str, bool]]:
    peaks = [
        (summary.peak_extra_bytes, f"{row.method.name}, {result.group.title}")
        for result in results
        for row in result.rows
        if row.method.mode is not None
        and (summary := row.summary(result.group.size.frame_bytes)) is not None
        and summary.peak_extra_bytes is not None
    ]
    if not peaks:
        return []
    peak, where = max(peaks)
    met = peak <= MEMORY_LIMIT_BYTES
    limit = MEMORY_LIMIT_BYTES / 2**20
    outcome = "met" if met else "missed"
    return [(f"own memory at most {peak / 2**20:.1f} MiB ({where}; target {limit:.0f} MiB: {outcome})", met)]
