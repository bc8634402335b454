"""The facts about a media file, by libav in this process (PyAV)."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError
from av.sidedata.sidedata import SideDataContainer
from av.stream import Discard, Disposition, Stream

from penstock._common.deadline import Deadline
from penstock._common.shortage import error_of_libav
from penstock._facts.index import REORDERED, facts_of, has_false_beginning, shows_nothing
from penstock._facts.info import RANGES, AudioInfo, Chapter, MediaInfo, SubtitleInfo, VideoInfo, matrix_name
from penstock._facts.isolation import Isolation
from penstock._facts.opening import (
    EXACT_CROP,
    are_found,
    decode,
    demux,
    has_no_times,
    is_encrypted,
    lacks_protocol,
    only_frame,
    open_media,
    run_with_timeout,
)
from penstock._facts.source import MediaSource, Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.settings import PRIMARIES, TRANSFERS, ContentLight, MasteringDisplay
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

    from penstock._facts.index import Packet

T = TypeVar("T")

#: Guessed: a local file is read in 0.02 s; a slow server, or a disk that has to spin up, takes seconds.
PATIENCE_S = 30.0

# Guessed: the times of so many frames tell whether the rate varies, and fewer packets than those hold a frame.
_FIRST_PACKETS = 60
# Guessed: containers round times to 1 ms, so the two rates of constant-rate video differ by less.
_RATE_TOLERANCE = 0.01
# Rates of NTSC are whole numbers divided by this.
_NTSC = Fraction(1001, 1000)
# Chosen: so many times show a rate.
_FEWEST = 3
# libav makes a fraction of Matroska's nanoseconds, with terms below 30,000.
_STATED_TOLERANCE = 1e-6
# The coarsest unit of times of a container for video; and chosen: the part of a frame's duration that it may be.
_COPIED_UNIT_S, _COPIED_SHARE = Fraction(1, 1000), Fraction(1, 4)
# Chosen: no interlaced video has more frames per second.
_MOST_INTERLACED = 40
# Chosen: so many packets tell fields from frames, whatever the codec holds back.
_FIELDS = 8
# PyAV 18 frees the channel map of an AIFF file's layout twice: with the layout, and with the codec. To avoid that, the
# layout is leaked, some 100 bytes. PyAV 19 copies the map.
_LAYOUT_FREES_TWICE = av.__version__.startswith("18.")
# AVFieldOrder in libavcodec.
_FIELD_ORDERS = {1: "progressive", 2: "tt", 3: "bb", 4: "tb", 5: "bt"}
# FFmpeg's tag of the first frame's time code, of a file or a stream.
_TIMECODE = "timecode"
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
    try:
        return run_with_timeout(path, read, deadline)
    except StalledError:
        raise  # it says already what came late
    except TimeoutError as error:
        seconds = deadline.timeout or 0.0
        message = f"{path} was not read within {seconds:g} s. Check that a program writes to it"
        raise StalledError(message, seconds) from error


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
        if are_found(media) or all(beginnings[one.index].frame for one in _videos(media)):
            return info_of(source, media, beginnings)
    return _read_by_libav(source, follow_playlists=follow_playlists, decodes_first=False)


def info_of(source: Source, media: InputContainer, first: Mapping[int, Beginning]) -> MediaInfo:
    """The facts about an open file. `first` has the beginnings of its videos, by their numbers, if they were read."""
    whole_s = _seconds(media.duration, Fraction(1, av.time_base))
    videos = tuple(
        _video(stream, whole_s, first.get(stream.index) or Beginning(_codec_name(stream)))
        for stream in _videos(media)
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
            _audio(stream, whole_s, first.get(stream.index) or Beginning(_codec_name(stream)))
            for stream in _audios(media)
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
    side_data = _side_data(first.frame)
    rotation, is_mirrored = _orientation(first.frame, side_data, stream.container.format.name)
    is_sideways = rotation in (90, 270)
    aspect = _fraction(stream.sample_aspect_ratio) or _fraction(codec.sample_aspect_ratio)
    field_order = _field_order(codec, first.frame)
    is_cover = Disposition.attached_pic in stream.disposition
    rate, is_variable = _rate(stream, first, is_interlaced=field_order not in (None, "progressive"))
    common = _common(stream, whole_s, first)
    if first.times and first.packets[0].is_keyframe:
        # libav takes a later frame for the first one if frames that x264 reorders are seconds apart, in Matroska; or if
        # packets had no times where they were copied from, in MPEG-PS.
        # In VVC, because frames before the first keyframe can be decoded.
        pts = first.pts if first.has_leading else None
        starts_s = common["start_s"], *(_seconds(one, common["time_base"]) for one in (first.times[0], pts))
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


def _audio(stream: AudioStream, whole_s: float | None, first: Beginning) -> AudioInfo:
    codec = stream.codec_context
    layout = codec.layout
    if _LAYOUT_FREES_TWICE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(layout))
    return AudioInfo(
        **_common(stream, whole_s, first),
        sample_rate=codec.sample_rate,
        channels=layout.nb_channels,
        channel_layout=None if layout.name.endswith("channels") else layout.name,
        sample_format=codec.format.name if codec.format else None,
        language=stream.language,
        title=_title(stream),
    )


def _common(stream: VideoStream | AudioStream, whole_s: float | None, first: Beginning) -> dict[str, Any]:
    """The fields that `VideoInfo` and `AudioInfo` share. `whole_s` is the duration of the file."""
    codec: VideoCodecContext | AudioCodecContext = stream.codec_context
    time_base = _fraction(stream.time_base) or Fraction(0)
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


def _videos(media: InputContainer) -> list[VideoStream]:
    """The video streams that libav has a decoder for."""
    return [stream for stream in media.streams.video if stream.codec_context is not None]


def _audios(media: InputContainer) -> list[AudioStream]:
    """The audio streams that libav has a decoder for."""
    return [stream for stream in media.streams.audio if stream.codec_context is not None]


@dataclass(slots=True)
class Beginning:
    """A stream's codec, its first keyframe if one of the first packets has it, and the times of these packets.

    The name is read before decoding: after a failure to open a decoder, PyAV may have none, or crash. `pts` is when the
    first frame is shown that a decoder gives; None if that wasn't decoded. `late_units` is as for `VideoInfo`.
    """

    codec: str
    frame: VideoFrame | None = None
    times: list[int | None] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)
    is_encrypted: bool = False
    late_units: int = 0
    pts: int | None = None

    @property
    def has_leading(self) -> bool:
        """Whether frames are shown before the first keyframe: a decoder may give them, as in VVC, or leave them out."""
        return bool(self.times) and self.packets[0].is_keyframe and self._leads(self.times[0])

    def _leads(self, first: int | None) -> bool:
        return first is not None and any(one is not None and one < first for one in self.times)

    @property
    def shown_times(self) -> list[int | None]:
        """The times of packets that show something.

        Without those of frames that need packets before the first ones, which may be missing.
        """
        first = next((number for number, one in enumerate(self.packets) if one.is_keyframe), 0)
        times = [
            time
            for time, one in zip(self.times[first:], self.packets[first:], strict=False)
            if not shows_nothing(self.codec, *_ends_of(one))
        ]
        return [one for one in times if None in (one, times[0]) or cast("int", one) >= cast("int", times[0])]


def _ends_of(packet: Packet) -> tuple[int, int]:
    """The first byte and the last one."""
    facts = facts_of(packet)
    return facts.first, facts.last


def _codec_name(stream: VideoStream | AudioStream) -> str:
    return stream.codec_context.codec.canonical_name


def read_beginnings(
    media: InputContainer, undecoded: int | None = None, *, with_audio: bool = False
) -> tuple[dict[int, Beginning], list[Packet]]:
    """How each stream begins, by its number, and the packets that were read for that.

    Those of audio are read in QuickTime and MP4 files, because their packets say whether they are encrypted.

    Args:
        undecoded: the number of a video whose frame is not decoded here.
        with_audio: none of audio may be left out.
    """
    videos = {stream.index: stream for stream in _videos(media)}
    decoded = {number: stream.codec_context for number, stream in videos.items() if number != undecoded}
    for codec in decoded.values():
        codec.thread_type, codec.thread_count = ThreadType.NONE, 1
        codec.flags |= EXACT_CROP
    # The header of QuickTime and MP4 files has the average.
    has_average = containers.known(media.format.name).has_boxes
    has_audio = has_average or (with_audio and bool(videos))
    streams: list[Any] = [*videos.values(), *(_audios(media) if has_audio else ())]
    found = {stream.index: Beginning(_codec_name(stream)) for stream in streams}
    packets: list[Packet] = []
    waiting = set(found)
    try:
        for packet in islice(demux(media, streams) if streams else (), _FIRST_PACKETS):
            packets.append(packet)
            number = packet.stream_index
            if (beginning := found.get(number)) is None:
                continue  # FLV tells of a stream when it comes
            if packet.size:
                beginning.packets.append(packet)
            if packet.size and not has_average:
                beginning.times.append(packet.pts)
            beginning.is_encrypted |= is_encrypted(packet)
            is_decoded = number in decoded and not beginning.is_encrypted
            if is_decoded and beginning.frame is None and packet.is_keyframe and packet.size:
                beginning.frame = only_frame(decoded[number], packet)
            if beginning.frame is not None or not is_decoded:
                waiting.discard(number)
            if has_average and not waiting:
                break
    except LibavError:
        pass  # the file is damaged there, and its header was read
    for number, codec in decoded.items():
        beginning = found[number]
        if not beginning.is_encrypted and (beginning.frame is None or beginning.has_leading):
            first = _first_frame(codec, beginning.packets)
            if first is not None:
                beginning.frame, beginning.pts = first, first.pts
    for number, stream in videos.items():
        beginning = found[number]
        if not has_no_times(media.format.name):
            beginning.late_units = _late_units(stream.codec_context, beginning.packets)
        if beginning.late_units:
            beginning.times = [packet.dts for packet in beginning.packets]
    return found, packets


def _first_frame(codec: VideoCodecContext, packets: Sequence[Packet]) -> VideoFrame | None:
    """The first frame of packets of which the first keyframe doesn't give it by itself: such as a field."""
    first = next((number for number, one in enumerate(packets) if one.is_keyframe), len(packets))
    frames: list[VideoFrame] = []
    with suppress(LibavError, DecoderError, EOFError, ValueError):
        for packet in packets[first : first + REORDERED + 1]:
            frames += (one for one in decode(codec, packet) if not one.is_corrupt)
    codec.flush_buffers()
    return frames[0] if frames else None


