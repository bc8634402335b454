"""Compares a written file with what was encoded: what it says of its streams, and in a rehearsal each frame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import av
import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError

from penstock._common.messages import argument, plural
from penstock._encoding.encoders import LOSSLESS
from penstock._encoding.labels import Labels
from penstock._encoding.pattern import COMPARED, Picture, tone
from penstock._encoding.sound import AudioTrack, Sound, most_priming_s
from penstock._encoding.timecode import is_same_timecode
from penstock._facts.opening import first_packet_s
from penstock._facts.probing import probe
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.colors import UNTAGGED
from penstock._ffmpeg.command.settings import DecoderSettings
from penstock._formats import containers, encoders
from penstock._formats.pixel_formats import (
    canonical,
    has_alpha,
    is_float,
    is_gray,
    is_rgb,
    pixel_format_of,
)
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.video_frame import VideoFrame
    from penstock._encoding.plan import EncodePlan
    from penstock._facts.info import MediaInfo

# Guessed: containers round times to 1/100 s at the worst (GIF), and a sound may move the picture by its priming.
_TOLERANCE_S = 0.1
# Chosen: times that are expected to be the same may differ by this much.
_SAME_S = 1e-3
# Chosen: a last subtitle may go on for a moment.
_SUBTITLES_LATER_S = 1.0
# Bits of samples, by FFmpeg's names of those that decoders output, and by ours.
_WHOLE_BITS = {"u8": 8, "s16": 16}
_BITS = {"int16": 16, "int32": 32, "float32": 24}
# Containers write these in their own way.
_REWRITTEN = ("creation_time", "date", "location")

# Tried with all encoders of FFmpeg 5.1 at their defaults: lossy ones are at most 8 off, and swapped planes 40 or more.
_COARSE_ERROR = 12
# Pixels whose mean is compared: noise is lost in a lossy codec.
_BLOCK = 8
# Chosen: two steps of 8 bits. Samples under a wrong header are noise.
_SAMPLE_ERROR = 2 / 128
# What readers take RGB and images without tags for. The transfer of bt709 video is usually shown as sRGB.
_SRGB = ("bt709", "iec61966-2-1")
# Those of a source, which nobody has asked for, and which differ little from them.
_SDR = (*_SRGB, "smpte170m", "bt470bg")
# GIF counts hundredths of a second, and nothing that has times is coarser.
_STEP_S = 0.0101

Kind = Literal[
    "picture",
    "count",
    "samples",
    "times",
    "pixels",
    "colors",
    "sound",
    "heard",
    "timecode",
    "labels",
    "unverified",
]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a file differs from what was encoded.

    Attributes:
        kind: in what: the pictures, their number, exact samples, times; what the file says of its pixels, colors, sound
            and labels. "unverified" if nobody can tell.
        sentence: for people.
    """

    kind: Kind
    sentence: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What was encoded, which the file should have.

    Attributes:
        plan: of what was encoded.
        frames: how many there are.
        first_s: the time of the first one; None where a sound may move it.
        ends_s: when the last one ends at the earliest; None where the user's options may change times.
        sounds: what was encoded; none where the user's options may change it.
        pictures: each frame; none if only what the file says is to be compared.
        is_like: the colors are those of a source, and nobody has asked for them.
    """

    plan: EncodePlan
    frames: int
    first_s: Fraction | None
    ends_s: Fraction | None
    sounds: Sequence[Sound]
    pictures: Sequence[Picture] = ()
    is_like: bool = False

    @property
    def codec(self) -> str:
        """FFmpeg's name of the encoder, for messages."""
        return self.plan.codec


def compare(url: str, expected: Expected) -> list[Difference]:
    """How the file at `url` differs from what was encoded."""
    try:
        media = probe(endpoints.without_protocol(url))
        found = [*_compare_facts(media, expected)]
        if expected.pictures and not any(one.kind == "picture" for one in found):
            found += [*_compare_frames(media.path, expected), *_compare_samples(media, expected)]
        return found
    except DecoderError as error:
        actual = str(error).replace(endpoints.without_protocol(url), "the file")
        sentence = f"the file couldn't be verified, because libav can't read it: {actual}"
    except FileNotFoundError:
        if not expected.pictures:  # somebody has moved it, and nobody moves that of a rehearsal
            return []
        sentence = "the file couldn't be verified, because FFmpeg wrote no file of that name"
    except Exception as error:  # the file is whole, whatever libav or PyAV has met
        sentence = f"the file couldn't be verified: {error!r}"
    return [Difference("unverified", sentence)]


