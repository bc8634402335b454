"""Reads the facts about a media file with ffprobe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from penstock import _native
from penstock.errors import DecoderError, StalledError
from penstock.ffmpeg import capabilities, diagnostics, endpoints
from penstock.ffmpeg.child import ProgramError
from penstock.ffmpeg.colors import MATRIX_NAMES, RANGE_NAMES
from penstock.ffmpeg.find import find_ffprobe
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.output_formats import samples
from penstock.ffmpeg.runner import CapturedChild, TimedOutError, run

#: Guessed: ffprobe reads a local file in 0.1 s; a slow server, or a disk that has to spin up, takes seconds.
PATIENCE_S = 30.0

_UNTAGGED = (None, "unknown", "unspecified", "reserved")

# The demuxer that takes every text file named *.txt for a recording of a terminal, and draws it.
_TEXT_CONTAINER = "tty"
# Guessed: containers round times to 1 ms, so the two rates of constant-rate video differ by less.
_RATE_TOLERANCE = 0.01
# ffprobe's message about a container outside of -format_whitelist.
_NOT_ALLOWED = "Format not on whitelist"


def probe(
    path_or_url: str | os.PathLike[str],
    *,
    ffprobe: str | os.PathLike[str] | None = None,
    ffmpeg: str | os.PathLike[str] | None = None,
    count_frames: bool = False,
    timeout: float | None = PATIENCE_S,
    follow_playlists: bool = False,
) -> MediaInfo:
    """Reads the facts about a media file: container, streams, sizes, rates, colours.

    It runs ffprobe, which comes with FFmpeg (Debian: apt-get install ffmpeg) but not with the ``imageio_ffmpeg`` wheel.

    Args:
        path_or_url: a `str` that begins with a scheme and ``//`` is a URL; anything else is a path, whatever its
            characters.
        ffprobe: the program to run; None finds one (see `penstock.ffmpeg.find_ffprobe`).
        ffmpeg: the FFmpeg whose ffprobe to run.
        count_frames: decode all streams to count their frames, which takes as long as decoding them.
        timeout: how long ffprobe may take, in seconds; None waits for ever, as counting may need.
        follow_playlists: accept playlists (HLS, DASH, ffconcat), whatever the file's name is, and let ffprobe open the
            local files that they name. Without it, a playlist is an error.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: as ``open`` raises for a path.
        ValueError, TypeError: ``timeout`` is negative, NaN or not a number.
        DecoderError: there is no ffprobe; or it cannot read the input, and its output is in the message; or the file
            is a playlist, without `follow_playlists`.
        StalledError: ffprobe did not end in time: nobody writes to a FIFO, or a server does not answer.
    """
    timeout = _native._seconds("timeout", timeout)
    source = endpoints.source(path_or_url)
    path = os.fspath(path_or_url)
    arguments = ("-v", "error", "-of", "json", "-show_format", "-show_streams")
    counting = ("-count_frames",) if count_frames else ()
    program = find_ffprobe(ffprobe, ffmpeg)
    inputs = _input_arguments(program, source, follow_playlists=follow_playlists)
    answer = _ffprobe(path, (program, *arguments, *counting, *inputs), timeout)
    # Without a list of ffprobe's containers there was no whitelist.
    if (
        endpoints.is_path(source)
        and not follow_playlists
        and endpoints.is_playlist(answer["format"]["format_name"])
    ):
        raise DecoderError(_playlist_refusal(path))
    return media_info(path, program, answer, is_counted=count_frames)


def media_info(path: str, program: str, answer: Mapping[str, Any], *, is_counted: bool) -> MediaInfo:
    """The facts in the JSON that `program` printed; a `DecoderError` if ffprobe does not print that."""
    try:
        container, streams = answer["format"], answer.get("streams", [])
        duration_s = _seconds(container.get("duration"))
        return MediaInfo(
            path=path,
            container=container["format_name"],
            container_name=container.get("format_long_name", container["format_name"]),
            duration_s=duration_s,
            start_s=_seconds(container.get("start_time")),
            bit_rate=_count(container.get("bit_rate")),
            size_bytes=_count(container.get("size")) or None,  # 0 stands for a FIFO
            video=tuple(_video(one, duration_s, is_counted=is_counted) for one in _of_kind("video", streams)),
            audio=tuple(_audio(one, duration_s) for one in _of_kind("audio", streams)),
            tags=container.get("tags", {}),
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DecoderError(f"{program} printed what ffprobe does not print of {path}: {error!r}") from error


def _input_arguments(program: str, source: str, *, follow_playlists: bool) -> list[str]:
    """The arguments that make ffprobe read `source`, and open nothing else."""
    # ffprobe takes no other name for a pattern.
    literal = endpoints.literal_arguments(source) if "%" in source else ()
    allowed = () if follow_playlists or not endpoints.is_path(source) else capabilities.demuxers(program)
    containers = [name for name in allowed if name not in endpoints.PLAYLIST_CONTAINERS]
    return [*endpoints.confining_arguments(source, containers), *literal, "-i", source]


def _playlist_refusal(path: str) -> str:
    return (
        f"{path} is a playlist, which leads to other files: with follow_playlists=True (--follow-playlists) FFmpeg "
        "opens those of them that are local"
    )


def last_packets(source: str, index: int | None, from_s: float, ffprobe: str) -> dict[str, Any]:
    """ffprobe's JSON about a stream, its file, and its packets from about `from_s` on, by the file's own clock.

    `index` is the stream's number among all streams; None for all of them.
    """
    entries = "packet=pts_time,duration_time,size,flags:stream=duration:stream_tags=DURATION"
    selected = () if index is None else ("-select_streams", str(index))
    arguments = (
        *("-v", "error", "-of", "json", *selected, "-read_intervals", f"{from_s:f}%"),
        *("-show_entries", f"{entries}:format=format_name,nb_streams"),
    )
    inputs = _input_arguments(ffprobe, source, follow_playlists=False)
    return _ffprobe(endpoints.without_protocol(source), (ffprobe, *arguments, *inputs), PATIENCE_S)


def first_size(arguments: Sequence[str]) -> tuple[int, int] | None:
    """Width and height of the first frame that FFmpeg writes with these arguments; None if it writes none in time."""
    output = ("-frames:v", "1", "-c:v", "rawvideo", "-f", "framecrc", "pipe:1")
    try:
        printed = run((*arguments, *output), PATIENCE_S, check=False).text
    except ProgramError:
        return None
    size = re.search(r"^#dimensions 0: (\d+)x(\d+)$", printed, re.MULTILINE)
    return (int(size[1]), int(size[2])) if size else None


def _of_kind(kind: str, streams: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return (stream for stream in streams if stream.get("codec_type") == kind)


def _video(stream: Mapping[str, Any], duration_s: float | None, *, is_counted: bool) -> VideoInfo:
    width, height = stream.get("width", 0), stream.get("height", 0)
    rotation = _rotation(stream.get("side_data_list", []))
    is_sideways = rotation in (90, 270)
    sample_aspect_ratio = _fraction(stream.get("sample_aspect_ratio"))
    if sample_aspect_ratio is not None and is_sideways:
        sample_aspect_ratio = 1 / sample_aspect_ratio
    average, base = _fraction(stream.get("avg_frame_rate")), _fraction(stream.get("r_frame_rate"))
    if average is None and base == 1 / Fraction(stream["time_base"]):
        base = None  # FFmpeg had nothing to guess from, and prints the frequency of the clock, mostly 90000
    field_order = _tag(stream.get("field_order"))
    matrix = _tag(stream.get("color_space"))
    color_range = _tag(stream.get("color_range"))
    return VideoInfo(
        **_common(stream, duration_s),
        pixel_format=_tag(stream.get("pix_fmt")),
        width=height if is_sideways else width,
        height=width if is_sideways else height,
        stored_width=width,
        stored_height=height,
        rotation=rotation,
        sample_aspect_ratio=sample_aspect_ratio,
        frame_rate=average or base,
        is_variable_frame_rate=_differ(average, base, is_interlaced=field_order in ("tt", "bb", "tb", "bt")),
        frames=_count(stream.get("nb_read_frames", "0" if is_counted else stream.get("nb_frames"))),
        color_matrix=MATRIX_NAMES.get(matrix, matrix) if matrix else None,
        color_range=RANGE_NAMES.get(color_range, color_range) if color_range else None,
        color_primaries=_tag(stream.get("color_primaries")),
        color_transfer=_tag(stream.get("color_transfer")),
        bit_depth=_count(stream.get("bits_per_raw_sample")) or _depth(stream.get("pix_fmt", "")),
        field_order=field_order,
        has_separate_alpha=_has_separate_alpha(stream),
        is_attached_picture=stream.get("disposition", {}).get("attached_pic") == 1,
    )


def _audio(stream: Mapping[str, Any], duration_s: float | None) -> AudioInfo:
    return AudioInfo(
        **_common(stream, duration_s),
        sample_rate=_count(stream.get("sample_rate")) or 0,
        channels=stream.get("channels", 0),
        channel_layout=_tag(stream.get("channel_layout")),
        sample_format=_tag(stream.get("sample_fmt")),
    )


def _common(stream: Mapping[str, Any], duration_s: float | None) -> dict[str, Any]:
    """The fields that `VideoInfo` and `AudioInfo` share. `duration_s` is that of the file."""
    return {
        "index": stream["index"],
        "codec": stream.get("codec_name", "unknown"),
        "profile": _tag(stream.get("profile")),
        "duration_s": _seconds(stream.get("duration"), duration_s),
        "start_s": _seconds(stream.get("start_time")),
        "time_base": Fraction(stream["time_base"]),
        "bit_rate": _count(stream.get("bit_rate")),
        "is_default": stream.get("disposition", {}).get("default") == 1,
    }


def _rotation(side_data: Iterable[Mapping[str, Any]]) -> int:
    """Degrees clockwise, from 0 to 359. ffprobe counts them counterclockwise (av_display_rotation_get)."""
    return next((-round(float(one["rotation"])) % 360 for one in side_data if "rotation" in one), 0)


def _has_separate_alpha(stream: Mapping[str, Any]) -> bool:
    tags = {name.lower(): value for name, value in stream.get("tags", {}).items()}
    return stream.get("codec_name") in ("vp8", "vp9") and tags.get("alpha_mode") == "1"


def _differ(average: Fraction | None, base: Fraction | None, *, is_interlaced: bool) -> bool:
    if average is None or base is None:
        return False
    ratio = base / average
    # For interlaced video the base rate may count fields.
    return all(abs(ratio - same) > _RATE_TOLERANCE for same in ((1, 2) if is_interlaced else (1,)))


def _depth(pixel_format: str) -> int | None:
    """Bits of a sample; None if the samples differ in depth (rgb565), or if the format is not known."""
    found = None if re.match("(?:rgb|bgr)[458]", pixel_format) else samples(pixel_format)
    return found.depth if found else None


def _tag(value: str | None) -> str | None:
    return None if value in _UNTAGGED else value


def _count(value: str | int | None) -> int | None:
    return int(value) if value is not None and str(value).isdecimal() else None


def _seconds(value: str | None, default: float | None = None) -> float | None:
    try:
        return default if value is None else float(value)
    except ValueError:  # N/A
        return default


def _fraction(value: str | None) -> Fraction | None:
    """A rate or ratio above 0; ffprobe prints 0/0 or 0:1 for an unknown one."""
    try:
        return Fraction((value or "").replace(":", "/")) or None
    except (ValueError, ZeroDivisionError):
        return None


def _ffprobe(path: str, arguments: Sequence[str], timeout: float | None) -> dict[str, Any]:
    """ffprobe's JSON about a path or URL."""
    try:
        child = run(arguments, timeout, check=False)
    except TimedOutError as error:
        message = f"ffprobe did not end within {timeout:g} s; does anything write to {path}?"
        raise StalledError(message, seconds=timeout or 0.0) from error
    except ProgramError as error:
        raise DecoderError(f"could not start ffprobe: {error}", command=arguments) from error
    answer = parse_answer(child.stdout)
    container = answer.get("format", {}).get("format_name")
    if child.returncode == 0 and container not in (None, _TEXT_CONTAINER):
        return answer
    if child.returncode == 0 and container == _TEXT_CONTAINER:
        reason = f"{path} is text, and not a media file"
    else:
        reason = _reason(path, child, diagnostics.summarize(child.stderr, arguments[-1]))
    raise DecoderError(reason, returncode=child.returncode, command=arguments, stderr=child.stderr)


def parse_answer(output: bytes | bytearray) -> dict[str, Any]:
    """The JSON object that ffprobe printed; empty if `output` is none, or has no object ``format``."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) and isinstance(answer.get("format"), dict) else {}


def _reason(path: str, child: CapturedChild, words: str) -> str:
    program, returncode = child.command[0], child.returncode
    if returncode is None or returncode < 0:
        return f"{program} {child.ending}, and did not tell what {path} is"
    if returncode == 0 or not words:
        return f"{program} ended with {returncode}, and did not tell what {path} is: is it ffprobe?"
    if _NOT_ALLOWED in words:
        return _playlist_refusal(path)
    if endpoints.file_bytes(path) == 0:
        return f"{path} is empty, and not a media file"
    if "Invalid data found" in words or "End of file" in words:
        return f"{path} is not a media file that FFmpeg knows, or it is damaged: {words}"
    return f"FFmpeg cannot open {path}: {words}"
