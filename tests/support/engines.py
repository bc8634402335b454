"""The two engines of a `Decoder`: a test asks for the FFmpeg program, or runs with both."""

from __future__ import annotations

from typing import Any

import pytest

from penstock._decoding import decoder
from penstock.video import DecoderSettings, find_ffmpeg

BY_PROGRAM = "settings=penstock.video.DecoderSettings(ffmpeg=penstock.video.find_ffmpeg())"
"""The same for a program in a process of its own."""


def by_program(**settings: Any) -> DecoderSettings:
    """Settings with which the FFmpeg program reads a file."""
    return DecoderSettings(ffmpeg=find_ffmpeg(), **settings)


@pytest.fixture(params=["libav", "ffmpeg"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine reads the files of a test."""
    if request.param == "ffmpeg":
        monkeypatch.setattr(decoder, "why_program", lambda *_: "the test asks for it")
    return str(request.param)
