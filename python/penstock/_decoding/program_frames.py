"""The frames that an FFmpeg program writes to a pipe in NUT, which libav reads."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Generator
from contextlib import suppress
from fractions import Fraction
from io import FileIO
from typing import TYPE_CHECKING

import av
from av.error import FFmpegError as LibavError

from penstock._common.reports import DecoderStats
from penstock._native import _apply_policy
from penstock._platform import descriptors
from penstock._platform.forks import at_fork

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.index import Packet
    from penstock._native import ThreadPolicy

# NUT's header tells all that is needed: with these options, libav waits for one frame at most before it gives that.
_OPTIONS = {"probesize": "32", "analyzeduration": "0", "fpsprobesize": "0"}
# The muxer of NUT shortens units that are longer than this (ff_choose_timebase in libavformat/mux.c).
_LONGEST_UNIT_S = Fraction(1, 48000)
# Chosen: times before 0 may be as long ago as this many of those units, 1.4 years, and later ones are still exact.
_MOST_BEFORE_ZERO = 1 << 41
# FFmpeg's filters count in floats of 64 bits.
_LEAST_INEXACT = 1 << 53
# What a written timestamp says, in two bits: how it was counted.
_KINDS = _FORWARD, _BACK, _BEGIN = range(3)
# Measured: at 1080p, a sixth of the context switches that a pipe of 64 KiB takes, and a tenth less time.
_PIPE_BYTES = 1 << 20
_living: weakref.WeakSet[ProgramFrames] = weakref.WeakSet()


class Steps:
    """How timestamps go through NUT, in which each must be later than the one before.

    Those of frames may go back or repeat. FFmpeg fails then, or changes them. So a filter of FFmpeg's counts from the
    first timestamp on: as many units forward as the next one is later, or one more than it is earlier. What it writes
    is four times the count, and which of these it was. If FFmpeg makes its filters again because the size or format
    changes, they begin a new count. If that is not ahead of the last one, because the times have gone back, FFmpeg
    fails, or makes a step of one.

    Args:
        time_base: unit of the timestamps, in seconds.

    Attributes:
        is_lost: a timestamp is lost.
        latest: the latest timestamp so far; None before the first.
        longest: the longest step between two timestamps.
    """

    def __init__(self, time_base: Fraction) -> None:
        self._time_base = time_base
        self._divisor = math.ceil(time_base / _LONGEST_UNIT_S)
        self._zero = _MOST_BEFORE_ZERO // self._divisor
        self._count: int | None = None
        self._pts = 0
        self.is_lost = False
        self.latest: int | None = None
        self.longest = 0

    def can_begin(self, pts: int) -> bool:
        """Whether FFmpeg's filters can count from a timestamp exactly."""
        return abs(4 * (pts + self._zero)) < _LEAST_INEXACT

    def filters(self) -> list[str]:
        """FFmpeg's filters that make the steps."""
        step = f"if(gt(PTS,PREV_INPTS),4*(PTS-PREV_INPTS)+{_FORWARD},4*(PREV_INPTS-PTS+1)+{_BACK})"
        begin = f"4*(PTS+{self._zero})+{_BEGIN}"
        return [
            f"settb={self._time_base}",
            f"setpts='if(N,PREV_OUTPTS-mod(PREV_OUTPTS,4)+{step},{begin})'",
        ]

    def output_arguments(self) -> list[str]:
        """FFmpeg's arguments to write frames with such timestamps to its standard output."""
        unit = self._time_base / self._divisor
        return [
            # No frame is dropped and none repeated, whatever their times.
            *("-fps_mode", "passthrough"),
            *("-enc_time_base", f"{unit.numerator}/{unit.denominator}"),
            *("-map_metadata", "-1", "-map_chapters", "-1"),
            # Unbuffered: if FFmpeg fails, all frames that it has made arrive.
            *("-avioflags", "direct", "-c:v", "rawvideo", "-f", "nut"),
            # Without places to seek to, which FFmpeg and libav keep in memory: 250 bytes a frame, up to the end.
            *("-syncpoints", "none", "-strict", "experimental", "pipe:1"),
        ]

    def take(self, written: int | None) -> int | None:
        """The timestamp of the next frame, which libav reads as `written`; None if it is lost."""
        if written is None:
            self.is_lost = True
            return None
        units, rest = divmod(written, self._divisor)
        count, kind = divmod(units, 4)
        last, self._count = self._count, count
        is_ahead = kind == _BEGIN if last is None else count > last
        if rest or not is_ahead or kind not in _KINDS or units >= _LEAST_INEXACT:
            self.is_lost = True
            return None
        if last is None or kind == _BEGIN:
            self._pts = count - self._zero
        else:
            self._pts += count - last if kind == _FORWARD else 1 + last - count
        if self.latest is not None:
            self.longest = max(self.longest, self._pts - self.latest)
        self.latest = self._pts if self.latest is None else max(self.latest, self._pts)
        return self._pts


