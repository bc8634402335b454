"""The logger ``penstock``: fallbacks, stalls and losses, once each, and nothing on stderr unless the program asks."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cases import eventually
from support.clips import clip
from support.engines import by_program
from support.media import make
from support.processes import run_script, succeeded
from support.streams import ReaderThread, noise

import penstock
from penstock import Tee
from penstock.video import EncoderSettings

DATA = noise(300_000)
ROOM_BYTES = 1 << 30
"""More than a pipe gets."""


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    assert {record.name for record in caplog.records} <= {"penstock"}
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@contextlib.contextmanager
def all_staging_memory() -> Iterator[None]:
    """Writers that have it, and wait for readers."""
    with contextlib.ExitStack() as stack:
        ends = [penstock.pipes.make_pipe() for _ in range(4)]
        streams = [penstock.Writer(end, mode="staged") for _, end in ends]
        for (reader, end), stream in zip(ends, streams, strict=True):
            stack.enter_context(reader), stack.enter_context(end)
            stack.callback(stream.abort)
            stream.submit(bytes(4 << 20))
        assert eventually(lambda: all(stream.stats.transport for stream in streams))
        yield


@pytest.mark.linux("modes that map or give away pages")
def test_transport_fallback_is_logged(pair: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    with all_staging_memory(), penstock.Writer(writer, mode="staged") as stream:
        stream.submit(DATA)
        stream.close()
    os.close(writer)
    assert result.result() == DATA
    if stream.stats.reason == "the system gives no transparent huge pages":
        pytest.skip(stream.stats.reason)
    words = (
        "a writer fell back to the transport write: other streams have all of the process's staging memory"
    )
    assert logged(caplog) == [("INFO", words)]


@pytest.mark.linux("the size of a pipe")
def test_pipe_smaller_than_requested_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = penstock.pipes.make_pipe(ROOM_BYTES)
    with reader, writer:
        granted = writer.capacity_bytes
        if granted >= ROOM_BYTES:
            pytest.skip("the system gives a pipe of a gigabyte")
        words = f"make_pipe asked for a pipe of {ROOM_BYTES} bytes, but got {granted}"
        assert logged(caplog) == [("INFO", words)]


@pytest.mark.parametrize("starts", [False, True])
def test_relay_fallback_is_logged(
    starts: bool, pair: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Linux does not splice from an eventfd."""
    source = os.eventfd(1)
    relayed = (
        penstock.pipes.start_relay(source, pair[1], 8).wait(10)
        if starts
        else penstock.relay(source, pair[1], 8, timeout=10)
    )
    os.close(source)
    words = f"a relay fell back to the method read-write: {relayed.reason}"
    assert "Invalid argument" in words
    assert logged(caplog) == [("INFO", words)]


