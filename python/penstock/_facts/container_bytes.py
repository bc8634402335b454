"""What the bytes of a container show of a file's end and damage, and libav says nothing of."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from penstock._ffmpeg.command import endpoints

# Chosen: before its first fragment, a segment has few boxes.
MOST_BOXES = 8
# An EBML header, and then the element that holds all else of a Matroska file, with its size (RFC 9559, 4 and 5.1), and
# in it those that hold packets.
_SEGMENT, _CLUSTER, _SIMPLE_BLOCK = b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75", b"\xa3"
_SEGMENT_WITHIN_BYTES = 1024
_MOST_HEAD_BYTES = 12
# A name in the metadata of FLV, and the type of its value: a number. Chosen: the metadata is the first thing in a file.
_FILE_SIZE, _MOST_METADATA_BYTES = b"filesize\0", 1 << 16
# A page of Ogg has so many before the sizes of its parts, and at most so many in all (RFC 3533, 6).
_PAGE_HEAD_BYTES = 27
_MOST_PAGE_BYTES = 65_307
# Each byte with its bits in the other order.
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def ends_with_fragment(source: str) -> bool:
    """Whether an MP4 file ends with a whole fragment, so that its last fragments may be in other files."""
    with suppress(OSError):
        fragments = _fragments(source)
        return bool(fragments) and fragments[-1][1] == endpoints.file_bytes(source)
    return False


def ends_in_fragment(source: str) -> bool:
    """Whether an MP4 file ends before its last fragment does: in a box, or with a head of frames that are missing."""
    if (size_bytes := endpoints.file_bytes(source)) is None or not (fragments := _fragments(source)):
        return False
    name, ends = fragments[-1]
    return name == b"moof" or ends > size_bytes


def _fragments(source: str) -> list[tuple[bytes, int]]:
    """The boxes of an MP4 file in fragments; none of any other."""
    all_boxes = [*boxes(Path(endpoints.without_protocol(source)))]
    return all_boxes if any(name == b"moof" for name, _ in all_boxes) else []


def is_segment(path: str) -> bool:
    """Whether an MP4 file has fragments, and nothing before them that describes them."""
    with suppress(OSError):
        names = [name for name, _ in islice(boxes(Path(path)), MOST_BOXES)]
        return b"moof" in names and b"moov" not in names
    return False


def boxes(path: Path) -> Iterator[tuple[bytes, int]]:
    """The names of an MP4 file's boxes, and where they end by their heads (ISO/IEC 14496-12, 4.2)."""
    at = 0
    with path.open("rb") as file:
        while len(head := file.read(16)) >= 8:
            size, name = struct.unpack_from(">I4s", head)
            if size == 1 and len(head) == 16:
                size = int.from_bytes(head[8:], "big")
            if size < 8:
                return
            at += size
            yield name, at
            file.seek(min(at, sys.maxsize))  # what is no MP4 file has any size there


def segment_of(source: str) -> range | None:
    """The bytes of a Matroska file's segment by its own header; None if it was written without knowing their number.

    libav says nothing of a cut to its callers, and its durations don't show one: the last frame may be shown for long.
    """
    with Path(endpoints.without_protocol(source)).open("rb") as file:
        head = file.read(_SEGMENT_WITHIN_BYTES)
    at = head.find(_SEGMENT)
    element = _element(head[at : at + _MOST_HEAD_BYTES], at) if at >= 0 else None
    return None if element is None or _is_unknown(element) else element


def damaged_at(source: str, segment: range) -> str | None:
    """Where an element of a Matroska file is none: libav passes over it, up to the next cluster, and says nothing."""
    with Path(endpoints.without_protocol(source)).open("rb", 0) as file:
        parents, at = [segment], segment.start
        while parents:
            if at == parents[-1].stop:
                parents.pop()
                continue
            file.seek(at)
            head = file.read(_MOST_HEAD_BYTES)
            element = _element(head, at)
            if element is not None and _is_unknown(element):
                return None  # written live: only the next cluster tells where it ends
            if (
                element is None
                or element.stop > parents[-1].stop
                or _is_of_no_track(head, element.start - at)
            ):
                return f"the file is damaged at byte {at}"
            if head.startswith(_CLUSTER):
                parents.append(element)
                at = element.start
            else:
                at = element.stop
    return None


def _is_of_no_track(head: bytes, content: int) -> bool:
    """Whether an element holds a frame of the track 0, which there can't be. libav passes over it."""
    return head.startswith(_SIMPLE_BLOCK) and head[content : content + 1] == b"\0"


