"""The priority and the CPUs of the calling thread, for `penstock.cpu`."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from penstock import _native
from penstock._native import AppliedPolicy, ThreadPolicy
from penstock._types import Near, Priority


def set_priority(level: Priority) -> AppliedPolicy:
    """Set the priority of the calling thread permanently.

    Threads and processes that it starts later inherit the priority.

    Args:
        level: as for `penstock.ThreadPolicy`.

    Returns:
        The scheduling of the thread, read back from the system. Its ``notes`` say what was refused, why, and by which
        limit. They also say if the thread cannot return to its earlier priority: on Linux, raising a priority takes a
        privilege, and lowering it does not.

    Raises:
        ValueError: an unknown level.
        TypeError: ``level`` is not a str.
    """
    if level is None:
        raise TypeError("level must be a str, not None")
    return _native._apply_policy(ThreadPolicy(priority=level), try_undo=True)


def pin(cpus: Iterable[int]) -> AppliedPolicy:
    """Restrict the calling thread to these CPUs permanently.

    Threads and processes that it starts later inherit the CPUs.

    Args:
        cpus: the numbers of the CPUs.

    Returns:
        The scheduling of the thread. Its ``notes`` name the CPUs that were refused and those that the system allows. If
        none was granted, the CPUs of the thread do not change.

    Raises:
        ValueError: no CPU, or a number that no CPU can have.
        TypeError: ``cpus`` is not an iterable of integers.
    """
    if cpus is None:
        raise TypeError("cpus must be CPU numbers, like [0, 1], not None")
    return _native._apply_policy(ThreadPolicy(cpus=cpus), try_undo=True)


class policy:
    """Apply a policy to the calling thread for the length of a ``with`` block.

    ::

        with cpu.policy(priority="below-normal", near=encoder.pid) as applied:
            print(applied.nice, applied.cpus, applied.notes)

    The block gets the `penstock.results.AppliedPolicy`. Its ``notes`` also say what cannot be restored: on Linux,
    raising a priority takes a privilege, and lowering it does not. The end of the block restores what the thread had
    before, as far as the system allows.

    Args:
        asked: the policy; or its fields by name, as for `penstock.ThreadPolicy`.

    Attributes:
        restored: the scheduling of the thread after the block, with ``notes`` on what was refused; None until then.

    Raises:
        ValueError, TypeError: as for `penstock.ThreadPolicy`; or both a policy and fields are given.
        RuntimeError: the block has started already, or ends on another thread than it started on.
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

    def __exit__(self, *_: object) -> None:
        if self._begun is None:
            raise RuntimeError("this policy's block has not been begun")
        thread, before = self._begun
        if thread != threading.get_ident():  # the policy is that thread's
            raise RuntimeError("a policy's block must end on the thread that began it")
        self._begun = None
        self.restored = before._restore()


def try_priorities() -> dict[Priority, AppliedPolicy]:
    """Try each priority level on a short-lived thread, from the lowest, and return what was applied.

    A level is available if the ``priority`` of its result is that level; otherwise the ``notes`` say why not.

    Raises:
        OSError: no thread could be started.
    """
    return dict(_native._try_priorities())
