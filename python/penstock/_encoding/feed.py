"""Frames and sound with their times, on their way into the one stream that FFmpeg reads."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from penstock._common.deadline import Deadline
from penstock._encoding import nut
from penstock._encoding.container import distinct_unit_s, longest_step_s
from penstock._encoding.plan import EncodePlan
from penstock._encoding.sound_packets import Packet, SoundPackets
from penstock._ffmpeg.command.arguments import TICK_S
from penstock._native import Ticket, Writer, _Slot
from penstock.errors import StalledError

# Sound of files is queued in pieces of this length, a little behind the picture: each piece takes a place in the queue.
# Chosen: containers interleave by half a second or more.
_PIECE_S = Fraction(1, 4)
# Samples that the program makes come in packets of at most this length.
_PACKETS_A_SECOND = 10
# Frames whose ends in the stream are kept: more than any queue has as a rule.
_KEPT_ENDS = 1 << 12
# Packets of each file that are queued at once after the last frame. Chosen.
_LAST_PACKETS = 32

_Result = TypeVar("_Result")


class Queued(NamedTuple):
    """What was queued. A tuple, because a changed copy of a dataclass takes three times as long.

    Attributes:
        frames: how many.
        first_s: the time of the first one.
        last_s: the time of the last one.
        step_s: how long that is after the one before.
        samples: how many of each channel.
        files_s: the time up to which packets of files were taken.
        taken: how many packets of each file were taken.
        pieces: what was taken of them and is not queued.
    """

    frames: int = 0
    first_s: Fraction = Fraction(0)
    last_s: Fraction = Fraction(0)
    step_s: Fraction = Fraction(0)
    samples: int = 0
    files_s: Fraction = Fraction(0)
    taken: tuple[int, ...] = ()
    pieces: tuple[bytes, ...] = ()


class _NotYet(Exception):
    """A step cannot be done yet. ``wait(seconds)`` waits, at most that long, until it may be."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        super().__init__()
        self.wait = wait


