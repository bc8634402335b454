"""What the reading of a file by the FFmpeg program wants to know of it besides its facts. libav answers."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from penstock._facts import completeness, seeking
from penstock._facts.completeness import Delivered, End
from penstock._facts.info import Track


class Questions(Protocol):
    """The questions about a video stream of a file."""

    def frames(self, start_pts: int | None) -> int | None:
        """How many frames iteration gives from a timestamp on; None if that is unknown."""

    def misses_frames(self, start: float | None) -> bool:
        """Whether FFmpeg may lose the first frames from `start` on if it seeks there."""

    def begins_inside_group(self) -> bool:
        """Whether a decoder has to wait for a later packet than the first, as in a recording of a broadcast."""

    def at_end(self, delivered: Delivered) -> End:
        """What shows at the end of the file."""


class InProcess:
    """Answers in this process."""

    def __init__(self, track: Track) -> None:
        self._track = track

    def frames(self, start_pts: int | None) -> int | None:
        if start_pts is None and (known := completeness.known_frames(self._track)) is not None:
            return known
        if (pts := completeness.shown_pts(self._track)) is None:
            return None
        return len(pts) if start_pts is None else len(pts) - bisect_left(pts, start_pts)

    def misses_frames(self, start: float | None) -> bool:
        return seeking.misses_frames(start, self._track)

    def begins_inside_group(self) -> bool:
        return completeness.begins_inside_group(self._track)

    def at_end(self, delivered: Delivered) -> End:
        return completeness.end_of(self._track, delivered)
