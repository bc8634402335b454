"""Whatever goes in comes out: against a plain loop of ``os.write``."""

from __future__ import annotations

import os
import random
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
from support.cases import examples

import penstock

sizes = st.lists(
    st.one_of(
        st.sampled_from([0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20]),
        st.integers(0, 5000),
        st.integers(5000, 2_000_000),
    ),
    min_size=1,
    max_size=10,
)


def drain(reader: int, seed: int, into: bytearray) -> None:
    """Reads in pieces and with pauses of its own."""
    choose = random.Random(seed)
    while chunk := os.read(reader, choose.choice([1000, 65536, 300_000, 1 << 20])):
        into += chunk
        if choose.random() < 0.1:
            time.sleep(0.001)
    os.close(reader)


def plain(frames: list[bytes]) -> bytes:
    reader, writer = os.pipe()
    got = bytearray()
    thread = threading.Thread(target=drain, args=(reader, 0, got))
    thread.start()
    for frame in frames:
        view = memoryview(frame)
        while view:
            view = view[os.write(writer, view) :]
    os.close(writer)
    thread.join()
    return bytes(got)


@examples(60)
@given(
    sizes=sizes,
    seed=st.integers(0, 2**32),
    modes=st.lists(st.sampled_from(["auto", "write", "staged", "zero-copy"]), min_size=1, max_size=3),
    known=st.booleans(),
    capacity_bytes=st.sampled_from([4096, 65536, 1 << 20]),
    by_number=st.booleans(),
)
def test_buffers_that_are_overwritten_as_soon_as_they_may_arrive_whole(
    sizes: list[int], seed: int, modes: list[str], known: bool, capacity_bytes: int, by_number: bool
) -> None:
    frames = [random.Random(seed + number).randbytes(size) for number, size in enumerate(sizes)]
    reader, writer = os.pipe()
    got = bytearray()
    thread = threading.Thread(target=drain, args=(reader, seed, got))
    thread.start()
    kind = "reads" if known else "unknown"
    owns = [penstock.Writer(writer, mode=mode, reader=kind, capacity_bytes=capacity_bytes) for mode in modes]
    in_flight: list[tuple[bytearray, penstock.results.Ticket]] = []
    for number, frame in enumerate(frames):
        area = bytearray(frame)
        if by_number:
            ticket = penstock.pipe(area, writer, mode=modes[number % len(modes)])
        else:
            ticket = owns[number % len(owns)].write(area)
        in_flight.append((area, ticket))
        if len(in_flight) > 2:
            overwrite(*in_flight.pop(0))
    for area, ticket in in_flight:
        overwrite(area, ticket)
    for own in owns:
        own.close()
    os.close(writer)
    thread.join()
    assert bytes(got) == plain(frames)


def overwrite(area: bytearray, ticket: penstock.results.Ticket) -> None:
    ticket.wait(60)
    area[:] = b"\xee" * len(area)
    area.clear()  # which an export that is still held would refuse
