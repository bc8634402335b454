"""The `Decoder` where something is wrong, or ends early: files, arguments, FFmpeg, the caller, the process."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.cases import IS_ROOT, PATIENCE_S, eventually
from support.clips import NO_MEDIA, WITHOUT_VIDEO, clip
from support.engines import BY_PROGRAM, by_program
from support.engines import engine as engine
from support.media import ffmpeg
from support.media import nothing_is_left as nothing_is_left
from support.processes import has_ended, processes, run_script, script, start_script, succeeded
from support.this_process import are_asleep, libav_threads, open_fds

from penstock import ClosedError, Decoder, DecoderError, StalledError
from penstock._decoding.open_video import OpenVideo
from penstock._decoding.pixels import Pixels
from penstock._decoding.sequence import Sequence
from penstock._ffmpeg.command.settings import with_overrides
from penstock.cpu import ThreadPolicy
from penstock.video import DecoderSettings, find_ffmpeg

# The clip, and what it was made of.
CUT = {"cut_mp4": "fast_start", "cut_mkv": "h264_mkv"}
CORRUPT = {"corrupt_mkv": "h264_mkv", "corrupt_ts": "h264_ts"}


def is_there(pid: int) -> bool:
    """Whether the process exists, if only as a zombie."""
    return pid in processes()


def whole(name: str) -> list[np.ndarray]:
    with Decoder(clip(name)) as decoder:
        return list(decoder)


def until_fault(decoder: Decoder) -> tuple[list[np.ndarray], DecoderError]:
    frames: list[np.ndarray] = []
    with pytest.raises(DecoderError) as caught:
        frames.extend(decoder)
        while (frame := decoder.read()) is not None:
            frames.append(frame)
    return frames, caught.value


# Files


@pytest.mark.parametrize("name", [*CUT, *CORRUPT])
def test_damaged_file_returns_frames_up_to_the_damage_and_then_raises_with_ffmpegs_words(name: str) -> None:
    expected = whole({**CUT, **CORRUPT}[name])
    frames = []
    with Decoder(clip(name), settings=by_program()) as decoder:
        with pytest.raises(DecoderError) as caught:
            for frame in decoder:
                frames.append(frame)
        assert 0 < len(frames) < len(expected)
        # In FFmpeg 5.1 the threads of the H.264 decoder may hand on a frame before they have marked it as damaged.
        sound = 4 if name in CORRUPT else len(frames)
        assert all(np.array_equal(*pair) for pair in zip(frames[:sound], expected, strict=False))
        error = caught.value
        assert error.frames == len(frames) == decoder.stats.frames_delivered
        assert error.stderr and error.stderr in str(error)
        assert error.returncode is not None and error.command[0] == find_ffmpeg()
        for _ in range(2):
            with pytest.raises(DecoderError) as again:
                decoder.read()
            assert str(again.value) == str(error)


@pytest.mark.parametrize("name", [*CUT, *CORRUPT])
def test_conceal_errors_decodes_past_damage(name: str, engine: str) -> None:
    with Decoder(clip(name)) as strict, pytest.raises(DecoderError):
        list(strict)
    with Decoder(clip(name), conceal_errors=True) as decoder:
        assert len(list(decoder)) >= strict.stats.frames_delivered
        assert decoder.read() is None


def test_cut_transport_stream_returns_all_whole_frames() -> None:
    """FFmpeg has no words for this one."""
    expected = whole("h264_ts")
    with Decoder(clip("cut_ts")) as decoder:
        frames = list(decoder)
    assert 10 < len(frames) < len(expected)
    assert all(np.array_equal(*pair) for pair in zip(frames[:-1], expected, strict=False))


@pytest.mark.parametrize("name", sorted(WITHOUT_VIDEO))
def test_a_file_without_video_says_what_it_has(name: str) -> None:
    with pytest.raises(DecoderError, match="only"):
        Decoder(clip(name))
    with pytest.raises(ValueError if "cover" in name else DecoderError):
        Decoder(clip(name), stream=5)


@pytest.mark.parametrize("name", ["zero_frames_mp4", "zero_frames_avi"])
def test_video_without_frames_raises(name: str) -> None:
    for pixel_format in ("rgb24", "source"):
        with pytest.raises(DecoderError), Decoder(clip(name), pixel_format=pixel_format) as decoder:
            list(decoder)


def test_start_after_the_end_raises(engine: str) -> None:
    with Decoder(clip("h264"), start=100) as decoder:
        for _ in range(2):
            with pytest.raises(DecoderError):
                decoder.read()


@pytest.mark.parametrize("name", sorted(NO_MEDIA))
def test_file_that_is_no_media_raises_and_says_so(name: str) -> None:
    with pytest.raises(DecoderError, match="media"):
        Decoder(clip(name))


def test_missing_file_and_folder_raise_the_builtin_errors(tmp_path: Path) -> None:
    for absent in (tmp_path / "absent.mp4", str(tmp_path / "no folder" / "absent.mp4")):
        with pytest.raises(FileNotFoundError):
            Decoder(absent)
    with pytest.raises(IsADirectoryError):
        Decoder(tmp_path)


@pytest.mark.linux("modes of files")
@pytest.mark.skipif(IS_ROOT, reason="root may read everything")
def test_unreadable_file_raises_permission_error(tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.touch(0o000)
    with pytest.raises(PermissionError):
        Decoder(secret)


@pytest.mark.linux("a shell script stands in for a program")
@pytest.mark.parametrize("name", ["h264", "h264_ts"])
def test_file_deleted_before_ffmpeg_opens_it_raises(name: str, tmp_path: Path) -> None:
    path = tmp_path / "gone"
    path.write_bytes(clip(name).read_bytes())
    program = tmp_path / "ffmpeg"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *-progress*) rm -f {path};; esac\nexec {find_ffmpeg()} "$@"\n'
    )
    program.chmod(0o755)
    with (
        pytest.raises((DecoderError, FileNotFoundError)),
        Decoder(path, settings=DecoderSettings(ffmpeg=program)) as decoder,
    ):
        decoder.read()


_STARS = pytest.param("shot{1,2}*?.png", marks=pytest.mark.linux("names with colons and line ends"))


@pytest.mark.parametrize("name", ["shot%03d.png", "shot [a].png", "100%.png", "shot{1,2}.png", _STARS])
def test_percent_sign_in_a_picture_name_is_not_a_pattern(name: str, tmp_path: Path) -> None:
    (tmp_path / "shot001.png").write_bytes(b"")
    (tmp_path / name).write_bytes(clip("png").read_bytes())
    with Decoder(tmp_path / name) as decoder, Decoder(clip("png")) as other:
        assert np.array_equal(np.stack(list(decoder)), np.stack(list(other)))


# Arguments


@pytest.mark.parametrize(
    ("options", "error", "keyword"),
    [
        ({"pixel_format": "rbg24"}, ValueError, "'rgb24'"),
        ({"size": (0, 1)}, ValueError, "more than 0"),
        ({"size": (None, None)}, ValueError, "None"),
        ({"start": -0.1}, ValueError, "start"),
        ({"start": math.nan}, ValueError, "start"),
        ({"start": math.inf}, ValueError, "finite"),
        ({"count": 0}, ValueError, "count"),
        ({"color_matrix": "rec709"}, ValueError, "'bt709'"),
        ({"color_range": "tv"}, ValueError, "'limited'"),
        ({"stream": 1}, ValueError, "1 video stream"),
        ({"stream": -1}, ValueError, "1 video stream"),
        (
            {"pixel_format": "yuv444p", "settings": with_overrides(DecoderSettings(), convert="native")},
            ValueError,
            "convert",
        ),
        ({"size": (1.5, 2)}, TypeError, None),
        ({"size": 5}, TypeError, "width"),
        ({"size": (100,)}, TypeError, "width"),
        ({"size": "64x48"}, TypeError, "width"),
        ({"count": 1.5}, TypeError, None),
        ({"start": "1"}, TypeError, None),
    ],
)
def test_invalid_arguments_raise(
    options: dict[str, Any], error: type[Exception], keyword: str | None
) -> None:
    with pytest.raises(error, match=keyword):
        Decoder(clip("h264"), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"filters": "no_such_filter"}, "no_such_filter"),
        ({"filters": "scale=nonsense"}, "nonsense"),
        ({"input_options": {"no_such_option": 1}}, "no_such_option"),
    ],
)
def test_error_has_the_words_of_ffmpeg(options: dict[str, object], words: str) -> None:
    decoder = Decoder(clip("h264"), **options)  # type: ignore[arg-type]
    with decoder, pytest.raises(DecoderError, match=words) as caught:
        decoder.read()
    assert caught.value.returncode not in (0, None) and caught.value.frames == 0


@pytest.mark.linux("a shell script stands in for a program")
def test_ffmpeg_that_cannot_decode_alpha_raises(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\n{find_ffmpeg()} "$@" | sed "s/ libvpx-vp9 / nothing /"\n')
    program.chmod(0o755)
    for pixel_format in ("rgba", "source"):
        with pytest.raises(DecoderError):
            Decoder(
                clip("vp9_alpha"),
                pixel_format=pixel_format,
                settings=DecoderSettings(ffmpeg=program),
            )


def test_empty_filters_are_ignored() -> None:
    with Decoder(clip("h264"), filters="") as decoder:
        assert len(list(decoder)) == 30


def test_missing_ffmpeg_raises() -> None:
    with pytest.raises(DecoderError):
        Decoder(clip("h264"), settings=DecoderSettings(ffmpeg="/nowhere"))


# Ending early


def test_closing_ends_ffmpeg_and_frames_stay() -> None:
    with Decoder(clip("long"), settings=by_program()) as decoder:
        for one in decoder:
            frame = one
            break
        copy, pid = frame.copy(), decoder.pid
        assert is_there(pid) and not decoder.closed
    assert decoder.closed and not is_there(pid)
    assert np.array_equal(frame, copy) and frame.std() > 0
    frame[:] = 7
    decoder.close()
    for use in (
        decoder.read,
        lambda: next(decoder),
        lambda: decoder.readinto(bytearray(decoder.frame_bytes)),
    ):
        with pytest.raises(ClosedError):
            use()
    assert decoder.stats.frames_delivered == 1
    assert "long" in repr(decoder)


def test_exception_in_the_block_is_not_replaced() -> None:
    with pytest.raises(KeyError), Decoder(clip("long"), settings=by_program()) as decoder:
        next(decoder)
        raise KeyError("mine")
    assert not is_there(decoder.pid)


@pytest.mark.parametrize("settings", [DecoderSettings(threads=3), by_program()], ids=["libav", "ffmpeg"])
def test_dropped_decoder_leaves_nothing_and_warns(settings: DecoderSettings) -> None:
    fds, threads = open_fds(), libav_threads()
    decoder = Decoder(clip("long"), settings=settings)
    next(decoder)
    frame = next(decoder)  # libav's threads begin with the second one
    copy, pid = frame.copy(), decoder.pid
    assert (open_fds(), libav_threads()) != (fds, threads)
    assert pid or len(libav_threads() - threads) == 3
    gc.disable()  # nothing waits for a collection
    try:
        with pytest.warns(ResourceWarning):
            del decoder
        assert eventually(lambda: (open_fds(), libav_threads()) == (fds, threads))
        assert eventually(lambda: pid is None or not is_there(pid))
    finally:
        gc.enable()
    assert np.array_equal(frame, copy)


def test_a_decoder_that_is_at_its_end_needs_no_close(recwarn: pytest.WarningsRecorder) -> None:
    decoder = Decoder(clip("h264"))
    assert len(list(decoder)) == 30
    del decoder
    gc.collect()
    assert not recwarn


def test_decoder_whose_constructor_failed_is_collected_without_an_error(
    recwarn: pytest.WarningsRecorder,
) -> None:
    Decoder.__new__(Decoder).__del__()
    with pytest.raises(ValueError):
        Decoder(clip("h264"), count=0)
    gc.collect()
    assert not recwarn


@pytest.mark.parametrize("ending", ["", "del decoder"])
def test_a_program_that_ends_with_a_live_decoder_makes_no_noise(ending: str) -> None:
    code = f"""
    decoder = penstock.Decoder(sys.argv[1], {BY_PROGRAM})
    next(decoder)
    print(decoder.pid, flush=True)
    {ending}
    """
    pid = int(succeeded(run_script(code, clip("long"))))
    assert eventually(lambda: has_ended(pid))


def test_a_program_ends_well_while_a_daemon_thread_decodes() -> None:
    code = """
    decoder, begun = penstock.Decoder(sys.argv[1]), threading.Event()

    def read():
        for _ in decoder:
            begun.set()

    threading.Thread(target=read, daemon=True).start()
    assert begun.wait(60)
    """
    for _ in range(2):
        succeeded(run_script(code, clip("long")))


def test_close_wakes_a_thread_that_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes the file itself, behind the packet at hand; `close` does not wait for that."""
    decodes, is_closed = threading.Event(), threading.Event()
    decode = OpenVideo.decode

    def held_up(self: OpenVideo, packet: Any) -> Any:
        frames = decode(self, packet)
        decodes.set()
        assert is_closed.wait(PATIENCE_S)
        return frames

    fds, threads, said = open_fds(), libav_threads(), []
    decoder = Decoder(clip("long"))
    got = [next(decoder).index]

    def read() -> None:
        try:
            got.extend(frame.index for frame in decoder)
        except BaseException as error:
            said.append(error)

    monkeypatch.setattr(OpenVideo, "decode", held_up)
    thread = threading.Thread(target=read)
    thread.start()
    assert decodes.wait(PATIENCE_S)
    decoder.close()
    assert (open_fds(), libav_threads()) != (fds, threads)
    is_closed.set()
    thread.join(PATIENCE_S)
    assert [type(error) for error in said] == [ClosedError], said
    assert got == list(range(len(got)))
    assert eventually(lambda: (open_fds(), libav_threads()) == (fds, threads))


