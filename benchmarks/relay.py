"""Bytes from descriptor to descriptor, and from one to many, by every method in turn.

An *operation* moves a number of bytes along a *way* once. A run repeats it for long enough to be timed. Before anything
is timed, each method moves the content once, and a checksum of what arrives is compared. Timed runs compare the number
of bytes that arrive at each end.

By default: every way and size, 5 rounds; some minutes, and 1 GiB of memory. Every option that selects what to run also
narrows --quick. A method that loses, changes or adds a byte is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import shutil
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any, Literal, TypeAlias

import click

from benchmarks.harness.command import Benchmark
from benchmarks.harness.files import nameless_file, no_room
from benchmarks.harness.methods import Method, Methods
from benchmarks.harness.options import by_name, chosen, listed, parse_bytes
from benchmarks.harness.results import Group, Measure, MisdeliveredError, Row, Run
from penstock import Tee, relay
from penstock.cli.options import UNITS
from penstock.results import RelayReport, TeeReport

KIB, MIB, GIB = 2**10, 2**20, 2**30
#: Feeders write and drains read so much at once, as the fastest methods do.
PIECE_BYTES = 256 * KIB
#: A prime, so that no piece, page or block looks like another nearby.
PERIOD_BYTES = 1_048_583
#: The pace of the slowest reader, far below that of any relay, so that the reader is the limit.
BASE_PACE_BYTES_PER_S = 200e6
PACES = (1.0, 1.5, 2.0, 3.0)
ENDS = {"file": "file in memory", "pipe": "pipe", "unix": "Unix socket", "tcp": "TCP socket"}


@dataclass(frozen=True)
class Way:
    """A source, and one or more sinks."""

    name: str
    source: Literal["file", "pipe"]
    sink: Literal["file", "pipe", "unix", "tcp"]
    #: Bytes that an operation moves.
    sizes: tuple[int, ...]
    #: How many readers get a tee's stream; 0 for a way to one sink.
    readers: int = 0
    #: Whether each reader takes time for what it has read.
    is_paced: bool = False

    @property
    def is_tee(self) -> bool:
        """Whether the stream goes to many. Such a stream ends with its source and cannot be repeated."""
        return self.readers > 0

    def pace_bytes_per_s(self, reader: int) -> float | None:
        """The pace of a reader; None for as fast as it can. The first is the slowest."""
        return BASE_PACE_BYTES_PER_S * PACES[reader % len(PACES)] if self.is_paced else None


@dataclass(frozen=True)
class Job:
    """What every method of a group has to move."""

    way: Way
    nbytes: int
    #: A run lasts so long, so that the start and end of its threads matter little.
    run_s: float

    @property
    def name(self) -> str:
        return f"{self.way.name}, {show_size(self.nbytes)}"

    @property
    def title(self) -> str:
        sink = f"each of {self.way.readers} pipes" if self.way.readers > 1 else f"a {ENDS[self.way.sink]}"
        pace = ", read at a pace" if self.way.is_paced else ""
        return f"{self.name}: from a {ENDS[self.way.source]} to {sink}{pace}"

    @property
    def kind(self) -> str:
        """The way, or that it is a tee."""
        return "tee" if self.way.is_tee else self.way.name

    @property
    def about(self) -> dict[str, Any]:
        return {"way": self.way.name, "bytes": self.nbytes}


def show_size(nbytes: int) -> str:
    """Such as ``64 KiB``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


#: The sizes of the table that the Go library ``pipes`` publishes, and two more.
FILE_TO_PIPE = (*(16 * KIB << n for n in range(7)), 10 * MIB, 100 * MIB, GIB)
FEW = (MIB, 100 * MIB)
#: Some tens of milliseconds.
FLAT_OUT = (256 * MIB,)
#: A third of a second at the slowest pace.
PACED = (64 * MIB,)
TEE_READERS = (1, 2, 4, 8)

