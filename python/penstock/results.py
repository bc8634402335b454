"""What calls give back. These types are received, never made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._html import HtmlTable
from penstock._native import (
    AppliedPolicy,
    Frame,
    ReaderStats,
    Relayed,
    RelayTicket,
    TeeOutlet,
    TeeReport,
    Ticket,
    WriterStats,
)

if TYPE_CHECKING:
    from penstock.ffmpeg.frames import VideoFrame

__all__ = [
    "AppliedPolicy",
    "DecoderStats",
    "EncodeReport",
    "EncoderStats",
    "Frame",
    "ReaderStats",
    "RelayTicket",
    "Relayed",
    "TeeOutlet",
    "TeeReport",
    "Ticket",
    "VideoFrame",
    "WriterStats",
]

# With a smaller share of the time than this, `bottleneck` names nobody.
_CLEAR_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class EncodeReport(HtmlTable):
    """What an `Encoder` delivered.

    Attributes:
        output: the absolute path of the file, or the URL, that FFmpeg wrote to.
        frames_submitted: frames that ``write``, ``frame`` and ``submit`` accepted.
        frames_encoded: frames that FFmpeg reported as encoded; equal to `frames_submitted`.
        bytes_submitted: bytes of the submitted frames.
        output_bytes: size of the file at the end; None if the output is not a regular file.
        elapsed_s: seconds from the start of FFmpeg to its end.
        fps: frames encoded per second of that time.
        warnings: what the video lost of the frames, and FFmpeg's own errors and warnings, such as an unused option.
    """

    output: str
    frames_submitted: int
    frames_encoded: int
    bytes_submitted: int
    output_bytes: int | None
    elapsed_s: float
    fps: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EncoderStats:
    """What an `Encoder` has done so far: a snapshot.

    Attributes:
        frames_submitted: frames that ``write``, ``frame`` and ``submit`` accepted.
        frames_written: frames that FFmpeg has read.
        frames_encoded: frames that FFmpeg has encoded. FFmpeg reports this twice a second.
        bytes_written: bytes that FFmpeg has read. A converted frame may have fewer bytes than the submitted one.
        output_bytes: size of the video so far, from the same report; None if FFmpeg does not report it.
        elapsed_s: seconds since the start of FFmpeg, until its end.
        fps: frames encoded per second of that time.
        speed: `fps` divided by the video's frame rate: 1 is real time.
        caller_wait_s: seconds that calls spent on queueing frames, including the wait for room; without ``awrite``.
        output_wait_s: seconds that the worker waited for FFmpeg to read.
        input_wait_s: seconds until ``close`` in which the worker had no frame and no call was taking one.
        converting_s: seconds spent on copying frames in and converting them, in ``write`` on the caller's thread and in
            the worker. Part of it overlaps with waiting for FFmpeg.
        writer: what the native writer did: the transport and its reason, bytes accepted and delivered.
    """

    frames_submitted: int
    frames_written: int
    frames_encoded: int
    bytes_written: int
    output_bytes: int | None
    elapsed_s: float
    fps: float
    speed: float
    caller_wait_s: float
    output_wait_s: float
    input_wait_s: float
    converting_s: float
    writer: WriterStats

    @property
    def bottleneck(self) -> str:
        """The slowest party, in words: the caller, the conversion or FFmpeg."""
        return self.slowest()

    def slowest(self, caller: str = "the caller") -> str:
        """`bottleneck` with other words for the caller, for a program in which that is the input or the output."""
        if self.frames_submitted == 0:
            return "nothing was submitted yet"
        return _slowest(
            self.elapsed_s,
            (self.output_wait_s, "FFmpeg: the worker waited {:.0%} of the time for it to take frames"),
            (self.input_wait_s, f"{caller}: there was no frame to encode {{:.0%}} of the time"),
            (self.converting_s, "the conversion: it took {:.0%} of the time"),
        )


@dataclass(frozen=True, slots=True)
class DecoderStats:
    """What a `Decoder` has done so far: a snapshot.

    Attributes:
        frames_read: whole frames that were read from FFmpeg.
        frames_delivered: frames that the caller received.
        bytes_read: bytes that FFmpeg wrote. A natively converted frame has fewer bytes there than the delivered one.
        elapsed_s: seconds since the start of FFmpeg, until its end.
        fps: frames read per second of that time.
        caller_wait_s: seconds that calls waited for frames; without ``async for``.
        input_wait_s: seconds that the worker waited for FFmpeg to write.
        output_wait_s: seconds that the worker waited with a full queue.
        converting_s: seconds that the worker spent on converting frames.
        reader: what the native reader did.
    """

    frames_read: int
    frames_delivered: int
    bytes_read: int
    elapsed_s: float
    fps: float
    caller_wait_s: float
    input_wait_s: float
    output_wait_s: float
    converting_s: float
    reader: ReaderStats

    @property
    def bottleneck(self) -> str:
        """The slowest party, in words: the caller, the conversion or FFmpeg."""
        return self.slowest()

    def slowest(self, caller: str = "the caller") -> str:
        """`bottleneck` with other words for the caller, for a program in which that is the input or the output."""
        if self.frames_read == 0:
            return "nothing was read yet"
        return _slowest(
            self.elapsed_s,
            (self.input_wait_s, "FFmpeg: the worker waited {:.0%} of the time for it to decode"),
            (self.output_wait_s, f"{caller}: frames were waiting for it {{:.0%}} of the time"),
            (self.converting_s, "the conversion: the worker spent {:.0%} of the time on it"),
        )


def _slowest(elapsed_s: float, *parts: tuple[float, str]) -> str:
    """The text of the part with the most seconds, filled in with its share of `elapsed_s`."""
    part_s, text = max(parts)
    share = part_s / elapsed_s if elapsed_s else 0.0
    return text.format(min(share, 1.0)) if share >= _CLEAR_SHARE else "nobody clearly"


if not TYPE_CHECKING:  # a type checker would take every name for one of this module

    def __getattr__(name: str) -> object:
        # `VideoFrame` is a NumPy array: importing it here would make `import penstock` import NumPy.
        if name == "VideoFrame":
            from penstock.ffmpeg.frames import VideoFrame

            return VideoFrame
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
