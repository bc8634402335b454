"""Checks the shape and dtype of frames for an `Encoder`. Errors say what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock._common.tensors import Contents, OnDevice, contents_of, memory_of
from penstock._encoding.frame_form import FLOAT_BYTES, PLAIN, FrameForm
from penstock._ffmpeg.command.pixel_formats import PIXEL_FORMATS, FrameLayout, frame_layout, is_packed

# Modes of PIL images whose samples are gray, RGB or RGBA.
_PIL_MODES = ("L", "RGB", "RGBA", "RGBX", "I;16", "F")
# Pixel formats for 1, 3 and 4 channels, by the bytes of a sample.
_BY_CHANNELS = {
    1: {1: "gray", 3: "rgb24", 4: "rgba"},
    2: {1: "gray16le", 3: "rgb48le", 4: "rgba64le"},
    4: {1: "grayf32le"},
}
# The same for floats. FFmpeg has no packed RGB of floats: the planes are green, blue, red and alpha.
_BY_CHANNELS_OF_FLOATS = {1: "grayf32le", 3: "gbrpf32le", 4: "gbrapf32le"}
_KEEPS_16_BITS = " (codec='ffv1' keeps all 16 bits)"


def frame_size(frame: Any, pixel_format: str, form: FrameForm = PLAIN) -> tuple[int, int]:
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
        wanted = " × ".join((str(channels), *sizes[:2]) if form.channels_first else sizes)
        got = "bytes" if samples is None or len(samples.shape) < 2 else samples.shape
        raise ValueError(
            f"the first frame of an encoder without size must have the shape {wanted}, not {got}. {remedy}"
        )
    height, width = samples.shape[-2:] if form.channels_first else _rows_and_columns(samples.shape)
    _check_shape(samples, _Wanted(frame_layout(pixel_format, width, height), 0, form))
    return width, height


def frame_buffer(frame: Any, layout: FrameLayout, number: int = 0, form: FrameForm = PLAIN) -> Any | OnDevice:
    """`frame` as an object with the buffer protocol, contiguous or not, rows first; or as one on a device, uncopied.

    If it has more than one dimension, its shape and dtype must be those of the layout and the form; axes of
    length 1 are ignored. The planes of planar formats may lie in rows as wide as the picture, as in OpenCV. If it has
    one dimension, only its size is checked, and the byte order if the dtype tells it; a form other than that of the
    layout needs a shape.

    Args:
        frame: a buffer (bytes, a NumPy array, a memoryview), a tensor, a PIL image, a ModernGL buffer.
        number: of frames that came before. With one, `layout` is also that of the first frame.
        form: floats or channels first, if frames differ from their layout.

    Raises:
        ValueError: it is not a frame of the layout. The message shows both, and what to write.
        TypeError: it is not a buffer.
    """
    _check_is_memory(frame)
    wanted = _Wanted(layout, number, form)
    if hasattr(frame, "mglo"):  # a moderngl.Buffer: a memoryview would map it and wait for the GPU
        if form != PLAIN:
            raise ValueError(
                f"a moderngl.Buffer can't be used with {form.arguments}. Leave {form.arguments} out"
            )
        _check_size(Contents("bytes", frame.size, (frame.size,), "uint", 1, False), wanted)
        return frame
    _check_layout(frame, layout)
    memory, samples = _samples(frame, layout)
    if form != PLAIN:
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
    if mode.startswith("RGB") and re.match("bgr|[a0](?:rgb|bgr)", layout.pixel_format):
        remedy = f". Pass pixel_format={'rgb24' if mode == 'RGB' else 'rgba'!r}"
    elif mode in _PIL_MODES:
        return
    elif wanted := _pil_mode(layout):
        remedy = f". Pass frame.convert({wanted!r})"
    raise ValueError(f"a PIL image of mode {mode!r} is not a {layout.pixel_format} frame{remedy}")


def _pil_mode(layout: FrameLayout) -> str | None:
    """The PIL mode for frames of the layout; None if there is none."""
    if layout.pixel_format not in PIXEL_FORMATS:
        return None
    channels = (*layout.planes[0], 1)[2] if len(layout.planes) == 1 else 0
    modes = {1: {1: "L", 3: "RGB", 4: "RGBA"}, 2: {1: "I;16"}, 4: {1: "F"}}
    return modes[layout.sample_bytes].get(channels)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a frame must be.

    Attributes:
        number: of frames that came before.
    """

    layout: FrameLayout
    number: int
    form: FrameForm

    @property
    def kind(self) -> str:
        """The kind of the samples."""
        return "float" if self.form.value_range is not None or self.layout.dtype[1] == "f" else "uint"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a packed frame."""
        rows, columns, *channels = self.layout.planes[0]
        return (*(channels or [1]), rows, columns) if self.form.channels_first else self.layout.planes[0]

    def has_dtype_of(self, samples: Contents) -> bool:
        """Whether a frame with these samples has the right dtype."""
        is_scaled = self.form.value_range is not None
        sizes = FLOAT_BYTES if is_scaled else (self.layout.sample_bytes,)
        return samples.kind == self.kind and samples.sample_bytes in sizes

    def __str__(self) -> str:
        if self.form == PLAIN:
            return str(self.layout)
        whole = f"{self.kind}{8 * self.layout.sample_bytes}"
        is_scaled = self.form.value_range is not None
        samples = f"float16, float32 or float64 in {self.form.value_range}" if is_scaled else whole
        return f"{self.shape} of {samples}"


def _samples(frame: Any, layout: FrameLayout) -> tuple[Any | OnDevice, Contents]:
    """The memory of `frame`, and what is in it."""
    _check_mode(frame, layout)
    memory = memory_of(frame)
    return memory, contents_of(frame, memory)


def _rows_first(memory: Any | OnDevice, samples: Contents, wanted: _Wanted) -> Any | OnDevice:
    """A frame of another form than its layout's as an array of rows."""
    _check_shape(samples, wanted)
    _check_dtype(samples, wanted)
    _check_byte_order(samples, wanted)
    if isinstance(memory, OnDevice):
        return replace(memory, turn=partial(_turned, wanted=wanted))
    return _turned(np.asarray(memory), wanted)


