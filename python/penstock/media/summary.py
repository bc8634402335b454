"""A media file in words, for the command line and notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.filesize import decimal

if TYPE_CHECKING:
    from penstock.media.info import AudioInfo, MediaInfo, VideoInfo


def facts_of_file(info: MediaInfo) -> Iterable[str]:
    """The container, its length and its size."""
    yield info.container_name
    yield "duration unknown" if info.duration_s is None else clock(info.duration_s)
    if info.size_bytes is not None:
        yield decimal(info.size_bytes)
    if info.bit_rate is not None:
        yield _bit_rate(info.bit_rate)


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


def _codec(stream: VideoInfo | AudioInfo) -> str:
    return f"{stream.codec} ({stream.profile})" if stream.profile else stream.codec


def _facts_of_video(stream: VideoInfo) -> Iterable[str]:
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
    yield from _ends(stream)


def _facts_of_audio(stream: AudioInfo) -> Iterable[str]:
    yield f"{stream.sample_rate} Hz"
    yield stream.channel_layout or f"{stream.channels} channels"
    yield stream.sample_format or "sample format unknown"
    yield from _times(stream)
    yield from _ends(stream)


def _times(stream: VideoInfo | AudioInfo) -> Iterable[str]:
    if stream.duration_s is not None:
        yield clock(stream.duration_s)
    if stream.start_s:
        yield f"from {stream.start_s:g} s"


def _ends(stream: VideoInfo | AudioInfo) -> Iterable[str]:
    if stream.bit_rate is not None:
        yield _bit_rate(stream.bit_rate)
    if stream.is_default:
        yield "default"


def _colors(stream: VideoInfo) -> str:
    others = {stream.color_primaries, stream.color_transfer} - {None, stream.color_matrix}
    if stream.color_matrix is stream.color_range is None and not others:
        return "colours untagged"
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
