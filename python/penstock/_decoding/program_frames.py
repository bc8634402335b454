"""The frames that an FFmpeg program writes to a pipe in NUT: libav reads them ahead, on a thread."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from io import FileIO
from typing import TYPE_CHECKING

import av
from av.error import FFmpegError as LibavError

from penstock._common.reports import DecoderStats
from penstock._decoding.engine import Made
from penstock._decoding.open_video import keep_in_child
from penstock._native import _apply_policy
from penstock.errors import ClosedError, StalledError

if TYPE_CHECKING:
    from penstock._decoding.pixels import ProgramPixels
    from penstock._facts.index import Packet
    from penstock._ffmpeg.command.settings import DecoderSettings

# Frames that are read ahead.
READ_AHEAD = 4
# NUT's header tells all that is needed: with these options, libav waits for one frame at most before it gives that.
_OPTIONS = {"probesize": "32", "analyzeduration": "0", "fpsprobesize": "0"}
# The muxer of NUT shortens units that are longer than this (ff_choose_timebase in libavformat/mux.c).
_LONGEST_UNIT_S = Fraction(1, 48000)
# Chosen: times before 0 may be as long ago as this many of those units, 1.4 years, and later ones are still exact.
_MOST_BEFORE_ZERO = 1 << 41
_living: weakref.WeakSet[ProgramFrames] = weakref.WeakSet()


class Steps:
    """How timestamps go through NUT, in which each must be later than the one before.

    Those of frames may go back or repeat. FFmpeg fails then, or changes them. So a filter of FFmpeg's counts from the
    first timestamp on, in steps: twice the units forward, or twice the units back and three more. If FFmpeg makes its
    filters again because the size or format changes, they count from there. If the times have also gone back, FFmpeg
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
        self._zero = 2 * (_MOST_BEFORE_ZERO // self._divisor)
        self._last: int | None = None  # as it was written
        self._pts = 0
        self.is_lost = False
        self.latest: int | None = None
        self.longest = 0

    def filters(self) -> list[str]:
        """FFmpeg's filters that make the steps."""
        step = "if(gt(PTS,PREV_INPTS),2*(PTS-PREV_INPTS),2*(PREV_INPTS-PTS)+3)"
        return [f"settb={self._time_base}", f"setpts='if(N,PREV_OUTPTS+{step},2*PTS+{self._zero})'"]

    def output_arguments(self) -> list[str]:
        """FFmpeg's arguments to write frames with such timestamps to its standard output."""
        unit = self._time_base / self._divisor
        return [
            # No frame is dropped and none repeated, whatever their times.
            *("-fps_mode", "passthrough"),
            *("-enc_time_base", f"{unit.numerator}/{unit.denominator}"),
            *("-map_metadata", "-1", "-map_chapters", "-1"),
            # Unbuffered: if FFmpeg fails, all frames that it has made arrive.
            *("-avioflags", "direct", "-c:v", "rawvideo", "-f", "nut", "pipe:1"),
        ]

    def take(self, written: int) -> int | None:
        """The timestamp of the next frame, which libav reads as `written`; None if it is lost."""
        units, rest = divmod(written, self._divisor)
        last, self._last = self._last, units
        if last is None:
            self._pts = (units - self._zero) // 2
        elif rest or units - last == 1:
            self.is_lost = True
            return None
        else:
            half, is_back = divmod(units - last, 2)
            self._pts += 1 - half if is_back else half
            self.longest = max(self.longest, self._pts - (self.latest or 0))
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
            if packet.size != frame_bytes or packet.pts is None or (pts := steps.take(packet.pts)) is None:
                return
            yield pts, packet
            del packet


class ProgramFrames:
    """Reads frames ahead. Several threads may take them.

    Args:
        output: the end of the pipe to read from, which this object duplicates.
        pixels: makes their arrays.
        time_base: unit of timestamps, in seconds.

    Attributes:
        steps: how the timestamps were read.
    """

    def __init__(
        self, output: FileIO, pixels: ProgramPixels, time_base: Fraction, settings: DecoderSettings
    ) -> None:
        keep_in_child(self)
        self._pixels, self._settings = pixels, settings
        self.steps = Steps(time_base)
        self._changed = threading.Condition()  # its lock knows its owner: a signal handler may close this
        self._frames: deque[Made] = deque()
        self._waiters: list[Future[None]] = []
        self._failure: BaseException | None = None
        self._is_closed = self._has_ended = False
        self._done = DecoderStats()
        self._pipe = os.fstat(output.fileno())
        _living.add(self)
        threading.Thread(
            target=self._run, args=(os.dup(output.fileno()),), name="penstock-decode", daemon=True
        ).start()

    # --- what a reader calls -----------------------------------------------------------------------------------------

    def read(self, timeout: float) -> Made | None:
        """The next frame; None at the end.

        Raises:
            StalledError: none came within so many seconds.
            ClosedError: this was closed.
        """
        began_s = time.perf_counter()
        with self._changed:
            try:
                self._changed.wait_for(self._is_due, timeout)
            finally:
                self._count(caller_wait_s=time.perf_counter() - began_s)
            if self._is_closed:
                raise ClosedError("the decoder is closed")
            if not self._is_due():
                raise StalledError("no frame came", timeout, self._pixels.input_bytes)
            if not (frames := self._frames):
                if self._failure is not None:
                    raise self._failure
                return None
            made = frames.popleft()
            self._count(frames_delivered=1)
            self._changed.notify_all()
        return made

    def _ready(self) -> Future[None] | None:
        """Done when `read` would not wait; None if it would not now."""
        with self._changed:
            if self._is_due():
                return None
            future = Future[None]()
            future.set_running_or_notify_cancel()  # nobody can cancel it
            self._waiters.append(future)
            return future

    def take_rest(self) -> None:
        """Nothing: a part of a frame is dropped."""

    @property
    def stats(self) -> DecoderStats:
        """What was done so far, without the time that it took."""
        return replace(self._done, converting_s=self._pixels.converting_s)

    def close(self) -> None:
        """Drops the frames that nobody has taken. The thread ends once FFmpeg has. May be called again."""
        with self._changed:
            self._is_closed = True
            self._frames = deque()  # not `clear`: a signal handler may interrupt `read`
            self._tell()

    def close_inherited(self) -> None:
        """Closes the pipe in the child of a fork, where the thread is not. libav has a descriptor of its own."""
        for name in [] if self._has_ended else os.listdir("/proc/self/fd"):  # noqa: PTH208 - only numbers
            with suppress(OSError):
                if os.path.samestat(os.fstat(int(name)), self._pipe):
                    os.close(int(name))

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self, descriptor: int) -> None:
        try:
            if self._settings.policy is not None:
                _apply_policy(self._settings.policy, try_undo=False)
            frames = written_frames(descriptor, self._pixels.input_bytes, self.steps)
            began_s = time.perf_counter()
            for pts, packet in frames:
                self._count(input_wait_s=time.perf_counter() - began_s)
                # Now, while the packet is in the processor's cache. The next one then gets its memory.
                memory = self._pixels.begin(packet).wait()
                del packet
                self._put(Made(self._done.frames_read, pts, memory))
                del memory
                if self._is_closed:
                    break
                began_s = time.perf_counter()
            frames.close()
        except BaseException as failure:
            self._failure = failure
        finally:
            os.close(descriptor)
            with self._changed:
                self._has_ended = True
                self._tell()

    def _put(self, made: Made) -> None:
        most = self._settings.queue_items or READ_AHEAD
        with self._changed:
            self._count(frames_read=1, bytes_read=self._pixels.input_bytes)
            began_s = time.perf_counter()
            self._changed.wait_for(lambda: len(self._frames) < most or self._is_closed)
            self._count(output_wait_s=time.perf_counter() - began_s)
            if not self._is_closed:
                self._frames.append(made)
                self._tell()

    def _is_due(self) -> bool:
        return bool(self._frames) or self._has_ended or self._is_closed

    def _tell(self) -> None:
        self._changed.notify_all()
        while self._waiters:
            self._waiters.pop().set_result(None)

    def _count(self, **more: float) -> None:
        with self._changed:
            self._done = replace(
                self._done, **{name: getattr(self._done, name) + one for name, one in more.items()}
            )


def _close_inherited() -> None:
    for one in list(_living):
        one.close_inherited()


os.register_at_fork(after_in_child=_close_inherited)
