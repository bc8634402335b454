"""Runs the rows of a group in interleaved rounds.

Every row runs once before any row runs again. So a machine that becomes slower or busier does so for all rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from benchmarks.harness.results import Group, Row, Run

#: Called with the name of each case before it runs.
Report = Callable[[str], None]

Case = TypeVar("Case")


def check_content(group: Group, check: Callable[[Row], Run], report: Report) -> None:
    """Check each row but the bounds once, untimed. A row that fails is not timed."""
    for row in group.rows:
        if row.skipped or row.method.kind == "bound":
            continue
        report(f"{group.name}, content: {row.name}")
        row.checked = attempt(row, check)
        row.error = row.checked.error


def run_rounds(group: Group, measure: Callable[[Row], Run], rounds: int, report: Report) -> None:
    """Run each row once per round, until it fails."""
    for number, row in interleaved(group.rows, rounds):
        report(f"{group.name}, round {number + 1} of {rounds}: {row.name}")
        run = attempt(row, measure)
        row.runs.append(run)
        row.error = run.error


def interleaved(rows: list[Row], rounds: int) -> Iterator[tuple[int, Row]]:
    """The number of a round and a row to run. Each second round has the reverse order of the shuffled one before.

    So all rows have the same mean position over two rounds.
    """
    shuffle = random.Random(1)
    order: list[Row] = []
    for number in range(rounds):
        order = order[::-1] if number % 2 else shuffle.sample(rows, len(rows))
        for row in order:
            if not (row.skipped or row.error):
                yield number, row


def attempt(case: Case, measure: Callable[[Case], Run]) -> Run:
    """The result, or the exception that was raised."""
    try:
        return measure(case)
    except Exception as error:  # a method may raise anything
        return Run(error=f"{type(error).__name__}: {error}")
