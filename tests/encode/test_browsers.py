"""Videos that the page for the web recommends play in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import chromium

import penstock

FRAMES = np.random.default_rng(0).integers(0, 256, (20, 64, 96, 3), np.uint8)

PLAY = """
new Promise(done => {
    const video = document.createElement("video");
    video.muted = true;
    video.onerror = () => done("error " + video.error.code);
    video.onloadeddata = () => { video.currentTime = 0.5; };
    video.onseeked = () => done([video.videoWidth, video.videoHeight, video.duration]);
    video.src = "NAME";
})
"""
SHOW = """
new Promise(done => {
    const picture = new Image();
    picture.onerror = () => done("error");
    picture.onload = () => done([picture.width, picture.height]);
    picture.src = "NAME";
})
"""


pytestmark = pytest.mark.linux("a browser")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("web.mp4", {"options": {"movflags": "+faststart"}}),
        ("vp9.webm", {}),
        ("av1.mp4", {"codec": "libsvtav1"}),
    ],
)
def test_videos_for_the_web_play_and_seek(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    penstock.write_video(tmp_path / name, FRAMES, fps=20, **options)
    (tmp_path / "page.html").write_text("<!doctype html><title>videos</title>")
    with chromium() as page:
        page.show((tmp_path / "page.html").as_uri(), 400)
        assert page.evaluate(PLAY.replace("NAME", name)) == [96, 64, pytest.approx(1, abs=0.05)]


@pytest.mark.parametrize("name", ["loop.gif", "loop.webp", "loop.avif"])
def test_moving_pictures_for_the_web_are_shown(tmp_path: Path, name: str) -> None:
    penstock.write_video(tmp_path / name, FRAMES, fps=20)
    (tmp_path / "page.html").write_text("<!doctype html><title>pictures</title>")
    with chromium() as page:
        page.show((tmp_path / "page.html").as_uri(), 400)
        assert page.evaluate(SHOW.replace("NAME", name)) == [96, 64]
