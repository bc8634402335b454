"""Command-line options: what benchmarks share, and options that name several things."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import click

from penstock._units import parse_byte_count

UNITS = "64K and 64KiB are 64 × 1024, 64kB is 64 × 1000; so for M and G."

Command = TypeVar("Command", bound=Callable[..., Any])
Job = TypeVar("Job", bound=Any)
Settings = TypeVar("Settings", bound=Any)


class Named(Protocol):
    """What an option chooses by its name."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


def by_name(entries: Sequence[Entry], name: str) -> Entry:
    """The entry of that name.

    Raises:
        ValueError: none has it.
    """
    for entry in entries:
        if entry.name == name:
            return entry
    raise ValueError(f"{name!r} is none of {names(entries)}")


def names(entries: Iterable[Named]) -> str:
    """For help texts."""
    return ", ".join(entry.name for entry in entries)


def parsed(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that turns a ValueError into a usage error. What was not given stays None."""

    def callback(_context: click.Context, _parameter: click.Parameter, given: Any) -> Any:
        try:
            return None if given is None else parse(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def listed(
    flag: str, name: str, parse: Callable[[str], Any], help: str, **more: Any
) -> Callable[[Command], Command]:
    """An option that may be repeated, and separated by commas: a tuple, each value once."""

    def parse_all(texts: Sequence[str]) -> tuple[Any, ...]:
        parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
        return tuple(dict.fromkeys(map(parse, parts)))

    return click.option(flag, name, multiple=True, callback=parsed(parse_all), help=help, **more)


def chosen(flag: str, name: str, entries: Sequence[Named]) -> Callable[[Command], Command]:
    """An option that chooses some of the entries by their names."""
    text = f"{names(entries)}; repeat it or separate by commas. All by default."
    return listed(flag, name, lambda text: by_name(entries, text), text)


def common_options(benchmark: str, quick: str) -> Callable[[Command], Command]:
    """The options of every benchmark: how often it runs, and where the record goes."""
    options = (
        click.option("--quick", is_flag=True, help=quick),
        click.option("--rounds", type=click.IntRange(min=1), help="Runs of each method, interleaved."),
        click.option(
            "--json", "json_path", metavar="PATH", help="Write the record there; - is standard output."
        ),
        click.option(
            "--record",
            "is_kept",
            is_flag=True,
            help=f"Keep the record as benchmarks/records/DATE-{benchmark}-MACHINE.json.",
        ),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def ffmpeg_option(name: str, more: str = "", **settings: Any) -> Callable[[Command], Command]:
    """The FFmpeg of all methods that take one."""
    text = f"The FFmpeg of all methods that take one; else the one that Penstock finds.{more}"
    return click.option("--ffmpeg", name, metavar="PATH", help=text, **settings)


def parse_bytes(text: str) -> int:
    """A number of bytes.

    Raises:
        ValueError: it is none, or not above zero.
    """
    nbytes = parse_byte_count(text)
    if nbytes == 0:
        raise ValueError(f"{text!r} is not a number of bytes above 0")
    return nbytes


def parse_size(text: str) -> tuple[int, int]:
    """Width and height from ``320x180``.

    Raises:
        ValueError: it is none.
    """
    pixels = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if not pixels:
        raise ValueError(f"{text!r} is not WIDTHxHEIGHT")
    return int(pixels[1]), int(pixels[2])


def parse_even_size(text: str) -> tuple[int, int]:
    """The same, but not odd, which yuv420p cannot be.

    Raises:
        ValueError: it is none, or odd.
    """
    width, height = parse_size(text)
    if width % 2 or height % 2:
        raise ValueError(f"{text!r}: yuv420p needs an even width and height")
    return width, height


def sized_options(command: Command) -> Command:
    """Options for `resized`."""
    size = click.option(
        "--size", callback=parsed(parse_even_size), help="WIDTHxHEIGHT, instead of each job's own."
    )
    frames = click.option(
        "--frames", type=click.IntRange(min=1), help="Frames of each run, instead of each job's own."
    )
    return size(frames(command))


def given_in(settings: Settings, given: dict[str, Any]) -> Settings:
    """The settings with what was given on the command line."""
    return replace(settings, **{name: value for name, value in given.items() if value not in (None, ())})


def resized(jobs: Iterable[Job], size: tuple[int, int] | None, frames: int | None) -> tuple[Job, ...]:
    """The jobs with another size or number of frames, where one is given.

    A job of another size has another name, because the goals are about the job as it was.
    """
    made = []
    for job in jobs:
        if size is not None:
            width, height = size
            job = replace(job, name=f"{job.name}-at-{width}x{height}", width=width, height=height)
        made.append(job if frames is None else replace(job, frames=frames))
    return tuple(made)
