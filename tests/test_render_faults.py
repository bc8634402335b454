"""Renders that fail: scenes, workers, disks, plans and chunks; what is kept then, and that the next call goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE_S, eventually, has_ended, run_script, script, start_script, started, succeeded
from media import decode

import penstock
from penstock.errors import EncoderError, RenderError
from penstock.ffmpeg import find_ffmpeg
from penstock.rendering import Plan, assemble, plan, render_chunk

SIZE = (64, 48)
FAST = {"preset": "ultrafast"}
SLOW = pytest.mark.slow


def scene(index: int, time_s: float, view: np.ndarray) -> None:
    view[:] = 4 * index % 256


def settings(folder: Path, **others: Any) -> dict[str, Any]:
    given = {
        "frames": 32,
        "size": SIZE,
        "fps": 30,
        "output": folder / "video.mp4",
        "workers": 2,
        "chunk_frames": 8,
    }
    return given | {"encoder": FAST} | others


def chunks(folder: Path) -> list[str]:
    """The chunks that are kept for ``video.mp4``."""
    return sorted(path.name for path in folder.glob("video.mp4.chunks/*/*.mov"))


def count(plan: Plan) -> int:
    return len(plan.chunks)


def is_whole(video: Path, frames: int = 32) -> bool:
    got = decode(video, SIZE)
    wanted = 4 * np.arange(frames).reshape(-1, 1, 1, 1) % 256
    return len(got) == frames and bool(np.abs(got.astype(int) - wanted).max() <= 8)


def test_a_scene_that_raises_ends_the_render_and_the_next_call_goes_on(tmp_path: Path) -> None:
    broken, drawn = tmp_path / "broken", tmp_path / "drawn"
    broken.touch()
    drawn.mkdir()

    def now_and_then(index: int, time_s: float, view: np.ndarray) -> None:
        (drawn / f"{index}-{time.monotonic_ns()}").touch()
        if index == 29 and broken.exists():
            raise ValueError("no such star")
        scene(index, time_s, view)

    with pytest.raises(RenderError) as failed:
        penstock.render(now_and_then, **settings(tmp_path, workers=1))
    message, notes = str(failed.value), "\n".join(failed.value.__notes__)
    assert "now_and_then, frame 29: ValueError: no such star" in message
    assert "failed 3 times" in message and f"{__file__}:" in message
    assert "Traceback" in notes and "raise ValueError" in notes and "chunks are kept in" in notes
    assert failed.value.attempts == 3 and failed.value.frames is not None and 29 in failed.value.frames
    assert Counter(path.name.partition("-")[0] for path in drawn.iterdir())["29"] == 3
    kept = chunks(tmp_path)
    assert kept and not (tmp_path / "video.mp4").exists()

    broken.unlink()
    for path in drawn.iterdir():
        path.unlink()
    report = penstock.render(now_and_then, **settings(tmp_path, workers=2, chunk_frames=11))
    assert (report.resumed, report.retries) == (len(kept), 0)
    frames = sorted(int(path.name.partition("-")[0]) for path in drawn.iterdir())
    assert frames == list(failed.value.frames) + list(range(failed.value.frames.stop, 32))
    assert is_whole(tmp_path / "video.mp4")
    assert not (tmp_path / "video.mp4.chunks").exists()


def wrong_shape(index: int, time_s: float, view: np.ndarray) -> None:
    view[:] = np.zeros((5, 5, 3))


def returned(index: int, time_s: float, view: np.ndarray) -> np.ndarray:
    return np.zeros_like(view)


class Unbuilt:
    def __init__(self) -> None:
        raise OSError("no display")

    def __call__(self, index: int, time_s: float, view: np.ndarray) -> None: ...


@pytest.mark.parametrize(
    "broken, says",
    [
        (wrong_shape, "wrong_shape, frame 0: ValueError: could not broadcast"),
        (
            returned,
            "returned, frame 0: TypeError: it returned a ndarray: a scene draws into its third argument",
        ),
        pytest.param(Unbuilt, "OSError: no display", marks=SLOW),
    ],
)
def test_a_scene_that_cannot_draw(tmp_path: Path, broken: Callable[..., object], says: str) -> None:
    with pytest.raises(RenderError, match="failed 3 times") as failed:
        penstock.render(broken, **settings(tmp_path, frames=4, workers=1))
    assert says in str(failed.value)
    assert list(tmp_path.iterdir()) == []  # nothing was rendered, and nothing stays


def test_a_scene_that_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(index: int, time_s: float, view: np.ndarray) -> None:
        with lock:
            scene(index, time_s, view)

    with pytest.raises(TypeError, match=r"locked cannot be sent to workers: .*lock.*in the scene's class"):
        penstock.render(locked, **settings(tmp_path))
    assert list(tmp_path.iterdir()) == []


@SLOW
def test_a_scene_that_hangs_is_ended_by_its_timeout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    once = tmp_path / "once"

    def hanging(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 5 and not once.exists():
            once.touch()
            time.sleep(1000)
        scene(index, time_s, view)

    report = penstock.render(hanging, **settings(tmp_path, frame_timeout=5))
    assert report.retries >= 1
    assert is_whole(tmp_path / "video.mp4")
    assert "hanging" in capfd.readouterr().err  # its stack


@SLOW
def test_a_class_is_built_once_a_worker(tmp_path: Path) -> None:
    class Counted:
        def __init__(self) -> None:
            (tmp_path / f"built-{os.getpid()}-{time.monotonic_ns()}").touch()

        def __call__(self, index: int, time_s: float, view: np.ndarray) -> None:
            scene(index, time_s, view)

    report = penstock.render(Counted, **settings(tmp_path))
    assert len(list(tmp_path.glob("built-*"))) == len(report.workers) <= 2
    assert is_whole(tmp_path / "video.mp4")


MODULE = """
from helper import LEVEL

