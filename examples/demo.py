"""The demo: ten seconds of an animated shader, rendered, encoded, and accounted for.

    python examples/demo.py

It renders with ModernGL where an OpenGL context can be had, else it paints with NumPy, and says which and
why. At the end it prints where the video is and what was delivered.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy_loop import WavePainter
from rich.console import Console

from penstock import Encoder

CODEC_OPTIONS = {"preset": "superfast", "crf": 18, "movflags": "+faststart"}


class Painter(Protocol):
    name: str

    def paint(self, frame: np.ndarray, time_s: float) -> None: ...


def main() -> None:
    options = parse_options()
    # Where there is no terminal, rich would break long paths at 80 columns.
    console = Console(soft_wrap=True, highlight=False, markup=False)
    painter, reason = make_painter(options)
    console.print(f"Painting with {painter.name} ({reason})")
    encoder = encode(options, painter)
    console.print(summary(options, encoder))


def make_painter(options: argparse.Namespace) -> tuple[Painter, str]:
    """The shader if this machine can draw it, else the waves; and why."""
    if options.painter == "numpy":
        return WavePainter(*options.size), "as asked for"
    try:
        from moderngl_loop import ShaderPainter

        return ShaderPainter(*options.size), "OpenGL was found"
    except Exception as error:  # glcontext raises bare Exceptions, and libraries may be missing
        if options.painter == "moderngl":
            raise
        return WavePainter(*options.size), f"no OpenGL context: {error}"


def encode(options: argparse.Namespace, painter: Painter) -> Encoder:
    """Paints all frames into the video, and returns the closed encoder."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    width, height = options.size
    total = round(options.seconds * options.fps)
    with Encoder(
        options.output,
        size=(width, height),
        fps=options.fps,
        options=CODEC_OPTIONS,
        progress=total,
    ) as encoder:
        for index in range(total):
            with encoder.lease() as view:  # memory of the encoder's own, which saves a copy
                painter.paint(view, index / options.fps)
    return encoder


def summary(options: argparse.Namespace, encoder: Encoder) -> str:
    report, stats = encoder.close(), encoder.stats
    size = "x".join(map(str, options.size))
    seconds = report.frames_encoded / options.fps
    return (
        f"{report.output}\n"
        f"  video      {seconds:g} s of {size} at {options.fps} fps, {megabytes(report.output_bytes)}\n"
        f"  delivered  {report.frames_submitted} frames submitted, {report.frames_encoded} encoded, "
        f"{megabytes(report.bytes_submitted)} of pixels\n"
        f"  transport  {stats.writer.transport}: {stats.writer.reason}\n"
        f"  bottleneck {stats.bottleneck or 'nobody clearly'}\n"
        f"  took       {report.elapsed_s:.1f} s, {report.fps:.1f} frames per second"
    )


def megabytes(nbytes: int | None) -> str:
    return "no file" if nbytes is None else f"{nbytes / 1e6:,.1f} MB"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Renders an animated picture into a video.")
    parser.add_argument("--output", type=Path, default=Path("build/demo.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1920, 1080), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fps", type=int, default=60)
    parser.add_argument("--painter", choices=("auto", "moderngl", "numpy"), default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    main()