def _late_units(codec: VideoCodecContext, packets: Sequence[Packet]) -> int:
    """`VideoInfo.late_units`: libav gives a frame the time of the packet with which the decoder returns it."""
    if not packets or packets[0].dts is None or not codec.has_b_frames:
        return 0
    if packets[0].pts is not None and not has_false_beginning(map(facts_of, packets)):
        return 0
    own = cast("VideoCodecContext", av.CodecContext.create(codec.codec.name, "r"))
    own.extradata, own.width, own.height, own.thread_count = codec.extradata, codec.width, codec.height, 1
    with suppress(LibavError, DecoderError, EOFError, ValueError):
        for packet in (*packets[: REORDERED + 1], None):
            for frame in decode(own, packet):
                is_first = frame.key_frame and frame.pts == packets[0].pts and frame.dts is not None
                return int(frame.dts - packets[0].dts) if is_first else 0
    return 0


def _rate(stream: VideoStream, first: Beginning, *, is_interlaced: bool) -> tuple[Fraction | None, bool]:
    """Frames per second, and whether that varies."""
    rate, is_variable = _packet_rate(stream, first, is_interlaced=is_interlaced)
    if rate is not None and is_interlaced and rate > _MOST_INTERLACED:
        stated = _fraction(stream.codec_context.framerate)
        if stated == rate / 2 or _are_fields(stream, first.packets):
            return rate / 2, is_variable
    return rate, is_variable


