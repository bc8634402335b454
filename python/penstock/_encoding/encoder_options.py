"""The options of `Encoder`, as types for the functions that pass them on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypedDict

from penstock._common.reports import EncoderStats
from penstock._encoding.encoders import Quality
from penstock._encoding.request import OddSize
from penstock._encoding.sound import Audio
from penstock._ffmpeg.command.settings import Colors, EncoderSettings


class EncoderOptions(TypedDict, total=False):
    """The options of `Encoder` but for `fps`, by the same names."""

    size: tuple[int, int] | None
    pixel_format: str
    value_range: tuple[float, float] | None
    channels_first: bool
    vflip: bool
    odd_size: OddSize
    codec: str
    quality: Quality | None
    crf: float | None
    preset: str | None
    crash_safe: bool
    options: Mapping[str, object] | None
    output_pixel_format: str
    colors: Colors
    audio: Audio | Sequence[Audio] | None
    metadata: Mapping[str, str] | None
    timecode: str | None
    chapters: Sequence[tuple[float, str]] | None
    subtitles: str | os.PathLike[str] | None
    progress: bool | int | Callable[[EncoderStats], object]
    settings: EncoderSettings


class LikeOptions(EncoderOptions, total=False):
    """The options of `Encoder.like`."""

    fps: int | float | Fraction | None
