"""The CPU time of waits: what Penstock takes while there is nothing to do.

Each case waits for a second (--seconds), and the CPU time of the whole process is measured meanwhile. By default every
case runs 5 times; a minute. A case that does not wait is an error; the exit status is then 1.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.harness import tables
from benchmarks.harness.command import Benchmark, Measure
from benchmarks.harness.goals import Verdict
from benchmarks.harness.methods import Method, Methods, PlainJob
from benchmarks.harness.options import chosen
from benchmarks.harness.results import Group, Row, Run
from penstock import Reader, StalledError, Tee, Writer, fifo, relay

MODES: tuple[Any, ...] = ("auto", "write", "staged", "zero-copy")
#: More than any pipe or socket here holds.
LARGE_BYTES = 8 * 2**20
SLEEP = "time.sleep"

#: Waits for so many seconds.
Wait = Callable[[float], object]
METHODS = Methods()


@METHODS.add(SLEEP, "other")
def sleep(_stack: ExitStack) -> Wait:
    """Nothing but the interpreter."""
    return time.sleep


def _pipe(stack: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        stack.callback(os.close, fd)
    return ends


@METHODS.add("idle-writers", "ours")
def idle_writers(stack: ExitStack) -> Wait:
    """A Writer of each mode, after a frame was read."""
    reader, writer = _pipe(stack)
    for mode in MODES:
        ticket = stack.enter_context(Writer(writer, mode=mode)).write(bytes(10_000))
        os.read(reader, 10_000)
        ticket.wait()
    return time.sleep


@METHODS.add("full-pipes", "ours")
def full_pipes(stack: ExitStack) -> Wait:
    """A Writer of each mode, blocking and not, whose pipe nobody reads."""
    for mode in MODES:
        for blocking in (True, False):
            fd = _pipe(stack)[1]
            os.set_blocking(fd, blocking)
            _fill(stack, Writer(fd, mode=mode))
    return time.sleep


def _fill(stack: ExitStack, writer: Writer, nbytes: int = LARGE_BYTES) -> None:
    stack.callback(writer.abort)
    writer.write(bytes(nbytes))


@METHODS.add("full-sockets", "ours")
def full_sockets(stack: ExitStack) -> Wait:
    """A Writer, blocking and not, whose socket nobody reads."""
    for blocking in (True, False):
        writer, _reader = (stack.enter_context(end) for end in socket.socketpair())
        writer.setblocking(blocking)
        _fill(stack, Writer(writer))
    return time.sleep


@METHODS.add("zero-copy-unread", "ours")
def zero_copy_unread(stack: ExitStack) -> Wait:
    """A frame in the pipe whose memory is lent. The kernel does not report when it was read, so a worker polls."""
    _fill(stack, Writer(_pipe(stack)[1], mode="zero-copy"), 10_000)
    return time.sleep


@METHODS.add("empty-pipe", "ours")
def empty_pipe(stack: ExitStack) -> Wait:
    """A Reader that reads ahead from a pipe that nobody writes."""
    stack.enter_context(Reader(_pipe(stack)[0], frame_bytes=10_000))
    return time.sleep


@METHODS.add("fifo-tickets", "ours")
def fifo_tickets(stack: ExitStack) -> Wait:
    """FIFOs that nobody else opens, for reading and for writing."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for mode in ("r", "w"):
        fifo.create(folder / mode)
        for _ in range(3):
            stack.callback(fifo.open_async(folder / mode, mode).cancel)
    return time.sleep


def _refused_datagrams(stack: ExitStack) -> int:
    """A socket whose peer is gone. poll(2) reports its error again and again."""
    sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
    sender.send(b"to nobody")
    return sender.fileno()


def _until_stalled(wait: Wait) -> Wait:
    def stalls(seconds: float) -> None:
        try:
            wait(seconds)
        except StalledError:
            return
        raise RuntimeError("it did not wait")

    return stalls


@METHODS.add("relay-in-error", "ours")
def relay_in_error(stack: ExitStack) -> Wait:
    """A relay from a quiet pipe, to a socket in error."""
    source, destination = _pipe(stack)[0], _refused_datagrams(stack)
    return _until_stalled(lambda seconds: relay(source, destination, timeout=seconds))


@METHODS.add("tee-in-error", "ours")
def tee_in_error(stack: ExitStack) -> Wait:
    """A tee from a quiet pipe, to two sockets in error."""
    tee = Tee(_pipe(stack)[0], _refused_datagrams(stack), _refused_datagrams(stack))
    stack.callback(tee.cancel)
    return _until_stalled(tee.wait)


@dataclass(frozen=True)
class Settings:
    """What to run."""

    methods: tuple[Method, ...] = tuple(METHODS)
    rounds: int = 5
    wait_s: float = 1.0

    @property
    def jobs(self) -> Iterator[PlainJob]:
        name = f"{self.wait_s:g} s"
        yield PlainJob(name, name, {"wait_s": self.wait_s})


@contextmanager
def prepare(job: PlainJob, _ffmpeg: str, _group: Group) -> Iterator[tuple[None, Measure]]:
    """Nothing to prepare."""

    def measure(row: Row) -> Run:
        with ExitStack() as stack:
            wait = row.method.start(stack)
            # Until the workers have started, and wait.
            time.sleep(0.1)
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            wait(job.about["wait_s"])
            seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        return Run({"cpu_ms_per_s": 1e3 * cpu_s / seconds, "seconds": seconds})

    yield None, measure


#: Far above any wait, and far below a loop that spins.
LIMIT_MS_PER_S = 50.0


def judge(group: Group) -> Iterator[Verdict]:
    """The limit, for the worst of our cases."""
    ours = {row.name for row in group.rows if row.method.kind == "ours"}
    medians = {name: value for name, value in group.medians("cpu_ms_per_s").items() if name in ours}
    if medians:
        worst = max(medians, key=medians.__getitem__)
        yield Verdict(f"CPU time of {worst}", medians[worst], LIMIT_MS_PER_S, "ms per s", at_most=True)


BENCHMARK = Benchmark(
    "waits",
    settings=Settings(),
    quick=Settings(rounds=2, wait_s=0.2),
    quick_help="5 s: short waits, 2 rounds.",
    prepare=prepare,
    options=[
        chosen("--method", "methods", METHODS),
        click.Option(
            ["--seconds", "wait_s"],
            type=click.FloatRange(min=0, min_open=True),
            help="How long each case waits.  [default: 1]",
        ),
    ],
    columns=[
        tables.column("CPU ms\nper s", "cpu_ms_per_s", tables.hundredths),
        tables.column("largest", "cpu_ms_per_s", tables.hundredths, "max"),
        tables.column("waited s", "seconds", tables.hundredths),
    ],
    judge=judge,
    source="the claims that Penstock takes no CPU time while it waits; the limit is guessed",
    uses_ffmpeg=False,
)
main = BENCHMARK.command(__doc__)

if __name__ == "__main__":
    main()
