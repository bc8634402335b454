"""Reads the facts about a media file with ffprobe, or with FFmpeg where there is no ffprobe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from penstock import _native
from penstock.errors import DecoderError, StalledError
from penstock.ffmpeg import capabilities, diagnostics, endpoints, probe_by_ffmpeg
from penstock.ffmpeg.child import ProgramError
from penstock.ffmpeg.colors import MATRIX_NAMES, RANGE_NAMES
from penstock.ffmpeg.find import Prober, find_prober
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
# FFmpeg's message about a container outside of -format_whitelist.
_NOT_ALLOWED = "Format not on whitelist"
# Its message about an option of containers of pictures, for others.
_NO_PATTERNS = "Option pattern_type not found"
# Its messages about what is no media file.
_NO_MEDIA = ("Invalid data found", "End of file", "could not find codec parameters")


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
    Where there is none, it reads what FFmpeg itself reports. Then durations are rounded to 0.01 s, and frame rates to
    0.01 except for 30000/1001 and the like. Bit rates, numbers of frames that were not counted, tags of 255 bytes or
    more, and the start of a stream that is not the only one are unknown.

    Args:
        path_or_url: a `str` that begins with a scheme and ``//`` is a URL; anything else is a path, whatever its
            characters.
        ffprobe: the program to run; None finds one (see `penstock.ffmpeg.find_ffprobe`).
        ffmpeg: the FFmpeg whose ffprobe to run, or which is run if there is no ffprobe.
        count_frames: decode all streams to count their frames, which takes as long as decoding them.
        timeout: how long the program may take, in seconds; None waits for ever, as counting may need.
        follow_playlists: accept playlists (HLS, DASH, ffconcat), whatever the file's name is, and let ffprobe open the
            local files that they name. Without it, a playlist is an error.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: as ``open`` raises for a path.
        ValueError, TypeError: ``timeout`` is negative, NaN or not a number.
        DecoderError: there is no FFmpeg; or it cannot read the input, and its output is in the message; or the file
            is a playlist, without `follow_playlists`.
        StalledError: the program did not end in time: nobody writes to a FIFO, or a server does not answer.
    """
    timeout = _native._seconds("timeout", timeout)
    source = endpoints.source(path_or_url)
    path = os.fspath(path_or_url)
    prober = find_prober(ffprobe, ffmpeg)
    inspect = _by_ffprobe if prober.is_ffprobe else _by_ffmpeg
    likely = None if follow_playlists else endpoints.likely_container(source)
    try:
        inputs = _input_arguments(prober.program, source, likely, follow_playlists=follow_playlists)
        answer = inspect(path, prober.program, inputs, timeout, count_frames=count_frames)
    except DecoderError as error:
        if likely is None or _NOT_ALLOWED not in error.stderr:
            raise
        inputs = _input_arguments(prober.program, source, follow_playlists=follow_playlists)
        answer = inspect(path, prober.program, inputs, timeout, count_frames=count_frames)
    # Without a list of the program's containers there was no whitelist.
    if (
        endpoints.is_path(source)
        and not follow_playlists
        and endpoints.is_playlist(answer["format"]["format_name"])
    ):
        raise DecoderError(_playlist_refusal(path))
    return media_info(path, prober.program, answer, is_counted=count_frames)


def _by_ffprobe(
    path: str, program: str, inputs: Sequence[str], timeout: float | None, *, count_frames: bool
) -> dict[str, Any]:
    counting = ("-count_frames",) if count_frames else ()
    arguments = (program, "-v", "error", "-of", "json", "-show_format", "-show_streams", *counting, *inputs)
    return _answer(path, arguments, timeout, _ffprobes_answer)


def _by_ffmpeg(
    path: str, program: str, inputs: Sequence[str], timeout: float | None, *, count_frames: bool
) -> dict[str, Any]:
    try:
        arguments = (program, *probe_by_ffmpeg.describe_arguments(inputs))
        answer = _answer(path, arguments, timeout, probe_by_ffmpeg.parse_report)
    except DecoderError as error:
        # Unlike ffprobe, FFmpeg refuses an option that its container lacks. Only containers of pictures have patterns.
        if _NO_PATTERNS not in error.stderr:
            raise
        plain = [word for word in inputs if word not in endpoints.LITERAL]
        return _by_ffmpeg(path, program, plain, timeout, count_frames=count_frames)
    answer["format"]["size"] = str(endpoints.file_bytes(path) or "")
    if count_frames:
        child = _run(path, (program, *probe_by_ffmpeg.count_arguments(inputs)), timeout)
        answer["streams"] = probe_by_ffmpeg.counted(child, answer["streams"])
    return answer


