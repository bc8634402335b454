"""HDR from nits to a file and back: samples, tags, and what is said of the display and the light."""

from __future__ import annotations

import re
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.cases import a_few, needs
from support.command_line import run
from support.light import hlg_from_nits, pq_from_nits

from penstock import Decoder, Encoder, FFmpegWarning, probe
from penstock._ffmpeg.command.settings import with_overrides
from penstock._ffmpeg.program import capabilities
from penstock.video import (
    Colors,
    DecoderSettings,
    EncoderSettings,
    find_ffmpeg,
)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "hdr.md"
SIZE = (64, 64)
LIGHT = {
    "mastering_display": Colors.MasteringDisplay(
        (0.708, 0.292), (0.17, 0.797), (0.131, 0.046), (0.3127, 0.329), (0.005, 1000.0)
    ),
    "content_light": Colors.ContentLight(1000, 400),
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


def tags_any_codec(program: str) -> bool:
    """Whether this FFmpeg, as 9 does, tags its input with a display and a light, whatever the encoder is."""
    return "mastering_display" in capabilities.global_options(program)


@pytest.mark.parametrize(
    ("codec", "transfer", "pixel_format"), a_few(product(CODECS, CURVES, ["rgb48le", "gbrpf32le"]), 3)
)
def test_samples_and_tags_come_back(tmp_path: Path, codec: str, transfer: str, pixel_format: str) -> None:
    needs(find_ffmpeg(), codec)
    name, output_pixel_format, options, tolerance = CODECS[codec]
    has_light = codec in ("libx265", "libsvtav1") or tags_any_codec(find_ffmpeg())
    colors = Colors("bt2020", primaries="bt2020", transfer=transfer, **(LIGHT if has_light else {}))  # type: ignore[arg-type]
    samples = CURVES[transfer](picture())
    is_float = pixel_format == "gbrpf32le"
    frame = planes(samples).astype(np.float32) if is_float else np.rint(samples * 65535).astype(np.uint16)
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
    settings = with_overrides(DecoderSettings(), convert="auto" if is_float else "native")
    with Decoder(tmp_path / name, pixel_format=pixel_format, settings=settings) as decoder:
        got = [one.planes for one in decoder]
    if is_float:
        pictures = [np.stack([red, green, blue], axis=-1) for green, blue, red in got]
    else:
        pictures = [rgb / 65535 for (rgb,) in got]
    off = [np.abs(inside(one) - inside(samples)).max() for one in pictures]
    assert len(off) == 3 and max(off) <= tolerance


@pytest.mark.parametrize("name, codec", [("v.mov", "prores_ks"), ("v.mp4", "libvpx-vp9"), ("v.mkv", "ffv1")])
@pytest.mark.parametrize("given", [{"fps": 25}, {"fps": None}], ids=str)
def test_hdr_metadata_of_other_codecs_needs_ffmpeg_9(
    tmp_path: Path, ffmpeg: str, name: str, codec: str, given: dict[str, Any]
) -> None:
    needs(ffmpeg, codec)
    given = {**given, "codec": codec, "size": SIZE, "colors": Colors(**LIGHT)}  # type: ignore[arg-type]
    if not tags_any_codec(ffmpeg):
        with pytest.raises(ValueError):
            Encoder(tmp_path / name, settings=EncoderSettings(ffmpeg=ffmpeg), **given)
        return
    with Encoder(tmp_path / name, settings=EncoderSettings(ffmpeg=ffmpeg), **given) as encoder:
        encoder.write(np.zeros((*reversed(SIZE), 3), np.uint8), time_s=None if given["fps"] else 0.5)
    assert encoder.report.warnings == ()
    video = probe(tmp_path / name).video[0]
    assert {"mastering_display": video.mastering_display, "content_light": video.content_light} == LIGHT


def plain(output: Path, transfer: str, *nits: tuple[float, float, float]) -> Path:
    """A lossless video of plain frames of this light in BT.2020."""
    colors = Colors("bt2020", primaries="bt2020", transfer=transfer)
    given: dict[str, Any] = {"codec": "ffv1", "output_pixel_format": "yuv420p10le", "colors": colors}
    samples = CURVES.get(transfer, pq_from_nits)(nits)
    with Encoder(output, size=SIZE, fps=25, pixel_format="rgb48le", **given) as encoder:
        for color in np.rint(samples * 65535).astype(np.uint16):
            encoder.write(np.broadcast_to(color, (*reversed(SIZE), 3)))
    return output


@pytest.mark.parametrize("pixel_format", ["rgb24", "bgra", "gray"])
@pytest.mark.parametrize("transfer, name", [("smpte2084", "PQ"), ("arib-std-b67", "HLG")])
def test_hdr_in_8_bits_warns_once(tmp_path: Path, transfer: str, name: str, pixel_format: str) -> None:
    path = plain(tmp_path / "v.mkv", transfer, *[(203, 203, 203)] * 3)
    with pytest.warns(FFmpegWarning) as told, Decoder(path, pixel_format=pixel_format) as decoder:
        assert len(list(decoder)) == 3
        assert decoder[1].shape == decoder.shape
    assert [warning.filename for warning in told] == [__file__]
    words = rf"v\.mkv: the video is HDR \({name}\), .* as {pixel_format} .* Pass pixel_format='rgb48le'"
    assert re.search(words, str(told[0].message))


@pytest.mark.filterwarnings("error")
def test_deep_formats_and_sdr_do_not_warn(tmp_path: Path) -> None:
    hdr = plain(tmp_path / "hdr.mkv", "smpte2084", (203, 203, 203))
    for pixel_format in ("rgb48le", "gray16le", "gbrpf32le", "yuv420p10le", "yuv420p", "source"):
        with Decoder(hdr, pixel_format=pixel_format) as decoder:
            assert len(list(decoder)) == 1
    with Decoder(plain(tmp_path / "sdr.mkv", "bt2020-10", (203, 203, 203))) as decoder:
        assert len(list(decoder)) == 1


@pytest.mark.parametrize("transfer", CURVES)
def test_filters_in_the_warning_make_sdr(tmp_path: Path, transfer: str, ffmpeg: str) -> None:
    if missing := [one for one in ("zscale", "tonemap") if not capabilities.filter_options(ffmpeg, one)]:
        pytest.skip(f"this FFmpeg has no {missing}")
    # Red of BT.709 in BT.2020 (ITU-R BT.2087-0).
    red = (50 * 0.6274, 50 * 0.0691, 50 * 0.0164)
    path = plain(tmp_path / "v.mkv", transfer, (0, 0, 0), (50,) * 3, (203,) * 3, (1000,) * 3, red)
    with pytest.warns(FFmpegWarning) as told:
        Decoder(path, settings=DecoderSettings(ffmpeg=ffmpeg)).close()
    found = re.search(r"filters='(.+)'", str(told[0].message))
    assert found is not None and found[1] in PAGE.read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Decoder(path, filters=found[1], settings=DecoderSettings(ffmpeg=ffmpeg)) as decoder:
            black, gray, white, bright, sdr_red = (np.asarray(frame[20, 20], int) for frame in decoder)
    assert black.max() <= 1
    # A quarter of white is not compressed. A display of SDR shows it by ITU-R BT.1886.
    assert np.abs(gray - 255 * (50 / 203) ** (1 / 2.4)).max() <= 2
    assert white.min() > 200 and white.max() + 20 < bright.min()
    # The OOTF of HLG is one of each component in zscale, and of the luminance in BT.2100.
    tolerance = 2 if transfer == "smpte2084" else 16
    assert abs(sdr_red[0] - gray[0]) <= tolerance and sdr_red[1:].max() <= 6


def test_command_line_warning_names_its_own_option(tmp_path: Path) -> None:
    path = plain(tmp_path / "v.mkv", "smpte2084", (203, 203, 203))
    frames = tmp_path / "frames.rgb"
    told = run("decode", path, frames).stderr.decode()
    assert told.count("Warning: ") == 1 and "is HDR (PQ)" in told and "Pass --pixel-format rgb48le" in told
    for options in (["--quiet"], ["--pixel-format", "rgb48le"], ["--pixel-format", "source"]):
        assert "Warning" not in run("decode", path, frames, *options).stderr.decode()
