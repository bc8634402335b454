"""Windows of sound from anywhere in a file, as a data loader for speech reads them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.decode.checks import REFERENCE
from benchmarks.decode.jobs import Job, Kind
from benchmarks.decode.methods import METHODS, OURS
from benchmarks.harness.accounts import accounted
from benchmarks.harness.ffmpeg import output_of
from benchmarks.harness.goals import Goal
from benchmarks.harness.isolated import Task
from benchmarks.harness.results import Run
from penstock import AudioDecoder
from penstock.video import DecoderSettings

SAMPLE_RATE = 16_000
#: Rises by 4 Hz each second, so that each moment has a tone of its own.
TONE = "0.5*sin(2*PI*(300+2*t)*t)"
#: For each codec, its ending, and options of the encoder.
CODECS = {"aac": (".m4a", ("-b:a", "64k")), "flac": (".flac", ("-sample_fmt", "s16"))}
#: Versions of a decoder differ by less.
MAX_SOUND_DIFFERENCE = 1e-3
#: How far before a window a rival begins to decode, in seconds: two frames of AAC.
LEAD_S = 0.128

#: Samples × channels.
Window = NDArray[np.float32]
ONE_BY_ONE = "penstock-one-window"


@dataclass(frozen=True)
class SoundJob(Job):
    """The windows, of a second each, that every method has to read. Those are its frames."""

    codec: str = "aac"
    seconds: int = 600

    @property
    def starts_s(self) -> list[float]:
        """Where the windows begin, the same in every run."""
        anywhere = random.Random(0)
        return [anywhere.uniform(0, self.seconds - 1) for _ in range(self.frames)]

    @property
    def title(self) -> str:
        of_what = f"{self.seconds} s of {self.codec}, {SAMPLE_RATE} Hz mono"
        return f"{self.name}: {self.frames} windows of a second, of {of_what}"

    @property
    def file(self) -> str:
        """Its name, by all that it depends on."""
        return f"sound-{self.seconds}{CODECS[self.codec][0]}"


def sound_job(codec: str, *rivals: str) -> SoundJob:
    """A job, and its goals: ten times as fast as a program for each window, and as fast as each rival."""
    goals = (Goal("penstock-windows", ONE_BY_ONE, 10), *(Goal("penstock-windows", one, 1) for one in rivals))
    kind: Kind = "sound-aac" if codec == "aac" else "sound-flac"
    return SoundJob(f"sound-windows-{codec}", 0, 0, 40, kind, codec=codec, goals=goals)


SOUND_JOBS = (
    sound_job("aac", "torchcodec-windows", "pyav-windows"),
    sound_job("flac", "torchcodec-windows", "pyav-windows", "soundfile-windows"),
)

Target = Task[SoundJob]
of_sound = partial(METHODS.add, serves=("sound-aac", "sound-flac"))


@of_sound("pyav-windows", needs=("av",), own_ffmpeg=True)
def pyav_windows(target: Target) -> Iterator[Window]:
    """By hand: a ``seek`` before each window, and ``decode`` up to its end."""
    with import_module("av").open(target.source) as container:
        stream = container.streams.audio[0]
        for start_s in target.job.starts_s:
            container.seek(int(max(0, start_s - LEAD_S) / stream.time_base), stream=stream)
            pieces, first = [], None
            for frame in container.decode(stream):
                first = round(frame.time * SAMPLE_RATE) if first is None else first
                pieces.append(frame.to_ndarray())
                if frame.time + frame.samples / SAMPLE_RATE >= start_s + 1:
                    break
            samples, begins = np.concatenate(pieces, axis=1), round(start_s * SAMPLE_RATE) - (first or 0)
            window = samples[0, begins : begins + SAMPLE_RATE, np.newaxis]
            scale = 2**15 if window.dtype == np.int16 else 1
            yield window.astype(np.float32) / np.float32(scale)


@of_sound("torchcodec-windows", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_windows(target: Target) -> Iterator[Window]:
    """``AudioDecoder.get_samples_played_in_range``, for each window."""
    decoder = import_module("torchcodec.decoders").AudioDecoder(target.source)
    for start_s in target.job.starts_s:
        yield decoder.get_samples_played_in_range(start_s, start_s + 1).data.numpy().T


@METHODS.add("soundfile-windows", needs=("soundfile",), serves=("sound-flac",))
def soundfile_windows(target: Target) -> Iterator[Window]:
    """``SoundFile.seek`` and ``read``, for each window."""
    with import_module("soundfile").SoundFile(target.source) as file:
        for start_s in target.job.starts_s:
            file.seek(round(start_s * SAMPLE_RATE))
            yield file.read(SAMPLE_RATE, "float32", always_2d=True)


@of_sound("penstock-windows", **OURS)
def penstock_windows(target: Target) -> Iterator[Window]:
    """`AudioDecoder.windows`, all at once."""
    with AudioDecoder(target.source) as audio:
        yield from audio.windows(target.job.starts_s, 1.0)


@of_sound(ONE_BY_ONE, "other", needs=("av",))
def penstock_one_window(target: Target) -> Iterator[Window]:
    """`AudioDecoder` with ``start``, ``duration`` and an FFmpeg program, for each window."""
    settings = DecoderSettings(ffmpeg=target.ffmpeg)
    for start_s in target.job.starts_s:
        with AudioDecoder(target.source, start=start_s, duration=1.0, settings=settings) as audio:
            yield audio.read_all()


def make_sound(job: SoundJob, ffmpeg: str, folder: Path, kept: Path) -> tuple[str, Window]:
    """Make the file, unless it is kept; and all of its samples."""
    path = kept / job.file
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        source = ("-f", "lavfi", "-i", f"aevalsrc={TONE}:s={SAMPLE_RATE}:d={job.seconds}")
        made = folder / job.file
        output_of(ffmpeg, *source, "-c:a", job.codec, *CODECS[job.codec][1], str(made))
        shutil.copy(made, path)
    raw = output_of(ffmpeg, "-i", str(path), "-f", "f32le", "pipe:1")
    return str(path), np.frombuffer(raw, np.float32)


def measure_sound(task: Target) -> Run:
    """Time one run, and compare its windows with the samples of the file."""
    task.load()
    run = Run()
    with accounted(run):
        windows = [*task.method.start(task)]
    reference = np.load(Path(task.folder) / REFERENCE)
    expected = [round(start_s * SAMPLE_RATE) for start_s in task.job.starts_s]
    for number, (window, begins) in enumerate(zip(windows, expected, strict=False)):
        run.error = run.error or _difference(number, window, begins, reference)
    run.count_frames(task.job.frames, len(windows))
    return run


def _difference(number: int, window: Window, begins: int, reference: Window) -> str | None:
    """What is wrong with a window. It may begin a sample early or late, because libraries round times."""
    if abs(len(window) - SAMPLE_RATE) > 1:
        return f"window {number} has {len(window)} samples"
    shown = window[2 : SAMPLE_RATE - 2, 0]
    off = min(
        float(np.abs(shown - reference[at : at + len(shown)]).max()) for at in range(begins + 1, begins + 4)
    )
    return f"window {number} is {off:.4f} off" if off > MAX_SOUND_DIFFERENCE else None
