"""What a `Decoder` learns of a file before it decodes it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from support.cases import eventually, needs
from support.clips import clip
from support.engines import by_program
from support.media import ffmpeg
from support.media import nothing_is_left as nothing_is_left
from support.processes import script

from penstock import Decoder, DecoderError, Encoder, FFmpegWarning, probe
from penstock._facts import opening
from penstock._facts.opening import are_found, open_media
from penstock.video import DecoderSettings, EncoderSettings, find_ffmpeg


@pytest.mark.parametrize("by_link", [False, True])
def test_a_file_whose_encoder_is_open_is_not_called_damaged(tmp_path: Path, by_link: bool) -> None:
    path = name = tmp_path / "video.mp4"
    if by_link:
        (name := tmp_path / "link.mp4").symlink_to(path)
    with Encoder(path, size=(32, 32), fps=30) as encoder:
        encoder.write(bytes(32 * 32 * 3))
        assert eventually(path.exists)
        with pytest.raises(DecoderError, match="finished"):
            Decoder(name)
    with Decoder(path) as decoder:
        assert len(decoder) == 1
    path.write_bytes(b"damaged")
    with Encoder(path, size=(32, 32), fps=30) as encoder:  # which puts its file in place at the end
        encoder.write(bytes(32 * 32 * 3))
        with pytest.raises(DecoderError, match="damaged"):
            Decoder(path)


def test_a_file_takes_no_program_unless_the_program_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [clip(name) for name in ("h264", "h264_mkv", "gif", "vp9", "rotated_90")]
    runs = tmp_path / "runs"
    runs.touch()
    program = script(
        tmp_path / "ffmpeg",
        f'case "$*" in *-progress*) echo decode;; *) echo other;; esac >> {runs}; exec {find_ffmpeg()} "$@"',
    )
    monkeypatch.setenv("PENSTOCK_FFMPEG", str(program))
    assert probe(paths[0]).video[0].frames == 30 and not runs.read_text()
    for path in paths:
        with Decoder(path) as decoder:
            assert list(decoder) and decoder.stream and not runs.read_text(), path
        with Decoder(path, settings=by_program()) as decoder:
            assert list(decoder) and decoder.stream and runs.read_text().split().count("decode") == 1, path
        runs.write_text("")


@pytest.mark.linux("files that are removed while open")
def test_facts_stay_those_of_the_opened_file_after_its_name_is_reused(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    shutil.copy(clip("h264"), path)
    told = probe(path)
    with Decoder(path) as decoder:
        frames = [next(decoder)]
        path.unlink()
        shutil.copy(clip("h264_large"), path)
        info, media = decoder.stream, decoder.file
        assert decoder.size == (64, 48) and len(decoder) == 30
        frames.extend(decoder)
        assert len(frames) == told.video[0].frames
    assert (info, media) == (told.video[0], told)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-pix_fmt", "yuv420p10le"),
        ("-pix_fmt", "yuv444p"),
        ("-pix_fmt", "yuvj420p", "-color_primaries", "bt470bg", "-colorspace", "bt470bg"),
        ("-x264-params", "tff=1", "-flags", "+ildct+ilme"),
        ("-vf", "setsar=4/3"),
        ("-vf", "setpts=N*(1+gt(N\\,9))/25/TB", "-fps_mode", "vfr"),
        ("-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac"),
    ],
)
@pytest.mark.parametrize("without", [b"", b"pasp", b"colr"])
def test_facts_are_the_same_if_libav_decodes_no_frame_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], without: bytes
) -> None:
    path = tmp_path / "clip.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=1", *options, "-c:v", "libx264", path)
    path.write_bytes(path.read_bytes().replace(without or b"pasp", b"free" if without else b"pasp"))
    with open_media(f"file:{path}", decodes_first=True) as media:
        assert not are_found(media)
    frames = _frames_of(path)
    with monkeypatch.context() as patch:
        patch.setattr(opening, "_is_avc_in_order", lambda _: False)
        told = probe(path)
        assert _frames_of(path) == frames
    with Decoder(path) as decoder:
        assert decoder.file == told == probe(path)


def _frames_of(path: Path) -> list[tuple[float | None, bytes]]:
    with Decoder(path, pixel_format="source") as decoder, Decoder(path, start=0.4) as part:
        return [(frame.time_s, frame.data.tobytes()) for frame in (*decoder, *decoder[::7], *part)]


@pytest.mark.parametrize("name", ["fragmented", "h265", "h264_ts", "video_and_cover", "h264_mkv"])
def test_libav_decodes_frames_for_facts_where_the_header_may_lack_some(name: str) -> None:
    with open_media(f"file:{clip(name)}", decodes_first=True) as media:
        assert are_found(media)


def test_facts_are_the_same_if_the_first_frame_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clip.mp4"
    data = bytearray(clip("h264").read_bytes())
    at = data.index(b"mdat") + 900
    data[at : at + 300] = bytes(300)
    path.write_bytes(data)
    with monkeypatch.context() as patch:
        patch.setattr(opening, "_is_avc_in_order", lambda _: False)
        told = probe(path)
    with Decoder(path) as decoder:
        assert decoder.file == told == probe(path)
        with pytest.raises(DecoderError):
            decoder.read()


def test_no_media_whose_first_bytes_would_be_an_enormous_box_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no media"
    path.write_bytes(b"\0\0\0\1mdat" + b"\xff" * 8)
    with pytest.raises(DecoderError):
        Decoder(path)


def test_header_with_a_wrong_number_of_frames_warns(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    data = bytearray(clip("h264").read_bytes())
    at = data.index(b"stts") + 8
    entries, count = struct.unpack_from(">II", data, at)
    assert (entries, count) == (1, 30)
    struct.pack_into(">I", data, at + 4, 31)
    path.write_bytes(data)
    assert probe(path).video[0].frames == 31
    with Decoder(path) as decoder, pytest.warns(FFmpegWarning):
        assert len(list(decoder)) == 30


def test_picture_that_looks_like_an_mp4_file_is_decoded(tmp_path: Path) -> None:
    """A picture whose comment is where an MP4 file has the name of its first box."""
    path = tmp_path / "picture.ppm"
    path.write_bytes(b"P6\n#skip\n64 48\n255\n" + bytes(64 * 48 * 3))
    with Decoder(path) as decoder:
        assert len(list(decoder)) == 1 and decoder.file.container == "ppm_pipe"


def test_second_of_two_video_streams_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "two.mkv"
    inputs = [word for name in ("h264", "h264_large") for word in ("-i", clip(name))]
    best = ("-disposition:v:0", "0", "-disposition:v:1", "default")
    ffmpeg(*inputs, "-map", "0:v", "-map", "1:v", "-c", "copy", *best, path)
    for stream, size in ((None, (322, 182)), (0, (64, 48)), (1, (322, 182))):
        with Decoder(path, stream=stream) as decoder:
            assert decoder.size == size and decoder.read() is not None
    with pytest.raises(ValueError):
        Decoder(path, stream=2)


@pytest.mark.parametrize("frames", [1, 10])
def test_avif_is_decoded(tmp_path: Path, ffmpeg: str, frames: int) -> None:
    needs(ffmpeg, "libsvtav1")
    path = tmp_path / "a.avif"
    with Encoder(path, size=(64, 64), fps=10, settings=EncoderSettings(ffmpeg=ffmpeg)) as encoder:
        for index in range(frames):
            encoder.write(np.full((64, 64, 3), 20 * index, np.uint8))
    with Decoder(path, settings=DecoderSettings(ffmpeg=ffmpeg)) as decoder:
        assert len(decoder) == frames
        times_s = [index / 10 for index in range(frames)]
        assert [frame.time_s for frame in decoder] == times_s
        for index, frame in enumerate(decoder[:]):
            assert frame.time_s == times_s[index]
            assert abs(frame.mean() - 20 * index) <= 3
        if frames > 1:
            assert (decoder.stream.frame_rate, decoder.frame_at(0.55).index) == (10, 5)


def test_animated_webp_is_read_or_refused_by_name(tmp_path: Path) -> None:
    """libav reads it since FFmpeg 9."""
    with Encoder(tmp_path / "a.webp", size=(64, 64), fps=10) as encoder:
        for index in range(3):
            encoder.write(np.full((64, 64, 3), 20 * index, np.uint8))
    try:
        with Decoder(tmp_path / "a.webp") as decoder:
            means = [frame.mean() for frame in decoder]
    except DecoderError as error:
        assert "WebP" in str(error)
    else:
        assert means == pytest.approx([0, 20, 40], abs=3)
