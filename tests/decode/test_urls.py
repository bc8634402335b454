"""A `Decoder` of a URL: libav opens it once, on a thread that may hang."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.clips import clip
from support.media import ffmpeg
from support.media import nothing_is_left as nothing_is_left
from support.processes import start_script
from support.servers import http_server
from support.this_process import are_asleep

from penstock import AudioDecoder, ClosedError, Decoder, DecoderError, FFmpegWarning, StalledError
from penstock.video import DecoderSettings, find_ffmpeg, prefetch


def has_protocol(name: str) -> bool:
    """Whether the FFmpeg of the tests has a protocol."""
    said = subprocess.run([find_ffmpeg(), "-v", "error", "-protocols"], capture_output=True, text=True)
    return name in said.stdout.split()


SHORT_S = 10.0
"""What returns at once takes less, also on a busy machine, and what waits for a server takes longer."""


def kept(decoder: Decoder) -> list[tuple[int, int | None, bytes]]:
    return [(frame.index, frame.pts, frame.tobytes()) for frame in decoder]


def expected(path: Path) -> list[tuple[int, int | None, bytes]]:
    with Decoder(path) as decoder:
        return kept(decoder)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream whose beginning libav reads by its first half."""
    path = tmp_path_factory.mktemp("live") / "live.ts"
    noise = ["-f", "lavfi", "-i", "nullsrc=s=64x48:r=25,geq=random(1)*255:128:128", "-frames:v", "400"]
    ffmpeg(*noise, "-c:v", "mpeg2video", "-b:v", "9M", str(path))
    return path


