"""Frames that libav has decoded, as a `Decoder` delivers them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError
from av.filter import Graph

from penstock._native import _Slot, _SlotPool
from penstock.errors import DecoderError
from penstock.media.decode_plan import DecodePlan
from penstock.media.facts import RANGES, matrix_name

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_KEPT_SLOTS = 4
# FFmpeg's palette behind the pixels of pal8: 256 colours of 4 bytes.
_PALETTE_BYTES = 1024


class Pixels:
    """Makes the bytes of a `Decoder`'s frames from libav's: by the same filters, and the same native conversion."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan, self._conversion = plan, plan.whole_conversion()
        self._size = plan.layout.width, plan.layout.height
        self._slots = _SlotPool(plan.layout.frame_bytes, _KEPT_SLOTS)
        # Frames of a file differ in the middle at the most: each kind has its own graph.
        self._graphs: dict[tuple[Any, ...], Graph] = {}

    def slot(self, frame: VideoFrame) -> _Slot:
        """The bytes of a frame, as it is delivered."""
        return self._slots.filled(_samples(self._filtered(frame)), self._conversion)

    def _filtered(self, frame: VideoFrame) -> VideoFrame:
        """The frame turned, scaled, and in the pixel format that FFmpeg would write."""
        is_as_delivered = (
            (frame.width, frame.height) == self._size
            and frame.format.name == self._plan.delivered
            and (self._conversion is None or self._has_colors_of_first(frame))
        )
        if is_as_delivered and not self._plan.turns:
            return frame
        kind = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range)
        try:
            if kind not in self._graphs:
                self._graphs[kind] = self._graph(frame, [*self._plan.turns, *self._plan.filters])
            graph = self._graphs[kind]
            graph.vpush(frame)
            return graph.vpull()
        except LibavError as error:
            raise DecoderError(f"libav cannot convert {frame.format.name}: {error.strerror}") from error

    def _has_colors_of_first(self, frame: VideoFrame) -> bool:
        video = self._plan.video
        told = matrix_name(frame.colorspace), RANGES.get(frame.color_range)
        return told == (video.color_matrix, video.color_range)

    def _graph(self, frame: VideoFrame, filters: list[str]) -> Graph:
        graph = Graph()
        graph.threads = 1  # without threads of its own, it can be freed in the child of a fork
        # With the colours, which `add_buffer` does not tell: libav would convert from unspecified ones.
        source = graph.add(
            "buffer",
            video_size=f"{frame.width}x{frame.height}",
            pix_fmt=frame.format.name,
            time_base=str(self._plan.video.time_base),
            colorspace=str(int(frame.colorspace)),
            range=str(int(frame.color_range)),
        )
        nodes = [graph.add(*one.split("=", 1)) for one in filters]
        graph.link_nodes(source, *nodes, graph.add("buffersink")).configure()
        return graph


def _samples(frame: VideoFrame) -> npt.NDArray[np.uint8]:
    """The bytes of a frame without padding, plane after plane."""
    planes = [
        np.frombuffer(cast("Any", plane), np.uint8)[: plane.height * plane.line_size].reshape(
            plane.height, -1
        )
        for plane in frame.planes
    ]
    if frame.format.has_palette:
        planes[1] = np.frombuffer(cast("Any", frame.planes[1]), np.uint8)[np.newaxis, :_PALETTE_BYTES]
    rows = [plane[:, :row_bytes] for plane, row_bytes in zip(planes, _row_bytes(frame), strict=True)]
    return rows[0] if len(rows) == 1 else np.concatenate([plane.reshape(-1) for plane in rows])


def _row_bytes(frame: VideoFrame) -> list[int]:
    """Of each plane, the bytes of a row that hold pixels."""
    if frame.format.has_palette:
        return [frame.width, _PALETTE_BYTES]
    if len(frame.planes) == 1:
        return [math.ceil(frame.format.padded_bits_per_pixel * frame.width / 8)]
    components = frame.format.components
    return [
        plane.width * sum(math.ceil(one.bits / 8) for one in components if one.plane == index)
        for index, plane in enumerate(frame.planes)
    ]