WAYS = (
    # Nothing is moved: the cost of a call.
    Way("call", "file", "pipe", (0,)),
    Way("file-pipe", "file", "pipe", FILE_TO_PIPE),
    Way("pipe-file", "pipe", "file", FEW),
    Way("pipe-pipe", "pipe", "pipe", FEW),
    Way("file-unix", "file", "unix", FEW),
    Way("file-tcp", "file", "tcp", FEW),
    *(Way(f"tee-{readers}", "pipe", "pipe", FLAT_OUT, readers) for readers in TEE_READERS),
    *(Way(f"tee-{readers}-paced", "pipe", "pipe", PACED, readers, is_paced=True) for readers in TEE_READERS),
)
#: Operations of a content check. The second finds a method that does not go back to the file's beginning.
CHECKED_OPERATIONS = 2
#: Larger contents are checked once, because the checksum takes time.
CHECKED_ONCE_BYTES = 64 * MIB


# --- sources and destinations -----------------------------------------------------------------------------

# Files, and pipes and sockets with the threads that feed and drain them. Each run has new pipes and sockets of the
# system's default size. A method that wants a larger pipe enlarges it. The threads hold the interpreter's lock only
# between their system calls.


class Content:
    """The bytes of one operation, in a file whose pages are in memory."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        noise = os.urandom(min(nbytes, PERIOD_BYTES))
        for start in range(0, nbytes, PERIOD_BYTES):
            file.write(noise[: nbytes - start])
        file.flush()
        self.file, self.nbytes = file, nbytes
        self.view = memoryview(_mapped(file, nbytes))

    def crc(self, repeats: int) -> int:
        """The CRC-32 of so many repetitions."""
        crc = 0
        for _ in range(repeats):
            crc = zlib.crc32(self.view, crc)
        return crc


def _mapped(file: IO[bytes], nbytes: int) -> mmap.mmap | bytes:
    # An empty file cannot be mapped.
    return mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ) if nbytes else b""


@dataclass
class Ends:
    """A method's arguments: descriptors, and how many bytes to move from ``src`` to each of ``dsts``."""

    way: Way
    nbytes: int
    src: int
    dsts: Sequence[int]

    @property
    def dst(self) -> int:
        """The only destination."""
        (dst,) = self.dsts
        return dst

    @property
    def pipes(self) -> list[int]:
        """The ends that are pipes."""
        return [self.src] * (self.way.source == "pipe") + [*self.dsts] * (self.way.sink == "pipe")


def feed(fd: int, content: Content, repeats: int) -> None:
    """Write the content into a pipe ``repeats`` times, and close the pipe."""
    # A method may stop early: the check finds what it has not delivered.
    with os.fdopen(fd, "wb", buffering=0), suppress(BrokenPipeError):
        for _ in range(repeats):
            done = 0
            while done < content.nbytes:
                done += os.write(fd, content.view[done : done + PIECE_BYTES])


def drain(fd: int, pace_bytes_per_s: float | None, check: bool) -> tuple[int, int]:
    """Read a pipe or socket to its end, always into the same buffer, and close it.

    Returns the number of bytes, and their CRC-32 or, without ``check``, 0.
    """
    arrived = crc = 0
    piece = memoryview(bytearray(PIECE_BYTES))
    due_s = before_s = time.perf_counter()
    with os.fdopen(fd, "rb", buffering=0):
        while nbytes := os.readv(fd, [piece]):
            arrived += nbytes
            if check:
                crc = zlib.crc32(piece[:nbytes], crc)
            if pace_bytes_per_s:
                # Make up for a sleep that was too long, but not for the time we waited for bytes.
                now_s = time.perf_counter()
                due_s += now_s - before_s + nbytes / pace_bytes_per_s
                time.sleep(max(0.0, due_s - now_s))
                before_s = time.perf_counter()
    return arrived, crc


