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
from penstock._encoding.pattern import Picture, tone
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
    is_rgb,
    pixel_format_of,
)
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.video_frame import VideoFrame
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
class Meant:
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


def compare(url: str, meant: Meant) -> list[Difference]:
    """How the file at `url` differs from what was encoded."""
    try:
        media = probe(endpoints.without_protocol(url))
        found = [*_compare_facts(media, meant)]
        if meant.pictures and not any(one.kind == "picture" for one in found):
            found += [*_compare_frames(media.path, meant), *_compare_samples(media, meant)]
        return found
    except DecoderError as error:
        told = str(error).replace(endpoints.without_protocol(url), "the file")
        said = f"the file couldn't be verified, because libav can't read it: {told}"
    except FileNotFoundError:
        if not meant.pictures:  # somebody has moved it, and nobody moves that of a rehearsal
            return []
        said = "the file couldn't be verified, because FFmpeg wrote no file of that name"
    except Exception as error:  # the file is whole, whatever libav or PyAV has met
        said = f"the file couldn't be verified: {error!r}"
    return [Difference("unverified", said)]


def lost_colors_of_image(path: str, meant: Meant) -> Iterable[str]:
    """Which colors an image of a sequence doesn't have, in sentences."""
    with suppress(DecoderError, OSError):
        video = probe(path).best_video
        yield from () if video is None else _check_colors(video, meant)


def _compare_facts(media: MediaInfo, meant: Meant) -> Iterable[Difference]:
    """How what the file says differs."""
    video = media.best_video or next(iter(media.video), None)
    if meant.frames and (video is None or None in (video.pixel_format, video.width or None)):
        yield Difference(
            "picture",
            f"libav finds no {meant.codec} video in the file. "
            + (_raw_remedy(meant) or "Use another container, or another codec"),
        )
    if video is not None:
        yield from (Difference("pixels", one) for one in _check_pixels(video, meant))
        if meant.is_like:
            yield from (
                Difference("pixels", one) for one in missing_aspect(video, meant.plan.options.get("aspect"))
            )
        yield from (Difference("colors", one) for one in _check_colors(video, meant))
        yield from (Difference("colors", one) for one in _check_light(video, meant))
        yield from (Difference("times", one) for one in _check_times(media, video, meant))
    if len(media.audio) < len(meant.sounds):
        yield Difference(
            "sound", f"the file has {len(media.audio)} of {plural(len(meant.sounds), 'audio track')}"
        )
    elif len(media.audio) == len(meant.sounds):
        for told, sound in zip(media.audio, meant.sounds, strict=True):
            yield from (Difference("sound", one) for one in _check_sound(told, sound))
    yield from (Difference("timecode", one) for one in missing_timecode(media, meant.plan.labels))
    yield from (Difference("labels", one) for one in missing_labels(media, meant.plan.labels))
    yield from (Difference("labels", one) for one in _check_ends(media, video, meant))


