"""The content checks of pipe, encode and decode: they find a method that loses, tears or changes a frame.

No test compares times.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from benchmarks import decode, encode, pipe
from benchmarks.decode import Target as DecodeTarget
from benchmarks.decode import readinto, stdout_readinto
from benchmarks.decode.dataset import OURS, PenstockClips, make_dataset, why_wrong
from benchmarks.decode.sound import SAMPLE_RATE, make_sound, measure_sound, sound_job
from benchmarks.encode import Target as EncodeTarget
from benchmarks.encode import into_ffmpeg
from benchmarks.harness.command import JobSettings
from benchmarks.harness.content import Film, Frame
from benchmarks.harness.ffmpeg import FFmpegFailedError
from benchmarks.harness.isolated import FFMPEG_VARIABLES, Task
from benchmarks.harness.methods import Kind, Method
from benchmarks.harness.options import by_name
from benchmarks.harness.results import Group, Row, Run
from benchmarks.harness.rounds import attempt
from benchmarks.harness.senders import Sender, stdin_write
from benchmarks.harness.tables import remark_on
from penstock._ffmpeg.program.capabilities import find_ffmpeg
from penstock.errors import PenstockError

pytestmark = pytest.mark.slow

FRAMES = 12
PAGE_BYTES = 4096
Start = Callable[[IO[bytes]], Sender]


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


@pytest.fixture
def encode_task(ffmpeg: str, tmp_path: Path) -> Task[encode.Job]:
    job = encode.Job("small", 64, 48, FRAMES, "ultrafast", "motion")
    encode.save_pictures(job, str(tmp_path))
    return Task(by_name(encode.METHODS, encode.STANDARD), job, ffmpeg, folder=str(tmp_path))


def sent_by(sender: Start, task: Task[Any]) -> Task[Any]:
    start = sender if isinstance(task.job, pipe.Job) else partial(into_ffmpeg, fill=sender)
    return replace(task, method=replace(task.method, start=start))


@pytest.mark.parametrize("benchmark", [pipe, encode])
def test_check_accepts_a_correct_run(
    benchmark: Any, pipe_task: Task[pipe.Job], encode_task: Task[encode.Job]
) -> None:
    task: Task[Any] = pipe_task if benchmark is pipe else encode_task
    for method in benchmark.METHODS:
        if method.kind != "bound" and not method.missing():
            for run in (benchmark.measure, benchmark.check):
                made = attempt(replace(task, method=method), run)
                assert made.error is None, method.name
                assert ("row_difference" in made.figures) == (run is encode.check)
                assert made.figures.get("psnr_db", 99) > 30
    assert not task.folder or [path.name for path in Path(task.folder).iterdir()] == [encode.PICTURES]


@pytest.mark.parametrize(
    ("run", "sender", "reason"),
    [
        (pipe.measure, loses_a_frame, "12 frames were sent, 11 were received"),
        (pipe.measure, sends_too_much, "12 frames were sent, 13 were received"),
        (pipe.measure, fails_at_the_end, "RuntimeError: the method's own reason"),
        (pipe.check, sends_late, "frame 0 arrived with other bytes than were sent"),
        (pipe.check, sends_a_page_late, "frame 1 arrived with other bytes than were sent"),
        (encode.measure, loses_a_frame, "12 frames were sent, 11 were received"),
        (encode.check, loses_a_frame, "12 frames were sent, 11 were decoded"),
        (encode.check, swaps_channels, "frame 0 shows something else"),
    ],
)
def test_check_catches_a_method_that_lies(
    run: Callable[[Task[Any]], Run],
    sender: Start,
    reason: str,
    pipe_task: Task[pipe.Job],
    encode_task: Task[encode.Job],
) -> None:
    task = sent_by(sender, pipe_task if run.__module__ == pipe.__name__ else encode_task)
    assert (attempt(task, run).error or "").startswith(reason)


def test_an_ffmpeg_that_fails_is_an_error(pipe_task: Task[pipe.Job]) -> None:
    wrong = replace(pipe_task.job.encode, arguments=("-c:v", "no-such-encoder"))
    run = attempt(replace(pipe_task, job=replace(pipe_task.job, encode=wrong)), pipe.measure)
    assert "Error" in (run.error or "")


@pytest.mark.parametrize(("width", "height"), [(320, 180), (1280, 720)])
def test_check_rejects_a_page_of_another_frame(
    encode_task: Task[encode.Job], width: int, height: int
) -> None:
    task = replace(encode_task, job=replace(encode_task.job, width=width, height=height))
    assert "frame 1 shows something else" in (
        attempt(sent_by(sends_a_page_late, task), encode.check).error or ""
    )


def test_a_wrong_matrix_is_above_what_is_allowed(ffmpeg: str, encode_task: Task[encode.Job]) -> None:
    sent = Film("waves", 64, 48).frame(0)
    encode.encode(encode_task, [sent], Run())
    wrong = ["-vf", "scale=in_color_matrix=bt709", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    command = [ffmpeg, "-v", "error", "-i", encode_task.output, *wrong]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    shown = np.frombuffer(raw, np.uint8).reshape(FRAMES, 48, 64, 3)
    assert encode.difference(shown[0], sent)[0] > encode.MAX_MEAN_DIFFERENCE


def test_check_rejects_a_file_with_other_pictures(encode_task: Task[encode.Job]) -> None:
    def encoded(name: str, kind: Kind, change: Callable[[Frame], Any] = np.ndarray.tobytes) -> Row:
        def start(target: EncodeTarget) -> Sender:
            return into_ffmpeg(
                target, lambda stdin: Sender(lambda frame: stdin.write(change(frame)), stdin.flush)
            )

        method = Method(name, "", kind, start)
        return Row(method, [attempt(replace(encode_task, method=method), encode.measure)])

    rows = [
        encoded("ours", "ours"),
        encoded("same", "rival"),
        encoded("darker", "rival", lambda frame: (frame // 2).tobytes()),
        encoded("upside down", "other", lambda frame: frame[::-1].tobytes()),
    ]
    assert [row.error for row in rows] == [None] * 4
    encode.mark(Group("job", "job", rows))
    assert [row.method.kind for row in rows] == ["ours", "rival", "other", "other"]
    assert "not_comparable" in rows[2].notes
    assert "not comparable" in remark_on(rows[2])
    assert remark_on(rows[1]) == ""


@pytest.mark.parametrize(
    ("nbytes", "db", "reason"),
    [
        (100.0, 40.0, None),
        (124.0, 39.1, None),
        (79.0, 40.0, "its file is 0.79 x as large as ours"),
        (126.0, 40.0, "its file is 1.26 x as large as ours"),
        (100.0, 38.9, "its PSNR is 38.9 dB, and ours 40.0 dB"),
        (100.0, 41.1, "its PSNR is 41.1 dB, and ours 40.0 dB"),
    ],
)
def test_encodes_are_compared_only_at_a_similar_size_and_quality(
    nbytes: float, db: float, reason: str | None
) -> None:
    ours, other = (
        Row(Method("any", ""), [Run({"output_bytes": size, "psnr_db": quality})])
        for size, quality in ((100.0, 40.0), (nbytes, db))
    )
    assert encode.other_work(ours, other) == reason


def test_a_file_that_is_no_video_is_an_error(ffmpeg: str, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    with pytest.raises(FFmpegFailedError):
        encode.count_frames(ffmpeg, str(path))


# --- frames from a file or a pipe -------------------------------------------------------------------------


def small_job(kind: decode.Kind, frames: int = FRAMES, **more: Any) -> decode.Job:
    return decode.Job("small", 96, 64, frames, kind, **more)


def made_decode_task(ffmpeg: str, folder: Path, encoder: str | None) -> Task[decode.Job]:
    """A small run of the standard method. None of the frame is left out of the samples."""
    job = small_job("survey", encoder=encoder) if encoder else small_job("pipe", content="noise")
    program = decode.link_programs(ffmpeg, folder)
    try:
        path, reference = decode.make_input(job, program, folder)
    except FFmpegFailedError as error:
        pytest.skip(str(error))
    np.save(folder / decode.REFERENCE, reference)
    standard = "stdout.readinto" if encoder else decode.PIPE_STANDARD
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
        command = [target.ffmpeg, "-v", "error", "-i", target.source, *convert]
        raw = subprocess.run(command, capture_output=True, check=True).stdout
        return iter(np.frombuffer(raw, np.uint8).reshape(-1, *target.job.shape))

    return decoding


def fails(target: DecodeTarget) -> Iterator[Any]:
    yield from [frame.copy() for frame in stdout_readinto(target)][:3]
    raise RuntimeError("the method's own reason")


def test_check_accepts_a_correct_decoder(file_task: Task[decode.Job], reader_task: Task[decode.Job]) -> None:
    for task in (file_task, reader_task):
        for method in decode.METHODS:
            if method.can_do(task.job) and not method.missing():
                run = attempt(replace(task, method=method), decode.measure)
                assert run.error is None, method.name
                assert ("difference" in run.figures) == (method.kind != "bound")
                if method.kind != "ours":
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
def test_check_rejects_frames_that_differ_from_the_file(
    file_task: Task[decode.Job], decoding: Callable[[DecodeTarget], Iterator[Any]], reason: str
) -> None:
    assert reason in (decoded(file_task, decoding).error or "")


def test_a_frame_that_is_off_by_little_but_nearer_to_the_next_is_an_error() -> None:
    reference = np.zeros((3, 4, 4, 3), np.uint8)
    reference += np.arange(3, dtype=np.uint8)[:, None, None, None]
    assert decode.compare(reference, reference) == (0.0, None)
    shifted = reference[[1, 2, 2]]
    assert decode.compare(shifted, reference) == (1.0, "frame 0 shows what frame 1 has to show")


def test_check_rejects_a_pipe_frame_with_one_changed_byte(reader_task: Task[decode.Job]) -> None:
    def changes_a_byte(target: DecodeTarget) -> Iterator[Any]:
        for number, frame in enumerate(readinto(target)):
            frame[40, 50, 1] += number == 7
            yield frame

    def stops(target: DecodeTarget) -> Iterator[Any]:
        os.close(int(target.source))
        yield from ()

    assert "frame 7 shows something else" in (decoded(reader_task, changes_a_byte).error or "")
    assert decoded(reader_task, stops).error == "12 frames were sent, 0 were received"


def test_the_bound_counts_its_frames_and_looks_at_their_size(file_task: Task[decode.Job]) -> None:
    method = by_name(decode.METHODS, decode.BOUND)
    short, wide = replace(file_task.job, frames=FRAMES + 1), replace(file_task.job, width=98)
    runs = [attempt(replace(file_task, method=method, job=job), decode.measure) for job in (short, wide)]
    assert [run.error for run in runs] == [
        "13 frames were sent, 12 were received",
        "ValueError: frame 1 is 96x64",
    ]


def test_libraries_find_the_ffmpeg_that_was_asked_for(file_task: Task[decode.Job]) -> None:
    found = []

    def looks(target: DecodeTarget) -> Iterator[Any]:
        found.extend([shutil.which("ffmpeg"), os.environ["IMAGEIO_FFMPEG_EXE"], find_ffmpeg()])
        yield from ()

    decoded(file_task, looks)
    assert found == [file_task.ffmpeg] * 3


def test_a_file_that_ffmpeg_cannot_make_is_no_error_of_the_methods(ffmpeg: str) -> None:
    job = small_job("file", encoder="no-such-encoder")
    standard = by_name(decode.METHODS, decode.STANDARD)
    (made,) = decode.BENCHMARK.run(JobSettings((job,), (standard,), 1), [ffmpeg])
    assert made.rows[0].error is None
    assert "no-such-encoder" in (made.rows[0].skipped or "")


@pytest.mark.parametrize(
    ("job", "ours"),
    [
        (small_job("file", cpus=1), "penstock"),
        (small_job("file", content="testsrc2", scaled_to=(48, 32)), "penstock"),
        (small_job("file", encoder="libx265", video_pixel_format="yuv420p10le"), "penstock"),
        (small_job("file", content="mandelbrot", encoder="libvpx-vp9"), "penstock"),
        (small_job("busy"), "penstock penstock-program"),
        (small_job("batches", 40), "penstock penstock-batches penstock-batches-out penstock-fresh-memory"),
        (small_job("first", 3, file_frames=FRAMES), "penstock"),
        (small_job("picked", 6, file_frames=40, gop=12), "penstock-batch penstock-one-by-one"),
        (
            small_job("samples", 6, file_frames=40, gop=12, sample_frames=3, apart=4, scaled_to=(48, 32)),
            "penstock-samples",
        ),
        (small_job("windows", 6, file_frames=40, gop=12, sample_frames=3, apart=4), "penstock-samples"),
        (small_job("clips", 2 * FRAMES, clips=2), "penstock penstock.prefetch"),
    ],
    ids=lambda one: getattr(one, "kind", None),
)
def test_frames_of_each_kind_of_job_are_compared(
    ffmpeg: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: decode.Job, ours: str
) -> None:
    monkeypatch.setattr(decode, "KEPT", tmp_path)
    methods = [method for method in decode.METHODS if method.can_do(job) and not method.missing()]
    (made,) = decode.BENCHMARK.run(JobSettings((job,), tuple(methods), 1), [ffmpeg])
    assert {row.name for row in made.rows if row.method.kind == "ours"} == {*ours.split()}
    assert [row.skipped or row.error for row in made.rows] == [None] * len(made.rows)
    assert all(row.is_measured for row in made.rows)


def test_clips_of_a_dataset_are_compared(ffmpeg: str, tmp_path: Path) -> None:
    job = small_job(
        "dataset", 6, clips=2, file_frames=40, gop=12, scaled_to=(32, 32), sample_frames=3, apart=4
    )
    folder, frames = make_dataset(job, ffmpeg, tmp_path, tmp_path)
    clips = PenstockClips(Task(by_name(decode.METHODS, OURS), job, ffmpeg, folder))
    assert len(clips) == 2
    for number, sample in enumerate(job.samples):
        clip = clips[number]
        assert why_wrong(clip, frames[sample]) is None
        assert "shows something else" in (why_wrong(clip[:, ::-1], frames[sample]) or "")
        assert "float32 of (2, 3, 32, 32)" in (why_wrong(clip[1:], frames[sample]) or "")


@pytest.mark.parametrize("codec", ["aac", "flac"])
def test_windows_of_sound_are_compared(
    ffmpeg: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    monkeypatch.setattr(decode, "KEPT", tmp_path)
    job = replace(sound_job(codec), frames=4, seconds=3)
    methods = [method for method in decode.METHODS if method.can_do(job) and not method.missing()]
    (made,) = decode.BENCHMARK.run(JobSettings((job,), tuple(methods), 1), [ffmpeg])
    assert {"penstock-windows", "penstock-one-window"} <= {row.name for row in made.rows}
    assert [row.skipped or row.error for row in made.rows] == [None] * len(made.rows)


def test_a_window_from_elsewhere_is_an_error(ffmpeg: str, tmp_path: Path) -> None:
    job = replace(sound_job("flac"), frames=1, seconds=3)
    path, samples = make_sound(job, ffmpeg, tmp_path, tmp_path / "kept")
    np.save(tmp_path / decode.REFERENCE, samples)
    begins = round(job.starts_s[0] * SAMPLE_RATE)
    for late, is_wrong in ((0, False), (1, False), (10, True)):
        window = samples[begins + late : begins + late + SAMPLE_RATE, np.newaxis]
        method = Method("late", "", start=lambda _, window=window: iter([window]))
        run = attempt(Task(method, job, ffmpeg, path, str(tmp_path)), measure_sound)
        assert bool(run.error) == is_wrong


def test_a_rival_that_cannot_decode_a_file_is_skipped(ffmpeg: str, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    run = attempt(
        Task(by_name(decode.METHODS, "opencv"), small_job("file"), ffmpeg, str(path)), decode.measure
    )
    assert run.error is None and "cannot decode" in (run.skipped or "")


def test_an_encoded_video_is_kept_for_the_next_run(ffmpeg: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for name, job in (
        ("a", small_job("file")),
        ("b", small_job("busy")),
        ("c", small_job("file", content="text")),
    ):
        (tmp_path / name).mkdir()
        decode.make_input(job, ffmpeg, tmp_path / name, kept)
    assert len(list(kept.iterdir())) == 2


def test_samples_are_pixels_all_over_the_frame() -> None:
    for job in decode.JOBS:
        height, *_ = job.shape
        rows = range(0, height, job.sample_step)
        assert 60 <= len(rows) <= (224 if job.scaled_to else 80)
        assert height - rows[-1] <= job.sample_step
