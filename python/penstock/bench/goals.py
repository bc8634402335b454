"""How a run compares with what the project wants to reach; the goals themselves are each benchmark's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

ROUNDS_NEEDED = 5


@dataclass(frozen=True)
class Verdict:
    """A goal and what a run had to say of it."""

    what: str
    ratio: float
    at_least: float

    @property
    def met(self) -> bool:
        """Whether the ratio reaches the goal."""
        return self.ratio >= self.at_least

    def __str__(self) -> str:
        outcome = "met" if self.met else "missed"
        return f"{self.what}: {self.ratio:.2f}x (target {self.at_least:.2f}x: {outcome})"


@dataclass(frozen=True)
class Limit:
    """A goal that something stays small, and what a run had to say of it."""

    what: str
    value: float
    at_most: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the value keeps to the goal."""
        return self.value <= self.at_most

    def __str__(self) -> str:
        outcome = "met" if self.met else "missed"
        return f"{self.what}: {self.value:.3f} {self.unit} (target {self.at_most:g} {self.unit}: {outcome})"


Judgement = Verdict | Limit


def print_verdicts(console: Console, verdicts: Sequence[Judgement]) -> None:
    """A line for each."""
    for verdict in verdicts:
        console.print(str(verdict), style="" if verdict.met else "yellow", highlight=False)


def print_if_too_few(console: Console, rounds: int) -> None:
    """Say so where there were too few rounds for a claim."""
    if rounds < ROUNDS_NEEDED:
        few = f"({rounds} rounds: too few for a claim, {ROUNDS_NEEDED} are needed)"
        console.print(few, style="dim", highlight=False)


def as_record(verdicts: Sequence[Judgement]) -> list[dict[str, Any]]:
    """For a record."""
    return [asdict(verdict) | {"met": verdict.met} for verdict in verdicts]
