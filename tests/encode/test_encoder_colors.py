"""What an `Encoder` is told of colors, in whichever way, is what it converts by and writes to the file."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import needs

from penstock import Decoder, Encoder, probe
from penstock.video import Colors, EncoderSettings, MediaInfo, find_ffmpeg

SIZE = (64, 64)
COLORS = ([200, 0, 0], [0, 200, 0], [20, 30, 220], [128, 128, 128])


def written(output: Path, **options: Any) -> tuple[MediaInfo.Video, int]:
    """The facts of a video of plain colors, and how far its frames are off."""
    dtype = np.uint16 if options.get("pixel_format") == "rgb48" else np.uint8
    scale = np.iinfo(dtype).max // 255
    frames = [np.full((SIZE[1], SIZE[0], 3), color, dtype) * scale for color in COLORS]
    with Encoder(output, **({"size": SIZE, "fps": 25} | options)) as encoder:
        for frame in frames:
            encoder.write(frame)
    with Decoder(output, pixel_format="rgb48le" if scale > 1 else "rgb24") as decoder:
        got = [np.asarray(frame, int) for frame in decoder]
    assert len(got) == len(frames)
    off = max(int(np.abs(a - b).max()) for a, b in zip(got, frames, strict=True)) // scale
    return probe(output).video[0], off


@pytest.mark.parametrize("suffix, codec", [("mp4", "libx264"), ("mkv", "ffv1"), ("webm", "libvpx-vp9")])
def test_primaries_and_transfer_are_tags(tmp_path: Path, suffix: str, codec: str) -> None:
    colors = Colors(matrix="bt2020", primaries="smpte432", transfer="arib-std-b67")
    video, off = written(
        tmp_path / f"video.{suffix}", codec=codec, colors=colors, output_pixel_format="yuv444p"
    )
    assert (video.color_matrix, video.color_primaries, video.color_transfer) == (
        "bt2020",
        "smpte432",
        "arib-std-b67",
    )
    assert off <= 6


DISPLAY = Colors.MasteringDisplay((0.68, 0.32), (0.265, 0.69), (0.15, 0.06), (0.3127, 0.329), (0.005, 1000.0))
PQ = Colors(
    matrix="bt2020",
    primaries="bt2020",
    transfer="smpte2084",
    mastering_display=DISPLAY,
    content_light=Colors.ContentLight(1000, 400),
)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1"])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_mastering_display_and_content_light_reach_the_file(tmp_path: Path, codec: str, suffix: str) -> None:
    needs(find_ffmpeg(), codec)
    name = {"libx264": "x264-params", "libx265": "x265-params"}.get(codec)
    options = {} if name is None else {name: "keyint=5"}
    video, _ = written(
        tmp_path / f"v.{suffix}",
        codec=codec,
        colors=PQ,
        options=options,
        output_pixel_format="yuv420p10le",
        pixel_format="rgb48",
    )
    assert video.content_light == PQ.content_light and video.mastering_display is not None
    for one in fields(DISPLAY):
        told = getattr(video.mastering_display, one.name)
        assert told == pytest.approx(getattr(DISPLAY, one.name), rel=0.01, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        # Options that name colors.
        ({"options": {"colorspace": "bt709"}}, "Colors(matrix="),
        ({"options": {"colorspace:v": "ycgco"}}, "Colors(matrix="),
        ({"options": {"color_range": 2}}, "Colors(range="),
        ({"options": {"color_primaries": "bt2020"}}, "Colors(primaries="),
        ({"options": {"color_trc": "smpte2084"}}, "Colors(transfer="),
        ({"options": {"x264-params": "keyint=3:fullrange=on"}}, "Colors(range="),
        ({"options": {"x264opts": "colormatrix=bt709"}}, "Colors(matrix="),
        ({"options": {"x265-params": "lossless=1: colorprim=bt2020"}}, "Colors(primaries="),
        # A light that contradicts the options, or that there is not.
        ({"options": {"x264-params": "cll=100,50"}, "colors": PQ}, "exclude"),
        ({"options": {"x264opts": "cll=10,5"}, "colors": PQ}, "exclude"),
        ({"colors": Colors(mastering_display=replace(DISPLAY, white=None))}, "white"),
        ({"colors": Colors(mastering_display=replace(DISPLAY, luminance=(1000.0, 0.005)))}, "least"),
        ({"colors": Colors(mastering_display=replace(DISPLAY, luminance=1000.0))}, "least"),  # type: ignore[arg-type]
        ({"colors": Colors(mastering_display=replace(DISPLAY, red=(34000, 16000)))}, "least"),
        ({"colors": Colors(mastering_display=replace(DISPLAY, red=(float("nan"), 0.3)))}, "least"),
        *(
            ({"colors": Colors(content_light=Colors.ContentLight(level, 0))}, "light")
            for level in (-1, 100_000, 0.5)
        ),  # type: ignore[arg-type]
        # What the pixel format or the codec cannot have.
        ({"output_pixel_format": "yuvj420p", "colors": Colors(range="limited")}, "yuvj420p"),
        *(
            ({"codec": name, "colors": Colors(range="full")}, name)
            for name in ("libvpx", "mpeg2video", "prores_ks")
        ),
        *(({"options": {name: "mpeg4"}}, "codec") for name in ("c:v", "codec", "vcodec", "c:v:0")),
    ],
    ids=str,
)
def test_colors_that_cannot_be_are_refused_at_the_call(
    tmp_path: Path, given: dict[str, Any], word: str
) -> None:
    with pytest.raises(ValueError) as caught:
        Encoder(tmp_path / "v.mkv", **{"size": SIZE, "fps": 25} | given)
    assert word in str(caught.value)
    assert not [*tmp_path.iterdir()]


def test_colors_check_their_fields() -> None:
    with pytest.raises(ValueError):
        Colors(transfer="pq")
    with pytest.raises(TypeError):
        Colors(content_light=(1000, 400))  # type: ignore[arg-type]


def test_yuvj_format_name_means_full_range(tmp_path: Path) -> None:
    video, off = written(tmp_path / "video.mp4", crf=0, output_pixel_format="yuvj444p")
    assert (video.color_range, off <= 3) == ("full", True)


@pytest.mark.parametrize("ending", ["png", "tiff", "dpx", "jpg", "bmp"])
@pytest.mark.parametrize("name", ["a{:03d}", "a%03d"])
@pytest.mark.filterwarnings("ignore::penstock.errors.FFmpegWarning")
def test_images_keep_primaries_and_transfer_or_warn(
    tmp_path: Path, ffmpeg: str, name: str, ending: str
) -> None:
    path, options = tmp_path / f"{name.format(1)}.{ending}", {"start_number": 7} if "%" in name else {}
    settings = EncoderSettings(ffmpeg=ffmpeg)
    colors = Colors(primaries="bt2020", transfer="smpte2084")
    with Encoder(path, fps=25, colors=colors, options=options, settings=settings) as encoder:
        encoder.write(np.zeros((48, 64, 3), np.uint8))
    video = probe(tmp_path / f"a{7 if options else 1:03d}.{ending}").video[0]
    assert encoder.report is not None
    for kept, tag in (
        (video.color_primaries == "bt2020", "primaries"),
        (video.color_transfer == "smpte2084", "transfer"),
    ):
        assert kept != any(tag in one for one in encoder.report.warnings)


def test_images_of_srgb_do_not_warn(tmp_path: Path, ffmpeg: str) -> None:
    settings, colors = EncoderSettings(ffmpeg=ffmpeg), Colors(primaries="bt709", transfer="iec61966-2-1")
    with Encoder(tmp_path / "%d.tiff", fps=25, colors=colors, settings=settings) as encoder:
        encoder.write(np.zeros((48, 64, 3), np.uint8))
    assert encoder.report is not None and encoder.report.warnings == ()
