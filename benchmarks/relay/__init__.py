"""Bytes from descriptor to descriptor, and from one to many, by every method: ``python -m benchmarks.relay``.

The ends and the methods have files of their own, because one would pass 500 lines. An *operation* moves a number of
bytes along a *way* once; a run repeats it for long enough to be timed. Before anything is timed, each method moves the
content untimed, and a checksum is taken of what arrives. In timed runs the number of bytes that arrive is compared, at
every end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

import click

from benchmarks.harness import tables
from benchmarks.harness.command import Benchmark, conduct
from benchmarks.harness.files import nameless_file, no_room
from benchmarks.harness.goals import Verdict, over
from benchmarks.harness.options import UNITS, by_name, chosen, common_options, given_in, listed, parse_bytes
from benchmarks.harness.results import Group, Method, Row, Run, rows_for
from benchmarks.harness.rounds import Report, check_content, run_rounds
from benchmarks.relay.ends import Content, Flow, Way
from benchmarks.relay.methods import (
    METHODS,
    MIB,
    READ_WRITE,
    RELAY,
    SINGLE,
    SPLICE,
    TEE,
    TUNED,
    WRITE_ALL,
    Outcome,
    moved_bytes,
    notes,
)

KIB, GIB = 2**10, 2**30
#: The sizes of the table that the Go library ``pipes`` publishes, and two that it has not.
FILE_TO_PIPE = (*(16 * KIB << n for n in range(7)), 10 * MIB, 100 * MIB, GIB)
FEW = (MIB, 100 * MIB)
#: Some tens of milliseconds.
FLAT_OUT = (256 * MIB,)
#: A third of a second at the slowest pace.
PACED = (64 * MIB,)
TEE_READERS = (1, 2, 4, 8)

WAYS = (
    # Nothing is moved: what a call costs.
    Way("call", "file", "pipe", (0,)),
    Way("file-pipe", "file", "pipe", FILE_TO_PIPE),
    Way("pipe-file", "pipe", "file", FEW),
    Way("pipe-pipe", "pipe", "pipe", FEW),
    Way("file-unix", "file", "unix", FEW),
    Way("file-tcp", "file", "tcp", FEW),
    *(Way(f"tee-{readers}", "pipe", "pipe", FLAT_OUT, readers) for readers in TEE_READERS),
    *(Way(f"tee-{readers}-paced", "pipe", "pipe", PACED, readers, is_paced=True) for readers in TEE_READERS),
)
#: Operations on end when the content is checked: the second shows a beginning that was not found again.
CHECKED_OPERATIONS = 2
#: Above it one is enough, because the checksum takes its time.
CHECKED_ONCE_BYTES = 64 * MIB


# --- one case ---------------------------------------------------------------------------------------------


@dataclass
class Case:
    """What every method of a group gets."""

    way: Way
    content: Content
    #: What is written to where the way ends in a file.
    sink: IO[bytes]
    #: A run lasts so long, so that its threads' begin and end weigh little.
    run_s: float
    #: By the method's name, how often it repeats the operation in a run.
    repeats: dict[str, int]

    def check(self, row: Row) -> Run:
        """Check the content, and find out how often the operation fits into a run."""
        once = self.way.is_tee or self.content.nbytes > CHECKED_ONCE_BYTES
        self.move(row.method, 1 if once else CHECKED_OPERATIONS, check=True)
        repeats = 1
        while not self.way.is_tee:
            seconds, _ = self.move(row.method, repeats)
            if seconds >= self.run_s:
                break
            # Not at once: the first operations of all are slower than those of a long run. A tenth for the spread.
            repeats = math.ceil(repeats * min(10, 1.1 * self.run_s / seconds))
        self.repeats[row.name] = repeats
        return Run()

    def measure(self, row: Row) -> Run:
        """Time one run."""
        repeats = self.repeats[row.name]
        seconds, outcome = self.move(row.method, repeats)
        figures: dict[str, float | None] = {"ops_per_s": repeats / seconds, "op_s": seconds / repeats}
        return Run(figures, {"operations": repeats, **notes(outcome)})

    def move(self, method: Method, repeats: int, *, check: bool = False) -> tuple[float, Outcome]:
        """Seconds from the first byte of the source until the last has arrived, and how the last operation ended.

        Raises:
            MisdeliveredError: other bytes have arrived than were sent, or fewer or more.
        """
        readers = 1 if method.name == SINGLE else max(1, self.way.readers)
        flow = Flow(self.way, self.content, self.sink, repeats=repeats, readers=readers, check=check)
        assert method.start is not None
        try:
            operate = method.start(flow.ends)
            started = time.perf_counter()
            flow.begin()
            for _ in range(repeats):
                outcome = operate()
            flow.finish()
            seconds = time.perf_counter() - started
        finally:
            flow.close()
        flow.verify(moved_bytes(outcome))
        return seconds, outcome


# --- groups -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are the whole table."""

    ways: tuple[Way, ...] = WAYS
    #: Instead of each way's own.
    sizes: tuple[int, ...] = ()
    methods: tuple[Method, ...] = METHODS
    rounds: int = 5
    run_s: float = 0.1

    def sizes_of(self, way: Way) -> tuple[int, ...]:
        """The sizes that are run. Of a call that moves nothing there is only one."""
        return self.sizes if self.sizes and any(way.sizes) else way.sizes


