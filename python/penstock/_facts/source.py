"""What a decoder reads from: a path, a URL, bytes in memory, a file that is open."""

from __future__ import annotations

import io
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from av.error import FFmpegError as LibavError

from penstock._common.shortage import error_of_libav
from penstock._facts.fetching import FetchedSource
from penstock._facts.single_pass import SinglePassSource
from penstock._ffmpeg.command import endpoints
from penstock._platform import descriptors
from penstock._streams import python_streams

if TYPE_CHECKING:
    from typing import BinaryIO

    from _typeshed import ReadableBuffer

MediaSource: TypeAlias = "str | os.PathLike[str] | int | BinaryIO | ReadableBuffer | Source"
"""A path or URL; bytes in memory; a binary file or a descriptor, which may be a pipe."""

_PIECE_BYTES = 1 << 20


class Source:
    """A source of media by a name that FFmpeg, libav and the children of a fork can open.

    Args:
        given: a path or URL; or an object that supports the buffer protocol, whose bytes are copied; or a descriptor,
            or a binary file that is open for reading. All of a regular file is read, from its beginning; its position
            stays, and so does the file if the caller closes it. A pipe, FIFO or socket is read from where it is.

    Attributes:
        given: what the caller gave.
        url: what FFmpeg reads, as from `endpoints.source`.
        path: what the caller gave if it is a path or URL, else a name for messages.
        decryption: libav's options to decrypt it.
        single_pass: a pipe, a FIFO or a socket; None for what can be read again.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: as `endpoints.source`.
        TypeError: it is nothing of these.
        ValueError: it cannot seek, and has no descriptor; or it is a pipe whose bytes another decoder has got.
    """

    def __init__(self, given: MediaSource) -> None:
        self.given = source = given = descriptors.named(given)
        self._close: Callable[[], object] = lambda: None
        self.decryption: dict[str, str] = {}
        self.single_pass: SinglePassSource | None
        if isinstance(given, str | os.PathLike):
            self.url, self.path = endpoints.source(given), os.fspath(given)
            is_path = endpoints.is_path(self.url)
            self.single_pass = SinglePassSource(given) if is_path and Path(given).is_fifo() else None
            own = (
                endpoints.own_descriptor(Path(given).absolute())
                if is_path and self.single_pass is None
                else None
            )
            if own is not None:  # /dev/stdin, which FFmpeg would take for its own
                source = int(own)
                self.single_pass = _single_pass(source)
        else:
            name = given if isinstance(given, int) else getattr(given, "name", None)
            self.path = f"<{f'descriptor {name}' if isinstance(name, int) else name or type(given).__name__}>"
            self.single_pass = _single_pass(given)
        if self.single_pass is not None:
            self._pass_once(self.single_pass)
        elif not isinstance(source, str | os.PathLike):
            held = _descriptor(source)
            # In the process that opens it, this is a file of its own, with a position of its own.
            self.url = descriptors.url_of(held)
            self._close = weakref.finalize(self, descriptors.release, held)

    def fetch(self) -> None:
        """Has an FFmpeg program fetch a URL whose protocol libav lacks.

        Raises:
            DecoderError: there is no FFmpeg, or it can't be started.
        """
        self._pass_once(FetchedSource(self.url))

    def _pass_once(self, source: SinglePassSource) -> None:
        self.single_pass, self.url = source, source.url
        self._close = weakref.finalize(self, source.close)

    @classmethod
    def of(cls, given: MediaSource, input_options: Mapping[str, object] | None = None) -> Source:
        """The source of what a caller gave, which may be one already. The options may have the key to decrypt it."""
        source = given if isinstance(given, Source) else cls(given)
        if source.single_pass is not None and source.single_pass.is_passed_on:
            raise ValueError(f"{source.path} is not a regular file, so only one decoder can read it")
        for name, key in (input_options or {}).items():
            if name.startswith("decryption_key"):
                source.decryption[name] = str(key)
        return source

    @property
    def failure(self) -> str | None:
        """Why not all of it could be read; None if nothing says so."""
        failure = None if self.single_pass is None else self.single_pass.failure
        return None if failure is None else f"the source could not be read to its end ({failure.strerror})"

    def start_feeding(self) -> None:
        """Starts to send a pipe's bytes to FFmpeg, once FFmpeg runs. Does nothing for other sources."""
        if self.single_pass is not None:
            self.single_pass.pass_on()

    def stop_feeding(self) -> None:
        """Stops reading a pipe, and closes it. Does nothing for other sources."""
        if self.single_pass is not None:
            self.close()

    def close(self) -> None:
        """Closes what this object has open. May be called again."""
        self._close()

    @contextmanager
    def closed_after_failure(self, given: MediaSource) -> Iterator[None]:
        """Closes what this object has open if the block raises, unless the caller gave this object.

        An error of libav's becomes one of ours.
        """
        try:
            yield
        except BaseException as error:
            if self is not given:
                self.close()
            if isinstance(error, LibavError):
                raise error_of_libav(error, self.path) from error
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.given, int) or self.single_pass is not None:
            raise TypeError(
                "a decoder of a descriptor can't be pickled: another process doesn't have it. Open a path instead"
            )
        return Source, (self.given,)


def _single_pass(given: Any) -> SinglePassSource | None:
    """The bytes of an open pipe, FIFO or socket; None for all else."""
    file = python_streams.without_wrapper(given)
    if (carrier := _carrier(file)) is None:
        return None
    mode = os.fstat(carrier).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return None
    ahead = python_streams.read_ahead(file) if isinstance(file, python_streams.Buffered) else b""
    return SinglePassSource(descriptors.duplicate(carrier), ahead)


def _carrier(file: Any) -> int | None:
    """The descriptor that carries the bytes that the file reads; None if there is none."""
    # True and False are no descriptors, although they are of the type.
    if isinstance(file, int) and not isinstance(file, bool):
        return file
    raw = getattr(file, "raw", file)
    return raw.fileno() if python_streams.is_socket(file) or isinstance(raw, io.FileIO) else None


def _descriptor(given: Any) -> int:
    """A descriptor of our own on a regular file with the content."""
    file = python_streams.without_wrapper(given)
    if (carrier := _carrier(file)) is not None:
        if not stat.S_ISREG(os.fstat(carrier).st_mode):
            raise ValueError(
                f"descriptor {carrier} must be of a regular file, pipe, FIFO or socket. For a camera, pass the "
                "standard output of `ffmpeg -f v4l2 -i /dev/video0 -c copy -f nut -`"
            )
        return descriptors.duplicate_for_programs(carrier)
    if not hasattr(given, "read"):
        try:
            with memoryview(given) as view:
                return descriptors.in_memory([view.cast("B") if view.c_contiguous else view.tobytes()])
        except TypeError:
            each = ". Use a Decoder (or probe) for each file" * isinstance(
                given, list | tuple | set | frozenset
            )
            kind = type(given).__name__
            raise TypeError(
                f"an input must be a path, a URL, bytes, a binary file or a descriptor, not {kind}{each}"
            ) from None
    if isinstance(file, io.TextIOBase):
        raise TypeError("an input must be a binary file, not a text stream. Open it in binary mode")
    if not file.seekable():
        raise ValueError(f"a {type(file).__name__} can't seek. Read it, and pass the bytes")
    # The file is the caller's, who goes on with it.
    position = file.tell()
    try:
        file.seek(0)
        return descriptors.in_memory(iter(lambda: file.read(_PIECE_BYTES), b""))
    finally:
        file.seek(position)
