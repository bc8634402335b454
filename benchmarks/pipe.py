"""Frames from memory into FFmpeg's standard input, by every way of writing: ``python -m benchmarks.pipe``.

The clock runs from before FFmpeg is started until it has exited, the same for every method and for the bound.
FFmpeg's start is in it, because a method may fill the pipe meanwhile; enough frames make it small.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import IO, Any, Literal

import click

from benchmarks.harness import options, tables
from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, conduct
from benchmarks.harness.ffmpeg import check_exit, frame_count, raw_input, start, version, working_ffmpeg
from benchmarks.harness.files import bound_files
from benchmarks.harness.goals import Verdict, over
from benchmarks.harness.isolated import Task, isolated, run_isolated
from benchmarks.harness.options import UNITS, by_name, names, parse_bytes, parse_size, parsed
from benchmarks.harness.pictures import Frame, Pictures
from benchmarks.harness.results import Group, Method, Row, Run, rows_for
from benchmarks.harness.rounds import Report, check_content, run_rounds
from benchmarks.harness.senders import (
    StdinWrite,
    ThreadQueue,
    TicketSender,
    TurboPipe,
    feed,
    feed_repainted,
)

PIXEL_FORMAT = "rgb24"
FRAMES_PER_S = 60
#: A byte on each page is changed between two uses of a buffer, so that a page sent too late shows.
PAGE_BYTES = 4096
#: Frames of the content check: each of 4 buffers is overwritten and sent 4 times.
CHECKED_FRAMES = 16
STARTUP_RUNS = 3
#: Guessed: below this part of the fastest run, other noise is larger than FFmpeg's start.
STARTUP_PART_TOLD = 0.15

STANDARD, TMPFS = "stdin.write", "tmpfs"


# --- methods ----------------------------------------------------------------------------------------------


class PenstockWriter(TicketSender):
    """Ours, in one of its modes."""

    def __init__(
        self,
        stdin: IO[bytes],
        frames: Sequence[Frame],
        mode: Literal["auto", "write", "staged", "zero-copy"],
        reader: Literal["unknown", "reads"] = "unknown",
    ) -> None:
        import penstock

        super().__init__(frames)
        self.writer = penstock.Writer(stdin, mode=mode, reader=reader)

    def send(self, index: int) -> None:
        self.tickets[index] = self.writer.write(self.frames[index])

    def finish(self) -> None:
        self.writer.close()

    def notes(self) -> dict[str, object]:
        stats = self.writer.stats
        return {
            "transport": stats.transport,
            "reason": stats.reason,
            "capacity_bytes": stats.capacity_bytes,
            "bytes_by_transport": {name: n for name, n in stats.bytes_by_transport.items() if n},
        }


def _ours(name: str, summary: str, mode: str, reader: str = "unknown") -> Method:
    start = partial(PenstockWriter, mode=mode, reader=reader)  # type: ignore[arg-type]
    return Method(name, summary, "ours", start, ("penstock",))


METHODS = (
    Method(STANDARD, "stdin.write(frame.tobytes()) on the calling thread", "rival", StdinWrite),
    Method("thread+queue", "the same on a Python thread, behind a queue of 10 frames", "rival", ThreadQueue),
    Method(
        "turbopipe", "TurboPipe, with sync before a buffer is used again", "rival", TurboPipe, ("turbopipe",)
    ),
    _ours("write", "write(2) on a native thread", "write"),
    _ours("staged", "copied to pages that the pipe then owns", "staged"),
    _ours("staged-recycled", "the same for a reader that reads: pages are used again", "staged", "reads"),
    _ours("zero-copy", "the caller's own pages go into the pipe", "zero-copy", "reads"),
    _ours("auto", "what Penstock chooses for an FFmpeg that it started", "auto", "reads"),
    Method(TMPFS, "FFmpeg reads the same frames from a file in tmpfs", "bound"),
)


# --- jobs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """A frame of ``height × width × 3`` bytes."""

    name: str
    width: int
    height: int

    @property
    def frame_bytes(self) -> int:
        return self.width * self.height * 3


@dataclass(frozen=True)
class Encode:
    """What FFmpeg does with the frames. All of it ends in its null muxer, so that no disk is measured."""

    name: str
    arguments: tuple[str, ...]
    #: Part of the bytes per run that is sent: an encoder is slower, and needs fewer frames.
    share: float
    minimum_frames: int
    #: A case slower than this has hung. Guessed low, for slow machines.
    slowest_bytes_per_s: float


@dataclass(frozen=True)
class Job:
    """What every method of a group has to do."""

    size: Size
    encode: Encode
    buffers: int
    frames: int

    @property
    def nbytes(self) -> int:
        return self.frames * self.size.frame_bytes

    @property
    def name(self) -> str:
        plural = "buffer" if self.buffers == 1 else "buffers"
        return f"{self.size.name} to {self.encode.name}, {self.buffers} {plural}"

    @property
    def timeout_s(self) -> float:
        """After this long a case has hung. A minute is for a machine that is busy with something else."""
        return 60 + self.nbytes / self.encode.slowest_bytes_per_s


SIZES = (
    Size("720p", 1280, 720),
    Size("1080p", 1920, 1080),
    Size("1440p", 2560, 1440),
    Size("2160p", 3840, 2160),
)
# As in TurboPipe's own table: no output pixel format is asked for, so x264 encodes 4:4:4.
ENCODES = (
    Encode("null", (), share=1.0, minimum_frames=1, slowest_bytes_per_s=20e6),
    Encode("ultrafast", ("-c:v", "libx264", "-preset", "ultrafast"), 0.25, 8, 4e6),
    Encode("slow", ("-c:v", "libx264", "-preset", "slow"), 0.05, 8, 0.4e6),
)


def size_of(text: str) -> Size:
    """A size from its name (``1080p``) or its pixels (``320x180``).

    Raises:
        ValueError: it is neither.
    """
    return Size(text, *parse_size(text)) if "x" in text else by_name(SIZES, text)


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are the rows that the goals are about; they take some minutes."""

    sizes: tuple[Size, ...] = SIZES
    encodes: tuple[Encode, ...] = ENCODES[:1]
    buffers: tuple[int, ...] = (4,)
    methods: tuple[Method, ...] = METHODS
    #: A second or so for the faster methods, so that FFmpeg's start (some 0.1 s) weighs little.
    bytes_per_run: int = 4 * 10**9
    rounds: int = 5

    def jobs(self) -> Iterator[Job]:
        for encode in self.encodes:
            for size in self.sizes:
                wanted = math.ceil(self.bytes_per_run * encode.share / size.frame_bytes)
                for buffers in self.buffers:
                    yield Job(size, encode, buffers, max(encode.minimum_frames, wanted))


