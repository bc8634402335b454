"""The `Encoder`, with real FFmpeg: what it writes is decoded, and what goes wrong is made to go wrong."""

from __future__ import annotations

import _thread
import contextlib
import copy
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import MODES, PATIENCE_S, UNREHEARSED, a_few, eventually
from support.media import (
    COLORS,
    SIZE,
    children,
    decode,
    described,
    flat,
    holdings,
    is_flat,
    make,
    native_threads,
    no_opengl,
    stopped,
)
from support.processes import has_ended

from penstock import (
    AudioDecoder,
    BrokenStreamError,
    ClosedError,
    Decoder,
    Encoder,
    EncoderError,
    StalledError,
)
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock._ffmpeg.command.settings import with_overrides
from penstock._formats.pixel_formats import PIXEL_FORMATS
from penstock.video import AudioTrack, EncodeReport, EncoderSettings, EncoderStats, find_ffmpeg

WIDTH, HEIGHT = SIZE
FRAME_BYTES = 3 * WIDTH * HEIGHT
# More than the pipe and FFmpeg's own buffers hold, so that a stopped FFmpeg is felt.
MANY = 400


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Every test here, whatever it does to FFmpeg, must leave no process, thread or descriptor."""
    gc.collect()  # what other tests have left in cycles
    before = holdings()
    yield
    gc.collect()
    assert eventually(lambda: holdings() == before), f"before: {before}\nafter: {holdings()}"


def submit(encoder: Encoder, frames: int) -> None:
    for index in range(frames):
        encoder.write(flat(index))


def pid_of(encoder: Encoder) -> int:
    return encoder._session.process.pid


def is_gone(pid: int) -> bool:
    """Whether FFmpeg has ended and was reaped."""
    return pid not in children()


def program(folder: Path, *lines: str) -> Path:
    """A shell script in place of FFmpeg; ``$FFMPEG`` is the real one."""
    script = folder / "program"
    script.write_text("\n".join(["#!/bin/sh", f"FFMPEG='{find_ffmpeg()}'", *lines, ""]))
    script.chmod(0o755)
    return script


def run_python(script: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250, **options)  # type: ignore[call-overload,no-any-return]


# What is delivered


def test_smoke(tmp_path: Path, ffmpeg: str) -> None:
    output = tmp_path / "video.mp4"
    with make(output, settings=EncoderSettings(ffmpeg=ffmpeg)) as encoder:
        submit(encoder, 20)
    report = encoder.close()
    frames = decode(output)
    assert len(frames) == 20
    assert all(is_flat(frame, index) for index, frame in enumerate(frames))
    assert report == EncodeReport(
        output=str(output),
        frames_submitted=20,
        frames_encoded=20,
        samples_submitted=0,
        bytes_submitted=20 * FRAME_BYTES,
        output_bytes=output.stat().st_size,
        elapsed_s=report.elapsed_s,
        fps=pytest.approx(20 / report.elapsed_s),
        codec="libx264",
    )
    assert report.elapsed_s > 0


@pytest.mark.parametrize("mode", MODES)
def test_every_transport_delivers_every_byte(tmp_path: Path, mode: str) -> None:
    size = (320, 200)
    random = np.random.default_rng(1)
    frames = [random.integers(0, 256, (200, 320, 3), np.uint8) for _ in range(40)]
    output = tmp_path / "video.rgb"
    raw = {"codec": "rawvideo", "output_pixel_format": "rgb24", "options": {"f": "rawvideo"}}
    with Encoder(
        output, size=size, fps=30, settings=with_overrides(EncoderSettings(), mode=mode), **raw
    ) as encoder:
        for frame in frames:
            encoder.write(frame)
    assert output.read_bytes() == b"".join(frame.tobytes() for frame in frames)
    delivered = encoder.stats.writer.bytes_by_transport
    assert sum(delivered.values()) == 40 * frames[0].nbytes
    if mode != "auto":
        assert {name for name, nbytes in delivered.items() if nbytes} == {mode}


@pytest.mark.parametrize(("size", "pixel_format"), a_few(product([(7, 5), (64, 48)], PIXEL_FORMATS), 14))
def test_frame_bytes_match_ffmpeg(tmp_path: Path, size: tuple[int, int], pixel_format: str) -> None:
    frame_bytes = frame_layout(pixel_format, *size).frame_bytes
    frames = [os.urandom(frame_bytes) for _ in range(3)]
    output = tmp_path / "video.raw"
    exact = {"codec": "rawvideo", "output_pixel_format": "ffmpeg", "options": {"f": "rawvideo"}}
    with Encoder(output, size=size, fps=30, pixel_format=pixel_format, **exact) as encoder:
        for frame in frames:
            encoder.write(frame)
    assert encoder.close().frames_encoded == 3
    assert output.read_bytes() == b"".join(frames)


def test_any_buffer_of_the_right_size_is_a_frame(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    frame = flat(2)
    buffers = frame.tobytes(), bytearray(frame.tobytes()), memoryview(frame), frame, frame.ravel()
    with make(output) as encoder:
        for buffer in buffers:
            assert encoder.write(buffer).nbytes == FRAME_BYTES // 2  # what FFmpeg gets: yuv420p
    assert [is_flat(shown, 2) for shown in decode(output)] == [True] * len(buffers)


@pytest.mark.parametrize("fps", [30000 / 1001, Fraction(30000, 1001)])
def test_fractional_frame_rate_is_exact_in_a_video_that_plays_everywhere(
    tmp_path: Path, fps: float | Fraction
) -> None:
    output = tmp_path / "video.mp4"
    with make(output, fps=fps) as encoder:
        submit(encoder, 30)
    assert "-framerate 30000/1001" in " ".join(encoder._session.process.command)
    assert re.search(r"Video: h264.* yuv420p[(,].* 64x48.* 29\.97 fps", described(output))


def test_options_reach_ffmpeg(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    options = {"vf": "vflip", "qp": 0, "shortest": None}
    picture = flat(0)
    picture[: HEIGHT // 2] = COLORS[1]
    with make(output, options=options) as encoder:
        encoder.write(picture)
    (frame,) = decode(output)
    assert is_flat(frame[: HEIGHT // 2 - 2], 0)
    assert is_flat(frame[HEIGHT // 2 + 2 :], 1)


@pytest.mark.parametrize("size", [SIZE, None])
def test_encoder_raises_if_no_frame_was_written(tmp_path: Path, size: tuple[int, int] | None) -> None:
    (tmp_path / "video.mp4").write_bytes(b"old")
    encoder = make(tmp_path / "video.mp4", size=size)
    with pytest.raises(EncoderError):
        encoder.close()
    assert (tmp_path / "video.mp4").read_bytes() == b"old"


def test_loop_of_links_is_refused_as_an_output(tmp_path: Path) -> None:
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    with pytest.raises(OSError):
        make(tmp_path / "loop.mp4")
    with pytest.raises(OSError):
        make(tmp_path / "loop.mp4" / "5")
    encoder = make(f"file://{tmp_path}/loop.mp4")
    with pytest.raises(EncoderError):
        submit(encoder, 1)
        encoder.close()
    assert (tmp_path / "loop.mp4").is_symlink()


def test_output_that_is_no_file_is_encoded_without_a_size_in_the_report(tmp_path: Path) -> None:
    encoder = make(tmp_path / "nothing", codec="rawvideo", options={"f": "null"})
    submit(encoder, 5)
    report = encoder.close()
    assert (report.frames_encoded, report.output_bytes) == (5, None)
    assert not Path(report.output).exists()


needs_opengl = pytest.mark.skipif(no_opengl() is not None, reason=str(no_opengl()))


@needs_opengl
@pytest.mark.parametrize("handle", ["moderngl.Buffer", "mglo"])
def test_a_moderngl_buffer_may_be_read_into_again_at_once(tmp_path: Path, handle: str) -> None:
    import moderngl

    output = tmp_path / "video.mp4"
    with make(output) as encoder:
        context = moderngl.create_context(standalone=True, backend="egl")
        framebuffer = context.simple_framebuffer(SIZE, components=3)
        buffer = context.buffer(reserve=FRAME_BYTES)
        for index in range(30):
            framebuffer.clear(*(channel / 255 for channel in COLORS[index % len(COLORS)]))
            framebuffer.read_into(buffer)
            encoder.write(buffer if handle == "moderngl.Buffer" else buffer.mglo)
        wrong = context.buffer(reserve=FRAME_BYTES - 1)
        with pytest.raises(ValueError):
            encoder.write(wrong if handle == "moderngl.Buffer" else wrong.mglo)
        encoder.close()
        context.release()
    assert [is_flat(frame, index) for index, frame in enumerate(decode(output))] == 30 * [True]


# Wrong arguments


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"size": (0, 48)}, ValueError, "width"),
        ({"size": (64, -48)}, ValueError, "width"),
        ({"size": (2**64 - 1, 48)}, ValueError, "2 GiB"),
        ({"size": (48, 64, 3)}, ValueError, "shape"),
        ({"size": 64}, TypeError, "width"),
        ({"size": (64.0, 48)}, TypeError, "integers"),
        *(
            ({"fps": fps}, ValueError, "more than 0")
            for fps in (0, -30, float("nan"), float("inf"), "thirty")
        ),
        ({"fps": (30000, 1001)}, TypeError, "Fraction"),
        ({"fps": 1j}, TypeError, "number"),
        ({"fps": b"1"}, TypeError, "number"),
        ({"pixel_format": "rgb"}, ValueError, "rgb24"),
        ({"pixel_format": None}, TypeError, "pixel_format"),
        ({"colors": "bt709"}, TypeError, "Colors"),
        ({"options": "crf=20"}, TypeError, "options"),
        ({"options": {"f": 3}}, ValueError, "container"),
        *(({"size": size}, ValueError, "yuv444p") for size in ((63, 48), (64, 47))),
        ({"size": (63, 48), "output_pixel_format": "yuv422p"}, ValueError, "yuv444p"),
        ({"odd_size": "round"}, ValueError, "odd_size"),
        # Floats, and channels first.
        *(({"value_range": one}, ValueError, "the lower first") for one in ((1.0, 1.0), (1.0, 0.0))),
        ({"value_range": (0.0, float("inf"))}, ValueError, "finite"),
        ({"value_range": (-1.7e308, 1.7e308)}, ValueError, "value_range"),
        *(({"value_range": one}, TypeError, "two numbers") for one in (1.0, ("0", "1"))),
        *(
            ({"value_range": (0.0, 1.0), "pixel_format": name}, ValueError, word)
            for name, word in (("grayf32le", "floats"), ("gbrpf32le", "floats"), ("yuv420p", "rgb24"))
        ),
        ({"channels_first": True, "pixel_format": "yuv420p"}, ValueError, "channels_first"),
        ({"channels_first": 1}, TypeError, "True or False"),
        ({"progress": 0}, ValueError, "progress"),
        ({"pixel_format": "rgb42"}, ValueError, "rgb24"),
        (
            {
                "pixel_format": "yuv420p",
                "output_pixel_format": "yuv444p",
                "settings": with_overrides(EncoderSettings(), convert="native"),
            },
            ValueError,
            "native",
        ),
    ],
    ids=str,
)
def test_wrong_arguments_are_errors_at_the_call(
    tmp_path: Path, options: dict[str, object], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        make(tmp_path / "video.mp4", **options)
    assert list(tmp_path.iterdir()) == []


# Names of outputs


@pytest.mark.parametrize(
    "name",
    [
        "-dash.mp4",
        pytest.param("http:x.mp4", marks=pytest.mark.linux("names with colons and line ends")),
        "50% fünf'.mp4",
    ],
)
def test_a_path_is_never_an_option_or_a_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with make(name) as encoder:
        submit(encoder, 3)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(decode(tmp_path / name)) == 3


def test_relative_path_is_resolved_at_the_call_and_a_url_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    encoder = make("video.mp4")
    submit(encoder, 3)
    monkeypatch.chdir("/")
    report = encoder.close()
    assert report.output == str(tmp_path / "video.mp4")
    assert report.output_bytes == (tmp_path / "video.mp4").stat().st_size
    url = f"file://{tmp_path}/url.mp4"
    with make(url) as encoder:
        submit(encoder, 3)
    named = f"file:{(tmp_path / 'url.mp4').as_posix()}" if sys.platform == "win32" else url
    assert encoder._session.process.command[-1] == named
    assert len(decode(tmp_path / "url.mp4")) == 3


# Finding FFmpeg


def test_an_argument_the_environment_the_path_and_the_wheel_name_ffmpeg_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ffmpeg").symlink_to(find_ffmpeg())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_FFMPEG", sys.executable)
    assert find_ffmpeg(str(tmp_path / "ffmpeg")) == str(tmp_path / "ffmpeg")
    assert find_ffmpeg() == sys.executable
    monkeypatch.delenv("PENSTOCK_FFMPEG")
    assert find_ffmpeg() == str(tmp_path / "ffmpeg")
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setenv("PATH", "/missing")
    assert find_ffmpeg() == imageio_ffmpeg.get_ffmpeg_exe()


@pytest.fixture
def two_ffmpegs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The wheel's FFmpeg, and another one on PATH; nobody names one."""
    wheel = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    on_path = tmp_path / "bin" / "ffmpeg"
    on_path.parent.mkdir()
    on_path.symlink_to(wheel)
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.delenv("PENSTOCK_FFMPEG", raising=False)
    return wheel, str(on_path)


