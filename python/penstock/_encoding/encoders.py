"""Chooses the encoder of a video, and the options by which it reaches a level of quality."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

from penstock._common.messages import argument
from penstock._encoding.output_pixel_format import AUTO
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.settings import check_choice
from penstock._ffmpeg.program import capabilities
from penstock._formats import images
from penstock._formats.codecs import SOFTWARE
from penstock._formats.encoders import PARAMETERS, TRIED_MAKERS, common, known, with_quality
from penstock._formats.pixel_formats import is_rgb

Quality = Literal["draft", "good", "master", "lossless"]

#: The values of `codec` that mean the hardware's encoder for a format, or else the software's.
AUTO_CODECS = tuple(f"auto-{name}" for name in SOFTWARE)


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
    of_rgb = known(found).rgb_encoder
    is_free = is_lossless and codec in (AUTO, *AUTO_CODECS)
    return of_rgb if is_free and of_rgb is not None and is_rgb(frames) else found


def default_encoder(output: Output, program: str) -> str:
    """The encoder that the name of `output` means.

    Raises:
        ValueError: it is an image of a kind that has no encoder of its name.
    """
    if (of_image := images.known(output.kind).encoder) is not None:
        return of_image
    if output.are_images:
        same = output.ending[1:]
        if same in common() or same in capabilities.encoders(program):
            return same
        raise ValueError(
            f"{output.name} names no encoder of images. Pass {argument('codec', 'png')}, or write .png"
        )
    muxer = output.known
    if muxer is None or muxer.holds_sound or muxer.video is None:
        return output.facts.encoder
    return software_encoder(muxer.video, program)


def with_loop(options: Mapping[str, object], output: Output) -> dict[str, object]:
    """Returns `options`, with the one that loops an animated image for ever unless they set it."""
    loop = images.known(output.kind).loop
    return dict(options) if loop is None or output.is_numbered else dict([loop]) | dict(options)


def software_encoder(codec: str, program: str) -> str:
    """The encoder that `codec` names: an encoder, a format, or one of `AUTO_CODECS`, of which it is the software's.

    Raises:
        ValueError: it begins with "auto-", and is none of those.
    """
    if codec.startswith("auto-") and codec not in AUTO_CODECS:
        known = ", ".join(AUTO_CODECS)
        raise ValueError(f"codec must be auto, {known} or an encoder of FFmpeg, not {codec!r}")
    return capabilities.named_encoder(program, codec.removeprefix("auto-"), preferred=SOFTWARE)


def hardware_encoders(codec: str) -> tuple[str, ...]:
    """The encoders of hardware to try for `codec`, in this order; none if it is not one of `AUTO_CODECS`."""
    if codec not in AUTO_CODECS:  # perhaps no name
        return ()
    return tuple(f"{codec.removeprefix('auto-')}_{maker}" for maker in TRIED_MAKERS)


LOSSLESS = "lossless"
# FFmpeg's options for a quality or a bit rate of video. One of them overrides a level, and contradicts "lossless".
_RATE_OPTIONS = frozenset(("b", "cq", "crf", "global_quality", "q", "qp", "qscale"))
# The parameters of an encoder's own for a quality or a bit rate.
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
        default = known(codec).image_default if are_images else known(codec).default
        return {} if any(map(_is_rate, given)) else dict(default)
    check_choice("quality", quality, get_args(Quality))
    is_lossless = quality == LOSSLESS
    levels, level = known(codec).levels, known(codec).lossless
    if not is_lossless:
        level = None if levels is None else levels[get_args(Quality).index(quality)]
    if not level:
        # Some have no other level.
        if known(codec).lossless == {} or capabilities.is_lossless(program, codec):
            return {}
        names = ", ".join(with_quality(is_lossless=is_lossless))
        raise ValueError(
            f"{codec} has no {argument('quality', quality)}. Use one of {names}, or the encoder's own options"
        )
    joined = dict[str, object]()
    also = next((name for name in given if _is_rate(name)), None)
    for name, value in given.items() if is_lossless else ():
        if (
            name in level
            and name in PARAMETERS
            and isinstance(value, str)
            and not _RATE_PARAMETERS.search(value)
        ):
            joined[name] = f"{level[name]}:{value}"  # about something else, such as the threads of x265
        elif name in level or (name in PARAMETERS and _RATE_PARAMETERS.search(str(value))):
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
