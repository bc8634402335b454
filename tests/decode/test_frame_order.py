"""Times that go back or repeat: a warning says so, because they lead to other frames."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from support import media
from support.cases import ffmpegs, needs

from penstock import Decoder, FFmpegWarning

_SOURCE = ("-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=0.8", "-pix_fmt", "yuv420p")


def _made(path: Path, b_frames: int) -> Path:
    """libxvid gives MP4 the times of decoding for B-frames."""
    needs(ffmpegs()[0], "libxvid")
    media.ffmpeg(*_SOURCE, "-c:v", "libxvid", "-bf", str(b_frames), "-g", "12", path)
    return path


@pytest.mark.parametrize("options", [{}, {"isolated": True}])
def test_times_that_go_back_are_said_once(tmp_path: Path, options: dict[str, bool]) -> None:
    with Decoder(_made(tmp_path / "a.mp4", 3), **options) as decoder, pytest.warns(FFmpegWarning) as said:
        times = [frame.time_s for frame in decoder]
    assert times != sorted(times)
    assert len(said) == 1 and "go back" in str(said[0].message)


def test_times_in_order_are_read_without_a_warning(tmp_path: Path) -> None:
    with Decoder(_made(tmp_path / "a.mp4", 0)) as decoder, warnings.catch_warnings():
        warnings.simplefilter("error")
        list(decoder)
