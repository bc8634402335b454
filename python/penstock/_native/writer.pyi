"""`Writer`, and the functions that write to a descriptor without one."""

from types import TracebackType
from typing import NoReturn, Self, final

from penstock._common.types import Data, HasFileno, Mode, Priority
from penstock._native.conversion import _Conversion
from penstock._native.cpu import AppliedPolicy, ThreadPolicy
from penstock._native.ticket import Ticket

@final
class Writer:
    """Writes buffers to a file descriptor from a native thread, whole and in order.

    ```python
    with Writer(process.stdin) as writer:
        pickle.dump(table, writer)
    process.stdin.close()
    ```

    ``write`` copies the bytes, ``submit`` borrows the buffer. With ``write``, ``flush`` and ``close``, a writer is a
    binary file for ``json``, ``pickle``, ``numpy.save``, ``zipfile`` and whatever else writes from the beginning to the
    end. It has no ``fileno``: pass the descriptor itself to a program that you start.

    The writer duplicates the descriptor, so you can close yours or reuse its number. The reader gets its end of file
    once the writer is closed and nobody else has the pipe open: close your own descriptor, too. Writers on the same
    pipe share one ordered stream, with its queue and its failure.

    ``with`` and ``async with`` close the writer. If the block raises, queued bytes are still delivered, but the writer
    gives up if the reader takes nothing for 5 seconds. Your exception propagates, with a note if bytes were lost. If an
    ``async with`` is cancelled while it closes, it aborts the writer.

    Args:
        fd: an int or an object with ``fileno()``, open for writing. Bytes that a Python stream has buffered for it are
            flushed first.
        mode: the transport: ``"write"`` (the kernel copies), ``"staged"`` (the thread copies into pages that the pipe
            takes over) or ``"zero-copy"`` (the pipe gets the buffer's own pages). ``"auto"`` picks the fastest safe
            one. With zero-copy, a buffer is in use until the reader has read it, and the reader must copy what it takes
            (read(2)), as FFmpeg does.
        queue_bytes: bytes that the queue holds before a call waits; None is 128 MiB. One write always fits.
        queue_items: number of writes that the queue holds before a call waits; None is 64.
        capacity_bytes: pipe size to ask the kernel for, in bytes; None is 1 MiB.
        policy: priority and CPUs of the worker thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``.
        reader_copies: promises that the reader uses read(2), as FFmpeg does, and doesn't splice onward. ``"auto"`` can
            then use zero-copy, and ``"staged"`` can reuse its pages.

    Raises:
        OSError: EBADF if the descriptor is closed or not open for writing; or another failure of the system.
        TypeError: if the object has no descriptor, or the descriptor doesn't carry the bytes that the object writes: a
            compressed file or a TLS socket; or if an argument has the wrong type.
        ValueError: if an argument has a wrong value.
    """
    def __new__(
        cls,
        fd: int | HasFileno,
        *,
        mode: Mode = "auto",
        queue_bytes: int | None = None,
        queue_items: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | Priority | None = None,
        reader_copies: bool = False,
    ) -> Self: ...
    @staticmethod
    def _converting(
        fd: int | HasFileno,
        *,
        mode: Mode = "auto",
        queue_bytes: int | None = None,
        queue_items: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | Priority | None = None,
        reader_copies: bool = False,
        conversion: _Conversion | None = None,
    ) -> Writer:
        """A writer whose worker converts each write, a frame; without a conversion, a plain one.

        All byte counts are those of the conversion's output.
        """
    def write(self, data: Data, *, timeout: float | None = None) -> int:
        """Copies a buffer and queues the copy. Returns the number of bytes.

        The call waits only while the queue is full. You can reuse the buffer when it returns. If the call raises,
        nothing was queued. While the thread is busy, writes of up to 16 KiB are gathered into larger ones, unless the
        destination preserves message boundaries.

        Args:
            data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch
                tensor on the CPU, or a ``moderngl.Buffer``.
            timeout: seconds to wait for room in the queue; None waits without limit.

        Raises:
            BrokenStreamError, OSError: if the stream has failed.
            StalledError: if the queue stayed full.
            ClosedError: if the writer is closed.
            MemoryError: if there is no memory for the copy.
            ValueError: if ``data`` isn't C-contiguous.
            TypeError: if ``data`` has no buffer.
        """
    def submit(self, data: Data, *, timeout: float | None = None) -> Ticket:
        """Queues a buffer without copying it. Its memory must not change until the returned ticket is done.

        The call waits only while the queue is full. If it raises, nothing was queued. If nothing else is in flight, the
        calling thread itself writes up to 4 KiB to a pipe or socket, and up to 128 KiB as the stream's first: that's
        quicker than to wake or start a native thread.

        Args:
            data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch
                tensor on the CPU, or a ``moderngl.Buffer``.
            timeout: seconds to wait for room in the queue; None waits without limit.

        Raises:
            BrokenStreamError, OSError: if the stream has failed.
            StalledError: if the queue stayed full.
            ClosedError: if the writer is closed.
            ValueError: if ``data`` isn't C-contiguous.
            TypeError: if ``data`` has no buffer.
        """
    def _submit_converted(self, data: Data, *, timeout: float | None = None) -> Ticket:
        """Queue bytes that are converted already, in order with all others. Their memory must never change again."""
    def _oldest(self) -> Ticket | None:
        """The ticket of the oldest write that has not ended; None if all have."""
    def flush(self, timeout: float | None = None) -> None:
        """Waits until all writes that are queued now have ended.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            BrokenStreamError, OSError: if the stream failed, or the reader went away with bytes unread in the pipe.
            StalledError: if it took longer than ``timeout``. Nothing is lost.
            ClosedError: if the writer is closed, or another thread aborts it meanwhile.
        """
    def close(self, timeout: float | None = None) -> None:
        """Waits as ``flush`` does, then closes the writer. Your descriptor stays open. Closing again does nothing.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            BrokenStreamError, OSError: if the stream failed. The writer is closed nevertheless. A file may report only
                now that it couldn't keep what it had accepted (ENOSPC on a network file system); all bytes then count
                as lost.
            ClosedError: if another thread aborts it meanwhile.
            StalledError: if it took longer than ``timeout``. The writer is still open, and nothing is lost.
        """
    def abort(self) -> None:
        """Discards what this writer has queued, and closes it. The tickets of those writes end with ``ClosedError``.

        A write in progress is cut short. Pages that zero-copy has put into the pipe stay in use until the reader has
        read them or is gone, and the ticket of their write ends only then.
        """
    @staticmethod
    def readable() -> bool:
        """Returns False."""
    @staticmethod
    def writable() -> bool:
        """Returns True."""
    @staticmethod
    def seekable() -> bool:
        """Returns False."""
    @staticmethod
    def isatty() -> bool:
        """Returns False."""
    @staticmethod
    def read(size: object = None) -> NoReturn:
        """Raises ``io.UnsupportedOperation``. It exists because ``numpy.savez`` only accepts files that have it."""
    @staticmethod
    def tell() -> NoReturn:
        """Raises ``io.UnsupportedOperation``: a writer has no position."""
    @property
    def closed(self) -> bool:
        """Whether ``close`` or ``abort`` has ended the writer."""
    @property
    def stats(self) -> WriterStats:
        """Statistics of the stream so far, and its transport."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...

@final
class WriterStats:
    """Statistics of a writer's stream, and its transport: a snapshot."""
    @property
    def transport(self) -> str | None:
        """The transport of the last write: ``"write"``, ``"staged"`` or ``"zero-copy"``; None before the first."""
    @property
    def reason(self) -> str:
        """Why this transport was chosen."""
    @property
    def capacity_bytes(self) -> int | None:
        """The size of the pipe in bytes, as granted by the kernel; None if it isn't a pipe."""
    @property
    def bytes_accepted(self) -> int:
        """Bytes queued since the stream began."""
    @property
    def bytes_delivered(self) -> int:
        """Bytes that the reader has taken (pipes) or the kernel has accepted (files, sockets).

        Bytes that the reader takes after ``close`` don't count.
        """
    @property
    def bytes_pending(self) -> int:
        """Bytes of writes that haven't ended, without those that are delivered or lost.

        Bytes of ended writes that wait in the pipe for the reader count neither as delivered nor as pending.
        """
    @property
    def items_accepted(self) -> int:
        """Writes queued since the stream began. Gathered writes count as one."""
    @property
    def items_pending(self) -> int:
        """Writes that haven't ended."""
    @property
    def bytes_by_transport(self) -> dict[str, int]:
        """Bytes that the destination has taken, by the name of the transport."""
    @property
    def caller_wait_s(self) -> float:
        """Seconds that callers spent in ``write`` and ``submit``: waiting for room in the queue, and queueing."""
    @property
    def output_wait_s(self) -> float:
        """Seconds that the worker waited for its output: for room, or for the reader to take zero-copy pages."""
    @property
    def busy_s(self) -> float:
        """Seconds that the worker spent on writes, including ``output_wait_s`` and ``converting_s``."""
    @property
    def converting_s(self) -> float:
        """Seconds that the worker spent on conversions."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the worker; None if you asked for none, or before the worker starts."""

