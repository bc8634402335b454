"""Every kind of `fd`: ints and objects that lead to one; and those that cannot be written fail at the call."""

from __future__ import annotations

import errno
import io
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import eventually
from support.processes import run_script, succeeded
from support.streams import ReaderThread, noise, read_exactly, tcp_pair
from support.this_process import are_asleep, open_fds, workers

import penstock
from penstock import Pipeline, _native, fifo
from penstock.pipeline import Sink, Source

FRAME = noise(300_000)


class Handle:
    """The least that has a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def fileno(self) -> int:
        return self.fd


WRAPPED = {
    "int": lambda fd: fd,
    "object with fileno()": Handle,
    "raw file": lambda fd: os.fdopen(fd, "wb", buffering=0, closefd=False),
    "buffered file": lambda fd: os.fdopen(fd, "wb", closefd=False),
    "text file": lambda fd: os.fdopen(fd, "w", closefd=False),
}
if sys.platform != "win32":  # where a pipe has no end that does both
    WRAPPED["read and write"] = lambda fd: Handle(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))


@pytest.mark.parametrize("kind", WRAPPED)
def test_int_or_object_with_fileno_is_accepted(pair: tuple[int, int], kind: str) -> None:
    reader, writer = pair
    file = WRAPPED[kind](writer)
    _native._pipe(FRAME, file)
    with penstock.Writer(file) as stream:
        stream.submit(FRAME[:1000])
        assert read_exactly(reader, len(FRAME) + 1000) == FRAME + FRAME[:1000]
    if kind == "read and write":
        os.close(file.fileno())


@pytest.mark.parametrize("text", [False, True])
def test_bytes_in_a_python_buffer_are_written_first(pair: tuple[int, int], text: bool) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    with os.fdopen(writer, "w" if text else "wb") as file:
        file.write("header\n" if text else b"header\n")
        _native._pipe(b"frame\n", file).wait(10)
        file.write("middle\n" if text else b"middle\n")
        with penstock.Writer(file) as stream:
            stream.submit(b"another\n")
        file.write("trailer\n" if text else b"trailer\n")
    assert result.result().split() == [b"header", b"frame", b"middle", b"another", b"trailer"]


def test_standard_output_and_error_keep_their_order() -> None:
    program = """
import sys, penstock
print("printed first")
penstock._native._pipe(b"piped next\\n", sys.stdout).wait()
print("printed last")
penstock._native._pipe(b"to stderr\\n", 2)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [b"printed first", b"piped next", b"printed last"]
    assert done.stderr == b"to stderr\n"


SOCKETS: dict[str, Callable[[], tuple[socket.socket, socket.socket]]] = {
    "unix": socket.socketpair,
    "tcp": tcp_pair,
}


@pytest.mark.linux("sockets as descriptors")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("kind", SOCKETS)
def test_stream_sockets_receive_every_byte(kind: str, blocking: bool) -> None:
    reader, writer = SOCKETS[kind]()
    writer.setblocking(blocking)
    result = ReaderThread(reader.detach())
    for _ in range(5):
        _native._pipe(FRAME, writer, mode="zero-copy")  # only pipes take pages: it is written
    with penstock.Writer(writer) as stream:
        stream.submit(FRAME)
        stream.flush(10)
        stats = stream.stats
    assert (stats.transport, stats.capacity_bytes) == ("write", None)
    assert stats.bytes_delivered == 6 * len(FRAME)
    writer.close()
    assert result.result() == FRAME * 6


@pytest.mark.linux("sockets as descriptors")
def test_a_message_that_cannot_be_sent_whole_is_an_error_and_not_cut() -> None:
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    too_large = 64 << 20
    with penstock.Writer(writer) as stream:
        failure = stream.submit(bytes(too_large)).exception(10)
        assert isinstance(failure, OSError) and failure.errno == errno.EMSGSIZE
        assert (failure.bytes_delivered, failure.bytes_lost) == (0, too_large)
        with pytest.raises(OSError) as caught:
            stream.close()
        assert caught.value.errno == errno.EMSGSIZE
    reader.setblocking(False)
    with pytest.raises(BlockingIOError):
        reader.recv(1)
    reader.close()
    writer.close()


def _open_fifo(path: Path) -> tuple[int, int]:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    return reader, os.open(path, os.O_WRONLY)


def _write_calls() -> int:
    """The calls of write(2) and its like that this process has made (proc_pid_io(5))."""
    return int(Path("/proc/self/io").read_text().split("syscw:")[1].split()[0])


