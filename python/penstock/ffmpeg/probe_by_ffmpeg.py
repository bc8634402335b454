"""Reads the facts about a media file from FFmpeg's own reports, for systems without ffprobe (the imageio-ffmpeg wheel).

Everything here has the shape of ffprobe's JSON, so that `probe` reads both in the same way. What FFmpeg does not report
is left out: bit rates, numbers of frames, and what it prints cut short.

FFmpeg copies the streams to its muxer ``framecrc``, whose lines are made for programs: they have time bases and
packets. The rest comes from the description of the input that FFmpeg writes to standard error (``av_dump_format``). The
patterns are those of FFmpeg 5.1 to 9.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from penstock.ffmpeg import capabilities
from penstock.ffmpeg.runner import CapturedChild

_QUIET = ("-hide_banner", "-nostdin", "-nostats")
# A description of the input, without guesses at what the file does not say.
_DESCRIBE = (*_QUIET, "-v", "info", "-guess_layout_max", "0")
# In this order, framecrc counts the streams.
_COPIED = ("-map", "0:v?", "-map", "0:a?", "-c", "copy")
_FRAMECRC = ("-f", "framecrc", "pipe:1")

_INPUT = re.compile(r"^Input #0, (.+?), from '", re.MULTILINE)
_INPUT_END = re.compile(r"^(?:Stream mapping:|Output #0, )", re.MULTILINE)
_CONTAINER_TAGS = re.compile(r"^  Metadata:\n((?:    .*\n)*)(?=  Duration: )", re.MULTILINE)
_DURATION = re.compile(
    r"^  Duration: (?:(\d+):(\d\d):(\d\d\.\d\d)|N/A)(?:, start: (-?\d+\.\d+))?", re.MULTILINE
)
# "Stream #0:1[0x2](und): Video: ", and what follows up to the next stream.
_STREAM = re.compile(
    r"^ +Stream #0:(\d+)(?:\[\w+\])?(?:\(.*?\))?: (\w+): (.*)\n((?:(?! +Stream ).*\n?)*)", re.MULTILINE
)
_TAG = re.compile(r"^ +(\S.*?|) *: (.*)$")
_ROTATION = re.compile(r"^ +display ?matrix: rotation of (-?\d+\.\d+) degrees", re.MULTILINE | re.IGNORECASE)
# FFmpeg cuts the lines of a tag's value to so many bytes.
_TAG_BYTES = 255
_FIELD_ORDERS = {
    "progressive": "progressive",
    "top first": "tt",
    "bottom first": "bb",
    "top coded first (swapped)": "tb",
    "bottom coded first (swapped)": "bt",
}
# Matrix, primaries and transfer have one name for all three where they agree.
_SHARED_COLORS = ("bt709", "smpte170m", "smpte240m")
# Frames last 1001/1000 as long as these rates say (NTSC and film in it).
_NTSC = Fraction(1000, 1001)
# FFmpeg guesses rates in twelfths.
_MAX_DENOMINATOR = 12


def describe_arguments(inputs: Sequence[str]) -> tuple[str, ...]:
    """FFmpeg's arguments by which it reports on its input, and copies next to nothing of it."""
    return (*_DESCRIBE, *inputs, *_COPIED, "-t", "0", *_FRAMECRC)


def packet_arguments(inputs: Sequence[str], index: int | None, from_s: float) -> tuple[str, ...]:
    """The same, and it also lists the packets from about `from_s` on, by the file's own clock.

    `index` is the stream's number among all streams; None for all video and audio.
    """
    seek = ("-copyts", "-seek_timestamp", "1", "-ss", f"{from_s:f}")
    copied = _COPIED if index is None else ("-map", f"0:{index}", "-c", "copy")
    return (*_DESCRIBE, *seek, *inputs, *copied, *_FRAMECRC)


def count_arguments(inputs: Sequence[str]) -> tuple[str, ...]:
    """FFmpeg's arguments by which it decodes all video and prints a line for each frame."""
    return (*_QUIET, "-v", "error", *inputs, "-map", "0:v", "-fps_mode", "passthrough", *_FRAMECRC)


