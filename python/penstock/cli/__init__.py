"""The command ``penstock``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from penstock.cli.signals import ending_by_signal

if TYPE_CHECKING:
    import click

#: Every subcommand and where it lives. A new one is a line here.
SUBCOMMANDS = {
    "decode": "penstock.cli.decode",
    "encode": "penstock.cli.encode",
    "info": "penstock.cli.info",
    "probe": "penstock.cli.probe",
    "relay": "penstock.cli.relay",
    "tee": "penstock.cli.tee",
}


def main() -> None:
    """Run the command line.

    ``click`` and ``rich`` are imported here and below, not above: the library works without them.
    """
    with ending_by_signal():
        try:
            import click
            import rich  # noqa: F401
        except ImportError as error:
            sys.exit(f"penstock: {error}; the command line needs: pip install 'penstock-io[cli]'")
        del click
        try:
            root()()
        except SystemExit as end:
            status = end.code
        except OSError as error:  # as a rule of standard output: commands tell of other failures themselves
            status = f"Error: {error}"
        unwritten = _flush_output()
        sys.exit(status or unwritten)


def _flush_output() -> str | None:
    """Write what standard output has not written yet; what to say if that fails.

    Python does so when it exits, and since 3.13 the exit status is 120 then, whatever it was to be.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # For Python's own flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"Error: {error}"
    return None


def root() -> click.Group:
    """The command with all its subcommands."""
    import click

    import penstock

    @click.group(context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(penstock.__version__, prog_name="penstock")
    def penstock_command() -> None:
        """Moves raw bytes between memory and file descriptors as fast as the kernel allows."""

    for name, module in SUBCOMMANDS.items():
        penstock_command.add_command(getattr(importlib.import_module(module), name), name)
    return penstock_command
