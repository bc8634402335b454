"""``relay`` for any source: what a Python stream has read ahead belongs to the bytes that are moved."""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast, overload

from penstock import _native

if TYPE_CHECKING:
    from penstock._native import Relayed, RelayTicket, ThreadPolicy
    from penstock._types import HasFileno, RelayMethod

_Buffered: TypeAlias = io.BufferedReader | io.BufferedRandom

_FAITHFUL = (io.RawIOBase, io.BufferedReader, io.BufferedRandom, io.BufferedWriter)
"""Of Python's binary streams, those whose descriptor carries the very bytes that they read or write."""


@overload
def relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None = None,
    *,
    offset: int | None = None,
    timeout: float | None = None,
    method: RelayMethod = "auto",
    policy: None = None,
    wait: Literal[True] = True,
) -> Relayed: ...


@overload
def relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None = None,
    *,
    offset: int | None = None,
    timeout: float | None = None,
    method: RelayMethod = "auto",
    policy: ThreadPolicy | None = None,
    wait: Literal[False],
) -> RelayTicket: ...


@overload
def relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None = None,
    *,
    offset: int | None = None,
    timeout: float | None = None,
    method: RelayMethod = "auto",
    policy: ThreadPolicy | None = None,
    wait: bool,
) -> Relayed | RelayTicket: ...


def relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None = None,
    *,
    offset: int | None = None,
    timeout: float | None = None,
    method: RelayMethod = "auto",
    policy: ThreadPolicy | None = None,
    wait: bool = True,
) -> Relayed | RelayTicket:
    """Move bytes from one descriptor to another by the best method that the two allow: in the kernel, where it can.

    Any pair of file, pipe, FIFO, socket and character device will do, blocking or not. It is over when ``count``
    bytes are moved or the source has come to its end, whichever is first; both are success. The GIL is released
    meanwhile, and Ctrl-C works.

    Args:
        src: a descriptor, or what has one by ``fileno()``: a binary stream, buffered or not, a socket.
        dst: the same for the destination. What a Python stream has buffered for it goes there first.
        count: bytes to move at most; None for all until the source ends.
        offset: the byte of a source file at which to begin. The position of ``src`` then stays where it is.
        timeout: seconds without a byte moved after which to give up; None never does.
        method: ``"read-write"`` copies through user space even where the kernel knows better.
        policy: priority and CPUs of the native thread, which only ``wait=False`` has. What came of it is the ticket's
            ``policy``.
        wait: with False, a native thread moves the bytes, and a ticket is given at once.

    Returns:
        How many bytes were moved, by which method and why. With ``wait=False``, a ticket: to wait for, to await in
        asyncio, to look at and to cancel. It has descriptors of its own, so both ends may be closed meanwhile.

    Raises:
        BrokenStreamError: the reader of the destination went away.
        StalledError: no byte moved for ``timeout`` seconds.
        OSError: either end failed otherwise; the disk is full, for instance.
        TypeError: the descriptor does not carry what the object reads or writes: that of a text source, a compressed
            file, a TLS socket. Or there is none.
        ValueError: a negative ``count`` or ``offset``; ``offset`` for a source that is no file; source and destination
            are the same pipe, or overlap in the same file; ``policy`` with ``wait=True``; or ``wait=False`` for a
            buffered pipe or socket, as what has been read ahead of it would be left out.

    Every failure after the first byte, an interruption as well, has ``bytes_delivered``.

    **Buffered sources**, such as ``open(path, "rb")``, ``Popen.stdout`` and ``socket.makefile("rb")``, have read ahead
    of what the program took from them. The relay begins with the first byte that the program has not taken, and the
    stream goes on after the last that was delivered. That holds for failures as well; only of a pipe or socket, bytes
    that were on their way are gone. With ``offset``, and with ``wait=False``, the position of a file stays where it
    was at the call: nobody could move it when a ticket ends.
    """
    # Descriptors, the fast case, cost two comparisons.
    if type(src) is not int or type(dst) is not int:
        src = _without_wrapper(src)
        _check_source(src)
        _check_destination(_without_wrapper(dst))
        if offset is None and isinstance(src, _Buffered):
            if not _is_file(src):
                return _relay_stream(src, dst, count, wait, timeout=timeout, method=method, policy=policy)
            if wait:
                return _relay_file(src, dst, count, timeout=timeout, method=method, policy=policy)
            offset = src.tell()
    return _native.relay(
        src, dst, count, offset=offset, timeout=timeout, method=method, policy=policy, wait=wait
    )


def tee_source(src: Any) -> Any:
    """What a tee may read instead of that object: the bytes that the program has not taken."""
    src = _without_wrapper(src)
    _check_source(src)
    if isinstance(src, _Buffered):
        if _is_file(src):
            _drop_read_ahead(src)
        elif _read_ahead(src):
            raise ValueError(
                "src has been read ahead of by Python, and a tee would leave that out: read it first, or pass a stream "
                "without a buffer"
            )
    return src