# --- one case, in a process of its own --------------------------------------------------------------------


def make_frames(job: Job) -> list[Frame]:
    """The buffers, with noise from 128 to 135."""
    pictures = Pictures("noise", job.size.width, job.size.height, seed=1)
    return [pictures.noise() for _ in range(job.buffers)]


def measure(task: Task[Job]) -> Run:
    """Time one run, and count the frames that FFmpeg read."""
    task.load()
    is_bound = task.method.kind == "bound"
    frames = [] if is_bound else make_frames(task.job)
    run = Run()
    # A file and no pipe: nobody has to read it while the clock runs. The null muxer writes nothing to "-".
    with tempfile.TemporaryFile() as progress:
        arguments = ["-progress", "pipe:1", *_read(task), *task.job.encode.arguments, "-f", "null", "-"]
        with accounted(run), start(task.ffmpeg, *arguments, stdin=not is_bound, stdout=progress) as child:
            if child.stdin is not None:
                feed(task.start(child.stdin, frames), task.job.frames, run)
        read = frame_count(_text(progress))
    if read != task.job.frames:
        run.error = f"{task.job.frames} frames were sent and FFmpeg read {read}"
    check_exit(child.returncode)
    run.figures = {"fps": task.job.frames / (run.figures["seconds"] or math.inf), **run.figures}
    return run


def check(task: Task[Job]) -> Run:
    """Overwrite each buffer as soon as the method allows, and compare what FFmpeg read, frame by frame."""
    task.load()
    frames = make_frames(task.job)
    expected = []
    for number in range(task.job.frames):
        frame = frames[number % len(frames)]
        _stamp(frame, number)
        expected.append(hashlib.md5(frame.data, usedforsecurity=False).hexdigest())
    with tempfile.TemporaryFile() as hashes:
        arguments = [*_read(task), "-c:v", "rawvideo", "-f", "framemd5", "-"]
        with start(task.ffmpeg, *arguments, stdout=hashes) as child:
            assert child.stdin is not None
            feed_repainted(task.start(child.stdin, frames), task.job.frames, _stamp)
        check_exit(child.returncode)
        return Run(error=compare(expected, read_hashes(_text(hashes))))


