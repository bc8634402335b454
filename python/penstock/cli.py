"""The command ``penstock``."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

#: Every subcommand and where it lives. A new one is a line here.
SUBCOMMANDS = {
    "bench": "penstock.bench.command",
    "info": "penstock.commands.info",
    "relay": "penstock.commands.relay",
    "tee": "penstock.commands.tee",
}


def main() -> None:
    """Run the command line.

    ``click`` and ``rich`` are imported here and below, not above: the library works without them.
    """
    try:
        import click
        import rich  # noqa: F401
    except ImportError as error:
        print(f"penstock: {error}; the command line needs: pip install 'penstock[cli]'", file=sys.stderr)
        sys.exit(1)
    del click
    root()()


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
