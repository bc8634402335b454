"""FFmpeg's messages: sorts the lines that it writes to standard error, finds damage in them, and explains failures.

The patterns are those of FFmpeg 5.1 to 9.0. An explanation stands beside FFmpeg's own words and does not replace them;
a message without a known pattern has none.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.ffmpeg import capabilities, endpoints
from penstock.ffmpeg.arguments import FILTER_OPTIONS
from penstock.ffmpeg.capabilities import Option, did_you_mean
from penstock.ffmpeg.naming import argument

# Guessed: the cause of a failure is in the last lines, and what is kept must stay bounded.
_STDERR_LINES = 50
# Guessed: an ordinary file is told of in few messages that differ, and what is kept must stay bounded.
_REPORTS = 1000
# Guessed: nobody reads more warnings than these.
_WARNING_LINES = 20
# Guessed: more lines than these do not fit in a message.
_SUMMARY_LINES = 3

# The component that writes a line, and its address: "[h264 @ 0x55d0] ".
_COMPONENT = r"\[([^\[\]]+) @ 0x[0-9a-f]+\] ?"
# AV_LOG_FORCE_COLOR colours what goes into pipes, too.
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# With "-loglevel level+…", the level follows the components.
_LEVEL = re.compile(rf"((?:{_COMPONENT})*)\[(panic|fatal|error|warning)\] ")
_ADDRESS = re.compile(r" @ 0x[0-9a-f]+(?=\])")
_REPEATED = re.compile(r"\s*Last message repeated (\d+) times")
# The muxer `tee`, when one of its outputs fails. Without "onfail", FFmpeg 5.1 and 7.1 go on, and 9.0 aborts.
_FAILED_OUTPUT = re.compile(r"Slave muxer #(\d+) failed(?:: (.*), continuing with|, aborting)")

# What FFmpeg 5.1 to 9 prints first for a stream without a decodable frame.
_NO_FRAMES = "Cannot determine format of input"
# Warnings about something that Penstock asks for on purpose, or about one of FFmpeg's own defaults.
_NOISE = re.compile(
    r"deprecated pixel format used, make sure you did set range correctly"  # JPEG's yuvj420p; the range is set
    r"|No accelerated colorspace conversion found"  # the pixels are the same
    r"|Neither bitrate nor constrained quality specified, using default"  # libvpx and libaom without crf
    r"|No bit rate set\. Defaulting to"  # libopus
    r"|VBV buffer size not set, using default"  # MPEG program streams
    r"|Specified chroma sample location \w+ is unsupported on the AV1 bit stream level"  # printed for every container
    r"|Thread message queue blocking"  # of two inputs, one waits for the other
    r"|Guessed Channel Layout|codec frame size is not set"  # what NUT does not say of sound
    r"|No filtered frames for output stream, trying to initialize anyway"  # no frame came, or no sound
)
# Lines with the level of an error, in FFmpeg 5.1 to 9, that cost no frame.
_HARMLESS = re.compile(
    # Two frames with the same time, for an output without times.
    r"^\[rawvideo @ .*Application provided invalid, non monotonically increasing dts"
    # Zeros after the end of a GIF (FFmpeg 5.1). `ending` looks in the file for a missing end.
    r"|^\[gif @ .*invalid block label"
    # H.264 that was joined, or recorded from the middle. Every frame is decoded (h264_direct.c, h264_refs.c).
    r"|co located POCs unavailable|mmco: unref short failure"
    # Data beside the video in QuickTime and MP4 (mov.c).
    r"|Referenced QT chapter track not found|loci too short|place name too long|Error parsing cover art"
    r"|Failed to store the (?:number|float32)|The 'keys' atom|The key# |Unknown MOV field order|aclr not decoded"
    r"|Invalid m[dv]hd time scale|Unknown projection type|Missing (?:spherical|projection)"
)

# From x264_preset_names and x264_tune_names in x264.h, which x265 shares; FFmpeg's help does not list them.
_X264_VALUES = {
    "preset": (
        *("ultrafast", "superfast", "veryfast", "faster", "fast", "medium"),
        *("slow", "slower", "veryslow", "placebo"),
    ),
    "tune": ("film", "animation", "grain", "stillimage", "psnr", "ssim", "fastdecode", "zerolatency"),
    "profile": ("baseline", "main", "high", "high10", "high422", "high444"),
}
# Options that drop or repeat frames.
_COUNT_OPTIONS = ("r", "fpsmax", "t", "to", "ss", "frames", "vframes", "fps_mode", "vsync")
# Guessed: a line with more names than these is too long to read.
_NAMES_IN_A_LINE = 12
# Containers whose names differ from the extensions of their files.
_EXTENSIONS = {
    "mkv": "matroska",
    "ts": "mpegts",
    "m3u8": "hls",
    "mpd": "dash",
    "jpg": "image2",
    "png": "image2",
}
_COMMON_EXTENSIONS = (
    *("mp4", "mkv", "mov", "webm", "avi", "ts", "m3u8", "mpd"),
    *("flv", "gif", "y4m", "nut", "mxf", "mpg"),
)


class StderrLog:
    """The lines that a running FFmpeg writes to standard error, sorted by level.

    Without levels (``-loglevel error``), every line counts as an error.
    """

    def __init__(self) -> None:
        #: How often each line came that is no warning, whichever of FFmpeg's threads it was.
        self.reports: Counter[str] = Counter()
        self._lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._last = ""
        # Dictionaries as ordered sets.
        self._warnings: dict[str, None] = {}
        self._errors: dict[str, None] = {}
        #: Why outputs of the muxer `tee` failed, by their numbers from 0; "" if FFmpeg does not say.
        self.failed_outputs: dict[int, str] = {}

    def take(self, data: bytes) -> None:
        """Sorts one line in."""
        line = data.decode(errors="replace").rstrip()
        if found := _FAILED_OUTPUT.search(line):
            self.failed_outputs[int(found[1])] = found[2] or ""
        level = _LEVEL.match(line)
        if level is None:  # a library's own line, or FFmpeg prints no levels
            self._add(line)
            return
        line, is_warning = level[1] + line[level.end() :], level[3] == "warning"
        if not is_warning:
            self._add(line)
        first = self._warnings if is_warning else self._errors
        if len(first) < _WARNING_LINES and not _NOISE.search(line):
            first[_ADDRESS.sub("", line)] = None

    def _add(self, line: str) -> None:
        self._lines.append(line)
        if repeated := _REPEATED.fullmatch(line):
            self.reports[self._last] += int(repeated[1])
            return
        if not line.strip():
            return
        self._last = _ADDRESS.sub(" @ 0x0", _COLOUR.sub("", line))
        if self._last not in self.reports and len(self.reports) >= _REPORTS:
            self._last = "further messages"
        self.reports[self._last] += 1

    @property
    def text(self) -> str:
        """The last 50 lines, without warnings."""
        return "\n".join(self._lines)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The first 20 warnings, each once, without those that mean nothing here."""
        return tuple(self._warnings)

    @property
    def errors(self) -> tuple[str, ...]:
        """The first 20 errors, each once, if FFmpeg prints levels. After an error it may go on and exit with 0."""
        return tuple(self._errors)


