"""What an `Encoder` is told of colors, in whichever way, is what it converts by and writes to the file."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Decoder, Encoder, probe
from penstock.video import Colors, ContentLight, MasteringDisplay, VideoInfo

SIZE = (64, 64)
COLORS = ([200, 0, 0], [0, 200, 0], [20, 30, 220], [128, 128, 128])


def written(output: Path, **options: Any) -> tuple[VideoInfo, int]:
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


@pytest.mark.parametrize(
    "options, attribute",
    [
        ({"colorspace": "bt709"}, "matrix"),
        ({"colorspace:v": "ycgco"}, "matrix"),
        ({"color_range": 2}, "range"),
        ({"color_primaries": "bt2020"}, "primaries"),
        ({"color_trc": "smpte2084"}, "transfer"),
        ({"x264-params": "keyint=3:fullrange=on"}, "range"),
        ({"x264opts": "colormatrix=bt709"}, "matrix"),
        ({"x265-params": "lossless=1: colorprim=bt2020"}, "primaries"),
    ],
)
def test_options_that_name_colors_are_refused(
    tmp_path: Path, options: dict[str, object], attribute: str
) -> None:
    with pytest.raises(ValueError, match=rf"Pass colors=Colors\({attribute}="):
        Encoder(tmp_path / "v.mp4", fps=25, options=options)
    assert not [*tmp_path.iterdir()]


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


DISPLAY = MasteringDisplay((0.68, 0.32), (0.265, 0.69), (0.15, 0.06), (0.3127, 0.329), (0.005, 1000.0))
PQ = Colors(
    matrix="bt2020",
    primaries="bt2020",
    transfer="smpte2084",
    mastering_display=DISPLAY,
    content_light=ContentLight(1000, 400),
)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1"])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_the_display_and_the_light_of_hdr(tmp_path: Path, codec: str, suffix: str) -> None:
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


def test_an_impossible_light_is_refused(tmp_path: Path) -> None:
    given: dict[str, Any] = {"fps": 25, "size": SIZE, "colors": PQ}
    with pytest.raises(ValueError, match="exclude"):
        Encoder(tmp_path / "v.mp4", options={"x264-params": "cll=100,50"}, **given)
    given["colors"] = Colors(mastering_display=replace(DISPLAY, white=None))
    with pytest.raises(ValueError, match="white"):
        Encoder(tmp_path / "v.mp4", **given)
    for display in (
        replace(DISPLAY, luminance=(1000.0, 0.005)),
        replace(DISPLAY, red=(34000, 16000)),
        replace(DISPLAY, red=(float("nan"), 0.3)),
        replace(DISPLAY, luminance=1000.0),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="least"):
            Encoder(tmp_path / "v.mp4", **given | {"colors": Colors(mastering_display=display)})
    for level in (-1, 100_000, 0.5):
        with pytest.raises(ValueError, match="light"):
            Encoder(tmp_path / "v.mp4", **given | {"colors": Colors(content_light=ContentLight(level, 0))})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="content_light"):
        Colors(content_light=(1000, 400))  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


def test_a_full_range_by_the_name_of_the_format(tmp_path: Path) -> None:
    video, off = written(tmp_path / "video.mp4", crf=0, output_pixel_format="yuvj444p")
    assert (video.color_range, off <= 3) == ("full", True)


def test_a_limited_range_contradicts_a_format_of_the_full_range(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="yuvj420p"):
        Encoder(tmp_path / "v.mp4", fps=25, output_pixel_format="yuvj420p", colors=Colors(range="limited"))
    assert not [*tmp_path.iterdir()]


def test_a_tag_has_a_name_of_ffmpegs() -> None:
    with pytest.raises(ValueError, match="transfer"):
        Colors(transfer="pq")


@pytest.mark.parametrize("name", ["c:v", "codec", "vcodec", "c:v:0"])
def test_a_codec_is_named_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="codec"):
        Encoder(tmp_path / "v.mp4", size=SIZE, fps=25, options={name: "mpeg4"})