def program_of(path: Path, **options: Any) -> str:
    """The program that encodes a video by these options."""
    encoder = Encoder(path, fps=30, **options)
    try:
        encoder.write(np.zeros((64, 64, 3), np.uint8))
        return encoder._session.process.command[0]
    finally:
        encoder.abort()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", {}),
        ("a.mp4", {"size": (64, 64)}),
        ("a.webm", {"crf": 40}),
        ("a.mkv", {"audio": AudioTrack(48_000, 1)}),
    ],
)
def test_the_wheels_ffmpeg_which_starts_sooner_encodes_listed_pairs(
    tmp_path: Path, two_ffmpegs: tuple[str, str], name: str, options: dict[str, Any]
) -> None:
    wheel, on_path = two_ffmpegs
    assert program_of(tmp_path / name, **options) == wheel
    assert find_ffmpeg() == on_path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", {"codec": "auto-h264"}),
        ("a.mp4", {"options": {"vf": "hflip"}}),
        ("a.mp4", {"crash_safe": True}),
        ("a.avi", {}),
        ("a.mp4", {"audio": AudioTrack(48_000, 1, codec="flac")}),
    ],
)
def test_the_ffmpeg_on_path_encodes_what_is_not_listed(
    tmp_path: Path, two_ffmpegs: tuple[str, str], name: str, options: dict[str, Any]
) -> None:
    assert program_of(tmp_path / name, **options) == two_ffmpegs[1]


