"""The simulation of renders: properties that hold whatever the numbers are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.render import pool
from benchmarks.render.jobs import Job
from benchmarks.render.simulation import Parts, durations, losses_in, simulate
from penstock.rendering import assemble
from penstock.rendering.planning import lengths_of

seconds = st.floats(0, 10)
parts = st.builds(
    Parts,
    worker_start_s=seconds,
    chunk_start_s=seconds,
    frame_s=st.floats(0.01, 10),
    spread=st.floats(0, 0.5),
    driver_s=st.floats(0, 0.1),
)
plans = st.builds(lengths_of, st.integers(1, 2000), st.none() | st.integers(1, 300), st.integers(1, 20))


@given(plans, parts, st.integers(0, 9))
def test_one_worker_takes_the_sum(lengths: tuple[int, ...], parts: Parts, seed: int) -> None:
    alone = simulate(lengths, 1, parts, seed=seed)
    work_s = sum(durations(lengths, parts, seed))
    assert alone.work_s == pytest.approx(work_s)
    assert alone.render_s == pytest.approx(parts.worker_start_s + work_s + len(lengths) * parts.driver_s)
    assert (alone.lost_s, alone.losses) == (0, 0)


@given(plans, parts, st.integers(1, 20), st.integers(0, 9))
def test_work_is_conserved_and_a_worker_more_does_no_harm(
    lengths: tuple[int, ...], parts: Parts, workers: int, seed: int
) -> None:
    fewer, more = (simulate(lengths, count, parts, seed=seed) for count in (workers, workers + 1))
    work_s = durations(lengths, parts, seed)
    assert fewer.work_s == pytest.approx(more.work_s) == pytest.approx(sum(work_s))
    assert more.render_s <= fewer.render_s + max(work_s) + 1e-6
    assert fewer.render_s >= sum(work_s) / workers + parts.worker_start_s - 1e-6
    driver_s = len(lengths) * parts.driver_s
    assert fewer.render_s <= parts.worker_start_s + sum(work_s) / workers + max(work_s) + driver_s + 1e-6


@given(plans, parts, st.integers(1, 20), st.floats(0, 3000), st.booleans())
def test_a_lost_worker_s_chunk_is_rendered_again(
    lengths: tuple[int, ...], parts: Parts, workers: int, lost_at_s: float, is_replaced: bool
) -> None:
    whole = simulate(lengths, workers + 1, parts)
    options = {"losses": [(lost_at_s, 0), (lost_at_s, 0)], "noticed_after_s": 1.0, "is_replaced": is_replaced}
    after_loss = simulate(lengths, workers + 1, parts, **options)  # type: ignore[arg-type]
    assert after_loss.work_s == pytest.approx(whole.work_s)
    assert after_loss.losses <= 1
    assert (after_loss.lost_s > 0) <= (after_loss.losses == 1)
    assert after_loss == simulate(lengths, workers + 1, parts, **options)  # type: ignore[arg-type]
    assert after_loss.render_s >= whole.work_s / (workers + 1)


def test_without_a_worker_nothing_ends() -> None:
    with pytest.raises(ValueError, match="no worker is left"):
        simulate([10, 10], 1, Parts(0, 0, 1, 0, 0), losses=[(3, 0)])


def test_losses_come_at_their_rate_and_by_their_seed() -> None:
    found = [losses_in(3600, 1000, 0.01, seed) for seed in range(100)]
    assert sum(map(len, found)) / 100 == pytest.approx(10, rel=0.2)
    assert losses_in(3600, 1000, 0.01, 7) == found[7]
    assert losses_in(3600, 1000, 0, 7) == []


def test_the_parts_are_those_of_an_engine_and_of_what_all_have() -> None:
    measured = {
        "parts-storage": {"storage_start_s": 0.5, "storage_bytes_per_s": 100.0, "seconds": 9.0},
        "parts-join": {
            "join_start_s": 1.0,
            "join_chunk_s": 0.1,
            "join_bytes_per_s": 50.0,
            "frame_bytes": 10.0,
        },
        "parts-ray": {
            "worker_start_s": 2.0,
            "chunk_start_s": 0.2,
            "frame_s": 0.3,
            "spread": 0.0,
            "driver_s": 0.01,
        },
    }
    found = Parts.of("ray", measured)
    assert found.join_s([5, 5]) == pytest.approx(1 + (0.5 + 0.5) + 2 * (0.1 + 1.0))
    assert durations([5], found, 0) == [pytest.approx(0.2 + 5 * 0.3 + 0.5 + 50 / 100)]


def test_chunks_with_later_times_are_joined(tmp_path: Path) -> None:
    job = Job("join", 64, 48, 32, "join", {"preset": "ultrafast"}, joined_frames=4)
    (folder := tmp_path / "pool").mkdir()
    made = pool.plan_in(tmp_path, job, pool.fill(folder, job))
    assert made.lengths == (4,) * 8
    assert assemble(made).frames == 32
