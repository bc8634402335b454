"""`FanOut`: each frame to several encoders and writers, whole and in order, whatever becomes of one of them."""

from __future__ import annotations

import errno
import os
import signal
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import eventually
from support.media import SIZE, decode, ffmpeg, flat, make
from support.processes import run_script, start_script, succeeded
from support.streams import ReaderThread, read_exactly

import penstock
from penstock import Decoder, Encoder, FanOut, Writer
from penstock._ffmpeg.command.settings import with_overrides
from penstock.video import EncoderSettings, OutputReport

FRAME_BYTES = SIZE[0] * SIZE[1] * 3


def noise(count: int, size: tuple[int, int] = SIZE) -> list[np.ndarray]:
    """Frames that differ everywhere."""
    width, height = size
    return list(np.random.default_rng(7).integers(0, 256, (count, height, width, 3), np.uint8))


def raw(gate: threading.Event | None = None, **options: Any) -> tuple[Writer, ReaderThread]:
    """A writer, and what reads its pipe, when the gate opens."""
    reader, end = os.pipe()
    writer = Writer(end, **options)
    os.close(end)
    return writer, ReaderThread(reader, gate=gate)


def unread(**options: Any) -> tuple[Writer, int]:
    """A writer, and the end of its pipe that nobody reads."""
    reader, end = os.pipe()
    writer = Writer(end, **options)
    os.close(end)
    return writer, reader


def lossless(path: Path, **options: Any) -> Encoder:
    return make(path, codec="ffv1", **options)


def frames_of(got: bytes) -> list[bytes]:
    assert len(got) % FRAME_BYTES == 0, "whole frames only"
    return [got[start : start + FRAME_BYTES] for start in range(0, len(got), FRAME_BYTES)]


def test_fan_out_serves_an_archive_a_preview_and_a_raw_consumer(tmp_path: Path) -> None:
    frames = noise(60)
    gate = threading.Event()
    archive = lossless(tmp_path / "archive.mkv")
    consumer, consumed = raw()
    preview, previewed = raw(gate, queue_items=2, capacity_bytes=4096)
    with FanOut([archive, consumer]) as fan_out:
        fan_out.add(preview, when_full="drop")
        memory, shown = np.empty_like(frames[0]), []
        for number, frame in enumerate(frames):
            memory[:] = frame  # which is free again after each call
            *others, is_shown = fan_out.write(memory)
            assert others == [True, True]
            if is_shown:
                shown.append(number)
            if number == 40:
                gate.set()
                assert eventually(lambda: preview.stats.items_pending == 0)
    sent = [frame.tobytes() for frame in frames]
    assert consumed.result() == b"".join(sent)
    # FFV1 keeps every bit, of a fan-out as of an encoder alone.
    with lossless(tmp_path / "alone.mkv") as alone:
        for frame in frames:
            alone.write(frame)
    hashes = [ffmpeg("-i", tmp_path / name, "-f", "framemd5", "-") for name in ("archive.mkv", "alone.mkv")]
    assert hashes[0] == hashes[1] and hashes[0].count(b"\n0,") == 60
    whole, kept, thinned = fan_out.reports
    assert (whole.output, whole.frames_taken, whole.dropped, whole.error) == (archive, 60, (), None)
    assert whole.result == archive.report and archive.report.frames_encoded == 60
    assert (kept.frames_taken, kept.result.bytes_accepted) == (60, 60 * FRAME_BYTES)
    assert [sent.index(frame) for frame in frames_of(previewed.result())] == shown
    assert shown[0] == 0 and shown[-1] > 40 and thinned.frames_taken == len(shown) < 40
    assert [dropped.index for dropped in thinned.dropped] == sorted({*range(60)} - {*shown})


