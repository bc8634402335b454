"""The assets: compressed files in the page cache, or what the known example has for a storage.

The content is made of words, so that it compresses as text, meshes and levels do: random bytes, which a codec
leaves as they are, would measure a copy.
"""

from __future__ import annotations

import gzip
import os
import random
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.bench.pipeline.cases import Codec

#: The known example's storage takes so long for each asset, evenly spread.
SIMULATED_DELAY_S = (0.001, 0.005)

WORDS = 4096


@dataclass
class Assets:
    """Compressed files in the page cache, from having been written."""

    paths: list[str] = field(default_factory=list)
    #: The CRC-32 of the content of each.
    sums: list[int] = field(default_factory=list)
    content_bytes: int = 0
    compressed_bytes: int = 0


class MissingPackageError(Exception):
    """A codec's package is not installed."""


def compressor(codec: Codec) -> Callable[[bytes], bytes]:
    """What compresses an asset.

    Raises:
        MissingPackageError: neither Python nor an installed package can.
    """
    if codec == "zlib":
        return zlib.compress
    if codec == "gzip":
        return gzip.compress
    try:
        if codec == "zstd":
            import zstandard

            return zstandard.ZstdCompressor().compress  # type: ignore[no-any-return]
        import lz4.frame

        return lz4.frame.compress  # type: ignore[no-any-return]
    except ImportError as error:
        package = {"zstd": "zstandard", "lz4": "lz4"}[codec]
        raise MissingPackageError(f"{codec} needs the package {package}: pip install {package}") from error


def contents(chunk_bytes: int) -> Iterator[bytes]:
    """Assets without end, all different, the same in each run."""
    chance = random.Random(1)
    words = [chance.randbytes(chance.randint(3, 24)) for _ in range(WORDS)]
    mean_bytes = sum(map(len, words)) / WORDS
    while True:
        text = b""
        while len(text) < chunk_bytes:
            text += b"".join(chance.choices(words, k=int(1.1 * chunk_bytes / mean_bytes)))
        yield text[:chunk_bytes]


def write_assets(folder: Path, codec: Codec, chunk_bytes: int, count: int) -> Assets:
    """So many files with different content."""
    compress = compressor(codec)
    assets = Assets()
    for number, content in zip(range(count), contents(chunk_bytes), strict=False):
        path = folder / f"{number:06}.{codec}"
        assets.compressed_bytes += path.write_bytes(compress(content))
        assets.content_bytes += chunk_bytes
        assets.paths.append(str(path))
        assets.sums.append(zlib.crc32(content))
    return assets


def simulated_assets(codec: Codec, chunk_bytes: int, count: int) -> Iterator[tuple[str, bytes]]:
    """As the known example has it: random bytes, compressed on the fly, and a sleep for each."""
    compress = compressor(codec)
    chance = random.Random(1)
    for number in range(count):
        time.sleep(chance.uniform(*SIMULATED_DELAY_S))
        yield f"{number:06}", compress(os.urandom(chunk_bytes))
