"""The pipeline's benchmark: that it runs, that its figures are what was measured, and that nobody loses a byte.

Nothing here looks at how fast anything was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually

pytest.importorskip("click", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock-io[cli]")

from penstock import cpu
from penstock.bench.pipeline import storage, throughput
from penstock.bench.pipeline.cases import (
    CONFIGURATIONS,
    END_TO_END,
    NORMAL,
    PARTS,
    PINNED,
    PRIORITIES,
    Settings,
    pinned_cpus,
)
from penstock.bench.pipeline.findings import findings, verdicts
from penstock.bench.pipeline.latency import MisdeliveredError, Row, Run, run_once, summarize
from penstock.bench.pipeline.load import background
from penstock.bench.pipeline.throughput import Contender, Race, run_race

SMALL = Settings(chunk_bytes=5000, chunks=10, background=1, rounds=2, assets=40)


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    command = [sys.executable, "-c", program, "bench", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """The record of a small real run."""
    sizes = ("--chunk", "5000", "--chunks", "10", "--rounds", "2", "--background", "2", "--assets", "40")
    shown = run_cli(*sizes, "--json", "-")
    assert shown.returncode == 0, shown.stderr
    for configuration in CONFIGURATIONS:
        assert configuration.name in shown.stderr
    loaded: dict[str, Any] = json.loads(shown.stdout)
    return loaded


def test_every_asset_of_every_round_is_in_the_record(record: dict[str, Any]) -> None:
    assert [row["name"] for row in record["configurations"]] == [one.name for one in CONFIGURATIONS]
    for row in record["configurations"]:
        assert len(row["rounds"]) == 2
        for one in row["rounds"]:
            assert {part: len(values) for part, values in one["latencies_us"].items()} == dict.fromkeys(
                (*PARTS, END_TO_END), 10
            )
            assert one["mb_per_s"] > 0


def test_an_asset_takes_as_long_as_its_parts_at_least(record: dict[str, Any]) -> None:
    for row in record["configurations"]:
        for one in row["rounds"]:
            figures = one["latencies_us"]
            for parts, whole in zip(
                zip(*(figures[part] for part in PARTS), strict=True), figures[END_TO_END], strict=True
            ):
                assert sum(parts) <= whole + 0.5  # each is rounded to a tenth


def test_both_sides_of_the_race_are_in_the_record(record: dict[str, Any]) -> None:
    (race,) = record["throughput"]
    assert [side["name"] for side in race["contenders"]] == [throughput.PIPELINE, throughput.POOL]
    assert all(len(side["mb_per_s"]) == 2 for side in race["contenders"])
    assert [verdict["what"] for verdict in record["goals"]["verdicts"]][1:] == [
        "penstock.Pipeline / ThreadPoolExecutor, zlib, 2 threads each"
    ]


def test_the_simulated_storage(tmp_path: Path) -> None:
    picture = tmp_path / "latencies.png"
    arguments = ["--simulated", "--chunks", "5", "--rounds", "1", "--background", "0", "--json", "-"]
    if _has_matplotlib():
        arguments += ["--picture", str(picture)]
    shown = run_cli(*arguments)
    assert shown.returncode == 0, shown.stderr
    record = json.loads(shown.stdout)
    assert record["throughput"] == []
    reader = record["configurations"][0]["rounds"][0]["latencies_us"]["reader"]
    assert min(reader) > 1000 * storage.SIMULATED_DELAY_S[0]
    if _has_matplotlib():
        assert picture.read_bytes().startswith(b"\x89PNG")


def _has_matplotlib() -> bool:
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--codec", "magic"], "'magic' is not one of"),
        (["--chunk", "much"], "'much' is not a number of bytes"),
        (["--chunks", "1"], "1 is not in the range"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--background", "-1"], "-1 is not in the range"),
    ],
)
def test_wrong_usage_is_told_and_exits_with_2(arguments: list[str], complaint: str) -> None:
    shown = run_cli(*arguments)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert complaint in shown.stderr


def test_the_background_burns_and_ends() -> None:
    with background(2):
        burning = _children()
        assert len(burning) == 2
        nices = sorted(int(_stat(pid)[16]) for pid in burning)
        tried = cpu.try_priorities()
        assert nices == sorted(tried[level].nice for level in ("normal", "below-normal"))
        before = {pid: int(_stat(pid)[11]) for pid in burning}
        assert eventually(lambda: all(int(_stat(pid)[11]) > before[pid] for pid in burning))
    assert not _children()


def _children() -> list[str]:
    return Path("/proc/thread-self/children").read_text().split()


def _stat(pid: str) -> list[str]:
    """The fields behind the name (proc(5)): utime is the 12th, nice the 17th."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def test_content_is_the_same_in_every_run_and_no_two_assets_are_alike(tmp_path: Path) -> None:
    first, second = (storage.write_assets(tmp_path, "zlib", 3000, 5) for _ in range(2))
    assert first == second
    assert len(set(first.sums)) == 5
    assert first.content_bytes == 15_000


