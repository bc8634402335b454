"""The facts about a media file that `probe` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import TypeVar

from penstock._common.notebook import HtmlTable, player, table
from penstock._ffmpeg.command.colors import MATRIX_NAMES
from penstock._ffmpeg.command.settings import Colors
from penstock._formats import containers
from penstock._platform.paths import shell_word
from penstock.errors import DecoderError

_Stream = TypeVar("_Stream", "MediaInfo.Video", "MediaInfo.Audio")

# FFmpeg's names of the code points of ITU-T H.273, table 4.
_MATRICES = {
    0: "gbr",
    1: "bt709",
    4: "fcc",
    5: "bt470bg",
    6: "smpte170m",
    7: "smpte240m",
    8: "ycgco",
    9: "bt2020nc",
    10: "bt2020c",
    11: "smpte2085",
    12: "chroma-derived-nc",
    13: "chroma-derived-c",
    14: "ictcp",
    15: "ipt-c2",
    16: "ycgco-re",
    17: "ycgco-ro",
}
#: Those of AVColorRange in libavutil.
RANGES = {1: "limited", 2: "full"}
# FFmpeg's layouts of 1 to 8 channels where none is named, as in NUT.
_USUAL_LAYOUTS = (None, "mono", "stereo", "2.1", "4.0", "5.0", "5.1", "6.1", "7.1")


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """A media file, or a URL: its container, its streams and its metadata.

    Attributes:
        path: the path or URL, as you passed it.
        container: FFmpeg's names of the container: ``mov,mp4,m4a,3gp,3g2,mj2``, ``matroska,webm``.
        container_name: its full name: ``QuickTime / MOV``.
        duration_s: in seconds; None if unknown, as for live streams.
        start_s: time of the earliest frame or sample in seconds; None if unknown.
        bit_rate: bits per second of the whole file; None if unknown.
        size_bytes: size of the file; None if unknown.
        video: the video streams that PyAV's libav can decode, including attached pictures.
        audio: the audio streams that it can decode.
        subtitles: the subtitle streams that it can decode.
        undecodable: the kinds of the other streams, which it has no decoder for: "video", "audio", "subtitle", "data"
            (telemetry, SCTE-35), "attachment" (fonts). Without those that `chapters` and `timecode` were read from.
        chapters: the chapters, in order.
        tags: the file's metadata: ``title``, ``encoder``.
        timecode: the time code of the first frame: ``01:00:00:00``, or ``01:00:00;00`` for drop frame; None if the file
            has none.
    """

    @dataclass(frozen=True, slots=True)
    class Video(HtmlTable):
        """A video stream of a file.

        There are two sizes. `width` and `height` are the size after rotation, as players show the picture and as FFmpeg
        decodes it by default. `stored_width` and `stored_height` are the size of the frames in the file. Both count
        pixels and ignore the pixel aspect ratio (`sample_aspect_ratio`).

        Attributes:
            index: the stream's number among all streams of the file, as in FFmpeg's ``-map 0:1``.
            codec: FFmpeg's name: ``h264``, ``hevc``.
            profile: the codec's profile, such as ``High``; None if it has none.
            pixel_format: FFmpeg's name: ``yuv420p``, ``gray10le``; None if no frame shows it.
            width, height: in pixels, as displayed.
            stored_width, stored_height: in pixels, before rotation.
            rotation: degrees clockwise to turn the stored picture for display: 0, 90, 180 or 270. Other angles are
                rounded to a degree from 0 to 359, and the sizes are then as stored. It comes from the display matrix of
                the first frame that can be decoded, and ignores the old ``rotate`` tag, and the EXIF data of images.
            is_mirrored: whether to mirror the stored picture top to bottom before you turn it by `rotation`. Together
                with 180 degrees, this mirrors it left to right. Penstock can't see it in HEIC and AVIF files that also
                have EXIF data.
            sample_aspect_ratio: pixel aspect ratio, width by height of a displayed pixel; None if the file doesn't
                state it.
            frame_rate: average frames per second, or else the base rate that FFmpeg guesses; None if there is neither.
                It's a usual rate, such as 60000/1001, if the times agree with it and the file only rounds them. Fields
                and packets that show nothing aren't frames.
            is_variable_frame_rate: whether the video seems to have a variable frame rate: the times of its first frames
                aren't at a constant rate, or, in QuickTime and MP4, the average clearly differs from the rate that
                FFmpeg guesses. A hint only.
            frames: number of frames, as the container states it; None if it doesn't: ``len(Decoder(path))`` counts
                them. Players may hide some (edit lists), and a damaged file may have fewer.
            duration_s: in seconds, of the stream, or else of the file; None if unknown.
            start_s: time of the first frame in seconds; None if unknown.
            time_base: unit of timestamps in seconds, such as 1/15360.
            color_matrix: ``bt601``, ``bt709``, ``bt2020`` (non-constant luminance), FFmpeg's name of any other (``gbr``
                for RGB), or None if the file doesn't state it.
            color_range: ``limited`` (tv), ``full`` (pc), or None if the file doesn't state it.
            color_primaries, color_transfer: FFmpeg's names: ``bt709``, ``smpte2084``; None if the file doesn't state
                them.
            mastering_display: HDR metadata of the first frame that can be decoded; None if it has none.
            content_light: HDR metadata of the same frame; None if it has none.
            bit_depth: bits of a sample; None if unknown.
            field_order: ``progressive``, or for interlaced video ``tt``, ``bb``, ``tb`` or ``bt``; None if the file
                doesn't state it. The first frame decides if it's interlaced and the file says progressive.
            bit_rate: bits per second; None if the file doesn't state it.
            has_separate_alpha: whether alpha is stored beside the frames, as in WebM. `pixel_format` doesn't show it.
            extras: what else the first frame that can be decoded has, which an `Encoder` can't write: "stereo 3D mode",
                "spherical mapping", "closed captions", "HDR10+ metadata" and "Dolby Vision metadata".
            is_default: whether the file marks the stream as a default.
            is_encrypted: whether its packets are encrypted, and the decoder has no key.
            is_attached_picture: whether it is a single picture beside the audio, such as a cover.
            is_tile: whether it is only a part of a picture, as in the grids of AVIF and HEIC files.
            late_units: by how many units of `time_base` libav's times of frames are late, because the container stores
                only when frames are decoded, as AVI does. `VideoFrame.pts` has these times, and `VideoFrame.time_s` is
                right.
        """

        index: int
        codec: str
        profile: str | None
        pixel_format: str | None
        width: int
        height: int
        stored_width: int
        stored_height: int
        rotation: int
        is_mirrored: bool
        sample_aspect_ratio: Fraction | None
        frame_rate: Fraction | None
        is_variable_frame_rate: bool
        frames: int | None
        duration_s: float | None
        start_s: float | None
        time_base: Fraction
        color_matrix: str | None
        color_range: str | None
        color_primaries: str | None
        color_transfer: str | None
        mastering_display: Colors.MasteringDisplay | None
        content_light: Colors.ContentLight | None
        bit_depth: int | None
        field_order: str | None
        bit_rate: int | None
        has_separate_alpha: bool
        extras: tuple[str, ...]
        is_default: bool
        is_encrypted: bool
        is_attached_picture: bool
        is_tile: bool
        late_units: int

    @dataclass(frozen=True, slots=True)
    class Audio:
        """An audio stream of a file.

        Attributes:
            index: the stream's number among all streams of the file, as in FFmpeg's ``-map 0:1``.
            codec: FFmpeg's name: ``aac``, ``pcm_s16le``.
            profile: the codec's profile, such as ``LC``; None if it has none.
            sample_rate: samples per second of each channel.
            channels: number of channels.
            channel_layout: FFmpeg's name: ``stereo``, ``5.1``; None if the file doesn't state it.
            sample_format: FFmpeg's name of the format that its decoder returns: ``s16``, ``fltp`` (planar); None if
                unknown.
            duration_s: in seconds, of the stream, or else of the file; None if unknown.
            start_s: time of the first sample in seconds; None if unknown.
            time_base: unit of timestamps in seconds, such as 1/44100.
            bit_rate: bits per second; None if the file doesn't state it.
            is_default: whether the file marks the stream as a default.
            is_encrypted: as for `MediaInfo.Video`.
            language: ISO 639 code of three letters; None if the file doesn't state it.
            title: name that players show; None if the file has none.
        """

        index: int
        codec: str
        profile: str | None
        sample_rate: int
        channels: int
        channel_layout: str | None
        sample_format: str | None
        duration_s: float | None
        start_s: float | None
        time_base: Fraction
        bit_rate: int | None
        is_default: bool
        is_encrypted: bool
        language: str | None
        title: str | None

    @dataclass(frozen=True, slots=True)
    class Subtitle:
        """A subtitle stream of a file.

        Attributes:
            index: the stream's number among all streams of the file, as in FFmpeg's ``-map 0:1``.
            codec: FFmpeg's name: ``mov_text``, ``subrip``.
            language: ISO 639 code of three letters; None if the file doesn't state it.
            title: name that players show; None if the file has none.
            is_default: whether the file marks the stream as a default.
        """

        index: int
        codec: str
        language: str | None
        title: str | None
        is_default: bool

    @dataclass(frozen=True, slots=True)
    class Chapter:
        """A chapter of a file.

        Attributes:
            start_s, end_s: in seconds, by the file's clock, as `MediaInfo.Video.start_s`.
            title: its title; None if it has none.
        """

        start_s: float
        end_s: float
        title: str | None

    path: str
    container: str
    container_name: str
    duration_s: float | None
    start_s: float | None
    bit_rate: int | None
    size_bytes: int | None
    video: tuple[MediaInfo.Video, ...]
    audio: tuple[MediaInfo.Audio, ...]
    subtitles: tuple[MediaInfo.Subtitle, ...]
    undecodable: tuple[str, ...]
    chapters: tuple[MediaInfo.Chapter, ...]
    tags: Mapping[str, str]
    timecode: str | None

    def _repr_html_(self) -> str:
        streams = (
            (f"#{number} {kind}", ", ".join([codec, *facts]))
            for number, kind, codec, facts in facts_of_streams(self)
        )
        return table(self.path, [("file", ", ".join(facts_of_file(self))), *streams]) + player(self.path)

    @property
    def zero_s(self) -> float:
        """The file's timestamp, in seconds, from which `VideoFrame.time_s` and ``start`` count.

        It is 0 in MP4, QuickTime, Matroska, WebM and NUT: you read the time that was written for a frame. Other
        containers count from an arbitrary time (MPEG-TS), or shift all times for their codec (FLV): there it is
        `start_s`.
        """
        return float(exact_zero(self))

    @property
    def best_video(self) -> MediaInfo.Video | None:
        """The first video stream that the file marks as a default, or else the first; never an attached picture.

        In an animated AVIF, it's the animation: libav also lists a still picture.
        """
        streams = [stream for stream in self.video if not stream.is_attached_picture]
        if self.is_animated_avif:
            return max(streams, key=lambda stream: stream.frames or 0, default=None)
        return _best(streams)

    @property
    def is_animated_avif(self) -> bool:
        """Whether the file is an AVIF with several pictures at different times."""
        return self.tags.get("major_brand") == "avis"

    @property
    def best_audio(self) -> MediaInfo.Audio | None:
        """The first audio stream that the file marks as a default, or else the first."""
        return _best(self.audio)


def exact_zero(media: MediaInfo) -> Fraction:
    """`MediaInfo.zero_s` exactly: libav rounds the start of a file to microseconds, but not that of a stream."""
    if containers.known(media.container).keeps_times or media.start_s is None:
        return Fraction(0)
    streams: tuple[MediaInfo.Video | MediaInfo.Audio, ...] = (*media.video, *media.audio)
    exact = (
        round(Fraction(stream.start_s) / stream.time_base) * stream.time_base
        for stream in streams
        if stream.start_s is not None and stream.time_base and abs(stream.start_s - media.start_s) < 1e-6
    )
    return min(exact, default=Fraction(round(media.start_s * 1_000_000), 1_000_000))


def zero_of(media: MediaInfo, video: MediaInfo.Video) -> Fraction:
    """The timestamp of libav's, in seconds, from which the times of a video's frames count."""
    return exact_zero(media) + video.late_units * video.time_base


@dataclass(frozen=True, slots=True)
class Track:
    """A video stream of a file.

    Attributes:
        source: what FFmpeg reads, from `endpoints.source`.
    """

    source: str
    media: MediaInfo
    video: MediaInfo.Video


def matrix_name(code_point: int) -> str | None:
    """A `MediaInfo.Video`'s `color_matrix` for a code point of ITU-T H.273; None if it says nothing."""
    matrix = _MATRICES.get(code_point)
    return MATRIX_NAMES.get(matrix, matrix) if matrix else None


