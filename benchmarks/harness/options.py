"""Command-line options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import click

from benchmarks.harness.methods import FrameJob
from penstock.cli.options import UNITS, byte_count, parsed, picture_size

Job = TypeVar("Job", bound=FrameJob)


class Named(Protocol):
    """What an option chooses by name."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)
#: In help texts.
SEVERAL = "repeat it or separate by commas"
ALL = f"{{}}; {SEVERAL}. All by default."


def by_name(entries: Iterable[Entry], name: str) -> Entry:
    """The entry of that name, or a ValueError that lists the names."""
    known = {entry.name: entry for entry in entries}
    if name not in known:
        raise ValueError(f"{name!r} is none of {', '.join(known)}")
    return known[name]


def names(entries: Iterable[Named]) -> str:
    """For help texts."""
    return ", ".join(entry.name for entry in entries)


def listed(flag: str, name: str, parse: Callable[[str], Any], help: str, **more: Any) -> click.Option:
    """An option that takes several values: repeated, or separated by commas. It gives a tuple without duplicates."""

    def parse_all(texts: Sequence[str]) -> tuple[Any, ...]:
        parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
        return tuple(dict.fromkeys(map(parse, parts)))

    return click.Option([flag, name], multiple=True, callback=parsed(parse_all), help=help, **more)


def chosen(flag: str, name: str, entries: Sequence[Named], help: str = ALL) -> click.Option:
    """An option that selects entries by name. In its help text, their names are filled in."""
    return listed(flag, name, lambda text: by_name(entries, text), help.format(names(entries)))


def counted(flag: str, name: str, help: str, at_least: int = 1) -> click.Option:
    """An option for a whole number."""
    return click.Option([flag, name], type=click.IntRange(min=at_least), help=help)


def common_options(benchmark: str, quick: str, uses_ffmpeg: bool) -> list[click.Option]:
    """The options of every benchmark. ``quick`` is the help text of ``--quick``."""
    kept = f"Keep the record as benchmarks/records/DATE-{benchmark}-MACHINE.json."
    return [FFMPEG] * uses_ffmpeg + [
        click.Option(["--quick"], is_flag=True, help=quick),
        counted("--rounds", "rounds", "Runs of each method, interleaved."),
        click.Option(["--json", "json_path"], metavar="PATH", help="Write the record; - is standard output."),
        click.Option(["--record", "is_kept"], is_flag=True, help=kept),
    ]


FFMPEG = click.Option(
    ["--ffmpeg", "ffmpegs"],
    metavar="PATH",
    multiple=True,
    help="The FFmpeg for all methods that take one; else the one that Penstock finds. Repeat it to compare several.",
)


def parse_bytes(text: str) -> int:
    """A number of bytes above 0."""
    nbytes = byte_count(text)
    if nbytes == 0:
        raise ValueError(f"{text!r} is not a number of bytes above 0")
    return nbytes


def sized(flag: str, name: str, help: str) -> click.Option:
    """An option for a number of bytes."""
    text = f"{help} {UNITS}"
    return click.Option([flag, name], metavar="BYTES", callback=parsed(parse_bytes), help=text)


def parse_even_size(text: str) -> tuple[int, int]:
    """Width and height from ``320x180``, both even, as yuv420p needs them."""
    width, height = picture_size(text)
    if width % 2 or height % 2:
        raise ValueError(f"{text!r}: yuv420p needs an even width and height")
    return width, height


#: Options for `resized`.
SIZE = click.Option(["--size"], callback=parsed(parse_even_size), help="WIDTHxHEIGHT, instead of each job's.")
FRAMES = counted("--frames", "frames", "Frames of each run, instead of each job's own.")


def resized(jobs: Iterable[Job], size: tuple[int, int] | None, frames: int | None) -> tuple[Job, ...]:
    """The jobs with another size or number of frames, where one is given.

    A job of another size gets another name: its figures are not those of the job's own size.
    """
    made = []
    for job in jobs:
        if size is not None:
            width, height = size
            job = replace(job, name=f"{job.name}-at-{width}x{height}", width=width, height=height)
        made.append(job if frames is None else replace(job, frames=frames))
    return tuple(made)
