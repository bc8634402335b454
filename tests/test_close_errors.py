"""Files that report a failure, or take long, only when they are closed: what closing Penstock's own descriptor says."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cases import PATIENCE_S
from support.fuse import mounted
from support.processes import run_script, succeeded

import penstock

FLUSH_S = 2.0


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY)
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):  # the same failure, which is not what is tested
            os.close(fd)


def pipe(fd: int) -> None:
    penstock.pipe(b"frame", fd)
    penstock.sync(timeout=PATIENCE_S)


def write_and_close(fd: int) -> None:
    writer = penstock.Writer(fd)
    writer.write(b"frame")
    writer.close(timeout=PATIENCE_S)


def relay_in_background(fd: int) -> None:
    source, end = os.pipe()
    os.write(end, b"frame")
    os.close(end)
    try:
        penstock.start_relay(source, fd).wait(PATIENCE_S)
    finally:
        os.close(source)


@pytest.mark.parametrize("deliver", [pipe, write_and_close, relay_in_background])
def test_a_close_that_fails_is_reported(deliver: Callable[[int], None], tmp_path: Path) -> None:
    with mounted(tmp_path, flush_errno=errno.ENOSPC) as file, opened(file.path) as fd:
        with pytest.raises(OSError) as raised:
            deliver(fd)
        assert raised.value.errno == errno.ENOSPC
        assert file.path.stat().st_size == len(b"frame")


def test_a_timeout_holds_while_a_close_takes_long(tmp_path: Path) -> None:
    with mounted(tmp_path, flush_s=FLUSH_S) as file, opened(file.path) as fd:
        penstock.pipe(b"frame", fd)
        started_s = time.monotonic()
        with pytest.raises(penstock.StalledError):
            penstock.sync(timeout=0.1)
        assert time.monotonic() - started_s < FLUSH_S / 2
        penstock.sync(timeout=PATIENCE_S)


FORK = """
import time
path, flushes, flush_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
fd = os.open(path, os.O_WRONLY)
penstock.pipe(b"frame", fd)
while not os.path.getsize(flushes):
    time.sleep(0.001)
started_s = time.monotonic()
pid = os.fork()
if pid == 0:
    os._exit(0)
forked_s = time.monotonic() - started_s
os.waitpid(pid, 0)
assert forked_s < flush_s / 2, forked_s
penstock.sync()
"""


def test_a_fork_does_not_wait_for_a_close(tmp_path: Path) -> None:
    with mounted(tmp_path, flush_s=FLUSH_S) as file:
        succeeded(run_script(FORK, file.path, file.flushes, FLUSH_S))
