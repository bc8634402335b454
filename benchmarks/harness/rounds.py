"""Runs the rows of a group in interleaved rounds.

Every row runs once before any row runs again. So a machine that becomes slower or busier does so for all rows. A run
that other processes disturb can be repeated at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from benchmarks.harness.accounts import watch
from benchmarks.harness.results import OTHERS, CannotDoError, Group, Measure, Row, Run

#: A claim needs at least so many.
ROUNDS_NEEDED = 5
#: How often a run of a record is repeated at most, while other processes disturb it.
REPEATS = 3

#: Called with the name of each case before it runs.
Report = Callable[[str], None]

Case = TypeVar("Case")


def check_content(group: Group, check: Measure, report: Report) -> None:
    """Check each row but the bounds once, untimed. A row that fails is not timed."""
    for row in group.rows:
        if row.skipped or row.method.kind == "bound":
            continue
        report(f"{group.name}, content: {row.name}")
        row.checked = attempt(row, check)
        row.error = row.checked.error


def run_rounds(group: Group, measure: Measure, rounds: int, report: Report, repeats: int = 0) -> None:
    """Run each row once per round, until it fails or cannot do the job.

    A disturbed run is repeated up to ``repeats`` times.
    """
    for number, row in interleaved(group.rows, rounds):
        report(f"{group.name}, round {number + 1} of {rounds}: {row.name}")
        runs = [_watched(row, measure)]
        while runs[-1].is_disturbed and len(runs) <= repeats:
            runs.append(_watched(row, measure))
        run = min(runs, key=lambda one: one.figures[OTHERS] or 0.0) if runs[-1].is_disturbed else runs[-1]
        row.repeats += len(runs) - 1
        row.runs.append(run)
        row.error, row.skipped = run.error, run.skipped


def _watched(row: Row, measure: Measure) -> Run:
    """A run that has `OTHERS`: its own, of its clock's time, or else of all that it did."""
    others_cpus = watch()
    run = attempt(row, measure)
    if not run.error:
        run.figures.setdefault(OTHERS, others_cpus())
    return run


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
    except CannotDoError as error:
        return Run(skipped=str(error))
    except Exception as error:  # a method may raise anything
        return Run(error=f"{type(error).__name__}: {error}")
