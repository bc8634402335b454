"""What calls give back: these are received, never made."""

from penstock._native import (
    AppliedPolicy,
    Frame,
    ReaderStats,
    Relayed,
    RelayTicket,
    TeeOutlet,
    TeeReport,
    Ticket,
    WriterStats,
)
from penstock.ffmpeg import EncodeReport

__all__ = [
    "AppliedPolicy",
    "EncodeReport",
    "Frame",
    "ReaderStats",
    "RelayTicket",
    "Relayed",
    "TeeOutlet",
    "TeeReport",
    "Ticket",
    "WriterStats",
]
