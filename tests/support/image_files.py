"""Image files for the tests that read them."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np

from penstock.video import find_ffmpeg
from support.media import flat

NUMBERS = (8, 9, 10, 11, 12)


def png(picture: np.ndarray) -> bytes:
    """A PNG file of height × width × 3 of uint8 (RFC 2083)."""
    height, width, _ = picture.shape
    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(rows), b"IEND": b""}
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def ppm(picture: np.ndarray) -> bytes:
    height, width, _ = picture.shape
    return b"P6\n%d %d\n255\n" % (width, height) + picture.tobytes()


def jpeg(picture: np.ndarray, folder: Path) -> bytes:
    source = folder / "of-jpeg.ppm"
    source.write_bytes(ppm(picture))
    command = [find_ffmpeg(), "-v", "error", "-i", source, "-q:v", "2", "-f", "image2pipe", "-"]
    made = subprocess.run(command, capture_output=True, check=True).stdout
    source.unlink()
    return made


def make_shots(folder: Path) -> Path:
    """Makes a folder of five images, whose numbers have one digit or two."""
    folder.mkdir()
    for index, number in enumerate(NUMBERS):
        (folder / f"shot{number}.png").write_bytes(png(flat(index)))
    return folder
