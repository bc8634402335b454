"""Frames and sound with their times, on their way into the one stream that FFmpeg reads."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock._native import Ticket, Writer, _Slot
from penstock.ffmpeg import nut
from penstock.ffmpeg.sound import AudioInput, Sound
from penstock.ffmpeg.sound_packets import Packet, SoundPackets

# Sound of files is queued in pieces of this length, a little behind the picture: each piece takes a place in the queue.
# Chosen: containers interleave by half a second or more.
_PIECE_S = Fraction(1, 4)
# Samples that the program makes come in packets of at most this length.
_PACKETS_A_SECOND = 10
# Frames whose ends in the stream are kept: more than any queue has as a rule.
_KEPT_ENDS = 1 << 12
# Packets of each file that are queued at once after the last frame.
_LAST_PACKETS = 32


@dataclass(frozen=True, slots=True)
class _Queued:
    """What was queued.

    Attributes:
        frames: how many.
        last_s: the time of the last one.
        step_s: how long that is after the one before.
        samples: how many of each channel.
        files_s: until when files were read.
        pieces: what was read of them and is not queued.
    """

    frames: int = 0
    last_s: Fraction = Fraction(0)
    step_s: Fraction = Fraction(0)
    samples: int = 0
    files_s: Fraction = Fraction(0)
    pieces: tuple[bytes, ...] = ()


class Feed:
    """Queues frames and sound for FFmpeg, each behind its time.

    Frames of several threads are numbered, or their times compared, in the step that queues them. Each call that queues
    waits for room at most the `timeout` it gets, and can be repeated after a `StalledError`.

    Attributes:
        stream: the header and the units.
        input: the sound that the program makes; None if it makes none.
    """

    def __init__(
        self,
        stream: nut.NutStream,
        rate: Fraction | None,
        frame_bytes: int | None,
        sounds: Iterable[Sound],
        program: str,
        stall_timeout: float | None,
    ) -> None:
        self.stream = stream
        self.input: AudioInput | None = None
        self._rate = rate
        self._frame_bytes = frame_bytes
        self._input_stream = 0
        self._files: dict[int, SoundPackets] = {}
        for number, sound in enumerate(sounds, start=int(frame_bytes is not None)):
            if isinstance(sound.made_from, AudioInput):
                self.input, self._input_stream = sound.made_from, number
            else:
                self._files[number] = SoundPackets(program, sound, stall_timeout)
        self._writer: Writer | None = None
        self._in_order = threading.RLock()  # a signal handler may close the encoder
        self._queued = _Queued()
        # What `_queued` becomes once the writer has accepted more items than that number.
        self._pending: tuple[int, _Queued] | None = None
        self._ends: list[int] = []

    def start(self, writer: Writer) -> None:
        """Queues the header, and starts to read the files. `end` ends what this has started, also if it raises."""
        self._writer = writer
        writer.write(self.stream.head)
        for packets in self._files.values():
            packets.start()

    def end(self) -> None:
        """Ends the reading of files."""
        for packets in self._files.values():
            packets.end()

    @property
    def frames(self) -> int:
        """Frames that were queued."""
        return self._queued.frames

    @property
    def samples(self) -> int:
        """Samples of each channel that the program made and that were queued."""
        return self._queued.samples

    @property
    def failures(self) -> list[str]:
        """Which sounds are not whole, and why."""
        return [failure for packets in self._files.values() if (failure := packets.failure) is not None]

    @property
    def video_s(self) -> Fraction:
        """When the picture ends. With times, the last frame is taken to last as long as the one before."""
        queued = self._queued
        if self._rate is not None:
            return queued.frames / self._rate
        return (
            queued.last_s + (queued.step_s or Fraction(1, nut.NOMINAL_FPS)) if queued.frames else Fraction(0)
        )

    def frames_until(self, nbytes: int) -> int:
        """How many frames are in the first so many bytes of the stream."""
        ends = self._ends
        return max(0, self.frames - len(ends)) + bisect_right(ends, nbytes)

    def next_s(self, tick: int | None) -> Fraction:
        """The time of the next frame: `tick` multiples of `nut.TICK_S`, or None at a constant rate."""
        if tick is not None:
            return tick * nut.TICK_S
        assert self._rate is not None
        return self.frames / self._rate

    def prefix(self, time_s: Fraction) -> bytes:
        """What comes before a frame at that time."""
        assert self._frame_bytes is not None
        return self.stream.prefix(0, time_s, self._frame_bytes)

    def check_later(self, tick: int) -> None:
        """Checks that a frame comes after those before."""
        time_s, queued = tick * nut.TICK_S, self._queued
        if queued.frames and time_s <= queued.last_s:
            raise ValueError(
                f"pts must grow from frame to frame: {float(time_s):.6f} s comes after {float(queued.last_s):.6f} s"
            )

    def queue_frame(self, slot: _Slot, tick: int | None, *, timeout: float) -> Ticket:
        """Queues a frame with a prefix. That of a frame at a constant rate is made here, when its number is known."""
        with self._in_order:
            self._settle()
            time_s = self.next_s(tick)
            if tick is None:
                memoryview(slot)[: nut.PREFIX_BYTES] = self.prefix(time_s)
            else:
                self.check_later(tick)
            if self._files and time_s - self._queued.files_s >= _PIECE_S:
                self._queue_files(time_s, timeout)
            queued = self._queued
            ticket = self._push(
                lambda: self._open_writer._write_made(slot, timeout=timeout),
                replace(queued, frames=queued.frames + 1, last_s=time_s, step_s=time_s - queued.last_s),
            )
            self._ends.append(self._open_writer.stats.bytes_accepted)
            del self._ends[:-_KEPT_ENDS]
        return ticket

    def queue_samples(self, samples: npt.NDArray[Any], *, timeout: float) -> Ticket:
        """Queues samples that the program has made, contiguous in the order samples × channels."""
        assert self.input is not None
        rate, data = self.input.sample_rate, samples.reshape(-1).view(np.uint8).data
        sample_bytes, step = samples.itemsize * self.input.channels, -(-rate // _PACKETS_A_SECOND)
        with self._in_order:
            self._settle()
            queued, parts = self._queued, list[bytes | memoryview]()
            for start in range(0, len(samples), step):
                piece = data[start * sample_bytes : (start + step) * sample_bytes]
                time_s = Fraction(queued.samples + start, rate)
                parts += (self.stream.prefix(self._input_stream, time_s, len(piece)), piece)
            return self._push(
                lambda: self._open_writer.write(b"".join(parts), timeout=timeout),
                replace(queued, samples=queued.samples + len(samples)),
            )

    def finish(self, *, timeout: float) -> None:
        """Queues the rest of the files' sound, when there are no more frames."""
        with self._in_order:
            self._settle()
            self._queue_pieces(timeout)
            while self._read_last():
                self._queue_pieces(timeout)

    @property
    def _open_writer(self) -> Writer:
        assert self._writer is not None
        return self._writer

    def _push(self, push: Callable[[], Ticket], becomes: _Queued) -> Ticket:
        """Queues one item. If a signal handler raises, the next call finds out whether the item is queued."""
        self._pending = self._open_writer.stats.items_accepted, becomes
        ticket = push()
        self._settle()
        return ticket

    def _settle(self) -> None:
        if self._pending is not None and self._open_writer.stats.items_accepted > self._pending[0]:
            self._queued = self._pending[1]
        self._pending = None

    def _queue_files(self, until_s: Fraction, timeout: float) -> None:
        """Queues the files' sound until a time."""
        for number, packets in self._files.items():
            while (packet := packets.take(until_s)) is not None:
                self._keep(number, packet)
        self._queue_pieces(timeout)
        self._queued = replace(self._queued, files_s=until_s)

    def _read_last(self) -> bool:
        """Reads a little of what is left of each file. Returns whether there was something."""
        for number, packets in self._files.items():
            for _ in range(_LAST_PACKETS):
                if (packet := packets.take_last(self.video_s)) is not None:
                    self._keep(number, packet)
        return bool(self._queued.pieces)

    def _keep(self, number: int, packet: Packet) -> None:
        prefix = self.stream.prefix(number, packet.time_s, len(packet.data))
        self._queued = replace(self._queued, pieces=(*self._queued.pieces, prefix, packet.data))

    def _queue_pieces(self, timeout: float) -> None:
        """Queues what was read of the files. What finds no room is queued by the next call."""
        if pieces := self._queued.pieces:
            self._push(
                lambda: self._open_writer.write(b"".join(pieces), timeout=timeout),
                replace(self._queued, pieces=()),
            )
