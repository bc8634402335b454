"""What priorities and pinning do to a stream of assets under load, and a race: ``python -m benchmarks.pipeline``.

`assets` are what is streamed, `latency` times them one by one while other work burns the CPUs, and `race` measures
throughput against a pool of Python threads. In one file they would pass 500 lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any

import click
from rich.console import Console

from benchmarks.harness import tables
from benchmarks.harness.command import Benchmark, conduct
from benchmarks.harness.goals import Verdict, over
from benchmarks.harness.options import UNITS, common_options, given_in, parse_bytes, parsed
from benchmarks.harness.results import Group, Row
from benchmarks.harness.rounds import Report
from benchmarks.pipeline.assets import CODECS, MissingPackageError, Settings
from benchmarks.pipeline.latency import (
    END_TO_END,
    METRICS,
    NORMAL,
    PARTS,
    PINNED,
    PRIORITIES,
    figure_name,
    run_latencies,
)
from benchmarks.pipeline.race import PIPELINE, POOL, run_race

SOURCE = "the goals of Penstock's pipelines, for a 2-core x86-64 virtual machine; medians of one run"
#: Of end-to-end p50 or p95 with priorities, against that without.
LOWER_BY = 0.2
#: Of the pipeline's throughput over that of a pool of Python threads.
GAINS = {"zlib": 2.0, "zstd": 1.5}

QUICK = replace(Settings(), rounds=3, assets=500)


def run_groups(settings: Settings, picture: Path | None, report: Report = lambda _: None) -> Iterator[Group]:
    """The latencies, and then the race.

    Raises:
        click.ClickException: a package is missing, or the picture cannot be written.
    """
    try:
        latencies = run_latencies(settings, report)
        latencies.findings = findings(latencies)
        if picture is not None:
            draw(latencies, picture)
        yield latencies
        if settings.assets and not settings.simulated:
            yield run_race(settings, report)
    except (MissingPackageError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


# --- what follows from the figures ------------------------------------------------------------------------


def findings(group: Group) -> list[str]:
    """Sentences for people, made of nothing but this run's figures.

    Each round has a run of every configuration, so that two of them can be compared round by round, whatever else the
    machine did meanwhile. A difference counts when three quarters of the rounds agree on its direction.
    """
    rows = {row.name: row for row in group.rows if row.is_measured}
    said = []
    for what, first, second in (
        ("Priorities, against none", NORMAL, PRIORITIES),
        ("Pinning, on top of priorities", PRIORITIES, PINNED),
    ):
        if first.name in rows and second.name in rows:
            pair = rows[first.name], rows[second.name]
            metrics = {metric: figure_name(END_TO_END, metric) for metric in ("p50", "p95")}
            changes = [_change(*pair, *names) for names in (*metrics.items(), ("throughput", "mb_per_s"))]
            said.append(f"{what}: end-to-end {', '.join(changes)}.")
    for row in group.rows:
        refused = {note for run in row.runs for note in run.notes.get("refused", [])}
        said += [f"Refused in {row.name!r}: {note}" for note in sorted(refused)]
    return said


def _change(first: Row, second: Row, metric: str, figure: str) -> str:
    """How a figure differs between two configurations: the ratios of the second to the first, round by round."""
    before, after = first.spread(figure), second.spread(figure)
    assert before is not None and after is not None
    ratios = [theirs / ours for ours, theirs in zip(before.rounds, after.rounds, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    doubt = "" if high < 1 or low > 1 else "; no clear difference"
    spread = f"{_percent(low)} to {_percent(high)} in the middle half of the rounds"
    return f"{metric} {_percent(middle)} ({spread}{doubt})"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def judge(group: Group) -> Iterator[Verdict]:
    """The goals that the group can judge."""
    if POOL in {row.name for row in group.rows}:
        if group.about["codec"] in GAINS:
            yield from over(group, [PIPELINE], [POOL], GAINS[group.about["codec"]], "mb_per_s")
        return
    gains = {}
    for metric in ("p50", "p95"):
        medians = group.medians(figure_name(END_TO_END, metric))
        if {NORMAL.name, PRIORITIES.name} <= medians.keys():
            gains[metric] = medians[NORMAL.name] / medians[PRIORITIES.name]
    if gains and group.about["background"]:
        best = max(gains, key=gains.__getitem__)
        yield Verdict(f"end-to-end {best}, all normal / priorities", gains[best], 1 / (1 - LOWER_BY))


# --- report -----------------------------------------------------------------------------------------------


def show(console: Console, group: Group) -> None:
    """A table for each configuration, or one for the race."""
    if POOL in {row.name for row in group.rows}:
        tables.print_group(console, group, RACE, lambda row: row.method.summary)
        return
    tables.print_title(console, group)
    for row in group.rows:
        rate = _cell(row, "mb_per_s")
        table = tables.new_table("µs", *METRICS, title=f"{row.name}: {row.method.summary}; {rate} MB/s")
        for part in (*PARTS, END_TO_END):
            table.add_row(part, *(_cell(row, figure_name(part, metric)) for metric in METRICS))
        console.print(table)
    tables.print_remarks(console, group, lambda _row: None)


def _cell(row: Row, figure: str) -> str:
    spread = row.spread(figure)
    return f"{spread.median:.0f} ({spread.iqr:.0f})" if spread else "-"


RACE = [
    tables.median("MB/s", "mb_per_s", "{:.0f}".format),
    tables.iqr("IQR", "mb_per_s", "{:.0f}".format),
    tables.gain(POOL, figure="mb_per_s"),
]
BENCHMARK = Benchmark("pipeline", RACE, judge, SOURCE, show=show)


def draw(group: Group, path: Path) -> None:
    """Draw for each configuration how many assets took no longer than so long; the path's ending says what file.

    Raises:
        MissingPackageError: matplotlib is not installed.
        OSError, ValueError: it cannot be written there, or the kind is unknown.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("a picture needs the package matplotlib: pip install matplotlib") from error
    # No pyplot: it would look for a screen.
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    for axes, part in zip(figure.subplots(1, 4, sharey=True), (*PARTS, END_TO_END), strict=True):
        for row in group.rows:
            values = sorted(value for run in row.runs if run.raw for value in run.raw[part])
            shares = [100 * (number + 1) / len(values) for number in range(len(values))]
            axes.step(values, shares, where="post", label=row.name)
        axes.set(title=part, xscale="log", xlabel="µs", ylim=(0, 100))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("% of assets, all rounds")
    figure.axes[-1].legend()
    figure.suptitle(group.title)
    figure.savefig(path, dpi=120)


