"""Renders that fail: scenes, workers, disks; what is kept then, and that the next call goes on."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import has_ended, run_script, script, small_disk, start_script, started, succeeded
from support.renders import KILL, SLOW, chunks, is_whole, scene, settings

import penstock
from penstock.errors import EncoderError, RenderError
from penstock.rendering import RenderProgress
from penstock.video import find_ffmpeg


def test_scene_that_raises_ends_the_render_and_the_next_call_continues(tmp_path: Path) -> None:
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
    assert "written before" not in notes  # of the chunk at work, whose file is gone
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


def drawn_elsewhere(index: int, time_s: float, view: np.ndarray) -> None:
    view = np.full_like(view, index)


def broken_pipe(index: int, time_s: float, view: np.ndarray) -> None:
    raise penstock.BrokenStreamError(32, "the scene's own reader went away")


class Unbuilt:
    def __init__(self) -> None:
        raise OSError("no display")

    def __call__(self, index: int, time_s: float, view: np.ndarray) -> None: ...


@pytest.mark.parametrize(
    "broken, says",
    [
        (wrong_shape, "wrong_shape, frame 0: ValueError"),
        (returned, "must return None"),
        (drawn_elsewhere, "must draw into its third argument"),
        pytest.param(broken_pipe, "the scene's own reader went away", marks=SLOW),
        pytest.param(Unbuilt, "OSError: no display", marks=SLOW),
    ],
)
def test_scene_that_cannot_draw_raises_and_leaves_no_file(
    tmp_path: Path, broken: Callable[..., object], says: str
) -> None:
    with pytest.raises(RenderError) as failed:
        penstock.render(broken, **settings(tmp_path, frames=4, workers=1))
    assert says in str(failed.value)
    assert list(tmp_path.iterdir()) == []  # nothing was rendered, and nothing stays


def test_scene_that_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(index: int, time_s: float, view: np.ndarray) -> None:
        with lock:
            scene(index, time_s, view)

    with pytest.raises(TypeError):
        penstock.render(locked, **settings(tmp_path))
    assert list(tmp_path.iterdir()) == []


@SLOW
def test_a_scene_that_hangs_can_end_its_own_worker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    once = tmp_path / "once"

    def hanging(index: int, time_s: float, view: np.ndarray) -> None:
        faulthandler.dump_traceback_later(2, exit=True)
        if index == 5 and not once.exists():
            once.touch()
            time.sleep(1000)
        scene(index, time_s, view)
        faulthandler.cancel_dump_traceback_later()

    report = penstock.render(hanging, **settings(tmp_path))
    assert report.retries >= 1
    assert is_whole(tmp_path / "video.mp4")
    assert "hanging" in capfd.readouterr().err  # its stack


@SLOW
def test_scene_class_is_built_once_per_worker(tmp_path: Path) -> None:
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
    ["shot:Made", "{}/shot.py:scene"],
)
def test_scene_can_be_given_by_name(tmp_path: Path, name: str) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "helper.py").write_text("LEVEL = 4\n")
    (code / "shot.py").write_text(MODULE)
    call = "penstock.render(sys.argv[1], frames=8, size=(64, 48), fps=30, output=sys.argv[2], workers=1)"
    succeeded(run_script(call, name.format(code), tmp_path / "video.mp4", cwd=code))
    assert is_whole(tmp_path / "video.mp4", 8)


@SLOW
def test_scene_module_beside_the_script_is_found(tmp_path: Path) -> None:
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


def test_missing_scene_raises(tmp_path: Path) -> None:
    for name, error in [
        ("nosuchmodule:scene", ImportError),
        ("json:scene", AttributeError),
        ("json", ValueError),
        (f"{tmp_path}/shot.py:scene", FileNotFoundError),
        ("json:__name__", TypeError),
    ]:
        with pytest.raises(error):
            penstock.render(name, **settings(tmp_path))


@SLOW
def test_a_killed_workers_chunk_is_rendered_again(tmp_path: Path) -> None:
    once = tmp_path / "once"

    def killed(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 5 and not once.exists():
            once.touch()
            os.kill(os.getpid(), KILL)
        scene(index, time_s, view)

    report = penstock.render(killed, **settings(tmp_path))
    assert report.retries == 1
    assert is_whole(tmp_path / "video.mp4")
    assert sorted(tmp_path.iterdir()) == [once, tmp_path / "video.mp4"]


@SLOW
def test_a_chunk_that_kills_each_worker_ends_the_render(tmp_path: Path) -> None:
    is_mended = tmp_path / "mended"

    def deadly(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 29 and not is_mended.exists():
            os.kill(os.getpid(), KILL)
        scene(index, time_s, view)

    with pytest.raises(RenderError) as caught:
        penstock.render(deadly, **settings(tmp_path))
    kept = chunks(tmp_path)
    # The FFmpeg of a killed worker lives for a moment, and may begin its part of a chunk once parts were removed.
    assert all(part.name.startswith(f".{caught.value.chunk:05}.") for part in tmp_path.rglob("*.part"))
    is_mended.touch()  # and this call removes that, too
    assert penstock.render(deadly, **settings(tmp_path)).resumed == len(kept) > 0
    assert sorted(tmp_path.iterdir()) == [is_mended, tmp_path / "video.mp4"]


SLOWLY = """
def slowly(index, time_s, view):
    time.sleep(0.05)
    view[:] = 4 * index % 256

def go(output, **others):
    penstock.render(
        slowly, frames=32, size=(64, 48), fps=30, output=output, workers=2, chunk_frames=4,
        encoder_options={"preset": "ultrafast"}, **others
    )