def _compare_frames(path: str, meant: Meant) -> Iterable[Difference]:
    """How the frames differ that a `Decoder` delivers."""
    try:
        got = [(frame.time_s, np.asarray(frame)) for frame in _frames(path, "rgb24")]
    except DecoderError as error:
        if isinstance(error.__cause__, NotImplementedError):  # libav can't convert the pixel format
            raise
        said = str(error).partition("\n")[0].replace(path, "the file")
        yield Difference("picture", f"{meant.codec} frames can't be read back: {said}. Write mp4, mov or mkv")
        return
    if len(got) != len(meant.pictures):
        yield Difference(
            "count",
            f"{meant.plan.output.container_name} doesn't keep all {meant.codec} frames. {len(meant.pictures)} were "
            f"written, but {len(got)} are read back. Write mp4, mov, mkv or webm",
        )
        return
    plan = meant.plan
    rate = f", or pass {argument('fps', 30)}" if plan.is_timed else ""
    moved_s, most_s = _moved_s([time_s for time_s, _ in got], meant), _STEP_S
    if meant.first_s is None and plan.rate is not None:
        most_s += float(
            1 / plan.rate
        )  # AVI counts frames: beside a sound, which has priming, one may be longer
    if plan.keeps_times and moved_s > most_s:
        yield Difference(
            "times",
            f"{plan.output.container_name} doesn't keep the times of {meant.codec} frames. One frame is read back "
            f"{moved_s:.3f} s away. {_times_remedy(plan)}{rate}",
        )
    is_exact = plan.request.quality == LOSSLESS and not plan.is_filtered
    if is_exact and not _keeps_samples(path, meant, [rgb for _, rgb in got]):
        remedy = f"Pass {argument('codec', 'ffv1')} and a name such as video.mkv"
        if is_float(plan.pixel_format):
            remedy = "Write images that keep floats: frames/%05d.exr"
        elif meant.codec == "ffv1":
            remedy = f"Pass {argument('codec', 'rawvideo')} and a name such as video.nut"
        elif plan.output.container == "nut":  # which knows the most layouts
            remedy = "Write images: frames/%05d.png"
        yield Difference(
            "samples",
            f"{meant.codec} in {plan.output.container_name} isn't lossless for {plan.pixel_format} frames. {remedy}",
        )
    if not plan.is_filtered:
        errors = [
            _error(rgb, one, vflip=plan.request.vflip)
            for (_, rgb), one in zip(got, meant.pictures, strict=True)
        ]
        if max(errors) > _COARSE_ERROR:
            yield Difference(
                "picture",
                f"{meant.codec} in {plan.output.container_name} shows another picture when it is read back. "
                + (_raw_remedy(meant) or "Pass another codec, or write mkv"),
            )


def _compare_samples(media: MediaInfo, meant: Meant) -> Iterable[Difference]:
    """How the samples of sounds differ, where the file says that its codec is lossless."""
    from penstock._decoding.audio import AudioDecoder  # for rehearsals only

    if len(media.audio) != len(meant.sounds):
        return
    for number, (told, one) in enumerate(zip(media.audio, meant.sounds, strict=True)):
        is_same = (told.sample_rate, told.channels) == (one.sample_rate, one.channels)
        if not is_same or not av.Codec(told.codec, "r").lossless:
            continue
        # Older FFmpeg than the one that wrote it may not know the form: 5.1 plays PCM in MP4 as noise.
        settings = DecoderSettings(ffmpeg=meant.plan.program)
        with AudioDecoder(media.path, stream=number, settings=settings) as decoder:
            got = decoder.read_all()
        wanted = _samples_of(one, len(got), settings)
        count = min(len(got), len(wanted))  # MXF ends sound with the picture
        if not count or np.abs(got[:count] - wanted[:count]).max() > _SAMPLE_ERROR:
            name = one.audio.codec if isinstance(one.audio, AudioTrack) else None
            yield Difference(
                "heard",
                f"{name or told.codec} in {meant.plan.output.container_name} plays other samples than were written. "
                "Write mkv or mov, or pass another codec, such as AudioTrack(48000, 2, codec='flac')",
            )


def _samples_of(sound: Sound, count: int, settings: DecoderSettings) -> npt.NDArray[Any]:
    """The first samples of a rehearsal's sound, as floats: its tone, or what is in its file."""
    from penstock._decoding.audio import AudioDecoder  # for rehearsals only

    if isinstance(track := sound.audio, AudioTrack):
        full_scale = 1.0 if track.dtype == "float32" else float(np.iinfo(track.dtype).max)
        return tone(track) / full_scale
    with AudioDecoder(track.path, duration=count / sound.sample_rate, settings=settings) as decoder:
        return decoder.read_all()


def _raw_remedy(meant: Meant) -> str | None:
    """What to do about raw video that is read back wrong, of which NUT knows most layouts; None for other video."""
    if not encoders.codec_of(meant.codec).is_raw:
        return None
    remedy = argument("output_pixel_format", "yuv420p")
    return f"Pass {remedy}" if meant.plan.output.container == "nut" else f"Write .nut, or pass {remedy}"


