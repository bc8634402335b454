"""Encrypted files: a decoder without the key raises, and never returns noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import media
from support.cases import ffmpegs, needs_the_end_of_edits
from support.real_files import real_file

from penstock import AudioDecoder, Decoder, Encoder, FFmpegWarning, probe
from penstock._facts.isolation import Isolation
from penstock._facts.opening import decode, demux, open_stream
from penstock._facts.source import Source
from penstock.errors import DecoderError
from penstock.rendering import plan_video
from penstock.video import DecoderSettings

_KEY = "76a6c65c5ea762046bd749a2e632ccbb"
_ENCRYPTION = ("-encryption_scheme", "cenc-aes-ctr", "-encryption_key", _KEY, "-encryption_kid", "a7" * 16)
_INPUTS = ("-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=0.4", "-f", "lavfi", "-i", "sine=d=0.4")


@pytest.fixture(scope="module")
def clear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clear") / "clear.mp4"
    media.ffmpeg(*_INPUTS, "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac", path)
    return path


@pytest.fixture(scope="module")
def encrypted(clear: Path) -> Path:
    path = clear.with_name("encrypted.mp4")
    media.ffmpeg("-i", clear, "-c", "copy", *_ENCRYPTION, path)
    return path


def test_probe_says_that_streams_are_encrypted(clear: Path, encrypted: Path) -> None:
    for path, is_encrypted in ((clear, False), (encrypted, True)):
        found = probe(path)
        assert (found.video[0].is_encrypted, found.audio[0].is_encrypted) == (is_encrypted, is_encrypted)
        assert ("encrypted" in found._repr_html_().replace(str(path), "")) == is_encrypted


@pytest.mark.parametrize("options", [{}, {"conceal_errors": True}, {"isolated": True}, {"filters": "hflip"}])
def test_a_decoder_without_the_key_raises(encrypted: Path, options: dict[str, bool]) -> None:
    with pytest.raises(DecoderError, match="encrypted"):
        Decoder(encrypted, **options)


@pytest.mark.linux("isolated=True")
def test_the_command_of_an_isolated_process_does_not_tell_the_key(encrypted: Path) -> None:
    source = Source.of(encrypted, {"decryption_key": _KEY})
    isolation = Isolation.of(source, threads=1, isolated=True, follow_playlists=False)
    process = isolation.process("penstock._facts.confined_child", 60)
    try:
        process.start()
        assert _KEY not in str(process.command)
    finally:
        process.end()
    assert not isolation.media(None).video[0].is_encrypted


def test_audio_without_the_key_raises(encrypted: Path, tmp_path: Path) -> None:
    with pytest.raises(DecoderError, match="encrypted"):
        AudioDecoder(encrypted)
    with pytest.raises(DecoderError, match="encrypted"):
        Encoder(tmp_path / "out.mp4", fps=25, audio=encrypted)


def test_an_audio_file_says_that_it_is_encrypted(tmp_path: Path) -> None:
    media.ffmpeg("-f", "lavfi", "-i", "sine=d=0.4", "-c:a", "aac", *_ENCRYPTION, tmp_path / "a.m4a")
    assert probe(tmp_path / "a.m4a").audio[0].is_encrypted


@pytest.mark.parametrize("isolated", [False, True])
def test_a_decoder_with_the_key_returns_the_frames(clear: Path, encrypted: Path, isolated: bool) -> None:
    given = {"decryption_key": _KEY}
    with (
        Decoder(encrypted, input_options=given, isolated=isolated, pixel_format="source") as decoder,
        Decoder(clear, pixel_format="source") as right,
    ):
        frames = [*decoder]
        assert np.array_equal(frames, [*right]) and len(decoder) == len(frames) == 10


def test_audio_with_the_key_is_the_same(clear: Path, encrypted: Path) -> None:
    newest = DecoderSettings(ffmpeg=ffmpegs()[-1])  # of AAC, the versions decode other samples
    needs_the_end_of_edits(ffmpegs()[-1])
    given, right = {"decryption_key": _KEY}, AudioDecoder(clear).read_all()
    assert np.array_equal(AudioDecoder(encrypted, input_options=given, settings=newest).read_all(), right)
    with Decoder(encrypted, input_options=given, settings=newest) as decoder:
        assert np.array_equal(decoder.audio().read_all(), right)


def test_a_video_without_the_key_cannot_be_mapped(encrypted: Path, tmp_path: Path) -> None:
    with pytest.raises(DecoderError, match="encrypted"):
        plan_video("module:function", encrypted, tmp_path / "out.mp4")


def test_like_warns_that_it_leaves_encrypted_audio_out(encrypted: Path, tmp_path: Path) -> None:
    with (
        Decoder(encrypted, input_options={"decryption_key": _KEY}) as decoder,
        pytest.warns(FFmpegWarning, match="audio tracks"),
        Encoder.like(decoder, tmp_path / "out.mp4") as encoder,
    ):
        for frame in decoder:
            encoder.write(frame)
    assert not probe(tmp_path / "out.mp4").audio


def test_no_encrypted_packet_is_decoded(encrypted: Path) -> None:
    """A file's first packets may be clear, and only later ones encrypted."""
    with open_stream(f"file:{encrypted}", probe(encrypted).container, 0) as (file, stream):
        packet = next(demux(file, stream))
        with pytest.raises(DecoderError, match="encrypted"):
            decode(stream.codec_context, packet)


def test_a_matroska_track_may_be_encrypted(tmp_path: Path) -> None:
    media.ffmpeg(
        *_INPUTS, "-an", "-c:v", "libvpx", "-live", "1", "-write_crc32", "0", tmp_path / "clear.webm"
    )
    path = tmp_path / "encrypted.webm"
    path.write_bytes(_with_key_id((tmp_path / "clear.webm").read_bytes()))
    assert probe(path).video[0].is_encrypted
    with pytest.raises(DecoderError, match="encrypted"):
        Decoder(path)


def _with_key_id(webm: bytes) -> bytes:
    """The file with an encryption of its one track (RFC 9559, 5.1.4.1.31)."""
    aes = _element("47e1", b"\x05") + _element("47e2", b"key id")
    encoding = _element("6240", _element("5033", b"\x01") + _element("5035", aes))
    tracks_at = webm.rindex(bytes.fromhex("1654ae6b"))  # its name is also in the list of elements before
    head, tracks, rest = _parted(webm, "1654ae6b", tracks_at)
    before, track, after = _parted(tracks, "ae", 0)
    return (
        head
        + _element("1654ae6b", before + _element("ae", track + _element("6d80", encoding)) + after)
        + rest
    )


def _parted(data: bytes, name: str, at: int) -> tuple[bytes, bytes, bytes]:
    """What is before the element there, in it, and after it."""
    begins = at + len(name) // 2
    size_bytes = 9 - data[begins].bit_length()
    size = int.from_bytes(data[begins : begins + size_bytes], "big") & ((1 << 7 * size_bytes) - 1)
    content = begins + size_bytes
    return data[:at], data[content : content + size], data[content + size :]


def _element(name: str, content: bytes) -> bytes:
    return bytes.fromhex(name) + (1 << 56 | len(content)).to_bytes(8, "big") + content


@pytest.mark.parametrize("name", ["encrypted.mp4", "encrypted.ismv"])
def test_files_of_other_programs_are_encrypted(name: str) -> None:
    path = real_file(name)
    assert probe(path).video[0].is_encrypted
    with pytest.raises(DecoderError, match="encrypted"):
        Decoder(path)
