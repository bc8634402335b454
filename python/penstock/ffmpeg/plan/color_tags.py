"""What a video says of its colours, besides matrix and range: primaries, transfer, and HDR's display and light."""

from __future__ import annotations

from dataclasses import dataclass

#: FFmpeg's names of the primaries and transfer characteristics in ITU-T H.273, tables 2 and 3, by their code points.
PRIMARIES = {
    1: "bt709",
    4: "bt470m",
    5: "bt470bg",
    6: "smpte170m",
    7: "smpte240m",
    8: "film",
    9: "bt2020",
    10: "smpte428",
    11: "smpte431",
    12: "smpte432",
    22: "ebu3213",
}
TRANSFERS = {
    1: "bt709",
    4: "bt470m",
    5: "bt470bg",
    6: "smpte170m",
    7: "smpte240m",
    8: "linear",
    9: "log100",
    10: "log316",
    11: "iec61966-2-4",
    12: "bt1361e",
    13: "iec61966-2-1",
    14: "bt2020-10",
    15: "bt2020-12",
    16: "smpte2084",
    17: "smpte428",
    18: "arib-std-b67",
}
# In cd/m²: what 32 bits hold in units of 0.0001 (ITU-T H.265, D.3.28).
_MOST_LIGHT = (2**32 - 1) / 10_000


def _is_pair(value: object, most: float) -> bool:
    """Whether a value is two numbers from 0 to `most`."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(one, int | float) and 0 <= one <= most for one in value)
    )


@dataclass(frozen=True, slots=True)
class MasteringDisplay:
    """The display on which a video was graded (SMPTE ST 2086).

    Attributes:
        red, green, blue, white: the chromaticities x and y of its primaries and white (CIE 1931); None if not told.
        luminance: the least and the most, in cd/m²; None if not told.
    """

    red: tuple[float, float] | None
    green: tuple[float, float] | None
    blue: tuple[float, float] | None
    white: tuple[float, float] | None
    luminance: tuple[float, float] | None

    @property
    def is_complete(self) -> bool:
        """Whether all of it is told, and possible."""
        chromaticities = (self.red, self.green, self.blue, self.white)
        if not all(_is_pair(one, 1) for one in chromaticities) or not _is_pair(self.luminance, _MOST_LIGHT):
            return False
        least, most = self.luminance or (0, 0)
        return least < most


@dataclass(frozen=True, slots=True)
class ContentLight:
    """How bright a video is (CTA-861.3).

    Attributes:
        max_cll: of the brightest pixel, in cd/m²; 0 if not told.
        max_fall: of the brightest frame on average, in cd/m²; 0 if not told.
    """

    max_cll: int
    max_fall: int
