"""The times of all frames of a file, by its packets, and whether they are those of a constant rate."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError

from penstock._decoding.engines import input_of
from penstock._decoding.options import DecodeOptions
from penstock._decoding.run import account_by_decoding
from penstock._facts.index import REORDERED, read_packets
from penstock._facts.info import MediaInfo, Track, check_decodable, check_no_grid
from penstock._facts.seeking import Clock, rounded_s
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import TICK_S
from penstock._formats import containers
from penstock.errors import DecoderError

#: Matroska rounds times to 1 ms.
ROUNDED_S = 0.0011
#: Chosen: a last frame that is shown for longer than this many is meant to be.
LONG_FRAMES = 1.5
#: How to give the frames of a file new times.
ANEW = "Write new times with: ffmpeg -i IN -vf setpts=N/FRAME_RATE/TB OUT"


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """The frames of a video.

    Attributes:
        video: the stream.
        rate: frames per second; None if that varies.
        times_s: the time of each frame, in seconds since the beginning of the file.
        last_s: for how many seconds the last one is shown.
        goes_back: whether the times go back further than a codec reorders frames.
    """

    video: MediaInfo.Video
    rate: Fraction | None
    times_s: Sequence[float]
    last_s: float
    goes_back: bool

    @classmethod
    def of(cls, media: MediaInfo) -> FrameTimes:
        """The frames of the best video stream of a file, by its packets.

        Raises:
            DecoderError: there is no video that can be decoded, its packets have no times, or the file is damaged.
        """
        video = media.best_video
        if video is None or video.frame_rate is None:
            raise DecoderError(f"{media.path} has no video, or none with a frame rate")
        check_decodable(media.path, video)
        check_no_grid(media)
        try:
            packets = read_packets(endpoints.source(media.path), media.container, video.index)
        except LibavError as error:
            raise DecoderError(f"{media.path} is damaged: {error.strerror}") from error
        is_shown = (packets.size > 0) & ~packets.is_hidden
        if not is_shown.any() or not packets.has_pts[is_shown].all():
            raise DecoderError(
                f"{media.path} doesn't store the times of its frames. Decode them in order, with a Decoder and "
                "Encoder.like"
            )
        stored = packets.pts[is_shown]
        order = np.argsort(stored, kind="stable")
        times_s = _times_s(media, video, stored[order])
        last_s = float(packets.duration[is_shown][order[-1]] * video.time_base)
        is_regular = _is_regular(times_s, video.frame_rate)
        if not is_regular and _may_show_nothing(stored, video):
            times_s = _times_s(media, video, np.array(_decoded_pts(media, video), np.int64))
            is_regular = _is_regular(times_s, video.frame_rate)
        usual_s = times_s[-1] - times_s[-2] if len(times_s) > 1 else float(1 / video.frame_rate)
        # Containers that tell no duration, or one that is a tick off, do not make a rate vary.
        is_long = last_s > LONG_FRAMES * usual_s
        rate = video.frame_rate if is_regular and not is_long else None
        is_told = is_long or (rate is None and last_s > 0 and containers.known(media.container).has_boxes)
        goes_back = bool((np.abs(order - np.arange(len(order))) > REORDERED).any())
        return cls(video, rate, times_s, last_s if is_told else usual_s, goes_back)

    def part(self, start: float | None, end: float | None) -> FrameTimes:
        """From the frame that is on screen at one time to the last one before another.

        Raises:
            ValueError: there is none.
        """
        times_s, rounded = self.times_s, float(rounded_s(self.video))
        first = 0 if start is None else max(0, bisect_right(times_s, start + rounded) - 1)
        last = len(times_s) if end is None else bisect_left(times_s, end - rounded)
        if first >= last or (start is not None and start >= times_s[-1] + self.last_s):
            raise ValueError(
                f"the part has no frames: the video has frames from {times_s[0]:g} s to {times_s[-1]:g} s"
            )
        last_s = self.last_s if last == len(times_s) else times_s[last] - times_s[last - 1]
        return replace(self, times_s=times_s[first:last], last_s=last_s)

    def check_distinct(self, path: str) -> None:
        """Checks that each time leads to one frame, wherever a decode begins.

        Raises:
            DecoderError: two frames have the same time, or the times go back.
        """
        if self.goes_back:
            raise DecoderError(
                f"the times of the frames of {path} go back, as in a file joined from several. {ANEW}"
            )
        for before_s, after_s in itertools.pairwise(self.times_s):
            if after_s == before_s:
                raise DecoderError(
                    f"{path} has two frames at {after_s:.6f} s, but each needs its own time. {ANEW}"
                )

    def ticks(self) -> tuple[int, ...] | None:
        """The times since the first one, and the end, in units of `TICK_S`; None at a constant rate."""
        if self.rate is not None:
            return None
        ticks = [round((time_s - self.times_s[0]) / float(TICK_S)) for time_s in self.times_s]
        return (*ticks, ticks[-1] + max(1, round(self.last_s / float(TICK_S))))


def _times_s(media: MediaInfo, video: MediaInfo.Video, pts: npt.NDArray[np.int64]) -> list[float]:
    return [*map(Clock(media, video).time_s, pts.tolist())]


def _is_regular(times_s: Sequence[float], rate: Fraction) -> bool:
    return all(abs(time_s - times_s[0] - index / rate) <= ROUNDED_S for index, time_s in enumerate(times_s))


def _may_show_nothing(pts: npt.NDArray[np.int64], video: MediaInfo.Video) -> bool:
    """Whether some packets may hold no frame of their own: a hidden one, as in VP8, or a field."""
    return len(np.unique(pts)) < len(pts) or video.field_order not in (None, "progressive")


def _decoded_pts(media: MediaInfo, video: MediaInfo.Video) -> list[int]:
    """The times of all frames, by decoding: the decoder of the frames says what is damaged.

    Raises:
        DecoderError: there are no frames.
    """
    track = Track(endpoints.source(media.path), media, video)
    if not (pts := account_by_decoding(input_of(track, DecodeOptions(conceal_errors=True), None)).pts):
        raise DecoderError(f"{media.path} doesn't store the times of its frames")
    return sorted(pts)
