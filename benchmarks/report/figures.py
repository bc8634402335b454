"""The figures in README.md and on the pages of the documentation, from the kept records: tables, and a picture.

A page has ``<!-- figures: WORD... -->`` and ``<!-- end of figures -->``. What stands between them is written here: the
lines of the benchmarks or methods that the words name, all lines for ``all``, or for ``machines`` the times of that
benchmark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import ROOT
from benchmarks.harness.record import FOLDER

MARKED = re.compile(r"(<!-- figures: ([^>]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
#: The main figure of a benchmark, if it is not frames per second.
FIGURES = {"relay": "ops_per_s", "pipeline": "mb_per_s", "sound": "realtime"}

Group = dict[str, Any]
Medians = dict[str, float]


@dataclass(frozen=True)
class Line:
    """One of ours against another method, in all groups of a record that fit."""

    benchmark: str
    job: str
    other: str
    title: str
    ours: str
    fits: Callable[[Group], bool]

    def is_named(self, words: list[str]) -> bool:
        """By its benchmark, or by the other method or what that is a variant of."""
        return "all" in words or any(
            word == self.benchmark or f"{self.other}-".startswith(f"{word}-") for word in words
        )


def to_null(group: Group) -> bool:
    return not group["encode"] and group["buffers"] == 4


def fast_encode(group: Group) -> bool:
    """Not of noise, whose file depends on the smallest difference in the conversion."""
    return group["preset"] == "ultrafast" and not group["paced_fps"] and group["content"] != "noise"


def h264_file(group: Group) -> bool:
    return group["encoder"] == "libx264" and group["clips"] == 1 and not group["picked_from"]


def many_clips(group: Group) -> bool:
    return bool(group["clips"] > 1)


def into_socket(group: Group) -> bool:
    return group["way"] in ("file-unix", "file-tcp")


def sound_to(file: str) -> Callable[[Group], bool]:
    return lambda group: bool(group["file"] == file)


def from_file(*sizes_kib: int) -> Callable[[Group], bool]:
    """Into a pipe: pieces of these sizes, or of a MiB and more."""
    return lambda group: (
        group["way"] == "file-pipe"
        and (group["bytes"] >> 10 in sizes_kib if sizes_kib else group["bytes"] >= 1 << 20)
    )


ENCODE, DECODE = "RGB to x264 ultrafast", "H.264 to RGB arrays"
CLIPS = "40 clips of H.264 to RGB arrays, by slices"
NULL, PIPE, SOCKET = "noise into `ffmpeg -f null -`", "a file into a pipe", "a file into a socket"
LINES = (
    Line("pipe", NULL, "turbopipe", "TurboPipe", "auto", to_null),
    Line("pipe", NULL, "tmpfs", "FFmpeg reading tmpfs (the bound)", "auto", to_null),
    Line("pipe", NULL, "turbopipe", "TurboPipe, with our fallback `write`", "write", to_null),
    Line("encode", ENCODE, "pyav", "PyAV", "penstock", fast_encode),
    Line("encode", ENCODE, "imageio-ffmpeg", "imageio-ffmpeg", "penstock", fast_encode),
    Line("encode", ENCODE, "moviepy", "moviepy", "penstock", fast_encode),
    Line("encode", ENCODE, "turbopipe", "TurboPipe", "penstock", fast_encode),
    Line(
        "encode",
        ENCODE,
        "tmpfs-yuv420p",
        "FFmpeg reading YUV from tmpfs (the bound)",
        "penstock",
        fast_encode,
    ),
    Line("decode", DECODE, "pyav-threaded", "PyAV with threads", "penstock", h264_file),
    Line("decode", DECODE, "imageio-ffmpeg", "imageio-ffmpeg", "penstock", h264_file),
    Line("decode", DECODE, "stdout.readinto", "`stdout.readinto`", "penstock", h264_file),
    Line("decode", DECODE, "opencv", "OpenCV, to BGR", "penstock", h264_file),
    Line("decode", DECODE, "opencv-rgb", "OpenCV and `cvtColor`", "penstock", h264_file),
    Line("decode", DECODE, "decord", "decord", "penstock", h264_file),
    Line("decode", CLIPS, "opencv", "OpenCV, to BGR", "penstock-slice", many_clips),
    Line("decode", CLIPS, "decord", "decord", "penstock-slice", many_clips),
    Line("sound", "RGB and sound to x264 ultrafast", "pyav", "PyAV", "penstock", sound_to("out.mp4")),
    Line("sound", "sound to WAV", "pyav", "PyAV", "penstock", sound_to("out.wav")),
    Line("relay", PIPE, "os.read+os.write", "a loop of read and write", "penstock.relay", from_file()),
    Line("relay", PIPE, "os.splice-tuned", "a tuned splice loop", "penstock.relay", from_file(16, 32)),
    Line("relay", PIPE, "os.splice-tuned", "a tuned splice loop", "penstock.relay", from_file(64)),
    Line("relay", SOCKET, "os.sendfile", "sendfile(2)", "penstock.relay", into_socket),
    Line(
        "pipeline",
        "zlib assets of 64 KiB",
        "ThreadPoolExecutor",
        "`ThreadPoolExecutor` around `zlib`",
        "penstock.Pipeline",
        lambda group: group["codec"] == "zlib" and "workers" in group,
    ),
)


def records() -> dict[str, dict[str, Any]]:
    """The kept records by name, the newest first."""
    read = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    return dict(sorted(read.items(), key=lambda item: str(item[1]["date"]), reverse=True))


def medians(line: Line, group: Group) -> Medians:
    """Of the main figure by method, without methods that are not comparable."""
    figure = FIGURES.get(line.benchmark, "fps")
    return {
        row["name"]: row["figures"][figure]["median"]
        for row in group["methods"]
        if figure in row.get("figures", {}) and "not_comparable" not in row.get("notes", {})
    }


@dataclass(frozen=True)
class Found:
    """What a record says of a line.

    Attributes:
        job: with the contents and sizes.
        short: with the sizes.
        ratios: our speed as a multiple of the other's, for each of them.
        record: its name.
    """

    line: Line
    job: str
    short: str
    ratios: list[float]
    record: str

    @property
    def cells(self) -> list[str]:
        """The line of the table."""
        return [self.job, self.line.title, f"{span(self.ratios)} ×", f"`{self.record}`"]


def find(line: Line, kept: dict[str, dict[str, Any]]) -> Found | None:
    """What the newest record says that has both methods; None without one."""
    for name, record in kept.items():
        groups = [one for one in record["groups"] if record["benchmark"] == line.benchmark and line.fits(one)]
        found = [(group, medians(line, group)) for group in groups]
        both = [(group, of) for group, of in found if {line.ours, line.other} <= of.keys()]
        if both:
            ratios = [of[line.ours] / of[line.other] for _, of in both]
            sizes = sizes_of([group for group, _ in both])
            said = [f"{content} {joined(found)}".strip() for content, found in sizes.items()]
            every = [*dict.fromkeys(size for found in sizes.values() for size in found)]
            job, short = (
                ", ".join(filter(None, (line.job, one))) for one in ("; ".join(said), joined(every))
            )
            return Found(line, job, short, ratios, name)
    return None


def sizes_of(groups: list[Group]) -> dict[str, list[str]]:
    """The sizes of groups by their content, in words."""
    sizes: dict[str, list[str]] = {}
    for group in groups:
        size = (
            group["size"]["name"] if "size" in group else f"{group['height']}p" if group.get("height") else ""
        )
        size = size or (group["name"].partition(", ")[2] if "bytes" in group else "")
        sizes.setdefault(group.get("content", ""), []).append(size)
    return sizes


def joined(words: list[str]) -> str:
    return " and ".join(words) if len(words) < 3 else f"{words[0]} to {words[-1]}"


def span(ratios: list[float]) -> str:
    """The smallest and the largest ratio. Where we are slower, it is bold."""
    shown = dict.fromkeys(f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}" for ratio in sorted(ratios))
    bold = [f"**{one}**" if float(one) < 1 else one for one in shown]
    return bold[0] if len(bold) == 1 else f"{bold[0]} to {bold[-1]}"


def table(words: list[str], kept: dict[str, dict[str, Any]]) -> str:
    """In Markdown."""
    rows = [found for line in LINES if line.is_named(words) and (found := find(line, kept))]
    text = ["| job | against | Penstock's speed is | record |", "| --- | --- | --- | --- |"]
    text += (f"| {' | '.join(row.cells)} |" for row in rows)
    return "\n".join(text)


def machines(kept: dict[str, dict[str, Any]]) -> str:
    """What each job takes without limits, and how many times as long with each of them, in Markdown."""
    found = [(name, record) for name, record in kept.items() if record["benchmark"] == "machines"]
    text: list[str] = []
    for name, record in found[:1]:
        for group in record["groups"]:
            here, *limited = group["methods"]
            seconds, nbytes = (here["figures"][one]["median"] for one in ("op_s", "resident_bytes"))
            if not text:
                limits = [row["name"] for row in limited]
                text = [
                    f"| job | {here['name']} | memory | {' | '.join(limits)} |",
                    f"{'| --- ' * (3 + len(limits))}|",
                ]
            times = [
                f"{row['figures']['op_s']['median'] / seconds:.2f} ×" if row.get("figures") else "-"
                for row in limited
            ]
            cells = (
                f"{group['name']}: {group['summary']}",
                f"{1e3 * seconds:.3g} ms",
                f"{nbytes / 2**20:.0f} MiB",
                *times,
            )
            text.append(f"| {' | '.join(cells)} |")
        text.append(f"\nThe record: `{name}`.")
    return "\n".join(text)


def bars(kept: dict[str, dict[str, Any]]) -> list[Found]:
    """What the picture on the front page shows: all rivals, at our default, and no bounds."""
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
