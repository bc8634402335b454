"""Whether FFmpeg gave all frames of a file: by its words, and by what the file says of its own length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from penstock.errors import PenstockError
from penstock.ffmpeg import endpoints
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.probe import last_packets

# Containers whose header says how long the video is. In others FFmpeg measures what is there (MPEG-TS, Ogg, Y4M) or
# guesses from the bit rate, and neither shows a cut. AVI's header is often wrong, so that `wrong_count` warns.
_TELLING = ("mov", "matroska", "flv", "mxf")
# Guessed: less is missing where a video was trimmed between two frames, or where the last one is shown for long, which
# Matroska and FLV do not say of a frame.
_MISSING_SHARE = 1 / 3
# Guessed: there is a keyframe within this time, as a rule. ffprobe finds nothing from a time after the last one.
_SEEK_BACK_S = 20.0
# More than one frame, with times that Matroska and FLV round to 1 ms.
_FRAMES_APART = 1.5
# The last bytes of these files. GIF: the trailer (GIF89a, 27). APNG: the chunk IEND (PNG, 11.2.5).
_LAST_BYTES = {"gif": b";", "apng": b"IEND\xaeB`\x82"}
# Room for zeros behind the end, with which some programs fill up a block.
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Given:
    """What FFmpeg gave of a video.

    Attributes:
        frames: how many frames.
        last_s: the time of the last one, by the file's own clock.
        longest_s: the longest time between two of them.
    """

    frames: int
    last_s: float
    longest_s: float


def other_codecs(media: MediaInfo, index: int) -> set[str]:
    """The codecs of the streams of `media` but that of `index`, as `diagnostics.damage_reports` takes them."""
    streams: tuple[VideoInfo | AudioInfo, ...] = (*media.video, *media.audio)
    codecs = {stream.index: stream.codec for stream in streams}
    own = codecs.get(index)
    return {codec for codec in codecs.values() if codec not in (own, "unknown")}


def early_end(source: str, media: MediaInfo, video: VideoInfo, given: Given, ffprobe: str) -> str | None:
    """Why the file has more than FFmpeg gave of `video`; None if it has not, or does not say.

    Asks ffprobe for the last packets if the frames end before the container says. Only then, for that takes time.

    Args:
        source: the file as `endpoints.source` has it.
        ffprobe: the program.
    """
    if endpoints.is_path(source) and _is_cut(
        Path(endpoints.without_protocol(source)), media.container, video, given
    ):
        return "the file was cut off: its end is missing"
    if (
        media.container.partition(",")[0] not in _TELLING
        or media.duration_s is None
        or video.duration_s is None
        or video.is_attached_picture
    ):
        return None
    frame_s = max(given.longest_s, float(1 / video.frame_rate) if video.frame_rate else 0.0)
    if not frame_s or not _is_early(given.last_s, video.duration_s, video.start_s, frame_s):
        return None
    try:
        told = last_packets(source, video.index, given.last_s, ffprobe)
    except PenstockError:
        return None  # it was there a moment ago; nobody knows
    own_s = _own_duration_s(told, media.duration_s)
    if own_s is None:
        return _whole_ends_early(source, media, given, ffprobe)
    if not _is_early(given.last_s, own_s, video.start_s, frame_s):
        return None
    packets = [packet for packet in map(_packet, told.get("packets", [])) if packet is not None]
    later = [time_s for time_s, _, is_shown in packets if is_shown and time_s > given.last_s + frame_s / 2]
    if later:
        return f"FFmpeg gave no frame for the last {len(later)} packets of the video"
    ends_s = max((time_s + duration_s for time_s, duration_s, _ in packets), default=given.last_s)
    if not _is_early(ends_s + own_s * _MISSING_SHARE - frame_s, own_s, video.start_s, frame_s):
        return None
    return f"the video is {own_s:.3f} s long by its container, and its last frame is at {given.last_s:.3f} s"


def _whole_ends_early(source: str, media: MediaInfo, given: Given, ffprobe: str) -> str | None:
    """Of a container with one duration for all streams: whether they all end long before it."""
    whole_s = media.duration_s or 0.0
    try:
        told = last_packets(source, None, max(0.0, given.last_s - _SEEK_BACK_S), ffprobe)
    except PenstockError:
        return None
    packets = [packet for packet in map(_packet, told.get("packets", [])) if packet is not None]
    if not packets:
        return None  # nobody knows
    ends_s = max(time_s + duration_s for time_s, duration_s, _ in packets)
    if ends_s + whole_s * _MISSING_SHARE >= min(media.start_s or 0.0, 0.0) + whole_s:
        return None
    return f"the file is {whole_s:.3f} s long by its container, and its streams end at {ends_s:.3f} s"


def wrong_count(video: VideoInfo, container: str, given: Given) -> str | None:
    """How the number of frames that the container claims differs from that given; None if it does not.

    Of a video of which the container hides a part (edit lists), the number is that of all.
    """
    claimed = video.frames
    if claimed is None or claimed == given.frames or video.is_attached_picture:
        return None
    if container == "avi":
        # FFmpeg writes one more where there is sound.
        is_told = abs(claimed - given.frames) > 1
        return f"its header says {claimed} frames, and it has {given.frames}" if is_told else None
    if not container.startswith("mov,"):
        return None
    if video.frame_rate and video.duration_s is not None:
        all_of_it = claimed / video.frame_rate
        if abs(all_of_it - Fraction(video.duration_s)) > _FRAMES_APART / video.frame_rate:
            return None
    return f"its header says {claimed} frames, and it has {given.frames}"


def _is_cut(path: Path, container: str, video: VideoInfo, given: Given) -> bool:
    """Whether the file lacks the end that its format demands."""
    with suppress(OSError), path.open("rb") as file:
        if (end := _LAST_BYTES.get(container)) is not None:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return not file.read().rstrip(b"\0").endswith(end)
        # Behind the last frame there may be sound, which is no matter.
        if container.startswith("mov,") and (video.frames is None or given.frames < video.frames):
            return _is_box_cut(file, path.stat().st_size)
    return False


def _is_box_cut(file: BinaryIO, size_bytes: int) -> bool:
    """Whether one of the boxes that QuickTime and MP4 consist of is longer than the rest of the file."""
    at = 0
    while at + 8 <= size_bytes:
        file.seek(at)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:], "big")
        # What is behind the last box need not be one.
        if kind in (b"mdat", b"moof", b"moov") and at + length > size_bytes:
            return True
        if length < 8:
            return False  # 0: up to the end
        at += length
    return False


def _is_early(last_s: float, duration_s: float, start_s: float | None, frame_s: float) -> bool:
    """Whether a frame of `frame_s` seconds at `last_s` ends clearly before a video of `duration_s` does.

    Some containers count the duration from 0 and some from the first frame: it is enough to reach one of the two.
    """
    return min(start_s or 0.0, 0.0) + duration_s - last_s > _FRAMES_APART * frame_s


def _own_duration_s(told: Mapping[str, Any], whole_s: float) -> float | None:
    """The duration that the container has for this stream alone; None if it has one for several only."""
    (stream,) = told.get("streams") or [{}]
    if (duration := stream.get("duration")) is not None:
        return float(duration)
    # FFmpeg and mkvmerge write it to Matroska as a tag: 00:00:02.000000000
    if clock := re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.get("tags", {}).get("DURATION", "")):
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])
    return whole_s if told.get("format", {}).get("nb_streams") == 1 else None


def _packet(told: Mapping[str, Any]) -> tuple[float, float, bool] | None:
    """Its time and duration in seconds, and whether it has a frame to be shown; None without a time."""
    if "pts_time" not in told:
        return None
    is_shown = int(told.get("size", 0)) > 0 and "D" not in told.get("flags", "")
    return float(told["pts_time"]), float(told.get("duration_time", 0.0)), is_shown
