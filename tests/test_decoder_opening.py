"""The `Decoder` on ordinary files, which one FFmpeg opens and decodes: the same as with an ffprobe before it."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from clips import DAMAGED, NO_MEDIA, VIDEOS, WITHOUT_VIDEO, clip
from conftest import script
from media import children, ffmpeg, nothing_is_left  # noqa: F401

from penstock import Decoder, DecoderError, FFmpegWarning
from penstock.ffmpeg import Tuning, VideoInfo, find_ffmpeg, find_ffprobe, probe

#: Clips whose beginning says that they are QuickTime, MP4 or Matroska, and which need nothing special.
ORDINARY = [
    "h264",
    "h264_mkv",
    "h264_10bit",
    "vp9",
    "prores",
    "rotated_90",
    "variable_mp4",
    "variable_mkv",
    "bt2020",
]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each run of ffprobe and FFmpeg."""
    noted = tmp_path / "runs"
    noted.touch()
    for name, program in (("FFMPEG", find_ffmpeg()), ("FFPROBE", find_ffprobe())):
        noting = script(tmp_path / name.lower(), f'echo {name} >> {noted}; exec {program} "$@"')
        monkeypatch.setenv(f"PENSTOCK_{name}", str(noting))
    return noted


def otherwise(path: Path, tmp_path: Path) -> Path:
    """The same file by a name with a no-break space, for which ffprobe is asked first."""
    other = tmp_path / f"no\u00a0break{path.suffix}"
    shutil.copy(path, other)
    return other


def decoded(path: Path, **options: object) -> tuple[np.ndarray, list[object], VideoInfo, object]:
    with Decoder(path, **options) as decoder:  # type: ignore[arg-type]
        frames = list(decoder)
        layout = decoder.shape, decoder.dtype, decoder.pixel_format, decoder.converted_by
        return np.stack(frames), [(one.index, one.pts, one.time_s) for one in frames], decoder.info, layout


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_file_takes_one_process(name: str, runs: Path) -> None:
    path = clip(name)
    Decoder(path).close()  # another FFmpeg than 5 to 7 needs a second one once, to learn of its options
    runs.write_text("")
    with Decoder(path) as decoder:
        frames = list(decoder)
    assert frames and runs.read_text().split() == ["FFMPEG"]
    assert decoder.info == probe(path).best_video
    assert runs.read_text().split() == ["FFMPEG", "FFPROBE", "FFPROBE"]


OPTIONS: list[dict[str, object]] = [
    {"count": 3},
    {"start": 0.2},
    {"pixel_format": None},
    {"size": (32, None)},
]


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in VIDEOS] + [(name, options) for name in ORDINARY for options in OPTIONS],
)
def test_frames_times_and_facts_are_the_same(name: str, options: dict[str, object], tmp_path: Path) -> None:
    path = clip(name)
    if path.suffix not in (".mp4", ".mov", ".mkv", ".webm"):
        pytest.skip("ffprobe is asked first in any case")
    ours, theirs = (decoded(one, **options) for one in (path, otherwise(path, tmp_path)))
    assert np.array_equal(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]


@pytest.mark.parametrize("name", [*DAMAGED, *NO_MEDIA, *WITHOUT_VIDEO])
def test_errors_are_the_same(name: str, tmp_path: Path) -> None:
    path = clip(name)
    outcomes = []
    for one in (path, otherwise(path, tmp_path)):
        frames = 0
        try:
            with Decoder(one) as decoder:
                for _ in decoder:
                    frames += 1
            outcomes.append((frames, ""))
        except DecoderError as error:
            outcomes.append((frames, str(error.reason).replace(str(one), "")))
    if name.startswith("corrupt"):  # FFmpeg's threads may or may not get one frame further
        outcomes = [(0, reason and "damaged") for _, reason in outcomes]
    assert outcomes[0] == outcomes[1]


