"""``penstock relay``"""

from __future__ import annotations

import errno
import time
from contextlib import suppress

import click

from penstock._streams.relay import start_relay
from penstock.cli.names import as_standard
from penstock.cli.opening import Endpoint, opened
from penstock.cli.options import (
    UNITS,
    append_option,
    byte_count,
    file_names,
    parsed,
    progress_option,
    seconds,
)
from penstock.cli.progress import CANCEL_S, PERIOD_S, Show, bytes_and_rate, expected_bytes, is_wanted, rows
from penstock.cli.signals import Stopped, deferred
from penstock.errors import BrokenStreamError, StalledError
from penstock.results import RelayReport, RelayTicket

#: Errors that only a destination can have: a full disk, a used-up quota, a limit on its size.
DESTINATION_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.command(epilog="Example: penstock relay --offset 4K --count 1G disk.img fifo:/run/import")
@click.argument("src", shell_complete=file_names)
@click.argument("dst", shell_complete=file_names, callback=as_standard)
@click.option(
    "--count",
    metavar="N",
    callback=parsed(byte_count),
    help=f"Move at most N bytes. {UNITS}",
)
@click.option(
    "--offset", metavar="N", callback=parsed(byte_count), help="Start at byte N of SRC, which must be a file."
)
@click.option(
    "--timeout",
    metavar="S",
    callback=parsed(seconds),
    help="Fail if nothing moves for S seconds, or if nobody opens the other side of a FIFO for that long. The "
    "default is to wait forever.",
)
@append_option
@progress_option
def relay(
    src: str,
    dst: str,
    count: int | None,
    offset: int | None,
    timeout: float | None,
    append: bool,
    progress: bool | None,
) -> None:
    """Move bytes from one place to another.

    The kernel moves the bytes from SRC to DST if it can. SRC and DST are each - for the standard stream, fifo:PATH for
    an existing FIFO, or a path. All FIFOs are opened at once, and nothing moves until the other side of each is open.
    Then DST is emptied if it's a file, or created. To name a file - or fifo:x, write ./- or ./fifo:x. For a file -x,
    write ./-x, or put -- before it.

    Exit status: 0 when all is delivered, also if SRC ends before N bytes; 1 after a failure; 2 for wrong usage; 130
    after Ctrl-C, 143 after SIGTERM.
    """
    ticket = None
    try:
        with opened(src, [dst], append=append, offset=offset, timeout=timeout) as (source, [destination]):
            total = expected_bytes(source, count, offset)
            wanted = is_wanted(progress, [destination])
            with rows([destination.title], total, wanted=wanted) as show:
                began_s = time.monotonic()
                with deferred():
                    ticket = _start(source, destination, count, offset, timeout)
                relayed = _finish(ticket, source, destination, show)
            destination.close()
            took_s = time.monotonic() - began_s
    except Stopped as stopped:
        stopped.progress = _cancel(ticket)
        raise
    if wanted:
        click.echo(_summary(relayed, took_s, count), err=True)


def _start(
    source: Endpoint, destination: Endpoint, count: int | None, offset: int | None, timeout: float | None
) -> RelayTicket:
    try:
        return start_relay(source.fd, destination.fd, count, offset=offset, timeout=timeout)
    except (OSError, ValueError) as error:
        raise click.ClickException(_failure(error, source, destination)) from None


def _finish(ticket: RelayTicket, source: Endpoint, destination: Endpoint, show: Show) -> RelayReport:
    """Wait for the end, and show the progress."""
    while not ticket.done():
        show([(ticket.report.bytes, "")])
        with suppress(StalledError):  # it has not ended; its own failure is returned, not raised
            ticket.exception(PERIOD_S)
    show([(ticket.report.bytes, "")])
    try:
        return ticket.wait()
    except (OSError, ValueError) as error:
        raise click.ClickException(_failure(error, source, destination)) from None


def _cancel(ticket: RelayTicket | None) -> str:
    """Stop the relay. Return what it has delivered."""
    if ticket is None:
        return "0 bytes were delivered"
    ticket.cancel()
    failure = None
    with suppress(StalledError):
        failure = ticket.exception(CANCEL_S)  # the counts are final once it has ended
    at_least = "" if ticket.done() else "at least "
    return f"{at_least}{_counted(ticket.report.bytes, getattr(failure, 'bytes_lost', 0))}"


def _counted(delivered: int, lost: int) -> str:
    taken = f", {lost} were read and lost" if lost else ""
    return f"{delivered} bytes were delivered{taken}"


def _failure(error: Exception, source: Endpoint, destination: Endpoint) -> str:
    """Which side failed, and what was delivered."""
    moved = getattr(error, "bytes_delivered", 0)
    if isinstance(error, BrokenStreamError):
        return f"{destination.title}: the reader went away; {_counted(moved, 0)}"
    delivered = _counted(moved, getattr(error, "bytes_lost", 0))
    if isinstance(error, StalledError):
        idle = f"{destination.title} took" if error.bytes_pending else f"{source.title} sent"
        return f"{idle} nothing for {round(error.seconds, 3):g} s; {delivered}"
    if not isinstance(error, OSError):
        return str(error)
    where = (
        destination.title if error.errno in DESTINATION_ERRNOS else f"{source.title} to {destination.title}"
    )
    return f"{where}: {error.strerror}; {delivered}"


def _summary(relayed: RelayReport, took_s: float, count: int | None) -> str:
    missing = 0 if count is None else count - relayed.bytes
    short = f"; the source ended {missing} bytes before the count" if missing else ""
    return f"{bytes_and_rate(relayed.bytes, took_s)} by {relayed.method} ({relayed.reason}){short}"