def test_close_wakes_a_thread_that_waits() -> None:
    said: list[BaseException] = []
    decoder = Decoder(clip("long"), settings=by_program())
    next(decoder)
    os.kill(decoder.pid, signal.SIGSTOP)

    def read() -> None:
        try:
            list(decoder)
        except BaseException as error:
            said.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert eventually(lambda: decoder.stats.frames_read == decoder.stats.frames_delivered)
    decoder.close()
    thread.join(PATIENCE_S)
    assert [type(error) for error in said] == [ClosedError], said
    assert not is_there(decoder.pid)


# FFmpeg


@pytest.mark.linux("signals in exit statuses")
def test_killed_ffmpeg_raises_after_the_frames_before() -> None:
    with Decoder(clip("long"), size=(1280, 720), settings=by_program()) as decoder:
        next(decoder)
        os.kill(decoder.pid, signal.SIGKILL)
        frames, error = until_fault(decoder)
    assert (error.returncode, error.frames) == (-signal.SIGKILL, len(frames) + 1)
    expected = whole("long")
    assert [frame.index for frame in frames] == list(range(1, len(frames) + 1)) and len(frames) < len(
        expected
    )
    assert None not in [frame.pts for frame in frames]


def test_stopped_ffmpeg_raises_stalled_error_and_no_frame_is_lost() -> None:
    with Decoder(clip("long"), size=(640, 480), settings=by_program(stall_timeout=0.6)) as decoder:
        frames = [next(decoder)]
        os.kill(decoder.pid, signal.SIGSTOP)
        with pytest.raises(StalledError) as caught:
            while True:
                frames.append(next(decoder))
        assert caught.value.seconds >= 0.6
        for timeout in (0.1, 0):
            with pytest.raises(StalledError):
                decoder.read(timeout)
        os.kill(decoder.pid, signal.SIGCONT)
        frames.extend(decoder)
        assert [frame.index for frame in frames] == list(range(600))
        assert len({frame.pts for frame in frames}) == 600


