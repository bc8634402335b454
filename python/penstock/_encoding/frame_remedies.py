"""What to write in place of a first frame that an `Encoder` refuses: tables of remedies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from penstock._common.tensors import Contents
from penstock._encoding.input_layout import FLOAT_BYTES, PLAIN, InputLayout
from penstock._ffmpeg.command.pixel_formats import FrameLayout, frame_layout
from penstock._formats.pixel_formats import PIXEL_FORMATS, blue_first, of_channels

# Modes of PIL images.
_PIL_MODES = {1: {1: "L", 3: "RGB", 4: "RGBA"}, 2: {1: "I;16"}, 4: {1: "F"}}

_SCALED = "scale the values to the range 0 to {most}, and pass {cast}"
# What to write for a frame that has the samples of the second kind in place of the first.
_DTYPES = {
    ("uint", "sibling"): "pass pixel_format={sibling!r} to the Encoder, or " + _SCALED,
    ("uint", "float"): "pass value_range=(0.0, 1.0) or (-1.0, 1.0) to the Encoder",
    ("uint", "other float"): _SCALED,
    ("uint", "bool"): "pass {cast} * {most}",
    ("uint", "other"): "pass {cast} if its values are from 0 to {most}",
    ("float", "float"): "pass {cast}",
    ("float", "other float"): "pass {cast}",
    ("float", "other"): "scale the values to the range 0 to 1, and pass {cast}",
    ("scaled", "same"): "leave value_range out, or pass {cast}",
    ("scaled", "other"): "pass {cast}",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a frame must be.

    Attributes:
        number: of frames that came before.
    """

    layout: FrameLayout
    number: int
    input_layout: InputLayout

    @property
    def kind(self) -> str:
        """The kind of the samples."""
        return "float" if self.input_layout.value_range is not None or self.layout.dtype[1] == "f" else "uint"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a packed frame."""
        rows, columns, *channels = self.layout.planes[0]
        return (
            (*(channels or [1]), rows, columns) if self.input_layout.channels_first else self.layout.planes[0]
        )

    def has_dtype_of(self, samples: Contents) -> bool:
        """Whether a frame with these samples has the right dtype."""
        is_scaled = self.input_layout.value_range is not None
        sizes = FLOAT_BYTES if is_scaled else (self.layout.sample_bytes,)
        return samples.kind == self.kind and samples.sample_bytes in sizes

    def __str__(self) -> str:
        if self.input_layout == PLAIN:
            return str(self.layout)
        whole = f"{self.kind}{8 * self.layout.sample_bytes}"
        is_scaled = self.input_layout.value_range is not None
        samples = f"float16, float32 or float64 in {self.input_layout.value_range}" if is_scaled else whole
        return f"{self.shape} of {samples}"


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its axes of length 1."""
    return tuple(length for length in shape if length != 1)


def pil_mode(layout: FrameLayout) -> str | None:
    """The PIL mode for frames of the layout; None if there is none."""
    if layout.pixel_format not in PIXEL_FORMATS or len(layout.planes) > 1:
        return None
    return _PIL_MODES[layout.sample_bytes].get((*layout.planes[0], 1)[2])


def dtype_remedy(samples: Contents, wanted: Wanted) -> str:
    """What to write for a frame whose dtype is wrong."""
    layout = wanted.layout
    is_packed, is_scaled = len(layout.planes) == 1, wanted.input_layout.value_range is not None
    sibling = None
    if is_packed and samples.kind == "uint" and samples.sample_bytes < 4:
        sibling = of_channels((*layout.planes[0], 1)[2], samples.sample_bytes)
    kind = samples.kind
    if kind == "float" and not (is_packed and samples.sample_bytes in FLOAT_BYTES):
        kind = "other float"
    if sibling is not None:
        kind = "same" if samples.sample_bytes == layout.sample_bytes else "sibling"
    need = "scaled" if is_scaled else wanted.kind
    words = _DTYPES.get((need, kind), _DTYPES[need, "other"])
    dtype = f"{wanted.kind}{8 * (4 if is_scaled else layout.sample_bytes)}"
    cast = f"to(torch.{dtype})" if samples.owner == "torch" else f"astype(np.{dtype})"
    return words.format(sibling=sibling, most=256**layout.sample_bytes - 1, cast=f"frame.{cast}")


