"""Who waits for whom: an FFmpeg that is stuck, progress, asyncio, Ctrl-C, and a Python that is killed."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest
from support.cases import UNREHEARSED, eventually
from support.media import SIZE, decode, flat, make
from support.processes import has_ended, start_script
from support.this_process import are_asleep

from penstock import ClosedError, Encoder, EncoderError, StalledError
from penstock.cpu import ThreadPolicy
from penstock.video import EncoderSettings, EncoderStats, find_ffmpeg

# More than the queue, the pipe and FFmpeg hold.
MANY = 400


# Stuck


def test_write_to_a_stuck_ffmpeg_raises(tmp_path: Path) -> None:
    with make(
        tmp_path / "video.mp4", size=(640, 480), settings=EncoderSettings(stall_timeout=1.0, queue_items=2)
    ) as encoder:
        os.kill(encoder.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StalledError) as caught:
                for _ in range(MANY):
                    encoder.write(bytes(640 * 480 * 3))
        finally:
            os.kill(encoder.pid, signal.SIGCONT)
        assert caught.value.seconds >= 1.0 and caught.value.bytes_pending > 0
        encoder.write(bytes(640 * 480 * 3))  # nothing is lost: it goes on when FFmpeg does
    assert encoder.close().frames_encoded == encoder.frames_submitted


# A FIFO


TO_FIFO = {"codec": "mpeg4", "options": {"f": "nut"}}


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(path := tmp_path / "fifo")
    return path


def test_unread_fifo_is_reported_at_once_and_in_the_error(
    fifo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = make(fifo, **TO_FIFO, settings=EncoderSettings(stall_timeout=0.1))
    [line] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "nobody has opened" in line and str(fifo) in line
    encoder.write(flat(0))
    for timeout in (0.01, None):
        with pytest.raises(StalledError):
            encoder.close(timeout)
    encoder.abort()


def test_leaving_a_block_says_that_nobody_reads_the_fifo(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock._encoding.session.STUCK_S", 0.1)
    with pytest.raises(RuntimeError) as caught, make(fifo, **TO_FIFO) as encoder:
        encoder.write(flat(0))
        raise RuntimeError
    [note] = caught.value.__notes__
    assert "nobody has opened" in note
    assert fifo.is_fifo()


@pytest.mark.linux("a shell script stands in for a program")
@pytest.mark.parametrize("is_there", [False, True])
def test_fifo_reader_gets_everything_whenever_it_opens_the_fifo(
    fifo: Path, tmp_path: Path, is_there: bool
) -> None:
    """Also if FFmpeg is slow to open it: the reader must not take that for the end."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *-progress*) sleep 0.5;; esac\nexec \'{find_ffmpeg()}\' "$@"\n')
    slow.chmod(0o755)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK) if is_there else -1
    encoder = make(fifo, **TO_FIFO, settings=EncoderSettings(ffmpeg=slow))
    with ThreadPoolExecutor() as pool:
        if is_there:
            os.set_blocking(reader, True)
            read = pool.submit(FileIO(reader, "rb").readall)
        else:
            read = pool.submit(fifo.read_bytes)
        for index in range(5):
            encoder.write(flat(index))
        encoder.close()
        (tmp_path / "video.nut").write_bytes(read.result(60))
    assert len(decode(tmp_path / "video.nut")) == 5


@pytest.mark.linux("forks")
def test_a_forked_child_does_not_keep_a_fifo_open(fifo: Path) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    encoder = make(fifo, **TO_FIFO)
    waits, ends = os.pipe()
    if (child := os.fork()) == 0:
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    os.set_blocking(reader, True)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(FileIO(reader, "rb").readall)
        encoder.write(flat(0))
        encoder.close()
        assert read.result(60)
    os.close(waits)
    os.close(ends)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.linux("a shell script stands in for a program")
def test_close_of_a_stuck_ffmpeg_raises_with_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "ffmpeg"
    script.write_text("#!/bin/sh\necho 'I shall now think' >&2\nexec sleep 1000\n")
    script.chmod(0o755)
    encoder = make(tmp_path / "video.mp4", settings=EncoderSettings(ffmpeg=script, stall_timeout=1.0))
    encoder.write(flat(0))
    with pytest.raises(StalledError, match="think"):
        encoder.close()
    assert not has_ended(encoder.pid)
    encoder.abort()
    assert has_ended(encoder.pid)


