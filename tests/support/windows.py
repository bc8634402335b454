"""What tests ask Linux' /proc and signals for, on Windows: processes, threads, memory; a process that is held."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from ctypes import wintypes
from pathlib import Path
from typing import Any

from support import this_process

assert sys.platform == "win32"

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
for _function in (_kernel32.OpenProcess, _kernel32.OpenThread, _kernel32.CreateToolhelp32Snapshot):
    _function.restype = wintypes.HANDLE
_kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)
_PROCESSES, _THREADS = 2, 4  # TH32CS_SNAPPROCESS, TH32CS_SNAPTHREAD
_ALL_OF_A_PROCESS, _FACTS_OF_A_THREAD, _QUERY_A_THREAD = 0x1FFFFF, 0x0800, 0x0040
_STILL_ACTIVE = 259


class _Process(ctypes.Structure):
    """PROCESSENTRY32."""

    _fields_ = (
        ("size", wintypes.DWORD),
        ("usage", wintypes.DWORD),
        ("pid", wintypes.DWORD),
        ("heap", ctypes.c_void_p),
        ("module", wintypes.DWORD),
        ("threads", wintypes.DWORD),
        ("parent", wintypes.DWORD),
        ("priority", wintypes.LONG),
        ("flags", wintypes.DWORD),
        ("name", ctypes.c_char * 260),
    )


class _Thread(ctypes.Structure):
    """THREADENTRY32."""

    _fields_ = (
        ("size", wintypes.DWORD),
        ("usage", wintypes.DWORD),
        ("id", wintypes.DWORD),
        ("pid", wintypes.DWORD),
        ("base", wintypes.LONG),
        ("delta", wintypes.LONG),
        ("flags", wintypes.DWORD),
    )


class _Affinity(ctypes.Structure):
    """GROUP_AFFINITY."""

    _fields_ = (("mask", ctypes.c_size_t), ("group", wintypes.WORD), ("reserved", wintypes.WORD * 3))


# Of THREAD_PRIORITY_IDLE and the others.
_NICE = {-15: 19, -2: 10, -1: 5, 0: 0, 1: -5, 2: -10, 15: -20}


class _Memory(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("size", wintypes.DWORD),
        ("faults", wintypes.DWORD),
        ("peak_resident", ctypes.c_size_t),
        ("resident", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 6),
    )


def _snapshot(what: int, entry: _Process | _Thread, kind: str) -> Iterator[_Process | _Thread]:
    """The entries of a snapshot of the machine, one after the other in the same place."""
    snapshot = wintypes.HANDLE(_kernel32.CreateToolhelp32Snapshot(what, 0))
    entry.size = ctypes.sizeof(entry)
    goes_on = getattr(_kernel32, f"{kind}32First")(snapshot, ctypes.byref(entry))
    while goes_on:
        yield entry
        goes_on = getattr(_kernel32, f"{kind}32Next")(snapshot, ctypes.byref(entry))
    _kernel32.CloseHandle(snapshot)


def parents() -> dict[int, int]:
    """Each process of the machine, and which has started it."""
    return {each.pid: each.parent for each in _snapshot(_PROCESSES, _Process(), "Process")}


def children() -> frozenset[int]:
    # One that has ended is listed as long as somebody holds its handle.
    return frozenset(pid for pid, parent in parents().items() if parent == os.getpid() and runs(pid))


def descendants() -> frozenset[int]:
    """The processes that this one has started, and what they have started."""
    listed = parents()
    found = [os.getpid()]
    for one in found:
        found += [pid for pid, parent in listed.items() if parent == one and pid not in found]
    return frozenset(pid for pid in found[1:] if runs(pid))


def children_named(part: bytes, pid: int) -> list[int]:
    """The programs that a process has started and that have this in their names."""
    found = _snapshot(_PROCESSES, _Process(), "Process")
    return [each.pid for each in found if each.parent == pid and part in each.name.lower()]


def threads(pid: int) -> set[int]:
    return {each.id for each in _snapshot(_THREADS, _Thread(), "Thread") if each.pid == pid}


def name_of(thread: int) -> str:
    """The name that a native thread has got; nothing for all others."""
    handle = wintypes.HANDLE(_kernel32.OpenThread(_FACTS_OF_A_THREAD, False, thread))
    name = wintypes.LPWSTR()
    _kernel32.GetThreadDescription(handle, ctypes.byref(name))
    _kernel32.CloseHandle(handle)
    return name.value or ""


def policy_of(thread: int) -> tuple[int, set[int]]:
    """The niceness of its level, and its CPUs."""
    handle = wintypes.HANDLE(_kernel32.OpenThread(_FACTS_OF_A_THREAD | _QUERY_A_THREAD, False, thread))
    affinity = _Affinity()
    _kernel32.GetThreadGroupAffinity(handle, ctypes.byref(affinity))
    level = _kernel32.GetThreadPriority(handle)
    _kernel32.CloseHandle(handle)
    return _NICE[level], {cpu for cpu in range(64) if affinity.mask >> cpu & 1}


def processor_times(tasks: set[int]) -> dict[int, int]:
    """The time in units of 100 ns that these threads, and all threads of these processes, have used."""
    found = {}
    for each in _snapshot(_THREADS, _Thread(), "Thread"):
        if each.id in tasks or each.pid in tasks:
            handle = wintypes.HANDLE(_kernel32.OpenThread(_FACTS_OF_A_THREAD, False, each.id))
            times = [ctypes.c_ulonglong() for _ in range(4)]
            _kernel32.GetThreadTimes(handle, *map(ctypes.byref, times))
            _kernel32.CloseHandle(handle)
            found[each.id] = times[2].value + times[3].value
    return found


def runs(pid: int) -> bool:
    handle = wintypes.HANDLE(_kernel32.OpenProcess(_ALL_OF_A_PROCESS, False, pid))
    status = wintypes.DWORD()
    _kernel32.GetExitCodeProcess(handle, ctypes.byref(status))
    _kernel32.CloseHandle(handle)
    return status.value == _STILL_ACTIVE


def open_fds() -> dict[str, str]:
    """Descriptors of Python's C library, and whether they are files, consoles or pipes: dup2 changes their handles."""
    import msvcrt

    found = {}
    for fd in range(512):
        try:
            found[str(fd)] = str(_kernel32.GetFileType(wintypes.HANDLE(msvcrt.get_osfhandle(fd))))
        except OSError:
            continue
    return found


