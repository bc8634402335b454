"""The types of the native module, with its docstrings: `scripts/stub_docs.py` copies them from the Rust docs."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from io import BufferedRandom, BufferedReader
from types import TracebackType
from typing import Any, Self, final

from penstock._types import (
    Data,
    HasFileno,
    Mode,
    Near,
    Priority,
    ReaderKind,
    RelayMethod,
    SchedulingClass,
    TeePolicy,
    WritableData,
)
from penstock.errors import ChunkError

__version__: str

@final
class Ticket:
    """One queued write and its outcome. ``await ticket`` waits for it in asyncio.

    A write has ended when its buffer is free again. With the transports ``write`` and ``staged``, that is
    when the kernel has all of its bytes; with ``zero-copy``, when the reader has read them.
    """
    @property
    def nbytes(self) -> int:
        """The size of the write in bytes."""
    def done(self) -> bool:
        """Whether the write has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> None:
        """Wait until the write has ended. Releases the GIL; Ctrl-C interrupts it.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: the write did not end in that time. It continues.
            BrokenStreamError, OSError: the stream failed.
            ClosedError: the write was aborted.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does and return the exception of a write that failed; None if it succeeded.

        Raises:
            StalledError: the write did not end in that time.
        """
    def __await__(self) -> Generator[Any]: ...
    def _notify(self, eventfd: int) -> _Watch:
        """Add 1 to the eventfd when the write ends. The native worker does it, without Python."""

@final
class _Watch:
    """A watch on a ticket, with the eventfd that it holds."""
    def stop(self) -> None:
        """Stop watching."""

@final
class _FifoTicket:
    """The opening of a FIFO on a native thread. ``penstock.fifo.FifoTicket`` turns its descriptor into a stream."""
    def done(self) -> bool:
        """Whether the opening has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> None:
        """Wait until the opening has ended."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does and return the exception of an opening that failed; None if it succeeded."""
    def take(self) -> int:
        """Return the descriptor of an opening that has ended. Once."""
    def cancel(self) -> None:
        """Cancel the opening, and close a descriptor that was not taken."""
    def _notify(self, eventfd: int) -> _Watch:
        """Add 1 to the eventfd when the opening ends."""

@final
class ThreadPolicy:
    """The priority and the CPUs to ask for a thread.

    Fields that are left out do not change. A worker thread inherits them from the thread that starts it.

    Refusals of the system don't raise; the ``AppliedPolicy`` shows what was applied and why.

    Args:
        priority: ``"background"``, ``"lowest"``, ``"below-normal"``, ``"normal"``, ``"above-normal"``, ``"highest"`` or
            ``"time-critical"``: niceness 19, 10, 5, 0, -5, -10 and -20; ``"background"`` also sets the scheduling
            class "idle". No level is real-time. To rise above the present level takes a privilege, even to return
            to an earlier one.
        nice: the niceness itself, from -20 (most favoured) to 19, instead of a level.
        cpus: the numbers of the CPUs that the thread may run on.
        near: the owner of the L3 cache to share: the id of a thread (``threading.get_native_id()``); the id of a
            process, for its first thread; or a CPU, as ``("cpu", 3)``. The position of another thread is read once,
            when the policy is applied, so pin that thread if it must not move. Where no L3 cache is known, its package
            is used. With ``cpus``, only those of them that share the cache are used; otherwise, those that the calling
            thread, or the first thread of its process, may run on.

    Raises:
        ValueError: an unknown level, both a level and a niceness, a niceness out of range, no CPU, or an impossible
            number of a thread or CPU.
        TypeError: an argument has the wrong type.
    """
    def __new__(
        cls,
        *,
        priority: Priority | None = None,
        nice: int | None = None,
        cpus: Iterable[int] | None = None,
        near: Near | None = None,
    ) -> Self: ...
    @property
    def priority(self) -> Priority | None:
        """The level asked for."""
    @property
    def nice(self) -> int | None:
        """The niceness asked for."""
    @property
    def cpus(self) -> tuple[int, ...] | None:
        """The CPUs asked for."""
    @property
    def near(self) -> Near | None:
        """The owner of the L3 cache asked for, as it was given."""

