"""Sound and frames from memory into one file, by every library in turn.

The clock runs from before the method is started until the file is complete. Afterwards the file is decoded: all frames
and all of the sound must be there, and claps and flashes at most a frame apart. By default: 5 rounds; 3 minutes. A
method whose file is wrong is an error and has no speed; the exit status is then 1.

Each method is used as its own documentation shows. All get the same codecs, preset, quality, bit rate and rates.
"""

from __future__ import annotations

import math
import re
import tempfile
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.encode import CODEC, FRAMES_PER_S, h264, our_encoder, pyav_frames
from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.content import SEED, Content, Film, Frame, there_and_back
from benchmarks.harness.ffmpeg import output_of, raw_input, start
from benchmarks.harness.isolated import Task, unprepared
from benchmarks.harness.methods import FrameJob, Methods
from benchmarks.harness.options import counted
from benchmarks.harness.results import Run
from penstock.video import AudioTrack

PRESET = "ultrafast"
CONTENT: Content = "motion"
SAMPLE_RATE = 48_000
CHANNELS = 2
#: Bits per second of AAC.
BIT_RATE = 128_000
SAMPLES_PER_FRAME = SAMPLE_RATE // FRAMES_PER_S

#: A clap is a tone at the beginning of each second, in noise that is far below.
CLAP_S, CLAP_HZ, CLAP_LEVEL, NOISE_LEVEL = 0.05, 1000, 0.5, 0.02
#: Above this level a sample belongs to a clap.
LOUD = 0.1
#: Above this mean luma, of 16 to 235, a frame is a flash. That of rendered motion is about 100.
BRIGHT = 210
#: What may be missing of the sound, or too much: a codec's frame of 1,024 samples, or a frame of the picture.
MAX_LENGTH_DIFFERENCE_S = MAX_APART_S = 1 / FRAMES_PER_S

#: In the order samples × channels.
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Job(FrameJob):
    """A file that every method has to make."""

    file: str
    audio_codec: str

    @property
    def seconds(self) -> float:
        """The duration of the file."""
        return self.frames / FRAMES_PER_S

    @property
    def title(self) -> str:
        picture = f"{self.width}x{self.height} {CONTENT} to x264 {PRESET}"
        return f"{self.name}: {picture}, {SAMPLE_RATE} Hz stereo to {self.audio_codec}, {self.seconds:g} s"

    @property
    def timeout_s(self) -> float:
        return super().timeout_s + self.seconds

    @property
    def about(self) -> dict[str, Any]:
        rates = {"fps": FRAMES_PER_S, "sample_rate": SAMPLE_RATE, "channels": CHANNELS, "bit_rate": BIT_RATE}
        picture = {"codec": CODEC, "preset": PRESET, "content": CONTENT}
        return super().about | rates | picture


JOBS = (Job("video", 1280, 720, 20 * FRAMES_PER_S, "out.mp4", "aac"),)


# --- methods ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The argument of every method."""

    job: Job
    ffmpeg: str
    #: The file to write. Its folder is the method's own.
    output: str
    #: In turn.
    frames: Sequence[Frame]
    #: All of them.
    samples: Samples

    def pictures(self) -> Iterator[Frame]:
        """The frames of the file."""
        return (self.frames[number % len(self.frames)] for number in range(self.job.frames))

    def pieces(self) -> Iterator[Samples]:
        """The samples in pieces, each as long as a frame."""
        starts = range(0, len(self.samples), SAMPLES_PER_FRAME)
        return (self.samples[first : first + SAMPLES_PER_FRAME] for first in starts)


METHODS = Methods()


@METHODS.add("penstock", "ours")
def penstock(target: Target) -> None:
    """`penstock.Encoder`: ``write`` and ``write_audio`` in step."""
    audio = AudioTrack(SAMPLE_RATE, CHANNELS, codec=target.job.audio_codec)
    how: dict[str, Any] = {"options": {"b:a": BIT_RATE}, "audio": audio}
    with our_encoder(target.output, target.job.size, PRESET, target.ffmpeg, **how) as encoder:
        for frame, piece in zip(target.pictures(), target.pieces(), strict=True):
            encoder.write(frame)
            encoder.write_audio(piece)


@METHODS.add("pyav", needs=("av.video.reformatter",), own_ffmpeg=True)
def pyav(target: Target) -> None:
    """Two streams of a container, encoded and muxed in step, with threads for the codec."""
    av, job = import_module("av"), target.job
    with av.open(target.output, "w") as container:
        encode = pyav_frames(container, job.size, PRESET)
        audio = container.add_stream(job.audio_codec, rate=SAMPLE_RATE, layout="stereo")
        audio.bit_rate = BIT_RATE
        frames = target.pictures()
        for number, piece in enumerate(target.pieces()):
            encode(next(frames))
            sound = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="flt", layout="stereo")
            sound.sample_rate, sound.pts = SAMPLE_RATE, number * SAMPLES_PER_FRAME
            container.mux(audio.encode(sound))
        encode(None)
        container.mux(audio.encode(None))


@METHODS.add("moviepy", needs=("moviepy",))
def moviepy(target: Target) -> None:
    """``VideoClip`` and ``AudioArrayClip``; the sound goes through a temporary file."""
    from moviepy import AudioArrayClip, VideoClip

    job, sound = target.job, AudioArrayClip(target.samples, SAMPLE_RATE)

    def frame_at(time_s: float) -> Frame:
        return target.frames[round(time_s * FRAMES_PER_S) % len(target.frames)]

    VideoClip(frame_at, duration=job.seconds).with_audio(sound).write_videofile(
        target.output,
        fps=FRAMES_PER_S,
        codec=CODEC,
        preset=PRESET,
        audio_fps=SAMPLE_RATE,
        audio_codec=job.audio_codec,
        audio_bitrate=str(BIT_RATE),
        temp_audiofile_path=str(Path(target.output).parent),
        logger=None,
    )


