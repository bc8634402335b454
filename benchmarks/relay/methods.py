"""The methods: each makes, of the ends of a way, an operation that can be repeated.

What a method prepares before its first operation is not timed. How it gets back to the beginning of a file is
part of each operation, in the way that is natural to it.

A method is a function here and an entry of `METHODS`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, TypeAlias

from benchmarks.harness.results import Method
from benchmarks.relay.ends import PIECE_BYTES, Ends, Way
from penstock import Tee, relay
from penstock.results import Relayed, TeeReport

MIB = 2**20

#: How many bytes were moved, or a result that knows.
Outcome: TypeAlias = "int | Relayed | TeeReport"
Operation = Callable[[], Outcome]

RELAY, TEE = "penstock.relay", "penstock.Tee"
READ_WRITE, WRITE_ALL = "os.read+os.write", "read+write-to-all"
SPLICE, TUNED, SINGLE = "os.splice", "os.splice-tuned", "single-relay"


def moved_bytes(outcome: Outcome) -> int:
    """What a method says that it has moved, to each of its ends."""
    if isinstance(outcome, TeeReport):
        return min(outlet.bytes_delivered for outlet in outcome.destinations)
    return outcome.bytes if isinstance(outcome, Relayed) else outcome


def notes(outcome: Outcome) -> dict[str, str]:
    """What a method says of how it did it."""
    told = outcome.destinations[0] if isinstance(outcome, TeeReport) else outcome
    return {} if isinstance(told, int) else {"method": told.method, "reason": told.reason}


def _rewind(ends: Ends) -> None:
    """Back to the beginning of what are files, for methods that go by the file's position."""
    if ends.way.source == "file":
        os.lseek(ends.src, 0, os.SEEK_SET)
    _rewind_sink(ends)


def _rewind_sink(ends: Ends) -> None:
    if ends.way.sink == "file":
        os.lseek(ends.dst, 0, os.SEEK_SET)


def _start_relay(ends: Ends) -> Operation:
    (dst, *_) = ends.dsts
    offset = 0 if ends.way.source == "file" else None

    def operate() -> Any:  # a Relayed, because it waits
        _rewind_sink(ends)
        return relay(ends.src, dst, ends.nbytes, offset=offset)

    return operate


def _pieces(ends: Ends) -> Iterator[bytes]:
    left = ends.nbytes
    while left and (piece := os.read(ends.src, min(left, PIECE_BYTES))):
        left -= len(piece)
        yield piece


def _write_all(fd: int, piece: bytes) -> int:
    done = os.write(fd, piece)
    while done < len(piece):
        done += os.write(fd, memoryview(piece)[done:])
    return done


def _start_read_write(ends: Ends) -> Operation:
    def operate() -> int:
        _rewind(ends)
        return sum(_write_all(ends.dst, piece) for piece in _pieces(ends))

    return operate


def _start_write_to_all(ends: Ends) -> Operation:
    def operate() -> int:
        done = 0
        for piece in _pieces(ends):
            done += min(_write_all(dst, piece) for dst in ends.dsts)
        return done

    return operate


class _Part:
    """The next bytes of a stream and no more: shutil.copyfileobj copies until a source ends."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        self.file, self.left = file, nbytes

    def read(self, nbytes: int = PIECE_BYTES, /) -> bytes:
        piece = self.file.read(min(nbytes, self.left))
        self.left -= len(piece)
        return piece


def _start_copyfileobj(ends: Ends) -> Operation:
    source = os.fdopen(ends.src, "rb", closefd=False)
    sink = os.fdopen(ends.dst, "wb", closefd=False)

    def operate() -> int:
        if ends.way.source == "file":
            source.seek(0)
        if ends.way.sink == "file":
            sink.seek(0)
        part = _Part(source, ends.nbytes)
        shutil.copyfileobj(part, sink)
        sink.flush()
        return ends.nbytes - part.left

    return operate


def _start_sendfile(ends: Ends) -> Operation:
    def operate() -> int:
        done = 0
        while done < ends.nbytes and (sent := os.sendfile(ends.dst, ends.src, done, ends.nbytes - done)):
            done += sent
        return done

    return operate


def _start_splice(ends: Ends, piece_bytes: int | None = None) -> Operation:
    at_most = piece_bytes or ends.nbytes
    from_file, to_file = ends.way.source == "file", ends.way.sink == "file"

    def operate() -> int:
        done = 0
        while done < ends.nbytes and (
            moved := os.splice(
                ends.src,
                ends.dst,
                min(at_most, ends.nbytes - done),
                offset_src=done if from_file else None,
                offset_dst=done if to_file else None,
            )
        ):
            done += moved
        return done

    return operate


def _start_tuned_splice(ends: Ends) -> Operation:
    for pipe in ends.pipes:
        # Refused where the user's pipes hold much already: it then runs with what there is.
        with suppress(PermissionError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, MIB)
    return _start_splice(ends, PIECE_BYTES)


def _start_tee(ends: Ends) -> Operation:
    def operate() -> TeeReport:
        report = Tee(ends.src, *ends.dsts).wait()
        report.check()
        return report

    return operate


def moves(way: Way) -> bool:
    """Of ways to one on which something is moved."""
    return not way.is_tee and any(way.sizes)


def has_pipe(way: Way) -> bool:
    """Of what splice(2) takes."""
    return moves(way) and "pipe" in (way.source, way.sink)


METHODS = (
    Method(RELAY, "ours", "ours", _start_relay, serves=lambda way: not way.is_tee),
    Method(READ_WRITE, "a loop with pieces of 256 KiB", "rival", _start_read_write, serves=moves),
    Method("shutil.copyfileobj", "between buffered files", "rival", _start_copyfileobj, serves=moves),
    Method(
        "os.sendfile",
        "all that is left in each call",
        "rival",
        _start_sendfile,
        serves=lambda way: moves(way) and way.source == "file",
    ),
    Method(
        SPLICE, "all that is left in each call, pipes as they are", "rival", _start_splice, serves=has_pipe
    ),
    Method(
        TUNED,
        "pieces of 256 KiB, pipes of 1 MiB: a plain loop at its best",
        "rival",
        _start_tuned_splice,
        serves=has_pipe,
    ),
    Method(TEE, "ours, to many", "ours", _start_tee, serves=lambda way: way.is_tee),
    Method(
        WRITE_ALL,
        "a loop that writes each piece to all",
        "rival",
        _start_write_to_all,
        serves=lambda way: way.is_tee,
    ),
    # It has but one reader, where the others have as many as the way.
    Method(SINGLE, "ours, to the slowest reader alone", "other", _start_relay, serves=lambda way: way.is_tee),
)
