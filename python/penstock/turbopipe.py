"""TurboPipe's functions, on Penstock: change your import to ``import penstock.turbopipe as turbopipe``.

It has the functions of TurboPipe 1.x (``pipe(buffer, fileno)``, ``sync(buffer=None)``, ``close()``), 2.0
(``pipe(buffer, file)``, ``sync(buffer)``, ``close(file)``) and 2.1 (``pipe(data, file)``, ``sync(data)``,
``done(data)``). The differences: if a reader dies, you get an exception, and the
interpreter continues; a buffer may be a temporary; ``pipe`` and ``sync`` accept memoryviews; and you can close the
descriptor as soon as ``pipe`` returns.

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
    """Queues a buffer, which a native thread writes to a file descriptor, in order.

    The call waits only while the queue of the stream is full (128 MiB or 64 writes). You can close the descriptor, and
    reuse its number, as soon as the call returns. All descriptors of one pipe are one stream with one order.

    ``buffer`` (``data`` in 2.x) is C-contiguous, of any dtype, shape and size: any object with the buffer protocol, a
    torch tensor on the CPU, or a ``moderngl.Buffer``, whose bytes are copied during the call. Other memory must not
    change until ``sync`` returns. ``fileno`` (``file`` in 2.x) is an int or an object with ``fileno()``, open for
    writing.

    Raises:
        BrokenStreamError, OSError: if an earlier write to this stream failed, and nothing of the buffer was taken; or
            if the descriptor isn't open for writing.
        ValueError: if the buffer isn't C-contiguous, or ``PENSTOCK_MODE`` names no transport.
        TypeError: if there is no buffer, or no descriptor.
    """
    mode = cast("Mode", os.environ.get("PENSTOCK_MODE", "auto"))
    renamed = {_NAMES_OF_1_X.get(name, name): value for name, value in kwargs.items()}
    _pipe(*args, **renamed, mode=mode)


# Names of arguments.
_NAMES_OF_1_X = {"data": "buffer", "file": "fileno"}


def _pipe(buffer: Data, fileno: int | HasFileno, *, mode: Mode) -> None:
    _native._pipe(buffer, fileno, mode=mode)


def sync(buffer: Data | None = None, *, data: Data | None = None) -> None:
    """Waits until you can write to the buffer again; with None, until everything was written.

    Raises:
        BrokenStreamError, OSError: if a stream failed.
    """
    _native._sync(buffer if data is None else data)


def done(data: Data) -> None:
    """Waits until all writes of `data` have ended, as ``sync(data)`` does. It's there for programs of TurboPipe 2.1."""
    _native._sync(data)


def close(file: int | HasFileno | None = None) -> None:
    """Waits until everything was written, and lets idle worker threads end.

    TurboPipe 2.0 ends the thread of one ``file``. This waits for all files, whether you pass one or not.

    Raises:
        BrokenStreamError, OSError: if a stream failed.
    """
    _native._close()