@click.command()
@click.option("--codec", type=click.Choice([*CODECS]), help="How the assets are compressed.  [default: zlib]")
@click.option(
    "--chunk",
    "chunk_bytes",
    callback=parsed(parse_bytes),
    metavar="BYTES",
    help=f"Size of an asset when it is decompressed.  [default: 64KiB] {UNITS}",
)
@click.option(
    "--chunks", type=click.IntRange(min=2), help="Assets that are timed one by one.  [default: 100]"
)
@click.option(
    "--background", type=click.IntRange(min=0), help="Workers that burn CPU meanwhile.  [default: 4]"
)
@click.option("--assets", type=click.IntRange(min=0), help="Assets of the race; 0 leaves it out.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Threads of the race, on each side.  [default: 2]"
)
@click.option(
    "--depth", type=click.IntRange(min=1), help="Assets that may wait between two parts.  [default: 16]"
)
@click.option(
    "--simulated",
    is_flag=True,
    default=None,
    help="Instead of files, what the known example has: random bytes, compressed on the fly, and 1 to 5 ms of sleep.",
)
@click.option(
    "--picture", type=click.Path(path_type=Path), help="Draw the distributions there: PNG, SVG or PDF."
)
@common_options("pipeline", "3 rounds, and fewer assets.")
def main(quick: bool, picture: Path | None, json_path: str | None, is_kept: bool, **given: Any) -> None:
    """Compressed assets through reader, decompressor and processor, while other work burns the CPUs.

    Three configurations in turn: all threads at normal priority; reader and processor above normal, with the
    decompressor at the highest; the same with each pinned to a CPU. Then, with nothing in the background, many assets
    as fast as it goes, against a pool of Python threads.
    """
    settings = given_in(QUICK if quick else Settings(), given)
    conduct(
        BENCHMARK, lambda report: run_groups(settings, picture, report), vars(settings), json_path, is_kept
    )
