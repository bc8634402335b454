"""The functions of docs/how-to/hdr.md make samples of PQ and HLG from nits as ITU-R BT.2100 and BT.2408 say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import examples
from support.light import hlg_from_nits, pq_from_nits

# Linear light of three samples, dark ones as often as bright ones.
NITS = st.tuples(*[st.one_of(st.just(0.0), st.floats(-5, 4).map(lambda power: 10.0**power))] * 3)


def pq_eotf(sample: float) -> float:
    """Nits of a sample of PQ: the EOTF of BT.2100-2, table 4."""
    root = sample ** (32 / 2523)
    return 10_000 * (max(root - 107 / 128, 0) / (2413 / 128 - 2392 / 128 * root)) ** (8192 / 1305)


def hlg_eotf(samples: tuple[float, ...]) -> list[float]:
    """Nits of red, green and blue in HLG: the inverse OETF and the OOTF of BT.2100-2, table 5."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    scene = [one**2 / 3 if one <= 0.5 else (math.exp((one - c) / a) + b) / 12 for one in samples]
    luminance = 0.2627 * scene[0] + 0.6780 * scene[1] + 0.0593 * scene[2]
    return [1000 * luminance**0.2 * one for one in scene]


# The first three are of BT.2408-7 (table 1): reference white, a gray card of 18 %, and of 90 %.
@pytest.mark.parametrize(
    "nits, pq, hlg",
    [(203, 0.58, 0.75), (26, 0.38, 0.38), (179, 0.57, 0.73), (0, 0, 0), (1000, 0.75, 1), (50.69, 0.44, 0.5)],
)
def test_levels_match_the_recommendations(nits: float, pq: float, hlg: float) -> None:
    assert pq_from_nits(nits) == pytest.approx(pq, abs=0.006)
    assert hlg_from_nits([nits] * 3) == pytest.approx(hlg, abs=0.006)


def test_levels_are_exact() -> None:
    assert pq_from_nits([100, 1000, 4000, 10_000]) == pytest.approx(
        [0.508078, 0.751827, 0.902572, 1], abs=2e-6
    )
    # A twelfth of the scene's light is half of the signal, where the two parts of the curve meet.
    assert hlg_from_nits([1000 * (1 / 12) ** 1.2] * 3) == pytest.approx(0.5, abs=1e-6)


@examples(300)
@given(nits=NITS)
def test_pq_round_trips(nits: tuple[float, ...]) -> None:
    samples = pq_from_nits(nits)
    # In PQ: near black, a rounded sample of float32 is some percent of the light.
    for one, sample in zip(nits, samples, strict=True):
        assert pq_eotf(float(sample)) == pytest.approx(one, rel=1e-4, abs=1e-5)


@examples(300)
@given(nits=NITS)
def test_hlg_round_trips(nits: tuple[float, ...]) -> None:
    samples = hlg_from_nits(nits)
    if samples.max() < 1 - 1e-6:
        assert hlg_eotf(tuple(map(float, samples))) == pytest.approx(nits, rel=1e-4, abs=1e-5)


@examples(100)
@given(nits=NITS)
def test_more_light_never_gives_a_lower_sample(nits: tuple[float, ...]) -> None:
    gray = np.sort(np.repeat(nits, 3).reshape(3, 3), axis=0)
    for samples in (pq_from_nits(gray), hlg_from_nits(gray)):
        assert samples.shape == (3, 3)
        assert (np.diff(samples, axis=0) >= 0).all()
        assert samples.min() >= 0 and samples.max() <= 1


def test_all_codes_of_16_bits_are_in_order() -> None:
    """Nor is any sample of a ramp off by a code of 16 bits."""
    nits = np.array([pq_eotf(code / 65535) for code in range(65536)])
    assert np.array_equal(np.rint(pq_from_nits(nits) * 65535), np.arange(65536))


@pytest.mark.parametrize("of", [pq_from_nits, hlg_from_nits])
def test_light_outside_the_display_range_is_clipped(of: object) -> None:
    """It is clipped, as a display would: renderers give infinite light, and conversions of primaries less than none."""
    assert callable(of)
    assert (of([-math.inf, -1, -1e-9]) == of([0, 0, 0])).all()
    assert of([math.inf] * 3) == pytest.approx([1, 1, 1])
    assert of([20_000, 20_000, 20_000]) == pytest.approx([1, 1, 1])
    assert (of([0, 0, 1000]) <= 1).all()


def test_shape_is_kept_and_the_input_is_unchanged() -> None:
    frame = np.full((4, 6, 3), 203.0)
    assert pq_from_nits(frame).shape == hlg_from_nits(frame).shape == (4, 6, 3)
    assert frame.min() == frame.max() == 203
