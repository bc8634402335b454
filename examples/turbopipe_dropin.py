"""A program written for TurboPipe, with one line changed: the import.

    python examples/turbopipe_dropin.py --output squares.mp4

All else is as TurboPipe's users have it: ModernGL buffers, an FFmpeg of their own, and the descriptor of its
standard input. A version with `penstock.Encoder` is shorter and reports why FFmpeg failed.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import moderngl

import penstock.turbopipe as turbopipe
from penstock.video import find_ffmpeg

BUFFERS = 3


def main() -> None:
    options = parse_options()
    width, height = options.size
    context = moderngl.create_context(standalone=True, backend="egl")
    framebuffer = context.simple_framebuffer((width, height), components=3)
    buffers = [context.buffer(reserve=3 * width * height) for _ in range(BUFFERS)]
    process = subprocess.Popen(ffmpeg_command(options), stdin=subprocess.PIPE)

    for index in range(options.frames):
        buffer = buffers[index % BUFFERS]
        turbopipe.sync(buffer)  # until its last frame is written
        draw(framebuffer, index)
        framebuffer.read_into(buffer)
        turbopipe.pipe(buffer, process.stdin.fileno())

    turbopipe.close()
    process.stdin.close()
    if process.wait() != 0:
        raise SystemExit(f"FFmpeg ended with {process.returncode}")
    print(f"{options.output}: {options.frames} frames")


def draw(framebuffer: moderngl.Framebuffer, index: int) -> None:
    """A red square that walks along the diagonal of a blue picture."""
    width, height = framebuffer.size
    side = height // 4
    step = index % (height - side)
    framebuffer.clear(0.1, 0.2, 0.6)
    framebuffer.clear(0.9, 0.2, 0.1, viewport=(step * (width - side) // (height - side), step, side, side))


def ffmpeg_command(options: argparse.Namespace) -> list[str]:
    size = "x".join(map(str, options.size))
    return [
        *(find_ffmpeg(), "-hide_banner", "-loglevel", "error", "-y"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(options.fps), "-i", "-"),
        *("-vf", "vflip", "-c:v", "libx264", "-pix_fmt", "yuv420p", str(options.output)),
    ]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Renders a walking square through the TurboPipe drop-in.")
    parser.add_argument("--output", type=Path, default=Path("turbopipe_dropin.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
