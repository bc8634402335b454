"""The files that are decoded, made by FFmpeg, and what must come out of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bench.decode.cases import CRF, FRAMES_PER_S, PRESET, Job
from penstock.bench.decode.methods import Target, stdout_readinto

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.uint8]

#: Frames that go round in the pipe: a prime, so that they have no period in common with anybody's buffers.
PIPE_FRAMES = 5
#: As much of FFmpeg's stderr as an error message can use.
STDERR_CHARACTERS = 2000


class InputError(Exception):
    """There is nothing to measure with."""


def link_programs(ffmpeg: str, folder: Path) -> str:
    """A folder with that FFmpeg, and an ffprobe, under the names that libraries look for on ``PATH``."""
    program = Path(ffmpeg).absolute()
    (folder / "ffmpeg").symlink_to(program)
    beside = program.with_name("ffprobe")
    ffprobe = str(beside) if beside.exists() else shutil.which("ffprobe")
    if ffprobe:
        (folder / "ffprobe").symlink_to(Path(ffprobe).absolute())
    return str(folder / "ffmpeg")


def make_input(job: Job, ffmpeg: str, folder: Path, seed: int) -> tuple[str, Samples]:
    """The file that the job reads, or whose bytes are fed to it, and samples of the frames that are in it.

    Raises:
        InputError: FFmpeg cannot make or read it.
    """
    if job.source == "pipe":
        return _make_frames(job, folder, seed)
    path = str(folder / "video.mp4")
    _encode(job, ffmpeg, path)
    return path, _decoded(job, ffmpeg, path)


def _make_frames(job: Job, folder: Path, seed: int) -> tuple[str, Samples]:
    import numpy as np

    from penstock.bench.frames import Pictures

    pictures = Pictures("noise", job.width, job.height, seed)
    frames = np.array([pictures.noise() for _ in range(min(PIPE_FRAMES, job.frames))])
    path = folder / "frames.raw"
    frames.tofile(path)
    return str(path), frames[:, :: job.sample_step, :: job.sample_step]


def _encode(job: Job, ffmpeg: str, path: str) -> None:
    """FFmpeg's own moving test picture, which has sharp edges and all colours, and never comes round."""
    assert job.encoder is not None, "a pipe has no file"
    source = f"testsrc2=size={job.width}x{job.height}:rate={FRAMES_PER_S}"
    read = ["-f", "lavfi", "-i", source, "-frames:v", str(job.frames)]
    # Tagged and converted alike: who takes another matrix for granted shows other colours.
    convert = ["-vf", "scale=out_color_matrix=bt709:out_range=tv,format=yuv420p"]
    tags = ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
    encode = ["-c:v", job.encoder, "-preset", PRESET, "-crf", CRF]
    command = [
        ffmpeg,
        "-hide_banner",
        "-loglevel",
        "error",
        "-nostats",
        "-y",
        *read,
        *convert,
        *encode,
        *tags,
        path,
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")[-STDERR_CHARACTERS:].strip()
        raise InputError(f"FFmpeg cannot make the file: {said}")


def _decoded(job: Job, ffmpeg: str, path: str) -> Samples:
    """Of what FFmpeg itself makes of the file."""
    import numpy as np

    step = job.sample_step
    try:
        frames = stdout_readinto(Target(job, ffmpeg, path))
        samples = np.array([frame[::step, ::step].copy() for frame in frames])
    except RuntimeError as error:
        raise InputError(f"FFmpeg cannot read its own file: {error}") from None
    if len(samples) != job.frames:
        raise InputError(f"FFmpeg was to make {job.frames} frames, and reads {len(samples)}")
    return samples
