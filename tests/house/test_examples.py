"""Every example runs as its users run it, small, and its video is decoded."""

from __future__ import annotations

import importlib
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from support.clips import clip
from support.media import decode, ffmpeg, no_opengl, no_wgpu

import penstock
from penstock import AudioDecoder, probe

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZE = (160, 120)
FRAMES = 24

needs_opengl = pytest.mark.skipif(no_opengl() is not None, reason=str(no_opengl()))


def run_python(name: str, *arguments: object) -> str:
    """What an example prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_example(name: str, output: Path, *words: str, frames: int = FRAMES) -> np.ndarray:
    """The frames of the video that an example makes. The words are in what it prints."""
    printed = run_python(name, "--output", output, "--size", *SIZE, "--frames", frames)
    assert all(word in printed for word in (output.name, *words))
    return decode(output, SIZE)


def assert_animated(frames: np.ndarray) -> None:
    assert len(frames) == FRAMES
    assert all(frame.std() > 10 for frame in frames)
    moved = np.abs(np.diff(frames.astype(int), axis=0)).mean(axis=(1, 2, 3))
    assert (moved > 0.1).all()


@needs_opengl
def test_example_moderngl_loop_makes_a_video(tmp_path: Path) -> None:
    assert_animated(run_example("moderngl_loop.py", tmp_path / "video.mp4"))


@needs_opengl
def test_example_moderngl_sound_is_in_sync(tmp_path: Path) -> None:
    frames = run_example("moderngl_sound.py", tmp_path / "video.mp4", frames=120)
    assert len(frames) == 120
    with AudioDecoder(tmp_path / "video.mp4") as decoder:
        rate, samples = decoder.sample_rate, decoder.read_all()[:, 0]
    assert len(samples) / rate == pytest.approx(2, abs=0.03)
    loud = np.flatnonzero(np.abs(samples) > 0.1) / rate
    heard_s = loud[np.insert(np.diff(loud) > 0.3, 0, True)]
    lowest = [np.flatnonzero((frame[..., 0] > 150).any(axis=1)).max() for frame in frames]
    seen_s = np.flatnonzero(np.array(lowest) == max(lowest)) / 60
    assert heard_s == pytest.approx([0, 0.75, 1.5], abs=1 / 60)
    assert all(np.abs(seen_s - at).min() <= 1 / 60 for at in heard_s)


def test_example_numpy_loop_makes_a_video(tmp_path: Path) -> None:
    assert_animated(run_example("numpy_loop.py", tmp_path / "video.mp4"))


def test_example_three_outputs_serves_all_outputs(tmp_path: Path) -> None:
    shown = run_example("three_outputs.py", tmp_path / "video.mp4", f"{FRAMES} raw frames, mean brightness 1")
    assert_animated(shown)
    kept = decode(tmp_path / "video.archive.mkv", SIZE)
    assert kept.shape == shown.shape and np.abs(kept.astype(int) - shown).mean() < 10


def test_example_record_cameras_keeps_frames_and_times_in_agreement(tmp_path: Path) -> None:
    printed = run_python("record_cameras.py", "--folder", tmp_path, "--seconds", 2)
    rows = [line.split("│")[1:-1] for line in printed.splitlines() if line.startswith("│")]
    shown = {name.strip(): [one.strip() for one in values] for name, *values in rows}
    shown.pop("camera", None)  # the head, which has lines of its own but in an old console
    assert sorted(shown) == ["door", "gate", "hall", "yard"]
    for name, (taken, dropped, agrees) in shown.items():
        assert int(taken) + int(dropped) == 60 and agrees == "yes"
        table = np.genfromtxt(tmp_path / f"{name}.csv", delimiter=",", skip_header=1)
        with penstock.Decoder(tmp_path / f"{name}.mkv") as decoder:
            times_s = [frame.time_s for frame in decoder]
        assert (table[:, 0] == range(int(taken))).all() and table[:, 1] == pytest.approx(times_s, abs=1e-3)
        assert times_s[0] < 1 < times_s[-1]


@needs_opengl
def test_example_turbopipe_dropin_makes_the_expected_frames(tmp_path: Path) -> None:
    frames = run_example("turbopipe_dropin.py", tmp_path / "video.mp4")
    assert_animated(frames)
    side = SIZE[1] // 4
    for index, frame in enumerate(frames):
        rows, columns = np.nonzero(frame[..., 0] > 128)
        # The red square of frame `index`, to a pixel or so of codec: from the bottom left, up along the diagonal.
        left, bottom = index * (SIZE[0] - side) // (SIZE[1] - side), index
        square = (columns.min(), columns.max() + 1, SIZE[1] - rows.max() - 1, SIZE[1] - rows.min())
        assert square == pytest.approx((left, left + side, bottom, bottom + side), abs=2)


@pytest.mark.slow
def test_example_render_many_makes_a_video(tmp_path: Path) -> None:
    assert_animated(run_example("render_many.py", tmp_path / "video.mp4"))
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


def test_example_round_trip_makes_the_negative(tmp_path: Path) -> None:
    output = tmp_path / "negative.mp4"
    printed = run_python("round_trip.py", clip("long"), "--output", output)
    assert printed == f"{output}: 600 frames of 160x120\n"
    # But for what the codec loses, a frame and its negative are white together.
    there, back = decode(clip("long"), SIZE), decode(output, SIZE)
    assert there.shape == back.shape
    assert np.abs(255 - there.astype(np.int16) - back).mean() < 6


@pytest.mark.parametrize("times", ["select='not(eq(mod(n,5),2))'", "setpts=PTS+0.4/TB"])
def test_example_round_trip_keeps_audio_and_times(tmp_path: Path, times: str) -> None:
    source, output = tmp_path / "source.mp4", tmp_path / "negative.mp4"
    picture = f"testsrc2=size=160x120:rate=25,{times}"
    inputs = ("-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", "sine=duration=2")
    ffmpeg(*inputs, "-t", 2, source)
    run_python("round_trip.py", source, "--output", output)
    with penstock.Decoder(source) as before, penstock.Decoder(output) as after:
        assert [frame.time_s for frame in after] == pytest.approx([frame.time_s for frame in before])
    [sound] = probe(output).audio
    assert sound.codec == "aac"
    assert sound.duration_s == pytest.approx(2, abs=0.05)


def test_example_pendulum_makes_a_video(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    printed = run_python("pendulum.py", "--output", output, "--size", *SIZE, "--frames", FRAMES)
    assert f"{FRAMES} frames, " in printed
    with penstock.Decoder(output) as decoder:
        frames = [*decoder]
    assert np.abs(np.diff(np.array(frames, int), axis=0)).max() > 100
    times_s = [frame.time_s for frame in frames]
    assert len(times_s) == FRAMES
    steps_s = np.diff(times_s)
    assert times_s[0] == 0
    assert 0 < 1.3 * steps_s.min() < steps_s.max() <= 1 / 24 + 1e-6


@pytest.mark.skipif(no_wgpu() is not None, reason=str(no_wgpu()))
def test_example_wgpu_loop_makes_a_video(tmp_path: Path) -> None:
    frames = run_example("wgpu_loop.py", tmp_path / "video.mp4")
    assert_animated(frames)


def test_every_example_has_a_test() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - {"demo"}
    tested = [name for name in globals() if name.startswith("test_")]
    assert all(any(one.startswith(f"test_example_{name}") for one in tested) for name in names)


def test_every_example_says_what_it_shows() -> None:
    assert all(path.read_text().startswith('"""') for path in EXAMPLES.glob("*.py"))