def parse_report(child: CapturedChild) -> dict[str, Any]:
    """What ffprobe would print of the input of `child`; empty if FFmpeg could not open it."""
    if child.returncode is None or child.returncode < 0:
        return {}
    answer = parse_description(child.stderr, child.command[0])
    copied = answer.get("streams", [])
    time_bases = dict(re.findall(r"^#tb (\d+): (\d+/\d+)$", child.text, re.MULTILINE))
    for number, stream in enumerate(copied):
        if (time_base := time_bases.get(str(number))) is not None:
            stream["time_base"] = time_base
    # FFmpeg can decode none of those that it does not even copy.
    return answer and answer | {"streams": [stream for stream in copied if "time_base" in stream]}


def parse_description(text: str, program: str | None) -> dict[str, Any]:
    """What ffprobe would print of FFmpeg's first input, by FFmpeg's description in `text`; empty if there is none.

    Without a `program`, which lists its containers and channel layouts, their full names and the channels are missing.
    """
    if not (found := _INPUT.search(text)):
        return {}
    end = _INPUT_END.search(text, found.end())
    text = text[found.start() : end.start() if end else len(text)] + "\n"
    # A stream of several programs is listed for each.
    streams = {int(index): _stream(program, int(index), *rest) for index, *rest in _STREAM.findall(text)}
    coded = [
        one for kind in ("video", "audio") for _, one in sorted(streams.items()) if one["codec_type"] == kind
    ]
    container = _container(program, found[1], text)
    if len(streams) == 1 and coded and "start_time" in container:
        coded[0]["start_time"] = container["start_time"]
    return {"format": container | {"nb_streams": len(streams)}, "streams": coded}


def parse_packets(child: CapturedChild) -> dict[str, Any]:
    """`parse_report`, with the packets that FFmpeg copied."""
    answer = parse_report(child)
    bases = dict(re.findall(r"^#tb (\d+): (\d+/\d+)$", child.text, re.MULTILINE))
    lines = re.findall(
        r"^(\d+), +\S+, +(-?\d+), +(\d+), +(\d+), 0x\w+(?:, F=0x(\w+))?", child.text, re.MULTILINE
    )
    packets = [
        {
            "pts_time": float(int(pts) * Fraction(bases[number])),
            "duration_time": float(int(duration) * Fraction(bases[number])),
            "size": int(size),
            # AV_PKT_FLAG_DISCARD: decoded, and not shown.
            "flags": "D" if int(flags or "0", 16) & 4 else "",
        }
        for number, pts, duration, size, flags in lines
    ]
    return answer | {"packets": packets}