class Flow:
    """The ends of one run, with the threads behind them."""

    def __init__(
        self, way: Way, content: Content, sink: IO[bytes], *, repeats: int, readers: int, check: bool
    ) -> None:
        """``sink`` is the file to write to, if the way ends in one."""
        self.content, self.sink, self.check, self.repeats = content, sink, check, repeats
        self.drains: list[Future[tuple[int, int]]] = []
        self.feeder: Future[None] | None = None
        src, dsts = content.file.fileno(), (sink.fileno(),)
        if way.source == "pipe":
            src, self.feed_fd = os.pipe()
        if way.sink != "file":
            outs, dsts = zip(*(_connected(way.sink) for _ in range(readers)), strict=True)
            paces = [way.pace_bytes_per_s(number) for number in range(readers)]
            self.drains = [_in_background(drain, *end, check) for end in zip(outs, paces, strict=True)]
        elif check:
            sink.truncate(0)
        self.ends = Ends(way, content.nbytes, src, dsts)

    def begin(self) -> None:
        """Start the feeder."""
        if self.ends.way.source == "pipe":
            self.feeder = _in_background(feed, self.feed_fd, self.content, self.repeats)

    def finish(self) -> None:
        """Close the destinations, and wait until the last byte has been read."""
        for dst in self.ends.dsts if self.drains else ():
            os.close(dst)
        self.ends.dsts = ()
        wait(self.drains)

    def close(self) -> None:
        """Close everything, and wait for the threads."""
        self.finish()
        if self.ends.way.source == "pipe":
            os.close(self.ends.src)
            if self.feeder is None:
                os.close(self.feed_fd)
            else:
                wait([self.feeder])

    def verify(self, claimed: int) -> None:
        """Compare what has arrived at each end with the content. ``claimed`` is the method's own number of bytes.

        Raises:
            MisdeliveredError: other bytes have arrived than were sent, or fewer or more.
        """
        if claimed != self.content.nbytes:
            raise MisdeliveredError(f"it claims to have moved {claimed} bytes of {self.content.nbytes}")
        # Each operation overwrites a file, but adds to a stream.
        passes = self.repeats if self.drains else 1
        sent = passes * self.content.nbytes
        crc = self.content.crc(passes) if self.check else 0
        for number, (arrived, arrived_crc) in enumerate(self._arrived()):
            if arrived != sent:
                raise MisdeliveredError(f"{sent} bytes were sent, and {arrived} arrived at end {number}")
            if arrived_crc != crc:
                raise MisdeliveredError(f"other bytes than were sent arrived at end {number}")

    def _arrived(self) -> list[tuple[int, int]]:
        """The number of bytes, and their CRC-32 or 0, at each end."""
        if self.drains:
            return [drain.result() for drain in self.drains]
        nbytes = os.fstat(self.sink.fileno()).st_size
        return [(nbytes, zlib.crc32(_mapped(self.sink, nbytes)) if self.check else 0)]