def lost_colors_of_image(path: str, expected: Expected) -> Iterable[str]:
    """Which colors an image of a sequence doesn't have, in sentences."""
    with suppress(DecoderError, OSError):
        video = probe(path).best_video
        yield from () if video is None else _check_colors(video, expected)


def _compare_facts(media: MediaInfo, expected: Expected) -> Iterable[Difference]:
    """How what the file says differs."""
    video = media.best_video or next(iter(media.video), None)
    if expected.frames and (video is None or None in (video.pixel_format, video.width or None)):
        yield Difference(
            "picture",
            f"libav finds no {expected.codec} video in the file. "
            + (_raw_remedy(expected) or "Use another container, or another codec"),
        )
    if video is not None:
        yield from (Difference("pixels", one) for one in _check_pixels(video, expected))
        if expected.is_like:
            yield from (
                Difference("pixels", one)
                for one in missing_aspect(video, expected.plan.options.get("aspect"))
            )
        yield from (Difference("colors", one) for one in _check_colors(video, expected))
        yield from (Difference("colors", one) for one in _check_light(video, expected))
        yield from (Difference("times", one) for one in _check_times(media, video, expected))
    if len(media.audio) < len(expected.sounds):
        yield Difference(
            "sound", f"the file has {len(media.audio)} of {plural(len(expected.sounds), 'audio track')}"
        )
    elif len(media.audio) == len(expected.sounds):
        for actual, sound in zip(media.audio, expected.sounds, strict=True):
            yield from (Difference("sound", one) for one in _check_sound(actual, sound))
    yield from (Difference("timecode", one) for one in missing_timecode(media, expected.plan.labels))
    yield from (Difference("labels", one) for one in missing_labels(media, expected.plan.labels))
    yield from (Difference("labels", one) for one in _check_ends(media, video, expected))


def _compare_frames(path: str, expected: Expected) -> Iterable[Difference]:
    """How the frames differ that a `Decoder` delivers."""
    try:
        got = [(frame.time_s, np.asarray(frame)) for frame in _frames(path, COMPARED)]
    except DecoderError as error:
        if isinstance(error.__cause__, NotImplementedError):  # libav can't convert the pixel format
            raise
        reason = str(error).partition("\n")[0].replace(path, "the file")
        yield Difference(
            "picture", f"{expected.codec} frames can't be read back: {reason}. Write mp4, mov or mkv"
        )
        return
    if len(got) != len(expected.pictures):
        yield Difference(
            "count",
            f"{expected.plan.output.container_name} doesn't keep all {expected.codec} frames. "
            f"{len(expected.pictures)} were written, but {len(got)} are read back. Write mp4, mov, mkv or webm",
        )
        return
    plan = expected.plan
    rate = f", or pass {argument('fps', 30)}" if plan.is_timed else ""
    moved_s, most_s = _moved_s([time_s for time_s, _ in got], expected), _STEP_S
    if expected.first_s is None and plan.rate is not None:
        most_s += float(
            1 / plan.rate
        )  # AVI counts frames: beside a sound, which has priming, one may be longer
    if plan.keeps_times and moved_s > most_s:
        yield Difference(
            "times",
            f"{plan.output.container_name} doesn't keep the times of {expected.codec} frames. One frame is read back "
            f"{moved_s:.3f} s away. {_times_remedy(plan)}{rate}",
        )
    is_exact = plan.request.quality == LOSSLESS and not plan.is_filtered
    if is_exact and not _keeps_samples(path, expected, [rgb for _, rgb in got]):
        remedy = f"Pass {argument('codec', 'ffv1')} and a name such as video.mkv"
        if is_float(plan.pixel_format):
            remedy = "Write images that keep floats: frames/%05d.exr"
        elif expected.codec == "ffv1":
            remedy = f"Pass {argument('codec', 'rawvideo')} and a name such as video.nut"
        elif plan.output.container == "nut":  # which knows the most layouts
            remedy = "Write images: frames/%05d.png"
        yield Difference(
            "samples",
            f"{expected.codec} in {plan.output.container_name} isn't lossless for {plan.pixel_format} frames. {remedy}",
        )
    if not plan.is_filtered:
        errors = [
            _error(rgb, one, vflip=plan.request.vflip)
            for (_, rgb), one in zip(got, expected.pictures, strict=True)
        ]
        if max(errors) > _COARSE_ERROR:
            yield Difference(
                "picture",
                f"{expected.codec} in {plan.output.container_name} shows another picture when it is read back. "
                + (_raw_remedy(expected) or "Pass another codec, or write mkv"),
            )


