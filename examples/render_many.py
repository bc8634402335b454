"""One video by many workers: the Mandelbrot set, deeper with each frame, in plain NumPy.

    python examples/render_many.py --output mandelbrot.mp4
    python examples/render_many.py --output mandelbrot.mp4 --engine ray --storage s3://bucket/chunks

Each frame is drawn from its index alone, so that any worker can draw any of them. Interrupt it and start it again: it
goes on from the chunks that are done.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import penstock

FPS = 30
CENTER = complex(-0.743643887, 0.131825904)


def mandelbrot(index: int, time_s: float, view: np.ndarray) -> None:
    """Draws how fast each point escapes. The picture becomes twice as large each second."""
    height, width, _ = view.shape
    y, x = np.ogrid[:height, :width]
    scale = 3 * 2**-time_s / height
    point = CENTER + scale * ((x - width / 2) + 1j * (y - height / 2))
    value, steps = np.zeros_like(point), np.zeros(point.shape, np.uint8)
    for _ in range(60):
        near = np.abs(value) < 2
        value[near] = value[near] ** 2 + point[near]
        steps += near
    view[..., 0] = 4 * steps
    view[..., 1] = 128 + 127 * np.sin(0.3 * steps)
    view[..., 2] = 255 - 4 * steps


def main() -> None:
    options = parse_options()
    report = penstock.render(
        mandelbrot,
        frames=options.frames,
        size=tuple(options.size),
        fps=FPS,
        output=options.output,
        engine=options.engine,
        workers=options.workers,
        storage=options.storage,
        progress=True,
    )
    print(f"{report.output}: {report.frames} frames in {report.chunks} chunks, {report.fps:.1f} a second")
    for worker in report.workers:
        print(f"{worker.worker}: {worker.frames} frames")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("mandelbrot.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--engine", choices=["processes", "ray"], default="processes")
    parser.add_argument("--workers", type=int, help="how many at most")
    parser.add_argument("--storage", help="a folder or a URL that all workers reach")
    return parser.parse_args()


if __name__ == "__main__":
    main()