def test_an_asset_that_comes_out_changed_is_an_error(tmp_path: Path) -> None:
    assets = storage.write_assets(tmp_path, "zlib", SMALL.chunk_bytes, SMALL.chunks)
    assert run_once(SMALL, NORMAL, assets).mb_per_s > 0
    assets.sums[3] ^= 1
    with pytest.raises(MisdeliveredError):
        run_once(SMALL, NORMAL, assets)


@pytest.mark.parametrize("fault", ["changes a byte", "loses a byte later"])
def test_a_side_that_changes_or_loses_a_byte_has_no_speed(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    runs = 0

    def faulty(assets: storage.Assets, settings: Settings) -> Iterator[bytes]:
        nonlocal runs
        runs += 1
        for content in throughput._by_pool(assets, settings):
            data = bytes(content)
            yield data[:-1] + b"\0" if fault == "changes a byte" else data[: -1 if runs > 1 else None]

    monkeypatch.setattr(throughput, "_by_pipeline", faulty)
    with pytest.raises(MisdeliveredError, match=r"penstock\.Pipeline"):
        run_race(SMALL)


def test_parts_are_pinned_to_cpus_that_may_be_used() -> None:
    assert set(pinned_cpus()) <= os.sched_getaffinity(0)
    policies = PINNED.policies()
    assert [policies[part].cpus for part in PARTS] == [(number,) for number in pinned_cpus()]  # type: ignore[union-attr]
    assert NORMAL.policies() == dict.fromkeys(PARTS)
    assert [policies[part].priority for part in PARTS] == [*PRIORITIES.priorities]  # type: ignore[union-attr]


def rows(**microseconds: list[float]) -> list[Row]:
    """A row for each configuration, whose rounds have these end-to-end latencies, always the same within a round."""
    made = []
    for configuration, values in zip(CONFIGURATIONS, microseconds.values(), strict=False):
        runs = [Run(dict.fromkeys((*PARTS, END_TO_END), [value] * 20), 1000 / value, ()) for value in values]
        made.append(Row(configuration, runs))
    return made


def test_what_is_said_follows_from_the_figures() -> None:
    better = findings(rows(normal=[100, 110, 90, 100], priorities=[50, 55, 45, 50]))
    assert better[0].startswith(
        "Priorities, against none: end-to-end p50 -50 % (-50 % to -50 % in the middle half"
    )
    assert "no clear difference" not in better[0]
    worse = findings(rows(normal=[100, 100], priorities=[130, 140]))
    assert "p50 +35 %" in worse[0]
    unclear = findings(rows(normal=[100, 100, 100, 100], priorities=[80, 120, 90, 115]))
    assert unclear[0].count("no clear difference") == 3
    three = findings(rows(normal=[100, 100], priorities=[50, 50], pinned=[100, 100]))
    assert three[1].startswith("Pinning, on top of priorities: end-to-end p50 +100 %")


def test_what_was_refused_is_said() -> None:
    refusing = rows(normal=[100.0], priorities=[100.0])
    run = refusing[1].runs[0]
    refusing[1].runs[0] = replace(run, refused=("niceness -5 was refused",))
    assert findings(refusing)[-1] == "Refused in 'priorities': niceness -5 was refused"


def test_goals_are_judged_by_the_better_of_p50_and_p95() -> None:
    (verdict,) = verdicts(SMALL, rows(normal=[100, 100], priorities=[79, 79]), [])
    assert (verdict.met, round(verdict.ratio, 3)) == (True, round(100 / 79, 3))
    (verdict,) = verdicts(SMALL, rows(normal=[100, 100], priorities=[85, 85]), [])
    assert not verdict.met
    assert verdicts(replace(SMALL, background=0), rows(normal=[100], priorities=[50]), []) == []
    sides = [Contender(name, "", throughput._by_pool, [rate]) for name, rate in (("a", 3.0), ("b", 2.0))]
    (verdict,) = verdicts(SMALL, [], [Race("zstd", sides, 0.5)])
    assert (verdict.met, verdict.ratio) == (True, 1.5)
    assert verdicts(SMALL, [], [Race("lz4", sides, 0.5)]) == []


def test_percentiles() -> None:
    figures = summarize([float(number) for number in range(101)])
    assert figures == {"min": 0, "p50": 50, "p95": 95, "max": 100, "mean": 50}