def test_example_hls_ladder_lists_what_was_encoded_with_aligned_segments(tmp_path: Path) -> None:
    heights = ("--heights", 720, 360)
    printed = run_python(
        "hls_ladder.py", "--output", tmp_path, "--size", 160, 90, *heights, "--frames", 25, "--fps", 5
    )
    assert (tmp_path / "master.m3u8").read_text() == printed
    assert [one for one in printed.splitlines() if "#" not in one] == ["720p/stream.m3u8", "360p/stream.m3u8"]
    for height, width in ((720, 1280), (360, 640)):
        folder = tmp_path / f"{height}p"
        assert f'RESOLUTION={width}x{height},FRAME-RATE=5.000,CODECS="avc1.6400' in printed
        with penstock.Decoder(folder / "stream.m3u8", follow_playlists=True) as decoder:
            assert sum(1 for _ in decoder) == 25
        durations = [line for line in (folder / "stream.m3u8").read_text().splitlines() if "EXTINF" in line]
        assert durations == ["#EXTINF:2.000000,", "#EXTINF:2.000000,", "#EXTINF:1.000000,"]
    rates = [int(rate) for rate in re.findall(r"[:,]BANDWIDTH=(\d+)", printed)]
    largest = max(path.stat().st_size for path in (tmp_path / "720p").glob("*.m4s"))
    assert rates[0] > rates[1] and rates[0] >= largest * 8 / 2


