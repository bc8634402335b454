"""Whether the frames are those of the file: how many, which, and in the right colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.uint8]

# Between what FFmpeg makes of the file and what a method does: mean absolute, in code values, of one frame's
# samples. Measured at 1080p with FFmpeg 5.1: what another rounding and another way to enlarge chroma make
# (accurate_rnd+full_chroma_int) is 3.0; a wrong matrix makes 6.7, a wrong range 14.3.
MOST_MEAN_DIFFERENCE = 4.0


def compare(
    samples: Samples, reference: Samples, most: float = MOST_MEAN_DIFFERENCE
) -> tuple[float, str | None]:
    """How far a method's frames are from what they must be, the worst of all, and what is wrong, if anything.

    Frames by their number; the reference goes round where it is shorter.
    """
    worst = 0.0
    for number, shown in enumerate(samples):
        off = difference(shown, reference[number % len(reference)])
        worst = max(worst, off)
        if off > most:
            return worst, f"frame {number} shows something else: it is {off:.1f} code values off"
        for other in (number - 1, number + 1):
            if difference(shown, reference[other % len(reference)]) < off:
                return worst, f"frame {number} shows what frame {other % len(reference)} has to show"
    return worst, None


def difference(shown: Samples, expected: Samples) -> float:
    """Of two frames."""
    import numpy as np

    # The larger less the smaller one: in uint8 a plain difference would wrap around.
    apart = np.maximum(shown, expected) - np.minimum(shown, expected)
    return float(apart.mean(dtype=np.float32))
