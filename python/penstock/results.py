"""The types that calls of the toolkit return. Users do not construct them."""

from penstock._native import (
    Frame,
    ReaderStats,
    Relayed,
    RelayTicket,
    TeeOutlet,
    TeeReport,
    Ticket,
    WriterStats,
)

__all__ = [
    "Frame",
    "ReaderStats",
    "RelayTicket",
    "Relayed",
    "TeeOutlet",
    "TeeReport",
    "Ticket",
    "WriterStats",
]
