"""Recordings as docs/how-to/recording.md makes them: what a kill leaves of a file, and files that rotate."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import a_few, eventually, ffmpegs
from support.media import make
from support.processes import has_ended, start_script

import penstock
from penstock import Decoder, Encoder, probe
from penstock._encoding.crash_safety import makes_ordinary_files
from penstock.errors import DecoderError, EncoderError
from penstock.video import AudioTrack, EncoderSettings
from scripts import run_page

FPS = 30
PAGE = Path(__file__).parents[2] / "docs/how-to/recording.md"

NO_DELAY = {"tune": "zerolatency"}
SAFE: dict[str, Any] = {"crash_safe": True, "options": NO_DELAY}
SEGMENTS = {
    "f": "segment",
    "segment_time": 1,
    "segment_format": "matroska",
    "force_key_frames": "expr:gte(t,n_forced*1)",
}
SAFE_SEGMENTS = SEGMENTS | {"segment_format_options": "flush_packets=1:cluster_time_limit=500"}
# By the name of the file: what it is recorded with, and whether with sound.
RECORDINGS: dict[str, tuple[dict[str, Any], bool]] = {
    "camera.mkv": (SAFE | {"fps": FPS}, False),
    "clock.mkv": (SAFE | {"fps": None}, False),
    "clock.mp4": (SAFE | {"fps": None}, False),
    "sound.mkv": (SAFE | {"fps": FPS}, True),
    "sound.mp4": (SAFE | {"fps": FPS}, True),
    "clock-sound.mov": (SAFE | {"fps": None}, True),
    "camera-%05d.mkv": ({"fps": FPS, "options": NO_DELAY | SAFE_SEGMENTS}, False),
    "camera.mp4": (SAFE | {"fps": FPS}, False),
    "short.mkv": (SAFE | {"fps": FPS, "options": {"rc-lookahead": 4, "bf": 1, "threads": 2}}, False),
}


def numbered(number: int) -> np.ndarray:
    """A frame of 64x48 with its number, in 16 bits along the top, and a picture that moves below."""
    y, x = np.mgrid[0:48, 0:64]
    frame = np.stack([x + 2 * number, y + number, x + y], axis=-1).astype(np.uint8)
    frame[:16] = np.repeat(255 * (number >> np.arange(16) & 1), 4)[:, np.newaxis]
    return frame


# Records by the clock. Prints how many frames it has written, and FFmpeg encoded, after each of them.
RECORD = f"""
import json
import numpy as np
from penstock.video import AudioTrack, EncoderSettings

{inspect.getsource(numbered)}