def size_remedy(samples: Contents, wanted: Wanted) -> str | None:
    """What to write for bytes of another size; None if unknown."""
    channels, rest = divmod(prod(samples.shape), wanted.layout.width * wanted.layout.height)
    is_known = samples.kind == "uint" and samples.sample_bytes <= 2 and len(wanted.layout.planes) == 1
    return _format_remedy(samples, channels, wanted) if is_known and not rest else None


def shape_remedy(samples: Contents, wanted: Wanted) -> str | None:
    """What to write for a frame of the wrong shape, so that its dtype is right, too; None if unknown."""
    layout, shape = wanted.layout, samples.shape
    if wanted.input_layout.channels_first:
        if shape == layout.planes[0]:
            return "leave channels_first=True out"
        if len(shape) > 2:  # the remedies below are for rows first
            shape = (*shape[:-3], *shape[-2:], shape[-3])
    shape = squeezed(shape)
    if shape[:2] == (layout.height, layout.width) and len(shape) < 4:
        return _format_remedy(samples, (*shape, 1)[2], wanted)
    remedy = _order_remedy(samples, shape, layout) if len(layout.planes) == 1 else None
    return remedy and _and_dtype(remedy, samples, wanted)


def _order_remedy(samples: Contents, shape: tuple[int, ...], layout: FrameLayout) -> str | None:
    """What to write for a frame with other axes, or in another order; None if unknown."""
    height, width, *channels = layout.planes[0]
    turned = f"pass frame.{'permute' if samples.owner == 'torch' else 'transpose'}"
    swapped = f"because size is (width, height), or {turned}({'1, 0, 2' if channels else '1, 0'})"
    # The last one counts if two shapes are the same.
    orders = {
        (*channels, width, height): f"{turned}(2, 1, 0)",
        (*channels, height, width): "pass channels_first=True",
        (width, height, *channels): f"pass size={(height, width)} to the Encoder, {swapped}",
    }
    if shape in orders:
        return orders[shape]
    if shape[1:] == layout.planes[0]:
        return f"write its {shape[0]} frames one by one"
    if len(shape) > 1 and [*shape[2:]] == channels:
        return f"scale the frame, or pass size={(shape[1], shape[0])} to the Encoder"
    return None


def _format_remedy(samples: Contents, channels: int, wanted: Wanted) -> str | None:
    """What to write for a picture of the right size with other channels; None if unknown."""
    layout, are_floats = wanted.layout, samples.kind == "float" and wanted.layout.dtype[1] == "f"
    known = samples if samples.kind == "uint" and samples.sample_bytes <= 2 else layout
    found = of_channels(channels, None if are_floats else min(known.sample_bytes, 2))
    if found is None:
        return None
    if samples.owner == "PIL" and (mode := pil_mode(layout)):
        return f"pass frame.convert({mode!r}), or pixel_format={found!r} to the Encoder"
    remedies = [] if found == layout.pixel_format else [f"pass pixel_format={found!r}"]
    if are_floats and channels > 1:
        planes = ", ".join(f"frame[..., {place}]" for place in (1, 2, 0, 3)[:channels])
        remedies.append(f"pass {'torch' if samples.owner == 'torch' else 'np'}.stack([{planes}])")
    elif channels > 1:
        remedies[0] += f" (or {blue_first(found)!r})"
    if not are_floats and len(layout.planes) > 1:
        remedies.append(f"output_pixel_format={layout.pixel_format!r}")
    if not are_floats:
        wanted = replace(wanted, layout=frame_layout(found, layout.width, layout.height))
    return _and_dtype(", and ".join(remedies), samples, wanted)


def _and_dtype(remedy: str, samples: Contents, wanted: Wanted) -> str:
    return remedy if wanted.has_dtype_of(samples) else f"{remedy}, and {dtype_remedy(samples, wanted)}"
