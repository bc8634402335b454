"""A NumPy loop that ends in a video: moving waves, colored by a palette.

    python examples/numpy_loop.py --output waves.mp4

`Encoder.write` takes a frame's bytes, so one array is painted again and again. To paint into the encoder's own
memory instead, which saves that copy, see `examples/demo.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from penstock import Encoder


class WavePainter:
    """Paints three traveling waves into NumPy arrays, by tables: about as cheap as NumPy gets."""

    name = "NumPy"

    def __init__(self, width: int, height: int) -> None:
        self._columns = np.linspace(0.0, 2.0 * np.pi * width / height, width, dtype=np.float32)
        self._rows = np.linspace(0.0, 2.0 * np.pi, height, dtype=np.float32)[:, np.newaxis]
        self._field = np.empty((height, width), np.uint8)
        turn = np.linspace(0.0, 2.0 * np.pi, 256, endpoint=False)[:, np.newaxis]
        hues = np.cos(turn + np.array([0.2, 1.1, 2.0])) * np.array([0.8, 0.9, 1.0])
        self._palette = (127.5 + 127.5 * hues).astype(np.uint8)

    def paint(self, frame: np.ndarray, time_s: float) -> None:
        """Paints the picture at `time_s` into `frame`, height × width × 3 of uint8."""
        across = 60.0 * np.sin(self._columns + 0.7 * time_s) + 35.0 * np.sin(2.3 * self._columns - time_s)
        down = 60.0 * np.sin(self._rows - 0.9 * time_s) + 40.0 * time_s
        np.add(_wrapped(across), _wrapped(down), out=self._field)
        np.take(self._palette, self._field, axis=0, out=frame, mode="clip")


def _wrapped(wave: np.ndarray) -> np.ndarray:
    """`wave` modulo 256: sums of uint8 wrap around, and so does the palette."""
    return wave.astype(np.int32).astype(np.uint8)


def main() -> None:
    options = parse_options()
    width, height = options.size
    painter = WavePainter(width, height)
    frame = np.empty((height, width, 3), np.uint8)
    with Encoder(options.output, size=(width, height), fps=options.fps) as encoder:
        for index in range(options.frames):
            painter.paint(frame, index / options.fps)
            encoder.write(frame)
    print(encoder.close())


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Paints moving waves with NumPy into a video.")
    parser.add_argument("--output", type=Path, default=Path("numpy_loop.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