def test_example_hls_ladder_leaves_out_a_size_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("hls_ladder")
    frame = np.zeros((90, 160, 3), np.uint8)
    rungs = [example.rung(tmp_path / f"{height}p", height, fps=10) for height in (720, 360)]
    with penstock.FanOut(rungs) as fan_out:
        fan_out.write(frame)
        rungs[0].abort()
        fan_out.write(frame)
        reports = fan_out.close()
    listed = example.master_playlist(tmp_path, reports)
    assert "360p/stream.m3u8" in listed and "720p" not in listed


class ClipServer:
    """The example as a program, and requests to it."""

    def __init__(self, video: Path) -> None:
        command = [sys.executable, str(EXAMPLES / "clip_server.py"), str(video), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = urlsplit(self.process.stdout.readline()).port

    def get(self, query: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/?{query}", timeout=60) as answer:
            return answer.read()

    def ask(self, query: str) -> socket.socket:
        """A connection whose answer nobody reads yet."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET /?{query} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        return connection


@pytest.fixture
def clip_server(tmp_path: Path) -> Iterator[ClipServer]:
    """Of two seconds of noise, some megabytes."""
    video = tmp_path / "noise.mp4"
    frames = np.random.default_rng(0).integers(0, 256, (60, 120, 160, 3), np.uint8)
    penstock.write_video(video, frames, fps=30, preset="ultrafast", crf=10)
    server = ClipServer(video)
    try:
        yield server
        assert server.process.poll() is None, "it serves on"
        if sys.platform != "win32":  # whose programs get no signals
            server.process.send_signal(signal.SIGINT)
            _, words = server.process.communicate(timeout=30)
            assert server.process.returncode == 0 and "Traceback" not in words, words
    finally:
        server.process.kill()
        server.process.communicate()


def test_example_clip_server_sends_clips_while_others_wait(clip_server: ClipServer, tmp_path: Path) -> None:
    with clip_server.ask("start=0"), clip_server.ask("start=0"):  # they take nothing
        (tmp_path / "clip.mp4").write_bytes(clip_server.get("start=0.5&duration=1"))
    shown = decode(tmp_path / "clip.mp4", (160, 120))
    whole = decode(tmp_path / "noise.mp4", (160, 120))
    assert len(shown) == 30
    assert np.abs(255 - shown.astype(int) - whole[15:45]).mean() < 20


def test_example_clip_server_starts_clips_of_a_variable_rate_at_0(tmp_path: Path) -> None:
    with penstock.Encoder(tmp_path / "varying.mkv", fps=None, preset="ultrafast") as encoder:
        for time_s in (0, 0.1, 0.5, 0.6, 1.0, 1.5):
            encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=time_s)
    server = ClipServer(tmp_path / "varying.mkv")
    try:
        (tmp_path / "clip.mp4").write_bytes(server.get("start=0.5&duration=0.6"))
    finally:
        server.process.kill()
        server.process.communicate()
    with penstock.Decoder(tmp_path / "clip.mp4") as decoder:
        assert decoder.times_s.tolist() == pytest.approx([0, 0.1, 0.5], abs=1e-3)


@pytest.mark.parametrize("query", ["start=x", "start=100", "begin=0", "duration=-1"])
def test_example_clip_server_refuses_what_it_cannot_answer(clip_server: ClipServer, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        clip_server.get(query)
    assert refused.value.code == 400 and refused.value.read()
    assert len(clip_server.get("duration=0.1")) > 1000
