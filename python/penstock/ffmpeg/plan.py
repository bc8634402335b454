"""From the frames that a caller has to the video that it wants: who converts, and FFmpeg's command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Literal, get_args

from penstock._native import _Conversion
from penstock.ffmpeg import colors, endpoints
from penstock.ffmpeg.arguments import (
    check_even,
    checked_size,
    conversion_filters,
    frame_rate,
    input_arguments,
    output_arguments,
    with_filters,
)
from penstock.ffmpeg.capabilities import check_option
from penstock.ffmpeg.formats import output_format, raw_format
from penstock.ffmpeg.pixels import FrameLayout, canonical, divides_evenly, frame_layout

Convert = Literal["auto", "native", "ffmpeg"]
ColorMatrix = Literal["auto", "bt601", "bt709", "bt2020"]
ColorRange = Literal["limited", "full"]
OddSize = Literal["error", "pad", "crop"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What an encoder was asked for: its arguments of these names, checked by `plan_encode`."""

    size: tuple[int, int]
    fps: int | float | Fraction
    pixel_format: str
    codec: str
    options: Mapping[str, object]
    output_pixel_format: str | None
    container_format: str | None
    convert: str
    color_matrix: str
    color_range: str
    odd_size: str
    vflip: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with each frame, and by whom.

    Attributes:
        layout: of the frames that are handed in.
        rate: of the frames.
        conversion: what the native worker makes of each; None if they go to FFmpeg as they are.
        fed: the layout of what FFmpeg gets.
        converted_by: "penstock", "ffmpeg", or None if the pixels stay what they are.
        arguments: FFmpeg's, for its input and its output.
        warnings: what the video cannot hold of the frames.
    """

    layout: FrameLayout
    rate: Fraction
    conversion: _Conversion | None
    fed: FrameLayout
    converted_by: str | None
    arguments: list[str]
    warnings: tuple[str, ...]


def plan_encode(program: str, target: str, wish: Wish) -> Plan:
    """What is to be done for `wish` by the FFmpeg at `program`, which writes to `target`.

    Raises:
        ValueError: an argument is none of its choices, the video cannot have the size, the codec has not the output's
            pixel format, or ``convert="native"`` was asked for where there is no native conversion.
    """
    check_choice("convert", wish.convert, get_args(Convert))
    check_choice("odd_size", wish.odd_size, get_args(OddSize))
    width, height = checked_size(wish.size)
    rate = frame_rate(wish.fps)
    container_format = endpoints.container_for(target, wish.container_format)
    matrix, color_range = colors.colors_for(wish.codec, wish.color_matrix, wish.color_range, height)
    layout = frame_layout(wish.pixel_format, width, height, program)
    output = output_format(
        program,
        wish.codec,
        wish.options,
        layout.pixel_format,
        wish.output_pixel_format,
        held=raw_format(target, container_format),
    )
    wish = replace(wish, output_pixel_format=output.name, options=_options_for(wish, output.name))
    if wish.odd_size == "error":
        check_even(layout, wish.output_pixel_format, wish.options)
    conversion = _native(layout, wish, matrix, color_range)
    output_pixel_format = _named_for(wish.codec, wish.output_pixel_format)
    filters: list[str] = []
    if conversion is None:
        fed = frame_layout(colors.jpeg_pixel_format(wish.codec, layout.pixel_format), width, height, program)
        filters = conversion_filters(
            fed, output_pixel_format, matrix, color_range, odd_size=wish.odd_size, vflip=wish.vflip
        )
    else:
        fed = frame_layout(output_pixel_format or layout.pixel_format, *conversion.output_size, program)
    centred = colors.is_centred(layout.pixel_format, output_pixel_format)
    arguments = [
        *input_arguments(
            fed,
            rate,
            colors.input_color_arguments(fed.pixel_format, matrix, color_range, centred=centred),
        ),
        *output_arguments(
            target,
            wish.codec,
            output_pixel_format,
            with_filters(wish.options, filters),
            container_format,
            colors.output_color_arguments(output_pixel_format, matrix, color_range, centred=centred),
        ),
    ]
    converted_by = _converted_by(layout, wish, conversion)
    return Plan(layout, rate, conversion, fed, converted_by, arguments, output.warnings)


def _options_for(wish: Wish, output_pixel_format: str | None) -> dict[str, object]:
    """`wish.options` without a pixel format, which is an argument of its own by now, and with what the format takes."""
    options = dict(wish.options)
    if output_pixel_format is not None:
        options = {name: value for name, value in options.items() if name.partition(":")[0] != "pix_fmt"}
    if (wish.codec, output_pixel_format) == ("libvpx", "yuva420p"):
        # VP8 has alpha only without frames that are not shown, and FFmpeg refuses it otherwise.
        options = {"auto-alt-ref": 0, **options}
    return options


def all_options(
    program: str, codec: str, options: Mapping[str, object], crf: float | str | None, preset: str | None
) -> dict[str, object]:
    """FFmpeg's output options: those given as arguments of their own, and `options`.

    Raises:
        ValueError: one is given twice, or `codec` has none of that name.
    """
    own = {"crf": f"{crf:g}" if isinstance(crf, Real) else crf, "preset": preset}
    given = {name: value for name, value in own.items() if value is not None}
    for name in given:
        if any(option.partition(":")[0] == name for option in options):
            raise ValueError(f"{name} is given as an argument and in options: give one")
        check_option(program, codec, name)
    return {**given, **options}


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Checks that `value` is one of the `choices` for the argument `name`.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ValueError(f"{name} is {', '.join(map(repr, choices))}; got {value!r}")


def _named_for(codec: str, pixel_format: str | None) -> str | None:
    return None if pixel_format is None else colors.jpeg_pixel_format(codec, pixel_format)


def _native(layout: FrameLayout, wish: Wish, matrix: str, color_range: str) -> _Conversion | None:
    """The native conversion, where there is something to convert and nothing speaks against it."""
    output = canonical(wish.output_pixel_format or layout.pixel_format)
    is_even = divides_evenly(output, layout.width, layout.height)
    is_fitted = wish.odd_size != "error" and not is_even
    if wish.convert == "ffmpeg" or not (output != layout.pixel_format or is_fitted or wish.vflip):
        return None
    try:
        return _Conversion(
            layout.pixel_format,
            output,
            layout.width,
            layout.height,
            matrix=matrix,
            range=color_range,
            vflip=wish.vflip,
            odd_size=wish.odd_size if is_fitted else "keep",
        )
    except ValueError as error:
        if wish.convert == "native":
            raise ValueError(f"convert='native' is not possible: {error}") from None
        return None


def _converted_by(layout: FrameLayout, wish: Wish, conversion: _Conversion | None) -> str | None:
    if wish.output_pixel_format in (None, layout.pixel_format):
        return None
    return "ffmpeg" if conversion is None else "penstock"
