"""FFmpeg's messages: sorts the lines that it writes to standard error, and finds damage in them."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from fractions import Fraction

# Guessed: the cause of a failure is in the last lines, and what is kept must stay bounded.
_STDERR_LINES = 50
# Guessed: FFmpeg prints few different messages about an ordinary file, and what is kept must stay bounded.
_REPORTS = 1000
# Guessed: nobody reads more warnings than these.
_WARNING_LINES = 20
# Guessed: more lines than these do not fit in a message.
_SUMMARY_LINES = 3

# The component that writes a line, and its address: "[h264 @ 0x55d0] ", on Windows "[h264 @ 00007FFF55D0] ".
_COMPONENT = r"\[([^\[\]]+) @ (?:0x)?[0-9a-fA-F]+\] ?"
# AV_LOG_FORCE_COLOR colors what goes into pipes, too.
_COLOR = re.compile(r"\x1b\[[\d;]*m")
# With "-loglevel level+…", the level follows the components.
_LEVEL = re.compile(rf"((?:{_COMPONENT})*)\[(panic|fatal|error|warning)\] ")
# What a decoder prints, at level info, when it conceals damage in a frame. FFmpeg may mark the frame too late.
_CONCEALED = re.compile(rf"{_COMPONENT}concealing \d+ DC, \d+ AC, \d+ MV errors")
# Which decoder reads the one stream that FFmpeg reads, also at level info: "Stream #0:1 -> #0:0 (aac (native) -> …".
_MAPPING = re.compile(r"\s*Stream #0:\d+ -> #0:0 \((\w+) \(")
_ADDRESS = re.compile(r" @ (?:0x)?[0-9a-fA-F]+(?=\])")
_REPEATED = re.compile(r"\s*Last message repeated (\d+) times")
# The muxer `tee`, when one of its outputs fails. Without "onfail", FFmpeg goes on or aborts.
_FAILED_OUTPUT = re.compile(r"Slave muxer #(\d+) failed(?:: (.*), continuing with|, aborting)")

# FFmpeg's message if it cannot open /dev/fd for FFREPORT.
_NO_REPORT = "Failed to open report"
# What FFmpeg prints first for a stream without a decodable frame.
_NO_FRAMES = "Cannot determine format of input"
# Warnings about something that Penstock asks for on purpose, or about one of FFmpeg's own defaults.
_NOISE = re.compile(
    r"deprecated pixel format used, make sure you did set range correctly"  # JPEG's yuvj420p; the range is set
    r"|No accelerated colorspace conversion found"  # the pixels are the same
    r"|Neither bitrate nor constrained quality specified, using default"  # libvpx and libaom without crf
    r"|No bit rate set\. Defaulting to"  # libopus
    r"|VBV buffer size not set, using default"  # MPEG program streams
    r"|too many threads/slices \(\d+\), reducing to"  # of a small picture on many cores
    r"|Specified chroma sample location \w+ is unsupported on the AV1 bit stream level"  # printed for every container
    r"|Duped color: "  # of a palette that has a color twice (palettegen)
    r"|The input frame is not in sRGB, colors may be off"  # of SDR, whose values GIF takes as they are (palettegen)
    r"|Thread message queue blocking"  # of two inputs, one waits for the other
    r"|Guessed Channel Layout|codec frame size is not set"  # what NUT does not say of sound
    r"|does not contain an image sequence pattern|Use a pattern such as %03d"  # of a name for one image
    r"|Using libwebp for RGB-to-YUV conversion"
    r"|Failed to update header with correct (?:duration|filesize)"  # of FLV in a stream, which has no end to tell of
    r"|No filtered frames for output stream, trying to initialize anyway"  # no frame came, or no sound
)
# Lines with the level of an error that cost no frame.
_HARMLESS = re.compile(
    # The times of the input go back, or two are the same, and so do those of an output that stores no times: raw frames
    # or samples. An output that stores times fails with an error of its own (av_interleaved_write_frame).
    r"Application provided invalid, non monotonically increasing dts to muxer"
    # H.261 has no keyframes (5.1).
    r"|^\[h261 @ .*warning: first frame is no keyframe"
    # H.264 that was joined, or recorded from the middle. Every frame is decoded (h264_direct.c, h264_refs.c).
    r"|co located POCs unavailable|mmco: unref short failure"
    # Data beside the video in QuickTime and MP4 (mov.c).
    r"|Referenced QT chapter track not found|loci too short|place name too long|Error parsing cover art"
    r"|Failed to store the (?:number|float32)|The 'keys' atom|The key# |Unknown MOV field order|aclr not decoded"
    r"|Invalid m[dv]hd time scale|Unknown projection type|Missing (?:spherical|projection)"
)


class StderrLog:
    """The lines that a running FFmpeg writes to standard error, sorted by level.

    Without levels (``-loglevel error``), every line counts as an error.
    """

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        #: How often each line came, without warnings and lines that cost no frame. Lines that differ only in the
        #: component's address count as one.
        self.reports: Counter[str] = Counter()
        self._lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._last, self._is_harmless = "", False
        # Dictionaries as ordered sets.
        self._warnings: dict[str, None] = {}
        self._errors: dict[str, None] = {}
        #: Why outputs of the muxer `tee` failed, by their numbers from 0; "" if FFmpeg does not say.
        self.failed_outputs: dict[int, str] = {}
        #: The codec that FFmpeg takes its input for; None if its report has not told.
        self.codec: str | None = None
        for line in lines:
            self.take(line)

    def take(self, data: bytes) -> None:
        """Sorts one line in."""
        line = data.decode(errors="replace").rstrip()
        if line.startswith(_NO_REPORT):
            return
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

    def take_report(self, data: bytes) -> None:
        """Takes one line of FFmpeg's report (FFREPORT): the input's codec, or that a decoder has concealed damage."""
        line = data.decode(errors="replace").rstrip()
        if mapping := _MAPPING.match(line):
            self.codec = mapping[1]
        if _CONCEALED.match(line):
            if len(self._lines) < _SUMMARY_LINES:  # they must not displace errors
                self._lines.append(line)
            self._count(line)

    def _add(self, line: str) -> None:
        repeated = _REPEATED.fullmatch(line)
        if repeated is None:
            # Not kept at all: a line for each packet would displace the others.
            self._is_harmless = _HARMLESS.search(_COLOR.sub("", line)) is not None
        if self._is_harmless:
            return
        self._lines.append(line)
        if repeated is not None:
            self.reports[self._last] += int(repeated[1])
        elif line.strip():
            self._last = self._count(line)

    def _count(self, line: str) -> str:
        """Counts a line. Returns what it is counted as."""
        counted = _ADDRESS.sub(" @ 0x0", _COLOR.sub("", line))
        if counted not in self.reports and len(self.reports) >= _REPORTS:
            counted = "further messages"
        self.reports[counted] += 1
        return counted

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
    return Counter({line: count for line, count in reports.items() if not _is_of(line, others)})


def is_of_demuxer(line: str, container: str) -> bool:
    """Whether the demuxer of the `container` wrote the line: ``[flv @ 0x0]``, or ``[in#0/flv @ 0x0]``."""
    component = re.match(_COMPONENT, line)
    return component is not None and component[1].rpartition("/")[2] == container


def _is_of(line: str, codecs: tuple[str, ...]) -> bool:
    """Whether a decoder of one of the `codecs` wrote the line."""
    component = re.match(_COMPONENT, line)
    # The name of a decoder may be longer than its codec's: mp3, mp3float.
    return component is not None and component[1].startswith(codecs)


def without_colors(stderr: str) -> str:
    """`stderr` without the escape sequences of a terminal."""
    return _COLOR.sub("", stderr)


def without_components(stderr: str) -> str:
    """`stderr` without the names and addresses of FFmpeg's components, and without colors."""
    return re.sub(_COMPONENT, "", without_colors(stderr))


def has_no_frames(stderr: str) -> bool:
    """Whether FFmpeg, which failed, found no decodable frame in the stream."""
    return _NO_FRAMES in stderr.partition("\n")[0]


def summarize(stderr: str, source: str) -> str:
    """The last lines of `stderr` as one line, without components and without the name of the input, `source`."""
    lines = (line.strip().removeprefix(f"{source}: ") for line in without_components(stderr).splitlines())
    # FFmpeg may end with the name of the input and the reason once more.
    said = (line for line in lines if line and not line.startswith("Error opening input file"))
    return "; ".join([*dict.fromkeys(said)][-_SUMMARY_LINES:])


def listing_arguments(target: str = "pipe:1") -> tuple[str, ...]:
    """FFmpeg's arguments to write a line about each packet: ``stream, dts, pts, duration, size, checksum``.

    Before them, there are comments, such as the unit of times and the size of pictures.
    """
    return "-f", "framecrc", target


def framecrc_unit_s(line: bytes) -> Fraction | None:
    """The unit of times, in seconds, that a line of FFmpeg's muxer `framecrc` tells; None for other lines."""
    if not line.startswith(b"#tb 0:"):
        return None
    numerator, _, denominator = line.split(b":")[1].partition(b"/")
    return Fraction(int(numerator), int(denominator))