@pytest.mark.slow
def test_each_encoder_writes_the_same_file_as_it_would_alone(tmp_path: Path) -> None:
    """Two share a conversion, one has its own, one has none, and one leaves it to FFmpeg."""
    kinds: dict[str, dict[str, Any]] = {
        "a.mkv": {"codec": "ffv1", "output_pixel_format": "yuv420p"},
        "b.mp4": {"preset": "ultrafast"},
        "d.mkv": {"codec": "ffv1", "output_pixel_format": "yuv444p", "vflip": True},
        "e.mkv": {"codec": "ffv1"},
        "f.mkv": {
            "codec": "ffv1",
            "output_pixel_format": "yuv420p",
            "settings": with_overrides(EncoderSettings(), convert="ffmpeg"),
        },
    }
    frames = [frame[:, ::-1] for frame in noise(12)]  # not contiguous
    consumer, consumed = raw()
    with FanOut([make(tmp_path / name, **options) for name, options in kinds.items()]) as fan_out:
        fan_out.add(consumer)
        for frame in frames:
            fan_out.write(frame)
    assert consumed.result() == b"".join(frame.tobytes() for frame in frames)
    for name, options in kinds.items():
        with make(tmp_path / f"alone-{name}", **options) as alone:
            for frame in frames:
                alone.write(frame)
        assert (decode(tmp_path / name) == decode(tmp_path / f"alone-{name}")).all(), name


def test_times_reach_every_encoder(tmp_path: Path) -> None:
    times = [Fraction(number * number, 100) for number in range(20)]
    timed = [lossless(tmp_path / f"{name}.mkv", fps=None, size=None) for name in "ab"]
    with FanOut(timed) as fan_out:
        for number, time_s in enumerate(times):
            fan_out.write(flat(number), time_s=time_s)
        for time_s in (times[-1], None):
            with pytest.raises(ValueError):
                fan_out.write(flat(0), time_s=time_s)
    assert [report.frames_taken for report in fan_out.reports] == [20, 20]
    for encoder in timed:
        with penstock.Decoder(encoder.report.output) as decoder:
            assert [round(frame.time_s, 3) for frame in decoder] == [float(time_s) for time_s in times]


def test_constant_rate_output_refuses_a_time_of_another_frame_and_no_output_gets_the_frame(
    tmp_path: Path,
) -> None:
    outputs = [lossless(tmp_path / "a.mkv", fps=None), lossless(tmp_path / "b.mkv", fps=30)]
    consumer, _ = raw()
    with FanOut([*outputs, consumer]) as fan_out:
        for number in range(3):
            fan_out.write(flat(number), time_s=Fraction(number, 30))
        with pytest.raises(ValueError) as caught:
            fan_out.write(flat(3), time_s=0.2)
        assert caught.value.__notes__ == [f"for {outputs[1]!r}"]
        fan_out.write(flat(3), time_s=0.1)
    assert [report.frames_taken for report in fan_out.reports] == [4, 4, 4]
    writer, _ = raw()
    with FanOut([writer]) as fan_out, pytest.raises(ValueError):
        fan_out.write(flat(0), time_s=0)


def test_fan_out_of_writers_accepts_any_buffer() -> None:
    outputs = [raw() for _ in range(4)]
    sent = [
        b"bytes",
        np.arange(10_000, dtype=np.float32)[::-1],
        bytearray(1 << 20),
        memoryview(b"ab" * 9)[::2],
    ]
    with FanOut(writer for writer, _ in outputs) as fan_out:
        for data in sent * 5:
            fan_out.write(data)
        with pytest.raises(TypeError):
            fan_out.write([1, 2, 3])
    expected = b"".join(
        np.asarray(data).tobytes() if isinstance(data, np.ndarray) else bytes(data) for data in sent
    )
    assert [reader.result() for _, reader in outputs] == [expected * 5] * 4


