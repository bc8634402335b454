"""``penstock bench …``"""

from __future__ import annotations

import click

from penstock.bench.decode.command import decode
from penstock.bench.encode.command import encode
from penstock.bench.pipe.command import pipe
from penstock.bench.pipeline.command import pipeline
from penstock.bench.relay.command import relay


@click.group()
def bench() -> None:
    """Measure Penstock against the other ways."""


bench.add_command(decode)
bench.add_command(encode)
bench.add_command(pipe)
bench.add_command(pipeline)
bench.add_command(relay)