def _read(task: Task[Job]) -> list[str]:
    return raw_input(task.job.size.width, task.job.size.height, PIXEL_FORMAT, FRAMES_PER_S, task.source)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _stamp(frame: Frame, number: int) -> None:
    frame.reshape(-1)[::PAGE_BYTES] = number % 251  # a prime: no period in common with the buffers


def read_hashes(framemd5: str) -> list[str]:
    """The last column of FFmpeg's ``framemd5`` report."""
    lines = (line for line in framemd5.splitlines() if line and not line.startswith("#"))
    return [line.rpartition(",")[2].strip() for line in lines]


def compare(sent: Sequence[str], read: Sequence[str]) -> str | None:
    """What is wrong with the frames that were read, if anything."""
    if len(sent) != len(read):
        return f"{len(sent)} frames were sent and FFmpeg read {len(read)}"
    for number, (ours, theirs) in enumerate(zip(sent, read, strict=True)):
        if ours != theirs:
            return f"frame {number} arrived with other bytes than were sent"
    return None


# --- groups -----------------------------------------------------------------------------------------------


def run_groups(settings: Settings, ffmpeg: str, report: Report = lambda _: None) -> Iterator[Group]:
    """Each group as soon as it was run."""
    for job in settings.jobs():
        about = {"size": asdict(job.size), "encode": job.encode.arguments, "buffers": job.buffers}
        about |= {"frames": job.frames, "bytes": job.nbytes}
        group = Group(job.name, "", rows_for(settings.methods, job), about, version(ffmpeg))
        few = replace(job, frames=min(job.frames, CHECKED_FRAMES))
        check_content(group, isolated(check, partial(_task, few, ffmpeg, {}), few.timeout_s), report)
        report(f"{group.name}, FFmpeg's start")
        startup_s = _startup_s(job, ffmpeg)
        with bound_files(group, partial(_pictures, job), job.frames) as files:
            run = isolated(measure, partial(_task, job, ffmpeg, files), job.timeout_s)
            run_rounds(group, run, settings.rounds, report)
        _add_startup(group, job, startup_s)
        yield group


def _task(job: Job, ffmpeg: str, files: dict[str, str], row: Row) -> Task[Job]:
    return Task(row.method, job, ffmpeg, files.get(row.name, "-"))


def _pictures(job: Job, _row: Row) -> list[bytes]:
    return [frame.tobytes() for frame in make_frames(job)]


def _startup_s(job: Job, ffmpeg: str) -> float | None:
    """How long a run of one frame takes: the part of every run that is FFmpeg's start and end."""
    task = Task(by_name(METHODS, STANDARD), replace(job, frames=1), ffmpeg)
    runs = [run_isolated(measure, task, job.timeout_s) for _ in range(STARTUP_RUNS)]
    known = [seconds for run in runs if not run.error and (seconds := run.figures["seconds"])]
    return statistics.median(known) if known else None


def _add_startup(group: Group, job: Job, startup_s: float | None) -> None:
    group.title = f"{job.name}: {job.frames} frames, {job.nbytes / 1e9:.2f} GB a run"
    seconds = group.medians("seconds").values()
    if startup_s is None or not seconds:
        return
    group.about["startup_s"] = round(startup_s, 4)
    group.title += f", FFmpeg's start {startup_s:.2f} s"
    part = startup_s / min(seconds)
    if part > STARTUP_PART_TOLD:
        group.findings.append(
            f"FFmpeg's start is {part:.0%} of the fastest run and pulls ratios to 1: send more --bytes"
        )


# --- goals and report -------------------------------------------------------------------------------------

SOURCE = (
    "the goals of Penstock's first version, set from what a C prototype reached on a 2-core x86-64 virtual "
    "machine; medians of one run with at least 5 interleaved rounds"
)
#: The engine's own memory above the caller's buffers, for each of our methods.
MEMORY_LIMIT_MIB = 16.0
BETTER = ("staged", "zero-copy")
#: One of the better ones too, where it was run.
RECYCLED = "staged-recycled"
#: For 720p, 1080p, 1440p and 2160p, to null with 4 buffers.
GOALS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]], ...] = (
    (("staged",), ("turbopipe",), (2.2, 2.1, 2.1, 1.8)),
    (BETTER, ("turbopipe",), (3.5, 2.8, 2.3, 1.9)),
    (BETTER, (TMPFS,), (1.0, 1.0, 0.9, 0.9)),
    (("auto",), BETTER, (0.9, 0.9, 0.9, 0.9)),
)
ULTRAFAST_GOAL = ("1080p to ultrafast, 4 buffers", 1.10)


