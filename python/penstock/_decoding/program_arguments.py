"""FFmpeg's arguments to read a video, and to learn the size that filters make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from penstock._facts.opening import has_no_times
from penstock._facts.seeking import seek_arguments
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import option_arguments, read_arguments
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._ffmpeg.program.messages import framecrc_unit_s, listing_arguments
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._formats import codecs

if TYPE_CHECKING:
    from penstock._decoding.options import DecodeOptions
    from penstock._facts.info import MediaInfo, Track

_AUTOROTATION = frozenset(("autorotate", "noautorotate"))


def reading_arguments(
    track: Track,
    options: DecodeOptions,
    decoder: str | None,
    uncropped: Sequence[str],
    keyframe_s: float | None,
    rate: Fraction | None,
) -> tuple[list[str], list[str]]:
    """FFmpeg's arguments that read the stream, and the filters that drop what is before ``start``."""
    source, media, video = track.source, track.media, track.video
    seek, trim = seek_arguments(options.start, source, media, video, end=options.end, keyframe_s=keyframe_s)
    threads, right_threads = options.settings.threads, codecs.known(video.codec).right_threads
    is_raw, start = has_no_times(media.container), round(Fraction(video.start_s or 0.0) / video.time_base)
    is_late = is_raw and (video.is_variable_frame_rate or not options.filters)
    if (usual := rate or video.frame_rate) and (rate or is_late):
        step, first = 1 / (usual * video.time_base), 0 if is_raw else start
        # Before 7, FFmpeg begins later with a raw stream whose frames are reordered. It makes its filters again where
        # the size changes, and counts on from the time that it has then.
        begin = f"if(lt(PTS,{first}+2*{step}),{first},PTS)"
        count = f"setpts='if(N,PREV_OUTPTS+{step if rate else 'PTS-PREV_INPTS'},{begin})'"
        trim = [f"settb={video.time_base}", count, *trim]
    elif video.late_units:
        # FFmpeg may give the first frame an earlier time than it has in the file, but none of the others.
        trim = [f"settb={video.time_base}", f"setpts='max(PTS,{start + video.late_units})'", *trim]
    return [
        # Times and pictures as they are in the file: FFmpeg 5.1 does not see each display matrix.
        *("-copyts", "-noautorotate", *uncropped, "-flags", "unaligned"),
        *seek,
        *(() if decoder is None else (f"-c:{video.index}", decoder)),
        *(() if threads is None else ("-threads", str(threads))),
        *endpoints.confining_arguments(source, () if options.follow_playlists else (media.container,)),
        *option_arguments(
            {name: value for name, value in options.given_input.items() if name not in _AUTOROTATION}
        ),
        # FFmpeg takes the last of two.
        *(() if right_threads is None else ("-threads", str(right_threads))),
        *read_arguments(source, media.container),
        *("-map", _map(media, video)),
        *("-an", "-sn", "-dn"),
    ], trim


def _map(media: MediaInfo, video: MediaInfo.Video) -> str:
    """How FFmpeg's ``-map`` names a stream."""
    if media.is_animated_avif and video == media.best_video:
        # FFmpeg before 7 does not count the still picture, which has no language, while each track has one.
        return "0:m:language"
    return f"0:{video.index}"


def uncropped_arguments(program: str) -> tuple[str, ...]:
    """FFmpeg's arguments that turn off cropping by the container.

    libav and older FFmpegs do not crop, so that the sizes from `probe` are the uncropped ones.
    """
    return ("-apply_cropping", "codec") if capabilities.crops_by_container(program) else ()


def first_picture(
    arguments: Sequence[str], sandbox: Sandbox | None
) -> tuple[tuple[int, int], Fraction | None] | None:
    """Width and height of the first frame that FFmpeg writes with these arguments, and the rate that it tells.

    None if it writes none.
    """
    output = ("-frames:v", "1", *listing_arguments())
    try:
        printed = bytes(run((*arguments, *output), None, check=False, sandbox=sandbox).stdout)
    except ProgramError:
        return None
    size = re.search(rb"^#dimensions 0: (\d+)x(\d+)$", printed, re.MULTILINE)
    if size is None:
        return None
    # FFmpeg counts times of raw frames in their duration.
    unit_s = next(filter(None, map(framecrc_unit_s, printed.splitlines())), None)
    return (int(size[1]), int(size[2])), unit_s and 1 / unit_s


def sample_picture(video: MediaInfo.Video) -> list[str]:
    """FFmpeg's arguments for a picture like those of a video that can be read only once."""
    size, rate = f"{video.stored_width}x{video.stored_height}", video.frame_rate or 25
    like = f"format={video.pixel_format},setsar={video.sample_aspect_ratio or 1}"
    return ["-f", "lavfi", "-t", "10", "-i", f"testsrc2=s={size}:r={rate},{like}"]
