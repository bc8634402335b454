"""FFmpeg's command line, from an encoder's arguments; what is wrong with them is said here, at the call."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from errno import ENOENT
from fractions import Fraction
from pathlib import Path

from penstock.ffmpeg.pixels import FrameLayout, divides_evenly

_FILE = "file:"
_RESIZING_OPTIONS = ("vf", "filter:v", "s")
_PAD = "pad=ceil(iw/2)*2:ceil(ih/2)*2"


def checked_size(size: tuple[int, int]) -> tuple[int, int]:
    """`size` as two ints.

    Raises:
        ValueError: it is not two numbers above 0.
        TypeError: they are not integers.
    """
    width, height = (operator.index(length) for length in size)
    if width <= 0 or height <= 0:
        raise ValueError(f"size is width and height in pixels, both more than 0; got {size!r}")
    return width, height


def frame_rate(fps: int | float | Fraction) -> Fraction:
    """`fps` as the fraction that FFmpeg wants.

    Raises:
        ValueError: it is not a finite number above 0.
    """
    try:
        # The limit finds 30000/1001 in its float again, and keeps both numbers small enough for FFmpeg.
        rate = Fraction(fps).limit_denominator(1_000_000)
    except (ValueError, OverflowError):  # nan, inf
        rate = Fraction(0)
    if rate <= 0:
        raise ValueError(f"fps is frames per second, more than 0; got {fps!r}")
    return rate


def check_even(layout: FrameLayout, output_pixel_format: str | None, options: Mapping[str, object]) -> None:
    """Checks that frames of `layout` can become video in `output_pixel_format`.

    Raises:
        ValueError: they would have to be padded, and no option tells FFmpeg to.
    """
    if output_pixel_format is None or divides_evenly(output_pixel_format, layout.width, layout.height):
        return
    if any(name in options for name in _RESIZING_OPTIONS):
        return
    raise ValueError(
        f"{output_pixel_format} video has one colour sample for several pixels, and {layout.width}x"
        f"{layout.height} pixels cannot be shared out evenly: render an even size, or let FFmpeg pad it with "
        f"options={{'vf': {_PAD!r}}}, or give output_pixel_format='yuv444p', which fewer players know"
    )


def target(output: str | os.PathLike[str]) -> str:
    """What FFmpeg is told to write to: a URL as it is, a path behind the protocol that takes it literally.

    Raises:
        FileNotFoundError: the path's folder does not exist.
    """
    if isinstance(output, str) and "://" in output and not output.startswith("-"):
        return output
    path = Path(output).absolute()
    if not path.parent.is_dir():
        raise FileNotFoundError(ENOENT, "the output's folder does not exist", str(path.parent))
    return f"{_FILE}{path}"


def without_protocol(target: str) -> str:
    """The path of a local `target`, or its URL."""
    return target.removeprefix(_FILE)


def file_bytes(target: str) -> int | None:
    """The size of the file at `target`; None if it is not a regular file."""
    path = Path(without_protocol(target))
    return path.stat().st_size if path.is_file() else None


def input_arguments(layout: FrameLayout, rate: Fraction) -> list[str]:
    """FFmpeg's arguments for raw frames on its standard input, from which it then takes no commands."""
    return [
        *("-f", "rawvideo"),
        *("-pixel_format", layout.pixel_format),
        *("-video_size", f"{layout.width}x{layout.height}"),
        *("-framerate", f"{rate.numerator}/{rate.denominator}"),
        *("-i", "pipe:0"),
    ]


def output_arguments(
    target: str,
    codec: str,
    pixel_format: str | None,
    options: Mapping[str, object],
    container_format: str | None,
) -> list[str]:
    """FFmpeg's arguments for one video output, overwritten if it is there."""
    arguments = ["-c:v", codec]
    if pixel_format is not None:
        arguments += ["-pix_fmt", pixel_format]
    for name, value in options.items():
        arguments += [f"-{name}"] if value is None else [f"-{name}", str(value)]
    if container_format is not None:
        arguments += ["-f", container_format]
    return [*arguments, "-y", target]
