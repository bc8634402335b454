"""Reads every file of a folder in all ways, beside FFmpeg and PyAV, and prints what differs, by kind.

Run it as ``make corpus FOLDER=/my/videos``. Each file is read in each way by a process of its own, with limits of time
and memory, so that a crash or a hang ends that process alone. Only the first 300 frames count, 40 of them by number
and by time, and 30 seconds of audio. A difference isn't always a fault: FFmpeg makes up frames of a damaged file, for
which Penstock raises an error.

Exits with 0 if nothing differs, 1 if something does, and 2 if the folder is missing or has no files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import resource
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import AudioDecoder, Decoder, PenstockError
from penstock.video import find_ffmpeg

FRAMES = 300
# Frames by number and by time, in random order: each may decode a whole group of pictures.
PICKED = 40
AUDIO_S = 30
# Chosen: far more than any way needs for so few frames of a video of this decade.
MOST_SECONDS = 120
MOST_BYTES = 6 << 30
# Chosen: two versions of an audio decoder differ by the last bits of 16.
CLOSE_LEVEL = 1e-3
# Chosen: some containers round times to milliseconds.
CLOSE_S = 0.002


@dataclass
class Reading:
    """What one way read: the seconds and digest of each frame, or the audio's length and levels; and how it ended."""

    numbers: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    samples: int = 0
    levels: list[float] = field(default_factory=list)
    error: str = ""
    # By a signal, or the limit of time.
    killed: str = ""

    def add(self, number: int, time_s: float, pixels: bytes) -> None:
        self.numbers.append(number)
        self.times_s.append(time_s)
        self.digests.append(hashlib.md5(pixels, usedforsecurity=False).hexdigest())

    @property
    def is_empty(self) -> bool:
        return not self.times_s and not self.samples


def in_sequence(path: Path, reading: Reading, **options: Any) -> None:
    with Decoder(path, pixel_format="source", **options) as decoder:
        for frame in islice(decoder, FRAMES):
            reading.add(frame.index, frame.time_s, frame.tobytes())


def isolated(path: Path, reading: Reading) -> None:
    in_sequence(path, reading, isolated=True)


def by_number(path: Path, reading: Reading) -> None:
    with Decoder(path, pixel_format="source") as decoder:
        for number in picked(decoder.count_frames()):
            frame = decoder[number]
            reading.add(number, frame.time_s, frame.tobytes())


def by_time(path: Path, reading: Reading) -> None:
    with Decoder(path, pixel_format="source") as decoder:
        times_s = decoder.times_s
        for number in picked(len(times_s)):
            frame = decoder.frame_at(times_s[number])
            reading.add(number, frame.time_s, frame.tobytes())


def picked(count: int) -> list[int]:
    numbers = range(min(count, FRAMES))
    return random.Random(0).sample(numbers, min(PICKED, len(numbers)))


def audio(path: Path, reading: Reading) -> None:
    with AudioDecoder(path, duration=AUDIO_S, dtype="float32") as decoder:
        measure(reading, decoder.read_all(), decoder.stream.sample_rate)


