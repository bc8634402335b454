"""The sources, stages and sinks of pipelines; `penstock.pipeline` exports them."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock._native import Chunk, ThreadPolicy, _count, _Sink, _Source, _Stage

if TYPE_CHECKING:
    from penstock._types import ChecksumName, CodecName, Data, HasFileno, Priority, WritableData

PIECE_BYTES = 1 << 20
"""The default size of a piece of a stream: from here on, the cost of a piece no longer counts."""

Policy: TypeAlias = "ThreadPolicy | Priority | None"


@dataclass(frozen=True)
class Source:
    """A source of chunks. ``files``, ``file`` and ``fd`` make them.

    Attributes:
        name: its name in ``policies`` and statistics.
    """

    name: str
    _make: Callable[[Policy], _Source] = field(repr=False)


@dataclass(frozen=True)
class Stage:
    """An operation on every chunk. ``decompress``, ``checksum`` and ``call`` make them.

    Attributes:
        name: its name in ``policies``, statistics and errors.
        workers: the number of its threads.
    """

    name: str
    workers: int
    _make: Callable[[str, int, Policy], _Stage] = field(repr=False)


@dataclass(frozen=True)
class Sink:
    """A destination of chunks other than iteration and descriptors. ``into`` makes them."""

    _make: Callable[[], _Sink] = field(repr=False)


def files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, workers: int = 1) -> Source:
    """Files, each as one chunk whose name is its path.

    Args:
        paths: the paths, in the order of the chunks; or one path; or, if there is no file of that name, a pattern for
            ``glob.glob``, whose matches are sorted (``**`` matches any folders).
        workers: the number of threads that read, each a file of its own, at most 1024. More than one pays where the
            storage has a high latency, not for files in the page cache.

    Raises:
        ValueError, TypeError: ``workers`` is not such a number.
        FileNotFoundError: nothing matches the pattern. A missing file is a ``ChunkReadError`` of its chunk.
    """
    names, workers = _paths(paths), _count("workers", workers)
    return Source("files", lambda policy: _Source.files(names, workers, policy))


def _paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    if not isinstance(paths, str | os.PathLike):
        return [os.fspath(path) for path in paths]
    path = os.fspath(paths)
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    # Not Path.glob, which refuses absolute patterns.
    found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
    if not found:
        raise FileNotFoundError(f"nothing matches {path!r}")
    return found


def file(path: str | os.PathLike[str], piece_bytes: int = PIECE_BYTES) -> Source:
    """One file in pieces.

    Args:
        path: the file.
        piece_bytes: the size of a piece in bytes; the last piece is as long as the rest.
    """
    name, piece_bytes = os.fspath(path), _count("piece_bytes", piece_bytes)
    return Source("file", lambda policy: _Source.file(name, piece_bytes, policy))


def fd(fd: int | HasFileno, piece_bytes: int = PIECE_BYTES) -> Source:
    """The bytes of a pipe, a stream socket or another descriptor, until its end.

    Available bytes are passed on before the source waits for more. The pipeline duplicates the descriptor when it is
    made; the caller's descriptor stays the caller's.

    Args:
        fd: an int or an object with ``fileno()``, open for reading. A buffered Python stream is read from the first
            byte that the program has not taken. A stream whose descriptor carries other bytes (text, compressed files,
            TLS sockets) is a TypeError when the pipeline is made, and a socket that keeps messages apart a ValueError.
        piece_bytes: the largest size of a piece in bytes.
    """
    piece_bytes = _count("piece_bytes", piece_bytes)
    return Source("fd", lambda policy: _Source.fd(fd, piece_bytes, policy))


def decompress(codec: CodecName = "auto", *, workers: int = 1, streamed: bool | None = None) -> Stage:
    """Decompress chunks.

    Each chunk of ``files`` and of an iterable is an asset of its own. ``file`` and ``fd`` give pieces of one stream;
    the stage then gives pieces of the decompressed stream, at most as large as those of the source.

    Further gzip members, zstd frames and lz4 frames are decompressed, too. Other bytes behind the first are ignored for
    zlib and gzip, and are an error for zstd and lz4, as in the tools of these formats.

    Args:
        codec: ``"zlib"``, ``"gzip"``, ``"zstd"``, ``"lz4"`` (frames); or ``"auto"``, which looks at the first bytes of
            each asset. A skippable frame at the beginning is taken for zstd's, and not for lz4's.
        workers: the number of threads, each of which decompresses a chunk of its own; a stream takes one.
        streamed: whether chunks are pieces of one stream; by default, what the source says.
    """
    make = partial(_Stage.decompress, codec, streamed)
    return Stage("decompress", _count("workers", workers), make)


def checksum(kind: ChecksumName = "xxh3", *, workers: int = 1) -> Stage:
    """Compute a checksum of each chunk, which becomes its ``checksum``.

    Args:
        kind: ``"xxh3"`` (XXH3, 64 bits, seed 0) or ``"crc32"`` (as ``zlib.crc32``).
        workers: the number of threads.
    """
    return Stage("checksum", _count("workers", workers), partial(_Stage.checksum, kind))


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


def into(buffers: Iterable[WritableData]) -> Sink:
    """Copy chunks into buffers of the caller, the first into the first, on a native thread without the GIL.

    Iteration then gives chunks whose memory is these buffers. The pipeline ends when there are no more buffers. A chunk
    that is larger than its buffer is a ``ChunkDataError``.

    Args:
        buffers: writable, C-contiguous buffers. They are taken one by one, ``queue_items`` ahead of iteration, so a
            generator can wait until one is free again. Do not touch a buffer from then until its chunk comes; it is
            released when its chunk is dropped.
    """
    return Sink(lambda: _Sink.into(buffers))


def iterable(buffers: Iterable[Data | tuple[str, Data]]) -> Source:
    """The source that an iterable among the arguments of a pipeline becomes."""
    if isinstance(buffers, str | bytes | bytearray | memoryview):
        raise TypeError("source must be files(), file(), fd(), or an iterable of buffers")
    return Source("iterable", lambda policy: _Source.iterable(buffers, policy))


def native_sink(
    sink: Sink | int | HasFileno | None, queue_items: int, queue_bytes: int, policy: Policy
) -> _Sink | None:
    """The sink of a pipeline; None for iteration."""
    if sink is None:
        return None
    if isinstance(sink, Sink):
        return sink._make()
    return _Sink.fd(sink, queue_items, queue_bytes, policy)


def by_name(stages: Iterable[Stage]) -> dict[str, Stage]:
    """The stages by their names; the second of one name gets a number."""
    named: dict[str, Stage] = {}
    for stage in stages:
        name, number = stage.name, 2
        while name in named:
            name, number = f"{stage.name} {number}", number + 1
        named[name] = stage
    return named
