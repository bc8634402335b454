"""The time until which a call may wait. All calls that wait in several steps share it."""

from __future__ import annotations

import math
import time

from penstock._native import _seconds
from penstock.errors import StalledError

# Two clocks may disagree by less than this about the end of a wait. Guessed.
_TOLERANCE_S = 1e-3


class Deadline:
    """The time `timeout` seconds from now; with None, a wait never ends.

    Attributes:
        timeout: the seconds that it was made with; None if it never comes.

    Raises:
        ValueError, TypeError: `timeout` is negative, NaN or not a number.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = _seconds("timeout", timeout)
        self._end_s = math.inf if self.timeout is None else time.monotonic() + self.timeout

    def left_s(self) -> float | None:
        """Seconds until then; None if it never comes."""
        return None if self.timeout is None else self.at_most(math.inf)

    def at_most(self, seconds: float) -> float:
        """Seconds until then, or `seconds` if they are fewer."""
        return max(0.0, min(seconds, self._end_s - time.monotonic()))

    def is_over(self) -> bool:
        """Whether a wait until then has ended."""
        return self._end_s - time.monotonic() < _TOLERANCE_S

    def late(self, what: str, bytes_pending: int = 0) -> StalledError:
        """The error for a wait that has ended. Its message has the seconds, and `what` kept it waiting."""
        seconds = self.timeout or 0.0
        return StalledError(
            f"timed out after {seconds:.3g} s: {what}. Nothing is lost. Call again", seconds, bytes_pending
        )
