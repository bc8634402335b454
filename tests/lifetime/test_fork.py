"""A fork leaves the parent its streams, and the child has none but can make its own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from support.processes import run_script, succeeded

pytestmark = pytest.mark.linux("forks")

# The parent has a write in flight that nobody reads yet, and forks then.
IN_FLIGHT = """
frame = os.urandom(6_000_000)
reader, writer = os.pipe()
ticket = penstock._native._pipe(frame, writer, mode={mode!r})

def read_all(fd):
    got = bytearray()
    while chunk := os.read(fd, 1 << 20):
        got += chunk
    return bytes(got)

def read_in_thread(fd):
    got = []
    thread = threading.Thread(target=lambda: got.append(read_all(fd)))
    thread.start()
    def result():
        thread.join(30)
        return got[0]
    return result

def end_child(ok):
    os._exit(0 if ok else 1)

def child_is_well(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def run(body: str, mode: str = "auto") -> bytes:
    return succeeded(run_script(IN_FLIGHT.format(mode=mode) + textwrap.dedent(body)))


def test_parent_and_child_write_to_pipes_of_their_own() -> None:
    body = """
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        own_reader, own_writer = os.pipe()
        got = read_in_thread(own_reader)
        penstock._native._pipe(frame[::-1], own_writer)
        penstock._native._sync(timeout=20)
        os.close(own_writer)
        end_child(got() == frame[::-1])
    got = read_in_thread(reader)
    os.close(writer)
    assert got() == frame, "whole, and then the end of file"
    assert child_is_well(pid)
    """
    for mode in ["write", "staged", "zero-copy"]:
        run(body, mode)


def test_reused_descriptor_number_is_a_new_pipe_in_the_child() -> None:
    body = """
    pid = os.fork()
    if pid == 0:
        own_reader, own_writer = os.pipe()
        os.dup2(own_writer, writer)
        os.close(own_writer)
        got = read_in_thread(own_reader)
        penstock._native._pipe(b"child's", writer).wait(20)
        os.close(writer)
        error = ticket.exception(20)  # the parent's is no trap
        end_child(got() == b"child's" and ticket.done() and isinstance(error, penstock.ClosedError))
    got = read_in_thread(reader)
    penstock._native._pipe(b"parent's", writer)
    os.close(writer)
    assert got() == frame + b"parent's"
    assert child_is_well(pid)
    """
    run(body)


def test_parent_and_child_can_write_to_the_same_pipe() -> None:
    body = """
    pid = os.fork()
    if pid == 0:
        penstock._native._pipe(b"c" * 1000, writer).wait(20)
        end_child(True)
    got = read_in_thread(reader)
    assert child_is_well(pid)
    penstock._native._pipe(b"p" * 1000, writer)
    os.close(writer)
    result = got()
    assert result.count(b"c" * 1000) == 1, "as a whole, for it is shorter than PIPE_BUF"
    assert result.replace(b"c" * 1000, b"", 1) == frame + b"p" * 1000
    """
    run(body)


def test_memory_in_flight_in_the_parent_is_free_in_the_child() -> None:
    body = """
    area = bytearray(frame)
    penstock._native._pipe(area, writer)
    pid = os.fork()
    if pid == 0:
        area.clear()
        end_child(len(area) == 0)
    assert child_is_well(pid)
    try:
        area.clear()
    except BufferError:
        pass
    else:
        raise AssertionError("the parent's is in flight")
    got = read_in_thread(reader)
    os.close(writer)
    assert got() == frame * 2
    """
    run(body)


def test_fork_in_a_signal_handler_leaves_the_interrupted_write_to_the_parent() -> None:
    body = """
    import signal

    results = []
    def fork(*_):
        child = os.fork()
        results.append((child, read_in_thread(reader) if child else None))
    signal.signal(signal.SIGALRM, fork)
    own = penstock.Writer(writer, queue_items=1)
    area = bytearray(1000)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        own.submit(area)  # waits for room
    except penstock.ClosedError:
        area.clear()  # which raises while anybody holds it
        end_child(results[0][0] == 0)
    own.close()
    os.close(writer)
    [(child, got)] = results
    assert got() == frame + bytes(1000)
    assert child_is_well(child)
    """
    run(body)


def test_inherited_objects_are_closed_in_the_child_and_work_in_the_parent() -> None:
    body = """
    from penstock import Pipeline
    from penstock.pipeline import Source

    idle_reader, idle_writer = os.pipe()
    got = read_in_thread(reader)
    own = penstock.Writer(writer)
    own.flush(20)
    frames = penstock.Reader(idle_reader, frame_bytes=10)
    relay = penstock.pipes.start_relay(idle_reader, writer)
    tee = penstock.Tee(idle_reader)
    chunks = Pipeline(Source.fd(idle_reader))
    calls = [
        lambda: own.submit(b"c"),
        lambda: own.flush(20),
        frames.read,
        frames.latest,
        relay.wait,
        lambda: tee.add(writer),
        tee.wait,
        lambda: next(chunks),
    ]
    pid = os.fork()
    if pid == 0:
        raised = []
        for call in calls:
            try:
                call()
            except Exception as error:
                raised.append(type(error))
        for inherited in (own, frames, chunks):
            inherited.close()
        relay.cancel()
        os.write(2, repr(raised).encode() if raised != [penstock.ClosedError] * len(calls) else b"")
        end_child(raised == [penstock.ClosedError] * len(calls))
    assert child_is_well(pid)
    assert not relay.done(), "nothing that the child does ends it"
    relay.cancel()
    own.submit(b"p" * 1000)
    own.close(20)
    frames.close()
    chunks.close()
    os.close(writer)
    assert got() == frame + b"p" * 1000
    """
    run(body)


def test_child_has_no_internal_descriptor() -> None:
    body = """
    from pathlib import Path
    from penstock import Pipeline
    from penstock.pipeline import Sink, Source

    def pipes():
        found = {entry.name: os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists()}
        return sorted(name for name, target in found.items() if "pipe:" in target or "eventfd" in target)

    mine = [reader, writer, *os.pipe()]
    own = penstock.Writer(writer)
    more = penstock._native._pipe(b"x", writer)
    busy = threading.Thread(target=lambda: [penstock._native._pipe(frame, writer) for _ in range(80)], daemon=True)
    busy.start()  # waits for room after 64
    while not are_asleep(lambda: {busy.native_id}): pass
    frames = penstock.Reader(mine[2], frame_bytes=10)
    relay = penstock.pipes.start_relay(mine[2], writer)
    tee = penstock.Tee(mine[2], writer)
    chunks = Pipeline(Source.fd(mine[2]), sink=Sink.fd(writer))
    pid = os.fork()
    if pid == 0:
        left = [name for name in pipes() if int(name) > 2 and int(name) not in mine]
        os.write(2, " ".join(left).encode())
        end_child(not left)
    assert child_is_well(pid)
    os._exit(0)
    """
    run(body)


def test_a_child_has_no_file_that_a_pipeline_reads_and_no_eventfd_of_a_waiter(tmp_path: Path) -> None:
    body = """
    from penstock import Pipeline
    from penstock.pipeline import Source

    def descriptors():
        found = {}
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing
                found[number] = os.readlink("/proc/self/fd/" + number)
        return found

    path = PATH
    with open(path, "wb") as asset:
        asset.truncate(1_000_000)
    before = descriptors()
    waker = penstock._native._LoopWaker()
    watch = ticket._notify(waker, 7)
    pieces = iter(Pipeline(Source.file(path, piece_bytes=1000)))
    next(pieces)
    more = [target for number, target in descriptors().items() if number not in before]
    assert path in more and sum("eventfd" in target for target in more) > 1, more
    pid = os.fork()
    if pid == 0:
        left = {number: target for number, target in descriptors().items() if number not in before}
        os.write(2, b" ".join(map(os.fsencode, left.values())))
        end_child(not left)
    assert child_is_well(pid)
    assert sum(len(piece) for piece in pieces) == 999_000
    got = read_in_thread(reader)
    os.close(writer)
    ticket.wait(20)
    assert got() == frame and waker.take() == [7]
    """
    run("import contextlib\n" + textwrap.dedent(body).replace("PATH", repr(str(tmp_path / "asset"))))


def test_inherited_event_loop_awaits_in_child_and_parent() -> None:
    body = """
    import asyncio

    async def wrote():
        own_reader, own_writer = os.pipe()
        got = read_in_thread(own_reader)
        ticket = penstock._native._pipe(frame, own_writer)
        os.close(own_writer)
        await asyncio.wait_for(ticket, 20)
        return got() == frame

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(wrote())
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        end_child(loop.run_until_complete(wrote()))
    assert child_is_well(pid)
    assert loop.run_until_complete(wrote())
    loop.close()
    got = read_in_thread(reader)
    os.close(writer)
    assert got() == frame
    """
    run(body)


def test_forks_during_other_work_lose_nothing() -> None:
    body = """
    got = read_in_thread(reader)
    stop = threading.Event()
    def churn():
        while not stop.is_set():
            r, w = os.pipe()
            with penstock.Writer(w) as own:
                own.submit(bytes(50_000))
            os.close(r)
            os.close(w)
    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round in range(30):
        pid = os.fork()
        if pid == 0:
            r, w = os.pipe()
            penstock._native._pipe(b"alive", w).wait(20)
            end_child(os.read(r, 10) == b"alive")
        assert child_is_well(pid), round
    stop.set()
    for thread in threads:
        thread.join()
    os.close(writer)
    assert got() == frame
    """
    # The writers above close while their reader has read nothing: 50,000 bytes fit into the pipe.
    run(body)


def test_a_multiprocessing_child_delivers_what_it_wrote() -> None:
    """Its end runs none of Python's exit functions."""
    body = """
    import multiprocessing
    got = read_in_thread(reader)
    penstock._native._sync(timeout=20)
    write = lambda: penstock._native._pipe(bytes(8 << 20), writer) and None
    child = multiprocessing.get_context("fork").Process(target=write)
    child.start()
    child.join()
    os.close(writer)
    assert child.exitcode == 0
    assert len(got()) == len(frame) + (8 << 20)
    """
    run(body)


def test_child_reports_nothing_of_its_parents_pipeline_at_exit() -> None:
    body = """
    from penstock import Pipeline
    from penstock.pipeline import Sink

    child_has_ended = threading.Event()

    def source():
        yield b"x"
        child_has_ended.wait(20)

    got = read_in_thread(reader)
    with Pipeline(source(), sink=Sink.fd(writer)) as pipeline:
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert child_is_well(pid)
        child_has_ended.set()
        pipeline.wait()
    os.close(writer)
    assert got() == frame + b"x"
    """
    run(body)


def test_a_child_that_lives_on_does_not_keep_ffmpeg_waiting(tmp_path: Path) -> None:
    body = f"""
    import multiprocessing

    got = read_in_thread(reader)
    os.close(writer)
    context = multiprocessing.get_context("fork")
    with penstock.Encoder({str(tmp_path / "video.mkv")!r}, size=(64, 48), fps=30) as encoder:
        encoder.write(bytes(encoder.frame_bytes))
        child = context.Process(target=time.sleep, args=(60,))
        child.start()
        encoder.write(bytes(encoder.frame_bytes))
        assert encoder.close(timeout=30).frames_encoded == 2
        child.kill()
    assert got() == frame
    """
    run(body)


# Threads of the parent come to the interpreter, and leave it, at every moment of a fork.
FORKS_BESIDE_PYTHON = """
from penstock import Pipeline

def work():
    with Pipeline(iter([b"x" * 1000] * 5), lambda chunk: None) as pipeline:
        assert len(list(pipeline)) == 5

stop = threading.Event()
hung = []

def work_on():
    while not stop.is_set():
        work()

def fork():
    for _ in range(int(sys.argv[1]) // 2):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            work()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            hung.append(status)

forkers = [threading.Thread(target=fork) for _ in range(2)]
workers = [threading.Thread(target=work_on) for _ in range(3)]
for thread in forkers + workers:
    thread.start()
for thread in forkers:
    thread.join()
stop.set()
for thread in workers:
    thread.join()
assert not hung, hung
"""


@pytest.mark.exhaustive
def test_no_child_hangs_beside_the_first_uses_of_everything() -> None:
    for _ in range(60):
        succeeded(run_script(FORKS_BESIDE_PYTHON, 20))


@pytest.mark.parametrize("forks", [100, pytest.param(3000, marks=pytest.mark.exhaustive)])
def test_no_child_hangs_beside_pipelines_that_run_python(forks: int) -> None:
    succeeded(run_script(FORKS_BESIDE_PYTHON, forks))