def without_decoder(media: MediaInfo, kind: str) -> str | None:
    """What to say of a file whose only streams of a kind are undecodable; None for any other."""
    if kind not in media.undecodable:
        return None
    return f"this FFmpeg has no decoder for the {kind} of {media.path} ({media.container_name})"


def check_no_grid(media: MediaInfo) -> None:
    """Checks that each video is more than a part of a picture.

    Raises:
        DecoderError: the file has a picture in tiles.
    """
    if tiles := sum(video.is_tile for video in media.video):
        raise DecoderError(
            f"the picture in {media.path} is a grid of {tiles} tiles, which libav doesn't put together. Convert it "
            f"with a recent FFmpeg: ffmpeg -i {shell_word(media.path)} OUT.png. Pass stream=0 for the first tile"
        )


def check_decodable(path: str, stream: MediaInfo.Video | MediaInfo.Audio) -> None:
    """Checks that a decoder of a stream can make something of it, and not noise.

    Raises:
        DecoderError: the stream is encrypted, or audio without a sample rate.
    """
    if stream.is_encrypted:
        kind = "video" if isinstance(stream, MediaInfo.Video) else "audio"
        raise DecoderError(
            f"the {kind} of {path} is encrypted. If it's an MP4 file, pass input_options={{'decryption_key': KEY}}, in "
            "hexadecimal digits"
        )
    if isinstance(stream, MediaInfo.Audio) and not (stream.sample_rate and stream.channels):
        raise DecoderError(
            f"the audio of {path} can't be decoded: it has no sample rate, so it may be damaged or encrypted"
        )


