"""Python's streams as what Penstock reads and writes: their read-ahead is not skipped, and no wrapper is bypassed."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import socket
import ssl
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.streams import from_process, from_socket, noise, unread_bytes

import penstock
from penstock import Pipeline, Reader, Tee, Writer, _native
from penstock.pipeline import Sink, Source

LINE = b"frames follow\n"
FRAME_BYTES = 1000
FRAMES = noise(100 * FRAME_BYTES)


def frames_of(src: Any) -> bytes:
    """What a reader gives."""
    with Reader(src, frame_bytes=FRAME_BYTES) as reader:
        return b"".join(bytes(frame) for frame in reader)


def into_reused_buffer(src: Any) -> bytes:
    """The same through one buffer."""
    got, buffer = bytearray(), bytearray(FRAME_BYTES)
    with Reader(src, frame_bytes=FRAME_BYTES, queue_items=1) as reader:
        while nbytes := reader.readinto(buffer):
            got += buffer[:nbytes]
    return bytes(got)


def pieces_of(src: Any) -> bytes:
    """What a pipeline gives."""
    with Pipeline(Source.fd(src, 777)) as pipeline:
        return b"".join(bytes(chunk) for chunk in pipeline)


every_reader = pytest.mark.parametrize("read", [frames_of, into_reused_buffer, pieces_of])


@contextlib.contextmanager
def from_file(data: bytes) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_bytes(data)
        with (Path(folder) / "file").open("rb") as src:
            yield src


@contextlib.contextmanager
def from_temporary_file(data: bytes) -> Iterator[Any]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


@contextlib.contextmanager
def unbuffered(data: bytes) -> Iterator[Any]:
    with from_file(data) as src, open(src.fileno(), "rb", buffering=0, closefd=False) as raw:
        yield io.BufferedReader(raw, 1)


Open = Callable[[bytes], contextlib.AbstractContextManager[Any]]


@every_reader
@pytest.mark.parametrize("make", [from_process, from_socket, from_file, from_temporary_file, unbuffered])
class TestReadAhead:
    """A program that reads a header from a stream finds the frames behind it whole."""

    def test_reading_starts_at_the_first_byte_that_the_program_has_not_read(
        self, make: Open, read: Callable[[Any], bytes]
    ) -> None:
        with make(LINE + FRAMES) as src:
            assert src.readline() == LINE
            assert read(src) == FRAMES
            assert src.read() == b"", "they are not there twice"


def test_the_newest_frame_counts_what_was_read_ahead() -> None:
    source, feed = os.pipe()
    with os.fdopen(source, "rb") as src, os.fdopen(feed, "wb", buffering=0) as fed:
        fed.write(LINE + FRAMES[: 3 * FRAME_BYTES])
        assert src.readline() == LINE
        with Reader(src, frame_bytes=FRAME_BYTES, queue_items=1) as reader:
            fed.write(FRAMES[3 * FRAME_BYTES : 4 * FRAME_BYTES])
            fed.close()
            latest = reader.latest()
            assert latest is not None
            assert bytes(latest) == FRAMES[3 * FRAME_BYTES : 4 * FRAME_BYTES]


@pytest.mark.linux("/proc")
def test_file_of_unknown_size_is_read() -> None:
    """Files in /proc cannot be set to their end."""
    with Path("/proc/cpuinfo").open("rb") as src:
        head = src.read(10)
        got = pieces_of(src)
    assert (head + got).startswith(Path("/proc/cpuinfo").read_bytes()[:64])


@every_reader
def test_refused_call_reads_nothing(read: Callable[[Any], bytes]) -> None:
    source, feed = os.pipe()
    with Path(__file__).open("rb") as src, os.fdopen(source, "rb") as pipe:
        src.read(10)
        os.write(feed, LINE + FRAMES[:FRAME_BYTES])
        os.close(feed)
        assert pipe.readline() == LINE
        for one in (src, pipe):
            with pytest.raises(ValueError):
                Reader(one, frame_bytes=0)
            with pytest.raises(ValueError):
                Pipeline(Source.fd(one), on_error="ignore")  # type: ignore[arg-type]
        assert (src.tell(), read(pipe)) == (10, FRAMES[:FRAME_BYTES])


def wrapped_sources(path: Path) -> dict[str, Callable[[], Any]]:
    for suffix, module in (("gz", gzip), ("bz2", bz2), ("xz", lzma)):
        (path / f"a.{suffix}").write_bytes(module.compress(FRAMES))
    (path / "a.txt").write_bytes(b"text")
    with zipfile.ZipFile(path / "a.zip", "w") as archive:
        archive.write(path / "a.txt", "member")
    with tarfile.open(path / "a.tar", "w") as tar:
        tar.add(path / "a.txt", "member")
    return {
        "gzip": lambda: gzip.open(path / "a.gz"),
        "buffered gzip": lambda: io.BufferedReader(gzip.open(path / "a.gz")),  # type: ignore[arg-type]
        "bz2": lambda: bz2.open(path / "a.bz2"),
        "lzma": lambda: lzma.open(path / "a.xz"),
        "text": lambda: (path / "a.txt").open(encoding="utf-8"),
        "codecs": lambda: codecs.open(str(path / "a.txt"), "r", "latin-1"),
        "zip": lambda: zipfile.ZipFile(path / "a.zip").open("member"),
        "tar": lambda: tarfile.open(path / "a.tar").extractfile("member"),
        "memory": lambda: io.BytesIO(FRAMES),
    }


SOURCES = ["gzip", "buffered gzip", "bz2", "lzma", "text", "codecs", "zip", "tar", "memory"]


def relayed(src: Any) -> None:
    """Relays into a pipe, and fails unless nothing has come there."""
    reader, writer = os.pipe()
    try:
        penstock.relay(src, writer)
    finally:
        assert unread_bytes(reader) == 0
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(frames_of, id="Reader"),
        pytest.param(pieces_of, id="fd"),
        pytest.param(relayed, id="relay"),
        pytest.param(lambda src: Tee(src, start=False), id="Tee", marks=pytest.mark.linux("Tee")),
    ],
)
class TestSources:
    """What is read through a stream's descriptor must be what the stream's reader would get."""

    @pytest.mark.parametrize("kind", SOURCES)
    def test_no_wrapper_is_bypassed(self, tmp_path: Path, kind: str, read: Callable[[Any], Any]) -> None:
        remedy = r"pass \w+\.buffer" if kind == "text" else r"(fd|src) .*shutil\.copyfileobj"
        with wrapped_sources(tmp_path)[kind]() as src:
            with pytest.raises(TypeError, match=remedy):
                read(src)
            assert src.read() in (FRAMES, b"text", "text")

    def test_no_text_of_a_temporary_file_is_taken(self, read: Callable[[Any], Any]) -> None:
        with tempfile.NamedTemporaryFile("w+") as src, pytest.raises(TypeError):
            read(src)

    def test_no_encryption_is_bypassed(self, read: Callable[[Any], Any]) -> None:
        with encrypted() as (secure, _):
            with pytest.raises(TypeError):
                read(secure)
            with secure.makefile("rb") as stream, pytest.raises(TypeError):
                read(stream)


@contextlib.contextmanager
def encrypted() -> Iterator[tuple[ssl.SSLSocket, socket.socket]]:
    """A socket that encrypts, and its other end."""
    near, far = socket.socketpair()
    context = ssl.create_default_context()
    with far, context.wrap_socket(near, do_handshake_on_connect=False, server_hostname="far") as secure:
        yield secure, far


def wrapped_destinations(path: Path) -> dict[str, Callable[[], Any]]:
    return {
        "gzip": lambda: gzip.open(path, "wb"),
        "gzip text": lambda: gzip.open(path, "wt"),
        "buffered gzip": lambda: io.BufferedWriter(gzip.open(path, "wb")),  # type: ignore[arg-type]
        "bz2": lambda: bz2.open(path, "wb"),
        "lzma": lambda: lzma.open(path, "wb"),
        "codecs": lambda: codecs.open(str(path), "w", "utf-16"),
    }


DESTINATIONS = ["gzip", "gzip text", "buffered gzip", "bz2", "lzma", "codecs"]


def pipe_to(dst: Any) -> None:
    _native._pipe(FRAMES, dst)


def write_to(dst: Any) -> None:
    with Writer(dst) as writer:
        writer.submit(FRAMES)


def sink_to(dst: Any) -> None:
    Pipeline([FRAMES], sink=Sink.fd(dst)).wait()


def tee_to(dst: Any) -> None:
    Tee(os.open(__file__, os.O_RDONLY), dst).wait()


def relay_to(dst: Any) -> None:
    penstock.relay(os.open(__file__, os.O_RDONLY), dst)


@pytest.mark.parametrize(
    "write", [pipe_to, write_to, sink_to, pytest.param(tee_to, marks=pytest.mark.linux("Tee")), relay_to]
)
class TestDestinations:
    """What is written through a stream's descriptor must be what the stream's reader finds."""

    @pytest.mark.parametrize("kind", DESTINATIONS)
    def test_no_wrapper_is_bypassed(self, tmp_path: Path, kind: str, write: Callable[[Any], None]) -> None:
        with wrapped_destinations(tmp_path / "out")[kind]() as dst:
            with pytest.raises(TypeError):
                write(dst)
            dst.write("plain" if kind in ("gzip text", "codecs") else b"plain")
        modules: dict[str, Any] = {"gzip": gzip, "bz2": bz2, "lzma": lzma}
        module = modules.get(kind.removeprefix("buffered ").removesuffix(" text"))
        got = (tmp_path / "out").read_bytes()
        assert (module.decompress(got) if module else got.decode("utf-16").encode()) == b"plain"

    def test_no_encryption_is_bypassed(self, write: Callable[[Any], None]) -> None:
        with encrypted() as (secure, far):
            with pytest.raises(TypeError):
                write(secure)
            for mode in ("wb", "rwb"):
                with secure.makefile(mode) as stream, pytest.raises(TypeError):
                    write(stream)
            far.setblocking(False)
            with pytest.raises(BlockingIOError):
                far.recv(1)


@pytest.mark.parametrize("write", [pipe_to, write_to, sink_to])
@pytest.mark.parametrize("mode", ["wb", "w", "w+b"])
def test_bytes_held_back_by_a_stream_are_written_first(
    tmp_path: Path, mode: str, write: Callable[[Any], None]
) -> None:
    with (tmp_path / "out").open(mode) as dst:
        dst.write("head" if mode == "w" else b"head")
        write(dst)
        _native._sync()
        dst.write("tail" if mode == "w" else b"tail")
    assert (tmp_path / "out").read_bytes() == b"head" + FRAMES + b"tail"
