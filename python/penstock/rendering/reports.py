"""What a render reports."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._common.notebook import HtmlTable, HtmlVideo


@dataclass(frozen=True, slots=True)
class ChunkReport(HtmlTable):
    """A chunk of a render that is in the storage.

    Attributes:
        number: its number in the plan, from 0.
        frames: how many frames it has.
        nbytes: bytes of its data.
        sha256: their SHA-256, in hexadecimal.
        elapsed_s: seconds from its start to its end.
        worker: who rendered it: host and process id.
        warnings: as in `EncodeReport`.
    """

    number: int
    frames: int
    nbytes: int
    sha256: str
    elapsed_s: float
    worker: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerReport(HtmlTable):
    """What one worker did in a render.

    Attributes:
        worker: host and process id.
        chunks: how many chunks it rendered.
        frames: their frames.
        busy_s: seconds that it spent on them.
    """

    worker: str
    chunks: int
    frames: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class RenderProgress:
    """How far a render is.

    Attributes:
        frames_done: frames that are rendered, those of chunks at work included.
        frames: all of them.
        chunks_done: chunks that are in the storage.
        chunks: all of them.
        workers: workers that are at work.
        elapsed_s: seconds since the start.
        fps: frames per second since the start, without those that were there before.
    """

    frames_done: int
    frames: int
    chunks_done: int
    chunks: int
    workers: int
    elapsed_s: float
    fps: float


@dataclass(frozen=True, slots=True)
class RenderReport(HtmlVideo):
    """What a render delivered.

    Attributes:
        output: the absolute path of the video.
        frames: its frames, which were counted in it.
        chunks: how many chunks they were rendered in.
        output_bytes: size of the video.
        elapsed_s: seconds for all of it.
        join_s: seconds of these for joining the chunks.
        fps: frames per second of `elapsed_s`, without those of `resumed` chunks.
        resumed: chunks that an earlier render had left.
        retries: chunks that were rendered again after a failure.
        workers: what each worker did, the fastest first.
        slowest: the slowest chunks, with the slowest first, five at most.
        warnings: what the video lost of the frames, FFmpeg's own errors and warnings, each once, and whether chunks of
            other renders are left in the folder of the chunks.
    """

    output: str
    frames: int
    chunks: int
    output_bytes: int
    elapsed_s: float
    join_s: float
    fps: float
    resumed: int
    retries: int
    workers: tuple[WorkerReport, ...]
    slowest: tuple[ChunkReport, ...]
    warnings: tuple[str, ...] = ()
