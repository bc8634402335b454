"""Native threads: when none can be had, and what they leave to processes that the caller's code starts."""

from __future__ import annotations

import textwrap

import pytest
from support.processes import run_script, succeeded

# The next thread finds no memory for its stack, whoever runs this: a limit on their number does not hold for root.
NO_THREAD = """
import errno, resource
from penstock import Pipeline

reader, writer = os.pipe()
spare = [os.pipe() for _ in range(2)]
frame = bytearray(200_000)  # more than a caller writes without a thread
with open("/proc/self/statm") as sizes:
    size_bytes = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size_bytes + (1 << 20), before[1]))

def refused(call):
    try:
        call()
    except OSError as error:
        assert type(error) is OSError, error
        assert error.errno == errno.EAGAIN, error
        return error
    raise AssertionError("a thread could be started")
"""


@pytest.mark.linux("limits of a process")
def test_thread_shortage_fails_a_write_and_frees_its_memory() -> None:
    body = """
    ticket = penstock._native._pipe(frame, writer)
    error = refused(lambda: ticket.wait(20))
    assert (error.bytes_delivered, error.bytes_lost) == (0, len(frame))
    penstock._native._pipe(frame, writer)
    refused(lambda: penstock._native._sync(timeout=20))
    frame.clear()  # no export is left
    resource.setrlimit(resource.RLIMIT_AS, before)
    penstock._native._pipe(b"and now", writer).wait(20)
    assert os.read(reader, 100) == b"and now"
    """
    succeeded(run_script(NO_THREAD + textwrap.dedent(body)))


def test_thread_shortage_fails_readers_relays_and_pipelines() -> None:
    body = """
    writer = penstock.Writer(spare[0][1])
    refused(lambda: writer.submit(frame).wait(20))
    refused(writer.close)
    refused(lambda: penstock.Reader(reader, frame_bytes=10))
    refused(lambda: penstock.pipes.start_relay(reader, spare[1][1]))
    refused(lambda: Pipeline(iter([frame]), lambda chunk: None))
    frame.clear()
    """
    succeeded(run_script(NO_THREAD + textwrap.dedent(body)))


@pytest.mark.linux("limits of a process")
def test_a_tee_that_found_no_thread_can_be_started_again() -> None:
    body = """
    tee = penstock.Tee(reader, spare[0][1], start=False)
    refused(tee.start)
    refused(lambda: tee.wait(20))
    tee.add(spare[1][1])
    resource.setrlimit(resource.RLIMIT_AS, before)
    os.write(writer, b"frame")
    os.close(writer)
    assert tee.wait(20).bytes == 5
    assert [os.read(end, 10) for end, _ in spare] == [b"frame"] * 2
    """
    succeeded(run_script(NO_THREAD + textwrap.dedent(body)))


@pytest.mark.linux("/proc")
def test_children_of_a_stage_have_the_signal_mask_of_the_program() -> None:
    body = """
    import subprocess
    from penstock import Pipeline

    def blocked():
        with open("/proc/thread-self/status") as status:
            return next(line for line in status if line.startswith("SigBlk"))

    seen = []

    def stage(chunk):
        seen.append(blocked())
        with subprocess.Popen(["sleep", "60"]) as child:
            child.terminate()
            seen.append(child.wait(20))

    def source():
        seen.append(blocked())
        yield b"x"

    for chunk in Pipeline(source(), stage):
        pass
    assert seen == [blocked(), blocked(), -signal.SIGTERM], seen
    """
    succeeded(run_script(textwrap.dedent(body)))


def test_worker_of_a_single_write_ends_at_once() -> None:
    body = """
    most = 0
    for _ in range(400):
        reader, writer = os.pipe()
        penstock._native._pipe(b"only one", writer).wait(20)
        os.close(writer)
        os.close(reader)
        most = max(most, len(workers()))
    assert most < 40, most
    """
    succeeded(run_script(body))


def test_idle_workers_stay_few_and_close_ends_them_all() -> None:
    body = """
    def settles_at(most):
        patience_s = time.monotonic() + 20
        while len(workers()) > most and time.monotonic() < patience_s:
            time.sleep(0.001)
        return len(workers()) <= most

    pipes = [os.pipe() for _ in range(300)]
    for _ in range(3):
        for _, writer in pipes:
            penstock._native._pipe(b"one of many", writer)
    penstock._native._sync(timeout=20)
    assert settles_at(16), workers()
    kept = [penstock.Writer(writer) for _, writer in pipes[:10]]
    for _ in range(2):
        for writer in kept:
            writer.submit(b"more")
    for writer in kept:
        writer.flush(20)
    penstock._native._close(timeout=20)
    assert settles_at(0), workers()
    """
    succeeded(run_script(body))