@pytest.mark.parametrize("has_ranges", [False, True])
@pytest.mark.parametrize("kind", ["h264_mkv", "h264_ts", "variable_mp4", "faststart"])
def test_a_url_gives_the_frames_of_its_file_by_one_request(
    kind: str, has_ranges: bool, tmp_path: Path
) -> None:
    path = tmp_path / "fast.mp4" if kind == "faststart" else clip(kind)
    if kind == "faststart":
        ffmpeg("-i", str(clip("h264")), "-c", "copy", "-movflags", "faststart", str(path))
    with http_server(path.read_bytes(), has_ranges=has_ranges) as server:
        with Decoder(server.url) as decoder:
            assert decoder.engine.name == "libav" and decoder.pid is None
            assert kept(decoder) == expected(path)
        assert server.most_open == 1
        if not has_ranges or kind in ("h264_mkv", "faststart"):
            assert server.offsets == [0]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of videos of 30 s, with audio."""
    folder = tmp_path_factory.mktemp("long")
    picture = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=30")
    sound = ("-f", "lavfi", "-i", "aevalsrc=t/100:d=30:s=8000", "-c:a", "pcm_s16le")
    for ending in ("mkv", "ts", "avi"):
        codec = ("-c:v", "mpeg4") if ending == "avi" else ("-c:v", "libx264")
        ffmpeg(
            *picture,
            *(sound if ending != "ts" else ()),
            *codec,
            "-bf",
            "0",
            "-g",
            "20",
            folder / f"a.{ending}",
        )
    return folder


@pytest.mark.parametrize("has_ranges", [False, True])
@pytest.mark.parametrize("start", [0.11, 25.05, 29.99, 50])
@pytest.mark.parametrize("ending", ["mkv", "ts", "avi"])
def test_a_url_begins_with_the_frame_on_screen_at_the_start(
    ending: str, start: float, has_ranges: bool, long: Path
) -> None:
    path = long / f"a.{ending}"
    frames = {pts: samples for _, pts, samples in expected(path)}
    with Decoder(path, start=start, count=3) as decoder:
        times = [] if start == 50 else [frame.pts for frame in decoder]
    with (
        http_server(path.read_bytes(), has_ranges=has_ranges) as server,
        Decoder(server.url, start=start, count=3) as decoder,
    ):
        assert decoder.engine.name == "libav"
        if start == 50:
            with pytest.raises(DecoderError, match="50"):
                list(decoder)
        else:
            assert [(pts, samples) for _, pts, samples in kept(decoder)] == [
                (pts, frames[pts]) for pts in times
            ]
        assert has_ranges or (server.most_open == 1 and server.offsets in ([0], [0, 0]))


@pytest.mark.parametrize("ending", ["mkv", "ts", "mp4"])
@pytest.mark.parametrize("options", [{}, {"start": 25.05, "count": 3}], ids=str)
def test_a_url_with_filters_is_opened_once(ending: str, options: dict[str, Any], long: Path) -> None:
    path = long / f"a.{ending}"
    if ending == "mp4":  # its index is at the end, so it must be opened again
        ffmpeg("-i", long / "a.ts", "-c", "copy", path)
    with Decoder(path, filters="crop=32:24", **options) as decoder:
        frames = kept(decoder)
    with http_server(path.read_bytes(), has_ranges=True) as server:
        with Decoder(server.url, filters="crop=32:24", **options) as decoder:
            assert kept(decoder) == frames and decoder.size == (32, 24)
        assert server.offsets == [0] or ending == "mp4"


def test_the_audio_of_a_url_begins_with_the_first_frame(long: Path) -> None:
    with (
        http_server((long / "a.mkv").read_bytes(), has_ranges=True) as server,
        Decoder(server.url, start=25.09, duration=1) as decoder,
        decoder.audio() as audio,
    ):
        samples = audio.read_all()
        assert next(decoder).time_s == 25.0
        assert samples[0, 0] == pytest.approx(0.25, abs=1e-4) and len(samples) == 8720


SOUNDS = {
    "a.m4a": ("-movflags", "+faststart"),
    "film.mp4": ("-movflags", "+faststart"),
    "film.mkv": (),
    "film.flv": (),
    "a.ts": ("-c:a", "aac"),
    "a.ogg": ("-c:a", "libvorbis"),
    "a.flac": (),
    "a.mp3": (),
    "a.wav": (),
}


def sound_file(name: str, folder: Path, seconds: int = 9) -> Path:
    picture = ("-f", "lavfi", "-i", f"testsrc2=s=64x48:r=5:d={seconds}") * name.startswith("film")
    wave = f"aevalsrc='0.5*sin(t*(900+90*t))':s=44100:d={seconds}"
    sweep = ("-f", "lavfi", "-i", wave, "-aac_pns", "0")
    ffmpeg(*picture, *sweep, *SOUNDS[name], folder / name)
    return folder / name


@pytest.mark.parametrize("has_ranges", [False, True])
@pytest.mark.parametrize("name", [*SOUNDS])
def test_a_url_gives_the_audio_of_its_file(name: str, has_ranges: bool, tmp_path: Path) -> None:
    path = sound_file(name, tmp_path)
    with AudioDecoder(path) as audio:
        whole = audio.read_all()
    with AudioDecoder(path, start=6.2, duration=0.5) as audio:
        part = audio.read_all()
    with http_server(path.read_bytes(), has_ranges=has_ranges) as server:
        with AudioDecoder(server.url) as audio:
            assert audio.engine.name == "libav" and audio.pid is None
            assert np.array_equal(audio.read_all(), whole)
        assert has_ranges or server.offsets == [0]
        with AudioDecoder(server.url, start=6.2, duration=0.5) as audio:
            assert np.abs(audio.read_all() - part).max() <= 1e-6 and len(part) == 22_050
        with AudioDecoder(server.url) as audio, pytest.raises(ValueError, match="URL"):
            audio.window(1, 1)


def test_audio_of_a_server_that_pauses_is_late_and_whole(tmp_path: Path) -> None:
    data = sound_file("a.wav", tmp_path, 30).read_bytes()
    with http_server(data, stops_at=len(data) // 2) as server, AudioDecoder(server.url) as audio:
        got = []
        with pytest.raises(StalledError) as caught:
            while True:
                got.append(audio.read(timeout=0.5))
        assert got and caught.value.seconds == 0.5
        server.goes_on.set()
        assert sum(len(block) for block in [*got, *audio]) == 30 * 44_100  # type: ignore[misc, arg-type]


# There, the server's connection stays open for reasons unknown. The sound itself stalls as it should.
@pytest.mark.linux("a stalled download lets go of its server")
@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_audio_of_a_server_that_stops_does_not_end(name: str, tmp_path: Path) -> None:
    data, settings = sound_file(name, tmp_path, 30).read_bytes(), DecoderSettings(stall_timeout=0.7)
    with (
        http_server(data, stops_at=len(data) // 2) as server,
        AudioDecoder(server.url, settings=settings) as audio,
    ):
        for _ in range(2):
            with pytest.raises(StalledError) as caught:
                audio.read_all()
            assert caught.value.seconds == 0.7
    with http_server(b"", stops_at=0) as server, pytest.raises(StalledError):
        AudioDecoder(server.url, settings=settings)


def test_the_end_of_audio_without_a_length_warns(tmp_path: Path) -> None:
    path = sound_file("a.ts", tmp_path)
    with http_server(path.read_bytes()) as server:
        server.has_length = False
        with AudioDecoder(server.url) as audio, pytest.warns(FFmpegWarning, match="length"):
            assert len(audio.read_all()) > 9 * 44_100
        server.data = server.data[: len(server.data) // 2]
        server.has_length, server.is_chunked = True, True
        with AudioDecoder(server.url) as audio, pytest.raises(DecoderError):
            audio.read_all()


def test_a_server_that_keeps_its_connections_sends_all_frames(tmp_path: Path) -> None:
    noise = ["-f", "lavfi", "-i", "nullsrc=s=320x240:r=25,geq=random(1)*255:128:128", "-frames:v", "60"]
    ffmpeg(*noise, "-c:v", "mpeg2video", "-q:v", "1", str(tmp_path / "large.mp4"))  # its index is at the end
    with http_server((tmp_path / "large.mp4").read_bytes(), has_ranges=True) as server:
        server.keeps_connections = True
        with Decoder(server.url) as decoder:
            assert kept(decoder) == expected(tmp_path / "large.mp4")


def test_a_program_sees_the_end_of_an_answer_in_chunks() -> None:
    path = clip("h264_ts")
    with http_server(path.read_bytes()) as server:
        server.is_chunked = True
        with Decoder(server.url, filters="null") as decoder:
            assert kept(decoder) == expected(path)


def test_damage_at_a_url_raises_after_the_frames_before() -> None:
    data = bytearray(clip("h264_ts").read_bytes())
    data[len(data) // 2 :: 7] = bytes(len(data[len(data) // 2 :: 7]))
    with http_server(bytes(data)) as server:
        with Decoder(server.url) as decoder, pytest.raises(DecoderError) as caught:
            for index, frame in enumerate(decoder):
                assert frame.index == index
        assert 0 < caught.value.frames < 30 and server.offsets == [0]


@pytest.mark.parametrize("name", ["h264_ts", "h264_mkv", "h264"])
def test_url_of_a_file_that_was_cut_off_raises(name: str) -> None:
    data = clip(name).read_bytes()
    with http_server(data) as server:
        server.is_chunked = True
        with Decoder(server.url) as decoder:
            assert len(list(decoder)) == 30
    with http_server(data[: len(data) // 2]) as server:
        server.is_chunked = True
        with pytest.raises(DecoderError), Decoder(server.url) as decoder:
            list(decoder)


@pytest.mark.parametrize("ending", ["mkv", "webm", "flv", "mp4"])
def test_url_of_a_file_with_audio_that_ends_a_third_early_says_so(ending: str, tmp_path: Path) -> None:
    codecs = ("-c:v", "libvpx", "-c:a", "libopus") if ending == "webm" else ("-movflags", "+faststart")
    sound = ("-f", "lavfi", "-i", "sine=d=2", "-g", "5")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=2", *sound, *codecs, tmp_path / f"a.{ending}")
    data = (tmp_path / f"a.{ending}").read_bytes()
    with http_server(data[: len(data) * 3 // 5]) as server:
        server.is_chunked = True
        with warnings.catch_warnings(), Decoder(server.url) as decoder:
            warnings.simplefilter("error")
            with pytest.raises((DecoderError, FFmpegWarning)):
                list(decoder)


@pytest.mark.parametrize("rate", [1, 30])
def test_url_of_a_file_without_audio_that_ends_early_says_so(rate: int, tmp_path: Path) -> None:
    """All bytes that the server has came, and what is missing is less than what a trimmed file lacks."""
    path = tmp_path / "a.mkv"
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=64x48:r={rate}:d=6", "-g", "1", "-c:v", "mpeg4", path)
    data = path.read_bytes()
    for part, cut in ((data, False), (data[: len(data) * 3 // 4], True)):
        with http_server(part) as server, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", FFmpegWarning)
            server.is_chunked = True
            with Decoder(server.url) as decoder:
                list(decoder)
        assert ["cut" in str(one.message) for one in told if one.category is FFmpegWarning] == [True] * cut


def test_the_end_of_a_connection_without_a_length_is_an_end_and_warns() -> None:
    with http_server(clip("h264_ts").read_bytes()) as server:
        server.has_length = False
        with Decoder(server.url) as decoder, pytest.warns(FFmpegWarning, match="length"):
            assert len(list(decoder)) == 30
    data = clip("h264_mkv").read_bytes()
    with http_server(data[: len(data) // 2]) as server:
        server.has_length = False
        with Decoder(server.url) as decoder, pytest.raises(DecoderError):
            list(decoder)


def test_url_that_cannot_be_opened_raises() -> None:
    # On Windows, libav knows no words for it.
    words = "127.0.0.1:9" if sys.platform == "win32" else "refused"
    with pytest.raises(DecoderError, match=words):
        Decoder("http://127.0.0.1:9/clip.mp4")


def test_a_late_read_loses_no_frame(live: Path) -> None:
    data = live.read_bytes()
    with http_server(data, stops_at=len(data) // 2) as server, Decoder(server.url) as decoder:
        got = []
        with pytest.raises(StalledError) as caught:
            while True:
                got.append(decoder.read(timeout=0.5).index)  # type: ignore[union-attr]
        assert got and caught.value.seconds == 0.5
        for _ in range(2):
            with pytest.raises(StalledError):
                decoder.read(timeout=0)
        server.goes_on.set()
        got += [frame.index for frame in decoder]
        assert got == list(range(400)) and server.offsets == [0]


def test_late_reads_of_two_threads_leave_the_frames_in_order(live: Path) -> None:
    data = live.read_bytes()
    with http_server(data, stops_at=len(data) // 2) as server, Decoder(server.url) as decoder:
        got = []
        with pytest.raises(StalledError):
            while True:
                got.append(decoder.read(timeout=0.5).index)  # type: ignore[union-attr]

        def read(timeout: float) -> None:
            with pytest.raises(StalledError):
                decoder.read(timeout)

        threads = [threading.Thread(target=read, args=(timeout,)) for timeout in (0.2, 0.4, 0.6)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        server.goes_on.set()
        assert got + [frame.index for frame in decoder] == list(range(400))


@pytest.mark.linux("a stalled download lets go of its server")
def test_a_server_that_stops_is_given_up_after_the_stall_timeout(live: Path) -> None:
    data, settings = live.read_bytes(), DecoderSettings(stall_timeout=0.7)
    with (
        http_server(data, stops_at=len(data) // 2) as server,
        Decoder(server.url, settings=settings) as decoder,
    ):
        for _ in range(2):
            with pytest.raises(StalledError) as caught:
                list(decoder)
            assert caught.value.seconds == 0.7
        server.goes_on.set()
        with pytest.raises(StalledError):
            next(decoder)


def test_a_server_that_stops_in_a_packet_has_stopped_and_damaged_nothing(tmp_path: Path) -> None:
    settings = DecoderSettings(stall_timeout=0.7)
    ffmpeg("-i", str(clip("h264")), "-c", "copy", "-movflags", "+faststart", str(tmp_path / "a.mp4"))
    data = (tmp_path / "a.mp4").read_bytes()
    with (
        http_server(data, stops_at=len(data) * 3 // 4) as server,
        Decoder(server.url, settings=settings) as decoder,
    ):
        for _ in range(2):
            with pytest.raises(StalledError) as caught:
                list(decoder)
            assert caught.value.seconds == 0.7


def test_a_server_that_never_answers_is_given_up_when_opened() -> None:
    with http_server(b"", stops_at=0) as server, pytest.raises(StalledError) as caught:
        Decoder(server.url, settings=DecoderSettings(stall_timeout=0.5))
    assert caught.value.seconds == 0.5


def test_close_wakes_a_thread_that_waits_for_a_server(live: Path) -> None:
    data, said = live.read_bytes(), []
    with http_server(data, stops_at=len(data) // 2) as server:
        decoder = Decoder(server.url)
        next(decoder)

        def read() -> None:
            try:
                list(decoder)
            except BaseException as error:
                said.append(type(error))

        thread = threading.Thread(target=read)
        thread.start()
        assert eventually(lambda: are_asleep(lambda: {thread.native_id}))
        before = time.monotonic()
        decoder.close()
        thread.join(PATIENCE_S)
        assert time.monotonic() - before < SHORT_S and said == [ClosedError]
        with pytest.raises(ClosedError):
            decoder.read()


def test_a_cancelled_wait_for_a_server_loses_no_frame(live: Path) -> None:
    data = live.read_bytes()

    async def indices(server: Any) -> list[int]:
        async with Decoder(server.url) as decoder:
            got = []
            with pytest.raises(TimeoutError):
                while True:
                    got.append((await asyncio.wait_for(anext(decoder), 0.5)).index)
            server.goes_on.set()
            return [*got, *[frame.index async for frame in decoder]]

    with http_server(data, stops_at=len(data) // 2) as server:
        assert asyncio.run(indices(server)) == list(range(400))


@pytest.mark.linux("signals to programs")
@pytest.mark.parametrize("ending", ["Ctrl-C", "exit", "cancel"])
def test_a_program_ends_while_its_server_hangs(ending: str, live: Path) -> None:
    code = """
    import asyncio
    decoder = penstock.Decoder(sys.argv[1])

    async def use():
        async with decoder:
            while True:
                await asyncio.wait_for(anext(decoder), 0.5)

    if sys.argv[2] == "cancel":
        print(flush=True)
        asyncio.run(use())
    try:
        while True:
            decoder.read(0.5)
    except penstock.StalledError:
        pass
    print(flush=True)
    if sys.argv[2] == "Ctrl-C":
        list(decoder)
    """
    data = live.read_bytes()
    with (
        http_server(data, stops_at=len(data) // 2) as server,
        start_script(code, server.url, ending) as program,
    ):
        assert program.stdout.readline()
        if ending == "Ctrl-C":
            assert eventually(lambda: are_asleep(lambda: {program.pid}))
            program.send_signal(signal.SIGINT)
        before = time.monotonic()
        _, said = program.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - before < SHORT_S
    last = said.decode().rstrip().rpartition("\n")[2].partition(":")[0]
    assert last == {"Ctrl-C": "KeyboardInterrupt", "exit": "", "cancel": "TimeoutError"}[ending], said


@pytest.mark.linux("signals to programs")
def test_ctrl_c_ends_the_wait_for_a_server_that_never_answers() -> None:
    with (
        http_server(b"", stops_at=0) as server,
        start_script("print(flush=True); penstock.Decoder(sys.argv[1])", server.url) as program,
    ):
        assert program.stdout.readline()
        assert eventually(lambda: server.offsets)
        before = time.monotonic()
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - before < SHORT_S and said.decode().rstrip().endswith("KeyboardInterrupt")


def test_prefetch_reads_urls_ahead() -> None:
    with http_server(clip("h264_mkv").read_bytes()) as server:
        assert [len(list(one)) for one in prefetch([server.url] * 3)] == [30] * 3


def test_a_dropped_decoder_lets_go_of_its_server(live: Path) -> None:
    data = live.read_bytes()
    with http_server(data, stops_at=len(data) // 2) as server:
        decoder = Decoder(server.url)
        with pytest.raises(StalledError):
            while True:
                decoder.read(timeout=0.5)
        with pytest.warns(ResourceWarning):
            del decoder
            server.goes_on.set()
            assert eventually(lambda: not gc.collect() and server.open == 0)


# A protocol that libav lacks


@contextmanager
def srt_sender(path: Path, *options: str) -> Iterator[str]:
    """A program that waits for somebody to receive the file, once."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"srt://127.0.0.1:{probe.getsockname()[1]}"
    command = [find_ffmpeg(), "-v", "error", *options, "-i", str(path), "-c", "copy", "-f", "mpegts"]
    with subprocess.Popen([*command, f"{url}?mode=listener"], stdin=subprocess.DEVNULL) as program:
        try:
            yield url
        finally:
            program.kill()


