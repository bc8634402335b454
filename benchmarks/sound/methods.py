"""The methods: each makes the same file of the same frames and samples in memory.

Each is used as its own documentation shows. All get the same codecs, preset, quality, bit rate and rates.

To add a rival, write a function ``(target) -> None`` here, and decorate it with ``@METHODS.add(NAME)``.
"""

from __future__ import annotations

import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.encode.methods import CODEC, COLORS, FRAMES_PER_S, OUTPUT_PIXEL_FORMAT, h264, pyav_frames
from benchmarks.harness.content import Content, Frame
from benchmarks.harness.ffmpeg import raw_input, start
from benchmarks.harness.methods import FrameJob, Methods
from penstock import Encoder
from penstock.ffmpeg import AudioEncoder, AudioInput, Tuning

PRESET = "ultrafast"
CONTENT: Content = "motion"
SAMPLE_RATE = 48_000
CHANNELS = 2
#: Bits per second of AAC.
BIT_RATE = 128_000
SAMPLES_PER_FRAME = SAMPLE_RATE // FRAMES_PER_S

#: Gains are ratios to this method.
OURS = "penstock"

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Job(FrameJob):
    """A file that every method has to make. Without a size it is sound alone, in pieces as long as a frame."""

    file: str
    audio_codec: str

    @property
    def has_picture(self) -> bool:
        return self.width > 0

    @property
    def kind(self) -> Literal["video", "sound"]:
        return "video" if self.has_picture else "sound"

    @property
    def seconds(self) -> float:
        """The duration of the file."""
        return self.frames / FRAMES_PER_S

    @property
    def title(self) -> str:
        picture = f"{self.width}x{self.height} {CONTENT} to x264 {PRESET}, " if self.has_picture else ""
        return f"{self.name}: {picture}{SAMPLE_RATE} Hz stereo to {self.audio_codec}, {self.seconds:g} s"

    @property
    def timeout_s(self) -> float:
        return super().timeout_s + self.seconds

    @property
    def about(self) -> dict[str, Any]:
        rates = {"fps": FRAMES_PER_S, "sample_rate": SAMPLE_RATE, "channels": CHANNELS, "bit_rate": BIT_RATE}
        picture = {"codec": CODEC, "preset": PRESET, "content": CONTENT} if self.has_picture else {}
        return super().about | rates | picture


@dataclass(frozen=True)
class Target:
    """The argument of every method."""

    job: Job
    ffmpeg: str
    #: The file to write. Its folder is the method's own.
    output: str
    #: In turn.
    frames: Sequence[Frame]
    #: All samples, in the order samples × channels.
    samples: Samples

    def pictures(self) -> Iterator[Frame]:
        """The frames of the file."""
        return (self.frames[number % len(self.frames)] for number in range(self.job.frames))

    def pieces(self) -> Iterator[Samples]:
        """The samples in pieces, each as long as a frame."""
        starts = range(0, len(self.samples), SAMPLES_PER_FRAME)
        return (self.samples[first : first + SAMPLES_PER_FRAME] for first in starts)


METHODS = Methods()


@METHODS.add(OURS, "ours")
def penstock(target: Target) -> None:
    """`penstock.Encoder`: ``write`` and ``write_audio`` in step."""
    audio = AudioInput(SAMPLE_RATE, CHANNELS, codec=target.job.audio_codec)
    if not target.job.has_picture:
        options, tuning = {"b:a": BIT_RATE}, Tuning(ffmpeg=target.ffmpeg)
        with AudioEncoder(target.output, audio, options=options, tuning=tuning) as alone:
            for piece in target.pieces():
                alone.write(piece)
        return
    with Encoder(
        target.output,
        size=target.job.size,
        fps=FRAMES_PER_S,
        codec=CODEC,
        options={"preset": PRESET, "b:a": BIT_RATE},
        output_pixel_format=OUTPUT_PIXEL_FORMAT,
        colors=COLORS,
        audio=audio,
        tuning=Tuning(ffmpeg=target.ffmpeg),
    ) as encoder:
        for frame, piece in zip(target.pictures(), target.pieces(), strict=True):
            encoder.write(frame)
            encoder.write_audio(piece)


@METHODS.add("pyav", needs=("av.video.reformatter",), own_ffmpeg=True)
def pyav(target: Target) -> None:
    """Two streams of a container, encoded and muxed in step, with threads for the codec."""
    av, job = import_module("av"), target.job
    with av.open(target.output, "w") as container:
        encode = pyav_frames(container, job.size, PRESET) if job.has_picture else None
        audio = container.add_stream(job.audio_codec, rate=SAMPLE_RATE, layout="stereo")
        audio.bit_rate = BIT_RATE
        frames = target.pictures()
        for number, piece in enumerate(target.pieces()):
            if encode is not None:
                encode(next(frames))
            sound = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="flt", layout="stereo")
            sound.sample_rate, sound.pts = SAMPLE_RATE, number * SAMPLES_PER_FRAME
            container.mux(audio.encode(sound))
        if encode is not None:
            encode(None)
        container.mux(audio.encode(None))


@METHODS.add("moviepy", needs=("moviepy",))
def moviepy(target: Target) -> None:
    """``VideoClip`` and ``AudioArrayClip``; the sound goes through a temporary file."""
    from moviepy import AudioArrayClip, VideoClip

    job, sound = target.job, AudioArrayClip(target.samples, SAMPLE_RATE)
    if not job.has_picture:
        sound.write_audiofile(
            target.output, SAMPLE_RATE, codec=job.audio_codec, bitrate=str(BIT_RATE), logger=None
        )
        return

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


@METHODS.add("wav+stdin.write", serves=("video",))
def wav_and_stdin(target: Target) -> None:
    """The sound into a temporary WAV file, then ``stdin.write(frame.tobytes())`` into FFmpeg."""
    sound = Path(target.output).with_suffix(".wav")
    with wave.open(str(sound), "wb") as file:
        file.setparams((CHANNELS, 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes((target.samples * 32767).astype("<i2").tobytes())
    read = [*raw_input(*target.job.size, "rgb24", FRAMES_PER_S), "-i", str(sound)]
    _pipe_into_ffmpeg(target, [*read, *h264(PRESET)], target.pictures())
    sound.unlink()


@METHODS.add("stdin.write", serves=("sound",))
def stdin_write(target: Target) -> None:
    """``stdin.write(samples.tobytes())`` into FFmpeg."""
    read = ["-f", "f32le", "-ar", str(SAMPLE_RATE), "-ac", str(CHANNELS), "-i", "-"]
    _pipe_into_ffmpeg(target, read, target.pieces())


def _pipe_into_ffmpeg(target: Target, arguments: list[str], arrays: Iterator[NDArray[Any]]) -> None:
    sound = ["-c:a", target.job.audio_codec, "-b:a", str(BIT_RATE)]
    with start(target.ffmpeg, "-y", *arguments, *sound, target.output) as child:
        assert child.stdin is not None
        for array in arrays:
            child.stdin.write(array.tobytes())
