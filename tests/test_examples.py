"""Every example runs as its users run it, small, and its video is decoded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clips import clip
from media import decode, no_opengl, no_wgpu

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZE = (160, 120)
FRAMES = 24

needs_opengl = pytest.mark.skipif(no_opengl() is not None, reason=str(no_opengl()))


def run_example(name: str, output: Path, *words: str) -> np.ndarray:
    """The frames of the video that an example makes. The words are in what it prints."""
    options = ["--output", str(output), "--size", *map(str, SIZE), "--frames", str(FRAMES)]
    command = [sys.executable, str(EXAMPLES / name), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    assert all(word in result.stdout for word in (output.name, *words))
    return decode(output, SIZE)


def assert_animated(frames: np.ndarray) -> None:
    assert len(frames) == FRAMES
    assert all(frame.std() > 10 for frame in frames)
    moved = np.abs(np.diff(frames.astype(int), axis=0)).mean(axis=(1, 2, 3))
    assert (moved > 0.1).all()


@needs_opengl
def test_moderngl_loop(tmp_path: Path) -> None:
    assert_animated(run_example("moderngl_loop.py", tmp_path / "video.mp4"))


def test_numpy_loop(tmp_path: Path) -> None:
    assert_animated(run_example("numpy_loop.py", tmp_path / "video.mp4"))


def test_three_outputs(tmp_path: Path) -> None:
    shown = run_example("three_outputs.py", tmp_path / "video.mp4", f"{FRAMES} raw frames, mean brightness 1")
    assert_animated(shown)
    kept = decode(tmp_path / "video.archive.mkv", SIZE)
    assert kept.shape == shown.shape and np.abs(kept.astype(int) - shown).mean() < 10


@needs_opengl
def test_turbopipe_dropin(tmp_path: Path) -> None:
    frames = run_example("turbopipe_dropin.py", tmp_path / "video.mp4")
    assert_animated(frames)
    side = SIZE[1] // 4
    for index, frame in enumerate(frames):
        rows, columns = np.nonzero(frame[..., 0] > 128)
        # The red square of frame `index`, to a pixel or so of codec: from the bottom left, up along the diagonal.
        left, bottom = index * (SIZE[0] - side) // (SIZE[1] - side), index
        square = (columns.min(), columns.max() + 1, SIZE[1] - rows.max() - 1, SIZE[1] - rows.min())
        assert square == pytest.approx((left, left + side, bottom, bottom + side), abs=2)


@pytest.mark.slow
def test_render_many(tmp_path: Path) -> None:
    assert_animated(run_example("render_many.py", tmp_path / "video.mp4"))
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


def test_round_trip(tmp_path: Path) -> None:
    output = tmp_path / "negative.mp4"
    command = [sys.executable, str(EXAMPLES / "round_trip.py"), str(clip("long")), "--output", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{output}: 600 frames of 160x120\n"
    # But for what the codec loses, a frame and its negative are white together.
    there, back = decode(clip("long"), SIZE), decode(output, SIZE)
    assert there.shape == back.shape
    assert np.abs(255 - there.astype(np.int16) - back).mean() < 6


@pytest.mark.skipif(no_wgpu() is not None, reason=str(no_wgpu()))
def test_wgpu_loop(tmp_path: Path) -> None:
    frames = run_example("wgpu_loop.py", tmp_path / "video.mp4")
    assert_animated(frames)


def test_every_example_has_a_test() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - {"demo"}
    assert all(f"test_{name}" in globals() for name in names)


def test_every_example_says_what_it_shows() -> None:
    assert all(path.read_text().startswith('"""') for path in EXAMPLES.glob("*.py"))