@final
class AppliedPolicy:
    """The scheduling of a thread, read back from the system after a policy was applied."""
    @property
    def priority(self) -> Priority | None:
        """The level that matches its class and niceness; None if no level does."""
    @property
    def scheduling_class(self) -> SchedulingClass:
        """Its scheduling class (sched(7)): ``"other"``, ``"batch"``, ``"idle"``, ``"fifo"``, ``"round-robin"``,
        ``"deadline"`` or ``"unknown"``.
        """
    @property
    def nice(self) -> int:
        """Its niceness, which only affects the classes ``"other"`` and ``"batch"``."""
    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that it may run on."""
    @property
    def notes(self) -> tuple[str, ...]:
        """What was refused, why, and by which limit. From ``penstock.cpu``, also what cannot be undone."""
    def _restore(self) -> AppliedPolicy:
        """Apply all this to the calling thread again."""

@final
class WriterStats:
    """What a writer's stream has done so far, and by which transport. A snapshot."""
    @property
    def transport(self) -> str | None:
        """The transport of the last write: ``"write"``, ``"staged"`` or ``"zero-copy"``; None before the first."""
    @property
    def reason(self) -> str:
        """Why this transport was chosen."""
    @property
    def capacity_bytes(self) -> int | None:
        """The size of the pipe in bytes, as granted by the kernel; None if it is not a pipe."""
    @property
    def bytes_accepted(self) -> int:
        """Bytes queued since the stream began."""
    @property
    def bytes_delivered(self) -> int:
        """Bytes that the reader has taken (pipes) or the kernel has accepted (files, sockets)."""
    @property
    def bytes_pending(self) -> int:
        """Bytes of writes that have not ended, without those that are delivered or lost. Bytes of ended writes that
        wait in the pipe for the reader count neither as delivered nor as pending.
        """
    @property
    def items_accepted(self) -> int:
        """Writes queued since the stream began."""
    @property
    def items_pending(self) -> int:
        """Writes that have not ended."""
    @property
    def bytes_by_transport(self) -> dict[str, int]:
        """Bytes that the destination has taken, by the name of the transport."""
    @property
    def caller_wait_s(self) -> float:
        """Seconds that callers spent in ``write``: waiting for room in the queue, and queueing."""
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
        """The policy that was applied to the worker; None if none was asked for, or before the worker starts."""

