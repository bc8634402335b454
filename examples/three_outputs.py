"""One render, three outputs: a video to watch, an archive without loss, and a program that gets the raw frames.

    python examples/three_outputs.py --output waves.mp4

`FanOut` copies each frame once. The video and the archive get every frame; the program misses those for which it has no
room.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy_loop import WavePainter

from penstock import Encoder, FanOut, Writer

# Any program that reads frames from its standard input. This one measures how bright they are.
CONSUMER = """
import sys
import numpy as np

frame_bytes = int(sys.argv[1])
levels = []
while frame := sys.stdin.buffer.read(frame_bytes):
    levels.append(np.frombuffer(frame, np.uint8).mean())
print(f"{len(levels)} raw frames, mean brightness {np.mean(levels):.1f}")
"""


def main() -> None:
    options = parse_options()
    width, height = options.size
    painter = WavePainter(width, height)
    frame = np.empty((height, width, 3), np.uint8)
    archive = Encoder(options.output.with_suffix(".archive.mkv"), fps=options.fps, codec="ffv1")
    video = Encoder(options.output, fps=options.fps, preset="veryfast")
    consumer = subprocess.Popen([sys.executable, "-c", CONSUMER, str(frame.nbytes)], stdin=subprocess.PIPE)
    assert consumer.stdin is not None
    raw = Writer(consumer.stdin)
    consumer.stdin.close()  # the writer has its own
    with FanOut([archive, video]) as fan_out:
        fan_out.add(raw, when_full="drop")
        for index in range(options.frames):
            painter.paint(frame, index / options.fps)
            fan_out.write(frame)
    consumer.wait()
    for report in fan_out.reports:
        print(f"{report.output}: {report.frames_taken} frames, {len(report.dropped)} dropped")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Paints moving waves for three outputs at once.")
    parser.add_argument("--output", type=Path, default=Path("three_outputs.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
