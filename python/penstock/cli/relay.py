"""``penstock relay``"""

from __future__ import annotations

import errno
import time
from contextlib import suppress

import click

import penstock
from penstock.cli.endpoints import End, opened
from penstock.cli.options import UNITS, append_option, byte_count, parsed, progress_option, seconds
from penstock.cli.progress import CANCEL_S, PERIOD_S, Show, expected_bytes, in_numbers, is_wanted, rows
from penstock.cli.signals import Stopped, held
from penstock.errors import BrokenStreamError, StalledError
from penstock.results import Relayed, RelayTicket

#: What only a destination fails of: a full disk, a used-up quota, a limit on its size.
DESTINATION_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.command(epilog="Example: penstock relay --offset 4K --count 1G disk.img fifo:/run/import")
@click.argument("src")
@click.argument("dst")
@click.option(
    "--count",
    metavar="N",
    callback=parsed(byte_count),
    help=f"Move at most N bytes. {UNITS}",
)
@click.option(
    "--offset", metavar="N", callback=parsed(byte_count), help="Begin at byte N of SRC, which must be a file."
)
@click.option(
    "--timeout",
    metavar="S",
    callback=parsed(seconds),
    help="Fail once nothing has moved for S seconds, or the other side of a FIFO has not been opened for so long; "
    "without it, wait for ever.",
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
    """Move the bytes of SRC to DST, inside the kernel where it can do that.

    Each of them is - for the standard stream, fifo:PATH for a FIFO that must be there, or a path. All FIFOs are
    opened at once, and nothing is moved until somebody has opened the other side of each. Then a file as DST is
    emptied; one that is not there is created. Files with such names are ./- and ./fifo:x; -x is ./-x, or comes
    after --.

    Exit status: 0 when all is delivered, also when SRC ends before N bytes; 1 after a failure; 2 for wrong usage;
    130 after Ctrl-C, 143 after SIGTERM.
    """
    ticket = None
    try:
        with opened(src, [dst], append=append, offset=offset, timeout=timeout) as (source, [destination]):
            total = expected_bytes(source, count, offset)
            wanted = is_wanted(progress, [destination])
            with rows([destination.title], total, wanted=wanted) as show:
                began_s = time.monotonic()
                with held():
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
    source: End, destination: End, count: int | None, offset: int | None, timeout: float | None
) -> RelayTicket:
    try:
        return penstock.start_relay(source.fd, destination.fd, count, offset=offset, timeout=timeout)
    except (OSError, ValueError) as error:
        raise click.ClickException(_fault(error, source, destination)) from None


def _finish(ticket: RelayTicket, source: End, destination: End, show: Show) -> Relayed:
    """Waits for the end, and shows how far it is."""
    while not ticket.done():
        show([(ticket.relayed.bytes, "")])
        with suppress(StalledError):  # not ended yet: a failure of its own is given, not raised
            ticket.exception(PERIOD_S)
    show([(ticket.relayed.bytes, "")])
    try:
        return ticket.wait()
    except (OSError, ValueError) as error:
        raise click.ClickException(_fault(error, source, destination)) from None


def _cancel(ticket: RelayTicket | None) -> str:
    """Stops it, and says what it has delivered."""
    if ticket is None:
        return "0 bytes were delivered"
    ticket.cancel()
    failure = None
    with suppress(StalledError):
        failure = ticket.exception(CANCEL_S)  # its counts are final when it has ended
    at_least = "" if ticket.done() else "at least "
    return f"{at_least}{_counted(ticket.relayed.bytes, getattr(failure, 'bytes_lost', 0))}"


def _counted(delivered: int, lost: int) -> str:
    taken = f", and {lost} that were read are lost" if lost else ""
    return f"{delivered} bytes were delivered{taken}"


def _fault(error: Exception, source: End, destination: End) -> str:
    """Whose fault it was, and how far it came."""
    moved = getattr(error, "bytes_delivered", 0)
    if isinstance(error, BrokenStreamError):
        return f"{destination.title}: its reader went away; {_counted(moved, 0)}"
    delivered = _counted(moved, getattr(error, "bytes_lost", 0))
    if isinstance(error, StalledError):
        idle = f"{destination.title} took" if error.bytes_pending else f"{source.title} gave"
        return f"{idle} nothing for {round(error.seconds, 3):g} s; {delivered}"
    if not isinstance(error, OSError):
        return str(error)
    where = (
        destination.title if error.errno in DESTINATION_ERRNOS else f"{source.title} to {destination.title}"
    )
    return f"{where}: {error.strerror}; {delivered}"


def _summary(relayed: Relayed, took_s: float, count: int | None) -> str:
    missing = 0 if count is None else count - relayed.bytes
    short = f"; the source ended {missing} bytes before the count" if missing else ""
    return f"{in_numbers(relayed.bytes, took_s)} by {relayed.method} ({relayed.reason}){short}"