def test_timeout_argument_overrides_the_stall_timeout(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4", size=(640, 480), settings=EncoderSettings(queue_items=1)) as encoder:
        os.kill(encoder.pid, signal.SIGSTOP)
        with pytest.raises(StalledError) as caught:
            for _ in range(MANY):
                encoder.write(bytes(640 * 480 * 3), timeout=0.2)
        assert caught.value.seconds == 0.2
        with pytest.raises(StalledError):
            encoder.close(timeout=0.2)
        os.kill(encoder.pid, signal.SIGCONT)


# Statistics and progress


def test_stats_count_frames_and_name_the_bottleneck(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4") as encoder:
        assert encoder.bottleneck is None
        for index in range(20):
            encoder.write(flat(index))
        assert eventually(lambda: encoder.stats.frames_written == 20)
    stats = encoder.stats
    assert (stats.frames_submitted, stats.frames_written, stats.frames_encoded) == (20, 20, 20)
    assert stats.bytes_written == 20 * SIZE[0] * SIZE[1] * 3 // 2, "what FFmpeg got, in yuv420p"
    assert stats.output_bytes is not None and stats.output_bytes > 0
    assert stats.elapsed_s > 0 and stats.fps == pytest.approx(20 / stats.elapsed_s)
    assert stats.speed == pytest.approx(stats.fps / 30)
    assert stats.converting_s > 0 and stats.writer.items_accepted == 20


def test_slow_caller_is_the_bottleneck(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4") as encoder:
        encoder.write(flat(0))
        time.sleep(1.0)
        assert encoder.bottleneck == "caller"
        assert encoder.stats.input_wait_s > 0.5


def test_slow_ffmpeg_is_the_bottleneck(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4", size=(640, 480), settings=EncoderSettings(queue_items=2)) as encoder:
        os.kill(encoder.pid, signal.SIGSTOP)
        timer = threading.Timer(1.5, os.kill, (encoder.pid, signal.SIGCONT))
        timer.start()
        for _ in range(20):
            encoder.write(bytes(640 * 480 * 3))
        timer.join()
        assert encoder.bottleneck == "ffmpeg"
        assert encoder.stats.caller_wait_s > 0.5 and encoder.stats.output_wait_s > 0.5


def test_progress_callable_gets_the_stats(tmp_path: Path) -> None:
    told: list[EncoderStats] = []
    with make(tmp_path / "video.mp4", progress=told.append) as encoder:
        for index in range(10):
            encoder.write(flat(index))
        assert eventually(lambda: len(told) >= 2)
    assert told[-1].frames_encoded == 10, "the last word is the end's"
    assert [stats.frames_encoded for stats in told] == sorted(stats.frames_encoded for stats in told)
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-encoder-progress"]


def test_failing_progress_callable_does_not_replace_the_report(tmp_path: Path) -> None:
    def fail(_: EncoderStats) -> None:
        raise RuntimeError("the callable's own")

    encoder = make(tmp_path / "video.mp4", progress=fail)
    encoder.write(flat(0))
    with pytest.warns(RuntimeWarning):
        assert encoder.close().frames_encoded == 1
    encoder = make(tmp_path / "video.mp4", progress=fail, options={"crff": 1}, settings=UNREHEARSED)
    with pytest.warns(RuntimeWarning), pytest.raises(EncoderError):
        encoder.close()


def test_closed_standard_error_does_not_break_the_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    encoder = make(tmp_path / "video.mp4", progress=True)
    encoder.write(flat(0))
    sys.stderr.close()
    assert encoder.close().frames_encoded == 1


# asyncio


def test_asyncio_loop_runs_while_frames_are_written(tmp_path: Path) -> None:
    async def encode() -> list[float]:
        beats: list[float] = []

        async def beat() -> None:
            while True:
                beats.append(time.monotonic())
                await asyncio.sleep(0.01)

        async with make(tmp_path / "video.mp4") as encoder:
            beating = asyncio.create_task(beat())
            for index in range(50):
                await encoder.write(flat(index))
        assert encoder.close().frames_encoded == 50
        beating.cancel()
        return beats

    assert len(asyncio.run(encode())) > 1, "others run meanwhile"
    assert len(decode(tmp_path / "video.mp4")) == 50


def test_failed_ffmpeg_raises_in_asyncio(tmp_path: Path) -> None:
    async def encode() -> None:
        async with make(tmp_path / "video.mp4", options={"crf": "nonsense"}, settings=UNREHEARSED) as encoder:
            for index in range(MANY):
                await encoder.write(flat(index))

    with pytest.raises((EncoderError, BrokenPipeError)) as caught:
        asyncio.run(encode())
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "nonsense" in told


def test_cancelled_exit_finishes_and_a_second_cancellation_ends_at_once(tmp_path: Path) -> None:
    async def encode(output: Path, *, cancel_twice: bool) -> Encoder:
        encoder = make(output)

        async def use() -> None:
            async with encoder:
                await encoder.write(flat(0))
                os.kill(encoder.pid, signal.SIGSTOP)  # so that the exit cannot finish

        task = asyncio.create_task(use())
        assert await asyncio.to_thread(eventually, lambda: encoder._session._closing_at_s is not None)
        task.cancel()
        await asyncio.sleep(0.3)
        assert not task.done(), "it finishes first"
        if cancel_twice:
            task.cancel()
        else:
            os.kill(encoder.pid, signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert has_ended(encoder.pid), "nothing is left to run behind the task's back"
        return encoder

    assert asyncio.run(encode(tmp_path / "once.mp4", cancel_twice=False)).close().frames_encoded == 1
    with pytest.raises(ClosedError):
        asyncio.run(encode(tmp_path / "twice.mp4", cancel_twice=True)).close()


# Ctrl-C, and worse

LOOP = """
import sys
from pathlib import Path
from penstock import Encoder

options = {"size": (640, 480), "fps": 30} | eval(sys.argv[2])
frame = bytes(3 * options["size"][0] * options["size"][1])
with Encoder(Path(sys.argv[1]), **options) as encoder:
    print(encoder.pid, flush=True)
    try:
        for index in range(10**9):
            encoder.write(frame).wait()
            if index == 20:
                print("begun", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


def start(output: Path, options: str = "{}") -> tuple[subprocess.Popen[str], int]:
    process = start_script(LOOP, output, options, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "begun\n"
    return process, pid


def test_ctrl_c_leaves_a_playable_file_of_what_was_submitted(tmp_path: Path) -> None:
    process, pid = start(tmp_path / "video.mp4")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in said
    assert has_ended(pid)
    assert len(decode(tmp_path / "video.mp4", (640, 480))) >= 21


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    process, pid = start(tmp_path / "video.mp4")
    os.kill(pid, signal.SIGSTOP)  # so that the first one cannot finish
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline() == "interrupted\n"
    assert eventually(lambda: are_asleep(lambda: {process.pid})), "it waits for FFmpeg"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert eventually(lambda: has_ended(pid))


CLOSING = """
import sys
from pathlib import Path
import numpy as np
from penstock import Encoder
from penstock.video import EncoderSettings

import os, signal
with Encoder(Path(sys.argv[1]), size=(640, 480), fps=30, settings=EncoderSettings(queue_items=40)) as encoder:
    os.kill(encoder.pid, signal.SIGSTOP)
    for _ in range(40):
        encoder.write(np.zeros((480, 640, 3), np.uint8))
    print(encoder.pid, flush=True)
"""


def test_ctrl_c_while_closing_still_leaves_a_whole_file(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    process = start_script(CLOSING, output, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert eventually(lambda: are_asleep(lambda: {process.pid})), "it closes"
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None, "it finishes first"
    os.kill(pid, signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert has_ended(pid)
    assert len(decode(output, (640, 480))) == 40


def test_no_ffmpeg_is_left_when_python_is_killed(tmp_path: Path) -> None:
    process, pid = start(tmp_path / "video.mp4")
    process.kill()
    process.communicate(timeout=30)
    assert eventually(lambda: has_ended(pid))
    assert len(decode(tmp_path / "video.mp4", (640, 480))) >= 20, "it has finished the file by itself"


def test_file_is_playable_if_python_is_killed_inside_a_frame(tmp_path: Path) -> None:
    """No frame fits into the pipe as a whole, so that FFmpeg has a part of one nearly all the time."""
    process, pid = start(tmp_path / "video.mp4", '{"size": (1920, 1080)}')
    time.sleep(0.2)  # its next frames are on their way
    process.kill()
    process.communicate(timeout=30)
    assert eventually(lambda: has_ended(pid))
    assert len(decode(tmp_path / "video.mp4", (1920, 1080))) >= 20


def test_hls_playlist_can_be_an_output(tmp_path: Path) -> None:
    """HLS: a playlist that FFmpeg writes anew while it goes on, and its segments."""
    playlist = tmp_path / "live.m3u8"
    options = {"preset": "ultrafast", "g": 10, "hls_time": 1, "hls_list_size": 0}
    with make(playlist, fps=10, options={"f": "hls", **options}) as encoder:
        for index in range(30):
            encoder.write(flat(index))
    assert len(list(tmp_path.glob("live*.ts"))) >= 2
    assert len(decode(playlist)) == 30


def classes_of_workers() -> set[int]:
    classes = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text() == "penstock\n":
                classes.add(os.sched_getscheduler(int(task.name)))
    return classes


@pytest.mark.linux("/proc")
def test_converting_worker_leaves_the_cpu_of_its_caller(tmp_path: Path) -> None:
    """`SCHED_BATCH` does not preempt who wakes it; a policy that was asked for is left alone."""
    assert eventually(lambda: not classes_of_workers())
    with make(tmp_path / "video.mp4") as encoder:
        encoder.submit(flat(0)).wait(30)
        assert classes_of_workers() == {os.SCHED_BATCH}
    with make(
        tmp_path / "video.mp4", settings=EncoderSettings(policy=ThreadPolicy(priority="normal"))
    ) as encoder:
        encoder.submit(flat(0)).wait(30)
        assert classes_of_workers() == {os.SCHED_OTHER}
    with make(
        tmp_path / "video.mp4", output_pixel_format="rgb24", codec="rawvideo", options={"f": "nut"}
    ) as encoder:
        for index in range(2):  # the first needs no worker
            encoder.submit(flat(index)).wait(30)
        assert classes_of_workers() == {os.SCHED_OTHER}