def _element(head: bytes, at: int) -> range | None:
    """The content of the EBML element at a byte, by its head (RFC 8794, 4 and 5); None if there is none."""
    # The zeros before the first one-bit count the bytes that follow: at most 3 of a name, and 7 of a size.
    size_at = 9 - head[0].bit_length() if head else 9
    if size_at > 4 or len(head) <= size_at or not head[size_at]:
        return None
    size_bytes = 9 - head[size_at].bit_length()
    size = int.from_bytes(head[size_at : size_at + size_bytes], "big") & ((1 << 7 * size_bytes) - 1)
    begins = at + size_at + size_bytes
    return range(begins, begins + (sys.maxsize if size == (1 << 7 * size_bytes) - 1 else size))


def _is_unknown(element: range) -> bool:
    """Whether the size of an element is unknown, which all ones stand for."""
    return element.stop - element.start == sys.maxsize


def stated_bytes(source: str) -> float:
    """The length of an FLV file by its `onMetaData` (Adobe's specification, E.5); 0 if that has none.

    The length in seconds may count from before the first frame.
    """
    with Path(endpoints.without_protocol(source)).open("rb") as file:
        head = file.read(_MOST_METADATA_BYTES)
    at = head.find(_FILE_SIZE) + len(_FILE_SIZE)
    number = head[at : at + 8]
    return float(struct.unpack(">d", number)[0]) if at >= len(_FILE_SIZE) and len(number) == 8 else 0


def ends_with_last_page(source: str, size_bytes: int) -> bool:
    """Whether the last page of an Ogg file is the last one of a stream (RFC 3533, 6: 4 in the sixth byte)."""
    with Path(endpoints.without_protocol(source)).open("rb") as file:
        file.seek(max(0, size_bytes - _MOST_PAGE_BYTES))
        pages = file.read()
    at = pages.rfind(b"OggS")
    return at < 0 or len(pages) <= at + 5 or bool(pages[at + 5] & 4)


def has_damaged_page(path: str, begin: int, end: int | None) -> bool:
    """Whether a page of an Ogg file is none, or damaged, from that at a byte to that at another one (RFC 3533, 6)."""
    with Path(path).open("rb") as file:
        file.seek(begin)
        while end is None or file.tell() <= end:
            head = file.read(_PAGE_HEAD_BYTES)
            sizes = file.read(head[-1]) if len(head) == _PAGE_HEAD_BYTES else b""
            data = file.read(sum(sizes))
            if len(head) < _PAGE_HEAD_BYTES or len(data) < sum(sizes):
                return end is not None  # otherwise the file is cut there, which Ogg doesn't show
            page = head[:22] + bytes(4) + head[26:] + sizes + data
            if not head.startswith(b"OggS") or _checksum(page) != head[22:26]:
                return True
    return False


def skips_page(path: str, page: int | None, following: int | None) -> bool:
    """Whether another page of an Ogg stream should be between two, by their numbers (RFC 3533, 6).

    Args:
        page, following: where they begin; None for none before, and for an unknown place.
    """
    if page == following or following is None:
        return False
    with Path(path).open("rb") as file:
        if page is None:
            return file.read(4) == b"OggS"  # those of headers
        heads = []
        for at in (page, following):
            file.seek(at)
            heads.append(file.read(_PAGE_HEAD_BYTES))
    first, second = heads
    number = int.from_bytes(first[18:22], "little")
    return first[14:18] == second[14:18] and int.from_bytes(second[18:22], "little") != number + 1


def _checksum(page: bytes) -> bytes:
    """The CRC of a page of Ogg: that of zlib, but with the bits of each byte in the other order, and none inverted."""
    checksum = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return checksum.to_bytes(4).translate(_MIRRORED)


def first_of_flac(path: str) -> int | None:
    """The number of the first sample in a FLAC file by the head of its first frame; None for none (RFC 9639)."""
    with Path(path).open("rb") as file:
        head, block = file.read(8)[4:], 0
        while len(head) == 4 and (kind := head[0] & 0x7F) != 0x7F:
            metadata = file.read(int.from_bytes(head[1:]))
            if kind == 0:
                block = int.from_bytes(metadata[2:4])
            is_last, head = head[0] >> 7, file.read(4)
            if is_last:
                break
        number = file.read(7)
    if len(head) < 4 or len(number) < 7 or head[:1] != b"\xff":
        return None
    ones = 8 - (~number[0] & 0xFF).bit_length()  # which say how many bytes it has
    count = number[0] & 0x7F >> ones
    for byte in number[1:ones]:
        count = count << 6 | byte & 0x3F
    return count if head[1] & 1 else count * block  # samples, or blocks of one size
