"""The benchmarks' content checks: they find a method that loses, tears or changes anything.

No test compares times.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from conftest import eventually, open_fds

pytest.importorskip("click", reason="the benchmarks' command lines need it")
pytest.importorskip("rich", reason="the benchmarks' tables need it")
pytest.importorskip("numpy", reason="the benchmarks' frames are NumPy arrays")

import numpy as np

from benchmarks import decode, encode, pipe, pipeline, relay
from benchmarks.decode.methods import Target as DecodeTarget
from benchmarks.decode.methods import readinto, stdout_readinto
from benchmarks.encode.methods import into_ffmpeg
from benchmarks.harness.command import JobSettings
from benchmarks.harness.ffmpeg import FFmpegFailedError
from benchmarks.harness.files import nameless_file
from benchmarks.harness.isolated import FFMPEG_VARIABLES, Task
from benchmarks.harness.options import by_name
from benchmarks.harness.pictures import Frame, Pictures
from benchmarks.harness.results import Method, Row, Run
from benchmarks.harness.rounds import attempt
from benchmarks.harness.senders import Sender, stdin_write
from benchmarks.pipeline import assets, latency, race
from benchmarks.relay.ends import Content, Ends
from penstock import cpu
from penstock.errors import PenstockError
from penstock.ffmpeg.find import find_ffmpeg

pytestmark = pytest.mark.slow

FRAMES = 12
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def ffmpeg() -> str:
    try:
        return find_ffmpeg()
    except PenstockError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case sets the environment of its process. Restore it here."""
    for name in (*FFMPEG_VARIABLES, "PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


# --- frames into FFmpeg (pipe and encode) -----------------------------------------------------------------


def loses_a_frame(stdin: IO[bytes]) -> Sender:
    """Like TurboPipe after its thread has died: it takes the first frame, and reports nothing."""
    sent = []

    def write(frame: Frame) -> None:
        if sent:
            stdin.write(frame.tobytes())
        sent.append(frame)

    return Sender(write, stdin.flush)


def sends_too_much(stdin: IO[bytes]) -> Sender:
    def write(frame: Frame) -> None:
        stdin.write(frame.tobytes() * (1 + (not sent)))
        sent.append(frame)

    sent: list[Frame] = []
    return Sender(write, stdin.flush)


def sends_late(stdin: IO[bytes]) -> Sender:
    """Send a buffer after it may have been overwritten, as a method without a wait does."""
    late = []

    def write(frame: Frame) -> None:
        if late:
            stdin.write(late.pop().tobytes())
        late.append(frame)

    def finish() -> None:
        stdin.write(late.pop().tobytes())
        stdin.flush()

    return Sender(write, finish)


def sends_a_page_late(stdin: IO[bytes]) -> Sender:
    late = []

    def write(frame: Frame) -> None:
        content = frame.tobytes()
        late.append(content[-PAGE_BYTES:])
        stdin.write(content[:-PAGE_BYTES] + late[max(0, len(late) - 2)])

    return Sender(write, stdin.flush)


def swaps_channels(stdin: IO[bytes]) -> Sender:
    return Sender(lambda frame: stdin.write(frame[..., ::-1].tobytes()), stdin.flush)


def fails_at_the_end(stdin: IO[bytes]) -> Sender:
    def finish() -> None:
        stdin.flush()
        raise RuntimeError("the method's own reason")

    return Sender(stdin_write(stdin).write, finish)


@pytest.fixture
def pipe_task(ffmpeg: str) -> Task[pipe.Job]:
    job = pipe.Job("small", 320, 180, FRAMES, "320x180", by_name(pipe.ENCODES, "null"), 1)
    return Task(by_name(pipe.METHODS, pipe.STANDARD), job, ffmpeg)


@pytest.mark.parametrize("run", [pipe.measure, pipe.check])
def test_a_pipe_run_that_is_right_has_no_error(
    run: Callable[[Task[pipe.Job]], Run], pipe_task: Task[pipe.Job]
) -> None:
    for method in pipe.METHODS:
        if method.kind != "bound" and not method.missing():
            assert attempt(replace(pipe_task, method=method), run).error is None, method.name


@pytest.mark.parametrize(
    ("run", "sender", "reason"),
    [
        (pipe.measure, loses_a_frame, "12 frames were sent, 11 were received"),
        (pipe.measure, sends_too_much, "12 frames were sent, 13 were received"),
        (pipe.measure, fails_at_the_end, "RuntimeError: the method's own reason"),
        (pipe.check, loses_a_frame, "12 frames were sent, 11 were received"),
        (pipe.check, sends_late, "frame 0 arrived with other bytes than were sent"),
        (pipe.check, sends_a_page_late, "frame 1 arrived with other bytes than were sent"),
    ],
)
def test_a_pipe_method_that_lies_is_found_out(
    run: Callable[[Task[pipe.Job]], Run],
    sender: Callable[[IO[bytes]], Sender],
    reason: str,
    pipe_task: Task[pipe.Job],
) -> None:
    method = replace(pipe_task.method, start=sender)
    assert attempt(replace(pipe_task, method=method), run).error == reason


def test_an_ffmpeg_that_fails_is_an_error(pipe_task: Task[pipe.Job]) -> None:
    wrong = replace(pipe_task.job.encode, arguments=("-c:v", "no-such-encoder"))
    run = attempt(replace(pipe_task, job=replace(pipe_task.job, encode=wrong)), pipe.measure)
    assert "Error" in (run.error or "")


def test_ffmpegs_hashes_are_read() -> None:
    said = "#format: frame checksums\n0, 0, 0, 1, 9, abc\n0, 1, 1, 1, 9, def\n"
    assert pipe.read_hashes(said) == ["abc", "def"]


@pytest.fixture
def encode_task(ffmpeg: str, tmp_path: Path) -> Task[encode.Job]:
    job = encode.Job("small", 64, 48, FRAMES, "ultrafast", "noise")
    return Task(by_name(encode.METHODS, encode.STANDARD), job, ffmpeg, folder=str(tmp_path))


def filled_by(sender: Callable[[IO[bytes]], Sender], task: Task[encode.Job]) -> Task[encode.Job]:
    return replace(task, method=replace(task.method, start=partial(into_ffmpeg, fill=sender)))


@pytest.mark.parametrize("run", [encode.measure, encode.check])
def test_an_encode_run_that_is_right_has_no_error(
    run: Callable[[Task[encode.Job]], Run], encode_task: Task[encode.Job]
) -> None:
    for method in encode.METHODS:
        if method.kind != "bound" and not method.missing():
            made = attempt(replace(encode_task, method=method), run)
            assert made.error is None, method.name
            assert ("row_difference" in made.figures) == (run is encode.check)
    assert list(Path(encode_task.folder).iterdir()) == []


@pytest.mark.parametrize(
    ("run", "sender", "reason"),
    [
        (encode.measure, loses_a_frame, "12 frames were sent, 11 were received"),
        (encode.measure, sends_too_much, "12 frames were sent, 13 were received"),
        (encode.measure, fails_at_the_end, "RuntimeError: the method's own reason"),
        (encode.check, loses_a_frame, "12 frames were sent, 11 were decoded"),
        (encode.check, swaps_channels, "frame 0 shows something else"),
    ],
)
def test_an_encode_method_that_lies_is_found_out(
    run: Callable[[Task[encode.Job]], Run],
    sender: Callable[[IO[bytes]], Sender],
    reason: str,
    encode_task: Task[encode.Job],
) -> None:
    assert reason in (attempt(filled_by(sender, encode_task), run).error or "")


@pytest.mark.parametrize(("width", "height"), [(320, 180), (1280, 720)])
def test_a_page_of_another_frame_is_an_error(encode_task: Task[encode.Job], width: int, height: int) -> None:
    task = replace(encode_task, job=replace(encode_task.job, width=width, height=height))
    assert "frame 1 shows something else" in (
        attempt(filled_by(sends_a_page_late, task), encode.check).error or ""
    )


def test_a_wrong_matrix_is_above_what_is_allowed(
    ffmpeg: str, encode_task: Task[encode.Job], tmp_path: Path
) -> None:
    target = encode.target_of(encode_task, str(tmp_path))
    sent = Pictures("smooth", 64, 48)
    encode.encode(encode_task, target, [sent.texture(0)], Run())
    wrong = ["-vf", "scale=in_color_matrix=bt709", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    command = [ffmpeg, "-v", "error", "-i", target.output, *wrong]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    shown = np.frombuffer(raw, np.uint8).reshape(FRAMES, 48, 64, 3)
    assert encode.difference(shown[0], sent.texture(0))[0] > encode.MAX_MEAN_DIFFERENCE


def test_a_file_that_is_no_video_is_an_error(ffmpeg: str, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    with pytest.raises(FFmpegFailedError, match="Invalid data"):
        encode.count_frames(ffmpeg, str(path))


# --- frames from a file or a pipe -------------------------------------------------------------------------


def made_decode_task(ffmpeg: str, folder: Path, encoder: str | None) -> Task[decode.Job]:
    """A small run of the standard method. None of the frame is left out of the samples."""
    job = decode.Job("small", 96, 64, FRAMES, encoder)
    program = decode.link_programs(ffmpeg, folder)
    try:
        path, reference = decode.make_input(job, program, folder)
    except FFmpegFailedError as error:
        pytest.skip(str(error))
    np.save(folder / decode.REFERENCE, reference)
    standard = decode.STANDARD if encoder else decode.PIPE_STANDARD
    return Task(by_name(decode.METHODS, standard), job, program, path, str(folder))


@pytest.fixture(scope="module")
def file_task(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> Task[decode.Job]:
    return made_decode_task(ffmpeg, tmp_path_factory.mktemp("file"), "libx264")


@pytest.fixture(scope="module")
def reader_task(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> Task[decode.Job]:
    return made_decode_task(ffmpeg, tmp_path_factory.mktemp("pipe"), None)


def decoded(task: Task[decode.Job], decoding: Callable[[DecodeTarget], Iterator[Any]], **more: Any) -> Run:
    method = replace(task.method, start=decoding, **more)
    return attempt(replace(task, method=method), decode.measure)


def changed(change: Callable[[list[Any]], list[Any]]) -> Callable[[DecodeTarget], Iterator[Any]]:
    """The frames, changed as a list."""
    return lambda target: iter(change([frame.copy() for frame in stdout_readinto(target)]))


def filtered(scale: str) -> Callable[[DecodeTarget], Iterator[Any]]:
    """FFmpeg itself, when it is told to convert in another way."""

    def decoding(target: DecodeTarget) -> Iterator[Any]:
        convert = ["-vf", f"scale={scale}", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        command = [target.ffmpeg, "-v", "error", "-i", target.path, *convert]
        raw = subprocess.run(command, capture_output=True, check=True).stdout
        return iter(np.frombuffer(raw, np.uint8).reshape(-1, *target.job.shape))

    return decoding


def fails(target: DecodeTarget) -> Iterator[Any]:
    yield from [frame.copy() for frame in stdout_readinto(target)][:3]
    raise RuntimeError("the method's own reason")


def test_a_decoder_that_is_right_has_no_error(
    file_task: Task[decode.Job], reader_task: Task[decode.Job]
) -> None:
    for task in (file_task, reader_task):
        for method in decode.METHODS:
            if method.serves(task.job) and not method.missing():
                run = attempt(replace(task, method=method), decode.measure)
                assert run.error is None, method.name
                assert ("difference" in run.figures) == (method.kind != "bound")
                assert ((run.figures["cpu_child_s"] or 0) > 0) == (not method.own_ffmpeg)
    other_rounding = decoded(file_task, filtered("flags=accurate_rnd+full_chroma_int"))
    assert other_rounding.error is None
    swapped = decoded(file_task, changed(lambda all: [one[..., ::-1] for one in all]), pixel_format="bgr24")
    assert swapped.error is None


@pytest.mark.parametrize(
    ("decoding", "reason"),
    [
        (changed(lambda all: all[:-1]), "12 frames were sent, 11 were received"),
        (changed(lambda all: [*all, all[-1]]), "12 frames were sent, 13 were received"),
        (changed(lambda all: [*all[:5], *all[6:], all[-1]]), "frame 5 shows"),
        (changed(lambda all: [*all[:3], all[4], all[3], *all[5:]]), "frame 3 shows"),
        (changed(lambda all: [one[..., ::-1] for one in all]), "frame 0 shows something else"),
        (filtered("in_color_matrix=bt601"), "frame 0 shows something else"),
        (filtered("in_range=pc"), "frame 0 shows something else"),
        (changed(lambda all: [np.empty_like(one) for one in all]), "shows"),
        (changed(lambda all: [one[..., :1] for one in all]), "frame 0 is uint8 of (64, 96, 1)"),
        (changed(lambda all: [one.astype(np.float32) for one in all]), "frame 0 is float32 of (64, 96, 3)"),
        (fails, "RuntimeError: the method's own reason"),
    ],
)
def test_what_is_not_the_file_is_an_error(
    file_task: Task[decode.Job], decoding: Callable[[DecodeTarget], Iterator[Any]], reason: str
) -> None:
    assert reason in (decoded(file_task, decoding).error or "")


def test_a_frame_that_is_off_by_little_but_nearer_to_the_next_is_an_error() -> None:
    reference = np.zeros((3, 4, 4, 3), np.uint8)
    reference += np.arange(3, dtype=np.uint8)[:, None, None, None]
    assert decode.compare(reference, reference) == (0.0, None)
    shifted = reference[[1, 2, 2]]
    assert decode.compare(shifted, reference) == (1.0, "frame 0 shows what frame 1 has to show")


def test_of_a_pipe_no_byte_may_be_another_one(reader_task: Task[decode.Job]) -> None:
    def changes_a_byte(target: DecodeTarget) -> Iterator[Any]:
        for number, frame in enumerate(readinto(target)):
            frame[40, 50, 1] += number == 7
            yield frame

    def stops(target: DecodeTarget) -> Iterator[Any]:
        os.close(target.fd)
        yield from ()

    assert "frame 7 shows something else" in (decoded(reader_task, changes_a_byte).error or "")
    assert decoded(reader_task, stops).error == "12 frames were sent, 0 were received"


def test_the_bound_counts_its_frames(file_task: Task[decode.Job]) -> None:
    short = replace(file_task.job, frames=FRAMES + 1)
    task = replace(file_task, method=by_name(decode.METHODS, decode.BOUND), job=short)
    assert attempt(task, decode.measure).error == "13 frames were sent, 12 were received"


def test_libraries_find_the_ffmpeg_that_was_asked_for(file_task: Task[decode.Job]) -> None:
    found = []

    def looks(target: DecodeTarget) -> Iterator[Any]:
        found.extend([shutil.which("ffmpeg"), os.environ["IMAGEIO_FFMPEG_EXE"], find_ffmpeg()])
        yield from ()

    decoded(file_task, looks)
    assert found == [file_task.ffmpeg] * 3


def test_a_file_that_ffmpeg_cannot_make_is_no_error_of_the_methods(ffmpeg: str) -> None:
    job = decode.Job("small", 96, 64, FRAMES, "no-such-encoder")
    standard = by_name(decode.METHODS, decode.STANDARD)
    (made,) = decode.BENCHMARK.run(JobSettings((job,), (standard,), 1), [ffmpeg])
    assert made.rows[0].error is None
    assert "no-such-encoder" in (made.rows[0].skipped or "")


def test_samples_are_pixels_all_over_the_frame() -> None:
    for job in decode.JOBS:
        rows = range(0, job.height, job.sample_step)
        assert 60 <= len(rows) <= 80
        assert job.height - rows[-1] <= job.sample_step


# --- bytes between descriptors ----------------------------------------------------------------------------

NBYTES = 70_001  # more than a pipe holds, and no whole number of pages
#: One of every kind of end.
EVERY_KIND = ("file-pipe", "pipe-file", "pipe-pipe", "file-unix", "file-tcp", "tee-2")


def copies(change: Callable[[bytes], bytes], claimed: int = NBYTES) -> Method:
    """A method that reads all, and writes what ``change`` makes of it to the last of its ends."""

    def start(ends: Ends) -> Callable[[], int]:
        def operate() -> int:
            for fd, position in ((ends.src, ends.way.source), (ends.dsts[0], ends.way.sink)):
                if position == "file":
                    os.lseek(fd, 0, os.SEEK_SET)
            content = b""
            while len(content) < ends.nbytes:
                content += os.read(ends.src, ends.nbytes - len(content))
            for dst in ends.dsts:
                left = change(content) if dst == ends.dsts[-1] else content
                while left:
                    left = left[os.write(dst, left) :]
            return claimed

        return operate

    return Method("copies", "", start=start)


def relay_error(way: str, *methods: Method) -> str | None:
    """What is wrong with the last of the methods."""
    with nameless_file(False) as source, nameless_file(False) as sink:
        job = relay.Job(by_name(relay.WAYS, way), NBYTES, 1e-6)
        case = relay.Case(job, Content(source, NBYTES), sink)
        return [attempt(Row(method), case.check).error for method in methods][-1]


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_relay_method_that_lies_is_found_out(way: str) -> None:
    right = copies(lambda content: content)
    assert relay_error(way, right) is None
    assert "arrived at end" in (relay_error(way, copies(lambda content: content[:-1])) or "")
    assert "arrived at end" in (relay_error(way, copies(lambda content: content + b"x")) or "")
    assert "arrived at end" in (relay_error(way, right, copies(lambda content: b"")) or "")
    flipped = copies(lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    assert "other bytes than were sent arrived at end" in (relay_error(way, flipped) or "")
    boasts = copies(lambda content: content, NBYTES + 1)
    assert (
        relay_error(way, boasts)
        == f"MisdeliveredError: it claims to have moved {NBYTES + 1} bytes of {NBYTES}"
    )


@pytest.mark.parametrize("way", EVERY_KIND)
def test_a_relay_method_that_raises_leaves_nothing_behind(way: str) -> None:
    def start(ends: Ends) -> Callable[[], int]:
        def operate() -> int:
            os.read(ends.src, 1)
            raise RuntimeError("the method's own reason")

        return operate

    fds, threads = open_fds(), threading.active_count()
    assert relay_error(way, Method("raises", "", start=start)) == "RuntimeError: the method's own reason"
    assert eventually(lambda: (open_fds(), threading.active_count()) == (fds, threads))


def test_a_file_that_is_not_found_again_from_its_beginning_is_an_error() -> None:
    def start(ends: Ends) -> Callable[[], int]:
        os.lseek(ends.src, 0, os.SEEK_SET)  # once, and not for each operation

        def operate() -> int:
            content = os.read(ends.src, ends.nbytes)
            return os.write(ends.dst, content) if content else 0

        return operate

    assert "it claims to have moved 0 bytes" in (
        relay_error("file-pipe", Method("forgets", "", start=start)) or ""
    )


def test_the_first_of_the_paced_readers_is_the_slowest() -> None:
    paced, flat_out = by_name(relay.WAYS, "tee-8-paced"), by_name(relay.WAYS, "tee-8")
    mb_per_s = [200, 300, 400, 600, 200]
    assert [paced.pace_bytes_per_s(number) for number in range(5)] == [1e6 * pace for pace in mb_per_s]
    assert flat_out.pace_bytes_per_s(0) is None


# --- compressed assets ------------------------------------------------------------------------------------

SMALL = pipeline.Settings(chunk_bytes=5000, chunks=10, background=1, rounds=2, assets=40)


def test_an_asset_that_comes_out_changed_is_an_error(tmp_path: Path) -> None:
    made = assets.write_assets(tmp_path, "zlib", SMALL.chunk_bytes, SMALL.chunks)
    assert latency.run_once(SMALL, latency.NORMAL, made).figures["mb_per_s"]
    made.sums[3] ^= 1
    with pytest.raises(assets.MisdeliveredError):
        latency.run_once(SMALL, latency.NORMAL, made)


@pytest.mark.parametrize("fault", ["changes a byte", "loses a byte later"])
def test_a_side_of_the_race_that_changes_or_loses_a_byte_has_no_speed(fault: str) -> None:
    runs = 0

    def faulty(made: assets.Assets, settings: assets.Stream) -> Iterator[bytes]:
        nonlocal runs
        runs += 1
        for content in race.by_pool(made, settings):
            data = bytes(content)
            yield data[:-1] + b"\0" if fault == "changes a byte" else data[: -1 if runs > 1 else None]

    methods = (Method(pipeline.PIPELINE, "", "ours", faulty), by_name(pipeline.METHODS, pipeline.POOL))
    jobs = [job for job in SMALL.jobs if pipeline.is_race(job)]
    (made,) = pipeline.BENCHMARK.run(JobSettings(tuple(jobs), methods, SMALL.rounds))
    ours, pool = made.rows
    assert (ours.error or "").startswith("MisdeliveredError")
    assert (ours.median("mb_per_s"), pool.error) == (None, None)


def test_content_is_the_same_in_every_run_and_no_two_assets_are_alike(tmp_path: Path) -> None:
    first, second = (assets.write_assets(tmp_path, "zlib", 3000, 5) for _ in range(2))
    assert first == second
    assert len(set(first.sums)) == 5
    assert first.content_bytes == 15_000


def test_the_background_burns_and_ends() -> None:
    def children() -> list[str]:
        return Path("/proc/thread-self/children").read_text().split()

    def stat(pid: str) -> list[str]:
        """The fields behind the name (proc(5)): utime is the 12th, nice the 17th."""
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()

    with latency.background(2):
        burning = children()
        assert len(burning) == 2
        tried = cpu.try_priorities()
        expected = sorted(tried[level].nice for level in ("normal", "below-normal"))
        assert sorted(int(stat(pid)[16]) for pid in burning) == expected
        before = {pid: int(stat(pid)[11]) for pid in burning}
        assert eventually(lambda: all(int(stat(pid)[11]) > before[pid] for pid in burning))
    assert not children()


def test_parts_are_pinned_to_cpus_that_may_be_used() -> None:
    assert set(latency.pinned_cpus()) <= os.sched_getaffinity(0)
    policies = [latency.PINNED.policies()[part] for part in latency.PARTS]
    assert [one and one.cpus for one in policies] == [(number,) for number in latency.pinned_cpus()]
    assert [one and one.priority for one in policies] == [*latency.PRIORITIES.priorities]
    assert latency.NORMAL.policies() == dict.fromkeys(latency.PARTS)


def test_percentiles() -> None:
    figures = latency.summarize([float(number) for number in range(101)])
    assert figures == {"min": 0, "p50": 50, "p95": 95, "max": 100, "mean": 50}
