"""What is known of a container or a codec is one record: to add one is to change one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock import Decoder, Encoder
from penstock._encoding.listed import is_listed
from penstock._encoding.plan import EncodePlan, plan
from penstock._encoding.request import Request
from penstock._formats import containers, encoders
from penstock.rendering import plan as render_plan
from penstock.video import EncoderSettings

SIZE = (64, 48)
SUBTITLES = "1\n00:00:00,000 --> 00:00:01,000\nHello\n"


def black(index: int, time_s: float, view: object) -> None:
    """A scene that draws nothing."""


def planned(path: Path, ffmpeg: str, **arguments: object) -> EncodePlan:
    settings = EncoderSettings(ffmpeg=ffmpeg)
    return plan(Request.of(path, {"fps": None, "settings": settings, **arguments}), SIZE)


def test_a_record_is_all_that_a_container_needs(
    tmp_path: Path, ffmpeg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, subtitles = tmp_path / "video.3g2", tmp_path / "texts.srt"
    subtitles.write_text(SUBTITLES)
    monkeypatch.delitem(containers._CONTAINERS, "3g2")  # FFmpeg has it, and nothing is known of it
    assert not is_listed(planned(path, ffmpeg, codec="libx264"))
    with pytest.raises(ValueError, match="crash_safe"):
        planned(path, ffmpeg, crash_safe=True)
    with pytest.raises(ValueError, match="subtitles"):
        planned(path, ffmpeg, subtitles=subtitles)
    with pytest.raises(ValueError, match="container"):
        render_plan(black, path, frames=4, fps=30, size=SIZE)

    record = containers.known("mp4")._replace(endings=(), listed=("libx264",), slow_fps=20)
    monkeypatch.setitem(containers._CONTAINERS, "3g2", record)
    assert is_listed(planned(path, ffmpeg, codec="libx264"))
    assert planned(path, ffmpeg, crash_safe=True).options["frag_duration"]
    assert planned(path, ffmpeg, subtitles=subtitles).labels.subtitle_codec == "mov_text"
    assert any("slow" in warning for warning in planned(path, ffmpeg, fps=30).warnings)
    assert render_plan(black, path, frames=4, fps=30, size=SIZE).lengths
    with Encoder(path, size=SIZE, fps=None, settings=EncoderSettings(ffmpeg=ffmpeg)) as encoder:
        for time_s in (0, 0.1, 0.25):
            encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=time_s)
    with Decoder(path) as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx([0, 0.1, 0.25], abs=1e-4)


def test_a_record_is_all_that_an_encoder_needs(
    tmp_path: Path, ffmpeg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "video.mkv"
    with pytest.raises(ValueError, match="quality"):
        planned(path, ffmpeg, codec="flv", quality="good")
    record = encoders.Encoder(codec="flv1", levels=({"q:v": 9}, {"q:v": 4}, {"q:v": 2}), is_playable=True)
    monkeypatch.setitem(encoders._ENCODERS, "flv", record)
    assert planned(path, ffmpeg, codec="flv", quality="good").options["q:v"] == 4
    assert planned(path, ffmpeg, codec="flv").output_pixel_format == "yuv420p"
