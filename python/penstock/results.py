"""The types that calls of the toolkit return. Users do not construct them."""

from penstock._native import (
    Frame,
    ReaderStats,
    RelayReport,
    RelayTicket,
    TeeOutput,
    TeeReport,
    Ticket,
    WriterStats,
)

__all__ = [
    "Frame",
    "ReaderStats",
    "RelayReport",
    "RelayTicket",
    "TeeOutput",
    "TeeReport",
    "Ticket",
    "WriterStats",
]
