"""Results for people: a table for each group, and how they compare with the goals."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.bench.cases import STANDARD
from penstock.bench.goals import MEMORY_LIMIT_BYTES, ROUNDS_NEEDED
from penstock.bench.run import GroupResult, Row, Summary

COLUMNS = (
    "method",
    "fps",
    "GB/s",
    "gain",
    "min-max fps",
    "IQR",
    "CPU s ours",
    "CPU s FFmpeg",
    "peak MiB",
    "note",
)


def print_group(console: Console, result: GroupResult) -> None:
    """Print a group's table."""
    group = result.group
    title = f"{group.title}: {group.frames} frames, {group.nbytes / 1e9:.2f} GB a run"
    if result.startup_s is not None:
        title += f", {result.startup_s:.2f} s of it FFmpeg's start"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        table.add_column(
            name, justify="left" if name in ("method", "note") else "right", no_wrap=name != "note"
        )
    standard = result.rates().get(STANDARD)
    for row in result.rows:
        table.add_row(*_cells(row, row.summary(group.size.frame_bytes), standard))
    console.print(table)


def _cells(row: Row, summary: Summary | None, standard: float | None) -> list[Text | str]:
    if summary is None:
        note = Text(f"ERROR: {row.error}", style="red") if row.error else Text(row.skipped or "", style="dim")
        return [row.method.name, *[""] * (len(COLUMNS) - 2), note]
    peak = summary.peak_extra_bytes
    return [
        row.method.name,
        f"{summary.fps:.1f}",
        f"{summary.gb_per_s:.2f}",
        "" if standard is None else f"{summary.fps / standard:.2f}x",
        f"{summary.fps_min:.1f}-{summary.fps_max:.1f}",
        f"{summary.fps_iqr:.1f}",
        f"{summary.cpu_own_s:.2f}",
        f"{summary.cpu_child_s:.2f}",
        "" if peak is None else f"{peak / 2**20:.1f}",
        Text(_note(row), style="dim"),
    ]


def _note(row: Row) -> str:
    """The transports that our own methods really used, where that is not their name."""
    used = row.rounds[-1].notes.get("bytes_by_transport")
    if not isinstance(used, dict):
        return ""
    names = [name for name, nbytes in used.items() if nbytes]
    return "" if names == [row.method.mode] else "used " + ", ".join(names)


def print_goals(console: Console, results: list[GroupResult], rounds: int) -> None:
    """Print which goals the results reach, as far as they have the rows that it takes."""
    verdicts = [verdict for result in results for verdict in result.verdicts()]
    for verdict in verdicts:
        console.print(str(verdict), style="" if verdict.met else "yellow", highlight=False)
    for line, met in _memory_lines(results):
        console.print(line, style="" if met else "yellow", highlight=False)
    if verdicts and rounds < ROUNDS_NEEDED:
        console.print(f"({rounds} rounds: too few for a claim, {ROUNDS_NEEDED} are needed)", style="dim")


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


def describe(record: dict[str, Any]) -> str:
    """One line on what a record was measured on."""
    machine, software = record["machine"], record["software"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, "
        f"huge pages {machine['transparent_hugepage']}; "
        f"{software['ffmpeg']}, Python {software['python']}, penstock {software['penstock']}"
    )
