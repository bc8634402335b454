"""What happens when things go wrong, one test or more for each row of the contract's table."""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import (
    MODES,
    PRELUDE,
    ReaderThread,
    capacity_bytes,
    eventually,
    no_strace,
    noise,
    read_exactly,
    run_script,
    succeeded,
    unread_bytes,
)

import penstock

SIZE = 3_000_000


def kill_a_reader_that_has_read(size: int, send: Callable[[int], None]) -> subprocess.Popen[bytes]:
    """Starts a process that reads so many bytes and no more, lets ``send`` write to it, and kills it."""
    code = f"import os, time\nleft = {size}\nwhile left: left -= len(os.read(0, left))\n"
    code += "os.write(1, b'.')\ntime.sleep(100)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    send(process.stdin.fileno())
    assert process.stdout.read(1) == b"."
    process.kill()
    process.wait()
    process.stdout.close()
    return process


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_killed_in_a_frame_is_an_error_with_exact_counts(mode: str) -> None:
    def send(fd: int) -> None:
        for _ in range(3):
            penstock.pipe(bytes(SIZE), fd, mode=mode)

    process = kill_a_reader_that_has_read(4_000_000, send)
    with process.stdin:
        expected = (errno.EPIPE, 4_000_000, 3 * SIZE - 4_000_000)

        def is_reported(call: Callable[[], object]) -> bool:
            with pytest.raises(penstock.BrokenStreamError) as caught:
                call()
            error = caught.value
            return (error.errno, error.bytes_delivered, error.bytes_lost) == expected

        # The worker notices within its own time; the first call that finds it out raises.
        assert eventually(lambda: fails(lambda: penstock.pipe(b"", process.stdin, mode=mode)))
        assert is_reported(lambda: penstock.pipe(b"x", process.stdin, mode=mode))
        assert is_reported(lambda: penstock.pipe(b"x", process.stdin, mode=mode)), (
            "until it is reported by sync"
        )
        assert is_reported(penstock.sync)
        penstock.sync()


def fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except penstock.BrokenStreamError:
        return True
    return False


def test_a_broken_stream_harms_no_other(pair: tuple[int, int]) -> None:
    reader, writer = pair
    frames = [noise(SIZE, seed) for seed in range(5)]
    got = ReaderThread(reader)

    def send(fd: int) -> None:
        for frame in frames:
            penstock.pipe(frame, fd)
            penstock.pipe(frame, writer)

    process = kill_a_reader_that_has_read(1000, send)
    for frame in frames:
        penstock.pipe(frame, writer)
    os.close(writer)
    assert got.result() == b"".join(frames * 2)
    with pytest.raises(penstock.BrokenStreamError):
        penstock.sync()
    process.stdin.close()


def test_two_failures_are_both_told() -> None:
    writers = []
    for size in (1000, 2000):
        reader, writer = os.pipe()
        os.close(reader)
        penstock.pipe(bytes(size), writer)
        writers.append(writer)
    with pytest.raises(penstock.BrokenStreamError) as caught:
        penstock.sync()
    told = f"{caught.value.bytes_lost} {caught.value.__notes__}"
    assert "1000" in told
    assert "2000" in told
    for writer in writers:
        os.close(writer)


