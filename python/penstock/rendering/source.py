"""The video that `map_video` reads: the times of its frames, and where each chunk begins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from penstock.errors import DecoderError
from penstock.ffmpeg import endpoints
from penstock.ffmpeg.find import Prober
from penstock.ffmpeg.media import MediaInfo, VideoInfo
from penstock.ffmpeg.probe import last_packets

# Chosen: a seek in MPEG-TS ends behind a keyframe whose decoding time is earlier.
_BEFORE_S = 10.0
# Matroska rounds times to 1 ms, and ffprobe prints microseconds.
_ROUNDED_S = 0.0011


@dataclass(frozen=True, slots=True)
class Source:
    """A video file, and where each chunk of it begins.

    Attributes:
        path: its absolute path.
        nbytes: its size.
        modified_ns: when it was last modified, in nanoseconds since 1970.
        pixel_format: that of the frames that the function gets.
        first_s: the time of its first frame, in seconds since the beginning of the file.
        starts_s: for each chunk a time between the frame before it and its first, in seconds since the beginning of the
            file.
    """

    path: str
    nbytes: int
    modified_ns: int
    pixel_format: str
    first_s: float
    starts_s: tuple[float | None, ...]

    @classmethod
    def of(cls, path: str, pixel_format: str, times_s: Sequence[float], lengths: Sequence[int]) -> Source:
        """The source at `path` with frames at `times_s`, in chunks of `lengths` frames."""
        firsts = itertools.accumulate(lengths[:-1])
        starts_s = (None, *((times_s[first - 1] + times_s[first]) / 2 for first in firsts))
        file = Path(path).absolute()
        status = file.stat()
        return cls(str(file), status.st_size, status.st_mtime_ns, pixel_format, times_s[0], starts_s)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Source:
        """The source that ``dataclasses.asdict`` gave."""
        return cls(**{**given, "starts_s": tuple(given["starts_s"])})


def frame_times(media: MediaInfo, prober: Prober) -> tuple[VideoInfo, Fraction, list[float]]:
    """The video stream of a file, its frame rate, and the times of its frames, in seconds since the file's beginning.

    Raises:
        DecoderError: there is no video, or its packets have no times.
        ValueError: it has a variable frame rate.
    """
    video = media.best_video
    if video is None or video.frame_rate is None:
        raise DecoderError(f"{media.path} has no video, or none with a frame rate")
    start_s = media.start_s or 0.0
    from_s = start_s - _BEFORE_S
    packets = last_packets(endpoints.source(media.path), video.index, from_s, prober).get("packets", [])
    shown = [packet for packet in packets if "D" not in packet.get("flags", "")]
    if not shown or any("pts_time" not in packet for packet in shown):
        raise DecoderError(f"{media.path} does not tell the times of its frames")
    times_s = sorted(float(packet["pts_time"]) - start_s for packet in shown)
    for index, time_s in enumerate(times_s):
        regular_s = times_s[0] + float(index / video.frame_rate)
        if abs(time_s - regular_s) > _ROUNDED_S:
            raise ValueError(
                f"{media.path} has a variable frame rate (frame {index} is at {time_s:.3f} s, not {regular_s:.3f} s), "
                "which chunks cannot keep yet: make it constant first, with ffmpeg -i IN -fps_mode cfr OUT"
            )
    return video, video.frame_rate, times_s
