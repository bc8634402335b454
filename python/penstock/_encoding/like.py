"""Makes the arguments of an `Encoder` from a source video, so that the output keeps the source's properties."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock._common.messages import argument
from penstock._decoding.decoder import Decoder
from penstock._decoding.frame_times import ROUNDED_S, FrameTimes
from penstock._decoding.plan import is_full, yuv_colors
from penstock._encoding.encoders import AUTO_CODECS, LOSSLESS, encoder_for, software_encoder
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.request import Request
from penstock._encoding.timecode import TIMECODE, check_timecode
from penstock._encoding.timing import FrameTimeCheck
from penstock._facts.completeness import CHEAP_BYTES
from penstock._facts.info import MediaInfo
from penstock._ffmpeg.command.arguments import format_seconds, frame_rate
from penstock._ffmpeg.command.colors import MATRICES, holds_hdr_metadata
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_ENCODER_SETTINGS,
    Colors,
)
from penstock._ffmpeg.program.capabilities import encoder_pixel_formats, find_ffmpeg
from penstock._formats import containers, encoders
from penstock._formats.pixel_formats import canonical, has_alpha, of_channels, pixel_format_of
from penstock._platform.paths import shell_word
from penstock.errors import DecoderError

#: The warning of what is not kept.
LOST = "the output doesn't keep the source's {}"
# For a source with one picture.
_USUAL_FPS = 25
# Chosen: more than what codecs add at the end of a sound.
_SOUND_LONGER_S = 0.25
# Chosen: the first frame may be shown so late without a word. Sound that is encoded moves it by less.
_BEGINS_LATER_S = 0.05
# Chosen: film repeats a field of every second frame, and other patterns begin within a few.
_TELECINE_FRAMES = 10
# What libav tells of the file itself, and not of its content.
_TECHNICAL = frozenset(("compatible_brands", "duration", "encoder", "major_brand", "minor_version", TIMECODE))


def with_codec(output: Path | str, encoder: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments `encoder` with the codec that the name of `output` means, if they name none."""
    Request.of(output, {"fps": None, **encoder}).check_types()
    codec, container = encoder.get("codec", AUTO), (encoder.get("options") or {}).get("f")
    found = encoder_for(
        codec,
        _program(encoder),
        Output(str(output), container),
        is_lossless=encoder.get("quality") == LOSSLESS,
        frames=encoder.get("pixel_format", DEFAULT_FORMAT),
    )
    return {**encoder, "codec": codec if codec in AUTO_CODECS else found}