@final
class Writer:
    """Writes buffers to a file descriptor from a native thread, whole and in order.

    The writer duplicates the descriptor, so the caller can close it or reuse its number. The reader gets its
    end of file once the writer is closed and nobody else has the pipe open. Writers on the same pipe share one
    ordered stream, with its queue and its failure.

    ``with`` and ``async with`` close the writer. If the block raises, queued bytes are still delivered, but a
    reader that takes nothing for 5 seconds is abandoned with a ``StalledError``. An ``async with`` that is
    cancelled while it closes aborts the writer.

    Args:
        fd: an int or an object with ``fileno()``, open for writing. Bytes that a Python stream has buffered for
            it are flushed first.
        mode: ``"auto"``, ``"write"``, ``"staged"`` or ``"zero-copy"``. With zero-copy a buffer is in use until
            the reader has read it, and the reader must copy what it takes (read(2)), as FFmpeg does.
        queue_bytes: bytes that the queue holds before ``write`` waits, 128 MiB by default. One write always fits.
        queue_items: writes that the queue holds before ``write`` waits, 64 by default.
        capacity_bytes: the pipe size to ask the kernel for; by default 1 MiB.
        policy: priority and CPUs of the worker thread.
        reader: ``"reads"`` promises that the reader uses read(2) and does not splice onward. ``auto`` can then use
            zero-copy, and ``staged`` can reuse its pages.
        conversion: converts each write, a frame of the conversion's input, on the worker. All byte counts are then
            those of its output.

    Raises:
        OSError: EBADF if the descriptor is closed or not open for writing; or another failure of the system.
        TypeError: the descriptor does not carry the bytes that the object writes, as with a compressed file or a
            TLS socket; or the object has no descriptor; or an argument has the wrong type.
        ValueError: an argument has a wrong value.
    """
    def __new__(
        cls,
        fd: int | HasFileno,
        *,
        mode: Mode = "auto",
        queue_bytes: int | None = None,
        queue_items: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | None = None,
        reader: ReaderKind = "unknown",
        conversion: _Conversion | None = None,
    ) -> Self: ...
    def write(self, data: Data, *, timeout: float | None = None) -> Ticket:
        """Queue a buffer without copying it. Its memory must not change until the returned ticket is done.

        Waits only while the queue is full.

        Args:
            data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch
                tensor on the CPU, or a ``moderngl.Buffer``.
            timeout: seconds to wait for room in the queue; None waits without limit.

        Raises:
            BrokenStreamError, OSError: the stream has failed; nothing of ``data`` was taken.
            StalledError: the queue stayed full; nothing of ``data`` was taken.
            ClosedError: the writer is closed.
            ValueError: ``data`` is not C-contiguous.
            TypeError: ``data`` has no buffer.
        """
    def _write_made(self, data: Data, *, timeout: float | None = None) -> Ticket:
        """Queue bytes that are converted already, in order with all others. Their memory must never change again."""
    def _oldest(self) -> Ticket | None:
        """The ticket of the oldest write that has not ended; None if all have."""
    def flush(self, timeout: float | None = None) -> None:
        """Wait until all writes that are queued now have ended.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            BrokenStreamError, OSError: the stream failed, or the reader went away with bytes unread in the pipe.
            StalledError: it took longer than ``timeout``. Nothing is lost.
            ClosedError: the writer is closed.
        """
    def close(self, timeout: float | None = None) -> None:
        """Wait as ``flush`` does, then close. The caller's descriptor stays open. Closing again does nothing.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            BrokenStreamError, OSError: the stream failed. The writer is closed nevertheless.
            StalledError: it took longer than ``timeout``. The writer is still open, and nothing is lost.
        """
    def abort(self) -> None:
        """Discard what this writer has queued, and close. The tickets of those writes end with ``ClosedError``.

        A write in progress is cut short. Pages that zero-copy has put into the pipe stay in use until read.
        """
    @property
    def closed(self) -> bool:
        """Whether ``close`` or ``abort`` has ended the writer."""
    @property
    def stats(self) -> WriterStats:
        """What the stream has done so far, and by which transport."""
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
class Frame:
    """A frame of a ``Reader``: a writable, page-aligned buffer.

    ``memoryview(frame)`` and ``numpy.asarray(frame)`` are views of its bytes, without a copy. Its memory is
    recycled once you drop the last view of it.
    """
    @property
    def index(self) -> int:
        """Its number in the stream, from 0. Dropped frames count."""
    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class ReaderStats:
    """What a reader has done so far. A snapshot."""
    @property
    def frames_read(self) -> int:
        """Whole frames read."""
    @property
    def frames_delivered(self) -> int:
        """Frames that callers took."""
    @property
    def frames_dropped(self) -> int:
        """Frames that ``latest`` skipped."""
    @property
    def frames_waiting(self) -> int:
        """Frames that are read ahead and wait for a caller."""
    @property
    def bytes_read(self) -> int:
        """Bytes read, including those of an incomplete frame."""
    @property
    def capacity_bytes(self) -> int | None:
        """The size of the pipe in bytes, as granted by the kernel; None if it is not a pipe."""
    @property
    def caller_wait_s(self) -> float:
        """Seconds that callers waited for frames."""
    @property
    def input_wait_s(self) -> float:
        """Seconds that the worker waited for its input, the source."""
    @property
    def output_wait_s(self) -> float:
        """Seconds that the worker waited for callers to take frames, because ``depth`` of them were ready."""
    @property
    def converting_s(self) -> float:
        """Seconds that the worker spent on conversions."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the worker; None if none was asked for, or before the worker starts."""

