"""Whether the frames are those of the file: how many, which, and in the right colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.uint8]

#: A frame is looked at in so many tiles, across and down: within a tile, what another way to enlarge chroma makes of
#: sharp edges cancels out, and what a wrong matrix makes does not.
TILES = 8
# Between what FFmpeg makes of the file and what a method does, in code values: the tiles' mean errors, absolute, and
# their mean over a frame. Measured from 96x64 to 1080p with FFmpeg 5.1: another rounding and another way to enlarge
# chroma (accurate_rnd+full_chroma_int) make at most 1.7; a wrong matrix makes 3.3 or more, a wrong range 8.2.
MOST_DIFFERENCE = 2.5


def compare(samples: Samples, reference: Samples, *, exact: bool = False) -> tuple[float, str | None]:
    """How far a method's frames are from what they must be, the worst of all, and what is wrong, if anything.

    Frames by their number; the reference goes round where it is shorter. ``exact`` is for frames that nobody converts.
    """
    worst = 0.0
    for number, shown in enumerate(samples):
        expected = reference[number % len(reference)]
        off = difference(shown, expected)
        worst = max(worst, off)
        if off > MOST_DIFFERENCE or (exact and (shown != expected).any()):
            return worst, f"frame {number} shows something else: it is {off:.1f} code values off"
        for n in (number - 1, number + 1):
            other = reference[n % len(reference)]
            if _pixels_apart(shown, other) < _pixels_apart(shown, expected):
                return worst, f"frame {number} shows what frame {n % len(reference)} has to show"
    return worst, None


def difference(shown: Samples, expected: Samples) -> float:
    """Of two frames, by their tiles."""
    import numpy as np

    return float(np.abs(_tiles(shown) - _tiles(expected)).mean())


def _tiles(samples: Samples) -> NDArray[np.float64]:
    """The mean of each tile, in each channel."""
    import numpy as np

    sums = samples.astype(np.float64)
    for axis in (0, 1):
        length = samples.shape[axis]
        starts = np.linspace(0, length, min(TILES, length), endpoint=False).astype(int)
        widths = np.diff(starts, append=length)
        sums = np.add.reduceat(sums, starts, axis=axis) / np.expand_dims(widths, (1 - axis, 2))
    return sums


def _pixels_apart(shown: Samples, expected: Samples) -> float:
    """The mean of all pixels: more than the tiles, it is a matter of where a frame has its edges."""
    import numpy as np

    # The larger less the smaller one: in uint8 a plain difference would wrap around.
    apart = np.maximum(shown, expected) - np.minimum(shown, expected)
    return float(apart.mean(dtype=np.float32))
