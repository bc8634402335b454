"""What Windows does in its own way, or refuses by name. The platform is passed in, so that this runs on Linux, too."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import wave
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from socket import socketpair
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.cases import eventually
from support.clips import clip
from support.processes import interrupted, run_script
from support.streams import noise

import penstock
from penstock import (
    AudioDecoder,
    Decoder,
    Encoder,
    Pipeline,
    Reader,
    Writer,
    pipes,
    probe,
    read_video,
    relay,
    write_video,
)
from penstock._ffmpeg.command.endpoints import is_url
from penstock._ffmpeg.program.child import Lines, run
from penstock._platform import descriptors
from penstock._platform.paths import check_path, shell_word, with_slashes, without_scheme
from penstock._platform.programs import Channel, Program, read_together
from penstock._platform.refusals import ON_WINDOWS, refuse
from penstock._platform.workers import Link, held_name
from penstock._streams.copied import CopyingRelay, CopyTicket
from penstock.cli import penstock_command
from penstock.errors import BrokenStreamError, ClosedError, EncoderError, StalledError
from penstock.gl import Capture
from penstock.pipeline import Sink, Source
from penstock.pipes import make_pipe
from penstock.video import AudioTrack, prefetch


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


@pytest.mark.parametrize("url", ["file:C:/clip.mp4", "file:///C:/clip.mp4", "file://C:/clip.mp4"])
def test_a_url_of_a_file_on_a_drive_is_its_path(url: str) -> None:
    assert without_scheme(url, platform="win32") == "C:/clip.mp4"
    assert without_scheme(url, platform="linux") == url
    assert without_scheme("file://server/clip.mp4", platform="win32") == "file://server/clip.mp4"


def test_a_path_in_a_command_is_one_word_of_the_systems_shell() -> None:
    assert shell_word(r"C:\my clips\a&b.mp4", platform="win32") == r'"C:\my clips\a&b.mp4"'
    assert shell_word(r"C:\clips\a.mp4", platform="win32") == r"C:\clips\a.mp4"
    assert shell_word("/my clips/a.mp4", platform="linux") == "'/my clips/a.mp4'"


@pytest.mark.parametrize("path", ["nul.mp4", r"C:\videos\Con.mkv", "com1", "aux .mp4"])
def test_a_path_to_a_device_is_refused(path: str) -> None:
    """Windows before 11 writes nul.mp4 to nowhere, and says that it did."""
    with pytest.raises(ValueError, match="device"):
        check_path(path, platform="win32")
    check_path(path, platform="linux")
    check_path("console.mp4", platform="win32")


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere, it is a file")
def test_the_device_nul_is_no_terminal() -> None:
    with Path(os.devnull).open("wb") as nul:
        assert not descriptors.is_terminal(nul.fileno())


def test_an_output_has_slashes_unless_its_path_is_verbatim() -> None:
    assert with_slashes(r"file:C:\clips\a.m3u8", platform="win32") == "file:C:/clips/a.m3u8"
    assert with_slashes(r"file:\\?\C:\a.m3u8", platform="win32") == r"file:\\?\C:\a.m3u8"
    assert with_slashes(r"file:/clips/a\b.m3u8", platform="linux") == r"file:/clips/a\b.m3u8"


def test_zeros_are_as_many_as_asked_for() -> None:
    for nbytes in (5, 70_000, 10):
        with Path(descriptors.zeros(nbytes)).open("rb") as file:
            assert file.read(nbytes) == bytes(nbytes)


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


def test_a_copying_relay_moves_bytes_that_mean_something_in_a_text(tmp_path: Path) -> None:
    data = b"a\x1ab\nc\r\nd"
    (tmp_path / "source").write_bytes(data)
    # Without O_BINARY, Windows' C library takes them for texts.
    src = os.open(tmp_path / "source", os.O_RDONLY)
    dst = os.open(tmp_path / "target", os.O_WRONLY | os.O_CREAT)
    assert CopyingRelay(src, dst, None, None, None, "auto", b"").run().bytes == len(data)
    os.close(src)
    os.close(dst)
    assert (tmp_path / "target").read_bytes() == data


def test_a_stream_takes_bytes_that_mean_something_in_a_text(tmp_path: Path) -> None:
    data = b"a\x1ab\nc\r\nd"
    path = tmp_path / "file"
    dst = os.open(path, os.O_WRONLY | os.O_CREAT)
    with Writer(dst) as stream:
        stream.write(data)
    os.close(dst)
    assert path.read_bytes() == data
    src = os.open(path, os.O_RDONLY)
    with Reader(src, frame_bytes=len(data)) as stream:
        assert bytes(stream.read()) == data
    os.close(src)


def test_a_copying_relay_with_an_offset_leaves_the_position(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(range(256)))
    with (tmp_path / "source").open("rb", buffering=0) as src, (tmp_path / "target").open("wb") as dst:
        src.seek(7)
        assert CopyingRelay(src, dst, 100, 50, None, "auto", b"").run().bytes == 100
        assert src.tell() == 7
    assert (tmp_path / "target").read_bytes() == bytes(range(50, 150))


def test_a_copying_relay_with_an_offset_reads_a_temporary_file() -> None:
    with tempfile.TemporaryFile() as src, tempfile.TemporaryFile() as dst:
        src.write(b"0123456789")
        src.flush()
        assert CopyingRelay(src, dst, None, 4, None, "auto", b"").run().bytes == 6
        dst.seek(0)
        assert dst.read() == b"456789"


@pytest.mark.parametrize(
    ("wrong", "error"), [(-1, ValueError), (1.5, TypeError), (Decimal("NaN"), TypeError), ("3", TypeError)]
)
def test_a_copying_relay_takes_amounts_as_the_native_does(
    tmp_path: Path, wrong: Any, error: type[Exception]
) -> None:
    (tmp_path / "source").write_bytes(b"0123")
    with (tmp_path / "source").open("rb", buffering=0) as src, (tmp_path / "target").open("wb") as dst:
        for count, offset in ((wrong, None), (None, wrong)):
            with pytest.raises(error):
                CopyingRelay(src, dst, count, offset, None, "auto", b"")
            with pytest.raises(error):
                penstock.relay(src, dst, count, offset=offset)
        relay = CopyingRelay(src, dst, None, None, None, "auto", b"")
        with pytest.raises(error):
            relay.advance(wrong)
        relay.close()


def test_a_copying_relay_refuses_a_source_that_cannot_be_read() -> None:
    reader, writer = make_pipe()
    with reader, writer:
        for ends in ((writer, writer), (reader, reader)):
            with pytest.raises(OSError) as raised:
                CopyTicket(*ends, None, None, None, "auto", None)
            assert raised.value.errno == errno.EBADF


def test_a_file_loses_nothing_to_a_copying_relay_whose_reader_goes(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(300_000))
    gone, sink = make_pipe()
    gone.close()
    with sink, (tmp_path / "source").open("rb", buffering=0) as src:
        relay = CopyingRelay(src, sink, None, None, None, "auto", b"")
        with pytest.raises(BrokenStreamError) as raised:
            relay.run()
        relay.tell(raised.value)
        assert (raised.value.bytes_lost, src.tell()) == (0, 0)


def test_a_wait_for_a_copying_relay_tells_what_it_has_moved() -> None:
    (reader, writer), (_, sink) = make_pipe(), make_pipe()
    with reader, sink:
        ticket = CopyTicket(reader, sink, None, None, None, "auto", None)
        writer.write(b"frame")
        assert eventually(lambda: ticket.report.bytes == 5)
        with pytest.raises(StalledError) as raised:
            ticket.wait(0.02)
        assert raised.value.bytes_delivered == 5
        writer.close()
        assert ticket.wait(10).source_ended


def test_a_copying_relay_ends_with_the_task_that_awaits_it() -> None:
    (reader, writer), (_, sink) = make_pipe(), make_pipe()
    with reader, writer, sink:
        os.set_blocking(reader.fileno(), False)
        ticket = CopyTicket(reader, sink, None, None, None, "auto", None)

        async def main() -> None:
            await asyncio.wait_for(ticket, 0.05)

        with pytest.raises(TimeoutError):
            asyncio.run(main())
        assert isinstance(ticket.exception(10), ClosedError)


def test_a_stalled_copying_relay_is_cut_off_at_exit() -> None:
    done = run_script(
        """
        import penstock._common.exits
        from penstock._streams.copied import CopyTicket
        penstock._common.exits.STALL_S = 0.2
        quiet, kept_open = os.pipe()
        CopyTicket(quiet, 1, None, None, None, "auto", None)
        """
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"1 relays were cut off" in done.stderr


@pytest.mark.parametrize("end", ["timeout", "cancel"])
def test_a_copying_relay_gives_up_a_reader_that_reads_nothing(end: str, tmp_path: Path) -> None:
    data = noise(3 << 20)
    (tmp_path / "source").write_bytes(data)
    quiet, sink = make_pipe()
    with quiet, (tmp_path / "source").open("rb", buffering=0) as src:
        ticket = CopyTicket(src, sink, None, None, 0.1 if end == "timeout" else None, "auto", None)
        sink.close()
        if end == "cancel":
            assert eventually(lambda: quiet.unread_bytes)
            ticket.cancel()
        ended = ticket.exception(20)
        assert isinstance(ended, StalledError if end == "timeout" else ClosedError)
        got = quiet.readall()
        assert data.startswith(got)
        assert ended.bytes_delivered <= len(got) <= ended.bytes_delivered + ended.bytes_lost == src.tell()


def test_ctrl_c_ends_a_relay_to_a_reader_that_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(2 << 20))
    code = """
    reader, writer = os.pipe()
    with open(sys.argv[1], "rb") as src:
        print("waiting", flush=True)
        try:
            penstock.relay(src, writer)
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert interrupted(code, tmp_path / "source") == b"interrupted\n"


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


