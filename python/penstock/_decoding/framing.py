"""What of a picture is delivered, how large, and in which form: its crop, its fit, and the samples of its array."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from av.video.format import VideoFormat
from av.video.format import names as video_formats  # type: ignore[attr-defined]

from penstock._common.messages import argument
from penstock._ffmpeg.command.arguments import checked_size
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT, FrameLayout
from penstock._formats.pixel_formats import has_alpha, is_gray, is_rgb, with_full_chroma
from penstock._native import _Delivery

if TYPE_CHECKING:
    from penstock._decoding.options import DecodeOptions


_ORDER = "<" if sys.byteorder == "little" else ">"


@dataclass(frozen=True, slots=True)
class Framing:
    """Where the delivered pixels lie in a picture.

    Attributes:
        own: size of the whole, upright picture.
        crop: left, top, width and height of the part that is used.
        scaled: size that this part is scaled to.
        size: size of the delivered frame: a part of that, or with a border.
    """

    own: tuple[int, int]
    crop: tuple[int, int, int, int]
    scaled: tuple[int, int]
    size: tuple[int, int]

    @classmethod
    def of(cls, own: tuple[int, int], options: DecodeOptions) -> Framing:
        """The framing of pictures of the size `own`.

        Raises:
            ValueError: the crop is outside of the picture, or the fit needs a width and a height.
        """
        crop, size = options.crop or (0, 0, *own), options.size
        left, top, width, height = crop
        if left + width > own[0] or top + height > own[1]:
            raise ValueError(
                f"{argument('crop', crop)} is outside of the upright picture, which has {own[0]}x{own[1]} pixels. "
                f"Pass {argument('crop', (0, 0, *own))} at most"
            )
        if options.fit != "stretch" and (size is None or None in size):
            raise ValueError(
                f"{argument('fit', options.fit)} needs a width and a height. Pass {argument('size', (224, 224))}"
            )
        delivered = _delivered_size((width, height), size)
        scaled = delivered
        if options.fit != "stretch":
            # The picture covers the frame if it is as large in both directions, and fits in if it is as small.
            choose = max if options.fit == "cover" else min
            factor = choose(Fraction(delivered[0], width), Fraction(delivered[1], height))
            scaled = max(1, round(width * factor)), max(1, round(height * factor))
        return cls(own, crop, scaled, delivered)

    @property
    def is_plain(self) -> bool:
        """Whether the whole picture is scaled to the delivered size."""
        return self.crop == (0, 0, *self.own) and self.scaled == self.size

    @property
    def is_scaled(self) -> bool:
        """Whether the pixels are others than those of the file."""
        return self.scaled != self.crop[2:]

    @property
    def made(self) -> tuple[int, int]:
        """Size of the picture without a border."""
        return min(self.scaled[0], self.size[0]), min(self.scaled[1], self.size[1])

    @property
    def border(self) -> tuple[int, int]:
        """How many pixels of a border are left of the picture, and above."""
        return (self.size[0] - self.made[0]) // 2, (self.size[1] - self.made[1]) // 2

    def is_between_chroma(self, pixel_format: str) -> bool:
        """Whether the crop divides pixels that share a chroma sample."""
        if not pixel_format:
            return False
        across, down = chroma_steps(pixel_format)
        left, top, width, height = self.crop
        is_at_end = left + width == self.own[0], top + height == self.own[1]
        return bool(
            left % across
            or top % down
            or (width % across and not is_at_end[0])
            or (height % down and not is_at_end[1])
        )

    def scale_filters(self, stored: str, *, repeats_chroma: bool) -> list[str]:
        """FFmpeg's filters that scale an upright picture of a pixel format, or its crop. The last one is `scale`.

        Args:
            repeats_chroma: without a change of the size, all pixels of a chroma sample get its value.
        """
        scale = f"scale={self.scaled[0]}:{self.scaled[1]}"
        # Usually a no-op, but a video may change its size in the middle.
        own, crop = f"scale={self.own[0]}:{self.own[1]}", self._crop_filters
        is_between = self.is_between_chroma(stored)
        if not self.is_scaled:
            return [f"{own}:flags=neighbor" if is_between and repeats_chroma else own]
        full = _full_chroma(stored) if crop and is_between else None
        if full is not None:
            return [f"{own}:flags=neighbor", f"format={full}", *crop, scale]
        return [own, *crop, scale] if crop else [scale]

    @property
    def _crop_filters(self) -> list[str]:
        left, top, width, height = self.crop
        is_whole = self.crop == (0, 0, *self.own)
        return [] if is_whole else [f"crop={width}:{height}:{left}:{top}:exact=1"]

    def cut_filters(self, delivered: str) -> list[str]:
        """FFmpeg's filters that cut the frame out of the scaled picture, of which that pixel format is delivered."""
        # Behind the conversion, the pixels of a crop are those of the whole picture.
        crop = [] if self.is_scaled else self._crop_filters
        if self.made == self.scaled:
            return crop
        steps = chroma_steps(delivered)
        # At a whole chroma sample: FFmpeg's filter can't cut through one.
        left, top = (
            (scaled - made) // 2 // step * step
            for scaled, made, step in zip(self.scaled, self.made, steps, strict=True)
        )
        return [*crop, f"crop={self.made[0]}:{self.made[1]}:{left}:{top}:exact=1"]


