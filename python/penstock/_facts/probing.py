"""The facts about a media file, by libav in this process (PyAV)."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError
from av.stream import Disposition

from penstock._common.deadline import Deadline
from penstock._facts.index import REORDERED
from penstock._facts.info import RANGES, AudioInfo, Chapter, MediaInfo, SubtitleInfo, VideoInfo, matrix_name
from penstock._facts.isolation import Isolation
from penstock._facts.opening import demux, only_frame, open_media, run_with_timeout
from penstock._facts.source import MediaSource, Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.settings import PRIMARIES, TRANSFERS, ContentLight, MasteringDisplay
from penstock.errors import StalledError

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.container.core import Chapter as AnyChapter
    from av.subtitles.stream import SubtitleStream
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from penstock._facts.index import Packet

#: Guessed: a local file is read in 0.02 s; a slow server, or a disk that has to spin up, takes seconds.
PATIENCE_S = 30.0

# Guessed: the times of so many frames tell whether the rate varies, and fewer packets than those hold a frame.
_FIRST_PACKETS = 60
# Guessed: containers round times to 1 ms, so the two rates of constant-rate video differ by less.
_RATE_TOLERANCE = 0.01
# PyAV 18 frees the channel map of an AIFF file's layout twice: with the layout, and with the codec. To avoid that, the
# layout is leaked, some 100 bytes. PyAV 19 copies the map.
_LAYOUT_FREES_TWICE = av.__version__.startswith("18.")
# AVFieldOrder in libavcodec.
_FIELD_ORDERS = {1: "progressive", 2: "tt", 3: "bb", 4: "tb", 5: "bt"}
# `VideoInfo.extras`, by their kinds of side data.
_EXTRAS = {
    "STEREO3D": "stereo 3D mode",
    "SPHERICAL": "spherical mapping",
    "A53_CC": "closed captions",
    "DYNAMIC_HDR_PLUS": "HDR10+ metadata",
    "DOVI_METADATA": "Dolby Vision metadata",
}


def probe(
    source: MediaSource,
    *,
    timeout: float | None = PATIENCE_S,
    follow_playlists: bool = False,
    isolated: bool | Literal["strict"] = False,
) -> MediaInfo:
    """Reads the facts about a media file: container, streams, sizes, frame rates, colors.

    ```python
    video = probe("in.mp4").best_video
    print(video.width, video.height, video.frame_rate, video.codec)
    ```

    libav (PyAV) reads the file in this process, and decodes one frame of each video. A regular file is read on the
    calling thread, any other source on a thread of its own.

    Args:
        source: the source, as for `Decoder`.
        timeout: seconds that a URL or a FIFO may take; None waits forever. Regular files have no time limit.
        follow_playlists: whether to accept playlists (HLS, DASH, ffconcat), whatever the file's name, and let libav
            open the local files that they name. Otherwise a playlist raises a `DecoderError`.
        isolated: whether to read the file in another process, in a sandbox, as for `Decoder`. `timeout` then also
            limits regular files.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: if ``open`` would raise it for the path.
        OSError: if no descriptor, memory or thread is left.
        ValueError, TypeError: if ``timeout`` is negative, NaN or not a number, or `isolated` is set for something other
            than a regular file.
        DecoderError: if libav can't read the input (the message has FFmpeg's reason); if the file is a playlist,
            without `follow_playlists`; or if it needs more than its sandbox allows.
        StalledError: if the source isn't read in time: nobody writes to a FIFO, or a server doesn't answer. A thread
            that waits for a server stays.
    """
    deadline = Deadline(timeout)
    opened = Source.of(source)
    if isolated:
        isolation = Isolation.of(opened, threads=1, isolated=isolated, follow_playlists=follow_playlists)
        return isolation.media(timeout)
    read = partial(_read, opened, follow_playlists=follow_playlists)
    try:
        return (
            run_with_timeout(opened.path, read, deadline)
            if endpoints.identity(opened.url) is None
            else read()
        )
    except TimeoutError as error:
        seconds = deadline.timeout or 0.0
        message = f"{opened.path} was not read within {seconds:g} s. Check that a program writes to it"
        raise StalledError(message, seconds) from error
    finally:
        if opened is not source:
            opened.stop_feeding()


def _read(source: Source, *, follow_playlists: bool) -> MediaInfo:
    with open_media(
        source.url,
        single_pass=source.single_pass,
        path=source.path,
        follow_playlists=follow_playlists,
    ) as media:
        return info_of(source, media, read_beginnings(media)[0])


def info_of(source: Source, media: InputContainer, first: Mapping[int, Beginning]) -> MediaInfo:
    """The facts about an open file. `first` has the beginnings of its videos, by their numbers, if they were read."""
    audio = [stream for stream in media.streams.audio if stream.codec_context is not None]
    whole_s = _seconds(media.duration, Fraction(1, av.time_base))
    return MediaInfo(
        path=source.path,
        container=media.format.name,
        container_name=media.format.long_name or media.format.name,
        duration_s=whole_s,
        start_s=_seconds(media.start_time, Fraction(1, av.time_base)),
        bit_rate=media.bit_rate or None,
        size_bytes=endpoints.file_bytes(source.url)
        if endpoints.is_path(source.url)
        else max(media.size or 0, 0) or None,
        video=tuple(
            _video(stream, whole_s, first.get(stream.index) or _beginning(stream))
            for stream in _videos(media)
        ),
        audio=tuple(_audio(stream, whole_s) for stream in audio),
        subtitles=tuple(
            _subtitles(stream) for stream in media.streams.subtitles if stream.codec_context is not None
        ),
        chapters=tuple(map(_chapter, media.chapters())),
        tags={_readable(name): _readable(value) for name, value in media.metadata.items()},
        timecode=_timecode(media),
    )


def _timecode(media: InputContainer) -> str | None:
    """QuickTime has it as a tag of its streams, and other containers as one of the file."""
    for tags in (*(stream.metadata for stream in media.streams), media.metadata):
        for name, value in tags.items():
            if name.lower() == "timecode" and value:
                return _readable(value)
    return None


def _chapter(told: AnyChapter) -> Chapter:
    unit = told["time_base"] or Fraction(1)
    title = told["metadata"].get("title")
    return Chapter(
        float(told["start"] * unit), float(told["end"] * unit), None if title is None else _readable(title)
    )


def _subtitles(stream: SubtitleStream) -> SubtitleInfo:
    return SubtitleInfo(
        index=stream.index,
        codec=stream.codec_context.codec.canonical_name,
        language=stream.language,
        title=_title(stream),
        is_default=Disposition.default in stream.disposition,
    )


def _title(stream: AudioStream | SubtitleStream) -> str | None:
    """What players call a stream. In MP4 and QuickTime it is a name."""
    title = stream.metadata.get("title", stream.metadata.get("name"))
    return None if title is None else _readable(title)


def _readable(text: str) -> str:
    """A text that can be printed: what is no UTF-8 in the file becomes U+FFFD."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _video(stream: VideoStream, whole_s: float | None, first: Beginning) -> VideoInfo:
    codec = stream.codec_context
    # The decoder may have looked ahead, where the size and the format may be others. Another one may have added alpha.
    is_others = first.frame is None or _has_separate_alpha(stream, first.codec)
    shown = codec if is_others else cast("VideoFrame", first.frame)
    rotation, is_mirrored = _orientation(first.frame)
    is_sideways = rotation in (90, 270)
    aspect = _fraction(stream.sample_aspect_ratio)
    field_order = _FIELD_ORDERS.get(codec.field_order)
    is_cover = Disposition.attached_pic in stream.disposition
    rate, is_variable = _rate(stream, first.times, is_interlaced=field_order not in (None, "progressive"))
    common = _common(stream, whole_s, first.codec)
    if stream.container.format.name == endpoints.MATROSKA and first.times:
        # libav takes a later frame for the first one if frames that x264 reorders are seconds apart.
        starts_s = common["start_s"], _seconds(first.times[0], common["time_base"])
        common["start_s"] = min((one for one in starts_s if one is not None), default=None)
    return VideoInfo(
        **common,
        pixel_format=shown.format.name if shown.format else None,
        width=shown.height if is_sideways else shown.width,
        height=shown.width if is_sideways else shown.height,
        stored_width=shown.width,
        stored_height=shown.height,
        rotation=rotation,
        is_mirrored=is_mirrored,
        sample_aspect_ratio=1 / aspect if aspect and is_sideways else aspect,
        frame_rate=None if is_cover else rate,
        is_variable_frame_rate=is_variable and not is_cover,
        frames=stream.frames or None,
        color_matrix=matrix_name(shown.colorspace),
        color_range=RANGES.get(shown.color_range),
        color_primaries=PRIMARIES.get(shown.color_primaries),
        color_transfer=TRANSFERS.get(shown.color_trc),
        mastering_display=_mastering_display(first.frame),
        content_light=_content_light(first.frame),
        bit_depth=_depth(shown),
        field_order=field_order,
        has_separate_alpha=_has_separate_alpha(stream, first.codec),
        extras=_extras(first.frame),
        is_attached_picture=is_cover,
    )