@pytest.mark.linux("modes that map or give away pages")
def test_shared_pages_are_not_reused_while_a_pipe_holds_them() -> None:
    """All outputs lend the same pages to their pipes, and their readers lag behind differently."""
    frames = noise(40, (320, 240))
    gates = [threading.Event() for _ in range(3)]
    options = {"mode": "zero-copy", "reader_copies": True, "queue_items": 40}
    outputs = [raw(gate, **options) for gate in gates]
    with FanOut(writer for writer, _ in outputs) as fan_out:
        for number, frame in enumerate(frames):
            fan_out.write(frame)
            if number % 15 == 14:
                gates[number // 15].set()
        gates[2].set()
    assert {reader.result() for _, reader in outputs} == {b"".join(frame.tobytes() for frame in frames)}
    assert all(report.result.transport == "zero-copy" for report in fan_out.reports)


@pytest.mark.linux("the size of a pipe")
def test_reader_that_goes_away_fails_only_its_own_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dying, reader = unread(queue_items=2)
    consumer, consumed = raw()
    frames = noise(30)
    with pytest.raises(penstock.BrokenStreamError), FanOut([dying, consumer]) as fan_out:
        fan_out.add(lossless(tmp_path / "a.mkv"))
        for number, frame in enumerate(frames):
            if number == 5:
                read_exactly(reader, 5 * FRAME_BYTES)
                os.close(reader)
            taken = fan_out.write(frame)
        assert taken == (False, True, True)
        assert isinstance(fan_out.reports[0].error, penstock.BrokenStreamError)
    assert "failed, and the other outputs go on" in caplog.text
    assert consumed.result() == b"".join(frame.tobytes() for frame in frames)
    assert (decode(tmp_path / "a.mkv") == frames).all()
    assert [report.error is None for report in fan_out.reports] == [False, True, True]


@pytest.mark.linux("files in /dev")
def test_full_disk_fails_only_its_own_outputs(tmp_path: Path) -> None:
    full_video = make("/dev/full", options={"f": "matroska"}, codec="rawvideo", output_pixel_format="yuv420p")
    with Path("/dev/full").open("wb") as full:
        fan_out = FanOut([full_video, Writer(full), lossless(tmp_path / "a.mkv")])
    frames = noise(80)
    for frame in frames:
        fan_out.write(frame)
    video, file, archive = fan_out.close()
    assert isinstance(video.error, penstock.EncoderError) and video.result is None
    assert isinstance(file.error, OSError) and file.error.errno == errno.ENOSPC
    assert archive.error is None and (decode(tmp_path / "a.mkv") == frames).all()
    assert [report.error for report in fan_out.close()] == [video.error, file.error, None]


@pytest.mark.linux("files in /dev")
def test_write_raises_if_all_outputs_have_failed() -> None:
    raw = {"codec": "rawvideo", "output_pixel_format": "yuv420p"}
    with FanOut([make("/dev/full", options={"f": "matroska"}, **raw)]) as fan_out:
        with pytest.raises(penstock.EncoderError):
            for _ in range(10_000):
                fan_out.write(flat(0))
        fan_out.close()


def test_output_that_takes_nothing_times_out_and_no_output_gets_the_frame(tmp_path: Path) -> None:
    gate = threading.Event()
    stuck, late = raw(gate, queue_items=1, capacity_bytes=4096)
    consumer, consumed = raw()
    frames, taken = noise(20), []
    with FanOut([stuck, consumer, lossless(tmp_path / "a.mkv")]) as fan_out:
        for frame in frames:
            try:
                assert fan_out.write(frame, timeout=0.05) == (True,) * 3
            except penstock.StalledError as stalled:
                assert stalled.seconds == 0.05
            else:
                taken.append(frame)
        assert 0 < len(taken) < 10
        gate.set()
        fan_out.write(frames[-1])
    expected = [*taken, frames[-1]]
    assert late.result() == consumed.result() == b"".join(frame.tobytes() for frame in expected)
    assert (decode(tmp_path / "a.mkv") == expected).all(), "a frame is in all outputs, or in none"


def test_stalled_ffmpeg_fails_only_its_own_output(tmp_path: Path) -> None:
    settings = with_overrides(EncoderSettings(stall_timeout=0.5, queue_items=2), capacity_bytes=4096)
    frames = noise(30)
    stuck, archive = make(tmp_path / "stuck.mkv", settings=settings), lossless(tmp_path / "a.mkv")
    fan_out = FanOut([stuck, archive])
    os.kill(stuck.pid, signal.SIGSTOP)
    for frame in frames:
        fan_out.write(frame)
    first, second = fan_out.close()
    assert isinstance(first.error, penstock.StalledError) and stuck.closed
    assert second.error is None and (decode(tmp_path / "a.mkv") == frames).all()


def test_the_error_of_a_killed_encoder_names_its_output(tmp_path: Path) -> None:
    killed, other = make(tmp_path / "killed.mkv"), make(tmp_path / "other.mkv")
    with pytest.raises(penstock.EncoderError) as caught, FanOut([killed, other]) as fan_out:
        fan_out.write(flat(0))
        os.kill(killed.pid, signal.SIGKILL)
        for _ in range(20):
            fan_out.write(flat(0))
    assert caught.value.__notes__ == [f"for {killed!r}"]


def shown_numbers(path: Path, frames: list[np.ndarray]) -> list[int]:
    """Which of `frames` each frame of a lossless video is."""
    number_of = {frame.tobytes(): number for number, frame in enumerate(frames)}
    return [number_of[frame.tobytes()] for frame in decode(path)]


def timed_frames(path: Path) -> list[tuple[bytes, float]]:
    with Decoder(path) as decoder:
        return [(frame.tobytes(), round(frame.time_s, 3)) for frame in decoder]


def stopped(encoder: Encoder) -> None:
    """Stops FFmpeg until `go_on`."""
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGSTOP)


