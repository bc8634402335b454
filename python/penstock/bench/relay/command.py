"""``penstock bench relay``"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from penstock.bench import machine
from penstock.bench.options import chosen, keep, list_of, rounds_and_records, shown, table_console
from penstock.bench.parsing import by_name, parse_bytes
from penstock.bench.relay.cases import KIB, MIB, WAYS
from penstock.bench.relay.methods import METHODS
from penstock.bench.relay.report import print_goals, print_group
from penstock.bench.relay.run import Settings, has_errors, make_record, run_groups
from penstock.commands.parameters import UNITS, parsed

QUICK = Settings(
    ways=(
        by_name(WAYS, "call"),
        replace(by_name(WAYS, "file-pipe"), sizes=(16 * KIB, 64 * KIB, MIB, 100 * MIB)),
        replace(by_name(WAYS, "pipe-file"), sizes=(MIB,)),
        replace(by_name(WAYS, "file-tcp"), sizes=(MIB,)),
        by_name(WAYS, "tee-4"),
        by_name(WAYS, "tee-4-paced"),
    ),
    rounds=3,
    run_s=0.05,
)


@click.command()
@chosen("--way", "ways", WAYS, "repeat it or separate by commas.")
@click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=parsed(list_of(parse_bytes)),
    metavar="BYTES",
    help=f"Bytes moved by one operation, such as 64KiB or 1MiB, instead of each way's own sizes. {UNITS}",
)
@chosen("--method", "methods", METHODS, "all of them by default.")
@click.option(
    "--seconds",
    "run_s",
    type=click.FloatRange(min=0, min_open=True),
    help="An operation is repeated until a run lasts so long.",
)
@click.option("--quick", is_flag=True, help="About 20 s: the main ways and sizes, 3 rounds.")
@rounds_and_records("relay")
def relay(quick: bool, json_path: str | None, record: bool, **given: Any) -> None:
    """Bytes from descriptor to descriptor, and from one to many, by every method in turn.

    By default: every way and size, 5 rounds; some minutes, and 1 GiB of memory. Every option that says what to
    run also narrows --quick. A method that loses, changes or adds a byte is an error, and has no speed; the
    exit status is then 1.
    """
    settings = replace(
        QUICK if quick else Settings(), **{name: value for name, value in given.items() if value}
    )
    console = table_console(json_path)
    before = machine.describe_machine()
    groups = shown(console, lambda report: run_groups(settings, report), print_group)
    if not groups:
        raise click.UsageError("none of these methods goes any of these ways")
    print_goals(console, groups, settings.rounds)
    keep(make_record(settings, before, groups), console, json_path, record)
    if has_errors(groups):
        sys.exit(1)