@pytest.mark.parametrize(
    "arguments",
    [["tee", "source", "a", "b"], ["relay", "fifo:source", "a"], ["decode", "clip.mp4", "--isolated", "a"]],
)
def test_a_command_that_windows_lacks_exits_2_and_makes_no_file(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("source", "clip.mp4"):
        (tmp_path / name).write_bytes(clip("h264").read_bytes())
    monkeypatch.setattr(refuse, "__kwdefaults__", {"platform": "win32"})
    result = CliRunner().invoke(penstock_command, arguments)
    assert (result.exit_code, sorted(tmp_path.iterdir())) == (2, [tmp_path / "clip.mp4", tmp_path / "source"])
    assert "isn't available on Windows" in result.stderr


def test_objects_go_between_two_python_programs_until_one_ends() -> None:
    program, link = Link.started(
        "from penstock._platform.workers import Link; link = Link({}); link.send(link.receive()); link.receive()"
    )
    with program:
        link.send(b"a" * 300_000)
        assert link.receive() == b"a" * 300_000
        link.end_sending()
        assert program.wait(20) == 1  # by its EOFError
        with pytest.raises((EOFError, ConnectionResetError)):
            link.receive()
    link.close()


def test_one_program_at_a_time_holds_a_name() -> None:
    name = f"penstock-test-{os.getpid()}"
    for _ in range(2):
        with held_name(name) as is_free, held_name(name) as is_free_again:
            assert (is_free, is_free_again) == (True, False)


def test_a_write_without_a_reader_is_a_broken_pipe() -> None:
    reader, writer = make_pipe()
    reader.close()
    with writer, pytest.raises(BrokenPipeError):
        descriptors.write(writer.fileno(), b"a")


def test_a_path_may_be_longer_than_260_characters(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 60] * 5)
    folder.mkdir(parents=True)
    video = folder / "clip.mp4"
    write_video(video, np.zeros((3, 16, 16, 3), np.uint8), fps=10)
    with Decoder(video) as by_libav, Decoder(video, filters="hflip") as by_program:
        assert [sum(1 for _ in frames) for frames in (by_libav, by_program)] == [3, 3]


