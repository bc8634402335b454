"""The rounds of a group of cases, and what is made of them.

They are interleaved: every method runs once before any runs again, in another order each round, so that a machine
that gets slower or busier meanwhile does so for all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar


class Runnable(Protocol):
    """A row of a group's table."""

    #: Why there is nothing to measure.
    skipped: str | None
    #: What went wrong. A case with an error is not run again.
    error: str | None


Row = TypeVar("Row", bound=Runnable)


def interleaved(rows: Sequence[Row], rounds: int, seed: int) -> Iterator[tuple[int, Row]]:
    """The number of a round and a row to run, as long as the row can be run."""
    order = random.Random(seed)
    for number in range(rounds):
        for row in order.sample(rows, len(rows)):
            if not (row.skipped or row.error):
                yield number, row


def over(results: Sequence[object], name: str, reduce: Callable[[list[float]], float]) -> float | None:
    """What `reduce` makes of that field of all rounds; None where no round knows it."""
    values = [value for result in results if (value := getattr(result, name)) is not None]
    return reduce(values) if values else None
