"""What the process does on exit and fork, checks of arguments, and a copy."""

from collections.abc import Callable

from penstock._common.types import Data, WritableData

def _drain(stall_timeout: float, on_long_wait: Callable[[], None]) -> tuple[int, int, int]:
    """Wait until all streams and relays have ended, or none makes progress for ``stall_timeout`` seconds, or a signal
    handler raises.

    Relays may never end: after the same time ``on_long_wait`` is called once.

    Returns:
        The bytes that no destination has taken; the bytes lost to failures that no call has reported; and the number
        of relays and tees that were stopped.
    """

def _before_fork() -> None:
    """Before a fork: wait until no thread is creating its thread state, and block new ones."""

def _after_fork_in_parent() -> None:
    """After a fork, in the parent: allow new thread states again."""

def _after_fork_in_child() -> None:
    """After a fork, in the child: release memory of the parent's writes, which are not the child's."""

def _copy(source: Data, target: WritableData) -> None:
    """Copy the bytes of a buffer into another of the same size. Releases the GIL."""

def _count(name: str, value: object) -> int:
    """Check a count or size, for the parts that are written in Python."""

def _seconds(name: str, value: object) -> float | None:
    """Check a number of seconds, for the parts that are written in Python. None stays None."""