@pytest.mark.parametrize("name", ["h264_mkv", "rawvideo", "variable_mp4"])
def test_a_read_without_time_raises_or_gives_a_frame_and_loses_none(name: str) -> None:
    with Decoder(clip(name)) as decoder:
        expected = [(frame.index, frame.pts, frame.tobytes()) for frame in decoder]
    got = []
    with Decoder(clip(name)) as decoder:
        while True:
            try:
                frame = decoder.read(timeout=0)
            except StalledError as error:
                assert error.seconds == 0
            else:
                if frame is None:
                    break
                got.append((frame.index, frame.pts, frame.tobytes()))
    assert got == expected


@pytest.mark.slow
def test_a_read_at_the_end_can_be_late(tmp_path: Path) -> None:
    """FFmpeg has closed its output and does not exit."""
    program = script(
        tmp_path / "ffmpeg",
        f'FFMPEG="{find_ffmpeg()}"',
        'case "$*" in *-progress*) "$FFMPEG" "$@"; exec >&-; sleep 1000;; *) exec "$FFMPEG" "$@";; esac',
    )
    with Decoder(clip("h264"), settings=DecoderSettings(ffmpeg=program)) as decoder:
        for _ in range(30):
            assert decoder.read() is not None
        with pytest.raises(StalledError):
            decoder.read(timeout=0.1)
        assert decoder.read() is None, "FFmpeg has reported its end"


