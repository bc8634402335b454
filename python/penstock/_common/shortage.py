"""Shortages: the process or the system has no descriptor, memory, process or thread left.

Such an error says nothing about the file or the program that was to be opened, and reaches the caller as an `OSError`.
libav says the same of a damaged file with absurd sizes; that is no shortage.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING

from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.error import FFmpegError as LibavError

# Descriptors of the process and of the system, memory, and processes or threads: open(2), fork(2).
_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))
# FFmpeg's default for the largest piece of memory that it takes at once (av_max_alloc, libavutil/mem.c).
_LIBAV_MOST_BYTES = 2**31 - 1


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
    if isinstance(error, MemoryError) and _could_be_given(_LIBAV_MOST_BYTES):
        return  # of libav, for a file that is damaged: its sizes make no sense
    if number in _ERRNOS:
        raise OSError(number, os.strerror(number), path) from error


def error_of_libav(error: LibavError, path: str, frame: int | None = None) -> DecoderError:
    """The error to raise instead of one of libav's. Raises the `OSError` if that is a shortage."""
    raise_shortage(error, path)
    what = f"{path} can't be read" if frame is None else f"{path}: frame {frame} can't be decoded"
    return DecoderError(f"{what}: {error.strerror}", frames=frame or 0)


def _could_be_given(memory_bytes: int) -> bool:
    """Whether the system would give so much memory now. It's given back untouched."""
    try:
        mmap.mmap(-1, memory_bytes, access=mmap.ACCESS_COPY).close()
    except OSError:
        return False
    return True
