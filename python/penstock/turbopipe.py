"""TurboPipe's functions, on Penstock: ``import penstock.turbopipe as turbopipe`` is all that changes.

It has the functions of TurboPipe 1.x (``pipe(buffer, fileno)``, ``sync(buffer=None)``, ``close()``) and of 2.x
(``pipe(data, file)``, ``sync(data)``, ``done(data)``). The differences: a reader that dies raises an exception instead
of ending the interpreter; a buffer may be a temporary; ``pipe`` and ``sync`` accept memoryviews; and the descriptor may
be closed as soon as ``pipe`` returns.

The environment variable ``PENSTOCK_MODE`` sets the transport: ``auto`` (the default), ``write``, ``staged`` or
``zero-copy``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast, overload

from penstock import _native

if TYPE_CHECKING:
    from penstock._common.types import Data, HasFileno, Mode

__all__ = ["close", "done", "pipe", "sync"]


@overload
def pipe(buffer: Data, fileno: int | HasFileno) -> None: ...
@overload
def pipe(*, data: Data, file: int | HasFileno) -> None: ...
def pipe(*args: Any, **kwargs: Any) -> None:
    """Queue a buffer to be written to a file descriptor by a native thread, in order.

    Waits only while the queue of that stream is full (128 MiB or 64 writes). The descriptor may be closed, and its
    number reused, as soon as this returns. All descriptors of one pipe are one stream with one order.

    ``buffer`` (``data`` in 2.x) is C-contiguous, of any dtype, shape and size: any object with the buffer protocol, a
    torch tensor on the CPU, or a ``moderngl.Buffer``, whose bytes are copied during the call. Other memory must not
    change until ``sync`` returns. ``fileno`` (``file`` in 2.x) is an int or an object with ``fileno()``, open for
    writing.

    Raises:
        BrokenStreamError, OSError: an earlier write to this stream failed, and nothing of the buffer was taken; or
            the descriptor is not open for writing.
        ValueError: the buffer is not C-contiguous, or ``PENSTOCK_MODE`` names no transport.
        TypeError: no buffer, or no descriptor.
    """
    mode = cast("Mode", os.environ.get("PENSTOCK_MODE", "auto"))
    renamed = {_NAMES_OF_1_X.get(name, name): value for name, value in kwargs.items()}
    _pipe(*args, **renamed, mode=mode)


_NAMES_OF_1_X = {"data": "buffer", "file": "fileno"}


def _pipe(buffer: Data, fileno: int | HasFileno, *, mode: Mode) -> None:
    _native._pipe(buffer, fileno, mode=mode)


def sync(buffer: Data | None = None, *, data: Data | None = None) -> None:
    """Wait until the buffer may be written to again; with None, until everything was written.

    Raises:
        BrokenStreamError, OSError: a stream failed.
    """
    _native._sync(buffer if data is None else data)


def done(data: Data) -> None:
    """Wait for the writes of a buffer that will not be used again. Penstock keeps nothing else of it."""
    _native._sync(data)


def close() -> None:
    """Wait until everything was written, and let idle worker threads end."""
    _native._close()
