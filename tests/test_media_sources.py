"""What can be decoded besides paths and URLs: bytes, files that are open, descriptors."""

from __future__ import annotations

import gc
import gzip
import io
import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clips import clip
from conftest import run_script, succeeded
from media import nothing_is_left, open_fds  # noqa: F401

from penstock import Decoder, DecoderError
from penstock.media import AudioDecoder, prefetch, probe


def in_temporary_file(path: Path) -> Any:
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115
    file.write(path.read_bytes())
    file.flush()
    return file


def in_gzip(path: Path) -> Any:
    return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(path.read_bytes())))


GIVEN: dict[str, Callable[[Path], Any]] = {
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "every second byte": lambda path: np.repeat(np.fromfile(path, np.uint8), 2)[::2],
    "array": lambda path: np.fromfile(path, np.uint8),
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "file": lambda path: path.open("rb"),
    "unbuffered": lambda path: path.open("rb", buffering=0),
    "temporary": in_temporary_file,
    "gzip": in_gzip,
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("name", ["h264", "h264_mkv", "gif"])
def test_frames_and_facts_are_those_of_the_file(kind: str, name: str) -> None:
    given = GIVEN[kind](clip(name))
    if hasattr(given, "seek"):
        given.seek(7)
    with Decoder(clip(name)) as from_path, Decoder(given) as decoder:
        assert replace(decoder.media, path=from_path.media.path) == from_path.media
        expected = list(from_path)
        assert all(np.array_equal(*pair) for pair in zip(decoder, expected, strict=True))
        assert np.array_equal(decoder[-1], expected[-1])
    if hasattr(given, "seek"):
        assert given.tell() == 7
        given.close()


def test_a_descriptor_and_a_file_that_is_closed_meanwhile() -> None:
    with clip("h264").open("rb") as file:
        os.lseek(file.fileno(), 3, os.SEEK_SET)
        decoder = Decoder(file.fileno())
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 3
    with decoder:
        assert len(list(decoder)) == 30 and decoder[4].index == 4


def test_bytes_that_change_afterwards() -> None:
    data = bytearray(clip("h264").read_bytes())
    with Decoder(data) as decoder:
        data[:] = bytes(len(data))
        data.clear()  # nothing holds them
        assert len(list(decoder)) == 30


def test_sound_and_probe_and_prefetch() -> None:
    data = clip("audio_aac").read_bytes()
    with AudioDecoder(data) as alone, Decoder(io.BytesIO(data)) as decoder, decoder.audio() as sound:
        assert np.array_equal(alone.read_all(), sound.read_all())
    assert probe(data).audio == probe(clip("audio_aac")).audio
    assert [len(list(one)) for one in prefetch([clip("h264").read_bytes(), clip("vp9")])] == [30, 12]


def test_pickling_takes_the_bytes_along() -> None:
    with Decoder(clip("h264").read_bytes(), count=3) as decoder, pickle.loads(pickle.dumps(decoder)) as again:
        assert np.array_equal(again[2], decoder[2])
    with clip("h264").open("rb") as file, Decoder(file.fileno()) as decoder, pytest.raises(TypeError):
        pickle.dumps(decoder)


def test_the_child_of_a_fork_reads_them() -> None:
    code = """
    decoder = penstock.Decoder(open(sys.argv[1], "rb").read())
    first = decoder[5].sum()
    child = os.fork()
    if child == 0:
        os._exit(7 if decoder[5].sum() == first else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    decoder.close()
    """
    succeeded(run_script(code, clip("h264")))


def test_nothing_is_left_open() -> None:
    before = open_fds()
    for _ in range(3):
        with Decoder(clip("h264").read_bytes()) as decoder:
            assert decoder.read() is not None
        with pytest.raises(DecoderError, match="<bytes> is not a media file"):
            Decoder(b"no media")
    del decoder
    gc.collect()
    assert open_fds() == before


def test_a_file_whose_read_raises_or_gives_too_much() -> None:
    class Odd(io.BytesIO):
        raises: BaseException | None = None

        def read(self, size: int | None = -1, /) -> bytes:
            if self.raises is not None:
                raise self.raises
            return super().read(-1)

    file = Odd(clip("h264").read_bytes())
    with Decoder(file) as decoder:
        assert len(list(decoder)) == 30
    file.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        Decoder(file)


class NoSeek(io.BytesIO):
    def seekable(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (io.StringIO("x"), TypeError, "open it in binary mode"),
        (NoSeek(b"x"), ValueError, "cannot seek: read it, and pass the bytes"),
        (3.5, TypeError, "got float"),
        (None, TypeError, "got NoneType"),
        (["a.mp4"], TypeError, "got list: use a Decoder .or probe. for each file"),
        (b"", DecoderError, "<bytes> is empty"),
        (10**6, OSError, "Bad file descriptor"),
    ],
    ids=["text", "no seek", "float", "None", "list", "empty", "no descriptor"],
)
def test_what_is_no_source(given: Any, error: type[Exception], words: str) -> None:
    for call in (Decoder, AudioDecoder, probe):
        with pytest.raises(error, match=words):
            call(given)


def test_a_pipe_is_refused() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(ValueError, match="no regular file"):
            Decoder(reader)
    finally:
        os.close(reader)
        os.close(writer)
