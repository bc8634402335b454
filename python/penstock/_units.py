"""Byte counts as people write them on a command line."""

from __future__ import annotations

import re

# As head(1), dd(1) and split(1) have it: a letter alone is a power of 1024, with a B it is one of 1000.
_UNITS: dict[str, int] = {"": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {_letter: 1024**_power, f"{_letter}IB": 1024**_power, f"{_letter}B": 1000**_power}


def parse_byte_count(text: str) -> int:
    """A whole number of bytes: ``4K`` and ``4KiB`` are 4096, ``4kB`` is 4000."""
    match = re.fullmatch(r"(\d+)\s*([A-Z]*)", text.strip().upper(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a number of bytes such as 65536, 64K or 2G")
    return int(match[1]) * _UNITS[match[2]]