@pytest.mark.linux("FIFOs")
def test_a_large_write_to_a_fifo_takes_few_calls(tmp_path: Path) -> None:
    reader, writer = _open_fifo(tmp_path / "fifo")
    with penstock.Writer(writer, mode="write") as stream:
        before = _write_calls()
        stream.submit(FRAME[:65536]).wait(10)
        # In pieces of PIPE_BUF there would be 16 at least. Threads are woken by write(2), too.
        assert _write_calls() - before < 10
        assert read_exactly(reader, 65536) == FRAME[:65536]
    os.close(reader)
    os.close(writer)


@pytest.mark.linux("FIFOs")
def test_fifo_that_cannot_be_reopened_is_still_written(tmp_path: Path) -> None:
    """As after a program that opened it has given up its privileges."""
    reader, writer = _open_fifo(tmp_path / "fifo")
    result = ReaderThread(reader)
    (tmp_path / "fifo").chmod(0)
    code = """
import os, sys, penstock
import penstock._common.log  # which reports the slower way, from files that only root may be able to read
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
fd = int(sys.argv[1])
try:
    os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
except PermissionError:
    with penstock.Writer(fd, mode="write") as stream:
        stream.submit(bytes(range(256)) * 1000)
"""
    succeeded(run_script(code, writer, pass_fds=[writer]))
    os.close(writer)
    assert result.result() == bytes(range(256)) * 1000


@pytest.mark.linux("terminals as descriptors")
@pytest.mark.parametrize("end", ["terminal", "stopped terminal", "controller"])
def test_terminals_do_not_wait_for_each_other(end: str) -> None:
    """The controlling sides of all pseudo-terminals have one inode, that of /dev/ptmx, and are streams of their own."""
    import pty
    import termios
    import tty

    stalled, lively = pty.openpty(), pty.openpty()
    for _, terminal in (stalled, lively):
        tty.setraw(terminal)
    if end == "stopped terminal":
        termios.tcflow(stalled[1], termios.TCOOFF)
    stream = penstock.Writer(stalled[0 if end == "controller" else 1])
    blocked = stream.submit(bytes(1 << 20))
    _native._pipe(b"through", lively[0]).wait(10)
    assert os.read(lively[1], 7) == b"through"
    assert eventually(lambda: are_asleep(workers))  # the terminal takes no more
    assert not blocked.done()
    stream.abort()
    with pytest.raises(penstock.ClosedError):
        blocked.wait(10)
    for fd in (*stalled, *lively):
        os.close(fd)


@pytest.mark.linux("terminals as descriptors")
def test_terminal_hangs_up_at_close() -> None:
    """The worker's own descriptor of a terminal ends with the write."""
    import pty
    import tty

    controller, terminal = pty.openpty()
    tty.setraw(terminal)
    with penstock.Writer(terminal) as stream:
        os.close(terminal)
        stream.submit(FRAME)
        assert read_exactly(controller, len(FRAME)) == FRAME
    with pytest.raises(OSError):
        os.read(controller, 1)
    os.close(controller)


@pytest.mark.parametrize("buffering", [0, -1])
def test_file_is_written_at_its_position(tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "file"
    with path.open("w+b", buffering=buffering) as file:
        file.write(b"head")
        _native._pipe(FRAME, file)
        _native._pipe(b"middle", file)
        _native._sync(timeout=10)
        file.seek(0, io.SEEK_END)
        file.write(b"tail")
    assert path.read_bytes() == b"head" + FRAME + b"middletail"


def test_file_in_append_mode_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before ")
    with path.open("ab") as file, penstock.Writer(file) as stream:
        stream.submit(b"behind")
    assert path.read_bytes() == b"before behind"


def test_two_descriptors_of_one_file_keep_their_positions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"." * 20)
    with path.open("r+b", buffering=0) as front, path.open("r+b", buffering=0) as back:
        back.seek(10)
        _native._pipe(b"AAA", front)
        _native._pipe(b"BBB", back)
        _native._pipe(b"aaa", front)
        _native._pipe(b"bbb", back)
        _native._sync(timeout=10)
    assert path.read_bytes() == b"AAAaaa....BBBbbb...."


def test_new_file_is_a_new_stream_after_the_old_file_is_deleted(tmp_path: Path) -> None:
    """File systems give the number of a deleted file to the next one."""
    for number in range(20):
        path = tmp_path / "file"
        with path.open("wb", buffering=0) as file:
            _native._pipe(f"{number}".encode(), file)
        _native._sync(timeout=10)
        assert path.read_text() == str(number)
        path.unlink()


