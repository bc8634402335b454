"""What can be measured: sizes, ways to encode, methods, and the groups of cases that they make.

A *group* is one size, one way to encode and one number of buffers. Its *cases* are the methods, each run
once a round; only cases of one group are compared with each other.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Literal

from penstock.bench.parsing import by_name

PIXEL_FORMAT = "rgb24"
BYTES_PER_PIXEL = 3
FRAMES_PER_S = 60

#: The method that gains are counted from.
STANDARD = "stdin.write"
#: The case without a pipe: FFmpeg reads the same frames from memory by itself.
TMPFS = "tmpfs"


@dataclass(frozen=True)
class Size:
    """A frame of ``height × width × 3`` bytes."""

    name: str
    width: int
    height: int

    @property
    def frame_bytes(self) -> int:
        """Bytes in one frame."""
        return self.width * self.height * BYTES_PER_PIXEL


@dataclass(frozen=True)
class Encode:
    """What FFmpeg does with the frames; all of it ends in its null muxer, so that no disk is measured."""

    name: str
    arguments: tuple[str, ...]
    #: Part of the bytes per case that is sent: an encoder is slower, and needs fewer frames.
    share: float
    minimum_frames: int
    #: A case slower than this has hung. Guessed low, for slow machines.
    slowest_bytes_per_s: float


@dataclass(frozen=True)
class Method:
    """One way to get frames from Python into FFmpeg."""

    name: str
    summary: str
    #: The module without which the method cannot run.
    needs: str | None = None
    #: For our own methods: the arguments of ``penstock.Writer``.
    mode: Literal["auto", "write", "staged", "zero-copy"] | None = None
    reader: Literal["unknown", "reads"] = "unknown"


SIZES = (
    Size("720p", 1280, 720),
    Size("1080p", 1920, 1080),
    Size("1440p", 2560, 1440),
    Size("2160p", 3840, 2160),
)

# As in TurboPipe's own table: no output pixel format is asked for, so x264 encodes 4:4:4.
ENCODES = (
    Encode("null", (), share=1.0, minimum_frames=1, slowest_bytes_per_s=20e6),
    Encode("ultrafast", ("-c:v", "libx264", "-preset", "ultrafast"), 0.25, 8, 4e6),
    Encode("slow", ("-c:v", "libx264", "-preset", "slow"), 0.05, 8, 0.4e6),
)

METHODS = (
    Method(STANDARD, "stdin.write(frame.tobytes()) on the calling thread"),
    Method("thread+queue", "the same on a Python thread, behind a queue of 10 frames"),
    Method("turbopipe", "TurboPipe from PyPI: pipe, and sync before a buffer is used again", "turbopipe"),
    Method("write", "write(2) on a native thread", "penstock", "write"),
    Method("staged", "copied to pages that the pipe then owns", "penstock", "staged"),
    Method(
        "staged-recycled",
        "staged, for a reader known to read: pages are used again once read",
        "penstock",
        "staged",
        "reads",
    ),
    Method("zero-copy", "the caller's own pages go into the pipe", "penstock", "zero-copy", "reads"),
    Method("auto", "what Penstock chooses for an FFmpeg that it started", "penstock", "auto", "reads"),
    Method(TMPFS, "the bound: FFmpeg reads the same frames from a file in tmpfs"),
)

QUICK_METHODS = (STANDARD, "turbopipe", "staged", "zero-copy", "auto", TMPFS)


def parse_size(text: str) -> Size:
    """A size from its name (``1080p``) or its pixels (``320x180``).

    Raises:
        ValueError: it is neither.
    """
    pixels = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if pixels:
        return Size(text, int(pixels[1]), int(pixels[2]))
    try:
        return by_name(SIZES, text)
    except ValueError as error:
        raise ValueError(f"{error}, nor is it WIDTHxHEIGHT") from None


@dataclass(frozen=True)
class Group:
    """The cases that are compared with each other."""

    size: Size
    encode: Encode
    buffers: int
    frames: int

    @property
    def nbytes(self) -> int:
        """Bytes sent by each case in each round."""
        return self.frames * self.size.frame_bytes

    @property
    def title(self) -> str:
        """For people."""
        plural = "buffer" if self.buffers == 1 else "buffers"
        return f"{self.size.name} to {self.encode.name}, {self.buffers} {plural}"

    @property
    def timeout_s(self) -> float:
        """After this long a case has hung. A minute is for a machine that is busy with something else."""
        return 60 + self.nbytes / self.encode.slowest_bytes_per_s


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are the rows that the goals are about; they take some minutes."""

    sizes: tuple[Size, ...] = SIZES
    encodes: tuple[Encode, ...] = ENCODES[:1]
    buffers: tuple[int, ...] = (4,)
    methods: tuple[Method, ...] = METHODS
    #: A second or so for the faster methods, so that FFmpeg's start (some 0.1 s) weighs little.
    bytes_per_case: int = 4 * 10**9
    rounds: int = 5
    #: Makes the noise and the order of the methods in each round, the same in every run.
    seed: int = 1
    check_content: bool = True
    ffmpeg: str = field(default="ffmpeg", compare=False)

    def groups(self) -> list[Group]:
        """The groups in the order in which they are run."""
        return [
            Group(size, encode, buffers, self.frames(size, encode))
            for encode in self.encodes
            for size in self.sizes
            for buffers in self.buffers
        ]

    def frames(self, size: Size, encode: Encode) -> int:
        """Frames that each case of this size sends."""
        wanted = math.ceil(self.bytes_per_case * encode.share / size.frame_bytes)
        return max(encode.minimum_frames, wanted)