def _packet_rate(
    stream: VideoStream, first: Beginning, *, is_interlaced: bool
) -> tuple[Fraction | None, bool]:
    """Packets per second, or pairs of packets if the times show that they are fields."""
    average, base, guessed = map(_fraction, (stream.average_rate, stream.base_rate, stream.guessed_rate))
    if has_no_times(stream.container.format.name) and guessed is not None:
        return _raw_rate(_fraction(stream.codec_context.framerate) or guessed, stream, first)
    times, time_base = first.shown_times, _fraction(stream.time_base)
    # A packet at the time of another one shows nothing: VP8 and VP9 have such.
    known = sorted({one for one in times if one is not None})
    ordered = known[:-REORDERED] if len(known) >= REORDERED + _FEWEST else known
    if None not in times and len(known) >= _FEWEST and guessed is not None and time_base:
        ticks = [one - ordered[0] for one in ordered]
        measured = (len(ordered) - 1) / (ticks[-1] * time_base)
        for rate in filter(None, (guessed, average, base)):
            if _is_at(rate, ticks, time_base, is_interlaced=is_interlaced):
                return _usual_rate(rate, dict(enumerate(ticks)), time_base) or rate, False
        numbered = dict(enumerate(ticks))
        if _are_at(measured, numbered, time_base, units=Fraction(1, 2)):
            return measured, False
        usual = _usual_rate(measured, numbered, time_base)
        return usual or measured, usual is None
    if times and not known and guessed is not None:  # a stream without times, for which libav makes some
        return guessed, False
    if average is None and base is not None and base * (time_base or 0) == 1:
        base = None  # libav had nothing to guess from, and tells the frequency of the clock, mostly 90000
    if average is not None and time_base and (listed := _indexed(stream)):
        usual = _usual_rate(average, listed, time_base)
        if usual is not None:
            return usual, False
    # Where some packets have no time (MPEG-PS), it counts fields, too.
    counts_fields = is_interlaced or None in times
    return average or base, _differ(average, base, counts_fields=counts_fields)


