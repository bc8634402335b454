"""The subcommands of ``penstock``, a module each, and what they share."""

from __future__ import annotations

import click


class Interrupted(click.ClickException):
    """Ctrl-C: told in one line, with the exit status that shells give."""

    exit_code = 128 + 2  # SIGINT