def go_on(encoder: Encoder) -> None:
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGCONT)


SHORT = with_overrides(EncoderSettings(queue_items=2), capacity_bytes=4096)


def test_rows_for_the_frames_that_were_taken_agree_with_the_file(tmp_path: Path) -> None:
    slow, archive = (lossless(tmp_path / name, fps=None, settings=SHORT) for name in ("slow.mkv", "a.mkv"))
    frames, rows = noise(60), []
    with FanOut([archive]) as fan_out:
        fan_out.add(slow, when_full="drop")
        for number, frame in enumerate(frames):
            if number in (5, 40):
                stopped(slow)
            is_archived, is_taken = fan_out.write(frame, time_s=Fraction(number, 50))
            assert is_archived
            if is_taken:
                rows.append(number)
            if number in (12, 50):
                go_on(slow)
            if 12 <= number < 40 or number >= 50:
                assert eventually(lambda: slow.stats.writer.items_pending == 0)
        kept, thinned = fan_out.close()
    sent = [(frame.tobytes(), number / 50) for number, frame in enumerate(frames)]
    assert timed_frames(tmp_path / "a.mkv") == sent and (kept.frames_taken, kept.dropped) == (60, ())
    assert timed_frames(tmp_path / "slow.mkv") == [sent[number] for number in rows]
    left_out = [number for number in range(60) if number not in rows]
    assert thinned.dropped == tuple(OutputReport.DroppedFrame(number, number / 50) for number in left_out)
    assert thinned.frames_taken == len(rows) == thinned.result.frames_encoded
    assert len(left_out) > 5 and {0, *range(13, 40), 59} <= {*rows}


def test_an_index_counts_from_the_add_and_without_frames_that_were_refused(tmp_path: Path) -> None:
    preview, reader = unread(queue_items=1, capacity_bytes=4096)
    with FanOut([lossless(tmp_path / "a.mkv")]) as fan_out:
        fan_out.write(flat(0))
        fan_out.add(preview, when_full="drop")
        with pytest.raises(ValueError):
            fan_out.write(flat(0)[1:])
        taken = [fan_out.write(flat(number)) for number in range(6)]
        [_, report] = fan_out.reports
        assert [is_taken for _, is_taken in taken] == [True] + [False] * 5
        assert report.dropped == tuple(OutputReport.DroppedFrame(index, None) for index in range(1, 6))
        read_exactly(reader, FRAME_BYTES)
    assert report.frames_taken == 1
    os.close(reader)


def test_a_dropped_frame_of_a_decoder_has_its_time(tmp_path: Path) -> None:
    with lossless(tmp_path / "in.mkv") as source:
        for number in range(12):
            source.write(flat(number))
    slow = lossless(tmp_path / "out.mkv", fps=None, settings=SHORT)
    with Decoder(tmp_path / "in.mkv") as decoder, FanOut() as fan_out:
        fan_out.add(slow, when_full="drop")
        stopped(slow)
        taken = [fan_out.write(frame)[0] for frame in decoder]
        go_on(slow)
        [report] = fan_out.close()
    assert 0 < sum(taken) == report.frames_taken < 12
    assert [dropped.time_s for dropped in report.dropped] == pytest.approx(
        [number / 30 for number in range(12) if not taken[number]], abs=1e-3
    )