@pytest.mark.parametrize("named_by", ["argument", "PENSTOCK_FFMPEG", "IMAGEIO_FFMPEG_EXE", "old wheel"])
def test_the_wheels_ffmpeg_takes_no_precedence_over_a_named_one(
    tmp_path: Path, two_ffmpegs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    settings = EncoderSettings(ffmpeg="ffmpeg" if named_by == "argument" else None)
    if named_by == "old wheel":
        monkeypatch.setattr("penstock._ffmpeg.program.capabilities._OLDEST_IN_WHEEL", (99,))
    elif named_by != "argument":
        monkeypatch.setenv(named_by, two_ffmpegs[1])
    assert program_of(tmp_path / "a.mp4", settings=settings) == two_ffmpegs[1]


@pytest.mark.linux("a shell script stands in for a program")
def test_a_listed_pair_starts_one_program(tmp_path: Path) -> None:
    """Nothing is listed, rehearsed or read back by a program."""
    counting, started = tmp_path / "ffmpeg", tmp_path / "started"
    counting.write_text(f"#!/bin/sh\necho >> '{started}'\nexec '{find_ffmpeg()}' \"$@\"\n")
    counting.chmod(0o755)
    with Encoder(tmp_path / "a.mp4", fps=30, settings=EncoderSettings(ffmpeg=counting)) as encoder:
        encoder.write(np.zeros((64, 64, 3), np.uint8))
    assert started.read_text() == "\n"


@pytest.mark.parametrize("named_by", ["argument", "PENSTOCK_FFMPEG", None])
def test_an_ffmpeg_that_is_missing_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str | None
) -> None:
    monkeypatch.delenv("PENSTOCK_FFMPEG", raising=False)
    if named_by is None:
        monkeypatch.setenv("PATH", "/missing")
        monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    elif named_by == "PENSTOCK_FFMPEG":
        monkeypatch.setenv("PENSTOCK_FFMPEG", "/missing/ffmpeg")
    argument = "/missing/ffmpeg" if named_by == "argument" else None
    with pytest.raises(EncoderError, match=named_by or "PENSTOCK_FFMPEG") as caught:
        make(tmp_path / "video.mp4", settings=EncoderSettings(ffmpeg=argument))
    assert caught.value.returncode is None


