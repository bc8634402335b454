"""Frames from memory into FFmpeg's standard input, by every method in turn.

The clock runs from before FFmpeg is started until it has exited, for every method and for the bound. FFmpeg's start
counts, because a method may fill the pipe meanwhile. With enough frames it matters little.

By default: all four sizes to null with 4 buffers, 5 rounds, 4 GB a run; some minutes. Every option that selects what
to run also narrows --quick. A method that loses, tears or adds a frame is an error and has no speed; the exit status is
then 1.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import IO, Any

import click

from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark
from benchmarks.harness.content import Frame, noise
from benchmarks.harness.ffmpeg import frame_count, raw_input, start
from benchmarks.harness.files import bound_files
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.methods import FrameJob, Method, Methods
from benchmarks.harness.options import SEVERAL, by_name, chosen, listed, names, sized
from benchmarks.harness.results import Group, Measure, Run
from benchmarks.harness.senders import Sender, feed, stdin_write, thread_queue, turbopipe
from penstock import Writer
from penstock.cli.options import picture_size

FRAMES_PER_S = 60
#: Between two uses of a buffer one byte of each page changes, so that the check finds a page that was sent too late.
PAGE_BYTES = 4096
STANDARD = "stdin.write"


# --- methods ----------------------------------------------------------------------------------------------


def penstock_writer(stdin: IO[bytes], mode: Any, reader_copies: bool) -> Sender:
    """`penstock.Writer` in one of its modes."""
    writer = Writer(stdin, mode=mode, reader_copies=reader_copies)

    def notes() -> dict[str, object]:
        stats = writer.stats
        told = {name: getattr(stats, name) for name in ("transport", "reason", "capacity_bytes")}
        return told | {"bytes_by_transport": {name: n for name, n in stats.bytes_by_transport.items() if n}}

    return Sender(lambda frame: writer.submit(frame).wait, writer.close, notes)


METHODS = Methods()
METHODS.add(STANDARD)(stdin_write)
METHODS.add("thread+queue")(thread_queue)
METHODS.add("turbopipe", needs=("turbopipe",))(turbopipe)
RECYCLED = "the same with pages that are used again: the reader reads them"
METHODS += [
    Method(name, summary, "ours", partial(penstock_writer, mode=mode, reader_copies=reader_copies))
    for name, summary, mode, reader_copies in (
        ("write", "write(2) on a native thread", "write", False),
        ("staged", "copied to pages that the pipe then owns", "staged", False),
        ("staged-recycled", RECYCLED, "staged", True),
        ("zero-copy", "the caller's own pages go into the pipe", "zero-copy", True),
        ("auto", "what Penstock chooses for an FFmpeg that it started", "auto", True),
    )
]
METHODS.append(Method("tmpfs", "FFmpeg reads the same frames from a file in tmpfs", "bound"))


# --- jobs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """The size of a frame."""

    name: str
    width: int
    height: int


@dataclass(frozen=True)
class Encode:
    """What FFmpeg does with the frames. The output goes to its null muxer, so that no disk is measured."""

    name: str
    arguments: tuple[str, ...]
    #: The share of `Settings.bytes_per_run` that is sent: an encoder is slower and needs fewer frames.
    share: float
    minimum_frames: int
    slowest_bytes_per_s: float


@dataclass(frozen=True)
class Job(FrameJob):
    """The work of every method in a group."""

    size_name: str
    encode: Encode
    buffers: int

    @property
    def slowest_bytes_per_s(self) -> float:
        return self.encode.slowest_bytes_per_s

    @property
    def nbytes(self) -> int:
        return self.frames * self.frame_bytes

    @property
    def title(self) -> str:
        encode = "" if self.encode.arguments else ", which FFmpeg discards: no real encode"
        return f"{self.name}: {self.frames} frames, {self.nbytes / 1e9:.2f} GB a run{encode}"

    @property
    def about(self) -> dict[str, Any]:
        size = {"name": self.size_name, "width": self.width, "height": self.height}
        about = {"size": size, "encode": self.encode.arguments, "buffers": self.buffers}
        return about | {"frames": self.frames, "bytes": self.nbytes}


SIZES = (
    Size("720p", 1280, 720),
    Size("1080p", 1920, 1080),
    Size("1440p", 2560, 1440),
    Size("2160p", 3840, 2160),
)
# As in TurboPipe's own table, without an output pixel format: x264 encodes 4:4:4.
ENCODES = (
    Encode("null", (), share=1.0, minimum_frames=1, slowest_bytes_per_s=20e6),
    Encode("ultrafast", ("-c:v", "libx264", "-preset", "ultrafast"), 0.25, 8, 4e6),
    Encode("slow", ("-c:v", "libx264", "-preset", "slow"), 0.05, 8, 0.4e6),
)


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults take some minutes."""

    sizes: tuple[Size, ...] = SIZES
    encodes: tuple[Encode, ...] = ENCODES[:1]
    buffers: tuple[int, ...] = (4,)
    methods: Sequence[Method] = tuple(METHODS)
    #: About a second for the faster methods, so that FFmpeg's start (some 0.1 s) matters little.
    bytes_per_run: int = 4 * 10**9
    rounds: int = 5

    @property
    def jobs(self) -> Iterator[Job]:
        for encode, size in product(self.encodes, self.sizes):
            wanted = math.ceil(self.bytes_per_run * encode.share / (size.width * size.height * 3))
            frames = max(encode.minimum_frames, wanted)
            for buffers in self.buffers:
                name = f"{size.name} to {encode.name}, {buffers} buffer{'s' * (buffers != 1)}"
                yield Job(name, size.width, size.height, frames, size.name, encode, buffers)