@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_is_deleted_while_it_is_queued_arrives(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    frames = [noise(SIZE, seed) for seed in range(3)]
    for frame in frames:
        area = bytearray(frame)
        penstock.pipe(area, writer, mode=mode)
        del area
        penstock.pipe(frame[:1000] * 100, writer, mode=mode)  # a temporary
    del frame
    gc.collect()
    litter = [bytearray(b"\xee" * SIZE) for _ in range(5)]  # would get freed memory
    os.close(writer)
    got = ReaderThread(reader).result()
    assert got == b"".join(frame + frame[:1000] * 100 for frame in frames)
    del litter


@pytest.mark.parametrize("mode", MODES)
def test_memory_that_is_in_flight_cannot_be_resized_or_unmapped(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    area, mapped = bytearray(noise(SIZE)), mmap.mmap(-1, SIZE)
    mapped[:] = noise(SIZE, 1)
    for data in (area, mapped):
        penstock.pipe(data, writer, mode=mode)
    with pytest.raises(BufferError):
        area.clear()
    with pytest.raises(BufferError):
        mapped.close()
    os.close(writer)
    assert ReaderThread(reader).result() == noise(SIZE) + noise(SIZE, 1)
    penstock.sync()
    area.clear()
    mapped.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_that_keeps_no_reference_to_its_frames(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    got = ReaderThread(reader)
    for number in range(100):
        penstock.pipe(bytearray(number.to_bytes(4, "little") * 75_000), writer, mode=mode)
    os.close(writer)
    assert got.result() == b"".join(number.to_bytes(4, "little") * 75_000 for number in range(100))


@pytest.mark.parametrize("mode", MODES)
def test_a_descriptor_that_is_closed_and_reused_while_writes_are_queued(tmp_path: Path, mode: str) -> None:
    reader, writer = os.pipe()
    frames = [noise(SIZE, seed) for seed in range(3)]
    for frame in frames:
        penstock.pipe(frame, writer, mode=mode)
    intruder = os.open(tmp_path / "intruder", os.O_WRONLY | os.O_CREAT)
    os.dup2(intruder, writer)  # closes the pipe's, and takes its number
    assert ReaderThread(reader).result() == b"".join(frames), "and the end of file after the last"
    os.close(intruder)
    os.close(writer)
    assert (tmp_path / "intruder").stat().st_size == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_descriptor_in_non_blocking_mode(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    os.set_blocking(writer, False)
    frame = noise(SIZE)
    penstock.pipe(frame, writer, mode=mode)
    time.sleep(0.1)  # the pipe is full now
    assert not os.get_blocking(writer), "its mode stays as it was"
    os.close(writer)
    assert ReaderThread(reader).result() == frame


@pytest.mark.parametrize("mode", MODES)
def test_system_calls_of_the_worker_are_interrupted(tmp_path: Path, mode: str) -> None:
    if reason := no_strace():
        pytest.skip(reason)
    code = (
        PRELUDE
        + f"""
frame = bytes(range(256)) * 20_000
for _ in range(3):
    penstock.pipe(frame, 1, mode={mode!r}).wait(60)
"""
    )
    log = tmp_path / "strace"
    # The worker's calls: Python makes none of these.
    faults = [f"inject={call}:error=EINTR:when=2+3" for call in ("vmsplice", "pwritev2", "poll")]
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=vmsplice,pwritev2,poll"]
    command += [word for fault in faults for word in ("-e", fault)]
    with subprocess.Popen([*command, sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        got, _ = process.communicate(timeout=60)
    assert "EINTR" in log.read_text(), "the fault was injected"
    assert process.returncode == 0
    assert got == bytes(range(256)) * 20_000 * 3


def test_signals_in_the_middle_of_everything(pair: tuple[int, int]) -> None:
    reader, writer = pair
    got = ReaderThread(reader, chunk_bytes=50_000)
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for number in range(30):
            penstock.pipe(noise(500_000, number), writer, mode=MODES[number % 4])
        penstock.sync()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    os.close(writer)
    assert got.result() == b"".join(noise(500_000, number) for number in range(30))
    assert seen


@pytest.mark.parametrize("mode", MODES)
def test_two_threads_on_one_stream_write_whole_frames(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    other = os.dup(writer)  # two numbers of one pipe are one stream
    got = ReaderThread(reader)

    def send(letter: bytes, fd: int) -> None:
        for _ in range(40):
            penstock.pipe(letter * 200_000, fd, mode=mode)

    threads = [
        threading.Thread(target=send, args=pair) for pair in ((b"a", writer), (b"b", other), (b"c", writer))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(writer)
    os.close(other)
    result = got.result()
    frames = [result[at : at + 200_000] for at in range(0, len(result), 200_000)]
    assert sorted(frames) == sorted(letter * 200_000 for letter in (b"a", b"b", b"c") for _ in range(40))


@pytest.mark.parametrize("mode", MODES)
def test_dev_full(mode: str) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        ticket = penstock.pipe(bytes(SIZE), full, mode=mode)
        error = ticket.exception(30)
        assert isinstance(error, OSError)
        assert (error.errno, error.bytes_delivered, error.bytes_lost) == (errno.ENOSPC, 0, SIZE)
        with pytest.raises(OSError, match="No space left") as caught:
            penstock.sync()
        assert caught.value.errno == errno.ENOSPC


@pytest.fixture
def small_file_system() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
        yield Path(folder)
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk(small_file_system: Path) -> None:
    with (small_file_system / "file").open("wb", buffering=0) as file:
        own = penstock.Writer(file)
        own.write(bytes(400_000)).wait(30)
        own.write(bytes(SIZE))
        with pytest.raises(OSError, match="No space left") as caught:
            own.close()
        size = os.fstat(file.fileno()).st_size
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.bytes_delivered == size >= 400_000
        assert caught.value.bytes_lost == 400_000 + SIZE - size


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    code = """
    import errno, resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which would kill us, if the worker let it
    with open(sys.argv[1], "wb", buffering=0) as file:
        error = penstock.pipe(bytes(3_000_000), file).exception(30)
        print(error.errno == errno.EFBIG, error.bytes_delivered, error.bytes_lost)
        try:
            penstock.close()
        except OSError as same:
            print(same.errno == errno.EFBIG)
    """
    assert succeeded(run_script(code, tmp_path / "file")) == b"True 1000000 2000000\nTrue\n"


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_that_never_reads_keeps_the_caller_waiting_and_nobody_else(mode: str) -> None:
    reader, writer = os.pipe()
    own = penstock.Writer(writer, mode=mode, queue_items=2)
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(2):
        own.write(bytes(2 << 20))
    before = counted
    with pytest.raises(penstock.StalledError) as caught:
        own.write(bytes(2 << 20), timeout=0.5)
    assert counted > before, "other threads ran meanwhile"
    assert caught.value.seconds >= 0.5
    assert caught.value.bytes_pending == 4 << 20
    stop.set()
    thread.join()
    assert unread_bytes(reader) <= capacity_bytes(writer)
    own.abort()
    os.close(reader)
    os.close(writer)


def test_a_pipe_in_packet_mode_keeps_its_packets(pair: tuple[int, int]) -> None:
    reader, writer = pair
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_WRONLY | os.O_DIRECT)
    for size in (10, 20, 30):
        penstock.pipe(bytes(size), writer)
    penstock.sync()
    assert [len(os.read(reader, 4096)) for _ in range(3)] == [10, 20, 30]


def test_a_fifo_that_is_opened_again_works_again(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    for round in range(2):
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with path.open("wb", buffering=0) as file:
            penstock.pipe(b"%d" % round, file).wait(30)
            assert read_exactly(reader, 1) == b"%d" % round
            os.close(reader)
            penstock.pipe(b"lost", file)
            with pytest.raises(penstock.BrokenStreamError):
                penstock.sync()


def test_descriptors_run_out() -> None:
    code = """
    import errno, resource
    import penstock._exit, penstock.errors  # what is loaded at need would need descriptors, too
    reader, writer = os.pipe()
    penstock.pipe(b"x", writer).wait(30)
    resource.setrlimit(resource.RLIMIT_NOFILE, (writer + 1, 4096))
    try:
        penstock.pipe(b"x", writer)
    except OSError as error:
        print(error.errno == errno.EMFILE)
    """
    assert succeeded(run_script(code)) == b"True\n"
