"""Shortages: the process or the system has no descriptor, memory, process or thread left.

Such an error says nothing about the file or the program that was to be opened, and reaches the caller as an `OSError`.
"""

from __future__ import annotations

import errno
import os

_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))


def raise_shortage(error: BaseException, path: str | None = None) -> None:
    """Raises the `OSError` of a shortage if `error` is one. Call it before `error` is taken for something else.

    Args:
        error: of Python or of libav.
        path: what was to be opened.
    """
    # Python raises a bare RuntimeError if no thread can be started.
    if type(error) is RuntimeError:
        raise OSError(errno.EAGAIN, str(error), path) from error
    number = getattr(error, "errno", None)
    if number in _ERRNOS:
        raise OSError(number, os.strerror(number), path) from error
