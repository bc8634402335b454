"""Names, numbers and lists, as people type them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


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


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def parse_bytes(text: str) -> int:
    """A number of bytes: ``4G`` and ``4GB`` are 4e9, ``4GiB`` is 4 * 2**30.

    Raises:
        ValueError: it is none, or not above zero.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?)?B?", text.strip().upper())
    nbytes = int(float(match[1]) * _UNITS[match[2] or ""]) if match else 0
    if nbytes <= 0:
        raise ValueError(f"{text!r} is not a number of bytes such as 500M, 4G or 2GiB")
    return nbytes


def parse_list(texts: Sequence[str], parse: Callable[[str], Value]) -> tuple[Value, ...]:
    """What repeated and comma-separated options name, in order and each once."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(parse(name) for name in names))
