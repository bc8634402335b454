"""Imports submodules and names of a package at their first use, because they take most of the import time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def attributes(
    package: str, submodules: Iterable[str] = (), names: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package (PEP 562). ``names`` have the submodule that each is from."""
    homes = {name: f"{package}.{home}" for name, home in (names or {}).items()}
    submodules = frozenset(submodules)
    known = vars(sys.modules[package])

    def get(name: str) -> object:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name in homes:
            value = known[name] = getattr(import_module(homes[name]), name)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*known, *submodules, *homes})