def _keeps_samples(path: str, meant: Meant, got: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether the frames have their samples. Those with padding, or a palette, have the same colors."""
    name, exact = (
        meant.plan.pixel_format,
        [one.exact_rgb for one in meant.pictures if one.exact_rgb is not None],
    )
    known = pixel_format_of(name)
    is_short_rgb = known is not None and is_rgb(name) and known.depth <= 8 and not known.has_alpha
    if is_short_rgb and not name.startswith("bayer") and len(exact) == len(got):
        return all(map(np.array_equal, got, exact))
    return all(
        np.array_equal(np.asarray(frame).reshape(-1).view(np.uint8), one.samples)
        for frame, one in zip(_frames(path, name), meant.pictures, strict=True)
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


def _moved_s(times_s: Sequence[float | None], meant: Meant) -> float:
    """How far frames are from their times; since the first one, where a sound may move that."""
    if None in times_s:
        return float("inf")
    first_s = times_s[0] or 0.0
    latest_s = _SAME_S + most_priming_s(one.sample_rate for one in meant.plan.sounds)
    may_be_late = meant.plan.sounds and not meant.plan.output.facts.has_boxes and 0 <= first_s <= latest_s
    if meant.first_s is not None and not may_be_late:
        first_s = 0.0
    return max(
        abs((time_s or 0.0) - first_s - float(one.time_s))
        for time_s, one in zip(times_s, meant.pictures, strict=True)
    )


def _error(rgb: npt.NDArray[Any], meant: Picture, *, vflip: bool) -> float:
    """How far the colors of a frame are off, in steps of 8 bits, where padding has added nothing."""
    if meant.rgb is None:
        return 0.0
    wanted = meant.rgb[::-1] if vflip else meant.rgb
    height, width, _ = wanted.shape
    if not (height <= rgb.shape[0] < height + _BLOCK and width <= rgb.shape[1] < width + _BLOCK):
        return float("inf")
    difference = rgb[:height, :width].astype(float) - wanted
    rows, columns = height // _BLOCK, width // _BLOCK
    whole = difference[: rows * _BLOCK, : columns * _BLOCK].reshape(rows, _BLOCK, columns, _BLOCK, 3)
    return float(np.abs(whole.mean((1, 3))).mean((0, 1)).max())


def _check_pixels(video: VideoInfo, meant: Meant) -> Iterable[str]:
    had = meant.plan.output_pixel_format
    keeps_alpha = video.has_separate_alpha or has_alpha(video.pixel_format or "")
    if had and has_alpha(had) and not keeps_alpha:
        yield f"the frames' alpha is dropped, because the {meant.codec} file has none. libvpx-vp9 in .webm keeps it"
    codec, told = meant.codec, video.pixel_format
    wanted = meant.plan.output_pixel_format if encoders.codec_of(codec).is_raw else None
    if wanted is not None and told is not None and canonical(told) != canonical(wanted):
        yield (
            f"the video is raw {wanted}, but the file says {told!r}, so readers show it as that. Pass "
            f"{argument('codec', 'ffv1')}, and write mkv"
        )


def missing_aspect(video: VideoInfo, aspect: object) -> Iterable[str]:
    """FFmpeg reduces an `aspect` to numbers of at most 255, and Matroska has whole pixels of a screen."""
    shape = re.fullmatch(r"(\d+):(\d+)", str(aspect))
    if shape is None:
        return
    wanted = Fraction(int(shape[1]) * video.height, int(shape[2]) * video.width)
    if wanted != (told := video.sample_aspect_ratio or Fraction(1)):
        yield (
            f"the pixel aspect ratio is {wanted}, but the file's is {told}. Pass "
            f"{argument('options.aspect', f'{video.width * told.numerator}:{video.height * told.denominator}')} to "
            "accept it"
        )


def _check_colors(video: VideoInfo, meant: Meant) -> Iterable[str]:
    if meant.plan.is_filtered:
        return
    colors, asked = meant.plan.colors, meant.plan.request.colors
    told = {
        "primaries": (asked.primaries, video.color_primaries, "unknown"),
        "transfer": (asked.transfer, video.color_transfer, "unknown"),
    }
    if colors is not None:  # YUV
        told |= {
            "matrix": (_tag(colors.matrix), video.color_matrix, UNTAGGED.matrix),
            "range": (colors.range, video.color_range, UNTAGGED.range),
        }
    is_srgb = colors is None or meant.plan.output.are_images
    for name, (wanted, said, assumed) in told.items():
        if said is None and is_srgb and wanted in (_SDR if meant.is_like else _SRGB):
            continue
        if wanted not in ("auto", said or assumed):
            file = f"says {said!r}" if said else f"doesn't say so, so readers assume {assumed!r}"
            fix = f"{argument(f'colors.{name}', said or assumed)}, or write libx264 in mp4, mov or mkv"
            yield f"the video's {name} is {wanted!r}, but the {meant.codec} file {file}. Pass {fix}"


def _tag(matrix: str) -> str:
    """The matrix by which readers show a video that says so."""
    return UNTAGGED.matrix if matrix == "untagged" else matrix


def _check_light(video: VideoInfo, meant: Meant) -> Iterable[str]:
    for name in ("mastering_display", "content_light"):
        wanted, told = getattr(meant.plan.request.colors, name), getattr(video, name)
        if wanted is not None and not _is_same_light(wanted, told):
            yield f"the video's {name} is {wanted}, but the {meant.codec} file says {told}"


def _is_same_light(wanted: Any, told: Any) -> bool:
    """Whether two records of numbers and pairs of them are the same but for the rounding of encoders."""
    return told is not None and all(
        np.allclose(getattr(wanted, one.name), getattr(told, one.name) or 0, rtol=0.01, atol=1e-4)
        for one in fields(wanted)
    )


def _check_sound(told: AudioInfo, meant: Sound) -> Iterable[str]:
    if not told.channels or not told.sample_rate:
        yield f"libav can't read the file's {told.codec} audio. Use another codec, such as AudioFile(path, codec='aac')"
        return
    names = {"language": "mkv, or mp4 with a code of three letters such as 'deu'", "title": "mp4 or mkv"}
    for name, fix in names.items():
        wanted = getattr(meant.audio, name)
        if wanted not in (None, "", "und") and getattr(told, name) in (None, "und"):
            yield f"the file doesn't keep the audio's {name} {wanted!r}. Write {fix}"
    if meant.is_copied:
        return
    if told.channels != meant.channels:
        yield (
            f"the audio has {plural(meant.channels, 'channel')}, but the file's {told.codec} has {told.channels}. Use "
            f"another codec, such as 'flac', or pass {argument('options.ac', told.channels)} to accept it"
        )
    if told.sample_rate < meant.sample_rate:
        yield (
            f"the audio has {meant.sample_rate} Hz, but the file's {told.codec} has {told.sample_rate} Hz. Use "
            f"another codec, such as 'flac', or pass {argument('options.ar', told.sample_rate)} to accept it"
        )
    kept = _WHOLE_BITS.get((told.sample_format or "").removesuffix("p"), 32)
    dtype = meant.audio.dtype if isinstance(meant.audio, AudioTrack) else "int16"
    if meant.audio.codec is None and kept < _BITS[dtype]:
        yield (
            f"the {dtype} samples become {kept} bits in {told.codec}. Use another codec, such as AudioTrack(48000, 2, "
            f"codec='flac'), or pass codec={told.codec!r} to accept it"
        )


def missing_timecode(media: MediaInfo, meant: Labels) -> Iterable[str]:
    if meant.timecode is not None and not is_same_timecode(meant.timecode, media.timecode or ""):
        said = "has none" if media.timecode is None else f"says {media.timecode!r}"
        yield f"the time code is {meant.timecode!r}, but the file {said}. Write mov, mp4 or mkv"


def missing_labels(media: MediaInfo, meant: Labels) -> Iterable[str]:
    told = {name.lower(): value for name, value in media.tags.items()}
    lost = [
        name
        for name, value in meant.metadata
        if told.get(name.lower()) != value and not (name.lower() in _REWRITTEN and name.lower() in told)
    ]
    has_boxes = containers.known(media.container).has_boxes
    if lost:
        fix = f"Pass {argument('options.movflags', 'use_metadata_tags')}" if has_boxes else "Write mkv"
        yield f"the container doesn't keep the metadata {', '.join(lost)} as given. {fix}"
    told_chapters = [(round(one.start_s, 2), one.title) for one in media.chapters]
    chapters = [(round(start_s, 2), title) for start_s, title in meant.chapters]
    if has_boxes and chapters and told_chapters == [(0, chapters[0][1]), *chapters[1:]] != chapters:
        yield "MP4 and QuickTime begin the first chapter at 0 s. Pass a chapter that begins at 0 s, or write mkv"
    elif chapters and told_chapters != chapters:
        yield f"the file doesn't keep the {plural(len(chapters), 'chapter')} as given. Write mp4, mov or mkv"
    if meant.subtitles is not None and not media.subtitles:
        yield "the file doesn't have the subtitles"


def _check_ends(media: MediaInfo, video: VideoInfo | None, meant: Meant) -> Iterable[str]:
    """What goes on after the picture."""
    labels = meant.plan.labels
    if video is None or meant.ends_s is None:
        return
    ends_s, told_s = float(meant.ends_s), media.duration_s or 0.0
    for start_s, title in labels.chapters:
        if start_s > ends_s + _SAME_S:
            yield f"the chapter {title!r} begins at {start_s:g} s, but the video ends at {ends_s:.3f} s"
    if labels.subtitles is not None and not meant.sounds and told_s > ends_s + _SUBTITLES_LATER_S:
        yield f"the video ends at {ends_s:.3f} s, but the last subtitle at {told_s:.3f} s"


def _check_times(media: MediaInfo, video: VideoInfo, meant: Meant) -> Iterable[str]:
    # FFmpeg's muxer of AVI counts one more beside sound.
    if video.frames is not None and video.frames < meant.frames:
        yield f"the file says that it has {plural(video.frames, 'frame')}, but {meant.frames} were written"
    if meant.ends_s is None or meant.plan.output.are_images:  # which have no times
        return
    known = containers.known(media.container)
    first_s, rate = float(meant.first_s or 0), meant.plan.rate
    begins_s = _begins_s(media, video)
    may_be_late, fix = meant.first_s is not None, f". {_times_remedy(meant.plan)}"
    tolerance_s = max(_TOLERANCE_S, _SAME_S + most_priming_s(one.sample_rate for one in meant.plan.sounds))
    if rate is not None:  # NUT begins late by what the encoder reorders, and nothing mends that
        may_be_late &= known.has_boxes
        tolerance_s = min(_TOLERANCE_S, float(1 / rate / 2))
    if may_be_late and begins_s is not None and abs(begins_s - first_s) > tolerance_s:
        yield f"the first frame was written at {first_s:.3f} s, but the file has it at {begins_s:.3f} s{fix}"
    lasts_s, told_s = float(meant.ends_s) - first_s, video.duration_s
    # An MP4 file has two lengths. It depends on libav which one it reports, and FFmpeg writes one of them too short if
    # frames with their own times are reordered.
    is_unsure = known.guesses_length or (rate is None and known.has_boxes)
    if told_s is not None and told_s < lasts_s - _TOLERANCE_S and not is_unsure:
        yield f"{lasts_s:.3f} s of video were written, but the file says that it has {told_s:.3f} s"


def _begins_s(media: MediaInfo, video: VideoInfo) -> float | None:
    """The time of the first frame, in seconds since `MediaInfo.zero_s`; None if nothing tells it."""
    if video.start_s is not None:
        return video.start_s - media.zero_s
    # With only a few frames, which the encoder may have reordered, libav reports no start, but its packets have times.
    with suppress(DecoderError, LibavError, ValueError):
        return first_packet_s(endpoints.source(media.path), media.container, video.index) - media.zero_s
    return None