@pytest.mark.linux("programs without .exe")
def test_program_that_cannot_be_started_raises(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_bytes(b"\x7fELF and no more")
    program.chmod(0o755)
    with pytest.raises(EncoderError) as caught:
        make(tmp_path / "video.mp4", settings=EncoderSettings(ffmpeg=program))
    assert caught.value.returncode is None
    assert caught.value.command[0] == str(program)


@pytest.mark.linux("/proc")
@pytest.mark.parametrize(
    "users",
    [{}, {"GLIBC_TUNABLES": "glibc.malloc.check=0"}, {"MALLOC_ARENA_MAX": "2"}, {"MALLOC_TOP_PAD_": "1"}],
)
def test_ffmpeg_gets_malloc_tunables_unless_the_user_set_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: dict[str, str]
) -> None:
    for name in [name for name in os.environ if name == "GLIBC_TUNABLES" or name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    for name, value in users.items():
        monkeypatch.setenv(name, value)
    with make(tmp_path / "video.mp4") as encoder:
        environ = Path(f"/proc/{encoder.pid}/environ")
        assert eventually(
            environ.read_bytes
        )  # execve(2) closes descriptors, which says that it began, before it is there
        environment = os.fsdecode(environ.read_bytes())
        encoder.write(flat(0))
    # glibc 2.36 puts NUL for the colons in its own environment.
    lines = environment.replace("\0", ":").split(":")
    tunables = [one for one in lines if one.startswith(("GLIBC_TUNABLES", "MALLOC_", "glibc."))]
    ours = [
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "glibc.malloc.arena_max=1",
        "glibc.malloc.mmap_threshold=33554432",
        "glibc.malloc.trim_threshold=268435456",
    ]
    assert tunables == ([f"{name}={value}" for name, value in users.items()] or ours)


# FFmpeg fails


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"options": {"nonsense": 1}}, "nonsense"),
        ({"options": {"preset": "nonsense"}}, "nonsense"),
        ({"options": {"f": "nonsense"}}, "nonsense"),
        (
            {"size": (64, 48), "output_pixel_format": "ffmpeg", "codec": "libvpx", "options": {"f": "ismv"}},
            "not currently supported in container",
        ),
    ],
)
def test_ffmpegs_own_words_come_with_the_error(
    tmp_path: Path, ffmpeg: str, options: dict[str, Any], words: str
) -> None:
    with (
        pytest.raises(EncoderError) as caught,
        make(
            tmp_path / "v.mp4",
            settings=with_overrides(EncoderSettings(ffmpeg=ffmpeg), rehearse=False),
            **options,
        ) as encoder,
    ):
        submit(encoder, MANY)
    error = caught.value
    assert error.returncode is not None and error.returncode > 0
    assert error.command[0] == ffmpeg and error.command[-1] == f"file:{(tmp_path / 'v.mp4').as_posix()}"
    assert words in error.stderr
    # Advice is for what FFmpeg doesn't list.
    assert (error.advice is None) == ("f" in options["options"])
    assert str(error).startswith(f"{error.advice}\n{error.reason}\n" if error.advice else f"{error.reason}\n")
    # Its last lines may be about what follows from the error.
    assert words in str(error)
    assert error.frames == 0
    assert isinstance(error, RuntimeError)


