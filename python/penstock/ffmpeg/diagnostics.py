"""What to do about FFmpeg's complaints: a line of advice beside its own words, which stay.

The words are those of FFmpeg 5.1 and 9.0. A complaint that is not known here has no advice.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.ffmpeg import capabilities, endpoints
from penstock.ffmpeg.capabilities import Option, did_you_mean

# x264's own (x264_preset_names and x264_tune_names in x264.h), which x265 has too; FFmpeg's help does not list them.
_X264_VALUES = {
    "preset": (
        *("ultrafast", "superfast", "veryfast", "faster", "fast", "medium"),
        *("slow", "slower", "veryslow", "placebo"),
    ),
    "tune": ("film", "animation", "grain", "stillimage", "psnr", "ssim", "fastdecode", "zerolatency"),
    "profile": ("baseline", "main", "high", "high10", "high422", "high444"),
}
# Guessed: more names than this are no line to read.
_NAMES_IN_A_LINE = 12
# Containers by the ends of names that differ from them.
_ENDINGS = {"mkv": "matroska", "ts": "mpegts", "m3u8": "hls", "mpd": "dash", "jpg": "image2", "png": "image2"}
_COMMON_ENDINGS = (
    "mp4",
    "mkv",
    "mov",
    "webm",
    "avi",
    "ts",
    "m3u8",
    "mpd",
    "flv",
    "gif",
    "y4m",
    "nut",
    "mxf",
    "mpg",
)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What FFmpeg was asked to do."""

    program: str
    codec: str
    options: Mapping[str, object]
    container_format: str | None
    target: str

    @property
    def output(self) -> str:
        return endpoints.without_protocol(self.target)


def explain(
    program: str,
    codec: str,
    options: Mapping[str, object],
    container_format: str | None,
    output: str,
    stderr: str,
) -> str | None:
    """What a person can do about FFmpeg's failure; None if nothing is known of it.

    Asks `program` what it has, and therefore takes some tenths of a second.

    Args:
        program: the FFmpeg that failed.
        codec, options, container_format: the `Encoder`'s arguments.
        output: what FFmpeg was told to write to (`endpoints.target`).
        stderr: its last words.
    """
    attempt = _Attempt(program, codec, options, container_format, output)
    stderr = re.sub(r"\x1b\[[\d;]*m", "", stderr)  # AV_LOG_FORCE_COLOR paints pipes too
    for words, advice in _ADVICE:
        if (found := re.search(words, stderr)) and (said := advice(attempt, found)):
            return said
    return None


def _codec(attempt: _Attempt, found: re.Match[str]) -> str:
    return capabilities.unknown_codec(attempt.program, found[1])


def _option(attempt: _Attempt, found: re.Match[str]) -> str:
    name = found[1].partition(":")[0]  # "crf:v" is for the video
    near = did_you_mean(name, _known_options(attempt))
    return f"neither FFmpeg nor {attempt.codec} has an option {name!r}.{near}"


