"""A program that ends delivers what it queued first, or says what was lost."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable
from typing import Any

import pytest
from support.cases import MODES, eventually
from support.processes import run_script, start_script, succeeded
from support.streams import read_exactly, unread_bytes
from support.this_process import are_asleep

import penstock
from penstock._common import exits

SIZE = 5_000_000

PIPE_TO_STDOUT = """
frame = (bytes(range(256)) * 20000)[:5_000_000]
for _ in range(3):
    penstock._native._pipe(frame, 1)
"""

ENDINGS = {
    "falls off its end": ("", 0, b""),
    "an uncaught exception": ("raise RuntimeError('mine')", 1, b"RuntimeError: mine"),
    "a Writer that is never closed": ("w = penstock.Writer(1); w.submit(frame)", 0, b""),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_bytes_are_delivered_however_the_program_ends(ending: str) -> None:
    code, status, complaint = ENDINGS[ending]
    with start_script(PIPE_TO_STDOUT + code) as program:
        # It ends, and most of its bytes wait for this reader.
        assert eventually(lambda: unread_bytes(program.stdout.fileno()) and are_asleep(lambda: {program.pid}))
        got, err = program.communicate(timeout=60)
    frames = 4 if "Writer" in ending else 3
    assert got == (bytes(range(256)) * 20000)[:SIZE] * frames
    assert program.returncode == status
    assert complaint in err
    assert b"penstock" not in err.replace(b"penstock.", b"")


@pytest.mark.parametrize("stall_s", [0.3, pytest.param(5.0, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode in ("write", "staged")])
def test_a_stalled_reader_ends_the_wait_and_the_loss_is_reported(mode: str, stall_s: float) -> None:
    reader, writer = os.pipe()
    code = f"""
    penstock._common.exits.STALL_S = {stall_s}
    penstock._native._pipe(bytes({SIZE}), 1, mode='{mode}')
    """
    with start_script(code, stdout=writer) as program:
        os.close(writer)
        _, err = program.communicate(timeout=60)
    left = 0
    while chunk := os.read(reader, 1 << 20):
        left += len(chunk)
    os.close(reader)
    assert f"penstock: {SIZE - left} bytes were lost" in err.decode()


def test_a_program_that_ends_waits_5_s_for_a_stalled_reader() -> None:
    assert penstock._common.exits.STALL_S == 5


@pytest.mark.slow
def test_a_reader_that_is_slow_but_reads_is_waited_for() -> None:
    with start_script(f"penstock._common.exits.STALL_S = 2.0\n{PIPE_TO_STDOUT}") as program:
        got = b""
        for _ in range(6):  # longer than the patience with a reader that does nothing
            time.sleep(0.4)
            got += read_exactly(program.stdout.fileno(), 100_000)
        rest, err = program.communicate(timeout=60)
    assert (len(got + rest), err) == (3 * SIZE, b"")


@pytest.mark.linux("signals to programs")
def test_ctrl_c_ends_the_wait_at_exit() -> None:
    reader, writer = os.pipe()
    code = """
    penstock._common.exits.STALL_S = 1000.0
    penstock._native._pipe(bytes(5_000_000), 1)
    print("ending", file=sys.stderr, flush=True)
    """
    with start_script(code, stdout=writer) as program:
        os.close(writer)
        assert program.stderr.readline() == b"ending\n"
        assert eventually(lambda: are_asleep(lambda: {program.pid}))
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    os.close(reader)
    assert b"bytes were lost" in err


def test_a_reader_thread_of_the_same_program_is_served_to_the_end() -> None:
    code = """
    reader, writer = os.pipe()
    def read():
        count = 0
        while count < 15_000_000:
            count += len(os.read(reader, 100_000))
        os.write(1, b"%d" % count)
    threading.Thread(target=read, daemon=True).start()
    for _ in range(3):
        penstock._native._pipe(bytes(5_000_000), writer)
    """
    with start_script(code) as program:
        out, err = program.communicate(timeout=60)
    assert (out, err, program.returncode) == (b"15000000", b"", 0)


def test_a_daemon_thread_that_never_stops_writing_does_not_keep_the_program() -> None:
    """What was queued at the end is delivered; what a thread adds for ever must not be waited for."""
    program = """
        def go_on():
            while True:
                penstock._native._pipe(bytes(100_000), 1)
        threading.Thread(target=go_on, daemon=True).start()
        time.sleep(0.3)
    """
    read = "import os, time\nwhile os.read(0, 65536): time.sleep(0.001)"
    slow = [sys.executable, "-S", "-c", read]
    with (
        subprocess.Popen(slow, stdin=subprocess.PIPE) as reader,
        start_script(program, stdout=reader.stdin) as writer,
    ):
        reader.stdin.close()
        try:
            _, err = writer.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            writer.kill()
            pytest.fail("the program did not end")
    assert (writer.returncode, err.decode()) == (0, "")


@pytest.mark.linux("files in /dev")
@pytest.mark.slow
def test_program_reports_at_exit_what_it_waits_for() -> None:
    code = """
    penstock._common.exits.STALL_S = 1.0
    zeros, null = open("/dev/zero", "rb", buffering=0), open("/dev/null", "wb", buffering=0)
    penstock.pipes.start_relay(zeros, null)
    """
    with start_script(textwrap.dedent(code)) as program:
        assert program.stderr is not None
        assert b"waits for relays in the background" in program.stderr.readline()
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert b"penstock: 1 relays were cut off" in err


BUSY = {
    "stage": "Pipeline([b'x'], lambda chunk: spin())",
    "source": "Pipeline(iter(spin, None))",
    "sink": "Pipeline([b'x'], sink=Sink.into(iter(spin, None)))",
}


@pytest.mark.parametrize("part", BUSY)
def test_program_can_end_while_a_pipeline_runs_python(part: str) -> None:
    code = f"""
    import atexit
    from penstock import Pipeline, _pipeline
    from penstock.pipeline import Sink

    began = threading.Event()

    def spin():
        began.set()
        while True:
            pass

    pipeline = {BUSY[part]}
    began.wait(20)
    atexit.unregister(_pipeline._end_all)  # which would wait for it for a while
    """
    succeeded(run_script(code))


FORGOTTEN = {
    "pipe": "penstock._native._pipe(bytes(4 << 20), writer)",
    "a Writer that is gone": "penstock.Writer(writer).submit(bytes(4 << 20))",
    "a repr": "t = penstock._native._pipe(bytes(4 << 20), writer)\n    while not t.done(): pass\n    repr(t)",
    "what the pipe holds": "w = penstock.Writer(writer); w.submit(bytes(40_000)).wait()",
}
"""Programs whose reader goes, and that end without having asked."""

REPORTED = {
    "wait": "penstock._native._pipe(bytes(4 << 20), writer).wait()",
    "sync": "penstock._native._pipe(bytes(4 << 20), writer); penstock._native._sync()",
    "the next call": "t = penstock._native._pipe(bytes(4 << 20), writer)\n"
    "    while not t.done(): pass\n    penstock._native._pipe(b'', writer)",
    "close": "w = penstock.Writer(writer); w.submit(bytes(4 << 20)); w.close()",
    "abort": "w = penstock.Writer(writer); w.submit(bytes(4 << 20)); w.abort()",
}
"""The same, but somebody hears of it, or has given the bytes up."""

WHOSE_READER_GOES = """
reader, writer = os.pipe()
threading.Timer(0.3, os.close, (reader,)).start()
try:
    {}
