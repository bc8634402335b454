"""Helpers of the tests on video: pictures to encode, files to decode, and what a process has open."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.ffmpeg import find_ffmpeg

SIZE = (64, 48)
COLOURS = [(200, 30, 40), (40, 180, 60), (50, 70, 210), (220, 210, 60), (128, 128, 128)]


def flat(index: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A frame of one colour, which tells its number."""
    width, height = size
    return np.full((height, width, 3), COLOURS[index % len(COLOURS)], np.uint8)


def decode(path: str | os.PathLike[str], size: tuple[int, int] = SIZE) -> np.ndarray:
    """All frames of a video as frames × height × width × 3 of uint8; the decoder must find no fault."""
    width, height = size
    raw = _ffmpeg("-v", "error", "-xerror", "-i", f"file:{path}", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(raw.stdout, np.uint8).reshape(-1, height, width, 3)


def is_flat(frame: np.ndarray, index: int) -> bool:
    """Whether a decoded frame is `flat(index)`, as far as a lossy codec and its colour space allow."""
    return int(np.abs(frame.astype(int) - COLOURS[index % len(COLOURS)]).max()) <= 8


def described(path: str | os.PathLike[str]) -> str:
    """FFmpeg's line on the video stream of a file: codec, pixel format, size, frame rate."""
    result = _ffmpeg("-i", f"file:{path}", "-f", "null", "-")
    lines = result.stderr.decode().splitlines()
    return next(line for line in lines if "Video:" in line)


def _ffmpeg(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    result = subprocess.run([find_ffmpeg(), "-hide_banner", *arguments], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result


def ffmpegs() -> list[str]:
    """Every FFmpeg of this machine that users may have: the system's, and the wheel's."""
    found = [shutil.which("ffmpeg")]
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg

        found.append(imageio_ffmpeg.get_ffmpeg_exe())
    return list(dict.fromkeys(program for program in found if program))


@functools.cache
def no_opengl() -> str | None:
    """Why no OpenGL context can be had here; None if one can."""
    try:
        import moderngl

        moderngl.create_context(standalone=True, backend="egl").release()
    except Exception as error:  # glcontext raises bare Exceptions
        return f"no OpenGL context through EGL: {error}"
    return None


def open_fds() -> dict[str, str]:
    """Our open descriptors and what they are."""
    fds = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            fds[entry.name] = str(entry.readlink())
        except FileNotFoundError:  # the one that lists them
            continue
    return fds


def native_threads() -> set[str]:
    """Ids of all threads of this process, Python's and others."""
    return {task.name for task in Path("/proc/self/task").iterdir()}


def children() -> set[int]:
    """Our child processes, zombies included."""
    while True:
        try:
            tasks = list(Path("/proc/self/task").iterdir())
            return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread ended meanwhile, and another has its children now


def holdings() -> tuple[dict[str, str], set[int], set[str]]:
    """What must be as before when an encoder is gone: descriptors, child processes, and Python's threads."""
    return open_fds(), children(), {thread.name for thread in threading.enumerate()}


def eventually(condition: Callable[[], object], patience_s: float = 30.0) -> bool:
    """Whether `condition` comes true before patience ends; how fast is nobody's claim."""
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return False
