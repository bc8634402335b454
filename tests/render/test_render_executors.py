"""`penstock.render` and `penstock.map_video` on executors of the caller's: of threads, and of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import start_script, started
from support.renders import FAST, KILL, SLOW, chunks, is_whole, scene, settings

import penstock
from penstock.errors import RenderError
from penstock.rendering import RenderProgress


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def of_processes(method: str) -> Executor:
    return ProcessPoolExecutor(2, multiprocessing.get_context(method))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ThreadPoolExecutor(2), id="threads"),
        pytest.param(lambda: of_processes("spawn"), id="spawn"),
        pytest.param(lambda: of_processes("forkserver"), id="forkserver", marks=SLOW),
    ],
)
def test_executor_renders_a_scene_and_stays_open(tmp_path: Path, make: Callable[[], Executor]) -> None:
    with make() as pool:
        report = penstock.render(scene, **settings(tmp_path, executor=pool))
        assert pool.submit(int).result() == 0
    assert is_whole(tmp_path / "video.mp4")
    assert (report.frames, report.retries) == (32, 0)
    assert list(tmp_path.iterdir()) == [tmp_path / "video.mp4"]


def test_executor_maps_a_video(tmp_path: Path, threads: Executor) -> None:
    penstock.render(scene, **settings(tmp_path, output=tmp_path / "source.mp4", executor=threads))
    given: dict[str, Any] = {"workers": 2, "chunk_frames": 8, "encoder_options": FAST, "executor": threads}
    report = penstock.map_video(np.asarray, tmp_path / "source.mp4", tmp_path / "video.mp4", **given)
    assert report.chunks >= 4
    assert is_whole(tmp_path / "video.mp4")


def test_each_thread_makes_one_scene_that_ends_with_the_render(tmp_path: Path, threads: Executor) -> None:
    class Counted:
        def __init__(self) -> None:
            self.thread = threading.get_ident()
            (tmp_path / f"made-{self.thread}-{time.monotonic_ns()}").touch()

        def __call__(self, index: int, time_s: float, view: np.ndarray) -> None:
            assert threading.get_ident() == self.thread
            scene(index, time_s, view)

        def __del__(self) -> None:
            (tmp_path / f"ended-{self.thread}").touch()

    penstock.render(Counted, **settings(tmp_path, executor=threads))
    made = [path.name.split("-")[1] for path in tmp_path.glob("made-*")]
    assert 1 <= len(made) == len(set(made)) <= 2
    assert eventually(lambda: len(list(tmp_path.glob("ended-*"))) == len(made))
    assert is_whole(tmp_path / "video.mp4")


def test_executor_has_as_many_chunks_as_workers(tmp_path: Path) -> None:
    at_once: list[int] = []

    def counted(progress: RenderProgress) -> None:
        at_once.append(progress.workers)
        assert (progress.frames_done % 8, progress.frames_done == 28) in ((0, False), (4, True))

    with ThreadPoolExecutor(4) as pool:
        given = settings(tmp_path, executor=pool, chunk_frames=8, progress=counted)
        assert penstock.render(scene, **given | {"workers": 1}).chunks == 5
    assert max(at_once) == 1


class OwnError(Exception):
    def __init__(self, one: int, two: int) -> None:  # a pickle of it can't be loaded
        super().__init__(f"no such star {one}{two}")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ThreadPoolExecutor(1), id="threads"),
        pytest.param(lambda: of_processes("spawn"), id="spawn", marks=SLOW),
    ],
)
def test_scene_that_raises_is_tried_three_times(tmp_path: Path, make: Callable[[], Executor]) -> None:
    def raising(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 20:
            with (tmp_path / "tries").open("a") as file:
                file.write("once\n")
            raise OwnError(4, 2)
        scene(index, time_s, view)

    with make() as pool, pytest.raises(RenderError) as failed:
        penstock.render(raising, **settings(tmp_path, executor=pool))
    assert (tmp_path / "tries").read_text() == "once\n" * 3
    assert failed.value.attempts == 3 and failed.value.frames is not None and 20 in failed.value.frames
    assert "frame 20: OwnError: no such star 42" in str(failed.value)
    assert "Traceback" in failed.value.__notes__[0]


def test_chunk_that_fails_once_is_rendered_again(tmp_path: Path, threads: Executor) -> None:
    once = tmp_path / "once"

    def now_and_then(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 5 and not once.exists():
            once.touch()
            raise ValueError("not yet")
        scene(index, time_s, view)

    assert penstock.render(now_and_then, **settings(tmp_path, executor=threads)).retries == 1
    assert is_whole(tmp_path / "video.mp4")


def test_worker_that_dies_ends_the_render_and_the_next_call_continues(tmp_path: Path) -> None:
    is_mended = tmp_path / "mended"

    def deadly(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 29 and not is_mended.exists():
            os.kill(os.getpid(), KILL)
        scene(index, time_s, view)

    with of_processes("spawn") as pool, pytest.raises(RenderError) as failed:
        penstock.render(deadly, **settings(tmp_path, executor=pool))
    assert "executor" in str(failed.value) and "BrokenProcessPool" in str(failed.value)
    kept = chunks(tmp_path)
    assert kept and f"{len(kept)} of " in failed.value.__notes__[-1]
    with pytest.raises(ValueError, match="executor"):
        penstock.render(deadly, **settings(tmp_path, executor=pool))
    is_mended.touch()
    with ThreadPoolExecutor(2) as other:
        assert penstock.render(deadly, **settings(tmp_path, executor=other)).resumed == len(kept)
    assert is_whole(tmp_path / "video.mp4")


@pytest.mark.parametrize("workers", [1, 9], ids=["while chunks are to come", "while all wait in its queue"])
def test_executor_that_is_shut_down_meanwhile_ends_the_render(tmp_path: Path, workers: int) -> None:
    def stop(progress: RenderProgress) -> None:
        if progress.chunks_done:
            pool.shutdown(cancel_futures=True)

    with ThreadPoolExecutor(1) as pool, pytest.raises(RenderError) as failed:
        penstock.render(scene, **settings(tmp_path, executor=pool, progress=stop, workers=workers))
    assert "executor" in str(failed.value)
    assert chunks(tmp_path) and "chunks are kept in" in failed.value.__notes__[-1]


def test_render_ends_when_several_waiting_chunks_are_cancelled(tmp_path: Path) -> None:
    def stop(progress: RenderProgress) -> None:
        if progress.chunks_done:
            pool.shutdown(wait=False, cancel_futures=True)

    with ThreadPoolExecutor(1) as pool, pytest.raises(RenderError, match="executor"):
        penstock.render(scene, **settings(tmp_path, executor=pool, workers=4, chunk_frames=8, progress=stop))


class Deaf(Executor):
    """One that returns futures of its own kind."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return object()  # type: ignore[return-value]