def _raw_rate(rate: Fraction, stream: VideoStream, first: Beginning) -> tuple[Fraction, bool]:
    """The rate of a stream without times. Frames last longer if fields are shown again, as in films for television."""
    durations = [packet.duration or 0 for packet in first.packets if (packet.duration or 0) > 1]
    durations = durations[: len(durations) // 2 * 2]  # usually, every other one is longer
    mean = Fraction(sum(durations), len(durations) or 1) * (stream.time_base or 0)
    return (1 / mean, len({*durations}) > 1) if mean * rate > 1 else (rate, False)


def _is_at(rate: Fraction, ticks: Sequence[int], time_base: Fraction, *, is_interlaced: bool) -> bool:
    """Whether each frame, or one of its two fields, is nearer to its time at a constant rate than to any other."""
    # In whole numbers, because fractions took a fifth of the time of `probe`.
    frames, per_ticks = (time_base * rate).as_integer_ratio()
    if is_interlaced:
        halves = ((4 * tick * frames + per_ticks) // (2 * per_ticks) for tick in ticks)
        numbers = sorted({half // 2 for half in halves})
        return numbers == [*range(len(numbers))]
    return all(2 * abs(tick * frames - number * per_ticks) < per_ticks for number, tick in enumerate(ticks))


def _usual_rate(rate: Fraction, ticks: Mapping[int, int], time_base: Fraction) -> Fraction | None:
    """A rate that people use, and that `rate` is because of the unit of times; None if the times disagree.

    Args:
        ticks: of some frames, by their numbers, the time since the first one.
    """
    if (1 / (rate * time_base)).denominator == 1:
        return None
    whole, ntsc = Fraction(round(rate)), Fraction(round(rate * _NTSC)) / _NTSC
    # Matroska states a rate exactly, but for a rounding.
    usual = (ntsc, whole) if abs(ntsc - rate) < _STATED_TOLERANCE * rate else (whole, ntsc)
    # Times may have been rounded before: a file may be copied from Matroska, whose unit is 1 ms.
    copied = min(_COPIED_UNIT_S, _COPIED_SHARE / rate) / time_base
    # Most programs round times to the nearest unit, and some leave out what is less than one.
    for units, one in itertools.product((Fraction(1, 2), Fraction(1), copied), usual):
        if one and _are_at(one, ticks, time_base, units=units):
            return one
    return None


def _are_at(rate: Fraction, ticks: Mapping[int, int], time_base: Fraction, *, units: Fraction) -> bool:
    """Whether frames, whose times are as for `_usual_rate`, are so close to their times at a constant rate."""
    frames, per_ticks = (time_base * rate).as_integer_ratio()
    return all(abs(tick * frames - number * per_ticks) <= units * frames for number, tick in ticks.items())


def _indexed(stream: VideoStream) -> dict[int, int]:
    """When some of the packets are decoded that QuickTime or MP4 lists, from the first to the last ones."""
    entries = stream.index_entries
    if not containers.known(stream.container.format.name).has_boxes or len(entries) < _FEWEST:
        return {}
    numbers, first = range(0, len(entries), len(entries) // _FIRST_PACKETS or 1), entries[0].timestamp
    return {number: entries[number].timestamp - first for number in numbers}


def _are_fields(stream: VideoStream, packets: Sequence[Packet]) -> bool:
    """Whether two packets make a frame."""
    own = cast("Any", av.CodecContext.create(stream.codec_context.name, "r"))
    own.extradata, own.thread_type = stream.codec_context.extradata, ThreadType.NONE
    frames = 0
    for packet in (*packets[:_FIELDS], None):
        with suppress(LibavError, DecoderError, EOFError):
            frames += len(decode(own, packet))
    return 0 < frames <= len(packets[:_FIELDS]) * 3 // 4


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


def _mastering_display(side_data: Mapping[str, bytes]) -> MasteringDisplay | None:
    """As AVMasteringDisplayMetadata in libavutil/mastering_display_metadata.h has it: rationals, and which are set."""
    if (found := side_data.get("MASTERING_DISPLAY_METADATA")) is None:
        return None
    *numbers, has_primaries, has_luminance = struct.unpack("=22i", found)
    values = [top / (bottom or 1) for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)]
    pairs: list[tuple[float, float] | None] = list(zip(values[::2], values[1::2], strict=True))
    red, green, blue, white = pairs[:4] if has_primaries else [None] * 4
    return MasteringDisplay(red, green, blue, white, pairs[4] if has_luminance else None)


def _content_light(side_data: Mapping[str, bytes]) -> ContentLight | None:
    """As AVContentLightMetadata in the same header."""
    found = side_data.get("CONTENT_LIGHT_LEVEL")
    return None if found is None else ContentLight(*struct.unpack_from("=2I", found))


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
        # By number: PyAV 18 iterates over the values, and PyAV 19 over their kinds.
        return {one.type.name: bytes(one) for one in map(found.__getitem__, range(len(found)))}
    except ValueError:  # PyAV 18 raises for kinds that it does not know, such as the EXIF data of a TIFF
        return {}


def _has_separate_alpha(stream: VideoStream, codec_name: str) -> bool:
    tags = {name.lower(): value for name, value in stream.metadata.items()}
    return codecs.known(codec_name).alpha_decoder is not None and tags.get("alpha_mode") == "1"


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
