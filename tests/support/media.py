"""Helpers of the tests on video: pictures to encode, files to decode, and what a process has open."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock import Decoder, Encoder
from penstock.video import find_ffmpeg
from support.cases import eventually, ffmpegs
from support.clips import clip
from support.this_process import open_fds, threads, workers

if sys.platform == "win32":
    from support.windows import children as children
else:
    from benchmarks.harness.accounts import children as children

SIZE = (64, 48)
COLORS = [(200, 30, 40), (40, 180, 60), (50, 70, 210), (220, 210, 60), (128, 128, 128)]


def flat(index: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A frame of one color, which tells its number."""
    width, height = size
    return np.full((height, width, 3), COLORS[index % len(COLORS)], np.uint8)


def decode(path: str | os.PathLike[str], size: tuple[int, int] = SIZE) -> np.ndarray:
    """All frames of a video as frames × height × width × 3 of uint8; the decoder must find no fault."""
    width, height = size
    raw = _ffmpeg("-v", "error", "-xerror", "-i", f"file:{path}", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(raw.stdout, np.uint8).reshape(-1, height, width, 3)


def is_flat(frame: np.ndarray, index: int) -> bool:
    """Whether a decoded frame is `flat(index)`, as far as a lossy codec and its color space allow."""
    return int(np.abs(frame.astype(int) - COLORS[index % len(COLORS)]).max()) <= 8


def described(path: str | os.PathLike[str]) -> str:
    """FFmpeg's line on the video stream of a file: codec, pixel format, size, frame rate."""
    result = _ffmpeg("-i", f"file:{path}", "-f", "null", "-")
    lines = result.stderr.decode().splitlines()
    return next(line for line in lines if "Video:" in line)


def ffmpeg(*arguments: object, program: str | None = None) -> bytes:
    """What FFmpeg writes to standard output, by default the one that encodes. It may overwrite files."""
    return _ffmpeg("-v", "error", "-y", *map(str, arguments), program=program).stdout


def made_by_the_newest(path: Path, *arguments: object) -> Path:
    """A file that the newest FFmpeg here writes; skips the test if that one can't."""
    try:
        ffmpeg(*arguments, path, program=ffmpegs()[-1])
    except AssertionError:
        pytest.skip(f"no FFmpeg here writes this {path.suffix}")
    return path


def make(output: object, **options: object) -> Encoder:
    """An encoder of 30 frames of `SIZE` a second, unless the options say otherwise."""
    return Encoder(output, **{"size": SIZE, "fps": 30, **options})  # type: ignore[arg-type]


@contextlib.contextmanager
def stopped(encoder: Encoder) -> Iterator[int]:
    """An FFmpeg that is there and does nothing, until the block ends."""
    pid = encoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        if pid in children():
            os.kill(pid, signal.SIGCONT)


def _ffmpeg(*arguments: str, program: str | None = None) -> subprocess.CompletedProcess[bytes]:
    """Skips the test if this FFmpeg lacks an encoder."""
    command = [program or find_ffmpeg(), "-hide_banner", *arguments]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=250)
    if lacks := re.search(rb"Unknown encoder '.*'", result.stderr):
        pytest.skip(lacks[0].decode())
    assert result.returncode == 0, result.stderr.decode()
    return result


@functools.cache
def no_opengl() -> str | None:
    """Why no OpenGL context can be had here; None if one can."""
    try:
        import moderngl

        moderngl.create_context(standalone=True, backend="egl").release()
    except Exception as error:  # glcontext raises bare Exceptions
        return f"no OpenGL context through EGL: {error}"
    return None


@functools.cache
def no_wgpu() -> str | None:
    """Why wgpu cannot render here; None if it can."""
    try:
        import wgpu

        wgpu.gpu.request_adapter_sync()
    except Exception as error:  # whatever wgpu-native says
        return f"no adapter for wgpu: {error}"
    return None


def native_threads() -> set[str]:
    """Ids of all threads of this process, Python's and others."""
    return set(map(str, threads()))


def holdings() -> tuple[dict[str, str], frozenset[int], set[str]]:
    """What must be as before when an encoder is gone: descriptors, child processes, and Python's threads."""
    return open_fds(), children(), {thread.name for thread in threading.enumerate()}


def adds_nothing(before: tuple[dict[str, str], frozenset[int], set[str]]) -> bool:
    """Whether all holdings are among those of before, of which some may have gone late."""
    (fds, processes, threads), (fds_before, processes_before, threads_before) = holdings(), before
    return fds.items() <= fds_before.items() and processes <= processes_before and threads <= threads_before


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves an FFmpeg, a zombie, a descriptor, or a thread of ours."""
    _start_conversion()
    gc.collect()
    before, threads = holdings(), workers()
    yield
    gc.collect()
    assert eventually(lambda: adds_nothing(before) and workers() <= threads), (before, holdings())


@functools.cache
def _start_conversion() -> None:
    """The native threads that convert are those of the process: the first decoder starts them, and they stay."""
    with Decoder(clip("h264"), count=4) as decoder:
        assert len(list(decoder)) == 4


def picture(size: tuple[int, int] = SIZE, dtype: type = np.uint8) -> np.ndarray:
    """Gradients, noise and saturated bars side by side: height × width × 3."""
    width, height = size
    white = np.iinfo(dtype).max
    y, x = np.mgrid[0:height, 0:width]
    gradient = np.stack([x / max(width - 1, 1), y / max(height - 1, 1), 1 - x / max(width - 1, 1)], axis=-1)
    noise = np.random.default_rng(1).random((height, width, 3))
    bars = np.stack([x // 3 % 2, x // 5 % 2, y // 4 % 2], axis=-1)
    part = (x * 3 // width)[..., None]
    return np.rint(np.choose(part, [gradient, noise, bars]) * white).astype(dtype)


def probed(path: Path) -> dict[str, str]:
    """What ffprobe knows of the video stream."""
    if shutil.which("ffprobe") is None:
        pytest.skip("no ffprobe on PATH")
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_streams", "-of", "json", str(path)]
    streams = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["streams"]
    return dict(streams[0])


needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="no ffprobe on PATH")
