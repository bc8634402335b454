"""Decides whether an object is a frame for an `Encoder`, by its shape, dtype and size."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock._common.tensors import Contents, OnDevice, contents_of, memory_of
from penstock._encoding.frame_remedies import (
    Wanted,
    dtype_remedy,
    pil_mode,
    shape_remedy,
    size_remedy,
    squeezed,
)
from penstock._encoding.input_layout import PLAIN, InputLayout
from penstock._ffmpeg.command.pixel_formats import FrameLayout, frame_layout
from penstock._formats.pixel_formats import PIXEL_FORMATS, is_packed, is_reordered, of_channels

# Modes of PIL images whose samples are gray, RGB or RGBA.
_PIL_MODES = ("L", "RGB", "RGBA", "RGBX", "I;16", "F")


def frame_size(frame: Any, pixel_format: str, input_layout: InputLayout = PLAIN) -> tuple[int, int]:
    """Width and height of `frame` by its shape."""
    _check_is_memory(frame)
    remedy = "Pass size=(width, height) to the Encoder"
    if not is_packed(pixel_format):
        raise ValueError(f"the shape of a {pixel_format} frame doesn't tell its size. {remedy}")
    pixel = frame_layout(pixel_format, 1, 1)
    samples = None if hasattr(frame, "mglo") else _samples(frame, pixel)[1]
    if samples is None or len(samples.shape) < 2 or 0 in samples.shape:
        channels = (*pixel.planes[0], 1)[2]
        sizes = ("height", "width", *map(str, pixel.planes[0][2:]))
        wanted = " × ".join((str(channels), *sizes[:2]) if input_layout.channels_first else sizes)
        got = "bytes" if samples is None or len(samples.shape) < 2 else samples.shape
        raise ValueError(
            f"the first frame of an encoder without size must have the shape {wanted}, not {got}. {remedy}"
        )
    height, width = samples.shape[-2:] if input_layout.channels_first else _rows_and_columns(samples.shape)
    _check_shape(samples, Wanted(frame_layout(pixel_format, width, height), 0, input_layout))
    return width, height


def frame_buffer(
    frame: Any, layout: FrameLayout, number: int = 0, input_layout: InputLayout = PLAIN
) -> Any | OnDevice:
    """`frame` as an object with the buffer protocol, contiguous or not, rows first; or as one on a device, uncopied.

    If it has more than one dimension, its shape and dtype must be those of the layout and the form; axes of
    length 1 are ignored. The planes of planar formats may lie in rows as wide as the picture, as in OpenCV. If it has
    one dimension, only its size is checked, and the byte order if the dtype tells it; a form other than that of the
    layout needs a shape.

    Args:
        frame: a buffer (bytes, a NumPy array, a memoryview), a tensor, a PIL image, a ModernGL buffer.
        number: of frames that came before. With one, `layout` is also that of the first frame.
        input_layout: floats or channels first, if frames differ from their layout.

    Raises:
        ValueError: it is not a frame of the layout. The message shows both, and what to write.
        TypeError: it is not a buffer.
    """
    _check_is_memory(frame)
    wanted = Wanted(layout, number, input_layout)
    if hasattr(frame, "mglo"):  # a moderngl.Buffer: a memoryview would map it and wait for the GPU
        if input_layout != PLAIN:
            raise ValueError(
                f"a moderngl.Buffer can't be used with {input_layout.arguments}. Leave {input_layout.arguments} out"
            )
        _check_size(Contents("bytes", frame.size, (frame.size,), "uint", 1, False), wanted)
        return frame
    _check_layout(frame, layout)
    memory, samples = _samples(frame, layout)
    if input_layout != PLAIN:
        return _rows_first(memory, samples, wanted)
    if len(samples.shape) > 1 and layout.pixel_format in PIXEL_FORMATS:
        _check_shape(samples, wanted)
        _check_dtype(samples, wanted)
    _check_size(samples, wanted)
    _check_byte_order(samples, wanted)
    return memory


def _check_is_memory(frame: Any) -> None:
    """Refuses ModernGL's objects that are no buffers."""
    if not hasattr(frame, "read_into"):
        return
    if hasattr(frame, "viewport"):
        raise TypeError(
            "a framebuffer is not a frame. Use penstock.gl.Capture(framebuffer, encoder), or "
            "framebuffer.read_into(view) with encoder.lease() as view"
        )
    if hasattr(frame, "mglo") and not isinstance(frame.size, int):
        raise TypeError("a texture is not a frame. Use texture.read_into(view) with encoder.lease() as view")


def _check_layout(frame: Any, layout: FrameLayout) -> None:
    """Refuses a decoded frame of another planar format with the same size in bytes, such as nv12 for yuv420p."""
    own = getattr(frame, "_layout", None)
    if isinstance(own, FrameLayout) and len(own.planes) > 1 and own.pixel_format != layout.pixel_format:
        raise ValueError(
            f"the frame must be {layout.pixel_format}, as the encoder expects, not {own.pixel_format}. Pass "
            f"pixel_format={own.pixel_format!r} to the Encoder"
        )


