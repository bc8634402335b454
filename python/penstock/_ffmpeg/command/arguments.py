"""FFmpeg's command line: the arguments for its inputs, outputs, filters and options."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Rational

from penstock._common.messages import argument
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.colors import VideoColors, conversion_filter
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import FrameLayout
from penstock._formats import containers
from penstock._formats.pixel_formats import canonical, divides_evenly, has_alpha, is_rgb, subsampling

# FFmpeg warns that these may apply to audio, too.
_VIDEO_OPTIONS = {"b": "b:v", "profile": "profile:v"}
#: To FFmpeg these are one option, and the last one counts.
FILTER_OPTIONS = ("vf", "filter:v", "filter", "filter:v:0", "filter:0")
#: Filters that choose colors for each frame. For colors that suit all of them, FFmpeg would hold the whole video.
PALETTE_FILTERS = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
#: FFmpeg's names of samples, by NumPy's.
SAMPLES = {"uint8": "u8", "int16": "s16le", "int32": "s32le", "float32": "f32le", "float64": "f64le"}
#: Times of frames with ``fps=None`` are whole multiples of this, in seconds. FFmpeg has no finer ones, and most
#: containers have coarser ones.
TICK_S = Fraction(1, 1_000_000)
# FFmpeg refuses frames of 2 GiB (av_image_check_size2 in libavutil/imgutils.c): of 1 bit a pixel, that many pixels.
_MOST_PIXELS = 1 << 34


def checked_size(size: tuple[int, int]) -> tuple[int, int]:
    """Returns `size` as two positive ints. Raises if FFmpeg does not take that many pixels."""
    try:
        lengths = [operator.index(length) for length in size]
    except TypeError:
        raise TypeError(f"size must be (width, height) in pixels, two integers, not {size!r}") from None
    if len(lengths) != 2:
        raise ValueError(
            f"size must be (width, height) in pixels, not {size!r}. Pass frame.shape[1::-1] for an array"
        )
    width, height = lengths
    if width <= 0 or height <= 0:
        raise ValueError(f"size must be (width, height) in pixels, both more than 0, not {size!r}")
    if width * height >= _MOST_PIXELS:
        raise ValueError(
            f"size must be (width, height) in pixels, fewer than FFmpeg's limit of 2 GiB a frame, not {size!r}"
        )
    return width, height


def frame_rate(fps: int | float | Fraction) -> Fraction:
    """`fps` as a fraction for FFmpeg, checked to be finite and more than 0."""
    try:
        if isinstance(fps, bytes | bytearray):
            raise TypeError  # which `float` would parse
        # Fraction does not take NumPy's float32. The limit makes 30000/1001 of its float, and keeps both numbers small
        # enough for FFmpeg.
        rate = Fraction(fps if isinstance(fps, Rational | str) else float(fps)).limit_denominator(1_000_000)
    except (ValueError, OverflowError):  # nan, inf
        rate = Fraction(0)
    except TypeError:
        raise TypeError(
            f"fps must be a number of frames per second, such as 30, 29.97 or Fraction(30000, 1001), not {fps!r}"
        ) from None
    if rate <= 0:
        raise ValueError(f"fps must be more than 0 frames per second, not {fps!r}")
    return rate


def check_even(layout: FrameLayout, output_pixel_format: str | None, options: Mapping[str, object]) -> None:
    """Checks that the size of `layout` suits `output_pixel_format`, unless an option resizes the frames."""
    if output_pixel_format is None or any(name in options for name in FILTER_OPTIONS):
        return
    if divides_evenly(output_pixel_format, layout.width, layout.height):
        return
    columns, rows = subsampling(output_pixel_format)
    sides = [
        f"{side} divisible by {step}" for side, step in (("width", columns), ("height", rows)) if step > 1
    ]
    needed = "an even width and height" if (columns, rows) == (2, 2) else f"a {' and a '.join(sides)}"
    raise ValueError(
        f"{output_pixel_format} needs {needed}, not {layout.width}x{layout.height}. Render such a size, or pass "
        f"{argument('odd_size', 'pad')} or "
        f"{argument('output_pixel_format', 'yuv444p')}, which fewer players support"
    )


def conversion_filters(
    layout: FrameLayout,
    output_pixel_format: str | None,
    colors: VideoColors,
    *,
    odd_size: str = "error",
    vflip: bool = False,
) -> list[str]:
    """FFmpeg's filters that do the same as the native conversion: flip, make the size even, convert.

    If `output_pixel_format` is None, FFmpeg chooses it, and converts by its own defaults.
    """
    filters = ["vflip"] if vflip else []
    if output_pixel_format is None:
        return filters
    even = _even_filters(layout, output_pixel_format, odd_size)
    if even and not divides_evenly(layout.pixel_format, layout.width, layout.height):
        # FFmpeg's filters would leave out the last column or row, which has a chroma sample of its own.
        alpha, depth = "a" * has_alpha(layout.pixel_format), "" if layout.sample_bytes == 1 else "16le"
        filters.insert(0, f"format=yuv{alpha}444p{depth}")
    filters += even
    if canonical(output_pixel_format) != layout.pixel_format and not is_rgb(output_pixel_format):
        filters.append(conversion_filter(layout.pixel_format, output_pixel_format, colors))
    return filters


def output_size(width: int, height: int, output_pixel_format: str | None, odd_size: str) -> tuple[int, int]:
    """The size of the video that frames of `width` by `height` pixels become."""
    columns, rows = subsampling(output_pixel_format or "")
    if odd_size == "pad":
        return -(-width // columns) * columns, -(-height // rows) * rows
    return width, height


def with_filters(options: Mapping[str, object], filters: Sequence[str]) -> dict[str, object]:
    """`options` with `filters` before the user's own filters, whose input they make."""
    if not filters:
        return dict(options)
    own = [str(options[name]) for name in FILTER_OPTIONS if name in options]
    others = {name: value for name, value in options.items() if name not in FILTER_OPTIONS}
    return {"filter:v": ",".join([*filters, *own]), **others}


