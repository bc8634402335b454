"""Renders the picture at the top of the README: the shader of `make demo`, or its waves where there is no OpenGL.

    python scripts/animation.py                # writes docs/pictures/silk.webp; `make docs` runs it
    python scripts/animation.py elsewhere.webp

The animation ends where it begins. It is not committed.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from penstock import Encoder

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from demo import make_painter  # noqa: E402 - which stands there

SIZE = (640, 360)
FRAMES, FPS = 60, 15
# Measured: 454 kB with libwebp 1.2, and 602 kB at 75, FFmpeg's default. Chosen: blocks can't be seen yet.
QUALITY = 50


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures" / "silk.webp"
    painter, reason = make_painter(argparse.Namespace(painter="auto", size=SIZE))
    with Encoder(path, size=SIZE, fps=FPS, options={"quality": QUALITY}) as encoder:
        for index in range(FRAMES):
            # There and back, so that the last frame leads to the first.
            time_s = 2.5 * (1 - math.cos(2 * math.pi * index / FRAMES))
            with encoder.lease() as view:
                painter.paint(view, time_s)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB, by {painter.name} ({reason})")


if __name__ == "__main__":
    main()
