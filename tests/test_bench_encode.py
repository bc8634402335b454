"""The benchmark of encoders: that it runs, and above all that it cannot praise a method that loses or tears frames.

Nothing here looks at how fast anything was.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("click", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("numpy", reason="the benchmark's frames are NumPy arrays")

from penstock.bench import machine
from penstock.bench.encode import checks, run
from penstock.bench.encode.cases import (
    BOUND,
    JOBS,
    METHODS,
    OURS,
    STANDARD,
    Job,
    Method,
    Settings,
)
from penstock.bench.encode.goals import GOALS, PACED_JOB, judge
from penstock.bench.encode.methods import StdinWrite, Target
from penstock.bench.encode.report import print_group
from penstock.bench.encode.worker import Result, Task, quantile, run_task
from penstock.bench.frames import LOOP_FRAMES, Pictures
from penstock.bench.goals import Limit, Verdict
from penstock.bench.parsing import by_name, parse_even_size
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg

if TYPE_CHECKING:
    from penstock.bench.frames import Frame

FRAMES = 12
PAGE_BYTES = 4096
SMALL = Job("small", 64, 48, "ultrafast", "noise", FRAMES)


@pytest.fixture(scope="module")
def ffmpeg() -> str:
    try:
        return find_ffmpeg()
    except PenstockError as error:
        pytest.skip(str(error))


@pytest.fixture
def task(ffmpeg: str, tmp_path: Path) -> Task:
    """A small run of the standard method."""
    return Task(by_name(METHODS, STANDARD), SMALL, 1, ffmpeg, str(tmp_path / "video.mp4"))


@pytest.fixture(scope="module")
def record(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a small real run of all that is installed."""
    path = tmp_path_factory.mktemp("bench") / "record.json"
    program = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    arguments = ["bench", "encode", "--job", "ultrafast-720p,paced-1080p", "--size", "64x48"]
    arguments += ["--frames", str(FRAMES), "--rounds", "1", "--ffmpeg", ffmpeg, "--json", str(path)]
    shown = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "64x48 noise to x264 ultrafast" in shown.stdout
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def rows_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for group in record["groups"] for row in group["methods"]]


@pytest.mark.slow
def test_every_method_is_in_the_record_measured_or_with_the_reason_why_not(record: dict[str, Any]) -> None:
    flat_out, paced = record["groups"]
    assert [row["name"] for row in flat_out["methods"]] == [method.name for method in METHODS]
    assert not [row["name"] for row in paced["methods"] if row["kind"] == "bound"]
    for row in rows_of(record):
        assert row["error"] is None
        assert (row["median"] is None) == bool(row["skipped"])


@pytest.mark.slow
def test_only_rivals_and_the_bound_may_be_missing(record: dict[str, Any]) -> None:
    skipped = [row for row in rows_of(record) if row["skipped"]]
    assert "ours" not in {row["kind"] for row in skipped}
    assert STANDARD not in {row["name"] for row in skipped}


