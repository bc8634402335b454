"""What `Encoder`, `Decoder` and `FanOut` report; public in ``penstock.video``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock._common.notebook import HtmlTable, HtmlVideo
from penstock._native import ReaderStats, WriterStats

#: Who may be the slowest: the program that calls, the conversion of pixels, or FFmpeg.
Bottleneck = Literal["caller", "conversion", "ffmpeg"]

# With a smaller share of the time than this, `bottleneck` names nobody. Chosen.
_CLEAR_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class EncodeReport(HtmlVideo):
    """The result of an `Encoder`.

    Attributes:
        output: absolute path of the file, or the URL, that FFmpeg wrote to; ``<TYPE>`` for an object. After an
            exception, the path of the new file beside the old one.
        frames_submitted: frames that ``write``, ``lease`` and ``submit`` accepted.
        frames_encoded: frames that FFmpeg encoded; equal to `frames_submitted`.
        samples_submitted: samples of each channel that ``write_audio`` accepted.
        bytes_submitted: bytes of the submitted frames, in their `pixel_format`.
        output_bytes: size of the file at the end, or bytes written to an object; None for other outputs.
        elapsed_s: seconds from the start of FFmpeg to its end.
        fps: frames encoded per second of that time.
        warnings: what the video lost from the frames, and FFmpeg's own errors and warnings, such as an unused option.
        codec: FFmpeg's name of the video encoder.
        skipped_encoders: hardware encoders that ``codec="auto-h264"`` and the like skipped, with a reason for each.
        clipped_samples: samples of the frames that were outside of `Encoder`'s `value_range`, including infinities. If
            they are 1 % of all samples or more, a warning says so.
    """

    output: str
    frames_submitted: int
    frames_encoded: int
    samples_submitted: int
    bytes_submitted: int
    output_bytes: int | None
    elapsed_s: float
    fps: float
    warnings: tuple[str, ...] = ()
    codec: str = ""
    skipped_encoders: tuple[str, ...] = ()
    clipped_samples: int = 0


@dataclass(frozen=True, slots=True)
class EncoderStats:
    """Progress of an `Encoder`: a snapshot.

    Attributes:
        frames_submitted: frames that ``write``, ``lease`` and ``submit`` accepted.
        frames_written: frames that FFmpeg has read.
        frames_encoded: frames that FFmpeg has encoded. FFmpeg reports it twice a second.
        bytes_written: bytes that FFmpeg has read. A converted frame may have fewer bytes than the submitted one.
        output_bytes: size of the video so far, from the same report; None if FFmpeg doesn't report it.
        elapsed_s: seconds since the start of FFmpeg, until its end.
        fps: frames encoded per second of that time.
        speed: `fps` divided by the video's frame rate: 1 is real time.
        caller_wait_s: seconds that calls spent on queueing frames, including the wait for room; without ``awrite``.
        output_wait_s: seconds that the worker waited for FFmpeg to read.
        input_wait_s: seconds until ``close`` in which the worker had no frame and no call was passing one.
        converting_s: seconds spent on copying and converting frames, in ``write`` on the caller's thread and in the
            worker. Part of it overlaps with waiting for FFmpeg.
        writer: statistics of the native writer: its transport and the reason, bytes accepted and delivered; None before
            FFmpeg has started.
        clipped_samples: samples of the frames that were outside of `value_range`.
    """

    frames_submitted: int = 0
    frames_written: int = 0
    frames_encoded: int = 0
    bytes_written: int = 0
    output_bytes: int | None = None
    elapsed_s: float = 0.0
    fps: float = 0.0
    speed: float = 0.0
    caller_wait_s: float = 0.0
    output_wait_s: float = 0.0
    input_wait_s: float = 0.0
    converting_s: float = 0.0
    writer: WriterStats | None = None
    clipped_samples: int = 0

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The slowest part: ``"caller"``, ``"conversion"`` or ``"ffmpeg"``.

        None if no part clearly is, and before the first frame.
        """
        if self.frames_submitted == 0:
            return None
        return _slowest(
            self.elapsed_s, caller=self.input_wait_s, conversion=self.converting_s, ffmpeg=self.output_wait_s
        )


