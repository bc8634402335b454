"""The facts about a media file that `probe` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

_Stream = TypeVar("_Stream", "VideoInfo", "AudioInfo")


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """A stream of video.

    Sizes come in two kinds. `width` and `height` are those of the picture after it was turned by `rotation`, as players
    show it and as FFmpeg decodes it unless told not to. `stored_width` and `stored_height` are those of the frames in
    the file. None of them knows of `sample_aspect_ratio`: all count pixels. A mirrored picture is not told.

    Attributes:
        index: the stream's number among all of the file, as in FFmpeg's ``-map 0:1``.
        codec: FFmpeg's name: ``h264``, ``hevc``; "unknown" if it knows none.
        profile: the codec's profile, such as ``High``; None if it has none.
        pixel_format: FFmpeg's name: ``yuv420p``, ``gray10le``; None if no frame told it.
        width, height: in pixels, as displayed.
        stored_width, stored_height: in pixels, before rotation.
        rotation: degrees clockwise by which the stored picture is turned for display: 0, 90, 180 or 270; for other
            angles the nearest degree from 0 to 359, with sizes as stored. From the display matrix, which is what FFmpeg
            turns by; it ignores the old ``rotate`` tag where there is no matrix, and so is it here.
        sample_aspect_ratio: width by height of a pixel as displayed; None if the file does not say.
        frame_rate: frames per second on average, else the base rate that FFmpeg guesses; None if there is none.
        is_variable_frame_rate: a hint: the average differs notably from the base rate, which FFmpeg guesses from the
            first frames. Of Matroska that states a rate which its frames do not keep it is False all the same.
        frames: how many there are, by the container's own word, or counted by decoding if that was asked for; None if
            the container does not say. Players may hide some (edit lists), and a damaged file may have fewer.
        duration_s: in seconds, of the stream, else of the whole file; None if unknown.
        start_s: time of the first frame in seconds; None if unknown.
        time_base: the unit of timestamps in seconds, such as 1/15360.
        color_matrix: ``bt601``, ``bt709``, ``bt2020`` (non-constant luminance), FFmpeg's name of any other (``gbr`` of
            RGB), or None if the file does not say.
        color_range: ``limited`` (tv), ``full`` (pc), or None if the file does not say.
        color_primaries, color_transfer: by FFmpeg's names: ``bt709``, ``smpte2084``; None if the file does not say.
        bit_depth: bits of a sample; None if unknown.
        field_order: ``progressive``, or of interlaced video ``tt``, ``bb``, ``tb`` or ``bt``; None if the file does not
            say.
        bit_rate: bits per second; None if the file does not say.
        has_separate_alpha: alpha lies beside the frames, as in WebM, and `pixel_format` does not tell of it.
        is_default: whether the file says that this stream is for everybody.
        is_attached_picture: it is one picture beside the audio, such as a cover, and no video.
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
    bit_depth: int | None
    field_order: str | None
    bit_rate: int | None
    has_separate_alpha: bool
    is_default: bool
    is_attached_picture: bool


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """A stream of audio.

    Attributes:
        index: the stream's number among all of the file, as in FFmpeg's ``-map 0:1``.
        codec: FFmpeg's name: ``aac``, ``pcm_s16le``; "unknown" if it knows none.
        profile: the codec's profile, such as ``LC``; None if it has none.
        sample_rate: samples per second of each channel.
        channels: how many.
        channel_layout: FFmpeg's name: ``stereo``, ``5.1``; None if the file does not say.
        sample_format: FFmpeg's name of what its decoder gives: ``s16``, ``fltp`` (planar); None if unknown.
        duration_s: in seconds, of the stream, else of the whole file; None if unknown.
        start_s: time of the first sample in seconds; None if unknown.
        time_base: the unit of timestamps in seconds, such as 1/44100.
        bit_rate: bits per second; None if the file does not say.
        is_default: whether the file says that this stream is for everybody.
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


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """A file, or what is behind a URL.

    Attributes:
        path: the path or URL, as it was given.
        container: FFmpeg's names of the container: ``mov,mp4,m4a,3gp,3g2,mj2``, ``matroska,webm``.
        container_name: its name for people: ``QuickTime / MOV``.
        duration_s: in seconds; None if unknown, as of live streams.
        start_s: time of the earliest frame or sample in seconds; None if unknown.
        bit_rate: bits per second, over all; None if unknown.
        size_bytes: None if unknown.
        video: its streams of video, attached pictures among them.
        audio: its streams of audio.
        tags: what the file says of itself: ``title``, ``encoder``.
    """

    path: str
    container: str
    container_name: str
    duration_s: float | None
    start_s: float | None
    bit_rate: int | None
    size_bytes: int | None
    video: tuple[VideoInfo, ...]
    audio: tuple[AudioInfo, ...]
    tags: Mapping[str, str]

    @property
    def best_video(self) -> VideoInfo | None:
        """The first stream of video that is no attached picture, of those that the file calls default if it does."""
        return _best([stream for stream in self.video if not stream.is_attached_picture])

    @property
    def best_audio(self) -> AudioInfo | None:
        """The first stream of audio, of those that the file calls default if it does."""
        return _best(self.audio)


def _best(streams: Sequence[_Stream]) -> _Stream | None:
    return next((stream for stream in streams if stream.is_default), streams[0] if streams else None)
