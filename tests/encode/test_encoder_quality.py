"""Levels of quality: alike with each encoder, and without loss where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import a_few, needs

from benchmarks.harness.content import Film
from penstock import Decoder, Encoder
from penstock._encoding.plan import plan
from penstock._encoding.request import Request
from penstock._formats.encoders import known, with_quality
from penstock.errors import EncoderError
from penstock.video import DecoderSettings, EncoderSettings

FRAMES = 6
#: How far from libx264, in dB, the mean SSIM of a level may be.
BAND_DB = 1.5


def options_of(output: str, **arguments: Any) -> dict[str, object]:
    return dict(plan(Request(output, fps=20, **arguments), None).options)


def test_explicit_crf_and_options_override_quality(tmp_path: Path) -> None:
    output = str(tmp_path / "a.mp4")
    good = options_of(output, quality="good")
    assert good["crf"] == known("libx264").levels[1]["crf"]
    assert options_of(output, quality="good", crf=30)["crf"] == "30"
    assert options_of(output, quality="good", preset="fast") == good | {"preset": "fast"}
    assert options_of(output, quality="good", options={"b:v": "1M"}) == {"b:v": "1M"}
    assert options_of(output, quality="good", options={"b:a": "64k"}) == {"b:a": "64k"} | good
    avi = str(tmp_path / "a.avi")
    assert str(options_of(avi, codec="mpeg4", quality="master", options={"qmin": 5})["qmin"]) == "5"


CANNOT_KEEP: list[tuple[str, dict[str, Any]]] = [
    ("a.webm", {"pixel_format": "rgb48le"}),
    ("a.mp4", {"codec": "libx264"}),
    ("a.webm", {"pixel_format": "rgba"}),
    ("a.mov", {"pixel_format": "gbrpf32le", "codec": "libx265"}),
    ("a.gif", {}),
    ("a.mkv", {"pixel_format": "bgra64le", "codec": "ffv1"}),
    ("a.mkv", {"pixel_format": "xyz12le", "codec": "ffv1"}),
    ("a.mkv", {"pixel_format": "bayer_rggb16le", "codec": "ffv1"}),
    ("a.mov", {"pixel_format": "rgb565le", "codec": "qtrle"}),
    ("a.apng", {"pixel_format": "bgra64be"}),
]


@pytest.mark.parametrize(
    ("codec", "most"),
    [("libx264", 51), ("libx265", 51), ("libvpx-vp9", 63), ("libsvtav1", None), ("libaom-av1", 63)],
)
def test_a_crf_outside_of_the_codecs_scale_is_refused(
    tmp_path: Path, ffmpeg: str, codec: str, most: int | None
) -> None:
    needs(ffmpeg, codec)
    given: dict[str, Any] = {"fps": 25, "codec": codec, "settings": EncoderSettings(ffmpeg=ffmpeg)}
    for crf in (-1, 99, float("nan"), *([] if most is None else [most + 0.5, most + 1])):
        with pytest.raises(ValueError, match="crf"):
            Encoder(tmp_path / "a.mkv", crf=crf, **given)
    for crf in (0, 51, most or 63):
        Encoder(tmp_path / "a.mkv", crf=crf, **given).abort()


@pytest.mark.parametrize("given", [{}, {"crf": 0}, {"crf": 63}, {"preset": "fast"}])
def test_an_encoder_that_the_program_lacks_is_named(
    tmp_path: Path, ffmpeg: str, given: dict[str, Any]
) -> None:
    settings = EncoderSettings(ffmpeg=ffmpeg)
    with pytest.raises(EncoderError, match="no video encoder 'libsvtav2'"):
        Encoder(tmp_path / "a.mkv", fps=25, codec="libsvtav2", settings=settings, **given)


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("a.mp4", {"quality": "best"}, "draft"),
        ("a.mov", {"quality": "good", "codec": "dnxhd"}, "dnxhd"),
        ("a.mp4", {"codec": "mpeg4"}, "mpeg4"),
        ("a.webp", {}, "libwebp"),
        ("a.mov", {"codec": "v210"}, "v210"),
        ("a.mp4", {"crf": 20}, "exclude"),
        ("a.mkv", {"codec": "libx264", "options": {"x264-params": "crf=30"}}, "exclude"),
        ("a.mkv", {"codec": "libx264", "options": {"x264opts": "qp=30"}}, "exclude"),
        ("a.mkv", {"codec": "libx265", "options": {"x265-params": "LOSSLESS=0"}}, "exclude"),
        ("a.mkv", {"codec": "libx265", "options": {"x265-params": ["pools=1"]}}, "exclude"),
        # What the codec cannot keep of the frames.
        *a_few(((name, given, "lossless") for name, given in CANNOT_KEEP), 4),
    ],
    ids=str,
)
def test_impossible_quality_is_refused_at_the_call(
    tmp_path: Path, name: str, given: dict[str, Any], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        Encoder(tmp_path / name, **{"fps": 5, "size": (32, 16), "quality": "lossless"} | given)


def test_lossless_keeps_alpha_or_is_refused(tmp_path: Path, ffmpeg: str) -> None:
    """FFmpeg 5.1 loses the alpha of Ut Video in AVI, and FFmpeg 9 keeps it."""
    rgba = np.random.default_rng(0).integers(0, 256, (48, 64, 4), np.uint8)
    given: dict[str, Any] = {"codec": "utvideo", "pixel_format": "rgba", "quality": "lossless"}
    try:
        encoder = Encoder(
            tmp_path / "a.avi", size=(64, 48), fps=5, settings=EncoderSettings(ffmpeg=ffmpeg), **given
        )
    except ValueError as refused:
        assert "lossless" in str(refused)
        return
    with encoder:
        encoder.write(rgba)
    with Decoder(tmp_path / "a.avi", pixel_format="rgba") as decoder:
        assert np.array_equal(next(iter(decoder)), rgba)


@pytest.mark.parametrize(
    "name, pixel_format, codec",
    a_few(
        [
            ("a.mp4", "rgb24", "auto"),
            ("a.mkv", "yuv420p", "auto"),
            ("a.mp4", "rgb24", "libx265"),
            ("a.mp4", "yuv420p", "libx265"),
            ("a.webm", "rgb24", "auto"),
            ("a.mkv", "rgb48le", "ffv1"),
            ("a.avi", "rgb24", "utvideo"),
            ("a.apng", "rgba", "auto"),
            ("a.mkv", "abgr", "ffv1"),
            ("a.mkv", "rgba64le", "png"),
            ("a.nut", "bgra64be", "rawvideo"),
            ("a.nut", "xyz12le", "rawvideo"),
            ("a.nut", "rgb565le", "rawvideo"),
        ],
        2,
    ),
)
def test_lossless_returns_the_same_bytes(
    tmp_path: Path, ffmpeg: str, name: str, pixel_format: str, codec: str
) -> None:
    if codec != "auto":
        needs(ffmpeg, codec)
    encoder = Encoder(
        tmp_path / name,
        fps=20,
        size=(64, 48),
        pixel_format=pixel_format,
        codec=codec,
        quality="lossless",
        settings=EncoderSettings(ffmpeg=ffmpeg),
    )
    generator, sent = np.random.default_rng(1), []
    assert encoder.frame_bytes is not None
    with encoder:
        for _ in range(5):
            sent.append(generator.integers(0, 256, encoder.frame_bytes, np.uint8).tobytes())
            encoder.write(sent[-1])
    with Decoder(
        tmp_path / name, pixel_format=pixel_format, settings=DecoderSettings(ffmpeg=ffmpeg)
    ) as decoder:
        assert [one.tobytes() for one in decoder] == sent


@pytest.mark.parametrize("name", ["a.mkv", "a.mov"])
@pytest.mark.parametrize("pixel_format", ["gray16le", "rgb48le", "rgba"])
def test_lossless_takes_the_codec_that_keeps_the_samples(
    tmp_path: Path, pixel_format: str, name: str
) -> None:
    with Encoder(
        tmp_path / name, fps=5, size=(32, 16), pixel_format=pixel_format, quality="lossless"
    ) as encoder:
        sent = np.random.default_rng(1).integers(0, 256, encoder.frame_bytes, np.uint8).tobytes()
        encoder.write(sent)
    assert encoder.report.codec == "ffv1"
    with Decoder(tmp_path / name, pixel_format=pixel_format) as decoder:
        assert [frame.tobytes() for frame in decoder] == [sent]
    request = Request(tmp_path / name, fps=5, pixel_format="rgb24", quality="lossless")
    assert plan(request, None).codec == "libx264rgb"


def blocks(planes: Any) -> Any:
    """Means over blocks of 8 × 8 pixels."""
    frames, rows, columns = planes.shape
    cut = planes[:, : rows // 8 * 8, : columns // 8 * 8]
    return cut.reshape(frames, rows // 8, 8, columns // 8, 8).mean((2, 4))


def ssim_db(shown: Any, sent: Any) -> float:
    """SSIM of luma (Wang and others, 2004) over blocks of 8 × 8, in dB of its distance from 1, as FFmpeg tells it."""
    shown, sent = shown.astype(np.float64), sent.astype(np.float64)
    mean, other = blocks(shown), blocks(sent)
    variance, other_variance = blocks(shown**2) - mean**2, blocks(sent**2) - other**2
    covariance = blocks(shown * sent) - mean * other
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    ssim = (2 * mean * other + c1) * (2 * covariance + c2)
    ssim /= (mean**2 + other**2 + c1) * (variance + other_variance + c2)
    return float(-10 * np.log10(1 - ssim.mean()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["draft", "good", "master"])
def test_quality_level_looks_alike_with_each_encoder(tmp_path: Path, ffmpeg: str, level: Any) -> None:
    def measured(codec: str) -> float:
        needs(ffmpeg, codec)
        values = []
        for content in ("motion", "camera"):
            film = Film(content, 640, 360)  # type: ignore[arg-type]
            path = tmp_path / f"{codec}-{content}.mkv"
            with Encoder(
                path, fps=30, codec=codec, quality=level, settings=EncoderSettings(ffmpeg=ffmpeg)
            ) as encoder:
                for number in range(FRAMES):
                    encoder.write(film.frame(number))
            with Decoder(path, pixel_format="gray") as decoder:
                shown = np.array([*decoder])
            with Decoder(reference(content), pixel_format="gray") as decoder:
                values.append(ssim_db(shown, np.array([*decoder])))
        return float(np.mean(values))

    def reference(content: str) -> Path:
        path = tmp_path / f"{content}.mkv"
        if not path.exists():
            with Encoder(path, fps=30, codec="ffv1", output_pixel_format="yuv420p") as encoder:
                for number in range(FRAMES):
                    encoder.write(Film(content, 640, 360).frame(number))  # type: ignore[arg-type]
        return path

    wanted = measured("libx264")
    told = {codec: measured(codec) for codec in with_quality(is_lossless=False)}
    assert all(abs(one - wanted) < BAND_DB for one in told.values()), told
