"""The results of writers, readers, relays and tees. You don't construct these types.

- `Ticket`: a write that ``Writer.submit`` or ``Encoder.write`` has queued. Wait for it, or ``await`` it.
- `Frame`: a buffer from a `penstock.Reader`.
- `WriterStats`, `ReaderStats`: statistics from ``Writer.stats`` and ``Reader.stats``.
- `RelayReport`: the result of `penstock.relay`. `RelayTicket`: a relay that `penstock.pipes.start_relay` started.
- `TeeReport`, with a `Tee.Output` for each output: the result of a `penstock.Tee`.

``penstock.video`` has the reports of encoders and fan-outs, ``penstock.rendering`` those of renders, and
``penstock.pipeline`` the statistics of pipelines.
"""

from penstock._native import (
    Frame,
    ReaderStats,
    RelayReport,
    RelayTicket,
    TeeReport,
    Ticket,
    WriterStats,
)

__all__ = [
    "Frame",
    "ReaderStats",
    "RelayReport",
    "RelayTicket",
    "TeeReport",
    "Ticket",
    "WriterStats",
]
