"""``penstock bench pipeline``"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from penstock.bench import machine
from penstock.bench.goals import ROUNDS_NEEDED, Verdict, as_record
from penstock.bench.options import keep, status_line, table_console
from penstock.bench.parsing import parse_bytes
from penstock.bench.pipeline.cases import CODECS, Settings
from penstock.bench.pipeline.findings import SOURCE, findings, verdicts
from penstock.bench.pipeline.latency import METRICS, MisdeliveredError, Row, run_rows
from penstock.bench.pipeline.picture import draw
from penstock.bench.pipeline.report import print_goals, print_latencies, print_race
from penstock.bench.pipeline.storage import MissingPackageError
from penstock.bench.pipeline.throughput import Race, run_race
from penstock.bench.record import header
from penstock.commands.parameters import UNITS, parsed

#: Of the record's layout; a change that a reader of records must know about counts it up.
SCHEMA = 1

QUICK = replace(Settings(), rounds=3, assets=500)


@click.command()
@click.option("--codec", type=click.Choice(CODECS), help="How the assets are compressed.  [default: zlib]")
@click.option(
    "--chunk",
    "chunk_bytes",
    callback=parsed(lambda text: text and parse_bytes(text)),
    metavar="BYTES",
    help=f"Size of an asset when it is decompressed.  [default: 64KiB] {UNITS}",
)
@click.option(
    "--chunks", type=click.IntRange(min=2), help="Assets that are timed one by one.  [default: 100]"
)
@click.option(
    "--background", type=click.IntRange(min=0), help="Workers that burn CPU meanwhile.  [default: 4]"
)
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Runs of each configuration, interleaved.  [default: 7]"
)
@click.option("--assets", type=click.IntRange(min=0), help="Assets of the throughput part; 0 leaves it out.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Threads of the throughput part, on each side.  [default: 2]",
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
@click.option("--quick", is_flag=True, help="3 rounds, and fewer assets.")
@click.option(
    "--picture", type=click.Path(path_type=Path), help="Draw the distributions there: PNG, SVG or PDF."
)
@click.option("--json", "json_path", metavar="PATH", help="Write the record there; - is standard output.")
@click.option("--record", is_flag=True, help="Keep the record as benchmarks/DATE-pipeline-MACHINE.json.")
def pipeline(quick: bool, picture: Path | None, json_path: str | None, record: bool, **chosen: Any) -> None:
    """Compressed assets through reader, decompressor and processor, while other work burns the CPUs.

    Three configurations in turn: all threads at normal priority; reader and processor above normal, with the
    decompressor at the highest; the same with each pinned to a CPU. Then, with nothing in the background, many assets
    as fast as it goes, against a pool of Python threads.
    """
    settings = replace(
        QUICK if quick else Settings(), **{name: value for name, value in chosen.items() if value is not None}
    )
    console = table_console(json_path)
    before = machine.describe_machine()
    try:
        with status_line(console) as report:
            rows = run_rows(settings, report)
            races = [run_race(settings, report)] if settings.assets and not settings.simulated else []
        if picture is not None:
            draw(rows, settings, picture)
    except (MissingPackageError, MisdeliveredError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    print_latencies(console, settings, rows)
    for race in races:
        print_race(console, settings, race)
    judged = verdicts(settings, rows, races)
    print_goals(console, judged, settings.rounds)
    keep(_record(settings, before, rows, races, judged), console, json_path, record)


def _record(
    settings: Settings, before: dict[str, Any], rows: list[Row], races: list[Race], judged: list[Verdict]
) -> dict[str, Any]:
    """Everything that was measured, ready for JSON."""
    return header("pipeline", SCHEMA, before, machine.describe_software()) | {
        "settings": asdict(settings),
        "configurations": [_row_record(row) for row in rows],
        "findings": findings(rows),
        "throughput": [_race_record(race) for race in races],
        "goals": {"source": SOURCE, "rounds_needed": ROUNDS_NEEDED, "verdicts": as_record(judged)},
    }


def _row_record(row: Row) -> dict[str, Any]:
    parts = row.runs[0].latencies_us
    return {
        "name": row.configuration.name,
        "priorities": row.configuration.priorities,
        "pins": row.configuration.pins,
        "refused": row.refused,
        "median_us": {
            part: {metric: asdict(row.figure(part, metric)) for metric in METRICS} for part in parts
        },
        "mb_per_s": asdict(row.throughput()),
        "rounds": [
            {
                "latencies_us": {
                    part: [round(value, 1) for value in run.latencies_us[part]] for part in parts
                },
                "mb_per_s": run.mb_per_s,
            }
            for run in row.runs
        ],
    }


def _race_record(race: Race) -> dict[str, Any]:
    return {
        "codec": race.codec,
        "compressed_to": race.ratio_of_sizes,
        "gain": race.gain(),
        "contenders": [
            {
                "name": side.name,
                "what": side.what,
                "median_mb_per_s": side.median(),
                "mb_per_s": side.mb_per_s,
            }
            for side in race.contenders
        ],
    }
