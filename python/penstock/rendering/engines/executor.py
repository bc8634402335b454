"""Chunks on an executor. An executor of the caller's has `submit` only, and ours can do more."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Executor, Future, wait

from penstock.errors import RenderError
from penstock.rendering.engines.work import Outcome, Work

#: The chunks that are rendered or wait for it, in the order of their submission, and their numbers.
Running = Mapping[Future[Outcome], int]


class Engine:
    """Has any executor render chunks, `workers` at once."""

    def __init__(self, work: Work, executor: Executor, workers: int) -> None:
        self._work, self._executor, self._workers = work, executor, workers

    def has_room(self, running: Running) -> bool:
        """Whether another chunk may be submitted."""
        return len(running) < self._workers

    def submit(self, number: int) -> Future[Outcome]:
        """Has a chunk rendered."""
        try:
            return self._executor.submit(self._work, number)
        except RuntimeError as error:  # it is broken, or was shut down
            raise RenderError(f"the executor takes no more chunks: {error}. Pass a new one") from error

    def frames(self, running: Running) -> Mapping[int, int]:
        """The frames so far of each chunk that a worker is at, by its number, as far as known."""
        return dict.fromkeys(running.values(), 0)

    def end(self, running: Running) -> None:
        """Ends all workers, at once if that is possible."""
        left = {
            future: number for future, number in running.items() if not future.cancel() and not future.done()
        }
        try:
            if left:
                numbers = ", ".join(map(str, left.values()))
                warnings.warn(f"waiting for chunks that can't be stopped: {numbers}", RuntimeWarning, 2)
        finally:
            wait(left)  # those that are cancelled may stay in a queue


def check_executor(executor: Executor) -> None:
    """Checks that an executor takes calls.

    Raises:
        TypeError, ValueError: it does not.
    """
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor must have submit, as concurrent.futures.Executor, and {executor!r} has not"
        )
    try:
        # Nothing but a call tells whether an executor was shut down.
        call = executor.submit(int)
    except RuntimeError as error:
        raise ValueError(f"executor={executor!r} takes no calls: {error}. Pass a new one") from None
    if not isinstance(call, Future):
        raise TypeError(f"the submit of {executor!r} must return a concurrent.futures.Future, not {call!r}")
    call.cancel()
