"""Local files that would have FFmpeg open others, or the network: what SECURITY.md promises."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from support.clips import clip
from support.command_line import run

from penstock import AudioDecoder, Decoder, DecoderError, probe
from penstock._formats.containers import LEADING_ELSEWHERE
from penstock.video import DecoderSettings

HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{url}\n#EXT-X-ENDLIST\n"
DASH = (
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT1S" '
    'profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"><Period><AdaptationSet mimeType="video/mp4"><Representation '
    'id="1" bandwidth="1000" width="64" height="48" codecs="avc1"><BaseURL>{url}</BaseURL><SegmentBase/>'
    "</Representation></AdaptationSet></Period></MPD>"
)
CONCAT = "ffconcat version 1.0\nfile '{url}'\n"
SDP = (
    "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\n"
    "a=rtpmap:96 H264/90000\n"
)
KINDS = {"hls": HLS, "dash": DASH, "ffconcat": CONCAT, "sdp": SDP}


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Somebody who must not be called."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.fixture(params=KINDS)
def playlist(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A playlist under the name of a film, that leads to a film beside it."""
    shutil.copy(clip("h264_ts"), tmp_path / "secret.ts")
    path = tmp_path / "film.mp4"
    path.write_text(KINDS[request.param].format(url="secret.ts", port=5004))
    return path


def test_a_playlist_under_another_name_is_refused(playlist: Path) -> None:
    for read in (probe, Decoder, AudioDecoder):
        # Of FFmpeg 7 and later a file is HLS by its name only.
        with pytest.raises(DecoderError, match=r"playlist|moov"):
            read(playlist)


def test_files_named_in_a_playlist_are_not_opened(playlist: Path) -> None:
    missing = playlist.with_name("secret.ts")
    missing.unlink()
    # An opened file that is missing would be told of.
    with pytest.raises(DecoderError) as caught:
        probe(playlist)
    assert "secret.ts" not in caught.value.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("follow_playlists", [False, True])
def test_the_network_is_not_used(
    kind: str, follow_playlists: bool, server: socket.socket, tmp_path: Path
) -> None:
    host, port = server.getsockname()
    path = tmp_path / "film.m3u8"
    path.write_text(KINDS[kind].format(url=f"http://{host}:{port}/secret.ts", port=port))
    with pytest.raises(DecoderError):
        Decoder(path, follow_playlists=follow_playlists)


def test_playlists_are_followed_on_request(tmp_path: Path) -> None:
    shutil.copy(clip("h264_ts"), tmp_path / "one.ts")
    path = tmp_path / "film.m3u8"
    path.write_text(HLS.format(url="one.ts"))
    with Decoder(path, follow_playlists=True) as decoder:
        assert len(list(decoder)) == 30
    refused = run("probe", path)
    assert refused.returncode == 1 and b"--follow-playlists" in refused.stderr
    assert run("probe", path, "--follow-playlists").returncode == 0
    assert run("decode", path, tmp_path / "raw", "--follow-playlists").returncode == 0
    assert (tmp_path / "raw").stat().st_size == 30 * 64 * 48 * 3


@pytest.mark.linux("a shell script stands in for a program")
def test_ffmpeg_reads_only_the_container_that_was_probed(tmp_path: Path) -> None:
    """The file is another one by the time that FFmpeg opens it."""
    swapped = tmp_path / "film.m3u8"
    shutil.copy(clip("h264"), swapped)
    shutil.copy(clip("h264_ts"), tmp_path / "one.ts")
    ffmpeg = tmp_path / "ffmpeg"
    playlist = tmp_path / "list"
    playlist.write_text(HLS.format(url="one.ts"))
    ffmpeg.write_text(f'#!/bin/sh\ncp {playlist} {swapped}\nexec ffmpeg "$@"\n')
    ffmpeg.chmod(0o755)
    with (
        pytest.raises(DecoderError, match=r"whitelist|playlist"),
        Decoder(swapped, settings=DecoderSettings(ffmpeg=ffmpeg)) as decoder,
    ):
        list(decoder)


def test_libav_knows_the_refused_containers() -> None:
    """A name that libav changes would be allowed from then on."""
    known = av.formats_available
    assert {"hls", "concat", "sdp", "rtsp"} <= known & LEADING_ELSEWHERE
    assert {"matroska", "mov", "mpegts"} <= known - LEADING_ELSEWHERE
