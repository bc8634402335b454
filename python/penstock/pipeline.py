"""Pipelines: data from storage through native stages to Python, to a descriptor, or into buffers.

A :class:`Pipeline` is a line of a source, stages and a sink, each on a native thread of its own or on several, with
bounded queues in between. What comes out is in order. When the consumer is slow, the source waits; memory is
bounded by ``depth``, and used again. No native stage holds the GIL.

>>> from penstock.pipeline import Pipeline, decompress, files
>>> with Pipeline(files("textures/*.zst"), decompress("zstd", workers=2)) as pipeline:
...     for chunk in pipeline:
...         upload(chunk.name, numpy.asarray(chunk))  # its memory is used again when the last view is gone
>>> print(pipeline.bottleneck)

Sources are :func:`files`, :func:`file`, :func:`fd`, and any iterable of buffers, or of pairs of a name and a
buffer. Stages are :func:`decompress`, :func:`checksum`, and callables: see :func:`call`. Sinks are iteration, a
descriptor, and :func:`into`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import glob
import os
import sys
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from penstock import _asyncio, _native
from penstock._exit import STALL_S, WHY, report_loss
from penstock._native import AppliedPolicy, Chunk, ThreadPolicy
from penstock.errors import ChunkDataError, ChunkError, ChunkReadError, PenstockError, StalledError

if TYPE_CHECKING:
    from penstock._types import ChecksumName, CodecName, HasFileno, OnError

__all__ = [
    "Chunk",
    "ChunkDataError",
    "ChunkError",
    "ChunkReadError",
    "Latency",
    "Pipeline",
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

PIECE_BYTES = 1 << 20
"""How large a piece of a stream is unless told: where the cost of a piece no longer counts."""

_Policy: TypeAlias = ThreadPolicy | None


@dataclass(frozen=True)
class Source:
    """Where a pipeline's chunks come from: made by ``files``, ``file`` and ``fd``.

    Attributes:
        name: what it is called in ``policies`` and statistics.
    """

    name: str
    _make: Callable[[_Policy], _native._Source] = field(repr=False)


@dataclass(frozen=True)
class Stage:
    """What is done with every chunk: made by ``decompress``, ``checksum`` and ``call``.

    Attributes:
        name: what it is called in ``policies``, statistics and errors.
        workers: how many threads work on it.
    """

    name: str
    workers: int
    _make: Callable[[str, _Policy], _native._Stage] = field(repr=False)


@dataclass(frozen=True)
class Sink:
    """Where a pipeline's chunks go, if it is neither iteration nor a descriptor: made by ``into``."""

    _make: Callable[[], _native._Sink] = field(repr=False)


def files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, workers: int = 1) -> Source:
    """Files, each as one chunk whose name is its path.

    Args:
        paths: the paths, in the order in which they come; or one path; or a pattern for ``glob.glob``, whose
            matches come sorted (``**`` is any folders).
        workers: how many threads read, each a file of its own, 1024 at most: worth it where the storage answers late,
            not for files that are in the page cache.

    Raises:
        ValueError, TypeError: ``workers`` is no such number.
        FileNotFoundError: nothing matches the pattern. A file that is missing is its chunk's ``ChunkReadError``.
    """
    names, workers = _paths(paths), _native._count("workers", workers)
    return Source("files", lambda policy: _native._Source.files(names, workers, policy))


def _paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    if not isinstance(paths, str | os.PathLike):
        return [os.fspath(path) for path in paths]
    path = os.fspath(paths)
    if not glob.has_magic(path):
        return [path]
    # Not Path.glob, which takes no absolute pattern.
    found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
    if not found:
        raise FileNotFoundError(f"nothing matches {path!r}")
    return found


def file(path: str | os.PathLike[str], piece_bytes: int = PIECE_BYTES) -> Source:
    """One file in pieces.

    Args:
        path: the file.
        piece_bytes: the size of a piece; the last one is as long as what is left.
    """
    name, piece_bytes = os.fspath(path), _native._count("piece_bytes", piece_bytes)
    return Source("file", lambda policy: _native._Source.file(name, piece_bytes, policy))


def fd(fd: int | HasFileno, piece_bytes: int = PIECE_BYTES) -> Source:
    """What can be read from a pipe, a socket or another descriptor, until its end.

    What is there is passed on before more is waited for. The descriptor stays the caller's; a duplicate is read,
    from when the pipeline is made.

    Args:
        fd: an int, or anything with ``fileno()``, open for reading. A buffered stream of Python's is read from the
            first byte that the program has not taken. One whose descriptor carries other bytes (text, compressed
            files, TLS sockets) is a TypeError when the pipeline is made.
        piece_bytes: the most bytes of a piece.
    """
    piece_bytes = _native._count("piece_bytes", piece_bytes)
    return Source("fd", lambda policy: _native._Source.fd(fd, piece_bytes, policy))