@METHODS.add("wav+stdin.write")
def wav_and_stdin(target: Target) -> None:
    """The sound into a temporary WAV file, then ``stdin.write(frame.tobytes())`` into FFmpeg."""
    sound = Path(target.output).with_suffix(".wav")
    with wave.open(str(sound), "wb") as file:
        file.setparams((CHANNELS, 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes((target.samples * 32767).astype("<i2").tobytes())
    read = [*raw_input(*target.job.size, "rgb24", FRAMES_PER_S), "-i", str(sound)]
    to = [*h264(PRESET), "-c:a", target.job.audio_codec, "-b:a", str(BIT_RATE), target.output]
    with start(target.ffmpeg, "-y", *read, *to) as child:
        assert child.stdin is not None
        for frame in target.pictures():
            child.stdin.write(frame.tobytes())
    sound.unlink()


# --- one case, in its own process -------------------------------------------------------------------------


def pictures(job: Job) -> list[Frame]:
    """A loop of a second. Its first frame is a flash."""
    frames = there_and_back(Film(CONTENT, *job.size).pictures())
    assert len(frames) == FRAMES_PER_S
    frames[0][...] = 255
    return frames


def claps(job: Job) -> Samples:
    """All samples of the job."""
    times_s = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    tone = CLAP_LEVEL * np.sin(2 * np.pi * CLAP_HZ * times_s) * (times_s < CLAP_S)
    noise = np.random.default_rng(SEED).uniform(-NOISE_LEVEL, NOISE_LEVEL, (SAMPLE_RATE, CHANNELS))
    second = (tone[:, np.newaxis] + noise).astype(np.float32)
    return np.tile(second, (math.ceil(job.seconds), 1))[: job.frames * SAMPLES_PER_FRAME]


def measure(task: Task[Job]) -> Run:
    """Time one run, and decode its file."""
    task.load()
    job, run = task.job, Run()
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        target = Target(job, task.ffmpeg, str(Path(folder) / job.file), pictures(job), claps(job))
        with accounted(run):
            task.method.start(target)
        run.figures = {"realtime": run.per_second(job.seconds), **run.figures}
        run.figures["output_bytes"] = Path(target.output).stat().st_size
        check_sound(target, check_picture(target, run), run)
    return run


def check_picture(target: Target, run: Run) -> NDArray[Any]:
    """Count the frames. Returns when the flashes are, in seconds."""
    luma = "lavfi.signalstats.YAVG"
    show = f"scale=32:32:flags=area,signalstats,metadata=mode=print:key={luma}:file=-"
    shown = output_of(target.ffmpeg, "-i", target.output, "-map", "0:v:0", "-vf", show, "-f", "null", "-")
    frames = re.findall(rf"pts_time:(\S+)\s+{luma}=(\S+)", shown.decode())
    run.count_frames(target.job.frames, len(frames))
    flashes_s = np.array([float(time_s) for time_s, mean in frames if float(mean) > BRIGHT])
    sent = math.ceil(target.job.seconds)
    if len(flashes_s) != sent:
        run.error = run.error or f"{sent} flashes were sent, {len(flashes_s)} are shown"
    return flashes_s


def check_sound(target: Target, expected_s: NDArray[Any], run: Run) -> None:
    """Compare the length of the sound, and the claps with the flashes."""
    # Silence is inserted where the sound's own times have a gap.
    aligned = f"aresample={SAMPLE_RATE}:async=1:min_hard_comp=0.001:first_pts=0"
    decode = ["-map", "0:a:0", "-af", aligned, "-ac", "1", "-f", "f32le", "-"]
    samples = np.frombuffer(output_of(target.ffmpeg, "-i", target.output, *decode), "<f4")
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    heard_s = loud[np.diff(loud, prepend=-SAMPLE_RATE) > SAMPLE_RATE / 2] / SAMPLE_RATE
    length_s = len(samples) / SAMPLE_RATE
    run.figures["sound_s"] = length_s
    if abs(length_s - target.job.seconds) > MAX_LENGTH_DIFFERENCE_S:
        run.error = run.error or f"the sound takes {length_s:.3f} s, and not {target.job.seconds:.3f} s"
    if len(heard_s) != len(expected_s):
        run.error = run.error or f"there are {len(expected_s)} seconds, and {len(heard_s)} claps"
        return
    apart_s = float(np.abs(heard_s - expected_s).max())
    run.figures["apart_ms"] = 1e3 * apart_s
    if apart_s > MAX_APART_S:
        run.error = run.error or f"claps and flashes are {1e3 * apart_s:.1f} ms apart"


BENCHMARK = Benchmark(
    "sound",
    settings=JobSettings(JOBS, METHODS),
    quick=JobSettings([replace(job, frames=job.frames // 10) for job in JOBS], METHODS, rounds=2),
    quick_help="Half a minute: a tenth of the length, 2 rounds.",
    prepare=unprepared(measure),
    options=[counted("--frames", "frames", f"Frames of each file, {FRAMES_PER_S} for a second.")],
    figures=["realtime"],
    standards=["penstock"],
)
main = BENCHMARK.command(__name__, __doc__)
