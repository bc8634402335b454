"""What an `Encoder` has done so far, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._native import WriterStats

# Below this share of the time, nobody is named: it is the start, or everybody waits for everybody.
_CLEAR_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class EncoderStats:
    """What an `Encoder` has done so far. A picture of one moment.

    Attributes:
        frames_submitted: frames that ``write`` accepted.
        frames_written: frames that FFmpeg has taken.
        frames_encoded: frames that FFmpeg has encoded, by its own report, which it gives twice a second.
        bytes_written: bytes that FFmpeg has taken: of converted frames, fewer than were submitted.
        output_bytes: size of the video so far, by the same report; None if FFmpeg does not say.
        seconds: since FFmpeg was started, until it ended.
        fps: frames encoded a second of that time.
        speed: frames encoded a second, by the frames of a second of video: 1 is real time.
        queue_blocked_s: seconds that ``write`` spent on putting frames into the queue, waiting for room included.
        ffmpeg_blocked_s: seconds that the worker waited for FFmpeg to take bytes.
        caller_idle_s: seconds until ``close`` in which the worker had no frame, and none was being taken.
        converting_s: seconds spent on taking and converting frames: by ``write`` on its caller's thread, and by the
            worker, some while it would have waited for FFmpeg.
        writer: what the native writer did: the transport and why, bytes accepted and delivered.
    """

    frames_submitted: int
    frames_written: int
    frames_encoded: int
    bytes_written: int
    output_bytes: int | None
    seconds: float
    fps: float
    speed: float
    queue_blocked_s: float
    ffmpeg_blocked_s: float
    caller_idle_s: float
    converting_s: float
    writer: WriterStats

    @property
    def bottleneck(self) -> str:
        """Who is the slowest, in words."""
        if self.frames_submitted == 0:
            return "nothing was submitted yet"
        return slowest(
            self.seconds,
            (
                self.ffmpeg_blocked_s,
                "FFmpeg: the worker waited {:.0%} of the time for it to take frames",
            ),
            (self.caller_idle_s, "the caller: there was no frame to encode {:.0%} of the time"),
            (self.converting_s, "the conversion: it took {:.0%} of the time"),
        )


def slowest(seconds: float, *parts: tuple[float, str]) -> str:
    """Of parts of `seconds`, each with words that take its share, the words of the largest."""
    part_s, words = max(parts)
    share = part_s / seconds
    return words.format(min(share, 1.0)) if share >= _CLEAR_SHARE else "nobody clearly"
