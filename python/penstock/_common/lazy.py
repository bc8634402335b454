"""Imports submodules and names at their first use, because they take most of the import time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

# Modules whose names are looked for elsewhere. The names of the others, such as `fifo.open`, mean little alone.
_NAMED = (
    "penstock",
    "penstock.cpu",
    "penstock.pipes",
    "penstock.rendering",
    "penstock.results",
    "penstock.video",
)


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
        raise AttributeError(f"module {module!r} has no attribute {name!r}{_elsewhere(name)}")

    return get, lambda: sorted({*known, *submodules, *homes})


def _elsewhere(name: str) -> str:
    """Which module has a public name that was looked for in another one; empty if none has it."""
    if name.startswith("_"):
        return ""
    home = next((home for home in _NAMED if name in getattr(import_module(home), "__all__", ())), None)
    return f". Use {home}.{name}" if home else ""
