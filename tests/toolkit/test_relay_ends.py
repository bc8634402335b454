"""However a relay ends: each byte is delivered, still in its source, or told as lost, and the exception counts them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.streams import noise, read_exactly, unread_bytes

import penstock
from penstock import ClosedError, StalledError
from penstock._platform import descriptors

SIZE = 500_000
DATA = noise(SIZE)


class Interrupted(KeyboardInterrupt):
    """What a signal's handler raises here."""


class Alarm:
    """A signal whose handler raises, some time after the block has begun; perhaps before it has."""

    def __init__(self, after_s: float, raised: BaseException) -> None:
        self.after_s, self.raised = after_s, raised

    def __enter__(self) -> None:
        self.previous = signal.signal(signal.SIGALRM, self.ring)
        signal.setitimer(signal.ITIMER_REAL, self.after_s)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.previous)

    def ring(self, _number: int, _frame: Any) -> None:
        signal.signal(signal.SIGALRM, self.previous)
        raise self.raised


def by_timeout(src: int, dst: int, method: Any) -> BaseException:
    with pytest.raises(StalledError) as ended:
        penstock.relay(src, dst, timeout=0.05, method=method)
    return ended.value


def by_signal(src: int, dst: int, method: Any) -> BaseException:
    with pytest.raises(Interrupted) as ended, Alarm(0.1, Interrupted()):
        penstock.relay(src, dst, method=method)
    return ended.value


def by_cancel(src: int, dst: int, method: Any) -> BaseException:
    ticket = penstock.pipes.start_relay(src, dst, method=method)
    with pytest.raises(StalledError):
        ticket.wait(0.1)
    ticket.cancel()
    with pytest.raises(ClosedError) as ended:
        ticket.wait()
    return ended.value


def by_timeout_of_a_ticket(src: int, dst: int, method: Any) -> BaseException:
    with pytest.raises(StalledError) as ended:
        penstock.pipes.start_relay(src, dst, timeout=0.05, method=method).wait()
    return ended.value


def by_asyncio(src: int, dst: int, method: Any) -> BaseException:
    async def main() -> BaseException:
        ticket = penstock.pipes.start_relay(src, dst, method=method)
        with pytest.raises(TimeoutError) as late:
            async with asyncio.timeout(0.1):
                await ticket
        assert ticket.done()
        assert late.value.__cause__ is not None
        return late.value.__cause__

    return asyncio.run(main())


def full_pipe() -> tuple[int, int]:
    """With room for 100,000 bytes, whose reader does nothing."""
    reader, writer = os.pipe()
    descriptors.grow_pipe(writer, 1 << 20)
    os.write(writer, bytes((1 << 20) - 100_000))
    return reader, writer


def small_socket() -> tuple[int, int]:
    """To which nothing is spliced, so that ``auto`` reads and writes."""
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return far.detach(), near.detach()


def drained(fd: int) -> bytes:
    """What can be read now."""
    os.set_blocking(fd, False)
    got = bytearray()
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(fd, 1 << 20):
            got += piece
    return bytes(got)


@pytest.mark.linux("what a pipe holds that was not read")
@pytest.mark.parametrize("end", [by_timeout, by_signal, by_cancel, by_timeout_of_a_ticket, by_asyncio])
@pytest.mark.parametrize(
    ("sink", "method"), [(full_pipe, "read-write"), (small_socket, "auto"), (small_socket, "read-write")]
)
def test_interrupted_relay_loses_no_byte_of_a_pipe(
    end: Callable[[int, int, str], BaseException], sink: Callable[[], tuple[int, int]], method: str
) -> None:
    src, feed = os.pipe()
    descriptors.grow_pipe(feed, 1 << 20)
    os.write(feed, DATA)
    far, dst = sink()
    before = unread_bytes(far)
    ended: Any = end(src, dst, method)
    got, rest = drained(far)[before:], drained(src)
    assert 0 < ended.bytes_delivered == len(got) < SIZE
    assert got + DATA[len(got) : len(got) + ended.bytes_lost] + rest == DATA
    assert ended.bytes_lost == 0, "no more is taken than there is room for"
    for fd in (src, feed, far, dst):
        os.close(fd)


