"""Reports of renders."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._common.notebook import HtmlTable, HtmlVideo


@dataclass(frozen=True, slots=True)
class RenderProgress:
    """Progress of a render: a snapshot.

    Attributes:
        frames_done: rendered frames, including those of unfinished chunks.
        frames: all frames.
        chunks_done: chunks that are in the storage.
        chunks: all chunks.
        workers: number of workers that are rendering.
        elapsed_s: seconds since the start.
        fps: frames per second since the start, without those of an earlier call.
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
    """The result of a render.

    Attributes:
        output: absolute path of the video.
        frames: number of its frames, counted in the video.
        chunks: number of chunks in which they were rendered.
        output_bytes: size of the video in bytes.
        elapsed_s: seconds for the whole render.
        join_s: seconds of these for joining the chunks.
        fps: frames per second of `elapsed_s`, without those of `resumed` chunks.
        resumed: number of chunks that an earlier render had left.
        retries: number of chunks that were rendered again after a failure.
        workers: a report for each worker, the fastest first.
        slowest: the slowest chunks, at most five, the slowest first.
        warnings: what the video lost from the frames, or `map_video` from the source, FFmpeg's own errors and warnings,
            each once, and whether chunks of other renders are left in the folder of the chunks.
    """

    @dataclass(frozen=True, slots=True)
    class Chunk(HtmlTable):
        """A finished chunk of a render, which is in the storage.

        Attributes:
            number: the chunk's number in the plan, from 0.
            frames: number of its frames.
            nbytes: bytes of its data.
            sha256: SHA-256 of its data, in hexadecimal.
            elapsed_s: seconds from its start to its end.
            worker: host and process id of the worker.
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
    class Worker(HtmlTable):
        """The result of one worker in a render.

        Attributes:
            worker: host and process id.
            chunks: number of chunks that it rendered.
            frames: number of their frames.
            busy_s: seconds that it spent on them.
        """

        worker: str
        chunks: int
        frames: int
        busy_s: float

    output: str
    frames: int
    chunks: int
    output_bytes: int
    elapsed_s: float
    join_s: float
    fps: float
    resumed: int
    retries: int
    workers: tuple[RenderReport.Worker, ...]
    slowest: tuple[RenderReport.Chunk, ...]
    warnings: tuple[str, ...] = ()