def test_killed_ffmpeg_raises_at_the_next_write(tmp_path: Path) -> None:
    encoder = make(tmp_path / "video.mp4", options={"preset": "ultrafast"})
    assert eventually(lambda: encoder.write(flat(0)) and encoder.frames_encoded > 0)
    seen = encoder.frames_encoded
    os.kill(pid_of(encoder), signal.SIGKILL)
    with pytest.raises(EncoderError) as caught:
        for index in range(100_000):
            encoder.write(flat(index))
    error = caught.value
    assert abs(error.returncode) == signal.SIGKILL
    assert isinstance(error.__cause__, BrokenStreamError)
    assert seen <= error.frames < encoder.frames_submitted
    assert error.command[0] == find_ffmpeg()
    for again in (encoder.close, lambda: encoder.write(flat(0)), encoder.close):
        with pytest.raises(EncoderError) as repeated:
            again()
        assert repeated.value is error


@pytest.mark.linux("files in /dev")
@pytest.mark.parametrize(
    ("container_format", "frames"), [("matroska", 10), ("avi", 10), ("mp4", 10), ("mpegts", MANY)]
)
def test_full_disk_raises_with_the_reason(ffmpeg: str, container_format: str, frames: int) -> None:
    # 10 small frames reach the disk only when FFmpeg ends the file: its exit code alone would not tell.
    options = {"preset": "ultrafast", "qp": 0}
    with (
        pytest.raises(EncoderError, match="space") as caught,
        make(
            "/dev/full", options={"f": container_format, **options}, settings=EncoderSettings(ffmpeg=ffmpeg)
        ) as encoder,
    ):
        random = np.random.default_rng(1)
        for _ in range(frames):
            encoder.write(random.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8))
    assert caught.value.returncode != 0


@pytest.mark.slow
def test_ffmpeg_that_stops_reading_but_does_not_end_raises(tmp_path: Path) -> None:
    # What is asked of it before is answered: for each answer that does not come, 5 s are waited.
    deaf = program(
        tmp_path,
        'case "$*" in *-progress*) echo deaf >&2; exec 0<&-; exec sleep 1000;; esac',
        'exec "$FFMPEG" "$@"',
    )
    with (
        pytest.raises(EncoderError) as caught,
        make(tmp_path / "v.mp4", settings=EncoderSettings(ffmpeg=deaf)) as encoder,
    ):
        submit(encoder, MANY)
    assert caught.value.stderr == "deaf"


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"r": 25}, "fps=25"),
        ({"r:v": "30000/1001"}, "fps='30000/1001'"),
        ({"s": "64x48"}, "options={'vf': 'scale=64:48'}"),
        ({"s:v": "hd720"}, "options={'vf': 'scale=hd720'}"),
        ({"c:v": "mpeg4"}, "codec='mpeg4'"),
        ({"-c:a": "aac"}, "options={'c:a': 'aac'}"),
        ({"metadata:s:v": "rotate=90"}, "options={'vf': 'transpose=clock'}"),
        ({"metadata:s:v:0": ["title=x", "rotate=90"]}, "options={'vf': 'transpose=clock'}"),
    ],
    ids=str,
)
def test_options_that_an_argument_replaces_are_refused_with_that_argument(
    tmp_path: Path, options: dict[str, object], instead: str
) -> None:
    with pytest.raises(ValueError) as caught:
        Encoder(tmp_path / "video.mp4", fps=10, options=options)
    assert str(caught.value).startswith(f"options={options}") and f"Pass {instead}" in str(caught.value)


def test_an_option_that_leaves_the_video_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vn"):
        Encoder(tmp_path / "video.mp4", fps=10, options={"vn": None})


@pytest.mark.parametrize("options", [{"fpsmax": 3}, {"frames:v": 5}, {"t": 0.2}])
def test_missing_frames_raise_at_close(tmp_path: Path, options: dict[str, object]) -> None:
    with (
        pytest.raises(EncoderError) as caught,
        make(tmp_path / "video.mp4", options=options, settings=UNREHEARSED) as encoder,
    ):
        submit(encoder, MANY)
    assert 0 < caught.value.frames < encoder.frames_submitted
    assert caught.value.advice is not None and str(options) in caught.value.advice


def test_whatever_ffmpeg_says_is_drained_and_bounded(tmp_path: Path) -> None:
    # The last -loglevel counts, and `trace` says more on 400 frames than a pipe holds.
    with make(tmp_path / "video.mp4", options={"loglevel": "trace"}) as encoder:
        submit(encoder, MANY)
    assert encoder.close().frames_encoded == MANY
    assert 0 < len(encoder._session.process.log.text.splitlines()) <= 50


# The end


def test_close_may_be_called_again(tmp_path: Path) -> None:
    encoder = make(tmp_path / "video.mp4")
    submit(encoder, 3)
    assert not encoder.closed
    report = encoder.close()
    assert encoder.close() is report
    assert encoder.closed
    encoder.abort()
    assert encoder.close() is report
    with pytest.raises(ClosedError):
        encoder.write(flat(0))