def _check_mode(frame: Any, layout: FrameLayout) -> None:
    """Refuses PIL images with the right number of samples but other colors: YCbCr, a palette, RGB for BGR."""
    mode = getattr(frame, "mode", None)
    if not hasattr(frame, "convert") or not isinstance(mode, str):
        return
    remedy = ""
    if mode.startswith("RGB") and is_reordered(layout.pixel_format):
        remedy = f". Pass pixel_format={of_channels(len(mode), 1)!r}"
    elif mode in _PIL_MODES:
        return
    elif wanted := pil_mode(layout):
        remedy = f". Pass frame.convert({wanted!r})"
    raise ValueError(f"a PIL image of mode {mode!r} is not a {layout.pixel_format} frame{remedy}")


def _samples(frame: Any, layout: FrameLayout) -> tuple[Any | OnDevice, Contents]:
    """The memory of `frame`, and what is in it."""
    _check_mode(frame, layout)
    memory = memory_of(frame)
    return memory, contents_of(frame, memory)


def _rows_first(memory: Any | OnDevice, samples: Contents, wanted: Wanted) -> Any | OnDevice:
    """A frame of another form than its layout's as an array of rows."""
    _check_shape(samples, wanted)
    _check_dtype(samples, wanted)
    _check_byte_order(samples, wanted)
    if isinstance(memory, OnDevice):
        return replace(memory, turn=partial(_turned, wanted=wanted))
    return _turned(np.asarray(memory), wanted)


def _turned(frame: npt.NDArray[Any], wanted: Wanted) -> npt.NDArray[Any]:
    array = frame.reshape(wanted.shape)  # which only moves axes of length 1
    if not wanted.input_layout.channels_first:
        return array
    return array.transpose(1, 2, 0).reshape(wanted.layout.planes[0])


def _check_size(samples: Contents, wanted: Wanted) -> None:
    if samples.nbytes != wanted.layout.frame_bytes:
        raise _wrong("wrong size of frame", samples, wanted, size_remedy(samples, wanted))


def _check_shape(samples: Contents, wanted: Wanted) -> None:
    if not _fits(samples.shape, wanted):
        raise _wrong("wrong shape of frame", samples, wanted, shape_remedy(samples, wanted))


def _wrong(what: str, samples: Contents, wanted: Wanted, remedy: str | None) -> ValueError:
    """The error of a frame whose size, shape or dtype is wrong."""
    layout = wanted.layout
    size = f"{layout.width}x{layout.height}"
    which = f" {wanted.number}" if wanted.number else ""
    like_first = ", as of the first frame" if wanted.number else ""
    needed = f"{layout.pixel_format} frames of {size} pixels (width x height{like_first}) must be {wanted}"
    # Later frames must be as the first one was, and an argument for this one would be wrong for that one.
    fix = f". {remedy[0].upper()}{remedy[1:]}" if remedy and not wanted.number else ""
    return ValueError(f"{what}{which}: {needed}, not {samples}{fix}")


def _fits(shape: tuple[int, ...], wanted: Wanted) -> bool:
    layout = wanted.layout
    samples = layout.frame_bytes // layout.sample_bytes
    if len(layout.planes) > 1:
        # All planes below each other, as OpenCV has them; or one array a plane, where all planes are of one size.
        in_rows = (samples // layout.width, layout.width)
        one_by_one = (len(layout.planes), *layout.planes[0])
        return prod(shape) == samples and squeezed(shape) in (squeezed(in_rows), squeezed(one_by_one))
    if wanted.input_layout != PLAIN:
        return squeezed(shape) == squeezed(wanted.shape)
    rows, *row = layout.planes[0]
    return squeezed(shape) in (squeezed((rows, *row)), squeezed((rows, prod(row))))


def _rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of an array that is a frame, has its channels first, or is a batch of frames."""
    channels = (1, 2, 3, 4)
    is_behind = len(shape) > 3 or (len(shape) == 3 and shape[0] in channels and shape[2] not in channels)
    height, width = shape[is_behind : is_behind + 2]
    return height, width


def _check_dtype(samples: Contents, wanted: Wanted) -> None:
    if not wanted.has_dtype_of(samples):
        raise _wrong("wrong dtype of frame", samples, wanted, dtype_remedy(samples, wanted))


def _check_byte_order(samples: Contents, wanted: Wanted) -> None:
    """Refuses samples whose dtype tells the other byte order: their bytes would be read as other colors."""
    layout = wanted.layout
    if samples.is_big_endian and wanted.input_layout.value_range is not None:
        code = f"<f{samples.sample_bytes}"
        raise ValueError(
            f"the frame's floats must be little-endian, not big-endian. Pass frame.astype({code!r})"
        )
    if samples.is_big_endian and layout.sample_bytes > 1:
        code = layout.dtype
        raise ValueError(
            f"the frame's samples must be little-endian for {layout.pixel_format}, not big-endian. "
            f"Pass frame.astype({code!r})"
        )
    if layout.pixel_format.endswith("be") and samples.sample_bytes > 1 and not samples.is_big_endian:
        code = f">{'f' if samples.kind == 'float' else 'u'}{samples.sample_bytes}"
        raise ValueError(
            f"the frame's samples must be big-endian for {layout.pixel_format}, not little-endian. Pass "
            f"pixel_format={layout.pixel_format[:-2] + 'le'!r} to the Encoder, or frame.astype({code!r})"
        )
