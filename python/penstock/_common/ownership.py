"""What belongs to the process that made it, and not to the children of a fork."""

from __future__ import annotations

from typing import ClassVar

from penstock._common import exits
from penstock.errors import ClosedError


def check_owner(kind: str, forks: int) -> None:
    """Checks that no fork lies between this process and the one in which ``exits.forks`` was `forks`."""
    if forks != exits.forks:
        raise ClosedError(
            f"the {kind} belongs to the parent process, because this process is a fork. Create it after the fork"
        )


class Owned:
    """Something with threads, or a child process, of the process that made it."""

    #: What it is, for messages.
    kind: ClassVar[str] = "decoder"

    def __init__(self) -> None:
        self._forks = exits.forks

    @property
    def is_inherited(self) -> bool:
        """Whether a fork copied this into the present process."""
        return self._forks != exits.forks

    def check_owner(self) -> None:
        """Checks that this process made it."""
        check_owner(self.kind, self._forks)


class Closable(Owned):
    """The same, which can be closed."""

    _is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""
        return self._is_closed or self.is_inherited

    def check_open(self) -> None:
        """Checks that it was not closed."""
        if self._is_closed:
            raise ClosedError(f"the {self.kind} is closed")

    def check_usable(self) -> None:
        """Checks that it was not closed, and that this process made it."""
        self.check_owner()
        self.check_open()
