"""The files that are read, and samples of their frames."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.checks import FRAMES_PER_S, PIPE_FRAMES, Samples
from benchmarks.decode.jobs import ENCODERS, Job
from benchmarks.decode.methods import METHODS, read_into_one, stdout_readinto
from benchmarks.harness import content as films
from benchmarks.harness.content import Film, Frame, noise
from benchmarks.harness.ffmpeg import FFmpegFailedError, start, version
from benchmarks.harness.isolated import Task
from benchmarks.harness.machine import ROOT
from benchmarks.harness.options import by_name
from penstock import Encoder
from penstock.errors import PenstockError
from penstock.video import Colors, EncoderSettings

#: Videos are kept here, because it takes minutes to encode them all.
KEPT = ROOT / "build" / "bench-decode"


def link_programs(ffmpeg: str, folder: Path) -> str:
    """Link FFmpeg and an ffprobe into the folder, under the names that libraries look for on ``PATH``."""
    program = Path(ffmpeg).absolute()
    (folder / "ffmpeg").symlink_to(program)
    beside = program.with_name("ffprobe")
    ffprobe = str(beside) if beside.exists() else shutil.which("ffprobe")
    if ffprobe:
        (folder / "ffprobe").symlink_to(Path(ffprobe).absolute())
    return str(folder / "ffmpeg")


def make_input(job: Job, ffmpeg: str, folder: Path, kept: Path | None = None) -> tuple[str, Samples]:
    """Make the file that the job reads, or that is fed to it; and samples of its frames.

    Videos are taken from the folder ``kept``, and left there.
    """
    step = job.sample_step
    if job.kind == "pipe":
        frames = np.array(noise(job.size, min(PIPE_FRAMES, job.frames)))
        path = folder / "frames.raw"
        frames.tofile(path)
        return str(path), frames[:, ::step, ::step]
    path = folder / "video.mp4"
    each = replace(job, frames=job.file_frames or job.frames // job.clips, clips=1)
    if kept is None:
        _make_video(each, ffmpeg, path)
    else:
        shutil.copy(kept_video(each, ffmpeg, kept), path)
    decoded = stdout_readinto(Task(by_name(METHODS, "stdout.readinto"), job, ffmpeg, str(path)))
    samples = np.array([frame[::step, ::step].copy() for frame in decoded])
    if len(samples) != each.frames:
        raise FFmpegFailedError(f"FFmpeg made {len(samples)} frames instead of {each.frames}")
    match job.kind:
        case "picked" | "samples" | "windows":
            return str(path), samples[job.numbers]
        case "first":
            return str(path), samples[:1]
        case "clips":
            clips = folder / "clips"
            clips.mkdir()
            for number in range(job.clips):
                shutil.copy(path, clips / f"{number}.mp4")
            return str(clips), samples
    return str(path), samples


def kept_video(job: Job, ffmpeg: str, kept: Path) -> Path:
    """The job's video in the folder, by all that it depends on."""
    made_of = job.size, job.frames, job.encoder, ENCODERS.get(job.encoder), job.video_pixel_format, job.gop
    key = hashlib.sha256(repr((*made_of, version(ffmpeg))).encode() + Path(films.__file__).read_bytes())
    path = kept / f"{job.encoder}-{job.width}x{job.height}-{job.content}-{key.hexdigest()[:12]}.mp4"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            _make_video(job, ffmpeg, Path(folder) / "video.mp4")
            (Path(folder) / "video.mp4").rename(path)
    return path


def _make_video(job: Job, ffmpeg: str, path: Path) -> None:
    """Encode the job's frames, which do not repeat."""
    options = ENCODERS.get(job.encoder, {}) | ({"g": job.gop} if job.gop else {})
    how: dict[str, Any] = {
        "codec": job.encoder,
        "options": options,
        "settings": EncoderSettings(ffmpeg=ffmpeg),
    }
    # Tagged: a method that assumes another matrix shows other colors.
    how |= {"colors": Colors(matrix="bt709"), "output_pixel_format": job.video_pixel_format}
    try:
        with Encoder(path, size=job.size, fps=FRAMES_PER_S, **how) as encoder:
            for frame in _pictures(job, ffmpeg):
                encoder.write(frame)
    except PenstockError as error:
        raise FFmpegFailedError(str(error)) from error


def _pictures(job: Job, ffmpeg: str) -> Iterator[Frame]:
    if job.content == "testsrc2" or job.content == "mandelbrot":
        source = f"{job.content}=size={job.width}x{job.height}:rate={FRAMES_PER_S}"
        raw = ["-frames:v", str(job.frames), "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
        with start(ffmpeg, "-f", "lavfi", "-i", source, *raw, stdin=False, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            yield from read_into_one(child.stdout, (job.height, job.width, 3))
    else:
        yield from map(Film(job.content, *job.size).frame, range(job.frames))
