"""Whether a command shows its progress, and of how many bytes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.filesize import decimal

from penstock._common.progress import ByteBars
from penstock._platform import descriptors
from penstock.cli.opening import Endpoint

#: How often progress is drawn. Chosen: smooth for the eye, and no load for the processor.
PERIOD_S = 0.1
#: How long a cancelled transfer may take to end, so that its counts are final. A write to a terminal that nobody reads
#: may never end. Chosen: short for somebody who has pressed Ctrl-C.
CANCEL_S = 1.0

#: Sets the content of the rows: bytes delivered and the state of each destination, in order.
Show = Callable[[Sequence[tuple[int, str]]], None]


def is_wanted(asked: bool | None, destinations: Sequence[Endpoint] = (), *, quiet: bool = False) -> bool:
    """Whether to show progress: as asked, else if standard error is a terminal and no destination is one."""
    if quiet and asked:
        raise click.UsageError("--quiet can't be combined with --progress")
    if quiet or asked is not None:
        return bool(asked)
    # sys.stderr is None if descriptor 2 is closed.
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and not any(descriptors.is_terminal(each.fd) for each in destinations)
    )


def expected_bytes(source: Endpoint, count: int | None, offset: int | None) -> int | None:
    """Return how many bytes will come; None if that is not known before the source ends."""
    status = source.status
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:  # as in /proc
        return count
    begin = os.lseek(source.fd, 0, os.SEEK_CUR) if offset is None else offset
    left = max(status.st_size - begin, 0)
    return left if count is None else min(left, count)


@contextmanager
def rows(titles: Sequence[str], total: int | None, *, wanted: bool) -> Iterator[Show]:
    """Show a row for each destination while the block runs, if that is wanted."""
    if not wanted:
        yield lambda _states: None
        return
    with ByteBars(titles, total) as bars:
        yield bars.show


def bytes_and_rate(nbytes: int, took_s: float) -> str:
    """``3145728 bytes in 0.01 s, 314.6 MB/s``"""
    rate = f", {decimal(round(nbytes / took_s))}/s" if took_s > 0 else ""
    return f"{nbytes} bytes in {took_s:.2f} s{rate}"
