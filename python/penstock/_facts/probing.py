"""The facts about a media file, by libav in this process (PyAV)."""

from __future__ import annotations

import ctypes
import math
import os
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import av
from av.error import FFmpegError as LibavError
from av.sidedata.sidedata import SideDataContainer, Type
from av.stream import Discard, Disposition, Stream

from penstock._common.daemon import Daemon
from penstock._common.deadline import Deadline
from penstock._common.shortage import error_of_libav
from penstock._facts.beginnings import Beginning, audios_of, codec_name, read_beginnings, videos_of
from penstock._facts.frame_rate import fraction, rate_of
from penstock._facts.info import RANGES, MediaInfo, matrix_name
from penstock._facts.isolation import Isolation
from penstock._facts.opening import (
    are_found,
    lacks_protocol,
    open_media,
)
from penstock._facts.source import MediaSource, Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.settings import PRIMARIES, TRANSFERS, Colors
from penstock._formats import codecs, containers
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.container.core import Chapter as AnyChapter
    from av.subtitles.stream import SubtitleStream
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


T = TypeVar("T")

#: Guessed: a local file is read in 0.02 s; a slow server, or a disk that has to spin up, takes seconds.
PATIENCE_S = 30.0

# PyAV 18 frees the channel map of an AIFF file's layout twice: with the layout, and with the codec. To avoid that, the
# layout is leaked, some 100 bytes. PyAV 19 copies the map.
_LAYOUT_FREES_TWICE = av.__version__.startswith("18.")
# AVFieldOrder in libavcodec.
_FIELD_ORDERS = {1: "progressive", 2: "tt", 3: "bb", 4: "tb", 5: "bt"}
# FFmpeg's tag of the first frame's time code, of a file or a stream.
_TIMECODE = "timecode"
# `MediaInfo.Video.extras`, by their kinds of side data.
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
        return answer_of(opened.path, read, deadline) if endpoints.identity(opened.url) is None else read()
    except LibavError as error:
        raise error_of_libav(error, opened.path) from error
    finally:
        if opened is not source:
            opened.close()


def answer_of(path: str, read: Callable[[], T], deadline: Deadline) -> T:
    """What `read` returns, which may wait for a server, or for a program that writes to a FIFO.

    Raises:
        StalledError: it did not return in time.
    """
    thread = Daemon("penstock-open")
    outcome = thread.submit(read)
    thread.end()
    try:
        return outcome.result(deadline.at_most(threading.TIMEOUT_MAX))  # a signal handler can interrupt it
    except StalledError:
        raise  # it says already what came late
    except TimeoutError as error:
        seconds = deadline.timeout or 0.0
        message = f"{path} was not read within {seconds:g} s. Check that a program writes to it"
        raise StalledError(message, seconds) from error
    finally:
        if not outcome.done():
            _end_wait_for_writer(Path(path))


def _end_wait_for_writer(path: Path) -> None:
    """Unblocks a thread that waits for a FIFO's first writer, so that it does not take that writer's bytes later."""
    with suppress(OSError):
        if path.is_fifo():
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def _read(source: Source, *, follow_playlists: bool) -> MediaInfo:
    try:
        return _read_by_libav(source, follow_playlists=follow_playlists)
    except DecoderError as error:
        if not lacks_protocol(error):
            raise
    source.fetch()
    return _read_by_libav(source, follow_playlists=follow_playlists)


def _read_by_libav(source: Source, *, follow_playlists: bool, decodes_first: bool = True) -> MediaInfo:
    with open_media(
        source.url,
        single_pass=source.single_pass,
        path=source.path,
        follow_playlists=follow_playlists,
        decryption=source.decryption,
        decodes_first=decodes_first,
    ) as media:
        beginnings = read_beginnings(media)[0]
        if are_found(media) or all(beginnings[one.index].frame for one in videos_of(media)):
            return info_of(source, media, beginnings)
    return _read_by_libav(source, follow_playlists=follow_playlists, decodes_first=False)


def info_of(source: Source, media: InputContainer, first: Mapping[int, Beginning]) -> MediaInfo:
    """The facts about an open file. `first` has the beginnings of its videos, by their numbers, if they were read."""
    whole_s = _seconds(media.duration, Fraction(1, av.time_base))
    videos = tuple(
        _video(stream, whole_s, first.get(stream.index) or Beginning(codec_name(stream)))
        for stream in videos_of(media)
    )
    starts_s = (_seconds(media.start_time, Fraction(1, av.time_base)), *(video.start_s for video in videos))
    return MediaInfo(
        path=source.path,
        container=media.format.name,
        container_name=media.format.long_name or media.format.name,
        duration_s=whole_s,
        start_s=min((one for one in starts_s if one is not None), default=None),
        bit_rate=media.bit_rate or None,
        size_bytes=endpoints.file_bytes(source.url)
        if endpoints.is_path(source.url)
        else max(media.size or 0, 0) or None,
        video=videos,
        audio=tuple(
            _audio(stream, whole_s, first.get(stream.index) or Beginning(codec_name(stream)))
            for stream in audios_of(media)
        ),
        subtitles=tuple(
            _subtitles(stream) for stream in media.streams.subtitles if stream.codec_context is not None
        ),
        undecodable=tuple(stream.type for stream in media.streams if _is_undecodable(stream)),
        chapters=tuple(map(_chapter, media.chapters())),
        tags={_readable(name): _readable(value) for name, value in media.metadata.items()},
        timecode=_timecode(media),
    )


