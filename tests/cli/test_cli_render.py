"""``penstock render`` and its steps: what they render, how they end, and what they say."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from support.cases import eventually
from support.command_line import delivered, failed, finish, printed, run, run_process, start
from support.media import decode
from support.processes import started

from penstock.cli.commands.render import chunk_range, render
from penstock.cli.options import frame_range, ray_options

SLOW = pytest.mark.slow
SCENES = """
import time

def gray(index, time_s, view):
    view[:] = 4 * index % 256

def slow(index, time_s, view):
    time.sleep(0.05)
    gray(index, time_s, view)

def broken(index, time_s, view):
    if index == 11:
        raise ValueError("no such star")
    gray(index, time_s, view)

def half(index, time_s, view):
    import ray

    assert ray.get_runtime_context().get_assigned_resources()["CPU"] == 0.5
    gray(index, time_s, view)

class Made:
    def __call__(self, index, time_s, view):
        gray(index, time_s, view)
"""
GIVEN = ("--frames", "12", "--size", "64x48", "--fps", "30", "--preset", "ultrafast", "--workers", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenes.py").write_text(SCENES)
    return tmp_path


def render_(folder: Path, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    return run("render", *arguments, cwd=folder, env={**os.environ})


def is_whole(video: Path, first: int = 0, frames: int = 12) -> bool:
    got = decode(video)
    wanted = 4 * np.arange(first, first + frames).reshape(-1, 1, 1, 1) % 256
    return len(got) == frames and bool(np.abs(got.astype(int) - wanted).max() <= 8)


def test_smoke(folder: Path) -> None:
    done = render_(folder, "scenes.py:gray", "video.mp4", *GIVEN, "--json", "--progress")
    report = json.loads(done.stdout)
    assert (done.returncode, report["frames"], report["output"]) == (0, 12, str(folder / "video.mp4"))
    said = done.stderr.decode()
    assert "12/12 frames" in said and "frames rendered: 12 in" in said and "joined in" in said
    assert is_whole(folder / "video.mp4")
    assert not (folder / "video.mp4.chunks").exists()


@SLOW
def test_encoder_options_and_a_frame_range_are_applied(folder: Path) -> None:
    options = [
        "--codec",
        "ffv1",
        "--vflip",
        "--option",
        "slices=4",
        "--format",
        "matroska",
        "--chunk-frames",
        "5",
    ]
    given = ("--frames", "6:20", "--size", "64x48", "--fps", "24000/1001", "--pixel-format", "gray")
    assert printed(render_(folder, "scenes.py:Made", "video.bin", *given, *options)) == ""
    assert is_whole(folder / "video.bin", 6, 14)


@pytest.mark.exhaustive
def test_ray_task_options_are_applied_or_refused(folder: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock-io[ray]'")
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    on_ray = ("scenes.py:half", "video.mp4", *GIVEN, "--engine", "ray", "--ray")
    said = failed(run("render", *on_ray, "nosuch=1", cwd=folder, env=environment), 2)
    assert "num_cpus" in said and "nosuch" in said
    # Ray starts some ten processes, which takes longer than 30 s beside other tests on two cores.
    done = run_process("render", *on_ray, "num_cpus=0.5", patience_s=200, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert is_whole(folder / "video.mp4")


def test_plan_chunk_and_assemble_render_step_by_step(folder: Path) -> None:
    given = (*GIVEN[:-2], "--workers", "2")
    assert printed(render_(folder, "scenes.py:gray", "video.mp4", *given, "--plan-only", "plan.json")) == ""
    chunks = len(json.loads((folder / "plan.json").read_text())["lengths"])
    assert chunks > 2 and not (folder / "video.mp4").exists()
    assert "chunk number 99 is out of range" in failed(render_(folder, "chunk", "plan.json", "0-99"), 2)
    assert f"{chunks} of {chunks} chunks are missing" in failed(render_(folder, "assemble", "plan.json"))
    assert printed(render_(folder, "chunk", "plan.json", chunks - 1)) == ""
    shown = printed(render_(folder, "chunk", "plan.json", f"0-{chunks - 2}", "--json"))
    assert [json.loads(line)["number"] for line in shown.splitlines()] == list(range(chunks - 1))
    assert json.loads(delivered(render_(folder, "assemble", "plan.json", "--json")))["frames"] == 12
    assert is_whole(folder / "video.mp4")


def test_report_excludes_what_a_scene_prints(folder: Path) -> None:
    """It is read by programs."""
    talking = "def talking(index, time_s, view):\n    print('drawn')\n    gray(index, time_s, view)\n"
    (folder / "talks.py").write_text(f"print('loaded')\n{SCENES}\n{talking}")
    scene = "talks.py:talking"
    done = render_(folder, scene, "video.mp4", *GIVEN, "--json", "--quiet")
    assert json.loads(done.stdout)["frames"] == 12
    assert {"loaded", "drawn"} <= {*done.stderr.decode().split()}
    plan = render_(folder, scene, "video.mp4", *GIVEN, "--plan-only").stdout
    assert sum(json.loads(plan)["lengths"]) == 12
    (folder / "plan.json").write_bytes(plan)
    assert json.loads(render_(folder, "chunk", "plan.json", 0, "--json").stdout)["number"] == 0


@pytest.mark.linux("descriptors that programs inherit")
@pytest.mark.parametrize("wanted", ["--json", "--plan-only"])
def test_closed_standard_output_is_an_error_if_a_report_is_wanted(folder: Path, wanted: str) -> None:
    command = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
    given = ("penstock", "render", "scenes.py:gray", "video.mp4", *GIVEN, "--quiet", wanted)
    done = subprocess.run(
        [sys.executable, "-c", command, *given], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (1, f"Error: standard output: {os.strerror(errno.EBADF)}\n")
    assert not (folder / "video.mp4").exists()


@SLOW
def test_plan_goes_to_standard_output_and_a_chunk_imports_a_scene_by_module(folder: Path) -> None:
    # The scene travels by the name of its module, which is found from the current folder.
    shown = delivered(run_process("render", "scenes:gray", "video.mp4", *GIVEN, "--plan-only", cwd=folder))
    (folder / "plan.json").write_bytes(shown)
    last = len(json.loads(shown)["lengths"]) - 1
    assert delivered(run_process("render", "chunk", "plan.json", f"0-{last}", cwd=folder)) == b""
    assert delivered(run_process("render", "assemble", "plan.json", cwd=folder)) == b""
    assert is_whole(folder / "video.mp4")


@SLOW
def test_scene_that_raises_is_reported_with_frame_and_line(folder: Path) -> None:
    said = failed(render_(folder, "scenes.py:broken", "video.mp4", *GIVEN))
    assert "failed 3 times: broken, frame 11: ValueError: no such star (" in said
    assert f"scenes.py:{SCENES[: SCENES.index('raise')].count(chr(10)) + 1})" in said
    assert f"chunks are kept in {folder / 'video.mp4.chunks'}. The same call continues from there" in said
    assert printed(render_(folder, "scenes.py:broken", "other.mp4", *GIVEN, "--plan-only", "plan.json")) == ""
    last = len(json.loads((folder / "plan.json").read_text())["lengths"]) - 1
    assert "broken, frame 11: ValueError" in failed(render_(folder, "chunk", "plan.json", last))


@pytest.mark.parametrize(
    "number, name", [(signal.SIGINT, "interrupted"), pytest.param(signal.SIGTERM, "terminated", marks=SLOW)]
)
def test_signal_keeps_finished_chunks(folder: Path, number: signal.Signals, name: str) -> None:
    given = ("--frames", "32", *GIVEN[2:-2], "--workers", "2", "--chunk-frames", "4")
    process = start("render", "scenes.py:slow", "video.mp4", *given, cwd=folder)
    assert eventually(lambda: len(list(folder.glob("video.mp4.chunks/*/*.mov.json"))) > 1)
    process.send_signal(number)
    status, said = finish(process)
    assert status == -number
    assert said.startswith(f"Error: {name}; ") and said.count("\n") == 1
    assert f"chunks are kept in {folder / 'video.mp4.chunks'}. The same call continues from there" in said
    assert started() == {} and not list(folder.rglob("*.part"))
    report = json.loads(delivered(render_(folder, "scenes.py:slow", "video.mp4", *given, "--json")))
    assert report["resumed"] > 1
    assert is_whole(folder / "video.mp4", frames=32)


@pytest.mark.parametrize(
    "arguments, status, says",
    [
        (("nosuchmodule:scene", "v.mp4", *GIVEN), 1, "No module named 'nosuchmodule'"),
        (("nosuch.py:scene", "v.mp4", *GIVEN), 1, "nosuch.py: no such file"),
        (("scenes.py:nosuch", "v.mp4", *GIVEN), 1, "has no attribute 'nosuch'"),
        (("scenes.py", "v.mp4", *GIVEN), 2, "MODULE:NAME or FILE.py:NAME"),
        (("scenes.py:gray", "-", *GIVEN), 2, "must be a file"),
        (("scenes.py:gray", "no/v.mp4", *GIVEN), 1, "no"),
        (("scenes.py:gray", "v.png", *GIVEN), 2, "mp4, mov, matroska (.mkv) or webm"),
        (
            ("scenes.py:gray", "v.mp4", *GIVEN, "--option", "pass=1"),
            2,
            "--option pass=1 needs the whole video",
        ),
        (("scenes.py:gray", "v.mp4", *GIVEN, "--frames", "5:5"), 2, "not '5:5'"),
        (("scenes.py:gray", "v.mp4", *GIVEN, "--audio", "none.wav"), 1, "none.wav"),
        (("scenes.py:gray", "v.mp4", *GIVEN, "--ray", "num_gpus=1"), 2, "ray options need --engine ray"),
        (("scenes.py:gray", "v.mp4", *GIVEN, "--ray", "num_gpus"), 2, "'num_gpus' must be NAME=VALUE"),
        (("scenes.py:gray", "v.mp4", *GIVEN, "--plan-only", "p", "--json"), 2, "--json"),
        (("scenes.py:gray", "v.mp4", *GIVEN, "--plan-only", "no/p"), 1, "no/p"),
        (("chunk", "none.json", "0"), 1, "none.json"),
        (("chunk", "scenes.py", "0"), 1, "scenes.py: the text is not a plan"),
        (("chunk", "scenes.py", "3-1"), 2, "not '3-1'"),
        (("assemble", "scenes.py"), 1, "scenes.py: the text is not a plan"),
        (("assemble",), 2, "Missing argument 'PLAN'"),
        ((), 2, "Missing argument 'MODULE:SCENE'"),
    ],
)
def test_failures_are_reported_in_one_line(
    folder: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    assert says in failed(render_(folder, *arguments), status)
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["scenes.py"]


def test_scene_with_a_syntax_error_is_reported_in_one_line(folder: Path) -> None:
    (folder / "torn.py").write_text("def gray(")
    assert "never closed (torn.py, line 1)" in failed(render_(folder, "torn.py:gray", "v.mp4", *GIVEN))


def test_frame_and_chunk_ranges_are_parsed() -> None:
    assert (frame_range("240"), frame_range("3:5"), frame_range("0:9:3")) == (
        range(240),
        range(3, 5),
        range(0, 9, 3),
    )
    assert (chunk_range("7"), chunk_range("3-7")) == (range(7, 8), range(3, 8))
    for text in ("", "x", "-5", "0", "5:5", "1:2:3:4", "1:9:0"):
        with pytest.raises(ValueError):
            frame_range(text)
    for text in ("", "x", "-1", "3-", "3-2", "1-2-3"):
        with pytest.raises(ValueError):
            chunk_range(text)


def test_values_for_ray_are_json_or_text() -> None:
    given = ("num_cpus=2", "num_gpus=0.5", 'resources={"studio": 1}', "accelerator_type=A100")
    wanted = {"num_cpus": 2, "num_gpus": 0.5, "resources": {"studio": 1}, "accelerator_type": "A100"}
    assert (ray_options(given), ray_options(())) == (wanted, None)


def test_help_describes_the_steps() -> None:
    shown = printed(run("render", "--help"))
    for name, step in render.steps.items():
        assert f"penstock render {name}" in shown
        assert f"Usage: penstock render {name}" in printed(run("render", name, "--help"))
        assert isinstance(step, click.Command)
