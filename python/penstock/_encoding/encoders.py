"""Chooses the encoder of a video, and the options by which it reaches a level of quality."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Literal, NoReturn, get_args

from penstock._common.messages import argument
from penstock._encoding.output_pixel_format import AUTO, output_format
from penstock._ffmpeg.command.arguments import PALETTE
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import PixelFormat, is_rgb, pixel_format_of
from penstock._ffmpeg.command.settings import check_choice
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._ffmpeg.program.messages import StderrLog

Quality = Literal["draft", "good", "master", "lossless"]

#: FFmpeg's encoder for each suffix of image files.
IMAGE_ENCODERS = {
    **dict.fromkeys((".jpeg", ".jpg"), "mjpeg"),
    **dict.fromkeys((".tif", ".tiff"), "tiff"),
    **{suffix: suffix[1:] for suffix in (".bmp", ".pam", ".png", ".ppm", ".qoi", ".sgi")},
    ".jp2": "jpeg2000",
    ".jxl": "libjxl",
    ".tga": "targa",
    ".webp": "libwebp",
}
# The same for streams without a container, and for more images. FFmpeg writes any other codec under these names, too.
_STREAM_ENCODERS = {
    **dict.fromkeys((".264", ".avc", ".h264"), "libx264"),
    **dict.fromkeys((".265", ".h265", ".hevc"), "libx265"),
    **dict.fromkeys((".mjpeg", ".mjpg"), "mjpeg"),
    **dict.fromkeys((".dnxhd", ".dnxhr"), "dnxhd"),
    **dict.fromkeys((".drc", ".vc2"), "vc2"),
    **dict.fromkeys((".rgb", ".yuv"), "rawvideo"),
    **dict.fromkeys((".im1", ".im24", ".im8", ".ras", ".rs", ".sun", ".sunras"), "sunrast"),
    **dict.fromkeys((".j2c", ".j2k"), "jpeg2000"),
    **{
        suffix: suffix[1:]
        for suffix in (".dpx", ".exr", ".h261", ".h263", ".pbm", ".pcx", ".pfm", ".pgm", ".pgmyuv")
    },
    **{suffix: suffix[1:] for suffix in (".phm", ".vbn", ".xbm", ".xface", ".xwd")},
    ".cavs": "libxavs",
    ".jls": "jpegls",
    ".ljpg": "ljpeg",
    ".m1v": "mpeg1video",
    ".m2v": "mpeg2video",
    ".obu": "libsvtav1",
}
#: Endings of streams without a container.
BARE_ENDINGS = tuple(_STREAM_ENCODERS)
# The same for containers of one kind of video, and for pictures that move.
_VIDEO_ENCODERS = {
    ".apng": "apng",
    ".avif": "libsvtav1",
    ".gif": "gif",
    **dict.fromkeys((".ogg", ".ogv"), "libtheora"),
    ".webm": "libvpx-vp9",
}
_ENCODERS = IMAGE_ENCODERS | _STREAM_ENCODERS | _VIDEO_ENCODERS
_H264 = r"libx264(rgb)?|libopenh264|h264_\w+"
_MPEG4 = r"mpeg4(_\w+)?|libxvid"
_HEVC = r"libx265|libkvazaar|libsvt_hevc|hevc_\w+"
# Of MPEG's own containers. FFmpeg 5.1 hangs with SVT-AV1 in MPEG-TS, and nothing reads other video there.
_MPEG = (
    r"copy|libx26[45](rgb)?|lib(xvid|openh264|kvazaar|vvenc|xavs2?|xeve|uavs3e|svt_hevc)"
    r"|(mpeg[124]|h264|hevc|vvc)\w*"
)
# Encoders of pictures, and of what is in use in one container only.
_PICTURES = (
    r"alias_pix|apng|bitpacked|bmp|fits|flashsv2|libjxl|libwebp\w*|pcx|p[abgp]m|pfm|pgmyuv|phm|qoi|rv[12]0|sunrast|vbn"
    r"|wrapped_avframe|xbm|xface|xwd"
)
# Patterns of the encoders whose video each container holds (tried with FFmpeg 5.1 and 9). With others, FFmpeg fails
# after some frames, or writes what nothing reads. libav's tables are no help: by them, Matroska holds no PNG, and
# MPEG-TS no H.264.
_ENCODERS_HELD = {
    **dict.fromkeys((".3g2", ".3gp"), rf"copy|{_H264}|{_MPEG4}|h263"),
    **dict.fromkeys(
        (".asf", ".wmv"),
        rf"(?!({_PICTURES}|{_HEVC}|avrp|exr|gif|hap|prores\w*|qtrle|roqvideo|sgi|smc|tiff)$).*",
    ),
    ".avi": rf"(?!({_PICTURES}|{_HEVC}|gif|qtrle|roqvideo|sgi|smc|tiff)$).*",
    ".f4v": rf"copy|{_H264}",
    ".flv": rf"copy|{_H264}|flv|flashsv2?",
    ".m4v": rf"copy|{_H264}|{_MPEG4}",
    **dict.fromkeys((".matroska", ".mkv"), rf"(?!({_PICTURES}|gif)$).*"),  # of GIF, the first picture is read
    ".mov": rf"(?!({_PICTURES})$|[\w-]*(av1|vp[89x])).*",
    ".mp4": rf"copy|{_H264}|{_MPEG4}|libx265|lib(kvazaar|openjpeg|vvenc|oapv|xeve|uavs3e|svt_hevc)|mpeg[12]\w*|vc2"
    r"|jpeg2000|png|mjpeg\w*|hevc_\w+|vvc\w*|[\w-]*(av1|vp9)\w*",
    ".mxf": rf"copy|{_H264}|mpeg2\w*|prores\w*|dnxhd|dvvideo|jpeg2000|libopenjpeg",
    ".nut": rf"(?!({_PICTURES}|avrp|exr|qtrle|sgi|smc|tiff)$).*",
    **dict.fromkeys((".mpeg", ".mpg", ".vob"), _MPEG),
    # Dirac is read in .ts only.
    **dict.fromkeys((".m2t", ".m2ts", ".mpegts", ".mts", ".ts"), rf"{_MPEG}|vc2|dirac"),
}
# The same, from a version of FFmpeg on: that of its Changelog, and for FFV1 tried with 7.1, 8.1 and 9, in MXF with 5.1
# and 9.
_ENCODERS_HELD_SINCE = {
    ".flv": ((6, 1), r"libx265|libkvazaar|hevc_\w+|[\w-]*(av1|vp9)\w*"),
    ".mp4": ((8, 0), r"ffv1\w*"),
    ".mxf": ((6, 0), r"ffv1"),
}
# Other encoders for the same names.
_RELATED = {
    "h263": "h263p",
    "jpeg2000": "libopenjpeg",
    "libsvtav1": r"[\w-]*av1\w*",
    "libtheora": r"libvpx|vp8_\w+",
    "libvpx-vp9": r"libvpx|[\w-]*(vp[89]|av1)\w*",
    "libwebp": "libwebp_anim",
    "libx264": r"\w*264\w*",
    "libx265": r"\w*(265|hevc)\w*",
    "mjpeg": r"ljpeg|mjpeg_\w+",
    "mpeg2video": r"mpeg2_\w+",
}
# The encoder for all other names: every player knows its video.
_DEFAULT_ENCODER = "libx264"
# Pictures that move are shown again and again, as GIF is by FFmpeg's default.
_LOOPING = {".apng": ("plays", 0), ".webp": ("loop", 0)}

# The software that encodes each format: the first one that FFmpeg has. FFmpeg itself prefers libaom-av1, which is many
# times slower by its defaults.
_SOFTWARE = {"h264": ("libx264",), "hevc": ("libx265",), "av1": ("libsvtav1", "libaom-av1")}
#: The values of `codec` that mean the hardware's encoder for a format, or else the software's.
AUTO_CODECS = tuple(f"auto-{name}" for name in _SOFTWARE)
# Ends of the names of encoders, in the order in which they are tried: NVIDIA, Intel and AMD. Those of VA-API and Vulkan
# need a device and filters of their own.
_MAKERS = ("nvenc", "qsv", "amf")
# Guessed: a driver takes up to 2 s to load when its files are not cached.
_PATIENCE_S = 10.0
_UNUSED = re.compile(r"AVOption (\S+) .* has not been used for any stream")
_COMPONENTS = re.compile(r"(?:\[[^\]]+\] )*")


def encoder_for(codec: str, program: str, output: Output, *, lossless: str | None) -> str:
    """The encoder that `codec` names, or that the name of `output` means. Of `AUTO_CODECS`, it is the software's.

    Args:
        lossless: the frames' pixel format, if they are to be encoded without loss; None otherwise. If the encoder that
            the name of `output` means cannot do that, it is FFV1, if the container holds that.

    Raises:
        ValueError: the name means another kind of video.
        TypeError: `codec` is no name.
    """
    if not isinstance(codec, str):
        raise TypeError(
            f"codec must be FFmpeg's name of a video encoder, such as 'libx264', not {codec!r}. An Encoder writes no "
            "file of sound alone: pass the samples to soundfile or PyAV"
        )
    asked, codec = codec, software_encoder(codec, program)
    kind = output.kind
    means = _ENCODERS.get(kind, _DEFAULT_ENCODER)
    if codec == AUTO:
        is_missing = kind == ".avif" and means not in capabilities.encoders(program)
        codec = "libaom-av1" if is_missing else means
    elif not _holds_codec(codec, program, kind):
        _refuse(codec, program, kind, means)
    # H.264 of RGB has an encoder of its own.
    if lossless is not None and codec == "libx264" and asked in (AUTO, *AUTO_CODECS) and is_rgb(lossless):
        codec = "libx264rgb"
    if lossless is None or asked != AUTO or _keeps_samples(program, codec, lossless):
        return codec
    return "ffv1" if _holds_codec("ffv1", program, kind) else codec


def _keeps_samples(program: str, codec: str, frames: str) -> bool:
    """Whether an encoder keeps every sample of frames in the pixel format `frames`, if it is asked to."""
    chosen = output_format(program, codec, {}, frames, AUTO, is_lossless=True)
    try:
        check_lossless(codec, frames, chosen.name)
    except ValueError:
        return False
    return True


def _holds_codec(codec: str, program: str, kind: str) -> bool:
    """Whether files of this kind can hold the video of `codec`."""
    means = _ENCODERS.get(kind)
    held = f"{means}|copy|{_RELATED.get(means, '-')}" if means else _ENCODERS_HELD.get(kind, ".*")
    if re.fullmatch(held, codec):
        return True
    since, later = _ENCODERS_HELD_SINCE.get(kind, ((0, 0), "-"))
    # The version is asked for only where it matters.
    return (
        re.fullmatch(later, codec) is not None and (capabilities.version_numbers(program) or since) >= since
    )


def _refuse(codec: str, program: str, kind: str, means: str) -> NoReturn:
    """Raises that files of this kind, whose default encoder is `means`, cannot hold the video of `codec`."""
    capabilities.check_codec(program, codec)  # raises for a misspelt name
    known = capabilities.encoders(program)
    related = [one for one in known if one != means and _holds_codec(one, program, kind)]
    if kind in _ENCODERS_HELD:  # too many to name
        related = [one for one in capabilities.software(capabilities.COMMON_CODECS) if one in related]
    others = f" (or {', '.join(related)})" if related else ""
    own = next((ending for ending, encoder in _VIDEO_ENCODERS.items() if encoder == codec), ".mkv")
    is_held = own != ".mkv" or re.fullmatch(_ENCODERS_HELD[own], codec)
    name = f", or a name such as video{own}" if is_held else ""
    raise ValueError(
        f"a file {kind} has no place for {codec} video: give {argument('codec', means)}{others}{name}"
    )


def with_loop(options: Mapping[str, object], output: Output) -> dict[str, object]:
    """Returns `options`, with the one that loops an animated image for ever unless they set it."""
    loop = _LOOPING.get(output.kind)
    return dict(options) if loop is None or output.is_numbered else dict([loop]) | dict(options)


def holds_sound(output: Output) -> bool:
    """Whether an output has a place for sound, as containers have and pictures have not."""
    kind = output.kind
    return kind in (".ogg", ".ogv", ".webm") or kind not in (*_ENCODERS, ".image2pipe", ".rawvideo")


def software_encoder(codec: str, program: str) -> str:
    """The encoder that `codec` names: an encoder, a format, or one of `AUTO_CODECS`, of which it is the software's.

    Raises:
        ValueError: it begins with "auto-", and is none of those.
    """
    if codec == AUTO:
        return codec
    if codec.startswith("auto-") and codec not in AUTO_CODECS:
        known = ", ".join(AUTO_CODECS)
        raise ValueError(f"{argument('codec', codec)} is none of auto, {known}, and no encoder of FFmpeg's")
    return capabilities.named_encoder(program, codec.removeprefix("auto-"), preferred=_SOFTWARE)


def hardware_encoders(codec: str) -> tuple[str, ...]:
    """The encoders of hardware to try for `codec`, in this order; none if it is not one of `AUTO_CODECS`."""
    if codec not in AUTO_CODECS:  # perhaps no name
        return ()
    return tuple(f"{codec.removeprefix('auto-')}_{maker}" for maker in _MAKERS)


@functools.lru_cache(maxsize=256)
def trial_failure(program: str, *arguments: str) -> str | None:
    """Why FFmpeg cannot encode by these arguments, in its own words; None if it can, and no option is left out.

    The answer is remembered, because no hardware comes or goes while a program runs.
    """
    try:
        trial = run(
            (program, "-hide_banner", "-nostdin", "-loglevel", "level+warning", *arguments),
            _PATIENCE_S,
            check=False,
        )
    except ProgramError as error:
        return str(error)
    log = StderrLog(trial.stderr.encode().splitlines())
    if trial.returncode != 0:
        # For a wrong value of an option, FFmpeg explains it on the next line.
        errors = (_COMPONENTS.sub("", line, count=1) for line in log.errors if "[Eval]" not in line)
        return next(errors, f"FFmpeg {trial.ending}")
    unused = (found[1] for line in log.warnings if (found := _UNUSED.search(line)))
    return next((f"it has no option {name}" for name in unused), None)


LOSSLESS = "lossless"
# Those of "draft", "good" and "master". The SSIM of luma in dB, as a mean over rendered motion and a noisy camera at
# 640×360, is within 1.5 dB of libx264's, with FFmpeg 5.1 and 9 and the presets that encoders have by default. Text
# on a screen looks at least as good as with libx264, but for mjpeg and mpeg4.
_LEVELS: dict[str, tuple[Mapping[str, object], Mapping[str, object], Mapping[str, object]]] = {
    "libsvtav1": ({"crf": 52}, {"crf": 23}, {"crf": 7}),
    "libvpx-vp9": ({"crf": 52, "b:v": 0}, {"crf": 33, "b:v": 0}, {"crf": 16, "b:v": 0}),
    "libx264": ({"crf": 30}, {"crf": 21}, {"crf": 14}),
    "libx265": ({"crf": 32}, {"crf": 22}, {"crf": 14}),
    "mjpeg": ({"q:v": 8}, {"q:v": 3}, {"q:v": 1, "qmin": 1}),
    "mpeg4": ({"q:v": 6}, {"q:v": 3}, {"q:v": 1, "qmin": 1}),
}
# Replaces FFmpeg's default, a bit rate of 0.2 Mbit/s that ruins larger pictures. Chosen, not measured.
_DEFAULTS: dict[str, Mapping[str, object]] = {"libtheora": {"q:v": 8}}
# The best quality that FFmpeg advises for JPEG. Its default aims at the bit rate of a small video.
_DEFAULTS_OF_IMAGES: dict[str, Mapping[str, object]] = {"mjpeg": {"q:v": 2}}
_WITHOUT_LOSS: dict[str, Mapping[str, object]] = {
    "libvpx-vp9": {"lossless": 1},
    "libx264": {"qp": 0},
    "libx264rgb": {"qp": 0},
    "libx265": {"x265-params": "lossless=1"},
}
# FFmpeg calls these lossless, but v210 cannot store the four lowest and highest values, and ljpeg is decoded with
# another range than it was encoded with.
_NOT_EXACT = ("ljpeg", "v210")
# Frames that FFmpeg 5.1 cannot convert exactly: it interpolates Bayer data, clips XYZ, and rounds the others.
_CONVERTED_INEXACTLY = re.compile(r"bayer|xyz|x2|(?:rgb|bgr)\d{3}")
# FFmpeg's options for a quality or a bit rate of video. One of them overrides a level, and contradicts "lossless".
_RATE_OPTIONS = frozenset(("b", "cq", "crf", "global_quality", "q", "qp", "qscale"))
# Options that hold parameters of the encoder's own, and those of these for a quality or a bit rate.
_PARAMETERS = ("x264-params", "x264opts", "x265-params")
_RATE_PARAMETERS = re.compile(r"\b(?:bitrate|crf|lossless|qp)\b", re.IGNORECASE)


def quality_options(
    program: str,
    codec: str,
    quality: Quality | None,
    given: Mapping[str, object],
    *,
    are_images: bool = False,
) -> dict[str, object]:
    """FFmpeg's options by which an encoder reaches a level, beside those that are `given`, or none if those count more.

    Raises:
        ValueError: there is no such level, or none is known for the encoder.
    """
    if quality is None:
        defaults = _DEFAULTS_OF_IMAGES if are_images else _DEFAULTS
        return {} if any(map(_is_rate, given)) else dict(defaults.get(codec, {}))
    check_choice("quality", quality, get_args(Quality))
    is_lossless = quality == LOSSLESS
    levels = _WITHOUT_LOSS
    if not is_lossless:
        levels = {name: options[get_args(Quality).index(quality)] for name, options in _LEVELS.items()}
    if codec not in levels:
        is_exact = codec == "rawvideo" or capabilities.is_lossless(program, codec)
        if is_exact and not (is_lossless and codec in _NOT_EXACT):
            return {}  # it has no other level
        known = ", ".join([*levels, *(["ffv1", "png"] if is_lossless else [])])
        raise ValueError(
            f"{argument('quality', quality)} is not known for {codec}: take one of {known}, or options"
        )
    level, joined = levels[codec], dict[str, object]()
    also = next((name for name in given if _is_rate(name)), None)
    for name, value in given.items() if is_lossless else ():
        if (
            name in level
            and name in _PARAMETERS
            and isinstance(value, str)
            and not _RATE_PARAMETERS.search(value)
        ):
            joined[name] = f"{level[name]}:{value}"  # about something else, such as the threads of x265
        elif name in level or (name in _PARAMETERS and _RATE_PARAMETERS.search(str(value))):
            also = name
    if also is None:
        return {name: value for name, value in level.items() if name not in given} | joined
    if is_lossless:
        named = argument(f"options.{also}", given[also])
        raise ValueError(f"{argument('quality', quality)} and {named} exclude each other: give one")
    return {}


def check_lossless(codec: str, frames: str, output_pixel_format: str | None) -> None:
    """Checks that video of `output_pixel_format` gives back the samples of frames in the pixel format `frames`."""
    source, chosen = pixel_format_of(frames), pixel_format_of(output_pixel_format or "")
    is_palette = output_pixel_format == PALETTE != frames
    if is_palette or source is None or chosen is None or not _holds(chosen, source):
        raise ValueError(
            f"{argument('quality', LOSSLESS)} is not possible: {codec} stores {frames} as "
            f"{output_pixel_format or 'FFmpeg decides'}, which changes samples. Give {_keeping(codec, frames, source)}"
        )


def _keeping(codec: str, frames: str, source: PixelFormat | None) -> str:
    """The arguments that keep the samples, which `codec` does not."""
    if frames.startswith("bgra64"):
        return f"{argument('pixel_format', 'rgba64le')}, {argument('codec', 'ffv1')} and a name such as video.mkv"
    if source and source.depth > 16:
        return f"{argument('codec', 'exr')}, a name such as frames/%05d.exr, and no quality"
    if codec == "ffv1" or source is None or source.depth < 8 or _CONVERTED_INEXACTLY.match(frames):
        # Other containers have no name for x2rgb10.
        return f"{argument('codec', 'rawvideo')} and a name such as video.{'rgb' if frames[:2] == 'x2' else 'nut'}"
    return f"{argument('codec', 'ffv1')} and a name such as video.mkv"


def _holds(chosen: PixelFormat, source: PixelFormat) -> bool:
    kinds = {source.kind, "rgb"} if source.kind == "gray" else {source.kind}
    return (
        chosen.kind in kinds
        and chosen.depth == source.depth
        and chosen.has_alpha >= source.has_alpha
        and (source.kind == "gray" or chosen.subsampling == source.subsampling)
        and not _rounds(source.name, chosen.name)
    )


def _rounds(source: str, chosen: str) -> bool:
    """Whether FFmpeg's conversion changes samples, though both formats hold them."""
    # Another order of bytes alone changes nothing.
    is_inexact = _CONVERTED_INEXACTLY.match(source) is not None and source[:-2] != chosen[:-2]
    is_swapped = "bgra64" in (source[:6], chosen[:6]) and source[:6] != chosen[:6]
    rounds_alpha = chosen == "gbrap" and source in ("rgba", "bgra", "argb", "abgr")  # FFmpeg 5.1
    return is_inexact or is_swapped or rounds_alpha


def _is_rate(name: str) -> bool:
    option, _, stream = name.partition(":")
    return option in _RATE_OPTIONS and not stream.startswith("a")