def _turned(frame: npt.NDArray[Any], wanted: _Wanted) -> npt.NDArray[Any]:
    array = frame.reshape(wanted.shape)  # which only moves axes of length 1
    if not wanted.form.channels_first:
        return array
    return array.transpose(1, 2, 0).reshape(wanted.layout.planes[0])


def _check_size(samples: Contents, wanted: _Wanted) -> None:
    layout = wanted.layout
    if samples.nbytes != layout.frame_bytes:
        channels, rest = divmod(prod(samples.shape), layout.width * layout.height)
        is_known = (
            not rest and samples.kind == "uint" and samples.sample_bytes <= 2 and len(layout.planes) == 1
        )
        remedy = _other_format(samples, channels, wanted) if is_known else None
        raise _wrong("wrong size of frame", samples, wanted, remedy)


def _check_shape(samples: Contents, wanted: _Wanted) -> None:
    if not _fits(samples.shape, wanted):
        raise _wrong("wrong shape of frame", samples, wanted, _remedy(samples, wanted))


def _wrong(what: str, samples: Contents, wanted: _Wanted, remedy: str | None) -> ValueError:
    """The error of a frame whose size, shape or dtype is wrong."""
    layout = wanted.layout
    size = f"{layout.width}x{layout.height}"
    which = f" {wanted.number}" if wanted.number else ""
    like_first = ", as of the first frame" if wanted.number else ""
    needed = f"{layout.pixel_format} frames of {size} pixels (width x height{like_first}) must be {wanted}"
    fix = f". {remedy[0].upper()}{remedy[1:]}" if remedy else ""
    return ValueError(f"{what}{which}: {needed}, not {samples}{fix}")


