"""Errors of a call with an argument of another library's: they say what to pass instead."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import ParamSpec

Given = ParamSpec("Given")

_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_POSITIONAL = re.compile(r"takes .*positional argument")


def explains(by_name: str, **remedies: str) -> Callable[[Callable[Given, None]], Callable[Given, None]]:
    """A decorator for an ``__init__`` whose `TypeError` says what to pass.

    Args:
        by_name: what to pass by its name, in place of a second positional argument.
        remedies: what to pass in place of arguments that it doesn't have.
    """

    def decorated(init: Callable[Given, None]) -> Callable[Given, None]:
        @functools.wraps(init)
        def explained(*args: Given.args, **kwargs: Given.kwargs) -> None:
            try:
                init(*args, **kwargs)
            except TypeError as error:
                # Raised by the call itself, and not in it.
                is_of_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
                remedy = _remedy(str(error), by_name, remedies) if is_of_call else None
                if remedy is None:
                    raise
                raise TypeError(f"{error}. Pass {remedy}") from None

        return explained

    return decorated


def _remedy(message: str, by_name: str, remedies: Mapping[str, str]) -> str | None:
    if _POSITIONAL.search(message):
        return by_name
    unknown = _UNKNOWN.search(message)
    return remedies.get(unknown[1]) if unknown else None