@final
class Reader:
    """Reads frames of a fixed size from a file descriptor, ahead of the caller, on a native thread.

    Iterate over it with ``for`` or ``async for``, or call ``read``. The reader duplicates the descriptor and
    begins to read at once. A stream that ends inside a frame, or fails, first gives all whole frames and then
    raises; further calls raise the same error. ``with`` and ``async with`` close the reader.

    Args:
        fd: an int or an object with ``fileno()``, open for reading: a pipe, a stream socket, a device, or a file,
            which is read from its current position. A buffered Python stream such as ``Popen.stdout`` is read from
            the first byte that the program has not taken; the reader takes over what the stream has read ahead.
        frame_bytes: the size of a frame that ``read`` returns.
        depth: the most frames that are read ahead. Memory is held for these, for the frames that you have, and for
            at most ``depth`` + 2 free frames that are kept for reuse.
        capacity_bytes: the pipe size to ask the kernel for; by default 256 KiB.
        policy: priority and CPUs of the worker thread.
        conversion: converts each part of a frame on the worker.
        parts: the number of parts of a frame; each is converted on its own.

    Raises:
        OSError: EBADF if the descriptor is closed or not open for reading, EISDIR for a directory, ENOMEM for frames
            that do not fit into memory; or another failure of the system.
        TypeError: the descriptor does not carry the bytes that the object reads, as with a text stream, a compressed
            file or a TLS socket; or the object has no descriptor; or an argument has the wrong type.
        ValueError: an argument has a wrong value, or the socket preserves message boundaries.
    """
    def __new__(
        cls,
        fd: int | HasFileno,
        *,
        frame_bytes: int,
        depth: int = 4,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | None = None,
        conversion: _Conversion | None = None,
        parts: int = 1,
    ) -> Self: ...
    def read(self, timeout: float | None = None) -> Frame | None:
        """The next frame in order; None when the stream has ended between two frames.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            TruncatedStreamError: the stream ended inside a frame.
            OSError: the stream failed.
            StalledError: no whole frame came in time. Nothing is lost: the next call continues.
            ClosedError: the reader is closed, or belongs to the parent process.
        """
    def readinto(self, buffer: WritableData, timeout: float | None = None) -> int:
        """Copy the next frame into a buffer and return its size; 0 when the stream has ended between two frames.

        Args:
            buffer: a writable, C-contiguous buffer with room for a frame. Bytes behind the frame do not change.
            timeout: seconds; None waits without limit.

        Raises:
            ValueError: the buffer is smaller than a frame, or not C-contiguous. No frame is lost.
            BufferError, TypeError: the buffer is read-only, or the object has no buffer.
            TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
        """
    def latest(self, timeout: float | None = None) -> Frame | None:
        """The newest frame, for live sources: the last that became whole after this call began; None at the end.

        Earlier frames are dropped; ``stats.frames_dropped`` counts them, and ``index`` skips them. The first
        call skips frames that are read ahead or wait whole in the pipe, unless the stream ends after them. From
        then on the worker never waits for callers, so the source never does either. ``read``, ``readinto`` and
        iteration make it wait again and return every frame that has not been dropped.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
        """
    def take_rest(self) -> Frame | None:
        """The bytes of the incomplete last frame, as a shorter ``Frame``, once ``TruncatedStreamError`` was raised.

        None with a conversion, and on later calls.
        """
    def close(self) -> None:
        """Stop reading, drop the frames that nobody has taken, and close the duplicate of the descriptor.

        Frames that you have stay valid. Threads that wait for a frame get ``ClosedError``. Closing again does
        nothing. The call waits at most 5 seconds for the worker, which only a disk read or a lingering socket can
        delay. Ctrl-C interrupts it.
        """
    @property
    def closed(self) -> bool:
        """Whether the reader was closed."""
    @property
    def stats(self) -> ReaderStats:
        """What the reader has done so far, also after its end."""
    def _ready(self) -> Ticket:
        """Done when ``read`` would not wait."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Frame: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Frame]: ...
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
class _Conversion:
    """A conversion of frames from one pixel format to another, which a worker does while it copies them.

    Args:
        input, output: FFmpeg's names of pixel formats.
        width, height: columns and rows of the input.
        matrix: ``"bt601"``, ``"bt709"`` or ``"bt2020"``.
        range: ``"limited"`` or ``"full"``.
        vflip: whether the first row in memory is the bottom row of the picture.
        odd_size: ``"keep"``, ``"pad"`` or ``"crop"``.

    Raises:
        ValueError: this conversion, or this size of a frame, is not supported.
    """
    def __new__(
        cls,
        input: str,
        output: str,
        width: int,
        height: int,
        *,
        matrix: str,
        range: str,
        vflip: bool,
        odd_size: str,
    ) -> Self: ...
    @property
    def output_size(self) -> tuple[int, int]:
        """Columns and rows of the output."""

@final
class _SlotPool:
    """Page-aligned memory in slots of one size, in huge pages where the system has them. Dropped slots are recycled; at
    most ``keep_slots`` of them are kept.
    """
    def __new__(cls, slot_bytes: int, keep_slots: int) -> Self: ...
    def take(self) -> _Slot:
        """A free slot. It holds what its last user left."""
    def filled(self, data: Data, conversion: _Conversion | None = None) -> _Slot:
        """A slot with the elements of ``data`` in C order, strided or not, or with their conversion. ``data`` is not
        needed afterwards.

        Raises:
            ValueError: the size of ``data`` is not that of the slot, or of the conversion's input.
            TypeError: ``data`` has no buffer.
        """
    @property
    def filling_s(self) -> float:
        """Seconds that all calls of ``filled`` took."""

@final
class _Slot:
    """A writable buffer from a pool. Its memory is recycled once the last view of it is gone, including a writer's."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Chunk:
    """A piece of data from a pipeline: a page-aligned buffer.

    ``memoryview(chunk)`` and ``numpy.asarray(chunk)`` are views of its bytes, without a copy. Its memory is
    recycled once you drop the last view of it. A chunk from iteration is writable. A chunk that a callable in
    the pipeline gets is read-only, because other parts share it.
    """
    @property
    def name(self) -> str:
        """The path of its file as it was given, or the name from its source."""
    @property
    def offset(self) -> int:
        """The offset of its first byte in the file or stream; of a decompressed stream, in the decompressed bytes."""
    @property
    def index(self) -> int:
        """Its number in its source, from 0; of a decompressed stream, among the decompressed pieces."""
    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
    @property
    def checksum(self) -> int | None:
        """The result of the last ``checksum`` stage, unsigned; None without one, or if the bytes changed since."""
    @property
    def timings(self) -> tuple[tuple[str, int, int, int], ...]:
        """For each part that handled it, in order: ``(stage, queued_ns, started_ns, ended_ns)``.

        Times are in nanoseconds since the pipeline began. ``queued_ns`` is when the part before had finished.
        """
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class _Source:
    """The source of a pipeline. ``penstock.pipeline`` documents all parts."""
    @staticmethod
    def files(paths: Sequence[str], workers: int, policy: ThreadPolicy | None) -> _Source:
        """Files, each as one chunk."""
    @staticmethod
    def file(path: str, piece_bytes: int, policy: ThreadPolicy | None) -> _Source:
        """One file in pieces."""
    @staticmethod
    def fd(fd: int | HasFileno, piece_bytes: int, policy: ThreadPolicy | None) -> _Source:
        """The bytes of a descriptor."""
    @staticmethod
    def iterable(buffers: Iterable[Data | tuple[str, Data]], policy: ThreadPolicy | None) -> _Source:
        """An iterable of buffers."""