def _best(streams: Sequence[_Stream]) -> _Stream | None:
    return next((stream for stream in streams if stream.is_default), streams[0] if streams else None)


def facts_of_file(info: MediaInfo) -> Iterable[str]:
    """The container, its length and its size, in words."""
    from rich.filesize import decimal  # most who read a file show none of this

    yield info.container_name
    yield "duration unknown" if info.duration_s is None else clock(info.duration_s)
    if info.size_bytes is not None:
        yield decimal(info.size_bytes)
    if info.bit_rate is not None:
        yield _bit_rate(info.bit_rate)
    if info.timecode is not None:
        yield f"time code {info.timecode}"


def facts_of_streams(info: MediaInfo) -> list[tuple[int, str, str, Iterable[str]]]:
    """Each stream's number, kind, codec and facts, by their numbers."""
    streams = [
        *((one.index, "video", _codec(one), _facts_of_video(one)) for one in info.video),
        *((one.index, "audio", _codec(one), _facts_of_audio(one)) for one in info.audio),
        *(
            (one.index, "subtitles", one.codec, filter(None, (one.language, one.title)))
            for one in info.subtitles
        ),
    ]
    return sorted(streams, key=itemgetter(0))


def _codec(stream: MediaInfo.Video | MediaInfo.Audio) -> str:
    return f"{stream.codec} ({stream.profile})" if stream.profile else stream.codec


