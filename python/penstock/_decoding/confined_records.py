"""The records by which a confined process sends frames."""

from __future__ import annotations

import os
import struct
from typing import Any

from penstock._native import Writer

#: What comes before the bytes of each frame: a word that says that it is one, its number from 0, and its time. As long
#: as a line of a processor's cache, so that the samples lie at a multiple of that.
RECORD = struct.Struct("=8sqq40x")
FRAME = b"a frame\n"
# Writes that wait for the pipe. Chosen: those of a frame that is written, and of one that is ready.
_QUEUED = 2 * 2


def writer_to(records: int) -> Writer:
    """What writes records to a pipe."""
    writer = Writer(records, queue_items=_QUEUED, reader_copies=True)
    os.close(records)
    return writer


def write_record(writer: Writer, kind: bytes, index: int, pts: int | None, data: Any, least: int = 0) -> None:
    """Writes a record, of at least so many bytes."""
    writer.write(RECORD.pack(kind, index, pts))
    writer.submit(data)
    if (rest := least - memoryview(data).nbytes) > 0:
        writer.write(bytes(rest))
