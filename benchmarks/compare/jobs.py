"""The jobs of the comparison: what a program calls for each frame, piece or chunk.

The `penstock` that is imported here is that of the measured commit. So this module, and what it imports, takes only
what both commits have: the public API.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import penstock
from benchmarks.harness import content
from benchmarks.harness.isolated import run_isolated
from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import Method
from benchmarks.harness.results import Run
from penstock import Pipeline
from penstock.pipeline import Stage

WIDTH, HEIGHT, FRAMES_PER_S = 1280, 720, 30
PIECE_BYTES = 2**16
TIMEOUT_S = 120.0
#: Frames of the video that is decoded.
VIDEO_FRAMES = 60
#: The benchmarks of the crate `penstock-pixels`, each named as the folder of its package.
PIXELS_BENCHES = ROOT / "build" / "compare" / "pixels"
#: Formats that pixels are converted between, there and back.
PIXELS = [("yuv420p", "rgb24"), ("rgb24", "yuv420p")]
IMPORT = "import time; began_s = time.perf_counter(); import penstock; print(time.perf_counter() - began_s)"


@dataclass(frozen=True)
class Case:
    """A run of a job, with the package of one commit."""

    method: Method
    #: The folder that has `penstock`.
    package: Path
    video: Path
    #: How long the operation is repeated.
    run_s: float


def run(case: Any, measure: Callable[[Any], Run]) -> Run:
    """Measure a case in a process that imports its `penstock`."""
    return run_isolated(measure, case, TIMEOUT_S, os.environ | {"PYTHONPATH": str(case.package)})


def measure(case: Case) -> Run:
    """The seconds of an operation."""
    if not Path(penstock.__file__).is_relative_to(case.package):
        raise ImportError(f"{penstock.__file__} is not in {case.package}")
    return Run({"op_s": case.method.start(case)})


def _repeated(operate: Callable[[], object], run_s: float) -> float:
    """The mean seconds of an operation, after a tenth of the time for the first ones, which take longer."""
    for part_s in (run_s / 10, run_s):
        count, seconds, began_s = 0, 0.0, time.perf_counter()
        while seconds < part_s:
            operate()
            count, seconds = count + 1, time.perf_counter() - began_s
    return seconds / count


@contextmanager
def _drained() -> Iterator[int]:
    """A pipe that another program reads."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
        assert program.stdin is not None
        yield program.stdin.fileno()


def noise() -> Iterator[Any]:
    """Four frames, in turn."""
    return itertools.cycle(content.noise((WIDTH, HEIGHT), 4))


def write(mode: Any, reader_copies: bool, case: Case) -> float:
    """Frames to a `Writer`, at most three ahead of the reader."""
    frames = noise()
    with _drained() as fd, penstock.Writer(fd, mode=mode, reader_copies=reader_copies) as writer:
        tickets = [writer.submit(next(frames)) for _ in range(3)]

        def operate() -> None:
            tickets.append(writer.submit(next(frames)))
            tickets.pop(0).wait()

        return _repeated(operate, case.run_s)


def relay(case: Case) -> float:
    """64 KiB from a file in memory to a pipe."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file, _drained() as fd:
        file.write(bytes(PIECE_BYTES))
        file.flush()
        return _repeated(lambda: penstock.relay(file, fd, PIECE_BYTES, offset=0), case.run_s)


def pipeline(case: Case) -> float:
    """A chunk of 64 KiB that compresses well, to a consumer in Python."""
    with Pipeline(itertools.repeat(zlib.compress(bytes(PIECE_BYTES))), Stage.decompress("zlib")) as chunks:
        return _repeated(partial(next, iter(chunks)), case.run_s)


def encoder(how: dict[str, Any], pictures: Callable[[], Iterator[Any]], case: Case) -> float:
    """A frame to an `Encoder`, whose FFmpeg throws away what it encodes."""
    frames, size, options = pictures(), (WIDTH, HEIGHT), {"f": "null"}
    with penstock.Encoder(os.devnull, fps=FRAMES_PER_S, size=size, options=options, **how) as one:
        return _repeated(lambda: one.write(next(frames)), case.run_s)


def decoder(case: Case) -> float:
    """A frame from a `Decoder`, FFmpeg's start included."""

    def operate() -> None:
        with penstock.Decoder(case.video) as frames:
            assert sum(1 for _ in frames) == VIDEO_FRAMES

    return _repeated(operate, case.run_s) / VIDEO_FRAMES


def pixels(source: str, made: str, case: Case) -> float:
    """A frame by the crate alone, built as Cargo builds it for those who use the crate."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(PIXELS_BENCHES / case.package.name),
            "--bench",
            f"^strips/{source} to {made}/upright$",
            "--noplot",
            "--sample-size",
            "10",
        ]
        command += ["--measurement-time", str(case.run_s), "--warm-up-time", str(case.run_s / 10)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"CRITERION_HOME": folder})
        (estimates,) = Path(folder).glob("**/new/estimates.json")
        return float(json.loads(estimates.read_text())["median"]["point_estimate"]) / 1e9


def swscale(source: str, made: str, case: Case) -> float:
    """The same frame by FFmpeg's scaler, as exactly as it can, on one thread."""
    width, height = 1920, 1080
    # Here, for the other jobs' memory is measured.
    from av import VideoFormat, VideoFrame
    from av.filter import Graph

    graph = Graph()
    graph.threads = 1
    given = graph.add_buffer(
        width=width, height=height, format=VideoFormat(source), time_base=Fraction(1, 25)
    )
    scale = graph.add("scale", "flags=accurate_rnd+full_chroma_int")
    graph.link_nodes(given, scale, graph.add("format", made), graph.add("buffersink")).configure()
    frame = VideoFrame(width, height, source)
    for plane in frame.planes:
        plane.update(random.Random(1).randbytes(plane.buffer_size))

    def operate() -> None:
        graph.vpush(frame)
        assert graph.vpull().format.name == made

    return _repeated(operate, case.run_s)


def importing(case: Case) -> float:
    """``import penstock`` in a new interpreter, without the interpreter's start."""
    seconds: list[float] = []

    def operate() -> None:
        told = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True)
        seconds.append(float(told.stdout))

    _repeated(operate, case.run_s)
    return statistics.fmean(seconds[1:])


def make_video(path: Path) -> None:
    """The video that `decoder` reads."""
    with penstock.Encoder(path, fps=FRAMES_PER_S, size=(WIDTH, HEIGHT), preset="ultrafast") as one:
        for frame in itertools.islice(noise(), VIDEO_FRAMES):
            one.write(frame)


JOBS = [
    Method("Writer.submit", "720p frames by write(2)", start=partial(write, "write", True)),
    Method("staged", "the same through staging pages", start=partial(write, "staged", True)),
    Method("zero-copy", "the same from the caller's pages", start=partial(write, "zero-copy", True)),
    Method("relay", "64 KiB from a file to a pipe", start=relay),
    Method("pipeline chunk", "64 KiB by zlib, to Python", start=pipeline),
    Method("Encoder.write", "720p frames", start=partial(encoder, {"codec": "rawvideo"}, noise)),
    Method("Decoder", "720p frames in sequence", start=decoder),
    Method("import penstock", "without the interpreter's start", start=importing),
]
#: Not where the package is all that is built.
COMPARED = [
    *JOBS,
    *(
        Method(f"{name} {source} to {made}", f"1080p, {by}", start=partial(start, source, made))
        for source, made in PIXELS
        for name, by, start in [
            ("pixels", "by the crate alone", pixels),
            ("swscale", "by FFmpeg's scaler, for comparison", swscale),
        ]
    ),
]
