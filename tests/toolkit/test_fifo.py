"""FIFOs: opened without blocking, waited for, and given up, with nothing left behind."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import interrupted, run_script, start_script, succeeded
from support.streams import noise
from support.this_process import are_asleep, open_fds, workers

import penstock
from penstock import fifo
from penstock.pipes import PipeReader, PipeWriter

pytestmark = pytest.mark.linux("FIFOs")

DATA = noise(1 << 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fifo.create(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def nothing_is_left() -> Callable[[], bool]:
    """Whether there are no descriptors and native threads but those of before."""
    # A stream of an earlier test may just be letting go of its worker.
    eventually(lambda: not workers(), 5)
    before = open_fds().keys(), workers()

    def is_as_before() -> bool:
        gc.collect()  # an event loop and its tasks refer to each other
        return open_fds().keys() <= before[0] and workers() <= before[1]

    return lambda: eventually(is_as_before)


def in_thread(function: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def both_sides(path: Path) -> io.FileIO:
    """Both sides as one descriptor, which waits for nobody (fifo(7))."""
    return path.open("r+b", buffering=0)


# Making


def test_create_makes_a_fifo_with_the_given_permissions(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        fifo.create(tmp_path / "default")
        fifo.create(os.fsencode(tmp_path / "private"), 0o604)
    finally:
        os.umask(umask)
    for name, permissions in (("default", 0o640), ("private", 0o600)):
        mode = (tmp_path / name).stat().st_mode
        assert (stat.S_ISFIFO(mode), stat.S_IMODE(mode)) == (True, permissions)


def test_create_leaves_an_existing_path(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    for taken in (path, tmp_path / "file"):
        with pytest.raises(FileExistsError):
            fifo.create(taken)
    assert (tmp_path / "file").read_bytes() == b"kept"
    with pytest.raises(FileNotFoundError):
        fifo.create(tmp_path / "no" / "folder")


# Opening


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
@pytest.mark.parametrize("suffix", ["", "b"])
def test_bytes_pass_through_a_fifo(path: Path, kind: Callable[[Path], object], suffix: str) -> None:
    with fifo.open(kind(path), "r" + suffix) as reader, fifo.open(kind(path), "w" + suffix) as writer:
        assert isinstance(reader, PipeReader)
        assert isinstance(writer, PipeWriter)
        writer.write(b"frame")
        assert reader.read(100) == b"frame"
        writer.close()
        assert reader.read() == b""


@pytest.mark.parametrize("how", [fifo.open, fifo.open_async])
def test_path_that_is_no_fifo_is_refused_by_its_kind(
    path: Path, tmp_path: Path, how: Callable[..., object]
) -> None:
    before = open_fds()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for other, what in [
            (tmp_path / "file", "a regular file"),
            (tmp_path / "link", "a regular file"),
            (tmp_path, "a directory"),
            (tmp_path / "socket", "a socket"),
            (Path("/dev/null"), "a character device"),
        ]:
            for mode in ("r", "w"):
                with pytest.raises(ValueError, match=what):
                    how(other, mode)
    for missing in (tmp_path / "nothing", tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError) as caught:
            how(missing)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
    with pytest.raises(NotADirectoryError):
        how(path / "below")
    assert open_fds() == before


@pytest.mark.parametrize("how", [fifo.open, fifo.open_async])
def test_wrong_arguments_are_refused(path: Path, how: Callable[..., object]) -> None:
    for arguments in (("a\0b",), *((path, mode) for mode in ("a", "", "rw", "r+", "rt", "bw"))):
        with pytest.raises(ValueError):
            how(*arguments)
    for wrong in (1, None, 2.5):
        with pytest.raises(TypeError):
            how(wrong)


def test_open_obeys_the_permissions_of_the_fifo(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may open everything")
    path.chmod(0o200)
    with pytest.raises(PermissionError) as caught:
        fifo.open(path)
    assert caught.value.filename == str(path)


def test_process_that_changed_its_user_opens_with_the_rights_of_that_user() -> None:
    """The kernel closes /proc/self/fd to it, and inotify is for those who may read the file."""
    if os.geteuid() != 0:
        pytest.skip("only root may change its user")
    code = """
    from penstock import fifo
    open_to_all, write_only, closed = (sys.argv[1] + name for name in ("/all", "/write", "/closed"))
    os.setuid(65534)
    for path in (open_to_all, write_only):
        print("waiting", flush=True)
        with fifo.open(path, "w", timeout=30) as writer:
            writer.write(b"in")
    with fifo.open(open_to_all) as reader, fifo.open(open_to_all, "w") as writer:
        writer.write(b"x")
        assert reader.read(1) == b"x"
    for path, mode in ((write_only, "r"), (closed, "w")):
        for use in (fifo.open, lambda path, mode: fifo.open_async(path, mode).wait(30)):
            try:
                use(path, mode)
                print("opened", path, mode)
            except PermissionError as error:
                assert error.filename == path
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        for name, permissions in (("all", 0o666), ("write", 0o222), ("closed", 0o600)):
            fifo.create(f"{folder}/{name}")
            Path(folder, name).chmod(permissions)
        with start_script(code, folder) as program:
            for name in ("all", "write"):
                assert program.stdout.readline() == b"waiting\n", program.stderr.read().decode()
                assert eventually(lambda: are_asleep(lambda: {program.pid}))
                assert Path(folder, name).read_bytes() == b"in"
            out, err = program.communicate(timeout=60)
    assert (out, err.decode(), program.returncode) == (b"", "", 0)