# --- one case, in its own process -------------------------------------------------------------------------


def measure(task: Task[Job]) -> Run:
    """Time one run, and count the frames that FFmpeg read."""
    task.load()
    is_bound = task.method.kind == "bound"
    frames = [] if is_bound else noise(task.job.size, task.job.buffers)
    run = Run()
    # A file instead of a pipe: nobody has to read it while the clock runs. The null muxer writes nothing to "-".
    with tempfile.TemporaryFile() as progress:
        arguments = ["-progress", "pipe:1", *_read(task), *task.job.encode.arguments, "-f", "null", "-"]
        with accounted(run), start(task.ffmpeg, *arguments, stdin=not is_bound, stdout=progress) as child:
            if child.stdin is not None:
                feed(task.method.start(child.stdin), frames, task.job.frames, run)
        run.count_frames(task.job.frames, frame_count(_text(progress)))
    run.figures["gb_per_s"] = run.per_second(task.job.nbytes / 1e9)
    return run


def check(task: Task[Job]) -> Run:
    """Overwrite each buffer as soon as the method allows, and compare what FFmpeg read, frame by frame."""
    task.load()
    frames = noise(task.job.size, task.job.buffers)
    expected = []
    for number in range(task.job.frames):
        frame = frames[number % len(frames)]
        _stamp(frame, number)
        expected.append(hashlib.md5(frame.data, usedforsecurity=False).hexdigest())
    with tempfile.TemporaryFile() as hashes:
        arguments = [*_read(task), "-c:v", "rawvideo", "-f", "framemd5", "-"]
        with start(task.ffmpeg, *arguments, stdout=hashes) as child:
            assert child.stdin is not None
            feed(task.method.start(child.stdin), frames, task.job.frames, Run(), paint=_stamp)
        return Run(error=compare(expected, read_hashes(_text(hashes))))


def _read(task: Task[Job]) -> list[str]:
    return raw_input(*task.job.size, "rgb24", FRAMES_PER_S, task.source)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _stamp(frame: Frame, number: int) -> None:
    frame.reshape(-1)[::PAGE_BYTES] = number % 251  # a prime: no period in common with the buffers


def read_hashes(framemd5: str) -> list[str]:
    """The last column of FFmpeg's ``framemd5`` output."""
    lines = (line for line in framemd5.splitlines() if line and not line.startswith("#"))
    return [line.rpartition(",")[2].strip() for line in lines]


def compare(sent: Sequence[str], received: Sequence[str]) -> str | None:
    """The first difference, or None."""
    if len(sent) != len(received):
        return f"{len(sent)} frames were sent, {len(received)} were received"
    differing = (number for number, one in enumerate(sent) if one != received[number])
    number = next(differing, None)
    return None if number is None else f"frame {number} arrived with other bytes than were sent"


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """Write the files of the bounds."""
    pictures = [frame.tobytes() for frame in noise(job.size, job.buffers)]
    with bound_files(group, lambda _: pictures, job.frames) as bounds:
        yield isolated(job, ffmpeg, measure, check, bounds=bounds)


def parse_named_size(text: str) -> Size:
    """A size from its name (``1080p``) or its pixels (``320x180``)."""
    return Size(text, *picture_size(text)) if "x" in text else by_name(SIZES, text)


BENCHMARK = Benchmark(
    "pipe",
    settings=Settings(),
    quick=Settings(
        sizes=(by_name(SIZES, "1080p"),),
        methods=[one for one in METHODS if one.name not in ("thread+queue", "write", "staged-recycled")],
        bytes_per_run=10**9,
        rounds=3,
    ),
    quick_help="About 30 s: 1080p, null, the main methods, 3 rounds.",
    prepare=prepare,
    options=[
        listed("--size", "sizes", parse_named_size, f"{names(SIZES)} or WIDTHxHEIGHT; {SEVERAL}."),
        listed("--buffers", "buffers", click.IntRange(min=1), "Buffers in turn; the table has 1 and 4."),
        chosen("--encode", "encodes", ENCODES, "What FFmpeg does: {} (x264 presets, but for null)."),
        chosen("--method", "methods", METHODS),
        sized("--bytes", "bytes_per_run", "Bytes of each run; ultrafast gets a quarter, slow a twentieth."),
    ],
    standards=[STANDARD],
)
main = BENCHMARK.command(__name__, __doc__)
