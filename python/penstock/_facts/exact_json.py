"""Dataclasses, fractions and tuples as JSON, and back by their types: whoever wrote the JSON is not trusted."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

# libav counts in 64 bits at most; what is beyond makes floats overflow.
_MOST = 2**63


def pack(value: Any) -> Any:
    """What `json.dumps` writes for a value, of which `unpack` makes an equal one."""
    if is_dataclass(value):
        return {field.name: pack(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if isinstance(value, list | tuple):
        return list(map(pack, value))
    if isinstance(value, Mapping):
        return {name: pack(item) for name, item in value.items()}
    return value


def unpack(kind: type[T], value: Any) -> T:
    """The value of that type in what `json.loads` has read.

    Raises:
        TypeError: it is of another type, or a whole number of more than 64 bits.
    """
    return _unpack(kind, value)  # type: ignore[no-any-return]


def _unpack(kind: Any, value: Any) -> Any:
    origin, parameters = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        [present] = [one for one in parameters if one is not types.NoneType]
        return None if value is None else _unpack(present, value)
    if kind is Fraction:
        numerator, denominator = _list(value, 2)
        # Whoever wrote a denominator of 0 is to get no ZeroDivisionError.
        return Fraction(_unpack(int, numerator), _unpack(int, denominator) or 1)
    if origin is tuple and parameters[1:] == (...,):
        return tuple(_unpack(parameters[0], item) for item in _list(value))
    if origin is tuple:
        items = _list(value, len(parameters))
        return tuple(_unpack(one, item) for one, item in zip(parameters, items, strict=True))
    if origin is Mapping:
        names, items = parameters
        return {_unpack(names, name): _unpack(items, item) for name, item in _dict(value).items()}
    if is_dataclass(kind):
        made: Any = kind
        hints = _hints(made)
        if _dict(value).keys() != hints.keys():
            raise TypeError(f"{made} has other fields")
        return made(**{name: _unpack(hint, value[name]) for name, hint in hints.items()})
    # Not isinstance: a bool is an int.
    if type(value) is not kind or (kind is int and not -_MOST <= value < _MOST):
        raise TypeError(f"{kind} was expected")
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _list(value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise TypeError("a list was expected")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value