def test_fifo_opens_by_its_path_without_proc(path: Path) -> None:
    """As in a chroot. The FIFO is then found by its path, and an exchanged one is noticed."""
    code = f"""
    from penstock import fifo
    assert not os.path.exists("/proc/self")
    with fifo.open({str(path)!r}) as reader, fifo.open({str(path)!r}, "w") as writer:
        writer.write(b"x")
        assert reader.read(1) == b"x"
    waiting = fifo.open_async({str(path)!r}, "w")
    time.sleep(0.1)
    with fifo.open({str(path)!r}) as reader, waiting.wait(20) as writer:
        writer.write(b"y")
        assert reader.read(1) == b"y"
    waiting = fifo.open_async({str(path)!r}, "w")
    fifo.create({str(path)!r} + "'")
    os.rename({str(path)!r} + "'", {str(path)!r})
    with fifo.open({str(path)!r}) as reader:
        try:
            waiting.wait(20)
        except OSError as error:
            print(error.strerror, end="")
    """
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*hide, "true"], capture_output=True).returncode:
        pytest.skip("/proc cannot be hidden here")
    with start_script(code) as unused:
        unused.kill()
    done = subprocess.run([*hide, *unused.args], capture_output=True, timeout=60)
    assert succeeded(done) == os.strerror(errno.ESTALE).encode()


# The first read


def buffered(reader: PipeReader, read: Callable[[io.BufferedReader], bytes]) -> bytes:
    stream = io.BufferedReader(reader)
    got = read(stream)
    stream.detach()
    return got


@pytest.mark.parametrize(
    "read",
    [
        lambda reader: reader.read(100),
        lambda reader: reader.read(),
        lambda reader: reader.readall(),
        lambda reader: bytes(memoryview(buffer := bytearray(100))[: reader.readinto(buffer)]),
        lambda reader: buffered(reader, io.BufferedReader.read),
        lambda reader: buffered(reader, io.BufferedReader.readline),
    ],
)
def test_the_first_read_waits_for_a_writer(path: Path, read: Callable[[PipeReader], bytes]) -> None:
    got = []
    with fifo.open(path) as reader:
        thread = in_thread(lambda: got.append(read(reader)))
        assert eventually(lambda: are_asleep(lambda: {thread.native_id})), "an end of file without a writer"
        with path.open("wb", buffering=0) as writer:
            time.sleep(0.05)
            assert thread.is_alive(), f"it said {got}, which is the end of file, before anybody had written"
            writer.write(b"frame")
        thread.join(PATIENCE_S)
        assert got == [b"frame"]


