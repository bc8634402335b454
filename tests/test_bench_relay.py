"""The relay's benchmark: that it runs, and above all that it cannot praise a method that loses or changes a byte.

Nothing here looks at how fast anything was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import open_fds

pytest.importorskip("click", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock-io[cli]")

from rich.console import Console

from penstock.bench import machine
from penstock.bench.parsing import by_name
from penstock.bench.relay.cases import GIB, KIB, MIB, WAYS, show_size
from penstock.bench.relay.ends import Ends
from penstock.bench.relay.goals import judge
from penstock.bench.relay.methods import (
    METHODS,
    READ_WRITE,
    RELAY,
    SINGLE,
    SPLICE,
    TEE,
    TUNED,
    Method,
    Operation,
)
from penstock.bench.relay.report import print_group
from penstock.bench.relay.run import Group, Row, Settings, has_errors, run_groups

NBYTES = 70_001  # more than a pipe holds, and no whole number of pages
FILE_TO_PIPE = by_name(WAYS, "file-pipe")
#: One of every kind of end.
EVERY_KIND = ("file-pipe", "pipe-file", "pipe-pipe", "file-unix", "file-tcp", "tee-2")


def run_cli(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{before}\nimport sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    command = [sys.executable, "-c", program, "bench", "relay", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """The record of a small real run of everything."""
    shown = run_cli("--size", f"5000,{NBYTES}", "--rounds", "2", "--seconds", "0.001", "--json", "-")
    assert shown.returncode == 0, shown.stderr
    assert "tee-8-paced, 68.36 KiB" in shown.stderr
    loaded: dict[str, Any] = json.loads(shown.stdout)
    return loaded


def rows_of(record: dict[str, Any], way: str) -> dict[str, dict[str, Any]]:
    """By the method's name, of the larger size."""
    groups = [group for group in record["groups"] if group["way"]["name"] == way]
    return {row["name"]: row for row in groups[-1]["methods"]}


def test_every_way_and_size_is_in_the_record(record: dict[str, Any]) -> None:
    expected = [(way.name, size) for way in WAYS for size in ((5000, NBYTES) if any(way.sizes) else (0,))]
    assert [(group["way"]["name"], group["bytes"]) for group in record["groups"]] == expected


def test_every_method_that_serves_a_way_was_measured_in_every_round(record: dict[str, Any]) -> None:
    for group in record["groups"]:
        way = by_name(WAYS, group["way"]["name"])
        serving = [method.name for method in METHODS if method.serves(way)]
        assert [row["name"] for row in group["methods"]] == serving
        for row in group["methods"]:
            assert (row["error"], row["skipped"]) == (None, None)
            assert len(row["seconds"]) == 2
            assert row["operations"] >= 1
            assert row["median"]["op_s"] > 0


def test_the_rivals_are_those_of_each_way(record: dict[str, Any]) -> None:
    loops = {RELAY, READ_WRITE, "shutil.copyfileobj"}
    splices = {SPLICE, TUNED}
    assert rows_of(record, "file-pipe").keys() == loops | splices | {"os.sendfile"}
    assert rows_of(record, "pipe-file").keys() == rows_of(record, "pipe-pipe").keys() == loops | splices
    assert (
        rows_of(record, "file-tcp").keys() == rows_of(record, "file-unix").keys() == loops | {"os.sendfile"}
    )
    assert rows_of(record, "tee-4-paced").keys() == {TEE, "read+write-to-all", SINGLE}
    assert rows_of(record, "call").keys() == {RELAY}


def test_ours_say_how_the_bytes_went(record: dict[str, Any]) -> None:
    assert rows_of(record, "file-pipe")[RELAY]["notes"]["method"] == "splice"
    assert rows_of(record, "tee-2")[TEE]["notes"]["method"] == "tee"


