"""What an `Encoder` is told of colours, in whichever way, is what it converts by and writes to the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Decoder, Encoder
from penstock.ffmpeg import Colors, Tuning
from penstock.media import VideoInfo, probe

SIZE = (64, 48)
COLORS = ([200, 0, 0], [0, 200, 0], [20, 30, 220], [128, 128, 128])


def written(output: Path, **options: Any) -> tuple[VideoInfo, int]:
    """The facts of a video of plain colours, and how far its frames are off."""
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
    "options, told",
    [
        ({"colorspace": "bt709"}, {"color_matrix": "bt709"}),
        ({"colorspace": 1}, {"color_matrix": "bt709"}),
        ({"colorspace:v": "bt2020_ncl"}, {"color_matrix": "bt2020"}),
        ({"color_range": "pc"}, {"color_range": "full"}),
        ({"color_range": 2}, {"color_range": "full"}),
        ({"x264-params": "colormatrix=bt709:colorprim=bt709:transfer=bt709"}, {"color_matrix": "bt709"}),
        ({"x264-params": "keyint=3:fullrange=on"}, {"color_range": "full"}),
        ({"pix_fmt": "yuvj420p"}, {"color_range": "full", "color_matrix": "bt601"}),
        (
            {"color_primaries": "bt2020", "color_trc": "smpte2084", "colorspace": "bt2020nc"},
            {"color_matrix": "bt2020", "color_primaries": "bt2020", "color_transfer": "smpte2084"},
        ),
        (
            {"color_primaries": "smpte432", "color_trc": "gamma22"},
            {"color_primaries": "smpte432", "color_transfer": "bt470m"},
        ),
    ],
)
@pytest.mark.parametrize("convert", ["native", "ffmpeg"])
def test_options_of_ffmpeg_are_followed(
    tmp_path: Path, options: dict[str, object], told: Mapping[str, str], convert: str
) -> None:
    tuning = Tuning(convert=convert)  # type: ignore[arg-type]
    video, off = written(tmp_path / "video.mp4", crf=0, preset="ultrafast", options=options, tuning=tuning)
    assert {name: getattr(video, name) for name in told} == told
    assert off <= 3


def test_the_recipe_for_hdr(tmp_path: Path) -> None:
    options = {
        "x265-params": "lossless=1:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:log-level=none"
    }
    video, off = written(
        tmp_path / "video.mp4",
        codec="libx265",
        pixel_format="rgb48",
        output_pixel_format="yuv420p10",
        options=options,
    )
    assert (video.color_matrix, video.color_primaries, video.color_transfer) == (
        "bt2020",
        "bt2020",
        "smpte2084",
    )
    assert off <= 1


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


def test_a_full_range_by_the_name_of_the_format(tmp_path: Path) -> None:
    video, off = written(tmp_path / "video.mp4", crf=0, output_pixel_format="yuvj444p")
    assert (video.color_range, off <= 3) == ("full", True)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"options": {"colorspace": "bt709"}, "colors": Colors(matrix="bt601")}, "exclude each other"),
        ({"options": {"color_range": "pc", "x264-params": "range=tv"}}, "exclude each other"),
        (
            {"output_pixel_format": "yuvj420p", "colors": Colors(range="limited")},
            "yuvj420p exclude each other",
        ),
        ({"options": {"colorspace": "ycgco"}}, "no matrix by which rgb24 becomes yuv420p"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Encoder(tmp_path / "video.mp4", size=SIZE, fps=25, **arguments)
    assert not (tmp_path / "video.mp4").exists()


def test_a_decoder_has_no_use_for_tags(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no effect on a Decoder"):
        Decoder(tmp_path / "video.mp4", colors=Colors(primaries="bt2020"))
    with pytest.raises(ValueError, match=r"transfer is 'auto'.*got 'pq'"):
        Colors(transfer="pq")
