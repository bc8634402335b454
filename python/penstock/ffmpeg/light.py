"""Light in nits as samples of HDR video, by ITU-R BT.2100-2 (https://www.itu.int/rec/R-REC-BT.2100)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# The most that PQ can say, in cd/m², and its constants (table 4).
_PQ_PEAK = 10_000
_M1, _M2 = 2610 / 16384, 2523 / 4096 * 128
_C1, _C3 = 3424 / 4096, 2392 / 4096 * 32
# HLG's constants, its nominal display and the gamma of that, and the weights of red, green and blue in luminance
# (table 5).
_A = 0.17883277
_B, _C = 1 - 4 * _A, 0.5 - _A * np.log(4 * _A)
_HLG_PEAK, _GAMMA = 1_000, 1.2
_LUMINANCE = np.array((0.2627, 0.6780, 0.0593), np.float32)


def pq_from_nits(nits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Samples of PQ (the transfer "smpte2084") from light in nits: the inverse EOTF of ITU-R BT.2100-2, table 4.

    ```python
    frame = np.rint(pq_from_nits(picture) * 65535).astype(np.uint16)  # for an Encoder of rgb48
    ```

    Args:
        nits: linear light that the display is to show, in cd/m², in an array of any shape: each sample becomes one.
            Less than 0 becomes 0, and more than 10,000 becomes 10,000.

    Returns:
        The samples as float32 from 0 to 1, in the shape of `nits`. They are at most 1e-6 off the exact value.

    Raises:
        ValueError: there is a NaN.
    """
    curved = _relative(nits, _PQ_PEAK) ** np.float32(_M1)
    # (c1 + c2 y) / (1 + c3 y), as 1 minus what is left: the power of 79 takes rounded ratios of float32 a code of 16
    # bits away, and this 1/80 of one.
    missing = np.float32(1 - _C1) * (1 - curved) / (1 + np.float32(_C3) * curved)
    return np.asarray(np.exp(np.float32(_M2) * np.log1p(-missing)), np.float32)


def hlg_from_nits(nits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Samples of HLG ("arib-std-b67") from light in nits: the inverse OOTF and the OETF of ITU-R BT.2100-2, table 5.

    HLG says how bright a pixel is relative to the display. `nits` are those of the Recommendation's nominal one, with a
    peak of 1,000 cd/m² and a gamma of 1.2. Others show the picture brighter or darker.

    Args:
        nits: linear light that this display is to show, in cd/m², in an array of … × 3: red, green and blue of BT.2020.
            Less than 0 becomes 0, and more than 1,000 becomes 1,000.

    Returns:
        The samples as float32 from 0 to 1, in the shape of `nits`. Saturated colours near the peak, which need more
        than 1, become 1.

    Raises:
        ValueError: the last axis does not have length 3, or there is a NaN.
    """
    shown = _relative(nits, _HLG_PEAK)
    if shown.shape[-1:] != (3,):
        raise ValueError(f"nits are an array of … × 3: red, green and blue; got the shape {shown.shape}")
    luminance = np.maximum(shown @ _LUMINANCE, np.finfo(np.float32).tiny)[..., np.newaxis]
    scene = np.minimum(shown * luminance ** np.float32(1 / _GAMMA - 1), 1)
    bright = np.float32(_A) * np.log(np.maximum(12 * scene, 1) - np.float32(_B)) + np.float32(_C)
    return np.asarray(np.where(scene > np.float32(1 / 12), bright, np.sqrt(3 * scene)))


def _relative(nits: npt.ArrayLike, peak: float) -> npt.NDArray[np.float32]:
    """Light in units of `peak`, from 0 to 1."""
    light = np.asarray(nits, np.float32)
    if np.isnan(light).any():
        raise ValueError("nits are numbers; got NaN")
    return np.asarray(np.clip(light, 0, peak) / np.float32(peak))
