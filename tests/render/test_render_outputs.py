"""What `penstock.render` writes: the frames, times and tags that one `Encoder` writes, in each container and codec."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import renders
from support.media import COLORS, decode, ffmpeg

import penstock
from penstock import probe
from penstock._ffmpeg.program import capabilities
from penstock.rendering.planning import lengths_of
from penstock.video import Colors, find_ffmpeg

SIZE = (64, 64)
SLOW = pytest.mark.slow
EXHAUSTIVE = pytest.mark.exhaustive
TAGS = (
    *(
        "codec",
        "profile",
        "pixel_format",
        "width",
        "height",
        "frame_rate",
        "bit_depth",
    ),
    *("color_matrix", "color_range", "color_primaries", "color_transfer", "is_variable_frame_rate"),
)


def scene(index: int, time_s: float, view: np.ndarray) -> None:
    view[:] = COLORS[index % len(COLORS)][: view.shape[2] if view.ndim == 3 else 1]
    view[:, index % SIZE[0]] = 255


def rendered(output: Path, count: int, fps: Any, *, chunk_frames: int | None = 16, **encoder: Any) -> Path:
    given = {"size": SIZE, "fps": fps, "workers": 2, "chunk_frames": chunk_frames}
    renders.rendered(scene, output, frames=count, encoder_options=encoder, **given)
    return output


def encoded(output: Path, count: int, fps: Any, **encoder: Any) -> Path:
    with penstock.Encoder(output, size=SIZE, fps=fps, **encoder) as one:
        for index in range(count):
            with one.lease() as view:
                scene(index, 0.0, view)
    return output


def times(video: Path) -> list[Fraction]:
    """The times of a file's frames in the order in which they are shown, in seconds."""
    lines = ffmpeg("-i", video, "-map", "0:v:0", "-c", "copy", "-f", "framecrc", "-").decode().splitlines()
    tick_s = next(Fraction(line.split(": ")[1]) for line in lines if line.startswith("#tb 0: "))
    return sorted(int(line.split(",")[2]) * tick_s for line in lines if not line.startswith("#"))


def tags(video: Path) -> dict[str, Any]:
    found = probe(video).best_video
    assert found is not None
    # Where a container does not tell the shape of pixels, they are square.
    return {name: getattr(found, name) for name in TAGS} | {"shape": found.sample_aspect_ratio or 1}


@pytest.mark.parametrize(
    "count, chunk_frames",
    [
        (7, 3),
        pytest.param(2, 1, marks=SLOW),
        pytest.param(6, 2, marks=SLOW),
        pytest.param(100, None, marks=SLOW),
    ],
)
def test_small_chunks_keep_frame_times(tmp_path: Path, count: int, chunk_frames: int | None) -> None:
    video = rendered(tmp_path / "video.mp4", count, 30, chunk_frames=chunk_frames, preset="ultrafast")
    assert times(video) == [Fraction(index, 30) for index in range(count)]


def test_frames_seconds_apart_keep_their_times(tmp_path: Path) -> None:
    video = rendered(tmp_path / "video.mkv", 12, Fraction(1, 3), chunk_frames=6, preset="ultrafast")
    assert times(video) == [3 * index for index in range(12)]


def test_no_chunk_has_fewer_frames_than_an_encoder_reorders() -> None:
    for count in range(1, 200):
        for workers in (1, 2, 7):
            for chunk_frames in (None, 1, 9, 16, 240):
                lengths = lengths_of(count, chunk_frames, workers)
                assert sum(lengths) == count
                assert min(lengths) >= min(count, 3)
                assert chunk_frames is None or max(lengths) < max(chunk_frames, 3) + max(chunk_frames / 8, 3)


def test_first_chunk_of_each_worker_is_short_and_no_later_one_is_long_at_the_end() -> None:
    lengths = lengths_of(10_000, None, 4)
    assert lengths[:8] == (3,) * 4 + (24,) * 4
    assert max(lengths) == 240
    assert max(lengths[-4:]) <= 60
    assert lengths_of(10_000, 240, 4)[0] == 240  # the caller has chosen


