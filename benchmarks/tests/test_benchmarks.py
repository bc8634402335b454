"""The benchmarks as programs: a small real run of each, and how they fail.

No test compares times.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.cases import PATIENCE_S, eventually
from support.media import no_opengl

import penstock
from benchmarks import all as all_of_them
from benchmarks import capture, decode, encode, fan_out, machines, pipe, pipeline, relay, render, sound
from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import Method
from benchmarks.harness.options import by_name
from benchmarks.harness.results import Group, Row, Run
from benchmarks.pipeline import CONFIGURATIONS, END_TO_END, EXAMPLE_ROWS, METRICS, PARTS, figure_name
from penstock._ffmpeg.program.capabilities import find_ffmpeg
from penstock.errors import PenstockError

#: A small run of each, with methods of every kind. (The checks' own tests run all of them, without a process each.)
SMALL = {
    "pipe": "--size 320x180 --bytes 2MB --rounds 1 --method stdin.write,turbopipe,staged,auto,tmpfs",
    "encode": "--job motion-720p,paced-motion-1080p --size 64x48 --frames 12 --rounds 1 "
    "--method stdin.write,penstock,tmpfs-yuv420p",
    "decode": "--job h264-1080p-motion,first-frame,reader --size 96x64 --frames 12 --rounds 1 "
    "--method stdout.readinto,pyav-threaded,penstock,pyav-no-conversion,readinto,penstock.Reader",
    "relay": "--size 5000,70001 --rounds 1 --seconds 0.001",
    "render": "--job python,chunk-lengths,join --frames 60 --rounds 1 "
    "--method drawing,encoder,2-processes,one-encoder,chunks-30,cp,join,assemble",
    "machines": "--quick --job relay,Decoder,x264",
    "fan_out": "--size 64x48 --frames 4 --rounds 1 --method penstock-1,penstock-4,copies-2,stdin.write-2",
    "capture": "--size 64x48 --frames 6 --rounds 1",
    "sound": "--frames 45 --rounds 1",
    "pipeline": "--chunk 5000 --chunks 10 --rounds 1 --background 1 --assets 40",
}
MODULES = (pipe, encode, decode, relay, pipeline, render, fan_out, capture, sound, machines)
BENCHMARKS = {one.BENCHMARK.name: one for one in MODULES}
WITH_FFMPEG = ("pipe", "encode", "decode", "render", "capture", "sound", "machines")


def run(benchmark: str, *arguments: str) -> Result:
    """Run its command line here."""
    return CliRunner().invoke(BENCHMARKS[benchmark].main, arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "benchmark",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name in ("machines", "render") else [])
        for name in SMALL
    ],
)
def test_small_real_run_succeeds(benchmark: str) -> None:
    if benchmark == "capture" and (reason := no_opengl()):
        pytest.skip(reason)
    if benchmark in WITH_FFMPEG:
        try:
            find_ffmpeg()
        except PenstockError as error:
            pytest.skip(str(error))
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *SMALL[benchmark].split(), "--json", "-"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    record = json.loads(shown.stdout)
    rows = [row for group in record["groups"] for row in group["methods"]]
    assert [row["name"] for row in rows if row["name"] not in shown.stderr] == []
    assert {row["name"] for row in rows} == {*record["settings"]["methods"]} - {*EXAMPLE_ROWS}
    every_row_was_measured_or_says_why_not(rows, MAIN_FIGURES.get(benchmark, "fps"))
    a_record_says_what_it_was_measured_on_and_names_no_host(record)
    if benchmark in MORE:
        MORE[benchmark](record["groups"], [row for row in rows if "skipped" not in row])


def every_row_was_measured_or_says_why_not(rows: list[dict[str, Any]], main_figure: str) -> None:
    for row in rows:
        assert "error" not in row
        assert len(rounds(row, main_figure)) == (0 if "skipped" in row else 1)
        if "skipped" in row:
            assert row["kind"] != "ours" or "cannot prepare it" in row["skipped"]


def a_record_says_what_it_was_measured_on_and_names_no_host(record: dict[str, Any]) -> None:
    assert record["software"]["penstock"] == penstock.__version__
    assert record["machine"]["cores"] > 0
    assert ("ffmpeg" in record["software"]) == (record["benchmark"] in WITH_FFMPEG)
    text = json.dumps(record)
    assert str(Path.home()) + "/" not in text
    assert f'"{platform.node()}"' not in text


def more_of_the_pipe(_groups: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["kind"] == "ours":
            assert sum(row["notes"]["bytes_by_transport"].values()) == 12 * 320 * 180 * 3


def more_of_the_encoder(groups: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        is_bound = row["kind"] == "bound"
        times = [rounds(row, f"blocked_{name}_ms") for name in ("p50", "p99", "max")]
        assert times == sorted(times)
        assert (times == [[], [], []]) == ("content" not in row) == is_bound
    for row in (row for row in groups[1]["methods"] if "skipped" not in row):
        assert len(rounds(row, "copy_p99_ms")) == 1


def more_of_the_decoder(groups: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert rounds(row, "start_s") and bool(rounds(row, "difference")) == (row["kind"] != "bound")
    for group in groups:
        if group["kind"] != "pipe":
            assert {goal["verdict"] for goal in group["goals"]} <= {"met", "missed", "not measured"}
        if group["kind"] == "first":
            assert all(rounds(row, "first_frame_s") for row in group["methods"] if "skipped" not in row)


def more_of_the_relay(groups: list[dict[str, Any]], _rows: list[dict[str, Any]]) -> None:
    ours = {group["way"]: group["methods"][0] for group in groups}
    assert list(ours) == [way.name for way in relay.WAYS]
    assert ours["file-pipe"]["notes"]["method"] == "splice"
    assert ours["tee-2"]["notes"]["method"] == "tee"


def more_of_the_pipeline(groups: list[dict[str, Any]], _rows: list[dict[str, Any]]) -> None:
    latencies, race = groups
    assert [row["name"] for row in latencies["methods"]] == [one.name for one in CONFIGURATIONS]
    for row in latencies["methods"]:
        means = [rounds(row, figure_name(part, "mean"))[0] for part in (*PARTS, END_TO_END)]
        assert sum(means[:-1]) <= means[-1] + 0.5
    assert [row["name"] for row in race["methods"]] == [pipeline.PIPELINE, pipeline.POOL]


def more_of_the_render(groups: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    assert all(rounds(row, "cpu_s") for row in rows)
    chunks = next(row for row in groups[1]["methods"] if row["name"] == "chunks-30")
    assert rounds(chunks, "chunks") > [1]
    assert rounds(chunks, "psnr_db") > [30]


def more_of_the_sound(groups: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    assert [group["name"] for group in groups] == ["video"]
    for row in rows:
        assert rounds(row, "apart_ms")


MAIN_FIGURES = {
    "relay": "ops_per_s",
    "pipeline": "mb_per_s",
    "machines": "op_s",
    "fan_out": "blocked_p50_ms",
    "sound": "realtime",
}
MORE = {
    "pipe": more_of_the_pipe,
    "encode": more_of_the_encoder,
    "decode": more_of_the_decoder,
    "relay": more_of_the_relay,
    "pipeline": more_of_the_pipeline,
    "render": more_of_the_render,
    "sound": more_of_the_sound,
}


def rounds(row: dict[str, Any], figure: str) -> list[float]:
    found: list[float] = row.get("figures", {}).get(figure, {}).get("rounds", [])
    return found


@pytest.mark.parametrize("benchmark", ["pipe", "encode", "decode", "render", "sound"])
def test_methods_can_be_sent_to_another_process(benchmark: str) -> None:
    methods = BENCHMARKS[benchmark].METHODS
    assert [repr(method) for method in pickle.loads(pickle.dumps(methods))] == [*map(repr, methods)]


@pytest.mark.slow
def test_pipeline_benchmark_runs_on_simulated_storage(tmp_path: Path) -> None:
    json_path = tmp_path / "record.json"
    arguments = ["--simulated", "--chunks", "5", "--rounds", "1", "--background", "0"]
    shown = run("pipeline", *arguments, "--json", str(json_path))
    assert shown.exit_code == 0, shown.output
    (latencies,) = json.loads(json_path.read_text())["groups"]
    assert len(rounds(latencies["methods"][0], figure_name("reader", "min"))) == 1


# --- all of them ------------------------------------------------------------------------------------------


def run_all(
    monkeypatch: pytest.MonkeyPatch, state: str, *arguments: str, cpus: int = 2
) -> tuple[Result, list[list[str]]]:
    """Run what runs them all, where relay fails and the others do nothing. The number of CPUs comes before each."""
    allowed = range(cpus)
    commands: list[list[str]] = []

    def ran(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append([str(len(allowed)), *command[2:]])
        return subprocess.CompletedProcess(command, 3 * (command[2] == "benchmarks.relay"))

    def allow(_: int, some: Sequence[int]) -> None:
        nonlocal allowed
        allowed = range(len(some))

    monkeypatch.setattr(all_of_them, "git_state", lambda: state)
    monkeypatch.setattr(all_of_them.subprocess, "run", ran)
    monkeypatch.setattr(all_of_them.os, "sched_getaffinity", lambda _: {*range(cpus)})
    monkeypatch.setattr(all_of_them.os, "sched_setaffinity", allow)
    return CliRunner().invoke(all_of_them.main, arguments), commands


def test_all_benchmarks_run_even_if_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, commands = run_all(monkeypatch, "0123")
    assert {words[1].removeprefix("benchmarks.") for words in commands} == {*BENCHMARKS}
    assert all(words[-1] == "--record" for words in commands)
    assert (shown.exit_code, shown.output.splitlines()[0]) == (1, "measured: 0123")
    assert shown.output.splitlines()[-1] == "failed with exit status 3 on 2 of the CPUs: relay --record"
    for words in commands:
        parsed = BENCHMARKS[words[1].removeprefix("benchmarks.")].main.make_context("", words[2:])
        assert parsed.params["is_kept"]


def test_all_benchmarks_refuse_uncommitted_changes_but_for_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, commands = run_all(monkeypatch, "0123, with uncommitted changes")
    assert (shown.exit_code, commands) == (1, [])
    assert "commit your changes first" in shown.stderr
    _, commands = run_all(monkeypatch, "0123, with uncommitted changes", "--quick")
    assert sorted(commands) == [["2", f"benchmarks.{name}", "--quick"] for name in sorted(BENCHMARKS)]


def test_a_look_at_all_benchmarks_is_also_on_one_and_two_of_many_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, commands = run_all(monkeypatch, "0123", "--quick", cpus=16)
    assert [words[0] for words in commands if words[1] == "benchmarks.relay"] == ["1", "2", "16"]
    assert shown.output.splitlines()[-1] == "failed with exit status 3 on 16 of the CPUs: relay --quick"


# --- findings ---------------------------------------------------------------------------------------------


def test_findings_report_the_overhead_of_ray() -> None:
    fps = {"2-drawings": 20.0, "ray-drawings": 19.0, "2-processes": 18.0, "ray": 16.2}
    rows = [Row(by_name(render.METHODS, name), [Run({"fps": one})]) for name, one in fps.items()]
    (said,) = render.findings(Group("python", "python", rows))
    assert said.startswith("ray / 2-processes is 0.90x. ray-drawings / 2-drawings is 0.95x")
    assert render.findings(Group("python", "python", rows[:1] + rows[2:])) == []


def latencies(**microseconds: list[float]) -> Group:
    """A row for each configuration, whose rounds have these end-to-end latencies, always the same within a round."""
    rows = []
    for one, values in zip(CONFIGURATIONS, microseconds.values(), strict=False):
        figures = ({figure_name(END_TO_END, metric): value for metric in METRICS} for value in values)
        runs = [Run(each | {"mb_per_s": 1000 / value}) for each, value in zip(figures, values, strict=True)]
        rows.append(Row(Method(one.name, "", "ours"), runs))
    return Group("latencies", "latencies", rows, {"codec": "zlib", "background": 1})


def test_findings_on_priorities_follow_from_the_figures() -> None:
    (better,) = pipeline.findings(latencies(normal=[100, 110, 90, 100], priorities=[50, 55, 45, 50]))
    assert better.startswith(
        "Priorities, against none: end-to-end p50 -50 % (-50 % to -50 % in the middle half"
    )
    assert "no clear difference" not in better
    (worse,) = pipeline.findings(latencies(normal=[100, 100], priorities=[130, 140]))
    assert "p50 +35 %" in worse
    (unclear,) = pipeline.findings(latencies(normal=[100, 100, 100, 100], priorities=[80, 120, 90, 115]))
    assert unclear.count("no clear difference") == 3
    three = latencies(normal=[100, 100], priorities=[50, 50], pinned=[100, 100])
    three.rows[1].runs[0].notes["refused"] = ["niceness -5 was refused"]
    _, pinning, refused = pipeline.findings(three)
    assert pinning.startswith("Pinning, on top of priorities: end-to-end p50 +100 %")
    assert refused == "Refused in 'priorities': niceness -5 was refused"


# --- command lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "arguments", "complaint"),
    [
        ("pipe", "--size 8k", "'8k' is none of 720p"),
        ("pipe", "--method magic", "'magic' is none of stdin.write"),
        ("pipe", "--bytes much", "not 'much'"),
        ("pipe", "--buffers 0", "0 is not in the range"),
        ("encode", "--size 321x180", "yuv420p needs an even width"),
        ("relay", "--way uphill", "'uphill' is none of call, file-pipe"),
        ("relay", "--way call --method os.splice", "none of these methods"),
        ("pipeline", "--codec magic", "'magic' is not one of"),
        ("pipeline", "--chunks 1", "1 is not in the range"),
    ],
)
def test_wrong_usage_is_reported_and_exits_with_2(benchmark: str, arguments: str, complaint: str) -> None:
    shown = run(benchmark, *arguments.split())
    assert shown.exit_code == 2
    assert complaint in " ".join(shown.stderr.split())


@pytest.mark.parametrize(
    "benchmark",
    ["pipe", "encode", "decode", "relay", "render", "fan_out", "capture", "sound", "machines"],
)
def test_help_names_every_method(benchmark: str) -> None:
    # A line of the help may break at a hyphen.
    text = "".join(run(benchmark, "--help").output.split())
    assert ",".join(method.name for method in BENCHMARKS[benchmark].METHODS) in text


@pytest.mark.parametrize("benchmark", ["pipe", "decode"])
def test_missing_ffmpeg_is_reported(benchmark: str) -> None:
    shown = run(benchmark, "--quick", "--ffmpeg", "/nowhere/ffmpeg")
    assert shown.exit_code == 1
    assert "/nowhere/ffmpeg" in shown.stderr


def test_exit_status_is_1_if_a_method_loses_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["--size", "5000", "--rounds", "1", "--seconds", "0.001"]
    arguments = ["--way", "file-pipe", "--method", "os.sendfile", *few]
    assert run("relay", *arguments).exit_code == 0
    whole = os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda out, src, at, count: whole(out, src, at, count - 1) + 1)
    shown = run("relay", *arguments)
    assert shown.exit_code == 1
    assert "ERROR: MisdeliveredError: 10000 bytes were sent, and 9998 arrived at end 0" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("benchmark", "number"), [("pipe", signal.SIGINT), ("relay", signal.SIGTERM)])
def test_signal_ends_a_benchmark_and_its_child_processes(benchmark: str, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{benchmark}", "--quick"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    # A case of the pipe's has a process of its own.
    is_there = has_worker if benchmark == "pipe" else is_busy
    assert eventually(lambda: is_there(process.pid))
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode != 0, b"Traceback" in said) == (True, False)
    # A worker that was just being started has no case, and an FFmpeg no input, any more.
    assert eventually(lambda: of_session(process.pid) == [])


def has_worker(session: int) -> bool:
    """Whether a case is being run in it."""
    return any(b"benchmarks.harness.isolated" in command for command in of_session(session))


def is_busy(pid: int) -> bool:
    """Whether it has used a second of the processor: it is past its imports."""
    return sum(map(int, status_of(pid)[11:13])) / os.sysconf("SC_CLK_TCK") >= 1


def status_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def of_session(session: int) -> list[bytes]:
    """Command lines of the processes in a session that have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            state, *_, its_session = status_of(int(entry.name))[:4]
            if int(its_session) == session and state != "Z":
                found.append((entry / "cmdline").read_bytes())
    return found
