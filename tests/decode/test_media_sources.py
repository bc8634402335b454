"""What can be decoded besides paths and URLs: bytes, files that are open, descriptors."""

from __future__ import annotations

import gc
import gzip
import io
import os
import pickle
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import PATIENCE_S
from support.clips import clip
from support.media import nothing_is_left as nothing_is_left
from support.processes import run_script, succeeded
from support.streams import CAT
from support.this_process import open_fds

from penstock import AudioDecoder, Decoder, DecoderError, probe
from penstock.video import find_ffmpeg, prefetch


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
def test_frames_and_facts_match_the_file(kind: str, name: str) -> None:
    given = GIVEN[kind](clip(name))
    if hasattr(given, "seek"):
        given.seek(7)
    with Decoder(clip(name)) as from_path, Decoder(given) as decoder:
        assert replace(decoder.file, path=from_path.file.path) == from_path.file
        expected = list(from_path)
        assert all(np.array_equal(*pair) for pair in zip(decoder, expected, strict=True))
        assert np.array_equal(decoder[-1], expected[-1])
    if hasattr(given, "seek"):
        assert given.tell() == 7
        given.close()


def test_decoder_reads_a_descriptor_after_its_file_is_closed() -> None:
    with clip("h264").open("rb") as file:
        os.lseek(file.fileno(), 3, os.SEEK_SET)
        decoder = Decoder(file.fileno())
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 3
    with decoder:
        assert len(list(decoder)) == 30 and decoder[4].index == 4


@pytest.mark.linux("files in /dev")
def test_dev_fd_path_means_a_descriptor_of_this_process() -> None:
    with clip("audio_aac").open("rb") as file:
        path = f"/dev/fd/{file.fileno()}"
        with Decoder(path) as decoder, Decoder(clip("audio_aac")) as expected, AudioDecoder(path) as sound:
            assert all(np.array_equal(*pair) for pair in zip(decoder, expected, strict=True))
            assert decoder.file.path == path
            assert len(sound.read_all())


def test_decoder_keeps_its_own_copy_of_bytes() -> None:
    data = bytearray(clip("h264").read_bytes())
    with Decoder(data) as decoder:
        data[:] = bytes(len(data))
        data.clear()  # nothing holds them
        assert len(list(decoder)) == 30


def test_audio_probe_and_prefetch_accept_bytes() -> None:
    data = clip("audio_aac").read_bytes()
    with AudioDecoder(data) as alone, Decoder(io.BytesIO(data)) as decoder, decoder.audio() as sound:
        assert np.array_equal(alone.read_all(), sound.read_all())
    assert probe(data).audio == probe(clip("audio_aac")).audio
    assert [len(list(one)) for one in prefetch([clip("h264").read_bytes(), clip("vp9")])] == [30, 12]


def test_pickle_includes_the_bytes() -> None:
    with Decoder(clip("h264").read_bytes(), count=3) as decoder, pickle.loads(pickle.dumps(decoder)) as again:
        assert np.array_equal(again[2], decoder[2])
    with clip("h264").open("rb") as file, Decoder(file.fileno()) as decoder, pytest.raises(TypeError):
        pickle.dumps(decoder)


@pytest.mark.linux("forks")
def test_forked_child_reads_frames_from_bytes() -> None:
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


def test_no_descriptor_is_left_open() -> None:
    before = open_fds()
    for _ in range(3):
        with Decoder(clip("h264").read_bytes()) as decoder:
            assert decoder.read() is not None
        with pytest.raises(DecoderError):
            Decoder(b"no media")
    del decoder
    gc.collect()
    assert open_fds() == before


def test_read_that_raises_or_returns_too_much_is_handled() -> None:
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
        (io.StringIO("x"), TypeError, "binary"),
        (NoSeek(b"x"), ValueError, "seek"),
        (3.5, TypeError, "float"),
        (None, TypeError, "NoneType"),
        (["a.mp4"], TypeError, "each file"),
        (b"", DecoderError, "empty"),
        (10**6, OSError, "descriptor|handle"),
    ],
    ids=["text", "no seek", "float", "None", "list", "empty", "no descriptor"],
)
def test_object_that_is_no_source_is_refused(given: Any, error: type[Exception], words: str) -> None:
    for call in (Decoder, AudioDecoder, probe):
        with pytest.raises(error, match=words):
            call(given)


