"""The types of the native module, by subject. At runtime it is one module, without submodules."""

from penstock._native.confinement import _confine
from penstock._native.conversion import (
    _Conversion,
    _Delivery,
    _PlaneConverter,
    _PlaneJob,
    _Slot,
    _SlotPool,
    _ValueRange,
)
from penstock._native.cpu import (
    AppliedPolicy,
    ThreadPolicy,
    _apply_policy,
    _current_policy,
    _thread_policy,
    _topology,
    _try_priorities,
)
from penstock._native.fifo import _fifo_open, _fifo_open_async, _FifoTicket, _make_pipe
from penstock._native.nut_feed import _NutFeed
from penstock._native.pipeline import Chunk, _Pipeline, _Sink, _Source, _Stage
from penstock._native.reader import Frame, Reader, ReaderStats
from penstock._native.relay import RelayReport, RelayTicket, _Relay, _start_relay
from penstock._native.runtime import (
    _after_fork_in_child,
    _after_fork_in_parent,
    _before_fork,
    _copy,
    _count,
    _drain,
    _seconds,
)
from penstock._native.tee import Tee, TeeReport
from penstock._native.ticket import Ticket, _LoopWaker, _Watch
from penstock._native.writer import Writer, WriterStats, _close, _pipe, _sync

__version__: str

__all__ = [
    "AppliedPolicy",
    "Chunk",
    "Frame",
    "Reader",
    "ReaderStats",
    "RelayReport",
    "RelayTicket",
    "Tee",
    "TeeReport",
    "ThreadPolicy",
    "Ticket",
    "Writer",
    "WriterStats",
    "_Conversion",
    "_Delivery",
    "_FifoTicket",
    "_LoopWaker",
    "_NutFeed",
    "_Pipeline",
    "_PlaneConverter",
    "_PlaneJob",
    "_Relay",
    "_Sink",
    "_Slot",
    "_SlotPool",
    "_Source",
    "_Stage",
    "_ValueRange",
    "_Watch",
    "__version__",
    "_after_fork_in_child",
    "_after_fork_in_parent",
    "_apply_policy",
    "_before_fork",
    "_close",
    "_confine",
    "_copy",
    "_count",
    "_current_policy",
    "_drain",
    "_fifo_open",
    "_fifo_open_async",
    "_make_pipe",
    "_pipe",
    "_seconds",
    "_start_relay",
    "_sync",
    "_thread_policy",
    "_topology",
    "_try_priorities",
]