class Drawn(int):
    def read_into(self, view: np.ndarray) -> None:
        view[:] = self


class Drawing:
    """A renderer without OpenGL."""

    number = 0

    def start_read(self) -> Drawn:
        return Drawn(self.number)


def test_a_capture_two_tracks_and_whole_videos_are_written_and_read(tmp_path: Path) -> None:
    video, sound, drawing = tmp_path / "clip.mkv", tmp_path / "sound.wav", Drawing()
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", ""))
        file.writeframes(bytes(48_000))
    with (
        Encoder(video, size=(16, 16), fps=10, codec="ffv1", audio=[sound, AudioTrack(48_000, 1)]) as encoder,
        Capture(drawing, encoder) as capture,
    ):
        for drawing.number in range(5):
            capture.take()
        encoder.write_audio(np.full((24_000, 1), 0.1, np.float32))
    assert read_video(video)[:, 0, 0, 0].tolist() == [*range(5)]
    [ahead] = [sum(1 for _ in decoder) for decoder in prefetch([video])]
    assert (ahead, len(probe(video).audio)) == (5, 2)


@pytest.mark.parametrize("filters", [None, "hflip"])
def test_a_temporary_file_is_decoded(tmp_path: Path, filters: str | None) -> None:
    """On Windows, nobody else can open what Python deletes when it's closed."""
    video = tmp_path / "clip.mp4"
    write_video(video, np.zeros((3, 16, 16, 3), np.uint8), fps=10)
    with tempfile.NamedTemporaryFile() as file:
        file.write(video.read_bytes())
        file.flush()
        with Decoder(file, filters=filters) as frames:
            assert sum(1 for _ in frames) == 3


