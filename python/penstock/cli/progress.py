"""Progress on standard error: one row for each destination."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from penstock._bars import bars
from penstock.cli.opening import Endpoint

#: How often progress is drawn. Chosen: smooth for the eye, and no load for the processor.
PERIOD_S = 0.1
#: How long a cancelled transfer may take to end, so that its counts are final. A write to a terminal that nobody reads
#: may never end. Chosen: short for somebody who has pressed Ctrl-C.
CANCEL_S = 1.0
#: The columns of a row beside its title, and the least that are left to the title. The bar can shrink, the numbers
#: cannot. Counted.
ROW_COLUMNS = 60
LEAST_TITLE_COLUMNS = 12

#: Sets the content of the rows: bytes delivered and the state of each destination, in order.
Show = Callable[[Sequence[tuple[int, str]]], None]


def is_wanted(asked: bool | None, destinations: Sequence[Endpoint] = (), *, quiet: bool = False) -> bool:
    """Whether to show progress: as asked, else if standard error is a terminal and no destination is one."""
    if quiet and asked:
        raise click.UsageError("--quiet and --progress exclude each other")
    if quiet or asked is not None:
        return bool(asked)
    # sys.stderr is None if descriptor 2 is closed.
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and not any(os.isatty(each.fd) for each in destinations)
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
    """Show rows while the block runs: redrawn in place on a terminal, written at the end elsewhere."""
    if not wanted:
        yield lambda _states: None
        return
    with _progress(knows_total=total is not None) as progress:
        width = max(progress.console.width - ROW_COLUMNS, LEAST_TITLE_COLUMNS)
        tasks = [progress.add_task(_shortened(title, width), total=total, state="") for title in titles]

        def show(states: Sequence[tuple[int, str]]) -> None:
            for task, (nbytes, state) in zip(tasks, states, strict=True):
                progress.update(task, completed=nbytes, state=state)
            progress.refresh()

        yield show


def _shortened(title: str, width: int) -> str:
    """Return the end of a title that is too long: it tells one path from another."""
    return title if len(title) <= width else f"…{title[1 - width :]}"


def _progress(*, knows_total: bool) -> Progress:
    return bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        DownloadColumn(table_column=Column(no_wrap=True)),
        TransferSpeedColumn(table_column=Column(no_wrap=True)),
        *([TimeRemainingColumn(table_column=Column(no_wrap=True))] if knows_total else []),
        TextColumn("{task.fields[state]}", markup=False),
    )


def bytes_and_rate(nbytes: int, took_s: float) -> str:
    """``3145728 bytes in 0.01 s, 314.6 MB/s``"""
    rate = f", {decimal(round(nbytes / took_s))}/s" if took_s > 0 else ""
    return f"{nbytes} bytes in {took_s:.2f} s{rate}"
