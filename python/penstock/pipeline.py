"""The parts of a `penstock.Pipeline`: sources, stages and sinks.

A pipeline is a source, stages and a sink in a line, each on one native thread or several, with bounded queues in
between. Chunks come out in order. If the consumer is slow, the source waits: ``queue_items`` bounds the memory, which
is recycled. Native stages run without the GIL.

```python
from penstock.pipeline import Source, Stage
with penstock.Pipeline(Source.files("textures/*.zst"), Stage.decompress("zstd", workers=2)) as pipeline:
    for chunk in pipeline:
        upload(chunk.name, numpy.asarray(chunk))  # its memory is recycled once the last view is gone
print(pipeline.bottleneck)
```

The static methods of `Source`, `Stage` and `Sink` make the parts. An iterable of buffers, or of pairs of a name and a
buffer, is also a source, and a callable is a stage (see `Stage.call`). Without a sink, you iterate over the chunks.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock._native import AppliedPolicy, Chunk, ThreadPolicy, _count, _Sink, _Source, _Stage
from penstock.errors import ChunkDataError, ChunkReadError

if TYPE_CHECKING:
    from penstock._common.types import ChecksumName, CodecName, Data, HasFileno, Priority, WritableData

__all__ = [
    "Chunk",
    "ChunkDataError",
    "ChunkReadError",
    "PipelineStats",
    "Sink",
    "Source",
    "Stage",
]

_PIECE_BYTES = 1 << 20
"""The default size of a piece of a stream: from here on, the cost of a piece no longer counts."""

_Policy: TypeAlias = "ThreadPolicy | Priority | None"


@dataclass(frozen=True)
class Source:
    """A source of chunks. `files`, `file` and `fd` make one.

    Attributes:
        name: its name in ``policies`` and statistics.
    """

    name: str
    _make: Callable[[_Policy], _Source] = field(repr=False)

    @staticmethod
    def files(
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, workers: int = 1
    ) -> Source:
        """Reads files, each as one chunk whose name is its path.

        Args:
            paths: paths, in the order of the chunks. Or one path; if there is no file of that name, a pattern for
                ``glob.glob``, whose matches are sorted as text, 10 before 9 (``**`` matches any folders).
            workers: number of threads that read, at most 1024, each a file of its own. More than one helps if the
                storage has a high latency, but not for files in the page cache.

        Raises:
            ValueError, TypeError: if ``workers`` isn't such a number.
            FileNotFoundError: if nothing matches the pattern. If a listed file is missing, its chunk gets a
                ``ChunkReadError``.
        """
        names, workers = _paths(paths), _count("workers", workers)
        return Source("files", lambda policy: _Source.files(names, workers, policy))

    @staticmethod
    def file(path: str | os.PathLike[str], piece_bytes: int = _PIECE_BYTES) -> Source:
        """Reads one file in pieces.

        Args:
            path: path of the file.
            piece_bytes: size of a piece in bytes. The last piece may be shorter.
        """
        name, piece_bytes = os.fspath(path), _count("piece_bytes", piece_bytes)
        return Source("file", lambda policy: _Source.file(name, piece_bytes, policy))

    @staticmethod
    def fd(fd: int | HasFileno, piece_bytes: int = _PIECE_BYTES) -> Source:
        """Reads the bytes of a pipe, a stream socket or another descriptor, until its end.

        The source passes on available bytes before it waits for more. The pipeline duplicates the descriptor when you
        make the pipeline; yours stays open.

        Args:
            fd: an int or an object with ``fileno()``, open for reading. A buffered Python stream is read from the first
                byte that your program hasn't taken. If the descriptor carries other bytes than the stream (text,
                compressed files, TLS sockets), the pipeline raises TypeError when you make it. For a socket that
                preserves message boundaries, it raises ValueError.
            piece_bytes: maximum size of a piece in bytes.
        """
        piece_bytes = _count("piece_bytes", piece_bytes)
        return Source("fd", lambda policy: _Source.fd(fd, piece_bytes, policy))


@dataclass(frozen=True)
class Stage:
    """An operation on every chunk. `decompress`, `checksum` and `call` make one.

    Attributes:
        name: its name in ``policies``, statistics and errors.
        workers: number of its threads.
    """

    name: str
    workers: int
    _make: Callable[[str, int, _Policy], _Stage] = field(repr=False)

    @staticmethod
    def decompress(codec: CodecName = "auto", *, workers: int = 1, streamed: bool | None = None) -> Stage:
        """Decompresses chunks.

        Each chunk of ``Source.files`` and of an iterable is an asset of its own. ``Source.file`` and ``Source.fd``
        return pieces of one stream; the stage then returns pieces of the decompressed stream, at most as large as those
        of the source.

        Further gzip members, zstd frames and lz4 frames are decompressed, too. Skippable frames of zstd and lz4 are
        skipped; an asset that has only these is empty. Other bytes after the first member are ignored for zlib and
        gzip, and fail for zstd and lz4, as in the tools of these formats.

        Raw deflate data, without a header, need ``Stage.call(lambda chunk: zlib.decompress(chunk, -15))``.

        Args:
            codec: ``"zlib"``, ``"gzip"``, ``"zstd"``, ``"lz4"`` (frames); or ``"auto"``, which looks at the first bytes
                of each asset. After skippable frames, only zstd and lz4 are recognized.
            workers: number of threads, each of which decompresses a chunk of its own. A stream takes one.
            streamed: whether chunks are pieces of one stream; None follows the source.
        """
        make = partial(_Stage.decompress, codec, streamed)
        return Stage("decompress", _count("workers", workers), make)

    @staticmethod
    def checksum(kind: ChecksumName = "xxh3", *, workers: int = 1) -> Stage:
        """Computes a checksum of each chunk, which becomes its ``checksum``.

        Args:
            kind: ``"xxh3"`` (XXH3, 64 bits, seed 0) or ``"crc32"`` (as ``zlib.crc32``).
            workers: number of threads.
        """
        return Stage("checksum", _count("workers", workers), partial(_Stage.checksum, kind))

    @staticmethod
    def call(
        function: Callable[[Chunk], Chunk | Data | None], *, workers: int = 1, name: str | None = None
    ) -> Stage:
        """Calls a Python callable with each chunk, on a thread of the pipeline, with the GIL.

        A callable among the stages of a pipeline is short for this. The callable returns the chunk, or None for the
        same chunk; or a buffer, whose bytes are copied and replace those of the chunk. If it raises, the exception is
        the cause of the chunk's ``PipelineError``. Statistics count its waits for the GIL separately.

        Args:
            function: a callable that gets a ``Chunk``, whose bytes are read-only.
            workers: number of threads that call it. They run in parallel where it releases the GIL.
            name: name of the stage; None is the callable's name.
        """
        named = name or str(getattr(function, "__name__", type(function).__name__))
        return Stage(named, _count("workers", workers), partial(_Stage.call, function))


@dataclass(frozen=True)
class Sink:
    """A destination of chunks other than iteration. `fd` and `into` make one."""

    _make: Callable[[int, int, _Policy], _Sink] = field(repr=False)
    _writes: bool = field(default=False, repr=False)

    @staticmethod
    def fd(fd: int | HasFileno) -> Sink:
        """Writes chunks to a pipe, a file, a socket or another descriptor, from their own memory, through a ``Writer``.

        ``policies`` calls this part ``"writer"``. The pipeline duplicates the descriptor when you make the pipeline;
        yours stays open.

        Args:
            fd: an int or an object with ``fileno()``, open for writing. Otherwise the pipeline raises OSError (EBADF)
                when you make one.
        """
        return Sink(partial(_Sink.fd, fd), _writes=True)

    @staticmethod
    def into(buffers: Iterable[WritableData]) -> Sink:
        """Copies chunks into your buffers, the first into the first, on a native thread without the GIL.

        Iteration then returns chunks whose memory is these buffers. The pipeline ends when there are no more buffers. A
        chunk that is larger than its buffer gets a ``ChunkDataError``.

        Args:
            buffers: writable, C-contiguous buffers. The pipeline takes them one by one, ``queue_items`` ahead of
                iteration, so a generator can wait until one is free again. Don't touch a buffer from then until its
                chunk comes. It is released when you drop its chunk.
        """
        return Sink(lambda *_: _Sink.into(buffers))


def _paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    if not isinstance(paths, str | os.PathLike):
        return [os.fspath(path) for path in paths]
    path = os.fspath(paths)
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    # Not Path.glob, which refuses absolute patterns.
    found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
    if not found:
        raise FileNotFoundError(f"no file matches {path!r}")
    return found


@dataclass(frozen=True)
class PipelineStats:
    """Statistics of a pipeline so far, or until its end.

    Attributes:
        stages: the source, the stages and the sink, in this order.
        end_to_end: time from when the source began a chunk until the sink had it.
        elapsed_s: seconds since the pipeline began, until its end.
        pool_free_bytes: bytes of memory that are kept for reuse.
    """

    @dataclass(frozen=True)
    class Latency:
        """The distribution of many times, accurate to 1 %. All fields are 0 while ``count`` is.

        Attributes:
            count: number of times.
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
        """Statistics of one part of a pipeline so far, all its threads together.

        Attributes:
            name: its name.
            workers: number of its threads. Iteration counts as one, the caller's.
            bytes_in: bytes that it took.
            bytes_out: bytes that it passed on.
            failed: number of chunks that failed in it.
            work: time that it needed for a chunk, without waits; for iteration, the time between two requests for a
                chunk.
            queued: time that chunks waited for it after the part before had finished with them.
            gil: time that a callable waited for the GIL; empty for native parts.
            input_wait_s: seconds that its threads waited for chunks, summed. A source's threads wait for its
                descriptor.
            output_wait_s: seconds that its threads waited for room in the next queue, summed.
            queue_items: number of chunks that wait for it now.
            queue_bytes: memory of the chunks that wait for it now, in bytes.
            policies: the policies that were applied to its threads, if you asked for one.
        """

        name: str
        workers: int
        bytes_in: int
        bytes_out: int
        failed: int
        work: PipelineStats.Latency
        queued: PipelineStats.Latency
        gil: PipelineStats.Latency
        input_wait_s: float
        output_wait_s: float
        queue_items: int
        queue_bytes: int
        policies: tuple[AppliedPolicy, ...]

    stages: tuple[PipelineStats.StageStats, ...]
    end_to_end: PipelineStats.Latency
    elapsed_s: float
    pool_free_bytes: int