def scene(index, time_s, view):
    view[:] = LEVEL * index % 256

class Made:
    def __call__(self, index, time_s, view):
        scene(index, time_s, view)
"""


@SLOW
@pytest.mark.parametrize(
    "name",
    ["shot:Made", pytest.param("shot:scene", marks=SLOW), pytest.param("{}/shot.py:scene", marks=SLOW)],
)
def test_a_scene_by_name(tmp_path: Path, name: str) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "helper.py").write_text("LEVEL = 4\n")
    (code / "shot.py").write_text(MODULE)
    call = "penstock.render(sys.argv[1], frames=8, size=(64, 48), fps=30, output=sys.argv[2], workers=1)"
    succeeded(run_script(call, name.format(code), tmp_path / "video.mp4", cwd=code))
    assert is_whole(tmp_path / "video.mp4", 8)


@SLOW
def test_a_scene_of_a_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("LEVEL = 4\n")
    (tmp_path / "shot.py").write_text(MODULE)
    # No `if __name__ == "__main__"`, and functions of the script itself.
    main = """
import sys
import penstock
import shot

def own(index, time_s, view):
    shot.scene(index, time_s, view)

for scene in (shot.scene, own):
    penstock.render(scene, frames=8, size=(64, 48), fps=30, output=sys.argv[1], workers=1)
"""
    (tmp_path / "main.py").write_text(main)
    video = tmp_path / "video.mp4"
    subprocess.run([sys.executable, tmp_path / "main.py", video], check=True, timeout=PATIENCE_S, cwd="/")
    assert is_whole(video, 8)


def test_no_such_scene(tmp_path: Path) -> None:
    for name, error in [
        ("nosuchmodule:scene", ImportError),
        ("json:scene", AttributeError),
        ("json", ValueError),
    ]:
        with pytest.raises(error):
            penstock.render(name, **settings(tmp_path))
    with pytest.raises(FileNotFoundError):
        penstock.render(f"{tmp_path}/shot.py:scene", **settings(tmp_path))
    with pytest.raises(TypeError, match="a scene is a function or a class"):
        penstock.render("json:__name__", **settings(tmp_path))


@SLOW
def test_a_killed_workers_chunk_is_rendered_again(tmp_path: Path) -> None:
    once = tmp_path / "once"

    def killed(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 5 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        scene(index, time_s, view)

    report = penstock.render(killed, **settings(tmp_path))
    assert report.retries == 1
    assert is_whole(tmp_path / "video.mp4")
    assert sorted(tmp_path.iterdir()) == [once, tmp_path / "video.mp4"]


@SLOW
def test_a_chunk_that_kills_each_worker_ends_the_render(tmp_path: Path) -> None:
    def deadly(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 29:
            os.kill(os.getpid(), signal.SIGKILL)
        scene(index, time_s, view)

    with pytest.raises(RenderError, match=r"failed 3 times: the worker \d+ was killed by signal 9"):
        penstock.render(deadly, **settings(tmp_path))
    assert chunks(tmp_path) and not list(tmp_path.rglob("*.part"))


SLOWLY = """
def slowly(index, time_s, view):
    time.sleep(0.05)
    view[:] = 4 * index % 256

