"""The `Encoder` with several outputs: FFmpeg's muxer ``tee`` goes on and exits with 0 when one of them fails."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from support.media import decode, flat, make

from penstock import Encoder, EncoderError, FFmpegWarning
from penstock._ffmpeg.command import endpoints
from penstock.video import EncoderSettings

FRAMES = 20


def encode(ffmpeg: str, outputs: str) -> Encoder:
    options = {"f": "tee", "map": "0:v", "flags": "+global_header", "preset": "ultrafast"}
    with make(outputs, options=options, settings=EncoderSettings(ffmpeg=ffmpeg)) as encoder:
        for index in range(FRAMES):
            encoder.write(flat(index))
    return encoder


def test_smoke(tmp_path: Path, ffmpeg: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = encode(ffmpeg, f"{tmp_path.as_posix()}/a.mkv|[onfail=ignore]{tmp_path.as_posix()}/b.mp4")
    assert encoder.report is not None and encoder.report.warnings == ()
    assert len(decode(tmp_path / "a.mkv")) == len(decode(tmp_path / "b.mp4")) == FRAMES


@pytest.mark.parametrize(
    ("output", "why", "is_last"),
    [
        ("[f=mp4]{}/missing/b.mp4", "No such file or directory", False),
        ("{}/missing/b.mp4", "No such file or directory", True),
        # Fails only at the end, when FFmpeg empties its buffer.
        pytest.param(
            *("[f=mpegts]/dev/full", "No space left on device", False),
            marks=pytest.mark.linux("files in /dev"),
        ),
        ("[f=mp4:no_such_option=1]{}/b.mp4", "Option not found", True),
    ],
)
def test_failed_output_raises_and_is_named(
    tmp_path: Path, ffmpeg: str, output: str, why: str, is_last: bool
) -> None:
    bad, good = output.format(tmp_path.as_posix()), f"{tmp_path.as_posix()}/a.mkv"
    with pytest.raises(EncoderError) as caught:
        encode(ffmpeg, f"{good}|{bad}" if is_last else f"{bad}|{good}")
    error = caught.value
    assert error.reason.startswith(f"the output '{bad}' failed") and why in str(error)
    if error.returncode == 0:  # this FFmpeg has finished the others
        assert f"' failed: {why}. FFmpeg encoded {FRAMES} of {FRAMES} frames" in error.reason
        assert error.frames == FRAMES == len(decode(tmp_path / "a.mkv"))


def test_close_raises_the_same_error_again(tmp_path: Path) -> None:
    outputs = f"{tmp_path.as_posix()}/a.mkv|{tmp_path.as_posix()}/missing/b.mkv"
    encoder = make(outputs, options={"f": "tee", "map": "0:v", "flags": "+global_header"})
    encoder.write(flat(0))
    with pytest.raises(EncoderError) as first:
        encoder.close()
    with pytest.raises(EncoderError) as second:
        encoder.close()
    assert second.value is first.value and encoder.report is None


def test_onfail_ignore_turns_a_failed_output_into_a_warning(tmp_path: Path, ffmpeg: str) -> None:
    bad = f"[f=mp4:onfail=ignore]{tmp_path.as_posix()}/missing/b.mp4"
    with pytest.warns(FFmpegWarning) as caught:
        encoder = encode(ffmpeg, f"{tmp_path.as_posix()}/a.mkv|{bad}")
    (warning,) = (str(one.message) for one in caught)
    assert warning == f"the output '{bad}' failed: No such file or directory"
    assert encoder.report is not None and encoder.report.warnings[0] == warning
    assert len(decode(tmp_path / "a.mkv")) == FRAMES


def test_onfail_abort_ends_ffmpeg(tmp_path: Path, ffmpeg: str) -> None:
    with pytest.raises(EncoderError) as caught:
        encode(ffmpeg, f"{tmp_path.as_posix()}/a.mkv|[onfail=abort]{tmp_path.as_posix()}/missing/b.mp4")
    error = caught.value
    assert error.returncode != 0
    assert error.reason.startswith(f"the output '[onfail=abort]{tmp_path.as_posix()}/missing/b.mp4' failed")


def test_tee_outputs_are_split_as_ffmpeg_splits_them() -> None:
    for outputs, names in {
        "a.mkv|b.mp4": ["a.mkv", "b.mp4"],
        r"a\|b.mkv|c.mp4": [r"a\|b.mkv", "c.mp4"],
        "[metadata='x|y']a.mkv|b.mp4": ["[metadata='x|y']a.mkv", "b.mp4"],
        "a.mkv||b.mp4": ["a.mkv", "", "b.mp4"],
    }.items():
        assert [endpoints.tee_output(outputs, number) for number in range(len(names))] == names
        assert endpoints.tee_output(outputs, 99) == outputs


def test_only_onfail_ignore_ignores_a_failed_output() -> None:
    for ignored in ("[onfail=ignore]a.mkv", " [f=mp4:onfail=IGNORE:movflags=faststart]a.mp4"):
        assert endpoints.ignores_failure(ignored)
    for told in ("[onfail=abort]a.mkv", "a[onfail=ignore].mkv", "a.mkv"):
        assert not endpoints.ignores_failure(told)