path, program, options, with_sound = *sys.argv[1:3], *map(json.loads, sys.argv[3:])
audio = AudioTrack(48_000, 1) if with_sound else None
settings = EncoderSettings(ffmpeg=program)
with penstock.Encoder(path, size=(64, 48), audio=audio, settings=settings, **options) as encoder:
    print(encoder.pid, flush=True)
    started_s = time.monotonic()
    number = 0
    while True:
        time.sleep(max(0, started_s + number / {FPS} - time.monotonic()))
        encoder.write(numbered(number), time_s=None if options["fps"] else time.monotonic() - started_s)
        if with_sound:
            encoder.write_audio(np.zeros(48_000 // {FPS}, np.float32))
        number += 1
        print(number, encoder.frames_encoded, flush=True)
"""


class Recorder:
    """A program that records.

    Attributes:
        process: Python's.
        pid: FFmpeg's.
    """

    def __init__(self, path: Path, program: str) -> None:
        settings, with_sound = RECORDINGS[path.name]
        self.process = start_script(RECORD, path, program, json.dumps(settings), json.dumps(with_sound))
        self.pid = int(self._line())

    def written(self, frames: int) -> int:
        """Waits for so many frames, and for a moment when FFmpeg keeps up. Returns how many there are then."""
        while True:
            written, encoded = map(int, self._line().split())
            if written >= frames and encoded >= written - FPS // 3:
                return written

    def kill(self) -> None:
        """Kills Python."""
        self.process.kill()
        self.process.communicate()

    def kill_ffmpeg(self) -> None:
        """Kills FFmpeg."""
        os.kill(self.pid, signal.SIGKILL)

    def _line(self) -> bytes:
        assert self.process.stdout is not None and self.process.stderr is not None
        line: bytes = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        return line


def numbers(paths: Iterable[Path]) -> list[int]:
    """The numbers of all frames of the files, in order."""
    found = []
    for path in paths:
        with Decoder(path) as decoder:
            found += [int((frame[8, 2::4, 1] > 128) @ (1 << np.arange(16))) for frame in decoder]
    return found


@pytest.mark.parametrize(
    ("name", "program"), a_few([(name, program) for program in reversed(ffmpegs()) for name in RECORDINGS])
)
def test_a_kill_of_python_and_ffmpeg_costs_the_last_second(tmp_path: Path, name: str, program: str) -> None:
    recorder = Recorder(tmp_path / name, program)
    written = recorder.written(45)
    recorder.kill_ffmpeg()
    recorder.kill()
    *before, last = sorted(tmp_path.iterdir())
    kept = numbers(before)
    with suppress(DecoderError) if before else nullcontext():  # it may have been begun a moment ago
        kept += numbers([last])
    assert kept == list(range(len(kept)))
    assert len(kept) > written - FPS


def test_ffmpeg_finishes_the_file_if_python_is_killed(tmp_path: Path, ffmpeg: str) -> None:
    recorder = Recorder(tmp_path / "camera.mkv", ffmpeg)
    written = recorder.written(45)
    recorder.kill()
    assert eventually(lambda: has_ended(recorder.pid))
    kept = numbers([tmp_path / "camera.mkv"])
    assert kept == list(range(len(kept)))
    assert len(kept) >= written - 1


def test_python_raises_if_ffmpeg_is_killed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "camera.mkv", ffmpegs()[-1])
    written = recorder.written(45)
    recorder.kill_ffmpeg()
    _, errors = recorder.process.communicate(timeout=60)
    assert recorder.process.returncode == 1
    assert re.search(rb"EncoderError: .*(SIGKILL|exit code 9)", errors)
    assert len(numbers([tmp_path / "camera.part.mkv"])) > written - FPS


# The name of a file, the time of its first frame at a variable rate, and whether it has sound: each two of them meet.
CRASHES = [
    ("a.mp4", None, False),
    ("a.mp4", 0.7, True),
    ("a.mov", None, True),
    ("a.mov", 0.7, False),
    ("a.mkv", None, True),
    ("a.mkv", 0.7, False),
]


def write_seconds(encoder: Encoder, first_s: float | None, *, with_sound: bool) -> list[float]:
    """Writes 60 frames of 30 a second, and sound to go with them. Returns the frames' times."""
    times_s = [(first_s or 0) + number / FPS for number in range(60)]
    if with_sound:
        encoder.write_audio(np.zeros(round(48_000 * (times_s[-1] + 1 / FPS)), np.float32))
    for number, time_s in enumerate(times_s):
        encoder.write(numbered(number), time_s=None if first_s is None else time_s)
    return times_s


def read_times(path: Path) -> list[float | None]:
    """The times of all frames."""
    with Decoder(path) as decoder:
        return [frame.time_s for frame in decoder]


def frames_so_far(path: Path) -> int:
    """How many frames can be read of a file that is being written."""
    with suppress(DecoderError, OSError):
        return len(read_times(path))
    return 0


def boxes(path: Path) -> list[bytes]:
    """The kinds of an MP4's outermost boxes."""
    data, kinds = path.read_bytes(), []
    while data:
        nbytes, kind = int.from_bytes(data[:4]), data[4:8]
        data = data[nbytes if nbytes > 1 else int.from_bytes(data[8:16]) :]
        kinds.append(kind)
    return kinds


def crash_safe(
    path: Path, ffmpeg: str, first_s: float | None, *, with_sound: bool, **options: Any
) -> Encoder:
    """An encoder with the switch."""
    audio = AudioTrack(48_000, 1) if with_sound else None
    return Encoder(
        path,
        size=(64, 48),
        fps=FPS if first_s is None else None,
        crash_safe=True,
        audio=audio,
        settings=EncoderSettings(ffmpeg=ffmpeg),
        **options,
    )


def tolerance_s(path: Path, *, with_sound: bool) -> float:
    """How far a frame may be from its time. In Matroska, AAC moves it by 1,024 samples."""
    return 0.0225 if with_sound and path.suffix == ".mkv" else 0.0011


@pytest.mark.parametrize(("name", "first_s", "with_sound"), CRASHES)
def test_a_killed_file_has_exact_times(
    tmp_path: Path, ffmpeg: str, name: str, first_s: float | None, with_sound: bool
) -> None:
    encoder = crash_safe(tmp_path / name, ffmpeg, first_s, with_sound=with_sound, options=NO_DELAY)
    written_s = write_seconds(encoder, first_s, with_sound=with_sound)
    assert eventually(lambda: frames_so_far(tmp_path / name) >= 30)
    os.kill(encoder.pid or 0, signal.SIGKILL)
    with pytest.raises(EncoderError):
        encoder.close()
    [left] = tmp_path.iterdir()
    kept_s = read_times(left)
    assert kept_s == pytest.approx(written_s[: len(kept_s)], abs=tolerance_s(left, with_sound=with_sound))
    assert len(probe(left).audio) == with_sound


@pytest.mark.parametrize(("name", "first_s", "with_sound"), CRASHES)
def test_a_crash_safe_file_that_was_closed_is_as_written(
    tmp_path: Path, ffmpeg: str, name: str, first_s: float | None, with_sound: bool
) -> None:
    path = tmp_path / name
    with crash_safe(path, ffmpeg, first_s, with_sound=with_sound, options={"bf": 2}) as encoder:
        written_s = write_seconds(encoder, first_s, with_sound=with_sound)
    assert encoder.report is not None and encoder.report.warnings == ()
    assert read_times(path) == pytest.approx(written_s, abs=tolerance_s(path, with_sound=with_sound))
    if path.suffix != ".mkv":
        assert (b"moof" in boxes(path)) != makes_ordinary_files(ffmpeg, path.suffix[1:])


def test_cameras_that_share_a_clock_stay_in_step(tmp_path: Path, ffmpeg: str) -> None:
    for name, first_s in (("a.mp4", 0.02), ("b.mov", 1.9), ("c.mkv", 0.7)):
        with crash_safe(tmp_path / name, ffmpeg, first_s, with_sound=False) as encoder:
            written_s = write_seconds(encoder, first_s, with_sound=False)
        assert encoder.report is not None and encoder.report.warnings == ()
        assert read_times(tmp_path / name) == pytest.approx(written_s, abs=0.0011)


@pytest.mark.parametrize(
    ("name", "options", "keyword"),
    [
        ("a.avi", {}, "crash_safe"),
        ("a.png", {}, "crash_safe"),
        ("a.mp4", {"movflags": "faststart"}, "movflags"),
        ("a.mov", {"frag_duration": 1000}, "frag_duration"),
        ("a.mkv", {"cluster_time_limit": 1000}, "cluster_time_limit"),
    ],
)
def test_crash_safe_is_refused_where_it_cannot_hold(
    tmp_path: Path, name: str, options: dict[str, Any], keyword: str
) -> None:
    with pytest.raises(ValueError, match=keyword):
        Encoder(tmp_path / name, fps=FPS, crash_safe=True, options=options)


def test_renders_refuse_crash_safe(tmp_path: Path) -> None:
    given: dict[str, Any] = {"frames": 9, "size": (64, 48), "fps": FPS, "output": tmp_path / "a.mp4"}
    with pytest.raises(ValueError, match="crash_safe"):
        penstock.rendering.plan(
            lambda index, time_s, view: None, **given, encoder_options={"crash_safe": True}
        )


def join() -> Callable[[Sequence[Path], Path], None]:
    """The function of the page."""
    [code] = [block.code for block in run_page.blocks(PAGE) if "def join(" in block.code]
    names: dict[str, Any] = {}
    exec(code[: code.index("\n\n\njoin(")], names)
    return names["join"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_timed", [False, True])
def test_segments_are_whole_and_join_to_the_recording(tmp_path: Path, ffmpeg: str, is_timed: bool) -> None:
    times_s = np.cumsum(np.random.default_rng(5).uniform(0.01, 0.06, 75)) if is_timed else np.arange(75) / FPS
    options = NO_DELAY | SEGMENTS | ({} if is_timed else {"reset_timestamps": 1})
    settings = {"fps": None if is_timed else FPS, "settings": EncoderSettings(ffmpeg=ffmpeg)}
    with make(tmp_path / "camera-%05d.mkv", options=options, **settings) as encoder:
        for number, time_s in enumerate(times_s):
            encoder.write(numbered(number), time_s=time_s if is_timed else None)
    assert encoder.report.frames_encoded == 75 and encoder.report.warnings == ()
    parts = sorted(tmp_path.iterdir())
    assert numbers(parts) == list(range(75))
    firsts = [numbers([part])[0] for part in parts]
    assert times_s[firsts] == pytest.approx([0, 1, 2], abs=0.13)
    join()(parts, joined := tmp_path / "joined.mkv")
    with Decoder(joined) as decoder:
        whole = [*decoder]
    pictures = [frame for part in parts for frame in Decoder(part)]
    assert (np.array(whole) == np.array(pictures)).all()
    assert [frame.time_s for frame in whole] == pytest.approx(times_s - times_s[0], abs=0.0015)


def test_segment_wrap_keeps_the_last_files(tmp_path: Path, ffmpeg: str) -> None:
    options = NO_DELAY | SEGMENTS | {"segment_wrap": 2}
    with make(
        tmp_path / "last-%05d.mkv", options=options, settings=EncoderSettings(ffmpeg=ffmpeg)
    ) as encoder:
        for number in range(100):
            encoder.write(numbered(number))
    assert [numbers([path])[0] for path in sorted(tmp_path.iterdir())] == [60, 90]


def test_segment_names_can_hold_the_time(tmp_path: Path, ffmpeg: str) -> None:
    options = NO_DELAY | SEGMENTS | {"strftime": 1}
    with make(
        tmp_path / "%Y%m%d-%H%M%S.mkv", options=options, settings=EncoderSettings(ffmpeg=ffmpeg)
    ) as encoder:
        for number in range(20):
            encoder.write(numbered(number))
    [path] = tmp_path.iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}\.mkv", path.name)
    assert numbers([path]) == list(range(20))
