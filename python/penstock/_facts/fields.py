"""Tells packets of MPEG-2 of which a part is missing, as libav doesn't where pictures are fields."""

from __future__ import annotations

# Start codes (ISO/IEC 13818-2, table 6-1), and what begins the extension of each picture (6.2.3.1).
_START, _SEQUENCE, _EXTENSION = b"\0\0\1", b"\0\0\1\xb3", b"\0\0\1\xb5"
_PICTURE, _SLICES, _OF_PICTURE = 0, range(1, 0xB0), 8
# Above this, a start code has only a part of a slice's row (6.3.16).
_MOST_HEIGHT = 2800
_FRAME = 3
# Lines of a frame for each row of macroblocks in one of its fields.
_ROW = 32


class Fields:
    """Knows the packets up to here. Each row of macroblocks has slices, from the top to the bottom (6.1.2).

    Args:
        height: of frames, as far as is known.
    """

    def __init__(self, height: int) -> None:
        self._height, self._have_pairs = height, False

    def are_cut(self, data: bytes) -> bool:
        """Whether the next packet has one field of a pair, or its last slices are missing."""
        if (at := data.find(_SEQUENCE)) >= 0:
            self._height = int.from_bytes(data[at + 5 : at + 7]) & 0xFFF
        is_pair = data.count(_START + bytes([_PICTURE])) > 1
        self._have_pairs |= is_pair
        is_half = self._have_pairs and not is_pair and _has_field(data)
        return is_half or (self._height <= _MOST_HEIGHT and _last_row(data) * _ROW < self._height)


def _has_field(data: bytes) -> bool:
    """Whether the first picture is a field."""
    at = -1
    while (at := data.find(_EXTENSION, at + 1)) >= 0:
        head = data[at + 4 : at + 7].ljust(3, b"\0")
        if head[0] >> 4 == _OF_PICTURE:
            return head[2] & 3 != _FRAME
    return False


def _last_row(data: bytes) -> int:
    """The number of the last slice's row, from 1; that of any if there is neither a slice nor a picture."""
    at = data.rfind(_START)
    while at >= 0:
        code = data[at + 3] if at + 3 < len(data) else _SLICES.stop
        if code in _SLICES or code == _PICTURE:
            return code
        at = data.rfind(_START, 0, at)
    return _MOST_HEIGHT
