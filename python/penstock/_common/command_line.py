"""How the command line spells an argument. The type of the argument says it, where the argument is declared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandOption:
    """An option for an argument, or for a part of one. `penstock.cli.options` makes it.

    Attributes:
        spelling: ``--crf N``, as the help shows it. The word N says what is parsed. Without it, and without `choices`,
            it's a flag.
        help: the help.
        choices: the values, if there are few.
        least: the smallest number.
        is_repeated: whether it may be repeated, and makes a list or a mapping.
    """

    spelling: str
    help: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    is_repeated: bool = False
