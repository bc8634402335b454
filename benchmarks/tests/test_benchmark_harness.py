"""The harness of the benchmarks: rounds, spreads, goals, tables, records, options, and cases in their own processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from benchmarks.compare.__main__ import Comparison
from benchmarks.harness import files, record, tables
from benchmarks.harness.accounts import accounted, children, tree_cpu_s, watch
from benchmarks.harness.command import repeated
from benchmarks.harness.content import (
    LOOP_PICTURES,
    WAVES_LOOP_FRAMES,
    Content,
    Film,
    psnr_db,
    there_and_back,
)
from benchmarks.harness.goals import Goal, judge
from benchmarks.harness.isolated import CaseError, run_isolated
from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import Method
from benchmarks.harness.options import by_name, parse_bytes, parse_even_size, resized
from benchmarks.harness.results import OTHERS, CannotDoError, Group, Row, Run, Spread, rows_for
from benchmarks.harness.rounds import check_content, run_rounds
from benchmarks.harness.senders import quantile


def row(name: str, *fps: float, kind: str = "rival", error: str | None = None) -> Row:
    runs = [Run({"fps": value, "start_s": None}) for value in fps]
    return Row(Method(name, "", kind), runs, error=error)  # type: ignore[arg-type]


def group(*rows: Row) -> Group:
    return Group("job", "job: 10 frames", [*rows], {"frames": 10})


# --- rounds -----------------------------------------------------------------------------------------------


def test_rows_take_turns_and_every_second_round_goes_backwards() -> None:
    ran: list[str] = []
    made = group(*(row(name) for name in "abcd"))
    run_rounds(made, lambda one: Run({"fps": 1.0}), 4, lambda text: ran.append(text[-1]))
    rounds = ["".join(ran[start : start + 4]) for start in range(0, 16, 4)]
    assert [sorted(names) for names in rounds] == [["a", "b", "c", "d"]] * 4
    assert (rounds[1], rounds[3]) == (rounds[0][::-1], rounds[2][::-1])
    assert all(len(one.runs) == 4 for one in made.rows)


def test_a_row_that_failed_is_not_run_again_and_has_no_figures() -> None:
    def fails_once(one: Row) -> Run:
        if one.name == "fails" and one.runs:
            raise RuntimeError("the method's own reason")
        return Run({"fps": 1.0})

    made = group(row("fails"), row("works"))
    run_rounds(made, fails_once, 5, lambda _: None)
    failed, works = made.rows
    assert failed.error == "RuntimeError: the method's own reason"
    assert (len(failed.runs), failed.median("fps")) == (2, None)
    assert works.median("fps") == 1.0


def test_a_method_that_cannot_do_the_job_is_skipped_and_is_no_error() -> None:
    def cannot(_: Row) -> Run:
        raise CannotDoError("no decoder for it")

    made = group(row("a"))
    run_rounds(made, cannot, 3, lambda _: None)
    assert (made.rows[0].skipped, made.rows[0].error, len(made.rows[0].runs)) == (
        "no decoder for it",
        None,
        1,
    )
    assert not made.rows[0].is_measured


# --- goals ------------------------------------------------------------------------------------------------


def goals_of(*goals: Goal, **fps: float) -> Group:
    made = group(*(row(name, value) for name, value in fps.items()), Row(Method("absent", ""), skipped="no"))
    made.outcomes = judge(goals, made)
    return made


def test_a_goal_is_met_at_its_ratio_or_at_its_share_of_the_bound() -> None:
    goals = Goal("ours", "rival", 1.5, bound="bound"), Goal("ours", "rival", 1.2), Goal("ours", "rival", 1.5)
    assert [one.is_met for one in goals_of(*goals, ours=130, rival=100, bound=140).outcomes] == [
        True,
        True,
        False,
    ]
    bounded, *_ = goals_of(*goals, ours=130, rival=100, bound=142).outcomes
    assert (bounded.is_met, bounded.ratio) == (False, 1.3)
    assert bounded.enough == pytest.approx(0.92 * 1.42)
    at_most = Goal("ours", "rival", 1.2, "at most"), Goal("ours", "rival", 1.4, "at most")
    assert [one.is_met for one in goals_of(*at_most, ours=130, rival=100).outcomes] == [False, True]


def test_goal_without_figures_is_not_measured_and_goal_without_rows_is_left_out() -> None:
    made = goals_of(Goal("ours", "absent", 1), Goal("ours", "not-asked-for", 1), ours=1)
    assert [(one.goal, one.verdict) for one in made.outcomes] == [
        ("ours: at least 1 × absent", "not measured")
    ]


def test_goals_are_reported_per_group_and_in_total() -> None:
    made = goals_of(Goal("ours", "rival", 1.5), Goal("ours", "absent", 1), ours=130, rival=100)
    printed = StringIO()
    console = Console(file=printed, width=100)
    tables.print_group(console, made, ["fps"], ["rival"])
    assert "goal: ours: at least 1.5 × rival: 1.30 ×: missed" in printed.getvalue().splitlines()
    tables.print_outcomes(console, [made, group()])
    assert printed.getvalue().splitlines()[-1] == "goals missed: 1 of 2"
    goals = record.make("decode", {}, {}, "", {}, [made])["groups"][0]["goals"]
    assert goals == [
        {"goal": "ours: at least 1.5 × rival", "ratio": 1.3, "verdict": "missed"},
        {"goal": "ours: at least 1 × absent", "verdict": "not measured"},
    ]


# --- rounds: content, company, what is missing ------------------------------------------------------------


def test_method_that_fails_its_content_check_is_not_timed_and_bounds_are_not_checked() -> None:
    made = group(row("lies"), row("alone", kind="bound"))
    check_content(made, lambda _: Run(error="lost a frame"), lambda _: None)
    run_rounds(made, lambda _: Run({"fps": 1.0}), 1, lambda _: None)
    lies, alone = made.rows
    assert (lies.error, lies.runs) == ("lost a frame", [])
    assert (alone.checked, alone.median("fps")) == (None, 1.0)


def test_disturbed_run_is_repeated_and_the_least_disturbed_run_counts() -> None:
    def ran(*cpus: float, repeats: int) -> Row:
        left = iter(cpus)
        made = group(row("method"))
        run_rounds(made, lambda _: Run({OTHERS: 99 * next(left)}), 2, lambda _: None, repeats)
        return made.rows[0]

    calm_later = ran(2, 1, 0, 0, repeats=3)
    assert (calm_later.repeats, calm_later.disturbed_rounds) == (2, [])
    assert ran(0, 1, repeats=0).disturbed_rounds == [2]
    never_calm = ran(0, 4, 2, 3, 5, repeats=3)
    assert (never_calm.repeats, never_calm.disturbed_rounds) == (3, [2])
    assert never_calm.runs[1].figures[OTHERS] == 99 * 2
    text = record.to_text(record.make("pipe", {}, {}, "", {}, [group(never_calm)]))
    assert '"disturbed_rounds": [2], "repeats": 3,' in " ".join(text.split())
    printed = StringIO()
    tables.print_remarks(Console(file=printed, width=100), group(never_calm, row("calm")))
    assert "because other processes used the CPUs: 3" in printed.getvalue()
    assert "disturbed by other processes: 1 (method)" in printed.getvalue()


@pytest.mark.skipif(watch()() is None, reason="the kernel hides the CPU time of other processes")
def test_busy_process_outside_the_benchmark_counts_as_a_disturbance() -> None:
    code = (
        "import time\n"
        "from benchmarks.harness.results import Group, Method, Row, Run\n"
        "from benchmarks.harness.rounds import run_rounds\n"
        "only = Row(Method('sleep', ''))\n"
        "run_rounds(Group('', '', [only]), lambda _: time.sleep(0.5) or Run(), 1, lambda _: None)\n"
        "print(only.disturbed_rounds)"
    )
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], process_group=0) as busy:
        try:
            shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        finally:
            busy.kill()
    assert shown.stdout == "[1]\n", shown.stderr


def test_a_rival_that_is_not_installed_is_skipped_and_says_how_to_get_it() -> None:
    rival = Method("rival", "", needs=("nobody_wrote_this.module", "nobody_wrote_that"))
    (only,) = rows_for([rival, Method("other job", "", serves=("other",))], SimpleNamespace(kind="this"))
    assert only.skipped == "not installed (pip install nobody_wrote_this nobody_wrote_that)"


# --- figures ----------------------------------------------------------------------------------------------


def test_spread_has_median_minimum_maximum_and_interquartile_range() -> None:
    spread = Spread.of(5.0, 1.0, 2.0, 3.0, 4.0)
    assert (spread.median, spread.min, spread.max, spread.iqr) == (3.0, 1.0, 5.0, 2.0)
    assert Spread.of(1.0).iqr == 0.0
    assert row("method", 1.0).spread("start_s") is None
    assert row("method", 1.0, error="lost a frame").spread("fps") is None


def test_quantiles_are_values_that_were_measured() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(list(range(1, 151)), 0.99) == 149
    assert quantile([7.0], 0.99) == 7.0


@pytest.mark.parametrize(
    ("now", "is_slower"),
    [
        ([1.0, 1.1, 0.9, 1.0, 1.2, 1.0], False),
        ([1.3, 1.4, 1.2, 1.3, 1.5, 1.3], True),
        ([1.0, 1.6, 0.9, 1.0, 1.0, 1.7], False),  # two runs were disturbed: the median of the pairs is 1.23
        ([1.02, 1.12, 0.92, 1.02, 1.22, 1.02], False),
    ],
)
def test_comparison_tells_a_slowdown_between_commits_from_noise(now: list[float], is_slower: bool) -> None:
    base = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0]
    assert Comparison.of(base, now).is_slower == is_slower


def test_the_block_and_its_children_are_accounted_for() -> None:
    run = Run()
    code = "sum(range(3_000_000))"
    with accounted(run):
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])  # nobody waits for it
    assert (run.figures["cpu_child_s"] or 0) > 0
    assert (run.figures["seconds"] or 0) > 0
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    child.wait()


def test_children_are_found_while_threads_end() -> None:
    done = threading.Event()

    def comes_and_goes() -> None:
        while not done.is_set():
            threads = [threading.Thread(target=os.getpid) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    busy = threading.Thread(target=comes_and_goes)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    busy.start()
    try:
        assert all(child.pid in children() for _ in range(500))
    finally:
        done.set()
        busy.join()
        child.communicate(b"\n")


def test_cpu_time_of_a_tree_includes_live_grandchildren_and_ended_children() -> None:
    before_s = tree_cpu_s()
    burn = "import os, time\nwhile time.process_time() < 0.2: pass\n"
    told = f"{burn}print(flush=True)\ninput()"
    start = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {told!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive_s = tree_cpu_s()
        child.communicate()
    assert alive_s - before_s > 0.15
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert tree_cpu_s() - alive_s > 0.15


# --- cases in processes -----------------------------------------------------------------------------------


def prints_and_measures(value: float) -> Run:
    print("what a library prints")
    return Run({"fps": value}, {"pid": os.getpid()})


def fails(_: object) -> Run:
    print("and what it printed", file=sys.stderr)
    raise RuntimeError("the method's own reason")


def hangs(_: object) -> Run:
    sys.stdin.read()
    return Run(error=str(subprocess.run(["sleep", "60"])))


def exits(_: object) -> Run:
    print("its last words", file=sys.stderr)
    os._exit(3)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(Path(__file__).parent), *sys.path)))


@pytest.mark.usefixtures("importable")
def test_a_case_runs_in_a_process_of_its_own_and_may_print() -> None:
    run = run_isolated(prints_and_measures, 2.0, timeout_s=60)
    assert (run.figures, run.error) == ({"fps": 2.0}, None)
    assert run.notes["pid"] != os.getpid()


@pytest.mark.usefixtures("importable")
def test_failed_case_is_reported_with_its_output() -> None:
    run = run_isolated(fails, None, timeout_s=60)
    assert run.error == "RuntimeError: the method's own reason; its output: and what it printed"
    with pytest.raises(CaseError):
        run_isolated(exits, None, timeout_s=60)
    with pytest.raises(CaseError):
        run_isolated(hangs, None, timeout_s=1)


# --- reports ----------------------------------------------------------------------------------------------


def test_table_shows_the_error_of_a_failed_method_and_no_numbers() -> None:
    made = group(
        row("standard", 50), row("twice", 100), row("lost", 999, error="read 9"), Row(Method("none", ""))
    )
    made.rows[-1].skipped = "not installed"
    made.findings.append("FFmpeg's start is long")
    made.rows[1].runs[-1].notes = {"why": "it was", "waited_s": 0.25}
    printed = StringIO()
    console = Console(file=printed, width=100)
    tables.print_group(console, made, ["fps"], ["standard"])
    lines = printed.getvalue().splitlines()
    cells = {words[0]: words[1:] for line in lines if (words := line.split())}
    assert cells["standard"] == ["50.0", "50.0-50.0", "1.00"]
    assert cells["twice"] == ["100", "100-100", "2.00"]
    assert set(cells["lost"]) == set(cells["none"]) == {"-"}
    assert {
        "lost: ERROR: read 9",
        "none: skipped: not installed",
        "twice: why: it was; waited s: 0.250",
    } <= set(lines)
    assert "FFmpeg's start is long" in lines


def test_a_record_has_medians_spread_and_rounds_on_one_line_each() -> None:
    made = group(row("method", 2.0, 1.0, 3.0000001), row("lost", 9.0, error="read 9"))
    methods = {"methods": [Method("method", "")], "rounds": 3}
    text = record.to_text(record.make("pipe", {}, {}, "make bench", methods, [made]))
    loaded = json.loads(text)
    method, lost = loaded["groups"][0]["methods"]
    spread = {"median": 2.0, "min": 1.0, "max": 3.0, "iqr": 1.0, "rounds": [2.0, 1.0, 3.0]}
    calm = {"kind": "rival", "disturbed_rounds": []}
    assert method == {"name": "method", **calm, "figures": {"fps": spread}}
    assert lost == {"name": "lost", **calm, "error": "read 9"}
    assert loaded["settings"] == {"methods": ["method"], "rounds": 3}
    assert len(text.splitlines()) < 30


def test_a_record_has_the_command_that_repeats_its_run_and_names_no_file() -> None:
    words = ["--json", "/home/me/mine.json", "--job", "a,b", "--ffmpeg=/opt/ffmpeg", "--quick", "--record"]
    assert repeated("fan_out", words) == 'make bench-fan-out ARGS="--job a,b --quick"'
    assert repeated("pipe", ["--record"]) == "make bench"


def test_kept_records_have_the_layout_of_new_ones() -> None:
    paths = list(record.FOLDER.glob("*.json"))
    assert paths
    for path in paths:
        text = path.read_text()
        loaded = json.loads(text)
        assert loaded["schema"] == record.SCHEMA
        assert record.to_text(loaded) + "\n" == text
        for one in (one for made in loaded["groups"] for one in made["methods"]):
            assert ("figures" in one) != bool(one.get("skipped") or one.get("error"))


# --- options, pictures, files -----------------------------------------------------------------------------


def test_options_are_parsed_as_the_other_commands_parse_them() -> None:
    assert [parse_bytes(text) for text in ("500", "4G", "4GB")] == [500, 4 * 2**30, 4 * 10**9]
    assert parse_even_size("320x180") == (320, 180)
    for wrong in ("320", "0x2", "321x180", "320x181"):
        with pytest.raises(ValueError, match=wrong):
            parse_even_size(wrong)
    with pytest.raises(ValueError):
        by_name([Method("a", ""), Method("b", "")], "magic")


def test_a_job_of_another_size_has_another_name() -> None:
    from benchmarks.encode import JOBS

    (small,) = resized(JOBS[:1], (64, 48), 12)
    assert (small.name, small.width, small.frames) == ("motion-720p-at-64x48", 64, 12)
    assert resized(JOBS, None, None) == JOBS


def test_waves_repeat_and_noise_matches_turbopipe() -> None:
    waves = Film("waves", 32, 16)
    assert (waves.frame(0) == waves.frame(WAVES_LOOP_FRAMES)).all()
    assert (waves.frame(0) != waves.frame(1)).any()
    noise = Film("noise", 64, 48).frame(0)
    assert (noise.min(), noise.max()) == (128, 135)


@pytest.mark.parametrize("content", ["motion", "camera", "text", "noise", "waves"])
def test_content_is_the_same_in_every_run_and_moves(content: Content) -> None:
    first, second = (Film(content, 128, 96).pictures() for _ in range(2))
    assert (first == second).all()
    assert first.shape == (LOOP_PICTURES, 96, 128, 3)
    assert all((one != other).any() for one, other in pairwise(first))
    loop = there_and_back(first)
    assert len(loop) == 30
    assert loop[1] is loop[29] and loop[14] is loop[16]
    late = Film(content, 128, 96).frame(1000)
    assert content in ("text", "waves") or (late != first).reshape(LOOP_PICTURES, -1).any(axis=1).all()


def test_the_psnr_is_of_luma() -> None:
    sent = np.full((2, 4, 4, 3), 100, np.uint8)
    assert psnr_db(zip(sent, sent, strict=True)) > 100
    assert psnr_db(zip(sent + np.uint8(1), sent, strict=True)) == pytest.approx(48.13, abs=0.01)
    bluer = sent + np.array([0, 0, 10], np.uint8)
    assert psnr_db(zip(bluer, sent, strict=True)) == pytest.approx(20 * np.log10(255 / 1.14), abs=0.01)


def test_bound_reads_the_pictures_in_turn_if_memory_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made = group(row("bound", kind="bound"), row("method"))
    with files.bound_files(made, lambda _: [b"aa", b"bb"], 3) as paths:
        if made.rows[0].skipped is None:
            assert Path(paths["bound"]).read_bytes() == b"aabbaa"
    monkeypatch.setattr(files, "MEMORY_MARGIN_BYTES", 10**18)
    with files.bound_files(made, lambda _: [b"aa"], 3) as paths:
        assert paths == {}
    assert "/dev/shm" in (made.rows[0].skipped or "")
    assert made.rows[1].skipped is None
