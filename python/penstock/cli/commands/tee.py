"""``penstock tee``"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import click

from penstock._common.messages import show_name
from penstock._native import Tee
from penstock._platform.refusals import refuse
from penstock.cli.names import as_standard
from penstock.cli.opening import Endpoint, opened
from penstock.cli.options import append_option, file_names, parsed, progress_option, seconds
from penstock.cli.progress import CANCEL_S, PERIOD_S, Show, bytes_and_rate, expected_bytes, is_wanted, rows
from penstock.cli.signals import Stopped, deferred
from penstock.errors import BrokenStreamError, ClosedError, StalledError
from penstock.results import TeeReport


@click.command(epilog="Example: penstock tee --evict-after 2 - recording.h264 fifo:/run/preview")
@click.argument("src", shell_complete=file_names)
@click.argument(
    "outputs", metavar="OUTPUT...", shell_complete=file_names, nargs=-1, required=True, callback=as_standard
)
@click.option(
    "--evict-after",
    metavar="S",
    callback=parsed(seconds),
    help="Drop an OUTPUT that takes nothing for S seconds. By default all outputs wait for the slowest. The time "
    "to open the other side of a FIFO isn't limited.",
)
@append_option
@progress_option
def tee(
    src: str, outputs: tuple[str, ...], evict_after: float | None, append: bool, progress: bool | None
) -> None:
    """Copy bytes from one place to several.

    The kernel copies the bytes from SRC to every OUTPUT if it can. SRC and OUTPUT are each - for the standard stream,
    fifo:PATH for an existing FIFO, or a path. All FIFOs are opened at once, and nothing moves until the other side of
    each is open. Then each OUTPUT that is a file is emptied, or created. To name a file - or fifo:x, write ./- or
    ./fifo:x. For a file -x, write ./-x, or put -- before it.

    If an OUTPUT fails or is dropped, the others still receive everything. Exit status: 0 when all is delivered to all;
    1 after any failure; 2 for wrong usage; 130 after Ctrl-C, 143 after SIGTERM.
    """
    refuse("Tee")
    running = None
    try:
        with opened(src, outputs, append=append) as (source, ends):
            titles = [end.title for end in ends]
            total = expected_bytes(source, None, None)
            wanted = is_wanted(progress, ends)
            with rows(titles, total, wanted=wanted) as show:
                began_s = time.monotonic()
                with deferred():
                    running = _start(source, ends, evict_after)
                report = _finish(running, source, show)
            if wanted:
                _show_summary(report, titles, time.monotonic() - began_s)
            _report_failures(report, titles)
    except Stopped as stopped:
        stopped.progress = _cancel(running, outputs)
        raise


def _start(source: Endpoint, ends: Sequence[Endpoint], evict_after: float | None) -> Tee:
    fds = [end.fd for end in ends]
    try:
        if evict_after is None:
            running = Tee(source.fd, *fds)
        else:
            running = Tee(source.fd, *fds, when_full="evict", stall_timeout=evict_after)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for end in ends:
        # The tee has duplicates. The reader of a dropped output sees the end at once if ours is closed. Files have
        # no reader, and may report a failure at their last close.
        if not end.has_positions:
            end.close()
    return running


def _finish(running: Tee, source: Endpoint, show: Show) -> TeeReport:
    """Wait for the end, and show the progress of each output."""
    while not running.done():
        show(_states(running.report))
        with suppress(OSError):  # it has not ended, or the source failed, which is raised again below
            running.wait(PERIOD_S)
    show(_states(running.report))
    try:
        return running.wait()
    except OSError as error:
        taken = running.report.bytes
        raise click.ClickException(f"{source.title}: {error.strerror}; {taken} bytes were read") from None


def _states(report: TeeReport) -> list[tuple[int, str]]:
    return [(output.bytes_delivered, output.ended or "running") for output in report.outputs]


def _show_summary(report: TeeReport, titles: Sequence[str], took_s: float) -> None:
    ways = "; ".join(
        f"{title}: {output.bytes_delivered} by {output.method} ({output.reason})"
        for title, output in zip(titles, report.outputs, strict=True)
    )
    click.echo(f"{bytes_and_rate(report.bytes, took_s)}; {ways}", err=True)


def _report_failures(report: TeeReport, titles: Sequence[str]) -> None:
    """Write a line for each output that did not receive everything. Exit if there are any."""
    failures = [
        f"{title}: {_failure(error)}; {output.bytes_delivered} bytes were delivered"
        for title, output in zip(titles, report.outputs, strict=True)
        if (error := output.error) is not None
    ]
    for failure in failures:
        click.echo(f"Error: {failure}", err=True)
    if failures:
        sys.exit(1)


def _failure(error: BaseException) -> str:
    if isinstance(error, BrokenStreamError):
        return "the reader went away"
    if isinstance(error, StalledError):
        return f"dropped, because it took nothing for {round(error.seconds, 3):g} s"
    return str(getattr(error, "strerror", None) or error)


def _cancel(running: Tee | None, names: Sequence[str]) -> str:
    """Stop the tee. Return what it has delivered."""
    if running is None:
        return "0 bytes were delivered"
    running.cancel()
    with suppress(OSError, ClosedError):
        running.wait(CANCEL_S)  # the counts are final once it has ended
    at_least = "" if running.done() else "at least "
    counts = (
        f"{output.bytes_delivered} to {name}"
        for name, output in zip(map(show_name, names), running.report.outputs, strict=True)
    )
    report = running.report
    lost = report.bytes_lost + sum(output.bytes_lost for output in report.outputs)
    taken = f", {lost} were read and lost" if lost else ""
    return f"bytes delivered: {at_least}{', '.join(counts)}{taken}"