def run_groups(settings: Settings, report: Report = lambda _: None) -> Iterator[Group]:
    """Each group as soon as it was run."""
    for way in settings.ways:
        for nbytes in settings.sizes_of(way):
            rows = rows_for(settings.methods, way)
            if not rows:
                continue
            name = f"{way.name}, {show_size(nbytes)}"
            # For the content, and as much again for a sink.
            in_shared_memory = no_room(2 * nbytes) is None
            about = {"way": way.name, "bytes": nbytes, "in_shared_memory": in_shared_memory}
            group = Group(name, name, rows, about)
            with nameless_file(in_shared_memory) as source, nameless_file(in_shared_memory) as sink:
                case = Case(way, Content(source, nbytes), sink, settings.run_s, {})
                check_content(group, case.check, report)
                run_rounds(group, case.measure, settings.rounds, report)
            yield group


def show_size(nbytes: int) -> str:
    """Such as ``64 KiB``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


# --- goals and report -------------------------------------------------------------------------------------

SOURCE = (
    "the goals of Penstock's relay, set from what a prototype reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds"
)
#: Of a way, from a number of bytes up: the method over the best of the rivals.
GOALS: tuple[tuple[str, int, str, tuple[str, ...], float], ...] = (
    ("file-pipe", 64 * KIB, RELAY, (READ_WRITE,), 2.0),
    ("file-pipe", GIB, RELAY, (SPLICE, TUNED), 0.95),
    ("tee-4-paced", 0, TEE, (SINGLE,), 0.9),
)


def judge(group: Group) -> Iterator[Verdict]:
    """The goals about this way and size that its rows can judge."""
    for way, from_bytes, ours, rivals, at_least in GOALS:
        if group.about["way"] == way and group.about["bytes"] >= from_bytes:
            yield from over(group, [ours], rivals, at_least, "ops_per_s")


def note(row: Row) -> str | None:
    """How ours moved the bytes."""
    return f"{row.notes['method']} ({row.notes['reason']})" if "method" in row.notes else None


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}" if seconds >= 1e-4 else f"{seconds * 1e6:.2f}"


def _gb_per_s(group: Group, row: Row) -> str:
    spread = row.spread("ops_per_s")
    return f"{spread.median * group.about['bytes'] / 1e9:.2f}" if spread and group.about["bytes"] else ""


def _gb_per_s_iqr(group: Group, row: Row) -> str:
    spread = row.spread("ops_per_s")
    return f"{spread.iqr * group.about['bytes'] / 1e9:.2f}" if spread and group.about["bytes"] else ""


BENCHMARK = Benchmark(
    "relay",
    [
        tables.median("µs", "op_s", _microseconds),
        tables.iqr("µs\nIQR", "op_s", _microseconds),
        tables.Column("GB/s", _gb_per_s),
        tables.Column("GB/s\nIQR", _gb_per_s_iqr),
        tables.gain(READ_WRITE, WRITE_ALL, figure="ops_per_s"),
        tables.Column("operations\na run", lambda _group, row: str(row.notes["operations"])),
    ],
    judge,
    SOURCE,
    note,
)
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
@chosen("--way", "ways", WAYS)
@listed(
    "--size",
    "sizes",
    parse_bytes,
    f"Bytes moved by one operation, such as 64KiB or 1MiB, instead of each way's own sizes. {UNITS}",
    metavar="BYTES",
)
@chosen("--method", "methods", METHODS)
@click.option(
    "--seconds",
    "run_s",
    type=click.FloatRange(min=0, min_open=True),
    help="An operation is repeated until a run lasts so long.",
)
@common_options("relay", "About 20 s: the main ways and sizes, 3 rounds.")
def main(quick: bool, json_path: str | None, is_kept: bool, **given: Any) -> None:
    """Bytes from descriptor to descriptor, and from one to many, by every method in turn.

    By default: every way and size, 5 rounds; some minutes, and 1 GiB of memory. Every option that says what to
    run also narrows --quick. A method that loses, changes or adds a byte is an error, and has no speed; the
    exit status is then 1.
    """
    settings = given_in(QUICK if quick else Settings(), given)
    conduct(BENCHMARK, lambda report: run_groups(settings, report), vars(settings), json_path, is_kept)
