"""The parts of a `penstock.Pipeline`: storage, native stages, and Python, a descriptor or buffers at the end.

A pipeline is a source, stages and a sink in a line, each on one native thread or several, with bounded queues in
between. Chunks come out in order. When the consumer is slow, the source waits; ``queue_items`` bounds the memory, which
is recycled. No native stage holds the GIL.

```python
from penstock.pipeline import Source, Stage
with penstock.Pipeline(Source.files("textures/*.zst"), Stage.decompress("zstd", workers=2)) as pipeline:
    for chunk in pipeline:
        upload(chunk.name, numpy.asarray(chunk))  # its memory is recycled once the last view is gone
print(pipeline.bottleneck)
```

The static methods of `Source`, `Stage` and `Sink` make the parts. An iterable of buffers, or of pairs of a name and a
buffer, is a source as well, and a callable is a stage (see `Stage.call`). Without a sink, you iterate over the chunks.
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
    "Latency",
    "PipelineStats",
    "Sink",
    "Source",
    "Stage",
    "StageStats",
]

_PIECE_BYTES = 1 << 20
"""The default size of a piece of a stream: from here on, the cost of a piece no longer counts."""

_Policy: TypeAlias = "ThreadPolicy | Priority | None"


@dataclass(frozen=True)
class Source:
    """A source of chunks. `files`, `file` and `fd` make them.

    Attributes:
        name: its name in ``policies`` and statistics.
    """

    name: str
    _make: Callable[[_Policy], _Source] = field(repr=False)

    @staticmethod
    def files(
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, workers: int = 1
    ) -> Source:
        """Files, each as one chunk whose name is its path.

        Args:
            paths: the paths, in the order of the chunks; or one path; or, if there is no file of that name, a pattern
                for ``glob.glob``, whose matches are sorted (``**`` matches any folders).
            workers: the number of threads that read, each a file of its own, at most 1024. More than one pays where the
                storage has a high latency, not for files in the page cache.

        Raises:
            ValueError, TypeError: ``workers`` is not such a number.
            FileNotFoundError: nothing matches the pattern. For a missing file, its chunk gets a ``ChunkReadError``.
        """
        names, workers = _paths(paths), _count("workers", workers)
        return Source("files", lambda policy: _Source.files(names, workers, policy))

    @staticmethod
    def file(path: str | os.PathLike[str], piece_bytes: int = _PIECE_BYTES) -> Source:
        """One file in pieces.

        Args:
            path: the file.
            piece_bytes: the size of a piece in bytes; the last piece is as long as the rest.
        """
        name, piece_bytes = os.fspath(path), _count("piece_bytes", piece_bytes)
        return Source("file", lambda policy: _Source.file(name, piece_bytes, policy))

    @staticmethod
    def fd(fd: int | HasFileno, piece_bytes: int = _PIECE_BYTES) -> Source:
        """The bytes of a pipe, a stream socket or another descriptor, until its end.

        Available bytes are passed on before the source waits for more. The pipeline duplicates the descriptor when it
        is made; the caller's descriptor stays the caller's.

        Args:
            fd: an int or an object with ``fileno()``, open for reading. A buffered Python stream is read from the first
                byte that the program has not taken. A stream whose descriptor carries other bytes (text, compressed
                files, TLS sockets) is a TypeError when the pipeline is made, and a socket that keeps messages apart a
                ValueError.
            piece_bytes: the largest size of a piece in bytes.
        """
        piece_bytes = _count("piece_bytes", piece_bytes)
        return Source("fd", lambda policy: _Source.fd(fd, piece_bytes, policy))


@dataclass(frozen=True)
class Stage:
    """An operation on every chunk. `decompress`, `checksum` and `call` make them.

    Attributes:
        name: its name in ``policies``, statistics and errors.
        workers: the number of its threads.
    """

    name: str
    workers: int
    _make: Callable[[str, int, _Policy], _Stage] = field(repr=False)

    @staticmethod
    def decompress(codec: CodecName = "auto", *, workers: int = 1, streamed: bool | None = None) -> Stage:
        """Decompress chunks.

        Each chunk of ``Source.files`` and of an iterable is an asset of its own. ``Source.file`` and ``Source.fd`` give
        pieces of one stream; the stage then gives pieces of the decompressed stream, at most as large as those of the
        source.

        Further gzip members, zstd frames and lz4 frames are decompressed, too. Other bytes behind the first are ignored
        for zlib and gzip, and are an error for zstd and lz4, as in the tools of these formats.

        Args:
            codec: ``"zlib"``, ``"gzip"``, ``"zstd"``, ``"lz4"`` (frames); or ``"auto"``, which looks at the first bytes
                of each asset. A skippable frame at the beginning is taken for zstd's, and not for lz4's.
            workers: the number of threads, each of which decompresses a chunk of its own; a stream takes one.
            streamed: whether chunks are pieces of one stream; by default, what the source says.
        """
        make = partial(_Stage.decompress, codec, streamed)
        return Stage("decompress", _count("workers", workers), make)

    @staticmethod
    def checksum(kind: ChecksumName = "xxh3", *, workers: int = 1) -> Stage:
        """Compute a checksum of each chunk, which becomes its ``checksum``.

        Args:
            kind: ``"xxh3"`` (XXH3, 64 bits, seed 0) or ``"crc32"`` (as ``zlib.crc32``).
            workers: the number of threads.
        """
        return Stage("checksum", _count("workers", workers), partial(_Stage.checksum, kind))

    @staticmethod
    def call(
        function: Callable[[Chunk], Chunk | Data | None], *, workers: int = 1, name: str | None = None
    ) -> Stage:
        """Call a Python callable with each chunk, on a thread of the pipeline, with the GIL.

        A callable among the stages of a pipeline is short for this. It returns the chunk, or None for the same; or a
        buffer, whose bytes are copied and replace those of the chunk. An exception is the cause of the chunk's
        ``PipelineError``. Statistics count its waits for the GIL separately.

        Args:
            function: gets a ``Chunk``, whose bytes are read-only.
            workers: the number of threads that call it, in parallel where it releases the GIL.
            name: the name of the stage; by default that of the callable.
        """
        named = name or str(getattr(function, "__name__", type(function).__name__))
        return Stage(named, _count("workers", workers), partial(_Stage.call, function))


@dataclass(frozen=True)
class Sink:
    """A destination of chunks other than iteration. `fd` and `into` make them."""

    _make: Callable[[int, int, _Policy], _Sink] = field(repr=False)
    _writes: bool = field(default=False, repr=False)

    @staticmethod
    def fd(fd: int | HasFileno) -> Sink:
        """Write chunks to a pipe, a file, a socket or another descriptor, from their own memory, through a ``Writer``.

        ``policies`` calls this part ``"writer"``. The pipeline duplicates the descriptor when it is made; the caller's
        descriptor stays the caller's.

        Args:
            fd: an int or an object with ``fileno()``, open for writing. Otherwise it is an OSError (EBADF) when the
                pipeline is made.
        """
        return Sink(partial(_Sink.fd, fd), _writes=True)

    @staticmethod
    def into(buffers: Iterable[WritableData]) -> Sink:
        """Copy chunks into buffers of the caller, the first into the first, on a native thread without the GIL.

        Iteration then gives chunks whose memory is these buffers. The pipeline ends when there are no more buffers. A
        chunk that is larger than its buffer gets a ``ChunkDataError``.

        Args:
            buffers: writable, C-contiguous buffers. They are taken one by one, ``queue_items`` ahead of iteration, so a
                generator can wait until one is free again. Do not touch a buffer from then until its chunk comes; it is
                released when its chunk is dropped.
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
