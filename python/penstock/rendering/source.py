"""The video that `map_video` reads: the times of its frames, and where each chunk begins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from penstock.errors import DecoderError
from penstock.ffmpeg.plan import endpoints
from penstock.ffmpeg.plan.nut import TICK_S
from penstock.media.index import packets_of
from penstock.media.info import MediaInfo, VideoInfo
from penstock.media.opening import demux, open_media

# Matroska rounds times to 1 ms.
ROUNDED_S = 0.0011


@dataclass(frozen=True, slots=True)
class Source:
    """A video file, and where each chunk of it begins.

    Attributes:
        path: its absolute path.
        nbytes: its size.
        modified_ns: when it was last modified, in nanoseconds since 1970.
        pixel_format: that of the frames that the function gets.
        first_s: the time of its first frame, in seconds since the beginning of the file.
        ticks: the times of its frames since the first one, in units of `TICK_S`, and of its end; None at a constant
            rate.
        starts_s: for each chunk a time between the frame before it and its first, in seconds since the beginning of the
            file.
    """

    path: str
    nbytes: int
    modified_ns: int
    pixel_format: str
    first_s: float
    ticks: tuple[int, ...] | None
    starts_s: tuple[float | None, ...]

    @classmethod
    def of(cls, path: str, pixel_format: str, frames: FrameTimes, lengths: Sequence[int]) -> Source:
        """The source at `path` with these frames, in chunks of `lengths` frames."""
        times_s = frames.times_s
        firsts = itertools.accumulate(lengths[:-1])
        starts_s = (None, *((times_s[first - 1] + times_s[first]) / 2 for first in firsts))
        file = Path(path).absolute()
        status = file.stat()
        return cls(
            str(file), status.st_size, status.st_mtime_ns, pixel_format, times_s[0], frames.ticks(), starts_s
        )

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Source:
        """The source that ``dataclasses.asdict`` gave."""
        tuples = {name: given[name] and tuple(given[name]) for name in ("ticks", "starts_s")}
        return cls(**{**given, **tuples})


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """The frames of a video.

    Attributes:
        video: the stream.
        rate: frames per second; None if that varies.
        times_s: the time of each frame, in seconds since the beginning of the file.
    """

    video: VideoInfo
    rate: Fraction | None
    times_s: Sequence[float]

    @classmethod
    def of(cls, media: MediaInfo) -> FrameTimes:
        """The frames of the best video stream of a file, by its packets.

        Raises:
            DecoderError: there is no video, or its packets have no times.
        """
        video = media.best_video
        if video is None or video.frame_rate is None:
            raise DecoderError(f"{media.path} has no video, or none with a frame rate")
        with open_media(endpoints.source(media.path), (media.container,)) as file:
            packets = packets_of(demux(file, file.streams[video.index]))
        is_shown = (packets.size > 0) & ~packets.is_hidden
        if not is_shown.any() or not packets.has_pts[is_shown].all():
            raise DecoderError(f"{media.path} does not tell the times of its frames")
        times_s = [
            float(pts * video.time_base) - media.zero_s for pts in sorted(packets.pts[is_shown].tolist())
        ]
        is_regular = all(
            abs(time_s - times_s[0] - index / video.frame_rate) <= ROUNDED_S
            for index, time_s in enumerate(times_s)
        )
        return cls(video, video.frame_rate if is_regular else None, times_s)

    def ticks(self) -> tuple[int, ...] | None:
        """The times since the first one, and the end, in units of `TICK_S`; None at a constant rate."""
        if self.rate is not None:
            return None
        ticks = [round((time_s - self.times_s[0]) / float(TICK_S)) for time_s in self.times_s]
        return (*ticks, 2 * ticks[-1] - ticks[-2] if len(ticks) > 1 else ticks[-1] + 1)