def test_an_encoder_that_may_drop_frames_needs_their_times(tmp_path: Path) -> None:
    encoder = lossless(tmp_path / "a.mkv", fps=30)
    with FanOut() as fan_out:
        with pytest.raises(ValueError):
            fan_out.add(encoder, when_full="drop")
        fan_out.add(encoder)
        assert fan_out.write(flat(0)) == (True,)
    assert len(decode(tmp_path / "a.mkv")) == 1


@pytest.mark.slow
def test_a_preview_that_nobody_reads_does_not_keep_the_rest_from_closing(tmp_path: Path) -> None:
    preview, reader = unread(queue_items=2, capacity_bytes=4096)
    with pytest.raises(penstock.StalledError), FanOut([lossless(tmp_path / "a.mkv")]) as fan_out:
        fan_out.add(preview, when_full="drop")
        for number in range(200):
            fan_out.write(flat(number))
    assert preview.closed and len(fan_out.reports[1].dropped) > 0
    assert len(decode(tmp_path / "a.mkv")) == 200
    os.close(reader)


def test_wrong_uses_are_refused_and_lose_no_frame(tmp_path: Path) -> None:
    encoder = lossless(tmp_path / "a.mkv")
    consumer, consumed = raw()
    with pytest.raises(TypeError):
        FanOut(encoder)  # type: ignore[arg-type]
    with FanOut([encoder]) as fan_out:
        with pytest.raises(ValueError):
            fan_out.add(encoder)
        with pytest.raises(TypeError):
            fan_out.add("b.mkv")  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            fan_out.add(consumer, when_full="wait")  # type: ignore[arg-type]
        fan_out.add(consumer)
        fan_out.add(unstarted := make(tmp_path / "b.mkv", size=None))
        for frame in (np.zeros((10, 10, 3), np.uint8), flat(0).astype(np.uint16)):
            with pytest.raises(ValueError) as wrong:
                fan_out.write(frame)
            assert "for <Encoder" in wrong.value.__notes__[0]
        assert unstarted.frames_submitted == 0 and not Path(unstarted.report or tmp_path / "b.mkv").exists()
        fan_out.write(flat(3))
        assert [report.frames_taken for report in fan_out.reports] == [1, 1, 1]
    assert consumed.result() == flat(3).tobytes()
    for use in (lambda: fan_out.write(flat(0)), lambda: fan_out.add(consumer)):
        with pytest.raises(penstock.ClosedError):
            use()
    with pytest.raises(penstock.ClosedError):
        FanOut([encoder])
    with pytest.raises(ValueError):
        FanOut([consumer, consumer]) if not consumer.closed else FanOut([other := raw()[0], other])
    with (
        FanOut([lossless(tmp_path / "c.mkv")]) as one,
        lossless(tmp_path / "d.mkv", pixel_format="bgr24") as other,
        lossless(tmp_path / "e.mkv", channels_first=True) as turned,
    ):
        for another in (other, turned):
            with pytest.raises(ValueError):
                one.add(another)
        turned.write(flat(0).transpose(2, 0, 1))
        other.write(flat(0))
        one.write(flat(0))
    with FanOut() as nothing, pytest.raises(penstock.ClosedError):
        nothing.write(flat(0))


@pytest.mark.slow
def test_an_exception_is_not_hidden_by_a_writer_that_is_stuck() -> None:
    stuck, reader = unread()
    with pytest.raises(RuntimeError) as caught, FanOut([stuck]) as fan_out:
        fan_out.write(bytes(1 << 22))
        raise RuntimeError("of the scene")
    [note] = caught.value.__notes__
    assert repr(stuck) in note and stuck.closed
    assert isinstance(fan_out.reports[0].error, penstock.StalledError)
    os.close(reader)


