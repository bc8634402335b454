"""What the reading of a file by the FFmpeg program wants to know of it besides its facts. libav answers."""

from __future__ import annotations

from fractions import Fraction

from penstock._facts import completeness
from penstock._facts.completeness import Delivered, EndOfFile
from penstock._facts.info import Track
from penstock._facts.part import Begins, Grid, Part, begins, even_rate, latest_of


class FileChecks:
    """The questions about a video stream of a file, answered in this process. `Isolation.about` asks another one."""

    def __init__(self, track: Track) -> None:
        self._track = track

    def frames(self, start: float | None, end: float | None, rate: str | None = None) -> int | None:
        """How many frames iteration gives from one time to another, at a rate if one is given; None if unknown."""
        is_whole = start is None and end is None and rate is None
        if is_whole and (known := completeness.known_frames(self._track)) is not None:
            return known
        if not (shown := completeness.shown_times(self._track)):
            return None if shown is None else 0
        media, video = self._track.media, self._track.video
        part = Part.of(start, end, media, video)
        if rate is not None:
            return Grid(Fraction(rate), start or 0.0, end).count(part.end_of(*shown[-1]), media, video)
        return len(part.places(latest_of([pts for pts, _ in shown]), part.end_of(*shown[-1])))

    def begins(self, start: float) -> Begins | None:
        """Where a part from a time on begins; None if packets don't tell."""
        return begins(start, self._track)

    def even_rate(self) -> Fraction | None:
        """The rate at which the frames come, one after another, whatever the times that FFmpeg makes up.

        None if the file has times, or the frames come unevenly.
        """
        return even_rate(self._track)

    def begins_inside_group(self) -> bool:
        """Whether a decoder has to wait for a later packet than the first, as in a recording of a broadcast."""
        return completeness.begins_inside_group(self._track)

    def at_end(self, delivered: Delivered | None) -> EndOfFile:
        """What shows at the end of the file; None if filters have made other frames of it."""
        return completeness.end_of(self._track, delivered)