def shut_down() -> Executor:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    return pool


@pytest.mark.parametrize(
    ("given", "error", "names"),
    [
        ({"engine": "processes"}, ValueError, "engine"),
        ({"engine": "ray"}, ValueError, "engine"),
        ({"ray": {}}, ValueError, "ray"),
        ({"workers": None}, TypeError, "workers"),
        ({"workers": 0}, ValueError, "workers"),
        ({"executor": object()}, TypeError, "submit"),
        ({"executor": ThreadPoolExecutor}, TypeError, "submit"),
        ({"executor": Deaf()}, TypeError, "Future"),
        ({"executor": shut_down()}, ValueError, "shutdown"),
    ],
)
def test_impossible_executor_is_refused_at_the_call(
    tmp_path: Path, threads: Executor, given: dict[str, Any], error: type[Exception], names: str
) -> None:
    with pytest.raises(error, match=names):
        penstock.render(scene, **settings(tmp_path, executor=threads) | given)
    with pytest.raises(error, match=names):
        penstock.map_video(None, "in.mp4", "out.mp4", **{"workers": 2, "executor": threads} | given)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_cancels_what_waits_and_returns_when_the_rest_has_ended(tmp_path: Path) -> None:
    code = """
import os, signal, warnings
from concurrent.futures import ThreadPoolExecutor
import penstock

# In a module, for the scene's own names are copied.
warnings.event, show = threading.Event(), warnings.showwarning
warnings.showwarning = lambda *told, **more: (show(*told, **more), warnings.event.set())

def until_the_others_are_cancelled(index, time_s, view):
    if index == 5:
        os.kill(os.getpid(), signal.SIGINT)
        assert warnings.event.wait(60)
    view[:] = 4 * index % 256
    print(index, flush=True)

try:
    penstock.render(
        until_the_others_are_cancelled, frames=32, size=(64, 48), fps=30, output=sys.argv[1], workers=4,
        chunk_frames=8, executor=ThreadPoolExecutor(1), encoder_options={"preset": "ultrafast"},
    )
finally:
    print("returned", flush=True)
"""
    with start_script(code, tmp_path / "video.mp4") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert started() == {}
    assert process.returncode == -signal.SIGINT, err
    assert set(out.split()[:-1]) == {b"%d" % index for index in range(8)}, (
        "two chunks, and not those that waited"
    )
    assert out.split()[-1] == b"returned", "no chunk is still at work"
    assert b"RuntimeWarning: waiting for chunks" in err and b"chunks are kept in" in err
    assert len(chunks(tmp_path)) == 2 and not list(tmp_path.rglob("*.part"))


def test_warnings_of_chunks_are_in_the_report_only(
    tmp_path: Path, threads: Executor, recwarn: pytest.WarningsRecorder
) -> None:
    transparent = FAST | {"pixel_format": "rgba", "settings": penstock.video.EncoderSettings()}
    report = penstock.render(scene, **settings(tmp_path, executor=threads, encoder_options=transparent))
    assert [one for one in report.warnings if "alpha" in one]
    assert not [one for one in recwarn if "alpha" in str(one.message)]
