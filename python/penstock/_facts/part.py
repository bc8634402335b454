"""The part of a video between two times, by one rule: a time stands for the frame that is on screen then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import ceil, floor, lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from av.error import FFmpegError as LibavError

from penstock._facts.completeness import CHEAP_BYTES
from penstock._facts.index import (
    REORDERED,
    Unwrapped,
    are_times_of_decoding,
    names_frames,
    packet_of,
    packets_of,
)
from penstock._facts.info import zero_of
from penstock._facts.opening import decode, demux, has_no_times, only_frame, open_stream
from penstock._facts.seeking import ROUNDED_S, Clock, exact, first_pts, last_pts, rounded_s
from penstock._ffmpeg.command import endpoints
from penstock._formats import containers
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from av.video.stream import VideoStream

    from penstock._facts.info import MediaInfo, Track

# How far before a time a file with an index is sought, in seconds, until a keyframe comes before that; None reads from
# the beginning. Guessed: an index leads to the keyframe before, or to one that frames before it follow. No more is read
# of a large file without an index.
_MARGINS_S = (0, 1, 10, None)
# The last time that a container can hold.
_LAST_PTS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a video, in units of its time base.

    Attributes:
        start: the first frame is the one that is on screen at this time; None begins with the first of the video.
        least: a video that ends at this time or before has no such frame. `start` may be later, by what was rounded.
        stop: frames from this time on are left out; None for none.
        usual: for how long a frame is shown if the container doesn't tell.
    """

    start: int | None
    least: int
    stop: int | None
    usual: int

    @classmethod
    def of(cls, start: float | None, end: float | None, media: MediaInfo, video: MediaInfo.Video) -> Part:
        """The part from one time to another, in seconds since `MediaInfo.zero_s`."""
        rate = video.frame_rate
        return cls(
            start=None if start is None else last_pts(start, media, video),
            least=0 if start is None else floor((zero_of(media, video) + exact(start)) / video.time_base),
            stop=None if end is None else first_pts(end, media, video),
            usual=max(1, round(1 / (rate * video.time_base))) if rate else 1,
        )

    @property
    def at(self) -> int:
        """`start` of a part that has one."""
        assert self.start is not None
        return self.start

    def end_of(self, pts: int, duration: int) -> int:
        """When a frame is no longer shown, if another doesn't replace it. libav tells an unknown duration as 0 or 1."""
        return pts + (duration if duration > 1 else self.usual)

    def has(self, pts: int) -> bool:
        """Whether a frame of this time, behind the first one, is before the end of the part."""
        return self.stop is None or pts < self.stop

    def places(self, latest: npt.NDArray[np.int64], end: int) -> range:
        """The places of its frames among those of a video that ends at `end`, whose times are `latest_of`."""
        first = 0
        if self.start is not None:
            first = place_at(latest, self.start) if self.least < end else len(latest)
        last = len(latest) if self.stop is None else int(np.searchsorted(latest, self.stop))
        return range(first, max(first, last))


def latest_of(pts: Any) -> npt.NDArray[np.int64]:
    """For each frame, the latest time of the frames up to it: times go back where files were joined."""
    return np.maximum.accumulate(np.array(pts, np.int64))


def place_at(latest: npt.NDArray[np.int64], pts: int) -> int:
    """The place of the frame that is on screen at a time; of the first one before it."""
    return int(places_at(latest, np.array(min(pts, _LAST_PTS), np.int64)))


