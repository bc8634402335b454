"""Thread policies and the topology of the machine."""

from collections.abc import Iterable
from typing import Any, Self, final

from penstock._common.types import Near, Priority, SchedulingClass

@final
class ThreadPolicy:
    """The priority and the CPUs to ask for a thread.

    Fields that you leave out don't change: a worker thread inherits them from the thread that starts it. Wherever you
    can pass a policy, you can pass the name of a level: ``"lowest"`` means ``ThreadPolicy(priority="lowest")``.

    If the system refuses something, nothing raises. The ``AppliedPolicy`` reports what was applied and why.

    Args:
        priority: ``"background"``, ``"lowest"``, ``"below-normal"``, ``"normal"``, ``"above-normal"``, ``"highest"`` or
            ``"time-critical"``: niceness 19, 10, 5, 0, -5, -10 and -20. ``"background"`` also sets the scheduling class
            "idle". No level is real-time. A thread needs a privilege to rise above its present level, even to return to
            an earlier one.
        nice: the niceness itself, from -20 (most favored) to 19, instead of a level.
        cpus: numbers of the CPUs that the thread may run on.
        near: the owner of the L3 cache to share: the id of a thread (``threading.get_native_id()``); the id of a
            process, for its first thread; or a CPU, as ``("cpu", 3)``. The position of another thread is read once,
            when the policy is applied, so pin that thread if it must not move. If no L3 cache is known, its package is
            used. With ``cpus``, only those of them that share the cache are used; otherwise, those that the calling
            thread, or the first thread of its process, may run on.

    Raises:
        ValueError: if the level is unknown; if you pass both a level and a niceness; if the niceness is out of range;
            if there is no CPU; or if the number of a thread or CPU is impossible.
        TypeError: if an argument has the wrong type.
    """
    def __new__(
        cls,
        *,
        priority: Priority | None = None,
        nice: int | None = None,
        cpus: Iterable[int] | None = None,
        near: Near | None = None,
    ) -> Self: ...
    @property
    def priority(self) -> Priority | None:
        """The level that you asked for."""
    @property
    def nice(self) -> int | None:
        """The niceness that you asked for."""
    @property
    def cpus(self) -> tuple[int, ...] | None:
        """The CPUs that you asked for."""
    @property
    def near(self) -> Near | None:
        """The owner of the L3 cache, as you passed it."""

@final
class AppliedPolicy:
    """The scheduling of a thread, read back from the system after a policy was applied."""
    @property
    def priority(self) -> Priority | None:
        """The level that matches the thread's class and niceness; None if no level does."""
    @property
    def scheduling_class(self) -> SchedulingClass:
        """The thread's scheduling class (sched(7)).

        One of ``"other"``, ``"batch"``, ``"idle"``, ``"fifo"``, ``"round-robin"``, ``"deadline"`` and ``"unknown"``.
        """
    @property
    def nice(self) -> int:
        """The thread's niceness, which only affects the classes ``"other"`` and ``"batch"``."""
    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that the thread may run on."""
    @property
    def notes(self) -> tuple[str, ...]:
        """What was refused, why, and by which limit. ``penstock.cpu`` adds what can't be undone."""
    def _restore(self) -> AppliedPolicy:
        """Apply all this to the calling thread again."""

def _thread_policy(policy: ThreadPolicy | Priority) -> ThreadPolicy:
    """The policy, of which a word stands for a level."""

def _apply_policy(policy: ThreadPolicy | Priority, *, try_undo: bool) -> AppliedPolicy:
    """Apply a policy to the calling thread. With ``try_undo``, the notes also say what cannot be undone."""

def _current_policy() -> AppliedPolicy:
    """The scheduling of the calling thread."""

def _try_priorities() -> list[tuple[Priority, AppliedPolicy]]:
    """Try each level on a thread of its own."""

def _topology(root: str) -> dict[str, Any]:
    """Read the machine under that root, as a dict with an item for each field of a ``Topology``."""
