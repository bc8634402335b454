"""Every example runs as its users run it, small, and its video is decoded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.clips import clip
from support.media import decode, ffmpeg, no_opengl, no_wgpu

import penstock
from penstock import AudioDecoder, probe

EXAMPLES = Path(__file__).parent.parent / "examples"
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