def _audio(stream: AudioStream, whole_s: float | None) -> AudioInfo:
    codec = stream.codec_context
    layout = codec.layout
    if _LAYOUT_FREES_TWICE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(layout))
    return AudioInfo(
        **_common(stream, whole_s, codec.codec.canonical_name),
        sample_rate=codec.sample_rate,
        channels=layout.nb_channels,
        channel_layout=None if layout.name.endswith("channels") else layout.name,
        sample_format=codec.format.name if codec.format else None,
        language=stream.language,
        title=_title(stream),
    )


def _common(stream: VideoStream | AudioStream, whole_s: float | None, codec_name: str) -> dict[str, Any]:
    """The fields that `VideoInfo` and `AudioInfo` share. `whole_s` is the duration of the file."""
    codec: VideoCodecContext | AudioCodecContext = stream.codec_context
    time_base = _fraction(stream.time_base) or Fraction(0)
    duration_s = _seconds(stream.duration, time_base)
    return {
        "index": stream.index,
        "codec": codec_name,
        "profile": codec.profile,
        "duration_s": whole_s if duration_s is None else duration_s,
        "start_s": _seconds(stream.start_time, time_base),
        "time_base": time_base,
        "bit_rate": codec.bit_rate or None,
        "is_default": Disposition.default in stream.disposition,
    }


