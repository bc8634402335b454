"""The assets: compressed files in the page cache, or a simulated storage.

The content is made of words, so that it compresses as text, meshes and levels do. A codec stores random bytes as they
are, so that they would measure a copy.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import click

Codec = Literal["zlib", "gzip", "zstd", "lz4"]
#: Python's module for each.
CODECS: dict[Codec, str] = {"zlib": "zlib", "gzip": "gzip", "zstd": "zstandard", "lz4": "lz4.frame"}

#: The reference example's storage takes so long for each asset, evenly distributed.
SIMULATED_DELAY_S = (0.001, 0.005)
WORDS = 4096


@dataclass(frozen=True)
class Stream:
    """What is streamed, and how. The defaults are those of the reference example, but with real files."""

    codec: Codec = "zlib"
    chunk_bytes: int = 64 * 2**10
    chunks: int = 100
    #: Processes that burn CPU, every second one at below-normal priority.
    background: int = 4
    simulated: bool = False
    #: Assets of one run of the race; 0 leaves it out.
    assets: int = 2000
    #: Threads that decompress in the race, on each side.
    workers: int = 2
    #: Assets that may wait between two parts.
    depth: int = 16


def _module(codec: Codec) -> Any:
    try:
        return import_module(CODECS[codec])
    except ImportError as error:
        package = CODECS[codec].partition(".")[0]
        raise click.ClickException(f"{codec} needs the package {package}: pip install {package}") from error


def compressor(codec: Codec) -> Callable[[bytes], bytes]:
    """A function that compresses an asset."""
    module = _module(codec)
    compress: Callable[[bytes], bytes] = (
        module.ZstdCompressor().compress if codec == "zstd" else module.compress
    )
    return compress


def decompressor(codec: Codec) -> Callable[[bytes], bytes]:
    """A function that decompresses an asset by the codec's Python module."""
    module = _module(codec)
    if codec == "zstd":
        # One for each call, because threads must not share one.
        return lambda data: module.ZstdDecompressor().decompress(data)
    decompress: Callable[[bytes], bytes] = module.decompress
    return decompress


@dataclass
class Assets:
    """Compressed files. They are in the page cache because they were just written."""

    paths: list[str] = field(default_factory=list)
    #: The CRC-32 of each content.
    sums: list[int] = field(default_factory=list)
    content_bytes: int = 0
    compressed_bytes: int = 0


def contents(chunk_bytes: int) -> Iterator[bytes]:
    """An endless series of different contents, the same in each run."""
    chance = random.Random(1)
    words = [chance.randbytes(chance.randint(3, 24)) for _ in range(WORDS)]
    mean_bytes = sum(map(len, words)) / WORDS
    while True:
        text = b""
        while len(text) < chunk_bytes:
            text += b"".join(chance.choices(words, k=int(1.1 * chunk_bytes / mean_bytes)))
        yield text[:chunk_bytes]


def write_assets(folder: Path, codec: Codec, chunk_bytes: int, count: int) -> Assets:
    """Write ``count`` files with different contents."""
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
    """As in the reference example: random bytes, compressed on the fly, and a sleep for each asset."""
    compress = compressor(codec)
    chance = random.Random(1)
    for number in range(count):
        time.sleep(chance.uniform(*SIMULATED_DELAY_S))
        yield f"{number:06}", compress(os.urandom(chunk_bytes))
