"""How the caller's frames differ from their pixel format: as floats, or with their channels first."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from penstock._common.messages import argument
from penstock._formats.pixel_formats import is_float, is_packed, pixel_format_of
from penstock._native import _Conversion, _Slot, _SlotPool, _ValueRange

#: The sizes of floats that are scaled to whole samples: float16, float32 and float64.
FLOAT_BYTES = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class InputLayout:
    """How the caller's frames differ from their pixel format.

    Attributes:
        value_range: what becomes 0, and the most of a sample, if frames are floats; None if they are not scaled.
        channels_first: whether frames are channels × height × width.
    """

    value_range: tuple[float, float] | None = None
    channels_first: bool = False
    _native: _ValueRange | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls, pixel_format: str, value_range: tuple[float, float] | None, channels_first: bool
    ) -> InputLayout:
        """The form that the arguments of an `Encoder` mean.

        Raises:
            ValueError: `pixel_format` has no such form, or `value_range` is none.
            TypeError: an argument has a wrong type.
        """
        if not isinstance(channels_first, bool):
            raise TypeError(f"channels_first must be True or False, not {channels_first!r}")
        if channels_first and not is_packed(pixel_format):
            raise ValueError(
                f"channels_first=True needs a packed pixel format, not {pixel_format}, whose planes come one after "
                "another anyway. Leave channels_first out (gbrp formats: green, blue, red)"
            )
        if value_range is None:
            return cls(None, channels_first)
        low, high = _checked_range(value_range, pixel_format)
        wanted = pixel_format_of(pixel_format)
        assert wanted is not None, "all packed formats are known"
        try:
            return cls((low, high), channels_first, _ValueRange(low, high, wanted.depth))
        except ValueError as error:
            raise ValueError(f"{argument('value_range', value_range)} is not valid: {error}") from None

    @property
    def arguments(self) -> str:
        """The arguments that are not the defaults, for messages."""
        given = {"value_range": self.value_range, "channels_first": self.channels_first}
        return ", ".join(argument(name, value) for name, value in given.items() if value)

    def fill(
        self,
        pool: _SlotPool,
        frame: Any,
        number: int,
        conversion: _Conversion | None = None,
        prefix: bytes | None = None,
    ) -> _Slot:
        """A slot with the samples of `frame`, rows first, or with their conversion.

        Raises:
            ValueError: `frame`, of that number, has NaN.
        """
        try:
            return pool.filled(frame, conversion, prefix, self._native)
        except ValueError as error:
            # Only values that are scaled are searched for NaN.
            if self.value_range is None:
                raise
            low = self.value_range[0]
            raise ValueError(
                f"frame {number} has {error}. Pass np.nan_to_num(frame, nan={low}) to make them black"
            ) from None


#: Frames that are what their pixel format says.
PLAIN = InputLayout()


def _checked_range(value_range: object, pixel_format: str) -> tuple[float, float]:
    if is_float(pixel_format):
        raise ValueError(
            f"value_range can't be used with {pixel_format}, which keeps floats. Leave value_range out"
        )
    if not is_packed(pixel_format):
        raise ValueError(
            f"value_range needs a packed pixel format, not {pixel_format}. Pass pixel_format='rgb24'"
        )
    is_pair = isinstance(value_range, tuple | list) and len(value_range) == 2
    if not is_pair or not all(isinstance(one, Real) for one in value_range):  # type: ignore[attr-defined]
        raise TypeError(f"value_range must be two numbers, such as (0.0, 1.0), not {value_range!r}")
    low, high = map(float, value_range)  # type: ignore[call-overload]
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"value_range must be two finite numbers, the lower first, not {value_range!r}")
    return low, high