@final
class _Stage:
    """A stage of a pipeline."""
    @staticmethod
    def decompress(
        codec: str, streamed: bool | None, name: str, workers: int, policy: ThreadPolicy | None
    ) -> _Stage:
        """Decompress chunks."""
    @staticmethod
    def checksum(kind: str, name: str, workers: int, policy: ThreadPolicy | None) -> _Stage:
        """Compute checksums."""
    @staticmethod
    def call(
        function: Callable[[Chunk], Chunk | Data | None], name: str, workers: int, policy: ThreadPolicy | None
    ) -> _Stage:
        """Call a Python callable."""

@final
class _Sink:
    """The sink of a pipeline."""
    @staticmethod
    def fd(fd: int | HasFileno, depth: int, depth_bytes: int, policy: ThreadPolicy | None) -> _Sink:
        """A descriptor, through a ``Writer`` whose queue is as deep as the pipeline's."""
    @staticmethod
    def into(buffers: Iterable[WritableData]) -> _Sink:
        """Buffers of the caller."""

@final
class _Pipeline:
    """A running pipeline, with the Python objects that it lends to its threads."""
    def __new__(
        cls,
        source: _Source,
        stages: Sequence[_Stage],
        sink: _Sink | None,
        *,
        depth: int,
        depth_bytes: int,
        max_chunk_bytes: int,
        on_error: str,
    ) -> Self: ...
    def next(self, timeout: float | None) -> Chunk | None:
        """The next chunk; None at the end."""
    def wait(self, timeout: float | None) -> None:
        """Wait for the end of a pipeline whose sink is a descriptor."""
    def done(self) -> bool:
        """Whether ``next`` or ``wait`` would return at once."""
    def cancel(self) -> bool:
        """End the pipeline without waiting, and return whether all threads have ended."""
    def close(self) -> bool:
        """End the pipeline and return whether all threads have ended. Waits for them at most 5 seconds."""
    @property
    def closed(self) -> bool:
        """Whether the pipeline was closed."""
    @property
    def skipped(self) -> list[ChunkError]:
        """The errors of skipped chunks."""
    def stats(self) -> dict[str, Any]:
        """The statistics as dicts, which ``penstock.pipeline`` turns into records."""
    def bottleneck(self) -> str:
        """The slowest part, in words."""
    def _notify(self, eventfd: int) -> _Watch:
        """Add 1 to the eventfd when ``done`` becomes true."""

