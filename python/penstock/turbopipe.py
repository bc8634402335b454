"""TurboPipe's functions, on Penstock: ``import penstock.turbopipe as turbopipe`` is all that changes.

Both of its surfaces are here: that of 1.x (``pipe(buffer, fileno)``, ``sync(buffer=None)``, ``close()``) and that
of 2.x (``pipe(data, file)``, ``sync(data)``, ``done(data)``). What differs: a reader that dies is an exception and
not the end of the interpreter; a buffer may be a temporary; memoryviews may be passed and synced directly; and the
descriptor may be closed as soon as ``pipe`` returns.

The environment variable ``PENSTOCK_MODE`` sets the transport: ``auto`` (as without it), ``write``, ``staged`` or
``zero-copy``.
"""

from __future__ import annotations

import os
from typing import Any, cast, overload

from penstock import _native
from penstock._types import HasFileno, Mode

__all__ = ["close", "done", "pipe", "sync"]


@overload
def pipe(buffer: Any, fileno: int | HasFileno) -> None: ...
@overload
def pipe(*, data: Any, file: int | HasFileno) -> None: ...
def pipe(*args: Any, **kwargs: Any) -> None:
    """Queue a buffer to be written to a file descriptor; see ``penstock.pipe``.

    ``pipe(buffer, fileno)``, by these names or by those of 2.x, ``data`` and ``file``.

    Raises:
        ValueError: ``PENSTOCK_MODE`` names no transport.
    """
    mode = cast(Mode, os.environ.get("PENSTOCK_MODE", "auto"))
    renamed = {_NAMES_OF_1_X.get(name, name): value for name, value in kwargs.items()}
    _pipe(*args, **renamed, mode=mode)


_NAMES_OF_1_X = {"data": "buffer", "file": "fileno"}


def _pipe(buffer: Any, fileno: int | HasFileno, *, mode: Mode) -> None:
    _native.pipe(buffer, fileno, mode=mode)


def sync(buffer: Any = None, *, data: Any = None) -> None:
    """Wait until the buffer may be written to again, or with None until everything was written."""
    _native.sync(buffer if data is None else data)


def done(data: Any) -> None:
    """Say that a buffer will not be used again. Nothing is kept of it, so this only waits for its writes."""
    _native.sync(data)


def close() -> None:
    """Wait until everything was written, and let the worker threads go."""
    _native.close()
