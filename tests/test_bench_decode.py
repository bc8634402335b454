"""The benchmark of decoders: that it runs, and above all that it cannot praise frames that are not the file's.

Nothing here looks at how fast anything was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("click", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("numpy", reason="the benchmark's frames are NumPy arrays")

import numpy as np

from penstock.bench.decode import checks, feeder, run
from penstock.bench.decode.cases import (
    BOUND,
    JOBS,
    METHODS,
    OUR_READER,
    OURS,
    PIPE_STANDARD,
    STANDARD,
    Job,
    Method,
    Settings,
)
from penstock.bench.decode.goals import DEPTH, FILE_JOB, FRAMES_BEYOND_DEPTH, PIPE_JOB, judge
from penstock.bench.decode.inputs import InputError, link_programs, make_input
from penstock.bench.decode.methods import Decoding, Target, readinto, stdout_readinto
from penstock.bench.decode.report import print_group
from penstock.bench.decode.worker import FFMPEG_VARIABLES, Result, Task, run_task
from penstock.bench.goals import Limit
from penstock.bench.parsing import by_name
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg

if TYPE_CHECKING:
    from penstock.bench.decode.methods import Frame

FRAMES = 12
#: So many that a frame is like another one only by itself, and none of it is left out of the samples.
SMALL = Job("small", 96, 64, FRAMES, "libx264")
SMALL_PIPE = Job("small-pipe", 96, 64, FRAMES, None)


@pytest.fixture(scope="module")
def ffmpeg() -> str:
    try:
        return find_ffmpeg()
    except PenstockError as error:
        pytest.skip(str(error))


def made(job: Job, method: str, ffmpeg: str, folder: Path) -> Task:
    """A small run of that method, with what it needs."""
    program = link_programs(ffmpeg, folder)
    try:
        path, reference = make_input(job, program, folder, seed=1)
    except InputError as error:
        pytest.skip(str(error))
    np.save(folder / "reference.npy", reference)
    return Task(by_name(METHODS, method), job, program, path, str(folder / "reference.npy"))


@pytest.fixture(scope="module")
def file_task(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> Task:
    return made(SMALL, STANDARD, ffmpeg, tmp_path_factory.mktemp("file"))


@pytest.fixture(scope="module")
def pipe_task(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> Task:
    return made(SMALL_PIPE, PIPE_STANDARD, ffmpeg, tmp_path_factory.mktemp("pipe"))


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task says in its process's environment which FFmpeg it wants: here it is undone."""
    for name in (*FFMPEG_VARIABLES, "PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.fixture(scope="module")
def record(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a small real run of all that is installed."""
    path = tmp_path_factory.mktemp("bench") / "record.json"
    program = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    arguments = ["bench", "decode", "--job", "h264-720p,h265-1080p,reader", "--size", "96x64"]
    arguments += ["--frames", str(FRAMES), "--rounds", "1", "--ffmpeg", ffmpeg, "--json", str(path)]
    shown = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "96x64 of libx264 medium" in shown.stdout
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def rows_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for group in record["groups"] for row in group["methods"]]


def test_every_method_is_in_the_record_measured_or_with_the_reason_why_not(record: dict[str, Any]) -> None:
    for group in record["groups"]:
        source = "pipe" if group["job"]["encoder"] is None else "file"
        names = [method.name for method in METHODS if method.source == source]
        assert [row["name"] for row in group["methods"]] == names
    for row in rows_of(record):
        assert row["error"] is None
        assert (row["median"] is None) == bool(row["skipped"])


def test_only_rivals_may_be_missing(record: dict[str, Any]) -> None:
    for row in (row for row in rows_of(record) if row["skipped"]):
        assert row["kind"] == "rival" or "cannot make the file" in row["skipped"]
        assert row["name"] != PIPE_STANDARD


def test_every_frame_of_every_round_is_accounted_for(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        assert len(row["rounds"]) == (0 if row["skipped"] else 1)
        for result in row["rounds"]:
            assert result["frames_read"] == FRAMES
            assert result["seconds"] > 0


def test_the_frames_of_all_but_the_bound_were_compared(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        for result in row["rounds"]:
            assert (result["difference"] is not None) == (row["kind"] != "bound")
            assert (result["start_s"] is not None) == (row["kind"] != "bound")


def test_who_starts_ffmpeg_has_its_cpu_time_too(record: dict[str, Any]) -> None:
    for row in rows_of(record):
        for result in row["rounds"]:
            assert (result["cpu_child_s"] > 0) == (not row["own_ffmpeg"])


def test_a_record_says_what_it_was_measured_on_and_names_no_host(record: dict[str, Any]) -> None:
    import platform

    assert record["benchmark"] == "decode"
    assert record["software"]["ffmpeg"].startswith("ffmpeg version")
    text = json.dumps(record)
    assert str(Path.home()) not in text
    assert f'"{platform.node()}"' not in text


def test_jobs_of_another_size_are_not_judged(record: dict[str, Any]) -> None:
    assert record["goals"]["verdicts"] == []


def test_the_goals_are_about_jobs_that_there_are() -> None:
    assert {FILE_JOB, PIPE_JOB} <= {job.name for job in JOBS}


def numbered(target: Target) -> list[Frame]:
    return [frame.copy() for frame in stdout_readinto(target)]


def loses_the_last(target: Target) -> Iterator[Frame]:
    return iter(numbered(target)[:-1])


def loses_one_and_doubles_another(target: Target) -> Iterator[Frame]:
    frames = numbered(target)
    return iter([*frames[:5], *frames[6:], frames[-1]])


def adds_one(target: Target) -> Iterator[Frame]:
    frames = numbered(target)
    return iter([*frames, frames[-1]])


def exchanges_two(target: Target) -> Iterator[Frame]:
    frames = numbered(target)
    return iter([*frames[:3], frames[4], frames[3], *frames[5:]])


def swaps_channels(target: Target) -> Iterator[Frame]:
    return (frame[..., ::-1] for frame in stdout_readinto(target))


def converts_nothing(target: Target) -> Iterator[Frame]:
    return (np.empty_like(frame) for frame in numbered(target))


def gives_gray(target: Target) -> Iterator[Frame]:
    return (frame[..., :1] for frame in stdout_readinto(target))


def gives_floats(target: Target) -> Iterator[Frame]:
    return (frame.astype(np.float32) for frame in stdout_readinto(target))


def fails(target: Target) -> Iterator[Frame]:
    yield from numbered(target)[:3]
    raise RuntimeError("the method's own reason")


def filtered(scale: str) -> Decoding:
    """FFmpeg itself, when it is told to convert in another way."""

    def decode(target: Target) -> Iterator[Frame]:
        convert = ["-vf", f"scale={scale}", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        command = [target.ffmpeg, "-v", "error", "-i", target.path, *convert]
        raw = subprocess.run(command, capture_output=True, check=True).stdout
        return iter(np.frombuffer(raw, np.uint8).reshape(-1, *target.job.shape))

    return decode


@pytest.mark.parametrize("decoding", [stdout_readinto, filtered("flags=accurate_rnd+full_chroma_int")])
def test_a_right_run_has_no_error(file_task: Task, decoding: Decoding) -> None:
    result = run_task(file_task, decoding)
    assert result.error is None
    assert result.frames_read == FRAMES
    assert result.difference is not None


def test_frames_in_bgr_are_compared_as_such(file_task: Task) -> None:
    method = replace(file_task.method, pixel_format="bgr24")
    assert run_task(replace(file_task, method=method), swaps_channels).error is None


@pytest.mark.parametrize(
    ("decoding", "reason"),
    [
        (loses_the_last, "there are 12 frames, and it read 11"),
        (adds_one, "there are 12 frames, and it read 13"),
        (loses_one_and_doubles_another, "frame 5 shows"),
        (exchanges_two, "frame 3 shows"),
        (swaps_channels, "frame 0 shows something else"),
        (filtered("in_color_matrix=bt601"), "frame 0 shows something else"),
        (filtered("in_range=pc"), "frame 0 shows something else"),
        (converts_nothing, "shows"),
        (gives_gray, "frame 0 is uint8 of (64, 96, 1)"),
        (gives_floats, "frame 0 is float32 of (64, 96, 3)"),
        (fails, "RuntimeError: the method's own reason"),
    ],
)
def test_what_is_not_the_file_is_an_error(file_task: Task, decoding: Decoding, reason: str) -> None:
    assert reason in (run_task(file_task, decoding).error or "")


def test_a_frame_that_is_off_by_little_but_nearer_to_the_next_is_an_error() -> None:
    reference = np.zeros((3, 4, 4, 3), np.uint8)
    reference += np.arange(3, dtype=np.uint8)[:, None, None, None]
    assert checks.compare(reference, reference) == (0.0, None)
    shifted = reference[[1, 2, 2]]
    assert checks.compare(shifted, reference) == (1.0, "frame 0 shows what frame 1 has to show")


def test_of_a_pipe_no_byte_may_be_another_one(pipe_task: Task) -> None:
    def changes_a_byte(target: Target) -> Iterator[Frame]:
        for number, frame in enumerate(readinto(target)):
            frame[40, 50, 1] += number == 7
            yield frame

    assert run_task(pipe_task, readinto).error is None
    assert "frame 7 shows something else" in (run_task(pipe_task, changes_a_byte).error or "")


def test_of_a_pipe_that_is_left_early_only_the_method_complains(pipe_task: Task) -> None:
    def stops(target: Target) -> Iterator[Frame]:
        with os.fdopen(target.fd, "rb"):
            yield from ()

    result = run_task(pipe_task, stops)
    assert result.error == "there are 12 frames, and it read 0"


def test_the_feeder_writes_its_frames_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "frames.raw"
    path.write_bytes(b"aabbcc")
    command = [sys.executable, "-I", "-S", str(feeder.__file__), str(path), "2", "5"]
    fed = subprocess.run(command, capture_output=True, check=True)
    assert (fed.stdout, fed.stderr) == (b"aabbccaabb", b"")


def test_a_child_that_nobody_waits_for_is_accounted_for(file_task: Task) -> None:
    left = []

    def leaves_a_child(target: Target) -> Iterator[Frame]:
        code = "sum(range(3_000_000))"
        left.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", code]))
        yield from ()

    result = run_task(file_task, leaves_a_child)
    assert result.cpu_child_s > 0
    with pytest.raises(ProcessLookupError):
        os.kill(left[0].pid, 0)
    left[0].wait()


def test_libraries_find_the_ffmpeg_that_was_asked_for(file_task: Task) -> None:
    found = []

    def looks(target: Target) -> Iterator[Frame]:
        found.extend([shutil.which("ffmpeg"), os.environ["IMAGEIO_FFMPEG_EXE"], find_ffmpeg()])
        yield from ()

    run_task(file_task, looks)
    assert found == [file_task.ffmpeg] * 3


def test_the_bound_counts_its_frames(file_task: Task) -> None:
    result = run_task(replace(file_task, method=by_name(METHODS, BOUND)))
    assert (result.frames_read, result.error) == (FRAMES, None)
    short = replace(file_task.job, frames=FRAMES + 1)
    result = run_task(replace(file_task, method=by_name(METHODS, BOUND), job=short))
    assert result.error == "there are 13 frames, and it read 12"


def test_a_task_survives_the_way_to_its_process(file_task: Task, pipe_task: Task) -> None:
    for task in (file_task, pipe_task):
        for method in METHODS:
            sent = replace(task, method=method)
            assert Task.from_json(sent.to_json()) == sent


def test_a_task_that_hangs_is_ended_and_told(file_task: Task) -> None:
    assert "did not end" in (run.run_isolated(file_task, timeout_s=0.001).error or "")


def test_a_method_that_fails_is_told_with_what_it_said(file_task: Task, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    result = run.run_isolated(replace(file_task, path=str(path)), timeout_s=60)
    assert "FFmpeg exited with" in (result.error or "")
    assert "Invalid data" in (result.error or "")


def test_a_rival_that_is_not_installed_is_skipped_and_says_how_to_get_it(ffmpeg: str) -> None:
    rival = Method("rival", "not there", "rival", needs=("penstock_rival_that_nobody_wrote",))
    settings = Settings(ffmpeg, (SMALL,), (by_name(METHODS, STANDARD), rival), rounds=1)
    (group,) = run.run_groups(settings)
    assert not run.has_errors([group])
    assert group.rows[1].skipped == "not installed (pip install penstock_rival_that_nobody_wrote)"


def test_a_file_that_ffmpeg_cannot_make_is_no_error_of_the_methods(ffmpeg: str) -> None:
    job = replace(SMALL, encoder="no-such-encoder")
    (group,) = run.run_groups(Settings(ffmpeg, (job,), (by_name(METHODS, STANDARD),), rounds=1))
    assert not run.has_errors([group])
    assert "no-such-encoder" in (group.rows[0].skipped or "")


def test_the_files_are_tagged_as_they_were_made(file_task: Task) -> None:
    command = [file_task.ffmpeg, "-hide_banner", "-i", file_task.path]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    assert "yuv420p(tv, bt709" in said


def test_samples_are_pixels_all_over_the_frame() -> None:
    for job in JOBS:
        rows = range(0, job.height, job.sample_step)
        assert 60 <= len(rows) <= 80
        assert job.height - rows[-1] <= job.sample_step


def measured(name: str, fps: float, peak_frames: float = 1) -> run.Row:
    peak = round(peak_frames * by_name(JOBS, FILE_JOB).frame_bytes)
    return run.Row(by_name(METHODS, name), rounds=[Result(10, 10 / fps, peak_own_bytes=peak)])


def test_the_best_rival_and_all_that_drive_ffmpeg_by_a_pipe_count() -> None:
    rows = [measured(STANDARD, 100), measured("ffmpegcv", 120), measured("opencv", 200)]
    rows += [measured("pyav", 150), measured(OURS, 210, peak_frames=9), measured("penstock-bgr", 999)]
    group = run.Group(by_name(JOBS, FILE_JOB), [*rows, measured(BOUND, 300)])
    assert [str(verdict) for verdict in group.judgements()] == [
        "penstock / opencv, h264-1080p: 1.05x (target 1.05x: met)",
        "penstock / stdout.readinto, h264-1080p: 2.10x (target 1.40x: met)",
        "penstock / ffmpegcv, h264-1080p: 1.75x (target 1.40x: met)",
        "peak memory of penstock's process, h264-1080p: 9.000 frames (target 8 frames: missed)",
    ]


def test_a_reader_is_compared_with_a_pipe_of_the_default_size() -> None:
    job = by_name(JOBS, PIPE_JOB)
    fps = {PIPE_STANDARD: 100.0, "readinto-1MiB": 200.0, OUR_READER: 120.0}
    ratio, memory = judge(job, fps, {OUR_READER: 6.0 * job.frame_bytes})
    assert str(ratio) == "penstock.Reader / readinto, reader: 1.20x (target 1.30x: missed)"
    most = DEPTH + FRAMES_BEYOND_DEPTH
    assert memory == Limit("peak memory of penstock.Reader's process, reader", 6.0, most, "frames")


def test_goals_are_judged_as_far_as_the_methods_were_run() -> None:
    job = by_name(JOBS, FILE_JOB)
    assert judge(job, {"pyav": 100.0}, {"pyav": 1.0}) == []
    assert judge(job, {OURS: 100.0}, {OURS: None}) == []
    assert judge(by_name(JOBS, "h264-720p"), {OURS: 100.0, "pyav": 90.0}, {OURS: 1.0}) == []


def test_a_row_with_an_error_has_no_speed_and_the_table_says_why() -> None:
    from rich.console import Console

    lost = measured("decord", 100)
    lost.error = "there are 10 frames, and it read 9"
    rows = [measured(STANDARD, 50), lost, run.Row(by_name(METHODS, "pyav"), skipped="not installed")]
    assert lost.summary() is None
    printed = StringIO()
    print_group(Console(file=printed, width=120), run.Group(SMALL, rows))
    lines = printed.getvalue().splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert cells[STANDARD][0] == "50.0"
    assert cells["decord"][0] == "-"
    assert "decord: ERROR: there are 10 frames, and it read 9" in lines
    assert "pyav: skipped: not installed" in lines
