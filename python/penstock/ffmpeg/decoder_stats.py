"""What a `Decoder` has done so far, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._native import ReaderStats
from penstock.ffmpeg.stats import slowest


@dataclass(frozen=True, slots=True)
class DecoderStats:
    """What a `Decoder` has done so far. A picture of one moment.

    Attributes:
        frames_read: whole frames that were read from FFmpeg.
        frames_delivered: frames that the caller got.
        bytes_read: bytes that FFmpeg wrote: of frames that are converted natively, fewer than the caller gets.
        seconds: since FFmpeg was started, until it ended.
        fps: frames read a second of that time.
        caller_blocked_s: seconds that the caller waited for frames.
        ffmpeg_waited_for_s: seconds that the worker waited for FFmpeg to write.
        caller_waited_for_s: seconds that the worker waited because ``depth`` frames were waiting for the caller.
        converting_s: seconds that the worker spent on converting frames.
        reader: what the native reader did.
    """

    frames_read: int
    frames_delivered: int
    bytes_read: int
    seconds: float
    fps: float
    caller_blocked_s: float
    ffmpeg_waited_for_s: float
    caller_waited_for_s: float
    converting_s: float
    reader: ReaderStats

    @property
    def bottleneck(self) -> str:
        """Who is the slowest, in words."""
        if self.frames_read == 0:
            return "nothing was read yet"
        return slowest(
            self.seconds,
            (self.ffmpeg_waited_for_s, "FFmpeg: the worker waited {:.0%} of the time for it to decode"),
            (self.caller_waited_for_s, "the caller: frames were waiting for it {:.0%} of the time"),
            (self.converting_s, "the conversion: the worker spent {:.0%} of the time on it"),
        )
