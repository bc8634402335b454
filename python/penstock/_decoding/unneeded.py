"""Tells packets whose picture no other picture is made of, and those that reset a decoder, by heads of their units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

    from penstock._facts.index import Packet

# Types of NAL units that last for no longer than their packet, besides slices: additional information, delimiters and
# filler; and slices of pictures that reset the decoder (ITU-T H.264, table 7-1; H.265, table 7-1).
_AVC_SLICE, _AVC_RESET, _AVC_OF_PACKET = 1, 5, frozenset((6, 9, 12))
_HEVC_SLICES, _HEVC_SPS, _HEVC_OF_PACKET = range(32), 33, frozenset((35, 38, 39, 40))
_HEVC_RESETS = frozenset((19, 20))
# Slices of H.265 below this number are of a picture that no picture of the same temporal layer is made of, if even.
_HEVC_PAIRS = 16
# Where the arrays of parameter sets begin, and where a unit's first byte is said (ISO/IEC 14496-15, 5.3.3 and 8.3.3).
_HVCC_ARRAYS, _AVCC_LENGTH, _HVCC_LENGTH = 23, 4, 21
# Start codes of MPEG-1 and MPEG-2 (ISO/IEC 13818-2, table 6-1), and the extension that has matrices for later pictures.
_PICTURE, _USER_DATA, _EXTENSION, _MATRICES = 0x00, 0xB2, 0xB5, 3
_B_PICTURE = 3
# Types of AV1's units: with the head of a frame, or with none of another (AV1 specification, 6.2.2).
_SEQUENCE, _FRAME_HEADER, _FRAME, _NO_FRAMES = 1, 3, 6, frozenset((2, 4, 5, 7, 15))
_AV1_KEY, _AV1_SWITCH, _AV1_CHOSEN_BY_FRAME = 0, 3, 2
_AV1C_UNITS = 4  # where units begin in av1C
# Chosen: more bytes than a header has up to what is read here.
_MOST_HEADER = 160
# What a packet that was cut off has in place of a unit's first bytes.
_NONE = b"\xff"


def unneeded(codec: VideoCodecContext) -> Callable[[Packet], bool]:
    """Returns a function that tells whether no other picture is made of that of a packet.

    It is to be called for packets in their order, as they are in the file. It is about packets of one picture.
    """
    name, extradata = _told(codec)
    # Each has heads of its own, which the functions below read.
    if name == "h264":  # ITU-T H.264
        return _avc(extradata)
    if name == "hevc":  # ITU-T H.265
        return _Hevc(extradata).is_unneeded
    if name == "av1":  # AV1 specification
        return _Av1(extradata).is_unneeded
    # ISO/IEC 11172-2 and 13818-2.
    return _is_b_picture if name in ("mpeg1video", "mpeg2video") else lambda _: False


def resets(codec: VideoCodecContext) -> Callable[[Packet], bool]:
    """Returns a function that tells whether a packet needs none before, and first has a decoder give their frames."""
    name, extradata = _told(codec)
    if name == "h264":
        length_bytes = _avc_length(extradata)
        return lambda packet: any(unit[0] & 31 == _AVC_RESET for unit in _units(bytes(packet), length_bytes))
    if name == "hevc":
        length_bytes = _hevc_length(extradata)
        return lambda packet: any(
            unit[0] >> 1 & 63 in _HEVC_RESETS for unit in _units(bytes(packet), length_bytes)
        )
    return lambda _: False


def _told(codec: VideoCodecContext) -> tuple[str, bytes]:
    """The codec's name and extradata: as long as the heads that are read here, also if it is cut off."""
    return codec.codec.canonical_name, bytes(codec.extradata or b"").ljust(_HVCC_ARRAYS, b"\0")


def _avc_length(extradata: bytes) -> int:
    return (extradata[_AVCC_LENGTH] & 3) + 1 if extradata[:1] == b"\1" else 0


def _hevc_length(extradata: bytes) -> int:
    return (extradata[_HVCC_LENGTH] & 3) + 1 if extradata[:1] == b"\1" else 0


def _units(data: bytes, length_bytes: int = 0) -> Iterator[bytes]:
    """The first bytes of each unit: of one behind its length, or behind a start code if lengths have no bytes."""
    if not length_bytes:
        at = data.find(b"\0\0\1")
        while at >= 0:
            yield data[at + 3 : at + 6].ljust(3, _NONE)
            at = data.find(b"\0\0\1", at + 3)
        return
    at = 0
    while at < len(data):
        begins = at + length_bytes
        yield data[begins : begins + 3].ljust(3, _NONE)
        at = begins + int.from_bytes(data[at:begins])


def _avc(extradata: bytes) -> Callable[[Packet], bool]:
    length_bytes = _avc_length(extradata)

    def is_unneeded(packet: Packet) -> bool:
        has_slice = False
        for unit in _units(bytes(packet), length_bytes):
            kind, importance = unit[0] & 31, unit[0] >> 5 & 3
            if kind == _AVC_SLICE and not importance:
                has_slice = True
            elif kind not in _AVC_OF_PACKET:
                return False
        return has_slice

    return is_unneeded


class _Hevc:
    """The same for H.265, whose pictures have temporal layers: those of the highest layer may be unneeded."""

    def __init__(self, extradata: bytes) -> None:
        self._highest, self._length_bytes = -1, _hevc_length(extradata)
        for unit in _in_arrays(extradata) if self._length_bytes else _units(extradata):
            self._note(unit)

    def is_unneeded(self, packet: Packet) -> bool:
        needed = slices = 0
        for unit in _units(bytes(packet), self._length_bytes):
            self._note(unit)
            kind, layer, view = unit[0] >> 1 & 63, (unit[1] & 7) - 1, (unit[0] & 1, unit[1] >> 3)
            slices += kind in _HEVC_SLICES
            is_last = kind < _HEVC_PAIRS and kind % 2 == 0 and layer == self._highest and view == (0, 0)
            needed += not is_last and kind not in _HEVC_OF_PACKET
        return slices > 0 and not needed

    def _note(self, unit: bytes) -> None:
        """Notes how many layers there may be."""
        if unit[0] >> 1 & 63 == _HEVC_SPS:
            self._highest = max(self._highest, unit[2] >> 1 & 7)


