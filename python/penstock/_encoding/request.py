"""What an `Encoder` is asked for: its arguments, as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any, BinaryIO, Literal, Self

from penstock._encoding.encoders import Quality
from penstock._encoding.labels import Chapters
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.sound import Audio
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_ENCODER_SETTINGS,
    Colors,
    EncoderSettings,
)
from penstock._ffmpeg.program.capabilities import did_you_mean

OddSize = Literal["error", "pad"]


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of an `Encoder`, by the same names. `plan` checks them."""

    output: str | os.PathLike[str] | BinaryIO
    _: KW_ONLY
    fps: int | float | Fraction | None
    size: tuple[int, int] | None = None
    pixel_format: str = "rgb24"
    value_range: tuple[float, float] | None = None
    channels_first: bool = False
    vflip: bool = False
    odd_size: OddSize = "error"
    codec: str = AUTO
    quality: Quality | None = None
    crf: float | None = None
    preset: str | None = None
    crash_safe: bool = False
    options: Mapping[str, object] | None = None
    output_pixel_format: str = AUTO
    colors: Colors = DEFAULT_COLORS
    audio: Audio | Sequence[Audio] | None = None
    metadata: Mapping[str, str] | None = None
    timecode: str | None = None
    chapters: Chapters | None = None
    subtitles: str | os.PathLike[str] | None = None
    settings: EncoderSettings = DEFAULT_ENCODER_SETTINGS

    @classmethod
    def of(cls, output: str | os.PathLike[str] | BinaryIO, given: Mapping[str, Any]) -> Self:
        """The request with these arguments, by their names.

        Raises:
            TypeError: an `Encoder` has no such argument.
        """
        known = [one.name for one in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            question = did_you_mean(unknown[0], known)
            raise TypeError(f"an Encoder has no argument {unknown[0]!r}{'.' if question else ''}{question}")
        return cls(output, **given)
