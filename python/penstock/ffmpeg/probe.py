"""What is in a file of video or audio, as ffprobe tells it."""

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
from penstock.ffmpeg.child import Child, ProgramError
from penstock.ffmpeg.find import find_ffprobe
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.runner import TimedOutError, run

#: Guessed: a local file is told of in 0.1 s; a slow server, or a disk that has to spin up, takes seconds.
PATIENCE_S = 30.0

# FFmpeg's names of the code points in ITU-T H.273, table 4. 5 and 6 are BT.601 with 625 and 525 lines.
_MATRICES = {"bt709": "bt709", "smpte170m": "bt601", "bt470bg": "bt601", "bt2020nc": "bt2020"}
_RANGES = {"tv": "limited", "pc": "full"}
_UNTAGGED = (None, "unknown", "unspecified", "reserved")

# The demuxer that takes every text whose name ends in .txt for a terminal's recording, and draws it.
_TEXT_CONTAINER = "tty"
# Guessed: containers round times to 1 ms, so the rates of constant video differ by less.
_RATE_TOLERANCE = 0.01
# What ffprobe says of a container that it was not to read.
_NOT_ALLOWED = "Format not on whitelist"


def probe(
    path_or_url: str | os.PathLike[str],
    *,
    ffprobe: str | os.PathLike[str] | None = None,
    ffmpeg: str | os.PathLike[str] | None = None,
    count_frames: bool = False,
    timeout_s: float | None = PATIENCE_S,
    follow_playlists: bool = False,
) -> MediaInfo:
    """Tells what is in a file of video or audio: container, streams, sizes, rates, colours.

    It runs ffprobe, which comes with FFmpeg; the ``imageio_ffmpeg`` wheel has none (Debian: apt-get install ffmpeg).

    Args:
        path_or_url: a `str` that begins with a scheme and ``//`` is a URL, all else a path, whatever its characters.
        ffprobe: the program to run; None finds one (see `penstock.ffmpeg.find_ffprobe`).
        ffmpeg: the FFmpeg beside which ffprobe is looked for.
        count_frames: decode all streams to count their frames, which takes as long as decoding takes.
        timeout_s: how long ffprobe may take, in seconds; None for ever, as counting may need.
        follow_playlists: a local file may be a playlist, whatever its name is (HLS, DASH, ffconcat), and ffprobe opens
            the local files that it leads to. Else such a file is an error.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: of a path, as of ``open``.
        ValueError, TypeError: ``timeout_s`` is negative, NaN or no number.
        DecoderError: there is no ffprobe, or it cannot read what is there, with its words in the message; or the file
            is a playlist that is not to be followed.
        StalledError: ffprobe did not end in time: nobody writes to a FIFO, a server does not answer.
    """
    timeout_s = _native._seconds("timeout_s", timeout_s)
    source = endpoints.source(path_or_url)
    path = os.fspath(path_or_url)
    arguments = ("-v", "error", "-of", "json", "-show_format", "-show_streams")
    counting = ("-count_frames",) if count_frames else ()
    program = find_ffprobe(ffprobe, ffmpeg)
    reading = _reading(program, source, follow_playlists=follow_playlists)
    told = _told(path, (program, *arguments, *counting, *reading), timeout_s)
    # Where ffprobe did not list its containers.
    if (
        endpoints.is_path(source)
        and not follow_playlists
        and endpoints.leads_elsewhere(told["format"]["format_name"])
    ):
        raise DecoderError(_leading(path))
    return _media(path, program, told, is_counted=count_frames)


def _media(path: str, program: str, told: Mapping[str, Any], *, is_counted: bool) -> MediaInfo:
    """The record of what ffprobe told.

    Raises:
        DecoderError: it is not what ffprobe tells.
    """
    try:
        return _media_of(path, told, is_counted=is_counted)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DecoderError(f"{program} told of {path} what no ffprobe tells: {error!r}") from error


def _media_of(path: str, told: Mapping[str, Any], *, is_counted: bool) -> MediaInfo:
    container = told["format"]
    duration_s = _seconds(container.get("duration"))
    streams = told.get("streams", [])
    return MediaInfo(
        path=path,
        container=container["format_name"],
        container_name=container.get("format_long_name", container["format_name"]),
        duration_s=duration_s,
        start_s=_seconds(container.get("start_time")),
        bit_rate=_count(container.get("bit_rate")),
        size_bytes=_count(container.get("size")) or None,  # 0 is a FIFO's
        video=tuple(
            _video(stream, duration_s, is_counted=is_counted) for stream in _of_kind("video", streams)
        ),
        audio=tuple(_audio(stream, duration_s) for stream in _of_kind("audio", streams)),
        tags=container.get("tags", {}),
    )