def test_reader_sees_an_end_of_file_after_each_writer(path: Path) -> None:
    with fifo.open(path) as reader:
        for text in (b"one", b"two"):
            path.write_bytes(text)
            assert reader.read() == text
        assert reader.read() == b""


def test_nonblocking_read_returns_none_before_data_arrives(path: Path) -> None:
    with fifo.open(path) as reader:
        os.set_blocking(reader.fileno(), False)
        assert reader.read(1) is reader.read() is reader.readall() is reader.readinto(bytearray(1)) is None
        with path.open("wb", buffering=0) as writer:
            assert reader.read(1) is None
            writer.write(b"x")
            assert reader.read(5) == b"x"
        assert reader.read(1) == b""


def test_zero_byte_read_does_not_wait(path: Path) -> None:
    with fifo.open(path) as reader:
        assert reader.read(0) == b""
    with pytest.raises(ValueError):
        reader.read(1)


def test_asyncio_stream_reader_reads_a_fifo(path: Path) -> None:
    async def main() -> bytes:
        stream = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(stream)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, fifo.open(path))
        await asyncio.sleep(0.05)
        threading.Thread(target=path.write_bytes, args=(DATA,)).start()
        got = await stream.read()
        transport.close()
        return got

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == DATA


@pytest.mark.parametrize("method", ["auto", "read-write"])
def test_relay_waits_for_the_first_writer(path: Path, tmp_path: Path, method: str) -> None:
    moved = []
    with fifo.open(path) as reader, (tmp_path / "copy").open("w+b") as copy:
        thread = in_thread(lambda: moved.append(reader.write_to(copy, method=method).bytes))
        assert eventually(lambda: are_asleep(lambda: {thread.native_id})), "an end of file without a writer"
        with fifo.open(path, "w") as writer:
            writer.write(DATA)
        thread.join(PATIENCE_S)
    assert moved == [len(DATA)]
    assert (tmp_path / "copy").read_bytes() == DATA


# Waiting for a reader


def test_a_writer_waits_for_a_reader(path: Path) -> None:
    got, waiter = [], threading.get_native_id()

    def come() -> None:
        assert eventually(lambda: are_asleep(lambda: {waiter}))
        got.append(path.read_bytes())

    thread = in_thread(come)
    with fifo.open(path, "w", timeout=PATIENCE_S) as writer:
        writer.write(b"x")
    thread.join(PATIENCE_S)
    assert got == [b"x"]


@pytest.mark.parametrize("timeout", [0, 0.001, 0.12])
def test_open_for_writing_times_out_without_a_reader(
    path: Path, timeout: float, nothing_is_left: Callable[[], bool]
) -> None:
    with pytest.raises(penstock.StalledError) as caught:
        fifo.open(path, "w", timeout=timeout)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.seconds >= timeout
    assert nothing_is_left()


@pytest.mark.parametrize(
    "wait",
    [
        "fifo.open(path, 'w')",
        "fifo.open_async(path, 'w').exception()",
        "fifo.open(path).read()",
        "penstock.relay(fifo.open(path), 1)",
    ],
)
def test_ctrl_c_ends_the_wait(path: Path, wait: str) -> None:
    code = f"""
    import warnings
    warnings.simplefilter("ignore", ResourceWarning)
    from penstock import fifo
    path = sys.argv[1]
    print("waiting", flush=True)
    try:
        {wait}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        # The exception's frames are gone; so must be what they opened.
    def is_open(fd):
        try:
            return path in os.readlink(f"/proc/self/fd/{{fd}}")
        except FileNotFoundError:  # closed meanwhile
            return False
    deadline = time.monotonic() + 20
    while any(map(is_open, os.listdir("/proc/self/fd"))):
        assert time.monotonic() < deadline
    """
    assert interrupted(code, path) == b"interrupted\n"


