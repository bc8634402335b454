"""Fills a pipe: ``python feeder.py FILE FRAME_BYTES FRAMES`` writes the file's frames in turn to standard output.

It uses the standard library only, so that it starts quickly.
"""

import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path

path, frame_bytes, frames = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
# Populated, so that the measured time has no page faults.
flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
with path.open("rb") as file:
    content = memoryview(mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ))
# A method may stop early: the check finds what it has not read.
with suppress(BrokenPipeError):
    for number in range(frames):
        start = number * frame_bytes % len(content)
        left = content[start : start + frame_bytes]
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]