def _compare_samples(media: MediaInfo, expected: Expected) -> Iterable[Difference]:
    """How the samples of sounds differ, where the file says that its codec is lossless."""
    from penstock._decoding.audio import AudioDecoder  # for rehearsals only

    if len(media.audio) != len(expected.sounds):
        return
    for number, (actual, one) in enumerate(zip(media.audio, expected.sounds, strict=True)):
        is_same = (actual.sample_rate, actual.channels) == (one.sample_rate, one.channels)
        if not is_same or not av.Codec(actual.codec, "r").lossless:
            continue
        # Older FFmpeg than the one that wrote it may not know the form: 5.1 plays PCM in MP4 as noise.
        settings = DecoderSettings(ffmpeg=expected.plan.program)
        with AudioDecoder(media.path, stream=number, settings=settings) as decoder:
            got = decoder.read_all()
        wanted = _samples_of(one, len(got), settings)
        count = min(len(got), len(wanted))  # MXF ends sound with the picture
        if not count or np.abs(got[:count] - wanted[:count]).max() > _SAMPLE_ERROR:
            name = one.audio.codec if isinstance(one.audio, AudioTrack) else None
            yield Difference(
                "heard",
                f"{name or actual.codec} in {expected.plan.output.container_name} plays other samples than were "
                "written. Write mkv or mov, or pass another codec, such as AudioTrack(48000, 2, codec='flac')",
            )


def _samples_of(sound: Sound, count: int, settings: DecoderSettings) -> npt.NDArray[Any]:
    """The first samples of a rehearsal's sound, as floats: its tone, or what is in its file."""
    from penstock._decoding.audio import AudioDecoder  # for rehearsals only

    if isinstance(track := sound.audio, AudioTrack):
        full_scale = 1.0 if track.dtype == "float32" else float(np.iinfo(track.dtype).max)
        return tone(track) / full_scale
    with AudioDecoder(track.path, duration=count / sound.sample_rate, settings=settings) as decoder:
        return decoder.read_all()


def _raw_remedy(expected: Expected) -> str | None:
    """What to do about raw video that is read back wrong, of which NUT knows most layouts; None for other video."""
    if not encoders.codec_of(expected.codec).is_raw:
        return None
    remedy = argument("output_pixel_format", "yuv420p")
    return f"Pass {remedy}" if expected.plan.output.container == "nut" else f"Write .nut, or pass {remedy}"


