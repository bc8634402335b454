"""Levels of quality: for each encoder, the options by which it reaches them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

from penstock.ffmpeg.naming import argument
from penstock.ffmpeg.plan.arguments import PALETTE
from penstock.ffmpeg.plan.output_formats import PixelFormat, pixel_format_of
from penstock.ffmpeg.plan.settings import check_choice
from penstock.ffmpeg.program import capabilities

Quality = Literal["draft", "good", "master", "lossless"]

LOSSLESS = "lossless"
# Those of "draft", "good" and "master". The SSIM of luma in dB, as a mean over rendered motion and a noisy camera at
# 640×360, is within 1.5 dB of libx264's, with FFmpeg 5.1 and 9 and the presets that encoders have by default. Text
# on a screen looks at least as good as with libx264, but for mjpeg and mpeg4.
_LEVELS: dict[str, tuple[Mapping[str, object], Mapping[str, object], Mapping[str, object]]] = {
    "libsvtav1": ({"crf": 52}, {"crf": 23}, {"crf": 7}),
    "libvpx-vp9": ({"crf": 52, "b:v": 0}, {"crf": 33, "b:v": 0}, {"crf": 16, "b:v": 0}),
    "libx264": ({"crf": 30}, {"crf": 21}, {"crf": 14}),
    "libx265": ({"crf": 32}, {"crf": 22}, {"crf": 14}),
    "mjpeg": ({"q:v": 8}, {"q:v": 3}, {"q:v": 1, "qmin": 1}),
    "mpeg4": ({"q:v": 6}, {"q:v": 3}, {"q:v": 1, "qmin": 1}),
}
# Where FFmpeg's default is a bit rate by which nobody knows a picture of some size (0.2 Mbit/s). Chosen, not measured.
_DEFAULTS: dict[str, Mapping[str, object]] = {"libtheora": {"q:v": 8}}
_WITHOUT_LOSS: dict[str, Mapping[str, object]] = {
    "libvpx-vp9": {"lossless": 1},
    "libx264": {"qp": 0},
    "libx264rgb": {"qp": 0},
    "libx265": {"x265-params": "lossless=1"},
}
# FFmpeg calls these lossless. But v210 has no place for the first and last four values, and ljpeg is read with another
# range than it was written with.
_NOT_EXACT = ("ljpeg", "v210")
# Frames that FFmpeg 5.1 cannot convert exactly: it adds colours to those of a sensor, clips XYZ, and rounds the others.
_CONVERTED_INEXACTLY = re.compile(r"bayer|xyz|x2|(?:rgb|bgr)\d{3}")
# FFmpeg's options for a quality or a bit rate of video. With one of them, a level has nothing to say.
_RATE_OPTIONS = frozenset(("b", "cq", "crf", "global_quality", "q", "qp", "qscale"))
# Options that hold parameters of the encoder's own, and those of these for a quality or a bit rate.
_PARAMETERS = ("x264-params", "x264opts", "x265-params")
_RATE_PARAMETERS = re.compile(r"\b(?:bitrate|crf|lossless|qp)\b", re.IGNORECASE)


def quality_options(
    program: str, codec: str, quality: Quality | None, given: Mapping[str, object]
) -> dict[str, object]:
    """FFmpeg's options by which an encoder reaches a level, beside those that are `given`, or none if those count more.

    Raises:
        ValueError: there is no such level, or none is known for the encoder.
    """
    if quality is None:
        return {} if any(map(_is_rate, given)) else dict(_DEFAULTS.get(codec, {}))
    check_choice("quality", quality, get_args(Quality))
    is_lossless = quality == LOSSLESS
    levels = _WITHOUT_LOSS
    if not is_lossless:
        levels = {name: options[get_args(Quality).index(quality)] for name, options in _LEVELS.items()}
    if codec not in levels:
        is_exact = codec == "rawvideo" or capabilities.is_lossless(program, codec)
        if is_exact and not (is_lossless and codec in _NOT_EXACT):
            return {}  # it has no other level
        known = ", ".join([*levels, *(["ffv1", "png"] if is_lossless else [])])
        raise ValueError(
            f"{argument('quality', quality)} is not known for {codec}: take one of {known}, or options"
        )
    level, joined = levels[codec], dict[str, object]()
    also = next((name for name in given if _is_rate(name)), None)
    for name, value in given.items() if is_lossless else ():
        if (
            name in level
            and name in _PARAMETERS
            and isinstance(value, str)
            and not _RATE_PARAMETERS.search(value)
        ):
            joined[name] = f"{level[name]}:{value}"  # about something else, such as the threads of x265
        elif name in level or (name in _PARAMETERS and _RATE_PARAMETERS.search(str(value))):
            also = name
    if also is None:
        return {name: value for name, value in level.items() if name not in given} | joined
    if is_lossless:
        named = argument(f"options.{also}", given[also])
        raise ValueError(f"{argument('quality', quality)} and {named} exclude each other: give one")
    return {}


def check_lossless(codec: str, frames: str, output_pixel_format: str | None) -> None:
    """Checks that video of `output_pixel_format` gives back the samples of frames in the pixel format `frames`."""
    source, chosen = pixel_format_of(frames), pixel_format_of(output_pixel_format or "")
    is_palette = output_pixel_format == PALETTE != frames
    if is_palette or source is None or chosen is None or not _holds(chosen, source):
        raise ValueError(
            f"{argument('quality', LOSSLESS)} is not possible: {codec} has {frames} as "
            f"{output_pixel_format or 'FFmpeg likes'}, which changes samples. Give {_keeping(codec, frames, source)}"
        )


def _keeping(codec: str, frames: str, source: PixelFormat | None) -> str:
    """The arguments that keep the samples, which `codec` does not."""
    if frames.startswith("bgra64"):
        return f"{argument('pixel_format', 'rgba64le')}, {argument('codec', 'ffv1')} and a name such as video.mkv"
    if source and source.depth > 16:
        return f"{argument('codec', 'exr')}, a name such as frames/%05d.exr, and no quality"
    if codec == "ffv1" or source is None or source.depth < 8 or _CONVERTED_INEXACTLY.match(frames):
        # Other containers have no name for x2rgb10.
        return f"{argument('codec', 'rawvideo')} and a name such as video.{'rgb' if frames[:2] == 'x2' else 'nut'}"
    return f"{argument('codec', 'ffv1')} and a name such as video.mkv"


def _holds(chosen: PixelFormat, source: PixelFormat) -> bool:
    kinds = {source.kind, "rgb"} if source.kind == "gray" else {source.kind}
    return (
        chosen.kind in kinds
        and chosen.depth == source.depth
        and chosen.has_alpha >= source.has_alpha
        and (source.kind == "gray" or chosen.shared == source.shared)
        and not _rounds(source.name, chosen.name)
    )


def _rounds(source: str, chosen: str) -> bool:
    """Whether FFmpeg's conversion changes samples, though both formats hold them."""
    # Another order of bytes alone changes nothing.
    is_inexact = _CONVERTED_INEXACTLY.match(source) is not None and source[:-2] != chosen[:-2]
    is_swapped = "bgra64" in (source[:6], chosen[:6]) and source[:6] != chosen[:6]
    rounds_alpha = chosen == "gbrap" and source in ("rgba", "bgra", "argb", "abgr")  # FFmpeg 5.1
    return is_inexact or is_swapped or rounds_alpha


def _is_rate(name: str) -> bool:
    option, _, stream = name.partition(":")
    return option in _RATE_OPTIONS and not stream.startswith("a")
