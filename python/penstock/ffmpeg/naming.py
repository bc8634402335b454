"""How messages name the arguments of an `Encoder` or `Decoder`: as Python writes them, or as the command line does."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


def in_python(name: str, value: object) -> str:
    """``crf=20``; ``options={'f': 'mp4'}`` for "options.f", and ``colors=Colors(range='full')`` for "colors.range"."""
    group, _, key = name.partition(".")
    written = "…" if value is ... else repr(value)
    if group == "options":
        return f"options={{{key!r}: {written}}}"
    return f"colors=Colors({key}={written})" if group == "colors" else f"{name}={written}"


#: Writes an argument of that name and value. The command line sets its own.
spelling: ContextVar[Callable[[str, object], str]] = ContextVar("spelling", default=in_python)


def argument(name: str, value: object = ...) -> str:
    """An argument in a message. Without a value, the reader chooses one."""
    return spelling.get()(name, value)
