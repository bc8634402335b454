"""FFmpeg's command lines, output and version."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import click

from benchmarks.harness.results import OUTPUT_CHARACTERS
from penstock._ffmpeg.program.capabilities import find_ffmpeg
from penstock.errors import PenstockError

QUIET = ("-hide_banner", "-loglevel", "error", "-nostats")


class FFmpegFailedError(Exception):
    """FFmpeg did not exit with 0."""


class FFmpeg(subprocess.Popen[bytes]):
    """FFmpeg. The end of the block closes its input, waits for it, and raises if it failed. An exception kills it."""

    def __exit__(self, failure: Any, *others: Any) -> None:
        if failure:
            # It would wait for frames for as long as a method keeps a descriptor.
            self.kill()
        # FFmpeg may have exited early. Its exit status and its frame count show that.
        with suppress(BrokenPipeError):
            super().__exit__(failure, *others)
        # Its messages went to our standard error.
        if (status := self.wait()) and not failure:
            raise FFmpegFailedError(f"FFmpeg exited with {status}")


def start(
    ffmpeg: str, *arguments: str, stdin: bool = True, stdout: IO[bytes] | int = subprocess.DEVNULL
) -> FFmpeg:
    """Start FFmpeg with a pipe as its input. It shares our standard error."""
    standard_input = subprocess.PIPE if stdin else subprocess.DEVNULL
    return FFmpeg([ffmpeg, *QUIET, *arguments], stdin=standard_input, stdout=stdout)


def raw_input(width: int, height: int, pixel_format: str, fps: int, source: str = "-") -> list[str]:
    """The options for reading raw frames."""
    size = ["-s", f"{width}x{height}", "-r", str(fps)]
    return ["-f", "rawvideo", "-pix_fmt", pixel_format, *size, "-i", source]


def output_of(ffmpeg: str, *arguments: str) -> bytes:
    """Run FFmpeg, and return its standard output. The error has its standard error."""
    done = subprocess.run([ffmpeg, *QUIET, *arguments], stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace")[-OUTPUT_CHARACTERS:].strip()
        raise FFmpegFailedError(f"FFmpeg exited with {done.returncode}: {message}")
    return done.stdout


def frame_count(progress: str) -> int:
    """The last ``frame=`` in the output of ``-progress``, or 0."""
    counts = [line.removeprefix("frame=") for line in progress.splitlines() if line.startswith("frame=")]
    return int(counts[-1]) if counts else 0


def version(ffmpeg: str) -> str:
    """The first line of ``ffmpeg -version``. Raises OSError if it does not run."""
    shown = subprocess.run([ffmpeg, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if shown.returncode != 0:
        raise OSError(f"{ffmpeg} -version exited with {shown.returncode}: {shown.stderr.strip()}")
    return (shown.stdout.splitlines() or [""])[0].partition(" Copyright")[0]


def working_ffmpeg(path: str | None) -> str:
    """The FFmpeg at that path, or the one that Penstock finds. It is a usage error if it does not run."""
    try:
        found = str(Path(find_ffmpeg(path)).absolute())
        version(found)
    except (PenstockError, OSError) as error:
        raise click.ClickException(str(error)) from None
    return found
