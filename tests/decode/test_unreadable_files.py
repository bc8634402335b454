"""Files that can't be read: the message says which kind of file it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import media
from support.real_files import real_file

from penstock import AudioDecoder, Decoder, Encoder, probe
from penstock.errors import DecoderError
from penstock.rendering import plan_video

_PICTURES = ("-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=0.4", "-pix_fmt", "yuv420p", "-c:v", "libx264")


def test_a_segment_without_its_initialization_says_so(tmp_path: Path) -> None:
    media.ffmpeg(*_PICTURES, "-f", "dash", (tmp_path / "a.mpd").as_posix())  # its muxer knows no backslash
    segment = tmp_path / "chunk-stream0-00001.m4s"
    for open_it in (Decoder, AudioDecoder, probe):
        with pytest.raises(DecoderError, match="segment"):
            open_it(segment)
    (tmp_path / "both.mp4").write_bytes((tmp_path / "init-stream0.m4s").read_bytes() + segment.read_bytes())
    with Decoder(tmp_path / "both.mp4") as decoder:
        assert len([*decoder]) == 10


def test_video_without_a_decoder_says_so(tmp_path: Path) -> None:
    media.ffmpeg(*_PICTURES, tmp_path / "a.mp4")
    path = tmp_path / "b.mp4"
    path.write_bytes((tmp_path / "a.mp4").read_bytes().replace(b"avc1", b"zzzz"))
    assert probe(path).undecodable == ("video",)
    with pytest.raises(DecoderError, match="no decoder"):
        Decoder(path)


def test_audio_without_a_decoder_says_so(tmp_path: Path) -> None:
    media.ffmpeg("-f", "lavfi", "-i", "sine=d=0.2", "-c:a", "pcm_s16le", tmp_path / "a.mov")
    path = tmp_path / "b.mov"
    path.write_bytes((tmp_path / "a.mov").read_bytes().replace(b"sowt", b"zzzz"))
    with pytest.raises(DecoderError, match="no decoder"):
        AudioDecoder(path)


def test_a_picture_without_a_decoder_says_its_format() -> None:
    with pytest.raises(DecoderError, match="no decoder"):
        Decoder(real_file("no-decoder.jxl"))


def test_map_video_raises_a_decoder_error_if_a_packet_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DecoderError, match="damaged"):
        plan_video("module:function", real_file("cut.cpk"), tmp_path / "out.mp4")


def test_audio_without_a_sample_rate_says_so(tmp_path: Path) -> None:
    path = real_file("no-sample-rate.ts")
    with pytest.raises(DecoderError, match="sample rate"):
        AudioDecoder(path)
    with pytest.raises(DecoderError, match="sample rate"):
        Encoder(tmp_path / "out.mp4", fps=25, audio=path)


def test_tags_that_are_no_utf_8_can_be_shown(tmp_path: Path) -> None:
    media.ffmpeg(*_PICTURES, "-metadata", "title=Gruesse", tmp_path / "a.mkv")
    path = tmp_path / "b.mkv"
    path.write_bytes((tmp_path / "a.mkv").read_bytes().replace(b"Gruesse", b"Gr\xfc\xdfe\0\0"))
    _show(path)


def test_tags_of_a_real_file_that_are_no_utf_8_can_be_shown() -> None:
    _show(real_file("latin-tags.mov"))


def _show(path: Path) -> None:
    found = probe(path)
    for one in (found, *found.video):
        one._repr_html_().encode()
    str(found).encode()
