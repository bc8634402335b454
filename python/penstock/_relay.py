"""``relay`` for any source: what a Python stream has read ahead belongs to the bytes that are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from penstock import _native, _streams

if TYPE_CHECKING:
    from penstock._native import Relayed, RelayTicket, ThreadPolicy
    from penstock._types import HasFileno, RelayMethod


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

    Every exception that ends a relay has ``bytes_delivered`` and ``bytes_lost``, also a ``KeyboardInterrupt`` and what
    else a signal's handler raises. Lost are bytes that had left a pipe, a socket or a device and did not reach the
    destination. Of a file none are: its position is behind the last byte that was delivered.

    **Buffered sources**, such as ``open(path, "rb")``, ``Popen.stdout`` and ``socket.makefile("rb")``, have read ahead
    of what the program took from them. The relay begins with the first byte that the program has not taken, and the
    stream goes on after the last that was delivered. That holds for failures as well; only of a pipe or socket, bytes
    that were on their way are gone. With ``offset``, and with ``wait=False``, the position of a file stays where it
    was at the call: nobody could move it when a ticket ends.
    """
    # Descriptors, the fast case, cost two comparisons.
    stream, ahead = None, b""
    if type(src) is not int or type(dst) is not int:
        src = _streams.without_wrapper(src)
        _streams.check_source(src, "src")
        _streams.check_destination(dst, "dst")
        if offset is None and isinstance(src, _streams.Buffered):
            if _streams.is_file(src):
                stream, offset = (src if wait else None), src.tell()
            elif wait:
                stream, ahead = src, _streams.read_ahead(src)
            else:
                raise ValueError(
                    "src is buffered, and wait=False would leave out what it has read ahead: pass src.raw or "
                    "src.fileno() if it has not been read from, or wait=True"
                )
    if not wait:
        return _native._start_relay(
            src, dst, count, offset=offset, timeout=timeout, method=method, policy=policy
        )
    if policy is not None:
        raise ValueError("policy is for a thread of its own: it needs wait=False")
    relay = _native._Relay(src, dst, count, offset=offset, timeout=timeout, method=method, ahead=ahead)
    try:
        return relay.run(stream)
    except BaseException as error:
        # Also what a signal's handler raises when all was moved, and nothing of ours was left to be interrupted.
        relay.tell(error)
        raise
