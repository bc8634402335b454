"""Runs the rows of a group in interleaved rounds.

Every row runs once before any row runs again, so that a machine that gets slower or busier does so for all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from benchmarks.harness.results import Group, Row, Run

#: Is told what is about to run.
Report = Callable[[str], None]

Case = TypeVar("Case")


def check_content(group: Group, check: Callable[[Row], Run], report: Report) -> None:
    """Check each row once, untimed. A row that fails is not timed."""
    for row in group.rows:
        if row.skipped or row.method.kind == "bound":
            continue
        report(f"{group.name}, content: {row.name}")
        row.checked = attempt(row, check)
        row.error = row.checked.error


def run_rounds(
    group: Group, measure: Callable[[Row], Run], rounds: int, report: Report, seed: int = 1
) -> None:
    """Run each row once a round, unless it has failed before."""
    for number, row in interleaved(group.rows, rounds, seed):
        report(f"{group.name}, round {number + 1} of {rounds}: {row.name}")
        run = attempt(row, measure)
        row.runs.append(run)
        row.error = run.error


def interleaved(rows: list[Row], rounds: int, seed: int) -> Iterator[tuple[int, Row]]:
    """The number of a round and a row to run: shuffled, and every second round in the reverse of the order before.

    Over two such rounds, all rows have the same mean position.
    """
    shuffle = random.Random(seed)
    order: list[Row] = []
    for number in range(rounds):
        order = order[::-1] if number % 2 else shuffle.sample(rows, len(rows))
        for row in order:
            if not (row.skipped or row.error):
                yield number, row


def attempt(case: Case, measure: Callable[[Case], Run]) -> Run:
    """What the measurement found, or the exception it raised."""
    try:
        return measure(case)
    except Exception as error:  # whatever a method raises is its result
        return Run(error=f"{type(error).__name__}: {error}")
