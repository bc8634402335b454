"""``relay`` and ``start_relay`` for any source, including Python streams that have read ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import _native
from penstock._streams import python_streams

if TYPE_CHECKING:
    from penstock._common.types import HasFileno, Priority, RelayMethod
    from penstock._native import RelayReport, RelayTicket, ThreadPolicy


def relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None = None,
    *,
    offset: int | None = None,
    timeout: float | None = None,
    method: RelayMethod = "auto",
) -> RelayReport:
    """Move bytes from one descriptor to another by the best method that the pair allows, in the kernel where possible.

    The ends can be any pair of file, pipe, FIFO, socket and character device, blocking or not. The relay ends when it
    has moved ``count`` bytes or when the source ends, whichever comes first; both are success. The call releases the
    GIL and Ctrl-C interrupts it.

    Args:
        src: a descriptor, or an object with ``fileno()``: a binary stream, buffered or not, or a socket.
        dst: the same for the destination. Bytes that a Python stream has buffered for it are flushed first.
        count: the largest number of bytes to move; None moves all until the source ends.
        offset: the byte of a source file at which to begin. The position of ``src`` then does not change.
        timeout: seconds without a moved byte after which the relay gives up; None never gives up.
        method: ``"read-write"`` copies through user space even where the kernel can do better.

    Returns:
        How many bytes were moved, by which method and why.

    Raises:
        BrokenStreamError: the reader of the destination went away.
        StalledError: no byte moved for ``timeout`` seconds.
        OSError: either end failed in another way; the disk is full, for instance.
        TypeError: the descriptor does not carry the bytes that the object reads or writes, as with a text source, a
            compressed file or a TLS socket; or the object has no descriptor.
        ValueError: ``count`` or ``offset`` is negative; ``offset`` is given and the source is not a file; or source
            and destination are the same pipe, or overlap in the same file.

    Every exception that ends a relay has ``bytes_delivered`` and ``bytes_lost``, including ``KeyboardInterrupt`` and
    anything else that a signal handler raises. Lost bytes had left a pipe, a socket or a device and did not reach the
    destination. No byte of a file is lost: its position is behind the last byte that was delivered.

    **Buffered sources**, such as ``open(path, "rb")``, ``Popen.stdout`` and ``socket.makefile("rb")``, have read past
    the bytes that the program took from them. The relay begins with the first byte that the program has not taken, and
    afterwards the stream continues behind the last byte that was delivered. That also holds after a failure, except
    that bytes in transit from a pipe or socket are gone. With ``offset``, the position of a file does not change.
    """
    stream, ahead = None, b""
    if not _are_descriptors(src, dst):
        src = python_streams.checked_ends(src, dst)
        if offset is None and isinstance(src, python_streams.Buffered):
            stream = src
            if python_streams.is_file(src):
                offset = src.tell()
            else:
                ahead = python_streams.read_ahead(src)
    try:
        prepared = _native._Relay(src, dst, count, offset, timeout, method, ahead)
    except OSError as error:
        python_streams.name_end(error, src, (dst,), "dst")
        raise
    try:
        return prepared.run(stream)
    except BaseException as error:
        # A signal handler can raise even after all bytes were moved.
        prepared.tell(error)
        raise


def start_relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None = None,
    *,
    offset: int | None = None,
    timeout: float | None = None,
    method: RelayMethod = "auto",
    policy: ThreadPolicy | Priority | None = None,
) -> RelayTicket:
    """Start a relay on a native thread and return its ticket at once.

    The arguments before `policy` are those of `relay`. The relay duplicates both descriptors, so the caller can close
    them immediately. The position of a buffered file stays where it is at the call.

    Args:
        policy: priority and CPUs of the thread: a ``ThreadPolicy``, or a level like ``"below-normal"``. The ticket's
            ``policy`` says what was applied.

    Returns:
        A ticket to wait for, to await in asyncio, to watch and to cancel. It raises what `relay` raises.

    Raises:
        OSError, TypeError: as `relay`, as far as this is known before the first byte.
        ValueError: as `relay`; or the source is a buffered pipe or socket, whose read-ahead bytes the relay would
            leave out.
    """
    if not _are_descriptors(src, dst):
        src = python_streams.checked_ends(src, dst)
        if offset is None and isinstance(src, python_streams.Buffered):
            if not python_streams.is_file(src):
                raise ValueError(
                    "src is buffered, and start_relay() would leave out what it has read ahead. Use relay(), or pass "
                    "src.raw if nothing was read from src"
                )
            offset = src.tell()
    try:
        return _native._start_relay(src, dst, count, offset, timeout, method, policy)
    except OSError as error:
        python_streams.name_end(error, src, (dst,), "dst")
        raise


def _are_descriptors(src: object, dst: object) -> bool:
    """Whether both are plain numbers, which need no checks: the fast case."""
    return type(src) is int and type(dst) is int