@pytest.mark.slow
def test_every_frame_of_every_round_is_accounted_for(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        assert len(row["rounds"]) == (0 if row["skipped"] else 1)
        for result in row["rounds"]:
            assert result["frames_sent"] == result["frames_in_file"] == FRAMES
            assert result["output_bytes"] > 0


@pytest.mark.slow
def test_a_caller_is_blocked_for_some_time_and_the_bound_has_none(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        for result in row["rounds"]:
            if row["kind"] == "bound":
                assert result["blocked_max_ms"] is None
            else:
                assert 0 < result["blocked_p50_ms"] <= result["blocked_p99_ms"] <= result["blocked_max_ms"]


@pytest.mark.slow
def test_paced_frames_come_no_faster_than_their_pace(record: dict[str, Any]) -> None:
    for row in record["groups"][1]["methods"]:
        for result in row["rounds"]:
            assert result["seconds"] >= (FRAMES - 1) / 30


@pytest.mark.slow
def test_the_content_of_all_that_send_frames_was_compared(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        compared = not row["skipped"] and row["kind"] != "bound"
        assert (row["row_difference"] is not None) == compared


@pytest.mark.slow
def test_a_record_says_what_it_was_measured_on_and_names_no_host(record: dict[str, Any]) -> None:
    import platform

    assert record["benchmark"] == "encode"
    assert record["software"]["ffmpeg"].startswith("ffmpeg version")
    assert all(group["ffmpeg"] in record["software"]["ffmpeg"] for group in record["groups"])
    text = json.dumps(record)
    assert str(Path.home()) not in text
    assert f'"{platform.node()}"' not in text


def test_the_goals_are_about_jobs_that_there_are() -> None:
    assert {goal.job for goal in GOALS} | {PACED_JOB} == {job.name for job in JOBS}


@pytest.mark.slow
def test_jobs_of_another_size_are_not_judged(record: dict[str, Any]) -> None:
    assert record["goals"]["verdicts"] == []


class LosesAFrame(StdinWrite):
    lost = False

    def send(self, index: int) -> None:
        if not self.lost:
            self.lost = True
            return
        super().send(index)


class SendsTooMuch(StdinWrite):
    def finish(self) -> None:
        self.send(0)
        super().finish()


class TearsAFrame(StdinWrite):
    """Sends a part of a buffer late: after it may have been overwritten, as a method without a wait does."""

    rest: bytes | None = None
    number = 0

    def send(self, index: int) -> None:
        bytes_now = self.frames[index].tobytes()
        stale = self.rest or bytes_now[-PAGE_BYTES:]
        self.rest = bytes_now[-PAGE_BYTES:]
        self.ffmpeg.stdin.write(bytes_now[:-PAGE_BYTES] + stale)


class SwapsChannels(StdinWrite):
    def send(self, index: int) -> None:
        self.ffmpeg.stdin.write(self.frames[index][..., ::-1].tobytes())


class Fails(StdinWrite):
    def finish(self) -> None:
        super().finish()
        raise RuntimeError("the method's own reason")


def run_with(sender: type[StdinWrite], task: Task) -> Result:
    def make(_method: Method, target: Target, frames: Sequence[Frame]) -> StdinWrite:
        return sender(target, frames)

    return run_task(task, make)


@pytest.mark.parametrize("check_content", [False, True])
def test_a_right_run_has_no_error(task: Task, check_content: bool) -> None:
    result = run_with(StdinWrite, replace(task, check_content=check_content))
    assert result.error is None
    assert result.frames_in_file == FRAMES


def test_a_lost_frame_is_an_error(task: Task) -> None:
    result = run_with(LosesAFrame, task)
    assert result.error == f"{FRAMES} frames were sent, and the file has {FRAMES - 1}"


def test_a_frame_too_many_is_an_error(task: Task) -> None:
    result = run_with(SendsTooMuch, task)
    assert result.error == f"{FRAMES} frames were sent, and the file has {FRAMES + 1}"


def test_a_lost_frame_is_an_error_of_the_content_too(task: Task) -> None:
    result = run_with(LosesAFrame, replace(task, check_content=True))
    assert result.error == f"{FRAMES} frames were sent, and a decoder shows {FRAMES - 1}"


@pytest.mark.parametrize("size", [(320, 180), (1280, 720)])
def test_a_page_of_another_frame_is_an_error(task: Task, size: tuple[int, int]) -> None:
    width, height = size
    job = replace(task.job, width=width, height=height)
    result = run_with(TearsAFrame, replace(task, job=job, check_content=True))
    assert result.frames_in_file == FRAMES
    assert "frame 1 shows something else" in (result.error or "")


def test_wrong_colours_are_an_error(task: Task) -> None:
    result = run_with(SwapsChannels, replace(task, check_content=True))
    assert "frame 0 shows something else" in (result.error or "")


def test_a_method_that_raises_is_an_error_with_its_reason(task: Task) -> None:
    assert run_with(Fails, task).error == "RuntimeError: the method's own reason"


def test_a_file_that_is_no_video_is_an_error(ffmpeg: str, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    with pytest.raises(checks.UnreadableError, match="cannot read it"):
        checks.count_frames(ffmpeg, str(path))


def test_a_wrong_matrix_is_above_what_is_allowed(task: Task, ffmpeg: str) -> None:
    import numpy as np

    run_with(StdinWrite, replace(task, check_content=True))
    wrong = [
        "-i",
        task.output,
        "-vf",
        "scale=in_color_matrix=bt709",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    raw = subprocess.run([ffmpeg, "-v", "error", *wrong], capture_output=True, check=True).stdout
    shown = np.frombuffer(raw, np.uint8).reshape(FRAMES, 48, 64, 3)
    sent = Pictures("smooth", 64, 48, 1)
    off = checks.difference(shown[0], sent.texture(0))
    assert off.mean > checks.MOST_MEAN_DIFFERENCE


def test_pictures_are_the_same_for_the_same_seed_and_come_round() -> None:
    for content in ("noise", "texture", "smooth"):
        first, second = (Pictures(content, 32, 16, 1).all() for _ in range(2))
        assert all((a == b).all() for a, b in zip(first, second, strict=True))
        assert {frame.shape for frame in first} == {(16, 32, 3)}
    pictures = Pictures("texture", 32, 16, 1)
    assert (pictures.texture(0) == pictures.texture(LOOP_FRAMES)).all()
    assert (pictures.texture(0) != pictures.texture(1)).any()


def test_noise_is_what_it_says() -> None:
    (frame, *_) = Pictures("noise", 64, 48, 1).all()
    assert (frame.min(), frame.max()) == (128, 135)


def test_a_task_survives_the_way_to_its_process(task: Task) -> None:
    for method in METHODS:
        sent = replace(task, method=method)
        assert Task.from_json(sent.to_json()) == sent


def test_a_task_that_hangs_is_ended_and_told(task: Task) -> None:
    result = run.run_isolated(task, timeout_s=0.001)
    assert "did not end" in (result.error or "")


def test_a_method_that_fails_is_told_with_what_it_said(task: Task) -> None:
    unknown = replace(task.job, preset="no-such-preset")
    result = run.run_isolated(replace(task, job=unknown), timeout_s=60)
    assert "no-such-preset" in (result.error or "")


def test_nothing_is_left_of_a_run(task: Task) -> None:
    assert run.run_isolated(task, timeout_s=60).error is None
    assert not Path(task.output).exists()


def test_a_rival_that_is_not_installed_is_skipped_and_says_how_to_get_it(ffmpeg: str) -> None:
    rival = Method("rival", "not there", "rival", needs=("penstock_rival_that_nobody_wrote",))
    settings = Settings((ffmpeg,), (SMALL,), (by_name(METHODS, STANDARD), rival), rounds=1)
    (group,) = run.run_groups(settings)
    assert not run.has_errors([group])
    assert set(group.summaries()) == {STANDARD}
    assert group.rows[1].skipped == "not installed (pip install penstock_rival_that_nobody_wrote)"


def test_two_ffmpegs_make_groups_of_their_own(ffmpeg: str, tmp_path: Path) -> None:
    other = tmp_path / "ffmpeg"
    other.symlink_to(ffmpeg)
    methods = (by_name(METHODS, STANDARD),)
    settings = Settings((ffmpeg, str(other)), (SMALL,), methods, rounds=1, check_content=False)
    groups = list(run.run_groups(settings))
    assert [group.ffmpeg for group in groups] == [ffmpeg, str(other)]
    assert not run.has_errors(groups)


def test_the_bound_is_skipped_where_it_does_not_fit(ffmpeg: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MEMORY_MARGIN_BYTES", 10**18)
    settings = Settings((ffmpeg,), (SMALL,), (by_name(METHODS, BOUND),), rounds=1)
    (group,) = run.run_groups(settings)
    assert "/dev/shm" in (group.rows[0].skipped or "")
    assert not group.rows[0].rounds


def measured(name: str, fps: float) -> run.Row:
    result = Result(10, 10, 10 / fps, blocked_p50_ms=0.1, blocked_p99_ms=0.2, blocked_max_ms=0.3)
    return run.Row(by_name(METHODS, name), rounds=[result])


def test_the_best_rival_is_the_one_that_counts_and_other_codecs_do_not() -> None:
    job = by_name(JOBS, "ultrafast-1080p")
    rows = [measured("stdin.write", 70), measured("pyav", 140), measured("opencv", 999)]
    rows += [measured(OURS, 280), measured(BOUND, 300)]
    told = [str(verdict) for verdict in run.Group(job, "ffmpeg", rows).judgements()]
    assert told == [
        "penstock / pyav, ultrafast-1080p: 2.00x (target 1.50x: met)",
        "penstock / tmpfs-yuv420p, ultrafast-1080p: 0.93x (target 0.85x: met)",
    ]


def test_goals_are_judged_as_far_as_the_methods_were_run() -> None:
    texture, paced = by_name(JOBS, "texture-1080p"), by_name(JOBS, PACED_JOB)
    assert judge(texture, {"pyav": 100.0}, None, ["pyav"]) == []
    assert judge(texture, {OURS: 100.0}, None, ["pyav"]) == []
    (verdict,) = judge(texture, {OURS: 120.0, "pyav": 100.0, BOUND: 130.0}, None, ["pyav"])
    assert isinstance(verdict, Verdict)
    assert not verdict.met
    (limit,) = judge(paced, {OURS: 30.0}, 1.6, [])
    assert limit == Limit("caller blocked, p99, paced-1080p", 1.6, 1.5, "x a memcpy")
    assert str(limit) == "caller blocked, p99, paced-1080p: 1.600 x a memcpy (target 1.5 x a memcpy: missed)"


def test_a_row_with_an_error_has_no_speed_and_the_table_says_why() -> None:
    from rich.console import Console

    lost = measured("moviepy", 100)
    lost.error = "10 frames were sent, and the file has 9"
    rows = [measured(STANDARD, 50), lost, run.Row(by_name(METHODS, "pyav"), skipped="not installed")]
    assert rows[1].summary() is None
    printed = StringIO()
    print_group(Console(file=printed, width=120), run.Group(SMALL, find_ffmpeg(), rows))
    lines = printed.getvalue().splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert cells[STANDARD][0] == "50.0"
    assert "moviepy: ERROR: 10 frames were sent, and the file has 9" in lines
    assert "pyav: skipped: not installed" in lines


def test_quantiles_are_values_that_were_measured() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(list(range(1, 151)), 0.99) == 149
    assert quantile([7.0], 0.99) == 7.0


def test_sizes_are_read_and_odd_ones_are_refused() -> None:
    assert parse_even_size("320x180") == (320, 180)
    for wrong in ("320", "0x2", "321x180", "320x181"):
        with pytest.raises(ValueError, match=wrong):
            parse_even_size(wrong)
