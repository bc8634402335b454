"""Pipelines: data from storage through native stages to Python, to a descriptor, or into buffers.

A `Pipeline` is a source, stages and a sink in a line, each on one native thread or several, with bounded queues
in between. Chunks come out in order. When the consumer is slow, the source waits; ``queue_items`` bounds the memory,
which is recycled. No native stage holds the GIL.

```python
from penstock.pipeline import Pipeline, decompress, files
with Pipeline(files("textures/*.zst"), decompress("zstd", workers=2)) as pipeline:
    for chunk in pipeline:
        upload(chunk.name, numpy.asarray(chunk))  # its memory is recycled once the last view is gone
print(pipeline.bottleneck)
```

Sources are `files`, `file`, `fd`, and any iterable of buffers or of pairs of a name and a buffer.
Stages are `decompress`, `checksum`, and callables (see `call`). Sinks are iteration, a descriptor,
and `into`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock import _asyncio
from penstock._exit import CUT_OFF_REASON, STALL_S, at_exit, report_loss
from penstock._native import AppliedPolicy, Chunk, ThreadPolicy, _Pipeline
from penstock._pipeline_parts import (
    Sink,
    Source,
    Stage,
    by_name,
    call,
    checksum,
    decompress,
    fd,
    file,
    files,
    into,
    iterable,
    native_sink,
)
from penstock.errors import ChunkDataError, ChunkReadError, PenstockError, PipelineError, StalledError

if TYPE_CHECKING:
    from penstock._types import Data, HasFileno, OnError, Priority

__all__ = [
    "Chunk",
    "ChunkDataError",
    "ChunkReadError",
    "Latency",
    "Pipeline",
    "PipelineError",
    "PipelineStats",
    "Sink",
    "Source",
    "Stage",
    "StageStats",
    "call",
    "checksum",
    "decompress",
    "fd",
    "file",
    "files",
    "into",
]


@dataclass(frozen=True)
class Latency:
    """The distribution of many times, accurate to 1 %. All fields are 0 while ``count`` is.

    Attributes:
        count: the number of times.
        min_s: the shortest time, in seconds like all that follow.
        p50_s: the median.
        p95_s: the 95th percentile.
        p99_s: the 99th percentile.
        max_s: the longest time.
        mean_s: the mean.
    """

    count: int
    min_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    mean_s: float


@dataclass(frozen=True)
class StageStats:
    """What one part of a pipeline has done so far, all its threads together.

    Attributes:
        name: its name.
        workers: the number of its threads; iteration counts as one, the caller's.
        bytes_in: bytes that it took.
        bytes_out: bytes that it gave.
        failed: chunks that failed in it.
        work: its time for a chunk, without waits; for iteration, the time between two chunks asked for.
        queued: the time that chunks waited for it, since the part before had finished with them.
        gil: the time that a callable waited for the GIL; empty for native parts.
        input_wait_s: seconds that its threads waited for chunks, summed; a source's threads wait for its descriptor.
        output_wait_s: seconds that its threads waited for room in the next queue, summed.
        queue_items: chunks that wait for it now.
        queue_bytes: the memory of the chunks that wait for it now.
        policies: the policies that were applied to its threads, where one was asked for.
    """

    name: str
    workers: int
    bytes_in: int
    bytes_out: int
    failed: int
    work: Latency
    queued: Latency
    gil: Latency
    input_wait_s: float
    output_wait_s: float
    queue_items: int
    queue_bytes: int
    policies: tuple[AppliedPolicy, ...]


@dataclass(frozen=True)
class PipelineStats:
    """What a pipeline has done so far, or until its end.

    Attributes:
        stages: the source, the stages and the sink, in this order.
        end_to_end: the time from when the source began a chunk until the sink had it.
        elapsed_s: seconds since the pipeline began, until its end.
        pool_free_bytes: memory that is kept for reuse.
    """

    stages: tuple[StageStats, ...]
    end_to_end: Latency
    elapsed_s: float
    pool_free_bytes: int


def _stage_stats(record: dict[str, Any]) -> StageStats:
    latencies = {name: Latency(**record[name]) for name in ("work", "queued", "gil")}
    return StageStats(**(record | latencies))


class Pipeline:
    """A source, stages and a sink in a line. It begins to work when it is made.

    Iterate over it with ``for`` or ``async for``; if the sink is a descriptor, ``wait`` for it or ``await`` it.
    ``with`` and ``async with`` close it at the end of the block; if the sink is a descriptor and the block did not
    raise, they first wait for its end. Several threads may take chunks from one pipeline; each chunk goes to one of
    them.

    At the end of the program, a pipeline whose sink is a descriptor continues for as long as bytes move. If it is cut
    off, that is reported. ``close``, or dropping the pipeline, stops all threads wherever they wait. ``close`` waits
    for the threads, but at most 5 seconds for a call of Python code that does not return. Dropping does not wait;
    running calls end by themselves. In the child of a fork, a pipeline raises ``ClosedError``.

    Args:
        source: ``files``, ``file``, ``fd``; or an iterable of buffers, or of pairs of a name and a buffer. A thread of
            the pipeline iterates over it and copies the bytes, so that the iterable may reuse its buffer.
        stages: ``decompress``, ``checksum``, ``call``, or callables.
        sink: None for iteration, ``into(buffers)``, or a descriptor: an int or an object with ``fileno()``, open for
            writing. Chunks go there from their own memory, through a ``Writer``.
        queue_items: the most chunks that wait between two parts; then the part in front waits.
        queue_bytes: the most memory of those chunks; one chunk may always wait. At most as much is kept for reuse.
        max_chunk_bytes: the most bytes of a chunk, read or decompressed. A larger one is a ``ChunkDataError``, and its
            memory is not allocated. So is a zstd stream in pieces whose window is larger than this and than 8 MiB.
        on_error: ``"raise"`` ends the pipeline at the first chunk that fails, after all chunks before it have come
            out; ``"skip"`` continues, and lists the failures in ``skipped``. A decompressed stream and an iterable
            that raises end in both cases.
        policies: a ``ThreadPolicy``, or a level like ``"below-normal"``, for the threads of a part, by its name:
            ``"files"``, ``"file"``, ``"fd"`` or ``"iterable"``; ``"decompress"``, ``"checksum"``, a callable's name
            (the second of one name is ``"checksum 2"``); ``"writer"`` for a descriptor as the sink.

    Raises:
        ValueError: the parts do not fit together, or an argument has a wrong value.
        TypeError: an argument has the wrong type.
        OSError: EBADF if a descriptor is closed or open for something else; or no thread could be started.
    """

    def __init__(
        self,
        source: Source | Iterable[Data | tuple[str, Data]],
        *stages: Stage | Callable[[Chunk], Chunk | Data | None],
        sink: Sink | int | HasFileno | None = None,
        queue_items: int = 16,
        queue_bytes: int = 64 << 20,
        max_chunk_bytes: int = 256 << 20,
        on_error: OnError = "raise",
        policies: Mapping[str, ThreadPolicy | Priority] | None = None,
    ) -> None:
        named = by_name(stage if isinstance(stage, Stage) else call(stage) for stage in stages)
        origin = source if isinstance(source, Source) else iterable(source)
        writes = not (sink is None or isinstance(sink, Sink))
        if policies is not None and not isinstance(policies, Mapping):
            raise TypeError(
                f"policies has a policy for each part, by its name: {{'decompress': {policies!r}}}"
            )
        wanted = dict(policies or {})
        known = [origin.name, *named, *(["writer"] if writes else [])]
        if unknown := wanted.keys() - set(known):
            raise ValueError(f"policies has {sorted(unknown)}, but the parts are {known}")
        self._writes = writes
        self._is_reported = False  # whether somebody waited, and got its failure
        self._native = _Pipeline(
            origin._make(wanted.get(origin.name)),
            [stage._make(name, stage.workers, wanted.get(name)) for name, stage in named.items()],
            native_sink(sink, queue_items, queue_bytes, wanted.get("writer")),
            queue_items=queue_items,
            queue_bytes=queue_bytes,
            max_chunk_bytes=max_chunk_bytes,
            on_error=on_error,
        )
        _open.add(self)
        # Before the program ends, because its threads may need to run Python code.
        at_exit(_end_all, 1)

    def read(self, timeout: float | None = None) -> Chunk | None:
        """The next chunk; None at the end. Releases the GIL; Ctrl-C interrupts it.

        After the end, or an error other than StalledError, it returns or raises the same again, in every thread.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            PipelineError: the next chunk has failed, and with it the pipeline.
            StalledError: no chunk came in time.
            ClosedError: the pipeline was closed.
        """
        return self._native.next(timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the sink, a descriptor, has everything.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            PipelineError: a chunk has failed; the chunks before it were written.
            BrokenStreamError, OSError: the descriptor failed.
            StalledError: the pipeline did not end in that time. It continues.
            ClosedError: the pipeline was closed before its end.
        """
        try:
            self._native.wait(timeout)
        except StalledError:
            raise
        except Exception:
            self._is_reported = True
            raise

    def close(self) -> None:
        """Stop the pipeline, drop the chunks in it, and wait for its threads. Ctrl-C interrupts the wait.

        A call of Python code that does not return is left behind after 5 seconds. Closing again only waits.
        """
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether the pipeline was closed."""
        return self._native.closed

    @property
    def skipped(self) -> list[PipelineError]:
        """With ``on_error="skip"``, the errors of the chunks that were skipped so far, in order."""
        return self._native.skipped

    @property
    def stats(self) -> PipelineStats:
        """What the pipeline has done so far, also after its end."""
        record = self._native.stats()
        record["stages"] = tuple(_stage_stats(stage) for stage in record["stages"])
        record["end_to_end"] = Latency(**record["end_to_end"])
        return PipelineStats(**record)

    @property
    def bottleneck(self) -> str:
        """The slowest part, in one line, with the figures behind it."""
        return self._native.bottleneck()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._native.next(None)
        if chunk is None:
            raise StopIteration
        return chunk

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self._next()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _next(self) -> Chunk | None:
        while True:
            await _asyncio.until_done(self._native)
            try:
                return self._native.next(0.0)
            except StalledError:
                pass  # another task took the chunk

    def __await__(self) -> Generator[Any, Any, None]:
        self._is_reported = True
        return self._ended().__await__()

    async def _ended(self) -> None:  # its frame keeps the pipeline alive
        await _asyncio.ended_or_cancelled(self._native)

    def __del__(self) -> None:
        # Stop before the garbage collector clears the objects of a cycle: no thread may call one that is half cleared.
        if (native := getattr(self, "_native", None)) is not None:
            native.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            if self._writes and exc_type is None and not self.closed:
                self.wait()
        finally:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            if self._writes and exc_type is None and not self.closed:
                await self
        finally:
            if not self._native.cancel():
                await asyncio.to_thread(self.close)


_open: weakref.WeakSet[Pipeline] = weakref.WeakSet()
_LOOK_S = 0.2
"""How often an ending program checks whether a pipeline still moves."""


def _disown_all_in_child() -> None:
    global _open
    _open = weakref.WeakSet()


os.register_at_fork(after_in_child=_disown_all_in_child)


def _end_all() -> None:
    """Deliver what goes to a descriptor, for as long as anything moves, then stop all pipelines."""
    for pipeline in list(_open):
        if pipeline._writes and not pipeline.closed and (failure := _drain(pipeline)):
            report_loss(f"a pipeline was cut off: {failure}")
    for pipeline in list(_open):
        pipeline._native.cancel()  # all of them first, so that their threads end at the same time
    for pipeline in list(_open):
        pipeline.close()


def _drain(pipeline: Pipeline) -> str | None:
    """Why the pipeline could not be finished; None if it could, or if its failure was reported already."""
    seen, since_s = -1, time.monotonic()
    try:
        while time.monotonic() - since_s < STALL_S:
            with contextlib.suppress(StalledError):
                pipeline._native.wait(_LOOK_S)
                return None
            taken = sum(stage.bytes_in for stage in pipeline.stats.stages)
            if taken != seen:
                seen, since_s = taken, time.monotonic()
    except KeyboardInterrupt:
        pass
    except (PenstockError, OSError) as error:
        return None if pipeline._is_reported else str(error)
    return CUT_OFF_REASON