def _value(attempt: _Attempt, found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    option = _known_options(attempt).get(name, Option())
    near = did_you_mean(value, option.values)
    # As the user has it: FFmpeg says "b" of "b:v".
    name = next((given for given in attempt.options if given.partition(":")[0] == name), name)
    return f"options[{name!r}] cannot be {value!r}.{near}{_takes(option)}"


def _takes(option: Option) -> str:
    number = f"{option.kind} {option.limits}" if option.limits and "MAX" not in option.limits else option.kind
    names = ", ".join(option.values[:_NAMES_IN_A_LINE]) + ", …" * (len(option.values) > _NAMES_IN_A_LINE)
    kinds = [kind for kind in (number, names) if kind]
    return f" It takes {': '.join(kinds)}" if kinds else ""


def _preset_or_tune(attempt: _Attempt, found: re.Match[str]) -> str:
    preset, tune = found[1], found[2]
    # Both are told, and one of them is wrong; "(null)" was not given.
    wrong = "tune" if preset in ("(null)", *_X264_VALUES["preset"]) else "preset"
    value = tune if wrong == "tune" else preset
    known = _X264_VALUES[wrong]
    return f"{attempt.codec} has no {wrong} {value!r}.{did_you_mean(value, known)} It has {', '.join(known)}"


def _profile(attempt: _Attempt, found: re.Match[str]) -> str:
    name = found[1] or found[2]
    near = did_you_mean(name, _X264_VALUES["profile"])
    return f"{attempt.codec} has no profile {name!r} for video of this pixel format.{near}"


def _container(attempt: _Attempt, found: re.Match[str]) -> str:
    near = did_you_mean(found[1], capabilities.muxers(attempt.program))
    by_ending = f" {_ENDINGS[found[1]]!r} is FFmpeg's name for it." if found[1] in _ENDINGS else near
    return f"there is no container_format {found[1]!r}.{by_ending} `ffmpeg -muxers` lists them"


def _no_container(attempt: _Attempt, found: re.Match[str]) -> str:
    ending = Path(attempt.output).suffix.removeprefix(".")
    near = did_you_mean(ending, _COMMON_ENDINGS)
    return f"the output's name does not tell its container.{near} End it with .mp4 or .mkv, or give container_format"


def _pixel_format(attempt: _Attempt, found: re.Match[str]) -> str:
    near = did_you_mean(found[1], capabilities.pixel_formats(attempt.program))
    return f"there is no output_pixel_format {found[1]!r}.{near} `ffmpeg -pix_fmts` lists them"


def _filter(attempt: _Attempt, found: re.Match[str]) -> str:
    return (
        f"FFmpeg has no filter {found[1]!r}.{did_you_mean(found[1], capabilities.filters(attempt.program))}"
    )


def _filter_text(attempt: _Attempt, found: re.Match[str]) -> str:
    known = capabilities.filters(attempt.program)
    for part in re.split(r"[,;]", found[1]):
        name = re.sub(r"^\s*(?:\[\w+\])*", "", part).partition("=")[0].partition("@")[0].strip()
        if known and name and name not in known:
            return f"FFmpeg has no filter {name!r}.{did_you_mean(name, known)}"
    return f"a filter in {found[1]!r} is not as `ffmpeg -h filter=NAME` tells"


def _filter_option(attempt: _Attempt, found: re.Match[str]) -> str:
    # FFmpeg 5.1 names the filter first, 9.0 the option.
    name, option = (found[1], found[2]) if found[1] else (found[4], found[3])
    near = did_you_mean(option, capabilities.filter_options(attempt.program, name))
    return f"the filter {name!r} has no option {option!r}.{near}"


def _filter_refused(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"the filter {found[1]!r} was refused: `ffmpeg -h filter={found[1]}` tells its options"


def _disk_full(attempt: _Attempt, found: re.Match[str]) -> str:
    folder = Path(attempt.output).parent
    try:
        free = f"; {shutil.disk_usage(folder).free >> 20} MiB are free in {folder} now"
    except OSError:
        free = ""
    return f"the disk is full: make room, or write elsewhere{free}"


def _refused(attempt: _Attempt, found: re.Match[str]) -> str:
    return (
        f"nothing takes the stream at {attempt.output}: start the server or player that listens there first"
    )


def _unknown_host(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"the host {found[1] or found[2]!r} has no address: check its name, and the network"


def _lost(attempt: _Attempt, found: re.Match[str]) -> str | None:
    if endpoints.is_path(attempt.target):
        return None
    return f"the other side of {attempt.output} did not answer, or closed the connection: {found[0]}"


def _not_seekable(attempt: _Attempt, found: re.Match[str]) -> str:
    return (
        f"{found[1]} goes back to its beginning at the end, which a stream cannot: give "
        "options={'movflags': 'frag_keyframe+empty_moov'}, or container_format 'matroska' or 'mpegts'"
    )


def _does_not_hold(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"this container does not hold {attempt.codec} video: take matroska, which holds most, or another codec"


def _hardware(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"{attempt.codec} needs a GPU and its driver, which FFmpeg did not find here; libx264 needs none"


def _not_writable(attempt: _Attempt, found: re.Match[str]) -> str | None:
    if not endpoints.is_path(attempt.target):
        return None
    return f"{attempt.output} may not be written to: choose another place"


def _no_folder(attempt: _Attempt, found: re.Match[str]) -> str | None:
    folder = Path(attempt.output).parent
    # It may be another file that is missing, such as one that an option names.
    if not endpoints.is_path(attempt.target) or folder.is_dir():
        return None
    return f"the folder {folder} does not exist any more"


def _says(advice: str) -> Callable[[_Attempt, re.Match[str]], str]:
    """Advice that is the same for everyone; ``{0.output}`` and the like are the attempt's."""
    return lambda attempt, found: advice.format(attempt)


def _known_options(attempt: _Attempt) -> dict[str, Option]:
    return {
        **capabilities.global_options(attempt.program),
        **capabilities.muxer_options(attempt.program, _container_of(attempt)),
        # Last, for an encoder's own meaning of a name prevails.
        **capabilities.encoder_options(attempt.program, attempt.codec),
    }


def _container_of(attempt: _Attempt) -> str:
    if attempt.container_format is not None:
        return attempt.container_format
    ending = Path(attempt.output).suffix.removeprefix(".")
    return _ENDINGS.get(ending, ending)


# FFmpeg's words and what to say then, the first that is found. Causes come before consequences.
_ADVICE: tuple[tuple[str, Callable[[_Attempt, re.Match[str]], str | None]], ...] = (
    (r"(?:Unknown encoder|Invalid encoder type) '(.+)'", _codec),
    (r"Unrecognized option '(.+)'", _option),
    (r"Requested output format '(.+)' is not", _container),
    (r"Unable to (?:find a suitable|choose an) output format", _no_container),
    (r"Unknown pixel format requested: (.+)\.", _pixel_format),
    (r"Error setting preset/tune (.+)/(.+)\.", _preset_or_tune),
    (r"invalid profile: (.+)|Invalid or incompatible profile set: (.+)\.", _profile),
    (r"Error setting option (\S+) to value (.+)\.", _value),
    (r"No such filter: '(.+)'", _filter),
    (
        r"\[Parsed_(\w+)_\d+ @ \S+\] Option '(.+)' not found|Error applying option '(.+)' to filter '(.+)'",
        _filter_option,
    ),
    (r"Error parsing filterchain '(.+)' around", _filter_text),
    (
        r"experimental codecs are not enabled",
        _says("{0.codec} is experimental, which has to be allowed: options={{'strict': 'experimental'}}"),
    ),
    (r"Cannot load lib(?:cuda|nvidia)|Cannot load nvcuda|No (?:capable|VA) d|No device available", _hardware),
    (
        r"No NVENC capable devices|OpenEncodeSessionEx failed|Failed to set value '.*' for option 'vaapi",
        _hardware,
    ),
    (r"\[(\S+) @ \S+\] muxer does not support non seekable output", _not_seekable),
    (
        r"are supported for|not compatible with|Could not find tag for codec|not currently supported in container",
        _does_not_hold,
    ),
    (
        r"(?:width|height) not divisible by",
        _says(
            "{0.codec} takes even sizes only: give odd_size='pad' or 'crop', or output_pixel_format='yuv444p'"
        ),
    ),
    (r"Non full-range YUV is non-standard", _says("{0.codec} video has the full range: color_range='full'")),
    (
        r"Impossible to convert between the formats",
        _says("FFmpeg cannot convert between these pixel formats: give frames, or the output, another one"),
    ),
    (r"No space left on device|Disk quota exceeded", _disk_full),
    (r"Connection refused", _refused),
    (r"getaddrinfo\((.*?)(?:, .*)?\):|Failed to resolve hostname (\S+):", _unknown_host),
    (
        r"Protocol not found",
        _says("FFmpeg knows no such protocol as that of {0.output}: `ffmpeg -protocols` lists them"),
    ),
    (
        r"Permission denied|Read-only file system",
        _says("{0.output} may not be written to: choose another place"),
    ),
    (r"File name too long", _says("the name of {0.output} is too long for its file system")),
    (r"Is a directory", _says("{0.output} is a folder: name a file in it")),
    (r"No such file or directory", _no_folder),
    (
        r"Broken pipe|Connection reset by peer|Connection timed out|No route to host|Network is unreachable",
        _lost,
    ),
    (r"\[Parsed_(\w+)_\d+ @", _filter_refused),
)
