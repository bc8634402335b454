"""`probe` and the decoders with an FFmpeg that has no ffprobe, as in the imageio-ffmpeg wheel: the same, or None."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from clips import ALPHA_CLIPS, DAMAGED, NO_MEDIA, VIDEOS, WITHOUT_VIDEO, ZERO_FRAMES, clip
from command_line import run as command_line
from conftest import a_few, examples, ffmpegs, script, succeeded
from hypothesis import given
from hypothesis import strategies as st
from media import holdings

from penstock import Decoder, DecoderError, StalledError
from penstock.ffmpeg import AudioDecoder, find_ffmpeg, find_ffprobe, probe, probe_by_ffmpeg
from penstock.ffmpeg.runner import CapturedChild

# The function has the name of its module.
probe_module = importlib.import_module("penstock.ffmpeg.probe")

READABLE = [*VIDEOS, *ALPHA_CLIPS, *WITHOUT_VIDEO, *ZERO_FRAMES, *DAMAGED]
#: What FFmpeg alone does not tell.
UNKNOWN = {"bit_rate", "frames", "start_s"}
#: In seconds: FFmpeg rounds durations to two decimals.
ROUNDED_S = 0.0051


@pytest.fixture
def bare_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's FFmpeg in a folder of its own. There is no ffprobe beside it or on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    # Its own PATH, for it may be a script.
    lines = (f"PATH='{Path(sys.executable).parent}:/usr/bin:/bin'", f'exec {find_ffmpeg()} "$@"')
    monkeypatch.delenv("PENSTOCK_FFPROBE", raising=False)
    monkeypatch.delenv("PENSTOCK_FFMPEG", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    return script(folder / "ffmpeg", *lines)


def compare(ours: Any, theirs: Any) -> None:
    """Asserts that each field without ffprobe is the one with it, or None where that is allowed."""
    for field in fields(ours):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name in ("video", "audio"):
            assert len(one) == len(other)
            for stream, same in zip(one, other, strict=True):
                compare(stream, same)
        elif field.name == "duration_s":
            # A stream without a duration has the file's.
            assert one == (other or None) or abs(one - other) < ROUNDED_S
        elif field.name in UNKNOWN or (field.name == "profile" and str(other).isdecimal()):
            assert one in (None, other), field.name
        else:
            assert one == other, field.name


@pytest.mark.parametrize("name", a_few(READABLE, 8))
def test_each_fact_is_ffprobes_or_none(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = probe(clip(name))
    request.getfixturevalue("bare_ffmpeg")
    with pytest.raises(DecoderError, match="no ffprobe"):
        find_ffprobe()
    compare(probe(expected.path), expected)


@pytest.mark.parametrize("name", ["h264", "zero_frames_avi", "cut_mp4", "several_videos", "video_and_cover"])
def test_frames_are_counted(name: str, request: pytest.FixtureRequest) -> None:
    path = clip(name)
    expected = [video.frames for video in probe(path, count_frames=True).video]
    request.getfixturevalue("bare_ffmpeg")
    for one, other in zip(probe(path, count_frames=True).video, expected, strict=True):
        assert one.frames in (other, None if other == 0 else other)


@pytest.mark.parametrize("name", NO_MEDIA)
def test_what_is_no_media_file(name: str, request: pytest.FixtureRequest) -> None:
    path = clip(name)
    ffmpeg = request.getfixturevalue("bare_ffmpeg")
    with pytest.raises(DecoderError) as caught:
        probe(path)
    words = {"empty": "is empty, and not a media file", "text_txt": "is text, and not a media file"}
    assert words.get(name, "is not a media file that FFmpeg knows, or it is damaged: ") in str(caught.value)
    assert caught.value.command[0] == str(ffmpeg)


@pytest.mark.parametrize(
    "name",
    a_few(
        [
            *("audio_aac", "h264", "h264_mkv", "h264_ts", "starts_late_ts", "rotated_90", "variable_mkv"),
            *("vp9_alpha", "cut_mkv", "fragmented", "one_frame", "gif", "cut_mp4", "corrupt_mkv"),
        ]
    ),
)
def test_a_decoder_gives_the_same_frames_times_and_errors(name: str, request: pytest.FixtureRequest) -> None:
    path = clip(name)

    def outcome() -> tuple[list[tuple[int, int | None, float | None]], str | None]:
        frames = []
        try:
            with Decoder(path) as decoder:
                for frame in decoder:
                    frames.append((frame.index, frame.pts, frame.time_s))
        except DecoderError as error:
            return frames, str(error).splitlines()[0]
        return frames, None

    expected = outcome()
    request.getfixturevalue("bare_ffmpeg")
    found = outcome()
    # How many frames of a damaged file come varies with FFmpeg's threads.
    assert (found[1] is None, len(found[0]) > 0) == (expected[1] is None, True)
    if expected[1] is None:
        assert found == expected
    assert (expected[1] is not None) == (name in ("cut_mp4", "cut_mkv", "corrupt_mkv"))


def test_sound_is_decoded(request: pytest.FixtureRequest) -> None:
    path = clip("audio_flac_51")
    expected = AudioDecoder(path).read_all()
    request.getfixturevalue("bare_ffmpeg")
    with AudioDecoder(path) as decoder:
        assert decoder.channels == 6
        assert (decoder.read_all() == expected).all()


def test_start_is_exact(request: pytest.FixtureRequest) -> None:
    path = clip("starts_late_ts")
    with Decoder(path, start=0.5) as decoder:
        expected = [frame.time_s for frame in decoder]
    request.getfixturevalue("bare_ffmpeg")
    with Decoder(path, start=0.5) as decoder:
        assert [frame.time_s for frame in decoder] == expected


@pytest.mark.parametrize(
    "name", ["é\n.mp4", "x':\n  Duration: 00:00:09.00, start: 1.000000", "-", "50%d.mp4"]
)
def test_names_are_taken_literally(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    expected = probe(clip("h264"))
    path = tmp_path / name
    shutil.copy(expected.path, path)
    request.getfixturevalue("bare_ffmpeg")
    found = probe(path)
    assert found.video[0].time_base == expected.video[0].time_base
    assert found.size_bytes == expected.size_bytes
    if ":\n" not in name:
        assert (found.duration_s, found.start_s) == (1.2, 0)


def test_a_playlist_is_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = tmp_path / "list.mp4"
    path.write_text(f"ffconcat version 1.0\nfile '{clip('h264')}'\n")
    request.getfixturevalue("bare_ffmpeg")
    with pytest.raises(DecoderError, match="is a playlist"):
        probe(path)


def test_tags(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tags = {"title": "a : b", "artist": "two\nlines", "comment": "c" * 255, "genre": "ü" * 20}
    path = tmp_path / "tagged.mkv"
    given = [word for name, value in tags.items() for word in ("-metadata", f"{name}={value}")]
    command = [find_ffmpeg(), "-v", "error", "-i", clip("h264"), "-c", "copy", *given, path]
    subprocess.run(command, check=True)
    request.getfixturevalue("bare_ffmpeg")
    found = {name.lower(): value for name, value in probe(path).tags.items()}
    assert {name: found.get(name) for name in tags} == {**tags, "comment": None}


def test_a_program_that_is_no_ffmpeg(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = clip("h264")
    program = request.getfixturevalue("bare_ffmpeg")
    script(program, "exit 0")
    with pytest.raises(DecoderError, match=r"did not tell what .*: is it ffprobe or FFmpeg\?"):
        probe(path)


def test_one_that_does_not_end_is_killed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    request.getfixturevalue("bare_ffmpeg")
    before = holdings()
    with pytest.raises(StalledError, match=r"ffmpeg did not end within 0\.3 s"):
        probe(tmp_path / "fifo", timeout=0.3)
    assert holdings() == before


@pytest.mark.parametrize(
    ("printed", "rate"),
    [
        *(("25", "25"), ("29.97", "30000/1001"), ("23.98", "24000/1001"), ("59.94", "60000/1001")),
        *(
            ("8.33", "25/3"),
            ("12.50", "25/2"),
            ("90k", "90000"),
            ("14112000.00", "14112000"),
            ("29.81", "2981/100"),
        ),
    ],
)
def test_rates(printed: str, rate: str) -> None:
    assert str(probe_by_ffmpeg._exact_rate(printed)) == rate


def test_the_command_line(request: pytest.FixtureRequest) -> None:
    path = clip("audio_aac")
    request.getfixturevalue("bare_ffmpeg")
    done = command_line("probe", path)
    assert b"h264" in succeeded(done) and b"stereo" in done.stdout


@pytest.mark.skipif(len(ffmpegs()) < 2, reason="the imageio-ffmpeg wheel is not installed")
def test_the_wheels_ffmpeg(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clip("rotated_90")
    expected = probe(path)
    request.getfixturevalue("bare_ffmpeg").unlink()
    compare(probe(path), expected)
    with Decoder(path) as decoder:
        assert len(list(decoder)) == 30


REPORT = """Input #0, matroska,webm, from 'file:x':
  Metadata:
    title           : a
  Duration: 00:00:01.20, start: 0.000000, bitrate: 33 kb/s
  Stream #0:0[0x1](und): Video: h264 (High) (avc1 / 0x31), yuv420p(10 bpc, tv, bt709, top first), 64x48, 90k tbn
    Metadata:
      alpha_mode      : 1
    Side data:
      Display Matrix: rotation of -90.00 degrees
  Stream #0:1: Audio: flac, 44100 Hz, 2 channels, s32 (24 bit)
