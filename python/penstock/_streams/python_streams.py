"""Python streams as sources and destinations: their read-ahead, and checks that the descriptor carries their bytes."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias, cast

from penstock._platform import descriptors
from penstock._platform.refusals import refuse

Buffered: TypeAlias = io.BufferedReader | io.BufferedRandom
"""Streams that read ahead of the program."""

_RAW = io.RawIOBase
_BUFFERED = (io.BufferedReader, io.BufferedRandom, io.BufferedWriter)
_RECODING = (codecs.StreamReader, codecs.StreamWriter, codecs.StreamReaderWriter, codecs.StreamRecoder)
"""Text streams from outside of ``io``, which pass ``fileno`` through."""
_PLAIN = (int, io.FileIO)
"""A descriptor, and what has just its bytes."""


def source(src: Any, name: str) -> tuple[Any, bytes]:
    """The object to read from, and the bytes before it that the stream has read ahead of the program.

    A file has none: its descriptor is set to the stream's position. The bytes stay in the stream's buffer.

    Raises:
        TypeError: the descriptor does not carry the bytes that the object reads.
    """
    src = without_wrapper(src)
    check_source(src, name)
    if not isinstance(src, Buffered):
        return src, b""
    if not is_file(src):
        return src, read_ahead(src)
    _drop_read_ahead(src)
    return src, b""


def checked_ends(src: Any, dst: Any) -> Any:
    """Check both ends of a relay and return the source without its wrapper."""
    src = without_wrapper(src)
    check_source(src, "src")
    check_destination(dst, "dst")
    return src


def tee_source(src: Any) -> Any:
    """The object that a tee reads from, which must have nothing read ahead."""
    src, ahead = source(src, "src")
    if ahead:
        raise ValueError(
            "src has read ahead, and a tee would leave out those bytes. Read them first, or pass a stream without a "
            "buffer"
        )
    return src


def check_source(src: Any, name: str) -> None:
    """Refuse a source whose bytes are not its descriptor's. Its wrapper has been removed."""
    if isinstance(src, io.TextIOBase):
        raise TypeError(
            f"{name} must be a binary stream, not a text stream, which reads ahead. Open it in binary mode, or pass "
            f"{name}.buffer if nothing was read from it"
        )
    _check_faithful(src, name)


def check_destination(dst: Any, name: str) -> None:
    """Refuse a destination whose bytes are not its descriptor's."""
    dst = without_wrapper(dst)
    # A text stream is flushed, so only its buffer matters.
    _check_faithful(getattr(dst, "buffer", dst) if isinstance(dst, io.TextIOBase) else dst, name)


def name_end(error: BaseException, src: Any, outputs: Sequence[Any], name: str) -> None:
    """Have an EBADF say which end of a relay or a tee it means, and why."""
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        ends = [("src", src, "reading"), *((name, output, "writing") for output in outputs)]
        wrong = filter(None, (_wrong_about(*end) for end in ends))
        if (first := next(wrong, None)) is not None:
            say_where(error, first)


def _wrong_about(name: str, end: Any, use: str) -> str | None:
    number = end if isinstance(end, int) else end.fileno()
    try:
        is_open = descriptors.is_open_for(number, use)
    except OSError:
        return f"{name} (descriptor {number}) is closed"
    return None if is_open else f"{name} (descriptor {number}) is not open for {use}"


def say_where(error: OSError, where: str) -> None:
    """Begin the message of an error with where it happened."""
    if error.errno is None:
        error.args = (f"{where}: {error.args[0]}", *error.args[1:])
    else:
        error.strerror = f"{where}: {error.strerror}"
        error.args = (error.errno, error.strerror)


def without_wrapper(end: Any) -> Any:
    """The file inside ``tempfile.NamedTemporaryFile``, which is not itself a Python stream."""
    inner = getattr(end, "file", None)
    return inner if isinstance(inner, io.IOBase) and not isinstance(end, io.IOBase) else end


def is_file(stream: io.IOBase) -> bool:
    """Whether the stream has positions and can be read from any of them."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def read_ahead(stream: Buffered) -> bytes:
    """The bytes in the stream's buffer, which stay there.

    With an empty buffer, ``peek`` would read, and wait regardless of any timeout; so reading is disabled meanwhile.
    """
    raw = cast(Any, stream.raw)
    try:
        raw.readinto = _would_block
    except AttributeError:  # a class of the caller's, with slots
        return stream.peek()
    try:
        return stream.peek()
    finally:
        del raw.readinto


def _would_block(_buffer: object) -> None:
    """``readinto`` of a raw stream that has nothing to read yet: it returns None."""


def _drop_read_ahead(file: Buffered) -> None:
    """Set the descriptor's position to the stream's. A seek within the buffer would not change it."""
    position = file.tell()
    try:
        file.seek(0, os.SEEK_END)
    except OSError:  # files in /proc do not know their end
        # One byte further than the buffer, or the stream would seek inside of it and leave the descriptor.
        file.seek(position + len(read_ahead(file)) + 1)
    file.seek(position)


def _check_faithful(end: Any, name: str) -> None:
    """Refuse an object whose descriptor carries other bytes, such as a ``GzipFile``, or that has no descriptor."""
    raw = end.raw if isinstance(end, _BUFFERED) else end
    if type(raw) in _PLAIN:
        return  # of a file of 4 KiB, the questions below took an eighth of a relay
    if isinstance(end, _RECODING) or (isinstance(end, io.IOBase) and not _is_faithful(raw)):
        _refuse(end, name)
    # Whoever has such a socket has imported the module, and nobody else has to wait for its import.
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(_socket_of(end), ssl.SSLSocket):
        _refuse(end, name)
    # Connections of multiprocessing and pipes of asyncio have it.
    if not is_socket(end) and hasattr(end, "_handle"):
        refuse("a handle as a descriptor")


def _is_faithful(raw: Any) -> bool:
    """Whether the descriptor carries the bytes that the stream, whose buffer was taken off, reads or writes."""
    return isinstance(raw, _RAW) and _has_descriptor(raw)


def _refuse(end: object, name: str) -> NoReturn:
    raise TypeError(
        f"{name} must not be a {type(end).__name__}, whose bytes are not those of its descriptor. Use "
        "shutil.copyfileobj(), with an end of penstock.pipes.make_pipe() if a descriptor is needed"
    )


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, io.UnsupportedOperation):  # the first from the buffered members of a tarfile
        return False
    return True


def is_socket(end: Any) -> bool:
    """Whether it is a socket, or what ``socket.makefile`` returns. Windows refuses it: its number is no descriptor."""
    sockets = sys.modules.get("socket")  # without which there is none
    if sockets is None or not isinstance(_socket_of(end), sockets.socket):
        return False
    refuse("a socket as a descriptor")
    return True


def _socket_of(end: Any) -> Any:
    """The socket behind ``socket.makefile`` or a transport of asyncio, or the object itself."""
    return getattr(getattr(end, "raw", end), "_sock", end)