def judge(group: Group) -> Iterator[Verdict]:
    """The goals about this group that its rows can judge."""

    def measured(methods: tuple[str, ...]) -> tuple[str, ...]:
        recycled = methods is BETTER and RECYCLED in group.medians("fps")
        return (*methods, RECYCLED) if recycled else methods

    for number, size in enumerate(SIZES):
        if group.name == f"{size.name} to null, 4 buffers":
            for ours, rivals, targets in GOALS:
                yield from over(group, measured(ours), measured(rivals), targets[number])
    if group.name == ULTRAFAST_GOAL[0]:
        yield from over(group, ("auto",), ("turbopipe",), ULTRAFAST_GOAL[1])
    writers = [row for row in group.rows if row.method.kind == "ours"]
    peaks = [(peak, row.name) for row in writers if (peak := row.max("peak_own_bytes")) is not None]
    if peaks:
        peak, name = max(peaks)
        what = f"own memory of {name}, {group.name}"
        yield Verdict(what, peak / 2**20, MEMORY_LIMIT_MIB, "MiB", at_most=True)


def note(row: Row) -> str | None:
    """Transports that are not what the row's name says."""
    used = list(row.notes.get("bytes_by_transport", {}))
    own_name = row.name.removesuffix("-recycled")
    return None if used in ([], [own_name]) else f"used {', '.join(used)}"


def _gb_per_s(group: Group, row: Row) -> str:
    fps: float = row.median("fps") or 0
    return f"{fps * group.about['bytes'] / group.about['frames'] / 1e9:.2f}"


BENCHMARK = Benchmark(
    "pipe",
    # Two lines of heading and few digits: the table fits a terminal of 80 columns.
    [
        *tables.rates(),
        tables.iqr("fps\nIQR", "fps", tables.rate),
        tables.Column("GB/s", _gb_per_s),
        tables.gain(STANDARD),
        tables.median("CPU s\nours", "cpu_own_s", tables.hundredths),
        tables.median("CPU s\nFFmpeg", "cpu_child_s", tables.hundredths),
        tables.largest("peak\nMiB", "peak_own_bytes", tables.mebibytes),
    ],
    judge,
    SOURCE,
    note,
    packages=("numpy", "turbopipe"),
)
QUICK = Settings(
    sizes=(by_name(SIZES, "1080p"),),
    methods=tuple(one for one in METHODS if one.name not in ("thread+queue", "write", RECYCLED)),
    bytes_per_run=10**9,
    rounds=3,
)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{number} buffers cannot hold a frame")
    return number


@click.command()
@options.listed(
    "--size", "sizes", size_of, f"{names(SIZES)} or WIDTHxHEIGHT; repeat it or separate by commas."
)
@options.listed(
    "--buffers", "buffers", _count, "How many buffers the frames go round in; 1 and 4 are the table's."
)
@options.listed(
    "--encode",
    "encodes",
    lambda name: by_name(ENCODES, name),
    f"What FFmpeg does with the frames: {names(ENCODES)} (x264 presets, but for null).",
)
@options.chosen("--method", "methods", METHODS)
@click.option(
    "--bytes",
    "bytes_per_run",
    metavar="BYTES",
    callback=parsed(parse_bytes),
    help=f"Bytes sent in each run, such as 500MB or 4GB; ultrafast gets a quarter, slow a twentieth. {UNITS}",
)
@options.ffmpeg_option("ffmpeg")
@options.common_options("pipe", "About 30 s: 1080p, null, the main methods, 3 rounds.")
def main(quick: bool, ffmpeg: str | None, json_path: str | None, is_kept: bool, **given: Any) -> None:
    """Frames from memory into FFmpeg, by every method in turn.

    By default: all four sizes to null with 4 buffers, 5 rounds, 4 GB a run; some minutes. Every option that
    says what to run also narrows --quick. A method that loses, tears or adds a frame is an error, and has no speed;
    the exit status is then 1.
    """
    settings = options.given_in(QUICK if quick else Settings(), given)
    program = working_ffmpeg(ffmpeg)
    conduct(
        BENCHMARK, lambda report: run_groups(settings, program, report), vars(settings), json_path, is_kept
    )


if __name__ == "__main__":
    # Under its own name, by which the process of a case finds it.
    import_module("benchmarks.pipe").main()