def test_a_record_says_what_it_was_measured_on_and_names_no_host(record: dict[str, Any]) -> None:
    import platform

    import penstock

    assert record["benchmark"] == "relay"
    assert record["software"]["penstock"] == penstock.__version__
    assert record["machine"]["cores"] > 0
    text = json.dumps(record)
    assert str(Path.home()) not in text
    assert f'"{platform.node()}"' not in text


def test_goals_that_the_run_has_rows_for_are_judged(record: dict[str, Any]) -> None:
    judged = [verdict["what"] for verdict in record["goals"]["verdicts"]]
    assert judged == [
        f"{RELAY} / {READ_WRITE}, file-pipe, 68.36 KiB",
        f"{TEE} / {SINGLE}, tee-4-paced, 4.883 KiB",
        f"{TEE} / {SINGLE}, tee-4-paced, 68.36 KiB",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--way", "uphill"], "'uphill' is none of call, file-pipe"),
        (["--method", "magic"], "'magic' is none of penstock.relay"),
        (["--size", "0"], "'0' is not a number of bytes"),
        (["--rounds", "0"], "--rounds"),
        (["--seconds", "0"], "--seconds"),
    ],
)
def test_wrong_usage_is_told_and_exits_with_2(arguments: list[str], complaint: str) -> None:
    shown = run_cli(*arguments)
    assert shown.returncode == 2
    assert complaint in " ".join(shown.stderr.split())


def test_help_names_every_way_and_method() -> None:
    words = run_cli("--help").stdout.replace(",", " ").replace(";", " ").split()
    assert [entry.name for entry in (*WAYS, *METHODS) if entry.name not in words] == []


def test_the_exit_status_tells_of_a_method_that_lost_a_byte() -> None:
    losing = "import os; whole = os.sendfile; os.sendfile = lambda o, i, at, n: whole(o, i, at, n - 1) + 1"
    arguments = ("--way", "file-pipe", "--size", "5000", "--method", "os.sendfile", "--rounds", "1")
    assert run_cli(*arguments, "--seconds", "0.001").returncode == 0
    shown = run_cli(*arguments, before=losing)
    assert shown.returncode == 1
    assert "os.sendfile: ERROR: 10000 bytes were sent, and 9998 arrived at end 0" in shown.stdout


def copies(change: Callable[[bytes], bytes], claims: Callable[[int], int] = lambda nbytes: nbytes) -> Method:
    """A method that reads all, and writes to each end what ``change`` makes of it."""

    def start(ends: Ends) -> Operation:
        def operate() -> int:
            for fd, position in ((ends.src, ends.way.source), (ends.dsts[0], ends.way.sink)):
                if position == "file":
                    os.lseek(fd, 0, os.SEEK_SET)
            content = bytearray()
            while len(content) < ends.nbytes:
                content += os.read(ends.src, ends.nbytes - len(content))
            for number, dst in enumerate(ends.dsts):
                # Of many, only the last gets other bytes.
                write_all(dst, change(bytes(content)) if number == len(ends.dsts) - 1 else bytes(content))
            return claims(ends.nbytes)

        return operate

    return Method("copies", "", start, lambda way: True)


def write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def error_of(method: Method, way: str = "file-pipe", rounds: int = 1) -> str | None:
    settings = Settings((by_name(WAYS, way),), (NBYTES,), (method,), rounds, run_s=1e-6)
    (group,) = run_groups(settings)
    (row,) = group.rows
    assert has_errors([group]) == (row.error is not None)
    assert (row.summary() is None) == (row.error is not None)
    return row.error


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_right_method_has_no_error(way: str) -> None:
    assert error_of(copies(lambda content: content), way) is None


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_lost_byte_is_an_error(way: str) -> None:
    error = error_of(copies(lambda content: content[:-1]), way)
    assert error is not None
    assert "bytes were sent, and" in error


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_byte_too_many_is_an_error(way: str) -> None:
    error = error_of(copies(lambda content: content + b"\0"), way)
    assert error is not None
    assert "bytes were sent, and" in error


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_changed_byte_is_an_error_though_their_number_is_right(way: str) -> None:
    def flip(content: bytes) -> bytes:
        return content[:40_000] + bytes([content[40_000] ^ 1]) + content[40_001:]

    error = error_of(copies(flip), way)
    end = by_name(WAYS, way).readers - 1
    assert error == f"other bytes than were sent arrived at end {max(0, end)}"


