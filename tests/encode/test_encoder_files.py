"""What an encode does to a file that is there already."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from support.cases import IS_ROOT, eventually
from support.media import nothing_is_left as nothing_is_left
from support.processes import mounted, run_script, small_disk, succeeded

from penstock import Decoder, Encoder, FanOut
from penstock._encoding.session import EncodeSession
from penstock.errors import EncoderError, FFmpegWarning, StalledError

SIZE = (64, 48)
WAS = b"what was there" * 100


def frame(value: int = 100) -> np.ndarray:
    return np.full((SIZE[1], SIZE[0], 3), value, np.uint8)


def encode(path: Path, frames: int = 5, **options: object) -> None:
    with Encoder(path, size=SIZE, fps=25, **options) as encoder:
        for index in range(frames):
            encoder.write(frame(4 * index))


def count(path: Path) -> int:
    with Decoder(path) as decoder:
        return len(list(decoder))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "video.mp4"
    path.write_bytes(WAS)
    return path


def alone(path: Path) -> bool:
    return list(path.parent.iterdir()) == [path]


@pytest.mark.linux("modes of files")
def test_new_file_replaces_the_old_file_at_close(old: Path) -> None:
    old.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(old, 1234, 1235)
    before = old.stat()
    with Encoder(old, size=SIZE, fps=25) as encoder:
        for _ in range(5):
            encoder.write(frame())
            assert old.read_bytes() == WAS
    assert encoder.report is not None
    assert encoder.report.output == str(old) and encoder.report.output_bytes == old.stat().st_size
    assert not encoder.report.warnings
    after = old.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert count(old) == 5 and alone(old)


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "gif", "options": {"f": "ismv"}},
        {"options": {"x264-params": "nonsense=1", "profile:v": "no"}},
        # It writes one file, although FFmpeg lets it open that itself.
        {"options": {"f": "fifo", "fifo_format": "matroska", "map": "0:v"}},
    ],
)
def test_failure_leaves_the_old_file(old: Path, options: dict[str, object]) -> None:
    with pytest.raises(EncoderError):
        encode(old, **options)
    assert old.read_bytes() == WAS and alone(old)


@pytest.mark.parametrize("name, codec", [("new.ismv", "libvpx"), ("new.flac", "libx264")])
def test_container_that_refuses_the_video_leaves_no_file(tmp_path: Path, name: str, codec: str) -> None:
    with pytest.raises(EncoderError):
        encode(tmp_path / name, codec=codec)
    assert list(tmp_path.iterdir()) == []


def part_of(path: Path) -> Path:
    return path.with_suffix(f".part{path.suffix}")


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_exception_leaves_the_old_file_and_keeps_the_frames_in_a_part_file(
    old: Path, raised: type[BaseException], recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(raised) as caught, Encoder(old, size=SIZE, fps=25) as encoder:
        for _ in range(5):
            encoder.write(frame())
        raise raised
    assert old.read_bytes() == WAS and count(part := part_of(old)) == 5
    [note] = caught.value.__notes__
    assert "5 frames" in note and str(part) in note
    assert encoder.report is not None and encoder.report.output == str(part)
    assert encoder.report.output_bytes == part.stat().st_size
    is_hidden = not issubclass(raised, Exception | KeyboardInterrupt)  # nobody sees its notes
    assert [str(one.message) for one in recwarn] == [note] * is_hidden


def test_exception_after_close_keeps_the_new_file(old: Path) -> None:
    with pytest.raises(RuntimeError) as caught, Encoder(old, size=SIZE, fps=25) as encoder:
        encoder.write(frame())
        encoder.close()
        raise RuntimeError
    assert count(old) == 1 and alone(old) and not hasattr(caught.value, "__notes__")


def test_timed_out_close_is_finished_at_the_end_of_the_block(old: Path) -> None:
    with pytest.raises(StalledError), Encoder(old, size=SIZE, fps=25) as encoder:
        encoder.write(frame())
        assert encoder.pid is not None
        os.kill(encoder.pid, signal.SIGSTOP)
        try:
            encoder.close(timeout=0)
        finally:
            os.kill(encoder.pid, signal.SIGCONT)
    assert count(old) == 1 and alone(old)


def test_part_file_does_not_replace_an_older_part_file(old: Path) -> None:
    part_of(old).write_bytes(b"of yesterday")
    with pytest.raises(RuntimeError), Encoder(old, size=SIZE, fps=25) as encoder:
        encoder.write(frame())
        raise RuntimeError
    assert old.read_bytes() == WAS and part_of(old).read_bytes() == b"of yesterday"
    assert count(old.with_name("video.part2.mp4")) == 1


def test_exception_in_a_fan_out_leaves_the_old_files(old: Path) -> None:
    (other := old.with_name("other.mkv")).write_bytes(WAS)
    outputs = [Encoder(path, size=SIZE, fps=25) for path in (old, other)]
    with pytest.raises(RuntimeError) as caught, FanOut(outputs) as fan_out:
        for _ in range(5):
            fan_out.write(frame())
        raise RuntimeError
    for path in (old, other):
        assert path.read_bytes() == WAS and count(part_of(path)) == 5
        assert any(str(part_of(path)) in note for note in caught.value.__notes__)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_async_block_that_ends_early_leaves_the_old_file(old: Path, is_cancelled: bool) -> None:
    async def encode() -> None:
        async with Encoder(old, size=SIZE, fps=25) as encoder:
            await encoder.awrite(frame())
            if not is_cancelled:
                raise RuntimeError
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.ensure_future(encode())
        if is_cancelled:
            assert await asyncio.to_thread(eventually, lambda: part_of(old).exists())
            await asyncio.sleep(0.1)
            task.cancel()
        await task

    hidden = pytest.warns(FFmpegWarning) if is_cancelled else nullcontext()
    with hidden, pytest.raises(asyncio.CancelledError if is_cancelled else RuntimeError):
        asyncio.run(main())
    assert old.read_bytes() == WAS and count(part_of(old)) == 1


def test_second_cancellation_names_the_part_file(old: Path) -> None:
    async def encode(is_stopped: asyncio.Event) -> None:
        async with Encoder(old, size=SIZE, fps=25, codec="mpeg4") as encoder:
            while not encoder.stats.frames_encoded:
                await encoder.awrite(frame())
                await asyncio.sleep(0.01)
            os.kill(encoder.pid, signal.SIGSTOP)  # so that the exit cannot finish
            is_stopped.set()
            await asyncio.sleep(60)

    async def main() -> None:
        is_stopped = asyncio.Event()
        task = asyncio.ensure_future(encode(is_stopped))
        await is_stopped.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.3)
        await task

    where = f"unfinished file is {re.escape(str(part_of(old)))}"
    with pytest.warns(FFmpegWarning, match=where), pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert old.read_bytes() == WAS and part_of(old).exists()


@pytest.mark.parametrize("name", ["video.mp4", "90%.mkv"])
def test_abort_removes_a_new_file_and_leaves_an_old_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    encoder = Encoder(path, size=SIZE, fps=25)
    encoder.write(frame())
    assert eventually(path.exists)
    encoder.abort()
    assert not list(tmp_path.iterdir())
    path.write_bytes(WAS)
    encoder = Encoder(path, size=SIZE, fps=25)
    encoder.write(frame())
    encoder.abort()
    assert path.read_bytes() == WAS and alone(path)


# FFmpeg hands on each frame as it is encoded.
AT_ONCE = {"codec": "mpeg4", "options": {"flush_packets": 1, "cluster_time_limit": 1}}


def begun(path: Path) -> Encoder:
    """An encoder of a new file that has content."""
    encoder = Encoder(path, size=SIZE, fps=25, **AT_ONCE)
    for _ in range(20):
        encoder.write(frame())
    assert eventually(lambda: path.exists() and path.stat().st_size > 0)
    return encoder


def interrupted(_: object, error: BaseException) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_fanned_out", [False, True])
def test_new_file_that_is_cut_off_becomes_a_part_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fanned_out: bool
) -> None:
    monkeypatch.setattr(EncodeSession, "finish_during", interrupted)
    monkeypatch.setattr(FanOut, "_finish_during", interrupted)
    path = tmp_path / "video.mkv"
    encoder = begun(path)
    with pytest.raises(KeyboardInterrupt) as second, FanOut([encoder]) if is_fanned_out else encoder:
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == [part_of(path)]
    assert str(part_of(path)) in second.value.__notes__[0]


def test_new_file_becomes_a_part_file_if_ffmpeg_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "video.mkv"
    encoder = begun(path)
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGKILL)
    with pytest.raises(EncoderError) as caught:
        encoder.close()
    assert list(tmp_path.iterdir()) == [part_of(path)] and str(part_of(path)) in caught.value.reason


def test_an_empty_file_that_was_there_keeps_its_name(tmp_path: Path) -> None:
    (path := tmp_path / "video.mkv").touch()
    with path.open("rb") as file:
        begun(path).abort()
        assert os.fstat(file.fileno()).st_nlink == 1


def test_playlists_and_their_files_stay_where_they_are(tmp_path: Path) -> None:
    playlist = tmp_path / "list.m3u8"
    with pytest.raises(RuntimeError) as caught, Encoder(playlist, size=SIZE, fps=25) as encoder:
        encoder.write(frame())
        raise RuntimeError
    assert {path.name for path in tmp_path.iterdir()} == {"list.m3u8", "list0.ts"}
    assert caught.value.__notes__ == [f"{playlist} has the 1 frame written before"]


def test_video_can_be_rewritten_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "video.mkv"
    encode(path, 60)
    with Decoder(path) as decoder, Encoder(path, fps=25) as encoder:
        for one in decoder:
            encoder.write(255 - one)
    assert count(path) == 60 and alone(path)


def test_symbolic_link_stays_a_link(old: Path) -> None:
    link = old.with_name("link.mp4")
    link.symlink_to(old.name)
    encode(link)
    assert link.is_symlink() and count(old) == 5


def test_empty_file_is_written_in_place(tmp_path: Path) -> None:
    (path := tmp_path / "video.mkv").touch()
    inode = path.stat().st_ino
    encode(path)
    assert path.stat().st_ino == inode and count(path) == 5


def test_file_with_other_hard_links_is_overwritten_in_place(old: Path) -> None:
    other = old.with_name("other.mp4")
    other.hardlink_to(old)
    with pytest.warns(FFmpegWarning):
        encode(old)
    assert count(other) == 5


@pytest.mark.linux("mounts")
@pytest.mark.skipif(not IS_ROOT, reason="only root may mount")
def test_a_file_that_is_mounted_is_overwritten_in_place(old: Path) -> None:
    other = old.with_name("other name.mp4")
    other.write_bytes(WAS)
    with mounted(["mount", "--bind", old, other]), pytest.warns(FFmpegWarning):
        encode(other)
    assert count(old) == 5


def test_file_of_another_program_at_the_path_is_kept(old: Path) -> None:
    encoder = Encoder(old, size=SIZE, fps=25)
    encoder.write(frame())
    (new := old.with_name("new")).write_bytes(b"another")
    new.replace(old)
    with pytest.raises(EncoderError) as caught:
        encoder.close()
    assert old.read_bytes() == b"another"
    [part] = [path for path in old.parent.iterdir() if path != old]
    assert str(part) in str(caught.value) and count(part) == 1


def test_close_raises_if_the_new_file_was_removed(tmp_path: Path) -> None:
    encoder = Encoder(path := tmp_path / "video.mkv", size=SIZE, fps=25)
    encoder.write(frame())
    assert eventually(path.exists)
    path.unlink()
    with pytest.raises(EncoderError):
        encoder.close()


def test_killed_python_leaves_the_old_file(old: Path) -> None:
    code = """
        import os, sys
        import numpy as np, penstock
        encoder = penstock.Encoder(sys.argv[1], size=(64, 48), fps=25)
        encoder.write(np.zeros((48, 64, 3), np.uint8)).wait()
        os.kill(os.getpid(), 9)
    """
    run_script(code, old)
    assert old.read_bytes() == WAS


@pytest.mark.linux("files in /dev")
@pytest.mark.parametrize("name", ["/dev/fd/1", "link"])
def test_path_of_standard_output_writes_to_standard_output(tmp_path: Path, name: str) -> None:
    if name == "link":
        (tmp_path / name).symlink_to("/dev/stdout")
        name = str(tmp_path / name)
    code = """
        import sys, penstock
        with penstock.Encoder(sys.argv[1], size=(64, 48), fps=25, options={"f": "matroska"}) as encoder:
            encoder.write(bytes(64 * 48 * 3))
        assert encoder.report.frames_encoded == 1
    """
    (tmp_path / "video.mkv").write_bytes(succeeded(run_script(code, name)))
    assert count(tmp_path / "video.mkv") == 1


@pytest.mark.linux("files in /dev")
def test_paths_of_other_descriptors_are_refused() -> None:
    for name in ("/dev/stdin", "/dev/stderr", "/dev/fd/7"):
        with pytest.raises(ValueError):
            Encoder(name, size=SIZE, fps=25, options={"f": "matroska"})


@pytest.mark.parametrize(
    ("disk", "name", "options", "said"),
    [
        ("96k", "a.m3u8", {}, "empty: a.m3u8"),
        ("96k", "a.mpd", {}, "empty: a.mpd"),
        ("1536k", "a.m3u8", {"hls_flags": "single_file", "hls_time": 1}, "shorter than .* says: a.ts"),
    ],
)
def test_close_raises_if_a_full_disk_left_segments_empty_or_cut(
    tmp_path: Path, disk: str, name: str, options: dict[str, object], said: str
) -> None:
    with small_disk(tmp_path, disk):
        given = {"options": {"g": 30, **options}, "preset": "ultrafast"}
        encoder = Encoder(tmp_path / name, size=(320, 240), fps=30, **given)
        noise = np.random.default_rng(0)
        for _ in range(90):
            encoder.write(noise.integers(0, 256, (240, 320, 3), np.uint8))
        with pytest.raises(EncoderError, match=said):
            encoder.close()


def test_segments_without_a_frame_are_no_fault_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no frame was written") as caught:
        Encoder(tmp_path / "a.m3u8", size=SIZE, fps=25).close()
    assert "disk" not in str(caught.value)


@pytest.mark.parametrize("name", ["v.mp4", "v.nut"])
def test_alpha_that_the_container_cannot_hold_warns(tmp_path: Path, name: str) -> None:
    given = {"size": SIZE, "fps": 25, "codec": "libvpx-vp9", "pixel_format": "rgba"}
    with pytest.warns(FFmpegWarning):
        Encoder(tmp_path / name, **given).abort()


@pytest.mark.parametrize("name", [".mp4", ".mkv"])
def test_name_that_is_only_an_ending_is_written_and_replaced(tmp_path: Path, name: str) -> None:
    """FFmpeg takes the container from what is behind the last dot; and what is there is replaced all the same."""
    for number in (1, 2):
        with Encoder(tmp_path / name, size=(64, 48), fps=25) as encoder:
            for _ in range(number):
                encoder.write(np.zeros((48, 64, 3), np.uint8))
        assert encoder.report is not None and encoder.report.warnings == ()
        with Decoder(tmp_path / name) as decoder:
            assert sum(1 for _ in decoder) == number
    assert [path.name for path in tmp_path.iterdir()] == [name]