def _in_background(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """What the function returns, on a thread that does not hold the interpreter's end, as those of executors do."""
    outcome: Future[Any] = Future()

    def call() -> None:
        try:
            outcome.set_result(function(*arguments))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome


def _connected(sink: str) -> tuple[int, int]:
    """A new pipe or stream: its read end and its write end."""
    if sink == "pipe":
        return os.pipe()
    if sink == "unix":
        here, there = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            there = socket.create_connection(server.getsockname())
            here, _ = server.accept()
    return here.detach(), there.detach()


# --- methods ----------------------------------------------------------------------------------------------

# Each makes, from the ends of a way, an operation that can be repeated. The preparation before the first operation is
# not timed. Going back to the beginning of a file is part of each operation, in the way that is natural to the method.

#: The number of bytes that were moved, or a result that has it.
Outcome: TypeAlias = "int | RelayReport | TeeReport"
Operation = Callable[[], Outcome]

READ_WRITE, WRITE_ALL = "os.read+os.write", "read+write-to-all"
SINGLE = "single-relay"

#: The ways that move something to one end, those that sendfile(2) can do, and those that splice(2) can do.
MOVES = ("file-pipe", "pipe-file", "pipe-pipe", "file-unix", "file-tcp")
FROM_FILE = ("file-pipe", "file-unix", "file-tcp")
BY_PIPE = ("file-pipe", "pipe-file", "pipe-pipe")

METHODS = Methods()


def moved_bytes(outcome: Outcome) -> int:
    """How many bytes the method claims to have moved to each of its ends."""
    if isinstance(outcome, TeeReport):
        return min(output.bytes_delivered for output in outcome.outputs)
    return outcome.bytes if isinstance(outcome, RelayReport) else outcome


def notes(outcome: Outcome) -> dict[str, str]:
    """What our methods report about how they moved the bytes."""
    report = outcome.outputs[0] if isinstance(outcome, TeeReport) else outcome
    return {} if isinstance(report, int) else {"method": report.method, "reason": report.reason}


def _rewind_sink(ends: Ends) -> None:
    """Go back to the beginning of the file that is written, for methods that use its position."""
    if ends.way.sink == "file":
        os.lseek(ends.dst, 0, os.SEEK_SET)


@METHODS.add("penstock.relay", "ours", serves=("call", *MOVES))
def start_relay(ends: Ends) -> Operation:
    """`penstock.relay`."""
    dst = ends.dsts[0]
    offset = 0 if ends.way.source == "file" else None

    def operate() -> Any:  # a RelayReport, because it waits
        _rewind_sink(ends)
        return relay(ends.src, dst, ends.nbytes, offset=offset)

    return operate


def _pieces(ends: Ends) -> Iterator[bytes]:
    left = ends.nbytes
    while left and (piece := os.read(ends.src, min(left, PIECE_BYTES))):
        left -= len(piece)
        yield piece


def _write_all(fd: int, piece: bytes) -> int:
    done = os.write(fd, piece)
    while done < len(piece):
        done += os.write(fd, memoryview(piece)[done:])
    return done


@METHODS.add(READ_WRITE, serves=MOVES)
def start_read_write(ends: Ends) -> Operation:
    """A loop with pieces of 256 KiB."""

    def operate() -> int:
        if ends.way.source == "file":
            os.lseek(ends.src, 0, os.SEEK_SET)
        _rewind_sink(ends)
        return sum(_write_all(ends.dst, piece) for piece in _pieces(ends))

    return operate


class _Part:
    """The next bytes of a stream: shutil.copyfileobj copies until its source ends."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        self.file, self.left = file, nbytes

    def read(self, nbytes: int = PIECE_BYTES, /) -> bytes:
        piece = self.file.read(min(nbytes, self.left))
        self.left -= len(piece)
        return piece


@METHODS.add("shutil.copyfileobj", serves=MOVES)
def start_copyfileobj(ends: Ends) -> Operation:
    """Between buffered files."""
    source = os.fdopen(ends.src, "rb", closefd=False)
    sink = os.fdopen(ends.dst, "wb", closefd=False)

    def operate() -> int:
        if ends.way.source == "file":
            source.seek(0)
        if ends.way.sink == "file":
            sink.seek(0)
        part = _Part(source, ends.nbytes)
        shutil.copyfileobj(part, sink)
        sink.flush()
        return ends.nbytes - part.left

    return operate


@METHODS.add("os.sendfile", serves=FROM_FILE)
def start_sendfile(ends: Ends) -> Operation:
    """All that is left in each call."""

    def operate() -> int:
        done = 0
        while done < ends.nbytes and (sent := os.sendfile(ends.dst, ends.src, done, ends.nbytes - done)):
            done += sent
        return done

    return operate


@METHODS.add("os.splice", serves=BY_PIPE)
def start_splice(ends: Ends, piece_bytes: int | None = None) -> Operation:
    """All that is left in each call, pipes as they are."""
    at_most = piece_bytes or ends.nbytes
    from_file, to_file = ends.way.source == "file", ends.way.sink == "file"

    def operate() -> int:
        done = 0
        while done < ends.nbytes and (
            moved := os.splice(
                ends.src,
                ends.dst,
                min(at_most, ends.nbytes - done),
                offset_src=done if from_file else None,
                offset_dst=done if to_file else None,
            )
        ):
            done += moved
        return done

    return operate


@METHODS.add("os.splice-tuned", serves=BY_PIPE)
def start_tuned_splice(ends: Ends) -> Operation:
    """Pieces of 256 KiB, and pipes of 1 MiB: a plain loop at its best."""
    for pipe in ends.pipes:
        # The kernel refuses once the user's pipes hold much. The method then runs with the default size.
        with suppress(PermissionError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, MIB)
    return start_splice(ends, PIECE_BYTES)


@METHODS.add("penstock.Tee", "ours", serves=("tee",))
def start_tee(ends: Ends) -> Operation:
    """`penstock.Tee`."""

    def operate() -> TeeReport:
        report = Tee(ends.src, *ends.dsts).wait()
        report.check()
        return report

    return operate


@METHODS.add(WRITE_ALL, serves=("tee",))
def start_write_to_all(ends: Ends) -> Operation:
    """A loop that writes each piece to all."""
    return lambda: sum(min(_write_all(dst, piece) for dst in ends.dsts) for piece in _pieces(ends))


METHODS.add(SINGLE, "other", "`penstock.relay` to the slowest reader alone", serves=("tee",))(start_relay)


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
