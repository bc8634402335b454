"""`Writer.write` takes the bytes and gathers small ones, and what writes to a binary file writes to a `Writer`."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.cases import MODES, eventually
from support.processes import run_script, succeeded
from support.streams import ReaderThread, noise, read_exactly

from penstock import BrokenStreamError, ClosedError, StalledError, Writer

ARRAY = np.arange(300_000, dtype=np.uint16).reshape(300, 1000)
PICTURE = np.frombuffer(noise(120 * 160 * 3), np.uint8).reshape(120, 160, 3)
ROWS = [["name", "frames"], ["a, b", "1"], ["ü", "2"]]
FILLS = 3 << 20
"""More bytes than a pipe holds."""


def by_text(write: Callable[[io.TextIOWrapper], object]) -> Callable[[Any], None]:
    def to(file: Any) -> None:
        with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            write(text)

    return to


def to_zip(file: Any) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("large.bin"), noise(100_000))
        archive.writestr(zipfile.ZipInfo("small.txt"), "small")


def to_tar(file: Any) -> None:
    with tarfile.open(fileobj=file, mode="w|") as archive:
        for name, data in (("large.bin", noise(100_000)), ("small.txt", b"small")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def to_gzip(file: Any) -> None:
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
        packed.write(noise(100_000))


WRITERS: dict[str, Callable[[Any], object]] = {
    "numpy.save": lambda file: np.save(file, ARRAY),
    "numpy.savez": lambda file: np.savez(file, array=ARRAY),
    "numpy.savetxt": lambda file: np.savetxt(file, ARRAY[:3, :20], "%d"),
    "pickle.dump": lambda file: pickle.dump([ARRAY, {"a": 1}, noise(200_000)], file),
    "json.dump": by_text(lambda text: json.dump({"rows": ROWS, "many": list(range(5000))}, text)),
    "csv": by_text(lambda text: csv.writer(text).writerows(ROWS * 1000)),
    "print": by_text(lambda text: print("one", "two", file=text)),
    "PIL, PNG": lambda file: Image.fromarray(PICTURE).save(file, "PNG"),
    "PIL, JPEG": lambda file: Image.fromarray(PICTURE).save(file, "JPEG"),
    "zipfile": to_zip,
    "tarfile": to_tar,
    "gzip": to_gzip,
    "shutil.copyfileobj": lambda file: shutil.copyfileobj(io.BytesIO(noise(1_000_000)), file),
}


class Stream(io.RawIOBase):
    """Keeps what is written, as a stream without positions: some write another form into a file that can seek."""

    def __init__(self) -> None:
        self.got = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.got += memoryview(data).tobytes()
        return memoryview(data).nbytes


def expected(write: Callable[[Any], object]) -> bytes:
    stream = Stream()
    write(stream)
    return stream.got


@pytest.mark.parametrize("name", WRITERS)
def test_libraries_that_write_to_files_can_write_to_a_writer_on_a_pipe(
    name: str, pair: tuple[int, int]
) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    stream = Writer(writer)
    os.close(writer)
    WRITERS[name](stream)
    stream.close()
    assert result.result() == expected(WRITERS[name])


@pytest.mark.parametrize("name", ["numpy.save", "zipfile"])
def test_libraries_that_write_to_files_can_write_to_a_writer_on_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "written"
    with path.open("wb") as file, Writer(file) as stream:
        WRITERS[name](stream)
    assert path.read_bytes() == expected(WRITERS[name])


def test_writer_has_the_interface_of_a_file_and_no_descriptor(pair: tuple[int, int]) -> None:
    with Writer(pair[1]) as stream:
        assert (stream.readable(), stream.writable(), stream.seekable(), stream.isatty()) == (
            False,
            True,
            False,
            False,
        )
        with pytest.raises(io.UnsupportedOperation):
            stream.tell()
        with pytest.raises(io.UnsupportedOperation):
            stream.read(1)
        assert not hasattr(stream, "fileno")
        assert stream.write(np.zeros((3, 4), np.float32)) == 48
        assert stream.write(b"") == 0
    assert read_exactly(pair[0], 48) == bytes(48)
    with pytest.raises(ClosedError):
        stream.write(b"late")


@pytest.mark.parametrize("mode", MODES)
def test_the_bytes_are_taken_when_write_returns(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    with Writer(writer, mode=mode) as stream:
        os.close(writer)
        sent = b""
        stream.submit(bytes(FILLS))  # keeps the thread busy
        for size in (1, 20, 16 << 10, 20_000, 2_000_000):
            frame = bytearray(noise(size))
            sent += frame
            assert stream.write(frame) == size
            frame[:] = b"\xee" * size
            frame.append(0)  # nobody holds it
        result = ReaderThread(reader)
    assert result.result() == bytes(FILLS) + sent


def test_small_writes_are_gathered_while_the_thread_is_busy(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with Writer(writer) as stream:
        os.close(writer)
        stream.submit(bytes(FILLS))
        for number in range(1000):
            stream.write(b"%20d" % number)
        stream.submit(b"between")
        for number in range(1000):
            stream.write(b"%20d" % number)
        assert stream.stats.items_accepted == 4
        assert stream.stats.bytes_accepted == FILLS + 40_007
        result = ReaderThread(reader)
    numbers = b"".join(b"%20d" % number for number in range(1000))
    assert result.result() == bytes(FILLS) + numbers + b"between" + numbers


def test_no_small_write_waits_for_a_flush(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with Writer(writer) as stream:
        for number in range(3):
            stream.write(b"%d" % number)
            assert read_exactly(reader, 1) == b"%d" % number


def test_gathered_bytes_are_lost_and_reported_with_their_stream(pair: tuple[int, int]) -> None:
    reader, writer = pair
    stream = Writer(writer, mode="write")
    os.close(writer)
    stream.submit(bytes(FILLS))
    for _ in range(100):
        stream.write(b"x" * 20)
    os.close(reader)
    with pytest.raises(BrokenStreamError) as caught:
        stream.flush()
    assert (caught.value.bytes_delivered, caught.value.bytes_lost) == (0, FILLS + 2000)
    with pytest.raises(BrokenStreamError):
        stream.write(b"next")
    with pytest.raises(BrokenStreamError):
        stream.close()


def test_abort_discards_gathered_bytes(pair: tuple[int, int]) -> None:
    stream = Writer(pair[1])
    stream.submit(bytes(FILLS))
    for _ in range(100):
        stream.write(b"x" * 20)
    stream.abort()
    assert eventually(lambda: stream.stats.items_pending == 0), "the write in progress is cut short"
    assert stream.stats.bytes_pending == 0


def test_a_write_that_finds_no_room_takes_nothing(pair: tuple[int, int]) -> None:
    reader, writer = pair
    stream = Writer(writer, queue_items=1)
    os.close(writer)
    stream.submit(bytes(FILLS))
    for size in (20, 100_000):
        with pytest.raises(StalledError):
            stream.write(bytes(size), timeout=0.01)
    result = ReaderThread(reader)
    stream.close()
    assert len(result.result()) == FILLS


def test_program_exit_delivers_gathered_bytes() -> None:
    code = f"""
    writer = penstock.Writer(1)
    writer.write(bytes({FILLS}))
    for number in range(1000):
        writer.write(b"%20d" % number)
    """
    written = succeeded(run_script(code))
    assert written[FILLS:] == b"".join(b"%20d" % number for number in range(1000))


@pytest.mark.linux("forks")
def test_forked_child_neither_writes_nor_loses_bytes_gathered_by_its_parent(pair: tuple[int, int]) -> None:
    code = """
    reader, end = os.pipe()
    writer = penstock.Writer(end)
    os.close(end)
    writer.write(bytes(3 << 20))
    for _ in range(100):
        writer.write(b"x" * 20)
    if os.fork() == 0:
        try:
            writer.write(b"child")
        except penstock.ClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    threading.Thread(target=writer.close).start()
    got = 0
    while piece := os.read(reader, 1 << 20):
        got += len(piece)
    print(got)
    """
    assert succeeded(run_script(code)).decode().strip() == str((3 << 20) + 2000)


def test_the_writes_of_threads_stay_whole_and_each_threads_in_order(pair: tuple[int, int]) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    with Writer(writer) as stream, ThreadPoolExecutor(4) as threads:
        os.close(writer)

        def write(own: int) -> None:
            for number in range(500):
                stream.write(b"%d%19d" % (own, number))

        list(threads.map(write, range(4)))
    got = result.result()
    records = [got[at : at + 20] for at in range(0, len(got), 20)]
    for own in range(4):
        assert [int(record[1:]) for record in records if record[:1] == b"%d" % own] == list(range(500))


@pytest.mark.linux("/proc")
def test_memory_shortage_for_the_copy_takes_nothing_and_the_stream_continues() -> None:
    body = """
    import resource
    reader, end = os.pipe()
    writer, data = penstock.Writer(end), bytes(300 << 20)
    with open("/proc/self/statm") as sizes:
        size_bytes = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes + (100 << 20), -1))
    try:
        writer.write(data)
    except MemoryError:
        assert writer.write(b"more") == 4
    writer.close()
    assert os.read(reader, 100) == b"more"
    """
    succeeded(run_script(textwrap.dedent(body)))
