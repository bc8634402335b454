"""Runs the code on pages of the documentation, in the current folder: tests and ``make docs`` do.

    python scripts/run_page.py docs/tutorials/first-video.md

The blocks of Python on a page are one program, and those of shell (``sh``) run between them, in the order of the page.
A comment in the line before a block changes that:

- ``<!-- not run: WHY -->``: the block is only shown.
- ``<!-- needs: cv2 -->``: the block runs only where this module is installed.

A ``text`` block is output: its lines must be in that of the page's code, in this order. A … stands for anything.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>.*?) -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code, and the number of the line before it."""

    language: str
    code: str
    line: int
    comment: str

    @property
    def runs(self) -> bool:
        """Whether the block runs here."""
        kind, _, what = self.comment.partition(": ")
        return not (kind == "not run" or (kind == "needs" and importlib.util.find_spec(what) is None))


def blocks(page: Path) -> list[Block]:
    """The blocks of code on a page."""
    text = page.read_text()
    return [
        Block(
            found["language"], found["code"], text.count("\n", 0, found.start("code")), found["comment"] or ""
        )
        for found in _BLOCK.finditer(text)
    ]


def missing_output(page: Path, output: str) -> str | None:
    """The first line of the page's ``text`` blocks that `output` lacks behind the line before; None if it has all."""
    at = 0
    for block in blocks(page):
        for line in block.code.splitlines() if block.language == "text" and block.runs else ():
            pattern = ".*?".join(re.escape(part) for part in line.rstrip().split("…"))
            found = re.compile(f"^{pattern}\\s*$", re.MULTILINE).search(output, at)
            if found is None:
                return line
            at = found.end()
    return None


def run(page: Path) -> None:
    """Run the page's code."""
    program = {"__name__": "__main__"}
    for block in blocks(page):
        if not block.runs:
            continue
        if block.language == "python":
            # With the lines of the page in tracebacks.
            exec(compile("\n" * block.line + block.code, page, "exec"), program)
        elif block.language == "sh":
            sys.stdout.flush()
            if sys.platform == "win32":
                run_without_shell(block.code)
            else:
                subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", block.code], check=True, stdin=subprocess.DEVNULL
                )


def run_without_shell(code: str) -> None:
    """Run those lines of a block that only call penstock and ffmpeg, perhaps in a pipe, or make a folder."""
    from penstock.video import find_ffmpeg

    programs = {"penstock": [sys.executable, "-m", "penstock"], "ffmpeg": [find_ffmpeg()]}
    for line in code.replace("\\\n", " ").replace("|\n", "|").splitlines():
        commands = [shlex.split(part) for part in line.split("|")]
        if commands[0][0] == "mkdir":
            Path(commands[0][1]).mkdir()
        if any(name not in programs for name, *_ in commands):
            continue
        source: int | IO[bytes] | None = subprocess.DEVNULL
        started = []
        for name, *arguments in commands:
            output = None if len(started) == len(commands) - 1 else subprocess.PIPE
            started.append(subprocess.Popen([*programs[name], *arguments], stdin=source, stdout=output))
            source = started[-1].stdout
        if any(statuses := [process.wait() for process in started]):
            raise SystemExit(f"{line} failed: {statuses}")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