def written_frames(descriptor: int, frame_bytes: int, steps: Steps) -> Generator[tuple[int, Packet]]:
    """The frames that FFmpeg writes to a pipe, with their timestamps, up to its end, or until a timestamp is lost."""
    # FFmpeg may end before the first frame, or inside one: what it says tells why.
    with (
        suppress(LibavError, IndexError),
        av.open(f"pipe:{descriptor}", format="nut", options=_OPTIONS) as media,
    ):
        for packet in media.demux(video=0):
            if packet.size != frame_bytes or (pts := steps.take(packet.pts)) is None:
                return
            yield pts, packet
            del packet


class ProgramFrames:
    """Reads the frames one after another: the packets of raw video, with their timestamps.

    Args:
        output: the end of the pipe to read from, which this object duplicates.
        frame_bytes: bytes of a frame.
        time_base: unit of timestamps, in seconds.
        policy: of the thread that reads.

    Attributes:
        steps: how the timestamps were read.
        stats: how many frames were read, as `frames_delivered`.
    """

    def __init__(
        self,
        output: FileIO,
        frame_bytes: int,
        time_base: Fraction,
        policy: ThreadPolicy | Priority | None,
    ) -> None:
        self.steps, self.stats = Steps(time_base), DecoderStats()
        self._policy, self._is_reading = policy, False
        self._pipe = os.fstat(output.fileno())
        self._descriptor = os.dup(output.fileno())
        descriptors.grow_pipe(self._descriptor, _PIPE_BYTES)
        self._frames = written_frames(self._descriptor, frame_bytes, self.steps)
        _living.add(self)

    def read(self, _: float | None = None) -> tuple[int, Packet] | None:
        """The next frame and its timestamp; None at the end. Waits as long as it takes, so on a thread of its own."""
        if self._policy is not None:
            _apply_policy(self._policy, try_undo=False)
            self._policy = None
        self._is_reading = True
        read = next(self._frames, None)
        self._is_reading = False
        if read is None:
            self.release()
        else:
            self.stats = DecoderStats(frames_delivered=self.stats.frames_delivered + 1)
        return read

    def waits(self) -> bool:
        """Whether a thread waits for FFmpeg to write."""
        with suppress(OSError, ValueError):  # the thread closes the pipe
            return self._is_reading and not descriptors.unread_bytes(self._descriptor)
        return False

    def close(self) -> None:
        """Leaves it to the thread that reads: libav's read ends with FFmpeg."""

    def release(self) -> None:
        """Closes the pipe. No thread may read. May be called again."""
        self._frames.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close_inherited(self) -> None:
        """Closes the pipe in the child of a fork. libav has a descriptor of its own."""
        if self._descriptor >= 0:
            descriptors.close_all_of(self._pipe)


def _close_inherited() -> None:
    for one in list(_living):
        one.close_inherited()


at_fork(after_in_child=_close_inherited)
