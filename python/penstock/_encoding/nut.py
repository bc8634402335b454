"""Raw frames and sound with their times in one stream, as FFmpeg reads it: NUT.

Raw frames alone have no times. FFmpeg reads several containers from a pipe. NUT holds all common pixel formats
unchanged, and times in any unit. Matroska holds few of the formats; AVI, Y4M and QuickTime lack times or a live form.
Sound in the same stream needs no second pipe: FFmpeg takes whatever comes next, so that neither can wait for the other.
FFmpeg itself writes the header, once for each layout. See FFmpeg's ``doc/nut.texi`` and the NUT specification for the
packets.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational, Real

from penstock._common.messages import PROBABLY_A_BUG
from penstock._ffmpeg.command.arguments import TICK_S, input_arguments
from penstock._ffmpeg.command.pixel_formats import FrameLayout
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._platform.descriptors import zeros
from penstock.errors import EncoderError

# The frame rate that codecs and headers are told if frames come with their times and nothing tells their rate. Codecs
# derive their level and the bits per frame from it.
_NOMINAL_FPS = Fraction(60)
# FFmpeg leaves out a rate in NUT from so many frames per second on.
_MOST_NOMINAL_FPS = 1000
#: Seconds that are added to all times where there is sound. A copied sound may begin before 0, with samples that only
#: prepare the decoder, and NUT has no times below 0. FFmpeg subtracts them again (``-itsoffset``). Chosen:
#: codecs need some tens of milliseconds.
OFFSET_S = 10
# The last time in ticks, 292,000 years: FFmpeg's signed 64 bits, less the largest `StreamClock.full_time` (2**14).
_LAST_TICK = 2**63 - 1 - (1 << 14)

#: FFmpeg's arguments to write the beginning of a sound in this container to its standard output.
BEGINNING = ("-frames:a", "1", "-fflags", "+bitexact", "-f", "nut", "pipe:1")
# Start codes of NUT: an N, a letter for the kind of packet, and six bytes that are only that kind's.
_MAIN = bytes.fromhex("4e4d7a561f5f04ad")
_STREAM = bytes.fromhex("4e5311405bf2f9db")
_SYNC_POINT = bytes.fromhex("4e4be4adeeca4569")
_INFO = bytes.fromhex("4e49ab68b596ba78")
# Packets of the header that are longer have a checksum of their own head.
_SHORT_BYTES = 4096
# Each byte with its bits in reverse.
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
# The tag with which FFmpeg writes pixel formats that have none of their own. It is that of rgb555le.
_NO_TAG = b"RGB\x0f"
# Guessed: reading one packet of a sound file.
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class StreamClock:
    """How the file codes the times of one stream.

    Attributes:
        unit_s: a tick in seconds.
        number: the number of that unit among all of the file's.
        full_time: what is added to a time that is written in full. Smaller numbers are the last bits of a time.
    """

    unit_s: Fraction
    number: int
    full_time: int


@dataclass(frozen=True, slots=True)
class NutStream:
    """What FFmpeg reads: a header, and then packets of each stream.

    Attributes:
        head: the bytes before the first packet.
        clocks: for each stream, the picture's first.
        unit_count: how many units of time the file has.
        offset_s: seconds that every time is later in the file.
        fps: the frame rate that the header tells.
    """

    head: bytes
    clocks: tuple[StreamClock, ...]
    unit_count: int
    offset_s: int
    fps: Fraction

    def tick(self, stream: int, time_s: Fraction) -> int:
        """A time in the unit of that stream, rounded to the nearest, with the offset."""
        return math.floor((time_s + self.offset_s) / self.clocks[stream].unit_s + Fraction(1, 2))

    def tracks(self, rates: Sequence[Fraction]) -> list[tuple[int, int, int, int, int]]:
        """What a native feed knows of each stream, which counts that many frames or samples a second."""
        found = []
        for clock, rate in zip(self.clocks, rates, strict=True):
            step, start = 1 / (rate * clock.unit_s), self.offset_s / clock.unit_s
            divisor = math.lcm(step.denominator, start.denominator)
            found.append((clock.number, clock.full_time, int(step * divisor), int(start * divisor), divisor))
        return found


def ticks(time_s: float | Rational) -> int:
    """A time in seconds as a multiple of `TICK_S`, rounded to the nearest.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, too large, or not finite.
    """
    if not isinstance(time_s, Real) or isinstance(time_s, bool):
        raise TypeError(
            f"time_s must be a number of seconds, such as 0.25 or Fraction(1001, 30000), not {time_s!r}"
        )
    if not isinstance(time_s, Rational):
        time_s = float(time_s)  # Fraction takes no float32 of NumPy
    is_finite = isinstance(time_s, Rational) or math.isfinite(time_s)  # which takes no large Fraction
    if not is_finite or not 0 <= (tick := round(Fraction(time_s) / TICK_S)) <= _LAST_TICK:
        raise ValueError(f"time_s must be a number of seconds from 0 on, not {time_s!r}")
    return tick


def make_stream(
    program: str,
    layout: FrameLayout,
    rate: Fraction | None,
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[str],
    nominal_fps: Fraction | None = None,
) -> NutStream:
    """The stream of frames at that rate, or with times of their own, and of sounds.

    Args:
        inputs: FFmpeg's arguments that read each sound.
        outputs: FFmpeg's arguments that choose the sounds and make packets of them.
        nominal_fps: the rate that the header tells of frames with times of their own, if it is known.

    Raises:
        ValueError: the container has no name for the pixel format.
        EncoderError: FFmpeg could not make it.
    """
    frames = input_arguments(layout, rate or 1 / TICK_S, source=zeros(layout.frame_bytes))
    picture = ("-map", f"{len(inputs)}:v", "-c:v", "copy", "-frames:v", "1")
    # Sounds are the first inputs, so that `outputs` can name them by their numbers.
    command = (
        *(program, "-v", "error"),
        *(word for one in inputs for word in one),
        *(*frames, *picture, *outputs, *BEGINNING),
    )
    try:
        made = bytes(run(command, _PATIENCE_S).stdout)
    except ProgramError as failure:
        raise EncoderError(
            f"FFmpeg can't write frames with times or audio: {failure}", command=command
        ) from failure
    head, sync_point, _ = made.partition(_SYNC_POINT)
    if not sync_point:
        raise EncoderError(f"FFmpeg wrote no NUT stream. {PROBABLY_A_BUG}", command=command)
    if _NO_TAG in head[head.index(_STREAM) :] and layout.pixel_format != "rgb555le":  # whose tag it is
        raise ValueError(
            f"{layout.pixel_format} frames can't have times (fps=None) or audio, because FFmpeg's containers have no "
            "name for the format. Pass another pixel_format, such as 'yuv420p10le' or 'rgb48le', or another codec"
        )
    if rate is None:
        rate = nominal_fps if nominal_fps is not None and nominal_fps < _MOST_NOMINAL_FPS else _NOMINAL_FPS
        head = _with_rate(head, rate)
    units, clocks = _clocks(head)
    return NutStream(head, clocks, len(units), OFFSET_S if inputs else 0, rate)


#: `make_stream`, which makes the stream only once for the same arguments.
cached_stream = functools.lru_cache(maxsize=64)(make_stream)


def _clocks(head: bytes) -> tuple[list[Fraction], tuple[StreamClock, ...]]:
    """The units of time in the header, and the clock of each stream."""
    units: list[Fraction] = []
    clocks: list[StreamClock] = []
    for code, start, _ in _header_packets(head):
        numbers = _numbers(head, start)
        if code == _MAIN:
            _version, _streams, _distance, count = (next(numbers) for _ in range(4))
            units += (Fraction(next(numbers), next(numbers)) for _ in range(count))
        elif code == _STREAM:
            _id, _kind, tag_bytes = (next(numbers) for _ in range(3))
            # The numbers before the tag have one byte each.
            numbers = _numbers(head, start + 3 + tag_bytes)
            number, shift = next(numbers), next(numbers)
            clocks.append(StreamClock(units[number], number, 1 << shift))
    return units, tuple(clocks)


def _header_packets(head: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The code of each packet of the header, and where its body begins and ends. A checksum comes after the body."""
    at = head.index(_MAIN)
    while at < len(head):
        code, size, start = head[at : at + 8], 0, at + 8
        while True:
            size, start = size << 7 | head[start] & 127, start + 1
            if not head[start - 1] & 128:
                break
        if size > _SHORT_BYTES:
            start += 4
        end = start + size - 4
        yield code, start, end
        at = end + 4