@pytest.mark.linux("a shell script stands in for a program")
def test_ffmpeg_that_hangs_raises_stalled_error(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *-progress*) echo thinking >&2; exec sleep 1000;; esac\nexec {find_ffmpeg()} "$@"\n'
    )
    program.chmod(0o755)
    decoder = Decoder(clip("h264"), settings=DecoderSettings(ffmpeg=program, stall_timeout=0.6))
    with decoder, pytest.raises(StalledError, match="thinking"):
        next(decoder)
    assert not is_there(decoder.pid)


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.linux("/proc")
def test_ffmpeg_waits_for_a_slow_caller() -> None:
    with Decoder(clip("long"), size=(1280, 720), settings=by_program(queue_items=2)) as decoder:
        next(decoder)
        used = [-1]

        def stands_still() -> bool:
            used.append(cpu_ticks(decoder.pid))
            time.sleep(0.3)
            return used[-1] == cpu_ticks(decoder.pid)

        assert eventually(stands_still)
        stats = decoder.stats
        # Those that wait, and the one that has no place yet.
        assert stats.frames_read <= 1 + 2 + 1 and stats.frames_delivered == 1


@pytest.mark.linux("sched_getaffinity")
def test_policies_apply_to_the_reader_and_to_ffmpeg() -> None:
    policy = ThreadPolicy(priority="normal", cpus=sorted(os.sched_getaffinity(0))[:1])
    with Decoder(clip("long"), settings=DecoderSettings(policy=policy, ffmpeg_policy=policy)) as decoder:
        next(decoder)
        [thread] = [one for one in threading.enumerate() if one.name == "penstock-decode"]
        assert thread.native_id is not None
        assert os.sched_getaffinity(thread.native_id) == set(policy.cpus or ())
        assert decoder.ffmpeg_policy is not None
        assert os.sched_getaffinity(decoder.pid) == set(policy.cpus or ())
    with Decoder(clip("h264"), settings=by_program()) as decoder:
        assert decoder.ffmpeg_policy is None


