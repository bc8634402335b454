"""`make demo`, small: it ends with a video, and says where it is and what was delivered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.media import decode, described, no_opengl

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
SIZE = (160, 120)
SMALL = ["--size", "160", "120", "--seconds", "0.5"]


def run_demo(folder: Path, *options: str, **environment: str) -> str:
    """What the demo prints."""
    result = subprocess.run(
        [sys.executable, str(DEMO), *SMALL, *options],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def assert_delivered(video: Path, printed: str) -> None:
    assert len(decode(video, SIZE)) == 30
    assert "yuv420p" in described(video) and "60 fps" in described(video)
    assert str(video) in printed.splitlines()
    assert "30 frames submitted, 30 encoded, 1.7 MB of pixels" in printed
    assert "0.5 s of 160x120 at 60 fps" in printed
    assert "transport" in printed and "frames per second" in printed


def test_the_demo_makes_its_folder(tmp_path: Path) -> None:
    printed = run_demo(tmp_path)
    assert_delivered(tmp_path / "build" / "demo.mp4", printed)


def test_demo_writes_to_the_output_option(tmp_path: Path) -> None:
    video = tmp_path / "a folder that is not there yet" / "my.mp4"
    assert_delivered(video, run_demo(tmp_path, "--output", str(video), "--painter", "numpy"))


@pytest.mark.skipif(no_opengl() is not None, reason=str(no_opengl()))
def test_demo_paints_with_opengl_if_available(tmp_path: Path) -> None:
    assert "Painting with ModernGL on " in run_demo(tmp_path)


def test_the_demo_paints_without_opengl_and_says_why(tmp_path: Path) -> None:
    # No EGL driver is found then, as on a machine that has none.
    without_driver = {"__EGL_VENDOR_LIBRARY_DIRS": str(tmp_path), "__EGL_VENDOR_LIBRARY_FILENAMES": ""}
    printed = run_demo(tmp_path, **without_driver)
    assert "Painting with NumPy (no OpenGL context: " in printed
    assert_delivered(tmp_path / "build" / "demo.mp4", printed)
