"""`penstock.render` and `penstock.map_video` with processes: the same frames as one encoder makes."""

from fractions import Fraction

import numpy as np
import pytest

import penstock
from penstock.rendering.planning import chunk_of_number

SIZE = (64, 48)


def scene(index, time_s, view):
    view[:] = index % 256
    view[index % SIZE[1], :, 0] = round(time_s * 1000) % 256


@pytest.mark.parametrize(
    "codec, suffix", [("ffv1", "mkv"), pytest.param("libx264", "mp4", marks=pytest.mark.slow)]
)
def test_render_matches_one_encoder(tmp_path, codec, suffix):
    encoder = {"codec": codec, "output_pixel_format": "yuv444p"}
    alone, together = tmp_path / f"alone.{suffix}", tmp_path / f"together.{suffix}"
    with penstock.Encoder(alone, size=SIZE, fps=30, **encoder) as one:
        for index in range(100):
            with one.lease() as view:
                scene(index, index / 30, view)
    report = penstock.render(
        scene,
        frames=100,
        size=SIZE,
        fps=30,
        output=together,
        workers=2,
        chunk_frames=30,
        encoder_options=encoder,
    )
    assert (report.frames, report.resumed, report.retries) == (100, 0, 0)
    assert sum(worker.frames for worker in report.workers) == 100
    assert set(tmp_path.iterdir()) == {alone, together}
    with penstock.Decoder(alone) as wanted, penstock.Decoder(together) as got:
        pairs = [(np.array(a), np.array(b), a.time_s, b.time_s) for a, b in zip(wanted, got, strict=True)]
    assert len(pairs) == 100
    for a, b, a_s, b_s in pairs:
        assert a_s == b_s
        if codec == "ffv1":
            assert np.array_equal(a, b)
        else:
            assert np.abs(a.astype(int) - b).mean() < 4


def inverted(frame):
    return 255 - frame


@pytest.mark.parametrize(
    "suffix, codec", [("mp4", "libx264"), pytest.param("mkv", "ffv1", marks=pytest.mark.slow)]
)
def test_map_video_keeps_the_times_of_a_variable_rate(tmp_path, suffix, codec):
    source, output = tmp_path / "source.mp4", tmp_path / f"output.{suffix}"
    steps_us = [16_667, 33_333, 1_000, 100_000, 700_000, 33_334]
    time_us, times_us = 0, []
    with penstock.Encoder(source, size=SIZE, fps=None, codec="libx264", crf=0) as encoder:
        for index in range(60):
            times_us.append(time_us)
            encoder.write(np.full((48, 64, 3), index, np.uint8), time_s=Fraction(time_us, 1_000_000))
            time_us += steps_us[index % 6]
    report = penstock.map_video(
        inverted, source, output, chunk_frames=15, workers=2, encoder_options={"codec": codec}
    )
    assert report.chunks >= 4
    with penstock.Decoder(source) as wanted, penstock.Decoder(output) as got:
        for a, b, exact_us in zip(wanted, got, times_us, strict=True):
            assert a.time_s == round(exact_us * 9, -2) / 9e6  # in 1/90,000 s
            assert abs(b.time_s - a.time_s) <= (0 if suffix == "mp4" else 0.0005)
            assert abs(255 - int(a[20, 20, 1]) - int(b[20, 20, 1])) <= 3


def test_an_unknown_argument_of_the_encoder_is_named(tmp_path):
    with pytest.raises(TypeError, match="preset"):
        penstock.render(
            scene, tmp_path / "v.mp4", fps=30, frames=3, size=SIZE, encoder_options={"presett": "fast"}
        )


def test_render_needs_a_constant_frame_rate(tmp_path):
    with pytest.raises(TypeError):
        penstock.render(scene, frames=9, size=SIZE, fps=None, output=tmp_path / "a.mp4")


def test_chunk_is_found_by_its_number(tmp_path):
    planned = penstock.rendering.plan(
        scene, frames=range(7, 107, 2), size=SIZE, fps=30, output=tmp_path / "out.mp4", workers=3
    )
    assert [chunk_of_number(planned, chunk.number) for chunk in planned.chunks] == planned.chunks
    with pytest.raises(ValueError):
        chunk_of_number(planned, len(planned.chunks))