def _in_arrays(extradata: bytes) -> Iterator[bytes]:
    """The first bytes of the units in hvcC."""
    at = _HVCC_ARRAYS
    while at + 3 <= len(extradata):
        units, at = int.from_bytes(extradata[at + 1 : at + 3]), at + 3
        for _ in range(units):
            yield extradata[at + 2 : at + 5].ljust(3, _NONE)
            at += 2 + int.from_bytes(extradata[at : at + 2])


def _is_b_picture(packet: Packet) -> bool:
    has_picture = False
    for unit in _units(bytes(packet)):
        if unit[0] == _PICTURE:
            has_picture = True
            if unit[2] >> 3 & 7 != _B_PICTURE:
                return False
        elif unit[0] == _EXTENSION and unit[1] >> 4 == _MATRICES:
            return False
        elif unit[0] > _USER_DATA and unit[0] != _EXTENSION:
            return False  # it has what later pictures need
    return has_picture


class _Bits:
    """Reads bits, the first one of a byte first; zeros behind the end."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = (
            int.from_bytes(data.ljust(_MOST_HEADER, b"\0")[:_MOST_HEADER]),
            8 * _MOST_HEADER,
        )

    def take(self, count: int = 1) -> int:
        self._left -= count
        return self._value >> max(self._left, 0) & ((1 << count) - 1)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """What a sequence header of AV1 says of those of frames (5.5).

    Attributes:
        id_bits: how many bits the number of a frame has.
        screen_tools, whole_vectors: whether it has these; `_AV1_CHOSEN_BY_FRAME` if it says so itself.
        order_bits: how many bits its place in the order has.
    """

    id_bits: int
    screen_tools: int
    whole_vectors: int
    order_bits: int

    @classmethod
    def of(cls, bits: _Bits) -> _Sequence | None:
        """None for stills, and for streams that say when to decode: those say more in each frame."""
        bits.take(4)  # the profile, and whether it's a still
        is_short, has_timing = bits.take(), bits.take()
        if is_short or has_timing:
            return None
        has_delay = bits.take()
        for _ in range(bits.take(5) + 1):  # operating points
            bits.take(12)
            if bits.take(5) > 7:  # the level, above which there is a tier
                bits.take()
            if has_delay and bits.take():
                bits.take(4)
        sizes = bits.take(4) + 1, bits.take(4) + 1
        bits.take(sizes[0])
        bits.take(sizes[1])
        id_bits = bits.take(4) + 2 + bits.take(3) + 1 if bits.take() else 0
        bits.take(7)  # tools of prediction
        has_order = bits.take()
        if has_order:
            bits.take(2)
        screen_tools = _AV1_CHOSEN_BY_FRAME if bits.take() else bits.take()
        whole_vectors = _AV1_CHOSEN_BY_FRAME if not screen_tools or bits.take() else bits.take()
        return cls(id_bits, screen_tools, whole_vectors, bits.take(3) + 1 if has_order else 0)

    def keeps(self, bits: _Bits) -> bool:
        """Whether a frame with this header is kept for later ones (5.9.2)."""
        if bits.take():
            return True  # it shows another, which it may keep
        kind, is_shown = bits.take(2), bits.take()
        if not is_shown:
            bits.take()
        if kind == _AV1_SWITCH or (kind == _AV1_KEY and is_shown):
            return True
        is_resilient = bits.take()
        bits.take()
        has_tools = bits.take() if self.screen_tools == _AV1_CHOSEN_BY_FRAME else self.screen_tools
        if has_tools and self.whole_vectors == _AV1_CHOSEN_BY_FRAME:
            bits.take()
        bits.take(self.id_bits + 1 + self.order_bits)
        if kind % 2 and not is_resilient:  # it isn't made of itself alone
            bits.take(3)
        return bits.take(8) != 0


class _Av1:
    """The same for AV1, where a packet may have several frames, of which one is shown."""

    def __init__(self, extradata: bytes) -> None:
        self._sequence: _Sequence | None = None
        self._keeps(extradata[_AV1C_UNITS:] if extradata[:1] == b"\x81" else extradata)

    def is_unneeded(self, packet: Packet) -> bool:
        frames = self._keeps(bytes(packet))
        return bool(frames) and not any(frames)

    def _keeps(self, data: bytes) -> list[bool]:
        """Whether each frame is kept for later ones."""
        found: list[bool] = []
        at = 0
        while at < len(data):
            head, at = data[at], at + (2 if data[at] & 4 else 1)
            size = shift = 0
            while head & 2 and at < len(data) and shift < 8 * 7:
                size, shift, at = size | (data[at] & 127) << shift, shift + 7, at + 1
                if data[at - 1] < 128:
                    break
            kind, begins, at = head >> 3 & 15, at, at + size if head & 2 else len(data)
            bits = _Bits(data[begins : min(at, begins + _MOST_HEADER)])
            if kind == _SEQUENCE:
                self._sequence = _Sequence.of(bits)
            elif kind in (_FRAME_HEADER, _FRAME):
                found.append(self._sequence is None or self._sequence.keeps(bits))
            elif kind not in _NO_FRAMES:
                found.append(True)
        return found