def cat(path: Path, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    with path.open("rb") as file:
        return subprocess.Popen(CAT, stdin=file, stdout=stdout)


def through_popen(path: Path, _folder: Path) -> Any:
    return cat(path).stdout


def through_descriptor(path: Path, _folder: Path) -> Any:
    read, write = os.pipe()
    cat(path, write)
    os.close(write)
    return read


def through_fifo(path: Path, folder: Path) -> Any:
    os.mkfifo(fifo := folder / "fifo")
    subprocess.Popen(["sh", "-c", f"exec cat '{path}' > '{fifo}'"])
    return fifo


def through_socket(path: Path, _folder: Path) -> Any:
    ours, theirs = socket.socketpair()
    cat(path, theirs)
    theirs.close()
    return ours


SEQUENTIAL = [
    through_popen,
    through_descriptor,
    through_fifo,
    pytest.param(through_socket, marks=pytest.mark.linux("sockets as descriptors")),
]


@pytest.mark.parametrize("through", SEQUENTIAL)
@pytest.mark.parametrize("name", ["h264_mkv", "starts_late_ts"])
def test_stream_without_seeking_is_decoded_in_sequence(
    through: Callable[[Path, Path], Any], name: str, tmp_path: Path
) -> None:
    with Decoder(clip(name)) as file:
        places = [(frame.time_s, frame.tobytes()) for frame in file]
    first = max(number for number, (time_s, _) in enumerate(places) if time_s <= 0.31)
    part = places[first : first + 5]
    for options, expected in (({}, places), ({"start": 0.31, "count": 5}, part)):
        source = through(clip(name), tmp_path)
        with Decoder(source, **options) as decoder:
            assert [(frame.time_s, frame.tobytes()) for frame in decoder] == expected
            for by_number in (lambda: decoder[0], lambda: decoder.frame_at(0), lambda: decoder.batch([0])):
                with pytest.raises(ValueError, match="regular file"):
                    by_number()
            with pytest.raises(ValueError):
                decoder.audio()
            with pytest.raises(TypeError):
                pickle.dumps(decoder)
        if isinstance(source, Path):
            source.unlink()
        elif isinstance(source, int):
            os.close(source)
        else:
            source.close()


def test_a_stream_that_has_read_ahead_is_whole() -> None:
    with cat(clip("h264_mkv")) as program:
        assert program.stdout is not None
        assert program.stdout.peek()
        with Decoder(program.stdout) as decoder:
            assert len(list(decoder)) == 30
        assert not program.stdout.closed


def test_endless_pipe_can_be_left() -> None:
    endless = ["-re", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=50", "-c:v", "ffv1", "-f", "matroska", "-"]
    with subprocess.Popen([find_ffmpeg(), "-v", "error", *endless], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        with Decoder(program.stdout) as decoder:
            assert next(decoder).shape == (48, 64, 3)
        program.kill()


@pytest.mark.linux("forks")
def test_forked_child_holds_no_pipe_open() -> None:
    read, write = os.pipe()
    decoder_source = threading.Thread(
        target=lambda: (os.write(write, clip("h264_mkv").read_bytes()), os.close(write))
    )
    decoder_source.start()
    with Decoder(read) as decoder:
        child = os.fork()
        if child == 0:
            time.sleep(PATIENCE_S)
            os._exit(0)
        try:
            assert len(list(decoder)) == 30
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    decoder_source.join()
    os.close(read)


def test_descriptor_of_no_file_says_how_to_read_a_camera() -> None:
    with Path(os.devnull).open("rb") as null, pytest.raises(ValueError) as caught:
        Decoder(null.fileno())
    assert "/dev/video0" in str(caught.value)


@pytest.mark.parametrize("name", ["h264_mkv", "rotated_90"])
@pytest.mark.parametrize("filters", ["crop=32:24", "scale=iw/2:-2,transpose"])
def test_filters_of_a_stream_tell_their_size(name: str, filters: str) -> None:
    with Decoder(clip(name), filters=filters) as file:
        size, samples = file.size, next(file).tobytes()
    with cat(clip(name)) as program, Decoder(program.stdout, filters=filters) as decoder:
        assert decoder.size == size and next(decoder).tobytes() == samples


@pytest.mark.linux("files in /dev")
def test_options_that_need_a_file_are_refused_for_a_stream() -> None:
    with Path("/dev/zero").open("rb") as zero, pytest.raises(ValueError):
        Decoder(zero)
