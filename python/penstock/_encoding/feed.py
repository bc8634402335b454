"""Frames and sound on their way into the one stream that FFmpeg reads: raw frames, or NUT."""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from functools import lru_cache, partial
from io import FileIO
from typing import NamedTuple, cast

import numpy as np

from penstock._common.deadline import Deadline
from penstock._common.tensors import OnDevice
from penstock._common.types import Data
from penstock._encoding.input_layout import PLAIN, InputLayout
from penstock._encoding.plan import EncodePlan
from penstock._encoding.sound import checked_samples
from penstock._encoding.sound_packets import PACKETS_A_SECOND, HeldSamples, Packet, Packets, SoundPackets
from penstock._ffmpeg.command.arguments import TICK_S
from penstock._formats.encoders import known
from penstock._native import Ticket, Writer, _Conversion, _NutFeed, _Slot, _SlotPool

# Frames and bytes that may wait for FFmpeg, but at least four frames of any size. A longer queue is slower: its memory
# is cold when FFmpeg reads it, and its pages are new at the start. Measured, 2-core x86-64 VM, x264 ultrafast,
# 2026-11-22: at 2160p `write` has 0.96, 0.97 and 0.99 of `submit`'s frame rate with 16, 8 and 4 frames; up to 1080p
# they are equal.
QUEUE_FRAMES = 16
QUEUE_BYTES = 24 << 20
LEAST_QUEUE_FRAMES = 4
# Leased frames that are kept for reuse: one is drawn into while another is read, and one to spare.
KEPT_SLOTS = 3
# Of which sizes: the pixel format's, and those of frames of floats, which a caller may mix. Guessed.
_KEPT_SIZES = 3
# Sound that waits for the picture is queued in pieces of this length, a little behind it: each piece takes a place in
# the queue. Chosen: containers interleave by half a second or more.
_PIECE_S = Fraction(1, 4)


class QueuedFrame(NamedTuple):
    """A frame or samples that the feed has taken, and that its `queue` queues.

    Attributes:
        memory: the bytes.
        is_fed: FFmpeg gets them as they are. Otherwise the worker converts the frame.
        tick: the time of the frame in `TICK_S`; None at a constant rate.
        is_sound: they are samples that the program has made.
        loud: how many of these are outside of -1 to 1.
    """

    memory: Data
    is_fed: bool = False
    tick: int | None = None
    is_sound: bool = False
    loud: int = 0


