"""Raw frames with their times, as FFmpeg reads them: NUT, with a packet of rawvideo for each frame.

Raw frames alone have no times. Of the containers that FFmpeg reads from a pipe, NUT holds all common pixel formats
unchanged and times in any unit; Matroska holds few of them, and AVI, Y4M and QuickTime lack times or a live form.
FFmpeg itself writes the header, once for each layout. See FFmpeg's ``doc/nut.texi`` and the NUT specification for the
packets.
"""

from __future__ import annotations

import functools
import math
import struct
from fractions import Fraction
from numbers import Rational, Real

from penstock.errors import EncoderError
from penstock.ffmpeg.arguments import input_arguments
from penstock.ffmpeg.child import ProgramError
from penstock.ffmpeg.pixel_formats import FrameLayout
from penstock.ffmpeg.runner import run

#: Times are whole multiples of this, in seconds. FFmpeg has no finer ones, and containers have coarser ones as a rule.
TICK_S = Fraction(1, 1_000_000)
#: What codecs reckon with where they want to know a rate: for their level, and for bits per frame.
NOMINAL_FPS = 60
# The last time in ticks: 292,000 years, FFmpeg's 64 bits with a sign.
_LAST_TICK = 2**63 - 1 - (1 << 14)

_SYNC_POINT = bytes.fromhex("4e4be4adeeca4569")
_STREAM = bytes.fromhex("4e5311405bf2f9db")
_INFO = bytes.fromhex("4e49ab68b596ba78")
# The frame code of FFmpeg's writer whose flags all come in the packet.
_FRAME_CODE = b"\x01"
# Key frame, coded time, size and checksum. The checksum is required for frames of more than 64 KiB.
_FLAGS = 1 | 8 | 32 | 64
# A time that is not less than this stands for itself, plus this; less would be its last bits (msb_pts_shift).
_FULL_TIME = 1 << 14
# Seven bits a byte: nine hold every time and every size.
_NUMBER_BYTES = 9
# The tag with which FFmpeg writes pixel formats that have none of their own. It is that of rgb555le.
_NO_TAG = b"RGB\x0f"
_PATIENCE_S = 10.0


def ticks(pts: float | Rational) -> int:
    """A time in seconds as a multiple of `TICK_S`, rounded to the nearest.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, too large, or not finite.
    """
    if not isinstance(pts, Real) or isinstance(pts, bool):
        raise TypeError(
            f"pts is a time in seconds, a number such as 0.25 or Fraction(1001, 30000); got {pts!r}"
        )
    if not math.isfinite(pts) or not 0 <= (tick := round(Fraction(pts) / TICK_S)) <= _LAST_TICK:
        raise ValueError(f"pts is a time in seconds from 0 on; got {pts!r}")
    return tick


@functools.lru_cache(maxsize=64)
def header(program: str, layout: FrameLayout) -> bytes:
    """What comes before the first frame of that layout.

    Raises:
        ValueError: the container has no name for the pixel format.
        EncoderError: FFmpeg could not make it.
    """
    frames = input_arguments(layout, 1 / TICK_S, source="/dev/zero")
    nut = ("-frames:v", "1", "-c", "copy", "-fflags", "+bitexact", "-f", "nut", "pipe:1")
    try:
        made = bytes(run((program, "-v", "error", *frames, *nut), _PATIENCE_S).stdout)
    except ProgramError as failure:
        raise EncoderError(f"FFmpeg cannot write frames with times: {failure}") from failure
    head, sync_point, _ = made.partition(_SYNC_POINT)
    if not sync_point:
        raise EncoderError("FFmpeg cannot write frames with times: it wrote no NUT")
    if _NO_TAG in head[head.index(_STREAM) :] and layout.pixel_format != "rgb555le":
        raise ValueError(
            f"{layout.pixel_format} frames cannot have times (fps=None), for FFmpeg's containers have no name for that "
            "format: give another pixel_format, such as yuv420p10le or rgb48le"
        )
    return _with_nominal_rate(head)


def prefix(tick: int, frame_bytes: int) -> bytes:
    """What comes before a frame of so many bytes at that time. It always has the same length."""
    point = _number(tick) + _number(0)
    packet = _FRAME_CODE + _number(_FLAGS) + _number(tick + _FULL_TIME) + _number(frame_bytes)
    size = bytes((len(point) + 4,))
    return _SYNC_POINT + size + point + _checksum(point) + packet + _checksum(packet)


def _with_nominal_rate(head: bytes) -> bytes:
    """The header with a rate that is a rate: FFmpeg takes the one that it has written from the unit of times."""
    start = head.rindex(_INFO) + len(_INFO) + 1
    end = start + head[start - 1] - 4
    rate = f"{1 / TICK_S}/1".encode()
    info = head[start:end].replace(rate, f"{NOMINAL_FPS}/1".rjust(len(rate), "0").encode())
    return head[:start] + info + _checksum(info) + head[end + 4 :]


def _number(number: int) -> bytes:
    """A number in NUT's form, seven bits a byte, the highest first, with zeros before it."""
    sevens = [number >> 7 * place & 127 for place in reversed(range(_NUMBER_BYTES))]
    return bytes(seven | 128 for seven in sevens[:-1]) + bytes(sevens[-1:])


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
        table.append(crc)
    return tuple(table)


_CRC = _crc_table()


def _checksum(data: bytes) -> bytes:
    """NUT's CRC-32: polynomial 0x04C11DB7, the highest bit first, from 0."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFFFFFFFF) ^ _CRC[crc >> 24 ^ byte]
    return struct.pack(">I", crc)


#: Bytes that `prefix` has.
PREFIX_BYTES = len(prefix(0, 0))