@pytest.mark.parametrize("filters", [None, "hflip"])
def test_frames_of_a_pipe_are_decoded(tmp_path: Path, filters: str | None) -> None:
    video = tmp_path / "clip.mkv"
    write_video(video, np.zeros((3, 16, 16, 3), np.uint8), fps=10)
    reader, writer = make_pipe()

    def feed() -> None:
        with writer:
            writer.write(video.read_bytes())

    feeding = threading.Thread(target=feed)
    feeding.start()
    with reader, Decoder(reader, filters=filters) as frames:
        assert sum(1 for _ in frames) == 3
    feeding.join()


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere, an open file can be replaced")
def test_a_file_that_is_open_stays_and_the_new_video_beside_it(tmp_path: Path) -> None:
    video = tmp_path / "clip.mp4"
    write_video(video, np.zeros((3, 16, 16, 3), np.uint8), fps=10)
    old = video.read_bytes()
    with video.open("rb"), pytest.raises(EncoderError, match=re.escape("clip.part.mp4")):
        write_video(video, np.ones((5, 16, 16, 3), np.uint8), fps=10)
    assert video.read_bytes() == old
    with Decoder(tmp_path / "clip.part.mp4") as frames:
        assert sum(1 for _ in frames) == 5


@pytest.mark.parametrize(
    "call",
    [
        Decoder,
        AudioDecoder,
        probe,
        Writer,
        lambda end: Pipeline(Source.fd(end)),
        lambda end: Pipeline([b"a"], sink=Sink.fd(end)),
        lambda end: Reader(end, frame_bytes=4),
        lambda end: relay(end, os.devnull),
        lambda end: pipes.start_relay(end, os.devnull),
        lambda end: pipes.Relay(end, os.devnull),
    ],
)
def test_sockets_and_handles_are_told_by_their_types_and_refused(
    call: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their numbers may be those of other descriptors."""
    monkeypatch.setattr(refuse, "__kwdefaults__", {"platform": "win32"})
    ours, its = socketpair()
    with ours, its, its.makefile("rb") as stream, its.makefile("rb", buffering=0) as raw:
        for end in (its, stream, raw, TransportSocket(its)):
            with pytest.raises(OSError, match="socket") as raised:
                call(end)
            assert raised.value.errno == errno.ENOTSUP
    for end in multiprocessing.Pipe():
        with end, pytest.raises((OSError, TypeError), match=r"handle|Connection"):
            call(end)


def test_the_pipe_of_a_program_that_never_opened_it_ends() -> None:
    nothing, statuses = subprocess.DEVNULL, list[int | None]()
    with Channel() as channel:
        code = (sys.executable, "-c", "import time; time.sleep(0.5)")
        program = Program(code, stdin=nothing, stdout=nothing, stderr=nothing, channels=[channel])
    attending = threading.Thread(target=program.attend, args=({}, statuses.append, 1.0))
    attending.start()
    assert list(read_together([channel.ours])) == []
    attending.join(20)
    assert statuses == [0]
    channel.ours.close()


def test_lines_of_a_program_end_as_on_linux() -> None:
    lines: list[bytes] = []
    take = Lines(lines.append, 100)
    for data in (b"frame=1\r", b"\nprogress=end\r\n", b""):
        take(data)
    assert lines == [b"frame=1", b"progress=end"]
    code = r"import sys; sys.stdout.buffer.write(b'a\r\nb\r\n')"
    assert run((sys.executable, "-c", code), 30).text == "a\nb\n"
