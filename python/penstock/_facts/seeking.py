"""Where a decode begins: its first timestamp, FFmpeg's arguments to get there, and whether they lead there."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Rational

from penstock._facts.completeness import times_go_back
from penstock._facts.index import REORDERED
from penstock._facts.info import MediaInfo, zero_of
from penstock._facts.opening import times_may_jump
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import format_seconds
from penstock._formats import codecs, containers
from penstock._formats.pixel_formats import has_palette

# Guessed: keyframes are usually closer together than this; broadcasts have one every 0.5 to 2 s.
_SEEK_MARGIN_S = 10.0
#: Chosen: more than the rounding of a float of seconds. Users write 0.333333, too.
ROUNDED_S = Fraction(1, 1_000_000)
# The unit of Matroska's times. Chosen as a bound: nobody sees such a difference, and in AVI a unit lasts a frame.
_MOST_ROUNDED_S = Fraction(1, 1000)
# Chosen: more than the last packet of any codec.
_LAST_PACKET_S = 0.1
# Seconds, of which no pause has so many. FFmpeg would take a pause of 10 s or more out of the times.
_ANY_PAUSE = "1000000000"
# Chosen: a century, after which nothing begins. FFmpeg counts microseconds in 64 bits.
_MOST_S = 2.0**32


def seek_arguments(
    start: float | None,
    source: str,
    media: MediaInfo,
    video: MediaInfo.Video,
    *,
    end: float | None = None,
    keyframe_s: float | None = None,
) -> tuple[list[str], list[str]]:
    """FFmpeg's options and filters for a video from `start` to before `end`. The filters need ``-copyts``.

    Args:
        start: seconds from the beginning, as `MediaInfo.zero_s` has it; None for all of the file.
        source: what FFmpeg reads, from `endpoints.source`.
        video: the stream that is decoded.
        keyframe_s: the time of the keyframe before `start`, as that; None if FFmpeg has to read from the beginning.
    """
    sooner_s = None if start is None or keyframe_s is None else _seek_s(start, source, media, keyframe_s)
    # In seconds, the filter would take the nearest timestamp.
    ends = {"start_pts": start, "end_pts": end}
    trim = [
        f"trim={name}={first_pts(time_s, media, video)}"
        for name, time_s in ends.items()
        if time_s is not None
    ]
    return _place(sooner_s), [*([f"settb={video.time_base}"] if trim else []), *trim]


def audio_arguments(
    start: float | None, source: str, media: MediaInfo, audio: MediaInfo.Audio
) -> tuple[list[str], float]:
    """FFmpeg's options to begin a sound at `start` or sooner, and the time of the file that becomes 0.

    From the beginning of a file whose times may jump, FFmpeg has them go on where they go back, as they do between the
    parts of joined transport streams, and in some versions of a chained Ogg file.
    """
    sooner_s = None if start is None else _seek_s(start, source, media)
    counts_from_file = containers.known(media.container).counts_from_file
    is_late = counts_from_file and (audio.start_s or 0.0) > (media.start_s or 0.0)
    if (
        audio.start_s is None
        or is_late
        or not times_may_jump(media.container)
        or (sooner_s is not None and not _times_restart(source, media, audio))
    ):
        return ["-copyts", *_place(sooner_s)], 0.0
    return ["-dts_delta_threshold", _ANY_PAUSE], audio.start_s


def _place(seek_s: float | None) -> list[str]:
    """FFmpeg's options to seek, so that an audio frame is decoded with the one before it, without which it fades in."""
    if seek_s is None:
        return []
    # By the file's timestamps: FFmpeg and libav may differ on which is the first.
    return ["-seek_timestamp", "1", "-noaccurate_seek", "-ss", format_seconds(min(seek_s, _MOST_S))]


