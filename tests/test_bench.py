"""The benchmark: that it runs, and above all that it cannot praise a method that loses or tears frames.

Nothing here looks at how fast anything was.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

pytest.importorskip("click", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("numpy", reason="the benchmark's frames are NumPy arrays")

from penstock._units import parse_byte_count
from penstock.bench import machine
from penstock.bench.parsing import by_name, parse_bytes, parse_list
from penstock.bench.pipe import run, worker
from penstock.bench.pipe.cases import (
    ENCODES,
    METHODS,
    STANDARD,
    TMPFS,
    Method,
    Settings,
    Size,
    parse_size,
)
from penstock.bench.pipe.goals import GOALS, judge
from penstock.bench.pipe.methods import StdinWrite
from penstock.bench.pipe.worker import Result, Task, run_task
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg

if TYPE_CHECKING:
    from penstock.bench.pipe.methods import Frame

SMALL = Size("320x180", 320, 180)
FRAMES = 12


@pytest.fixture(scope="module")
def ffmpeg() -> str:
    try:
        return find_ffmpeg()
    except PenstockError as error:
        pytest.skip(str(error))


@pytest.fixture
def task(ffmpeg: str) -> Task:
    """A small run of the standard method."""
    return Task(by_name(METHODS, STANDARD), SMALL, by_name(ENCODES, "null"), 2, FRAMES, 1, ffmpeg)


@pytest.fixture(scope="module")
def record(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a small real run of everything."""
    path = tmp_path_factory.mktemp("bench") / "record.json"
    program = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    arguments = ["bench", "pipe", "--size", "320x180", "--buffers", "1,4", "--bytes", "2MB", "--rounds", "1"]
    arguments += ["--ffmpeg", ffmpeg, "--json", str(path)]
    shown = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "320x180 to null, 4 buffers" in shown.stdout
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def rows_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for group in record["groups"] for row in group["methods"]]


@pytest.mark.slow
def test_every_method_is_in_the_record_measured_or_with_the_reason_why_not(record: dict[str, Any]) -> None:
    assert len(record["groups"]) == 2
    for group in record["groups"]:
        assert [row["name"] for row in group["methods"]] == [method.name for method in METHODS]
    for row in rows_of(record):
        assert row["error"] is None
        assert (row["median"] is None) == bool(row["skipped"])


@pytest.mark.slow
def test_only_rivals_and_the_bound_may_be_missing(record: dict[str, Any]) -> None:
    skipped = {row["name"] for row in rows_of(record) if row["skipped"]}
    assert skipped <= {"turbopipe", TMPFS}


@pytest.mark.slow
def test_every_frame_of_every_round_is_accounted_for(record: dict[str, Any]) -> None:
    for group in record["groups"]:
        assert group["frames"] == 12  # 2 MB of frames of 172,800 bytes, rounded up
        for row in group["methods"]:
            assert len(row["rounds"]) == (0 if row["skipped"] else 1)
            for result in row["rounds"]:
                assert result["frames_sent"] == result["frames_read"] == group["frames"]


@pytest.mark.slow
def test_a_record_says_what_it_was_measured_on_and_names_no_host(record: dict[str, Any]) -> None:
    import platform

    import penstock

    assert record["software"]["penstock"] == penstock.__version__
    assert record["software"]["ffmpeg"].startswith("ffmpeg version")
    assert record["machine"]["cores"] > 0
    assert {"cpu", "memory_bytes", "kernel", "transparent_hugepage"} <= record["machine"].keys()
    text = json.dumps(record)
    assert str(Path.home()) not in text
    assert f'"{platform.node()}"' not in text


