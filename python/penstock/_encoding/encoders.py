"""Chooses the encoder of a video, and the options by which it reaches a level of quality."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

from penstock._common.messages import argument
from penstock._encoding.output_pixel_format import AUTO
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import is_rgb
from penstock._ffmpeg.command.settings import check_choice
from penstock._ffmpeg.program import capabilities

Quality = Literal["draft", "good", "master", "lossless"]

# FFmpeg's encoders of images whose files end otherwise.
_IMAGE_ENCODERS = {
    **dict.fromkeys((".jpeg", ".jpg"), "mjpeg"),
    ".tif": "tiff",
    ".jp2": "jpeg2000",
    ".jxl": "libjxl",
    ".tga": "targa",
    ".webp": "libwebp",
}
# The encoders of containers that do not hold H.264, but sound.
_VIDEO_ENCODERS = {**dict.fromkeys(("ogg", "ogv"), "libtheora"), "webm": "libvpx-vp9"}
# The encoder of all other containers with sound: every player knows its video.
_DEFAULT_ENCODER = "libx264"
# Pictures that move are shown again and again, as GIF is by FFmpeg's default.
_LOOPING = {".apng": ("plays", 0), ".webp": ("loop", 0)}

# The software that encodes each format: the first one that FFmpeg has. FFmpeg itself prefers libaom-av1, which is many
# times slower by its defaults.
_SOFTWARE = {"h264": ("libx264",), "hevc": ("libx265",), "av1": ("libsvtav1", "libaom-av1")}
#: The values of `codec` that mean the hardware's encoder for a format, or else the software's.
AUTO_CODECS = tuple(f"auto-{name}" for name in _SOFTWARE)
# Ends of the names of encoders, in the order in which they are tried: NVIDIA, Intel and AMD. Those of VA-API and Vulkan
# need a device and filters of their own.
_MAKERS = ("nvenc", "qsv", "amf")


def encoder_for(codec: str, program: str, output: Output, *, is_lossless: bool, frames: str) -> str:
    """The encoder that `codec` names, or that the name of `output` means. Of `AUTO_CODECS`, it is the software's.

    Args:
        is_lossless: the frames are to be encoded without loss.
        frames: their pixel format.

    Raises:
        TypeError: `codec` is no name.
        ValueError: it begins with "auto-", and is none of those.
    """
    if not isinstance(codec, str):
        raise TypeError(
            f"codec must be FFmpeg's name of a video encoder, such as 'libx264', not {codec!r}. To write "
            "a file with audio alone, use soundfile or PyAV"
        )
    found = default_encoder(output, program) if codec == AUTO else software_encoder(codec, program)
    # H.264 of RGB has an encoder of its own.
    if is_lossless and found == "libx264" and codec in (AUTO, *AUTO_CODECS) and is_rgb(frames):
        return "libx264rgb"
    return found


def default_encoder(output: Output, program: str) -> str:
    """The encoder that the name of `output` means.

    Raises:
        ValueError: it is an image of a kind that has no encoder of its name.
    """
    if (of_image := _IMAGE_ENCODERS.get(output.kind)) is not None:
        return of_image
    if (of_container := _VIDEO_ENCODERS.get(output.container)) is not None:
        return of_container
    known = output.known
    if output.are_images:
        same = output.ending[1:]
        if same in capabilities.COMMON_CODECS or same in capabilities.encoders(program):
            return same
        raise ValueError(
            f"{output.name} names no encoder of images. Pass {argument('codec', 'png')}, or write .png"
        )
    if known is None or known.holds_sound:
        return _DEFAULT_ENCODER
    return software_encoder(known.video or _DEFAULT_ENCODER, program)


def with_loop(options: Mapping[str, object], output: Output) -> dict[str, object]:
    """Returns `options`, with the one that loops an animated image for ever unless they set it."""
    loop = _LOOPING.get(output.kind)
    return dict(options) if loop is None or output.is_numbered else dict([loop]) | dict(options)


def software_encoder(codec: str, program: str) -> str:
    """The encoder that `codec` names: an encoder, a format, or one of `AUTO_CODECS`, of which it is the software's.

    Raises:
        ValueError: it begins with "auto-", and is none of those.
    """
    if codec.startswith("auto-") and codec not in AUTO_CODECS:
        known = ", ".join(AUTO_CODECS)
        raise ValueError(f"codec must be auto, {known} or an encoder of FFmpeg, not {codec!r}")
    return capabilities.named_encoder(program, codec.removeprefix("auto-"), preferred=_SOFTWARE)


def hardware_encoders(codec: str) -> tuple[str, ...]:
    """The encoders of hardware to try for `codec`, in this order; none if it is not one of `AUTO_CODECS`."""
    if codec not in AUTO_CODECS:  # perhaps no name
        return ()
    return tuple(f"{codec.removeprefix('auto-')}_{maker}" for maker in _MAKERS)


LOSSLESS = "lossless"
# Those of "draft", "good" and "master". The SSIM of luma in dB, as a mean over rendered motion and a noisy camera at
# 640×360, is within 1.5 dB of libx264's, with the presets that encoders have by default. Text
# on a screen looks at least as good as with libx264, but for mjpeg and mpeg4.
_LEVELS: dict[str, tuple[Mapping[str, object], Mapping[str, object], Mapping[str, object]]] = {
    "libsvtav1": ({"crf": 52}, {"crf": 23}, {"crf": 7}),
    "libvpx-vp9": ({"crf": 52, "b:v": 0}, {"crf": 33, "b:v": 0}, {"crf": 16, "b:v": 0}),
    "libx264": ({"crf": 30}, {"crf": 21}, {"crf": 14}),
    "libx265": ({"crf": 32}, {"crf": 22}, {"crf": 14}),
    "mjpeg": ({"q:v": 8}, {"q:v": 3}, {"q:v": 1, "qmin": 1}),
    "mpeg4": ({"q:v": 6}, {"q:v": 3}, {"q:v": 1, "qmin": 1}),
}
# Replaces FFmpeg's default, a bit rate of 0.2 Mbit/s that ruins larger pictures. Chosen, not measured.
_DEFAULTS: dict[str, Mapping[str, object]] = {"libtheora": {"q:v": 8}}
# The best quality that FFmpeg advises for JPEG. Its default aims at the bit rate of a small video.
_DEFAULTS_OF_IMAGES: dict[str, Mapping[str, object]] = {"mjpeg": {"q:v": 2}}
_WITHOUT_LOSS: dict[str, Mapping[str, object]] = {
    "libvpx-vp9": {"lossless": 1},
    "libx264": {"qp": 0},
    "libx264rgb": {"qp": 0},
    "libx265": {"x265-params": "lossless=1"},
}
# FFmpeg's options for a quality or a bit rate of video. One of them overrides a level, and contradicts "lossless".
_RATE_OPTIONS = frozenset(("b", "cq", "crf", "global_quality", "q", "qp", "qscale"))
# Options that hold parameters of the encoder's own, and those of these for a quality or a bit rate.
_PARAMETERS = ("x264-params", "x264opts", "x265-params")
_RATE_PARAMETERS = re.compile(r"\b(?:bitrate|crf|lossless|qp)\b", re.IGNORECASE)


def quality_options(
    program: str,
    codec: str,
    quality: Quality | None,
    given: Mapping[str, object],
    *,
    are_images: bool = False,
) -> dict[str, object]:
    """FFmpeg's options by which an encoder reaches a level, beside those that are `given`, or none if those count more.

    Raises:
        ValueError: there is no such level, or none is known for the encoder.
    """
    if quality is None:
        defaults = _DEFAULTS_OF_IMAGES if are_images else _DEFAULTS
        return {} if any(map(_is_rate, given)) else dict(defaults.get(codec, {}))
    check_choice("quality", quality, get_args(Quality))
    is_lossless = quality == LOSSLESS
    levels = _WITHOUT_LOSS
    if not is_lossless:
        levels = {name: options[get_args(Quality).index(quality)] for name, options in _LEVELS.items()}
    if codec not in levels:
        is_exact = codec == "rawvideo" or capabilities.is_lossless(program, codec)
        if is_exact:
            return {}  # it has no other level
        known = ", ".join([*levels, *(["ffv1", "png"] if is_lossless else [])])
        raise ValueError(
            f"{codec} has no {argument('quality', quality)}. Use one of {known}, or the encoder's own options"
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
        raise ValueError(f"{argument('quality', quality)} and {named} exclude each other. Pass only one")
    return {}


def _is_rate(name: str) -> bool:
    option, _, stream = name.partition(":")
    return option in _RATE_OPTIONS and not stream.startswith("a")