def test_descriptor_of_the_caller_stays_open_and_unchanged(pair: tuple[int, int]) -> None:
    reader, writer = pair
    flags = [os.get_blocking(writer), os.get_inheritable(writer)]
    with penstock.Writer(writer) as stream:
        stream.submit(b"one ")
    _native._pipe(b"two ", writer).wait(10)
    _native._close(timeout=10)
    assert [os.get_blocking(writer), os.get_inheritable(writer)] == flags
    os.write(writer, b"three")
    assert read_exactly(reader, 13) == b"one two three"


def test_child_programs_inherit_no_internal_descriptor(pair: tuple[int, int]) -> None:
    """Else the reader would have no end of file before that program's end."""
    reader, writer = pair
    stream = penstock.Writer(writer)
    _native._pipe(noise(4 << 20), writer)
    command = [sys.executable, "-S", "-c", "import time; time.sleep(100)"]
    with subprocess.Popen(command, close_fds=False) as program:
        os.close(writer)
        result = ReaderThread(reader)
        stream.close(10)
        assert len(result.result()) == 4 << 20
        program.kill()


Opening = Callable[[object], object]
SOURCE, SINK = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
WRITING: dict[str, Opening] = {
    "pipe": lambda fd: _native._pipe(b"never", fd),
    "Writer": lambda fd: penstock.Writer(fd),
    "relay to": lambda fd: penstock.relay(SOURCE, fd),
}
READING: dict[str, Opening] = {"relay from": lambda fd: penstock.relay(fd, SINK)}


@pytest.fixture(params=WRITING)
def write(request: pytest.FixtureRequest) -> Opening:
    return WRITING[request.param]


@pytest.fixture(params=WRITING | READING)
def call(request: pytest.FixtureRequest) -> Opening:
    return (WRITING | READING)[request.param]


def closed_file() -> object:
    with Path(os.devnull).open("wb") as file:
        return file


def closed_sockets() -> list[object]:
    """On Windows, none is taken, closed or not."""
    with socket.socket() as end:
        return [end] if sys.platform != "win32" else []


class Misled:
    def fileno(self) -> str:
        return "1"


@pytest.mark.parametrize(
    ("fd", "error"),
    [
        *((fd, ValueError) for fd in (-1, -(2**31), closed_file(), *closed_sockets())),
        *((fd, OverflowError) for fd in (2**31, 2**100, -(2**40))),
        *((fd, TypeError) for fd in (None, "1", 1.0, b"1", object, io.BytesIO(), Misled())),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, int | type) else repr(one),
)
def test_object_that_is_no_descriptor_is_refused(call: Opening, fd: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(fd)


def test_closed_or_path_only_descriptor_raises_ebadf(
    call: Opening, pair: tuple[int, int], tmp_path: Path
) -> None:
    os.close(pair[1])
    by_path = [os.open(tmp_path, os.O_PATH)] if hasattr(os, "O_PATH") else []
    for fd in (2**31 - 1, 100_000, pair[1], *by_path):
        with pytest.raises(OSError) as caught:
            call(fd)
        assert caught.value.errno == errno.EBADF
    for fd in by_path:
        os.close(fd)


@pytest.mark.parametrize("kind", WRITING | READING)
def test_read_end_for_writing_and_write_end_for_reading_raise_ebadf(kind: str, pair: tuple[int, int]) -> None:
    with pytest.raises(OSError) as caught:
        WRITING[kind](pair[0]) if kind in WRITING else READING[kind](pair[1])
    assert caught.value.errno == errno.EBADF


def test_swapped_ends_of_a_relay_are_named(pair: tuple[int, int]) -> None:
    reader, writer = pair
    for src, word in ((writer, "reading"), (SOURCE, "writing")):
        for relay in (penstock.relay, penstock.pipes.start_relay):
            with pytest.raises(OSError, match=word):
                relay(src, reader)


def test_exception_of_fileno_is_raised(call: Opening) -> None:
    class Broken:
        def fileno(self) -> int:
            raise KeyError("mine")

    with pytest.raises(KeyError):
        call(Broken())


def test_exception_of_flush_is_raised_and_nothing_is_queued(pair: tuple[int, int], write: Opening) -> None:
    class Broken(Handle):
        def flush(self) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError):
        write(Broken(pair[1]))
    os.close(pair[1])
    assert os.read(pair[0], 10) == b""


def test_unknown_mode_is_refused(pair: tuple[int, int]) -> None:
    for mode in ("", "WRITE", "zero_copy"):
        for call in (lambda fd, mode: _native._pipe(b"never", fd, mode=mode), penstock.Writer):
            with pytest.raises(ValueError, match="'write'"):
                call(pair[1], mode=mode)


