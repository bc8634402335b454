"""Imports submodules and names at their first use, because they take most of the import time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def attributes(
    module: str, submodules: Iterable[str] = (), names: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a module (PEP 562).

    Args:
        module: its name.
        submodules: those of a package that are attributes of it.
        names: for each name, the submodule of ``penstock`` that defines it.
    """
    homes = {name: f"penstock.{home}" for name, home in (names or {}).items()}
    submodules = frozenset(submodules)
    known = vars(sys.modules[module])

    def get(name: str) -> object:
        if name in submodules:
            return import_module(f"{module}.{name}")
        if name in homes:
            value = known[name] = getattr(import_module(homes[name]), name)
            return value
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get, lambda: sorted({*known, *submodules, *homes})
