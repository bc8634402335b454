"""`penstock.render` and `map_video` on real Ray: three nodes on this machine, which are lost, or short of memory."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import kill_started, script

import penstock
from penstock.video import find_ffmpeg

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock-io[ray]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [pytest.mark.slow, pytest.mark.linux("Ray")]

SIZE = (64, 48)
FRAMES = 60
LOSSLESS = {"codec": "ffv1", "output_pixel_format": "yuv444p"}
STORE_BYTES = 80 << 20  # Ray takes 75 MiB at least


@pytest.fixture
def nothing_stays_running() -> None:
    """In place of the one of all tests: the cluster stays, with the workers that it starts meanwhile."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of three nodes with one CPU each, and the driver on the first."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ray") as folder,
        contextlib.ExitStack() as stack,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)  # where it also writes which cluster this machine has
        patch.delenv("RAY_ADDRESS", raising=False)
        settings = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        stack.callback(kill_started)
        made = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**settings, "include_dashboard": False}
        )
        stack.callback(made.shutdown)
        for _ in range(2):
            made.add_node(**settings)
        stack.callback(ray.shutdown)
        ray.init(address=made.address, logging_level=logging.ERROR, log_to_driver=False)
        yield made


def scene(index: int, _time_s: float, view: np.ndarray) -> None:
    view[:] = index
    view[index % SIZE[1], :, 0] = 255 - index


def slow_scene() -> Callable[..., object]:
    """One that travels by value, and takes its time."""

    def draw(index: int, _time_s: float, view: np.ndarray) -> None:
        time.sleep(0.05)
        view[:] = index
        view[index % view.shape[0], :, 0] = 255 - index

    return draw


def render(output: Path, what: Any = scene, **options: Any) -> Any:
    options = {"frames": FRAMES, "chunk_frames": 10, "encoder_options": LOSSLESS, "engine": "ray"} | options
    return penstock.render(what, size=SIZE, fps=30, output=output, **options)


def frames(path: Path) -> list[tuple[float, str]]:
    """The time and the digest of each frame."""
    with penstock.Decoder(path) as decoder:
        return [(frame.time_s, hashlib.sha256(np.ascontiguousarray(frame)).hexdigest()) for frame in decoder]


def packets(path: Path) -> list[str]:
    """The times and the checksum of each packet."""
    command = ["ffmpeg", "-v", "error", "-i", path, "-map", "0:v", "-c", "copy", "-f", "framecrc", "-"]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The video that one Encoder makes of the scene."""
    path = tmp_path_factory.mktemp("wanted") / "alone.mkv"
    with penstock.Encoder(path, size=SIZE, fps=30, **LOSSLESS) as encoder:
        for index in range(FRAMES):
            with encoder.lease() as view:
                scene(index, 0, view)
    return path


@pytest.fixture(scope="module")
def wanted(source: Path) -> list[tuple[float, str]]:
    """The frames of that video."""
    return frames(source)


def processes(title: str) -> list[int]:
    """Those that Ray has given a title that begins so, of this test process: another one may have a cluster, too."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_titled = entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(title.encode())
            if is_titled and os.getpid() in ancestors(int(entry.name)):
                found.append(int(entry.name))
    return found


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


def is_idle() -> bool:
    """Whether no task and no actor of ours is left."""
    return (
        not processes("ray::_ProgressActor")
        # Ray leaves out a resource of which none is available.
        and ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"]
    )


