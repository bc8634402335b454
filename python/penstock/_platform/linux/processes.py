"""Other processes: their end, and the processor time that they took."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# linux/pidfd.h, since Linux 6.15: the exit status of a reaped process. Size, mask and offset of the status in the first
# version of `struct pidfd_info`.
_PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO_BYTES, _EXIT_STATUS_OFFSET = 64, 60


@contextmanager
def pidfd(pid: int) -> Iterator[int | None]:
    """A pidfd, which is readable once the process has ended; None if the system does not give one."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # before Linux 5.3; no descriptor is left; the process is gone
        yield None
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def status_after_reap(pidfd: int) -> int | None:
    """The exit status of a process that others have reaped; None before Linux 6.15."""
    info = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", info)
    (status,) = struct.unpack_from("=i", info, _EXIT_STATUS_OFFSET)
    return os.waitstatus_to_exitcode(status) if mask & _PIDFD_INFO_EXIT else None


def cpu_ticks(pid: int) -> int:
    """User and system time of a process in clock ticks (proc_pid_stat(5)); 0 if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The name before it may contain spaces, and be cut inside a character.
    fields = stat.rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])