def _pipe(data: Data, fd: int | HasFileno, *, mode: Mode = "auto") -> Ticket:
    """Queue a buffer to be written to a file descriptor by a native thread, in order, and return its ticket.

    Waits only while the queue of that stream is full (128 MiB or 64 writes). The descriptor may be closed, and its
    number reused, as soon as this returns. All descriptors of one pipe are one stream with one order.

    Args:
        data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch tensor
            on the CPU, or a ``moderngl.Buffer``, whose bytes are copied during the call. Other memory is in use until
            the ticket is done or ``sync(data)`` returns, and must not change until then.
        fd: an int or an object with ``fileno()``, open for writing. Bytes that a Python stream has buffered for it are
            flushed first.
        mode: ``"auto"``, ``"write"``, ``"staged"`` or ``"zero-copy"``. Zero-copy needs a reader that copies (read(2)).

    Raises:
        BrokenStreamError, OSError: an earlier write to this stream failed, which no ticket has reported, and nothing
            of ``data`` was taken; or ``fd`` is not open for writing.
        ValueError: ``data`` is not C-contiguous, or an argument has a wrong value.
        TypeError: ``data`` has no buffer; or ``fd`` is not a descriptor, or does not carry the bytes that the object
            writes, as with a compressed file or a TLS socket.
    """

def _sync(data: Data | None = None, timeout: float | None = None) -> None:
    """Wait until buffers are free again: those on the memory of ``data``, or all that ``pipe`` has queued.

    Args:
        data: any object on that memory, such as the buffer itself, a memoryview or a slice of it; None for everything.
        timeout: seconds; None waits without limit.

    Raises:
        BrokenStreamError, OSError: a stream failed. Further failures are notes on the first. Without ``data``, each
            failure that no ticket has reported is reported once. With ``data``, only writes of that memory that are in
            flight are reported, once all of them have ended.
        StalledError: it took longer than ``timeout``. Nothing is lost.
    """

def _close(timeout: float | None = None) -> None:
    """Wait as ``sync()`` does, then let idle worker threads end. ``pipe`` can be used again afterwards.

    Args:
        timeout: seconds; None waits without limit.

    Raises:
        BrokenStreamError, OSError, StalledError: as for ``sync``.
    """
