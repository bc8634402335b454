"""Goals, and whether a run reached them. Each benchmark defines its own.

A goal compares medians within one group of one run, so that it holds on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.harness.results import Group

#: A claim needs at least so many.
ROUNDS_NEEDED = 5


@dataclass(frozen=True)
class Verdict:
    """A goal, and the value that the run reached."""

    what: str
    value: float
    target: float
    unit: str = "x"
    #: Whether the value must not exceed the target.
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value <= self.target if self.at_most else self.value >= self.target

    def __str__(self) -> str:
        unit = self.unit if self.unit == "x" else f" {self.unit}"
        limit = "at most " if self.at_most else ""
        outcome = "met" if self.met else "missed"
        return f"{self.what}: {self.value:.2f}{unit} (target {limit}{self.target:.2f}{unit}: {outcome})"


def over(
    group: Group, ours: Sequence[str], rivals: Sequence[str], at_least: float, figure: str = "fps"
) -> Iterator[Verdict]:
    """The ratio of our best median to the best rival's. Nothing unless all of them were measured."""
    medians = group.medians(figure)
    if ours and rivals and {*ours, *rivals} <= medians.keys():
        best, rival = (max(names, key=medians.__getitem__) for names in (ours, rivals))
        yield Verdict(f"{best} / {rival}, {group.name}", medians[best] / medians[rival], at_least)


def below(group: Group, what: str, figure: str, one: str, other: str, at_most: float) -> Iterator[Verdict]:
    """The ratio of a figure's medians of two methods. Nothing unless both were measured."""
    medians = group.medians(figure)
    if {one, other} <= medians.keys():
        yield Verdict(what, medians[one] / medians[other], at_most, at_most=True)
