"""Bytes from descriptor to descriptor, and from one to many, by every method in turn.

An *operation* moves a number of bytes along a *way* once. A run repeats it for long enough to be timed. Before anything
is timed, each method moves the content once, and a checksum of what arrives is compared. Timed runs compare the number
of bytes that arrive at each end.

By default: every way and size, 5 rounds; some minutes, and 1 GiB of memory. Every option that selects what to run also
narrows --quick. A method that loses, changes or adds a byte is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import IO

import click

from benchmarks.harness.command import Benchmark
from benchmarks.harness.files import nameless_file, no_room
from benchmarks.harness.methods import Method
from benchmarks.harness.options import by_name, chosen, listed, parse_bytes
from benchmarks.harness.results import Group, Measure, Row, Run
from benchmarks.relay.flow import Content, Ends, Flow
from benchmarks.relay.jobs import KIB, MIB, WAYS, Job, Way
from benchmarks.relay.methods import METHODS, READ_WRITE, SINGLE, WRITE_ALL, Outcome, moved_bytes, notes
from penstock.cli.options import UNITS

__all__ = ["BENCHMARK", "METHODS", "WAYS", "Case", "Content", "Ends", "Job", "main"]

#: Operations of a content check. The second finds a method that does not go back to the file's beginning.
CHECKED_OPERATIONS = 2
#: Larger contents are checked once, because the checksum takes time.
CHECKED_ONCE_BYTES = 64 * MIB


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are the whole table."""

    ways: tuple[Way, ...] = WAYS
    #: Instead of each way's own.
    sizes: tuple[int, ...] = ()
    methods: Sequence[Method] = tuple(METHODS)
    rounds: int = 5
    run_s: float = 0.1

    @property
    def jobs(self) -> Iterator[Job]:
        for way in self.ways:
            # A call that moves nothing has only one size.
            for nbytes in self.sizes if self.sizes and any(way.sizes) else way.sizes:
                yield Job(way, nbytes, self.run_s)


@dataclass
class Case:
    """A job, with the content to move."""

    job: Job
    content: Content
    #: The file to write to, if the way ends in one.
    sink: IO[bytes]
    #: By method, how often a run repeats the operation.
    repeats: dict[str, int] = field(default_factory=dict)

    def check(self, row: Row) -> Run:
        """Check the content, and find how often the operation fits into a run."""
        once = self.job.way.is_tee or self.content.nbytes > CHECKED_ONCE_BYTES
        self.move(row.method, 1 if once else CHECKED_OPERATIONS, check=True)
        repeats = 1
        while not self.job.way.is_tee:
            seconds, _ = self.move(row.method, repeats)
            if seconds >= self.job.run_s:
                break
            # In steps, because the first operations are slower than those of a long run. A tenth allows for the spread.
            repeats = math.ceil(repeats * min(10, 1.1 * self.job.run_s / seconds))
        self.repeats[row.name] = repeats
        return Run()

    def measure(self, row: Row) -> Run:
        """Time one run."""
        repeats = self.repeats[row.name]
        seconds, outcome = self.move(row.method, repeats)
        figures: dict[str, float | None] = {"ops_per_s": repeats / seconds, "op_s": seconds / repeats}
        if self.content.nbytes:
            figures["gb_per_s"] = repeats * self.content.nbytes / seconds / 1e9
        return Run(figures, {"operations": repeats, **notes(outcome)})

    def move(self, method: Method, repeats: int, *, check: bool = False) -> tuple[float, Outcome]:
        """The seconds from the source's first byte until the last has arrived, and the last operation's outcome."""
        readers = 1 if method.name == SINGLE else max(1, self.job.way.readers)
        flow = Flow(self.job.way, self.content, self.sink, repeats=repeats, readers=readers, check=check)
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


@contextmanager
def prepare(job: Job, _ffmpeg: str, group: Group) -> Iterator[tuple[Measure, Measure]]:
    """Write the content."""
    # For the content, and as much again for a sink.
    in_shared_memory = no_room(2 * job.nbytes) is None
    group.about["in_shared_memory"] = in_shared_memory
    with nameless_file(in_shared_memory) as source, nameless_file(in_shared_memory) as sink:
        case = Case(job, Content(source, job.nbytes), sink)
        yield case.check, case.measure


ABOVE_0 = click.FloatRange(min=0, min_open=True)
BENCHMARK = Benchmark(
    "relay",
    settings=Settings(),
    quick=Settings(
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
    ),
    quick_help="About 20 s: the main ways and sizes, 3 rounds.",
    prepare=prepare,
    options=[
        chosen("--way", "ways", WAYS),
        listed("--size", "sizes", parse_bytes, f"Bytes of an operation, instead of each way's own. {UNITS}"),
        chosen("--method", "methods", METHODS),
        click.Option(["--seconds", "run_s"], type=ABOVE_0, help="A run repeats the operation for so long."),
    ],
    figures=["ops_per_s"],
    standards=[READ_WRITE, WRITE_ALL],
    uses_ffmpeg=False,
)
main = BENCHMARK.command(__name__, __doc__)