def _facts_of_video(stream: MediaInfo.Video) -> Iterable[str]:
    alpha = " and alpha" if stream.has_separate_alpha else ""
    yield f"{stream.pixel_format or 'pixel format unknown'}{alpha}"
    yield f"{stream.width}x{stream.height}"
    if stream.rotation:
        yield f"stored as {stream.stored_width}x{stream.stored_height} and turned {stream.rotation} degrees clockwise"
    if stream.sample_aspect_ratio is not None and stream.sample_aspect_ratio != 1:
        yield f"pixels of {ratio(stream.sample_aspect_ratio).replace('/', ':')}"
    if stream.is_attached_picture:
        yield "attached picture"
        return
    if stream.is_tile:
        yield "tile of a picture"
        return
    if stream.frame_rate is not None:
        yield f"{float(stream.frame_rate):.5g} frames/s{' (variable)' if stream.is_variable_frame_rate else ''}"
    yield "frames unknown" if stream.frames is None else f"{stream.frames} frames"
    yield from _times(stream)
    if stream.field_order not in (None, "progressive"):
        yield f"interlaced ({stream.field_order})"
    yield _colors(stream)
    if stream.mastering_display is not None and stream.mastering_display.luminance is not None:
        yield "mastered at {:g} to {:g} cd/m²".format(*stream.mastering_display.luminance)
    if stream.content_light is not None:
        yield f"light of {stream.content_light.max_cll} and {stream.content_light.max_fall} cd/m²"
    yield from stream.extras
    yield from _ends(stream)


