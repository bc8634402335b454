"""What every method has to read, and the goals."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from benchmarks.harness.content import Content
from benchmarks.harness.goals import Goal
from benchmarks.harness.methods import FrameJob
from benchmarks.harness.options import by_name

#: Options of the encoders, set so that the record has them. libx264's and libx265's are their own defaults.
ENCODERS: dict[str, dict[str, Any]] = {
    "libx264": {"preset": "medium", "crf": 23},
    "libx265": {"preset": "medium", "crf": 23},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": 6, "row-mt": 1, "b:v": "4M"},
    "libsvtav1": {"preset": 10, "crf": 35},
}
#: About so many rows of a frame are sampled, and pixels of a row at the same distance.
SAMPLED_ROWS = 64
#: Frames of a batch, and of a file of which only the first frame is read.
BATCH_FRAMES, FIRST_OF_FRAMES = 30, 60
#: What an unprivileged process may have (pipe-max-size in proc(5)).
LARGE_PIPE_BYTES = 1 << 20

#: Gains are ratios to this method, for each kind of source.
STANDARD, PIPE_STANDARD, PICKED_STANDARD = "pyav-threaded", "readinto", "opencv-seeks"
SAMPLES_STANDARD = "opencv-samples"
#: Nobody decodes faster in the process.
BOUND = "pyav-no-conversion"

#: How frames are read: all in sequence by every library, or by the quick ones; the same beside a Python thread that
#: never sleeps; in batches, one after another; from several files; the first of a file, which is opened again and
#: again; from anywhere in a file; some at the same distance, as a data loader does, of a file that is opened for them;
#: the same of one that stays open; or from a pipe.
#: Or windows of sound, or clips by workers.
Kind: TypeAlias = Literal[
    "survey",
    "file",
    "busy",
    "batches",
    "clips",
    "first",
    "picked",
    "samples",
    "windows",
    "pipe",
    "sound-aac",
    "sound-flac",
    "dataset",
]
#: FFmpeg's sources ``testsrc2`` and ``mandelbrot``, or a film.
Shown: TypeAlias = Content | Literal["testsrc2", "mandelbrot"]


@dataclass(frozen=True)
class Job(FrameJob):
    """The frames that every method has to read."""

    kind: Kind = "file"
    #: Of the file. The frames in a pipe are raw.
    encoder: str = "libx264"
    content: Shown = "motion"
    video_pixel_format: str = "yuv420p"
    #: Width and height of the arrays, if they are not those of the file.
    scaled_to: tuple[int, int] | None = None
    #: How many CPUs the method has; None for all.
    cpus: int | None = None
    #: So many files have the same number of frames each.
    clips: int = 1
    #: The file has so many frames, of which some are read; 0 for all of them.
    file_frames: int = 0
    #: Distance of keyframes; 0 for the encoder's default.
    gop: int = 0
    #: So many frames are wanted at once, and their distance. They begin anywhere in the file, or with its first frame.
    sample_frames: int = 1
    apart: int = 1
    from_anywhere: bool = True
    goals: tuple[Goal, ...] = ()

    @property
    def numbers(self) -> list[int]:
        """Which frames are picked, the same in every run."""
        if self.kind in ("samples", "windows"):
            return [number for sample in self.samples for number in sample]
        return random.Random(0).sample(range(self.file_frames), self.frames)

    @property
    def samples(self) -> list[list[int]]:
        """The same for each time that some are wanted at once."""
        anywhere, span = random.Random(0), (self.sample_frames - 1) * self.apart + 1
        last = self.file_frames - span if self.from_anywhere else 0
        firsts = [anywhere.randint(0, last) for _ in range(self.frames // self.sample_frames)]
        return [[*range(first, first + span, self.apart)] for first in firsts]

    @property
    def openings(self) -> list[list[list[int]]]:
        """The same for each time that the file is opened."""
        return [self.samples] if self.kind == "windows" else [[sample] for sample in self.samples]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an array: height × width × channels."""
        width, height = self.scaled_to or self.size
        return height, width, 3

    @property
    def sample_step(self) -> int:
        """The distance of sampled rows, and of sampled pixels."""
        # All pixels of small arrays: edges that were shrunk in another way cancel out only in the mean of many.
        return 1 if self.scaled_to else max(1, self.height // SAMPLED_ROWS)

    @property
    def title(self) -> str:
        of_kind = {
            "busy": " beside a busy Python thread",
            "batches": f" in batches of {BATCH_FRAMES}",
            "clips": f" in {self.clips} files",
            "first": ", the first one each time",
            "picked": f" at random of {self.file_frames}, a keyframe each {self.gop}",
            "samples": f", {self.sample_frames} of {self.file_frames} each time, {self.apart} apart",
            "dataset": f", {self.sample_frames} of each of {self.clips} files, {self.apart} apart, by workers",
            "windows": f", {self.sample_frames} of {self.file_frames} at once, {self.apart} apart",
        }
        scaled = f" to {self.shape[1]}x{self.shape[0]} (bicubic)" if self.scaled_to else ""
        cpus = f", on {self.cpus} CPU" if self.cpus else ""
        source = "from another process's write(2)" if self.kind == "pipe" else f"of {self.encoder}"
        what = f"{self.width}x{self.height} {self.content} {source}{scaled}"
        return f"{self.name}: {what}, {self.frames} frames{of_kind.get(self.kind, '')}{cpus}"

    @property
    def about(self) -> dict[str, Any]:
        about = super().about | {"options": ENCODERS.get(self.encoder)}
        del about["goals"]
        return about


def faster_than(**ratios: float) -> tuple[Goal, ...]:
    """So many times the speed of PyAV with threads, of OpenCV, decord and torchcodec, or what the bound leaves."""
    others = {"pyav": STANDARD, "opencv": "opencv", "decord": "decord", "torchcodec": "torchcodec"}
    return tuple(Goal("penstock", others[name], ratio, bound=BOUND) for name, ratio in ratios.items())


def for_each_content(job: Job, survey: Shown | None = None) -> Iterator[Job]:
    """The job with each content; with one of them, by every library."""
    contents: tuple[Shown, ...] = ("testsrc2", "mandelbrot", "motion")
    for content in contents:
        kind = "survey" if content == survey else job.kind
        yield replace(job, name=f"{job.name}-{content}", content=content, kind=kind)


LITTLE_MEMORY = Goal("penstock", STANDARD, 1.2, "at most", "peak_own_bytes")
SOON = Goal("penstock", STANDARD, 1.3, "at most", "first_frame_s")
IN_BATCHES = tuple(Goal(name, "penstock", 0.95) for name in ("penstock-batches", "penstock-batches-out"))
AS_FAST_AS_OPENCV = faster_than(pyav=1.05, opencv=1.0)
# Threads that decode ahead gain more where there are more of them.
HAS_16_CPUS = len(os.sched_getaffinity(0)) >= 16
IN_SEQUENCE = faster_than(pyav=1.3 if HAS_16_CPUS else 1.15, opencv=1.1)

# Less than a second for each run, on 2 cores: there are many.
IN_SEQUENCE_JOBS = (
    *for_each_content(
        Job("h264-1080p", 1920, 1080, 150, goals=(*IN_SEQUENCE, LITTLE_MEMORY)), survey="motion"
    ),
    *for_each_content(Job("h264-1080p-one-core", 1920, 1080, 75, cpus=1, goals=faster_than(pyav=0.95))),
    *for_each_content(
        Job(
            "hevc-10-bit-1080p",
            1920,
            1080,
            75,
            encoder="libx265",
            video_pixel_format="yuv420p10le",
            goals=faster_than(pyav=1.4, opencv=1.2),
        ),
    ),
    *for_each_content(Job("h264-2160p", 3840, 2160, 40, goals=AS_FAST_AS_OPENCV)),
    *for_each_content(Job("vp9-1080p", 1920, 1080, 100, encoder="libvpx-vp9", goals=AS_FAST_AS_OPENCV)),
    *for_each_content(Job("av1-1080p", 1920, 1080, 100, encoder="libsvtav1", goals=AS_FAST_AS_OPENCV)),
    *for_each_content(Job("h264-720p-to-224", 1280, 720, 200, scaled_to=(224, 224), goals=AS_FAST_AS_OPENCV)),
)
#: The distance of keyframes, and the least that `Decoder.batch` and ``decoder[number]`` have to be by ``pyav-seeks``:
#: as fast as when only frames by number were read in the process. Measured 2026-11-27 on two cores of an EPYC, 3 rounds
#: (1.03 and 0.84, 2.15 and 0.97, 5.29 and 1.08, 13.7 and 1.51), and rounded down by what two runs differed.
PICKED_AS_BEFORE = {12: (1.0, 0.8), 60: (2.0, 0.8), 250: (5.0, 1.0), 600: (12.0, 1.3)}


def samples(
    name: str, frames: int, sample_frames: int, apart: int = 1, ratio: float = 1.2, **more: Any
) -> Job:
    """A data loader's, in 480p, by so many times the speed of each rival."""
    rivals = (SAMPLES_STANDARD, "pyav-samples", "decord-samples", "torchcodec-samples", "spdl-samples")
    settings: dict[str, Any] = {"kind": "samples", "file_frames": 300, "gop": 250, "scaled_to": (224, 224)}
    goals = tuple(Goal("penstock-samples", rival, ratio) for rival in rivals)
    return Job(
        name, 854, 480, frames, sample_frames=sample_frames, apart=apart, goals=goals, **settings | more
    )


JOBS = (
    *IN_SEQUENCE_JOBS,
    Job("busy-thread", 1920, 1080, 75, "busy", goals=faster_than(pyav=1.0)),
    Job("batches", 1920, 1080, 600, "batches", goals=IN_BATCHES),
    Job(
        "clips-480p",
        854,
        480,
        6000,
        "clips",
        clips=200,
        goals=faster_than(pyav=1.0, opencv=1.2, decord=1.0, torchcodec=1.0),
    ),
    Job(
        "first-of-clips-480p",
        854,
        480,
        20,
        "first",
        file_frames=30,
        goals=faster_than(pyav=1.2, opencv=1.2, decord=1.2, torchcodec=1.2),
    ),
    Job("first-frame", 1920, 1080, 20, "first", file_frames=FIRST_OF_FRAMES, goals=(SOON,)),
    *(
        Job(
            f"picked-{gop}",
            640,
            360,
            40,
            "picked",
            file_frames=600,
            gop=gop,
            goals=(
                Goal("penstock-batch", "pyav-seeks", batch),
                Goal("penstock-one-by-one", "pyav-seeks", one),
            ),
        )
        for gop, (batch, one) in PICKED_AS_BEFORE.items()
    ),
    samples("sample-spread", 40, 8, 42, 1.3),
    samples("sample-every-second", 160, 16, 2),
    samples("sample-first", 20, 1, from_anywhere=False, scaled_to=None),
    samples("windows", 320, 16, 4, 1.3, kind="windows", file_frames=1800),
    Job("reader", 1920, 1080, 500, "pipe", content="noise"),
)


def _quick(name: str, frames: int, **other: Any) -> Job:
    return replace(by_name(JOBS, name), frames=frames, **other)


# Short runs, and few of them: no claim can rest on it.
QUICK_JOBS = [
    _quick("h264-1080p-testsrc2", 90),
    _quick("hevc-10-bit-1080p-testsrc2", 30),
    _quick("h264-720p-to-224-testsrc2", 120),
    _quick("busy-thread", 30),
    _quick("batches", 90),
    _quick("clips-480p", 300, clips=10),
    _quick("first-frame", 5),
    _quick("picked-60", 40),
    _quick("sample-spread", 16),
    _quick("reader", 200),
]