def places_at(latest: npt.NDArray[np.int64], pts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same for many times."""
    after = np.searchsorted(latest, pts, "right")
    # Where files were joined, later frames have times at or before that of an earlier one.
    same = np.searchsorted(latest, pts)
    return np.maximum(0, np.where(same < after, same, after - 1))


@dataclass(frozen=True, slots=True)
class RateGrid:
    """Times at a fixed rate, from a start to an end.

    Attributes:
        rate: how many a second.
        start: the first one.
        end: None is the end of the video.
    """

    rate: Fraction
    start: float
    end: float | None

    def time_s(self, number: int) -> float:
        """The time of that number, from 0."""
        return float(exact(self.start) + number / self.rate)

    def number_at(self, time_s: float | Fraction) -> int:
        """The number of the last one at or before a time; below 0 before the first one."""
        return floor((exact(time_s) + ROUNDED_S - exact(self.start)) * self.rate)

    def count(self, end: int, media: MediaInfo, video: MediaInfo.Video) -> int:
        """How many times there are in a video that ends then, in units of its time base."""
        if Part.of(self.start, None, media, video).least >= end:
            return 0
        ends_s = end * video.time_base - zero_of(media, video) - rounded_s(video)
        if self.end is not None:
            ends_s = min(ends_s, exact(self.end) - ROUNDED_S)
        return max(1, ceil((ends_s - exact(self.start)) * self.rate))

    def pts(self, count: int, media: MediaInfo, video: MediaInfo.Video) -> npt.NDArray[np.int64]:
        """`seeking.last_pts` for each of the first times."""
        first = (zero_of(media, video) + exact(self.start) + rounded_s(video)) / video.time_base
        step = 1 / (self.rate * video.time_base)
        # In whole numbers, which are faster than fractions.
        per_unit = lcm(first.denominator, step.denominator)
        begin, by = int(first * per_unit), int(step * per_unit)
        return np.array([(begin + number * by) // per_unit for number in range(count)], np.int64)


@dataclass(frozen=True, slots=True)
class Begins:
    """Where a part of a video begins, in seconds.

    Attributes:
        shown_s: the time of the frame that is on screen then.
        keyframe_s: that of the keyframe before it; None if that is not a full picture: with x264's intra-refresh,
            pictures are complete only some frames later, and FFmpeg drops the others.
    """

    shown_s: float
    keyframe_s: float | None


def begins(start: float, track: Track) -> Begins | None:
    """Where a part from `start` on begins, by the packets of a regular file.

    None where packets don't tell: also if the part has no frame, or begins with the first frame of the video.
    """
    source, media, video = track.source, track.media, track.video
    identity, has_index = endpoints.identity(source), containers.known(media.container).has_index
    if identity is None or video.is_attached_picture:
        return None
    is_large = identity.size_bytes > CHEAP_BYTES
    margins = _MARGINS_S if has_index else _MARGINS_S[:-1] if is_large else _MARGINS_S[-1:]
    part = Part.of(start, None, media, video)
    # From the nearest place on, and from further back if no keyframe comes before the frame.
    for margin_s in margins:
        with (
            suppress(DecoderError, LibavError, OverflowError),
            open_stream(source, media.container, video.index) as (file, stream),
        ):
            if margin_s is not None:
                file.seek(part.at - round(margin_s / video.time_base), stream=stream)
            shown = _shown_at(part, Unwrapped(stream).all(demux(file, stream)))
            if shown is not None:
                (pts, keyframe), time_s = shown, Clock(media, video).time_s
                is_whole = only_frame(stream.codec_context, keyframe) is not None
                return Begins(time_s(pts), time_s(keyframe.pts) if is_whole else None)
    return None


def even_rate(track: Track) -> Fraction | None:
    """`FileChecks.even_rate`, by the packets of a regular file."""
    source, media, video = track.source, track.media, track.video
    if endpoints.identity(source) is None or video.is_attached_picture or video.frame_rate is None:
        return None
    steps: set[Fraction] = set()
    with (
        suppress(DecoderError, LibavError),
        open_stream(source, media.container, video.index) as (file, stream),
    ):
        if not stream.codec_context.has_b_frames:
            return None
        if has_no_times(media.container):
            # A frame of which a field is repeated, as in films for television, lasts longer. 0 and 1 are unknown.
            steps = {
                Fraction(packet.duration) for packet in demux(file, stream) if (packet.duration or 0) > 1
            }
        else:
            read = demux(file, stream)
            first = [*islice(read, REORDERED + 1)]
            packets = packets_of(first)
            is_named = names_frames(packets, stream) and are_times_of_decoding(packets, stream)
            if is_named and _are_reordered(first, stream):
                steps = {
                    *map(Fraction, np.diff([*packets.pts.tolist(), *(one.pts for one in read)]).tolist())
                }
    # A packet of a field may last for half a frame.
    step = max([1 / (video.frame_rate * video.time_base), *steps])
    return 1 / (step * video.time_base) if len(steps) == 1 and step.denominator == 1 else None


def _are_reordered(packets: Sequence[Any], stream: VideoStream) -> bool:
    """Whether a decoder gives the frames of packets in another order."""
    given: list[int] = []
    with suppress(LibavError):
        for number, packet in enumerate(packets):
            packet.pts = number
            given += map(packet_of, decode(stream.codec_context, packet))
    return given != sorted(given)


def _shown_at(part: Part, packets: Iterable[Any]) -> tuple[int, Any] | None:
    """The time of the frame that is on screen at the start of a part, and the keyframe before it; None if one lacks."""
    shown, keyframe, later, is_sure = list[tuple[int, int]](), None, 0, True
    for packet in packets:
        if not packet.size or packet.is_discard:
            continue
        if packet.pts is None:
            is_sure = False
            continue
        later += packet.pts > part.at
        if later > REORDERED:
            break
        if packet.pts <= part.at:
            keyframe = packet if packet.is_keyframe else keyframe
            shown.append((packet.pts, packet.duration or 0))
    if keyframe is None or not (later or part.least < part.end_of(*max(shown))):
        return None
    # Between that frame and the start of the part may be one whose time isn't known.
    return (max(shown)[0], keyframe) if is_sure or part.at < part.end_of(*max(shown)) else None
