"""How far it is, on standard error: one row for each destination."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
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

from penstock.cli.endpoints import End

#: How often it is drawn: often enough for the eye, too rarely for the processor to notice. Chosen.
PERIOD_S = 0.1
#: How long a cancelled one is waited for, so that what it tells is final. The kernel may hold a write to a terminal
#: that nobody reads for ever. Chosen: short enough for somebody who has pressed Ctrl-C.
CANCEL_S = 1.0
#: What a row has beside its title, and the least that is left to that: the bar can shrink, the title and the numbers
#: cannot. Counted.
ROW_COLUMNS = 60
LEAST_TITLE_COLUMNS = 12

#: Sets what the rows say: bytes delivered and a word on the state, for each destination in order.
Show = Callable[[Sequence[tuple[int, str]]], None]


def is_wanted(asked: bool | None, destinations: Sequence[End]) -> bool:
    """Whether to show any: as asked, or else on a terminal that is not written to by the stream itself."""
    if asked is not None:
        return asked
    # Without a standard error, Python has none either.
    return (
        sys.stderr is not None and sys.stderr.isatty() and not any(os.isatty(end.fd) for end in destinations)
    )


def expected_bytes(source: End, count: int | None, offset: int | None) -> int | None:
    """How many bytes there will be; None if only the source's end can tell."""
    status = source.status
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:  # as in /proc
        return count
    begin = os.lseek(source.fd, 0, os.SEEK_CUR) if offset is None else offset
    left = max(status.st_size - begin, 0)
    return left if count is None else min(left, count)


@contextmanager
def rows(titles: Sequence[str], total: int | None, *, wanted: bool) -> Iterator[Show]:
    """Rows that are drawn while the block runs: over each other on a terminal, else once, at the end."""
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
    """Its end, which tells one path from another, if it is too long."""
    return title if len(title) <= width else f"…{title[1 - width :]}"


def _progress(*, knows_total: bool) -> Progress:
    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        DownloadColumn(table_column=Column(no_wrap=True)),
        TransferSpeedColumn(table_column=Column(no_wrap=True)),
        *([TimeRemainingColumn(table_column=Column(no_wrap=True))] if knows_total else []),
        TextColumn("{task.fields[state]}", markup=False),
    ]
    return Progress(
        *columns,
        console=Console(stderr=True),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def in_numbers(nbytes: int, took_s: float) -> str:
    """How much in what time, and how fast."""
    rate = f", {decimal(round(nbytes / took_s))}/s" if took_s > 0 else ""
    return f"{nbytes} bytes in {took_s:.2f} s{rate}"