def _facts_of_audio(stream: MediaInfo.Audio) -> Iterable[str]:
    yield f"{stream.sample_rate} Hz"
    yield stream.channel_layout or f"{stream.channels} channels"
    yield stream.sample_format or "sample format unknown"
    yield from _times(stream)
    yield from filter(None, (stream.language, stream.title))
    yield from _ends(stream)


def _times(stream: MediaInfo.Video | MediaInfo.Audio) -> Iterable[str]:
    if stream.duration_s is not None:
        yield clock(stream.duration_s)
    if stream.start_s:
        yield f"from {stream.start_s:g} s"


def _ends(stream: MediaInfo.Video | MediaInfo.Audio) -> Iterable[str]:
    if stream.is_encrypted:
        yield "encrypted"
    if stream.bit_rate is not None:
        yield _bit_rate(stream.bit_rate)
    if stream.is_default:
        yield "default"


def _colors(stream: MediaInfo.Video) -> str:
    others = {stream.color_primaries, stream.color_transfer} - {None, stream.color_matrix}
    if stream.color_matrix is stream.color_range is None and not others:
        return "colors untagged"
    named = f"{stream.color_matrix or 'matrix untagged'}, {stream.color_range or 'range untagged'}"
    return f"{named} ({', '.join(sorted(map(str, others)))})" if others else named


def clock(time_s: float) -> str:
    """Hours, minutes and seconds to a thousandth: 0:00:10.0"""
    thousandths = round(time_s * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    text = f"{minutes // 60}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"
    return text[:-2] + text[-2:].rstrip("0")  # one decimal stays


def _bit_rate(bits: int) -> str:
    return f"{bits / 1e6:.3g} Mbit/s" if bits >= 1_000_000 else f"{bits / 1e3:.3g} kbit/s"


def ratio(number: Fraction) -> str:
    """``30000/1001``"""
    return f"{number.numerator}/{number.denominator}"


def unusual_layout(audio: MediaInfo.Audio) -> str | None:
    """The channel layout, if it is not FFmpeg's default for that number of channels, to which it would mix."""
    layout = audio.channel_layout
    if layout in _USUAL_LAYOUTS:
        return None
    if layout.count(".") < 2:
        return layout
    # FFmpeg 5.1 has the channels of 5.1.2, but not the name.
    from av.audio.layout import AudioLayout

    return "+".join(channel.name for channel in AudioLayout(layout).channels)
