"""Pictures of OpenGL into an Encoder: how long the thread that draws is held up.

A shader is drawn into a framebuffer 30 times a second, and FFmpeg encodes the pictures (x264 ultrafast) to nowhere. By
default: 720p, 5 rounds; 2 minutes. A method whose pictures arrive late, twice or in another order is an error; the exit
status is then 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.accounts import accounted
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.files import folder_in_memory
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.methods import FrameJob, Methods
from benchmarks.harness.options import FRAMES, SIZE
from benchmarks.harness.results import Group, Measure, Run
from benchmarks.harness.senders import note_quantiles
from penstock import Decoder, Encoder
from penstock.gl import Capture
from penstock.video import EncoderSettings

FRAMES_PER_S = 30
SHADER = """
#version 330
uniform float time;
out vec3 color;
void main() {
    vec2 p = gl_FragCoord.xy / 90.0;
    color = 0.5 + 0.5 * cos(sin(p.x + time) + sin(p.y - time) + length(p - 4.0) + vec3(0.0, 2.0, 4.0));
}
"""
TRIANGLE = """
#version 330
void main() {
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""

#: Takes the picture that was drawn.
Take = Callable[[], object]
METHODS = Methods()
NEEDS = ("moderngl",)


@METHODS.add("read+write", needs=NEEDS)
def read_and_write(framebuffer: Any, encoder: Encoder, _stack: ExitStack) -> Take:
    """``encoder.write(framebuffer.read())``."""
    return lambda: encoder.write(framebuffer.read(components=3))


@METHODS.add("frame", "ours", needs=NEEDS)
def frame(framebuffer: Any, encoder: Encoder, _stack: ExitStack) -> Take:
    """``framebuffer.read_into`` memory of the encoder."""

    def take() -> None:
        with encoder.lease() as view:
            framebuffer.read_into(view, components=3)

    return take


@METHODS.add("capture-1", "ours", needs=NEEDS)
def capture_1(framebuffer: Any, encoder: Encoder, stack: ExitStack) -> Take:
    """`penstock.gl.Capture` with one buffer."""
    return stack.enter_context(Capture(framebuffer, encoder, buffers=1)).take


@METHODS.add("capture-3", "ours", needs=NEEDS)
def capture_3(framebuffer: Any, encoder: Encoder, stack: ExitStack) -> Take:
    """`penstock.gl.Capture` with its three buffers."""
    return stack.enter_context(Capture(framebuffer, encoder)).take


@dataclass(frozen=True)
class Job(FrameJob):
    """Pictures at a constant rate."""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.frames} pictures, {FRAMES_PER_S} a second"


JOBS = (Job("720p", 1280, 720, 90),)


def make_framebuffer(job: Job) -> Any:
    """Of a context of its own."""
    import moderngl

    context = moderngl.create_context(standalone=True, backend="egl")  # type: ignore[arg-type]
    return context.simple_framebuffer(job.size, components=3)


@contextmanager
def started(task: Task[Job], framebuffer: Any, path: Path, **more: Any) -> Iterator[tuple[Encoder, Take]]:
    """An encoder, and the method that takes pictures for it."""
    settings = EncoderSettings(ffmpeg=task.ffmpeg)
    encoder = Encoder(path, size=task.job.size, fps=FRAMES_PER_S, vflip=True, settings=settings, **more)
    with encoder, ExitStack() as stack:
        yield encoder, task.method.start(framebuffer, encoder, stack)


def measure(task: Task[Job]) -> Run:
    """Time one run."""
    task.load()
    run, framebuffer = Run(), make_framebuffer(task.job)
    framebuffer.use()
    program = framebuffer.ctx.program(vertex_shader=TRIANGLE, fragment_shader=SHADER)
    triangle = framebuffer.ctx.vertex_array(program, [])
    how: dict[str, Any] = {"preset": "ultrafast", "options": {"f": "null"}}
    drawing_s, taking_s = [], []
    with accounted(run), started(task, framebuffer, Path(os.devnull), **how) as (encoder, take):
        started_s = time.perf_counter()
        for number in range(task.job.frames):
            time.sleep(max(0.0, started_s + number / FRAMES_PER_S - time.perf_counter()))
            before_s = time.perf_counter()
            program["time"] = number / FRAMES_PER_S
            triangle.render(vertices=3)
            drawn_s = time.perf_counter()
            take()
            taking_s.append(time.perf_counter() - drawn_s)
            drawing_s.append(time.perf_counter() - before_s)
    # On a GPU, a method that waits for the picture waits for its drawing as well.
    note_quantiles(run, "taking", taking_s, p50=0.5, p99=0.99)
    note_quantiles(run, "drawing_and_taking", drawing_s, p50=0.5, p99=0.99)
    run.notes["renderer"] = framebuffer.ctx.info["GL_RENDERER"]
    assert encoder.report is not None
    run.count_frames(task.job.frames, encoder.report.frames_encoded)
    return run


def check(task: Task[Job]) -> Run:
    """Draw pictures of one color each, and compare what comes out of a lossless video."""
    task.load()
    framebuffer = make_framebuffer(task.job)
    path = Path(task.folder) / "check.mkv"
    with started(task, framebuffer, path, codec="ffv1") as (_, take):
        for number in range(task.job.frames):
            framebuffer.clear(number / 255, 0.0, 0.0)
            take()
    with Decoder(path) as decoder:
        reds = [float(frame[..., 0].mean()) for frame in decoder]
    expected = [float(number) for number in range(task.job.frames)]
    return Run(error=None if reds == expected else f"red was {reds}, and not {expected}")


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """A folder for the checked video. Afterwards the group names its renderer."""
    with folder_in_memory() as folder:
        yield isolated(job, ffmpeg, measure, check, folder=folder)
    renderers = {row.notes["renderer"] for row in group.rows if "renderer" in row.notes}
    group.about["renderer"] = ", ".join(sorted(renderers))
    group.title += f", {group.about['renderer']}"


BENCHMARK = Benchmark(
    "capture",
    settings=JobSettings(JOBS, METHODS),
    quick=JobSettings([replace(JOBS[0], frames=30)], METHODS, rounds=2),
    quick_help="Half a minute: 30 pictures, 2 rounds.",
    prepare=prepare,
    options=[SIZE, FRAMES],
    figures=["drawing_and_taking_p50_ms"],
    standards=["read+write"],
)
main = BENCHMARK.command(__name__, __doc__)
