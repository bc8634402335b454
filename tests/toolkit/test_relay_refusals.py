"""Relays where the system refuses: missing system calls, interruptions, and pipes that may not grow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.processes import run_script, succeeded, system_calls, trace

pytestmark = pytest.mark.linux("splice")


@pytest.mark.parametrize("when", [2, 3])
def test_relay_continues_by_another_method_midway(when: int) -> None:
    """What a pipe in between holds when splicing ends is not lost."""
    done, record = trace(
        """
        import socket, tempfile
        data = bytes(range(256)) * 5000
        ours, theirs = socket.socketpair()
        def feed():
            with theirs:
                theirs.sendall(data)
        threading.Thread(target=feed).start()
        copy = tempfile.TemporaryFile()
        relayed = penstock.relay(ours, copy)
        assert os.pread(copy.fileno(), len(data) + 1, 0) == data
        print(relayed.method, relayed.bytes == len(data))
        """,
        options=["-f", "-etrace=splice", f"-einject=splice:error=EINVAL:when={when}+"],
    )
    assert succeeded(done) == b"read-write True\n"
    assert "INJECTED" in record, "or the test has refused nothing"


def test_no_byte_of_a_tee_between_pipes_passes_through_user_space() -> None:
    """The system counts what a process reads and writes (proc(5), ``rchar``), without tee(2) and splice(2)."""
    done = run_script(
        """
        import subprocess
        def counts():
            lines = open("/proc/self/io").read().splitlines()
            return [int(line.split()[1]) for line in lines[:2]]
        counters = [subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
        producer = subprocess.Popen(["head", "-c", "50000000", "/dev/zero"], stdout=subprocess.PIPE)
        before = counts()
        with penstock.Tee(producer.stdout, *(counter.stdin for counter in counters)):
            for counter in counters:
                counter.stdin.close()
        after = counts()
        print(*(int(counter.stdout.read()) for counter in counters))
        print(max(now - then for now, then in zip(after, before)))
        """
    )
    counted, moved = succeeded(done).decode().splitlines()
    assert counted == "50000000 50000000 50000000"
    assert int(moved) < 1_000_000


def test_a_small_relay_takes_few_system_calls() -> None:
    of_file, of_pipe = system_calls(
        """
        import tempfile
        file = tempfile.TemporaryFile()
        file.write(bytes(65536)); file.flush()
        (middle, first), (_, second) = os.pipe(), os.pipe()
        for ends in ((file.fileno(), first, 65536, 0), (middle, second, 60000, None)):
            os.getppid()
            penstock.relay(*ends[:3], offset=ends[3])
        os.getppid()
        """
    )
    # Two duplicates, two looks at each, the signals and their return, the splice, and the closes.
    assert len(of_file) <= 12, of_file
    # A pipe closes at once. (A source that was full may grow, once.)
    assert len(of_pipe) <= 11, of_pipe


def test_a_fifo_is_written_in_whole_pieces(tmp_path: Path) -> None:
    """The system has no non-blocking write for the caller's descriptor, only writes of PIPE_BUF."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    done = run_script(
        """
        import tempfile
        reader = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(sys.argv[1], os.O_WRONLY)
        os.set_blocking(reader, True)
        data = bytes(range(256)) * 4000
        file = tempfile.TemporaryFile()
        file.write(data); file.flush()
        got = []
        thread = threading.Thread(target=lambda: got.append(os.fdopen(reader, "rb").read()))
        def calls():
            return int(open("/proc/self/io").read().split("syscw:")[1].split()[0])
        before = calls()
        penstock.relay(file, writer, 60_000, offset=0, method="read-write")
        after = calls()
        thread.start()
        penstock.relay(file, writer, offset=60_000, method="read-write")
        os.close(writer)
        thread.join()
        print(after - before < 5, got[0] == data)
        """,
        path,
    )
    assert succeeded(done) == b"True True\n"


def test_a_fifo_that_refuses_reads_without_waiting_is_asked_once(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "fifo")
    [calls] = system_calls(
        f"""
        end = os.open({str(path)!r}, os.O_RDWR)
        sink = open(os.devnull, "wb")
        threading.Thread(target=lambda: [os.write(end, bytes(100_000)) for _ in range(10)]).start()
        os.getppid()
        penstock.relay(end, sink, 1_000_000, method="read-write")
        os.getppid()
        """
    )
    assert calls.count("read") > 5, calls
    assert calls.count("preadv2") == 1, calls
