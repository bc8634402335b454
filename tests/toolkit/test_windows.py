"""What Windows doesn't have is refused by name. The platform is passed in, so that this runs on Linux, too."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from penstock._ffmpeg.command.endpoints import is_url
from penstock._platform.paths import check_path
from penstock._platform.refusals import ON_WINDOWS, refuse
from penstock._streams.copied import CopyingRelay, CopyTicket
from penstock.errors import BrokenStreamError, ClosedError, StalledError
from penstock.pipes import make_pipe


@pytest.mark.parametrize("what", ON_WINDOWS)
def test_a_call_that_windows_lacks_raises_enotsup_and_names_what_to_use_instead(what: str) -> None:
    with pytest.raises(OSError, match=what) as raised:
        refuse(what, platform="win32")
    assert raised.value.errno == errno.ENOTSUP
    assert ON_WINDOWS[what] in str(raised.value)


@pytest.mark.parametrize("what", ON_WINDOWS)
def test_linux_refuses_none_of_them(what: str) -> None:
    refuse(what, platform="linux")


@pytest.mark.parametrize("path", ["a:b.mp4", "clip.mp4:part", "C:/videos/clip.mp4:part", "C:clip.mp4"])
def test_a_path_to_a_stream_inside_of_a_file_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(path))):
        check_path(path, platform="win32")
    check_path(path, platform="linux")


@pytest.mark.parametrize(
    "path",
    [
        "clip.mp4",
        "C:/clip.mp4",
        r"C:\videos\clip_%03d.png",
        r"\\server\share\clip.mp4",
        r"\\?\C:\clip.mp4",
        "NUL",
    ],
)
def test_paths_with_a_drive_or_a_server_are_paths(path: str) -> None:
    check_path(path, platform="win32")
    assert not is_url(path)


def test_one_letter_before_slashes_is_a_drive_and_no_scheme() -> None:
    assert not is_url("C://videos/clip.mp4")
    assert is_url("rtp://host/clip")


def test_a_copying_relay_moves_all_between_pipes_and_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 1000)
    with source.open("rb") as src, target.open("wb") as dst:
        assert src.read(6) == bytes(range(6))
        report = CopyingRelay(src.fileno(), dst, None, 6, None, "auto", b"").run(src)
        assert src.tell() == 256_000
    assert (report.bytes, report.source_ended, report.method) == (255_994, True, "read-write")
    assert target.read_bytes() == source.read_bytes()[6:]


def test_a_copying_relay_gives_up_a_silent_source() -> None:
    (reader, writer), (_, sink) = make_pipe(), make_pipe()
    with reader, writer, sink:
        writer.write(b"abc")
        relay = CopyingRelay(reader, sink, None, None, 0.1, "auto", b"12")
        os.set_blocking(reader.fileno(), False)  # on Linux, a blocking read waits itself
        with pytest.raises(StalledError) as raised:
            relay.run()
        relay.tell(raised.value)
    assert (raised.value.bytes_delivered, raised.value.bytes_lost) == (5, 0)


def test_a_copying_relay_counts_what_a_gone_reader_did_not_get() -> None:
    (reader, writer), (gone, sink) = make_pipe(), make_pipe()
    with reader, writer, sink:
        writer.write(b"abc")
        gone.close()
        relay = CopyingRelay(reader, sink, None, None, None, "auto", b"")
        with pytest.raises(BrokenStreamError) as raised:
            relay.run()
        relay.tell(raised.value)
    assert (raised.value.bytes_delivered, raised.value.bytes_lost) == (0, 3)


def test_a_cancelled_copying_relay_ends() -> None:
    (reader, writer), (_, sink) = make_pipe(), make_pipe()
    with reader, writer, sink:
        os.set_blocking(reader.fileno(), False)
        ticket = CopyTicket(reader, sink, None, None, None, "auto", None)
        ticket.cancel()
        assert isinstance(ticket.exception(10), ClosedError)
        with pytest.raises(ClosedError):
            ticket.wait(10)