# Threads, processes, signals


def test_two_threads_get_each_frame_once_with_its_own_place(engine: str) -> None:
    with Decoder(clip("long"), pixel_format="gray") as decoder:
        expected = {(frame.index, frame.pts, int(frame.sum())) for frame in decoder}
    got: list[tuple[int, int | None, int]] = []
    with Decoder(clip("long"), pixel_format="gray") as decoder:

        def read() -> None:
            got.extend((frame.index, frame.pts, int(frame.sum())) for frame in decoder)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert decoder.read() is None
    assert len(got) == 600 and set(got) == expected


@pytest.mark.linux("signals to programs")
def test_ctrl_c_ends_the_wait_and_ffmpeg() -> None:
    code = f"""
    with penstock.Decoder(sys.argv[1], {BY_PROGRAM}) as decoder:
        next(decoder)
        os.kill(decoder.pid, signal.SIGSTOP)
        print(decoder.pid, flush=True)
        list(decoder)
    """
    with start_script(code, clip("long")) as program:
        pid = int(program.stdout.readline())
        assert eventually(lambda: are_asleep(lambda: {program.pid}))
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=PATIENCE_S)
    assert program.returncode != 0 and said.decode().rstrip().endswith("KeyboardInterrupt")
    assert eventually(lambda: not is_there(pid))


