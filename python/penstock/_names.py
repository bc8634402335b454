"""Names of files in messages."""

from __future__ import annotations


def show_name(name: object) -> str:
    """Return a file's name for people: in quotes if it is empty or has characters that a terminal would obey."""
    text = str(name)
    return text if text.isprintable() and text else repr(text)