def rss_bytes() -> int:
    memory = _Memory(size=ctypes.sizeof(_Memory))
    _kernel32.K32GetProcessMemoryInfo(wintypes.HANDLE(-1), ctypes.byref(memory), memory.size)
    return int(memory.resident)


def in_words_of_c(text: str) -> str:
    """A message of the system's own, as the C library says it."""
    for code, number in ((2, errno.ENOENT), (3, errno.ENOENT), (5, errno.EACCES), (123, errno.ENOENT)):
        text = text.replace(ctypes.FormatError(code).rstrip("."), os.strerror(number))
    return text


_kill = os.kill


def _signal(pid: int, number: int) -> None:
    """`os.kill` with Linux' signals. Windows' own ends the process, whatever the number says."""
    if pid == os.getpid() and number in (signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)
    elif number in (signal.SIGSTOP, signal.SIGCONT):
        process = wintypes.HANDLE(_kernel32.OpenProcess(_ALL_OF_A_PROCESS, False, pid))
        holds = number == signal.SIGSTOP
        getattr(ctypes.windll.ntdll, "NtSuspendProcess" if holds else "NtResumeProcess")(process)
        _kernel32.CloseHandle(process)
    else:
        _kill(pid, number)


_SIGNALS = "PENSTOCK_TEST_SIGNALS"


class Hearing(subprocess.Popen[bytes]):
    """A Python program that calls `hear_signals`: it gets them as from Ctrl-C, and its status is that of Linux."""

    def __init__(self, command: Sequence[object], **options: Any) -> None:
        self._sent = Path(tempfile.mkdtemp()) / "signal"
        options["env"] = (options.get("env") or os.environ) | {_SIGNALS: str(self._sent)}
        super().__init__(command, **options)

    def send_signal(self, number: int) -> None:
        self._sent.with_name("next").write_text(str(int(number)))
        self._sent.with_name("next").replace(self._sent)

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()  # it may wait for what the test was to do
        super().__exit__(kind, *rest)

    @property
    def returncode(self) -> int | None:  # type: ignore[override]
        return self._status

    @returncode.setter
    def returncode(self, status: int | None) -> None:
        # A command ends with what shells on Linux report of a signal, and Python with STATUS_CONTROL_C_EXIT.
        ends = {130: -signal.SIGINT, 141: -13, 143: -signal.SIGTERM, 0xC000013A: -signal.SIGINT}
        self._status = ends.get(status, status)


def hear_signals() -> None:
    """Starts a thread that raises the signals which `Hearing` sends to this program."""
    threading.Thread(target=_hear, args=(Path(os.environ.pop(_SIGNALS)),), daemon=True).start()


def _hear(sent: Path) -> None:
    while True:
        time.sleep(0.01)
        with contextlib.suppress(FileNotFoundError):
            number = int(sent.read_text())
            sent.unlink()
            signal.raise_signal(number)


def have_signals() -> None:
    """From now on `os.kill` holds a process, lets it go on, or kills it, by the signals that do so on Linux."""
    signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT = 9, 19, 18  # type: ignore[attr-defined]
    os.kill = _signal


#: What only Linux' modules have, and why a test that calls it is for Linux.
_ON_LINUX = {
    (os, "mkfifo"): "FIFOs",
    (os, "openpty"): "a terminal that a program holds",
    (os, "eventfd"): "eventfd",
    (os, "memfd_create"): "files in memory",
    (os, "geteuid"): "users and modes of files",
    (os, "symlink"): "symbolic links, which Wine doesn't make",
    (signal, "pthread_kill"): "signals to threads",
    (signal, "setitimer"): "timers that send signals",
    (signal, "pthread_sigmask"): "masks of signals",
}
#: Programs of Unix that tests start.
_PROGRAMS = {"bash", "cat", "dd", "head", "ps", "pv", "sh", "sleep", "strace", "tr", "true", "wc", "yes"}
_start = subprocess.Popen.__init__


def _start_what_is_there(
    popen: subprocess.Popen[bytes], command: Sequence[object], **options: object
) -> None:
    if (program := command if isinstance(command, str) else command[0]) in _PROGRAMS:
        this_process.only_on_linux(f"the program {program}")
    _start(popen, command, **options)  # type: ignore[arg-type]


def skip_what_is_for_linux() -> None:
    """From now on a test that calls one of these is skipped with the reason. Others find none of them."""
    subprocess.Popen.__init__ = _start_what_is_there  # type: ignore[method-assign]
    for (module, name), reason in _ON_LINUX.items():

        def call(*_: object, name: str = name, reason: str = reason, **__: object) -> None:
            frame = sys._getframe(1)
            while frame.f_globals["__name__"].startswith("pathlib"):
                frame = frame.f_back
            if not frame.f_globals["__name__"].startswith(("conftest", "support", "test_")):
                raise NotImplementedError(f"Windows has no {name}")
            this_process.only_on_linux(reason)

        setattr(module, name, call)
