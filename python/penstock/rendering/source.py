"""The video that `map_video` reads, and where each chunk of it begins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._decoding.frame_times import FrameTimes


@dataclass(frozen=True, slots=True)
class SourceVideo:
    """A video file, and where each chunk of it begins.

    Attributes:
        path: its absolute path.
        nbytes: its size.
        modified_ns: when it was last modified, in nanoseconds since 1970.
        pixel_format: that of the frames that the function gets.
        fps: the fixed rate at which frames are read, as a fraction; None reads each frame once.
        first_s: the time of its first frame, in seconds since the beginning of the file.
        ticks: the times of its frames since the first one, in units of `TICK_S`, and of its end; None at a constant
            rate.
        starts_s: for each chunk the time of its first frame, in seconds since the beginning of the file; None for all
            of the file.
    """

    path: str
    nbytes: int
    modified_ns: int
    pixel_format: str
    fps: str | None
    first_s: float
    ticks: tuple[int, ...] | None
    starts_s: tuple[float | None, ...]

    @classmethod
    def of(
        cls,
        path: str,
        pixel_format: str,
        frames: FrameTimes,
        lengths: Sequence[int],
        *,
        fps: Fraction | None,
        is_whole: bool,
    ) -> SourceVideo:
        """The source at `path` with these frames, in chunks of `lengths` frames."""
        times_s = frames.times_s
        firsts = itertools.accumulate(lengths[:-1])
        starts_s = (None if is_whole else times_s[0], *(times_s[first] for first in firsts))
        file = Path(path).absolute()
        status = file.stat()
        return cls(
            *(str(file), status.st_size, status.st_mtime_ns, pixel_format, None if fps is None else str(fps)),
            *(times_s[0], frames.ticks(), starts_s),
        )

    def is_same(self) -> bool:
        """Whether the file is the one that was planned, by its size and when it was last modified."""
        status = Path(self.path).stat()
        return (status.st_size, status.st_mtime_ns) == (self.nbytes, self.modified_ns)