@pytest.mark.linux("sockets as descriptors")
@pytest.mark.parametrize("end", [by_timeout, by_signal, by_cancel, by_timeout_of_a_ticket, by_asyncio])
def test_bytes_in_hand_are_reported_as_lost(end: Callable[[int, int, str], BaseException]) -> None:
    """A message is taken whole, though the pipe has room for a part of it only."""
    source, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with source, peer:
        peer.send(DATA[:150_000])
        far, dst = full_pipe()
        before = unread_bytes(far)
        ended: Any = end(source.fileno(), dst, "auto")
        got = drained(far)[before:]
        assert 0 < ended.bytes_delivered == len(got)
        assert ended.bytes_delivered + ended.bytes_lost == 150_000
        assert any("lost" in text for text in (str(ended), *getattr(ended, "__notes__", [])))
        os.close(far)
        os.close(dst)


class TestInterruptedAtAnyMoment:
    """A signal that comes in the last moment of a relay is handled after all bytes have been delivered."""

    @pytest.mark.linux("timers that send signals")
    def test_file_position_is_after_the_last_delivered_byte(self, tmp_path: Path) -> None:
        path, out = tmp_path / "source", tmp_path / "out"
        path.write_bytes(bytes(24 << 20))
        interrupted = 0
        for round_ in range(40):
            with path.open("rb") as src, out.open("wb", buffering=0) as dst:
                assert len(src.read(10)) == 10
                try:
                    with Alarm(0.0003 * (round_ + 1), Interrupted()):
                        penstock.relay(src, dst)
                except Interrupted as interruption:
                    if any(
                        frame.name == "relay" for frame in traceback.extract_tb(interruption.__traceback__)
                    ):
                        interrupted += 1
                        assert getattr(interruption, "bytes_delivered", 0) == out.stat().st_size
                assert src.tell() == 10 + out.stat().st_size
        assert interrupted

    @pytest.mark.linux("timers that send signals")
    def test_interrupted_relay_counts_bytes_read_ahead_exactly(self) -> None:
        interrupted = 0
        for round_ in range(60):
            source, feed = os.pipe()
            reader, dst = os.pipe()
            for writer in (feed, dst):
                descriptors.grow_pipe(writer, 1 << 20)
            os.write(feed, DATA)
            os.close(feed)
            with os.fdopen(source, "rb", buffering=300_000) as src:
                assert src.read(10) == DATA[:10]
                try:
                    with Alarm(0.00001 * (round_ + 1), Interrupted()):
                        penstock.relay(src, dst, method="read-write")
                except Interrupted as interruption:
                    if any(
                        frame.name == "relay" for frame in traceback.extract_tb(interruption.__traceback__)
                    ):
                        interrupted += 1
                        assert getattr(interruption, "bytes_delivered", 0) == unread_bytes(reader)
                        assert getattr(interruption, "bytes_lost", 0) == 0
                got = drained(reader)
                assert got + src.read() == DATA[10:]
            os.close(reader)
            os.close(dst)
        assert interrupted

    @pytest.mark.linux("timers that send signals")
    def test_exception_without_settable_attributes_is_raised_unchanged(self, pair: tuple[int, int]) -> None:
        class Frozen(Exception):
            def __setattr__(self, name: str, value: object) -> None:
                if name.startswith("bytes"):
                    raise dataclasses.FrozenInstanceError(name)
                super().__setattr__(name, value)

        reader, writer = os.pipe()
        os.write(writer, b"12345")
        with pytest.raises(Frozen) as frozen, Alarm(0.05, Frozen()):
            penstock.relay(reader, pair[1])
        assert frozen.value.bytes_delivered == 5  # type: ignore[attr-defined]
        os.close(reader)
        os.close(writer)

    def test_the_exception_keeps_no_descriptor(self, pair: tuple[int, int]) -> None:
        reader, writer = os.pipe()
        with pytest.raises(StalledError) as stalled:
            penstock.relay(pair[0], writer, timeout=0.01)
        os.close(writer)
        assert os.read(reader, 1) == b"", stalled.value
        os.close(reader)


@pytest.mark.linux("sockets as descriptors")
def test_bytes_still_in_a_buffer_are_not_reported_as_lost() -> None:
    """It is the stream's, although the relay had it in hand."""
    source, feed = os.pipe()
    far, near = small_socket()
    with os.fdopen(source, "rb", buffering=1 << 16) as src:
        os.write(feed, DATA[:60_000])
        assert src.read(1) == DATA[:1]
        ended: Any = by_timeout(src, near, "auto")  # type: ignore[arg-type]
        got = read_exactly(far, ended.bytes_delivered)
        assert 0 < len(got) < 59_999
        assert ended.bytes_lost == 0
        assert got + src.read(59_999 - len(got)) == DATA[1:60_000]
    for fd in (feed, far, near):
        os.close(fd)