def test_exchanged_pages_are_an_error() -> None:
    error = error_of(copies(lambda content: content[4096:8192] + content[:4096] + content[8192:]))
    assert error == "other bytes than were sent arrived at end 0"


def test_a_method_that_claims_less_than_it_moved_is_an_error() -> None:
    error = error_of(copies(lambda content: content, claims=lambda nbytes: nbytes - 1))
    assert error == f"it says that it moved {NBYTES - 1} bytes of {NBYTES}"


def test_a_method_that_loses_a_byte_only_in_later_runs_is_an_error_too() -> None:
    calls = iter(range(1000))
    error = error_of(copies(lambda content: content[:-1] if next(calls) > 3 else content), rounds=5)
    assert error is not None
    assert "bytes were sent, and" in error


def test_a_method_that_does_not_find_the_beginning_again_is_an_error() -> None:
    def start(ends: Ends) -> Operation:
        os.lseek(ends.src, 0, os.SEEK_SET)  # once, and not for each operation

        def operate() -> int:
            content = os.read(ends.src, ends.nbytes)
            write_all(ends.dst, content)
            return len(content)

        return operate

    error = error_of(Method("forgets", "", start, lambda way: True))
    assert error == f"it says that it moved 0 bytes of {NBYTES}"


@pytest.mark.parametrize("way", EVERY_KIND)
def test_nothing_at_all_is_an_error(way: str) -> None:
    error = error_of(copies(lambda content: b""), way)
    assert error is not None
    assert "and 0 arrived at end" in error


def test_a_file_that_another_method_has_written_does_not_hide_a_loss() -> None:
    right, wrong = copies(lambda content: content), copies(lambda content: content[:-1])
    (group,) = run_groups(Settings((by_name(WAYS, "pipe-file"),), (NBYTES,), (right, wrong), 1, run_s=1e-6))
    assert group.rows[0].error is None
    assert group.rows[1].error == f"{NBYTES} bytes were sent, and {NBYTES - 1} arrived at end 0"


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_method_that_raises_is_an_error_and_leaves_nothing_behind(way: str) -> None:
    def start(ends: Ends) -> Operation:
        def operate() -> int:
            os.read(ends.src, 1)
            raise RuntimeError("the method's own reason")

        return operate

    fds, threads = open_fds(), threading.active_count()
    assert (
        error_of(Method("raises", "", start, lambda way: True), way)
        == "RuntimeError: the method's own reason"
    )
    assert open_fds() == fds
    assert threading.active_count() == threads


def test_what_this_python_has_not_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "splice")
    methods = (by_name(METHODS, RELAY), by_name(METHODS, SPLICE))
    (group,) = run_groups(Settings((FILE_TO_PIPE,), (NBYTES,), methods, rounds=1, run_s=1e-6))
    assert group.rows[1].skipped == "this Python has no os.splice"
    assert not has_errors([group])
    assert group.rates().keys() == {RELAY}


def test_without_room_in_shared_memory_the_files_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MEMORY_MARGIN_BYTES", 10**18)
    (group,) = run_groups(Settings((FILE_TO_PIPE,), (NBYTES,), (by_name(METHODS, RELAY),), 1, run_s=1e-6))
    assert not group.in_shared_memory
    assert not has_errors([group])


def test_a_paced_reader_takes_its_time() -> None:
    way = replace(by_name(WAYS, "tee-1-paced"), sizes=(2 * MIB,))
    (group,) = run_groups(Settings((way,), methods=(by_name(METHODS, SINGLE),), rounds=1))
    (row,) = group.rows
    assert row.seconds[0] >= 2 * MIB / 200e6