def test_abort_ends_ffmpeg_at_once(tmp_path: Path) -> None:
    with make(tmp_path / "video.mp4") as encoder:
        submit(encoder, 30)
        encoder.abort()
        assert is_gone(pid_of(encoder))
        encoder.abort()
        for closed in (encoder.close, lambda: encoder.write(flat(0))):
            with pytest.raises(ClosedError):
                closed()


@pytest.mark.parametrize("mode", MODES[1::2])
def test_abort_ends_a_stuck_ffmpeg(tmp_path: Path, mode: str) -> None:
    encoder = make(
        tmp_path / "video.mp4", settings=with_overrides(EncoderSettings(queue_items=MANY), mode=mode)
    )
    with stopped(encoder) as pid:
        submit(encoder, MANY)
        encoder.abort()
    assert is_gone(pid)


def test_a_close_that_waits_for_ffmpegs_end_can_time_out(tmp_path: Path) -> None:
    # Few enough frames for the pipe: all of them are delivered by a copying transport, and FFmpeg never ends.
    encoder = make(tmp_path / "video.mp4", settings=with_overrides(EncoderSettings(), mode="write"))
    with stopped(encoder):
        submit(encoder, 3)
        with pytest.raises(StalledError):
            encoder.close(timeout=0.1)
        with pytest.raises(StalledError):
            encoder.close(timeout=0)
    assert encoder.close(timeout=60).frames_encoded == 3


def test_many_encoders_leave_no_thread_or_descriptor(tmp_path: Path) -> None:
    with make(tmp_path / "first.mp4") as encoder:  # what a first use loads for good
        submit(encoder, 3)
    before = native_threads()
    for index in range(8):
        encoder = make(
            tmp_path / f"{index}.mp4",
            codec="mpeg4",
            options={"nonsense": 1} if index == 3 else {},
            settings=UNREHEARSED,
        )
        with contextlib.suppress(EncoderError):
            submit(encoder, 10)
            encoder.abort() if index % 2 else encoder.close()
        encoder.abort()
    assert eventually(lambda: native_threads() <= before)


# Exceptions in the `with` block


def test_an_exception_passes_and_the_video_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    with pytest.raises(ZeroDivisionError) as caught, make(output) as encoder:
        submit(encoder, 25)
        raise ZeroDivisionError
    assert caught.value.__notes__ == [f"{output} has the 25 frames written before"]
    assert len(decode(output)) == 25
    assert encoder.close().frames_encoded == 25


def test_an_exception_is_not_masked_by_ffmpegs(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError) as caught,
        make(tmp_path / "video.mp4", options={"nonsense": 1}, settings=UNREHEARSED) as encoder,
    ):
        submit(encoder, 1)
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert "couldn't be finished" in note and "nonsense" in note
    assert "\n" not in note and "FFmpeg said" not in note


def test_a_first_frame_that_is_refused_is_not_hidden_by_ffmpegs_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught, make(tmp_path / "video.mp4") as encoder:
        encoder.write(np.zeros((2, 2, 3), np.uint8))
    assert caught.value.__notes__ == ["and there is no video, because no frame was written"]
    assert not list(tmp_path.iterdir())


def test_encoder_error_is_not_reported_twice(tmp_path: Path) -> None:
    with (
        pytest.raises(EncoderError) as caught,
        make(tmp_path / "video.mp4", options={"nonsense": 1}, settings=UNREHEARSED) as encoder,
    ):
        assert eventually(lambda: encoder.write(flat(0)) and False)
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.slow
def test_an_exception_never_waits_for_a_stuck_ffmpeg(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError) as caught,
        make(tmp_path / "v.mp4", settings=EncoderSettings(queue_items=MANY)) as encoder,
    ):
        submit(encoder, MANY)
        os.kill(pid_of(encoder), signal.SIGSTOP)
        raise ZeroDivisionError
    assert is_gone(pid_of(encoder))
    assert "no sign of life" in caught.value.__notes__[0]
    with pytest.raises(ClosedError):
        encoder.close()


@pytest.mark.slow
def test_slow_ffmpeg_is_not_taken_for_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock._encoding.session.STUCK_S", 1.0)
    slow = program(tmp_path, "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done", 'exec "$FFMPEG" "$@"')
    output = tmp_path / "video.mp4"
    with (
        pytest.raises(ZeroDivisionError) as caught,
        make(output, settings=EncoderSettings(ffmpeg=slow)) as encoder,
    ):
        submit(encoder, 3)
        raise ZeroDivisionError
    assert caught.value.__notes__ == [f"{output} has the 3 frames written before"]
    assert len(decode(output)) == 3


@pytest.mark.slow
def test_ctrl_c_while_finishing_ends_ffmpeg(tmp_path: Path) -> None:
    encoder = make(tmp_path / "video.mp4")
    submit(encoder, 3)
    os.kill(pid_of(encoder), signal.SIGSTOP)
    with interrupted_after(0.3), pytest.raises(KeyboardInterrupt), encoder:
        pass
    assert is_gone(pid_of(encoder))


