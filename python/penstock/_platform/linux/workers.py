"""A socket between two Python programs, and names of sockets."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from socket import AF_UNIX, SHUT_RDWR, SHUT_WR, socket, socketpair


class Link:
    """A connection to another Python program.

    Args:
        number: what `started` has passed to the other program.
    """

    def __init__(self, number: int) -> None:
        self._connection = Connection(number)
        self.send, self.receive = self._connection.send, self._connection.recv
        self.close = self._connection.close

    @classmethod
    def started(cls, code: str) -> tuple[subprocess.Popen[bytes], Link]:
        """Starts Python with code, in which ``{}`` are the arguments of its `Link`."""
        ours, its = socketpair()
        with its:
            process = subprocess.Popen(
                (sys.executable, "-c", code.format(its.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                # Ctrl-C is for us: we end the workers, and keep what is done.
                process_group=0,
            )
        return process, cls(ours.detach())

    def end_sending(self) -> None:
        """Has the other program see the end of what comes."""
        self._shut(SHUT_WR)

    def end(self) -> None:
        """Ends both directions, also for a thread that waits."""
        self._shut(SHUT_RDWR)

    def _shut(self, how: int) -> None:
        with suppress(OSError), socket(fileno=os.dup(self._connection.fileno())) as end:
            end.shutdown(how)


def end_this_program() -> None:
    """Has the main thread handle SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def held_name(name: str) -> Iterator[bool]:
    """Holds a name on this machine while the block runs. Yields whether no other program has it."""
    # An abstract name of unix(7), which the kernel forgets with the process.
    with socket(AF_UNIX) as held:
        try:
            held.bind(f"\0{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            yield False
            return
        yield True