def _keeps_samples(path: str, expected: Expected, got: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether the frames have their samples. Those with padding, or a palette, have the same colors."""
    name, exact = (
        expected.plan.pixel_format,
        [one.exact_rgb for one in expected.pictures if one.exact_rgb is not None],
    )
    known = pixel_format_of(name)
    is_short_rgb = known is not None and is_rgb(name) and known.depth <= 8 and not known.has_alpha
    if is_short_rgb and not name.startswith("bayer") and len(exact) == len(got):
        return all(map(np.array_equal, got, exact))
    return all(
        np.array_equal(np.asarray(frame).reshape(-1).view(np.uint8), one.samples)
        for frame, one in zip(_frames(path, name), expected.pictures, strict=True)
    )


def _frames(path: str, pixel_format: str) -> Iterator[VideoFrame]:
    from penstock._decoding.decoder import Decoder  # for rehearsals only: its import takes 35 ms

    with Decoder(path, pixel_format=pixel_format) as decoder:
        yield from decoder


def _times_remedy(plan: EncodePlan) -> str:
    """What to do about frames that have other times in the file."""
    if plan.output.facts.has_boxes and "movflags" in plan.options:
        return "Add delay_moov to movflags"
    return "Write mp4, mov, mkv or webm"


def _moved_s(times_s: Sequence[float | None], expected: Expected) -> float:
    """How far frames are from their times; since the first one, where a sound may move that."""
    if None in times_s:
        return float("inf")
    first_s = times_s[0] or 0.0
    latest_s = _SAME_S + most_priming_s(one.sample_rate for one in expected.plan.sounds)
    may_be_late = (
        expected.plan.sounds and not expected.plan.output.facts.has_boxes and 0 <= first_s <= latest_s
    )
    if expected.first_s is not None and not may_be_late:
        first_s = 0.0
    return max(
        abs((time_s or 0.0) - first_s - float(one.time_s))
        for time_s, one in zip(times_s, expected.pictures, strict=True)
    )


def _error(rgb: npt.NDArray[Any], expected: Picture, *, vflip: bool) -> float:
    """How far the colors of a frame are off, in steps of 8 bits, where padding has added nothing."""
    if expected.rgb is None:
        return 0.0
    wanted = expected.rgb[::-1] if vflip else expected.rgb
    height, width, _ = wanted.shape
    if not (height <= rgb.shape[0] < height + _BLOCK and width <= rgb.shape[1] < width + _BLOCK):
        return float("inf")
    difference = rgb[:height, :width].astype(float) - wanted
    rows, columns = height // _BLOCK, width // _BLOCK
    whole = difference[: rows * _BLOCK, : columns * _BLOCK].reshape(rows, _BLOCK, columns, _BLOCK, 3)
    return float(np.abs(whole.mean((1, 3))).mean((0, 1)).max())


def _check_pixels(video: MediaInfo.Video, expected: Expected) -> Iterable[str]:
    had = expected.plan.output_pixel_format
    keeps_alpha = video.has_separate_alpha or has_alpha(video.pixel_format or "")
    if had and has_alpha(had) and not keeps_alpha:
        yield f"the frames' alpha is dropped, because the {expected.codec} file has none. libvpx-vp9 in .webm keeps it"
    codec, actual = expected.codec, video.pixel_format
    wanted = expected.plan.output_pixel_format if encoders.codec_of(codec).is_raw else None
    if wanted is not None and actual is not None and canonical(actual) != canonical(wanted):
        yield (
            f"the video is raw {wanted}, but the file says {actual!r}, so readers show it as that. Pass "
            f"{argument('codec', 'ffv1')}, and write mkv"
        )


def missing_aspect(video: MediaInfo.Video, aspect: object) -> Iterable[str]:
    """FFmpeg reduces an `aspect` to numbers of at most 255, and Matroska has whole pixels of a screen."""
    shape = re.fullmatch(r"(\d+):(\d+)", str(aspect))
    if shape is None:
        return
    wanted = Fraction(int(shape[1]) * video.height, int(shape[2]) * video.width)
    if wanted != (actual := video.sample_aspect_ratio or Fraction(1)):
        yield (
            f"the pixel aspect ratio is {wanted}, but the file's is {actual}. Pass "
            f"{argument('options.aspect', f'{video.width * actual.numerator}:{video.height * actual.denominator}')} to "
            "accept it"
        )


def _check_colors(video: MediaInfo.Video, expected: Expected) -> Iterable[str]:
    if expected.plan.is_filtered:
        return
    colors, asked = expected.plan.colors, expected.plan.request.colors
    actual = {
        "primaries": (asked.primaries, video.color_primaries, "unknown"),
        "transfer": (asked.transfer, video.color_transfer, "unknown"),
    }
    if colors is not None:  # YUV
        actual |= {
            "matrix": (_tag(colors.matrix), video.color_matrix, UNTAGGED.matrix),
            "range": (colors.range, video.color_range, UNTAGGED.range),
        }
    is_srgb = colors is None or expected.plan.output.are_images
    takes_yuv = not (is_rgb(expected.plan.pixel_format) or is_gray(expected.plan.pixel_format))
    for name, (wanted, tagged, assumed) in actual.items():
        if tagged is None and is_srgb and wanted in (_SDR if expected.is_like else _SRGB):
            continue
        if wanted not in ("auto", tagged or assumed):
            file = f"says {tagged!r}" if tagged else f"doesn't say so, so readers assume {assumed!r}"
            fix = argument(f"colors.{name}", tagged or assumed)
            if name in ("matrix", "range") and takes_yuv:
                fix = f"{argument('pixel_format', 'rgb24')} and {fix}"  # YUV would only be called another
            fix += ", or write libx264 in mp4, mov or mkv"
            yield f"the video's {name} is {wanted!r}, but the {expected.codec} file {file}. Pass {fix}"


def _tag(matrix: str) -> str:
    """The matrix by which readers show a video that says so."""
    return UNTAGGED.matrix if matrix == "untagged" else matrix


def _check_light(video: MediaInfo.Video, expected: Expected) -> Iterable[str]:
    for name in ("mastering_display", "content_light"):
        wanted, actual = getattr(expected.plan.request.colors, name), getattr(video, name)
        if wanted is not None and not _is_same_light(wanted, actual):
            yield f"the video's {name} is {wanted}, but the {expected.codec} file says {actual}"


def _is_same_light(wanted: Any, actual: Any) -> bool:
    """Whether two records of numbers and pairs of them are the same but for the rounding of encoders."""
    return actual is not None and all(
        np.allclose(getattr(wanted, one.name), getattr(actual, one.name) or 0, rtol=0.01, atol=1e-4)
        for one in fields(wanted)
    )


def _check_sound(actual: MediaInfo.Audio, expected: Sound) -> Iterable[str]:
    if not actual.channels or not actual.sample_rate:
        yield (
            f"libav can't read the file's {actual.codec} audio. Use another codec, such as "
            "AudioFile(path, codec='aac')"
        )
        return
    names = {"language": "mkv, or mp4 with a code of three letters such as 'deu'", "title": "mp4 or mkv"}
    for name, fix in names.items():
        wanted = getattr(expected.audio, name)
        if wanted not in (None, "", "und") and getattr(actual, name) in (None, "und"):
            yield f"the file doesn't keep the audio's {name} {wanted!r}. Write {fix}"
    if expected.is_copied:
        return
    if actual.channels != expected.channels:
        yield (
            f"the audio has {plural(expected.channels, 'channel')}, but the file's {actual.codec} has "
            f"{actual.channels}. Use another codec, such as 'flac', or pass "
            f"{argument('options.ac', actual.channels)} to accept it"
        )
    if actual.sample_rate < expected.sample_rate:
        yield (
            f"the audio has {expected.sample_rate} Hz, but the file's {actual.codec} has {actual.sample_rate} Hz. Use "
            f"another codec, such as 'flac', or pass {argument('options.ar', actual.sample_rate)} to accept it"
        )
    kept = _WHOLE_BITS.get((actual.sample_format or "").removesuffix("p"), 32)
    dtype = expected.audio.dtype if isinstance(expected.audio, AudioTrack) else "int16"
    if expected.audio.codec is None and kept < _BITS[dtype]:
        yield (
            f"the {dtype} samples become {kept} bits in {actual.codec}. Use another codec, such as "
            f"AudioTrack(48000, 2, codec='flac'), or pass codec={actual.codec!r} to accept it"
        )


def missing_timecode(media: MediaInfo, expected: Labels) -> Iterable[str]:
    if expected.timecode is not None and not is_same_timecode(expected.timecode, media.timecode or ""):
        reason = "has none" if media.timecode is None else f"says {media.timecode!r}"
        yield f"the time code is {expected.timecode!r}, but the file {reason}. Write mov, mp4 or mkv"


def missing_labels(media: MediaInfo, expected: Labels) -> Iterable[str]:
    actual = {name.lower(): value for name, value in media.tags.items()}
    lost = [
        name
        for name, value in expected.metadata
        if actual.get(name.lower()) != value and not (name.lower() in _REWRITTEN and name.lower() in actual)
    ]
    has_boxes = containers.known(media.container).has_boxes
    if lost:
        fix = f"Pass {argument('options.movflags', 'use_metadata_tags')}" if has_boxes else "Write mkv"
        yield f"the container doesn't keep the metadata {', '.join(lost)} as given. {fix}"
    actual_chapters = [(round(one.start_s, 2), one.title) for one in media.chapters]
    chapters = [(round(start_s, 2), title) for start_s, title in expected.chapters]
    if has_boxes and chapters and actual_chapters == [(0, chapters[0][1]), *chapters[1:]] != chapters:
        yield "MP4 and QuickTime begin the first chapter at 0 s. Pass a chapter that begins at 0 s, or write mkv"
    elif chapters and actual_chapters != chapters:
        yield f"the file doesn't keep the {plural(len(chapters), 'chapter')} as given. Write mp4, mov or mkv"
    if expected.subtitles is not None and not media.subtitles:
        yield "the file doesn't have the subtitles"


def _check_ends(media: MediaInfo, video: MediaInfo.Video | None, expected: Expected) -> Iterable[str]:
    """What goes on after the picture."""
    labels = expected.plan.labels
    if video is None or expected.ends_s is None:
        return
    ends_s, actual_s = float(expected.ends_s), media.duration_s or 0.0
    for start_s, title in labels.chapters:
        if start_s > ends_s + _SAME_S:
            yield f"the chapter {title!r} begins at {start_s:g} s, but the video ends at {ends_s:.3f} s"
    if labels.subtitles is not None and not expected.sounds and actual_s > ends_s + _SUBTITLES_LATER_S:
        yield f"the video ends at {ends_s:.3f} s, but the last subtitle at {actual_s:.3f} s"


def _check_times(media: MediaInfo, video: MediaInfo.Video, expected: Expected) -> Iterable[str]:
    # FFmpeg's muxer of AVI counts one more beside sound.
    if video.frames is not None and video.frames < expected.frames:
        yield f"the file says that it has {plural(video.frames, 'frame')}, but {expected.frames} were written"
    if expected.ends_s is None or expected.plan.output.are_images:  # which have no times
        return
    known = containers.known(media.container)
    first_s, rate = float(expected.first_s or 0), expected.plan.rate
    begins_s = _begins_s(media, video)
    may_be_late, fix = expected.first_s is not None, f". {_times_remedy(expected.plan)}"
    tolerance_s = max(_TOLERANCE_S, _SAME_S + most_priming_s(one.sample_rate for one in expected.plan.sounds))
    if rate is not None:  # NUT begins late by what the encoder reorders, and nothing mends that
        may_be_late &= known.has_boxes
        tolerance_s = min(_TOLERANCE_S, float(1 / rate / 2))
    if may_be_late and begins_s is not None and abs(begins_s - first_s) > tolerance_s:
        yield f"the first frame was written at {first_s:.3f} s, but the file has it at {begins_s:.3f} s{fix}"
    lasts_s, actual_s = float(expected.ends_s) - first_s, video.duration_s
    # An MP4 file has two lengths. It depends on libav which one it reports, and FFmpeg writes one of them too short if
    # frames with their own times are reordered.
    is_unsure = known.guesses_length or (rate is None and known.has_boxes)
    if actual_s is not None and actual_s < lasts_s - _TOLERANCE_S and not is_unsure:
        yield f"{lasts_s:.3f} s of video were written, but the file says that it has {actual_s:.3f} s"


def _begins_s(media: MediaInfo, video: MediaInfo.Video) -> float | None:
    """The time of the first frame, in seconds since `MediaInfo.zero_s`; None if nothing tells it."""
    if video.start_s is not None:
        return video.start_s - media.zero_s
    # With only a few frames, which the encoder may have reordered, libav reports no start, but its packets have times.
    with suppress(DecoderError, LibavError, ValueError):
        return first_packet_s(endpoints.source(media.path), media.container, video.index) - media.zero_s
    return None