# Waiting


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raises KeyboardInterrupt in the main thread, as Ctrl-C does."""
    if sys.platform == "win32":
        timer = threading.Timer(seconds, _thread.interrupt_main)
        timer.start()
        yield
        timer.cancel()
        return
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("where", ["write", "close", "wait for the end"])
def test_ctrl_c_wakes_a_waiting_encoder(tmp_path: Path, where: str) -> None:
    encoder = make(
        tmp_path / "video.mp4", settings=with_overrides(EncoderSettings(queue_items=MANY), mode="write")
    )
    with stopped(encoder):
        if where == "write":
            with interrupted_after(0.3), pytest.raises(KeyboardInterrupt):
                submit(encoder, 10 * MANY)
        else:
            submit(encoder, MANY if where == "close" else 3)
            with interrupted_after(0.3), pytest.raises(KeyboardInterrupt):
                encoder.close()
    report = encoder.close()  # nothing was lost by it
    assert report.frames_encoded == report.frames_submitted > 0


@pytest.mark.parametrize("where", ["write", "close"])
def test_other_threads_run_while_an_encoder_waits(tmp_path: Path, where: str) -> None:
    encoder = make(tmp_path / "video.mp4", settings=EncoderSettings(queue_items=MANY))
    pid = pid_of(encoder)
    os.kill(pid, signal.SIGSTOP)
    # Were Python's lock held by the wait, this thread would never wake FFmpeg, and the wait would never end.
    threading.Timer(0.3, os.kill, (pid, signal.SIGCONT)).start()
    submit(encoder, 3 * MANY if where == "write" else MANY)
    assert encoder.close().frames_encoded == encoder.frames_submitted


# Encoders that nobody closes


def test_a_forgotten_encoder_is_finished(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    encoder = make(output)
    pid = pid_of(encoder)
    submit(encoder, 25)
    with pytest.warns(ResourceWarning):
        del encoder
        gc.collect()
    assert eventually(lambda: is_gone(pid))
    assert len(decode(output)) == 25


def test_encoder_referenced_only_by_its_own_progress_is_finished(tmp_path: Path) -> None:
    class Owner:
        def __init__(self) -> None:
            self.encoder = make(tmp_path / "video.mp4", progress=self.show)

        def show(self, stats: EncoderStats) -> None: ...

    threads = set(threading.enumerate())
    owner = Owner()
    pid = pid_of(owner.encoder)
    submit(owner.encoder, 25)
    gone = weakref.ref(owner)
    with pytest.warns(ResourceWarning):
        del owner
        # The thread that tells has the owner while it does.
        assert eventually(lambda: gc.collect() >= 0 and gone() is None)
    assert eventually(lambda: is_gone(pid))
    assert len(decode(tmp_path / "video.mp4")) == 25
    assert eventually(lambda: set(threading.enumerate()) <= threads)


def test_a_running_encoder_or_decoder_cannot_be_copied(tmp_path: Path) -> None:
    def is_refused(running: object) -> None:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                copied(running)

    with make(tmp_path / "video.mkv", audio=AudioTrack(8000, 1)) as encoder:
        is_refused(encoder)
        encoder.write(flat(0))
        encoder.write_audio(np.zeros(800, np.float32))
    with AudioDecoder(tmp_path / "video.mkv") as decoder:
        is_refused(decoder)
        assert decoder.read() is not None


def test_close_does_not_wait_for_a_progress_callback_that_waits_for_close(tmp_path: Path) -> None:
    closed, called = threading.Event(), threading.Event()

    def show(stats: EncoderStats) -> None:
        called.set()
        closed.wait(PATIENCE_S)

    encoder = make(tmp_path / "video.mp4", progress=show)
    encoder.write(flat(0))
    assert called.wait(PATIENCE_S)
    begun_s = time.monotonic()
    with pytest.warns(RuntimeWarning):
        encoder.close()
    assert time.monotonic() - begun_s < PATIENCE_S / 2
    closed.set()


def test_closed_encoder_is_collected_without_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = make(tmp_path / "video.mp4")
        submit(encoder, 3)
        encoder.close()
        del encoder
        encoder = make(tmp_path / "video.mp4")
        encoder.abort()
        del encoder
        gc.collect()


def test_a_forgotten_encoder_that_fails_says_so(tmp_path: Path) -> None:
    encoder = make(tmp_path / "video.mp4", options={"nonsense": 1}, settings=UNREHEARSED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del encoder
        gc.collect()
        assert eventually(lambda: len(caught) == 2)
    assert caught[0].category is ResourceWarning
    assert caught[1].category is RuntimeWarning and "nonsense" in str(caught[1].message)


UNCLOSED = """
import sys
from penstock import Encoder
encoder = Encoder(sys.argv[1], size=(64, 48), fps=30)
for index in range(200):
    encoder.write(bytes([index % 250]) * (64 * 48 * 3))