class Feed:
    """Queues frames and sound for FFmpeg, each behind its time.

    Frames of several threads are numbered, or their times compared, in the step that queues them. Each call that queues
    waits at most the `timeout` it gets, and can be repeated after a `StalledError`. The state is one value, which is
    replaced in one step: an exception of a signal handler leaves the old or the new state.

    Args:
        stream: the header and the units.
        frame_bytes: of a frame that FFmpeg gets.
    """

    _writer: Writer  # set by `start`

    def __init__(self, stream: nut.NutStream, plan: EncodePlan, frame_bytes: int) -> None:
        #: Seconds that calls have waited for room, or for a file.
        self.waited_s = 0.0
        self._stream, self._input, self._rate = stream, plan.audio_input, plan.rate
        self._distinct_unit_s, self._longest_s = distinct_unit_s(plan.output), longest_step_s(plan.output)
        self._frame_bytes = frame_bytes
        self._input_stream = 0
        self._files: list[tuple[int, SoundPackets]] = []
        for number, sound in enumerate(plan.sounds, start=1):
            if sound.audio is self._input:
                self._input_stream = number
            else:
                packets = SoundPackets(plan.program, sound, plan.request.settings.stall_timeout)
                self._files.append((number, packets))
        # Never held in a wait. Reentrant, because a signal handler may close the encoder while its thread holds it.
        self._lock = threading.RLock()
        self._is_queueing = False  # whether it is held to queue a frame or samples
        self._queued = Queued(taken=(0,) * len(self._files))
        # What `_queued` becomes once the writer has accepted more items than that number.
        self._pending: tuple[int, Queued] | None = None
        self._ends: list[int] = []

    def start(self, writer: Writer) -> None:
        """Queues the header, and starts to read the files. `end` ends what this has started, also if it raises."""
        self._writer = writer
        writer.submit(self._stream.head)
        for _, packets in self._files:
            packets.start()

    def end(self) -> None:
        """Ends the reading of files."""
        for _, packets in self._files:
            packets.end()

    def limit_waits(self, stall_timeout: float) -> None:
        """Limits the waits for files to `stall_timeout` seconds, for an encode that no caller waits for."""
        for _, packets in self._files:
            packets.stall_timeout = min(stall_timeout, packets.stall_timeout or stall_timeout)

    @property
    def state(self) -> Queued:
        """What was queued."""
        pending = self._pending
        is_over = pending is not None and self._writer.stats.items_accepted > pending[0]
        return pending[1] if is_over and pending is not None else self._queued

    @property
    def failures(self) -> list[str]:
        """Which sounds are not whole, and why."""
        return [failure for _, packets in self._files if (failure := packets.failure) is not None]

    @property
    def warnings(self) -> list[str]:
        """What is wrong with sounds that were written, in sentences."""
        return [warning for _, packets in self._files if (warning := packets.warning) is not None]

    @property
    def video_s(self) -> Fraction:
        """When the picture ends. With times, the last frame is taken to last as long as the one before."""
        state = self.state
        if self._rate is not None:
            return state.frames / self._rate
        return state.last_s + (state.step_s or Fraction(1, nut.NOMINAL_FPS)) if state.frames else Fraction(0)

    def frames_until(self, nbytes: int) -> int:
        """How many frames are in the first so many bytes of the stream."""
        ends = self._ends
        return max(0, self.state.frames - len(ends)) + bisect_right(ends, nbytes)

    def next_s(self, tick: int | None) -> Fraction:
        """The time of the next frame: `tick` multiples of `TICK_S`, or None at a constant rate."""
        if tick is not None:
            return tick * TICK_S
        assert self._rate is not None
        return self.state.frames / self._rate

    def prefix(self, time_s: Fraction) -> bytes:
        """What comes before a frame at that time."""
        return self._stream.prefix(0, time_s, self._frame_bytes)

    def check_later(self, tick: int) -> None:
        """Checks that a frame comes after those before."""
        time_s, queued = tick * TICK_S, self.state
        if queued.frames and time_s <= queued.last_s:
            raise ValueError(
                f"time_s must grow from frame to frame: {float(time_s):.6f} s comes after {float(queued.last_s):.6f} s"
            )
        if not queued.frames or self._longest_s is None:
            return
        unit_s, step_s = self._distinct_unit_s, time_s - queued.last_s
        # As FFmpeg rounds: a half goes up.
        units = [math.floor(one / unit_s + Fraction(1, 2)) for one in (queued.last_s, time_s)]
        if units[0] == units[1] or step_s > self._longest_s:
            raise ValueError(
                f"the container cannot store frames at {float(queued.last_s):.6f} and {float(time_s):.6f} s: its steps "
                f"are from {unit_s} to {float(self._longest_s):g} s, and time_s is in seconds"
            )

    def queue_frame(self, slot: _Slot, tick: int | None, *, timeout: float) -> Ticket:
        """Queues a frame with its prefix, which is written here at a constant rate: now the frame's number is known."""

        def step() -> Ticket:
            time_s = self.next_s(tick)
            if tick is not None:
                self.check_later(tick)
            self._queue_files(time_s)
            if tick is None:
                memoryview(slot)[: nut.PREFIX_BYTES] = self.prefix(time_s)
            before = self._queued
            step_s = time_s - before.last_s if before.frames else Fraction(0)
            first_s = before.first_s if before.frames else time_s
            ticket = self._push(
                lambda: self._writer._submit_converted(slot, timeout=0.0),
                before._replace(frames=before.frames + 1, first_s=first_s, last_s=time_s, step_s=step_s),
            )
            self._ends.append(self._writer.stats.bytes_accepted)
            del self._ends[:-_KEPT_ENDS]
            return ticket

        return self._when_possible(step, timeout)

    def queue_samples(self, samples: npt.NDArray[Any], *, timeout: float) -> Ticket:
        """Queues a copy of samples that the program has made, contiguous in the order samples × channels."""
        assert self._input is not None
        rate, data = self._input.sample_rate, samples.reshape(-1).view(np.uint8).data
        sample_bytes, packet = self._input.sample_bytes, -(-rate // _PACKETS_A_SECOND)

        def step() -> Ticket:
            before, parts = self._queued, list[bytes | memoryview]()
            for start in range(0, len(samples), packet):
                piece = data[start * sample_bytes : (start + packet) * sample_bytes]
                time_s = Fraction(before.samples + start, rate)
                parts += (self._stream.prefix(self._input_stream, time_s, len(piece)), piece)
            becomes = before._replace(samples=before.samples + len(samples))
            return self._push(lambda: self._writer.submit(b"".join(parts), timeout=0.0), becomes)

        return self._when_possible(step, timeout)

    def finish(self, *, timeout: float) -> None:
        """Queues the rest of the files' sound, when there are no more frames."""
        deadline = Deadline(timeout)
        while self._when_possible(self._queue_last, deadline.at_most(timeout), is_last=True):
            if deadline.is_over():
                raise self._late(deadline)

    def _when_possible(
        self, step: Callable[[], _Result], timeout: float, *, is_last: bool = False
    ) -> _Result:
        """Does a step, alone. If it cannot be done yet, waits without the lock, and begins it again.

        Raises:
            StalledError: it could not be done within `timeout`.
            RuntimeError: a signal handler has interrupted such a step, and it is not one of the last.
        """
        deadline = Deadline(timeout)
        while True:
            try:
                with self._lock:
                    if self._is_queueing and not is_last:
                        raise RuntimeError(
                            "a signal handler wrote to the encoder inside of a write: have it set a flag, and write "
                            "later"
                        )
                    self._is_queueing = True
                    try:
                        self._queued, self._pending = self.state, None
                        return step()
                    finally:
                        self._is_queueing = False
            except _NotYet as not_yet:
                waiting_s = time.monotonic()
                if (left_s := deadline.at_most(timeout)) == 0:
                    raise self._late(deadline) from None
                try:
                    not_yet.wait(left_s)
                except StalledError:
                    pass
                finally:
                    self.waited_s += time.monotonic() - waiting_s

    def _late(self, deadline: Deadline) -> StalledError:
        return deadline.late("no room", self._writer.stats.bytes_pending)

    def _push(self, push: Callable[[], Ticket], becomes: Queued) -> Ticket:
        """Queues one item. If a signal handler raises, `state` finds out whether the item is queued."""
        self._pending = self._writer.stats.items_accepted, becomes
        try:
            ticket = push()
        except StalledError:
            raise _NotYet(self._wait_for_room) from None
        self._queued, self._pending = self.state, None
        return ticket

    def _wait_for_room(self, seconds: float) -> None:
        if (oldest := self._writer._oldest()) is not None:
            oldest.wait(seconds)

    def _queue_files(self, until_s: Fraction) -> None:
        """Queues the files' sound until a time."""
        self._queue_pieces()
        while self._files and until_s - self._queued.files_s >= _PIECE_S:
            piece_end_s = self._queued.files_s + _PIECE_S
            for place, (_, packets) in enumerate(self._files):
                while (packet := self._peek(place)) is not None and packet.time_s < piece_end_s:
                    self._take(place, packet, is_left_out=packets.is_priming(packet))
            self._queue_pieces()
            self._queued = self._queued._replace(files_s=piece_end_s)

    def _queue_last(self) -> bool:
        """Queues a little of what is left of each file. Returns whether there was something."""
        self._queue_pieces()
        for place, (_, packets) in enumerate(self._files):
            for _ in range(_LAST_PACKETS):
                packet = self._peek(place, self.video_s)
                if packet is None:
                    break
                self._take(place, packet, is_left_out=packets.is_priming(packet))
        is_more = bool(self._queued.pieces)
        self._queue_pieces()
        return is_more

    def _peek(self, place: int, end_s: Fraction | None = None) -> Packet | None:
        packets, taken = self._files[place][1], self._queued.taken[place]
        try:
            return packets.peek(taken) if end_s is None else packets.peek_last(taken, end_s)
        except StalledError:
            raise _NotYet(packets.wait) from None

    def _take(self, place: int, packet: Packet, *, is_left_out: bool) -> None:
        """Takes a packet, in one step."""
        before, number = self._queued, self._files[place][0]
        pieces = (self._stream.prefix(number, packet.time_s, len(packet.data)), packet.data)
        taken = (*before.taken[:place], packet.number + 1, *before.taken[place + 1 :])
        self._queued = before._replace(
            taken=taken, pieces=before.pieces if is_left_out else (*before.pieces, *pieces)
        )

    def _queue_pieces(self) -> None:
        """Queues what was taken of the files. What finds no room is queued by the next call."""
        if pieces := self._queued.pieces:
            data = b"".join(pieces)
            self._push(lambda: self._writer.submit(data, timeout=0.0), self._queued._replace(pieces=()))
