"""Relays where the system refuses: missing system calls, interruptions, and pipes that may not grow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cases import a_few
from support.processes import PRELUDE, no_strace, run_script, succeeded, system_calls

RELAYS = """
import socket, tempfile


def drained(relay):
    reader, writer = os.pipe()
    got = []
    def drain():
        with open(reader, "rb") as file:
            got.append(file.read())
    thread = threading.Thread(target=drain)
    thread.start()
    relayed = relay(writer)
    os.close(writer)
    thread.join()
    return got[0], relayed

data = bytes(range(256)) * 5000
file = tempfile.TemporaryFile()
file.write(data); file.flush()
copy = tempfile.TemporaryFile()
match sys.argv[1]:
    case "file-pipe":
        got, relayed = drained(lambda writer: penstock.relay(file, writer, offset=0))
    case "file-file":
        relayed = penstock.relay(file, copy, offset=0)
        got = os.pread(copy.fileno(), len(data) + 1, 0)
    case "socket-pipe" | "socket-file":
        ours, theirs = socket.socketpair()
        def feed():
            with theirs:
                theirs.sendall(data)
        threading.Thread(target=feed).start()
        if sys.argv[1] == "socket-pipe":
            got, relayed = drained(lambda writer: penstock.relay(ours, writer))
        else:
            relayed = penstock.relay(ours, copy)
            got = os.pread(copy.fileno(), len(data) + 1, 0)
assert got == data, f"{len(got)} of {len(data)} bytes"
print(relayed.method, relayed.bytes == len(data))
"""


def strace(inject: str, calls: str, kind: str, record: Path) -> tuple[str, str]:
    """What a relay of that kind says while system calls are made to fail, and what strace has seen."""
    if (reason := no_strace()) is not None:
        pytest.skip(reason)
    command = ["strace", "-f", "-o", str(record), f"-etrace={calls}", f"-einject={inject}"]
    program = [sys.executable, "-c", PRELUDE + RELAYS, kind]
    done = subprocess.run([*command, *program], capture_output=True, timeout=60, check=False)
    return succeeded(done).decode().strip(), record.read_text()


@pytest.mark.parametrize("error", a_few(["ENOSYS", "EINVAL", "EPERM"]))
@pytest.mark.parametrize(
    ("kind", "refused", "method"),
    [
        ("file-pipe", "splice", "read-write"),
        ("socket-pipe", "splice", "read-write"),
        ("socket-file", "splice", "read-write"),
        ("file-file", "copy_file_range", "sendfile"),
        ("file-file", "copy_file_range,sendfile", "read-write"),
    ],
)
def test_relay_continues_by_another_method_if_a_call_is_refused(
    tmp_path: Path, kind: str, refused: str, method: str, error: str
) -> None:
    said, record = strace(f"{refused}:error={error}", refused, kind, tmp_path / "record")
    assert said == f"{method} True"
    assert "INJECTED" in record, "or the test has refused nothing"


@pytest.mark.parametrize("when", [2, 3])
def test_relay_continues_by_another_method_midway(tmp_path: Path, when: int) -> None:
    """What a pipe in between holds when splicing ends is not lost."""
    refusal = f"splice:error=EINVAL:when={when}+"
    said, record = strace(refusal, "splice", "socket-file", tmp_path / "record")
    assert said == "read-write True"
    assert "INJECTED" in record


@pytest.mark.parametrize(
    ("kind", "call", "method"),
    [
        ("file-pipe", "splice", "splice"),
        ("socket-pipe", "splice", "splice"),
        ("socket-file", "splice", "splice-through-pipe"),
        ("file-file", "copy_file_range", "copy_file_range"),
    ],
)
def test_relay_survives_interrupted_system_calls(tmp_path: Path, kind: str, call: str, method: str) -> None:
    said, record = strace(f"{call}:error=EINTR:when=1+2", call, kind, tmp_path / "record")
    assert said == f"{method} True"
    assert "EINTR" in record


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
    if (reason := no_strace()) is not None:
        pytest.skip(reason)
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
    if (reason := no_strace()) is not None:
        pytest.skip(reason)
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
