"""The figures in README.md and on the pages of the documentation, from the kept records: tables, and a picture.

A page has ``<!-- figures: WORD... -->`` and ``<!-- end of figures -->``. What stands between them is written here: the
lines of the benchmarks or methods that the words name, all lines for ``all``, or for ``machines`` the times of that
benchmark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import ROOT
from benchmarks.harness.record import FOLDER

MARKED = re.compile(r"(<!-- figures: ([^>]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
#: How long handing over a frame holds up a loop that has time for each.
WAIT = "wait per frame of a 30 fps loop, p99"
#: The main figure of a benchmark or job, if it is not frames per second.
FIGURES = {"relay": "ops_per_s", "pipeline": "mb_per_s", "sound": "realtime", WAIT: "blocked_p99_ms"}
#: Figures of which less is better.
COSTS = {"blocked_p99_ms"}

Group = dict[str, Any]
#: The values that fields of a group have to have.
Fits = Mapping[str, Container[Any]]

#: The other methods in words, where these are not their names.
TITLES = {
    "turbopipe": "TurboPipe",
    "imageio-ffmpeg-default": "imageio-ffmpeg",
    "tmpfs": "FFmpeg reading tmpfs (the bound)",
    "tmpfs-yuv420p": "FFmpeg reading YUV from tmpfs (the bound)",
    "pyav": "PyAV",
    "pyav-threaded": "PyAV with threads",
    "pyav-no-conversion": "PyAV with threads, without RGB (the bound)",
    "stdout.readinto": "`stdout.readinto`",
    "opencv": "OpenCV, to BGR",
    "opencv-rgb": "OpenCV and `cvtColor`",
    "decord": "decord2",
    "torchcodec": "TorchCodec",
    "pyav-samples": "PyAV",
    "opencv-samples": "OpenCV",
    "decord-samples": "decord2",
    "torchcodec-samples": "TorchCodec",
    "spdl-samples": "SPDL",
    "pyav-windows": "PyAV",
    "torchcodec-windows": "TorchCodec",
    "soundfile-windows": "soundfile",
    "os.read+os.write": "a loop of read and write",
    "os.splice-tuned": "a tuned splice loop",
    "os.sendfile": "sendfile(2)",
    "ThreadPoolExecutor": "`ThreadPoolExecutor` around `zlib`",
}


@dataclass(frozen=True)
class Line:
    """One of ours against another method, in all groups of a record that fit."""

    benchmark: str
    job: str
    ours: str
    fits: Fits
    other: str

    @property
    def title(self) -> str:
        """The other method in words."""
        return TITLES.get(self.other, self.other) + ", with our fallback `write`" * (self.ours == "write")

    def is_named(self, words: list[str]) -> bool:
        """By its benchmark, or by the other method or what that is a variant of."""
        return "all" in words or any(
            word == self.benchmark or f"{self.other}-".startswith(f"{word}-") for word in words
        )

    def groups(self, record: dict[str, Any]) -> list[Group]:
        """The groups of a record that fit."""
        groups = record["groups"] if record["benchmark"] == self.benchmark else []
        return [one for one in groups if all(one.get(name) in fit for name, fit in self.fits.items())]


NULL, ARRAYS, PIPE = "noise into `ffmpeg -f null -`", "H.264 to RGB arrays", "a file into a pipe"
TO_NULL: Fits = {"encode": [[]], "buffers": [4]}
#: Not of noise, whose file depends on the smallest difference in the conversion.
FAST: Fits = {"preset": ["ultrafast"], "paced_fps": [None], "content": ["motion", "camera", "text"]}
PACED: Fits = {"preset": ["ultrafast"], "paced_fps": [30]}
#: Many videos of a second each.
SHORT: Fits = {"clip_frames": [30]}
#: All frames, in their size, on all CPUs. Old records have some of these fields.
WHOLE: Fits = {
    "kind": [None, "file", "survey"],
    "clips": [1],
    "picked_from": [None, 0],
    "scaled_to": [None],
    "cpus": [None],
}
H264: Fits = {"encoder": ["libx264"], **WHOLE}
TEN_BITS: Fits = {"video_pixel_format": ["yuv420p10le"], **WHOLE}
CLIPS: Fits = {"clips": range(2, 1000)}
SAMPLES: Fits = {"kind": ["samples"], "sample_frames": range(2, 1000)}
OF_AN_OPEN_VIDEO: Fits = {"kind": ["windows"]}
#: Pieces of these sizes, or of a MiB and more.
TO_32_KIB: Fits = {"way": ["file-pipe"], "bytes": [2**14, 2**15]}
OF_64_KIB: Fits = {"way": ["file-pipe"], "bytes": [2**16]}
FROM_1_MIB: Fits = {"way": ["file-pipe"], "bytes": range(2**20, 2**40)}
RACE: Fits = {"codec": ["zlib"], "workers": range(1, 1000)}
ENCODERS = "pyav imageio-ffmpeg moviepy turbopipe tmpfs-yuv420p"
DECODERS = (
    "pyav-threaded imageio-ffmpeg stdout.readinto opencv opencv-rgb decord torchcodec pyav-no-conversion"
)
SAMPLERS = "opencv-samples pyav-samples decord-samples torchcodec-samples spdl-samples"
SOUND_READERS = "pyav-windows torchcodec-windows soundfile-windows"
LINES = [
    Line(benchmark, job, ours, fits, other)
    for benchmark, job, ours, fits, others in (
        ("pipe", NULL, "auto", TO_NULL, "turbopipe tmpfs"),
        ("pipe", NULL, "write", TO_NULL, "turbopipe"),
        ("encode", "RGB to x264 ultrafast", "penstock", FAST, ENCODERS),
        ("encode", WAIT, "penstock", PACED, "pyav imageio-ffmpeg turbopipe"),
        (
            "encode",
            "RGB to videos of a second, x264 medium",
            "penstock-default",
            SHORT,
            "pyav imageio-ffmpeg-default",
        ),
        ("decode", ARRAYS, "penstock", H264, DECODERS),
        ("decode", "10-bit HEVC to RGB arrays", "penstock", TEN_BITS, "pyav-threaded opencv"),
        ("decode", "H.264 clips to RGB", "penstock", CLIPS, "pyav-threaded opencv decord torchcodec"),
        ("decode", "8 or 16 frames of each file, at 224 × 224", "penstock-samples", SAMPLES, SAMPLERS),
        ("decode", "clips of an open video, at 224 × 224", "penstock-samples", OF_AN_OPEN_VIDEO, SAMPLERS),
        ("decode", "AAC, windows of a second", "penstock-windows", {"kind": ["sound-aac"]}, SOUND_READERS),
        ("decode", "FLAC, windows of a second", "penstock-windows", {"kind": ["sound-flac"]}, SOUND_READERS),
        ("sound", "RGB and sound to x264 ultrafast", "penstock", {"file": ["out.mp4"]}, "pyav"),
        ("relay", PIPE, "penstock.relay", FROM_1_MIB, "os.read+os.write"),
        ("relay", PIPE, "penstock.relay", TO_32_KIB, "os.splice-tuned"),
        ("relay", PIPE, "penstock.relay", OF_64_KIB, "os.splice-tuned"),
        (
            "relay",
            "a file into a socket",
            "penstock.relay",
            {"way": ["file-unix", "file-tcp"]},
            "os.sendfile",
        ),
        ("pipeline", "zlib assets of 64 KiB", "penstock.Pipeline", RACE, "ThreadPoolExecutor"),
    )
    for other in others.split()
]
#: The picture on the front page has these common jobs and libraries: at most six, for the worst loss is there as well.
FRONT = {
    ("RGB to x264 ultrafast", "pyav"),
    ("RGB to x264 ultrafast", "imageio-ffmpeg"),
    (WAIT, "pyav"),
    (ARRAYS, "pyav-threaded"),
    (ARRAYS, "opencv"),
    (ARRAYS, "torchcodec"),
}


def records() -> dict[str, dict[str, Any]]:
    """The kept records by name, the newest first."""
    read = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    return dict(sorted(read.items(), key=lambda item: str(item[1]["date"]), reverse=True))


def speeds(line: Line, group: Group) -> dict[str, float]:
    """Medians of the main figure by method, without methods that are not comparable.

    If less is better, they are inverted.
    """
    figure = FIGURES.get(line.job) or FIGURES.get(line.benchmark, "fps")
    power = -1 if figure in COSTS else 1
    return {
        row["name"]: row["figures"][figure]["median"] ** power
        for row in group["methods"]
        if figure in row.get("figures", {}) and "not_comparable" not in row.get("notes", {})
    }


@dataclass(frozen=True)
class Found:
    """What a record says of a line."""

    line: Line
    #: The job with the contents and sizes, and with the sizes alone.
    job: str
    short: str
    #: Our speed as a multiple of the other's, for each of them.
    ratios: list[float]
    #: The record's name.
    record: str


def find(line: Line, kept: dict[str, dict[str, Any]]) -> Found | None:
    """What the newest record says that has both methods; None without one."""
    for name, record in kept.items():
        found = [(group, speeds(line, group)) for group in line.groups(record)]
        both = [(group, of) for group, of in found if {line.ours, line.other} <= of.keys()]
        if both:
            ratios = [of[line.ours] / of[line.other] for _, of in both]
            sizes = sizes_of([group for group, _ in both])
            said = "; ".join(f"{content} {joined(found)}".strip() for content, found in sizes.items())
            every = joined([*dict.fromkeys(size for found in sizes.values() for size in found)])
            job, short = (", ".join(filter(None, (line.job, one))) for one in (said, every))
            return Found(line, job, short, ratios, name)
    return None


def sizes_of(groups: list[Group]) -> dict[str, list[str]]:
    """The sizes of groups by their content, in words."""
    sizes: dict[str, list[str]] = {}
    for group in groups:
        if "size" in group:
            size = group["size"]["name"]
        elif group.get("height"):
            size = f"{group['height']}p"
        else:
            size = group["name"].partition(", ")[2] if "bytes" in group else ""
        is_sound = group.get("height") == 0
        of_content = sizes.setdefault("" if is_sound else group.get("content", ""), [])
        if size not in of_content:
            of_content.append(size)
    return sizes


def joined(words: list[str]) -> str:
    return " and ".join(words) if len(words) < 3 else f"{words[0]} to {words[-1]}"


def span(ratios: list[float]) -> str:
    """The smallest and the largest ratio. Where we are slower, it is bold."""
    shown = dict.fromkeys(f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}" for ratio in sorted(ratios))
    bold = [f"**{one}**" if float(one) < 1 else one for one in shown]
    return bold[0] if len(bold) == 1 else f"{bold[0]} to {bold[-1]}"


def table(words: list[str], kept: dict[str, dict[str, Any]]) -> str:
    """The lines that the words name, in Markdown. Losses come first."""
    found = [one for line in LINES if line.is_named(words) and (one := find(line, kept))]
    found.sort(key=_is_no_loss)
    rows = ((one.job, one.line.title, f"{span(one.ratios)} ×", f"`{one.record}`") for one in found)
    return markdown(("job", "against", "Penstock's speed is", "record"), *rows)


def machines(kept: dict[str, dict[str, Any]]) -> str:
    """What each job takes without limits, and how many times as long with each of them, in Markdown."""
    for name, record in kept.items():
        if record["benchmark"] == "machines":
            here, *limits = [row["name"] for row in record["groups"][0]["methods"]]
            rows = map(_under_limits, record["groups"])
            return f"{markdown(('job', here, 'memory', *limits), *rows)}\n\nThe record: `{name}`."
    return ""


def _under_limits(group: Group) -> Iterator[str]:
    here, *limited = group["methods"]
    seconds, nbytes = (here["figures"][one]["median"] for one in ("op_s", "resident_bytes"))
    yield from (
        f"{group['name']}: {group['summary']}",
        f"{1e3 * seconds:.3g} ms",
        f"{nbytes / 2**20:.0f} MiB",
    )
    for row in limited:
        yield f"{row['figures']['op_s']['median'] / seconds:.2f} ×" if row.get("figures") else "-"


def markdown(*rows: Iterable[str]) -> str:
    """A table, whose first row has the headings."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "| --- " * (head.count("|") - 1) + "|", *body])


def bars(kept: dict[str, dict[str, Any]]) -> list[Found]:
    """What the picture on the front page shows: FRONT, and the line with the worst ratio of all. Losses come first."""
    every = compared(kept)
    worst = min(every, key=lambda one: min(one.ratios), default=None)
    shown = [one for one in every if (one.line.job, one.line.other) in FRONT or one is worst]
    return sorted(shown, key=_is_no_loss)


def _is_no_loss(found: Found) -> bool:
    return min(found.ratios) >= 1


def compared(kept: dict[str, dict[str, Any]]) -> list[Found]:
    """All rivals, at our default, and no bounds."""
    rivals = [line for line in LINES if "the bound" not in line.title and line.ours != "write"]
    return [found for line in rivals if (found := find(line, kept))]


def pages() -> Iterator[Path]:
    """Those with figures."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if MARKED.search(path.read_text()):
            yield path


def rewritten(text: str, kept: dict[str, dict[str, Any]]) -> str:
    """A page with the figures of these records."""

    def made(words: list[str]) -> str:
        return machines(kept) if words == ["machines"] else table(words, kept)

    return MARKED.sub(lambda found: f"{found[1]}\n{made(found[2].split())}\n\n{found[3]}", text)
