"""The sandbox of `isolated=True`: what a program may do that reads a file which nobody trusts."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock import _native
from penstock._platform import descriptors
from penstock._platform.refusals import refuse

# The programs and libraries of the system, and what the dynamic loader reads. The last one tells glibc's malloc
# whether there are huge pages. /usr as a whole may hold the host's own files.
_SYSTEM = (
    *("/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec"),
    *("/usr/local/bin", "/usr/local/lib", "/usr/local/lib64", "/gnu/store", "/nix/store"),
    *("/etc/ld.so.cache", "/sys/kernel/mm/transparent_hugepage"),
)
# What a program gets of the environment, which may hold secrets.
_VARIABLES = frozenset(
    ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "GLIBC_TUNABLES", "AV_LOG_FORCE_NOCOLOR")
)
# Measured: FFmpeg 5.1 has 0.3 to 0.5 GB of private memory for 2160p with one thread, and 0.8 to 1.2 GB with 16 (H.264
# and 10-bit HEVC, to rgb24 and rgb48le); 2-core x86-64 VM, 2026-11-27. There is room for 4320p, with four times that.
# libav's process has 2.0 GiB for 4320p as rgb48le with one thread, and 2.3 with 2 (10-bit H.264 of 4 reference frames;
# the same machine, 2026-11-29).
_BASE_BYTES, _THREAD_BYTES = 3 << 30, 256 << 20
# Chosen: a film of 3 hours in 2160p and 10 bits takes 2 to 3 hours (30 ms a frame).
_CPU_S = 6 * 3600
_LAUNCHER = Path(__file__).with_name("launcher.py")
#: Exit status of our own programs in a sandbox that have no memory left. Chosen: no other program of ours has it.
MEMORY_STATUS = 124
# What programs say if the system (strerror(3)) gives them no memory or no thread, or nobody says why.
_NO_MEMORY = re.compile(
    r"Cannot allocate memory|Resource temporarily unavailable|[Oo]ut of memory|([Ff]ailed to|[Cc]ould not) allocate"
    r"|[Mm]emory allocation|MemoryError|bad_alloc|cannot map|failed to map|can't start new thread"
)
# What libavcodec says if it has no memory for a picture, or if the picture's size is impossible.
_NO_PICTURE = "get_buffer() failed"
# How programs end that get SIGXCPU: after a signal FFmpeg exits with 255, or says this (AVERROR_EXIT). Nobody else
# sends it one.
_SIGNALLED, _SIGNALLED_WORDS = (-getattr(signal, "SIGXCPU", 0), 255), "Immediate exit requested"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a program may do.

    It may use its pipes, read the source, and read and run the system's programs and libraries and its own. It can
    write to no file, open no socket, and send no signal to processes outside.

    Attributes:
        source: a descriptor of the only file that it may read.
        memory_bytes: its private memory.
        cpu_s: its CPU time.
        is_strict: whether it must not run where the kernel cannot confine it in full.
    """

    source: int
    memory_bytes: int
    cpu_s: int = _CPU_S
    is_strict: bool = False

    @classmethod
    def around(cls, source: int, *, threads: int, is_strict: bool) -> Sandbox:
        """The sandbox of a decoder with that many threads."""
        return cls(source, _BASE_BYTES + _THREAD_BYTES * threads, is_strict=is_strict)

    def launch(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command that confines itself, and then runs `command`, whose first word is the path of a program."""
        program, *arguments = command
        readable = self._readable(program)
        return (
            # Without `site`, and without modules beside the script: nothing that it does not need, and a quick start.
            *(sys.executable, "-I", "-S", "-B", str(_LAUNCHER), str(_native.__file__)),
            *(str(self.source), str(self.memory_bytes), str(self.cpu_s), str(int(self.is_strict))),
            *(str(len(readable)), *readable, program, *arguments),
        )

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What the program gets of an environment."""
        return {
            name: value
            for name, value in environment.items()
            if name in _VARIABLES or name.startswith("MALLOC_")
        }

    def reached_limit(self, returncode: int | None, stderr: str) -> str | None:
        """Which limit made a program fail, as the end of a sentence about its file; None if none seems to be it."""
        if returncode in _SIGNALLED or _SIGNALLED_WORDS in stderr:
            return f"takes more than {self.cpu_s} s of CPU time, the limit of isolated reading"
        more = f"takes more than {self.memory_bytes >> 20} MiB of memory, the limit of isolated reading"
        if returncode == MEMORY_STATUS or _NO_MEMORY.search(stderr):
            return more
        return f"{more}, or the file is damaged" if _NO_PICTURE in stderr else None

    def _readable(self, program: str) -> list[str]:
        """The program's own file and libraries, and those of the system."""
        path = Path(os.path.realpath(program))
        own = [path]
        if path.parent.name == "bin":  # of Conda and the like
            own.append(path.parent.with_name("lib"))
        named = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        return [*_SYSTEM, *map(str, own), *map(os.path.abspath, named)]


class SandboxedFile:
    """A regular file that is open for reading, for programs in a sandbox to read.

    Attributes:
        descriptor: its number, here and in the programs.
        url: FFmpeg's name for it, in the programs.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.url = f"file:/proc/self/fd/{descriptor}"
        self.close = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def opened(cls, path: str) -> SandboxedFile | None:
        """The file at `path`; None if it is no regular file.

        A caller's descriptor is opened again by its path in /proc, because it may be open for writing, too.
        """
        refuse("isolated=True")
        opened = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # which does not wait for a FIFO's writer
        try:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                return cls(descriptors.duplicate(opened))
            return None
        finally:
            os.close(opened)