"""


@contextlib.contextmanager
def half_done(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that renders `slowly`, and has some chunks."""
    code = f"import time\n{SLOWLY}\ngo(sys.argv[1])\n"
    with start_script(code, folder / "video.mp4") as process:
        assert eventually(lambda: len(list(folder.glob("video.mp4.chunks/*/*.json"))) > 2)
        yield process


def test_ctrl_c_keeps_finished_chunks_and_leaves_no_process(tmp_path: Path) -> None:
    with half_done(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert started() == {}
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in err and b"chunks are kept in" in err
    assert not list(tmp_path.rglob("*.part"))
    resumed_and_whole(tmp_path)


def resumed_and_whole(folder: Path) -> None:
    """The next call takes the chunks that are there, and makes the rest."""
    kept = len(list(folder.glob("video.mp4.chunks/*/*.mov.json")))
    code = f"import time\n{SLOWLY}\ngo(sys.argv[1], progress=lambda now: print(now.chunks_done))\n"
    done = succeeded(run_script(code, folder / "video.mp4"))
    assert 0 < kept <= int(done.split()[0])
    assert is_whole(folder / "video.mp4")


def test_finished_chunk_that_was_not_reported_yet_is_kept(tmp_path: Path) -> None:
    stopped, report, held = stopped_when_a_chunk_is_done(tmp_path, lambda report: None)
    assert any(note.startswith("1 of ") for note in stopped.__notes__)
    assert report.exists() and penstock.render(held, **settings(tmp_path, workers=1)).resumed == 1
    assert is_whole(tmp_path / "video.mp4")


def test_failing_storage_does_not_replace_the_error(tmp_path: Path) -> None:
    def fail(report: Path) -> None:
        report.unlink()
        report.mkdir()  # cannot be read
        report.with_name("of a worker.part").touch()

    stopped, report, _ = stopped_when_a_chunk_is_done(tmp_path, fail)
    assert any("could not be listed or removed" in note for note in stopped.__notes__)
    assert report.with_suffix("").exists() and not list(tmp_path.rglob("*.part"))


def stopped_when_a_chunk_is_done(
    folder: Path, then: Callable[[Path], object]
) -> tuple[BaseException, Path, Callable[..., None]]:
    """What a render raises that ends before it knows of its first chunk, the file with that one's report, its scene."""
    done: list[Path] = []
    is_asked = folder / "asked"

    def held(index: int, time_s: float, view: np.ndarray) -> None:
        assert eventually(is_asked.exists)
        scene(index, time_s, view)

    def stop(progress: RenderProgress) -> None:
        assert progress.chunks_done == 0
        is_asked.touch()
        assert eventually(lambda: done.extend(folder.glob("video.mp4.chunks/*/*.mov.json")) or done)
        then(done[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        penstock.render(held, **settings(folder, workers=1, progress=stop))
    return stopped.value, done[0], held


@SLOW
def test_ctrl_c_during_the_join_ends_ffmpeg(tmp_path: Path) -> None:
    stuck = script(
        tmp_path / "ffmpeg", 'case "$*" in *" copy "*) sleep 1000;; esac', f'exec {find_ffmpeg()} "$@"'
    )
    video = tmp_path / "video.mp4"
    video.write_bytes(b"the old one")
    code = """
from penstock.video import EncoderSettings

def flat(index, time_s, view):
    view[:] = 4 * index % 256

encoder = {"settings": EncoderSettings(ffmpeg=sys.argv[2])}
penstock.render(flat, frames=32, size=(64, 48), fps=30, output=sys.argv[1], workers=2, encoder_options=encoder)
"""
    with start_script(code, video, stuck) as process:
        assert eventually(lambda: any(b"copy" in command for command in started().values()))
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
    resumed_and_whole(tmp_path)


@SLOW
def test_worker_that_ignores_exceptions_ends_with_its_driver(tmp_path: Path) -> None:
    code = """
def hanging(index, time_s, view):
    print("hanging", flush=True)
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass

penstock.render(hanging, frames=8, size=(64, 48), fps=30, output=sys.argv[1], workers=1)
"""
    with start_script(code, tmp_path / "video.mp4") as process:
        assert process.stdout.readline().rstrip() == b"hanging"
        workers = set(started()) - {process.pid}
        process.kill()
        process.wait()
        assert eventually(lambda: all(map(has_ended, workers)))


def noisy(index: int, time_s: float, view: np.ndarray) -> None:
    view[:] = np.random.default_rng(index).integers(0, 256, view.shape, np.uint8)


@SLOW
def test_full_disk_during_a_chunk_keeps_the_old_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as storage:
        given = settings(tmp_path, size=(320, 240), storage=storage, encoder_options={"codec": "ffv1"})
        given["output"] = tmp_path / "video.mkv"
        given["output"].write_bytes(b"the old one")
        with pytest.raises(RenderError):
            penstock.render(noisy, **given)
        assert not list(storage.rglob("*.part"))
    assert given["output"].read_bytes() == b"the old one"
    assert not list(tmp_path.glob(".*part*"))


@SLOW
def test_full_disk_during_the_join_keeps_the_chunks_and_the_old_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as small:
        given = settings(
            tmp_path, size=(320, 240), storage=tmp_path / "chunks", encoder_options={"codec": "ffv1"}
        )
        given["output"] = small / "video.mkv"
        given["output"].write_bytes(b"the old one")
        with pytest.raises((EncoderError, OSError)) as failed:
            penstock.render(noisy, **given)
        assert any("chunks are kept" in note for note in failed.value.__notes__)
        assert [path.name for path in small.iterdir()] == ["video.mkv"]
        assert given["output"].read_bytes() == b"the old one"
    given["output"] = tmp_path / "video.mkv"
    assert penstock.render(noisy, **given).resumed > 0
