"""What a system doesn't have, by the name of the call, and what to use instead."""

from __future__ import annotations

import errno
import sys

#: What Windows doesn't have.
ON_WINDOWS = {
    "Tee": "Pass FanOut the same frames, or write each piece to several Writers",
    "a socket as a descriptor": "Pass a pipe or a file, to which a thread copies what comes",
    "a handle as a descriptor": "Pass an end of penstock.pipes.make_pipe()",
    "fifo": "Use a pipe: penstock.pipes.make_pipe()",
    "ffmpeg_policy": "Lower the priority of this process, which FFmpeg then inherits",
    "isolated=True": "Pass isolated=False for files that you trust, or read the others on Linux",
    "Ray": "Pass render an executor of local processes",
}


class UnavailableError(OSError):
    """An OSError (ENOTSUP): this system doesn't have what was asked for."""


def refuse(what: str, *, platform: str = sys.platform) -> None:
    """Raises an `UnavailableError` that names what to use instead, if this system doesn't have it."""
    if platform == "win32":
        instead = ON_WINDOWS.get(what, ON_WINDOWS["Tee"])
        raise UnavailableError(errno.ENOTSUP, f"{what} isn't available on Windows. {instead}")
