"""What becomes of relays and tees when something happens at the same moment: a fork, a first writer, a death."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, eventually, read_exactly, run_script, start_script, succeeded, workers

import penstock
from penstock import BrokenStreamError, StalledError, Tee


@pytest.fixture(autouse=True)
def leaves_no_thread() -> Iterator[None]:
    yield
    assert eventually(lambda: not workers()), "a thread is left"


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return ours, theirs


def test_programs_that_start_meanwhile_do_not_hold_up_a_tees_end() -> None:
    """Between fork(2) and execve(2) a child has copies of all pipes, ours too: their end of file comes later."""
    stop = threading.Event()

    def start_programs() -> None:
        while not stop.is_set():
            subprocess.run(["/bin/true"], check=True)

    thread = threading.Thread(target=start_programs)
    thread.start()
    try:
        # Without the fix about one in a hundred hung.
        for _ in range(1500):
            source, fed = os.pipe()
            ours, theirs = socket.socketpair()
            tee = Tee(source, ours)
            os.write(fed, b"x")
            os.close(fed)
            os.close(source)
            with ours, theirs:
                assert tee.wait(PATIENCE_S).source_ended
                assert theirs.recv(10) == b"x"
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("method", ["auto", "read-write"])
def test_urgent_data_does_not_end_a_stream(method: str) -> None:
    ours, theirs = tcp_pair()
    reader, writer = os.pipe()
    theirs.send(b"a" * 10)
    theirs.send(b"!", socket.MSG_OOB)
    theirs.send(b"b" * 10)
    ticket = penstock.relay(ours, writer, method=method, wait=False)
    # As a plain loop has it, of the urgent byte nothing is to be seen.
    assert read_exactly(reader, 20) == b"a" * 10 + b"b" * 10
    theirs.send(b"c" * 10)
    theirs.close()
    relayed = ticket.wait(PATIENCE_S)
    assert (relayed.bytes, relayed.source_ended) == (30, True)
    assert read_exactly(reader, 10) == b"c" * 10
    ours.close()
    os.close(reader)
    os.close(writer)


def test_a_fifos_first_writer_is_never_taken_for_its_last(tmp_path: Path) -> None:
    """poll(2) may report a hang-up of a FIFO that its first writer is about to open."""
    path = tmp_path / "fifo"
    write = """
    import random
    while os.read(0, 1):
        for _ in range(random.randint(0, 60)):
            pass
        fifo = os.open(sys.argv[1], os.O_WRONLY)
        os.write(fifo, b"data")
        os.close(fifo)
        os.write(1, b"+")
    """
    with start_script(write, path, stdin=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            os.mkfifo(path)
            source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            reader, writer = os.pipe()
            os.write(program.stdin.fileno(), b"+")
            assert penstock.relay(source, writer, timeout=PATIENCE_S).bytes == 4
            assert os.read(program.stdout.fileno(), 1) == b"+"
            path.unlink()
            for fd in (source, reader, writer):
                os.close(fd)
        program.stdin.close()


def test_a_tee_that_did_not_start_before_a_fork_starts_nothing_in_the_child() -> None:
    """There its descriptors are closed, and their numbers may be others'."""
    done = run_script(
        """
        source, fed = os.pipe()
        reader, writer = os.pipe()
        before = set(os.listdir("/proc/self/fd"))
        tee = penstock.Tee(source, start=False)
        tee.add(writer)
        own = sorted(int(fd) for fd in set(os.listdir("/proc/self/fd")) - before)
        if os.fork() == 0:
            theirs, given = os.pipe()
            os.write(given, b"the child's")
            for number in own:  # the numbers come to be others'
                os.dup2(theirs, number)
            for call in (tee.start, tee.wait, lambda: tee.add(given)):
                try:
                    call()
                except (penstock.ClosedError, OSError, RuntimeError) as error:
                    print(type(error).__name__, flush=True)
            time.sleep(0.2)
            print(os.read(theirs, 100), flush=True)
            os._exit(0)
        os.wait()
        os.write(fed, b"the parent's")
        os.close(fed)
        print(tee.wait(30).bytes, os.read(reader, 100))
        """
    )
    lines = succeeded(done).decode().splitlines()
    assert lines[-2:] == ['b"the child\'s"', '12 b"the parent\'s"']
    assert len(lines) == 5, "each call in the child is an error"


@pytest.mark.parametrize("kind", ["unix", "tcp", "terminal"])
def test_a_destination_without_a_reader_costs_no_processor_time(kind: str) -> None:
    """poll(2) reports it whether asked or not: who waits for the source must not come back for that again and again."""
    source, fed = os.pipe()
    closing: list[socket.socket] = []
    if kind == "terminal":
        sink, user = os.openpty()
        os.close(user)
    else:
        ours, theirs = socket.socketpair() if kind == "unix" else tcp_pair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        closing.append(ours)
        sink = ours.fileno()
    before_s = time.thread_time()
    with pytest.raises((StalledError, BrokenStreamError)):
        penstock.relay(source, sink, timeout=1)
    # A loop without a wait takes the whole second.
    assert time.thread_time() - before_s < 0.5
    for end in closing:
        end.close()
    if kind == "terminal":
        os.close(sink)
    os.close(source)
    os.close(fed)


def test_a_tee_needs_no_descriptor_when_one_of_its_destinations_dies() -> None:
    source, fed = os.pipe()
    healthy_reader, healthy = os.pipe()
    dying_reader, dying = os.pipe()
    fcntl.fcntl(dying, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(dying, bytes(1 << 20))  # takes nothing, so that the other is ahead of it
    tee = Tee(source, healthy, dying)
    os.close(healthy)
    os.close(dying)
    os.write(fed, b"A" * 1000)
    assert read_exactly(healthy_reader, 1000) == b"A" * 1000
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        os.close(dying_reader)
        assert eventually(lambda: tee.report.destinations[1].ended == "broken")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    os.write(fed, b"B" * 1000)
    os.close(fed)
    assert read_exactly(healthy_reader, 1000) == b"B" * 1000
    assert [outlet.ended for outlet in tee.wait(PATIENCE_S).destinations] == ["source-ended", "broken"]
    os.close(healthy_reader)
    os.close(source)


def test_relays_and_tees_of_a_child_have_their_ends_while_the_parents_run() -> None:
    done = run_script(
        """
        end_s = time.monotonic() + 3
        bad = []

        def work():
            while time.monotonic() < end_s:
                source, fed = os.pipe()
                reader, writer = os.pipe()
                tee = penstock.Tee(source, writer)
                os.close(writer)
                with open("/dev/null", "rb", buffering=0) as null:
                    ticket = penstock.relay(null, fed, wait=False)
                os.close(fed)
                ticket.wait(30)
                tee.wait(30)
                os.close(source)
                os.close(reader)

        def fork():
            while time.monotonic() < end_s:
                pid = os.fork()
                if pid == 0:
                    signal.alarm(30)
                    source, fed = os.pipe()
                    between, writer = os.pipe()
                    os.write(fed, bytes(1000))
                    os.close(fed)
                    whole = penstock.relay(source, writer, wait=False).wait(20).bytes == 1000
                    reader, last = os.pipe()
                    tee = penstock.Tee(between, last)
                    os.close(writer)
                    os._exit(0 if whole and tee.wait(20).bytes == 1000 else 3)
                _, status = os.waitpid(pid, 0)
                if status:
                    bad.append(status)

        threads = [threading.Thread(target=target) for target in (work, work, fork)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(bad)
        """
    )
    assert succeeded(done) == b"[]\n"
