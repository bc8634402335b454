"""Arguments by their names: errors that say what to pass, and arguments that follow a source if they aren't given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from penstock._common.messages import plural

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _OfSource:
    def __repr__(self) -> str:
        return "<as the source>"

    def __reduce__(self) -> str:
        return "OF_SOURCE"  # the same object in each process


#: The default of an argument that follows the source. None may mean something else.
OF_SOURCE: Any = _OfSource()


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that don't follow the source."""
    return {name: value for name, value in arguments.items() if value is not OF_SOURCE}


def explains(by_name: str, **remedies: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """A decorator for a function whose `TypeError` says what to pass.

    Args:
        by_name: what to pass by its name, in place of another positional argument.
        remedies: what to pass in place of arguments that it doesn't have.
    """

    def decorated(function: Callable[Given, Result]) -> Callable[Given, Result]:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        own = names[0] in ("self", "cls")

        @functools.wraps(function)
        def explained(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            if len(args) > code.co_argcount:
                raise TypeError(
                    f"{function.__qualname__}() has {plural(code.co_argcount - own, 'positional argument')} at most, "
                    f"not {len(args) - own}. Pass {by_name}"
                )
            for name in kwargs:
                if name not in names and (remedy := _remedy(name, names, remedies)) is not None:
                    raise TypeError(f"{function.__qualname__}() has no argument {name!r}. {remedy}")
            return function(*args, **kwargs)

        cast("Any", explained).decorator = decorated
        return explained

    return decorated


def explains_as(other: Callable[..., Any]) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """The decorator that `other` has, for a function that passes arguments on to it."""
    return cast("Any", other).decorator  # type: ignore[no-any-return]


def _remedy(name: str, names: tuple[str, ...], remedies: dict[str, str]) -> str | None:
    import difflib  # only for messages

    if name in remedies:
        return f"Pass {remedies[name]}"
    near = difflib.get_close_matches(name, names, 1)
    return f"Did you mean {near[0]!r}?" if near else None