@dataclass(frozen=True, slots=True)
class OutputReport(HtmlTable):
    """The result of one output of a `FanOut`.

    Attributes:
        output: the encoder or writer that you added.
        frames_taken: number of frames that it accepted. An encoder's file has them in the order of the calls.
        dropped: frames that it dropped because its queue was full, in order. It took all other frames since `add`,
            except those after its failure and one that still waits for room.
        result: an encoder's report, which is None before its end and if it failed; or a writer's statistics.
        error: why it failed; None if it didn't. Before the fan-out is closed, this may be a `BrokenStreamError`; after
            that, an encoder has an `EncoderError` with FFmpeg's output.
    """

    @dataclass(frozen=True, slots=True)
    class DroppedFrame:
        """A frame that one output of a `FanOut` dropped because its queue was full.

        Attributes:
            index: number of frames that the fan-out took before this one, since the output was added. Frames that
                ``write`` refused with an error don't count.
            time_s: time that the frame was written with, in seconds; None if it had no time.
        """

        index: int
        time_s: float | None

    output: object
    frames_taken: int
    dropped: tuple[OutputReport.DroppedFrame, ...]
    result: EncodeReport | WriterStats | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class DecoderEngine:
    """What reads a `Decoder`'s source, and why.

    Attributes:
        name: "libav", FFmpeg's libraries (PyAV), in this process or, with `isolated`, in another one; or "ffmpeg", an
            FFmpeg program in its own process, whose frames libav reads.
        reason: why. With libav in this process, also how: with threads, with one thread, or with one thread because the
            times of the packets don't name the frames. A text for people, whose words may change.
        unconfined: what the kernel can't confine for an isolated decoder: "files", "truncation", "signals", "system
            calls", "privileges" or "limits"; empty if its sandbox is complete, or if it has none.
    """

    name: Literal["libav", "ffmpeg"]
    reason: str
    unconfined: tuple[str, ...] = ()

    def __str__(self) -> str:
        gaps = f"; the kernel cannot confine {', '.join(self.unconfined)}" if self.unconfined else ""
        return f"{self.name}: {self.reason}{gaps}"


@dataclass(frozen=True, slots=True)
class DecoderStats:
    """Progress of a `Decoder`: a snapshot.

    Attributes:
        frames_read: decoded frames; with an FFmpeg program or `isolated`, frames that came from it completely.
        frames_delivered: frames that the caller received.
        bytes_read: bytes of the decoded frames before the native conversion, which makes more of them; with `isolated`,
            after it.
        elapsed_s: seconds since the first read, or since the start of the FFmpeg program, until the end.
        fps: frames read per second of that time.
        caller_wait_s: seconds that calls waited for frames; with an FFmpeg program or `isolated`, without
            ``async for``.
        input_wait_s: seconds spent on reading packets and decoding them; with an FFmpeg program or `isolated`, seconds
            that a thread waited for the other process to write.
        output_wait_s: seconds in which nobody asked for a frame: between the calls, or with a full queue.
        converting_s: seconds that threads of this process spent on converting frames, all threads together.
        reader: statistics of the native reader of an isolated libav's output; None before its first read, and if
            something else reads.
    """

    frames_read: int = 0
    frames_delivered: int = 0
    bytes_read: int = 0
    elapsed_s: float = 0.0
    fps: float = 0.0
    caller_wait_s: float = 0.0
    input_wait_s: float = 0.0
    output_wait_s: float = 0.0
    converting_s: float = 0.0
    reader: ReaderStats | None = None

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The slowest part: ``"caller"``, ``"conversion"``, or ``"ffmpeg"``, which is libav or the program.

        None if no part clearly is, and before the first frame.
        """
        if self.frames_read == 0:
            return None
        return _slowest(
            self.elapsed_s, caller=self.output_wait_s, conversion=self.converting_s, ffmpeg=self.input_wait_s
        )


def _slowest(elapsed_s: float, *, caller: float, conversion: float, ffmpeg: float) -> Bottleneck | None:
    """The name with the most seconds; None if they are a small share of `elapsed_s`."""
    seconds: dict[Bottleneck, float] = {"caller": caller, "conversion": conversion, "ffmpeg": ffmpeg}
    slowest = max(seconds, key=seconds.__getitem__)
    return slowest if elapsed_s and seconds[slowest] / elapsed_s >= _CLEAR_SHARE else None