# Tickets


def talking(writer: PipeWriter) -> bytes:
    writer.write(b"frame")
    return b"frame"


def leaving(writer: PipeWriter) -> bytes:
    writer.close()
    return b""


@pytest.mark.parametrize("behavior", [talking, leaving])
def test_a_ticket_for_reading_is_done_when_a_writer_comes(
    path: Path, behavior: Callable[[PipeWriter], bytes], nothing_is_left: Callable[[], bool]
) -> None:
    ticket = fifo.open_async(path)
    assert eventually(lambda: are_asleep(workers))
    assert not ticket.done()
    with pytest.raises(penstock.StalledError):
        ticket.wait(0.01)
    with fifo.open(path, "w") as writer:
        expected = behavior(writer)
        with ticket.wait(PATIENCE_S) as reader:
            assert type(reader) is PipeReader
            assert ticket.done()
            assert ticket.exception() is None
            assert ticket.wait() is reader
            writer.close()
            assert reader.read() == expected, "nothing of it was taken by the looking"
    del ticket
    assert nothing_is_left()


def test_a_ticket_for_writing_is_done_when_a_reader_comes(path: Path) -> None:
    ticket = fifo.open_async(path, "w")
    assert eventually(lambda: are_asleep(workers))
    assert not ticket.done()
    with fifo.open(path) as reader, ticket.wait(PATIENCE_S) as writer:
        assert type(writer) is PipeWriter
        writer.write(b"x")
        assert reader.read(1) == b"x"


@pytest.mark.parametrize("mode", ["r", "w"])
def test_cancel_ends_the_wait_and_leaves_no_thread_or_descriptor(
    path: Path, mode: str, nothing_is_left: Callable[[], bool]
) -> None:
    ticket = fifo.open_async(path, mode)
    assert eventually(lambda: are_asleep(workers))
    ticket.cancel()
    for _ in range(2):
        with pytest.raises(penstock.ClosedError):
            ticket.wait(PATIENCE_S)
    assert isinstance(ticket.exception(), penstock.ClosedError)
    assert ticket.done()
    ticket.cancel()
    assert nothing_is_left()


def test_cancelling_after_wait_does_nothing(path: Path) -> None:
    ticket = fifo.open_async(path)
    with fifo.open(path, "w") as writer, ticket.wait(PATIENCE_S) as reader:
        ticket.cancel()
        assert ticket.wait() is reader
        writer.write(b"x")
        assert reader.read(1) == b"x"


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("arrives", [True, False])
def test_dropped_ticket_leaves_no_thread_or_descriptor(
    path: Path, mode: str, arrives: bool, nothing_is_left: Callable[[], bool]
) -> None:
    ticket = fifo.open_async(path, mode)
    if arrives:
        with both_sides(path):
            assert eventually(ticket.done)
    del ticket
    gc.collect()
    assert nothing_is_left()


def test_threads_that_wait_for_one_ticket_get_the_same_stream(path: Path) -> None:
    ticket = fifo.open_async(path)
    got = []
    threads = [in_thread(lambda: got.append(ticket.wait(PATIENCE_S))) for _ in range(10)]
    with both_sides(path):
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(got) == 10
        with got[0]:
            assert all(stream is got[0] for stream in got)


def test_waiting_reader_sleeps_until_a_writer_arrives(path: Path) -> None:
    """It looks by the clock only where inotify is missing. A thread whose count of switches stays has not run."""
    ticket = fifo.open_async(path)

    def wakes() -> dict[int, str]:
        tasks = {task: Path(f"/proc/self/task/{task}/status").read_text() for task in workers()}
        return {
            task: status.split("\nvoluntary_ctxt_switches:")[1].split()[0] for task, status in tasks.items()
        }

    def sleeps_on() -> bool:
        before = wakes()
        time.sleep(0.3)
        return wakes() == before

    assert eventually(lambda: are_asleep(workers) and sleeps_on())
    assert not ticket.done()


