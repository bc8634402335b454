"""Random clips by a PyTorch ``DataLoader`` with workers, and the memory of the workers."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.decode.checks import FRAMES_PER_S, MAX_DIFFERENCE, REFERENCE, Samples, difference
from benchmarks.decode.inputs import kept_video
from benchmarks.decode.jobs import Job
from benchmarks.decode.methods import METHODS, clips_in
from benchmarks.harness.accounts import accounted, children
from benchmarks.harness.ffmpeg import output_of
from benchmarks.harness.goals import Goal
from benchmarks.harness.isolated import Task
from benchmarks.harness.results import Run
from penstock import Decoder
from penstock.video import DecoderSettings

WORKERS, BATCH_CLIPS = 4, 4
#: How often the workers' memory is read, in seconds.
LOOK_EVERY_S = 0.02
OURS, RIVAL = "penstock-dataset", "torchcodec-dataset"

DATASET_JOB = Job(
    "dataset",
    854,
    480,
    640,
    "dataset",
    clips=40,
    file_frames=300,
    gop=250,
    scaled_to=(224, 224),
    sample_frames=16,
    apart=3,
    goals=(Goal(OURS, RIVAL, 1.0, "at most", "peak_child_bytes"),),
)

of_datasets = partial(METHODS.add, serves=("dataset",), own_ffmpeg=True)


class _Clips:
    """A clip of each file: frames × channels × height × width, as floats from 0 to 1."""

    def __init__(self, target: Task[Job]) -> None:
        self.paths, self.job = clips_in(target.source), target.job
        # In the middle of each frame.
        self.times_s = [[(number + 0.5) / FRAMES_PER_S for number in one] for one in self.job.samples]

    def __len__(self) -> int:
        return len(self.paths)


@of_datasets(RIVAL, needs=("torch", "torchcodec.decoders", "torchcodec.transforms"))
class TorchcodecClips(_Clips):
    """``VideoDecoder.get_frames_played_at`` with a ``Resize`` and a ``CenterCrop``, by one thread."""

    def __getitem__(self, number: int) -> Any:
        transforms, (height, width, _) = import_module("torchcodec.transforms"), self.job.shape
        scaled = transforms.Resize((height, round(self.job.width * height / self.job.height)))
        decoder = import_module("torchcodec.decoders").VideoDecoder(
            self.paths[number],
            num_ffmpeg_threads=1,
            transforms=[scaled, transforms.CenterCrop((height, width))],
        )
        frames = decoder.get_frames_played_at(self.times_s[number]).data
        return frames.to(import_module("torch").float32) / 255


@of_datasets(OURS, "ours", needs=("torch", "av"))
class PenstockClips(_Clips):
    """`Decoder.batch` with ``times_s``, by one thread."""

    def __getitem__(self, number: int) -> Any:
        with Decoder(
            self.paths[number],
            settings=DecoderSettings(threads=1),
            size=self.job.scaled_to,
            fit="cover",
            channels_first=True,
            dtype="float32",
            value_range=(0.0, 1.0),
        ) as decoder:
            return decoder.batch(times_s=self.times_s[number])


def make_dataset(job: Job, ffmpeg: str, folder: Path, kept: Path) -> tuple[str, Samples]:
    """Make a folder of copies of the file; and the middle of each of its frames, in the size of the job."""
    each = replace(job, frames=job.file_frames, clips=1)
    path, clips = kept_video(each, ffmpeg, kept), folder / "clips"
    clips.mkdir()
    for number in range(job.clips):
        shutil.copy(path, clips / f"{number:02}.mp4")
    middle = f"crop=ih:ih,scale={job.shape[1]}:{job.shape[0]}:flags=bicubic"
    raw = output_of(ffmpeg, "-i", str(path), "-vf", middle, "-pix_fmt", "rgb24", "-f", "rawvideo", "pipe:1")
    return str(clips), np.frombuffer(raw, np.uint8).reshape(-1, *job.shape)


def measure_dataset(task: Task[Job]) -> Run:
    """Time one pass over the dataset, watch the workers' memory, and compare every clip with the file's frames."""
    task.load()
    loader = import_module("torch.utils.data").DataLoader
    reference, run = np.load(Path(task.folder) / REFERENCE), Run()
    clips: list[NDArray[np.float32]] = []
    with accounted(run), _workers_watched(run):
        for batch in loader(task.method.start(task), batch_size=BATCH_CLIPS, num_workers=WORKERS):
            clips.extend(batch.numpy())
    for numbers, clip in zip(task.job.samples, clips, strict=False):
        run.error = run.error or why_wrong(clip, reference[numbers])
    run.count_frames(task.job.frames, sum(map(len, clips)))
    return run


def why_wrong(clip: NDArray[np.float32], expected: Samples) -> str | None:
    """What is wrong with a clip; None if it shows these frames."""
    if clip.shape != (expected.shape[0], 3, *expected.shape[1:3]) or clip.dtype != np.float32:
        return f"a clip is {clip.dtype} of {clip.shape}"
    shown = clip.transpose(0, 2, 3, 1) * 255
    off = max(difference(one, other) for one, other in zip(shown, expected, strict=True))
    return f"a clip shows something else: it is {off:.1f} code values off" if off > MAX_DIFFERENCE else None


@contextmanager
def _workers_watched(run: Run) -> Iterator[None]:
    """Sets ``peak_child_bytes``: the most memory that all children had at a time, without what files hold.

    What they share with this process, as what was imported before, counts in parts.
    """
    is_over, others = threading.Event(), children()

    def watch() -> None:
        while not is_over.is_set():
            now = sum(map(_anonymous_bytes, children() - others))
            run.figures["peak_child_bytes"] = max(now, run.figures.get("peak_child_bytes") or 0)
            time.sleep(LOOK_EVERY_S)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _anonymous_bytes(pid: int) -> int:
    with suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0
