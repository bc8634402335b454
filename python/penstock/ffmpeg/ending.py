"""Tells whether FFmpeg delivered all frames of a file: from its output, and from the length in the file's header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.ffmpeg import boxes, endpoints
from penstock.ffmpeg.find import Prober
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.probe import last_packets

# Containers whose header says how long the video is. For others FFmpeg measures what is there (MPEG-TS, Ogg, Y4M) or
# guesses from the bit rate; neither shows a cut. AVI's header is often wrong, so that `wrong_count` warns.
_TELLING = ("mov", "matroska", "flv", "mxf")
# Guessed: less is missing if a video was trimmed between two frames, or if the last frame is shown for long: Matroska
# and FLV have no duration of a frame.
_MISSING_SHARE = 1 / 3
# Guessed: a keyframe is within this time as a rule. ffprobe finds nothing after the last one.
_SEEK_BACK_S = 20.0
# More than one frame, with times that Matroska and FLV round to 1 ms.
_FRAMES_APART = 1.5
# FFmpeg describes a file with times of two decimals.
_ROUNDED_S = 0.005
# The last bytes of these files. GIF: the trailer (GIF89a, 27). APNG: the chunk IEND (PNG, 11.2.5).
_LAST_BYTES = {"gif": b";", "apng": b"IEND\xaeB`\x82"}
# Room for zeros behind the end, with which some programs fill up a block.
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Delivered:
    """What FFmpeg delivered of a video.

    Attributes:
        frames: number of frames.
        last_s: time of the last one, by the file's own clock.
        longest_s: longest time between two of them.
    """

    frames: int
    last_s: float
    longest_s: float


def other_codecs(media: MediaInfo, index: int) -> set[str]:
    """The codecs of the streams of `media` except that of `index`, for `diagnostics.damage_reports`."""
    streams: tuple[VideoInfo | AudioInfo, ...] = (*media.video, *media.audio)
    codecs = {stream.index: stream.codec for stream in streams}
    own = codecs.get(index)
    return {codec for codec in codecs.values() if codec not in (own, "unknown")}


def early_end(
    source: str, media: MediaInfo, video: VideoInfo, delivered: Delivered, prober: Prober
) -> str | None:
    """Why the file has more of `video` than FFmpeg delivered; None if it has no more, or if that is unknown.

    Asks `prober` for the last packets, which takes time, only if the frames end before the container says.
    """
    if endpoints.is_path(source) and _is_cut(
        Path(endpoints.without_protocol(source)), media.container, video, delivered
    ):
        return "the file was cut off: its end is missing"
    if (
        media.container.partition(",")[0] not in _TELLING
        or media.duration_s is None
        or video.duration_s is None
        or video.is_attached_picture
    ):
        return None
    frame_s = max(delivered.longest_s, float(1 / video.frame_rate) if video.frame_rate else 0.0)
    if not frame_s or not _is_early(delivered.last_s, video.duration_s, video.start_s, frame_s):
        return None
    try:
        answer = last_packets(source, video.index, delivered.last_s, prober)
    except PenstockError:
        return None  # it was there a moment ago; nobody knows
    own_s = _own_duration_s(answer, media.duration_s)
    if own_s is None:
        return _whole_ends_early(source, media, delivered, prober)
    if not _is_early(delivered.last_s, own_s, video.start_s, frame_s):
        return None
    packets = _packets(answer)
    later = [
        time_s for time_s, _, is_shown in packets if is_shown and time_s > delivered.last_s + frame_s / 2
    ]
    if later:
        return f"FFmpeg gave no frame for the last {len(later)} packets of the video"
    ends_s = max((time_s + duration_s for time_s, duration_s, _ in packets), default=delivered.last_s)
    if not _is_early(ends_s + own_s * _MISSING_SHARE - frame_s, own_s, video.start_s, frame_s):
        return None
    return (
        f"the video is {own_s:.3f} s long by its container, and its last frame is at {delivered.last_s:.3f} s"
    )


def _whole_ends_early(source: str, media: MediaInfo, delivered: Delivered, prober: Prober) -> str | None:
    """For a container with one duration for all streams: why the file is cut, if all streams end long before it."""
    whole_s = media.duration_s or 0.0
    try:
        answer = last_packets(source, None, max(0.0, delivered.last_s - _SEEK_BACK_S), prober)
    except PenstockError:
        return None
    if not (packets := _packets(answer)):
        return None  # nobody knows
    ends_s = max(time_s + duration_s for time_s, duration_s, _ in packets)
    if ends_s + whole_s * _MISSING_SHARE >= min(media.start_s or 0.0, 0.0) + whole_s:
        return None
    return f"the file is {whole_s:.3f} s long by its container, and its streams end at {ends_s:.3f} s"


def known_frames(video: VideoInfo, container: str) -> int | None:
    """The number of frames that the container claims; None if it claims none, or its claims are often wrong."""
    if video.is_attached_picture or not container.startswith("mov,") or _hides_a_part(video):
        return None
    return video.frames


def _hides_a_part(video: VideoInfo) -> bool:
    """Whether the container claims more frames than it shows (edit lists)."""
    if video.frames is None or not video.frame_rate or video.duration_s is None:
        return False
    claimed_s = video.frames / video.frame_rate
    return abs(claimed_s - Fraction(video.duration_s)) > _FRAMES_APART / video.frame_rate


def wrong_count(video: VideoInfo, container: str, delivered: Delivered) -> str | None:
    """How the header's number of frames differs from the delivered one; None if it does not.

    If the container hides a part of the video (edit lists), its number includes that part.
    """
    claimed = video.frames
    if claimed is None or claimed == delivered.frames or video.is_attached_picture:
        return None
    if container == "avi":
        is_wrong = abs(claimed - delivered.frames) > 1  # FFmpeg writes one more where there is sound
    else:
        is_wrong = container.startswith("mov,") and not _hides_a_part(video)
    return f"its header says {claimed} frames, and it has {delivered.frames}" if is_wrong else None


def _is_cut(path: Path, container: str, video: VideoInfo, delivered: Delivered) -> bool:
    """Whether the file lacks the end that its format requires."""
    with suppress(OSError), path.open("rb") as file:
        if (end := _LAST_BYTES.get(container)) is not None:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return not file.read().rstrip(b"\0").endswith(end)
        # Behind the last frame there may be audio, which does not matter.
        if container.startswith("mov,") and (video.frames is None or delivered.frames < video.frames):
            return boxes.is_cut(file)
    return False


def is_whole(source: str, media: MediaInfo, video: VideoInfo, delivered: Delivered) -> bool:
    """Whether it is clear, without ffprobe, that `delivered` is all of `video`.

    It is if the frames last as long as the whole file, and if a QuickTime or MP4 file is not cut off and its header has
    as many of them. `media` is what FFmpeg told, with times rounded to 0.01 s.
    """
    frame_s = max(delivered.longest_s, float(1 / video.frame_rate) if video.frame_rate else 0.0)
    if media.duration_s is None or _is_early(delivered.last_s, media.duration_s + _ROUNDED_S, None, frame_s):
        return False
    if not media.container.startswith("mov,"):
        return media.container.startswith("matroska,")
    with suppress(OSError), Path(endpoints.without_protocol(source)).open("rb") as file:
        return video.frames == delivered.frames and not boxes.is_cut(file)
    return False


def _is_early(last_s: float, duration_s: float, start_s: float | None, frame_s: float) -> bool:
    """Whether a frame of `frame_s` seconds at `last_s` ends clearly before the end of a video of `duration_s`.

    Some containers count the duration from 0, and some from the first frame: reaching one of the two ends is enough.
    """
    return min(start_s or 0.0, 0.0) + duration_s - last_s > _FRAMES_APART * frame_s


def _own_duration_s(answer: Mapping[str, Any], whole_s: float) -> float | None:
    """The container's duration for this stream alone; None if it has only one for several streams."""
    (stream,) = answer.get("streams") or [{}]
    if (duration := stream.get("duration")) is not None:
        return float(duration)
    # FFmpeg and mkvmerge write it to Matroska as a tag: 00:00:02.000000000
    if clock := re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.get("tags", {}).get("DURATION", "")):
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])
    return whole_s if answer.get("format", {}).get("nb_streams") == 1 else None


def _packets(answer: Mapping[str, Any]) -> list[tuple[float, float, bool]]:
    """Of each packet with a time: its time and duration in seconds, and whether its frame is shown."""
    return [
        (
            float(packet["pts_time"]),
            float(packet.get("duration_time", 0.0)),
            int(packet.get("size", 0)) > 0 and "D" not in packet.get("flags", ""),
        )
        for packet in answer.get("packets", [])
        if "pts_time" in packet
    ]
