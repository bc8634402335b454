"""The packets of a sound file: FFmpeg reads the file, and copies or decodes its sound."""

from __future__ import annotations

import _thread
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, takewhile

from penstock._common.deadline import Deadline
from penstock._encoding.sound import LEAST_PAUSE_S, AudioTrack, Sound
from penstock._ffmpeg.command.endpoints import without_protocol
from penstock._ffmpeg.program.messages import framecrc_unit_s, listing_arguments, summarize
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._platform.programs import read_together
from penstock.errors import EncoderError, StalledError

# What a pipe holds by default (pipe(7)).
# Packets that are read ahead, some seconds of sound. Chosen.
_AHEAD_PACKETS = 256
# Packets that are handed out at once after the last frame. Chosen.
_LAST_PACKETS = 32
# Silence comes in packets of this length. Chosen: longer ones would have FFmpeg interleave badly.
_SILENCE_S = Fraction(1, 4)
# Samples that the program makes come in packets of at most this length.
PACKETS_A_SECOND = 10
# Guessed: how often a wait for a packet looks again. Only the start of FFmpeg, and a slow network, make it wait.
_CHECK_INTERVAL_S = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """A piece of sound.

    Attributes:
        number: its place in the file, from 0.
        time_s: when it begins, in seconds.
        samples: how many units of `unit_s` it lasts; if it is not compressed, its samples.
        unit_s: in seconds.
    """

    number: int
    time_s: Fraction
    samples: int
    unit_s: Fraction
    data: bytes

    @property
    def end_s(self) -> Fraction:
        return self.time_s + self.samples * self.unit_s