def decompress(codec: CodecName = "auto", *, workers: int = 1, streamed: bool | None = None) -> Stage:
    """Decompresses.

    Of ``files`` and iterables, each chunk is an asset of its own. ``file`` and ``fd`` give pieces of one stream,
    and out come pieces of what is in it, as large as the source's at most.

    Further gzip members, zstd frames and lz4 frames are decompressed as well. Anything else behind the first is
    ignored for zlib and gzip, and an error for zstd and lz4, as their own tools have it.

    Args:
        codec: ``"zlib"``, ``"gzip"``, ``"zstd"``, ``"lz4"`` (frames); ``"auto"`` goes by the first bytes of each
            asset.
        workers: how many threads decompress, each a chunk of its own; one for a stream.
        streamed: whether chunks are pieces of one stream, where the source does not say it right.
    """

    def make(name: str, policy: _Policy) -> _native._Stage:
        return _native._Stage.decompress(codec, streamed, name, workers, policy)

    return Stage("decompress", _native._count("workers", workers), make)


def checksum(kind: ChecksumName = "xxh3", *, workers: int = 1) -> Stage:
    """Finds out a checksum of each chunk, which is then its ``checksum``.

    Args:
        kind: ``"xxh3"`` (XXH3, 64 bits, seed 0) or ``"crc32"`` (as ``zlib.crc32``).
        workers: how many threads do it.
    """

    def make(name: str, policy: _Policy) -> _native._Stage:
        return _native._Stage.checksum(kind, name, workers, policy)

    return Stage("checksum", _native._count("workers", workers), make)


def call(function: Callable[[Chunk], Any], *, workers: int = 1, name: str | None = None) -> Stage:
    """Calls a Python callable with each chunk, on a thread of the pipeline, with the GIL.

    A callable among the stages of a pipeline is short for this. What it returns is what goes on: the chunk that it
    was given, or None for the same; or a buffer, whose bytes are copied and replace the chunk's. What it raises is
    the chunk's ``ChunkError``. Statistics have its time waiting for the GIL apart.

    Args:
        function: gets a ``Chunk``, whose bytes it can read.
        workers: how many threads call it, at the same time where it releases the GIL.
        name: what the stage is called; the callable's name unless told.
    """
    named = name or str(getattr(function, "__name__", type(function).__name__))

    def make(name: str, policy: _Policy) -> _native._Stage:
        return _native._Stage.call(function, name, workers, policy)

    return Stage(named, _native._count("workers", workers), make)


def into(buffers: Iterable[Any]) -> Sink:
    """Puts chunks into buffers of the caller's, the first into the first, by a native thread and without the GIL.

    Iteration then gives chunks that lie there. The pipeline ends when there are no more buffers. A chunk that is
    larger than its buffer is a ``ChunkDataError``.

    Args:
        buffers: anything with the buffer protocol that is C-contiguous and can be written to. They are asked for
            one by one, a ``depth`` ahead of iteration, so that a generator can wait until one is free again. Each
            is in use, and must not be touched, from then until its chunk comes; it is released when its chunk is
            dropped.
    """
    return Sink(lambda: _native._Sink.into(buffers))


@dataclass(frozen=True)
class Latency:
    """How long something took, over many times. Right to 1 %; all 0 while ``count`` is.

    Attributes:
        count: how often.
        min_ns: the shortest time, in nanoseconds like all that follow.
        p50_ns: half of the times were no longer than this.
        p95_ns: 95 % of the times were no longer than this.
        p99_ns: 99 % of the times were no longer than this.
        max_ns: the longest time.
        mean_ns: their mean.
    """

    count: int
    min_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    mean_ns: float