@final
class Relayed:
    """How many bytes a relay has moved, and by which method."""
    @property
    def bytes(self) -> int:
        """Bytes that the destination has taken."""
    @property
    def method(self) -> str:
        """``"splice"``, ``"splice-through-pipe"``, ``"copy_file_range"``, ``"sendfile"`` or ``"read-write"``; the last
        method if the relay changed it.
        """
    @property
    def reason(self) -> str:
        """Why this method was used."""
    @property
    def source_ended(self) -> bool:
        """Whether the source has ended, rather than the count."""

@final
class RelayTicket:
    """A relay on a native thread. ``await ticket`` waits for it in asyncio.

    Cancelling the task that awaits it cancels the relay; the ``CancelledError`` has ``bytes_delivered`` and
    ``bytes_lost``.
    """
    def done(self) -> bool:
        """Whether the relay has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> Relayed:
        """Wait until the relay has ended and return its result. Releases the GIL; Ctrl-C interrupts it.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: the relay did not end in that time, and continues; or no byte moved for its own timeout.
            ClosedError: the relay was cancelled.
            BrokenStreamError, OSError: as for ``relay``.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does and return the exception of a relay that failed; None if it succeeded.

        Raises:
            StalledError: the relay did not end in that time.
        """
    def cancel(self) -> None:
        """Stop the relay. Bytes that were moved stay moved. Does nothing after its end."""
    @property
    def relayed(self) -> Relayed:
        """The progress so far."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the thread; None if none was asked for, or before the thread starts."""
    def __await__(self) -> Generator[Any, Any, Relayed]: ...
    def _notify(self, eventfd: int) -> _Watch:
        """Add 1 to the eventfd when the relay ends."""
    def _tell(self, error: BaseException) -> None:
        """Set the byte counts of this relay, which has ended, on an exception."""

@final
class TeeOutlet:
    """One destination of a tee. Its properties are live while the tee runs."""
    @property
    def fd(self) -> int:
        """The number of the descriptor that it was added with."""
    @property
    def policy(self) -> str:
        """``"block"`` or ``"evict"``."""
    @property
    def start_bytes(self) -> int:
        """The offset in the stream at which it began, in bytes: 0 unless it was added after the start."""
    @property
    def bytes_delivered(self) -> int:
        """Bytes that it has taken; if its reader went away, those that the reader had taken."""
    @property
    def bytes_lost(self) -> int:
        """Bytes that were taken from the source for it and did not arrive."""
    @property
    def ended(self) -> str | None:
        """Why it ended: ``"source-ended"``, ``"source-failed"``, ``"removed"``, ``"broken"`` (its reader went away),
        ``"evicted"``, ``"failed"`` (a system call failed, as on a full disk) or ``"cancelled"``; None while it runs.
        """
    @property
    def error(self) -> BaseException | None:
        """Its failure: a BrokenStreamError, a StalledError (evicted) or another OSError; None if it did not fail."""
    @property
    def method(self) -> str:
        """How its bytes move: ``"tee"``; or ``"tee, splice"`` or ``"tee, read-write"``, through a pipe of the tee's."""
    @property
    def reason(self) -> str:
        """Why this method is used."""

@final
class TeeReport:
    """The outcome of a tee and of each of its destinations."""
    @property
    def bytes(self) -> int:
        """Bytes that were taken from the source."""
    @property
    def bytes_lost(self) -> int:
        """Bytes that were read from a source that is neither a pipe nor a file and that no destination got, because
        all were gone.
        """
    @property
    def source_ended(self) -> bool:
        """Whether the source has ended."""
    @property
    def destinations(self) -> tuple[TeeOutlet, ...]:
        """The destinations, in the order in which they were added: all that run, and the last thousand that ended."""
    @property
    def forgotten(self) -> int:
        """The number of destinations that ended earlier and are not listed any more."""
    @property
    def forgotten_failures(self) -> int:
        """How many of the forgotten destinations failed. ``check`` raises the failure of the first."""
    @property
    def forgotten_bytes_lost(self) -> int:
        """Bytes that were taken from the source for forgotten destinations and did not arrive."""
    def check(self) -> None:
        """Raise the first failure of a destination, with the others as notes. Does nothing if none failed."""

