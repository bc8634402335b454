"""Which FFmpeg program does what every FFmpeg is known to do: the one that starts sooner, whoever asks for it."""

from __future__ import annotations

import os
import re
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.command_line import run
from support.processes import script

import penstock
from penstock import Decoder, Encoder
from penstock.rendering import Plan, assemble, plan, render_chunk
from penstock.video import EncoderSettings

SIZE = (96, 64)
FRAME = np.full((64, 96, 3), 90, np.uint8)
Started = Callable[[], list[str]]


def scene(index: int, time_s: float, view: npt.NDArray[np.uint8]) -> None:
    view[:] = 8 * index + 1


@pytest.fixture
def wheel() -> str:
    return str(pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe())


@pytest.fixture
def source(tmp_path: Path, wheel: str) -> str:
    """A video with audio."""
    sound, video = tmp_path / "sound.wav", tmp_path / "source.mp4"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", "NONE"))
        file.writeframes(bytes(2 * 19_200))
    penstock.write_video(video, [FRAME] * 12, 30, audio=sound, settings=EncoderSettings(ffmpeg=wheel))
    return str(video)


@pytest.fixture
def started(tmp_path: Path, wheel: str, source: str, monkeypatch: pytest.MonkeyPatch) -> Started:
    """Returns each start of the FFmpeg on PATH, which has another version than the wheel's. Nobody names a program."""
    calls, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    script(
        folder / "ffmpeg",
        f"echo \"$*\" >> '{calls}'",
        "case \"$*\" in *-version*) echo 'ffmpeg version 6.6.6'; exit;; esac",
        f"exec '{wheel}' \"$@\"",
    )
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("PENSTOCK_FFMPEG", raising=False)
    return lambda: calls.read_text().splitlines() if calls.exists() else []


def by_like(source: str, output: Path) -> None:
    with Decoder(source) as decoder, Encoder.like(decoder, output) as encoder:
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)


def by_convert(source: str, output: Path) -> None:
    assert run("convert", source, output).returncode == 0


def by_encode(source: str, output: Path) -> None:
    done = run("encode", output, "--size", "96x64", "--fps", 30, "--audio", source, data=FRAME.tobytes() * 12)
    assert done.returncode == 0, done.stderr


def by_render(source: str, output: Path) -> None:
    penstock.render(scene, output, frames=12, size=SIZE, fps=30, workers=1, chunk_frames=4, audio=source)


def by_map(source: str, output: Path) -> None:
    penstock.map_video(None, source, output, workers=1)


@pytest.mark.parametrize("way", [by_like, by_convert, by_encode, by_render, by_map])
def test_the_wheels_ffmpeg_alone_makes_listed_pairs_whoever_asks(
    tmp_path: Path, source: str, started: Started, way: Callable[[str, Path], None]
) -> None:
    way(source, tmp_path / "output.mp4")
    assert not started()
    with Decoder(tmp_path / "output.mp4") as decoder:
        assert len(list(decoder)) == 12
        assert decoder.file.audio


@pytest.mark.parametrize("way", [by_like, by_convert, by_encode, by_render, by_map])
def test_the_ffmpeg_that_the_environment_names_makes_them_whoever_asks(
    tmp_path: Path,
    source: str,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[str, Path], None],
) -> None:
    monkeypatch.setenv("PENSTOCK_FFMPEG", "ffmpeg")
    way(source, tmp_path / "output.mp4")
    assert any("-version" not in one for one in started())


def test_the_ffmpeg_on_path_is_taken_if_that_of_the_wheel_does_not_run_here(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel's needs a loader where Debian has it, and glibc 2.28."""
    folder = tmp_path / "packages" / "imageio_ffmpeg"
    (folder / "binaries").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "binaries" / "ffmpeg-linux-x86_64-v9.0.2").write_text("#!/no/loader\n")
    (folder / "binaries" / "ffmpeg-linux-x86_64-v9.0.2").chmod(0o755)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, "imageio_ffmpeg")
    assert penstock.write_video(tmp_path / "output.mp4", [FRAME] * 3, 30).frames_encoded == 3
    assert started()


def test_a_render_that_the_ffmpeg_on_path_plans_stays_with_it(tmp_path: Path, started: Started) -> None:
    """Filters differ between builds. Chunks of MP4 without one would be a listed pair."""
    penstock.render(
        scene,
        tmp_path / "output.mp4",
        frames=12,
        size=SIZE,
        fps=30,
        workers=1,
        encoder_options={"options": {"vf": "hflip"}},
    )
    assert sum("pipe:0" in one or "-i" in one for one in started()) >= 2  # a chunk, and the join


def test_a_plan_names_no_path_and_runs_by_the_program_of_its_version(
    tmp_path: Path, wheel: str, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(scene, tmp_path / "output.mp4", frames=12, size=SIZE, fps=30, workers=2)
    text = planned.to_json()
    assert wheel not in text and planned.program == wheel
    there = Plan.from_json(text)
    for number in range(len(there.chunks)):
        render_chunk(there, number)
    assemble(there)
    assert not started()
    monkeypatch.setattr(
        "penstock._ffmpeg.program.capabilities._OLDEST_IN_WHEEL", (99,)
    )  # a machine without that wheel
    with pytest.raises(ValueError, match=re.escape(there.ffmpeg)):
        render_chunk(there, 0)
