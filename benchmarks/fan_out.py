"""Frames to 1, 2, 4 and 8 programs at once: how long the program that writes them is held up.

A frame comes every 1/10 s, which the readers keep up with, so that the time of a call is that of taking the frame. By
default: 720p, 5 rounds; 5 minutes. A method that loses, tears or adds a byte is an error; the exit status is then 1.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO

from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import Frame, noise
from benchmarks.harness.isolated import Task, unprepared
from benchmarks.harness.methods import FrameJob, Kind, Method
from benchmarks.harness.options import FRAMES, SIZE
from benchmarks.harness.results import Run
from benchmarks.harness.senders import Sender, feed
from penstock import FanOut, Writer

OUTPUTS = (1, 2, 4, 8)
FRAMES_PER_S = 10
BUFFERS = 4
CONSUMER = """
import hashlib, sys

memory, count = memoryview(bytearray(1 << 20)), 0
checksum = hashlib.md5() if sys.argv[1] == "check" else None
while size := sys.stdin.buffer.raw.readinto(memory):
    count += size
    if checksum is not None:
        checksum.update(memory[:size])
print(count, checksum and checksum.hexdigest())
"""


def fan_out(stdins: Sequence[IO[bytes]]) -> Sender:
    """`penstock.FanOut`: each frame is copied once."""
    shared = FanOut(Writer(stdin) for stdin in stdins)

    def finish() -> None:
        for report in shared.close():
            if report.error:
                raise report.error

    return Sender(shared.write, finish)


def copies(stdins: Sequence[IO[bytes]]) -> Sender:
    """A `penstock.Writer` for each program, and a copy of each frame for each."""
    writers = [Writer(stdin) for stdin in stdins]

    def write(frame: Frame) -> None:
        for writer in writers:
            writer.write(frame)

    def finish() -> None:
        for writer in writers:
            writer.close()

    return Sender(write, finish)


def stdin_writes(stdins: Sequence[IO[bytes]]) -> Sender:
    """``stdin.write(frame)`` for each program, on the calling thread."""

    def write(frame: Frame) -> None:
        for stdin in stdins:
            stdin.write(frame.data)

    return Sender(write, lambda: [stdin.flush() for stdin in stdins])


STARTS: tuple[tuple[str, Kind, Callable[..., Sender]], ...] = (
    ("penstock", "ours", fan_out),
    ("copies", "other", copies),
    ("stdin.write", "rival", stdin_writes),
)


def _started(start: Callable[..., Sender], outputs: int, mode: str) -> tuple[Sender, Callable[[], list[str]]]:
    """A started method, and what its programs print at their end."""
    command = [sys.executable, "-c", CONSUMER, mode]
    programs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(outputs)
    ]
    stdins = [program.stdin for program in programs if program.stdin is not None]

    def printed() -> list[str]:
        for stdin in stdins:
            stdin.close()
        told = [program.stdout.read().decode().strip() for program in programs if program.stdout is not None]
        for program in programs:
            program.wait()
        return told

    return start(stdins), printed


METHODS = [
    Method(f"{name}-{outputs}", str(start.__doc__).rstrip("."), kind, partial(_started, start, outputs))
    for name, kind, start in STARTS
    for outputs in OUTPUTS
]


@dataclass(frozen=True)
class Job(FrameJob):
    """Frames at a constant rate."""

    paced_fps: int = FRAMES_PER_S

    @property
    def title(self) -> str:
        return f"{self.name}: {self.frames} frames, {self.paced_fps} a second, to as many programs as a method names"


JOBS = (Job("720p", 1280, 720, 50),)


def measure(task: Task[Job]) -> Run:
    """Time one run, and count the bytes that each program read."""
    run, frames = Run(), noise(task.job.size, BUFFERS)
    with accounted(run):
        sender, printed = task.method.start("count")
        feed(sender, frames, task.job.frames, run, paced_fps=task.job.paced_fps)
        told = printed()
    run.error = compare(told, task.job, None)
    return run


def check(task: Task[Job]) -> Run:
    """Overwrite each buffer as soon as the method allows, and compare what each program read."""
    sender, printed = task.method.start("check")
    sent = hashlib.md5(usedforsecurity=False)

    def paint(frame: Frame, number: int) -> None:
        frame.reshape(-1)[::4096] = number
        sent.update(frame.data)

    feed(sender, noise(task.job.size, BUFFERS), task.job.frames, Run(), paint=paint)
    return Run(error=compare(printed(), task.job, sent.hexdigest()))


def compare(told: list[str], job: Job, checksum: str | None) -> str | None:
    """What is wrong with what the programs print: the number of bytes, and their checksum."""
    expected = f"{job.frames * job.frame_bytes} {checksum}"
    return None if {*told} == {expected} else f"the programs read {told}, and not {expected}"


QUICK_METHODS = [one for one in METHODS if one.kind != "rival"]
BENCHMARK = Benchmark(
    "fan_out",
    settings=JobSettings(JOBS, METHODS),
    quick=JobSettings([replace(JOBS[0], frames=20)], QUICK_METHODS, rounds=2),
    quick_help="A minute: 20 frames, 2 rounds, without stdin.write.",
    prepare=unprepared(measure, check),
    options=[SIZE, FRAMES],
    figures=["blocked_p50_ms"],
    uses_ffmpeg=False,
)
main = BENCHMARK.command(__name__, __doc__)
