"""What notebooks show of results: records as small tables, and videos."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

# A larger video is not shown: notebooks keep what they show, as text.
_MOST_BYTES = 8_000_000


class HtmlTable:
    """A dataclass that notebooks show as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        return table(type(self).__qualname__, rows)


class HtmlVideo(HtmlTable):
    """A record about the file `output`: its table, and a player if browsers can play the file."""

    __slots__ = ()
    output: str

    def _repr_html_(self) -> str:
        return super()._repr_html_() + player(self.output)


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of two columns, as HTML. Names and values are text. Records are counted."""
    from html import escape  # only in notebooks

    lines = (
        f"<tr><th style='text-align: left'>{escape(name)}</th><td>{_cell(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def player(path: str) -> str:
    """HTML that plays the file; empty if browsers cannot, or if it is missing or larger than `_MOST_BYTES`."""
    from base64 import b64encode

    from penstock._formats import containers, images

    file, suffix = Path(path), Path(path).suffix.lower()
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return ""
        data = b64encode(file.read_bytes()).decode()
    except OSError:
        return ""
    if (media_type := images.known(suffix).media_type) is not None:
        return f'<img src="data:{media_type};base64,{data}" style="max-width: 100%">'
    container = containers.playing(suffix)
    if container is not None and _is_played(path, container):
        return f'<video controls src="data:video/{container};base64,{data}" style="max-width: 100%"></video>'
    return ""


def _is_played(path: str, container: str) -> bool:
    """Whether browsers know the video in a file of that container, and in no other, which may lead to more files."""
    import av

    from penstock._formats import codecs

    try:
        with av.open(f"file:{path}", format=container) as media:
            context: Any = media.streams.video[0].codec_context
            return context.pix_fmt in codecs.known(context.codec.canonical_name).played_formats
    except (av.FFmpegError, OSError, IndexError):
        return False


def _cell(value: object) -> str:
    from html import escape

    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return str(len(value))
    values = value if isinstance(value, tuple) else (value,)
    return "<br>".join(escape("" if one is None else str(one)) for one in values)
