"""What a decoder reads from: a path, a URL, bytes in memory, a file that is open."""

from __future__ import annotations

import fcntl
import io
import os
import stat
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock import _streams
from penstock.ffmpeg import endpoints

if TYPE_CHECKING:
    from typing import BinaryIO

    from _typeshed import ReadableBuffer

MediaSource: TypeAlias = "str | os.PathLike[str] | int | BinaryIO | ReadableBuffer | Source"
"""A path or URL; bytes in memory; a descriptor of a regular file; a binary file that can seek."""

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_PIECE_BYTES = 1 << 20


class Source:
    """A source of media by a name that FFmpeg, libav and the children of a fork can open.

    Args:
        given: a path or URL; or an object that supports the buffer protocol, whose bytes are copied; or a descriptor of
            a regular file, or a binary file that is open for reading and can seek. All of a file is read, from its
            beginning; its position stays, and so does the file if the caller closes it.

    Attributes:
        given: what the caller gave.
        url: what FFmpeg reads, as from `endpoints.source`.
        path: what the caller gave if it is a path or URL, else a name for messages.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: as `endpoints.source`.
        TypeError: it is nothing of these.
        ValueError: it is a pipe or socket, or cannot seek.
    """

    def __init__(self, given: MediaSource) -> None:
        self.given = given
        if isinstance(given, str | os.PathLike):
            self.url, self.path = endpoints.source(given), os.fspath(given)
            return
        held = _descriptor(given)
        # In the process that opens it, this is a file of its own, with a position of its own.
        self.url = f"file:/proc/{os.getpid()}/fd/{held}"
        self.path = f"<{getattr(given, 'name', None) or type(given).__name__}>"
        weakref.finalize(self, os.close, held)

    @classmethod
    def of(cls, given: MediaSource) -> Source:
        """The source of what a caller gave, which may be one already."""
        return given if isinstance(given, Source) else cls(given)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.given, int):
            raise TypeError("a descriptor means nothing to another process: pickle a decoder of a path")
        return Source, (self.given,)


def _descriptor(given: Any) -> int:
    """A descriptor of our own on a regular file with the content."""
    if isinstance(given, int) and not isinstance(given, bool):
        return _duplicate(given)
    if not hasattr(given, "read"):
        try:
            with memoryview(given) as view:
                return _in_memory([view.cast("B") if view.c_contiguous else view.tobytes()])
        except TypeError:
            each = ": use a Decoder (or probe) for each file" * isinstance(
                given, list | tuple | set | frozenset
            )
            kind = type(given).__name__
            raise TypeError(
                f"an input is a path, a URL, bytes, a binary file or a descriptor; got {kind}{each}"
            ) from None
    file = _streams.without_wrapper(given)
    if isinstance(file, io.TextIOBase):
        raise TypeError("an input is a text stream: open it in binary mode")
    if isinstance(file, io.FileIO) or isinstance(getattr(file, "raw", None), io.FileIO):
        return _duplicate(file.fileno())
    if not file.seekable():
        raise ValueError(f"a {type(file).__name__} cannot seek: read it, and pass the bytes")
    position = file.tell()
    try:
        file.seek(0)
        return _in_memory(iter(lambda: file.read(_PIECE_BYTES), b""))
    finally:
        file.seek(position)


def _duplicate(descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError(
            f"descriptor {descriptor} is no regular file: frames of a pipe come by FFmpeg, started by subprocess, and "
            "a penstock.Reader"
        )
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def _in_memory(pieces: Iterable[bytes | memoryview]) -> int:
    """A file in memory that nobody can change, with these bytes."""
    held = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(held, "wb", buffering=0, closefd=False) as file:
            for piece in pieces:
                left = memoryview(piece)
                while left:
                    left = left[file.write(left) :]
        fcntl.fcntl(held, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(held)
        raise
    return held
