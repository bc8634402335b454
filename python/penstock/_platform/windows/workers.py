"""Two pipes between two Python programs, and names of pipes."""

from __future__ import annotations

import _thread
import _winapi
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection

from penstock._platform.windows import programs

assert sys.platform == "win32"

# "System Error Codes", of a pipe's name that is in use: Windows says the first, and Wine the second.
_ACCESS_DENIED, _PIPE_BUSY = 5, 231


class Link:
    """A connection to another Python program.

    Args:
        receives, sends: what `started` has passed to the other program.
    """

    def __init__(self, receives: int, sends: int) -> None:
        self._receives = connection.PipeConnection(receives, writable=False)
        self._sends = connection.PipeConnection(sends, readable=False)
        self.send, self.receive = self._sends.send, self._receives.recv

    @classmethod
    def started(cls, code: str) -> tuple[subprocess.Popen[bytes], Link]:
        """Starts Python with code, in which ``{}`` are the arguments of its `Link`."""
        from_it, its_sends = connection.Pipe(duplex=False)
        its_receives, to_it = connection.Pipe(duplex=False)
        with its_sends, its_receives:
            handles = [_inheritable(end.fileno()) for end in (its_receives, its_sends)]
            try:
                process = subprocess.Popen(
                    (sys.executable, "-c", code.format(", ".join(map(str, handles)))),
                    stdin=subprocess.DEVNULL,
                    startupinfo=subprocess.STARTUPINFO(lpAttributeList={"handle_list": handles}),
                    # Ctrl-C is for us: we end the workers, and keep what is done.
                    creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
                )
            finally:
                for handle in handles:
                    _winapi.CloseHandle(handle)
        link = cls.__new__(cls)
        link._receives, link._sends = from_it, to_it
        link.send, link.receive = to_it.send, from_it.recv
        return process, link

    def end_sending(self) -> None:
        """Has the other program see the end of what comes."""
        self._sends.close()

    def end(self) -> None:
        """Nothing: what the other program has started doesn't have its handles."""

    def close(self) -> None:
        self._sends.close()
        self._receives.close()


def _inheritable(handle: int) -> int:
    """A duplicate of a handle, for a program that is about to start."""
    own = _winapi.GetCurrentProcess()
    return _winapi.DuplicateHandle(own, handle, own, 0, True, _winapi.DUPLICATE_SAME_ACCESS)


def end_this_program() -> None:
    """Has the main thread handle SIGTERM, unless it waits."""
    _thread.interrupt_main(signal.SIGTERM)


@contextmanager
def held_name(name: str) -> Iterator[bool]:
    """Holds a name on this machine while the block runs. Yields whether no other program has it."""
    try:
        held = _winapi.CreateNamedPipe(
            rf"\\.\pipe\{name}", _winapi.PIPE_ACCESS_INBOUND | programs.FIRST_INSTANCE, 0, 1, 0, 0, 0, 0
        )
    except OSError as error:
        if error.winerror not in (_ACCESS_DENIED, _PIPE_BUSY):
            raise
        yield False
        return
    try:
        yield True
    finally:
        _winapi.CloseHandle(held)
