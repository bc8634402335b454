"""Verifies a written file: compares what it says of its video and sound with what was encoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from av.error import FFmpegError as LibavError

from penstock._common.messages import argument
from penstock._encoding.labels import Labels
from penstock._encoding.sound import AudioTrack, Sound
from penstock._facts.opening import first_packet_s
from penstock._facts.probing import probe
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.colors import UNTAGGED
from penstock._ffmpeg.command.pixel_formats import canonical
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._encoding.plan import EncodePlan
    from penstock._facts.info import AudioInfo, MediaInfo, VideoInfo

# Guessed: containers round times to 1/100 s at the worst (GIF), and a sound may move the picture by its priming.
_TOLERANCE_S = 0.1
# Chosen: times that are expected to be the same may differ by this much.
_SAME_S = 1e-3
# Chosen: a last subtitle may go on for a moment.
_SUBTITLES_LATER_S = 1.0
# Bits of samples, by FFmpeg's names of those that decoders output, and by ours.
_WHOLE_BITS = {"u8": 8, "s16": 16}
_BITS = {"int16": 16, "int32": 32, "float32": 24}
# Encoders that pack raw video, which libav calls so.
_PACKED = ("ayuv", "v210", "v308", "v408", "v410", "y41p", "yuv4")
# Containers write these in their own way.
_REWRITTEN = ("creation_time", "date", "location")
# Containers whose length libav guesses: MPEG program streams.
_WITHOUT_LENGTH = ("mpeg",)
# An MP4 file has two lengths. It depends on libav which one it reports, and FFmpeg writes one of them too short if
# frames with their own times are reordered.
_WITHOUT_LENGTH_OF_TIMES = (*_WITHOUT_LENGTH, endpoints.QUICKTIME)


@dataclass(frozen=True, slots=True)
class Expected:
    """What was encoded, which the file should state.

    Attributes:
        plan: of what was encoded.
        frames: how many there are.
        first_s: the time of the first one; None where a sound may move it.
        ends_s: when the last one ends at the earliest; None where the user's options may change times.
        sounds: what was encoded; none where the user's options may change it.
    """

    plan: EncodePlan
    frames: int
    first_s: Fraction | None
    ends_s: Fraction | None
    sounds: Sequence[Sound]

    @property
    def codec(self) -> str:
        """FFmpeg's name of the encoder, for messages."""
        return self.plan.codec


def differences(url: str, expected: Expected) -> list[str]:
    """Compares the file at `url` with what was encoded. Returns a sentence for each difference."""
    try:
        media = probe(endpoints.without_protocol(url))
    except DecoderError as error:
        return [f"the file could not be verified, because libav cannot read it: {error}"]
    except FileNotFoundError:  # it is gone
        return []
    except Exception as error:  # the file is whole, whatever libav or PyAV has met
        return [f"the file could not be verified: {error!r}"]
    found: list[str] = []
    video = media.best_video or next(iter(media.video), None)
    if expected.frames and (video is None or None in (video.pixel_format, video.width or None)):
        found.append(
            f"libav finds no picture of {expected.codec} in the file: take another container, or codec"
        )
    if video is not None:
        found += [
            *_check_pixels(video, expected),
            *_check_colors(video, expected),
            *_check_light(video, expected),
        ]
        found += _check_times(media, video, expected)
    if len(media.audio) < len(expected.sounds):
        found.append(f"the file has {len(media.audio)} sounds, and {len(expected.sounds)} were written")
    elif len(media.audio) == len(expected.sounds):
        for told, sound in zip(media.audio, expected.sounds, strict=True):
            found += _check_sound(told, sound)
    return [
        *found,
        *missing_labels(media, expected.plan.labels),
        *_check_ends(media, video, expected),
    ]


def _check_pixels(video: VideoInfo, expected: Expected) -> Iterable[str]:
    codec, told = expected.codec, video.pixel_format
    wanted = expected.plan.output_pixel_format if codec == "rawvideo" else None
    if video.codec == "rawvideo" != codec and codec not in _PACKED:
        yield f"the container has no name for {codec}, and readers take its bytes for raw video: write mkv"
    if wanted is not None and told is not None and canonical(told) != canonical(wanted):
        yield (
            f"the video is raw {wanted}, and the file says {told!r}, as which readers show it: give "
            f"{argument('codec', 'ffv1')} in mkv"
        )


def _check_colors(video: VideoInfo, expected: Expected) -> Iterable[str]:
    if (colors := expected.plan.colors) is None:
        return
    told = {
        "matrix": (colors.matrix, video.color_matrix, UNTAGGED.matrix),
        "range": (colors.range, video.color_range, UNTAGGED.range),
        "primaries": (colors.primaries, video.color_primaries, "unknown"),
        "transfer": (colors.transfer, video.color_transfer, "unknown"),
    }
    for name, (wanted, said, assumed) in told.items():
        if wanted is not None and wanted != (said or assumed):
            file = f"says {said!r}" if said else f"does not say so, which readers take for {assumed!r}"
            fix = f"{argument(f'colors.{name}', said or assumed)}, or libx264 in mp4, mov or mkv"
            yield f"the video's {name} is {wanted!r}, and the file of {expected.codec} {file}: give {fix}"


def _check_light(video: VideoInfo, expected: Expected) -> Iterable[str]:
    for name in ("mastering_display", "content_light"):
        wanted, told = getattr(expected.plan.request.colors, name), getattr(video, name)
        if wanted is not None and not _is_same_light(wanted, told):
            yield f"the video's {name} is {wanted}, and the file of {expected.codec} says {told}"


