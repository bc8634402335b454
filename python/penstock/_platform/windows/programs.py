"""A Job object, pipes by their names, and a thread for each pipe."""

from __future__ import annotations

import _winapi
import ctypes
import msvcrt
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from ctypes import wintypes
from functools import cache, partial
from io import FileIO

from penstock._platform.windows import descriptors

assert sys.platform == "win32"

PipeReader = Callable[[bytes], None]

_READ_BYTES = 1 << 16
# Of ours: no program ends with it by itself.
_KILLED = 0xE0504B09
#: The failures of programs that crashed begin here ("NTSTATUS Values").
_CRASHES = 0xC0000000
_SIGKILL = 9

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel32.CreateJobObjectW.restype = wintypes.HANDLE
_kernel32.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
_kernel32.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
_kernel32.OpenProcess.restype = wintypes.HANDLE
_kernel32.GetProcessTimes.argtypes = (wintypes.HANDLE, *[ctypes.POINTER(ctypes.c_ulonglong)] * 4)
_QUERY_INFORMATION = 0x1000
# winbase.h
FIRST_INSTANCE, _REJECT_REMOTE, _OUTBOUND = 0x00080000, 0x00000008, 0x00000002


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    return os.process_cpu_count() if sys.version_info >= (3, 13) else os.cpu_count() or 1


def cpu_ticks(pid: int) -> int:
    """User and system time of a process in units of 100 ns; 0 if the process is gone."""
    process = _kernel32.OpenProcess(_QUERY_INFORMATION, False, pid)
    if not process:
        return 0
    times = [ctypes.c_ulonglong() for _ in range(4)]
    _kernel32.GetProcessTimes(process, *map(ctypes.byref, times))
    _winapi.CloseHandle(process)
    return times[2].value + times[3].value


def pipe() -> tuple[FileIO, FileIO]:
    """The reading and the writing end of a pipe. Neither is 0, 1 or 2, even if those are closed."""
    reading, writing = os.pipe()
    return FileIO(descriptors.above_standard(reading), "rb"), FileIO(
        descriptors.above_standard(writing), "wb"
    )


def read_together(pipes: Iterable[FileIO]) -> Iterator[tuple[FileIO, bytes]]:
    """What comes out of pipes until all have ended: the pipe, and some bytes."""
    came: queue.Queue[tuple[FileIO, bytes]] = queue.Queue(maxsize=2)
    pending = list(pipes)
    for pipe in pending:
        take = partial(lambda pipe, data: came.put((pipe, data)), pipe)
        threading.Thread(target=_read_all, args=(pipe.fileno(), take, nullcontext()), daemon=True).start()
    while pending:
        pipe, data = came.get()
        if data:
            yield pipe, data
        else:
            pending.remove(pipe)


class _Security(ctypes.Structure):
    """SECURITY_ATTRIBUTES"""

    _fields_ = (("size", wintypes.DWORD), ("descriptor", ctypes.c_void_p), ("inherits", wintypes.BOOL))


@cache
def _for_owner() -> _Security:
    """What lets only the user of this process open something: by default, everybody may read from a pipe."""
    security = _Security(ctypes.sizeof(_Security))
    # All rights for the owner, and no others ("Security Descriptor String Format").
    made = ctypes.WinDLL(
        "advapi32", use_last_error=True
    ).ConvertStringSecurityDescriptorToSecurityDescriptorW(
        "D:P(A;;GA;;;OW)", 1, ctypes.byref(security, _Security.descriptor.offset), None
    )
    if not made:
        raise ctypes.WinError(ctypes.get_last_error())
    return security


def _named_pipe(access: int) -> tuple[int, str]:
    """A pipe that only this user's programs may open, once: its handle, and its name."""
    path = f"//./pipe/penstock-{os.getpid()}-{secrets.token_hex(16)}"
    return _winapi.CreateNamedPipe(
        path.replace("/", "\\"),
        access | FIRST_INSTANCE,
        _winapi.PIPE_WAIT | _REJECT_REMOTE,
        *(1, _READ_BYTES, _READ_BYTES, 0, ctypes.addressof(_for_owner())),
    ), path


def _open_and_close(path: str, access: int) -> None:
    """Opens the other end of a pipe, unless a program has done so, and closes it."""
    with suppress(OSError):
        _winapi.CloseHandle(
            _winapi.CreateFile(path.replace("/", "\\"), access, 0, 0, _winapi.OPEN_EXISTING, 0, 0)
        )


