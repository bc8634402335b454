"""Who renders chunks: processes of this machine, or Ray. An engine starts them and tells what becomes of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.rendering.reports import ChunkReport

#: Chosen: seconds that a worker process has to end by itself before it is killed.
ENDING_S = 2.0
#: Chosen: how often a chunk is tried before the render fails.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class FramesDone:
    """`frames` frames of a chunk have been rendered so far."""

    number: int
    frames: int


@dataclass(frozen=True, slots=True)
class Done:
    """A chunk is in the storage, after so many attempts."""

    number: int
    report: ChunkReport
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Failed:
    """A chunk was not rendered, in so many attempts.

    Attributes:
        reason: the message of the error.
        details: the traceback; empty if there is none.
    """

    number: int
    reason: str
    details: str = ""
    attempts: int = 1

    @classmethod
    def of(cls, number: int, error: BaseException, *, where: str = "", attempts: int = 1) -> Failed:
        """The failure of a chunk by an exception, and where that was."""
        is_ours = type(error).__module__ == "penstock.errors"
        reason = f"{where}{'' if is_ours else f'{type(error).__name__}: '}{error}"
        return cls(number, reason, "".join(traceback.format_exception(error)), attempts)


Event = FramesDone | Done | Failed


class Engine(Protocol):
    """Renders chunks of one plan, several at once."""

    def has_room(self) -> bool:
        """Whether another chunk may be submitted."""

    def submit(self, number: int) -> None:
        """Has a chunk rendered."""

    def events(self, timeout_s: float) -> Iterable[Event]:
        """The events since the last call. Waits at most `timeout_s` for the first one."""

    def workers(self) -> int:
        """How many workers are at work."""

    def close(self) -> None:
        """Ends all workers at once."""