def tee_destination(dst: Any) -> Any:
    """The object, if its descriptor carries the bytes that are written to it."""
    _check_destination(_without_wrapper(dst))
    return dst


def _drop_read_ahead(file: _Buffered) -> None:
    """Set the descriptor's position to the stream's own. A seek within the buffer alone would not reach it."""
    position = file.tell()
    file.seek(0, os.SEEK_END)
    file.seek(position)


def _relay_file(src: _Buffered, dst: int | HasFileno, count: int | None, **options: Any) -> Relayed:
    position = src.tell()
    delivered = 0
    try:
        relayed = _run(src, dst, count, offset=position, **options)
        delivered = relayed.bytes
    except BaseException as error:
        delivered = _delivered(error)
        raise
    finally:
        src.seek(position + delivered)
    return relayed


def _relay_stream(
    src: _Buffered, dst: int | HasFileno, count: int | None, wait: bool, **options: Any
) -> Relayed:
    """The bytes that were read ahead go first, the descriptor's follow."""
    if not wait:
        raise ValueError(
            "src is buffered, and wait=False would leave out what it has read ahead: pass src.raw or src.fileno() "
            "if it has not been read from, or wait=True"
        )
    # A negative count, and one of 0, are for the native side to judge.
    ahead = _read_ahead(src)[: count if count is None else max(count, 0)]
    if not ahead:
        return _run(src, dst, count, **options)
    first = _relay_ahead(src, ahead, dst, options)
    if count is not None and count == len(ahead):
        return first
    try:
        rest = _run(src, dst, None if count is None else count - len(ahead), **options)
    except BaseException as error:
        cast(Any, error).bytes_delivered = len(ahead) + _delivered(error)
        raise
    return rest._after(len(ahead))


def _relay_ahead(src: _Buffered, ahead: bytes, dst: int | HasFileno, options: dict[str, Any]) -> Relayed:
    """Relays bytes that are in the stream's buffer, and takes out of it those that the destination took."""
    # A file in memory, because the native side counts, waits and fails for files as it does for the rest.
    with os.fdopen(os.memfd_create("penstock"), "r+b") as memory:
        memory.write(ahead)
        memory.seek(0)
        try:
            return _run(memory.raw, dst, len(ahead), **options)
        finally:
            src.read(memory.raw.tell())  # as far as the relay came, however it ended


def _run(src: HasFileno, dst: int | HasFileno, count: int | None, **options: Any) -> Relayed:
    return cast("Relayed", _native.relay(src, dst, count, **options))


def _delivered(error: BaseException) -> int:
    """How far a relay came; those that failed at the call, and so moved nothing, do not say."""
    return getattr(error, "bytes_delivered", 0)


def _read_ahead(stream: _Buffered) -> bytes:
    """What is in the stream's buffer, without taking it out.

    With an empty buffer, ``peek`` would read, and wait for that without regard to a timeout.
    """
    raw = cast(Any, stream.raw)
    try:
        raw.readinto = _would_block
    except AttributeError:  # a class of somebody's own, with slots
        return stream.peek()
    try:
        return stream.peek()
    finally:
        del raw.readinto


def _would_block(_buffer: object) -> None:
    """What ``readinto`` of a raw stream gives when there is nothing to read yet."""


def _is_file(stream: io.IOBase) -> bool:
    """Whether it has positions, and can be read from any of them."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def _without_wrapper(end: Any) -> Any:
    """The file inside ``tempfile.NamedTemporaryFile``, which is itself none of Python's streams."""
    inner = getattr(end, "file", None)
    return inner if isinstance(inner, io.IOBase) and not isinstance(end, io.IOBase) else end


def _check_source(src: Any) -> None:
    if isinstance(src, io.TextIOBase):
        raise TypeError("src is a text stream, and has decoded bytes ahead: pass src.buffer")
    _check_faithful(src, "src")


def _check_destination(dst: Any) -> None:
    # What a text stream has encoded is flushed; what matters is where it then goes.
    _check_faithful(getattr(dst, "buffer", dst) if isinstance(dst, io.TextIOBase) else dst, "dst")


def _check_faithful(end: Any, name: str) -> None:
    """Refuses what has a descriptor with other bytes than its own, such as a ``GzipFile``, or has none."""
    if isinstance(end, io.IOBase) and not (isinstance(end, _FAITHFUL) and _has_descriptor(end)):
        _refuse(end, name)
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(_socket_of(end), ssl.SSLSocket):
        _refuse(end, name)


def _refuse(end: object, name: str) -> NoReturn:
    raise TypeError(
        f"{name} is a {type(end).__name__}, whose bytes are not those of a descriptor: "
        "shutil.copyfileobj moves them, also from and to the ends of penstock.make_pipe()"
    )


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, io.UnsupportedOperation):  # the first from the buffered members of a tarfile
        return False
    return True


def _socket_of(end: Any) -> Any:
    """The socket behind ``socket.makefile``, or the object itself."""
    return getattr(getattr(end, "raw", end), "_sock", end)
