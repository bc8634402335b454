"""``penstock bench …``"""

from __future__ import annotations

import click

from penstock.bench.pipe.command import pipe


@click.group()
def bench() -> None:
    """Measure Penstock against the other ways."""


bench.add_command(pipe)
