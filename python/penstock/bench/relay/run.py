"""Runs the cases in turn, accounts for every byte, and keeps all that was measured.

Before anything is timed, each method moves the content untimed, and a checksum is taken of what arrives. In the
timed runs the number of bytes that arrive is compared, at every end. A method that fails either has no speed.

The rounds of a group are interleaved: every method runs once before any runs again, and another begins each
round, so that a machine that gets slower or busier meanwhile does so for all of them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from penstock.bench import machine
from penstock.bench.goals import ROUNDS_NEEDED, Verdict, as_record
from penstock.bench.record import header
from penstock.bench.relay.cases import MIB, WAYS, Way, show_size
from penstock.bench.relay.ends import Content, Flow, nameless_file
from penstock.bench.relay.goals import SOURCE, judge
from penstock.bench.relay.methods import METHODS, Method, Outcome, moved_bytes, notes
from penstock.bench.spread import iqr

#: Of the record's layout; a change that a reader of records must know about counts it up.
SCHEMA = 1
#: Operations on end when the content is checked: the second shows a beginning that was not found again.
CHECKED_OPERATIONS = 2
#: Above it one is enough, for the checksum takes its time.
CHECKED_ONCE_BYTES = 64 * MIB

Report = Callable[[str], None]


class MisdeliveredError(Exception):
    """What arrived is not what was sent."""


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are the whole table."""

    ways: tuple[Way, ...] = WAYS
    #: Instead of each way's own.
    sizes: tuple[int, ...] = ()
    methods: tuple[Method, ...] = METHODS
    rounds: int = 5
    #: An operation is repeated until a run lasts so long, so that its threads' begin and end weigh little.
    run_s: float = 0.1

    def sizes_of(self, way: Way) -> tuple[int, ...]:
        """The sizes that are run; of a call that moves nothing there is only one."""
        return self.sizes if self.sizes and any(way.sizes) else way.sizes


@dataclass(frozen=True)
class Summary:
    """Medians and spread of a case over the rounds."""

    op_s: float
    #: The middle half of the rounds lies this far apart.
    op_iqr_s: float
    gb_per_s: float
    gb_per_s_iqr: float


@dataclass
class Row:
    """One method, of one way and size."""

    method: Method
    nbytes: int
    #: Operations in each run.
    repeats: int = 1
    #: What each run took.
    seconds: list[float] = field(default_factory=list)
    #: What the method says of how it did it.
    notes: dict[str, str] = field(default_factory=dict)
    #: Why there is nothing to measure.
    skipped: str | None = None
    #: What went wrong. A case that lost or changed a byte has no speed.
    error: str | None = None

    def summary(self) -> Summary | None:
        """None for a row without a valid measurement."""
        if self.skipped or self.error or not self.seconds:
            return None
        each_s = [seconds / self.repeats for seconds in self.seconds]
        rates = [self.nbytes / op_s / 1e9 for op_s in each_s]
        return Summary(statistics.median(each_s), iqr(each_s), statistics.median(rates), iqr(rates))


@dataclass
class Group:
    """The rows of one way and size, which are compared with each other."""

    way: Way
    nbytes: int
    rows: list[Row]
    #: Where the files are: else in the temporary folder, whose pages are in memory too.
    in_shared_memory: bool = False

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.way.name}, {show_size(self.nbytes)}"

    def rates(self) -> dict[str, float]:
        """Median operations per second of the methods that were measured."""
        summaries = ((row.method.name, row.summary()) for row in self.rows)
        return {name: 1 / summary.op_s for name, summary in summaries if summary is not None}

    def verdicts(self) -> list[Verdict]:
        """The goals about this group that its rows can judge."""
        return judge(self.way, self.nbytes, self.rates())


@dataclass(frozen=True)
class Case:
    """What every method of a group gets."""

    way: Way
    content: Content
    #: What is written to where the way ends in a file.
    sink: IO[bytes]


def run_groups(settings: Settings, report: Report = lambda _: None) -> Iterator[Group]:
    """Each group's result as soon as it is there. ``report`` is told what is about to run."""
    for way in settings.ways:
        methods = [method for method in settings.methods if method.serves(way)]
        for nbytes in settings.sizes_of(way) if methods else ():
            rows = [Row(method, nbytes, skipped=_unavailable(method)) for method in methods]
            group = Group(way, nbytes, rows)
            _run_group(settings, group, report)
            yield group