class Channel:
    """A pipe from a program besides its standard streams, by a name that only this user's programs may open, once.

    Attributes:
        ours: our end.
        number_of_ours: its number, also after it was closed.
        number: none.
        url: its end, for FFmpeg.
        path: its end, for programs that open files.
    """

    def __init__(self) -> None:
        self.number = -1
        self._handle, self.path = _named_pipe(_winapi.PIPE_ACCESS_INBOUND)
        self.url = self.path
        self.ours = FileIO(msvcrt.open_osfhandle(self._handle, os.O_RDONLY), "rb")
        self.number_of_ours = self.ours.fileno()
        _channels[self.number_of_ours] = self

    def connect(self) -> None:
        """Waits until the program has opened it, or `let_go` was called."""
        with suppress(OSError):  # it has been opened already
            _winapi.ConnectNamedPipe(self._handle)

    def let_go(self) -> None:
        """Opens and closes it, as the program would have done that has ended."""
        _open_and_close(self.path, _winapi.GENERIC_WRITE)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Inlet:
    """A pipe to a program that opens it by its name.

    Attributes:
        url: its end, for FFmpeg.
        is_open: `close` wasn't called.
    """

    def __init__(self) -> None:
        self._handle, self._path = _named_pipe(_OUTBOUND)
        self.url, self.is_open = f"file:{self._path}", True
        self._ours = msvcrt.open_osfhandle(self._handle, os.O_BINARY)

    def ours(self) -> int:
        """Our end, once a write may wait for the program to read."""
        with suppress(OSError):  # it has been opened already
            _winapi.ConnectNamedPipe(self._handle)
        return self._ours

    def close(self) -> None:
        """Ends the writing, unless a program has opened it. May be called again."""
        self.is_open = False
        _open_and_close(self._path, _winapi.GENERIC_READ)

    def close_ours(self) -> None:
        """Closes our end, once the program has read all. May be called again."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


#: By the numbers of our ends.
_channels: dict[int, Channel] = {}


class Program:
    """A program in a Job object of its own, with all that it starts.

    Attributes:
        pid: its process id.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | FileIO,
        stdout: int | FileIO | None,
        stderr: int | FileIO,
        channels: Sequence[Channel] = (),
        inherited: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        assert not inherited, "Windows programs inherit no descriptors"
        self._channels = channels
        self._job = _kernel32.CreateJobObjectW(None, None)
        self._popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            # Ctrl-C in the console must not reach FFmpeg, which has to finish its file.
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW,
        )
        _kernel32.AssignProcessToJobObject(self._job, int(self._popen._handle))  # type: ignore[attr-defined]
        self.pid = self._popen.pid

    def kill(self) -> None:
        """Kills it and all that it has started."""
        if self._job is not None:
            _kernel32.TerminateJobObject(self._job, _KILLED)

    def attend(
        self, pipes: Mapping[FileIO, PipeReader], ended: Callable[[int | None], None], grace_s: float
    ) -> None:
        """Reads the pipes until the program has ended.

        Args:
            pipes: our ends, and what takes their data, b"" at the end.
            ended: called with the exit status; -9 if it was killed.
            grace_s: how long the pipes are read after that, if its own children hold them open.
        """
        turn = threading.Lock()
        threads = [
            threading.Thread(target=_read_all, args=(pipe.fileno(), take, turn), daemon=True)
            for pipe, take in pipes.items()
        ]
        for thread in threads:
            thread.start()
        status = self._popen.wait()
        ended(_like_linux(status))
        for channel in self._channels:  # also those that others read
            _channels.pop(channel.number_of_ours, None)
            channel.let_go()
        until_s = time.monotonic() + grace_s
        for thread in threads:
            thread.join(max(0, until_s - time.monotonic()))
        job, self._job = self._job, None
        _kernel32.TerminateJobObject(job, _KILLED)  # its own children: what they hold open ends
        for thread in threads:
            thread.join()
        _winapi.CloseHandle(job)

    def forget(self) -> None:
        """There are no forks."""


def _like_linux(status: int) -> int:
    """The exit status, of which Linux keeps 8 bits; -9 for a program that was killed."""
    status &= 0xFFFFFFFF
    if status == _KILLED:
        return -_SIGKILL
    return status if _CRASHES <= status < 0xF0000000 else status & 0xFF


def _read_all(fd: int, take: PipeReader, turn: AbstractContextManager[object]) -> None:
    if (channel := _channels.get(fd)) is not None:
        channel.connect()
    data = b"?"
    while data:
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError:  # of a pipe whose writer has ended
            data = b""
        with turn:
            take(data)