def damage_reports(reports: Mapping[str, int], other_codecs: Iterable[str] = ()) -> Counter[str]:
    """Those of a `StderrLog`'s reports that may mean a missing or damaged frame. FFmpeg must print errors only.

    `other_codecs` are those of the streams that are not decoded, into which FFmpeg looks all the same.
    """
    others = tuple(other_codecs)
    return Counter({line: count for line, count in reports.items() if not _is_harmless(line, others)})


def _is_harmless(line: str, other_codecs: tuple[str, ...]) -> bool:
    component = re.match(_COMPONENT, line)
    # The name of a decoder may be longer than its codec's: mp3, mp3float.
    is_other = component is not None and component[1].startswith(other_codecs) if other_codecs else False
    return is_other or _HARMLESS.search(line) is not None


def without_components(stderr: str) -> str:
    """`stderr` without the names and addresses of FFmpeg's components, and without colours."""
    return re.sub(_COMPONENT, "", _COLOUR.sub("", stderr))


def has_no_frames(stderr: str) -> bool:
    """Whether FFmpeg, which failed, found no decodable frame in the stream."""
    return _NO_FRAMES in stderr.partition("\n")[0]


def summarize(stderr: str, source: str) -> str:
    """The last lines of `stderr` as one line, without components and without the name of the input, `source`."""
    lines = (line.strip().removeprefix(f"{source}: ") for line in without_components(stderr).splitlines())
    # FFmpeg 7 ends with the name of the input and the reason once more.
    said = (line for line in lines if line and not line.startswith("Error opening input file"))
    return "; ".join([*dict.fromkeys(said)][-_SUMMARY_LINES:])


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What FFmpeg was run for."""

    program: str
    codec: str
    options: Mapping[str, object]
    container_format: str | None
    target: str

    @property
    def output(self) -> str:
        return endpoints.without_protocol(self.target)

    @property
    def extension(self) -> str:
        return Path(self.output).suffix.removeprefix(".")


def explain(
    program: str,
    codec: str,
    options: Mapping[str, object],
    container_format: str | None,
    output: str,
    stderr: str,
) -> str | None:
    """What the user can do about FFmpeg's failure; None if the failure is not known.

    `stderr` is FFmpeg's output, and behind it how FFmpeg ended and the number of frames that it encoded.
    Runs `program`, the FFmpeg that failed, for its listings, which takes some tenths of a second. `codec`, `options`
    and `container_format` are the `Encoder`'s, and `output` is from `endpoints.target`.
    """
    attempt = _Attempt(program, codec, options, container_format, output)
    stderr = _COLOUR.sub("", stderr)
    for pattern, advise in _ADVICE:
        if (found := re.search(pattern, stderr)) and (advice := advise(attempt, found)):
            return advice
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
    # FFmpeg calls the user's option "b:v" "b".
    name = next((given for given in attempt.options if given.partition(":")[0] == name), name)
    return f"{argument(f'options.{name}', value)} is not possible.{near}{_takes(option)}"


def _takes(option: Option) -> str:
    number = f"{option.kind} {option.limits}" if option.limits and "MAX" not in option.limits else option.kind
    names = ", ".join(option.values[:_NAMES_IN_A_LINE]) + ", …" * (len(option.values) > _NAMES_IN_A_LINE)
    kinds = [kind for kind in (number, names) if kind]
    return f" It takes {': '.join(kinds)}" if kinds else ""


def _preset_or_tune(attempt: _Attempt, found: re.Match[str]) -> str:
    preset, tune = found[1], found[2]
    # FFmpeg prints both, and one of them is wrong; "(null)" stands for one that was not given.
    wrong = "tune" if preset in ("(null)", *_X264_VALUES["preset"]) else "preset"
    value = tune if wrong == "tune" else preset
    known = _X264_VALUES[wrong]
    return f"{attempt.codec} has no {wrong} {value!r}.{did_you_mean(value, known)} It has {', '.join(known)}"


def _profile(attempt: _Attempt, found: re.Match[str]) -> str:
    name = found[1] or found[2]
    near = did_you_mean(name, _X264_VALUES["profile"])
    return f"{attempt.codec} has no profile {name!r} for video of this pixel format.{near}"


def _no_encoder(attempt: _Attempt, found: re.Match[str]) -> str:
    return (
        f"{found[1]} has no sound, or FFmpeg does not know with which codec: leave audio out, name another container, "
        "or give AudioFile(codec=…) or AudioInput(codec=…)"
    )


def _container(attempt: _Attempt, found: re.Match[str]) -> str:
    near = did_you_mean(found[1], capabilities.muxers(attempt.program))
    by_extension = f" {_EXTENSIONS[found[1]]!r} is FFmpeg's name for it." if found[1] in _EXTENSIONS else near
    return f"there is no container format {found[1]!r}.{by_extension} `ffmpeg -muxers` lists them"


def _no_container(attempt: _Attempt, found: re.Match[str]) -> str:
    near = did_you_mean(attempt.extension, _COMMON_EXTENSIONS)
    remedy = f"End it with .mp4 or .mkv, or give {argument('options.f')}"
    return f"the output's name does not tell its container.{near} {remedy}"


def _not_seekable(attempt: _Attempt, found: re.Match[str]) -> str:
    return (
        f"{found[1]} goes back to its beginning at the end, which a stream cannot: give "
        f"{argument('options.movflags', 'frag_keyframe+empty_moov')}, or {argument('options.f', 'matroska')} or mpegts"
    )


def _experimental(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"{attempt.codec} is experimental, which has to be allowed: {argument('options.strict', 'experimental')}"


def _frame_count(attempt: _Attempt, found: re.Match[str]) -> str | None:
    options = {name: name.partition(":")[0] for name in attempt.options}
    causes = [name for name, plain in options.items() if plain in _COUNT_OPTIONS]
    causes = causes or [name for name in options if name in FILTER_OPTIONS]  # most filters keep the number
    if found[1] == found[2] or not causes:
        return None
    given = " and ".join(argument(f"options.{name}", attempt.options[name]) for name in causes)
    return (
        f"leave out {given}: the video has another number of frames with it. Give the rate by {argument('fps')}, and "
        "write the frames that the video is to have"
    )


def _odd_size(attempt: _Attempt, found: re.Match[str]) -> str:
    return (
        f"{attempt.codec} takes even sizes only: give {argument('odd_size', 'pad')} (or crop), or "
        f"{argument('output_pixel_format', 'yuv444p')}"
    )


def _full_range(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"{attempt.codec} video has the full range: {argument('colors.range', 'full')}"


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
    return f"a filter in {found[1]!r} has a syntax error; see `ffmpeg -h filter=NAME`"


def _filter_option(attempt: _Attempt, found: re.Match[str]) -> str:
    # FFmpeg 5.1 prints the filter first, 9.0 the option.
    name, option = (found[1], found[2]) if found[1] else (found[4], found[3])
    near = did_you_mean(option, capabilities.filter_options(attempt.program, name))
    return f"the filter {name!r} has no option {option!r}.{near}"


def _disk_full(attempt: _Attempt, found: re.Match[str]) -> str:
    folder = Path(attempt.output).parent
    try:
        free = f"; {shutil.disk_usage(folder).free >> 20} MiB are free in {folder} now"
    except OSError:
        free = ""
    return f"the disk is full: make room, or write elsewhere{free}"


def _unknown_host(attempt: _Attempt, found: re.Match[str]) -> str:
    return f"the host {found[1] or found[2]!r} has no address: check its name, and the network"


def _lost(attempt: _Attempt, found: re.Match[str]) -> str | None:
    if endpoints.is_path(attempt.target):
        return None
    return f"the other side of {attempt.output} did not answer, or closed the connection: {found[0]}"


def _no_folder(attempt: _Attempt, found: re.Match[str]) -> str | None:
    folder = Path(attempt.output).parent
    # The missing file may be another one, such as one that an option names.
    if not endpoints.is_path(attempt.target) or folder.is_dir():
        return None
    return f"the folder {folder} does not exist any more"


def _always(advice: str) -> Callable[[_Attempt, re.Match[str]], str]:
    """Returns `advice` for every match, with what ``{attempt.output}``, ``{found[1]}`` and the like stand for."""
    return lambda attempt, found: advice.format(attempt=attempt, found=found)


def _known_options(attempt: _Attempt) -> dict[str, Option]:
    container = attempt.container_format or _EXTENSIONS.get(attempt.extension, attempt.extension)
    return {
        **capabilities.global_options(attempt.program),
        **capabilities.muxer_options(attempt.program, container),
        # Last, so that an encoder's own option replaces a general one of the same name.
        **capabilities.encoder_options(attempt.program, attempt.codec),
    }


# Patterns in FFmpeg's messages, and the advice for each. The first match counts, so causes come before consequences.
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
    (r"Automatic encoder selection failed.* Default encoder for format (\S+) ", _no_encoder),
    (r"experimental codecs are not enabled", _experimental),
    (
        r"Cannot load lib(?:cuda|nvidia)|Cannot load nvcuda|No (?:capable|VA) d|No device available"
        r"|No NVENC capable devices|OpenEncodeSessionEx failed|Failed to set value '.*' for option 'vaapi",
        _always(
            "{attempt.codec} needs a GPU and its driver, which FFmpeg did not find here; libx264 needs none"
        ),
    ),
    (r"\[(\S+) @ \S+\] muxer does not support non seekable output", _not_seekable),
    (
        r"only supported in MP4",
        _always("this container does not hold {attempt.codec} video: take .mp4 or .mkv, or another codec"),
    ),
    (
        r"are supported for|not compatible with|Could not find tag for codec|not currently supported in container",
        _always(
            "this container does not hold {attempt.codec} video: take matroska, which holds most, or another codec"
        ),
    ),
    (r"(?:width|height) not divisible by", _odd_size),
    (r"Non full-range YUV is non-standard", _full_range),
    (
        r"Impossible to convert between the formats",
        _always("FFmpeg cannot convert between these pixel formats: give frames, or the output, another one"),
    ),
    (r"No space left on device|Disk quota exceeded", _disk_full),
    (
        r"Connection refused",
        _always(
            "nothing takes the stream at {attempt.output}: start the server or player that listens there first"
        ),
    ),
    (r"getaddrinfo\((.*?)(?:, .*)?\):|Failed to resolve hostname (\S+):", _unknown_host),
    (
        r"Protocol not found",
        _always("FFmpeg knows no such protocol as that of {attempt.output}: `ffmpeg -protocols` lists them"),
    ),
    (
        r"Permission denied|Read-only file system",
        _always("{attempt.output} may not be written to: choose another place"),
    ),
    (r"File name too long", _always("the name of {attempt.output} is too long for its file system")),
    (r"Is a directory", _always("{attempt.output} is a folder: name a file in it")),
    (r"No such file or directory", _no_folder),
    (
        r"Broken pipe|Connection reset by peer|Connection timed out|No route to host|Network is unreachable",
        _lost,
    ),
    (
        r"\[Parsed_(\w+)_\d+ @",
        _always("the filter {found[1]!r} was refused: `ffmpeg -h filter={found[1]}` tells its options"),
    ),
    (
        _FAILED_OUTPUT.pattern,
        _always("mend that output of tee, or give it onfail=ignore, which makes its failure a warning"),
    ),
    (r"exit code 0; it had encoded (\d+) of (\d+) submitted frames", _frame_count),
)