@pytest.mark.slow
def test_our_methods_say_how_the_bytes_went(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        if row["name"] in ("write", "staged", "staged-recycled", "zero-copy", "auto"):
            used = row["rounds"][0]["notes"]["bytes_by_transport"]
            assert sum(used.values()) == 12 * SMALL.frame_bytes


class LosesAFrame(StdinWrite):
    """What TurboPipe does when its thread has died: it takes the frame, and says nothing."""

    lost = False

    def send(self, index: int) -> None:
        if not self.lost:
            self.lost = True
            return
        super().send(index)


class TearsAFrame(StdinWrite):
    """Sends a buffer late: after it may have been overwritten, as a method without a wait does."""

    late: int | None = None

    def send(self, index: int) -> None:
        if self.late is not None:
            super().send(self.late)
        self.late = index

    def finish(self) -> None:
        assert self.late is not None
        super().send(self.late)
        super().finish()


class SendsTooMuch(StdinWrite):
    def finish(self) -> None:
        self.send(0)
        super().finish()


class Fails(StdinWrite):
    def finish(self) -> None:
        raise RuntimeError("the method's own reason")


def run_with(sender: type[StdinWrite], task: Task) -> Result:
    def make(_method: Method, stdin: IO[bytes], frames: Sequence[Frame]) -> StdinWrite:
        return sender(stdin, frames)

    return run_task(task, make)


def test_a_right_run_has_no_error(task: Task) -> None:
    result = run_with(StdinWrite, task)
    assert result.error is None
    assert result.frames_read == FRAMES


def test_a_lost_frame_is_an_error(task: Task) -> None:
    result = run_with(LosesAFrame, task)
    assert result.error is not None
    assert f"{FRAMES} frames were sent and FFmpeg read {FRAMES - 1}" in result.error


def test_a_frame_too_many_is_an_error(task: Task) -> None:
    result = run_with(SendsTooMuch, task)
    assert result.error is not None
    assert f"FFmpeg read {FRAMES + 1}" in result.error


def test_a_torn_frame_is_an_error_though_their_number_is_right(task: Task) -> None:
    one_buffer = replace(task, buffers=1, check_content=True)
    assert run_with(StdinWrite, one_buffer).error is None
    result = run_with(TearsAFrame, one_buffer)
    assert result.frames_read == FRAMES
    assert result.error == "frame 0 arrived with other bytes than were sent"


def test_a_lost_frame_is_an_error_of_the_content_too(task: Task) -> None:
    result = run_with(LosesAFrame, replace(task, check_content=True))
    assert result.error is not None
    assert f"FFmpeg read {FRAMES - 1}" in result.error


def test_a_method_that_raises_is_an_error_with_its_reason(task: Task) -> None:
    result = run_with(Fails, task)
    assert result.error is not None
    assert "RuntimeError: the method's own reason" in result.error


def test_what_ffmpeg_complains_of_is_in_the_error(task: Task) -> None:
    wrong = replace(task.encode, arguments=("-c:v", "no-such-encoder"))
    result = run_task(replace(task, encode=wrong))
    assert result.error is not None
    assert "no-such-encoder" in result.error


def test_a_row_with_an_error_has_no_speed() -> None:
    good = Result(10, 10, 1.0, 0.5, 0.5, 0)
    row = run.Row(by_name(METHODS, STANDARD), rounds=[good, good])
    summary = row.summary(SMALL.frame_bytes)
    assert summary is not None
    assert summary.fps == 10
    row.error = "lost a frame"
    assert row.summary(SMALL.frame_bytes) is None


def test_the_table_says_what_went_wrong_and_gives_no_numbers_for_it() -> None:
    from io import StringIO

    from rich.console import Console

    from penstock.bench.pipe.report import print_group

    good = Result(10, 10, 0.01, 0.5, 0.5, 0)
    rows = [
        run.Row(METHODS[0], rounds=[good]),
        run.Row(METHODS[1], rounds=[good], error="10 frames were sent and FFmpeg read 9"),
        run.Row(METHODS[2], skipped="not installed"),
    ]
    group = Settings(sizes=(SMALL,)).groups()[0]
    printed = StringIO()
    print_group(Console(file=printed, width=80), run.GroupResult(group, rows))
    lines = printed.getvalue().splitlines()
    (measured,) = (line.split() for line in lines if line.split()[:1] == [METHODS[0].name])
    assert measured[1] == "1000"
    (lost,) = (line.split() for line in lines if line.split()[:1] == [METHODS[1].name])
    assert set(lost[1:]) == {"-"}
    assert f"{METHODS[1].name}: ERROR: 10 frames were sent and FFmpeg read 9" in lines
    assert f"{METHODS[2].name}: skipped: not installed" in lines


def test_the_part_of_the_start_is_that_of_the_fastest_run() -> None:
    group = Settings(sizes=(SMALL,)).groups()[0]
    slow, fast = Result(10, 10, 2.0, 0.5, 0.5, 0), Result(10, 10, 0.5, 0.5, 0.5, 0)
    rows = [run.Row(METHODS[0], rounds=[slow]), run.Row(METHODS[1], rounds=[fast])]
    assert run.GroupResult(group, rows, startup_s=0.1).startup_share() == pytest.approx(0.2)
    assert run.GroupResult(group, rows).startup_share() is None
    assert run.GroupResult(group, [], startup_s=0.1).startup_share() is None


def test_a_task_survives_the_way_to_its_process(task: Task) -> None:
    assert Task.from_json(task.to_json()) == task


def test_a_task_that_hangs_is_ended_and_told(task: Task) -> None:
    result = run.run_isolated(task, timeout_s=0.001)
    assert result.error is not None
    assert "did not end" in result.error


def test_a_process_that_fails_is_told(task: Task) -> None:
    result = run.run_isolated(replace(task, ffmpeg="/nowhere/ffmpeg"), timeout_s=60)
    assert result.error is not None
    assert "/nowhere/ffmpeg" in result.error


def test_a_rival_that_is_not_installed_is_skipped_with_the_reason(ffmpeg: str) -> None:
    rival = Method("rival", "not there", needs="penstock_rival_that_nobody_wrote")
    methods = (by_name(METHODS, STANDARD), rival)
    settings = Settings(sizes=(SMALL,), methods=methods, bytes_per_case=10**6, rounds=1, ffmpeg=ffmpeg)
    (result,) = run.run_groups(settings)
    assert not run.has_errors([result])
    assert set(result.rates()) == {STANDARD}
    assert "penstock_rival_that_nobody_wrote" in (result.rows[1].skipped or "")


def test_the_bound_is_skipped_where_it_does_not_fit(ffmpeg: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MEMORY_MARGIN_BYTES", 10**18)
    methods = (by_name(METHODS, TMPFS),)
    settings = Settings(sizes=(SMALL,), methods=methods, bytes_per_case=10**6, rounds=1, ffmpeg=ffmpeg)
    (result,) = run.run_groups(settings)
    assert "/dev/shm" in (result.rows[0].skipped or "")
    assert not result.rows[0].rounds


def test_reports_of_ffmpeg_are_read() -> None:
    assert worker.read_frame_count("frame=7\nfps=1\nprogress=continue\nframe=12\nprogress=end\n") == 12
    assert worker.read_frame_count("") == 0
    assert worker.read_hashes("#format: frame checksums\n0, 0, 0, 1, 9, abc\n0, 1, 1, 1, 9, def\n") == [
        "abc",
        "def",
    ]


def test_goals_are_judged_from_the_rates_of_one_group() -> None:
    staged, better = GOALS[0], GOALS[4]
    rates = {"turbopipe": 100.0, "staged": 230.0, "zero-copy": 340.0}
    verdict = judge(staged, rates)
    assert verdict is not None
    assert str(verdict) == "staged / turbopipe at 720p: 2.30x (target 2.20x: met)"
    verdict = judge(better, rates)
    assert verdict is not None
    assert str(verdict) == "zero-copy / turbopipe at 720p: 3.40x (target 3.50x: missed)"
    assert judge(better, {"turbopipe": 100.0, "staged": 999.0}) is None
    assert judge(staged, {"staged": 999.0}) is None


@pytest.mark.parametrize(
    ("text", "nbytes"), [("500", 500), ("4G", 4 * 2**30), ("4GB", 4 * 10**9), ("2GiB", 2 * 2**30)]
)
def test_numbers_of_bytes_are_read_as_the_other_commands_read_them(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == parse_byte_count(text) == nbytes


def test_lists_are_read_in_order_and_each_once() -> None:
    sizes = parse_list(["1080p,720p", "640x480", "720p"], parse_size)
    assert [size.name for size in sizes if isinstance(size, Size)] == ["1080p", "720p", "640x480"]