def test_facts_after_the_file_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    shutil.copy(clip("h264"), path)
    told = probe(path)
    with Decoder(path) as decoder:
        path.unlink()
        info, media = decoder.info, decoder.media
        assert len(list(decoder)) == told.video[0].frames
    assert (info.codec, info.width, info.height, info.time_base) == ("h264", 64, 48, told.video[0].time_base)
    assert info.bit_rate is None and info.frames == 30 and media.container_name == told.container_name
    assert info.duration_s == pytest.approx(told.duration_s, abs=0.0051)


def test_facts_of_another_file_are_not_told(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    shutil.copy(clip("h264"), path)
    with Decoder(path) as decoder:
        path.unlink()
        shutil.copy(clip("h264_large"), path)
        assert (decoder.info.width, decoder.info.height) == decoder.size == (64, 48)
        assert (decoder.info.frames, len(decoder)) == (30, 30)


def test_a_header_with_a_wrong_number_of_frames_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    data = bytearray(clip("h264").read_bytes())
    at = data.index(b"stts") + 8
    entries, count = struct.unpack_from(">II", data, at)
    assert (entries, count) == (1, 30)
    struct.pack_into(">I", data, at + 4, 31)
    path.write_bytes(data)
    assert probe(path).video[0].frames == 31
    with Decoder(path) as decoder, pytest.warns(FFmpegWarning, match="says 31 frames, and it has 30"):
        assert len(list(decoder)) == 30


def test_a_file_that_only_looks_like_one(tmp_path: Path) -> None:
    """A picture whose comment is where an MP4 file has the name of its first box."""
    path = tmp_path / "picture.ppm"
    path.write_bytes(b"P6\n#skip\n64 48\n255\n" + bytes(64 * 48 * 3))
    with Decoder(path) as decoder:
        assert len(list(decoder)) == 1 and decoder.media.container == "ppm_pipe"


def test_the_second_of_two_videos(tmp_path: Path) -> None:
    path = tmp_path / "two.mkv"
    inputs = [word for name in ("h264", "h264_large") for word in ("-i", clip(name))]
    mapped = [
        "-map",
        "0:v",
        "-map",
        "1:v",
        "-c",
        "copy",
        "-disposition:v:0",
        "0",
        "-disposition:v:1",
        "default",
    ]
    ffmpeg(*inputs, *mapped, path)
    for stream, size in ((None, (322, 182)), (0, (64, 48)), (1, (322, 182))):
        with Decoder(path, stream=stream) as decoder:
            assert decoder.size == size and decoder.read() is not None
    with pytest.raises(ValueError, match="2 streams of video"):
        Decoder(path, stream=2)


def test_an_ffmpeg_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens no file within the patience for it, and is asked for nothing more."""
    monkeypatch.setattr("penstock.ffmpeg.opening._PATIENCE_S", 0.2)
    program = script(
        tmp_path / "ffmpeg",
        f'case "$*" in *pipe:1*untile*|*-filter:v*) exec {find_ffmpeg()} "$@";; esac; sleep 60',
    )
    with Decoder(clip("h264"), tuning=Tuning(ffmpeg=program, ffprobe=find_ffprobe())) as decoder:
        assert len(list(decoder)) == 30


@pytest.mark.parametrize("options", [{"size": (0, 4)}, {"pixel_format": "no_such"}, {"filters": 3}])
def test_nothing_is_left_of_a_decode_that_cannot_be(options: dict[str, object]) -> None:
    before = children()
    with pytest.raises((ValueError, TypeError, DecoderError)):
        Decoder(clip("h264"), **options)  # type: ignore[arg-type]
    assert children() == before


def test_a_report_that_the_user_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report"
    monkeypatch.setitem(os.environ, "FFREPORT", f"file={report}:level=32")
    with Decoder(clip("h264")) as decoder:
        assert len(list(decoder)) == 30
    assert b"Input #0" in report.read_bytes()
