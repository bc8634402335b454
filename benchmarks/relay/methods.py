"""The methods: each makes, from the ends of a way, an operation that can be repeated.

The preparation before the first operation is not timed. Going back to the beginning of a file is part of each
operation, in the way that is natural to the method.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, TypeAlias

from benchmarks.harness.methods import Methods
from benchmarks.relay.flow import PIECE_BYTES, Ends
from benchmarks.relay.jobs import MIB
from penstock import Tee, relay
from penstock.results import RelayReport, TeeReport

#: The number of bytes that were moved, or a result that has it.
Outcome: TypeAlias = "int | RelayReport | TeeReport"
Operation = Callable[[], Outcome]

READ_WRITE, WRITE_ALL = "os.read+os.write", "read+write-to-all"
SINGLE = "single-relay"

#: The ways that move something to one end, those that sendfile(2) can do, and those that splice(2) can do.
MOVES = ("file-pipe", "pipe-file", "pipe-pipe", "file-unix", "file-tcp")
FROM_FILE = ("file-pipe", "file-unix", "file-tcp")
BY_PIPE = ("file-pipe", "pipe-file", "pipe-pipe")

METHODS = Methods()


def moved_bytes(outcome: Outcome) -> int:
    """How many bytes the method claims to have moved to each of its ends."""
    if isinstance(outcome, TeeReport):
        return min(output.bytes_delivered for output in outcome.outputs)
    return outcome.bytes if isinstance(outcome, RelayReport) else outcome


def notes(outcome: Outcome) -> dict[str, str]:
    """What our methods report about how they moved the bytes."""
    report = outcome.outputs[0] if isinstance(outcome, TeeReport) else outcome
    return {} if isinstance(report, int) else {"method": report.method, "reason": report.reason}


def _rewind_sink(ends: Ends) -> None:
    """Go back to the beginning of the file that is written, for methods that use its position."""
    if ends.way.sink == "file":
        os.lseek(ends.dst, 0, os.SEEK_SET)


@METHODS.add("penstock.relay", "ours", serves=("call", *MOVES))
def start_relay(ends: Ends) -> Operation:
    """`penstock.relay`."""
    dst = ends.dsts[0]
    offset = 0 if ends.way.source == "file" else None

    def operate() -> Any:  # a RelayReport, because it waits
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


@METHODS.add(READ_WRITE, serves=MOVES)
def start_read_write(ends: Ends) -> Operation:
    """A loop with pieces of 256 KiB."""

    def operate() -> int:
        if ends.way.source == "file":
            os.lseek(ends.src, 0, os.SEEK_SET)
        _rewind_sink(ends)
        return sum(_write_all(ends.dst, piece) for piece in _pieces(ends))

    return operate


class _Part:
    """The next bytes of a stream: shutil.copyfileobj copies until its source ends."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        self.file, self.left = file, nbytes

    def read(self, nbytes: int = PIECE_BYTES, /) -> bytes:
        piece = self.file.read(min(nbytes, self.left))
        self.left -= len(piece)
        return piece


@METHODS.add("shutil.copyfileobj", serves=MOVES)
def start_copyfileobj(ends: Ends) -> Operation:
    """Between buffered files."""
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


@METHODS.add("os.sendfile", serves=FROM_FILE)
def start_sendfile(ends: Ends) -> Operation:
    """All that is left in each call."""

    def operate() -> int:
        done = 0
        while done < ends.nbytes and (sent := os.sendfile(ends.dst, ends.src, done, ends.nbytes - done)):
            done += sent
        return done

    return operate


@METHODS.add("os.splice", serves=BY_PIPE)
def start_splice(ends: Ends, piece_bytes: int | None = None) -> Operation:
    """All that is left in each call, pipes as they are."""
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


@METHODS.add("os.splice-tuned", serves=BY_PIPE)
def start_tuned_splice(ends: Ends) -> Operation:
    """Pieces of 256 KiB, and pipes of 1 MiB: a plain loop at its best."""
    for pipe in ends.pipes:
        # The kernel refuses once the user's pipes hold much. The method then runs with the default size.
        with suppress(PermissionError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, MIB)
    return start_splice(ends, PIECE_BYTES)


@METHODS.add("penstock.Tee", "ours", serves=("tee",))
def start_tee(ends: Ends) -> Operation:
    """`penstock.Tee`."""

    def operate() -> TeeReport:
        report = Tee(ends.src, *ends.dsts).wait()
        report.check()
        return report

    return operate


@METHODS.add(WRITE_ALL, serves=("tee",))
def start_write_to_all(ends: Ends) -> Operation:
    """A loop that writes each piece to all."""
    return lambda: sum(min(_write_all(dst, piece) for dst in ends.dsts) for piece in _pieces(ends))


METHODS.add(SINGLE, "other", "`penstock.relay` to the slowest reader alone", serves=("tee",))(start_relay)
