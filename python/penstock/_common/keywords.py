"""Errors of a call with an argument of another library's: they say what to pass instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

Given = ParamSpec("Given")


def explains(by_name: str, **remedies: str) -> Callable[[Callable[Given, None]], Callable[Given, None]]:
    """A decorator for an ``__init__`` whose `TypeError` says what to pass.

    Args:
        by_name: what to pass by its name, in place of a second positional argument.
        remedies: what to pass in place of arguments that it doesn't have.
    """

    def decorated(init: Callable[Given, None]) -> Callable[Given, None]:
        code = init.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(init)
        def explained(*args: Given.args, **kwargs: Given.kwargs) -> None:
            if len(args) > code.co_argcount:
                raise TypeError(
                    f"{init.__qualname__}() has {code.co_argcount - 1} positional argument at most, not "
                    f"{len(args) - 1}. Pass {by_name}"
                )
            for name in kwargs:
                if name not in names and name in remedies:
                    raise TypeError(f"{init.__qualname__}() has no argument {name!r}. Pass {remedies[name]}")
            init(*args, **kwargs)

        return explained

    return decorated