def test_relay_stall_is_logged(pair: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    with open("/dev/null", "wb") as null:  # noqa: PTH123
        ticket = penstock.pipes.start_relay(pair[0], null, timeout=0.05)
        for _ in range(2):
            with pytest.raises(penstock.StalledError):
                ticket.wait(10)
    [(level, words)] = logged(caplog)
    assert level == "WARNING"
    assert words.startswith("a relay stalled: ")


def send(feed: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(feed, bytes(4 << 20))


@pytest.mark.linux("Tee")
def test_eviction_is_logged(pair: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    source, feed = os.pipe()
    sending = threading.Thread(target=send, args=(feed,))
    sending.start()
    tee = penstock.Tee(source, pair[1], when_full="evict", stall_timeout=0.1)
    report = tee.wait(30)  # it ends with its last destination
    tee.wait()
    os.close(source)
    sending.join()
    os.close(feed)
    [output] = report.outputs
    bytes_ = f"{output.bytes_delivered} bytes were delivered, {output.bytes_lost} were lost"
    words = f"a tee evicted fd {pair[1]}, which took nothing for 0.1 s. {bytes_}"
    assert logged(caplog) == [("WARNING", words)]


async def leave_asynchronously(tee: Tee) -> None:
    async with tee:
        await asyncio.to_thread(lambda: eventually(tee.done))
        raise KeyError("mine")


def leave(tee: Tee) -> None:
    with tee:
        assert eventually(tee.done)
        raise KeyError("mine")


@pytest.mark.linux("Tee")
@pytest.mark.parametrize("leave", [leave, lambda tee: asyncio.run(leave_asynchronously(tee))])
def test_eviction_is_logged_if_the_block_raises(
    pair: tuple[int, int], leave: Callable[[Tee], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # asyncio logs how it waits
    source, feed = os.pipe()
    sending = threading.Thread(target=send, args=(feed,))
    sending.start()
    with pytest.raises(KeyError):
        leave(Tee(source, pair[1], when_full="evict", stall_timeout=0.1))
    os.close(source)
    sending.join()
    os.close(feed)
    [(level, words)] = logged(caplog)
    assert level == "WARNING" and words.startswith(
        f"a tee evicted fd {pair[1]}, which took nothing for 0.1 s"
    )


def test_encoder_stall_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = make(tmp_path / "video.mp4")
    os.kill(encoder.pid, signal.SIGSTOP)
    with pytest.raises(penstock.StalledError):
        encoder.close(timeout=0)  # a question, and no stall
    with pytest.raises(penstock.StalledError) as caught:
        encoder.close(timeout=0.05)
    encoder.abort()
    assert logged(caplog) == [("WARNING", f"{encoder!r} stalled: {caught.value}")]


def test_awrite_stall_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def write() -> str:
        with pytest.raises(penstock.StalledError) as caught:
            while True:
                await encoder.awrite(bytes(encoder.frame_bytes), timeout=0.05)
        return str(caught.value)

    encoder = make(tmp_path / "video.mp4", settings=EncoderSettings(queue_items=1))
    os.kill(encoder.pid, signal.SIGSTOP)
    caplog.set_level(logging.INFO)  # asyncio logs, too
    words = asyncio.run(write())
    encoder.abort()
    assert logged(caplog) == [("WARNING", f"{encoder!r} stalled: {words}")]


def test_decoder_stall_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with penstock.Decoder(clip("long"), settings=by_program(stall_timeout=0.6)) as decoder:
        next(decoder)
        os.kill(decoder.pid, signal.SIGSTOP)
        with pytest.raises(penstock.StalledError) as caught:
            for _ in decoder:
                pass
    assert logged(caplog) == [("WARNING", f"{decoder!r} stalled: {caught.value}")]


def test_nothing_is_logged_when_all_goes_well(
    pair: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = pair
    with penstock.Writer(writer) as stream:
        stream.submit(b"frame")
    with penstock.Reader(reader, frame_bytes=5) as frames:
        assert bytes(next(frames)) == b"frame"
    with open("/dev/null", "wb") as null:  # noqa: PTH123
        os.write(writer, b"frame")
        penstock.relay(reader, null, 5)
    assert logged(caplog) == []


@pytest.mark.linux("the size of a pipe")
def test_loss_at_exit_is_logged_and_reported() -> None:
    code = """
    import logging
    if len(sys.argv) > 1:
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
    reader, writer = os.pipe()
    stream = penstock.Writer(writer)
    stream.submit(bytes(40_000)).wait()
    os.close(reader)
    """
    lost = (
        b"40000 bytes were lost, because the reader went away or the destination failed. Call flush() or close() on "
        b"the stream to get this as an exception\n"
    )
    quiet, told = run_script(code), run_script(code, "log")
    assert quiet.stderr == told.stderr == b"penstock: " + lost
    assert (quiet.returncode, quiet.stdout) == (0, b"")
    assert (told.returncode, told.stdout) == (0, b"ERROR penstock " + lost)


# Python 3.12 (3.12.1 at least) starts no thread at exit, so FFmpeg isn't asked for its options: its own words remain.
CAN_ASK_AT_EXIT = sys.version_info[:2] != (3, 12)
LOSSES = {
    "fails": (
        "options={'nonsense': 1}, settings=unrehearsed",
        "neither FFmpeg nor libx264 has an option" if CAN_ASK_AT_EXIT else "'nonsense'",
    ),
    "is stuck": ("", "FFmpeg gave no sign of life"),
}


@pytest.mark.parametrize("why", ["fails", pytest.param("is stuck", marks=pytest.mark.slow)])
def test_frames_lost_by_an_unclosed_encoder_are_logged_and_reported(why: str, tmp_path: Path) -> None:
    options, cause = LOSSES[why]
    code = f"""
    import logging
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
    from penstock._ffmpeg.command.settings import with_overrides
    unrehearsed = with_overrides(penstock.video.EncoderSettings(), rehearse=False)
    encoder = penstock.Encoder(sys.argv[1], size=(64, 48), fps=30, {options})
    if {why == "is stuck"}:
        os.kill(encoder.pid, signal.SIGSTOP)
    """
    done = run_script(code, tmp_path / "video.mp4")
    assert done.returncode == 0
    for told, name in ((done.stdout, "ERROR penstock"), (done.stderr, "penstock:")):
        loss = f"{name} <Encoder {str(tmp_path / 'video.mp4')!r} 64x48 rgb24> couldn't be finished"
        assert cause in told.decode().partition(loss)[2]


@pytest.mark.linux("eventfd")
def test_an_interruption_in_a_handler_is_not_lost() -> None:
    """The Ctrl-C of a program that is about to log, say."""
    code = """
    import logging

    class Interrupting(logging.Filter):
        def filter(self, record):
            raise KeyboardInterrupt

    logger = logging.getLogger("penstock")
    logger.setLevel(logging.INFO)
    logger.addFilter(Interrupting())
    reader, writer = os.pipe()
    try:
        penstock.relay(os.eventfd(1), writer, 8)
    except KeyboardInterrupt as interruption:
        print(interruption.bytes_delivered, interruption.bytes_lost)
    """
    assert succeeded(run_script(code)) == b"8 0\n"


@pytest.mark.parametrize("way", ["close", "with", "fan-out"])
def test_a_warning_names_the_line_of_the_program(tmp_path: Path, way: str) -> None:
    encoder = penstock.Encoder(tmp_path / "a.mp4", size=(64, 48), fps=25, metadata={"camera": "x"})
    encoder.write(bytes(64 * 48 * 3))
    with pytest.warns(penstock.FFmpegWarning) as told:
        if way == "close":
            encoder.close()
        elif way == "with":
            with encoder:
                pass
        else:
            penstock.FanOut([encoder]).close()
    [warning] = told
    line = {
        "close": "encoder.close()",
        "with": "with encoder:",
        "fan-out": "penstock.FanOut([encoder]).close()",
    }[way]
    assert linecache.getline(warning.filename, warning.lineno).strip() == line