@pytest.mark.linux("limits of a process")
def test_descriptor_shortage_raises_and_a_later_call_succeeds(tmp_path: Path) -> None:
    """EMFILE at the call; what was accepted before arrives, and so does what comes later."""
    import resource

    reader, writer = os.pipe()
    other_reader, other_writer = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    big = noise(4 << 20)
    _native._pipe(big, writer)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(other_writer, *map(int, open_fds())) + 2, hard))
        try:
            while True:
                taken.append(os.dup(writer))
        except OSError as full:
            assert full.errno == errno.EMFILE
        for attempt in (lambda: _native._pipe(b"no", other_writer), lambda: penstock.Writer(other_writer)):
            with pytest.raises(OSError) as caught:
                attempt()
            assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    _native._pipe(b"yes", other_writer)
    os.close(writer)
    os.close(other_writer)
    results = ReaderThread(reader), ReaderThread(other_reader)
    assert [result.result() for result in results] == [big, b"yes"]


@pytest.mark.parametrize(
    "path", ["frames.raw", b"frames.raw", Path("frames.raw")], ids=["str", "bytes", "Path"]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda path: penstock.Reader(path, frame_bytes=3),
        penstock.Writer,
        pytest.param(penstock.Tee, marks=pytest.mark.linux("Tee")),
        lambda path: _native._pipe(b"data", path),
        lambda path: penstock.relay(path, path),
    ],
    ids=["Reader", "Writer", "Tee", "pipe", "relay"],
)
def test_path_is_refused_with_advice(call, path: object) -> None:
    with pytest.raises(TypeError, match=r"frames\.raw"):
        call(path)


@pytest.mark.linux("sockets as descriptors")
@pytest.mark.parametrize(
    "move",
    [
        penstock.relay,
        penstock.pipes.start_relay,
        penstock.pipes.Relay,
        penstock.Tee,
        lambda source, closed: Pipeline(Source.fd(source), sink=Sink.fd(closed)).wait(),
        lambda source, closed: Pipeline(Source.fd(closed), sink=Sink.fd(source)).wait(),
    ],
    ids=["relay", "start_relay", "Relay", "Tee", "a pipeline's sink", "a pipeline's source"],
)
def test_closed_descriptor_is_not_mistaken_for_a_duplicate_of_the_other_end(
    move: Callable[[socket.socket, int], object],
) -> None:
    """The system gives the lowest free number to the duplicate, and bytes of a socket would go back to their sender."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"secret")
        theirs.shutdown(socket.SHUT_WR)
        os.close(closed := os.dup(0))
        with pytest.raises(OSError) as caught:
            move(ours, closed)
        assert caught.value.errno == errno.EBADF
        with pytest.raises(BlockingIOError):
            theirs.recv(100, socket.MSG_DONTWAIT)


def lowest_free() -> int:
    os.close(lowest := os.dup(0))
    return lowest


OWNERS: dict[str, Callable[[int, int], object]] = {
    "Writer": lambda reader, writer: penstock.Writer(writer),
    "Writer of a file": lambda reader, writer: penstock.Writer(SINK),
    "Reader": lambda reader, writer: penstock.Reader(reader, frame_bytes=10),
    "Tee": lambda reader, writer: penstock.Tee(reader, SINK, start=False),
    "relay": lambda reader, writer: penstock.pipes.start_relay(reader, SINK),
    "Pipeline": lambda reader, writer: Pipeline(Source.fd(reader), sink=Sink.fd(SINK)),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.linux("numbers of descriptors"))
        if kind in ("Tee", "relay")
        else kind
        for kind in OWNERS
    ],
)
def test_internal_descriptors_leave_low_numbers_to_the_program(kind: str, pair: tuple[int, int]) -> None:
    """One that the program has closed is not ours then, and neither are bytes that it writes there by mistake."""
    lowest = lowest_free()
    owner = OWNERS[kind](*pair)
    assert eventually(lambda: lowest_free() == lowest)
    with pytest.raises(OSError) as caught:
        penstock.Writer(lowest)
    assert caught.value.errno == errno.EBADF
    os.close(pair[1])  # which ends those that read
    del owner


@pytest.mark.linux("FIFOs")
def test_fifo_end_has_a_low_descriptor_number(tmp_path: Path) -> None:
    """It is the program's, which may pass it to select(2)."""
    fifo.create(path := tmp_path / "fifo")
    with (
        fifo.open(path) as reader,
        fifo.open(path, "w") as writer,
        fifo.open_async(path, "w").wait() as later,
    ):
        assert max(end.fileno() for end in (reader, writer, later)) < 512
