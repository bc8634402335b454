"""What the commands share: how options are read, and where the tables and the record go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import click
from rich.console import Console

from penstock.bench import record
from penstock.bench.parsing import Named, parse_list


def list_of(parse: Callable[[str], Any]) -> Callable[[Sequence[str]], tuple[Any, ...]]:
    """What reads an option that may be repeated, and separated by commas."""
    return lambda texts: parse_list(texts, parse)


def names(entries: Iterable[Named]) -> str:
    """For help texts."""
    return ", ".join(entry.name for entry in entries)


def table_console(json_path: str | None) -> Console:
    """Where the tables go: they make way for a record on standard output."""
    return Console(stderr=json_path == "-", width=None if sys.stdout.isatty() else 160)


def status_line(console: Console) -> AbstractContextManager[Callable[[str], None]]:
    """What tells a terminal which case is running; in a log it says nothing."""
    # On one terminal, one console must draw both: two would write over each other.
    drawing = console if console.is_terminal else Console(stderr=True)
    return _updating(drawing) if drawing.is_terminal else nullcontext(lambda _: None)


@contextmanager
def _updating(console: Console) -> Iterator[Callable[[str], None]]:
    with console.status("starting") as status:
        yield status.update


def keep(finished: dict[str, Any], console: Console, json_path: str | None, to_keep: bool) -> None:
    """Say what the run was made on, and write its record where it was asked for.

    Raises:
        click.ClickException: it cannot be written.
    """
    console.print(record.describe(finished), style="dim", highlight=False)
    try:
        if json_path:
            record.write(finished, json_path)
        if to_keep:
            path = record.path_of(finished)
            record.write(finished, str(path))
            console.print(f"record: {path}", highlight=False)
    except OSError as error:
        raise click.ClickException(f"the record cannot be written: {error}") from None
