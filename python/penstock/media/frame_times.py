"""The times of all frames of a file, by its packets, and whether they are those of a constant rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from penstock.errors import DecoderError
from penstock.ffmpeg.command import endpoints
from penstock.ffmpeg.plan.nut import TICK_S
from penstock.media.index import packets_of
from penstock.media.info import MediaInfo, VideoInfo
from penstock.media.opening import demux, open_media
from penstock.media.seeking import time_of

#: Matroska rounds times to 1 ms.
ROUNDED_S = 0.0011


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
        times_s = [time_of(pts, media, video.time_base) for pts in sorted(packets.pts[is_shown].tolist())]
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