@final
class Tee:
    """Copies one stream to many destinations on a native thread, by tee(2) and splice(2).

    If all ends are pipes, no byte passes through user space; for other ends the tee puts a pipe of its own in
    between. If one destination fails, the others still receive everything. The tee ends when the source ends, or
    when no destination is left; then what the source holds stays there. The tee duplicates all descriptors: the
    reader of a destination gets its end of file once the caller has closed the descriptor, too.

    ``with`` and ``async with`` start the tee, wait for it at the end of the block, and raise the error of the first
    destination that failed; if the block raises, they cancel the tee. ``await tee`` returns the report; cancelling
    the task that awaits it cancels the tee.

    Args:
        src: an int or an object with ``fileno()``, open for reading. A buffered file is read from the stream's
            position.
        dsts: destinations, open for writing. Bytes that a Python stream has buffered for one are flushed first.
        policy: what happens when one of ``dsts`` takes nothing: with ``"block"`` all others wait for it, with
            ``"evict"`` it is removed after ``stall_timeout``. A slow destination stays.
        stall_timeout: seconds without a single byte taken, although bytes were ready, before an eviction.
        thread_policy: priority and CPUs of the thread.
        start: False delays the start until ``start()``, so that ``add`` can add destinations that miss nothing.

    Raises:
        OSError: EBADF if a descriptor is closed or open for something else; or another failure of the system.
        TypeError: a descriptor does not carry the bytes that its object reads or writes, as with a text source, a
            compressed file or a TLS socket; or an object has no descriptor.
        ValueError: a destination is the source, or is given twice; the source is a pipe or socket of which a Python
            stream has read ahead; or an argument has a wrong value.
    """
    def __new__(
        cls,
        src: int | HasFileno,
        *dsts: int | HasFileno,
        policy: TeePolicy = "block",
        stall_timeout: float = 5.0,
        thread_policy: ThreadPolicy | None = None,
        start: bool = True,
    ) -> Self: ...
    def start(self) -> None:
        """Start a tee that was made with ``start=False``. Otherwise does nothing."""
    def add(
        self, dst: int | HasFileno, *, policy: TeePolicy = "block", stall_timeout: float = 5.0
    ) -> TeeOutlet:
        """Add a destination. Before the start it gets the whole stream, later the bytes from now on.

        Args:
            dst: an int or an object with ``fileno()``, open for writing.
            policy, stall_timeout: as for the constructor's ``dsts``.

        Raises:
            ClosedError: the tee has ended.
            OSError, TypeError, ValueError: as for the constructor.
        """
    def remove(self, dst: TeeOutlet | int | HasFileno) -> None:
        """Remove a destination. Bytes that were taken for it are still delivered. Does nothing if it has ended.

        Args:
            dst: the ``TeeOutlet`` that ``add`` returned, or a descriptor of the destination.

        Raises:
            ValueError: it is not a destination of this tee.
        """
    def wait(self, timeout: float | None = None) -> TeeReport:
        """Start the tee if necessary, wait for its end and return its report. Releases the GIL; Ctrl-C interrupts it.

        Failures of destinations do not raise here: see ``TeeReport.check``.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: the tee did not end in that time. It continues.
            OSError: the source failed.
            ClosedError: the tee was cancelled.
        """
    def cancel(self) -> None:
        """Stop the tee. Does nothing after its end."""
    def done(self) -> bool:
        """Whether the tee has ended."""
    @property
    def report(self) -> TeeReport:
        """The report so far."""
    @property
    def thread_policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the thread; None if none was asked for, or before the thread starts."""
    def __await__(self) -> Generator[Any, Any, TeeReport]: ...
    def _notify(self, eventfd: int) -> _Watch:
        """Add 1 to the eventfd when the tee, which must have started, ends."""
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
class _Relay:
    """A relay on the caller's thread, prepared to run once. ``penstock.relay`` documents it."""
    def __new__(
        cls,
        src: int | HasFileno,
        dst: int | HasFileno,
        count: int | None,
        offset: int | None,
        timeout: float | None,
        method: RelayMethod,
        ahead: bytes,
    ) -> Self: ...
    def run(self, stream: BufferedReader | BufferedRandom | None) -> Relayed:
        """Move the bytes, then set the stream of the source, if given, behind those that were delivered."""
    def tell(self, exception: BaseException) -> None:
        """Set the byte counts on the exception that ended the relay."""