class _Signals:
    """Sends this process a signal before or after some calls of a method, each time after one call more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, number: int) -> None:
        self._left = self._gap = 2
        method = getattr(kind, name)

        def called(instance: Any, *arguments: Any) -> Any:
            self._left -= 1
            is_due, is_before = self._left == 0, self._gap % 2 == 0
            if is_due:
                self._gap += 1
                self._left = self._gap
            if is_due and is_before:
                signal.raise_signal(number)
            result = method(instance, *arguments)
            if is_due and not is_before:
                signal.raise_signal(number)
            return result

        monkeypatch.setattr(kind, name, called)


class _Waited:
    """A frame's job, whose `wait` is Python's, so that a test can send signals in it."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def wait(self) -> Any:
        return self._job.wait()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders wait for `_Waited`."""
    begin = Pixels.begin
    monkeypatch.setattr(Pixels, "begin", lambda *arguments: _Waited(begin(*arguments)))


WITHIN = pytest.mark.parametrize(
    ("kind", "name"),
    [(OpenVideo, "decode"), (Sequence, "advance"), (Pixels, "begin"), (_Waited, "wait")],
    ids=["decode", "advance", "begin", "wait"],
)


@WITHIN
@pytest.mark.usefixtures("waited")
@pytest.mark.parametrize(
    ("clip_name", "options"),
    [
        ("h264_mkv", {}),
        ("h265", {"start": 0.3, "count": 10}),
        ("rawvideo", {"size": (32, 24)}),
        ("h264_ts", {}),
    ],
)
def test_ctrl_c_between_two_packets_loses_no_frame(
    monkeypatch: pytest.MonkeyPatch, kind: type, name: str, clip_name: str, options: dict[str, Any]
) -> None:
    """Also where the interrupted call has taken frames out of libav already."""
    with Decoder(clip(clip_name), **options) as decoder:
        expected = [(frame.index, frame.pts, frame.tobytes()) for frame in decoder]
    got, interruptions, is_at_end = [], 0, False
    with Decoder(clip(clip_name), **options) as decoder:
        _Signals(monkeypatch, kind, name, signal.SIGINT)
        while not is_at_end:
            try:
                for frame in decoder:
                    got.append((frame.index, frame.pts, frame.tobytes()))
                is_at_end = True
            except KeyboardInterrupt:
                interruptions += 1
    assert interruptions > 1
    assert got == expected


def test_ctrl_c_right_after_a_read_took_the_lock_releases_the_lock() -> None:
    class Interrupted:
        def __init__(self, lock: Any) -> None:
            self.release, self._lock = lock.release, lock

        def acquire(self, **arguments: Any) -> bool:
            assert self._lock.acquire(**arguments)
            signal.raise_signal(signal.SIGINT)
            return True

    with Decoder(clip("h264_mkv")) as decoder:
        engine: Any = decoder._engine
        lock = engine._lock
        engine._lock = Interrupted(lock)
        with pytest.raises(KeyboardInterrupt):
            next(decoder)
        engine._lock = lock
        with ThreadPoolExecutor(1) as other_thread:
            assert other_thread.submit(decoder.read, 20).result().index == 0
        assert [frame.index for frame in decoder] == list(range(1, 30))


@WITHIN
@pytest.mark.usefixtures("waited")
def test_signal_handler_can_close_a_decoder_during_a_read(
    monkeypatch: pytest.MonkeyPatch, kind: type, name: str
) -> None:
    fds, threads = open_fds(), libav_threads()
    decoder = Decoder(clip("long"))
    next(decoder)
    before = signal.signal(signal.SIGTERM, lambda *_: decoder.close())
    try:
        _Signals(monkeypatch, kind, name, signal.SIGTERM)
        with pytest.raises(ClosedError):
            list(decoder)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert decoder.closed and 0 < decoder.stats.frames_delivered < 600
    assert eventually(lambda: (open_fds(), libav_threads()) == (fds, threads))


def test_a_signal_handler_that_reads_is_refused_and_takes_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[BaseException] = []

    def read(*_: Any) -> None:
        with pytest.raises(RuntimeError) as caught:
            decoder.read()
        said.append(caught.value)

    with Decoder(clip("h264_mkv")) as decoder:
        before = signal.signal(signal.SIGTERM, read)
        try:
            _Signals(monkeypatch, OpenVideo, "decode", signal.SIGTERM)
            assert [frame.index for frame in decoder] == list(range(30))
        finally:
            signal.signal(signal.SIGTERM, before)
    assert said


@pytest.mark.linux("forks")
@pytest.mark.parametrize("settings", ["", BY_PROGRAM], ids=["libav", "ffmpeg"])
def test_forked_child_gets_a_closed_decoder(settings: str) -> None:
    code = f"""
    decoder = penstock.Decoder(sys.argv[1], size=(320, 240), {settings})
    first = next(decoder)
    child = os.fork()
    if child == 0:
        assert decoder.closed
        try:
            next(decoder)
        except penstock.ClosedError:
            decoder.close()
            del decoder
            sys.exit(7)
        sys.exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    indices = [frame.index for frame in decoder]
    assert indices == list(range(1, 600)), indices
    decoder.close()
    """
    succeeded(run_script(code, clip("long")))


@pytest.mark.linux("forks")
@pytest.mark.parametrize("way", ["decoder.close()", "decoder.__exit__(None, None, None)"])
def test_forked_child_can_close_a_decoder_that_a_thread_of_the_parent_reads(way: str) -> None:
    code = f"""
    decoder = penstock.Decoder(sys.argv[1], {BY_PROGRAM})
    decoder.read()
    child = os.fork()
    if child == 0:
        decoder._engine._lock.acquire(timeout=1)  # as that thread may have done
        signal.alarm(20)
        {way}
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    decoder.close()
    """
    succeeded(run_script(code, clip("long")))


@pytest.mark.parametrize(
    ("kind", "options"),
    [("Decoder", ", filters='hflip'"), ("AudioDecoder", ", input_options={'probesize': 10000}")],
)
def test_missing_ffmpeg_error_says_how_to_install_it(kind: str, options: str, tmp_path: Path) -> None:
    code = f"""
    sys.modules["imageio_ffmpeg"] = None
    from penstock import {kind}
    try:
        {kind}(sys.argv[1]{options})
    except penstock.DecoderError as error:
        print(error)
    """
    path = tmp_path / "bin"
    path.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_FF")}
    done = run_script(code, clip("audio_aac"), env={**environment, "PATH": str(path)})
    (said,) = succeeded(done).decode().splitlines()
    assert said.startswith("no FFmpeg was found") and "`pip install 'penstock-io[ffmpeg]'`" in said


def test_files_are_read_without_ffmpeg(tmp_path: Path) -> None:
    code = """
    sys.modules["imageio_ffmpeg"] = None
    media = penstock.probe(sys.argv[1])
    assert media.best_video.codec == "h264"
    for options in ({}, {"start": 0.5, "count": 4}, {"size": (32, None)}, {"pixel_format": "source"}):
        with penstock.Decoder(sys.argv[1], **options) as decoder:
            frames = list(decoder)
            assert len(decoder) == len(frames) == decoder.stats.frames_delivered > 0
            assert decoder.pid is None and decoder.file == media
            assert (decoder[-1] == frames[-1]).all()
    with penstock.AudioDecoder(sys.argv[2]) as audio:
        assert len(audio.read_all()) and audio.window(0, 0.1).any() and audio.pid is None
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_FF")}
    paths = clip("h264_mkv"), clip("audio_aac")
    succeeded(run_script(code, *paths, env={**environment, "PATH": str(tmp_path)}))


