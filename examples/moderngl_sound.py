"""A ModernGL scene with a synthesized sound: a ball that is heard when it meets the floor. Headless, through EGL.

    python examples/moderngl_sound.py --output ball.mp4

The picture of a frame and the samples that last as long as it are both computed from the same time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import moderngl
import numpy as np

from penstock import Encoder
from penstock.video import AudioTrack

SAMPLE_RATE = 48_000
# From one meeting with the floor to the next.
BOUNCE_S = 0.75

# One triangle that covers the picture.
VERTEX_SHADER = """
#version 330
void main() {
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""

# The ball's shadow says how far it is from the floor.
FRAGMENT_SHADER = """
#version 330
uniform vec2 size;
uniform float height;
out vec3 color;

void main() {
    // GL counts rows from the bottom, video from the top.
    vec2 point = vec2(gl_FragCoord.x - 0.5 * size.x, 0.9 * size.y - gl_FragCoord.y) / size.y;
    vec2 from_center = (point - vec2(0.0, 0.1 + 0.6 * height)) / 0.1;
    float shadow = exp(-40.0 * dot(point * vec2(1.0, 5.0), point * vec2(1.0, 5.0)) / (0.3 + height));
    color = point.y > 0.0 ? vec3(0.10, 0.12, 0.18) : vec3(0.45, 0.40, 0.35);
    color *= 1.0 - 0.7 * shadow * (1.0 - 0.7 * height);
    float light = 0.4 + 0.6 * max(0.0, 0.7 + 0.3 * from_center.x + 0.5 * from_center.y);
    color = mix(vec3(1.0, 0.45, 0.2) * light, color, smoothstep(0.95, 1.0, length(from_center)));
}
"""


class Ball:
    """A ball that bounces for ever: its picture and its sound at any time."""

    def __init__(self, width: int, height: int) -> None:
        self._context = moderngl.create_context(standalone=True, backend="egl")
        self._program = self._context.program(VERTEX_SHADER, FRAGMENT_SHADER)
        self._program["size"] = (width, height)
        self._triangle = self._context.vertex_array(self._program, [])
        self._framebuffer = self._context.simple_framebuffer((width, height), components=3)
        self._framebuffer.use()

    def paint(self, frame: np.ndarray, time_s: float) -> None:
        """Paints the picture at `time_s` into `frame`, height × width × 3 of uint8."""
        phase = time_s / BOUNCE_S % 1
        self._program["height"] = 4 * phase * (1 - phase)
        self._triangle.render(moderngl.TRIANGLES, vertices=3)
        self._framebuffer.read_into(frame, components=3)

    def sound(self, times_s: np.ndarray) -> np.ndarray:
        """The samples at these times, in one dimension of float32: a tone that falls and fades after each meeting."""
        since_s = times_s % BOUNCE_S
        return (0.6 * np.exp(-12 * since_s) * np.sin(2 * np.pi * (220 - 90 * since_s) * since_s)).astype(
            np.float32
        )


def main() -> None:
    options = parse_options()
    width, height = options.size
    ball = Ball(width, height)
    mono = AudioTrack(SAMPLE_RATE, channels=1)
    with Encoder(options.output, size=(width, height), fps=options.fps, audio=mono) as encoder:
        for index in range(options.frames):
            with encoder.lease() as frame:
                ball.paint(frame, index / options.fps)
            # Whole samples, also where a frame does not last a whole number of them.
            first, end = (round(number * SAMPLE_RATE / options.fps) for number in (index, index + 1))
            encoder.write_audio(ball.sound(np.arange(first, end) / SAMPLE_RATE))
    print(encoder.report)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Renders a ball that is heard with ModernGL into a video.")
    parser.add_argument("--output", type=Path, default=Path("moderngl_sound.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
