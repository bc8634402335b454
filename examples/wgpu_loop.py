"""A wgpu-py rendering loop that ends in a video: an animated shader, without a window.

    python examples/wgpu_loop.py --output rings.mp4

`penstock.gl.Capture` takes any renderer with `start_read`. Here it begins to copy the drawn texture into a buffer,
which is mapped a few frames later, when the GPU is done with it.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

import numpy as np
import wgpu

from penstock import Encoder
from penstock.gl import Capture

SHADER = """
struct Scene { size: vec2f, time: f32, pad: f32 };
@group(0) @binding(0) var<uniform> scene: Scene;

@vertex
fn corner(@builtin(vertex_index) index: u32) -> @builtin(position) vec4f {
    // One triangle that covers the picture.
    return vec4f(select(-1.0, 3.0, index == 1u), select(-1.0, 3.0, index == 2u), 0.0, 1.0);
}

@fragment
fn color(@builtin(position) at: vec4f) -> @location(0) vec4f {
    let p = (2.0 * at.xy - scene.size) / scene.size.y;
    let rings = sin(9.0 * length(p + 0.4 * vec2f(cos(scene.time), sin(scene.time))) - 4.0 * scene.time);
    return vec4f(0.5 + 0.4 * cos(2.0 * rings + vec3f(0.0, 1.5, 3.0)), 1.0);
}
"""
# WebGPU copies textures in rows of a multiple of this.
ROW_BYTES = 256


class Renderer:
    """Draws a shader into a texture; raises an `Exception` where there is no adapter."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self.row_bytes = -(-4 * width // ROW_BYTES) * ROW_BYTES
        adapter = wgpu.gpu.request_adapter_sync()
        self.name = f"wgpu on {adapter.info['device']}"
        self.device = adapter.request_device_sync()
        usage = wgpu.TextureUsage.RENDER_ATTACHMENT | wgpu.TextureUsage.COPY_SRC
        self.texture = self.device.create_texture(size=(width, height, 1), format="rgba8unorm", usage=usage)
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        self.scene = self.device.create_buffer(size=16, usage=usage)
        shader = self.device.create_shader_module(code=SHADER)
        self.pipeline = self.device.create_render_pipeline(
            layout="auto",
            vertex={"module": shader, "entry_point": "corner"},
            fragment={"module": shader, "entry_point": "color", "targets": [{"format": "rgba8unorm"}]},
            primitive={"topology": "triangle-list"},
        )
        binding = {"binding": 0, "resource": {"buffer": self.scene}}
        self.group = self.device.create_bind_group(
            layout=self.pipeline.get_bind_group_layout(0), entries=[binding]
        )

    def draw(self, time_s: float) -> None:
        """Draws the picture at `time_s`."""
        self.device.queue.write_buffer(self.scene, 0, struct.pack("ffff", *self.size, time_s, 0.0))
        commands = self.device.create_command_encoder()
        target = {"view": self.texture.create_view(), "load_op": "clear", "store_op": "store"}
        draw = commands.begin_render_pass(color_attachments=[target])
        draw.set_pipeline(self.pipeline)
        draw.set_bind_group(0, self.group)
        draw.draw(3)
        draw.end()
        self.device.queue.submit([commands.finish()])

    def start_read(self) -> Reading:
        """Begins to read the picture that was drawn last."""
        return Reading(self)


class Reading:
    """A picture on its way into a buffer."""

    def __init__(self, renderer: Renderer) -> None:
        width, height = renderer.size
        self.row_bytes = renderer.row_bytes
        usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
        self.buffer = renderer.device.create_buffer(size=self.row_bytes * height, usage=usage)
        commands = renderer.device.create_command_encoder()
        commands.copy_texture_to_buffer(
            {"texture": renderer.texture},
            {"buffer": self.buffer, "bytes_per_row": self.row_bytes, "rows_per_image": height},
            (width, height, 1),
        )
        renderer.device.queue.submit([commands.finish()])

    def read_into(self, view: np.ndarray) -> None:
        """Waits for the picture, and copies it without the bytes that fill up its rows."""
        height, width, channels = view.shape
        self.buffer.map_sync(wgpu.MapMode.READ)
        rows = np.frombuffer(self.buffer.read_mapped(copy=False), np.uint8).reshape(height, self.row_bytes)
        view[:] = rows[:, : width * channels].reshape(view.shape)
        self.buffer.destroy()


def main() -> None:
    options = parse_options()
    width, height = options.size
    renderer = Renderer(width, height)
    encoder = Encoder(options.output, size=(width, height), fps=options.fps, pixel_format="rgb0")
    with encoder, Capture(renderer, encoder) as capture:
        for index in range(options.frames):
            renderer.draw(index / options.fps)
            capture.take()
    print(renderer.name)
    print(encoder.close())


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Renders an animated shader with wgpu-py into a video.")
    parser.add_argument("--output", type=Path, default=Path("wgpu_loop.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
