"""Bounds: what many streams take from the system, and what nothing leaves behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.cases import MODES, eventually
from support.processes import run_script, succeeded
from support.streams import CAT, PIPE_BYTES, ReaderThread, capacity_bytes
from support.this_process import open_fds, rss_bytes, workers

import penstock
from penstock import _native

STREAMS = """
import fcntl
import penstock._common.log  # which is reported to later, from files that only root may be able to read

if os.geteuid() == 0:
    # The limit is not root's, and is that of all pipes of a user: this one has no other process.
    user = 1 << 20 | os.getpid()
    os.setresuid(user, user, user)
count, size = 200, 300_000
pipes = [os.pipe() for _ in range(count)]
got = [0] * count

def read(index):
    while chunk := os.read(pipes[index][0], 1 << 20):
        got[index] += len(chunk)

writers = [penstock.Writer(writer) for _, writer in pipes]
capacities = [writer.stats.capacity_bytes for writer in writers]
stranger = os.pipe()
print(sum(capacities), min(capacities), fcntl.fcntl(stranger[1], fcntl.F_GETPIPE_SZ))
for writer in writers:
    writer.submit(bytes(size))
threads = [threading.Thread(target=read, args=(index,)) for index in range(count)]
for thread in threads:
    thread.start()
for (_, fd), writer in zip(pipes, writers):
    writer.close(60)
    os.close(fd)
for thread in threads:
    thread.join()
print(got == [size] * count)
"""


def soft_limit_bytes() -> int:
    pages = int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text())
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.linux("the size of a pipe")
def test_200_streams_leave_other_pipes_their_size() -> None:
    if not (soft_bytes := soft_limit_bytes()):
        pytest.skip("this system has no soft limit on a user's pipes")

    sizes, delivered = succeeded(run_script(STREAMS)).decode().splitlines()
    total, smallest, strangers = map(int, sizes.split())
    assert delivered == "True"
    assert strangers == PIPE_BYTES
    assert smallest >= PIPE_BYTES
    assert total <= soft_bytes // 2 + 200 * PIPE_BYTES
    assert total > soft_bytes // 4, "the share is used"


@pytest.mark.linux("the size of a pipe")
def test_closed_pipes_return_their_share() -> None:
    limit = soft_limit_bytes() // 2 or 32 << 20
    for _ in range(2 * limit // (1 << 20)):
        reader, writer = os.pipe()
        with penstock.Writer(writer) as own:
            assert own.stats.capacity_bytes == 1 << 20
        os.close(reader)
        os.close(writer)


def one_stream(mode: str) -> None:
    reader, writer = os.pipe()
    got = ReaderThread(reader)
    with penstock.Writer(writer, mode=mode) as own:
        own.submit(bytes(100_000))
        os.close(writer)
    assert len(got.result()) == 100_000


def test_500_streams_in_turn_leave_no_thread_or_descriptor() -> None:
    one_stream("auto")
    assert eventually(lambda: not workers())
    before = open_fds()
    for number in range(500):
        one_stream(MODES[number % len(MODES)])
    assert eventually(lambda: not workers())
    assert open_fds() == before


def test_500_streams_by_number_leave_no_thread_or_descriptor() -> None:
    before = open_fds()
    for _ in range(500):
        reader, writer = os.pipe()
        _native._pipe(b"x" * 1000, writer)
        os.close(writer)
        assert os.read(reader, 2000) == b"x" * 1000
        assert os.read(reader, 1) == b"", "the end of file, though nobody has called sync"
        os.close(reader)
    _native._close(30)
    assert eventually(lambda: not workers())
    assert open_fds() == before


def test_20_000_buffers_leak_no_memory() -> None:
    with subprocess.Popen(CAT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0) as cat:

        def send(count: int) -> None:
            for number in range(count):
                _native._pipe(bytes(4000), cat.stdin, mode=MODES[number % len(MODES)])
            _native._sync(timeout=30)

        send(2000)
        before = rss_bytes()
        send(20_000)
        # Buffers that were kept would be 80 MB; what they are kept by, some more.
        assert rss_bytes() - before < 16 << 20
        cat.stdin.close()


@pytest.mark.linux("the size of a pipe")
def test_capacity_is_stepped_down_and_never_raises() -> None:
    reader, writer = os.pipe()
    with penstock.Writer(writer, capacity_bytes=1 << 30) as own:
        granted = own.stats.capacity_bytes
        assert granted is not None
        assert granted == capacity_bytes(writer)
        assert granted >= PIPE_BYTES
    os.close(reader)
    os.close(writer)


def test_more_busy_pipes_than_are_remembered_are_all_waited_for_and_reported() -> None:
    count = 300
    code = f"""
    import resource
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    data = bytes(1 << 20)
    pipes = [os.pipe() for _ in range({count})]
    for _, writer in pipes:
        os.write(writer, b"-")  # so that no pipe takes it whole
        penstock._native._pipe(data, writer)
    for call in (penstock._native._sync, penstock._native._close):
        try:
            call(timeout=0.3)
        except penstock.StalledError as stalled:
            print(stalled.bytes_pending // len(data), end=" ")
    for reader, _ in pipes:
        os.close(reader)
    try:
        penstock._native._sync()
    except penstock.BrokenStreamError as first:
        print(1 + len(first.__notes__) if hasattr(first, "__notes__") else {count}, end=" ")
    penstock._native._sync()
    """
    assert succeeded(run_script(code)) == b"300 300 300 "


def test_all_streams_share_one_staging_budget() -> None:
    code = """
    from collections import Counter

    def transports(**options):
        pipes = [os.pipe() for _ in range(12)]
        writers = [penstock.Writer(writer, mode="staged", **options) for _, writer in pipes]
        for writer in writers:
            writer.submit(bytes(300_000)).wait()
        used = Counter(writer.stats.transport for writer in writers)
        reasons = {writer.stats.reason for writer in writers if writer.stats.transport == "write"}
        for writer in writers:
            writer.close()
        for ends in pipes:
            os.close(ends[0]), os.close(ends[1])
        return used["staged"], used["write"], *reasons

    print(transports(), transports(reader_copies=True), flush=True)
    kept = penstock.Writer(os.pipe()[1], mode="staged")
    kept.submit(bytes(300_000)).wait()
    if os.fork() == 0:
        print(transports()[:2], flush=True)
        os._exit(0)
    os.wait()
    """
    no_huge_pages = "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    if no_huge_pages:
        pytest.skip("this system gives no huge pages, so nothing is staged for an unknown reader")
    why = '"other streams have all of the process\'s staging memory"'
    expected = f"(4, 8, {why}) (8, 4, {why})\n(4, 8)\n"
    assert succeeded(run_script(code)).decode() == expected
