"""What happens around a fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypedDict, Unpack


class Around(TypedDict, total=False):
    """What to call, and when."""

    before: Callable[[], object]
    after_in_parent: Callable[[], object]
    after_in_child: Callable[[], object]


def at_fork(**calls: Unpack[Around]) -> None:
    """Has functions called around each fork from now on. Without forks, as on Windows, they're never called."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
