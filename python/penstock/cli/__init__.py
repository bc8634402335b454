"""The command line, ``penstock``. Its commands are in ``commands``, and are imported when they are called."""

from __future__ import annotations

import importlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from click.shell_completion import CompletionItem

from penstock._native import __version__
from penstock._platform.refusals import UnavailableError
from penstock.cli.commands import COMMANDS
from penstock.cli.signals import ending_by_signal, wait_for

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Commands(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"penstock.cli.commands.{cmd_name}"), cmd_name
        )
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (UnavailableError, click.ClickException) as failure:
            refused = failure if isinstance(failure, UnavailableError) else failure.__context__
            if not isinstance(refused, UnavailableError):
                raise
            raise click.UsageError(str(refused.strerror)) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def penstock_command() -> None:
    """Write, read, probe and render video with FFmpeg, and move bytes between files, pipes and sockets."""


def main() -> None:
    """Run the command line, and exit."""
    sys.stdout, sys.stderr = _waiting(sys.stdout), _waiting(sys.stderr)
    if sys.stderr is None:  # descriptor 2 is closed, and click would write messages to standard output
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    with ending_by_signal():
        try:
            penstock_command(prog_name="penstock")
        except SystemExit as end:
            status = end.code
        except OSError as error:  # from standard output: the commands report all other failures themselves
            status = f"Error: {error}"
        unwritten = _flush_output()
        sys.exit(status or unwritten)


class WaitingFile(io.FileIO):
    """A file that waits where another program has made its descriptor non-blocking. Python's own loses bytes then."""

    def write(self, data: ReadableBuffer, /) -> int:
        while (nbytes := super().write(data)) is None:
            wait_for(self.fileno(), "writing")
        return nbytes


def _waiting(stream: TextIO | None) -> TextIO | None:
    """Return a standard stream that writes all, however slow its reader is; None if it is None, which is closed."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(WaitingFile(stream.fileno(), "w", closefd=False)),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _flush_output() -> str | None:
    """Write out what is buffered for standard output. Return the message to show if that fails.

    If Python did this on its exit, the exit status would be 120 (since Python 3.13), whatever it was before.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # Python flushes again on exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"Error: {error}"
    return None