@dataclass(frozen=True)
class StageStats:
    """How one part of a pipeline fares, all its threads together.

    Attributes:
        name: what it is called.
        workers: how many threads work on it; iteration counts as one, the caller's.
        bytes_in: bytes that it took.
        bytes_out: bytes that it gave.
        failed: chunks that failed in it.
        work: how long it worked on a chunk, waits left out; for iteration, the time between two chunks asked for.
        queued: how long chunks waited for it, from when the part before was done with them.
        gil: how long a callable waited for the GIL; no count for native parts.
        input_wait_s: seconds that its threads waited for chunks, summed; a source's threads wait for its descriptor.
        output_wait_s: seconds that its threads waited for room in the next queue, summed.
        queue_items: chunks that wait for it now.
        queue_bytes: the memory of the chunks that wait for it now.
        policies: what its threads run with, where a policy was asked for.
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
    """How a pipeline fares, up to now or to its end.

    Attributes:
        stages: the source, the stages and the sink, in this order.
        end_to_end: from when the source began a chunk to when the sink had it.
        elapsed_s: seconds since the pipeline began, until its end.
        pool_free_bytes: memory that is kept to be used again.
    """

    stages: tuple[StageStats, ...]
    end_to_end: Latency
    elapsed_s: float
    pool_free_bytes: int


def _stage_stats(record: dict[str, Any]) -> StageStats:
    latencies = {name: Latency(**record[name]) for name in ("work", "queued", "gil")}
    return StageStats(**(record | latencies))


class Pipeline:
    """A line of a source, stages and a sink, at work from when it is made.

    Iterate over it with ``for`` or ``async for``; where the sink is a descriptor, ``wait`` or ``await`` it. As a
    context manager it is closed at the end of the block; where the sink is a descriptor and the block did not
    raise, its end is waited for before. Several threads may take chunks from one pipeline, each chunk goes to one
    of them.

    A program that ends lets a pipeline into a descriptor go on for as long as anything moves, and says so if it had to
    cut it off. Leaving early, by ``close`` or by dropping it, stops all threads wherever they wait. ``close`` waits
    until they have ended, and leaves a call of Python code that does not return behind after 5 seconds. Dropping it
    waits for nothing, and a call in progress goes on to its end. In the child of a fork a pipeline raises
    ``ClosedError``.

    Args:
        source: ``files``, ``file``, ``fd``; or an iterable of buffers, or of pairs of a name and a buffer. An
            iterable is iterated over on a thread of the pipeline; the bytes are copied, so that it may use its
            buffer again.
        stages: ``decompress``, ``checksum``, ``call``, or callables.
        sink: None for iteration, ``into(buffers)``, or a descriptor: an int, or anything with ``fileno()``, open
            for writing. Chunks go there from their own memory, through a ``Writer``.
        depth: chunks that may wait between two parts before the part in front has to.
        depth_bytes: the memory of those; one chunk may always wait. As much is kept at most to be used again.
        max_chunk_bytes: the most bytes of a chunk, read or decompressed: a larger one is a ``ChunkDataError``, and
            memory for it is not taken.
        on_error: ``"raise"`` ends the pipeline at the first chunk that fails, after all chunks before it have come
            out; ``"skip"`` goes on, and lists them in ``skipped``. A stream that is decompressed ends in both
            cases.
        policies: a ``ThreadPolicy`` for the threads of a part, by its name: ``"files"``, ``"file"``, ``"fd"`` or
            ``"iterable"``; ``"decompress"``, ``"checksum"``, a callable's name (the second of one name is
            ``"checksum 2"``); ``"writer"`` for a descriptor as the sink.

    Raises:
        ValueError: parts that make no sense together, or another wrong argument.
        OSError: EBADF for a descriptor that is closed or open for something else; or there is no thread left.
    """

    def __init__(
        self,
        source: Source | Iterable[Any],
        *stages: Stage | Callable[[Chunk], Any],
        sink: Sink | int | HasFileno | None = None,
        depth: int = 16,
        depth_bytes: int = 64 << 20,
        max_chunk_bytes: int = 256 << 20,
        on_error: OnError = "raise",
        policies: Mapping[str, ThreadPolicy] | None = None,
    ) -> None:
        named = _named([stage if isinstance(stage, Stage) else call(stage) for stage in stages])
        origin = source if isinstance(source, Source) else _iterable(source)
        writes = not (sink is None or isinstance(sink, Sink))
        wanted = dict(policies or {})
        known = [origin.name, *named, *(["writer"] if writes else [])]
        if unknown := wanted.keys() - set(known):
            raise ValueError(f"policies has {sorted(unknown)}, but the parts are {known}")
        self._writes = writes
        self._is_told = False  # whether somebody waited, and learnt of a failure
        self._native = _native._Pipeline(
            origin._make(wanted.get(origin.name)),
            [stage._make(name, wanted.get(name)) for name, stage in named.items()],
            _sink(sink, depth, depth_bytes, wanted.get("writer")),
            depth=depth,
            depth_bytes=depth_bytes,
            max_chunk_bytes=max_chunk_bytes,
            on_error=on_error,
        )
        _watch_exit(self)

    def read(self, timeout: float | None = None) -> Chunk | None:
        """The next chunk; None at the end. Waits with the GIL released and awake to signals.

        Args:
            timeout: seconds; None waits for as long as it takes.

        Raises:
            ChunkError: the chunk whose turn it was has failed, and with it the pipeline.
            StalledError: there was none in time.
            ClosedError: the pipeline was closed.
        """
        return self._native.next(timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the sink, a descriptor, has everything.

        Raises:
            ChunkError: a chunk has failed; what came before it was written.
            BrokenStreamError, OSError: the descriptor failed.
            StalledError: it has not ended in that many seconds. It goes on.
            ClosedError: the pipeline was closed before its end.
        """
        try:
            self._native.wait(timeout)
        except StalledError:
            raise
        except Exception:
            self._is_told = True
            raise

    def close(self) -> None:
        """End it wherever it is, and wait for its threads, awake to signals. What is in it is dropped.

        A call of Python code that does not return is left behind after 5 seconds. Closing again does nothing but wait.
        """
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    @property
    def skipped(self) -> list[ChunkError]:
        """With ``on_error="skip"``, what was skipped so far, in order."""
        return self._native.skipped

    @property
    def stats(self) -> PipelineStats:
        """How it fares. The figures stay after its end."""
        record = self._native.stats()
        record["stages"] = tuple(_stage_stats(stage) for stage in record["stages"])
        record["end_to_end"] = Latency(**record["end_to_end"])
        return PipelineStats(**record)

    @property
    def bottleneck(self) -> str:
        """Who is slow, in one line, with the figures that say so."""
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
                pass  # another task was quicker

    def __await__(self) -> Generator[Any, Any, None]:
        self._is_told = True
        return _asyncio.ended_or_cancelled(_Written(self)).__await__()

    def __del__(self) -> None:
        # Before the garbage collector takes a cycle apart: no thread is to call a method of an object that has lost its
        # parts.
        if (native := getattr(self, "_native", None)) is not None:
            native.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._writes and exc_type is None and not self.closed:
                self.wait()
        finally:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._writes and exc_type is None and not self.closed:
                await self
        finally:
            if not self._native.cancel():
                await asyncio.to_thread(self.close)