# asyncio


def test_a_cancelled_wait_loses_no_frame() -> None:
    async def indices() -> list[int]:
        async with Decoder(clip("long"), size=(640, 480), settings=by_program()) as decoder:
            got = [(await anext(decoder)).index]
            os.kill(decoder.pid, signal.SIGSTOP)
            for patience_s in (0.01, 0.05, 0.7):
                with pytest.raises(TimeoutError):
                    while True:
                        got.append((await asyncio.wait_for(anext(decoder), patience_s)).index)
            os.kill(decoder.pid, signal.SIGCONT)
            for _ in range(100):
                task = asyncio.create_task(anext(decoder))
                await asyncio.sleep(0)
                task.cancel()
                try:
                    got.append((await task).index)
                except asyncio.CancelledError:
                    continue
            got.extend([frame.index async for frame in decoder])
        return got

    assert asyncio.run(indices()) == list(range(600))


def test_a_cancelled_wait_for_libav_loses_no_frame() -> None:
    async def indices() -> list[int]:
        got = []
        async with Decoder(clip("long")) as decoder:
            for turns in range(200):
                task = asyncio.create_task(anext(decoder))
                for _ in range(turns % 4):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    got.append((await task).index)
                except asyncio.CancelledError:
                    continue
            got.append(decoder.read().index)  # type: ignore[union-attr]
            got.extend([frame.index async for frame in decoder])
        return got

    assert asyncio.run(indices()) == list(range(600))


