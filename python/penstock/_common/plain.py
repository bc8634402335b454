"""Dataclasses as JSON, and back by the types of their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_json(value: object, *, indent: int | None = None) -> str:
    """A value as JSON.

    Raises:
        TypeError: JSON can't store a part of it.
    """
    return json.dumps(value, default=_plain, indent=indent, sort_keys=True)


def fields_of(value: DataclassInstance) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    parts = ((one, getattr(value, one.name)) for one in fields(value) if one.init)
    return {one.name: part for one, part in parts if part != one.default}


def from_plain(kind: Any, value: Any) -> Any:
    """The value of a type that was made JSON.

    Raises:
        TypeError, KeyError, ValueError: the parts are not those of this type.
    """
    for one in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        if isinstance(value, Mapping) and isinstance(one, type) and is_dataclass(one):
            types = get_type_hints(one)
            return one(**{name: from_plain(types[name], part) for name, part in value.items()})
        if isinstance(value, list) and one is range:
            return range(*value)
        if isinstance(value, list) and get_origin(one) in (tuple, Sequence):
            return tuple(
                from_plain(get_args(one)[0], part) if isinstance(part, list) else part for part in value
            )
        if isinstance(value, str) and one is Fraction:
            return Fraction(value)
    return value


def _plain(value: Any) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    if isinstance(value, range):
        return value.start, value.stop, value.step
    if isinstance(value, Path | Fraction):
        return str(value)
    raise TypeError(f"a plan can't store {value!r}, because JSON has no {type(value).__name__}")