def media_info(path: str, program: str, answer: Mapping[str, Any], *, is_counted: bool) -> MediaInfo:
    """The facts in ffprobe's JSON, or what `probe_by_ffmpeg` made; a `DecoderError` if they are no such facts."""
    with _readable(path, program):
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


@contextmanager
def _readable(path: str, program: str) -> Iterator[None]:
    """Raises a `DecoderError` if the block cannot read what `program` printed."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DecoderError(f"{program} printed what it should not print of {path}: {error!r}") from error


def _input_arguments(
    program: str, source: str, likely: str | None = None, *, follow_playlists: bool
) -> list[str]:
    """The arguments that make `program` read `source`, and open nothing else.

    With a `likely` container, the program refuses any other, and does not have to list its containers first.
    """
    # FFmpeg takes no other name for a pattern.
    literal = endpoints.literal_arguments(source) if "%" in source else ()
    if likely is not None:
        return [*endpoints.confining_arguments(source, (likely,)), *literal, "-i", source]
    allowed = () if follow_playlists or not endpoints.is_path(source) else capabilities.demuxers(program)
    containers = [name for name in allowed if name not in endpoints.PLAYLIST_CONTAINERS]
    return [*endpoints.confining_arguments(source, containers), *literal, "-i", source]


def _playlist_refusal(path: str) -> str:
    return (
        f"{path} is a playlist, which leads to other files: with follow_playlists=True (--follow-playlists) FFmpeg "
        "opens those of them that are local"
    )


def last_packets(source: str, index: int | None, from_s: float, prober: Prober) -> dict[str, Any]:
    """ffprobe's JSON about a stream, its file, and its packets from about `from_s` on, by the file's own clock.

    `index` is the stream's number among all streams; None for all of them.
    """
    path, program = endpoints.without_protocol(source), prober.program
    inputs = _input_arguments(program, source, follow_playlists=False)
    if not prober.is_ffprobe:
        listing = (program, *probe_by_ffmpeg.packet_arguments(inputs, index, from_s))
        return _answer(path, listing, PATIENCE_S, probe_by_ffmpeg.parse_packets)
    entries = "packet=pts_time,duration_time,size,flags:stream=duration:stream_tags=DURATION"
    selected = () if index is None else ("-select_streams", str(index))
    arguments = (
        *("-v", "error", "-of", "json", *selected, "-read_intervals", f"{from_s:f}%"),
        *("-show_entries", f"{entries}:format=format_name,nb_streams"),
    )
    return _answer(path, (program, *arguments, *inputs), PATIENCE_S, _ffprobes_answer)


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


def _answer(
    path: str,
    arguments: Sequence[str],
    timeout: float | None,
    parse: Callable[[CapturedChild], dict[str, Any]],
) -> dict[str, Any]:
    """What `parse` makes of the output of ffprobe or FFmpeg about a path or URL."""
    child = _run(path, arguments, timeout)
    with _readable(path, arguments[0]):
        answer = parse(child)
    container = answer.get("format", {}).get("format_name")
    if container not in (None, _TEXT_CONTAINER):
        return answer
    if container == _TEXT_CONTAINER:
        reason = f"{path} is text, and not a media file"
    else:
        reason = _reason(
            path, child, diagnostics.summarize(child.stderr, arguments[arguments.index("-i") + 1])
        )
    raise DecoderError(reason, returncode=child.returncode, command=arguments, stderr=child.stderr)


def _run(path: str, arguments: Sequence[str], timeout: float | None) -> CapturedChild:
    name = Path(arguments[0]).name
    try:
        return run(arguments, timeout, check=False)
    except TimedOutError as error:
        message = f"{name} did not end within {timeout:g} s; does anything write to {path}?"
        raise StalledError(message, seconds=timeout or 0.0) from error
    except ProgramError as error:
        raise DecoderError(f"could not start {name}: {error}", command=arguments) from error


def _ffprobes_answer(child: CapturedChild) -> dict[str, Any]:
    return parse_answer(child.stdout) if child.returncode == 0 else {}


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
        return f"{program} ended with {returncode}, and did not tell what {path} is: is it ffprobe or FFmpeg?"
    if _NOT_ALLOWED in child.stderr:
        return _playlist_refusal(path)
    if endpoints.file_bytes(path) == 0:
        return f"{path} is empty, and not a media file"
    if any(known in words for known in _NO_MEDIA):
        return f"{path} is not a media file that FFmpeg knows, or it is damaged: {words}"
    return f"FFmpeg cannot open {path}: {words}"