def _reading(program: str, source: str, *, follow_playlists: bool) -> list[str]:
    """The arguments with which ffprobe reads `source`, and nothing that it leads to."""
    # Of other names ffprobe takes none for a pattern that a file does not match.
    literal = endpoints.literal_arguments(source) if "%" in source else ()
    allowed = () if follow_playlists or not endpoints.is_path(source) else capabilities.demuxers(program)
    allowed = tuple(name for name in allowed if name not in endpoints.LEADING_CONTAINERS)
    return [*endpoints.confining_arguments(source, allowed), *literal, "-i", source]


def _leading(path: str) -> str:
    return (
        f"{path} is a playlist, which leads to other files: with follow_playlists=True (--follow-playlists) FFmpeg "
        "opens those, as far as they are local"
    )


def last_packets(source: str, index: int | None, from_s: float, ffprobe: str) -> dict[str, Any]:
    """What ffprobe tells of the packets of a stream from about a time on, of the stream, and of the file.

    Args:
        source: the file, as `endpoints.source` has it.
        index: the stream's number among all of the file; None for all streams.
        from_s: the time in seconds, by the file's own clock.

    Raises:
        DecoderError: ffprobe cannot read it.
        StalledError: ffprobe did not end in time.
    """
    entries = "packet=pts_time,duration_time,size,flags:stream=duration:stream_tags=DURATION"
    selected = () if index is None else ("-select_streams", str(index))
    arguments = (
        *("-v", "error", "-of", "json", *selected, "-read_intervals", f"{from_s:f}%"),
        *("-show_entries", f"{entries}:format=format_name,nb_streams"),
    )
    reading = _reading(ffprobe, source, follow_playlists=False)
    return _told(endpoints.without_protocol(source), (ffprobe, *arguments, *reading), PATIENCE_S)


def first_size(arguments: Sequence[str]) -> tuple[int, int] | None:
    """Width and height of the first frame that FFmpeg writes with `arguments`; None if it writes none in time.

    Args:
        arguments: the command without its output.
    """
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
    time_base = Fraction(stream["time_base"])
    if base == 1 / time_base and average is None:
        base = None  # nothing to guess from: FFmpeg then says how fast the clock ticks, 90000 as a rule
    field_order = _tag(stream.get("field_order"))
    matrix = _tag(stream.get("color_space"))
    color_range = _tag(stream.get("color_range"))
    return VideoInfo(
        index=stream["index"],
        codec=stream.get("codec_name", "unknown"),
        profile=_tag(stream.get("profile")),
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
        duration_s=_or_of_file(stream.get("duration"), duration_s),
        start_s=_seconds(stream.get("start_time")),
        time_base=time_base,
        color_matrix=_MATRICES.get(matrix, matrix) if matrix else None,
        color_range=_RANGES.get(color_range, color_range) if color_range else None,
        color_primaries=_tag(stream.get("color_primaries")),
        color_transfer=_tag(stream.get("color_transfer")),
        bit_depth=_count(stream.get("bits_per_raw_sample")) or _depth(stream.get("pix_fmt", "")),
        field_order=field_order,
        bit_rate=_count(stream.get("bit_rate")),
        has_separate_alpha=_has_separate_alpha(stream),
        is_default=stream.get("disposition", {}).get("default") == 1,
        is_attached_picture=stream.get("disposition", {}).get("attached_pic") == 1,
    )


def _audio(stream: Mapping[str, Any], duration_s: float | None) -> AudioInfo:
    return AudioInfo(
        index=stream["index"],
        codec=stream.get("codec_name", "unknown"),
        profile=_tag(stream.get("profile")),
        sample_rate=_count(stream.get("sample_rate")) or 0,
        channels=stream.get("channels", 0),
        channel_layout=_tag(stream.get("channel_layout")),
        sample_format=_tag(stream.get("sample_fmt")),
        duration_s=_or_of_file(stream.get("duration"), duration_s),
        start_s=_seconds(stream.get("start_time")),
        time_base=Fraction(stream["time_base"]),
        bit_rate=_count(stream.get("bit_rate")),
        is_default=stream.get("disposition", {}).get("default") == 1,
    )