def _is_undecodable(stream: Stream) -> bool:
    """Whether a stream has what neither libav decodes nor `MediaInfo` tells in another way."""
    # libav discards a track whose texts it has made chapters of.
    is_told = stream.discard == Discard.all or _TIMECODE in map(str.lower, stream.metadata)
    return stream.codec_context is None and not is_told


def _timecode(media: InputContainer) -> str | None:
    """QuickTime has it as a tag of its streams, and other containers as one of the file."""
    for tags in (*(stream.metadata for stream in media.streams), media.metadata):
        for name, value in tags.items():
            if name.lower() == _TIMECODE and value:
                return _readable(value)
    return None


def _chapter(chapter: AnyChapter) -> MediaInfo.Chapter:
    unit = chapter["time_base"] or Fraction(1)
    title = chapter["metadata"].get("title")
    return MediaInfo.Chapter(
        float(chapter["start"] * unit),
        float(chapter["end"] * unit),
        None if title is None else _readable(title),
    )


def _subtitles(stream: SubtitleStream) -> MediaInfo.Subtitle:
    return MediaInfo.Subtitle(
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


def _video(stream: VideoStream, whole_s: float | None, first: Beginning) -> MediaInfo.Video:
    codec = stream.codec_context
    # The decoder may have looked ahead, where the size and the format may be others. Another one may have added alpha.
    is_others = first.frame is None or _has_separate_alpha(stream, first.codec)
    shown = codec if is_others else cast("VideoFrame", first.frame)
    side_data = _side_data(first.frame)
    rotation, is_mirrored = _orientation(first.frame, side_data, stream.container.format.name)
    is_sideways = rotation in (90, 270)
    aspect = fraction(stream.sample_aspect_ratio) or fraction(codec.sample_aspect_ratio)
    field_order = _field_order(codec, first.frame)
    is_cover = Disposition.attached_pic in stream.disposition
    rate, is_variable = rate_of(stream, first, is_interlaced=field_order not in (None, "progressive"))
    common = _common(stream, whole_s, first)
    if first.times and first.packets[0].is_keyframe:
        # libav takes a later frame for the first one if frames that x264 reorders are seconds apart, in Matroska; or if
        # packets had no times where they were copied from, in MPEG-PS.
        # In VVC, because frames before the first keyframe can be decoded.
        pts = first.pts if first.has_leading else None
        starts_s = common["start_s"], *(_seconds(one, common["time_base"]) for one in (first.times[0], pts))
        common["start_s"] = min((one for one in starts_s if one is not None), default=None)
    return MediaInfo.Video(
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
        mastering_display=_mastering_display(side_data),
        content_light=_content_light(side_data),
        bit_depth=_depth(shown),
        field_order=field_order,
        has_separate_alpha=_has_separate_alpha(stream, first.codec),
        extras=_extras(side_data),
        is_attached_picture=is_cover,
        is_tile=_is_tile(stream),
        late_units=first.late_units,
    )


def _audio(stream: AudioStream, whole_s: float | None, first: Beginning) -> MediaInfo.Audio:
    codec = stream.codec_context
    layout = codec.layout
    if _LAYOUT_FREES_TWICE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(layout))
    return MediaInfo.Audio(
        **_common(stream, whole_s, first),
        sample_rate=codec.sample_rate,
        channels=layout.nb_channels,
        channel_layout=None if layout.name.endswith("channels") else layout.name,
        sample_format=codec.format.name if codec.format else None,
        language=stream.language,
        title=_title(stream),
    )


def _common(stream: VideoStream | AudioStream, whole_s: float | None, first: Beginning) -> dict[str, Any]:
    """The fields that `MediaInfo.Video` and `MediaInfo.Audio` share. `whole_s` is the duration of the file."""
    codec: VideoCodecContext | AudioCodecContext = stream.codec_context
    time_base = fraction(stream.time_base) or Fraction(0)
    duration_s = _seconds(stream.duration, time_base)
    return {
        "index": stream.index,
        "codec": first.codec,
        "profile": codec.profile,
        "duration_s": whole_s if duration_s is None else duration_s,
        "start_s": _seconds(stream.start_time, time_base),
        "time_base": time_base,
        "bit_rate": codec.bit_rate or None,
        "is_default": Disposition.default in stream.disposition,
        # Matroska says it of the stream.
        "is_encrypted": first.is_encrypted or "enc_key_id" in stream.metadata,
    }


