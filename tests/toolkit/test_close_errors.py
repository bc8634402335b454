"""Files that report a failure, or take long, only when they are closed: what closing Penstock's own descriptor says."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cases import PATIENCE_S
from support.fuse import mounted
from support.processes import run_script, start_script, succeeded

import penstock
from penstock import _native

pytestmark = pytest.mark.linux("FUSE")

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
    _native._pipe(b"frame", fd)
    _native._sync(timeout=PATIENCE_S)


def write_and_close(fd: int) -> None:
    writer = penstock.Writer(fd)
    writer.submit(b"frame")
    writer.close(timeout=PATIENCE_S)


def relay_in_background(fd: int) -> None:
    source, end = os.pipe()
    os.write(end, b"frame")
    os.close(end)
    try:
        penstock.pipes.start_relay(source, fd).wait(PATIENCE_S)
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
        _native._pipe(b"frame", fd)
        started_s = time.monotonic()
        with pytest.raises(penstock.StalledError):
            _native._sync(timeout=0.1)
        assert time.monotonic() - started_s < FLUSH_S / 2
        _native._sync(timeout=PATIENCE_S)


FORK = """
import time
path, flushes, flush_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
fd = os.open(path, os.O_WRONLY)
penstock._native._pipe(b"frame", fd)
while not os.path.getsize(flushes):
    time.sleep(0.001)
started_s = time.monotonic()
pid = os.fork()
if pid == 0:
    os._exit(0)
forked_s = time.monotonic() - started_s
os.waitpid(pid, 0)
assert forked_s < flush_s / 2, forked_s
penstock._native._sync()
"""


DROP = """
from penstock import _native
from penstock import Pipeline
from penstock.pipeline import Sink, Source
path, kind, *drains = sys.argv[1:]
file = os.open(path, os.O_RDWR)
a_pipe = os.pipe()
owner = {
    "writer": lambda: penstock.Writer(file),
    "reader": lambda: penstock.Reader(file, frame_bytes=4),
    "relay": lambda: _native._Relay(a_pipe[0], file, None, None, None, "auto", b""),
    "tee": lambda: penstock.Tee(a_pipe[0], file, start=False),
    "source of a pipeline": lambda: _native._Source.fd(file, 4, None),
    "sink of a pipeline": lambda: _native._Sink.fd(file, None, None, None),
    "pipeline": lambda: Pipeline(Source.fd(a_pipe[0]), sink=Sink.fd(file)),
}[kind]()
if kind == "writer":
    owner.submit(b"frame").wait()
del owner
if drains:
    _native._drain(0.01, lambda: None)
print("dropped", flush=True)
"""


@pytest.mark.parametrize(
    "kind",
    ["writer", "reader", "relay", "tee", "source of a pipeline", "sink of a pipeline", "pipeline"],
)
def test_a_destructor_does_not_wait_for_a_close(kind: str, tmp_path: Path) -> None:
    dropped_during_a_close(kind, tmp_path)


def test_program_reports_at_exit_a_close_that_does_not_end(tmp_path: Path) -> None:
    assert b"being closed" in dropped_during_a_close("writer", tmp_path, "drains")


def dropped_during_a_close(kind: str, folder: Path, *drains: str) -> bytes:
    """What a program says that drops the owner of a file whose server does not answer before that."""
    with mounted(folder, flush_s=600) as file, start_script(DROP, file.path, kind, *drains) as program:
        assert program.stdout is not None
        try:
            dropped, _, _ = select.select([program.stdout], [], [], PATIENCE_S)
            assert dropped and program.stdout.readline() == b"dropped\n"
        finally:
            file.abandon()
        _, said = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0
        return said


def test_program_waits_at_exit_for_the_close_of_dropped_objects(tmp_path: Path) -> None:
    with mounted(tmp_path, flush_s=0.5, flush_errno=errno.ENOSPC) as file:
        done = run_script(DROP, file.path, "writer")
    assert b"5 bytes were lost" in done.stderr, done


@pytest.mark.linux("forks")
def test_a_fork_does_not_wait_for_a_close(tmp_path: Path) -> None:
    with mounted(tmp_path, flush_s=FLUSH_S) as file:
        succeeded(run_script(FORK, file.path, file.flushes, FLUSH_S))
