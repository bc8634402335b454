"""What the commands share: how options are read, and where the tables and the record go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import Field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import click
from rich.console import Console

from penstock.bench import machine, record
from penstock.bench.parsing import Named, by_name, parse_list
from penstock.commands.parameters import parsed
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg


class SizedJob(Protocol):
    """A job of some size: a frozen dataclass with ``frames``, ``width`` and ``height``."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...


Job = TypeVar("Job", bound=SizedJob)
Group = TypeVar("Group")
Report = Callable[[str], None]
Command = TypeVar("Command", bound=Callable[..., Any])


def list_of(parse: Callable[[str], Any]) -> Callable[[Sequence[str]], tuple[Any, ...]]:
    """What reads an option that may be repeated, and separated by commas."""
    return lambda texts: parse_list(texts, parse)


def names(entries: Iterable[Named]) -> str:
    """For help texts."""
    return ", ".join(entry.name for entry in entries)


def chosen(option: str, name: str, entries: Sequence[Named], more: str) -> Callable[[Command], Command]:
    """An option that chooses some of the entries by their names."""
    return click.option(
        option,
        name,
        multiple=True,
        callback=parsed(list_of(lambda text: by_name(entries, text))),
        help=f"{names(entries)}; {more}",
    )


def rounds_and_records(benchmark: str) -> Callable[[Command], Command]:
    """The options that all of these commands have: how often, and where the record goes."""

    def decorate(command: Command) -> Command:
        kept = f"Keep the record as benchmarks/DATE-{benchmark}-MACHINE.json."
        command = click.option("--record", is_flag=True, help=kept)(command)
        written = "Write the record there; - is standard output."
        command = click.option("--json", "json_path", metavar="PATH", help=written)(command)
        often = "Runs of each method, interleaved."
        return click.option("--rounds", type=click.IntRange(min=1), help=often)(command)

    return decorate


def resized(jobs: Iterable[Job], size: tuple[int, int] | None, frames: int | None) -> tuple[Job, ...]:
    """The jobs with another size or number of frames, where one is given."""
    return tuple(_resized(job, size, frames) for job in jobs)


def _resized(job: Job, size: tuple[int, int] | None, frames: int | None) -> Job:
    """A job of another size has another name, for the goals are about the job as it was."""
    if size is not None:
        width, height = size
        job = replace(job, name=f"{job.name}-at-{width}x{height}", width=width, height=height)
    return job if frames is None else replace(job, frames=frames)


def working_ffmpeg(path: str | None) -> str:
    """The FFmpeg at that path, or else the best that is found.

    Raises:
        click.ClickException: there is none, or it does not run.
    """
    try:
        found = find_ffmpeg(path)
        machine.ffmpeg_version(found)
    except (PenstockError, OSError) as error:
        raise click.ClickException(str(error)) from None
    return found


def table_console(json_path: str | None) -> Console:
    """Where the tables go: they make way for a record on standard output."""
    return Console(stderr=json_path == "-", width=None if sys.stdout.isatty() else 160)


def status_line(console: Console) -> AbstractContextManager[Report]:
    """What tells a terminal which case is running; in a log it says nothing."""
    # On one terminal, one console must draw both: two would write over each other.
    drawing = console if console.is_terminal else Console(stderr=True)
    return _updating(drawing) if drawing.is_terminal else nullcontext(lambda _: None)


def shown(
    console: Console, run: Callable[[Report], Iterable[Group]], show: Callable[[Console, Group], None]
) -> list[Group]:
    """All groups of a run, each printed as soon as it is there."""
    groups = []
    with status_line(console) as report:
        for group in run(report):
            groups.append(group)
            show(console, group)
    return groups


@contextmanager
def _updating(console: Console) -> Iterator[Report]:
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
