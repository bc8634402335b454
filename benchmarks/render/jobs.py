"""The jobs of the render benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.methods import FrameJob

#: Processes of the jobs that compare one with several.
WORKERS = 2
#: Frames of a chunk in the job about chunks; the first one is the default.
CHUNK_FRAMES = (240, 60, 30)
FRAMES_PER_S = 30


@dataclass(frozen=True)
class Job(FrameJob):
    """A video that is rendered in several ways, or a part of that."""

    #: Of the video's `Encoder`.
    encoder: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> str:
        """What the methods serve."""
        return self.name

    @property
    def chunks(self) -> int:
        """How many chunks of a second are joined."""
        return self.frames // FRAMES_PER_S

    @property
    def title(self) -> str:
        size = f"{self.width}x{self.height}"
        what = {
            "python": f"{self.frames} frames of {size} by a loop of Python",
            "chunk-lengths": f"{self.frames} frames of {size} of rendered motion with noise, {dict(self.encoder)}",
            "join": f"{self.chunks} chunks of {size} and a second each, in shared memory",
        }
        return f"{self.name}: {what[self.name]}"

    @property
    def timeout_s(self) -> float:
        """A case that takes longer has hung."""
        return 600.0


ULTRAFAST, MEDIUM = {"preset": "ultrafast"}, {"preset": "medium"}
JOBS = (
    Job("python", 320, 180, 900, ULTRAFAST),
    Job("chunk-lengths", 640, 360, 960, MEDIUM),
    # Chunks of some 3 MB.
    Job("join", 1920, 1080, 30_000, ULTRAFAST | {"crf": 20}),
)
QUICK_JOBS = (
    Job("python", 320, 180, 60, ULTRAFAST),
    Job("chunk-lengths", 320, 180, 240, MEDIUM),
    Job("join", 640, 360, 1500, ULTRAFAST),
)
