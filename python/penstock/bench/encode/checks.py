"""Whether a video file has the frames that were sent: how many, and what they show."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.bench.encode.cases import BYTES_PER_PIXEL

if TYPE_CHECKING:
    from penstock.bench.encode.frames import Frame

#: Mean absolute difference of a row of one channel, in code values, between what was sent and what a decoder
#: shows. Of the texture, ultrafast loses up to 5 in the worst row (measured at 64x48 to 2160p); a page that was
#: sent too late, a frame in another one's place, a wrong matrix or exchanged channels make 12 or more.
MOST_DIFFERENCE = 8.0
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


def compare(decoded: list[Frame], frames: int, sent: Callable[[int], Frame]) -> tuple[float, str | None]:
    """The largest difference of a row, and what is wrong with the video, if anything.

    ``sent`` gives a frame by its number. By rows, because a page that was sent too late is hardly one.
    """
    if len(decoded) != frames:
        return 0.0, f"{frames} frames were sent, and a decoder shows {len(decoded)}"
    worst = 0.0
    for number, shown in enumerate(decoded):
        here = _row_difference(shown, sent(number))
        worst = max(worst, here)
        if here > MOST_DIFFERENCE:
            return worst, f"frame {number} shows something else: a row of it is {here:.1f} code values off"
    return worst, None


def _row_difference(shown: Frame, sent: Frame) -> float:
    import numpy as np

    # Their larger less their smaller one: in uint8, where a difference would wrap around.
    apart = np.maximum(shown, sent) - np.minimum(shown, sent)
    return float(apart.mean(axis=1, dtype=np.float32).max())


def _output(ffmpeg: str, arguments: list[str]) -> bytes:
    command = [ffmpeg, "-hide_banner", "-loglevel", "error", "-nostats", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise UnreadableError(f"FFmpeg cannot read it: {done.stderr.decode()[-STDERR_CHARACTERS:].strip()}")
    return done.stdout