def _run_group(settings: Settings, group: Group, report: Report) -> None:
    # For the content, and as much again for a sink.
    group.in_shared_memory = machine.no_room(2 * group.nbytes) is None
    with nameless_file(group.in_shared_memory) as source, nameless_file(group.in_shared_memory) as sink:
        case = Case(group.way, Content(source, group.nbytes), sink)
        for row in group.rows:
            report(f"{group.title}, content: {row.method.name}")
            _attempt(row, lambda row: _prepare(case, row, settings.run_s))
        for number in range(settings.rounds):
            for row in _rotated(group.rows, number):
                report(f"{group.title}, round {number + 1} of {settings.rounds}: {row.method.name}")
                _attempt(row, lambda row: row.seconds.append(run_once(case, row.method, row.repeats)[0]))


def _rotated(rows: Sequence[Row], number: int) -> list[Row]:
    first = number % len(rows)
    return [*rows[first:], *rows[:first]]


def _unavailable(method: Method) -> str | None:
    missing = method.needs is not None and not hasattr(os, method.needs)
    return f"this Python has no os.{method.needs}" if missing else None


def _attempt(row: Row, action: Callable[[Row], None]) -> None:
    if row.skipped or row.error:
        return
    try:
        action(row)
    except MisdeliveredError as error:
        row.error = str(error)
    except Exception as error:  # whatever a method raises is its result, not ours
        row.error = f"{type(error).__name__}: {error}"


def _prepare(case: Case, row: Row, run_s: float) -> None:
    """Check the content, and find out how often the operation fits into a run."""
    once = case.way.is_tee or row.nbytes > CHECKED_ONCE_BYTES
    _, outcome = run_once(case, row.method, 1 if once else CHECKED_OPERATIONS, check=True)
    row.notes = notes(outcome)
    while not case.way.is_tee:
        seconds, _ = run_once(case, row.method, row.repeats)
        if seconds >= run_s:
            break
        # Not at once: the first operations of all are slower than those of a long run. A tenth for the spread.
        row.repeats = math.ceil(row.repeats * min(10, 1.1 * run_s / seconds))


def run_once(case: Case, method: Method, repeats: int, *, check: bool = False) -> tuple[float, Outcome]:
    """Seconds from the first byte of the source until the last has arrived, and how the last operation ended.

    Raises:
        MisdeliveredError: other bytes have arrived than were sent, or fewer or more.
    """
    readers = 1 if method.single else max(1, case.way.readers)
    flow = Flow(case.way, case.content, case.sink, repeats=repeats, readers=readers, check=check)
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
    _account(flow, moved_bytes(outcome))
    return seconds, outcome


def _account(flow: Flow, claimed: int) -> None:
    if claimed != flow.ends.nbytes:
        raise MisdeliveredError(f"it says that it moved {claimed} bytes of {flow.ends.nbytes}")
    expected = flow.expected()
    for number, arrived in enumerate(flow.arrived()):
        if arrived.nbytes != expected.nbytes:
            sent = f"{expected.nbytes} bytes were sent"
            raise MisdeliveredError(f"{sent}, and {arrived.nbytes} arrived at end {number}")
        if arrived.crc != expected.crc:
            raise MisdeliveredError(f"other bytes than were sent arrived at end {number}")


def has_errors(groups: Sequence[Group]) -> bool:
    """Whether any method lost or changed a byte, or failed."""
    return any(row.error for group in groups for row in group.rows)


def make_record(settings: Settings, before: dict[str, Any], groups: Sequence[Group]) -> dict[str, Any]:
    """Everything that was measured, ready for JSON. ``before`` describes the machine before the run."""
    return header("relay", SCHEMA, before, machine.describe_software()) | {
        "settings": {
            "ways": [way.name for way in settings.ways],
            "sizes": list(settings.sizes),
            "methods": [method.name for method in settings.methods],
            "rounds": settings.rounds,
            "run_s": settings.run_s,
        },
        "groups": [_group_record(group) for group in groups],
        "goals": {
            "source": SOURCE,
            "rounds_needed": ROUNDS_NEEDED,
            "verdicts": as_record([verdict for group in groups for verdict in group.verdicts()]),
        },
    }


def _group_record(group: Group) -> dict[str, Any]:
    return {
        "way": {name: value for name, value in asdict(group.way).items() if name != "sizes"},
        "bytes": group.nbytes,
        "in_shared_memory": group.in_shared_memory,
        "methods": [_row_record(row) for row in group.rows],
    }


def _row_record(row: Row) -> dict[str, Any]:
    summary = row.summary()
    return {
        "name": row.method.name,
        "skipped": row.skipped,
        "error": row.error,
        "notes": row.notes,
        "operations": row.repeats,
        "median": None if summary is None else asdict(summary),
        "seconds": row.seconds,
    }