def _with_rate(head: bytes, fps: Fraction) -> bytes:
    """Replaces the frame rate in the header: FFmpeg has made one of the time unit, 1,000,000 fps."""
    made, wanted = (f"{one.numerator}/{one.denominator}".encode() for one in (1 / TICK_S, fps))
    made, wanted = (bytes([len(text)]) + text for text in (made, wanted))
    for code, start, end in _header_packets(head):
        if code == _INFO and made in head[start:end]:
            info = head[start:end].replace(made, wanted)
            before = head[: head.rindex(code, 0, start)]
            # A number may begin with zeros, so that each size has two bytes.
            size = len(info) + len(_checksum(info))
            head = (
                before
                + code
                + bytes([128 | size >> 7, size & 127])
                + info
                + _checksum(info)
                + head[end + 4 :]
            )
            break
    return head


def _numbers(data: bytes, at: int) -> Iterator[int]:
    """The numbers in `data` from `at` on."""
    number = 0
    for byte in data[at:]:
        number = number << 7 | byte & 127
        if not byte & 128:
            yield number
            number = 0


def _checksum(data: bytes) -> bytes:
    """NUT's CRC-32: polynomial 0x04C11DB7, the highest bit first, from 0.

    zlib's has the same polynomial, the lowest bit first, and inverts it before and after.
    """
    crc = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return crc.to_bytes(4, "little").translate(_REVERSED)
