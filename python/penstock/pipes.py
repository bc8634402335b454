"""Pipes as files of Python: both ends are raw streams of ``io``, and can be relayed.

::

    reader, writer = penstock.make_pipe(capacity_bytes=1 << 20)

Whatever takes a raw stream takes these: ``io.BufferedReader`` and ``io.BufferedWriter``, ``shutil.copyfileobj``,
``tarfile`` in its stream modes, ``gzip``.
"""

from __future__ import annotations

import errno
import fcntl
import io
import sys
import termios
from typing import TYPE_CHECKING, ClassVar, Unpack

from penstock import _native
from penstock._relay import relay
from penstock.errors import BrokenStreamError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from penstock._native import Relayed
    from penstock._types import HasFileno, RelayOptions

__all__ = ["PipeReader", "PipeWriter", "make_pipe", "set_staging_budget"]


def make_pipe(capacity_bytes: int | None = None) -> tuple[PipeReader, PipeWriter]:
    """Make a pipe, neither end of which is inherited by programs that this one starts.

    Args:
        capacity_bytes: how much it is to hold. The kernel rounds that up to a power of two; where it does not grant as
            much, the pipe is as large as it may be, and its ends tell their ``capacity_bytes``. None leaves what Linux
            gives, 64 KiB as a rule.

    Raises:
        ValueError: ``capacity_bytes`` is less than 1.
        TypeError: it is no integer.
        OSError: no more descriptors can be had.
    """
    reader, writer = _native._make_pipe(capacity_bytes)
    return PipeReader(reader), PipeWriter(writer)


def set_staging_budget(nbytes: int) -> None:
    """Set how much memory all writers of this process together may use for the transport ``staged``.

    A stream takes 4 MiB, or 2 MiB if its reader is known to copy, from its first staged write until its thread has been
    idle for a while. A stream that finds no room uses ``write``, and its ``stats.reason`` says so. What streams have
    already, they keep.

    Args:
        nbytes: bytes; 16 MiB unless set. 0 turns ``staged`` off for streams that do not use it yet.

    Raises:
        ValueError: ``nbytes`` is negative.
        TypeError: it is no integer.
    """
    _native._set_staging_budget(_native._count("nbytes", nbytes))


class _PipeEnd(io.FileIO):
    _MODE: ClassVar[str]

    def __init__(self, fd: int, *, closefd: bool = True) -> None:
        super().__init__(fd, self._MODE, closefd=closefd)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"fd={self.fileno()}"
        return f"<{type(self).__module__}.{type(self).__name__} {state}>"

    @property
    def capacity_bytes(self) -> int:
        """The size of the pipe in bytes."""
        return fcntl.fcntl(self.fileno(), fcntl.F_GETPIPE_SZ)

    @property
    def unread_bytes(self) -> int:
        """Bytes that are in the pipe and were not read."""
        answer = fcntl.ioctl(self.fileno(), termios.FIONREAD, bytes(4))
        return int.from_bytes(answer, sys.byteorder)


class PipeReader(_PipeEnd):
    """The end of a pipe that bytes come out of: a raw stream, of the descriptor that it is made with.

    ``read`` and ``readinto`` give what is there, and wait if that is nothing; with a descriptor that does not block
    they give None instead. ``b""`` and 0 are the end of file: nothing is left, and no writer.
    """

    _MODE = "rb"

    def write_to(
        self, dst: int | HasFileno, count: int | None = None, **options: Unpack[RelayOptions]
    ) -> Relayed:
        """Relay what comes out of the pipe: ``penstock.relay(self, dst, count, **options)``."""
        return relay(self, dst, count, **options)


class PipeWriter(_PipeEnd):
    """The end of a pipe that bytes go into: a raw stream, of the descriptor that it is made with."""

    _MODE = "wb"

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # None: see io.RawIOBase
        """Write all of it, and give its size in bytes.

        A descriptor that does not block takes what there is room for: the number of bytes tells, or None for not even
        one.

        Raises:
            BrokenStreamError: nobody can read it any more. Its counts are those of this call: what was lost is what no
                reader has taken.
            ValueError: it is closed.
        """
        written = 0
        try:
            first = super().write(data)
            if first is None:
                return None
            written = first
            # A write that a signal interrupts, or one of more than 2 GiB, is short, and most callers never look.
            while written < memoryview(data).nbytes:
                more = super().write(memoryview(data).cast("B")[written:])
                if more is None:
                    break
                written += more
        except BrokenPipeError as error:
            raise self._broken(error, memoryview(data).nbytes, written) from None
        return written

    def read_from(
        self,
        src: int | HasFileno,
        count: int | None = None,
        *,
        offset: int | None = None,
        **options: Unpack[RelayOptions],
    ) -> Relayed:
        """Relay into the pipe: ``penstock.relay(src, self, count, **options)``."""
        return relay(src, self, count, offset=offset, **options)

    def _broken(self, error: BrokenPipeError, nbytes: int, written: int) -> BrokenStreamError:
        delivered = max(0, written - self.unread_bytes)
        lost = nbytes - delivered
        text = f"the reader went away: {delivered} bytes delivered, {lost} lost"
        return BrokenStreamError(error.errno or errno.EPIPE, text, delivered, lost)
