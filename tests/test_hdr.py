"""HDR from nits to a file and back: samples, tags, and what is said of the display and the light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.cases import needs

from penstock import Decoder, Encoder
from penstock.ffmpeg import Colors, Tuning, find_ffmpeg, hlg_from_nits, pq_from_nits
from penstock.media import ContentLight, MasteringDisplay, probe

SIZE = (64, 64)
LIGHT = {
    "mastering_display": MasteringDisplay(
        (0.708, 0.292), (0.17, 0.797), (0.131, 0.046), (0.3127, 0.329), (0.005, 1000.0)
    ),
    "content_light": ContentLight(1000, 400),
}
CURVES = {"smpte2084": pq_from_nits, "arib-std-b67": hlg_from_nits}
# By the codec: the name of the file, the video's pixel format, options, and how far samples may be off. Rounding to 10
# bits moves red by 0.0014 (0.5 / 876 of luma, and 1.47 × 0.5 / 896 of chroma).
LOSSLESS, LOSSY = 0.0016, 0.004
CODECS: dict[str, tuple[str, str, dict[str, object], float]] = {
    "libx265": ("v.mp4", "yuv420p10le", {"x265-params": "lossless=1:log-level=none"}, LOSSLESS),
    "libvpx-vp9": ("v.webm", "yuv420p10le", {"lossless": 1}, LOSSLESS),
    "libsvtav1": ("v.mkv", "yuv420p10le", {"preset": 8, "crf": 5}, LOSSY),
    "prores_ks": ("v.mov", "yuv422p10le", {"profile": "hq"}, LOSSY),
}


def picture() -> npt.NDArray[np.float64]:
    """Plain squares of 16 × 16 pixels, whose light is 0 to 1,000 cd/m²: height × width × 3."""
    levels = np.array([0, 0.5, 5, 26, 100, 203, 600, 1000])
    light = np.random.default_rng(1).choice(levels, (SIZE[1] // 16, SIZE[0] // 16, 3))
    light[0] = levels[::2, np.newaxis]  # gray
    return light.repeat(16, axis=0).repeat(16, axis=1)


def inside(frame: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The samples in the middle of the squares of height × width × 3, away from their edges."""
    return frame.reshape(SIZE[1] // 16, 16, SIZE[0] // 16, 16, 3)[:, 4:-4, :, 4:-4]


def planes(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Samples of height × width × 3 as a frame of gbrpf32le: green, blue, red."""
    return np.ascontiguousarray(samples[..., [1, 2, 0]].transpose(2, 0, 1))


@pytest.mark.parametrize("pixel_format", ["rgb48le", "gbrpf32le"])
@pytest.mark.parametrize("transfer", CURVES)
@pytest.mark.parametrize("codec", CODECS)
def test_samples_and_tags_come_back(tmp_path: Path, codec: str, transfer: str, pixel_format: str) -> None:
    needs(find_ffmpeg(), codec)
    name, output_pixel_format, options, tolerance = CODECS[codec]
    has_light = codec in ("libx265", "libsvtav1")
    colors = Colors("bt2020", primaries="bt2020", transfer=transfer, **(LIGHT if has_light else {}))  # type: ignore[arg-type]
    samples = CURVES[transfer](picture())
    is_float = pixel_format == "gbrpf32le"
    frame = planes(samples) if is_float else np.rint(samples * 65535).astype(np.uint16)
    given: dict[str, Any] = {"output_pixel_format": output_pixel_format, "options": options, "colors": colors}
    with Encoder(
        tmp_path / name, size=SIZE, fps=25, codec=codec, pixel_format=pixel_format, **given
    ) as encoder:
        for _ in range(3):
            encoder.write(frame)
    assert encoder.report.warnings == ()

    video = probe(tmp_path / name).video[0]
    assert (video.color_matrix, video.color_primaries, video.color_transfer) == ("bt2020", "bt2020", transfer)
    assert video.color_range == "limited"
    if has_light:
        told = video.mastering_display
        assert told is not None and video.content_light == LIGHT["content_light"]
        assert told.red == pytest.approx((0.708, 0.292), abs=1e-4)
        assert told.luminance == pytest.approx((0.005, 1000), rel=0.01)

    # FFmpeg's conversion makes YUV by 1/256 too bright, and RGB by 1/256 too dark. The native one is exact.
    tuning = Tuning(convert="auto" if is_float else "native")
    with Decoder(tmp_path / name, pixel_format=pixel_format, tuning=tuning) as decoder:
        got = [one.planes for one in decoder]
    if is_float:
        pictures = [np.stack([red, green, blue], axis=-1) for green, blue, red in got]
    else:
        pictures = [rgb / 65535 for (rgb,) in got]
    off = [np.abs(inside(one) - inside(samples)).max() for one in pictures]
    assert len(off) == 3 and max(off) <= tolerance