Stream mapping:
#tb 0: 1/90000
#tb 1: 1/44100
0, 0, 0, 3600, 100, 0x84b48985, F=0x4
"""
PIECES = [
    "0",
    "9" * 5000,
    "-1",
    "²",
    "(",
    ")",
    ": ",
    ", ",
    "\n",
    "1/0",
    "N/A",
    "k",
    "x",
    "[",
    " Stream #0:7: Video: ",
]


@examples(200)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(REPORT)),
            st.integers(0, 20),
            st.one_of(st.sampled_from(PIECES), st.text(max_size=9)),
        )
    )
)
def test_whatever_ffmpeg_prints_is_a_record_or_an_error(changes: list[tuple[int, int, str]]) -> None:
    text = REPORT
    for place, length, piece in changes:
        text = text[:place] + piece + text[place + length :]
    child = CapturedChild(("/missing/ffmpeg",))
    child.returncode = 0
    child.stdout.extend(text.encode(errors="replace"))
    child._take_stderr(text.encode(errors="replace"))
    # As `probe` does.
    with contextlib.suppress(DecoderError), probe_module._readable("x", "ffmpeg"):
        if "format_name" in (answer := probe_by_ffmpeg.parse_packets(child)).get("format", {}):
            info = probe_module.media_info("x", "ffmpeg", answer, is_counted=False)
            assert changes or (info.video[0].rotation, info.audio[0].channels) == (90, 2)
