"""A kernel that refuses system calls: a filter of seccomp(2) for this process and its children."""

from __future__ import annotations

import ctypes
import platform
import struct

F_SETPIPE_SZ = 1031
# From asm/unistd_64.h, and from asm-generic/unistd.h, which arm64 uses.
_NUMBERS = {
    "copy_file_range": (326, 285),
    "fcntl": (72, 25),
    "landlock_create_ruleset": (444, 444),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "sendfile": (40, 71),
    "setpriority": (141, 140),
    "splice": (275, 76),
    "tee": (276, 77),
    "vmsplice": (278, 75),
}
_MACHINE = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
#: The numbers of system calls; empty on machines whose numbers are not known.
NUMBERS = {} if _MACHINE is None else {name: numbers[_MACHINE] for name, numbers in _NUMBERS.items()}

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
# Offsets in struct seccomp_data, of a little-endian machine.
_NUMBER, _SECOND_ARGUMENT = 0, 24


def refuse(errno: int, *calls: str) -> None:
    """Make these calls fail with `errno`. ``"F_SETPIPE_SZ"`` is that command of fcntl(2)."""
    refusal = (_RETURN, 0, 0, _ERRNO | errno)
    program = [(_LOAD, 0, 0, _NUMBER)]
    for call in calls:
        if call == "F_SETPIPE_SZ":
            program += [
                (_JUMP_IF_EQUAL, 0, 4, NUMBERS["fcntl"]),
                (_LOAD, 0, 0, _SECOND_ARGUMENT),
                (_JUMP_IF_EQUAL, 0, 1, F_SETPIPE_SZ),
                refusal,
                (_LOAD, 0, 0, _NUMBER),
            ]
        else:
            program += [(_JUMP_IF_EQUAL, 0, 1, NUMBERS[call]), refusal]
    program.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp = _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(header)), 0, 0
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(*seccomp):
        raise OSError(ctypes.get_errno(), "the filter was not taken")