def test_ray_render_matches_one_process(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    """Also of the second render: a worker keeps the scene of its render, and of no other."""
    for name in ("a.mkv", "b.mkv"):
        report = render(tmp_path / name)
        assert frames(tmp_path / name) == wanted
    assert (report.frames, report.retries, report.resumed) == (FRAMES, 0, 0)
    assert sum(worker.frames for worker in report.workers) == FRAMES
    assert {path.name for path in tmp_path.iterdir()} == {"a.mkv", "b.mkv"}
    assert eventually(is_idle)


@pytest.mark.exhaustive
def test_ray_packets_match_the_processes_engine(cluster: Any, tmp_path: Path) -> None:
    options = {
        "frames": 120,
        "chunk_frames": 40,
        "workers": 2,
        "encoder_options": {"options": {"threads": 1}},
    }
    render(a := tmp_path / "a.mp4", **options)
    render(b := tmp_path / "b.mp4", engine="processes", **options)
    assert len(packets(a)) == 120
    assert packets(a) == packets(b)


def test_ray_maps_a_video(cluster: Any, tmp_path: Path, source: Path) -> None:
    report = penstock.map_video(
        lambda frame: 255 - frame,
        source,
        tmp_path / "out.mkv",
        engine="ray",
        chunk_frames=10,
        encoder_options=LOSSLESS,
    )
    assert report.frames == FRAMES
    with penstock.Decoder(source) as before, penstock.Decoder(tmp_path / "out.mkv") as after:
        for a, b in zip(before, after, strict=True):
            assert np.abs(255 - np.asarray(a, int) - b).max() <= 2  # rounded twice, into yuv444p


@pytest.mark.exhaustive
def test_render_survives_the_removal_of_a_node(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    victim = cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    cluster.wait_for_nodes()
    workers, is_removed, draw = [], tmp_path / "is-removed", slow_scene()

    def draw_late(index: int, time_s: float, view: np.ndarray) -> None:
        # Until the node is gone. Workers tell of themselves between frames: none takes long.
        for _ in range(100):
            draw(index, time_s, view)
            if is_removed.exists():
                break

    def look(progress: Any) -> None:
        workers.append(progress.workers)
        if progress.workers >= 4 and not is_removed.exists():
            cluster.remove_node(victim, allow_graceful=False)
            is_removed.touch()

    try:
        report = render(output := tmp_path / "out.mkv", draw_late, chunk_frames=4, progress=look)
    finally:
        if not is_removed.exists():
            cluster.remove_node(victim)
    assert is_removed.exists()
    assert frames(output) == wanted
    assert 1 <= report.retries <= 4
    assert 4 <= max(workers) <= 5
    assert eventually(is_idle)


def test_chunk_of_a_killed_worker_is_rendered_again(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    marker, draw = tmp_path / "was-killed", slow_scene()

    def deadly(index: int, time_s: float, view: np.ndarray) -> None:
        if index == 25 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        draw(index, time_s, view)

    report = render(output := tmp_path / "out.mkv", deadly)
    assert frames(output) == wanted
    assert report.retries == 1


def test_chunk_that_kills_its_worker_is_tried_three_times(cluster: Any, tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def deadly(index: int, _time_s: float, view: np.ndarray) -> None:
        view[:] = 1
        if index == 25:
            with tries.open("a") as file:
                file.write("once\n")
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(penstock.RenderError) as caught:
        render(tmp_path / "out.mkv", deadly)
    assert 25 in caught.value.frames
    assert caught.value.attempts == 3
    assert tries.read_text() == "once\n" * 3
    assert eventually(is_idle)


def waiting_scene(mark: Path) -> Callable[..., object]:
    """One that draws nothing until this file is there."""
    draw = slow_scene()

    def wait_and_draw(index: int, time_s: float, view: np.ndarray) -> None:
        while not mark.exists():
            time.sleep(0.05)
        draw(index, time_s, view)

    return wait_and_draw


def test_render_survives_the_loss_of_the_progress_actor(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    """The actor that counts frames is nothing that a render needs."""
    is_killed = tmp_path / "is-killed"

    def look(progress: Any) -> None:
        if progress.workers and not is_killed.exists():
            (pid,) = processes("ray::_ProgressActor")
            os.kill(pid, signal.SIGKILL)
            is_killed.touch()

    render(output := tmp_path / "out.mkv", waiting_scene(is_killed), progress=look)
    assert frames(output) == wanted


def test_render_survives_a_slow_progress_actor(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    """On a busy machine, the actor that counts frames may need longer than the driver waits for it."""
    stopped, is_known = [], tmp_path / "is-known"

    def look(progress: Any) -> None:
        if not stopped and (pids := processes("ray::_ProgressActor")):
            stopped.extend(pids)
            os.kill(pids[0], signal.SIGSTOP)
            threading.Timer(1, os.kill, [pids[0], signal.SIGCONT]).start()
        if stopped and progress.workers >= 2:
            is_known.touch()

    render(output := tmp_path / "out.mkv", waiting_scene(is_known), progress=look)
    assert frames(output) == wanted


def test_no_actor_is_started_without_progress(cluster: Any, tmp_path: Path) -> None:
    def alone(index: int, _time_s: float, view: np.ndarray) -> None:
        assert not ray.util.list_named_actors()
        view[:] = index

    assert render(tmp_path / "out.mkv", alone).frames == FRAMES
    with pytest.raises(penstock.RenderError):
        render(tmp_path / "out.mkv", alone, progress=lambda progress: None)
    assert eventually(is_idle)


@pytest.mark.exhaustive
def test_scene_larger_than_the_object_store_is_rendered(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    ballast, draw = os.urandom(STORE_BYTES), slow_scene()

    def heavy(index: int, time_s: float, view: np.ndarray) -> None:
        assert len(ballast) == STORE_BYTES
        draw(index, time_s, view)

    render(output := tmp_path / "out.mkv", heavy)
    assert frames(output) == wanted


def raising(index: int, _time_s: float, view: np.ndarray) -> None:
    view[:] = 1
    if index == 13:
        raise LookupError("no such tree")


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        (raising, {}, [r"chunk 1 \(frames 10 to 19\)", "raising, frame 13: LookupError: no such tree"]),
        (scene, {"encoder_options": {"options": {"preset": "nosuch"}}}, ["preset", "nosuch"]),
    ],
)
def test_failed_chunk_raises_with_frame_and_reason(
    cluster: Any, tmp_path: Path, what: Any, options: Any, words: list[str]
) -> None:
    with pytest.raises(penstock.RenderError) as caught:
        render(tmp_path / "out.mp4", what, **{"encoder_options": {}, "workers": 1, **options})
    for word in words:
        caught.match(word)
    if list(tmp_path.rglob("0*.json")):
        assert "chunks are kept in" in caught.value.__notes__[-1]
    assert eventually(is_idle)
    assert not list(tmp_path.rglob("*.part"))


def test_function_that_returns_the_wrong_shape_raises(cluster: Any, tmp_path: Path, source: Path) -> None:
    with pytest.raises(penstock.RenderError):
        penstock.map_video(lambda frame: frame[:, 1:], source, tmp_path / "out.mkv", engine="ray")


def test_impossible_arguments_are_refused_at_the_call(cluster: Any, tmp_path: Path) -> None:
    lock = __import__("threading").Lock()
    for what, options, error in (
        (lambda *_: lock, {}, TypeError),
        (scene, {"ray": {"max_retries": 5, "num_cpu": 3}}, ValueError),
        (scene, {"ray": {"num_cpus": "2"}}, TypeError),
        (scene, {"ray": {"num_cpus": 2}, "engine": "processes"}, ValueError),
    ):
        with pytest.raises(error):
            render(tmp_path / "out.mkv", what, **options)
    assert not list(tmp_path.iterdir())


def test_task_options_set_resources_name_and_threads(cluster: Any, tmp_path: Path, wanted: Any) -> None:
    """A task has the resources that were asked for, its name, and FFmpeg as many threads as it has CPUs."""
    node = cluster.add_node(num_cpus=4, num_gpus=1, resources={"studio": 1}, object_store_memory=STORE_BYTES)
    cluster.wait_for_nodes()
    lines, commands = tmp_path / "lines", tmp_path / "commands"
    ffmpeg = script(tmp_path / "ffmpeg", f'echo "$@" >>{commands}', f'exec {find_ffmpeg()} "$@"')

    class Studio:
        def __init__(self) -> None:
            self.tell("made")

        def __call__(self, index: int, _time_s: float, view: np.ndarray) -> None:
            context = ray.get_runtime_context()
            if index % 10 == 0:
                self.tell(f"{context.get_task_name()}: {context.get_assigned_resources()}")
            view[:] = index
            view[index % view.shape[0], :, 0] = 255 - index

        def tell(self, line: str) -> None:
            with lines.open("a") as file:
                file.write(f"{os.getpid()} {line}\n")

    options = {"num_cpus": 2, "num_gpus": 0.5, "resources": {"studio": 0.5}}
    environment = {"env_vars": {"PENSTOCK_FFMPEG": str(ffmpeg)}}
    try:
        render(output := tmp_path / "out.mkv", Studio, ray={**options, "runtime_env": environment}, workers=2)
    finally:
        cluster.remove_node(node)
    assert frames(output) == wanted
    told = lines.read_text().splitlines()
    makers = [line.split()[0] for line in told if line.endswith("made")]
    assert len(makers) == len(set(makers)) <= 2, "a scene is made once a worker"
    line = told[-1]
    assert " render out.mkv: " in line
    assert all(part in line for part in ("'CPU': 2.0", "'GPU': 0.5", "'studio': 0.5")), line
    assert " -threads 2 " in commands.read_text()


def test_room_counts_the_tasks_that_fit_a_cluster(cluster: Any) -> None:
    from penstock.rendering.engines.ray import room

    assert room({}) == 3
    assert room({"num_cpus": 0.5}) == 6
    assert room({"num_cpus": 2}) == 0, "no node has two"
    assert room({"num_cpus": 0, "num_gpus": 1}) == 0
    assert room({"num_cpus": 0}) == 3


def test_ffmpeg_of_another_version_on_a_worker_raises(cluster: Any, tmp_path: Path) -> None:
    ours = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout.split()[
        2
    ]
    other = script(
        tmp_path / "ffmpeg",
        f'case "$*" in *-version*) exec echo "ffmpeg version {ours}-other Copyright" ;; esac',
        'exec ffmpeg "$@"',
    )
    environment = {"env_vars": {"PENSTOCK_FFMPEG": str(other)}}
    with pytest.raises(penstock.RenderError) as caught:
        render(tmp_path / "out.mkv", ray={"runtime_env": environment})
    assert f"{ours}-other" in str(caught.value)


@pytest.mark.parametrize("protocol", ["file", pytest.param("local", marks=pytest.mark.exhaustive)])
def test_chunks_can_be_stored_at_a_url(cluster: Any, tmp_path: Path, wanted: Any, protocol: str) -> None:
    render(output := tmp_path / "out.mkv", storage=f"{protocol}://{tmp_path}/chunks")
    assert frames(output) == wanted
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != output]


def test_storage_that_the_driver_cannot_see_raises(cluster: Any, tmp_path: Path) -> None:
    """Each process has a memory of its own."""
    with pytest.raises(penstock.RenderError):
        render(tmp_path / "out.mkv", storage="memory://chunks")
    assert eventually(is_idle)


@pytest.fixture
def studio(tmp_path: Path) -> Path:
    """A script, and a module beside it."""
    folder = tmp_path / "studio"
    folder.mkdir()
    (folder / "palette.py").write_text("def shade(index):\n    return index\n")
    program = """
        import os, sys, time
        import penstock, palette

        def scene(index, time_s, view):
            import palette as again
            time.sleep(float(os.environ.get("PAUSE_S", 0)))
            view[:] = again.shade(index)
            view[index % view.shape[0], :, 0] = 255 - palette.shade(index)

        report = penstock.render(
            scene, frames=60, chunk_frames=5, size=(64, 48), fps=30, output=sys.argv[1], engine="ray",
            encoder_options={"codec": "ffv1", "output_pixel_format": "yuv444p"},
        )
        print(report.resumed, report.retries)
    """
    (folder / "program.py").write_text(textwrap.dedent(program))
    return folder / "program.py"


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ["local", "cluster"])
def test_script_needs_no_ray_setup(
    cluster: Any, tmp_path: Path, wanted: Any, studio: Path, where: str
) -> None:
    """Its scene travels by value, its module is found on a worker, and Ray is started here or found."""
    environment = os.environ | {"RAY_ADDRESS": "local" if where == "local" else cluster.address}
    command = [sys.executable, studio, output := tmp_path / "out.mkv"]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 0\n"
    assert "INFO" not in done.stderr
    assert frames(output) == wanted


@pytest.mark.exhaustive
def test_ctrl_c_keeps_finished_chunks(cluster: Any, tmp_path: Path, wanted: Any, studio: Path) -> None:
    """All processes of the terminal get the signal; the second call goes on from there."""
    environment = os.environ | {"RAY_ADDRESS": "local"}
    command = [sys.executable, studio, output := tmp_path / "out.mkv"]
    with subprocess.Popen(
        command,
        env=environment | {"PAUSE_S": "0.3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as first:
        assert eventually(lambda: len(list(tmp_path.rglob("*.mkv.chunks/*/0*.json"))) > 1, 3 * PATIENCE_S)
        os.killpg(first.pid, signal.SIGINT)
        _, said = first.communicate(timeout=2 * PATIENCE_S)
    assert "KeyboardInterrupt" in said, said
    assert re.search(r"(?<!\b0) of \d+ chunks are kept in", said)
    assert not list(tmp_path.rglob("*.part"))
    second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert second.returncode == 0, second.stderr
    assert int(second.stdout.split()[0]) > 1
    assert frames(output) == wanted