def _start_relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None,
    offset: int | None,
    timeout: float | None,
    method: RelayMethod,
    policy: ThreadPolicy | None,
) -> RelayTicket:
    """Start a relay on a native thread. ``penstock.start_relay`` documents it."""

def pipe(data: Data, fd: int | HasFileno, *, mode: Mode = "auto") -> Ticket:
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
        BrokenStreamError, OSError: an earlier write to this stream failed, and nothing of ``data`` was taken; or
            ``fd`` is not open for writing.
        ValueError: ``data`` is not C-contiguous, or an argument has a wrong value.
        TypeError: ``data`` has no buffer; or ``fd`` is not a descriptor, or does not carry the bytes that the object
            writes, as with a compressed file or a TLS socket.
    """

def sync(data: Data | None = None, timeout: float | None = None) -> None:
    """Wait until buffers are free again: those on the memory of ``data``, or all that ``pipe`` has queued.

    Args:
        data: any object on that memory, such as the buffer itself, a memoryview or a slice of it; None for everything.
        timeout: seconds; None waits without limit.

    Raises:
        BrokenStreamError, OSError: a stream failed. Without ``data``, the failure is reported once, and further
            failures are notes on it. With ``data``, only writes of that memory that are in flight are reported.
        StalledError: it took longer than ``timeout``. Nothing is lost.
    """

def close(timeout: float | None = None) -> None:
    """Wait as ``sync()`` does, then let idle worker threads end. ``pipe`` can be used again afterwards.

    Args:
        timeout: seconds; None waits without limit.

    Raises:
        BrokenStreamError, OSError, StalledError: as for ``sync``.
    """

def _fifo_open(path: str | bytes, mode: str, timeout: float | None = None) -> int:
    """Open a FIFO and return the descriptor. Waits for a reader if it is opened for writing."""

def _fifo_open_async(path: str | bytes, mode: str) -> _FifoTicket:
    """Start to open a FIFO on a native thread."""

def _set_staging_budget(nbytes: int) -> None:
    """Set how many bytes of memory all streams together may use for staging."""

def _make_pipe(capacity_bytes: int | None = None) -> tuple[int, int]:
    """Make a pipe of that capacity, or the nearest that is granted, and return its reading and writing descriptors."""

def _topology(root: str) -> dict[str, Any]:
    """Read the machine under that root, as a dict with an item for each field of a ``Topology``."""

def _apply_policy(policy: ThreadPolicy, *, try_undo: bool) -> AppliedPolicy:
    """Apply a policy to the calling thread. With ``try_undo``, the notes also say what cannot be undone."""

def _current_policy() -> AppliedPolicy:
    """The scheduling of the calling thread."""

def _try_priorities() -> list[tuple[Priority, AppliedPolicy]]:
    """Try each level on a thread of its own."""

def _drain(stall_timeout: float, on_long_wait: Callable[[], None]) -> tuple[int, int, int]:
    """Wait until all streams and relays have ended, or none makes progress for ``stall_timeout`` seconds, or a signal
    handler raises.

    Relays may never end: after the same time ``on_long_wait`` is called once.

    Returns:
        The bytes that no destination has taken; the bytes lost to failures that no call has reported; and the number
        of relays and tees that were stopped.
    """

def _before_fork() -> None:
    """Before a fork: wait until no thread is creating its thread state, and block new ones."""

def _after_fork_in_parent() -> None:
    """After a fork, in the parent: allow new thread states again."""

def _after_fork_in_child() -> None:
    """After a fork, in the child: release memory of the parent's writes, which are not the child's."""

def _count(name: str, value: object) -> int:
    """Check a count or size, for the parts that are written in Python."""

def _seconds(name: str, value: object) -> float | None:
    """Check a number of seconds, for the parts that are written in Python. None stays None."""