def _times_restart(source: str, media: MediaInfo, audio: MediaInfo.Audio) -> bool:
    """Whether the times of a sound begin again, so that a seek may lead anywhere. Reads all of the file."""
    # libav may let the times of chained Ogg go on. The file's duration is that of its last part all the same.
    whole_s = (media.duration_s or 0.0) + _LAST_PACKET_S
    return times_go_back(source, media.container, audio.index, whole_s / float(audio.time_base))


def may_seek(codec: str, pixel_format: str | None) -> bool:
    """Whether a decoder that begins with a keyframe behind the first one makes the same pictures."""
    known = codecs.known(codec)
    return known.may_seek and (known.has_own_palettes or not has_palette(pixel_format))


def _seek_s(start: float, source: str, media: MediaInfo, keyframe_s: float | None = None) -> float | None:
    """The place that FFmpeg seeks, by the file's own clock; None if it reads from the beginning.

    A sound has no keyframe.
    """
    is_audio = keyframe_s is None
    may_seek = is_audio or containers.known(media.container).may_seek
    may_seek &= not endpoints.is_sequential(source)
    has_index = containers.known(media.container).has_index and not is_audio
    sooner_s = start - (_margin_s(media) if has_index else _SEEK_MARGIN_S)
    if keyframe_s is not None and not has_index:
        sooner_s = min(sooner_s, keyframe_s)
    sooner_s += media.zero_s
    return sooner_s if may_seek and sooner_s > (media.start_s or 0.0) else None


def _margin_s(media: MediaInfo) -> float:
    """How many seconds before `start` to seek in a container with an index.

    The index of MP4 and QuickTime is in decoding order. FFmpeg may therefore begin at a keyframe that is followed by
    frames which are shown before it, and which it cannot decode.
    """
    if not containers.known(media.container).has_boxes:
        return 0.0
    rates = [float(video.frame_rate) for video in media.video if video.frame_rate]
    return REORDERED / min(rates) if rates else _SEEK_MARGIN_S


def first_pts(start: float, media: MediaInfo, video: MediaInfo.Video) -> int:
    """The first timestamp at or after `start`, which is as for `seek_arguments`; or before, by what was rounded."""
    return math.ceil((zero_of(media, video) + exact(start) - rounded_s(video)) / video.time_base)


def last_pts(time_s: float | Fraction, media: MediaInfo, video: MediaInfo.Video) -> int:
    """The last timestamp at or before a time, which is as `start` in `first_pts`; or after, by what was rounded."""
    return math.floor((zero_of(media, video) + exact(time_s) + rounded_s(video)) / video.time_base)


def rounded_s(video: MediaInfo.Video) -> Fraction:
    """How far the time of a frame in the file may be from the time that was meant.

    Times are rounded to the file's unit if that does not divide a frame's duration: to 1 ms in Matroska, for instance.
    The time of the first frame, from which we count, is rounded, too.
    """
    unit_s, rate = video.time_base, video.frame_rate
    is_exact = not rate or (1 / (rate * unit_s)).denominator == 1
    return ROUNDED_S if is_exact else max(ROUNDED_S, min(unit_s, _MOST_ROUNDED_S) - ROUNDED_S)


class Clock:
    """Tells `VideoFrame.time_s` of a frame by its time in the file: rounded once, so that it leads back to the frame.

    In whole numbers, because fractions take a fifth of the time that Python spends on a frame.
    """

    def __init__(self, media: MediaInfo, video: MediaInfo.Video) -> None:
        zero, time_base = zero_of(media, video), video.time_base
        self._per_s = math.lcm(zero.denominator, time_base.denominator)
        self._zero, self._unit = int(zero * self._per_s), int(time_base * self._per_s)

    def time_s(self, pts: int) -> float:
        """The time of a frame, in seconds since `MediaInfo.zero_s`."""
        return (pts * self._unit - self._zero) / self._per_s


def exact(seconds: float | Fraction) -> Fraction:
    """A number that a caller gave, which may be a float of NumPy's, an int or a Fraction."""
    return Fraction(seconds if isinstance(seconds, Rational) else float(seconds))