def test_descriptor_shortage_is_raised_by_the_ticket(path: Path) -> None:
    code = """
    import resource
    from penstock import fifo
    held = open(sys.argv[1], "r+b", buffering=0)
    for spare in range(12):
        limit = len(os.listdir("/proc/self/fd")) - 1 + spare
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
        for mode in ("r", "w"):
            for use in (
                lambda: fifo.open(sys.argv[1], mode, timeout=5),
                lambda: fifo.open_async(sys.argv[1], mode).wait(20),
            ):
                try:
                    use().close()
                except OSError as error:
                    assert error.errno == 24, error
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    held.close()
    """
    assert succeeded(run_script(code, path)) == b""


# asyncio


@pytest.mark.parametrize("mode", ["r", "w"])
def test_ticket_can_be_awaited(path: Path, mode: str, nothing_is_left: Callable[[], bool]) -> None:
    async def main() -> None:
        ticket = fifo.open_async(path, mode)
        waiting = asyncio.ensure_future(ticket)
        assert await asyncio.to_thread(eventually, lambda: are_asleep(workers))
        assert not waiting.done()
        with both_sides(path):
            stream = await waiting
            assert await ticket is stream
            stream.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert nothing_is_left()


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_cancelled_task_cancels_the_opening(
    path: Path, mode: str, nothing_is_left: Callable[[], bool]
) -> None:
    async def main() -> fifo.FifoTicket:
        ticket = fifo.open_async(path, mode)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ticket, 0.05)
        with pytest.raises(penstock.ClosedError):
            await ticket
        return ticket

    ticket = asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert nothing_is_left()
    assert ticket.done()


def test_end_of_the_event_loop_cancels_a_pending_open(
    path: Path, nothing_is_left: Callable[[], bool]
) -> None:
    async def wait() -> None:
        await fifo.open_async(path)

    async def main() -> asyncio.Task[None]:
        waiting = asyncio.ensure_future(wait())
        assert await asyncio.to_thread(eventually, lambda: are_asleep(workers))
        return waiting

    assert asyncio.run(main()).cancelled()
    assert nothing_is_left()


# Exit and fork


@pytest.mark.parametrize(
    ("mode", "ending"), [("r", ""), ("w", "penstock._native._pipe(b'x', 1).wait()"), ("w", "del ticket")]
)
def test_program_ends_at_once_during_an_open(path: Path, mode: str, ending: str) -> None:
    code = f"""
    from penstock import fifo
    ticket = fifo.open_async(sys.argv[1], {mode!r})
    while not are_asleep(workers): pass
    {ending}
    """
    done = run_script(code, path)
    assert succeeded(done) == (b"x" if "pipe" in ending else b"")


@pytest.mark.linux("forks")
@pytest.mark.parametrize("mode", ["r", "w"])
def test_forked_child_does_not_affect_a_pending_open(path: Path, mode: str) -> None:
    code = """
    from penstock import fifo
    path, mode = sys.argv[1:]
    ticket = fifo.open_async(path, mode)
    met = fifo.open_async(path + "2", mode)
    with open(path + "2", "r+b", buffering=0):
        while not met.done():
            time.sleep(0.001)
    while not are_asleep(workers): pass
    pid = os.fork()
    if pid == 0:
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        ok = not any(path in link or "inotify" in link or "eventfd" in link for link in links)
        for other in (ticket, met):
            try:
                other.wait(20)
                ok = False
            except penstock.ClosedError:
                pass
            other.cancel()
        with fifo.open(path) as reader, fifo.open_async(path, "w").wait(20) as writer:
            writer.write(b"x")
            ok = ok and reader.read(1) == b"x"
        del ticket, met, other
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    met.wait().close()
    if not ticket.done():  # the child's own may have met it
        with open(path, "r+b", buffering=0):
            ticket.wait(20).close()
    else:
        ticket.wait().close()
    """
    fifo.create(f"{path}2")
    assert succeeded(run_script(code, path, mode)) == b""