def arguments_like_picture(
    video: MediaInfo.Video, size: tuple[int, int] | None, given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Adds to `given` the arguments that keep the source's colors, pixel format and aspect ratio.

    Returns:
        The arguments, and which properties of the source the result loses.
    """
    arguments, codec, frames = dict(given), _encoder(given), given.get("pixel_format", DEFAULT_FORMAT)
    colors = cast("Colors", given.get("colors", DEFAULT_COLORS))
    if "colors" not in given:
        display = video.mastering_display
        # The matrix applies if the frames are YUV, or if the encoder converts them to YUV. Lossless encodes do not.
        samples = yuv_colors(video, frames)
        is_given = samples is not None
        encoder = encoders.known(codec)
        becomes_yuv = encoder.is_playable or bool(encoders.codec_of(codec).full_chroma_profiles)
        is_yuv = is_given or (becomes_yuv and given.get("quality") != LOSSLESS)
        has_matrix = is_yuv and not encoders.codec_of(codec).is_jpeg  # which has one for all
        tag = video.color_matrix if has_matrix and video.color_matrix in MATRICES else "auto"
        has_light = display is not None or video.content_light is not None
        is_whole = display is None or display.is_complete
        keeps_light = has_light and is_yuv and is_whole and holds_hdr_metadata(_program(given), codec)
        takes_full = encoder.is_playable and encoder.has_range
        has_full = is_full(video, frames) and (is_given or takes_full)
        colors = Colors(
            matrix=cast("Any", tag if samples is None else samples.matrix),
            range="full" if has_full else "auto",
            primaries=video.color_primaries or "auto",
            transfer=video.color_transfer or "auto",
            mastering_display=display if keeps_light else None,
            content_light=video.content_light if keeps_light else None,
        )
    arguments["colors"] = colors
    if "output_pixel_format" not in given and (kept := _pixel_format(video, given)) is not None:
        arguments["output_pixel_format"] = kept
    options = dict(given.get("options") or {})
    width, height = video.width, video.height
    aspect = video.sample_aspect_ratio
    is_scaled = size not in (None, (width, height))
    if aspect is not None and aspect != 1 and not is_scaled:
        shape = width * aspect / height  # of the picture
        arguments["options"] = {"aspect": f"{shape.numerator}:{shape.denominator}"} | options
    lost = {
        "HDR metadata": (video.mastering_display and not colors.mastering_display)
        or (video.content_light and not colors.content_light),
        "interlacing": video.field_order not in (None, "progressive"),
        "pixel aspect ratio, because the size is different": aspect not in (None, 1) and is_scaled,
    }
    missed = [what for what, is_lost in lost.items() if is_lost]
    return arguments, [*missed, *video.extras, *_lost_samples(video, frames, given)]


def _lost_samples(video: MediaInfo.Video, frames: str, arguments: Mapping[str, Any]) -> Iterable[str]:
    """What is lost if the frames of `video` are read in the pixel format `frames`, and which format keeps it."""
    name = video.pixel_format or ""
    source, read = pixel_format_of(name), pixel_format_of(frames)
    has_alpha_itself = video.has_separate_alpha or has_alpha(name)
    lost = ["alpha"] if has_alpha_itself and not has_alpha(frames) else []
    if source is not None and read is not None and read.depth < source.depth:
        held = map(pixel_format_of, encoder_pixel_formats(_program(arguments), _encoder(arguments)))
        if any(one is not None and one.depth > read.depth for one in held):
            lost.append(f"{source.depth} bits")
    if lost:
        depth = 8 if source is None else source.depth
        sample_bytes = None if depth > 16 else 2 if depth > 8 else 1
        kept_by = of_channels(4 if has_alpha_itself else 3, sample_bytes)
        fix = f"Read them with pixel_format={kept_by!r}"
        yield f"{' and '.join(lost)}, because the frames are {frames}. {fix}"


def arguments_like_file(
    source: Decoder | MediaInfo, output: str | os.PathLike[str] | BinaryIO, given: Mapping[str, Any]
) -> tuple[dict[str, Any], FrameTimeCheck]:
    """The arguments of an `Encoder` to `output` whose file is like `source`, and what its frames must be.

    Raises:
        DecoderError: there is no video.
        TypeError: `source` is something else.
    """
    if not isinstance(source, Decoder | MediaInfo):
        raise TypeError(f"the source must be a Decoder or the result of probe, not {type(source).__name__}")
    decoder = source if isinstance(source, Decoder) else None
    media = source.file if isinstance(source, Decoder) else source
    video = media.best_video if decoder is None else decoder.stream
    if video is None:
        raise DecoderError(f"{media.path} has no video")
    container = (given.get("options") or {}).get("f")
    to = Output.of(output, container)
    given = given if decoder is None else {**_form(decoder), **given}
    arguments = with_codec(to.target, given)
    size = given.get("size", (video.width, video.height) if decoder is None else decoder.size)
    arguments, lost = arguments_like_picture(video, size, arguments)
    options = None if decoder is None else decoder._options
    begins_later = options is not None and bool(options.start)
    if options is not None and options.keeps_stored_orientation and video.rotation:
        lost.append(f"rotation by {video.rotation} degrees")
    found: dict[str, Any] = {"size": size}
    if "fps" not in arguments:
        found["fps"] = _rate(media, video, decoder, has_times=to.facts.holds_times)
        if found["fps"] is not None:
            lost += _lost_times(media, video, begins_later=begins_later, varies=video.is_variable_frame_rate)
    is_film = to.holds_sound  # the others are pictures
    if "audio" not in arguments and media.audio:
        kept_sounds = 0
        is_encrypted = any(one.is_encrypted for one in media.audio) or (
            decoder is not None and decoder._opened.decryption
        )
        if is_film and not begins_later and not is_encrypted and _is_readable(media.path):
            found["audio"], kept_sounds = media.path, 1
        first_s = _first_s(decoder) if is_film and begins_later else None
        lost += _lost_sounds(media, video, kept_sounds, first_s=first_s)
    if is_film:
        found |= arguments_like_labels(media, arguments)
        is_part = begins_later or (options is not None and (options.count, options.end) != (None, None))
        if is_part and found.pop("chapters", None):
            lost.append("chapters, because the output is only a part of it")
        kept_timecode, lost_timecode = arguments_like_timecode(
            media, {**found, **arguments}, begins_later=begins_later
        )
        found, lost = found | kept_timecode, [*lost, *lost_timecode]
    else:
        labels = {
            "metadata": any(_metadata(media)),
            "chapters": bool(media.chapters),
            TIMECODE: bool(media.timecode),
        }
        lost += [what for what, is_there in labels.items() if is_there and what not in arguments]
    lost += _lost_streams(media, video)
    if media.subtitles and "subtitles" not in arguments:
        lost.append(f"subtitles. Pass {argument('subtitles', 'subtitles.srt')} to add them")
    rate_given, has_sound = "fps" in arguments, bool(found.get("audio"))
    arguments = {**found, **arguments}
    if arguments["fps"] is None and not video.is_variable_frame_rate:
        filtered_rate = None if decoder is None else decoder._plan.filtered_rate
        arguments["nominal_fps"] = filtered_rate or video.frame_rate
    return arguments, FrameTimeCheck(
        lost=[LOST.format(what) for what in lost],
        is_like=True,
        rate_given=rate_given,
        source_s=_source_s(media, video, decoder, arguments) if has_sound else None,
    )


def _form(decoder: Decoder) -> dict[str, Any]:
    """The arguments of an `Encoder` that takes the frames of a decoder as they are."""
    options, arguments = decoder._options, {"pixel_format": decoder.pixel_format}
    given = {"channels_first": options.channels_first, "value_range": options.value_range}
    return arguments | {name: value for name, value in given.items() if value}


def lost_by_map(
    media: MediaInfo, frames: FrameTimes, output: str, *, start: float | None = None, end: float | None = None
) -> Iterable[str]:
    """What `map_video` loses of a file's times, sounds and subtitles, in the words of `arguments_like_file`."""
    yield from _lost_times(media, frames.video, begins_later=bool(start), varies=False)
    ends_s = None if end is not None else media.zero_s + frames.times_s[-1] + frames.last_s
    yield from _lost_sounds(media, frames.video, min(1, len(media.audio)), picture_ends_s=ends_s)
    yield from _lost_streams(media, frames.video)
    if media.subtitles:
        codec = Output(output).facts.subtitle_encoder or "copy"
        added = f"ffmpeg -i {shell_word(output)} -i {shell_word(media.path)} -map 0 -map 1:s -c copy -c:s {codec} NEW"
        yield f"subtitles. Add them with: {added}"


def arguments_like_labels(
    media: MediaInfo, given: Mapping[str, Any], *, begins_s: float = 0.0
) -> dict[str, Any]:
    """The arguments that keep the source's tags and chapters, without those that are `given`.

    Args:
        begins_s: the time of the source's first frame, if the result begins with it.
    """
    labels = {"metadata": dict(_metadata(media)), "chapters": [*_chapters(media, begins_s)]}
    return {name: label for name, label in labels.items() if name not in given}


def pictures_s(media: MediaInfo) -> float | None:
    """How long the pictures of a file last; None if that isn't known, or takes long to find out."""
    video = media.best_video
    if video is not None and containers.known(media.container).has_boxes:
        return video.duration_s
    if video is None or not _is_cheap(media):
        return None
    with suppress(DecoderError):  # packets have no times
        frames = FrameTimes.of(media)
        return frames.times_s[-1] - frames.times_s[0] + frames.last_s
    return None


def arguments_like_timecode(
    media: MediaInfo, given: Mapping[str, Any], *, begins_later: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The argument that keeps the source's time code beside those `given`, and what of it is lost."""
    if media.timecode is None or TIMECODE in (*given, *map(str.lower, given.get("metadata") or ())):
        return {}, []
    if begins_later:
        return {}, ["time code, because the output begins later"]
    try:
        check_timecode(media.timecode, given["fps"] and frame_rate(given["fps"]))
    except ValueError as error:
        return {}, [f"time code, because {error}"]
    return {TIMECODE: media.timecode}, []


def _source_s(
    media: MediaInfo, video: MediaInfo.Video, decoder: Decoder | None, arguments: Mapping[str, Any]
) -> float | None:
    """How long the result must last so that no sound is lost, and at a constant rate no frame; None if unknown."""
    picture_s, sound = _picture_s(video, decoder), media.best_audio
    if picture_s is None or arguments["fps"] is not None or sound is None or sound.duration_s is None:
        return picture_s
    return min(picture_s, sound.duration_s)


def _picture_s(video: MediaInfo.Video, decoder: Decoder | None) -> float | None:
    """How long the pictures last that are read from the file's beginning; None if that can't be known."""
    options = None if decoder is None else decoder._options
    if options is None:
        return video.duration_s
    if options.filters is not None or video.frame_rate is None:
        return None
    if options.count is not None and options.fps is None and video.is_variable_frame_rate:
        return None
    counted_s = math.inf if options.count is None else options.count / float(options.fps or video.frame_rate)
    ends_s = math.inf if options.end is None else options.end
    return min(counted_s, ends_s, video.duration_s or 0.0)


def _rate(
    media: MediaInfo, video: MediaInfo.Video, decoder: Decoder | None, *, has_times: bool
) -> Fraction | int | None:
    """Frames per second; None where frames come with times of their own, and the container has a place for them."""
    if decoder is not None and decoder._options.fps is not None:
        return decoder._options.rate
    # Those of a part are counted from the beginning of the file.
    is_part = decoder is not None and decoder._options.start
    is_timed = video.is_variable_frame_rate
    if decoder is not None and not is_part and has_times:
        is_timed = has_own_times(decoder)
    return None if is_timed and has_times else video.frame_rate or _USUAL_FPS


def has_own_times(decoder: Decoder) -> bool:
    """Whether a decoder's frames come at other times than those of a constant rate."""
    media, video = decoder.file, decoder.stream
    if video.start_s is None:
        return video.is_variable_frame_rate or not _decodes_evenly(decoder)
    # A filter may change how many frames there are.
    return decoder._options.filters is not None or not _is_constant(media, video, decoder)


def _lost_times(
    media: MediaInfo, video: MediaInfo.Video, *, begins_later: bool, varies: bool
) -> Iterable[str]:
    """What is lost if frames are shown from 0 on; `varies`: and at a constant rate, which the source doesn't have."""
    if varies:
        yield "variable frame rate"
    begins_s = (video.start_s or 0.0) - media.zero_s
    if begins_s >= _BEGINS_LATER_S and not begins_later:
        yield f"time before the first frame, {begins_s:.3f} s"


def _lost_streams(media: MediaInfo, video: MediaInfo.Video) -> Iterable[str]:
    """What is lost of a file's streams for which an `Encoder` has no argument."""
    others = [one for one in media.video if one.index != video.index and not one.is_tile]
    if any(one.is_attached_picture for one in others):
        yield "attached picture"
    # An animated AVIF has a still picture as well.
    lost = 0 if media.is_animated_avif else sum(not one.is_attached_picture for one in others)
    if lost:
        yield f"video tracks ({lost} of {lost + 1})"
    for kind in dict.fromkeys(media.undecodable):
        yield kind if kind == "attachment" else f"{kind} stream that Penstock can't decode"


def _first_s(decoder: Decoder | None) -> float | None:
    """The time of the first frame of a decoder with a start, which may have begun before the start."""
    if decoder is None or not (start := decoder._options.start):
        return None
    return float(start if decoder._options.fps is not None else decoder._begins_s(start))


def _lost_sounds(
    media: MediaInfo,
    video: MediaInfo.Video,
    kept: int,
    *,
    first_s: float | None = None,
    picture_ends_s: float | None = None,
) -> Iterable[str]:
    """What is lost of a file's audio if so many of its tracks are kept.

    Args:
        first_s: the time of the decoder's first frame, if it has a start.
        picture_ends_s: by the file's clock, if its packets were read.
    """
    if kept:
        yield from _lost_end_of_sound(media, video, picture_ends_s)
    if kept >= len(media.audio):
        return
    lost = f"audio tracks ({len(media.audio) - kept} of {len(media.audio)})"
    if first_s is None:
        yield lost
        return
    # A copy would begin with the packet that the video's keyframe needs, and FFmpeg counts from the first timestamp.
    from_s = max(0.0, first_s - ((media.start_s or 0.0) - media.zero_s))
    track = 0 if media.best_audio is None else media.best_audio.index
    cut = f"ffmpeg -ss {format_seconds(from_s)} -i {shell_word(media.path)} -map 0:{track} -c:a flac part.mka"
    yield f"{lost}, because the decoder has a start. Pass {argument('audio', 'part.mka')}, made with: {cut}"


def _lost_end_of_sound(
    media: MediaInfo, video: MediaInfo.Video, picture_ends_s: float | None = None
) -> Iterable[str]:
    """What is lost of a sound that ends with the picture, where it is known how long each is."""
    sound = media.best_audio
    if sound is None or sound.duration_s is None:
        return
    if containers.known(media.container).has_elements:  # which tells only when the last of its streams ends
        if picture_ends_s is None or media.subtitles:
            return
    elif picture_ends_s is None and video.duration_s is not None:
        picture_ends_s = (video.start_s or 0.0) + video.duration_s
    ends_s = (sound.start_s or 0.0) + sound.duration_s
    if picture_ends_s is not None and ends_s > picture_ends_s + _SOUND_LONGER_S:
        yield f"last {ends_s - picture_ends_s:.3f} s of audio, because the video ends before"


def _metadata(media: MediaInfo) -> Iterable[tuple[str, str]]:
    """What FFmpeg can write of it."""
    for name, value in media.tags.items():
        is_technical = name.lower() in _TECHNICAL or value.startswith("Lavf")  # AVI: the tag "software"
        if value and not is_technical and "=" not in name and "\0" not in value:
            yield name, value


def _is_constant(media: MediaInfo, video: MediaInfo.Video, decoder: Decoder) -> bool:
    """Whether frames come at a constant rate from the beginning of the file on."""
    if video.is_variable_frame_rate or video.start_s:
        return False
    if containers.known(media.container).has_boxes:
        return True
    # Others tell of their first frames. The packets of larger files would take longer than a user waits for nothing.
    if not _is_cheap(media) or media.best_video is None or video.index != media.best_video.index:
        return False
    try:
        return FrameTimes.of(media).rate is not None
    except DecoderError:  # packets have no times
        return _decodes_evenly(decoder)


def _decodes_evenly(decoder: Decoder) -> bool:
    """Whether the first frames come at a constant rate, in a file whose packets don't tell.

    MPEG-2 and H.264 can say of each frame that one of its fields is repeated (soft telecine).
    """
    rate, path = decoder.stream.frame_rate, decoder.file.path
    if rate is None or not Path(path).is_file():
        return True
    options, times_s = decoder._options, list[float]()
    with (
        suppress(DecoderError),
        Decoder(
            path,
            count=_TELECINE_FRAMES,
            stream=options.stream,
            isolated=options.isolated,
            settings=options.settings,
        ) as first,
    ):
        times_s += (frame.time_s for frame in first if frame.time_s is not None)
    return all(abs(time_s - times_s[0] - number / rate) <= ROUNDED_S for number, time_s in enumerate(times_s))


def _is_cheap(media: MediaInfo) -> bool:
    """Whether the packets of a file can be read while a user waits."""
    return Path(media.path).is_file() and (media.size_bytes or 0) <= CHEAP_BYTES


def _pixel_format(video: MediaInfo.Video, arguments: Mapping[str, Any]) -> str | None:
    """The source's pixel format, where 8 bits of yuv420p would be less, and the frames and the codec have it."""
    codec, name = _encoder(arguments), canonical(video.pixel_format or "")  # yuv422p for a camera's yuvj422p
    source, frames = pixel_format_of(name), pixel_format_of(arguments.get("pixel_format", DEFAULT_FORMAT))
    if source is None or frames is None or source.kind != "yuv" or source.has_alpha:
        return None
    is_more = source.depth > 8 or source.subsampling != (2, 2)
    if arguments.get("quality") == LOSSLESS:  # whose format is that of the frames
        return None
    if not encoders.known(codec).is_playable or not is_more or frames.depth < source.depth:
        return None
    return name if name in encoder_pixel_formats(_program(arguments), codec) else None


def _program(arguments: Mapping[str, Any]) -> str:
    settings = arguments.get("settings", DEFAULT_ENCODER_SETTINGS)
    return find_ffmpeg(settings.ffmpeg)


def _encoder(arguments: Mapping[str, Any]) -> str:
    """FFmpeg's encoder. For `auto-…` codecs, the software encoder, which supports at least what hardware does."""
    return software_encoder(str(arguments["codec"]), _program(arguments))


def _is_readable(path: str) -> bool:
    """Whether a path or URL can be opened once more."""
    return "://" in path or Path(path).is_file()


def _chapters(media: MediaInfo, begins_s: float) -> Iterable[tuple[float, str]]:
    begun_s = -1.0
    for chapter in media.chapters:
        start_s = max(0.0, chapter.start_s - media.zero_s - begins_s)
        if start_s > begun_s:
            yield start_s, chapter.title or ""
            begun_s = start_s
