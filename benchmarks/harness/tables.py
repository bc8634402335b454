"""Prints a group: its table, and remarks below it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness.results import Group, Outcome, Row

#: The figures that tables show, in their order: heading, and factor.
COLUMNS = {
    "op_s": ("call µs", 1e6),
    "gb_per_s": ("GB/s", 1.0),
    "seconds": ("s", 1.0),
    "start_s": ("start s", 1.0),
    "first_frame_s": ("first frame ms", 1e3),
    "cpu_s": ("CPU s, all", 1.0),
    "cpu_own_s": ("CPU s, caller", 1.0),
    "cpu_child_s": ("CPU s, children", 1.0),
    "peak_own_bytes": ("peak MiB, caller", 2**-20),
    "peak_child_bytes": ("peak MiB, children", 2**-20),
    "resident_bytes": ("resident MiB", 2**-20),
    "blocked_p50_ms": ("blocked ms, p50", 1.0),
    "blocked_p99_ms": ("blocked ms, p99", 1.0),
    "copy_p99_ms": ("memcpy ms, p99", 1.0),
    "drawing_and_taking_p50_ms": ("draw and take ms, p50", 1.0),
    "drawing_and_taking_p99_ms": ("draw and take ms, p99", 1.0),
    "taking_p50_ms": ("take ms, p50", 1.0),
    "reader p50 µs": ("reader µs, p50", 1.0),
    "decompressor p50 µs": ("decompressor µs, p50", 1.0),
    "processor p50 µs": ("processor µs, p50", 1.0),
    "end to end p50 µs": ("end to end µs, p50", 1.0),
    "end to end p95 µs": ("end to end µs, p95", 1.0),
    "output_bytes": ("file MB", 1e-6),
    "psnr_db": ("PSNR dB", 1.0),
    "chunks": ("chunks", 1.0),
    "difference": ("off by levels", 1.0),
    "apart_ms": ("apart ms", 1.0),
}


def print_group(console: Console, group: Group, figures: Sequence[str], standards: Sequence[str]) -> None:
    """Print a group: the first of these figures that it has, and all others of `COLUMNS` that it has.

    Ratios are to the first of the standard methods, and of the bounds, that was measured.
    """
    console.print(Text(group.title, style="bold"))
    if group.ffmpeg:
        console.print(Text(group.ffmpeg, style="dim"))
    main = next((figure for figure in figures if group.medians(figure)), figures[0])
    heading, factor = COLUMNS.get(main, (main, 1.0))
    spreads = {row.name: spread for row in group.rows if (spread := row.spread(main))}
    columns: dict[str, dict[str, str]] = {heading: {}, "min-max": {}}
    for name, one in spreads.items():
        columns[heading][name] = short(factor * one.median)
        columns["min-max"][name] = f"{short(factor * one.min)}-{short(factor * one.max)}"
    bounds = [row.name for row in group.rows if row.method.kind == "bound"]
    for title, names in (("ratio", standards), ("of bound", bounds)):
        if standard := next((spreads[name].median for name in names if name in spreads), None):
            columns[title] = {name: f"{one.median / standard:.2f}" for name, one in spreads.items()}
    for figure, (title, factor) in COLUMNS.items():
        if figure != main and (medians := group.medians(figure)):
            columns[title] = {name: short(factor * value) for name, value in medians.items()}
    table = new_table("method", *(title.replace(", ", "\n") for title in columns))
    for row in group.rows:
        missing = "" if row.is_measured else "-"
        table.add_row(row.name, *(cells.get(row.name, missing) for cells in columns.values()))
    console.print(table)
    print_remarks(console, group)


def print_remarks(console: Console, group: Group) -> None:
    """Print errors, skipped rows with the reason, notes, findings, goals, and runs that were disturbed."""
    for row in group.rows:
        if row.error:
            console.print(Text(f"{row.name}: ERROR: {row.error}", style="red"))
        elif row.skipped:
            console.print(Text(f"{row.name}: skipped: {row.skipped}", style="yellow"))
        elif row.is_measured and (remark := remark_on(row)):
            console.print(Text(f"{row.name}: {remark}", style="dim"))
    for finding in group.findings:
        console.print(Text(finding))
    for outcome in group.outcomes:
        console.print(Text(said_of(outcome), style="red" if outcome.is_met is False else ""))
    if repeats := sum(row.repeats for row in group.rows):
        console.print(Text(f"runs repeated because other processes used the CPUs: {repeats}", style="dim"))
    if disturbed := [row.name for row in group.rows for _ in row.disturbed_rounds]:
        text = f"runs disturbed by other processes: {len(disturbed)} ({', '.join(dict.fromkeys(disturbed))})"
        console.print(Text(text, style="yellow"))
    console.print()


def said_of(outcome: Outcome) -> str:
    """A goal, the ratio, what the bound leaves, and the verdict."""
    bound = "" if outcome.enough is None else f" (the bound is {outcome.enough:.2f} ×)"
    ratio = "" if outcome.ratio is None else f": {outcome.ratio:.2f} ×{bound}"
    return f"goal: {outcome.goal}{ratio}: {outcome.verdict}"


def print_outcomes(console: Console, groups: Sequence[Group]) -> None:
    """Print the goals of all groups together."""
    every = [(group.name, outcome) for group in groups for outcome in group.outcomes]
    if not every:
        return
    table = new_table("goal", "measured", "bound", "", "job")
    for name, outcome in every:
        numbers = ("-" if one is None else f"{one:.2f} ×" for one in (outcome.ratio, outcome.enough))
        table.add_row(outcome.goal, *numbers, outcome.verdict, name)
    console.print(table)
    missed = sum(outcome.is_met is False for _, outcome in every)
    console.print(Text(f"goals missed: {missed} of {len(every)}"), highlight=False)


def remark_on(row: Row) -> str:
    """What cannot be compared, and what the method reported about itself in the last round."""
    told = ["an FFmpeg of its own, in its process"] * row.method.own_ffmpeg
    for name, value in row.notes.items():
        told.append(f"{name.replace('_', ' ')}: {short(value) if isinstance(value, float) else value}")
    return "; ".join(told)


def new_table(first: str, *others: str) -> Table:
    """A table with words in its first column and numbers in the others."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def short(value: float) -> str:
    """Three digits, or all those before the point."""
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