def input_arguments(
    layout: FrameLayout, rate: Fraction, colors: Sequence[str] = (), source: str = "pipe:0"
) -> list[str]:
    """FFmpeg's arguments for raw frames, which come on its standard input."""
    return [
        # If we are killed inside a frame, drop that frame: otherwise -xerror makes FFmpeg 5.1 exit without an index.
        *("-fflags", "+discardcorrupt"),
        *("-f", "rawvideo"),
        *("-pixel_format", layout.pixel_format),
        *("-video_size", f"{layout.width}x{layout.height}"),
        *("-framerate", f"{rate.numerator}/{rate.denominator}"),
        # Above 100 frames per second, FFmpeg would guess another rate from the first times.
        *("-fpsprobesize", "0"),
        *colors,
        *("-i", source),
    ]


def stream_arguments(offset_s: int, colors: Sequence[str] = ()) -> list[str]:
    """FFmpeg's arguments for frames with times, or with sound, on its standard input: see `nut`.

    FFmpeg keeps the times, minus `offset_s`, and does not guess a rate from them.
    """
    offset = ("-itsoffset", str(-offset_s)) if offset_s else ()
    return ["-copyts", "-fpsprobesize", "0", *offset, "-f", "nut", *colors, "-i", "pipe:0"]


def output_arguments(
    output: Output,
    codec: str,
    pixel_format: str | None,
    options: Mapping[str, object],
    colors: Sequence[str] = (),
    sound: Sequence[str] = (),
) -> list[str]:
    """FFmpeg's arguments for one output, which it overwrites. `options` come last and so override the others."""
    arguments = ["-c:v", codec]
    if pixel_format is not None:
        arguments += ["-pix_fmt", pixel_format]
    arguments += [*colors, *sound]
    arguments += option_arguments({_VIDEO_OPTIONS.get(name, name): value for name, value in options.items()})
    if output.container_format is not None:
        arguments += ["-f", output.container_format]
    return [*arguments, "-y", output.argument]


def read_arguments(source: str, container: str) -> list[str]:
    """FFmpeg's arguments to read `source`, a file of that `container` by FFmpeg's names."""
    known = containers.known(container)
    literal = endpoints.literal_arguments(source) if known.has_patterns else ()
    return [*known.reading, *literal, "-i", source]


def check_without_dashes(group: str, options: Mapping[str, object]) -> None:
    """Checks that the names of the options of this argument have no dash."""
    for name, value in options.items():
        if name.startswith("-"):
            plain = argument(f"{group}.{name.lstrip('-')}", value)
            raise ValueError(f"{argument(f'{group}.{name}', value)} has a dash. Pass {plain}")


def option_arguments(options: Mapping[str, object]) -> list[str]:
    """FFmpeg's arguments for `options`, whose names have no dash.

    None stands for an option without a value. A list or a tuple repeats the option for each of its values.
    """
    arguments: list[str] = []
    for name, values in options.items():
        for value in values if isinstance(values, list | tuple) else (values,):
            arguments += [f"-{name}"] if value is None else [f"-{name}", str(value)]
    return arguments


def format_seconds(seconds: float) -> str:
    """A time for FFmpeg, in microseconds, rounded down so that a frame at exactly that time is included."""
    return f"{math.floor(seconds * 1_000_000) / 1_000_000:.6f}"


def _even_filters(layout: FrameLayout, output_pixel_format: str, odd_size: str) -> list[str]:
    width, height = output_size(layout.width, layout.height, output_pixel_format, odd_size)
    right, bottom = width - layout.width, height - layout.height
    if right > 0 or bottom > 0:
        # Repeats the last column and row, where `pad` alone would draw a dark line.
        borders = f"fillborders=right={right}:bottom={bottom}:mode=smear"
        return [f"pad={width}:{height}:0:0", borders]
    return []