def _field_order(codec: VideoCodecContext, frame: VideoFrame | None) -> str | None:
    """The order that the file states; if it states none, that of an interlaced frame."""
    stated = _FIELD_ORDERS.get(codec.field_order)
    if frame is None or not frame.interlaced_frame or stated not in (None, "progressive"):
        return stated
    # PyAV doesn't show which field is the first one.
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25)
    )
    graph.link_nodes(
        source, graph.add("select", "eq(interlace_type,TOPFIRST)"), graph.add("buffersink")
    ).configure()
    graph.push(frame)
    graph.push(None)
    try:
        graph.pull()
    except (LibavError, EOFError):
        return "bb"
    return "tt"


def _orientation(
    frame: VideoFrame | None, side_data: Mapping[str, bytes], container: str
) -> tuple[int, bool]:
    """Degrees clockwise by which to turn the picture, and whether to mirror it before, by its display matrix."""
    if frame is None:
        return 0, False
    if (found := side_data.get("DISPLAYMATRIX")) is None:
        # Beside EXIF data, PyAV 18 shows no matrix, but its angle. In JPEG and PNG, it would be that of the EXIF data.
        return round(-frame.rotation) % 360 if containers.known(container).has_boxes else 0, False
    # av_display_rotation_get in libavutil/display.c
    a, b, _, c, d = map(int, struct.unpack_from("=5i", found))
    turned = math.degrees(math.atan2(b / (math.hypot(b, d) or 1), a / (math.hypot(a, c) or 1)))
    return round(turned) % 360, a * d - b * c < 0


def _is_tile(stream: VideoStream) -> bool:
    """Whether it is one of the tiles of a picture. libheif makes a picture of an odd size a grid of a single one."""
    streams = stream.container.streams.video
    has_others = sum(Disposition.dependent in one.disposition for one in streams) > 1
    return Disposition.dependent in stream.disposition and has_others


def _mastering_display(side_data: Mapping[str, bytes]) -> Colors.MasteringDisplay | None:
    """As AVMasteringDisplayMetadata in libavutil/mastering_display_metadata.h has it: rationals, and which are set."""
    if (found := side_data.get("MASTERING_DISPLAY_METADATA")) is None:
        return None
    *numbers, has_primaries, has_luminance = struct.unpack("=22i", found)
    values = [top / (bottom or 1) for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)]
    pairs: list[tuple[float, float] | None] = list(zip(values[::2], values[1::2], strict=True))
    red, green, blue, white = pairs[:4] if has_primaries else [None] * 4
    return Colors.MasteringDisplay(red, green, blue, white, pairs[4] if has_luminance else None)


def _content_light(side_data: Mapping[str, bytes]) -> Colors.ContentLight | None:
    """As AVContentLightMetadata in the same header."""
    found = side_data.get("CONTENT_LIGHT_LEVEL")
    return None if found is None else Colors.ContentLight(*struct.unpack_from("=2I", found))


def _extras(side_data: Mapping[str, bytes]) -> tuple[str, ...]:
    found = {kind: side_data.get(kind) for kind in _EXTRAS}
    if not int.from_bytes((found["STEREO3D"] or b"")[:4], sys.byteorder):  # AV_STEREO3D_2D, which is one view
        found["STEREO3D"] = None
    return tuple(name for kind, name in _EXTRAS.items() if found[kind] is not None)


def _side_data(frame: VideoFrame | None) -> dict[str, bytes]:
    """The side data of a frame, by its kinds."""
    if frame is None:
        return {}
    try:
        # Not frame.side_data, which the frame keeps: as they refer to each other, only the garbage collector would free
        # the frame's memory.
        found = SideDataContainer(frame)  # type: ignore[call-arg]
        # By kind: PyAV 18 iterates over the values, and PyAV 19 over their kinds. In PyAV 19, len() counts kinds. By
        # number, the last entry would be missed if a frame has two of a kind, as x265 writes them.
        return {kind.name: bytes(found[kind]) for kind in Type if kind in found}
    except ValueError:  # PyAV 18 raises for kinds that it does not know, such as the EXIF data of a TIFF
        return {}


def _has_separate_alpha(stream: VideoStream, codec_name: str) -> bool:
    tags = {name.lower(): value for name, value in stream.metadata.items()}
    return codecs.known(codec_name).alpha_decoder is not None and tags.get("alpha_mode") == "1"


def _depth(shown: VideoCodecContext | VideoFrame) -> int | None:
    """Bits of a sample; None if the samples differ in depth (rgb565), or if no frame shows the format."""
    depths = {one.bits for one in shown.format.components} if shown.format else set()
    return depths.pop() if len(depths) == 1 else None


def _seconds(count: int | None, unit: Fraction) -> float | None:
    return None if count is None else float(count * unit)