class RawFeed:
    """Takes frames into memory and queues them for FFmpeg, one after another at a constant rate.

    Attributes:
        writer: the native writer, whose counts are what the report says.
        clipped_samples: samples of queued frames that were outside of the range of values.
        loud_samples: queued samples of audio that were outside of -1 to 1.
    """

    writer: Writer  # set by `start`

    def __init__(self, plan: EncodePlan) -> None:
        self._plan, self._conversion = plan, plan.conversion
        self._fed_bytes = plan.ffmpeg_frames.frame_bytes
        # Frames of a device that are no slots yet may have another size: floats, for example.
        self._pool_of = lru_cache(_KEPT_SIZES)(partial(_SlotPool, keep_slots=KEPT_SLOTS))
        self._slots = self._pool_of(plan.frames.frame_bytes)
        self._fed_slots = _SlotPool(self._fed_bytes, KEPT_SLOTS)
        self.clipped_samples = self.loud_samples = 0
        self._counting = threading.RLock()  # reentrant, because a signal handler may write

    def start(self, fd: FileIO) -> None:
        """Starts to feed FFmpeg. `end` ends what this has started, also if it raises."""
        self._write_to(fd, self._conversion, self._fed_bytes)

    def end(self) -> None:
        """Drops what is queued. Does nothing after the writer was closed."""
        if hasattr(self, "writer"):
            self.writer.abort()

    def limit_waits(self, stall_timeout: float) -> None:
        """Limits the waits for files to `stall_timeout` seconds, for an encode that no caller waits for."""

    @property
    def submitted(self) -> int:
        """Frames that were accepted."""
        return self.writer.stats.items_accepted

    @property
    def samples(self) -> int:
        """Samples of each channel that the program made and that were accepted."""
        return 0

    @property
    def first_s(self) -> Fraction | None:
        """The time of the first frame; None where a sound may move it."""
        is_movable = self._plan.sounds and not self._plan.output.facts.has_boxes  # which has edit lists
        return None if is_movable else Fraction(0)

    @property
    def ends_s(self) -> Fraction:
        """When the last frame ends at the earliest."""
        assert self._plan.rate is not None
        return self.submitted / self._plan.rate

    @property
    def video_s(self) -> Fraction:
        """When the picture ends."""
        return self.ends_s

    @property
    def waited_s(self) -> float:
        """Seconds that calls have waited, beside those that the writer counts."""
        return 0.0

    @property
    def filling_s(self) -> float:
        """Seconds that calls have spent on copies and conversions."""
        return self._fed_slots.filling_s + self._slots.filling_s

    @property
    def failures(self) -> list[str]:
        """Which sounds are not whole, and why."""
        return []

    @property
    def warnings(self) -> list[str]:
        """What is wrong with sounds that were written, in sentences."""
        return []

    def frames_until(self, nbytes: int) -> int:
        """How many frames are in the first so many bytes of the stream."""
        return nbytes // self._fed_bytes

    def check_later(self, tick: int) -> int | None:
        """Checks that a frame with a time comes after those before. Returns the time of the last one."""

    def prefix(self, tick: int | None) -> bytes | None:
        """What comes before a frame in its memory; None if nothing does. Without `tick`, it is written later."""

    def lease(self) -> _Slot:
        """Memory for one frame."""
        return self._slots.take()

    def take(
        self,
        frame: Data | OnDevice,
        tick: int | None = None,
        input_layout: InputLayout = PLAIN,
        number: int = 0,
    ) -> QueuedFrame:
        """Copies a frame.

        Raises:
            ValueError: the frame, of that number, has NaN.
        """
        if isinstance(frame, OnDevice):
            slot = self._pool_of(frame.contents.nbytes).take()
            frame = frame.copy_to(slot)
            if input_layout == PLAIN:
                return self.take_lease(slot, tick)
        return self._copied(frame, tick, input_layout, number)

    def take_lease(self, slot: _Slot, tick: int | None = None) -> QueuedFrame:
        """Takes a leased slot that nobody else holds, without a copy if FFmpeg needs nothing before the frame."""
        return QueuedFrame(slot)

    def take_samples(self, samples: object) -> QueuedFrame:
        if self._plan.audio_input is None:
            raise ValueError("the encoder has no AudioTrack. Create it with audio=AudioTrack(48000, 2)")
        array = checked_samples(samples, self._plan.audio_input)
        loud = int(np.count_nonzero(np.abs(array) > 1)) if array.dtype.kind == "f" else 0
        return QueuedFrame(array.tobytes(), is_sound=True, loud=loud)

    def queue(self, item: QueuedFrame, timeout: float | None) -> Ticket:
        """Queues a frame or samples.

        Raises:
            StalledError: there was no room within `timeout`. The call can be repeated.
            ValueError: the frame's time is not later than that of the frame before.
        """
        submit = self.writer._submit_converted if item.is_fed else self.writer.submit
        ticket = submit(item.memory, timeout=timeout)
        self._count_clipped(item)
        return ticket

    def finish(self, timeout: float) -> None:
        """Queues what comes after the last frame. Can be repeated after a `StalledError`."""

    def _copied(self, frame: Data, tick: int | None, input_layout: InputLayout, number: int) -> QueuedFrame:
        """Copies a frame.

        If the worker is idle, it gets a plain copy and converts it: a caller in step with real time waits only for the
        copy. If frames are waiting, the caller converts while it copies: this saves the second copy, a tenth of all CPU
        time with x264 ultrafast (2-core x86-64 VM, 2026-11-22), while FFmpeg has no CPU time to spare.
        """
        if self._conversion is not None and self.writer._oldest() is None:
            return QueuedFrame(input_layout.fill(self._slots, frame, number))
        return QueuedFrame(input_layout.fill(self._fed_slots, frame, number, self._conversion), is_fed=True)

    def _write_to(self, fd: FileIO, conversion: _Conversion | None, item_bytes: int) -> None:
        settings = self._plan.request.settings
        overrides, queue_bytes = settings._overrides, settings._overrides.queue_bytes
        if queue_bytes is None:
            queue_bytes = max(QUEUE_BYTES, LEAST_QUEUE_FRAMES * item_bytes)
        queue_frames = QUEUE_FRAMES if settings.queue_items is None else settings.queue_items
        self.writer = Writer._converting(
            fd,
            mode=overrides.mode,
            queue_bytes=queue_bytes,
            # A piece of each sound may come with each frame.
            queue_items=queue_frames * (1 + len(self._plan.sounds)),
            capacity_bytes=overrides.capacity_bytes,
            policy=settings.policy,
            reader_copies=True,  # FFmpeg's pipe protocol calls read(2), which allows zero-copy
            conversion=conversion,
        )

    def _count_clipped(self, item: QueuedFrame) -> None:
        if isinstance(item.memory, _Slot) and item.memory.clipped_samples:
            with self._counting:
                self.clipped_samples += item.memory.clipped_samples
        if item.loud:
            with self._counting:
                self.loud_samples += item.loud