class Packets:
    """The packets of a sound, each with a number, which wait until the picture is as far.

    Attributes:
        waited_s: seconds that calls have waited for packets.
        stall_timeout: how long calls may wait for packets.
    """

    def __init__(self, sound: Sound, stall_timeout: float | None) -> None:
        self.stall_timeout = stall_timeout
        self.waited_s = 0.0
        self._sound = sound

    def start(self) -> None:
        """Starts what the packets come from. Call it in a ``try`` that calls `end`."""

    def end(self) -> None:
        """Ends what the packets come from. Nothing more comes."""

    @property
    def failure(self) -> str | None:
        """Why the sound is not whole; None if no failure is known."""
        return None

    @property
    def warning(self) -> str | None:
        """What seems to be wrong with the sound, although all of it was read."""
        return None

    def before(self, end_s: Fraction, number: int, deadline: Deadline) -> list[Packet]:
        """The packets from that number on that are there and belong before `end_s`; empty if there are none yet.

        A copied packet belongs where it begins. Samples may have to be cut at the video's end, which is at `end_s` or
        later. Packets before `number` are forgotten.

        Raises:
            StalledError: the next one is not there at the deadline.
        """
        self._wait(number, deadline)
        is_copied = self._sound.is_copied
        return list(
            takewhile(
                lambda packet: packet.time_s < end_s if is_copied else packet.end_s <= end_s,
                self._from(number),
            )
        )

    def last(self, end_s: Fraction, number: int, deadline: Deadline) -> list[Packet]:
        """Some packets from that number on, for a video that ends at `end_s`; empty at the end of the sound.

        Sound with ``end="video"`` ends with the video: exactly, if it is encoded.

        Raises:
            StalledError: as `before`.
        """
        self._wait(number, deadline)
        packets = list(islice(self._from(number), _LAST_PACKETS))
        if self._sound.audio.end != "video":
            return packets
        if not packets and not self._sound.is_copied:
            packets = self._silence(number)
        kept = [packet for packet in packets if packet.time_s < end_s]
        if self._sound.is_copied:
            return kept
        # A packet without samples would make FFmpeg fail.
        return [cut for packet in kept if (cut := _cut(packet, end_s)).samples]

    def _wait(self, number: int, deadline: Deadline) -> None:
        """Waits for that packet, or for the end."""

    def _from(self, number: int) -> Iterable[Packet]:
        """The packets from that number on that are there. Those before are forgotten."""
        raise NotImplementedError

    def _last_packet(self) -> Packet | None:
        raise NotImplementedError

    def _silence(self, number: int) -> list[Packet]:
        """Silence from that number on, after the last packet, which is not compressed."""
        if (last := self._last_packet()) is None or not last.samples:
            return []
        unit_s, samples = last.unit_s, int(_SILENCE_S / last.unit_s) or 1
        silence = bytes(len(last.data) // last.samples * samples)
        return [
            Packet(one, last.end_s + (one - last.number - 1) * samples * unit_s, samples, unit_s, silence)
            for one in range(number, number + _LAST_PACKETS)
        ]


class HeldSamples(Packets):
    """Samples that the program makes for a track that ends with the video.

    Threads and signal handlers may be in any method, and no lock is held: pieces only come to the end of their list, in
    one step, and what is remembered of them stays true.
    """

    def __init__(self, sound: Sound, track: AudioTrack) -> None:
        super().__init__(sound, None)
        self._unit_s, self._sample_bytes = Fraction(1, track.sample_rate), track.sample_bytes
        self._piece_bytes = -(-track.sample_rate // PACKETS_A_SECOND) * self._sample_bytes
        # A piece that was queued is its number of samples only.
        self._pieces: list[bytes | int] = []
        # The number of a piece, and how many samples come before it.
        self._place = (0, 0)

    def add(self, samples: bytes) -> None:
        ends = range(0, len(samples), self._piece_bytes)
        self._pieces.extend([samples[at : at + self._piece_bytes] for at in ends])

    @property
    def samples(self) -> int:
        """How many were added."""
        return self._before(len(self._pieces))

    def _before(self, number: int) -> int:
        """How many samples come before a piece."""
        place, samples = self._place
        if place > number:  # another thread is further
            place = samples = 0
        return samples + sum(map(self._count, self._pieces[place:number]))

    def _count(self, piece: bytes | int) -> int:
        return piece if isinstance(piece, int) else len(piece) // self._sample_bytes

    def _from(self, number: int) -> Iterator[Packet]:
        at, (place, _) = self._before(number), self._place
        for gone in range(place, min(number, len(self._pieces))):
            self._pieces[gone] = self._count(self._pieces[gone])
        self._place = (number, at)
        for one in range(number, len(self._pieces)):
            packet = self._packet(one, at)
            yield packet
            at += packet.samples

    def _last_packet(self) -> Packet | None:
        number = len(self._pieces) - 1
        return None if number < 0 else self._packet(number, self._before(number))

    def _packet(self, number: int, at: int) -> Packet:
        piece = self._pieces[number]
        data = bytes(piece * self._sample_bytes) if isinstance(piece, int) else piece
        return Packet(number, at * self._unit_s, self._count(piece), self._unit_s, data)


class SoundPackets(Packets):
    """An FFmpeg that reads a sound file, and what it has delivered of it.

    One pipe carries the packets' bytes, and another a line for each packet, with its time and size (FFmpeg's
    ``framecrc``). A thread reads both: signal handlers, which run on the main thread, cannot make it lose a packet.

    If FFmpeg fails, or gives nothing for `stall_timeout` that somebody waits for, the sound ends there, and `failure`
    says why.
    """

    def __init__(self, program: str, sound: Sound, stall_timeout: float | None) -> None:
        super().__init__(sound, stall_timeout)
        self._source = without_protocol(sound.input_arguments[-1])
        self._process = FFmpegProcess(
            program, self._arguments, is_strict=True, stdout=subprocess.PIPE, error=EncoderError
        )
        self._packets: deque[Packet] = deque()
        # Released when packets are taken. The thread acquires it to wait while too many are read ahead.
        self._room = _thread.allocate_lock()
        self._last: Packet | None = None
        self._waiting_since_s: float | None = None
        self._is_read = self._is_over = self._is_stuck = False
        self._pauses_s = Fraction(0)
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        self._process.start()
        self._reader = threading.Thread(target=self._read, name="penstock-sound", daemon=True)
        self._reader.start()

    def end(self) -> None:
        # Before the release: the thread checks it each time that it wakes.
        self._is_over = True
        self._release()
        if self._reader is not None:
            self._process.kill()
            self._reader.join()  # before the pipes are closed that it reads
        self._process.end()

    @property
    def failure(self) -> str | None:
        if self._is_stuck:
            return f"the audio of {self._source} is incomplete: none came for {self.stall_timeout:g} s"
        if not self._is_read:
            return None
        if self._process.has_succeeded:
            # FFmpeg 5.1 reads nothing of FLAC of 32 bits, and succeeds.
            is_empty = self._last is None and (not self._sound.is_copied or self._sound.has_some())
            return f"FFmpeg can't read the audio of {self._source}: none came" if is_empty else None
        said = (
            summarize(self._process.log.text, self._sound.input_arguments[-1])
            or f"FFmpeg {self._process.ending}"
        )
        return f"the audio of {self._source} is incomplete: {said}"

    @property
    def warning(self) -> str | None:
        if not self._is_read or self.failure is not None:
            return None
        from penstock._facts.reported_damage import reported_damage  # with libav, which is slow to import

        source = self._sound.input_arguments[-1]
        if damage := reported_damage(self._process, source, self._sound.container):
            said = summarize("\n".join(damage), source)
            return f"the audio of {self._source} may be damaged: {said}"
        if (reason := self._sound.why_short()) is not None:
            return f"the audio of {self._source} is incomplete: {reason}"
        if self._pauses_s and not self._sound.holds_pauses:
            early = f"so its audio ends {float(self._pauses_s):.2f} s early"
            fix = "Pass AudioFile(path, codec='aac') to fill them with silence"
            return f"the container can't store the gaps in {self._source}, {early}. {fix}"
        return None

    def _wait(self, number: int, deadline: Deadline) -> None:
        began_s = time.monotonic()
        try:
            while not (self._is_read or self._is_over or self._from(number)):
                self._check_stuck()
                if deadline.is_over():
                    raise StalledError(f"no audio came from {self._source}", deadline.timeout or 0.0)
                # By the clock and without a lock, which a signal handler would find taken if it comes here.
                time.sleep(deadline.at_most(_CHECK_INTERVAL_S))
        finally:
            self.waited_s += time.monotonic() - began_s
        self._waiting_since_s = None

    def _from(self, number: int) -> list[Packet]:
        packets = self._packets.copy()  # in one step: a thread appends to it
        for gone in takewhile(lambda packet: packet.number < number, packets):
            with suppress(ValueError):  # another thread has done it
                self._packets.remove(gone)
            self._release()
        return [packet for packet in packets if packet.number >= number]

    def _check_stuck(self) -> None:
        """Gives the file up if a packet has been waited for too long."""
        now_s = time.monotonic()
        self._waiting_since_s = self._waiting_since_s or now_s
        if self.stall_timeout is not None and now_s - self._waiting_since_s >= self.stall_timeout:
            self._is_stuck = True
            self.end()

    def _is_priming(self, packet: Packet) -> bool:
        """Whether the packet is priming (it ends by 0 s) that the container cannot store."""
        return not self._sound.holds_priming and packet.end_s <= 0

    def _last_packet(self) -> Packet | None:
        return self._last

    def _arguments(self, lines: str) -> list[str]:
        track = ["-map", f"0:{self._sound.index}", "-c", self._sound.packet_codec, "-flush_packets", "1"]
        return [
            *self._sound.input_arguments_from(0),
            *(*track, "-f", "data", "pipe:1"),
            *(*track, *listing_arguments(lines)),
        ]

    def _release(self) -> None:
        with suppress(RuntimeError):  # it is free
            self._room.release()

    def _read(self) -> None:
        """Reads until FFmpeg ends. On a thread of its own."""
        splitter = _Splitter(are_samples=not self._sound.is_copied)
        for is_data, read in self._pieces():
            (splitter.add_data if is_data else splitter.add_lines)(read)
            for packet in splitter.packets():
                if (last := self._last) is not None and last.samples:
                    pause_s = packet.time_s - last.end_s
                    self._pauses_s += pause_s if pause_s > LEAST_PAUSE_S else 0
                self._last = packet
                if not self._is_priming(packet):
                    self._packets.append(packet)
                while len(self._packets) >= _AHEAD_PACKETS and not self._is_over:
                    self._room.acquire()
        if not self._is_over:
            self._process.wait()
        self._is_read = not self._is_over

    def _pieces(self) -> Iterator[tuple[bool, bytes]]:
        """What comes out of the two pipes until both end: whether it is the packets' bytes, and the piece."""
        data, lines = self._process.stdout, self._process.side
        for pipe, read in read_together((data, lines)):
            if self._is_over:
                return
            yield pipe is data, read


class _Splitter:
    """Splits the bytes of all packets by the lines of ``framecrc``, which tell the time, length and size of each.

    With `are_samples`, the packets are samples, which begin at 0 s and follow each other: silence fills gaps of
    `LEAST_PAUSE_S` or more, and samples before 0 s or so far before the end of others are left out. FFmpeg's filter
    ``aresample=async=1`` would begin again where the channels or the rate change, and miss the gap there.
    """

    def __init__(self, *, are_samples: bool) -> None:
        self._are_samples = are_samples
        # Where the samples so far end, the time and length of the last packet, and the length of the longest one.
        self._end = self._last_pts = self._last_samples = self._most_samples = 0
        self._late = 0
        self._data, self._line = bytearray(), b""
        self._unit_s = Fraction(0)
        # Time, length and size of the packets to come.
        self._announced: deque[tuple[int, ...]] = deque()
        self._number = 0

    def add_data(self, read: bytes) -> None:
        self._data += read

    def add_lines(self, read: bytes) -> None:
        *lines, self._line = (self._line + read).split(b"\n")
        for line in lines:
            self._unit_s = framecrc_unit_s(line) or self._unit_s
            if line and not line.startswith(b"#"):
                self._announced.append(tuple(map(int, line.split(b",")[2:5])))

    def packets(self) -> Iterator[Packet]:
        """The packets that are whole."""
        while self._announced and len(self._data) >= self._announced[0][2]:
            pts, samples, size = self._announced.popleft()
            data = bytes(self._data[:size])
            del self._data[:size]
            if self._are_samples:
                yield from self._continued(pts, samples, data)
            elif data:
                yield self._packet(pts, samples, data)

    def _continued(self, pts: int, samples: int, data: bytes) -> Iterator[Packet]:
        """A packet of samples, after silence for the gap before it, or without what overlaps."""
        gap = pts - self._lateness(pts, samples) - self._end
        if self._number and abs(gap) * self._unit_s < LEAST_PAUSE_S:
            gap = 0
        sample_bytes = len(data) // samples
        yield from self._silence(self._end + gap, sample_bytes)
        early = min(max(-gap, 0), samples)
        if early < samples:
            yield self._packet(self._end, samples - early, data[sample_bytes * early :])
            self._end += samples - early

    def _lateness(self, pts: int, samples: int) -> int:
        """By how much FFmpeg's time of a packet is too late; negative if it's too early.

        In joined Ogg FLAC files, FFmpeg 5.1 counts one packet too many after the short last one of each file, or takes
        the last one for a whole one. FFmpeg 9 gives two packets near the end the same time.
        """
        end = self._last_pts + self._last_samples
        is_seam = self._last_samples < self._most_samples
        if pts == self._last_pts or (is_seam and pts - self._most_samples in (self._last_pts, end)):
            self._late += pts - end
        elif pts == self._end:
            self._late = 0
        self._last_pts, self._last_samples = pts, samples
        self._most_samples = max(self._most_samples, samples)
        return self._late

    def _silence(self, end: int, sample_bytes: int) -> Iterator[Packet]:
        piece = int(_SILENCE_S / self._unit_s) or 1
        while self._end < end:
            samples = min(piece, end - self._end)
            yield self._packet(self._end, samples, bytes(samples * sample_bytes))
            self._end += samples

    def _packet(self, pts: int, samples: int, data: bytes) -> Packet:
        self._number += 1
        return Packet(self._number - 1, pts * self._unit_s, samples, self._unit_s, data)


def _cut(packet: Packet, end_s: Fraction) -> Packet:
    """A packet of samples without those from `end_s` on."""
    if packet.end_s <= end_s:
        return packet
    kept = int((end_s - packet.time_s) / packet.unit_s)
    return replace(packet, samples=kept, data=packet.data[: len(packet.data) // packet.samples * kept])
