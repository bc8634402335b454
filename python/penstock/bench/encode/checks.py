"""Whether a video file has the frames that were sent: how many, and what they show."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.bench.encode.cases import BYTES_PER_PIXEL

if TYPE_CHECKING:
    from penstock.bench.frames import Frame

# Between what was sent and what a decoder shows, in code values: the mean of one channel of a frame, and of one
# channel of a row. Measured with the smooth texture in steps of CHECKED_STEP, x264 ultrafast and medium, 64x48 to
# 1080p: the loss of the codec and of 4:2:0 is at most 3.2 and 7.3. A wrong range makes a mean of 4.7 or more, a
# wrong matrix 5.4; a page that was sent too late makes a row of 12 or more, another frame 15.
MOST_MEAN_DIFFERENCE = 4.0
MOST_ROW_DIFFERENCE = 9.0
#: Frames of the texture's loop from one frame sent to the next: far apart, so that none looks like another.
CHECKED_STEP = 7
#: As much of FFmpeg's stderr as an error message can use.
STDERR_CHARACTERS = 2000


class UnreadableError(Exception):
    """FFmpeg cannot read the file."""


def count_frames(ffmpeg: str, path: str) -> int:
    """The frames in the file, by its packets: of a video stream, one is one frame.

    Raises:
        UnreadableError: it is no video.
    """
    copy = ["-i", path, "-map", "0:v:0", "-c", "copy", "-f", "null", "-progress", "pipe:1", "-"]
    lines = _output(ffmpeg, copy).decode().splitlines()
    counts = [int(line.removeprefix("frame=")) for line in lines if line.startswith("frame=")]
    return counts[-1] if counts else 0


def decode(ffmpeg: str, path: str, width: int, height: int) -> list[Frame]:
    """What a decoder shows: frames of height × width × 3 bytes, rgb24.

    Raises:
        UnreadableError: it finds a fault.
    """
    import numpy as np

    raw = _output(ffmpeg, ["-xerror", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
    if len(raw) % (width * height * BYTES_PER_PIXEL):
        raise UnreadableError(f"{len(raw)} bytes are no whole frames of {width}x{height}")
    return list(np.frombuffer(raw, np.uint8).reshape(-1, height, width, BYTES_PER_PIXEL))


@dataclass(frozen=True)
class Difference:
    """Between what was sent and what a decoder shows: mean absolute, in code values, the worst of all frames."""

    #: Of one channel of a frame.
    mean: float = 0.0
    #: Of one channel of a row: a page that was sent too late is hardly more than one.
    row: float = 0.0


def compare(decoded: list[Frame], frames: int, sent: Callable[[int], Frame]) -> tuple[Difference, str | None]:
    """How far a video is from what was sent, and what is wrong with it, if anything.

    ``sent`` gives a frame by its number.
    """
    worst = Difference()
    if len(decoded) != frames:
        return worst, f"{frames} frames were sent, and a decoder shows {len(decoded)}"
    for number, shown in enumerate(decoded):
        here = difference(shown, sent(number))
        worst = Difference(max(worst.mean, here.mean), max(worst.row, here.row))
        if here.mean > MOST_MEAN_DIFFERENCE or here.row > MOST_ROW_DIFFERENCE:
            off = f"{here.mean:.1f} code values off, and a row of it {here.row:.1f}"
            return worst, f"frame {number} shows something else: it is {off}"
    return worst, None


def difference(shown: Frame, sent: Frame) -> Difference:
    """Of two frames."""
    import numpy as np

    # The larger less the smaller one: in uint8 a plain difference would wrap around.
    apart = np.maximum(shown, sent) - np.minimum(shown, sent)
    rows = apart.mean(axis=1, dtype=np.float32)
    return Difference(float(rows.mean(axis=0).max()), float(rows.max()))


def _output(ffmpeg: str, arguments: list[str]) -> bytes:
    command = [ffmpeg, "-hide_banner", "-loglevel", "error", "-nostats", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise UnreadableError(f"FFmpeg cannot read it: {done.stderr.decode()[-STDERR_CHARACTERS:].strip()}")
    return done.stdout
