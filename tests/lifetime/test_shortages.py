"""If no descriptor, memory, process or thread is left, that is the `OSError`: no damaged file, no broken program."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import pytest
from av.error import err_check
from support.clips import clip
from support.engines import BY_PROGRAM, by_program
from support.processes import run_script, succeeded

from penstock import AudioDecoder, Decoder, DecoderError, Encoder, EncoderError, probe
from penstock._facts import completeness
from penstock._ffmpeg.program import capabilities

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


@pytest.fixture
def source() -> Iterator[Path]:
    """A video with sound in a folder that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copy(clip("audio_aac"), folder))


@pytest.mark.linux("limits of a process")
@pytest.mark.parametrize("number", SHORTAGES)
@pytest.mark.parametrize("read", [probe, Decoder, AudioDecoder])
def test_shortage_while_libav_opens_a_file_raises_os_error(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object], number: int
) -> None:
    monkeypatch.setattr(av, "open", lambda *_, **__: err_check(-number))
    with little_memory(), pytest.raises(OSError) as caught:
        read(clip("h264_mkv"))
    assert (caught.value.errno, caught.value.filename) == (number, str(clip("h264_mkv")))


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Memory is left, but less than libav may ask for at once."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (1 << 30), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("read", [probe, Decoder, AudioDecoder])
def test_file_for_which_libav_gets_no_memory_while_there_is_enough_is_damaged(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    damaged = tmp_path / "damaged.mp4"
    data = bytearray(clip("audio_aac").read_bytes())
    size_at = data.index(b"stsd") + 12  # of the description of the first stream's codec
    data[size_at : size_at + 4] = (0x0FFF_FFFF).to_bytes(4, "big")
    damaged.write_bytes(data)
    with pytest.raises(av.error.MemoryError):
        av.open(damaged)
    with pytest.raises(DecoderError, match="damaged"):
        read(damaged)


@pytest.mark.parametrize("number", SHORTAGES)
def test_shortage_while_ffmpeg_starts_raises_os_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with Decoder(clip("h264_mkv"), settings=by_program()) as decoder:
        monkeypatch.setattr(subprocess, "Popen", refuse)
        works: list[Callable[[], object]] = [
            lambda: next(decoder),
            lambda: Encoder(tmp_path / "out.mp4", size=(16, 16), fps=5),
        ]
        for work in works:
            with pytest.raises(OSError) as caught:
                work()
            assert caught.value.errno == number


def test_descriptor_shortage_raises_emfile(source: Path) -> None:
    code = f"""
    import errno, resource
    from penstock import Decoder
    from penstock import AudioDecoder, probe

    source = sys.argv[1]
    next(Decoder(source)), Decoder(source)[0]  # imports all that it takes
    AudioDecoder(source).read()
    decoder = Decoder(source)
    begun = Decoder(source)
    next(begun)  # after that, frames by number open the file again
    program, sound = Decoder(source, {BY_PROGRAM}), AudioDecoder(source, {BY_PROGRAM})
    works = {{
        "probe": lambda: probe(source),
        "open": lambda: Decoder(source),
        "len": lambda: len(decoder),
        "program": lambda: next(program),
        "number": lambda: begun[1],
        "audio": lambda: AudioDecoder(source),
        "sound": lambda: sound.read(),
    }}
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    held = []
    for name, work in works.items():
        try:
            while True:
                held.append(os.dup(0))  # also what the work before has given back
        except OSError:
            pass
        try:
            work()
        except Exception as error:
            print(name, errno.errorcode.get(getattr(error, "errno", None), repr(error)))
    """
    said = succeeded(run_script(code, source)).decode().splitlines()
    assert said == [
        f"{name} EMFILE" for name in ("probe", "open", "len", "program", "number", "audio", "sound")
    ]


def test_thread_shortage_in_libav_raises_eagain(source: Path) -> None:
    code = """
    import resource
    from penstock import Decoder
    from penstock.video import DecoderSettings

    decoder = Decoder(sys.argv[1], settings=DecoderSettings(threads=4))
    next(decoder)  # after that, frames by number open the file again
    decoder._frames()
    if os.getuid() == 0:  # whom the limit does not hold for
        os.setuid(54321)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    try:
        decoder[-1]
    except BlockingIOError as error:
        print(error.errno)
    """
    assert int(succeeded(run_script(code, source))) == errno.EAGAIN


def test_a_file_is_not_called_whole_if_that_could_not_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    frames = []
    with Decoder(clip("h264_mkv"), settings=by_program()) as decoder:
        with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
            patch.setattr(completeness, "open_stream", refuse)
            while (frame := decoder.read()) is not None:
                frames.append(frame)
        assert caught.value.errno == errno.EMFILE
        assert decoder.read() is None  # and again, once there is one
        assert len(frames) == len(decoder)


def test_shortage_during_advice_does_not_hide_the_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    encoder = Encoder(tmp_path / "out.mkv", size=(64, 64), fps=5, codec="ffv1")
    with Decoder(clip("corrupt_mkv")) as decoder:
        assert next(decoder).size and encoder.pid is not None
        monkeypatch.setattr(capabilities, "stdout_of", refuse)
        with pytest.raises(DecoderError):
            list(decoder)
    os.kill(encoder.pid, signal.SIGKILL)
    with pytest.raises(EncoderError):
        encoder.close()
