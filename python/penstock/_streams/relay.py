"""``relay``, ``start_relay`` and ``Relay`` for any source, including Python streams that have read ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

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
    """Moves bytes from one descriptor to another by the best method for the pair, in the kernel if possible.

    The source and the destination can each be a file, pipe, FIFO, socket or character device, blocking or not. The
    relay ends when it has moved ``count`` bytes or when the source ends, whichever comes first. Both are success. The
    call releases the GIL, and Ctrl-C interrupts it. Holes of a sparse file stay holes beyond the end of a destination
    file.

    Args:
        src: a descriptor, or an object with ``fileno()``: a binary stream, buffered or not, or a socket.
        dst: the same for the destination. Bytes that a Python stream has buffered are flushed first.
        count: maximum number of bytes to move; None moves all until the source ends.
        offset: byte of a source file to start at; the position of ``src`` then doesn't change. None starts at the
            position.
        timeout: seconds without a moved byte until the relay gives up; None never gives up.
        method: ``"auto"``, or ``"read-write"``, which copies through user space even if the kernel can do better.

    Returns:
        A report: how many bytes were moved, by which method and why.

    Raises:
        BrokenStreamError: if the reader of the destination went away.
        StalledError: if no byte moved for ``timeout`` seconds.
        OSError: if either end failed in another way, such as a full disk.
        TypeError: if an object has no descriptor, or its descriptor doesn't carry the bytes that the object reads or
            writes: a text source, a compressed file or a TLS socket.
        ValueError: if ``count`` or ``offset`` is negative; if you pass ``offset`` and the source isn't a file; or if
            source and destination are the same pipe, or overlap in the same file.

    Every exception that ends a relay has ``bytes_delivered`` and ``bytes_lost``, also ``KeyboardInterrupt`` and other
    exceptions of signal handlers. Lost bytes had left a pipe, a socket or a device and didn't reach the destination. A
    file loses no bytes: its position is after the last delivered byte.

    **Buffered sources**, such as ``open(path, "rb")``, ``Popen.stdout`` and ``socket.makefile("rb")``, have read past
    the bytes that your program took from them. The relay begins with the first byte that the program hasn't taken.
    Afterwards the stream continues after the last delivered byte. This also holds after a failure, except that bytes in
    transit from a pipe or socket are gone. With ``offset``, the position of a file doesn't change.
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
    """Starts a relay on a native thread and returns its ticket at once.

    The arguments before `policy` are those of `relay`. The relay duplicates both descriptors, so you can close them
    immediately. The position of a buffered file doesn't change.

    Args:
        policy: priority and CPUs of the thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``. The ticket's
            ``policy`` reports what was applied.

    Returns:
        A ticket to wait for, to await in asyncio, to watch and to cancel. It raises what `relay` raises.

    Raises:
        OSError, TypeError: as for `relay`, if it's known before the first byte.
        ValueError: as for `relay`; or if the source is a buffered pipe or socket, whose read-ahead bytes the relay
            would leave out.
    """
    src, offset = _unread(src, dst, offset, "start_relay()")
    try:
        return _native._start_relay(src, dst, count, offset, timeout, method, policy)
    except OSError as error:
        python_streams.name_end(error, src, (dst,), "dst")
        raise


class Relay:
    """A relay that is prepared once and moves many pieces, each on the caller's thread.

    For pieces of some KiB between the same two descriptors, it's about twice as fast as calling `relay` for each. It
    duplicates both descriptors. ``with`` closes them.

    Args:
        src: as for `relay`.
        dst: as for `relay`.
        offset: byte of a source file to start at; the position of ``src`` then doesn't change.
        timeout: as for `relay`.
        method: as for `relay`.

    Raises:
        OSError, TypeError: as for `relay`, if it's known before the first byte.
        ValueError: as for `relay`; or if the source is a buffered pipe or socket, whose read-ahead bytes the relay
            would leave out.
    """

    __slots__ = ("_prepared",)

    def __init__(
        self,
        src: int | HasFileno,
        dst: int | HasFileno,
        *,
        offset: int | None = None,
        timeout: float | None = None,
        method: RelayMethod = "auto",
    ) -> None:
        src, offset = _unread(src, dst, offset, "Relay()")
        try:
            self._prepared = _native._Relay(src, dst, None, offset, timeout, method, b"")
        except OSError as error:
            python_streams.name_end(error, src, (dst,), "dst")
            raise
        self._prepared.close_at_exit()

    def move(self, count: int) -> RelayReport:
        """Moves the next ``count`` bytes, or fewer if the source ends before. One thread at a time may call it.

        Returns:
            A report of these bytes.

        Raises:
            ClosedError: if the relay is closed.
            BrokenStreamError, StalledError, OSError: as for `relay`, with the counts of these bytes. After a
                ``StalledError`` or Ctrl-C, the next call continues.
        """
        try:
            return self._prepared.advance(count)
        except BaseException as error:
            self._prepared.tell(error)
            raise

    def close(self) -> None:
        """Closes the relay's descriptors. Closing again does nothing.

        Raises:
            OSError: if a file reports only now that bytes weren't written.
        """
        self._prepared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _unread(
    src: int | HasFileno, dst: int | HasFileno, offset: int | None, whose: str
) -> tuple[int | HasFileno, int | None]:
    """The source and where to begin; refuses a source of which bytes were read ahead that can't be read again."""
    if not _are_descriptors(src, dst):
        src = python_streams.checked_ends(src, dst)
        if offset is None and isinstance(src, python_streams.Buffered):
            if not python_streams.is_file(src):
                raise ValueError(
                    f"src is buffered, and {whose} would leave out what it has read ahead. Use relay(), or pass "
                    "src.raw if nothing was read from src"
                )
            offset = src.tell()
    return src, offset


def _are_descriptors(src: object, dst: object) -> bool:
    """Whether both are plain numbers, which need no checks: the fast case."""
    return type(src) is int and type(dst) is int
