"""Where a decode begins: its first timestamp, and FFmpeg's arguments to get there."""

from __future__ import annotations

import math
from fractions import Fraction

from penstock.ffmpeg.plan import endpoints
from penstock.ffmpeg.plan.arguments import format_seconds
from penstock.media.info import MediaInfo

# In these containers FFmpeg finds a keyframe before the place by an index.
_WITH_INDEX = (endpoints.QUICKTIME, endpoints.MATROSKA, "nut")
# In these it seeks by guessing positions, and may begin too late. Others are read from the beginning: some cannot seek.
_WITHOUT_INDEX = ("mpegts", "mpeg", "avi", "flv", "mxf", "ogg", "asf")
#: Frames that come later than their packets at most: as many as H.264 and H.265 may hold back.
REORDERED = 16
# Guessed: keyframes are closer together than this as a rule; broadcasts have one every 0.5 to 2 s.
_SEEK_MARGIN_S = 10.0


def seek_arguments(
    start: float | None, source: str, media: MediaInfo, time_base: Fraction | None = None
) -> tuple[list[str], list[str]]:
    """FFmpeg's options and filters to begin exactly at `start`. The filters need ``-copyts``.

    An audio frame is decoded correctly only after the frame before it, which FFmpeg by default does not read: the
    first 21 ms of AAC would fade in.

    Args:
        start: seconds from the beginning, as `MediaInfo.zero_s` has it; None for all of the file.
        source: what FFmpeg reads, from `endpoints.source`.
        time_base: the unit of a video's timestamps; None for audio, whose filter is exact to the sample.
    """
    if start is None:
        return [], []
    start_s, is_audio = start + media.zero_s, time_base is None
    may_seek = is_audio or media.container in (*_WITH_INDEX, *_WITHOUT_INDEX)
    may_seek &= not endpoints.is_sequential(source)
    sooner_s = start_s - (
        _margin_s(media) if media.container in _WITH_INDEX and not is_audio else _SEEK_MARGIN_S
    )
    # By the file's timestamps: FFmpeg and libav may differ on which is the first.
    seek = ["-seek_timestamp", "1", "-noaccurate_seek", "-ss", format_seconds(sooner_s)]
    if time_base is None:
        trim = [f"trim=start={format_seconds(start_s)}"]
    else:  # in seconds, the filter would take the nearest timestamp
        trim = [f"settb={time_base}", f"trim=start_pts={first_pts(start, media, time_base)}"]
    return seek if may_seek and sooner_s > (media.start_s or 0.0) else [], trim


def _margin_s(media: MediaInfo) -> float:
    """How much sooner to begin in a container with an index.

    That of MP4 and QuickTime is in the order of decoding: FFmpeg may begin with a keyframe behind which frames come
    that are shown before it, and that it cannot decode.
    """
    if media.container != endpoints.QUICKTIME:
        return 0.0
    rates = [float(video.frame_rate) for video in media.video if video.frame_rate]
    return REORDERED / min(rates) if rates else _SEEK_MARGIN_S


def first_pts(start: float, media: MediaInfo, time_base: Fraction) -> int:
    """The earliest timestamp that is not before `start`, as for `seek_arguments`, by 1 µs at most.

    libav rounds the file's first timestamp to microseconds.
    """
    microseconds = round(media.zero_s * 1_000_000) + math.floor(start * 1_000_000) - 1
    return math.ceil(Fraction(microseconds, 1_000_000) / time_base)
