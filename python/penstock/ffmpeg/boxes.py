"""The boxes of QuickTime and MP4 files (ISO/IEC 14496-12): as much of them as tells whether all frames came."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

# Where the content of a box begins and ends, in bytes from the beginning of the file.
_Place = tuple[int, int]
# Guessed: a header with more than these is not worth its time. Each frame can have an entry of its own.
_MOST_BOXES, _MOST_ENTRIES = 1 << 12, 1 << 18


def is_cut(file: BinaryIO) -> bool:
    """Whether a box is longer than the rest of the file."""
    size_bytes = file.seek(0, os.SEEK_END)
    # Behind the last box there may be other data.
    return any(
        kind in (b"mdat", b"moov", b"moof") and end > size_bytes
        for kind, (_, end) in _boxes(file, (0, size_bytes))
    )


def claimed_frames(file: BinaryIO, index: int) -> int | None:
    """The number of frames that the header claims for the stream of that `index`; None if it claims none."""
    movies = _inner(file, (0, file.seek(0, os.SEEK_END)), b"moov")
    tracks = [track for movie in movies for track in _inner(file, movie, b"trak")]
    places = tracks[index : index + 1]
    for kind in (b"mdia", b"minf", b"stbl", b"stts"):
        places = [inner for place in places for inner in _inner(file, place, kind)]
    if len(places) != 1:
        return None
    # Version and flags, the number of entries, and for each entry how many frames have the same duration.
    begin, end = places[0]
    file.seek(begin + 4)
    entries = min(int.from_bytes(file.read(4), "big"), (end - begin - 8) // 8)
    if not 0 < entries <= _MOST_ENTRIES:
        return None
    table = file.read(entries * 8)
    return sum(int(count) for count, _ in struct.iter_unpack(">II", table[: len(table) // 8 * 8])) or None


def _inner(file: BinaryIO, place: _Place, kind: bytes) -> list[_Place]:
    """The boxes of a `kind` in another one."""
    return [found for one, found in islice(_boxes(file, place), _MOST_BOXES) if one == kind]


def _boxes(file: BinaryIO, place: _Place) -> Iterator[tuple[bytes, _Place]]:
    """The boxes in a place, with their kinds. The last one may end after it."""
    at, end = place
    while at + 8 <= end:
        file.seek(at)
        head = file.read(16)
        length, begin = int.from_bytes(head[:4], "big"), at + 8
        if length == 1:
            length, begin = int.from_bytes(head[8:], "big"), at + 16
        if length < 8:
            return  # 0: up to the end
        yield head[4:8], (begin, at + length)
        at += length
