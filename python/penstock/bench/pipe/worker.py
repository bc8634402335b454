"""One case in one process: ``python -m penstock.bench.pipe.worker`` takes a `Task` and answers with a `Result`.

The clock runs from before FFmpeg is started until it has exited, the same for every method and for the
bound. FFmpeg's start is in it, because a method may fill the pipe meanwhile; enough frames make it small.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from penstock.bench.accounts import own_cpu_s, peak_above, reset_peak
from penstock.bench.isolated import answer
from penstock.bench.pipe.cases import FRAMES_PER_S, PIXEL_FORMAT, Encode, Method, Size
from penstock.bench.pipe.methods import Sender, make_sender

if TYPE_CHECKING:
    from penstock.bench.pipe.methods import Frame

SenderFactory = Callable[[Method, IO[bytes], Sequence["Frame"]], Sender]

#: A byte on each page is changed between two uses of a buffer, so that a page sent too late shows.
PAGE_BYTES = 4096
#: As much of FFmpeg's stderr as an error message can use.
STDERR_CHARACTERS = 2000


@dataclass(frozen=True)
class Task:
    """One run of one case."""

    method: Method
    size: Size
    encode: Encode
    buffers: int
    frames: int
    seed: int
    ffmpeg: str
    #: What FFmpeg reads instead of a pipe, for the bound.
    input_path: str | None = None
    #: Compare what FFmpeg read, frame by frame, instead of timing it.
    check_content: bool = False

    def to_json(self) -> str:
        """The task as text for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """The task that ``to_json`` wrote."""
        fields: dict[str, Any] = json.loads(text)
        fields["method"] = Method(**fields["method"])
        fields["size"] = Size(**fields["size"])
        encode = fields["encode"]
        fields["encode"] = Encode(**(encode | {"arguments": tuple(encode["arguments"])}))
        return Task(**fields)


@dataclass
class Result:
    """What one run took. With an ``error``, the numbers say nothing of the method's speed."""

    frames_sent: int
    frames_read: int
    seconds: float
    cpu_own_s: float
    cpu_child_s: float
    #: Peak of our resident memory above what it was with the buffers filled; None where it cannot be known.
    #: Pages that the kernel holds in the pipe are not in it: at most the pipe's capacity.
    peak_extra_bytes: int | None
    notes: dict[str, object] = field(default_factory=dict)
    error: str | None = None


def make_frames(size: Size, buffers: int, seed: int) -> list[Frame]:
    """Buffers of noise from 128 to 135, ``height × width × 3`` bytes each, the same for the same seed."""
    import numpy as np

    generator = np.random.default_rng(seed)
    shape = (size.height, size.width, 3)
    return [generator.integers(128, 136, shape, dtype=np.uint8) for _ in range(buffers)]


def command_of(task: Task) -> list[str]:
    """FFmpeg's command line."""
    read = ["-f", "rawvideo", "-pix_fmt", PIXEL_FORMAT, "-s", f"{task.size.width}x{task.size.height}"]
    read += ["-r", str(FRAMES_PER_S), "-i", task.input_path or "-"]
    command = [task.ffmpeg, "-hide_banner", "-loglevel", "error", "-nostats"]
    if task.check_content:
        return [*command, *read, "-c:v", "rawvideo", "-f", "framemd5", "-"]
    # The null muxer writes nothing to "-", so that standard output carries the progress report alone.
    return [*command, "-progress", "pipe:1", *read, *task.encode.arguments, "-f", "null", "-"]


def run_task(task: Task, make: SenderFactory = make_sender) -> Result:
    """Run one case here, and account for its frames."""
    # numpy and the method's module are loaded before the clock starts: their import is nobody's speed.
    frames = make_frames(task.size, 0 if task.input_path else task.buffers, task.seed)
    if task.method.needs:
        __import__(task.method.needs)
    expected = _expected_hashes(task, frames) if task.check_content else []
    # Files, not pipes: nobody has to read them while the clock runs.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        result, returncode = _timed(task, make, frames, stdout, stderr)
        written, complaint = _text(stdout), _text(stderr)
    if task.check_content:
        hashes = read_hashes(written)
        result.frames_read = len(hashes)
        error = account(task.frames, len(hashes), returncode, complaint) or compare(expected, hashes)
    else:
        result.frames_read = read_frame_count(written)
        error = account(task.frames, result.frames_read, returncode, complaint)
    result.error = "; ".join(filter(None, (result.error, error))) or None
    return result


