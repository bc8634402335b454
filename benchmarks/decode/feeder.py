"""Fills a pipe: ``python feeder.py FILE FRAME_BYTES FRAMES`` writes the file's frames in turn to standard output.

It uses the standard library only, so that it starts quickly.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path


def feed(fd: int, content: memoryview, frame_bytes: int, frames: int) -> None:
    """Write ``frames`` frames, those of the content in turn, each by as few calls of write(2) as possible."""
    available = len(content) // frame_bytes
    for number in range(frames):
        start = number % available * frame_bytes
        left = content[start : start + frame_bytes]
        while left:
            left = left[os.write(fd, left) :]


def main() -> None:
    """Write the frames that the arguments name."""
    path, frame_bytes, frames = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Populated, so that the measured time has no page faults.
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    with Path(path).open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
    # A method may stop early: the check finds what it has not read.
    with suppress(BrokenPipeError):
        feed(sys.stdout.fileno(), memoryview(content), frame_bytes, frames)


if __name__ == "__main__":
    main()