@dataclass(frozen=True, slots=True)
class DeliveredLayout(FrameLayout):
    """The layout of an array that is made of a frame in its pixel format.

    Attributes:
        sample_type: NumPy's name of a sample's type.
    """

    sample_type: str

    @property
    def dtype(self) -> str:
        """NumPy's name of a sample's type."""
        return self.sample_type


@dataclass(frozen=True, slots=True)
class Delivery:
    """Makes the array that is delivered of a frame in its pixel format.

    Attributes:
        made: layout of that frame.
        layout: layout of the array.
        border: pixels of a border left of the picture, and above.
        fill: samples of the border.
    """

    made: FrameLayout
    layout: DeliveredLayout
    border: tuple[int, int]
    fill: tuple[float, ...]
    channels_first: bool
    value_range: tuple[float, float] | None

    @classmethod
    def of(cls, made: FrameLayout, framing: Framing, options: DecodeOptions) -> Delivery | None:
        """What the options ask for beyond frames in the layout `made`; None if that is nothing.

        Raises:
            ValueError: the pixel format can't have it.
        """
        has_border = framing.size != framing.made or options.fit == "contain"
        if not (has_border or options.channels_first or options.value_range):
            return None
        name = made.pixel_format
        is_packed = len(made.planes) == 1 and (is_rgb(name) or is_gray(name)) and made.dtype[1] == "u"
        if options.is_source_format or not is_packed:
            given = {
                "channels_first": options.channels_first,
                "value_range": options.value_range,
                "fit": options.fit,
            }
            asked = next(argument(*one) for one in given.items() if one[1] not in (False, None, "stretch"))
            shown = "source" if options.is_source_format else name
            raise ValueError(
                f"{asked} needs packed RGB or gray of 8 or 16 bits, not {argument('pixel_format', shown)}. Pass "
                f"{argument('pixel_format', DEFAULT_FORMAT)}"
            )
        channels = made.planes[0][2] if len(made.planes[0]) == 3 else 1
        width, height = framing.size
        shape: tuple[int, ...] = (height, width) if len(made.planes[0]) == 2 else (height, width, channels)
        if options.channels_first:
            shape = (channels, height, width)
        sample = made.dtype if options.dtype is None else f"{_ORDER}{np.dtype(options.dtype).str[1:]}"
        sample_bytes = np.dtype(sample).itemsize
        layout = DeliveredLayout(
            *(name, width, height, (shape,), sample_bytes, sample_bytes * channels * width * height),
            sample_type=sample,
        )
        fill = _fill(options.fill, name, channels, (1 << 8 * made.sample_bytes) - 1)
        return cls(made, layout, framing.border, fill, options.channels_first, options.value_range)

    def native(self) -> _Delivery:
        """Makes the arrays."""
        # The native code takes samples by their bytes, in the order of this machine or another.
        fill = np.array(self.fill, self.made.dtype).view(f"<u{self.made.sample_bytes}")
        return _Delivery(
            picture=(self.made.width, self.made.height),
            channels=len(self.fill),
            size=(self.layout.width, self.layout.height),
            border=self.border,
            fill=fill.tolist(),
            channels_first=self.channels_first,
            values=_values(self.made.dtype, self.layout.dtype, self.value_range),
            sample_bytes=self.made.sample_bytes,
        )


@cache
def _values(made: str, delivered: str, value_range: tuple[float, float] | None) -> bytes:
    """What each sample becomes, by its bytes: the float nearest to what it stands for, rounded once, from 64 bits."""
    sample_bytes = np.dtype(made).itemsize
    most = (1 << 8 * sample_bytes) - 1
    numbers = np.arange(most + 1).astype(f"<u{sample_bytes}").view(made).astype(np.int64)
    if value_range is None:
        return numbers.astype(delivered).tobytes()
    low, high = value_range
    return (low + numbers * (high - low) / most).astype(delivered).tobytes()


def chroma_steps(pixel_format: str) -> tuple[int, int]:
    """How many pixels, across and down, share a chroma sample."""
    described = VideoFormat(pixel_format, 16, 16)
    planes = [one for one in described.components if not one.is_alpha]
    return 16 // min(one.width for one in planes), 16 // min(one.height for one in planes)


def _full_chroma(pixel_format: str) -> str | None:
    """A format with the same samples and a chroma sample for each pixel; None if there is none."""
    bits = VideoFormat(pixel_format, 16, 16).components[0].bits
    names = with_full_chroma(pixel_format, bits)
    return next((name for name in names if name != pixel_format and name in video_formats), None)


def _fill(given: Sequence[float] | None, pixel_format: str, channels: int, most: int) -> tuple[float, ...]:
    if given is None:
        return (*[0] * (channels - has_alpha(pixel_format)), *[most] * has_alpha(pixel_format))
    fill = tuple(given)
    if len(fill) != channels or not all(0 <= one <= most for one in fill):
        raise ValueError(
            f"fill must have a sample of 0 to {most} for each of the {channels} channels of {pixel_format}, not "
            f"{given!r}"
        )
    return fill


def _delivered_size(own: tuple[int, int], size: tuple[int | None, int | None] | None) -> tuple[int, int]:
    """`size`, with a missing width or height that keeps the aspect ratio of `own`, rounded to an even number."""
    width, height = own if size is None else size
    if width is None and height is None:
        raise ValueError("size must have a width or a height, not (None, None)")
    if width is None:
        width = _even(Fraction(height or 0) * own[0] / own[1])
    if height is None:
        height = _even(Fraction(width) * own[1] / own[0])
    return checked_size((width, height))


def _even(length: Fraction) -> int:
    return max(2, round(length / 2) * 2)
