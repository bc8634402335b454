"""A ModernGL rendering loop that ends in a video: an animated shader, headless through EGL.

    python examples/moderngl_loop.py --output silk.mp4

The picture is read from the GPU into memory of the encoder's own, which `Encoder.lease` leases: no other copy is
made of a frame, and the encoder may hand FFmpeg its very pages.

On a GPU, `penstock.gl.Capture` does not wait for the picture: it reads into buffers in turn, and hands each one over a
few frames later.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import moderngl
import numpy as np

from penstock import Encoder

# One triangle that covers the picture.
VERTEX_SHADER = """
#version 330
void main() {
    vec2 corner = vec2(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0);
    gl_Position = vec4(corner, 0.0, 1.0);
}
"""

# Folds the plane a few times, colors it by where a point ends up, and lights the slopes like silk.
FRAGMENT_SHADER = """
#version 330
uniform vec2 size;
uniform float time;
out vec3 color;

// A sine of parabolas: near enough, and cheaper where a CPU draws it (1080p on two cores: 29 ms, not 46).
vec3 wave(vec3 x) {
    vec3 turn = 2.0 * fract(x / 6.2831853) - 1.0;
    return 4.0 * turn * (abs(turn) - 1.0);
}

void main() {
    // GL counts rows from the bottom, video from the top.
    vec2 screen = vec2(2.0 * gl_FragCoord.x - size.x, size.y - 2.0 * gl_FragCoord.y) / size.y;
    vec2 p = 1.3 * screen;
    for (float i = 1.0; i < 4.0; i += 1.0) {
        p += 0.65 / i * wave(vec3(i * 1.8 * p.yx + vec2(0.55, 0.4) * time + vec2(i, 1.7 * i), 0.0)).xy;
    }
    float height = wave(vec3(p.x + 1.3 * p.y)).x;
    vec2 slope = vec2(dFdx(height), dFdy(height)) * size.y * 0.22;
    float light = (1.0 + 0.9 * slope.x + 0.6 * slope.y) * inversesqrt(1.0 + dot(slope, slope));
    vec3 hue = 0.5 + 0.5 * wave(vec3(1.8, 2.7, 3.6) + 0.8 * p.x + 0.25 * time);
    float vignette = 1.0 - 0.11 * dot(screen, screen);
    float shine = max(light - 0.5, 0.0);
    color = hue * (0.35 + 0.55 * max(light, 0.0)) * vignette + 0.18 * shine * shine;
}
"""


class ShaderPainter:
    """Paints a shader into NumPy arrays; raises an `Exception` where no OpenGL context can be had."""

    def __init__(self, width: int, height: int) -> None:
        self._context = moderngl.create_context(standalone=True, backend="egl")
        self._program = self._context.program(VERTEX_SHADER, FRAGMENT_SHADER)
        self._program["size"] = (width, height)
        self._triangle = self._context.vertex_array(self._program, [])
        self._framebuffer = self._context.simple_framebuffer((width, height), components=3)
        self._framebuffer.use()
        self.name = f"ModernGL on {self._context.info['GL_RENDERER']}"

    def paint(self, frame: np.ndarray, time_s: float) -> None:
        """Paints the picture at `time_s` into `frame`, height × width × 3 of uint8."""
        self._program["time"] = time_s
        self._triangle.render(moderngl.TRIANGLES, vertices=3)
        self._framebuffer.read_into(frame, components=3)


def main() -> None:
    options = parse_options()
    width, height = options.size
    painter = ShaderPainter(width, height)
    with Encoder(options.output, size=(width, height), fps=options.fps) as encoder:
        for index in range(options.frames):
            with encoder.lease() as frame:
                painter.paint(frame, index / options.fps)
    print(painter.name)
    print(encoder.close())


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Renders an animated shader with ModernGL into a video.")
    parser.add_argument("--output", type=Path, default=Path("moderngl_loop.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