def test_methods_take_turns_and_another_begins_each_round() -> None:
    ran: list[str] = []
    methods = tuple(replace(copies(lambda content: content), name=name) for name in "abc")
    settings = Settings((FILE_TO_PIPE,), (NBYTES,), methods, rounds=4, run_s=1e-6)
    list(run_groups(settings, lambda what: ran.append(what[-1]) if "round" in what else None))
    assert "".join(ran) == "abcbcacababc"


def test_medians_and_spread_are_of_one_operation() -> None:
    row = Row(METHODS[0], 1_000_000, repeats=10, seconds=[0.01, 0.02, 0.03, 0.04, 0.1])
    summary = row.summary()
    assert summary is not None
    assert summary.op_s == pytest.approx(0.003)
    assert summary.op_iqr_s == pytest.approx(0.002)
    assert summary.gb_per_s == pytest.approx(1 / 3)
    assert summary.gb_per_s_iqr == pytest.approx(0.5 - 0.25)


def test_goals_are_judged_from_the_rates_of_one_group() -> None:
    rates = {RELAY: 190.0, READ_WRITE: 100.0, SPLICE: 150.0, TUNED: 200.0}
    both = [str(verdict) for verdict in judge(FILE_TO_PIPE, GIB, rates)]
    assert both == [
        f"{RELAY} / {READ_WRITE}, file-pipe, 1 GiB: 1.90x (target 2.00x: missed)",
        f"{RELAY} / {TUNED}, file-pipe, 1 GiB: 0.95x (target 0.95x: met)",
    ]
    assert [verdict.at_least for verdict in judge(FILE_TO_PIPE, 64 * KIB, rates)] == [2.0]
    assert judge(FILE_TO_PIPE, 32 * KIB, rates) == []
    assert judge(FILE_TO_PIPE, GIB, {RELAY: 1.0, SPLICE: 1.0}) == []
    assert judge(by_name(WAYS, "file-tcp"), GIB, rates) == []


def test_a_tees_goal_is_that_of_four_paced_readers() -> None:
    rates = {TEE: 80.0, SINGLE: 100.0}
    (verdict,) = judge(by_name(WAYS, "tee-4-paced"), MIB, rates)
    assert not verdict.met
    assert judge(by_name(WAYS, "tee-4"), MIB, rates) == judge(by_name(WAYS, "tee-8-paced"), MIB, rates) == []


def test_the_table_says_what_went_wrong_and_gives_no_numbers_for_it() -> None:
    rows = [
        Row(by_name(METHODS, RELAY), MIB, 10, [0.001]),
        Row(by_name(METHODS, READ_WRITE), MIB, 10, [0.004]),
        Row(by_name(METHODS, SPLICE), MIB, 10, [0.001], error="lost a byte"),
        Row(by_name(METHODS, TUNED), MIB, skipped="not there"),
    ]
    printed = StringIO()
    print_group(Console(file=printed, width=80), Group(FILE_TO_PIPE, MIB, rows))
    lines = printed.getvalue().splitlines()
    numbers = {words[0]: words[1:] for line in lines if (words := line.split()) and words[0][-1] != ":"}
    assert numbers[RELAY] == ["100", "0.00", "10.49", "0.00", "4.00x", "10"]
    assert set(numbers[SPLICE]) == set(numbers[TUNED]) == {"-"}
    assert f"{SPLICE}: ERROR: lost a byte" in lines
    assert f"{TUNED}: skipped: not there" in lines


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (16 * KIB, "16 KiB"), (10 * MIB, "10 MiB"), (GIB, "1 GiB")]
)
def test_sizes_are_shown_as_people_say_them(nbytes: int, text: str) -> None:
    assert show_size(nbytes) == text
