"""What an FFmpeg program writes to a pipe in NUT, which libav reads."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator
from contextlib import suppress
from fractions import Fraction
from io import FileIO
from typing import TYPE_CHECKING, Any

import av
from av.error import FFmpegError as LibavError

from penstock._native import _apply_policy
from penstock._platform import descriptors
from penstock._platform.forks import at_fork

if TYPE_CHECKING:
    from av.packet import Packet

    from penstock._common.types import Priority
    from penstock._native import ThreadPolicy

# NUT's header tells all that is needed: with these options, libav waits for one frame at most before it gives that.
_OPTIONS = {"probesize": "32", "analyzeduration": "0", "fpsprobesize": "0"}
# NUT holds no times before 0, so FFmpeg makes all later by so many seconds at least. Chosen: a year.
_LATER_S = 1 << 25
# Measured: at 1080p, a sixth of the context switches that a pipe of 64 KiB takes, and a tenth less time.
_PIPE_BYTES = 1 << 20
_living: weakref.WeakSet[ProgramOutput] = weakref.WeakSet()


def writing_arguments(numerator: int, *encoder: str) -> list[str]:
    """FFmpeg's arguments to write what an encoder makes, with its timestamps, to its standard output.

    Args:
        numerator: of the unit of timestamps.
        encoder: FFmpeg's arguments for the encoder.
    """
    return [
        *encoder,
        # Timestamps may go back or repeat if the times of decoding grow, and are earlier. NUT doesn't store the latter.
        # The muxer counts in units that are up to 65,536 times as short, in 64 bits. The filter holds back a packet
        # until the next one comes, which of a live source is a frame later.
        *("-bsf", f"setts=dts=N-{1 << 45}", "-avoid_negative_ts", "disabled"),
        *("-output_ts_offset", str(_later_s(numerator))),
        *("-map_metadata", "-1", "-map_chapters", "-1"),
        # Unbuffered: if FFmpeg fails, all that it has made arrives.
        *("-avioflags", "direct", "-f", "nut"),
        # Without places to seek to, which FFmpeg and libav keep in memory: 250 bytes a frame, up to the end.
        *("-syncpoints", "none", "-strict", "experimental", "pipe:1"),
    ]


def _later_s(numerator: int) -> int:
    """By how much FFmpeg makes timestamps later: a whole number of seconds, and of their unit."""
    return -(-_LATER_S // numerator) * numerator


def written_packets(
    descriptor: int, time_base: Fraction, frame_bytes: int | None = None
) -> Generator[tuple[int, Packet[Any]]]:
    """The packets that FFmpeg writes to a pipe, with their timestamps, up to its end.

    Args:
        time_base: unit of timestamps, in seconds.
        frame_bytes: bytes of a packet, if all have as many.
    """
    later = int(_later_s(time_base.numerator) / time_base)
    # FFmpeg may end before the first packet, or inside one: what it says tells why.
    with (
        suppress(LibavError, IndexError),
        av.open(descriptors.for_libav(descriptor), format="nut", options=_OPTIONS) as media,
    ):
        stream = media.streams[0]
        units = Fraction(stream.time_base or 1) / time_base
        for packet in media.demux(stream):
            if packet.pts is None or frame_bytes not in (None, packet.size):
                return
            yield packet.pts * units.numerator // units.denominator - later, packet
            del packet


class ProgramOutput:
    """Reads the packets one after another, with their timestamps.

    Args:
        output: the end of the pipe to read from, which this object duplicates.
        time_base: unit of timestamps, in seconds.
        policy: of the thread that reads.
        frame_bytes: bytes of a packet, if all have as many.

    Attributes:
        count: how many packets were read.
    """

    def __init__(
        self,
        output: FileIO,
        time_base: Fraction,
        policy: ThreadPolicy | Priority | None,
        frame_bytes: int | None = None,
    ) -> None:
        self.count = 0
        self._policy, self._is_reading = policy, False
        self._pipe = os.fstat(output.fileno())
        self._descriptor = os.dup(output.fileno())
        descriptors.grow_pipe(self._descriptor, _PIPE_BYTES)
        self._packets = written_packets(self._descriptor, time_base, frame_bytes)
        _living.add(self)

    def read(self) -> tuple[int, Packet[Any]] | None:
        """The next frame and its timestamp; None at the end. Waits as long as it takes, so on a thread of its own."""
        if self._policy is not None:
            _apply_policy(self._policy, try_undo=False)
            self._policy = None
        self._is_reading = True
        read = next(self._packets, None)
        self._is_reading = False
        if read is None:
            self.release()
        else:
            self.count += 1
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
        self._packets.close()
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
