"""Records as small tables, for notebooks."""

from __future__ import annotations

from dataclasses import fields, is_dataclass


class HtmlTable:
    """A dataclass that notebooks show as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = ((field.name, _cell(getattr(self, field.name))) for field in fields(self))  # type: ignore[arg-type]
        lines = (f"<tr><th style='text-align: left'>{name}</th><td>{cell}</td></tr>" for name, cell in rows)
        return f"<table><caption>{type(self).__name__}</caption>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    from html import escape  # only in notebooks

    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return str(len(value))
    values = value if isinstance(value, tuple) else (value,)
    return "<br>".join(escape("" if one is None else str(one)) for one in values)
