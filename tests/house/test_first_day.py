"""Mistakes of a first day get a message that names the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock import Decoder, Encoder, FanOut, FFmpegWarning, Pipeline, render
from penstock._common.keywords import explains
from penstock.video import AudioTrack

SIZE = (64, 48)


class DrawsWithoutTime:
    def __call__(self, index: int, view: object) -> None: ...


@pytest.mark.parametrize("scene", [lambda index: None, DrawsWithoutTime])
def test_a_scene_of_other_arguments_is_refused_before_workers_start(tmp_path: Path, scene: object) -> None:
    with pytest.raises(TypeError, match="time_s"):
        render(scene, tmp_path / "a.mp4", frames=4, fps=30, size=SIZE)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: Encoder("a.mp4", 30), "Pass fps=30"),  # type: ignore[call-arg, misc]
        (lambda: Encoder("a.mp4", fps=30, bitrate=4_000_000), "b:v"),  # type: ignore[call-arg]
        (lambda: Encoder("a.mp4", fps=30, title="A"), "metadata="),  # type: ignore[call-arg]
        (lambda: Decoder("a.mp4", width=64), "size="),  # type: ignore[call-arg]
        (lambda: FanOut([], when_full="drop"), r"add\("),  # type: ignore[call-arg]
    ],
)
def test_an_argument_of_another_library_is_told_what_to_pass(call: Callable[[], object], remedy: str) -> None:
    with pytest.raises(TypeError, match=f"argument.*{remedy}"):
        call()


def test_a_call_is_compared_with_the_signature_and_errors_inside_of_it_are_left_alone() -> None:
    class Fails:
        @explains("another", bitrate="nothing", own="nothing")
        def __init__(self, *, own: int = 0) -> None:
            raise TypeError("takes 1 positional argument: got an unexpected keyword argument 'bitrate'")

    with pytest.raises(TypeError, match=r"'bitrate'$"):
        Fails(own=1)
    with pytest.raises(TypeError, match="'other'"):
        Fails(other=1)  # type: ignore[call-arg]


def test_a_list_of_paths_is_no_list_of_buffers() -> None:
    with pytest.raises(TypeError, match=r"Source\.files"):
        Pipeline([Path("a.z"), Path("b.z")])  # type: ignore[list-item]


def test_lossless_frames_without_a_size_are_warned_of_only_as_they_are_written(tmp_path: Path) -> None:
    with Encoder(tmp_path / "a.mkv", fps=30, pixel_format="gray16le", quality="lossless") as encoder:
        encoder.write(np.full((48, 64), 1234, np.uint16))
    assert encoder.report is not None and encoder.report.warnings == () and encoder.report.codec == "ffv1"


def test_lossless_floats_are_sent_to_images(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.exr"):
        Encoder(tmp_path / "a.mkv", fps=30, size=SIZE, pixel_format="gbrpf32le", quality="lossless")


@pytest.mark.parametrize(("codec", "loud"), [("aac", 1), ("pcm_f32le", 0)])
def test_audio_that_codecs_clip_is_warned_of_beside_frames(tmp_path: Path, codec: str, loud: int) -> None:
    track = AudioTrack(8000, 1, codec=codec)
    with (
        pytest.warns(FFmpegWarning, match="samples"),
        Encoder(tmp_path / "a.mkv", fps=10, size=SIZE, audio=track, value_range=(0, 1)) as encoder,
    ):
        encoder.write(np.full((48, 64, 3), 2.0, np.float32))
        encoder.write_audio(np.full(800, 5.0))
    assert encoder.report is not None
    outside = [one for one in encoder.report.warnings if "outside" in one]
    assert len(outside) == 1 + loud and "value_range" in outside[0]


def test_a_thread_that_the_system_refuses_leaves_no_trial_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = np.zeros((46, 62, 3), np.uint8)  # a size that no other test has tried
    with Encoder(tmp_path / "a.avi", fps=25, codec="mpeg4") as encoder:
        with monkeypatch.context() as patched, pytest.raises(RuntimeError):
            patched.setattr("penstock._encoding.rehearsal.Thread.start", refuse)
            encoder.write(frame)
        encoder.write(frame, timeout=60)
    assert encoder.report is not None and encoder.report.frames_encoded == 1


def refuse(_thread: object) -> None:
    raise RuntimeError("can't start new thread")