def _fits(shape: tuple[int, ...], wanted: _Wanted) -> bool:
    layout = wanted.layout
    samples = layout.frame_bytes // layout.sample_bytes
    if len(layout.planes) > 1:
        in_rows = (samples // layout.width, layout.width)
        one_by_one = (len(layout.planes), *layout.planes[0])
        return prod(shape) == samples and _squeezed(shape) in (_squeezed(in_rows), _squeezed(one_by_one))
    if wanted.form != PLAIN:
        return _squeezed(shape) == _squeezed(wanted.shape)
    rows, *row = layout.planes[0]
    return _squeezed(shape) in (_squeezed((rows, *row)), _squeezed((rows, prod(row))))


def _rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of an array that is a frame, has its channels first, or is a batch of frames."""
    channels = (1, 2, 3, 4)
    is_behind = len(shape) > 3 or (len(shape) == 3 and shape[0] in channels and shape[2] not in channels)
    height, width = shape[is_behind : is_behind + 2]
    return height, width


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _remedy(samples: Contents, wanted: _Wanted) -> str | None:
    """What to write for a frame of the wrong shape, so that its dtype is right, too; None if unknown."""
    layout, shape = wanted.layout, samples.shape
    if wanted.form.channels_first:
        if shape == layout.planes[0]:
            return "leave channels_first=True out"
        if len(shape) > 2:  # the remedies below are for rows first
            samples = replace(samples, shape=(*shape[:-3], *shape[-2:], shape[-3]))
    shape = _squeezed(samples.shape)
    if shape[:2] == (layout.height, layout.width) and len(shape) < 4:
        return _other_format(samples, shape[2] if len(shape) > 2 else 1, wanted)
    remedy = _reshape(samples, wanted) if len(layout.planes) == 1 else None
    if remedy is None or wanted.has_dtype_of(samples):
        return remedy
    return f"{remedy}, and {_dtype_remedy(samples, wanted)}"


def _other_format(samples: Contents, channels: int, wanted: _Wanted) -> str | None:
    """What to write for a frame with other channels than those of `layout`; None if unknown."""
    layout = wanted.layout
    if wanted.number:
        mode = _pil_mode(layout) if samples.owner == "PIL" else None
        return "convert it to the channels of the others" if mode is None else f"pass frame.convert({mode!r})"
    if samples.kind == "float" and layout.dtype[1] == "f":
        return _float_format(samples, channels, layout)
    is_known = samples.kind == "uint" and samples.sample_bytes <= 2
    sample_bytes = (
        samples.sample_bytes if is_known else layout.sample_bytes if layout.sample_bytes <= 2 else 1
    )
    found = _BY_CHANNELS[sample_bytes].get(channels)
    if found is None:
        return None
    if samples.owner == "PIL" and (mode := _pil_mode(layout)):
        return f"pass frame.convert({mode!r}), or pixel_format={found!r} to the Encoder"
    remedy = f"pass pixel_format={found!r}"
    if channels > 1:
        remedy += f" (or {found.replace('rgb', 'bgr')!r})"
    if len(layout.planes) > 1:
        remedy += f", and output_pixel_format={layout.pixel_format!r}"
    elif sample_bytes == 2:
        remedy += _KEEPS_16_BITS
    other = replace(wanted, layout=frame_layout(found, layout.width, layout.height))
    if not other.has_dtype_of(samples):
        remedy += f", and {_dtype_remedy(samples, other)}"
    return remedy


def _float_format(samples: Contents, channels: int, layout: FrameLayout) -> str | None:
    """What to write for packed floats, which no scaling to whole numbers keeps; None if unknown."""
    if (found := _BY_CHANNELS_OF_FLOATS.get(channels)) is None:
        return None
    remedies = [] if layout.pixel_format == found else [f"pass pixel_format={found!r}"]
    if channels > 1:
        planes = ", ".join(f"frame[..., {place}]" for place in (1, 2, 0, 3)[:channels])
        library = "torch" if samples.owner == "torch" else "np"
        remedies.append(f"pass {library}.stack([{planes}])")
    if samples.sample_bytes != layout.sample_bytes:
        remedies.append(_cast(samples, "float", layout.sample_bytes))
    return ", and ".join(remedies)


def _reshape(samples: Contents, wanted: _Wanted) -> str | None:
    """What to write to get the shape of a packed format; None if unknown."""
    layout, is_first = wanted.layout, not wanted.number
    shape, width, height = _squeezed(samples.shape), layout.width, layout.height
    channels = layout.planes[0][2:]
    if shape == (width, height, *channels):
        transposed = f"pass {_transpose_call(samples, '1, 0, 2' if channels else '1, 0')}"
        given = (
            f"pass size={(height, width)} to the Encoder, because size is (width, height), or {transposed}"
        )
        return given if is_first else transposed
    if channels and shape == (*channels, height, width):
        return "pass channels_first=True" if is_first else f"pass {_transpose_call(samples, '1, 2, 0')}"
    if channels and shape == (*channels, width, height):
        return f"pass {_transpose_call(samples, '2, 1, 0')}"
    if len(shape) == len(layout.planes[0]) + 1 and shape[1:] == layout.planes[0]:
        return f"write its {shape[0]} frames one by one"
    if shape[2:] == channels and len(shape) > 1:
        return (
            f"scale the frame, or pass size={(shape[1], shape[0])} to the Encoder"
            if is_first
            else "scale the frame"
        )
    return None


def _transpose_call(samples: Contents, axes: str) -> str:
    if samples.owner in ("PIL", "memoryview"):
        return f"np.asarray(frame).transpose({axes})"
    return f"frame.{'permute' if samples.owner == 'torch' else 'transpose'}({axes})"


def _check_dtype(samples: Contents, wanted: _Wanted) -> None:
    if not wanted.has_dtype_of(samples):
        raise _wrong("wrong dtype of frame", samples, wanted, _dtype_remedy(samples, wanted))


def _dtype_remedy(samples: Contents, wanted: _Wanted) -> str:
    """What to write to get the right dtype."""
    layout, number = wanted.layout, wanted.number
    cast = _cast(samples, wanted.kind, layout.sample_bytes)
    most = 256**layout.sample_bytes - 1
    scaled = f"scale the values to the range 0 to {most}, and pass frame{cast}"
    if wanted.form.value_range is not None:
        to_floats = f"pass frame{_cast(samples, 'float', 4)}"
        is_whole = samples.kind == "uint" and samples.sample_bytes == layout.sample_bytes and not number
        return f"leave value_range out, or {to_floats}" if is_whole else to_floats
    if wanted.kind == "float":
        return f"scale the values to the range 0 to 1, and pass frame{cast}"
    if samples.kind == "float":
        is_scalable = samples.sample_bytes in FLOAT_BYTES and len(layout.planes) == 1 and not number
        return "pass value_range=(0.0, 1.0) or (-1.0, 1.0) to the Encoder" if is_scalable else scaled
    if samples.kind == "bool":
        return f"pass frame{cast} * {most}"
    is_known = samples.kind == "uint" and samples.sample_bytes in (1, 2)
    if is_known and number:
        return scaled
    if is_known and (other := _sibling(samples, layout)):
        keeps = _KEEPS_16_BITS if samples.sample_bytes == 2 else ""
        return f"pass pixel_format={other!r} to the Encoder{keeps}, or {scaled}"
    return f"pass frame{cast} if its values are from 0 to {most}"


def _cast(samples: Contents, kind: str, sample_bytes: int) -> str:
    """The call that converts to that dtype."""
    name = f"{kind}{8 * sample_bytes}"
    return f".to(torch.{name})" if samples.owner == "torch" else f".astype(np.{name})"


def _sibling(samples: Contents, layout: FrameLayout) -> str | None:
    """The pixel format that differs only in the bytes of a sample."""
    if len(layout.planes) > 1:
        return None
    return _BY_CHANNELS[samples.sample_bytes].get((*layout.planes[0], 1)[2])


def _check_byte_order(samples: Contents, wanted: _Wanted) -> None:
    """Refuses samples whose dtype tells the other byte order: their bytes would be read as other colors."""
    layout = wanted.layout
    if samples.is_big_endian and wanted.form.value_range is not None:
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