def _rotation(side_data: Iterable[Mapping[str, Any]]) -> int:
    """Degrees clockwise, from 0 to 359. ffprobe counts them the other way round (av_display_rotation_get)."""
    return next((-round(float(one["rotation"])) % 360 for one in side_data if "rotation" in one), 0)


def _has_separate_alpha(stream: Mapping[str, Any]) -> bool:
    tags = {name.lower(): value for name, value in stream.get("tags", {}).items()}
    return stream.get("codec_name") in ("vp8", "vp9") and tags.get("alpha_mode") == "1"


def _differ(average: Fraction | None, base: Fraction | None, *, is_interlaced: bool) -> bool:
    if average is None or base is None:
        return False
    ratio = base / average
    # The base rate of interlaced video may be that of its fields.
    return all(abs(ratio - same) > _RATE_TOLERANCE for same in ((1, 2) if is_interlaced else (1,)))


def _depth(pixel_format: str) -> int | None:
    """Bits of a sample, by FFmpeg's name of the format."""
    if not pixel_format or pixel_format.startswith(("rgb4", "bgr4", "rgb5", "bgr5", "rgb8", "bgr8")):
        return None  # 4, 555, 565, 8: several depths
    if pixel_format.startswith("mono"):
        return 1
    # The bits of a whole pixel.
    if packed := re.match(r"(?:rgb|bgr)(?:a)?(48|64|96|128)", pixel_format):
        return int(packed[1]) // (4 if "a" in pixel_format else 3)
    planar = re.search(r"(?:p|gray|ya|gbrpf|grayf|xyz|[py]0|x2rgb|x2bgr)(\d\d)(?:le|be)", pixel_format)
    return int(planar[1]) if planar else 8


def _tag(value: str | None) -> str | None:
    return None if value in _UNTAGGED else value


def _count(value: str | int | None) -> int | None:
    return int(value) if value is not None and str(value).isdecimal() else None


def _seconds(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:  # N/A
        return None


def _or_of_file(value: str | None, of_file_s: float | None) -> float | None:
    own = _seconds(value)
    return of_file_s if own is None else own


def _fraction(value: str | None) -> Fraction | None:
    """A rate or a ratio, both above 0; ffprobe writes 0/0 or 0:1 for those that are not known."""
    try:
        return Fraction((value or "").replace(":", "/")) or None
    except (ValueError, ZeroDivisionError):
        return None


def _told(path: str, arguments: Sequence[str], timeout_s: float | None) -> dict[str, Any]:
    """What ffprobe says of a path or URL.

    Raises:
        DecoderError: it cannot read it.
        StalledError: it does not end in time.
    """
    try:
        child = run(arguments, timeout_s, check=False)
    except TimedOutError as error:
        words = f"ffprobe did not end within {timeout_s:g} s; does anybody send what {path} is to bring?"
        raise StalledError(words, seconds=timeout_s or 0.0) from error
    except ProgramError as error:
        raise DecoderError(f"could not start ffprobe: {error}", command=arguments) from error
    returncode, stderr = child.returncode, child.stderr
    told = _answer(child.stdout)
    is_answer = "format_name" in told.get("format", {})
    if returncode == 0 and is_answer and told["format"]["format_name"] != _TEXT_CONTAINER:
        return dict(told)
    if returncode == 0 and is_answer:
        reason = f"{path} is text, and not a media file"
    else:
        reason = _reason(path, child, diagnostics.summarize(stderr, arguments[-1]))
    raise DecoderError(reason, returncode=returncode, command=arguments, stderr=stderr)


def _answer(said: bytes | bytearray) -> dict[str, Any]:
    """What ffprobe printed; empty if that is no answer of its kind."""
    try:
        told = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) and isinstance(told.get("format"), dict) else {}


def _reason(path: str, child: Child, words: str) -> str:
    program, returncode = child.command[0], child.returncode
    if returncode is None or returncode < 0:
        return f"{program} {child.ending}, and did not tell what {path} is"
    if returncode == 0 or not words:
        return f"{program} ended with {returncode}, and did not tell what {path} is: is it ffprobe?"
    if _NOT_ALLOWED in words:
        return _leading(path)
    if endpoints.file_bytes(path) == 0:
        return f"{path} is empty, and not a media file"
    if "Invalid data found" in words or "End of file" in words:
        return f"{path} is not a media file that FFmpeg knows, or it is damaged: {words}"
    return f"FFmpeg cannot open {path}: {words}"
