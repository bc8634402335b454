"""`penstock.Pipeline`, whose parts are in `penstock.pipeline`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from penstock._common import event_loops
from penstock._common.exits import CUT_OFF_REASON, STALL_S, at_exit, report_loss
from penstock._native import Chunk, ThreadPolicy, _Pipeline, _Source
from penstock._platform.forks import at_fork
from penstock.errors import PenstockError, PipelineError, StalledError
from penstock.pipeline import PipelineStats, Sink, Source, Stage

if TYPE_CHECKING:
    from penstock._common.types import Data, OnError, Priority


def _iterable(buffers: Iterable[Data | tuple[str, Data]]) -> Source:
    """The source that an iterable among the arguments of a pipeline becomes."""
    if isinstance(buffers, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"source must be a Source or an iterable of buffers, not {type(buffers).__name__}. Pass "
            "Source.files(paths) or [data]"
        )
    if isinstance(buffers, list | tuple) and buffers and isinstance(buffers[0], str | os.PathLike):
        raise TypeError(
            "source must be a Source or an iterable of buffers, not of paths. Pass Source.files(paths)"
        )
    return Source("iterable", lambda policy: _Source.iterable(buffers, policy))


def _by_name(stages: Iterable[Stage]) -> dict[str, Stage]:
    """The stages by their names; the second of one name gets a number."""
    named: dict[str, Stage] = {}
    for stage in stages:
        name, number = stage.name, 2
        while name in named:
            name, number = f"{stage.name} {number}", number + 1
        named[name] = stage
    return named


def _stage_stats(record: dict[str, Any]) -> PipelineStats.StageStats:
    latencies = {name: PipelineStats.Latency(**record[name]) for name in ("work", "queued", "gil")}
    return PipelineStats.StageStats(**(record | latencies))


class Pipeline:
    """Reads, decompresses, checks and passes on chunks of data: a source, stages and a sink, each on native threads.

    The pipeline starts when you make it. Iterate over it with ``for`` or ``async for``. If the sink is a descriptor,
    ``wait`` for it or ``await`` it. ``with`` and ``async with`` close it at the end of the block; if the sink is a
    descriptor and the block didn't raise, they first wait for its end. Several threads may take chunks from one
    pipeline: each chunk goes to one of them.

    ``close``, or dropping the pipeline, stops all threads wherever they wait. ``close`` waits for the threads, but at
    most 5 seconds for a call of Python code that doesn't return. Dropping doesn't wait: running calls end by
    themselves. At the end of the program, a pipeline whose sink is a descriptor continues for as long as bytes move,
    and reports if it is cut off. In the child of a fork, a pipeline raises ``ClosedError``.

    Args:
        source: a `pipeline.Source`; or an iterable of buffers, or of pairs of a name and a buffer. A thread of the
            pipeline iterates over it and copies the bytes, so the iterable may reuse its buffer.
        stages: each a `pipeline.Stage`, or a callable, which is short for ``Stage.call``.
        sink: a `pipeline.Sink`; None if you iterate.
        queue_items: maximum number of chunks that wait between two parts; then the part before waits.
        queue_bytes: maximum memory in bytes of these chunks; one chunk may always wait. At most as much is kept for
            reuse.
        max_chunk_bytes: maximum size of a chunk in bytes, read or decompressed. A larger chunk gets a
            ``ChunkDataError``, and no memory. So does a zstd stream in pieces whose window is larger than this and than
            8 MiB.
        on_error: ``"raise"`` ends the pipeline at the first chunk that fails, after all chunks before it have come out.
            ``"skip"`` continues, and lists the failures in ``skipped``. Both end at a failure of a decompressed stream,
            or of the iterable.
        policies: a ``ThreadPolicy``, or a level such as ``"below-normal"``, for the threads of a part, by its name:
            ``"files"``, ``"file"``, ``"fd"`` or ``"iterable"``; ``"decompress"``, ``"checksum"``, a callable's name
            (the second of a name is ``"checksum 2"``); ``"writer"`` for ``Sink.fd``.

    Raises:
        ValueError: if the parts don't fit together, or an argument has a wrong value.
        TypeError: if an argument has the wrong type.
        OSError: EBADF if a descriptor is closed, or isn't open for reading or writing as needed; or if no thread could
            be started.
    """

    def __init__(
        self,
        source: Source | Iterable[Data | tuple[str, Data]],
        *stages: Stage | Callable[[Chunk], Chunk | Data | None],
        sink: Sink | None = None,
        queue_items: int = 16,
        queue_bytes: int = 64 << 20,
        max_chunk_bytes: int = 256 << 20,
        on_error: OnError = "raise",
        policies: Mapping[str, ThreadPolicy | Priority] | None = None,
    ) -> None:
        named = _by_name(stage if isinstance(stage, Stage) else Stage.call(stage) for stage in stages)
        origin = source if isinstance(source, Source) else _iterable(source)
        if not isinstance(sink, Sink | None):
            raise TypeError(
                f"sink must be a Sink or None, not {sink!r}. Pass Sink.fd(fd) or Sink.into(buffers)"
            )
        if policies is not None and not isinstance(policies, Mapping):
            raise TypeError(
                f"policies must be a dict by part, such as {{'decompress': {policies!r}}}, not {policies!r}"
            )
        wanted = dict(policies or {})
        known = [origin.name, *named, *(["writer"] if sink and sink._writes else [])]
        if unknown := wanted.keys() - set(known):
            raise ValueError(f"policies must be for parts of {known}, not {sorted(unknown)}")
        self._writes = sink is not None and sink._writes
        self._is_reported = False  # whether somebody waited, and got its failure
        self._native = _Pipeline(
            origin._make(wanted.get(origin.name)),
            [stage._make(name, stage.workers, wanted.get(name)) for name, stage in named.items()],
            None if sink is None else sink._make(queue_items, queue_bytes, wanted.get("writer")),
            queue_items=queue_items,
            queue_bytes=queue_bytes,
            max_chunk_bytes=max_chunk_bytes,
            on_error=on_error,
        )
        _open.add(self)
        # Before the program ends, because its threads may need to run Python code.
        at_exit(_end_all, 1)

    def read(self, timeout: float | None = None) -> Chunk | None:
        """Returns the next chunk; None at the end. Releases the GIL; Ctrl-C interrupts it.

        After the end, or an error other than StalledError, it returns or raises the same again, in every thread.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            PipelineError: if the next chunk failed, which ends the pipeline.
            StalledError: if no chunk came in time.
            ClosedError: if the pipeline was closed.
        """
        return self._native.next(timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the sink, a descriptor, has everything.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            PipelineError: if a chunk failed. The chunks before it were written.
            BrokenStreamError, OSError: if the descriptor failed.
            StalledError: if the pipeline didn't end in that time. It continues.
            ClosedError: if the pipeline was closed before its end.
        """
        try:
            self._native.wait(timeout)
        except StalledError:
            raise
        except Exception:
            self._is_reported = True
            raise

    def close(self) -> None:
        """Stops the pipeline, drops the chunks in it, and waits for its threads. Ctrl-C interrupts the wait.

        The wait for a call of Python code that doesn't return ends after 5 seconds. Closing again only waits.
        """
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether the pipeline was closed."""
        return self._native.closed

    @property
    def skipped(self) -> list[PipelineError]:
        """The errors of the chunks that were skipped so far, in order, with ``on_error="skip"``."""
        return self._native.skipped

    @property
    def stats(self) -> PipelineStats:
        """Statistics so far, also after the pipeline's end."""
        record = self._native.stats()
        record["stages"] = tuple(_stage_stats(stage) for stage in record["stages"])
        record["end_to_end"] = PipelineStats.Latency(**record["end_to_end"])
        return PipelineStats(**record)

    @property
    def bottleneck(self) -> str | None:
        """The name of the slowest part, as in `stats`; None if no part clearly is.

        It's the part whose threads worked the longest, without waits, and for at least a fifth of the time.
        ``"consumer"`` is your own code that iterates.
        """
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
            await event_loops.until_done(self._native)
            try:
                return self._native.next(0.0)
            except StalledError:
                pass  # another task took the chunk

    def __await__(self) -> Generator[Any, Any, None]:
        self._is_reported = True
        return self._ended().__await__()

    async def _ended(self) -> None:  # its frame keeps the pipeline alive
        await event_loops.ended_or_cancelled(self._native)

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


at_fork(after_in_child=_disown_all_in_child)


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