except penstock.BrokenStreamError:
    pass
"""


def on_linux(ways: Iterable[str], way: str, reason: str) -> list[Any]:
    """The ways, of which one is for Linux."""
    return [pytest.param(each, marks=[pytest.mark.linux(reason)] * (each == way)) for each in ways]


@pytest.mark.parametrize(
    "way", on_linux(FORGOTTEN, "what the pipe holds", "what a pipe holds that was not read")
)
def test_unreported_failure_is_reported_at_exit(way: str) -> None:
    """The exit status stays the program's own: Python's atexit functions cannot change it."""
    done = run_script(WHOSE_READER_GOES.format(FORGOTTEN[way]))
    lost = re.fullmatch(
        r"penstock: (\d+) bytes were lost, because the reader went away .*\n", done.stderr.decode()
    )
    assert lost, done.stderr.decode()
    assert int(lost[1]) == (40_000 if way == "what the pipe holds" else 4 << 20)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "way", on_linux(REPORTED, "the next call", "names of pipes without a reader, which Wine forgets")
)
def test_reported_failure_is_not_reported_again_at_exit(way: str) -> None:
    succeeded(run_script(WHOSE_READER_GOES.format(REPORTED[way])))


@pytest.mark.linux("forks")
def test_forked_child_does_not_report_losses_of_its_parent() -> None:
    code = """
    reader, writer = os.pipe()
    ticket = penstock._native._pipe(bytes(4 << 20), writer)
    os.close(reader)
    while not ticket.done():
        time.sleep(0.01)
    if os.fork() == 0:
        sys.exit()
    os.wait()
    """
    done = run_script(code)
    assert done.stderr.count(b"penstock: 4194304 bytes were lost") == 1


def test_order_of_exit_functions_does_not_depend_on_first_use() -> None:
    body = """
    from functools import partial
    from penstock._common.exits import at_exit
    for priority in (1, 0, 2):
        at_exit(partial(print, priority), priority)
    """
    assert succeeded(run_script(body)).split() == [b"2", b"1", b"0"]


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_a_loss_without_a_standard_error_is_logged(
    stderr: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", None if stderr is None else closed)
    exits.report_loss("5 bytes were lost")
    exits._announce_wait()
    monkeypatch.undo()
    assert capsys.readouterr().out == ""
    assert caplog.messages == ["5 bytes were lost"]