def test_abort_from_another_thread_ends_a_wait() -> None:
    stuck, reader = unread(queue_items=1)
    fan_out = FanOut([stuck])
    ended = threading.Thread(
        target=lambda: (eventually(lambda: stuck.stats.items_pending == 1), fan_out.abort())
    )
    ended.start()
    with pytest.raises(penstock.PenstockError):
        while True:
            fan_out.write(bytes(1 << 22))
    ended.join()
    assert fan_out.closed
    os.close(reader)


def test_all_outputs_get_frames_of_many_threads_in_one_order(tmp_path: Path) -> None:
    outputs = [raw() for _ in range(2)]
    with FanOut(writer for writer, _ in outputs) as fan_out:

        def write(name: int) -> None:
            for number in range(50):
                fan_out.write(bytes([name, number]) * 5000)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    first, second = (reader.result() for _, reader in outputs)
    assert first == second and len(first) == 4 * 50 * 10_000


FORKED = """
import numpy as np
reader, end = os.pipe()
fan_out = penstock.FanOut([penstock.Encoder(sys.argv[1], fps=30, codec="ffv1"), penstock.Writer(end)])
os.close(end)
frame = np.zeros((48, 64, 3), np.uint8)
fan_out.write(frame)
pid = os.fork()
if pid == 0:
    os.close(reader)
    assert fan_out.closed
    for use in (lambda: fan_out.write(frame), fan_out.close):
        try:
            use()
        except penstock.ClosedError:
            pass
        else:
            os._exit(1)
    fan_out.abort()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
for _ in range(2):
    fan_out.write(frame)
encoder, writer = fan_out.close()
assert encoder.result.frames_encoded == 3 and encoder.error is writer.error is None
got = b""
while piece := os.read(reader, 1 << 20):
    got += piece
assert len(got) == 3 * frame.nbytes
"""


@pytest.mark.linux("forks")
def test_fork_does_not_affect_a_fan_out(tmp_path: Path) -> None:
    succeeded(run_script(FORKED, tmp_path / "a.mkv"))


INTERRUPTED = """
import numpy as np
archive = penstock.Encoder(sys.argv[1], fps=30, size=(64, 48), codec="ffv1")
frame = np.zeros((48, 64, 3), np.uint8)
try:
    with penstock.FanOut([penstock.Writer(1, queue_items=2, capacity_bytes=4096), archive]) as fan_out:
        while True:  # nobody reads yet: one of the first calls waits
            sys.stderr.write("writes\\n")  # in one piece, also where Ctrl-C comes now
            fan_out.write(frame)
except KeyboardInterrupt:
    first, second = fan_out.reports
    print(first.frames_taken, second.frames_taken, second.result.frames_encoded, file=sys.stderr)
"""


def test_ctrl_c_while_an_output_waits_loses_no_frame(tmp_path: Path) -> None:
    with start_script(INTERRUPTED, tmp_path / "a.mkv") as process:
        assert process.stderr is not None
        assert process.stderr.readline().split() == [b"writes"]
        threading.Event().wait(1)  # by then it waits, and if not, the test is easier
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    counts = {int(count) for count in err.split()[-3:]}
    assert counts == {len(frames_of(out))} == {len(decode(tmp_path / "a.mkv"))}


UNSETTLED = """
import subprocess
reader, end = os.pipe()
fan_out = penstock.FanOut([penstock.Writer(end, queue_items=1)])
os.close(end)
taken = 0
try:
    while True:
        fan_out.write(bytes([taken]) * 2_000_000, timeout=0)
        taken += 1
except penstock.StalledError:
    pass
del fan_out
print(taken, flush=True)
subprocess.Popen(["sh", "-c", "sleep 0.3; wc -c"], stdin=reader)
os.close(reader)
"""


@pytest.mark.linux("a shell script stands in for a program")
def test_the_end_of_the_program_delivers_a_frame_that_waited() -> None:
    taken, nbytes = map(int, succeeded(run_script(UNSETTLED)).split())
    assert taken >= 2 and nbytes == taken * 2_000_000
