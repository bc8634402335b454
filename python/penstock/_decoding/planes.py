"""How the planes of libav's frames lie in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError
from av.video.frame import VideoFrame

if TYPE_CHECKING:
    from av.video.frame import VideoFrame as LibavFrame

# FFmpeg's palette behind the pixels of pal8: 256 colors of 4 bytes.
_PALETTE_BYTES = 1024


def plane_rows(frame: LibavFrame) -> Sequence[tuple[int, int]]:
    """The number of rows of each plane, and the bytes of a row that hold pixels."""
    planes, row_bytes = frame.planes, _row_bytes(frame)
    heights = [plane.height for plane in planes]
    if frame.format.has_palette:
        # The palette is one row, whatever libav says of its height.
        heights[1] = 1
    return [*zip(heights, row_bytes, strict=True)]


def blank_rows(width: int, height: int, pixel_format: str) -> Sequence[tuple[int, int]]:
    """The same for any frame of a size and a pixel format.

    Raises:
        ValueError: libav can't have such a frame in memory.
    """
    try:
        return plane_rows(VideoFrame(width, height, pixel_format))
    except LibavError as error:
        raise too_large(width, height, pixel_format) from error
    except ValueError:
        raise ValueError(
            f"{pixel_format} frames are in GPU memory and can't be delivered. Use nv12, for example"
        ) from None


def too_large(width: int, height: int, pixel_format: str) -> ValueError:
    """The error for a frame that FFmpeg can't write or filter."""
    return ValueError(
        f"a frame of {width}x{height} pixels in {pixel_format} is beyond FFmpeg's limit of 2 GiB. Pass a smaller size"
    )


def are_same(frame: LibavFrame, other: LibavFrame) -> bool:
    """Whether two frames have the same pixels."""
    return plane_rows(frame) == plane_rows(other) and all(map(np.array_equal, _pixels(frame), _pixels(other)))


def _pixels(frame: LibavFrame) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of each plane, without what lies between its rows."""
    for plane, (rows, row_bytes) in zip(frame.planes, plane_rows(frame), strict=True):
        memory = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]
        yield memory[:row_bytes] if rows == 1 else memory.reshape(-1, plane.line_size)[:rows, :row_bytes]


def _row_bytes(frame: LibavFrame) -> list[int]:
    if frame.format.has_palette:
        return [frame.width, _PALETTE_BYTES]
    if len(frame.planes) == 1:
        return [math.ceil(frame.format.padded_bits_per_pixel * frame.width / 8)]
    components = frame.format.components
    return [
        plane.width * sum(math.ceil(one.bits / 8) for one in components if one.plane == index)
        for index, plane in enumerate(frame.planes)
    ]
