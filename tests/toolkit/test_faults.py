"""What happens when things go wrong: each row of the contract is a test, or more."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.cases import MODES, eventually
from support.processes import run_script, succeeded
from support.streams import ReaderThread, noise
from support.this_process import rss_bytes

import penstock
from penstock import BrokenStreamError, StalledError, Writer, _native

FRAME = noise(3 << 20)
"""Larger than any pipe that we get: it stays in flight until somebody reads."""

READ_SOME_AND_WAIT = """
import os, sys, time
left = int(sys.argv[1])
while left:
    left -= len(os.read(0, min(left, 65536)))
os.write(1, b"!")
time.sleep(100)
"""


@contextlib.contextmanager
def reader_of(size: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that reads so much and then nothing, and our end of the pipe to it."""
    command = [sys.executable, "-S", "-c", READ_SOME_AND_WAIT, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        writer = os.dup(process.stdin.fileno())
        process.stdin.close()
        try:
            yield process, writer
        finally:
            process.kill()
            os.close(writer)


class TestTheReaderIsKilledMidFrame:
    @pytest.mark.linux("names of pipes without a reader, which Wine forgets")
    @pytest.mark.parametrize("mode", MODES)
    def test_killed_reader_raises_at_the_next_pipe_call_and_at_sync(self, mode: str) -> None:
        with reader_of(500_000) as (process, writer):
            ticket = _native._pipe(FRAME, writer, mode=mode)
            assert process.stdout.read(1) == b"!"
            process.kill()
            assert eventually(ticket.done)  # a look, which reports nothing
            for call in (lambda: _native._pipe(b"next", writer), _native._sync):
                with pytest.raises(BrokenStreamError) as caught:
                    call()
                assert (caught.value.bytes_delivered, caught.value.bytes_lost) == (
                    500_000,
                    len(FRAME) - 500_000,
                )

    def test_caller_that_waits_for_room_gets_the_error(self) -> None:
        with reader_of(1000) as (process, writer):
            stream = Writer(writer, queue_items=1)
            stream.submit(FRAME)
            assert process.stdout.read(1) == b"!"
            threading.Timer(0.1, process.kill).start()
            with pytest.raises(BrokenStreamError):
                stream.submit(FRAME)

    @pytest.mark.linux("signals to programs")
    def test_sigpipe_at_its_default_does_not_kill_the_program(self) -> None:
        done = run_script("""
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            import socket
            for mode in ("write", "staged", "zero-copy"):
                reader, fd = os.pipe()
                ticket = penstock._native._pipe(bytes(3 << 20), fd, mode=mode)
                os.close(reader)
                print(type(ticket.exception(10)).__name__)
            ours, theirs = socket.socketpair()
            ticket = penstock._native._pipe(bytes(3 << 20), ours)
            theirs.close()
            print(type(ticket.exception(10)).__name__)
        """)
        assert succeeded(done).split() == [b"BrokenStreamError"] * 4


class TestTheBufferGoesAway:
    @pytest.mark.parametrize("mode", MODES)
    def test_temporary_or_deleted_buffer_is_delivered(self, pair: tuple[int, int], mode: str) -> None:
        reader, writer = pair
        frame = np.frombuffer(FRAME, np.uint8).copy()
        _native._pipe(frame, writer, mode=mode)
        del frame
        _native._pipe(bytearray(FRAME), writer, mode=mode)
        _native._pipe(memoryview(np.frombuffer(FRAME, np.uint8).copy())[1:], writer, mode=mode)
        gc.collect()
        litter = [
            np.full(len(FRAME), 0xEE, np.uint8) for _ in range(8)
        ]  # would take the place of freed memory
        os.close(writer)
        assert ReaderThread(reader).result() == FRAME + FRAME + FRAME[1:]
        assert len(litter) == 8

    @pytest.mark.parametrize("mode", MODES)
    def test_buffer_in_flight_cannot_be_resized_or_closed(self, pair: tuple[int, int], mode: str) -> None:
        reader, writer = pair
        frame, area = bytearray(FRAME), mmap.mmap(-1, len(FRAME))
        area[:] = FRAME
        view, array = memoryview(bytearray(FRAME)), np.frombuffer(FRAME, np.uint8).copy()
        for buffer in (frame, area, view, array):
            _native._pipe(buffer, writer, mode=mode)
        for change in (
            frame.clear,
            lambda: frame.append(1),
            area.close,
            lambda: area.resize(4096),
            view.release,
        ):
            with pytest.raises(BufferError):
                change()
        with pytest.raises(ValueError):  # NumPy counts references, and our hold is one
            array.resize(10)
        os.close(writer)
        assert ReaderThread(reader).result() == FRAME * 4
        _native._sync(timeout=10)
        frame.clear()
        area.close()


class TestARenderingLoop:
    @pytest.mark.parametrize("mode", MODES)
    def test_sync_keeps_a_reused_buffer_from_being_overwritten(
        self, pair: tuple[int, int], mode: str
    ) -> None:
        """`sync(buffer)` is all that keeps a frame from being painted over."""
        reader, writer = pair
        result = ReaderThread(reader, chunk_bytes=7777)
        frame = np.empty(400_000, np.uint8)
        for number in range(40):
            _native._sync(frame)
            frame[:] = number
            _native._pipe(frame, writer, mode=mode)
        os.close(writer)
        got = np.frombuffer(result.result(), np.uint8).reshape(40, -1)
        assert (got == np.arange(40, dtype=np.uint8)[:, None]).all()


class TestTheFdIsClosedAndItsNumberReused:
    @pytest.mark.parametrize("mode", MODES)
    def test_bytes_go_to_the_first_pipe_after_its_number_is_reused(self, tmp_path: Path, mode: str) -> None:
        """Every byte goes into the first pipe, none into the file."""
        reader, writer = os.pipe()
        frames = [noise(1_000_000, number) for number in range(8)]
        for frame in frames:
            _native._pipe(frame, writer, mode=mode)
        os.close(writer)
        fd = os.open(tmp_path / "bystander", os.O_WRONLY | os.O_CREAT)
        if fd != writer:
            os.dup2(fd, writer)
            os.close(fd)
        _native._pipe(b"meant for the file", writer, mode=mode)
        assert ReaderThread(reader).result() == b"".join(frames)
        _native._sync(timeout=10)
        os.close(writer)
        assert (tmp_path / "bystander").read_bytes() == b"meant for the file"


@pytest.mark.linux("pipes that don't wait")
@pytest.mark.parametrize("mode", MODES)
def test_nonblocking_pipe_receives_every_byte(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    os.set_blocking(writer, False)
    gate = threading.Event()
    result = ReaderThread(reader, gate=gate, chunk_bytes=10_000)
    tickets = [_native._pipe(FRAME, writer, mode=mode) for _ in range(3)]
    with pytest.raises(StalledError):
        tickets[0].wait(0.1)
    gate.set()
    _native._sync(timeout=30)
    assert not os.get_blocking(writer)
    os.close(writer)
    assert result.result() == FRAME * 3


class TestAReaderThatNeverReads:
    @pytest.mark.parametrize("mode", MODES)
    def test_unread_stream_has_bounded_memory_and_other_threads_run(
        self, pair: tuple[int, int], mode: str
    ) -> None:
        """The producer makes a new frame each time; what the queue holds is all that there ever is."""
        frame_bytes = 1 << 20
        before = rss_bytes()
        stream = Writer(pair[1], mode=mode, queue_bytes=8 * frame_bytes)
        made = 0

        def produce() -> None:
            nonlocal made
            with contextlib.suppress(penstock.ClosedError):
                while True:
                    frame = np.full(frame_bytes, made & 255, np.uint8)
                    made += 1
                    stream.submit(frame)

        producer = threading.Thread(target=produce)
        producer.start()
        assert eventually(lambda: stream.stats.items_pending >= 8)
        time.sleep(0.3)
        assert producer.is_alive()
        assert stream.stats.items_pending == 8
        assert made == stream.stats.items_accepted + 1
        assert rss_bytes() - before < 9 * frame_bytes + (16 << 20), "the frames, and 16 MiB of our own"
        stream.abort()
        producer.join(10)
        assert not producer.is_alive(), "an abort wakes who waits for room"

    def test_ctrl_c_ends_a_loop_that_writes(self) -> None:
        done = run_script("""
            reader, fd = os.pipe()
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            stream = penstock.Writer(fd)
            try:
                while True:
                    stream.submit(bytes(1 << 20))
            except KeyboardInterrupt:
                print(stream.stats.items_pending)
                stream.abort()
        """)
        assert int(succeeded(done)) == 64

    def test_second_ctrl_c_ends_a_block_that_delivers(self) -> None:
        """The block's end delivers what is queued, unless a second Ctrl-C comes."""
        done = run_script("""
            reader, fd = os.pipe()
            def interrupt():
                for _ in range(2):
                    time.sleep(0.3)
                    os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            try:
                with penstock.Writer(fd, queue_items=1) as stream:
                    while True:
                        stream.submit(bytes(3 << 20))
            except KeyboardInterrupt as second:
                print(type(second.__context__).__name__, flush=True)
                os._exit(0)
        """)
        assert succeeded(done) == b"KeyboardInterrupt\n"


class TestNoRoom:
    @pytest.mark.linux("files in /dev")
    def test_dev_full_raises_at_the_next_pipe_call_and_at_sync(self) -> None:
        with Path("/dev/full").open("wb", buffering=0) as full:
            assert eventually(_native._pipe(b"x" * 1000, full).done)
            for call in (lambda: _native._pipe(b"next", full), _native._sync):
                with pytest.raises(OSError) as caught:
                    call()
                assert caught.value.errno == errno.ENOSPC
                assert (caught.value.bytes_delivered, caught.value.bytes_lost) == (0, 1000)
        _native._sync()

    @pytest.mark.linux("limits of a process")
    def test_file_size_limit_raises_efbig_and_does_not_kill_the_program(self, tmp_path: Path) -> None:
        """EFBIG, and not the SIGXFSZ that would end the program."""
        path = tmp_path / "file"
        done = run_script(
            """
            import errno, resource
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            with open(sys.argv[1], "wb", buffering=0) as file:
                stream = penstock.Writer(file)
                tickets = [stream.submit(bytes(60_000)), stream.submit(bytes(60_000))]
                assert tickets[0].exception(10) is None
                failure = tickets[1].exception(10)
                print(errno.errorcode[failure.errno], failure.bytes_delivered, failure.bytes_lost)
                try:
                    stream.close()
                except OSError as error:
                    print(errno.errorcode[error.errno])
            """,
            path,
        )
        assert succeeded(done).decode().split() == ["EFBIG", "100000", "20000", "EFBIG"]
        assert path.stat().st_size == 100_000


def test_a_broken_stream_frees_its_buffers(pair: tuple[int, int]) -> None:
    frames = [bytearray(FRAME) for _ in range(3)]
    for mode in MODES:
        reader, writer = os.pipe()
        stream = Writer(writer, mode=mode)
        tickets = [stream.submit(frame) for frame in frames]
        os.close(reader)
        assert all(ticket.exception(10) for ticket in tickets)
        for frame in frames:
            frame += b"x"  # BufferError, were it still exported
        os.close(writer)


@pytest.mark.linux("mprotect")
def test_memory_is_never_written_to(pair: tuple[int, int]) -> None:
    """A page that may only be read proves it: a write to it would end the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    reader, writer = pair
    result = ReaderThread(reader)
    area = mmap.mmap(-1, 1 << 20)
    area[:] = FRAME[: 1 << 20]
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert libc.mprotect(ctypes.c_void_p(address), 1 << 20, 1) == 0  # PROT_READ
    for mode in MODES:
        _native._pipe(area, writer, mode=mode)
    _native._sync(timeout=10)
    os.close(writer)
    assert result.result() == FRAME[: 1 << 20] * 4
