"""The confinement of a process that reads what nobody trusts."""

from collections.abc import Sequence
from os import PathLike

def _confine(
    readable: Sequence[str | PathLike[str]], *, source: int, memory_bytes: int, cpu_s: int
) -> list[str]:
    """Confine this process, and the programs that it will run, for ever. It must have one thread only.

    It can then write to no file, open no socket, and send no signal to others. What is open stays open.

    Args:
        readable: folders and files that it may read and run. Those that are missing are left out.
        source: a descriptor of a file that it may open again to read it.
        memory_bytes: the limit of its private memory.
        cpu_s: the limit of its CPU time.

    Returns:
        A word for each thing that the kernel cannot do: "files", "truncation", "signals", "system calls",
        "privileges", "limits", or "threads" if there were others.
    """