def _videos(media: InputContainer) -> list[VideoStream]:
    """The video streams that libav has a decoder for."""
    return [stream for stream in media.streams.video if stream.codec_context is not None]


@dataclass(slots=True)
class Beginning:
    """A video's codec, its first keyframe if one of the first packets has it, and the times of these packets.

    The name is read before decoding: after a failure to open a decoder, PyAV may have none, or crash.
    """

    codec: str
    frame: VideoFrame | None = None
    times: list[int | None] = field(default_factory=list)


def _beginning(stream: VideoStream) -> Beginning:
    return Beginning(stream.codec_context.codec.canonical_name)


def read_beginnings(
    media: InputContainer, undecoded: int | None = None
) -> tuple[dict[int, Beginning], list[Packet]]:
    """How each video begins, by its number, and the packets that were read for that.

    Args:
        undecoded: the number of a video whose frame is not decoded here.
    """
    streams = {stream.index: stream for stream in _videos(media)}
    found = {number: _beginning(stream) for number, stream in streams.items()}
    decoded = {number: stream.codec_context for number, stream in streams.items() if number != undecoded}
    for codec in decoded.values():
        codec.thread_type, codec.thread_count = ThreadType.NONE, 1
    # The header of QuickTime and MP4 files has the average.
    has_average = media.format.name == endpoints.QUICKTIME
    packets: list[Packet] = []
    if has_average and not decoded:
        return found, packets
    try:
        for packet in islice(demux(media, list(streams.values())) if streams else (), _FIRST_PACKETS):
            packets.append(packet)
            number = packet.stream_index
            if (beginning := found.get(number)) is None:
                continue  # FLV tells of a stream when it comes
            if packet.size and not has_average:
                beginning.times.append(packet.pts)
            if number in decoded and beginning.frame is None and packet.is_keyframe and packet.size:
                beginning.frame = only_frame(decoded[number], packet)
            if has_average and all(found[number].frame for number in decoded):
                break
    except LibavError:
        pass  # the file is damaged there, and its header was read
    return found, packets