def test_audio_that_the_container_cannot_hold_is_encoded(tmp_path: Path) -> None:
    audio = tmp_path / "audio.ogg"
    ffmpeg("-f", "lavfi", "-i", "sine=duration=2", "-c:a", "libvorbis", audio)
    output = tmp_path / "video.mov"
    renders.rendered(scene, output, frames=12, size=SIZE, fps=12, audio=audio)
    media = probe(output)
    assert [one.codec for one in media.audio] not in ([], ["vorbis"])
    assert media.audio[0].duration_s == pytest.approx(1, abs=0.05)


OUTPUTS = [
    ("mp4", "libx264", 30000, 1001, {}),
    pytest.param("mov", "libx264", 24, 1, {"colors": {"range": "full"}}, marks=EXHAUSTIVE),
    pytest.param("mkv", "libx264", 60, 1, {"options": {"bf": 5, "b_strategy": 0}}, marks=EXHAUSTIVE),
    pytest.param(
        "mp4", "libx264", 24, 1, {"options": {"x264-params": "open-gop=1:keyint=8"}}, marks=EXHAUSTIVE
    ),
    pytest.param("mp4", "libx265", 30000, 1001, {}, marks=EXHAUSTIVE),
    pytest.param("mkv", "libx265", 24, 1, {"output_pixel_format": "yuv420p10le"}, marks=EXHAUSTIVE),
    pytest.param("webm", "libvpx-vp9", 60, 1, {"options": {"b": "1M"}}, marks=EXHAUSTIVE),
    pytest.param("mp4", "libvpx-vp9", 24, 1, {"options": {"b": "1M"}}, marks=EXHAUSTIVE),
    pytest.param("webm", "libsvtav1", 24, 1, {}, marks=EXHAUSTIVE),
    pytest.param("mp4", "libaom-av1", 30000, 1001, {"options": {"cpu-used": 8}}, marks=EXHAUSTIVE),
    pytest.param("mov", "prores_ks", 24, 1, {}, marks=EXHAUSTIVE),
    pytest.param("mkv", "ffv1", 60, 1, {}, marks=EXHAUSTIVE),
    pytest.param("mkv", "ffv1", 30000, 1001, {"output_pixel_format": "gbrp10le"}, marks=EXHAUSTIVE),
    pytest.param("mp4", "libx264rgb", 24, 1, {}, marks=EXHAUSTIVE),
    pytest.param("mkv", "libx264rgb", 24, 1, {}, marks=EXHAUSTIVE),
    pytest.param("mov", "qtrle", 24, 1, {}, marks=EXHAUSTIVE),
    pytest.param("mkv", "ffv1", 24, 1, {"output_pixel_format": "yuv420p"}, marks=EXHAUSTIVE),
    pytest.param(
        "mkv", "libx264", 24, 1, {"pixel_format": "gray", "output_pixel_format": "gray"}, marks=EXHAUSTIVE
    ),
    pytest.param("mkv", "libx264", 30000, 1001, {"colors": {"matrix": "bt2020"}}, marks=EXHAUSTIVE),
]


@pytest.mark.parametrize("suffix, codec, numerator, denominator, encoder", OUTPUTS)
def test_frames_times_and_tags_match_one_encoder(
    tmp_path: Path, suffix: str, codec: str, numerator: int, denominator: int, encoder: dict[str, Any]
) -> None:
    if codec not in capabilities.encoders(find_ffmpeg()):
        pytest.skip(f"this FFmpeg has no {codec}")
    if "colors" in encoder:
        encoder = encoder | {"colors": Colors(**encoder["colors"])}
    fps, count = Fraction(numerator, denominator), 50
    alone = encoded(tmp_path / f"alone.{suffix}", count, fps, codec=codec, **encoder)
    together = rendered(tmp_path / f"together.{suffix}", count, fps, codec=codec, **encoder)
    assert times(together) == times(alone)
    assert tags(together) == tags(alone)
    wanted, got = decode(alone, SIZE), decode(together, SIZE)
    assert len(got) == count
    if codec == "ffv1":
        assert np.array_equal(got, wanted)
    else:
        differences = np.abs(got.astype(int) - wanted).mean(axis=(1, 2, 3))
        assert differences.max() < 6
