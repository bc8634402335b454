"""The calling thread's priority and CPUs: what `penstock.cpu` offers besides the topology."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType

from penstock import _native
from penstock._native import AppliedPolicy, ThreadPolicy
from penstock._types import Near, Priority


def set_priority(level: Priority) -> AppliedPolicy:
    """Give the calling thread a priority, for good.

    Threads and processes that it starts later begin with the same.

    Args:
        level: as for `penstock.ThreadPolicy`.

    Returns:
        What the thread has now, read back from the system. Its ``notes`` say what was refused, why, and by which limit;
        and, where that is so, that the priority which the thread had before cannot be had again: to come up, Linux asks
        for a privilege that going down does not take.

    Raises:
        ValueError: an unknown level.
        TypeError: no str.
    """
    if level is None:
        raise TypeError("level must be a str, not None")
    return _native._apply_policy(ThreadPolicy(priority=level), try_undo=True)


def pin(cpus: Iterable[int]) -> AppliedPolicy:
    """Restrict the calling thread to these CPUs, for good.

    Threads and processes that it starts later begin with the same.

    Args:
        cpus: their numbers.

    Returns:
        What the thread has now. Its ``notes`` name the CPUs that were refused, and those that the system allows; if
        none was granted, the thread may run where it might before.

    Raises:
        ValueError: no CPU at all, or a number that no CPU can have.
        TypeError: no numbers.
    """
    if cpus is None:
        raise TypeError("cpus must be CPU numbers, like [0, 1], not None")
    return _native._apply_policy(ThreadPolicy(cpus=cpus), try_undo=True)


class policy:
    """Give the calling thread a policy for the length of a ``with`` block.

    ::

        with cpu.policy(priority="below-normal", near=encoder.pid) as applied:
            print(applied.nice, applied.cpus, applied.notes)

    It gives the `penstock.results.AppliedPolicy` that came of it, whose ``notes`` also say what could not be restored:
    to come up again, Linux asks for a privilege that going down does not take. At the block's end the thread gets back
    all that it had, as far as the system grants it.

    Args:
        asked: the policy; or its fields by name, as for `penstock.ThreadPolicy`.

    Attributes:
        restored: what the thread had after the block, with ``notes`` on what was refused; None until then.

    Raises:
        ValueError, TypeError: as `penstock.ThreadPolicy` does, or both a policy and fields of one.
        RuntimeError: a block that was begun on another thread, or has been begun already.
    """

    def __init__(
        self,
        asked: ThreadPolicy | None = None,
        *,
        priority: Priority | None = None,
        nice: int | None = None,
        cpus: Iterable[int] | None = None,
        near: Near | None = None,
    ) -> None:
        if asked is not None and not isinstance(asked, ThreadPolicy):
            raise TypeError(f"the policy must be a ThreadPolicy, not {asked!r}; its fields go by name")
        fields = ThreadPolicy(priority=priority, nice=nice, cpus=cpus, near=near)
        if asked is not None and fields != ThreadPolicy():
            raise ValueError("give a policy, or the fields of one, not both")
        self._asked = asked or fields
        self._begun: tuple[int, AppliedPolicy] | None = None
        self.restored: AppliedPolicy | None = None

    def __enter__(self) -> AppliedPolicy:
        if self._begun is not None:
            raise RuntimeError("this policy's block has been begun already")
        self._begun = (threading.get_ident(), _native._current_policy())
        return _native._apply_policy(self._asked, try_undo=True)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._begun is None:
            raise RuntimeError("this policy's block has not been begun")
        thread, before = self._begun
        if thread != threading.get_ident():  # the policy is that thread's
            raise RuntimeError("a policy's block must end on the thread that began it")
        self._begun = None
        self.restored = before._restore()


def try_priorities() -> dict[Priority, AppliedPolicy]:
    """What each level comes to on this machine, from the lowest: tried, on threads of their own that end at once.

    A level is to be had if its answer's ``priority`` is that level; else the ``notes`` say why not.

    Raises:
        OSError: no thread could be had.
    """
    return dict(_native._try_priorities())
