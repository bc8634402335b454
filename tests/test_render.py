"""`penstock.render` and `penstock.map_video` with processes: the same frames as one encoder makes."""

import numpy as np
import pytest

import penstock

SIZE = (64, 48)


def scene(index, time_s, view):
    view[:] = index % 256
    view[index % SIZE[1], :, 0] = round(time_s * 1000) % 256


@pytest.mark.parametrize("codec, suffix", [("ffv1", "mkv"), ("libx264", "mp4")])
def test_a_render_has_the_frames_of_one_encoder(tmp_path, codec, suffix):
    encoder = {"codec": codec, "output_pixel_format": "yuv444p"}
    alone, together = tmp_path / f"alone.{suffix}", tmp_path / f"together.{suffix}"
    with penstock.Encoder(alone, size=SIZE, fps=30, **encoder) as one:
        for index in range(100):
            with one.frame() as view:
                scene(index, index / 30, view)
    report = penstock.render(
        scene, frames=100, size=SIZE, fps=30, output=together, workers=2, chunk_frames=30, encoder=encoder
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