class NutFeed(RawFeed):
    """Frames with times, or with sound, each packet behind its time.

    The native feed numbers frames, samples and packets in the step that queues them, so that no lock is held here:
    several threads and signal handlers may be in any call.
    """

    _native: _NutFeed  # set by `start`

    def __init__(self, plan: EncodePlan) -> None:
        assert plan.stream is not None
        super().__init__(plan)
        self._stream = plan.stream
        self._is_timed = plan.rate is None
        # What the picture's time is counted in, a second.
        self._rate = plan.rate or 1 / TICK_S
        self._input_track = 0
        self._held: HeldSamples | None = None
        # Sounds whose packets wait until the picture is as far.
        self._waiting: list[tuple[int, Packets]] = []
        for track, sound in enumerate(plan.sounds, start=1):
            if sound.audio is not plan.audio_input:
                packets = SoundPackets(plan.program, sound, plan.request.settings.stall_timeout)
                self._waiting.append((track, packets))
                continue
            self._input_track = track
            if sound.audio.end == "video":
                self._held = HeldSamples(sound, sound.audio)
                self._waiting.append((track, self._held))
        self._waiting_s = Fraction(0)  # the time up to which their packets were queued

    def start(self, fd: FileIO) -> None:
        # A frame with a time is converted when it is taken.
        self._write_to(fd, None, self._fed_bytes + _NutFeed._PREFIX_BYTES)
        rates = [self._rate, *(1 / clock.unit_s for clock in self._stream.clocks[1:])]
        if (audio := self._plan.audio_input) is not None:
            rates[self._input_track] = Fraction(audio.sample_rate)
        self._native = _NutFeed(
            self.writer, self._stream.head, self._stream.unit_count, self._stream.tracks(rates)
        )
        for _, packets in self._waiting:
            packets.start()

    def end(self) -> None:
        super().end()
        for _, packets in self._waiting:
            packets.end()

    def limit_waits(self, stall_timeout: float) -> None:
        for _, packets in self._waiting:
            packets.stall_timeout = min(stall_timeout, packets.stall_timeout or stall_timeout)

    @property
    def submitted(self) -> int:
        return self._native.count(0)

    @property
    def samples(self) -> int:
        if self._held is not None:
            return self._held.samples
        return self._native.count(self._input_track) if self._input_track else 0

    @property
    def first_s(self) -> Fraction | None:
        return self._times_s[0] if self._is_timed else super().first_s

    @property
    def ends_s(self) -> Fraction:
        return self._times_s[1] if self._is_timed else super().ends_s

    @property
    def video_s(self) -> Fraction:
        """When the picture ends. With times, the last frame is taken to last as long as the one before."""
        if not self._is_timed or not self.submitted:
            return self.submitted / self._rate
        _, last_s, step_s = self._times_s
        return last_s + (step_s or 1 / self._stream.fps)

    @property
    def waited_s(self) -> float:
        return self._native.waited_s + sum(packets.waited_s for _, packets in self._waiting)

    @property
    def failures(self) -> list[str]:
        return [failure for _, packets in self._waiting if (failure := packets.failure) is not None]

    @property
    def warnings(self) -> list[str]:
        return [warning for _, packets in self._waiting if (warning := packets.warning) is not None]

    def frames_until(self, nbytes: int) -> int:
        return self._native.frames_until(nbytes)

    def check_later(self, tick: int) -> int | None:
        if (times := self._native.times) is None:
            return None
        last = times[1]
        time_s, last_s = tick * TICK_S, last * TICK_S
        if tick <= last:
            raise ValueError(
                f"time_s must be later than the previous frame's {float(last_s):.6f} s, not {float(time_s):.6f} s"
            )
        facts = self._plan.output.facts
        if (longest_s := facts.longest_step_s) is None:
            return last
        # As FFmpeg rounds: a half goes up.
        unit_s = max(facts.least_step_s or facts.unit_s or TICK_S, known(self._plan.codec).unit_s)
        units = [math.floor(one / unit_s + Fraction(1, 2)) for one in (last_s, time_s)]
        if units[0] == units[1] or time_s - last_s > longest_s:
            raise ValueError(
                f"the file can't store frames at {float(last_s):.6f} and {float(time_s):.6f} s, because its steps "
                f"are from {unit_s} to {float(longest_s):g} s. Check that time_s is in seconds"
            )
        return last

    def prefix(self, tick: int | None) -> bytes:
        # At a constant rate the number of the frame is known when it is queued.
        return bytes(_NutFeed._PREFIX_BYTES) if tick is None else self._native.prefix(tick, self._fed_bytes)

    def take_lease(self, slot: _Slot, tick: int | None = None) -> QueuedFrame:
        return self._copied(slot, tick, PLAIN, 0)

    def queue(self, item: QueuedFrame, timeout: float | None) -> Ticket:
        deadline, ticket = Deadline(timeout), None
        if item.is_sound:
            return self._queue_samples(item, deadline)
        while ticket is None:  # until no other thread has queued a frame in between
            after = None if item.tick is None else self.check_later(item.tick)
            if self._waiting:
                self._queue_waiting(
                    (self.submitted if item.tick is None else item.tick) / self._rate, deadline
                )
            ticket = self._native.frame(
                cast("_Slot", item.memory), item.tick, after, timeout=deadline.left_s()
            )
        self._count_clipped(item)
        return ticket

    def finish(self, timeout: float) -> None:
        """Queues the rest of the packets that wait, when there are no more frames."""
        deadline, end_s, rest = Deadline(timeout), self.video_s, self._waiting
        while rest := [one for one in rest if self._queue_last(*one, end_s, deadline)]:
            if deadline.is_over():
                raise deadline.late("the queue had no room", self.writer.stats.bytes_pending)

    def _copied(self, frame: Data, tick: int | None, input_layout: InputLayout, number: int) -> QueuedFrame:
        slot = input_layout.fill(self._fed_slots, frame, number, self._conversion, self.prefix(tick))
        return QueuedFrame(slot, is_fed=True, tick=tick)

    @property
    def _times_s(self) -> tuple[Fraction, Fraction, Fraction]:
        first, last, step = self._native.times or (0, 0, 0)
        return first * TICK_S, last * TICK_S, step * TICK_S

    def _queue_samples(self, item: QueuedFrame, deadline: Deadline) -> Ticket:
        audio = self._plan.audio_input
        assert audio is not None
        most_bytes = -(-audio.sample_rate // PACKETS_A_SECOND) * audio.sample_bytes
        samples = cast("bytes", item.memory)
        if self._held is not None:
            self._queue_before(self._input_track, self._held, self._waiting_s, deadline)
        ticket = self._native.samples(
            self._input_track,
            samples if self._held is None else b"",  # held ones have the ticket of what is queued before them
            audio.sample_bytes,
            most_bytes,
            timeout=deadline.left_s(),
        )
        if self._held is not None:
            self._held.add(samples)
        self._count_clipped(item)
        return ticket

    def _queue_waiting(self, until_s: Fraction, deadline: Deadline) -> None:
        """Queues the packets that wait, until a time."""
        while (piece_end_s := self._waiting_s + _PIECE_S) <= until_s:
            for track, packets in self._waiting:
                self._queue_before(track, packets, piece_end_s, deadline)
            self._waiting_s = max(self._waiting_s, piece_end_s)  # another thread may be further

    def _queue_before(self, track: int, packets: Packets, end_s: Fraction, deadline: Deadline) -> None:
        while found := packets.before(end_s, self._native.count(track), deadline):
            self._queue_packets(track, found, deadline)

    def _queue_last(self, track: int, packets: Packets, end_s: Fraction, deadline: Deadline) -> bool:
        """Queues a little of what is left of a sound. Returns whether there was something."""
        if found := packets.last(end_s, self._native.count(track), deadline):
            self._queue_packets(track, found, deadline)
        return bool(found)

    def _queue_packets(self, track: int, packets: list[Packet], deadline: Deadline) -> None:
        pieces = [(self._stream.tick(track, packet.time_s), packet.data) for packet in packets]
        self._native.packets(track, packets[0].number, pieces, timeout=deadline.left_s())


def feed_of(plan: EncodePlan) -> RawFeed:
    return RawFeed(plan) if plan.stream is None else NutFeed(plan)