@dataclass(frozen=True)
class _Written:
    """A pipeline into a descriptor as something to wait for, which ends if nobody has it."""

    pipeline: Pipeline

    def done(self) -> bool:
        return self.pipeline._native.done()

    def wait(self) -> None:
        self.pipeline._native.wait(None)

    def cancel(self) -> None:
        self.pipeline._native.cancel()

    def _notify(self, eventfd: int) -> _native._Watch:
        return self.pipeline._native._notify(eventfd)


def _named(stages: list[Stage]) -> dict[str, Stage]:
    named: dict[str, Stage] = {}
    for stage in stages:
        name, number = stage.name, 2
        while name in named:
            name, number = f"{stage.name} {number}", number + 1
        named[name] = stage
    return named


def _iterable(buffers: Iterable[Any]) -> Source:
    if isinstance(buffers, str | bytes | bytearray | memoryview):
        raise TypeError("source must be files(), file(), fd(), or an iterable of buffers")
    return Source("iterable", lambda policy: _native._Source.iterable(buffers, policy))


def _sink(
    sink: Sink | int | HasFileno | None, depth: int, depth_bytes: int, policy: _Policy
) -> _native._Sink | None:
    if sink is None:
        return None
    if isinstance(sink, Sink):
        return sink._make()
    return _native._Sink.fd(sink, depth, depth_bytes, policy)


_open: weakref.WeakSet[Pipeline] = weakref.WeakSet()
_LOOK_S = 0.2
"""How often an ending program looks whether a pipeline still moves."""

_armed_for: int | None = None  # the process; a forked child arms for itself


def _disown_all_in_child() -> None:
    global _open
    _open = weakref.WeakSet()


os.register_at_fork(after_in_child=_disown_all_in_child)


def _watch_exit(pipeline: Pipeline) -> None:
    """Have the program end the pipeline before itself: its threads may want to run Python code, gone by then."""
    global _armed_for
    _open.add(pipeline)
    if _armed_for == os.getpid():
        return
    _armed_for = os.getpid()
    atexit.unregister(_end_all)  # so that it is there once, also in a child that has inherited its parent's
    atexit.register(_end_all)
    # A multiprocessing child ends without running atexit's functions, but runs its own finalizers.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _end_all, exitpriority=1)


def _end_all() -> None:
    """What goes to a descriptor is delivered first, for as long as anything moves; the rest has nobody to go to."""
    for pipeline in list(_open):
        if pipeline._writes and not pipeline.closed and (fault := _drain(pipeline)):
            report_loss(f"a pipeline was cut off: {fault}")
    for pipeline in list(_open):
        pipeline._native.cancel()  # all of them, so that the waits for their threads are one
    for pipeline in list(_open):
        pipeline.close()


def _drain(pipeline: Pipeline) -> str | None:
    """Why it was not to be had to its end, unless somebody was told already."""
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
        return None if pipeline._is_told else str(error)
    return WHY
