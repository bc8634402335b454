"""Names, numbers and lists, as people type them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock._units import parse_byte_count


class Named(Protocol):
    """What an option chooses by its name."""

    @property
    def name(self) -> str: ...


Value = TypeVar("Value")
Entry = TypeVar("Entry", bound=Named)


def by_name(known: Sequence[Entry], name: str) -> Entry:
    """The entry of that name.

    Raises:
        ValueError: none has it.
    """
    for entry in known:
        if entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in known)
    raise ValueError(f"{name!r} is none of {names}")


def parse_bytes(text: str) -> int:
    """A number of bytes, in the units that all commands have.

    Raises:
        ValueError: it is none, or not above zero.
    """
    nbytes = parse_byte_count(text)
    if nbytes == 0:
        raise ValueError(f"{text!r} is not a number of bytes above 0")
    return nbytes


def parse_list(texts: Sequence[str], parse: Callable[[str], Value]) -> tuple[Value, ...]:
    """What repeated and comma-separated options name, in order and each once."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(parse(name) for name in names))


def parse_even_size(text: str) -> tuple[int, int]:
    """Width and height from ``320x180``.

    Raises:
        ValueError: it is none, or odd, which yuv420p cannot have.
    """
    pixels = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if not pixels:
        raise ValueError(f"{text!r} is not WIDTHxHEIGHT")
    width, height = int(pixels[1]), int(pixels[2])
    if width % 2 or height % 2:
        raise ValueError(f"{text!r}: yuv420p needs an even width and height")
    return width, height
