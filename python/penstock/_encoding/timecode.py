"""Time codes of SMPTE ST 12-1: which one a video's first frame can have."""

from __future__ import annotations

import re
from fractions import Fraction

from penstock._common.messages import argument

#: The name of the tag that has it in files.
TIMECODE = "timecode"
_FORM = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)([:;])(\d{2,3})")
# Drop frame leaves out two numbers in 30 at each minute, but for each tenth.
_DROPPING = tuple(Fraction(count * 1000, 1001) for count in (30, 60, 120))
_DROPPED_IN_30 = 2
# A rate given as a float, such as 29.97.
_SAME_RATE = Fraction(1, 1000)


def is_same_timecode(one: str, other: str) -> bool:
    """Whether they differ at most in zeros before the number of the frame."""
    return one[:9] == other[:9] and one[9:].lstrip("0") == other[9:].lstrip("0")


def check_timecode(timecode: str, rate: Fraction | None) -> None:
    """Checks that the first frame can have this time code. `rate` is None if each frame comes with its time.

    Raises:
        TypeError: it is no text.
        ValueError: it is none, or there is none such at this rate.
    """
    if not isinstance(timecode, str):
        raise TypeError(f"timecode must be a str such as '01:00:00:00', not {timecode!r}")
    if (found := _FORM.fullmatch(timecode)) is None:
        raise ValueError(
            f"timecode must be hours, minutes, seconds and frames, such as '01:00:00:00', or '01:00:00;00' for drop "
            f"frame, not {timecode!r}"
        )
    if rate is None:
        return
    minute, second, frame, count = int(found[2]), int(found[3]), int(found[5]), max(1, round(rate))
    if frame >= count:
        raise ValueError(
            f"the last number of a timecode must be below {count} at {float(rate):g} frames per second, not "
            f"{timecode!r}"
        )
    if found[4] == ":":
        return
    if all(abs(rate - one) > _SAME_RATE for one in _DROPPING):
        raise ValueError(
            f"drop frame, as in {timecode!r}, needs 30000/1001 or 60000/1001 frames per second, not {float(rate):g}. "
            f"Pass {argument('timecode', timecode.replace(';', ':'))}"
        )
    dropped = count // 30 * _DROPPED_IN_30
    if minute % 10 and not second and frame < dropped:
        following = f"{timecode[:9]}{dropped:02}"
        raise ValueError(f"drop frame leaves out {timecode!r}. Pass {argument('timecode', following)}")
