"""The end of the interpreter, and the child of a fork."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable

from penstock import _native
from penstock._platform.forks import at_fork

STALL_S = 5.0
"""Seconds without any progress after which an ending program stops waiting for its readers."""

CUT_OFF_REASON = f"the program ended, and nothing moved for {STALL_S:g} s or the wait was interrupted"
"""Why something was cut off."""


_armed: dict[Callable[[], None], tuple[int, int]] = {}
"""For each function, its priority and the process that it was registered in; a forked child registers it again."""


def at_exit(function: Callable[[], None], priority: int) -> None:
    """Call the function at least once when this process ends, those of higher priorities first."""
    if _armed.get(function) == (priority, os.getpid()):
        return
    _armed[function] = priority, os.getpid()
    # The last that was registered runs first. A forked child has inherited its parent's.
    for other in sorted(_armed, key=lambda armed: _armed[armed]):
        if _armed[other][1] == os.getpid():
            atexit.unregister(other)
            atexit.register(other)
    # A multiprocessing child ends without running atexit's functions, but runs its own finalizers. Other processes, and
    # children that were spawned, run both.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, function, exitpriority=priority)


def arm() -> None:
    """Deliver what is queued before this process ends. The native module calls it."""
    at_exit(_drain, 0)


def report_loss(loss: str) -> None:
    """Report on stderr, and to the logger, what the end of the program lost."""
    from penstock._common.log import logger  # not earlier: hardly any program loses something

    logger.error(loss)
    _tell(loss)


def _drain() -> None:
    lost, unreported, cut_off = _native._drain(STALL_S, _announce_wait)
    if lost:
        report_loss(f"{lost} bytes were lost, because {CUT_OFF_REASON}")
    if unreported:
        what = "the reader went away or the destination failed"
        fix = "Call flush() or close() on the stream to get this as an exception"
        report_loss(f"{unreported} bytes were lost, because {what}. {fix}")
    if cut_off:
        report_loss(f"{cut_off} relays were cut off, because {CUT_OFF_REASON}")


def _announce_wait() -> None:
    _tell("the program has ended, but waits for relays in the background. Press Ctrl-C to cut them off")


def _tell(what: str) -> None:
    """Print on stderr, if there is one and it is open."""
    if sys.stderr is not None:  # print would take stdout
        with contextlib.suppress(OSError, ValueError):
            print(f"penstock: {what}", file=sys.stderr, flush=True)


forks = 0
"""How many forks lie between the process that imported this module and the present one."""


def _after_fork_in_child() -> None:
    global forks
    forks += 1
    _native._after_fork_in_child()


# No pipeline thread creates its Python thread state during a fork: the child would wait for it forever.
at_fork(
    before=_native._before_fork,
    after_in_parent=_native._after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
