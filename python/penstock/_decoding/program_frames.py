"""The frames that an FFmpeg program writes to a pipe in NUT, which libav reads."""

from __future__ import annotations

import fcntl
import os
import termios
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

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.index import Packet
    from penstock._native import ThreadPolicy

# NUT's header tells all that is needed: with these options, libav waits for one frame at most before it gives that.
_OPTIONS = {"probesize": "32", "analyzeduration": "0", "fpsprobesize": "0"}
# NUT holds no times before 0, so FFmpeg makes all later by so many seconds at least. Chosen: a year.
_LATER_S = 1 << 25
# Measured: at 1080p, a sixth of the context switches that a pipe of 64 KiB takes, and a tenth less time.
_PIPE_BYTES = 1 << 20
_living: weakref.WeakSet[ProgramFrames] = weakref.WeakSet()


def writing_arguments(time_base: Fraction) -> list[str]:
    """FFmpeg's arguments to write frames with their timestamps, in that unit, to its standard output."""
    return [
        # No frame is dropped and none repeated, whatever their times.
        *("-fps_mode", "passthrough"),
        *("-enc_time_base", f"{time_base.numerator}/{time_base.denominator}"),
        # Timestamps may go back or repeat if the times of decoding grow, and are earlier. NUT doesn't store the latter.
        *("-c:v", "rawvideo", "-bsf:v", f"setts=dts=N-{1 << 52}", "-avoid_negative_ts", "disabled"),
        *("-output_ts_offset", str(_later_s(time_base))),
        *("-map_metadata", "-1", "-map_chapters", "-1"),
        # Unbuffered: if FFmpeg fails, all frames that it has made arrive.
        *("-avioflags", "direct", "-f", "nut"),
        # Without places to seek to, which FFmpeg and libav keep in memory: 250 bytes a frame, up to the end.
        *("-syncpoints", "none", "-strict", "experimental", "pipe:1"),
    ]


def _later_s(time_base: Fraction) -> int:
    """By how much FFmpeg makes timestamps later: a whole number of seconds, and of their unit."""
    return -(-_LATER_S // time_base.numerator) * time_base.numerator


def written_frames(descriptor: int, frame_bytes: int, time_base: Fraction) -> Generator[tuple[int, Packet]]:
    """The frames that FFmpeg writes to a pipe, with their timestamps, up to its end."""
    later = int(_later_s(time_base) / time_base)
    # FFmpeg may end before the first frame, or inside one: what it says tells why.
    with (
        suppress(LibavError, IndexError),
        av.open(f"pipe:{descriptor}", format="nut", options=_OPTIONS) as media,
    ):
        for packet in media.demux(video=0):
            if packet.size != frame_bytes or packet.pts is None:
                return
            yield int(packet.pts * packet.time_base / time_base) - later, packet
            del packet


class ProgramFrames:
    """Reads the frames one after another: the packets of raw video, with their timestamps.

    Args:
        output: the end of the pipe to read from, which this object duplicates.
        frame_bytes: bytes of a frame.
        time_base: unit of timestamps, in seconds.
        policy: of the thread that reads.

    Attributes:
        stats: how many frames were read, as `frames_delivered`.
    """

    def __init__(
        self,
        output: FileIO,
        frame_bytes: int,
        time_base: Fraction,
        policy: ThreadPolicy | Priority | None,
    ) -> None:
        self.stats = DecoderStats()
        self._policy, self._is_reading = policy, False
        self._pipe = os.fstat(output.fileno())
        self._descriptor = os.dup(output.fileno())
        with suppress(OSError):  # the user's pipes together may be at the kernel's limit
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._frames = written_frames(self._descriptor, frame_bytes, time_base)
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
            return self._is_reading and not any(fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)))
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
            for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only numbers
                with suppress(OSError):
                    if os.path.samestat(os.fstat(int(name)), self._pipe):
                        os.close(int(name))


def _close_inherited() -> None:
    for one in list(_living):
        one.close_inherited()


os.register_at_fork(after_in_child=_close_inherited)