def counted(child: CapturedChild, streams: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`streams` with the number of frames that FFmpeg decoded of each video; without one if it could decode none."""
    frames = Counter(re.findall(r"^(\d+), ", child.text, re.MULTILINE))
    unknown = "N/A" if child.returncode and not frames else "0"
    videos = [one["index"] for one in streams if one["codec_type"] == "video"]
    numbers = {index: str(frames[str(number)] or unknown) for number, index in enumerate(videos)}
    return [{**one, "nb_read_frames": numbers.get(one["index"], "N/A")} for one in streams]


def _container(program: str | None, names: str, text: str) -> dict[str, Any]:
    listed = capabilities.stdout_of(program, "-demuxers") if program else ""
    title = re.search(rf"^ \S+(?: d)? +{re.escape(names)} +(\S.*)$", listed, re.MULTILINE)
    tags = _CONTAINER_TAGS.search(text)
    container: dict[str, Any] = {"format_name": names, "tags": _tags(tags[1]) if tags else {}}
    if title:
        container["format_long_name"] = title[1]
    if length := _DURATION.search(text):
        if length[1]:
            container["duration"] = str(int(length[1]) * 3600 + int(length[2]) * 60 + float(length[3]))
        if length[4]:
            container["start_time"] = length[4]
    return container


def _stream(program: str | None, index: int, kind: str, line: str, details: str) -> dict[str, Any]:
    """What a line such as ``h264 (High) (avc1 / 0x31637661), yuv420p(tv, bt709), 64x48, 25 fps (default)`` says."""
    bare = re.sub(r"(?: \([a-z -]+\))*$", "", line)
    marks = re.findall(r"\(([a-z -]+)\)", line[len(bare) :])
    # Commas in parentheses do not count.
    codec, *parts = re.split(r", (?![^(]*\))", bare)
    rotation = _ROTATION.search(details)
    name, _, more = codec.partition(" ")
    profiles = [one for one in re.findall(r"\((.*?)\)(?= \(|$)", more) if " / 0x" not in one]
    stream: dict[str, Any] = {
        "index": index,
        "codec_type": kind.lower(),
        "profile": profiles[0] if profiles else None,
        "tags": _tags(details),
        "disposition": {mark.replace("attached pic", "attached_pic"): 1 for mark in marks},
        "side_data_list": [{"rotation": rotation[1]}] if rotation else [],
    }
    if name != "none":
        stream["codec_name"] = name
    if kind == "Video":
        stream |= _video(parts)
    elif kind == "Audio":
        stream |= _audio(program, parts)
    return stream


def _video(parts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if pixels := re.match(r"(\w+)(?:\((.*)\))?$", parts[0] if parts else ""):
        found |= _pixels(pixels[1], (pixels[2] or "").split(", "))
    for part in parts[1:]:
        if size := re.match(r"(\d+)x(\d+)(?: \[SAR (\d+:\d+) )?", part):
            found |= {"width": int(size[1]), "height": int(size[2]), "sample_aspect_ratio": size[3]}
        elif aspect := re.match(r"SAR (\d+:\d+) DAR ", part):
            found["sample_aspect_ratio"] = aspect[
                1
            ]  # the container's, which counts where the codec has another
        elif rate := re.match(r"(\d+(?:\.\d+)?k?) (fps|tbr|tbn)$", part):
            key = {"fps": "avg_frame_rate", "tbr": "r_frame_rate", "tbn": "time_base"}[rate[2]]
            exact = _exact_rate(rate[1])
            found[key] = str(1 / exact if key == "time_base" else exact)
    return found


def _pixels(name: str, facts: Sequence[str]) -> dict[str, Any]:
    """What is in ``yuv420p(10 bpc, tv, bt709/unknown/unknown, top first)``."""
    found: dict[str, Any] = {} if name == "none" else {"pix_fmt": name}
    for fact in facts:
        if fact in ("tv", "pc"):
            found["color_range"] = fact
        elif fact in _FIELD_ORDERS:
            found["field_order"] = _FIELD_ORDERS[fact]
        elif bits := re.match(r"(\d+) bpc$", fact):
            found["bits_per_raw_sample"] = bits[1]
        elif fact in _SHARED_COLORS or fact.count("/") == 2:
            names = fact.split("/") if "/" in fact else [fact] * 3
            found |= dict(zip(("color_space", "color_primaries", "color_transfer"), names, strict=True))
    return found


def _audio(program: str | None, parts: Sequence[str]) -> dict[str, Any]:
    rate, layout, samples = (*parts, "", "", "")[:3]
    found: dict[str, Any] = {"sample_fmt": re.sub(r" \(.*", "", samples) or None}
    if rate.endswith(" Hz"):
        found["sample_rate"] = rate.removesuffix(" Hz")
    if count := re.match(r"(\d+) channels?", layout):
        found["channels"] = int(count[1])
    elif channels := re.search(
        rf"^{re.escape(layout)} +(\S+)$",
        capabilities.stdout_of(program, "-layouts") if program else "",
        re.MULTILINE,
    ):
        found |= {"channels": channels[1].count("+") + 1, "channel_layout": layout}
    return found


def _exact_rate(printed: str) -> Fraction:
    """The rate that FFmpeg printed with two decimals: 29.97 is 30000/1001, and 8.33 is 25/3."""
    if printed.endswith("k"):
        return Fraction(printed.removesuffix("k")) * 1000
    rate = Fraction(printed)
    for exact in (round(rate) * _NTSC, rate.limit_denominator(_MAX_DENOMINATOR)):
        if rate.denominator > 1 and abs(exact - rate) < Fraction(1, 200):
            return exact
    return rate


def _tags(block: str) -> dict[str, str]:
    """The tags in lines of a name and a value, where a line without a name continues the one before."""
    tags: dict[str, str] = {}
    cut: set[str] = set()
    name = ""
    for line in block.splitlines():
        if not (found := _TAG.match(line)):
            continue
        name, is_first = found[1] or name, bool(found[1])
        tags[name] = found[2] if is_first else f"{tags.get(name, '')}\n{found[2]}"
        if len(found[2].encode()) >= _TAG_BYTES:
            cut.add(name)
    return {name: value for name, value in tags.items() if name and name not in cut}
