"""The jobs of the render benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.harness.methods import FrameJob

Kind = Literal["python", "chunking", "lengths", "join", "loss"]

#: Processes of the jobs that compare one with several, as the goals say.
WORKERS = 2
#: Ray nodes of the job that loses one.
NODES = 3
#: Frames of a chunk in the jobs about chunking; the first one is the default, for which the goals hold.
CHUNK_FRAMES = (240, 120, 60, 30)
FRAMES_PER_S = 30


@dataclass(frozen=True)
class Job(FrameJob):
    """A video that is rendered in several ways, or a part of that."""

    kind: Kind
    #: Of the video's `Encoder`.
    encoder: Mapping[str, Any] = field(default_factory=dict, hash=False)
    #: Whether files are on a disk instead of in memory.
    on_disk: bool = False

    @property
    def chunks(self) -> int:
        """How many chunks of a second are joined."""
        return self.frames // FRAMES_PER_S

    @property
    def title(self) -> str:
        size = f"{self.width}x{self.height}"
        moving = f"{self.name}: {self.frames} frames of {size} of a moving picture, {dict(self.encoder)}"
        return {
            "python": f"{self.name}: {self.frames} frames of {size} by a loop of Python",
            "chunking": moving,
            "lengths": moving,
            "join": f"{self.name}: {self.chunks} chunks of {size} and a second each, "
            f"{'until they are on the disk' if self.on_disk else 'in shared memory'}",
            "loss": f"{self.name}: {self.frames} frames by {NODES} Ray nodes, throttled to their shares of the CPUs",
        }[self.kind]

    @property
    def timeout_s(self) -> float:
        """A case that takes longer has hung."""
        return 600.0


ULTRAFAST = {"preset": "ultrafast"}
JOBS = (
    Job("python", 320, 180, 900, "python", ULTRAFAST),
    Job("chunking", 1280, 720, 3600, "chunking", {"preset": "medium"}),
    Job("chunk-lengths", 1280, 720, 960, "lengths", {"preset": "medium"}),
    Job("bit-rate", 1280, 720, 960, "lengths", {"preset": "medium", "options": {"b:v": "3M"}}),
    Job("join", 1920, 1080, 30_000, "join", ULTRAFAST),
    Job("join-disk", 1920, 1080, 30_000, "join", ULTRAFAST, on_disk=True),
    Job("node-loss", 320, 180, 2400, "loss", ULTRAFAST),
)
QUICK_JOBS = (
    Job("python", 320, 180, 60, "python", ULTRAFAST),
    Job("chunk-lengths", 320, 180, 240, "lengths", {"preset": "medium"}),
    Job("join", 640, 360, 1500, "join", ULTRAFAST),
)