def go(output, **others):
    penstock.render(
        slowly, frames=32, size=(64, 48), fps=30, output=output, workers=2, chunk_frames=4,
        encoder={"preset": "ultrafast"}, **others
    )
"""


@contextlib.contextmanager
def half_done(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that renders `slowly`, and has some chunks."""
    code = f"import time\n{SLOWLY}\ngo(sys.argv[1])\n"
    with start_script(code, folder / "video.mp4") as process:
        assert eventually(lambda: len(list(folder.glob("video.mp4.chunks/*/*.json"))) > 2)
        yield process


def test_ctrl_c_keeps_what_is_done_and_leaves_nothing_running(tmp_path: Path) -> None:
    with half_done(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert started() == {}
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in err and b"chunks are kept in" in err
    kept = len(list(tmp_path.glob("video.mp4.chunks/*/*.mov.json")))
    assert kept and not list(tmp_path.rglob("*.part"))
    code = f"import time\n{SLOWLY}\ngo(sys.argv[1], progress=lambda now: print(now.chunks_done))\n"
    done = succeeded(run_script(code, tmp_path / "video.mp4"))
    assert int(done.split()[0]) >= kept
    assert is_whole(tmp_path / "video.mp4")


@SLOW
def test_ctrl_c_in_the_join_ends_its_ffmpeg(tmp_path: Path) -> None:
    stuck = script(
        tmp_path / "ffmpeg", 'case "$*" in *framecrc*) sleep 1000;; esac', f'exec {find_ffmpeg()} "$@"'
    )
    video = tmp_path / "video.mp4"
    video.write_bytes(b"the old one")
    code = """
from penstock.ffmpeg import Tuning

def flat(index, time_s, view):
    view[:] = 4 * index % 256

encoder = {"tuning": Tuning(ffmpeg=sys.argv[2])}
penstock.render(flat, frames=32, size=(64, 48), fps=30, output=sys.argv[1], workers=2, encoder=encoder)
"""
    with start_script(code, video, stuck) as process:
        assert eventually(lambda: any(b"framecrc" in command for command in started().values()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert started() == {}
    assert process.returncode == -signal.SIGINT and b"chunks are kept in" in err
    assert video.read_bytes() == b"the old one"
    assert not list(tmp_path.glob(".*part*")) and chunks(tmp_path)


@SLOW
def test_workers_end_when_their_driver_is_killed(tmp_path: Path) -> None:
    with half_done(tmp_path) as process:
        others = set(started()) - {process.pid}
        assert others
        process.kill()
        process.wait()
        assert eventually(lambda: all(map(has_ended, others)))
        assert eventually(lambda: not list(tmp_path.rglob("*.part")))


@SLOW
def test_a_scene_that_takes_no_signals_is_ended(tmp_path: Path) -> None:
    code = """
def hanging(index, time_s, view):
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass

penstock.render(hanging, frames=8, size=(64, 48), fps=30, output=sys.argv[1], workers=1)
"""
    with start_script(code, tmp_path / "video.mp4") as process:
        assert eventually(lambda: len(started()) > 1)
        time.sleep(1)
        workers = set(started()) - {process.pid}
        process.kill()
        process.wait()
        assert eventually(lambda: all(map(has_ended, workers)))


@SLOW
def test_a_full_disk_at_a_chunk(tmp_path: Path) -> None:
    def noisy(index: int, time_s: float, view: np.ndarray) -> None:
        view[:] = np.random.default_rng(index).integers(0, 256, view.shape, np.uint8)

    with small_disk(tmp_path / "small") as storage:
        given = settings(tmp_path, size=(320, 240), storage=storage, encoder={"codec": "ffv1"})
        given["output"] = tmp_path / "video.mkv"
        given["output"].write_bytes(b"the old one")
        with pytest.raises(RenderError, match=f"(?s)failed 3 times: .*{os.strerror(28)}"):
            penstock.render(noisy, **given)
        assert not list(storage.rglob("*.part"))
    assert given["output"].read_bytes() == b"the old one"
    assert not list(tmp_path.glob(".*part*"))


@SLOW
def test_a_full_disk_at_the_join(tmp_path: Path) -> None:
    def noisy(index: int, time_s: float, view: np.ndarray) -> None:
        view[:] = np.random.default_rng(index).integers(0, 256, view.shape, np.uint8)

    with small_disk(tmp_path / "small") as small:
        given = settings(tmp_path, size=(320, 240), storage=tmp_path / "chunks", encoder={"codec": "ffv1"})
        given["output"] = small / "video.mkv"
        given["output"].write_bytes(b"the old one")
        with pytest.raises((EncoderError, OSError), match=os.strerror(28)) as failed:
            penstock.render(noisy, **given)
        assert any("chunks are kept" in note for note in failed.value.__notes__)
        assert [path.name for path in small.iterdir()] == ["video.mkv"]
        assert given["output"].read_bytes() == b"the old one"
    given["output"] = tmp_path / "video.mkv"
    assert penstock.render(noisy, **given).resumed > 0


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_plans_that_are_refused(tmp_path: Path) -> None:
    planned = plan(scene, **settings(tmp_path))
    assert Plan.from_json(planned.to_json()) == planned
    given = json.loads(planned.to_json())
    for change, says in [
        ({"version": 99}, "version 99, and this Penstock reads version"),
        ({"fps": "60"}, "changed after it was made"),
        ({"lengths": [16, 16]}, "changed after it was made"),
        ({"code": None}, "changed after it was made"),
        ({"frames": "many"}, "this is no plan"),
    ]:
        with pytest.raises(ValueError, match=says):
            Plan.from_json(json.dumps(given | change))
    for text in ("", "{}", "[]", "7", "{", "null"):
        with pytest.raises(ValueError, match="this is no plan"):
            Plan.from_json(text)
    with pytest.raises(ValueError, match="chunks 0 to"):
        render_chunk(planned, 99)


def test_another_ffmpeg_than_the_plans(tmp_path: Path) -> None:
    program = script(
        tmp_path / "ffmpeg",
        f'case "$*" in *-version*) echo "ffmpeg version $(cat {tmp_path}/version)"; exit;; esac',
        f'exec {find_ffmpeg()} "$@"',
    )
    (tmp_path / "version").write_text("7.9.1")
    given = settings(tmp_path, encoder=FAST | {"tuning": penstock.ffmpeg.Tuning(ffmpeg=program)})
    planned = plan(scene, **given)
    assert planned.ffmpeg == "7.9.1"
    forget_versions()
    (tmp_path / "version").write_text("7.9.2")
    with pytest.raises(ValueError, match=f"made with FFmpeg 7.9.1, and {program} is FFmpeg 7.9.2"):
        render_chunk(planned, 0)


def forget_versions() -> None:
    from penstock.ffmpeg import capabilities

    capabilities._stdout_of.cache_clear()


def made(folder: Path, **others: Any) -> Plan:
    """A plan all of whose chunks are there."""
    planned = plan(scene, **settings(folder, **others))
    for number in range(count(planned)):
        render_chunk(planned, number)
    return planned


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage", [flip, pytest.param(cut, marks=SLOW), pytest.param(Path.unlink, marks=SLOW)]
)
def test_a_damaged_chunk(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    planned = made(tmp_path)
    [damaged] = tmp_path.glob("video.mp4.chunks/*/00001.mov")
    damage(damaged)
    with pytest.raises(RenderError, match=r"1 of \d chunks are missing or damaged: 1$"):
        assemble(planned)
    assert not (tmp_path / "video.mp4").exists()
    report = penstock.render(scene, **settings(tmp_path))
    assert report.resumed == count(planned) - 1
    assert is_whole(tmp_path / "video.mp4")


@SLOW
def test_a_missing_report_is_a_missing_chunk(tmp_path: Path) -> None:
    planned = made(tmp_path)
    for path in tmp_path.glob("video.mp4.chunks/*/*.json"):
        path.unlink()
    with pytest.raises(RenderError, match=f"{count(planned)} of {count(planned)} chunks are missing"):
        assemble(planned)


@SLOW
@pytest.mark.parametrize(
    "other",
    [{"crf": 30, "options": {"refs": 5}}, pytest.param({"colors": {"matrix": "bt2020"}}, marks=SLOW)],
)
def test_chunks_with_other_parameters_are_not_joined(tmp_path: Path, other: dict[str, Any]) -> None:
    planned = made(tmp_path)
    if "colors" in other:
        other = {"colors": penstock.ffmpeg.Colors(**other["colors"])}
    forged = made(tmp_path, storage=tmp_path / "forged", encoder={"preset": "medium"} | other)
    [folder] = tmp_path.glob("video.mp4.chunks/*")
    for name in ("00001.mov", "00001.mov.json"):
        next(tmp_path.glob(f"forged/*/{name}")).replace(folder / name)
    assert forged.hash != planned.hash
    (tmp_path / "video.mp4").write_bytes(b"the old one")
    with pytest.raises(RenderError, match="chunk 1 has other parameter sets, colours or sizes than chunk 0"):
        assemble(planned)
    assert (tmp_path / "video.mp4").read_bytes() == b"the old one"
    assert not list(tmp_path.glob(".*part*"))
    assert len(chunks(tmp_path)) == count(planned)


@SLOW
def test_what_differs_is_rendered_anew(tmp_path: Path) -> None:
    made(tmp_path)

    def other(index: int, time_s: float, view: np.ndarray) -> None:
        scene(index, time_s, view)

    assert penstock.render(other, **settings(tmp_path)).resumed == 0
    assert len(chunks(tmp_path)) > 0  # those of the first scene stay
    assert penstock.render(scene, **settings(tmp_path), resume=False).resumed == 0
    assert not (tmp_path / "video.mp4.chunks").exists()


@SLOW
def test_frames_with_a_step(tmp_path: Path) -> None:
    report = penstock.render(scene, **settings(tmp_path, frames=range(2, 30, 3), chunk_frames=4))
    got = decode(tmp_path / "video.mp4", SIZE)
    assert report.frames == len(got) == 10
    assert [round(int(frame.mean()) / 4) for frame in got] == list(range(2, 30, 3))
    with pytest.raises(ValueError, match="indices from 0"):
        penstock.render(scene, **settings(tmp_path, frames=range(5, 5)))


@pytest.mark.parametrize(
    "encoder",
    [
        {"options": {"pass": 1}},
        {"options": {"maxrate": "1M", "bufsize": "2M"}},
        {"options": {"x264-params": "keyint=9:vbv-maxrate=500:vbv-bufsize=300"}},
        {"codec": "libx265", "options": {"x265-params": "pass=2"}},
        {"codec": "libvpx-vp9", "pixel_format": "rgba", "output_pixel_format": "yuva420p"},
        {"options": {"f": "hls"}},
        {"fps": 60},
        {"tuning": penstock.ffmpeg.Tuning(policy=penstock.ThreadPolicy(nice=3))},
    ],
)
def test_what_cannot_be_joined_is_refused_before_anything_is_rendered(
    tmp_path: Path, encoder: dict[str, Any]
) -> None:
    output = tmp_path / ("video.webm" if encoder.get("codec") == "libvpx-vp9" else "video.mp4")
    with pytest.raises(ValueError):
        penstock.render(
            "nosuchmodule:scene" if False else scene, **settings(tmp_path, output=output, encoder=encoder)
        )
    assert list(tmp_path.iterdir()) == []


@SLOW
def test_the_steps_in_processes_of_their_own(tmp_path: Path) -> None:
    planned = plan(scene, **settings(tmp_path))
    (tmp_path / "plan.json").write_text(planned.to_json())
    read = "from penstock.rendering import *\nmade = Plan.from_json(open(sys.argv[1]).read())\n"
    for number in reversed(range(count(planned))):
        code = f"{read}render_chunk(made, {number}, threads=1)"
        succeeded(run_script(code, tmp_path / "plan.json", env=os.environ | {"PYTHONPATH": _python_path()}))
    succeeded(run_script(f"{read}print(assemble(made).frames)", tmp_path / "plan.json"))
    assert is_whole(tmp_path / "video.mp4")


def _python_path() -> str:
    """For functions of this module, which travel by its name."""
    return os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])


@SLOW
def test_the_drivers_memory_does_not_grow_with_the_chunks(tmp_path: Path) -> None:
    code = """
import resource

def scene(index, time_s, view):
    view[:] = index % 256

def grown(chunks):
    encoder = {"codec": "mpeg4"}
    penstock.render(
        scene, frames=3 * chunks, size=(32, 32), fps=30, output=sys.argv[1], workers=2, chunk_frames=3, encoder=encoder
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few, many = grown(20), grown(120)
print(few, many)
assert many < few + 8 * 1024, (few, many)
"""
    succeeded(run_script(code, tmp_path / "video.mp4"))
