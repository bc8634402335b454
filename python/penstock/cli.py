"""The command ``penstock``."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from penstock.commands.signals import ending_by_signal

if TYPE_CHECKING:
    import click

#: Every subcommand and where it lives. A new one is a line here.
SUBCOMMANDS = {
    "bench": "penstock.bench.command",
    "decode": "penstock.commands.decode",
    "encode": "penstock.commands.encode",
    "info": "penstock.commands.info",
    "probe": "penstock.commands.probe",
    "relay": "penstock.commands.relay",
    "tee": "penstock.commands.tee",
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
            print(f"penstock: {error}; the command line needs: pip install 'penstock-io[cli]'", file=sys.stderr)
            sys.exit(1)
        del click
        try:
            root()()
        except (
            OSError
        ) as error:  # of standard output, as a rule: what else fails, the commands tell themselves
            sys.exit(f"Error: {error}")


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
