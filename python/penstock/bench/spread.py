"""How far apart the rounds lie."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def iqr(values: Sequence[float]) -> float:
    """The width of the middle half."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low