@pytest.fixture
def moving_ts(tmp_path: Path) -> Path:
    path = tmp_path / "moving.ts"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=2", "-c:v", "libx264", "-g", "10", str(path))
    return path


@pytest.mark.skipif(not has_protocol("srt"), reason="this FFmpeg has no srt")
def test_srt_gives_the_frames_of_its_file_until_the_sender_ends(moving_ts: Path) -> None:
    with (
        srt_sender(moving_ts, "-re") as url,
        Decoder(url, settings=DecoderSettings(stall_timeout=20)) as decoder,
    ):
        assert decoder.engine.name == "ffmpeg" and "srt" in decoder.engine.reason
        assert decoder.file.path == url and decoder.file.container == "mpegts"
        got: list[tuple[float | None, bytes]] = []
        with pytest.raises(DecoderError) as caught:  # SRT doesn't tell an end from a lost connection
            got.extend((frame.time_s, frame.tobytes()) for frame in decoder)
        assert caught.value.frames == len(got)
    with Decoder(moving_ts) as decoder:
        whole = [frame.tobytes() for frame in decoder]
    assert len(got) > 25 and all(data in whole for _, data in got)


def test_a_server_that_the_program_cannot_reach_raises_with_its_words() -> None:
    for url in ("srt://127.0.0.1:9?timeout=200000", "nonsense://host/clip"):
        with pytest.raises(DecoderError) as caught:
            Decoder(url)
        assert url in str(caught.value)