def measure(reading: Reading, samples: npt.NDArray[np.float32], rate: int) -> None:
    """The root mean square of each tenth of a second, by channels."""
    reading.samples = len(samples)
    for block in np.split(samples.astype(np.float64), range(rate // 10, len(samples), max(rate // 10, 1))):
        reading.levels += np.sqrt(np.mean(block**2, axis=0)).tolist() if len(block) else []


def by_pyav(path: Path, reading: Reading) -> None:
    import av

    with av.open(path) as container:
        for number, frame in enumerate(islice(container.decode(video=0), FRAMES)):
            reading.add(number, frame.time or 0.0, b"")


def by_ffmpeg(path: Path, reading: Reading) -> None:
    """In the pixel format that the Decoder gives, so that digests are of the same bytes."""
    pixels = []
    with suppress(PenstockError), Decoder(path, pixel_format="source") as decoder:
        pixels = ["-pix_fmt", decoder.pixel_format]
    options = ["-map", "0:v:0", "-frames:v", FRAMES, "-fps_mode", "passthrough", "-noautoscale", *pixels]
    for time_base in ("demux", "-1"):  # the container's, since FFmpeg 6.1 and before
        done = ffmpeg("-i", f"file:{path}", *options, "-enc_time_base", time_base, "-f", "framemd5", "-")
        lines = done.stdout.decode().splitlines()
        if unit := next((line for line in lines if line.startswith("#tb 0: ")), ""):
            ticks, seconds = map(int, unit.removeprefix("#tb 0: ").split("/"))
            for line in lines:
                if not line.startswith("#"):
                    _, _, pts, _, _, digest = line.split(",")
                    reading.numbers.append(len(reading.numbers))
                    reading.times_s.append(int(pts) * ticks / seconds)
                    reading.digests.append(digest.strip())
            return
    reading.error = last_line(done.stderr)


def audio_by_ffmpeg(path: Path, reading: Reading) -> None:
    with AudioDecoder(path) as decoder:
        rate, channels = decoder.stream.sample_rate, decoder.stream.channels
    done = ffmpeg("-i", f"file:{path}", "-map", "0:a:0", "-t", AUDIO_S, "-f", "f32le", "-")
    measure(reading, np.frombuffer(done.stdout, "<f4").reshape(-1, channels), rate)
    reading.error = "" if done.stdout else last_line(done.stderr)


def ffmpeg(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [find_ffmpeg(), "-v", "error", "-nostdin", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=MOST_SECONDS, check=False)


def last_line(words: bytes) -> str:
    return (words.decode(errors="replace").strip().splitlines() or [""])[-1]


WAYS: dict[str, Callable[[Path, Reading], None]] = {
    "in sequence": in_sequence,
    "by number": by_number,
    "by time": by_time,
    "isolated": isolated,
    "audio": audio,
    "PyAV": by_pyav,
    "FFmpeg": by_ffmpeg,
    "FFmpeg's audio": audio_by_ffmpeg,
}


def read(way: str, path: Path) -> Reading:
    """In this process; an error is a result."""
    reading = Reading()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            WAYS[way](path, reading)
        except Exception as error:
            reading.error = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return reading


def read_apart(way: str, path: Path) -> Reading:
    """In a process of its own, with limits."""
    try:
        done = subprocess.run(
            command_of(way, path),
            capture_output=True,
            timeout=MOST_SECONDS,
            preexec_fn=limit_memory,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Reading(killed=f"it took more than {MOST_SECONDS} s")
    if done.returncode != 0:
        return Reading(killed=f"its process ended with {done.returncode}: {last_line(done.stderr)}")
    return Reading(**json.loads(done.stdout))


def command_of(way: str, path: Path) -> list[str]:
    return [sys.executable, "-m", "scripts.corpus", "--way", way, str(path)]


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def differences(readings: dict[str, Reading]) -> Iterator[tuple[str, str]]:
    """Kinds, and what is so of this file."""
    for way, reading in readings.items():
        if reading.killed:
            yield f"{way}: crashed or hung", reading.killed
    sequence = readings["in sequence"]
    if sequence.is_empty and not (readings["FFmpeg"].is_empty and readings["PyAV"].is_empty):
        yield "no frames, though others read some", sequence.error
    if not sequence.is_empty:
        yield from compared_frames(readings, sequence)
    if not readings["audio"].killed:
        yield from compared_audio(readings["audio"], readings["FFmpeg's audio"])


def compared_frames(readings: dict[str, Reading], sequence: Reading) -> Iterator[tuple[str, str]]:
    # A time that comes twice is that of one frame.
    by_time = ["by time"] if all(one < two for one, two in pairwise(sequence.times_s)) else []
    for way in ("by number", *by_time):
        if readings[way].error and not sequence.error:
            yield f"{way}: an error", readings[way].error
        yield from compared(way, readings[way], sequence)
    if not readings["isolated"].killed:
        yield from counted("isolated", readings["isolated"], sequence)
    yield from compared("isolated", readings["isolated"], sequence)
    if not readings["FFmpeg"].is_empty:  # it may lack the codec
        yield from counted("FFmpeg", readings["FFmpeg"], sequence)
        yield from compared("FFmpeg", readings["FFmpeg"], sequence)


def counted(way: str, other: Reading, sequence: Reading) -> Iterator[tuple[str, str]]:
    count, wanted = len(other.numbers), len(sequence.numbers)
    if count != wanted:
        errors = [error for error in (sequence.error, other.error) if error]
        yield f"{way}: another number of frames", "; ".join([f"{count} for {wanted}", *errors])


def compared(way: str, other: Reading, sequence: Reading) -> Iterator[tuple[str, str]]:
    """How frames of another way differ from those in sequence; times count from the first frame of both on."""
    pairs = [(number, place) for place, number in enumerate(other.numbers) if number < len(sequence.numbers)]
    ahead_s = other.times_s[pairs[0][1]] - sequence.times_s[pairs[0][0]] if way == "FFmpeg" and pairs else 0
    late = [
        number
        for number, place in pairs
        if not math.isclose(
            other.times_s[place] - ahead_s, sequence.times_s[number], rel_tol=0, abs_tol=CLOSE_S
        )
    ]
    if late:
        yield f"{way}: other times", f"{len(late)} frames, such as frame {late[0]}"
    changed = [number for number, place in pairs if other.digests[place] != sequence.digests[number]]
    if changed:
        yield f"{way}: other pixels", f"{len(changed)} frames, such as frame {changed[0]}"


def compared_audio(ours: Reading, its: Reading) -> Iterator[tuple[str, str]]:
    if its.samples != ours.samples:
        yield (
            "audio: another length",
            f"{ours.samples} samples, FFmpeg's {its.samples}; {ours.error or its.error}",
        )
    elif not np.allclose(ours.levels, its.levels, rtol=0, atol=CLOSE_LEVEL):
        yield "audio: other samples", ""


def survey(paths: list[Path]) -> dict[str, list[str]]:
    """Lines about files, by kind."""
    kinds: dict[str, list[str]] = defaultdict(list)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        readings = [{way: pool.submit(read_apart, way, path) for way in WAYS} for path in paths]
        for number, (path, each) in enumerate(zip(paths, readings, strict=True), 1):
            print(f"\r{number} of {len(paths)} files", end="", file=sys.stderr, flush=True)
            for kind, detail in differences({way: future.result() for way, future in each.items()}):
                kinds[kind].append(f"{path}: {detail}" if detail else str(path))
    print(file=sys.stderr)
    return kinds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, nargs="?", help="a folder, with the folders in it")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(asdict(read(given.way, given.path))))
        return
    if given.path is None or not given.path.is_dir():
        parser.error(f"there is no folder {given.path}. Pass FOLDER=, with a folder of videos")
    paths = sorted(path for path in given.path.rglob("*") if path.is_file())
    if not paths:
        parser.error(f"{given.path} has no files")
    kinds = survey(paths)
    for kind, lines in sorted(kinds.items()):
        print(f"{kind} ({len(lines)})", *lines, sep="\n    ")
    print(f"{len(paths)} files, {len(kinds)} kinds of differences")
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()
