"""What happens when the interpreter ends, and in the child of a fork."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from penstock import _native

STALL_S = 5.0
"""Seconds without any progress after which an ending program stops waiting for its readers."""


def arm() -> None:
    """Have this process deliver what is queued before it ends. Called once in each process that writes."""
    atexit.unregister(_drain)  # a forked child has inherited its parent's
    atexit.register(_drain)
    # A multiprocessing child ends without running atexit's functions, but runs its own finalizers.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _drain, exitpriority=0)


def _drain() -> None:
    lost, unheard, cut_off = _native._drain(STALL_S, _say_what_for)
    why = f"the program ended, and nothing moved for {STALL_S:g} s or the wait was interrupted"
    if lost:
        print(f"penstock: {lost} bytes were lost: {why}", file=sys.stderr, flush=True)
    if unheard:
        what = "the reader went away or the destination failed, and no call has reported it"
        print(f"penstock: {unheard} bytes were lost: {what}", file=sys.stderr, flush=True)
    if cut_off:
        print(f"penstock: {cut_off} relays were cut off: {why}", file=sys.stderr, flush=True)


def _say_what_for() -> None:
    what = "the program has ended, and waits for relays in the background; Ctrl-C cuts them off"
    # Nobody may be there to read it.
    with contextlib.suppress(OSError, ValueError):
        print(f"penstock: {what}", file=sys.stderr, flush=True)


# Threads of pipelines make their thread states not in the middle of a fork, for which the child would wait for ever.
os.register_at_fork(
    before=_native._before_fork,
    after_in_parent=_native._after_fork_in_parent,
    after_in_child=_native._after_fork_in_child,
)