def _is_same_light(wanted: Any, told: Any) -> bool:
    """Whether two records of numbers and pairs of them are the same but for the rounding of encoders."""
    return told is not None and all(
        np.allclose(getattr(wanted, one.name), getattr(told, one.name) or 0, rtol=0.01, atol=1e-4)
        for one in fields(wanted)
    )


def _check_sound(told: AudioInfo, expected: Sound) -> Iterable[str]:
    if not told.channels or not told.sample_rate:
        yield f"libav cannot tell the samples of the file's {told.codec}: name another codec by AudioFile(codec=…)"
        return
    names = {"language": "mkv, or mp4 with a code of three letters such as 'deu'", "title": "mp4 or mkv"}
    for name, fix in names.items():
        wanted = getattr(expected.audio, name)
        if wanted not in (None, "", "und") and getattr(told, name) in (None, "und"):
            yield f"the file does not keep the {name} {wanted!r} of the sound: write {fix}"
    if expected.is_copied:
        return
    if told.channels != expected.channels:
        yield (
            f"the sound has {expected.channels} channels, and the file's {told.codec} has {told.channels}: give "
            f"another codec, such as 'flac', or {argument('options.ac', told.channels)}, which accepts it"
        )
    if told.sample_rate < expected.sample_rate:
        yield (
            f"the sound has {expected.sample_rate} samples per second, and the file's {told.codec} has "
            f"{told.sample_rate}: give another codec, such as 'flac', or {argument('options.ar', told.sample_rate)}, "
            "which accepts it"
        )
    kept = _WHOLE_BITS.get((told.sample_format or "").removesuffix("p"), 32)
    dtype = expected.audio.dtype if isinstance(expected.audio, AudioTrack) else "int16"
    if expected.audio.codec is None and kept < _BITS[dtype]:
        yield (
            f"the {dtype} samples become {kept} bits in {told.codec}: name another codec by AudioTrack(codec=…), "
            "or this one, which accepts it"
        )


def missing_labels(media: MediaInfo, expected: Labels) -> Iterable[str]:
    told = {name.lower(): value for name, value in media.tags.items()}
    lost = [
        name
        for name, value in expected.metadata
        if told.get(name.lower()) != value and not (name.lower() in _REWRITTEN and name.lower() in told)
    ]
    is_quicktime = media.container == endpoints.QUICKTIME
    if lost:
        fix = f": give {argument('options.movflags', 'use_metadata_tags')}" if is_quicktime else ": write mkv"
        yield f"the container does not keep the metadata {', '.join(lost)} as given{fix}"
    told_chapters = [(round(one.start_s, 2), one.title) for one in media.chapters]
    chapters = [(round(start_s, 2), title) for start_s, title in expected.chapters]
    if is_quicktime and chapters and told_chapters == [(0, chapters[0][1]), *chapters[1:]] != chapters:
        yield "MP4 and QuickTime begin the first chapter at 0 s: give one that begins there, or write mkv"
    elif chapters and told_chapters != chapters:
        found, given = len(told_chapters), len(chapters)
        yield f"the file has {found} chapters, and {given} others were given: write mp4, mov or mkv"
    if expected.subtitles is not None and not media.subtitles:
        yield "the file has no subtitles, and some were given"


def _check_ends(media: MediaInfo, video: VideoInfo | None, expected: Expected) -> Iterable[str]:
    """What goes on after the picture."""
    labels = expected.plan.labels
    if video is None or expected.ends_s is None:
        return
    ends_s, told_s = float(expected.ends_s), media.duration_s or 0.0
    for start_s, title in labels.chapters:
        if start_s > ends_s + _SAME_S:
            yield f"the chapter {title!r} begins at {start_s:g} s, and the picture ends at {ends_s:.3f} s"
    if labels.subtitles is not None and not expected.sounds and told_s > ends_s + _SUBTITLES_LATER_S:
        yield f"the picture ends at {ends_s:.3f} s, and the file with the last subtitle, at {told_s:.3f} s"


def _check_times(media: MediaInfo, video: VideoInfo, expected: Expected) -> Iterable[str]:
    # FFmpeg's muxer of AVI counts one more beside sound.
    if video.frames is not None and video.frames < expected.frames:
        yield f"the file says that it has {video.frames} frames, and {expected.frames} were written"
    if expected.ends_s is None:
        return
    first_s, rate = float(expected.first_s or 0), expected.plan.rate
    begins_s = _begins_s(media, video)
    may_be_late, fix, tolerance_s = expected.first_s is not None, "", _TOLERANCE_S
    if rate is not None:  # NUT begins late by what the encoder reorders, and nothing mends that
        may_be_late &= media.container == endpoints.QUICKTIME
        fix, tolerance_s = ": add delay_moov to movflags", min(_TOLERANCE_S, float(1 / rate / 2))
    if may_be_late and begins_s is not None and abs(begins_s - first_s) > tolerance_s:
        yield f"the first frame was written at {first_s:.3f} s, and the file has it at {begins_s:.3f} s{fix}"
    lasts_s, told_s = float(expected.ends_s) - first_s, video.duration_s
    unsure = _WITHOUT_LENGTH if rate is not None else _WITHOUT_LENGTH_OF_TIMES
    if told_s is not None and told_s < lasts_s - _TOLERANCE_S and media.container not in unsure:
        yield f"{lasts_s:.3f} s of video were written, and the file says that it has {told_s:.3f} s"


def _begins_s(media: MediaInfo, video: VideoInfo) -> float | None:
    """The time of the first frame, in seconds since `MediaInfo.zero_s`; None if nothing tells it."""
    if video.start_s is not None:
        return video.start_s - media.zero_s
    # With only a few frames, which the encoder may have reordered, libav reports no start, but its packets have times.
    with suppress(DecoderError, LibavError, ValueError):
        return first_packet_s(endpoints.source(media.path), media.container, video.index) - media.zero_s
    return None