"""


@pytest.mark.slow
def test_interpreter_exit_waits_for_an_ffmpeg_that_works_but_reads_nothing(tmp_path: Path) -> None:
    """Its pipe stands still for longer than a stalled reader is waited for, and nothing is lost."""
    script = """if True:
        import sys, penstock
        from penstock._ffmpeg.command.settings import with_overrides
        from penstock.video import EncoderSettings
        penstock._common.exits.STALL_S = 0.1
        options = {"vf": "nlmeans=s=10:r=41", "filter_threads": 1}
        settings = with_overrides(EncoderSettings(), capacity_bytes=1 << 16)
        encoder = penstock.Encoder(sys.argv[1], size=(480, 270), fps=30, options=options, settings=settings)
        for _ in range(4):
            encoder.write(bytes(480 * 270 * 3))
    """
    output = tmp_path / "video.mp4"
    done = run_python(script, output)
    assert (done.returncode, done.stderr) == (0, "")
    with Decoder(output) as decoder:
        assert len(list(decoder)) == 4


@pytest.mark.parametrize(
    ("end", "status", "warn"),
    [
        ("", 0, "error"),
        ("sys.exit(3)", 3, "ignore"),
        ("1 / 0", 1, "error"),
        ("del encoder", 0, "ignore"),
        ("encoder.me = encoder", 0, "error"),
    ],
)
def test_interpreter_exit_finishes_an_open_encoder(tmp_path: Path, end: str, status: int, warn: str) -> None:
    output = tmp_path / "video.mp4"
    result = run_python(UNCLOSED + end, output, env={**os.environ, "PYTHONWARNINGS": warn})
    assert result.returncode == status, result.stderr
    assert list(tmp_path.iterdir()) == [output], result.stderr
    assert len(decode(output)) == 200
    assert ("never closed" in result.stderr) == (warn == "error")


@pytest.mark.parametrize("end", ["", "del encoder"])
def test_unclosed_encoder_does_not_replace_the_old_file(tmp_path: Path, end: str) -> None:
    output, part = tmp_path / "video.mp4", tmp_path / "video.part.mp4"
    output.write_bytes(b"what was there")
    result = run_python(UNCLOSED + end, output)
    assert output.read_bytes() == b"what was there"
    assert str(part) in result.stderr and len(decode(part)) == 200


def test_interpreter_exit_finishes_all_open_encoders(tmp_path: Path) -> None:
    """Also if the warning about the first one is an error."""
    script = (
        UNCLOSED + "another = Encoder(sys.argv[2], size=(64, 48), fps=30)\nanother.write(bytes(64 * 48 * 3))"
    )
    outputs = tmp_path / "one.mp4", tmp_path / "two.mp4"
    result = run_python(script, *outputs, env={**os.environ, "PYTHONWARNINGS": "error"})
    assert (result.returncode, result.stderr.count("rgb24> was never closed")) == (0, 2), result.stderr
    assert [len(decode(output)) for output in outputs] == [200, 1]


@pytest.mark.linux("signals to programs")
def test_ctrl_c_at_the_interpreters_exit_ends_a_slow_ffmpeg(tmp_path: Path) -> None:
    slow = program(tmp_path, 'case "$*" in *-progress*) while :; do :; done;; esac', 'exec "$FFMPEG" "$@"')
    script = f"""if True:
        import sys
        from penstock import Encoder
        from penstock.video import EncoderSettings
        encoder = Encoder(sys.argv[1], size=(64, 48), fps=30, settings=EncoderSettings(ffmpeg={str(slow)!r}))
        finish = encoder._session.finish
        encoder._session.finish = lambda **how: (print(encoder.pid, flush=True), finish(**how))[1]
    """
    command = [sys.executable, "-c", script, str(tmp_path / "video.mp4")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None
        pid = int(python.stdout.readline())
        python.send_signal(signal.SIGINT)
        try:
            _, told = python.communicate(timeout=PATIENCE_S)
        finally:
            python.kill()
    assert "KeyboardInterrupt" in told
    assert has_ended(pid)


# Fork


@pytest.mark.linux("forks")
def test_a_forked_child_neither_holds_nor_harms_the_video(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    encoder = make(output)
    submit(encoder, 10)
    done_read, done_write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(done_write)
            for use in (lambda: encoder.write(flat(0)), encoder.close):
                with pytest.raises(ClosedError):
                    use()
            encoder.abort()
            del use, encoder
            gc.collect()
            os.read(done_read, 1)  # until the parent has closed: it must not wait for us
            status = 0
        finally:
            os._exit(status)
    os.close(done_read)
    submit(encoder, 15)
    assert encoder.close().frames_encoded == 25
    os.close(done_write)
    assert os.waitpid(child, 0)[1] == 0
    frames = decode(output)
    assert [is_flat(frame, index) for index, frame in enumerate(frames[:10])] == 10 * [True]
    assert [is_flat(frame, index) for index, frame in enumerate(frames[10:])] == 15 * [True]


@pytest.mark.linux("signals to programs")
def test_ffmpeg_is_not_interrupted_by_the_terminals_ctrl_c(tmp_path: Path) -> None:
    # What a terminal does: SIGINT to the whole process group of the foreground.
    output = tmp_path / "video.mp4"
    script = """
import os, signal, sys
from penstock import Encoder
with Encoder(sys.argv[1], size=(64, 48), fps=30) as encoder:
    for index in range(100):
        encoder.write(bytes(64 * 48 * 3))
    os.killpg(0, signal.SIGINT)
"""
    result = run_python(script, output, start_new_session=True)
    assert "KeyboardInterrupt" in result.stderr
    assert len(decode(output)) == 100
