"""The content checks of relay and pipeline: they find a method that loses, changes or adds a byte.

No test compares times.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cases import eventually
from support.this_process import open_fds

from benchmarks import pipeline, relay
from benchmarks.harness.command import JobSettings
from benchmarks.harness.files import nameless_file
from benchmarks.harness.methods import Method
from benchmarks.harness.options import by_name
from benchmarks.harness.results import MisdeliveredError, Row
from benchmarks.harness.rounds import attempt
from benchmarks.relay import Content, Ends
from penstock import _native

pytestmark = pytest.mark.slow


# --- bytes between descriptors ----------------------------------------------------------------------------

NBYTES = 70_001  # more than a pipe holds, and no whole number of pages
#: One of every kind of end.
EVERY_KIND = ("file-pipe", "pipe-file", "pipe-pipe", "file-unix", "file-tcp", "tee-2")


def copies(change: Callable[[bytes], bytes], claimed: int = NBYTES) -> Method:
    """A method that reads all, and writes what ``change`` makes of it to the last of its ends."""

    def start(ends: Ends) -> Callable[[], int]:
        def operate() -> int:
            for fd, position in ((ends.src, ends.way.source), (ends.dsts[0], ends.way.sink)):
                if position == "file":
                    os.lseek(fd, 0, os.SEEK_SET)
            content = b""
            while len(content) < ends.nbytes:
                content += os.read(ends.src, ends.nbytes - len(content))
            for dst in ends.dsts:
                left = change(content) if dst == ends.dsts[-1] else content
                while left:
                    left = left[os.write(dst, left) :]
            return claimed

        return operate

    return Method("copies", "", start=start)


def relay_error(way: str, *methods: Method) -> str | None:
    """What is wrong with the last of the methods."""
    with nameless_file(False) as source, nameless_file(False) as sink:
        job = relay.Job(by_name(relay.WAYS, way), NBYTES, 1e-6)
        case = relay.Case(job, Content(source, NBYTES), sink)
        return [attempt(Row(method), case.check).error for method in methods][-1]


@pytest.mark.parametrize("way", EVERY_KIND)
def test_check_catches_a_relay_method_that_lies(way: str) -> None:
    right = copies(lambda content: content)
    assert relay_error(way, right) is None
    assert "arrived at end" in (relay_error(way, copies(lambda content: content[:-1])) or "")
    assert "arrived at end" in (relay_error(way, copies(lambda content: content + b"x")) or "")
    assert "arrived at end" in (relay_error(way, right, copies(lambda content: b"")) or "")
    flipped = copies(lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    assert "other bytes than were sent arrived at end" in (relay_error(way, flipped) or "")
    boasts = copies(lambda content: content, NBYTES + 1)
    assert (
        relay_error(way, boasts)
        == f"MisdeliveredError: it claims to have moved {NBYTES + 1} bytes of {NBYTES}"
    )


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_relay_method_that_raises_leaves_nothing_behind(way: str) -> None:
    def start(ends: Ends) -> Callable[[], int]:
        def operate() -> int:
            os.read(ends.src, 1)
            raise RuntimeError("the method's own reason")

        return operate

    fds, threads = open_fds(), threading.active_count()
    assert relay_error(way, Method("raises", "", start=start)) == "RuntimeError: the method's own reason"
    assert eventually(lambda: (open_fds(), threading.active_count()) == (fds, threads))


def test_a_file_that_is_not_found_again_from_its_beginning_is_an_error() -> None:
    def start(ends: Ends) -> Callable[[], int]:
        os.lseek(ends.src, 0, os.SEEK_SET)  # once, and not for each operation

        def operate() -> int:
            content = os.read(ends.src, ends.nbytes)
            return os.write(ends.dst, content) if content else 0

        return operate

    assert "it claims to have moved 0 bytes" in (
        relay_error("file-pipe", Method("forgets", "", start=start)) or ""
    )


# --- compressed assets ------------------------------------------------------------------------------------

SMALL = pipeline.Settings(chunk_bytes=5000, chunks=10, background=1, rounds=2, assets=40)


def test_an_asset_that_comes_out_changed_is_an_error(tmp_path: Path) -> None:
    made = pipeline.write_assets(tmp_path, "zlib", SMALL.chunk_bytes, SMALL.chunks)
    assert pipeline.run_once(SMALL, pipeline.NORMAL, made).figures["mb_per_s"]
    made.sums[3] ^= 1
    with pytest.raises(MisdeliveredError):
        pipeline.run_once(SMALL, pipeline.NORMAL, made)


@pytest.mark.parametrize("fault", ["changes a byte", "loses a byte later"])
def test_a_side_of_the_race_that_changes_or_loses_a_byte_has_no_speed(fault: str) -> None:
    runs = 0

    def faulty(made: pipeline.Assets, settings: pipeline.Settings) -> Iterator[bytes]:
        nonlocal runs
        runs += 1
        for content in pipeline.by_pool(made, settings):
            data = bytes(content)
            yield data[:-1] + b"\0" if fault == "changes a byte" else data[: -1 if runs > 1 else None]

    methods = (Method(pipeline.PIPELINE, "", "ours", faulty), by_name(pipeline.METHODS, pipeline.POOL))
    jobs = [job for job in SMALL.jobs if job.kind == "race"]
    (made,) = pipeline.BENCHMARK.run(JobSettings(tuple(jobs), methods, SMALL.rounds))
    ours, pool = made.rows
    assert (ours.error or "").startswith("MisdeliveredError")
    assert (ours.median("mb_per_s"), pool.error) == (None, None)


def test_content_is_the_same_in_every_run_and_no_two_assets_are_alike(tmp_path: Path) -> None:
    first, second = (pipeline.write_assets(tmp_path, "zlib", 3000, 5) for _ in range(2))
    assert first == second
    assert len(set(first.sums)) == 5
    assert first.content_bytes == 15_000


def test_background_load_burns_cpu_and_ends() -> None:
    def children() -> set[str]:
        return {*Path("/proc/thread-self/children").read_text().split()}

    def stat(pid: str) -> list[str]:
        """The fields behind the name (proc(5)): utime is the 12th, nice the 17th."""
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()

    others = children()  # those of a test before, such as the fork server of a process pool
    with pipeline.background(2):
        burning = children() - others
        assert len(burning) == 2
        tried = dict(_native._try_priorities())
        expected = sorted(tried[level].nice for level in ("normal", "below-normal"))
        assert sorted(int(stat(pid)[16]) for pid in burning) == expected
        before = {pid: int(stat(pid)[11]) for pid in burning}
        assert eventually(lambda: all(int(stat(pid)[11]) > before[pid] for pid in burning))
    assert children() <= others


def test_reference_example_runs_each_of_its_rows(tmp_path: Path) -> None:
    program, runs = tmp_path / "example", tmp_path / "runs"
    parts = (
        "Reader: 100 chunks\n  Time per chunk",
        "Decompressor\n  Time",
        "Processor\n  Time",
        "End-to-end latency",
    )
    text = "".join(
        f"{part} (µs):\n  min={first}, p50={first + 1}, p95={first + 2}, max={first + 3}, avg={first}.50\n"
        for first, part in zip(range(0, 120, 10), parts * 3, strict=True)
    )
    program.write_text(f"#!/bin/sh\necho >> {runs}\ncat << END\n{text}END\n")
    program.chmod(0o755)
    example = pipeline.Example(str(program))
    for _ in range(2):
        for number, name in enumerate(pipeline.EXAMPLE_ROWS):
            figures = example.next_run(name).figures
            assert figures["reader min µs"] == 40 * number
            assert [figures[f"end to end {one} µs"] for one in ("p50", "mean")] == [
                40 * number + 31,
                40 * number + 30.5,
            ]
    assert runs.read_text() == "\n\n"  # one for the three rows