def _timed(
    task: Task, make: SenderFactory, frames: Sequence[Frame], stdout: IO[bytes], stderr: IO[bytes]
) -> tuple[Result, int]:
    resident = reset_peak()
    cpu_before, started = own_cpu_s(), time.perf_counter()
    child = subprocess.Popen(
        command_of(task),
        stdin=subprocess.DEVNULL if task.input_path else subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
    )
    notes: dict[str, object] = {}
    error = None
    if child.stdin is not None:
        try:
            notes = _feed(task, make, child.stdin, frames)
        except Exception as problem:  # whatever a method raises is its result, not ours
            error = f"{type(problem).__name__}: {problem}"
            # Else it would wait for frames for as long as the method keeps a descriptor. Popen.kill would
            # reap a child that has exited, and its CPU seconds with it.
            os.kill(child.pid, signal.SIGKILL)
        _close(child.stdin)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    result = Result(
        frames_sent=task.frames,
        frames_read=0,
        seconds=seconds,
        cpu_own_s=own_cpu_s() - cpu_before,
        cpu_child_s=usage.ru_utime + usage.ru_stime,
        peak_extra_bytes=peak_above(resident),
        notes=notes,
        error=error,
    )
    return result, child.returncode


def _feed(task: Task, make: SenderFactory, stdin: IO[bytes], frames: Sequence[Frame]) -> dict[str, object]:
    sender = make(task.method, stdin, frames)
    for number in range(task.frames):
        index = number % len(frames)
        sender.wait_until_free(index)
        if task.check_content:
            _stamp(frames[index], number)
        sender.send(index)
    sender.finish()
    return sender.notes()


def _close(stdin: IO[bytes]) -> None:
    # Bytes for a child that has gone: its frame count tells.
    with suppress(BrokenPipeError):
        stdin.close()


def account(sent: int, read: int, returncode: int, complaint: str) -> str | None:
    """What is wrong with a run, if anything: FFmpeg must have read each frame sent, and ended well."""
    problems = []
    if read != sent:
        problems.append(f"{sent} frames were sent and FFmpeg read {read}")
    if returncode != 0:
        problems.append(f"FFmpeg exited with {returncode}")
    if problems and complaint:
        problems.append(complaint[-STDERR_CHARACTERS:].strip())
    return "; ".join(problems) or None


def compare(expected: Sequence[str], read: Sequence[str]) -> str | None:
    """Which frame is the first that FFmpeg read otherwise than it was sent, if any."""
    for number, (ours, theirs) in enumerate(zip(expected, read, strict=True)):
        if ours != theirs:
            return f"frame {number} arrived with other bytes than were sent"
    return None


def read_frame_count(progress: str) -> int:
    """The last ``frame=`` of FFmpeg's progress report; 0 without one."""
    counts = [line.partition("=")[2] for line in progress.splitlines() if line.startswith("frame=")]
    return int(counts[-1]) if counts else 0


def read_hashes(framemd5: str) -> list[str]:
    """The last column of FFmpeg's ``framemd5`` report."""
    lines = (line for line in framemd5.splitlines() if line and not line.startswith("#"))
    return [line.rpartition(",")[2].strip() for line in lines]


def _stamp(frame: Frame, number: int) -> None:
    frame.reshape(-1)[::PAGE_BYTES] = number % 251  # a prime: no period in common with the buffers


def _expected_hashes(task: Task, frames: Sequence[Frame]) -> list[str]:
    """What each frame must hash to, found beforehand so that hashing does not slow the sender."""
    hashes = []
    for number in range(task.frames):
        frame = frames[number % len(frames)]
        _stamp(frame, number)
        hashes.append(hashlib.md5(frame.data, usedforsecurity=False).hexdigest())
    return hashes


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def main() -> None:
    """Run the task on standard input."""
    answer(lambda task: asdict(run_task(Task.from_json(task))))


if __name__ == "__main__":
    main()
