"""The rehearsal: whatever no list knows is tried with four frames before the first real one, and read back."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import a_few, needs
from support.processes import script

from penstock import AudioDecoder, Decoder, Encoder, EncoderError, FFmpegWarning, StalledError, probe
from penstock._encoding import rehearsal
from penstock._encoding.plan import plan
from penstock._encoding.request import Request
from penstock._formats import containers
from penstock.video import AudioTrack, Colors, EncoderSettings

SIZE = (160, 120)
ENDINGS = {"gif": "gif", "matroska": "mkv", "mov": "mov", "mp4": "mp4", "webm": "webm"}
SOUND_ENCODERS = {"mp3": "libmp3lame", "opus": "libopus"}
PAIRS = [(name, codec) for name in ENDINGS for codec in containers.known(name).listed]
SOUNDS = [(name, codec) for name in ENDINGS for codec in containers.known(name).listed_audio]


def verdict(output: Path, ffmpeg: str, **arguments: Any) -> rehearsal.Verdict:
    made = plan(Request(output, settings=EncoderSettings(ffmpeg=ffmpeg), **arguments), None)
    return rehearsal.rehearse(made, (66, 66))


@pytest.mark.parametrize(
    ("container", "codec", "fps"),
    a_few(((*pair, fps) for pair in PAIRS for fps in (25, Fraction(30000, 1001), None)), 2),
)
def test_listed_pair_reads_back_unchanged(
    tmp_path: Path, ffmpeg: str, container: str, codec: str, fps: Fraction | None
) -> None:
    needs(ffmpeg, codec)
    for colors in (Colors(), Colors(matrix="bt2020", primaries="bt2020", transfer="smpte2084")):
        if codec != "gif" or colors == Colors():
            found = verdict(tmp_path / f"a.{ENDINGS[container]}", ffmpeg, codec=codec, fps=fps, colors=colors)
            assert found.is_clean, found


@pytest.mark.parametrize(("container", "codec"), SOUNDS)
def test_listed_audio_reads_back_unchanged(tmp_path: Path, ffmpeg: str, container: str, codec: str) -> None:
    track = AudioTrack(48_000, 2, dtype="int16", codec=SOUND_ENCODERS.get(codec, codec))
    path = tmp_path / f"a.{ENDINGS[container]}"
    assert verdict(path, ffmpeg, codec=containers.known(container).listed[0], fps=25, audio=track).is_clean


@pytest.mark.parametrize("ending", ["avi", "flv", "nut", "ts"])
def test_picture_is_at_most_a_frame_away_from_the_sound(tmp_path: Path, ending: str) -> None:
    path, fps, sample_rate = tmp_path / f"a.{ending}", 25, 48_000
    with Encoder(path, fps=fps, size=SIZE, audio=AudioTrack(sample_rate, 1)) as encoder:
        for number in range(30):
            encoder.write(np.full((SIZE[1], SIZE[0], 3), 255 * (number == 10), np.uint8))
            encoder.write_audio(np.full((sample_rate // fps, 1), 0.5 * (number == 10), np.float32))
    with Decoder(path) as decoder, AudioDecoder(path) as audio:
        flash_s = max((int(frame.mean()), frame.time_s or 0.0) for frame in decoder)[1]
        loud = np.flatnonzero(np.abs(np.concatenate(list(audio))) > 0.25)
    found = probe(path)
    click_s = (found.audio[0].start_s or 0.0) - found.zero_s + loud[0] / sample_rate
    assert abs(flash_s - click_s) <= 1 / fps


@pytest.fixture
def counted(tmp_path: Path, ffmpeg: str) -> EncoderSettings:
    """An FFmpeg that writes its arguments to the file ``runs``."""
    runs = shlex.quote(str(tmp_path / "runs"))
    return EncoderSettings(
        ffmpeg=str(script(tmp_path / "ffmpeg", f'echo "$*" >> {runs}', f'exec {shlex.quote(ffmpeg)} "$@"'))
    )


def encodes(folder: Path) -> int:
    """How often FFmpeg was started to encode."""
    return (folder / "runs").read_text().count("pipe:0")


def write(output: Path, **arguments: Any) -> Encoder:
    with Encoder(output, **{"fps": 25, "size": SIZE, **arguments}) as encoder:
        for number in range(3):
            time_s = None if encoder_fps(arguments) else number / 10
            encoder.write(np.full((SIZE[1], SIZE[0], 3), 40 * number, np.uint8), time_s=time_s)
    return encoder


def encoder_fps(arguments: dict[str, Any]) -> object:
    return arguments.get("fps", 25)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"fps": None},
        {"crf": 20, "preset": "veryfast", "options": {"tune": "film", "g": 30, "movflags": "+faststart"}},
        {"quality": "draft"},
    ],
    ids=str,
)
def test_usual_encode_starts_ffmpeg_only_once(
    tmp_path: Path, counted: EncoderSettings, arguments: dict[str, Any]
) -> None:
    write(tmp_path / "a.mp4", settings=counted, **arguments)
    assert encodes(tmp_path) == 1


def test_unlisted_combination_is_rehearsed_once_per_process(tmp_path: Path, counted: EncoderSettings) -> None:
    for name in ("a.ts", "b.ts"):
        write(tmp_path / name, settings=counted)
    assert encodes(tmp_path) == 3
    write(tmp_path / "c.ts", settings=counted, options={"bf": 0})
    assert encodes(tmp_path) == 5


@pytest.mark.parametrize(
    "options", [{"stats": ""}, {"x264-params": "stats=/dev/null"}, {"f": "segment"}], ids=str
)
def test_options_that_name_files_are_not_rehearsed(
    tmp_path: Path, counted: EncoderSettings, options: dict[str, object]
) -> None:
    with Encoder(tmp_path / "a%d.mp4", fps=25, size=SIZE, settings=counted, options=options) as encoder:
        encoder.abort()
    assert not (tmp_path / "runs").exists() or encodes(tmp_path) <= 1


def test_colors_that_a_codec_cannot_store_match_what_readers_assume(tmp_path: Path) -> None:
    picture = np.full((720, 1280, 3), (30, 200, 60), np.uint8)
    with Encoder(tmp_path / "a.ogv", fps=25) as encoder:
        encoder.write(picture)
    with Decoder(tmp_path / "a.ogv") as decoder:
        assert np.abs(np.asarray(decoder[0], float) - picture).max() < 12
    with pytest.raises(ValueError):
        Encoder(tmp_path / "a.ogv", fps=25, size=(1280, 720), colors=Colors(matrix="bt709"))


def test_an_encoder_of_large_pictures_is_tried_at_their_size(tmp_path: Path, ffmpeg: str) -> None:
    """H.261 has two sizes."""
    Encoder(tmp_path / "a.mov", fps=25, size=(352, 288), codec="h261").abort()
    with pytest.raises(EncoderError):
        Encoder(tmp_path / "a.mov", fps=25, size=(640, 480), codec="h261")


def test_a_first_write_waits_for_the_rehearsal_within_its_timeout(tmp_path: Path, ffmpeg: str) -> None:
    slow = script(tmp_path / "ffmpeg", "sleep 1", f'exec {shlex.quote(ffmpeg)} "$@"')
    frame = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    with Encoder(tmp_path / "a.ts", fps=25, settings=EncoderSettings(ffmpeg=slow)) as encoder:
        with pytest.raises(StalledError):
            encoder.write(frame, timeout=0.1)
        assert encoder.frames_submitted == 0
        for _ in range(100):  # it goes on, and does not begin again
            with suppress(StalledError):
                encoder.write(frame, timeout=0.1)
                break
    assert encoder.report is not None and encoder.report.frames_encoded == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"vflip": True},
        {"pixel_format": "yuv420p", "size": (63, 61), "odd_size": "pad", "codec": "ffv1"},
        {"options": {"vf": "hflip"}},
        {"pixel_format": "bgr0"},
    ],
    ids=str,
)
def test_lossless_is_judged_by_samples_and_not_by_chroma_location(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    Encoder(tmp_path / "a.mkv", **{"fps": 25, "size": SIZE, "quality": "lossless", **arguments}).abort()


def test_source_colors_that_a_file_cannot_store_warn(tmp_path: Path) -> None:
    write(tmp_path / "in.mp4", colors=Colors(matrix="bt709"))
    with Decoder(tmp_path / "in.mp4") as decoder:
        with pytest.warns(FFmpegWarning, match="matrix"):
            encoder = Encoder.like(decoder, tmp_path / "a.avi", codec="mpeg4")
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
        encoder.close()
    assert encoder.report is not None and encoder.report.frames_encoded == 3
    # Nor are frames of the full range refused for a remedy that contradicts them.
    with pytest.warns(FFmpegWarning, match="range"):
        Encoder(tmp_path / "a.avi", fps=25, size=SIZE, pixel_format="yuvj420p", codec="mpeg4").abort()


def test_a_rehearsal_that_has_no_place_for_its_file_is_a_warning_and_done_later(
    tmp_path: Path, counted: EncoderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"settings": counted, "options": {"bf": 1}}
    with monkeypatch.context() as without:
        without.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        with pytest.warns(FFmpegWarning):
            write(tmp_path / "a.mp4", **given)
    write(tmp_path / "a.mp4", **given)
    assert encodes(tmp_path) == 3