def _rate(
    stream: VideoStream, times: Sequence[int | None], *, is_interlaced: bool
) -> tuple[Fraction | None, bool]:
    """Frames per second, and whether that varies. `times` are those of the first packets."""
    average, base, guessed = (
        _fraction(stream.average_rate),
        _fraction(stream.base_rate),
        _fraction(stream.guessed_rate),
    )
    known = sorted(one for one in times if one is not None)
    ordered = known[: len(known) - REORDERED] or known
    time_base = _fraction(stream.time_base)
    if len(known) == len(times) > 2 and guessed is not None and time_base and ordered[0] < ordered[-1]:
        ticks = [one - ordered[0] for one in ordered]
        for rate in filter(None, (guessed, average, base)):
            # In whole numbers, because fractions took a fifth of the time of `probe`.
            frames, per_ticks = (time_base * rate).as_integer_ratio()
            if all(
                2 * abs(tick * frames - number * per_ticks) < per_ticks for number, tick in enumerate(ticks)
            ):
                return rate, False
        return (len(ordered) - 1) / (ticks[-1] * time_base), True
    if times and not known and guessed is not None:  # a stream without times, for which libav makes some
        return guessed, False
    if average is None and base is not None and base * (time_base or 0) == 1:
        base = None  # libav had nothing to guess from, and tells the frequency of the clock, mostly 90000
    # Where some packets have no time (MPEG-PS), it counts fields, too.
    counts_fields = is_interlaced or len(known) < len(times)
    return average or base, _differ(average, base, counts_fields=counts_fields)


def _orientation(frame: VideoFrame | None) -> tuple[int, bool]:
    """Degrees clockwise by which to turn the picture, and whether to mirror it before, by its display matrix."""
    if (found := _side_data(frame, "DISPLAYMATRIX")) is None:
        return 0, False
    # av_display_rotation_get in libavutil/display.c
    a, b, _, c, d = map(int, struct.unpack_from("=5i", found))
    turned = math.degrees(math.atan2(b / (math.hypot(b, d) or 1), a / (math.hypot(a, c) or 1)))
    return round(turned) % 360, a * d - b * c < 0


def _mastering_display(frame: VideoFrame | None) -> MasteringDisplay | None:
    """As AVMasteringDisplayMetadata in libavutil/mastering_display_metadata.h has it: rationals, and which are set."""
    if (found := _side_data(frame, "MASTERING_DISPLAY_METADATA")) is None:
        return None
    *numbers, has_primaries, has_luminance = struct.unpack("=22i", found)
    values = [top / (bottom or 1) for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)]
    pairs: list[tuple[float, float] | None] = list(zip(values[::2], values[1::2], strict=True))
    red, green, blue, white = pairs[:4] if has_primaries else [None] * 4
    return MasteringDisplay(red, green, blue, white, pairs[4] if has_luminance else None)


def _content_light(frame: VideoFrame | None) -> ContentLight | None:
    """As AVContentLightMetadata in the same header."""
    found = _side_data(frame, "CONTENT_LIGHT_LEVEL")
    return None if found is None else ContentLight(*struct.unpack_from("=2I", found))


def _extras(frame: VideoFrame | None) -> tuple[str, ...]:
    found = {kind: _side_data(frame, kind) for kind in _EXTRAS}
    if not int.from_bytes((found["STEREO3D"] or b"")[:4], sys.byteorder):  # AV_STEREO3D_2D, which is one view
        found["STEREO3D"] = None
    return tuple(name for kind, name in _EXTRAS.items() if found[kind] is not None)


def _side_data(frame: VideoFrame | None, kind: str) -> bytes | None:
    """What a frame has of a kind of side data."""
    try:
        found = None if frame is None else cast("Any", frame.side_data.get(kind))
    except ValueError:  # PyAV 18 raises for kinds that it does not know, such as the EXIF data of a TIFF
        return None
    return None if found is None else bytes(found)


def _has_separate_alpha(stream: VideoStream, codec_name: str) -> bool:
    tags = {name.lower(): value for name, value in stream.metadata.items()}
    return codec_name in ("vp8", "vp9") and tags.get("alpha_mode") == "1"


def _differ(average: Fraction | None, base: Fraction | None, *, counts_fields: bool) -> bool:
    if average is None or base is None:
        return False
    ratio = base / average
    # For interlaced video the base rate may count fields.
    return all(abs(ratio - same) > _RATE_TOLERANCE for same in ((1, 2) if counts_fields else (1,)))


def _depth(shown: VideoCodecContext | VideoFrame) -> int | None:
    """Bits of a sample; None if the samples differ in depth (rgb565), or if no frame shows the format."""
    depths = {one.bits for one in shown.format.components} if shown.format else set()
    return depths.pop() if len(depths) == 1 else None


def _fraction(rational: Any) -> Fraction | None:
    """A rational number of libav's, of whichever type PyAV has for it; None for 0."""
    return Fraction(rational.numerator, rational.denominator) if rational else None


def _seconds(count: int | None, unit: Fraction) -> float | None:
    return None if count is None else float(count * unit)
