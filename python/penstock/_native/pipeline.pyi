"""The parts of pipelines, and their chunks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, final

from penstock._common.types import Data, HasFileno, Priority, WritableData
from penstock._native.cpu import ThreadPolicy
from penstock._native.ticket import _LoopWaker, _Watch
from penstock.errors import PipelineError

@final
class Chunk:
    """A piece of data from a pipeline: a page-aligned buffer.

    ``memoryview(chunk)`` and ``numpy.asarray(chunk)`` are views of its bytes, without a copy. The memory is recycled
    once you drop the last view of it. A chunk from iteration is writable. A chunk that a callable in the pipeline gets
    is read-only, because other parts share it.
    """
    @property
    def name(self) -> str:
        """The path of its file as you passed it, or the name from its source."""
    @property
    def offset(self) -> int:
        """The offset of its first byte in the file or stream; for a decompressed stream, in the decompressed bytes."""
    @property
    def index(self) -> int:
        """Its number in its source, from 0; for a decompressed stream, among the decompressed pieces."""
    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
    @property
    def checksum(self) -> int | None:
        """The result of the last ``checksum`` stage, unsigned; None without a stage, or if the bytes changed since."""
    @property
    def timings(self) -> tuple[tuple[str, float, float, float], ...]:
        """For each part that handled it, in order: ``(stage, queued_s, started_s, ended_s)``.

        Times are in seconds since the pipeline began. ``queued_s`` is when the part before had finished.
        """
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class _Source:
    """The source of a pipeline. ``penstock.pipeline`` documents all parts."""
    @staticmethod
    def files(paths: Sequence[str], workers: int, policy: ThreadPolicy | Priority | None) -> _Source:
        """Files, each as one chunk."""
    @staticmethod
    def file(path: str, piece_bytes: int, policy: ThreadPolicy | Priority | None) -> _Source:
        """One file in pieces."""
    @staticmethod
    def fd(fd: int | HasFileno, piece_bytes: int, policy: ThreadPolicy | Priority | None) -> _Source:
        """The bytes of a descriptor."""
    @staticmethod
    def iterable(
        buffers: Iterable[Data | tuple[str, Data]], policy: ThreadPolicy | Priority | None
    ) -> _Source:
        """An iterable of buffers."""

@final
class _Stage:
    """A stage of a pipeline."""
    @staticmethod
    def decompress(
        codec: str, streamed: bool | None, name: str, workers: int, policy: ThreadPolicy | Priority | None
    ) -> _Stage:
        """Decompress chunks."""
    @staticmethod
    def checksum(kind: str, name: str, workers: int, policy: ThreadPolicy | Priority | None) -> _Stage:
        """Compute checksums."""
    @staticmethod
    def call(
        function: Callable[[Chunk], Chunk | Data | None],
        name: str,
        workers: int,
        policy: ThreadPolicy | Priority | None,
    ) -> _Stage:
        """Call a Python callable."""

@final
class _Sink:
    """The sink of a pipeline."""
    @staticmethod
    def fd(
        fd: int | HasFileno,
        queue_items: int | None,
        queue_bytes: int | None,
        policy: ThreadPolicy | Priority | None,
    ) -> _Sink:
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
        queue_items: int | None,
        queue_bytes: int | None,
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
    def skipped(self) -> list[PipelineError]:
        """The errors of skipped chunks."""
    def stats(self) -> dict[str, Any]:
        """The statistics as dicts, which ``penstock.pipeline`` turns into records."""
    def bottleneck(self) -> str | None:
        """The name of the slowest part; None if it is nobody clearly."""
    def _notify(self, waker: _LoopWaker, number: int) -> _Watch:
        """Tell the waker that number when ``done`` becomes true."""
