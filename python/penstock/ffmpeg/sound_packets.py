"""The packets of a sound file: FFmpeg reads the file, and copies or decodes its sound."""

from __future__ import annotations

import select
import subprocess
from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction

from penstock.errors import EncoderError
from penstock.ffmpeg.diagnostics import summarize
from penstock.ffmpeg.endpoints import without_protocol
from penstock.ffmpeg.process import FFmpegProcess
from penstock.ffmpeg.sound import AudioFile, Sound

_READ_BYTES = 1 << 16
# Containers round times to 1 ms or worse; what is less than this apart follows each other. Where more is missing,
# there is silence, so that the rest stays in step with the picture.
_GAPLESS = "aresample=async=1:min_hard_comp=0.05:first_pts=0"


@dataclass(frozen=True, slots=True)
class Packet:
    """A piece of sound.

    Attributes:
        time_s: when it begins, in seconds.
        samples: how many units of `unit_s` it lasts; if it is not compressed, its samples.
        unit_s: in seconds.
    """

    time_s: Fraction
    samples: int
    unit_s: Fraction
    data: bytes

    @property
    def end_s(self) -> Fraction:
        return self.time_s + self.lasts_s

    @property
    def lasts_s(self) -> Fraction:
        return self.samples * self.unit_s


class SoundPackets:
    """An FFmpeg that reads a sound file, and what it has delivered of it. One thread at a time may use it.

    If FFmpeg fails, or gives nothing for `stall_timeout`, the sound ends there, and `failure` says why.

    One pipe carries the packets' bytes, and another a line for each packet, with its time and size (FFmpeg's
    ``framecrc``).
    """

    def __init__(self, program: str, sound: Sound, stall_timeout: float | None) -> None:
        self._sound = sound
        self._stall_timeout = stall_timeout
        self._process = FFmpegProcess(
            program, self._arguments, is_strict=True, stdout=subprocess.PIPE, error=EncoderError
        )
        self._data, self._lines = bytearray(), b""
        self._unit_s = Fraction(0)
        self._packets: deque[tuple[int, int, int]] = deque()
        self._waiting = select.poll()
        self._open: set[int] = set()
        self._next: Packet | None = None
        self._is_over = self._is_stuck = False

    def start(self) -> None:
        """Starts FFmpeg. Call it in a ``try`` that calls `end`."""
        self._process.start()
        self._open = {self._process.stdout.fileno(), self._process.side.fileno()}
        for pipe in self._open:
            self._waiting.register(pipe, select.POLLIN)

    def end(self) -> None:
        """Ends FFmpeg. Nothing more comes."""
        self._is_over = True
        self._process.end()

    @property
    def failure(self) -> str | None:
        """Why the sound is not whole; None if nothing is known against it."""
        source = self._sound.reading[-1]
        if self._is_stuck:
            return f"the sound of {without_protocol(source)} is not whole: none came for {self._stall_timeout:g} s"
        if self._open or not self._process.has_ended or self._process.has_succeeded:
            return None
        said = summarize(self._process.log.text, source) or f"FFmpeg {self._process.ending}"
        return f"the sound of {without_protocol(source)} is not whole: {said}"

    def take(self, before_s: Fraction) -> Packet | None:
        """The next packet, if it begins before that time. It is not given again."""
        while (packet := self._peek()) is not None and packet.time_s < before_s:
            self._next = None
            if self._sound.has_prelude or packet.end_s > 0:
                return packet
        return None

    def take_last(self, end_s: Fraction) -> Packet | None:
        """The next packet for a video that ends at `end_s`. Sound that is to end there does so, exactly if encoded."""
        if not self._ends_with_video:
            packet, self._next = self._peek(), None
            return packet
        packet = self.take(end_s)
        return packet if packet is None or self._sound.is_copied else _cut(packet, end_s)

    @property
    def _ends_with_video(self) -> bool:
        return isinstance(self._sound.made_from, AudioFile) and self._sound.made_from.end == "video"

    def _arguments(self, lines: int) -> list[str]:
        track = ["-map", f"0:{self._sound.index}", "-c", self._sound.packing, "-flush_packets", "1"]
        if not self._sound.is_copied:
            track += ["-filter:a", _GAPLESS + ",apad" * self._ends_with_video]
        return [
            *self._sound.reading,
            *(*track, "-f", "data", "pipe:1"),
            *(*track, "-f", "framecrc", f"pipe:{lines}"),
        ]

    def _peek(self) -> Packet | None:
        """The next packet; None at the end."""
        while self._next is None:
            if self._is_over:
                return None
            if self._packets and len(self._data) >= self._packets[0][2]:
                time, lasts, size = self._packets.popleft()
                data = bytes(self._data[:size])
                del self._data[:size]
                self._next = Packet(time * self._unit_s, lasts, self._unit_s, data)
            elif not self._open:
                return None
            else:
                self._read()
        return self._next

    def _read(self) -> None:
        """Reads what FFmpeg has written."""
        process = self._process
        timeout_ms = None if self._stall_timeout is None else self._stall_timeout * 1000
        ready = [fd for fd, _ in self._waiting.poll(timeout_ms)]
        if not ready:
            self._is_stuck = True
            self.end()
        if self._is_over:  # or another thread has closed the pipes
            return
        for fd in ready:
            is_data = fd == process.stdout.fileno()
            read = (process.stdout if is_data else process.side).read(_READ_BYTES) or b""
            if not read:
                self._waiting.unregister(fd)
                self._open.discard(fd)
                if not self._open:
                    process.wait()
            elif is_data:
                self._data += read
            else:
                *lines, self._lines = (self._lines + read).split(b"\n")
                for line in lines:
                    self._take(line)

    def _take(self, line: bytes) -> None:
        """Takes a line of framecrc: ``stream, dts, pts, duration, size, checksum``, or a comment."""
        if line.startswith(b"#tb 0:"):
            numerator, _, denominator = line.split(b":")[1].partition(b"/")
            self._unit_s = Fraction(int(numerator), int(denominator))
        elif line and not line.startswith(b"#"):
            _, _, pts, duration, size, *_ = line.split(b",")
            self._packets.append((int(pts), int(duration), int(size)))


def _cut(packet: Packet, end_s: Fraction) -> Packet:
    """A packet of samples without those from `end_s` on."""
    if packet.end_s <= end_s:
        return packet
    share = (end_s - packet.time_s) / packet.lasts_s
    kept = int(packet.samples * share)
    return replace(packet, samples=kept, data=packet.data[: len(packet.data) // packet.samples * kept])