def test_a_read_that_is_late_after_a_cancelled_wait_loses_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    advance, goes_on = Sequence.advance, threading.Event()

    def held_up(self: Sequence) -> Any:
        assert goes_on.wait(PATIENCE_S)
        return advance(self)

    async def indices() -> list[int]:
        async with Decoder(clip("long")) as decoder:
            got = [(await anext(decoder)).index]
            monkeypatch.setattr(Sequence, "advance", held_up)
            task = asyncio.create_task(anext(decoder))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(StalledError):
                decoder.read(timeout=0)
            goes_on.set()
            got.append(decoder.read().index)  # type: ignore[union-attr]
            got.extend([frame.index async for frame in decoder])
        return got

    assert asyncio.run(indices()) == list(range(600))


@pytest.mark.linux("the time that another program has used, for which Wine tells our own")
def test_stopped_ffmpeg_raises_in_asyncio_while_the_loop_runs() -> None:
    async def use() -> int:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.01)

        async with Decoder(clip("long"), size=(640, 480), settings=by_program(stall_timeout=1.0)) as decoder:
            await anext(decoder)
            os.kill(decoder.pid, signal.SIGSTOP)
            beating = asyncio.create_task(beat())
            with pytest.raises(StalledError):
                async for _ in decoder:
                    pass
            beating.cancel()
        return beats

    assert asyncio.run(use()) > 20, "the loop turned while it waited for a second"


def test_two_tasks_share_a_decoder_without_blocking_the_loop(engine: str) -> None:
    async def use() -> list[int]:
        async with Decoder(clip("long")) as decoder:

            async def some() -> list[int]:
                return [frame.index async for frame in decoder]

            first, second = await asyncio.gather(some(), some())
            return sorted(first + second)

    assert asyncio.run(use()) == list(range(600))


def test_leaving_a_block_does_not_hold_the_loop(engine: str) -> None:
    closers: list[threading.Thread] = []

    class Watched(Decoder):
        def close(self) -> None:
            closers.append(threading.current_thread())
            super().close()

    async def use() -> None:
        async with Watched(clip("long")) as decoder:
            await anext(decoder)
        assert decoder.closed

    asyncio.run(use())
    assert closers and threading.current_thread() not in closers


def test_the_seam_of_joined_transport_streams_has_advice(tmp_path: Path) -> None:
    part, path = tmp_path / "part.ts", tmp_path / "joined.ts"
    ffmpeg("-i", clip("long"), "-frames:v", "25", "-c:v", "libx264", part)
    path.write_bytes(2 * part.read_bytes())
    with Decoder(path, settings=by_program()) as decoder:
        frames, error = until_fault(decoder)
    assert 0 < len(frames) < 50
    assert error.advice is not None and "conceal_errors=True" in error.advice
    with Decoder(path, conceal_errors=True) as decoder:
        assert len(list(decoder)) == 50


@pytest.mark.parametrize("pixel_format", ["rgb24", "yuv444p"])
def test_a_frame_beyond_the_limit_of_the_program_is_refused(pixel_format: str) -> None:
    with pytest.raises(ValueError, match="2 GiB") as caught:
        Decoder(clip("h264"), size=(30_000, 30_000), pixel_format=pixel_format, filters="null")
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("isolated", [False, True])
def test_times_far_from_0_pass_through_a_program(isolated: bool, tmp_path: Path) -> None:
    path, epoch = (
        tmp_path / "epoch.nut",
        ("-enc_time_base", "1/1000000000", "-output_ts_offset", "1700000000"),
    )
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25", "-frames:v", "3", "-c:v", "ffv1", *epoch, path)
    for filters in (None, "null"):
        with Decoder(path, isolated=isolated, filters=filters) as decoder:
            assert [frame.pts for frame in decoder] == [10**9 * 17 * 10**8 + 40_000_000 * n for n in range(3)]


@pytest.mark.parametrize("read", [next, lambda decoder: decoder[1]], ids=["in sequence", "by number"])
def test_no_error_of_libav_reaches_the_caller(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise av.error.InvalidDataError(1, "no data")

    with Decoder(clip("h264")) as decoder:
        monkeypatch.setattr(Pixels, "begin", fail)
        with pytest.raises(DecoderError, match="no data"):
            read(decoder)
    monkeypatch.setattr(OpenVideo, "packets", fail)
    with pytest.raises(DecoderError):
        Decoder(clip("h264"))
