"""Plans and chunks of renders: which are refused, joined, or taken by the next call; and the steps by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import eventually
from support.media import decode
from support.processes import run_script, script, succeeded
from support.renders import FAST, SIZE, SLOW, chunks, count, is_whole, scene, settings

import penstock
from penstock.errors import EncoderError, RenderError
from penstock.rendering import Plan, assemble, plan, render_chunk
from penstock.rendering.storage import locked, storage_of
from penstock.video import find_ffmpeg


def test_invalid_plans_are_refused(tmp_path: Path) -> None:
    planned = plan(scene, **settings(tmp_path))
    assert Plan.from_json(planned.to_json()) == planned
    given = json.loads(planned.to_json())
    changes = ({"version": 99}, {"fps": "60"}, {"lengths": [16, 16]}, {"code": None}, {"frames": "many"})
    for text in (*(json.dumps(given | change) for change in changes), "", "{}", "[]", "7", "{", "null"):
        with pytest.raises(ValueError, match="plan"):
            Plan.from_json(text)
    with pytest.raises(ValueError):
        render_chunk(planned, 99)


def test_ffmpeg_of_another_version_than_the_plan_is_refused(tmp_path: Path) -> None:
    program = script(
        tmp_path / "ffmpeg",
        f'case "$*" in *-version*) echo "ffmpeg version $(cat {tmp_path}/version)"; exit;; esac',
        f'exec {find_ffmpeg()} "$@"',
    )
    (tmp_path / "version").write_text("7.9.1")
    given = settings(
        tmp_path, encoder_options=FAST | {"settings": penstock.video.EncoderSettings(ffmpeg=program)}
    )
    planned = plan(scene, **given)
    assert planned.ffmpeg == "7.9.1"
    forget_versions()
    (tmp_path / "version").write_text("7.9.2")
    with pytest.raises(ValueError, match=r"7\.9\.1"):
        render_chunk(planned, 0)


def test_an_encoder_that_is_killed_leaves_nothing_in_the_storage(tmp_path: Path) -> None:
    at_once = {"f": "matroska", "flush_packets": 1, "cluster_time_limit": 1}
    with pytest.raises(EncoderError), storage_of(str(tmp_path)).new_file("0.mkv") as part:
        encoder = penstock.Encoder(part, size=SIZE, fps=30, codec="mpeg4", options=at_once)
        for _ in range(20):
            encoder.write(bytes(3 * SIZE[0] * SIZE[1]))
        assert encoder.pid is not None and eventually(lambda: part.stat().st_size > 0)
        os.kill(encoder.pid, signal.SIGKILL)
        encoder.close()
    assert not list(tmp_path.iterdir())


def forget_versions() -> None:
    from penstock._ffmpeg.program import capabilities

    capabilities._stdout_of.cache_clear()


def made(folder: Path, **others: Any) -> Plan:
    """A plan all of whose chunks are there."""
    planned = plan(scene, **settings(folder, **others))
    for number in reversed(range(count(planned))):
        render_chunk(planned, number, threads=1)
    return planned


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (flip, "00001.mov"),
        pytest.param(cut, "00001.mov", marks=SLOW),
        pytest.param(Path.unlink, "00001.mov", marks=SLOW),
        pytest.param(Path.unlink, "00001.mov.json", marks=SLOW),
    ],
)
def test_damaged_chunk_is_refused_and_rendered_again(
    tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    planned = made(tmp_path)
    [damaged] = tmp_path.glob(f"video.mp4.chunks/*/{name}")
    damage(damaged)
    with pytest.raises(RenderError):
        assemble(planned)
    assert not (tmp_path / "video.mp4").exists()
    report = penstock.render(scene, **settings(tmp_path))
    assert report.resumed == count(planned) - 1
    assert is_whole(tmp_path / "video.mp4")


@SLOW
@pytest.mark.parametrize(
    "other", [{"crf": 30, "options": {"refs": 5}}, {"colors": penstock.video.Colors(matrix="bt2020")}]
)
def test_chunks_with_other_parameters_are_not_joined(tmp_path: Path, other: dict[str, Any]) -> None:
    planned = made(tmp_path)
    forged = made(tmp_path, storage=tmp_path / "forged", encoder_options={"preset": "medium"} | other)
    [folder] = tmp_path.glob("video.mp4.chunks/*")
    for name in ("00001.mov", "00001.mov.json"):
        next(tmp_path.glob(f"forged/*/{name}")).replace(folder / name)
    assert forged.hash != planned.hash
    (tmp_path / "video.mp4").write_bytes(b"the old one")
    with pytest.raises(RenderError):
        assemble(planned)
    assert (tmp_path / "video.mp4").read_bytes() == b"the old one"
    assert not list(tmp_path.glob(".*part*"))
    assert len(chunks(tmp_path)) == count(planned)


def test_concurrent_render_of_the_same_output_is_refused(tmp_path: Path) -> None:
    refusals: list[str] = []

    def again(_progress: object) -> None:
        for call in (penstock.render, plan):
            try:
                planned = call(scene, **settings(tmp_path))
                assemble(planned)
            except RenderError as error:
                refusals.append(str(error))

    penstock.render(scene, **settings(tmp_path), progress=again)
    assert {f"another render is writing {tmp_path / 'video.mp4'}" in one for one in refusals} == {True}
    assert is_whole(tmp_path / "video.mp4")


def test_output_is_locked_as_a_file_and_not_as_a_path(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    with locked(str(folder / "video.mp4")):
        folder.rename(elsewhere)
        folder.mkdir()  # as another container has it
        with locked(str(folder / "video.mp4")):
            pass
        with pytest.raises(RenderError, match="another render"), locked(str(elsewhere / "video.mp4")):
            pass


@pytest.mark.linux("FIFOs")
def test_output_must_be_a_file_and_keeps_its_link_and_mode(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "video.mp4")
    with pytest.raises(ValueError):
        plan(scene, **settings(tmp_path))
    (tmp_path / "video.mp4").unlink()
    planned = made(tmp_path)
    os.mkfifo(tmp_path / "video.mp4")
    with pytest.raises(RenderError):
        assemble(planned)
    (tmp_path / "video.mp4").unlink()
    (tmp_path / "folder").mkdir()
    old = tmp_path / "folder/old.bin"
    old.write_bytes(b"old")
    old.chmod(0o640)
    (tmp_path / "video.mp4").symlink_to(old)
    assemble(planned)
    assert (tmp_path / "video.mp4").is_symlink() and old.stat().st_mode & 0o777 == 0o640
    assert is_whole(old) and [*old.parent.iterdir()] == [old]


def test_version_replaces_the_hash_of_the_code(tmp_path: Path) -> None:
    planned = made(tmp_path, version="1")

    def other(index: int, time_s: float, view: np.ndarray) -> None:
        scene(index, time_s, view)

    with pytest.raises(TypeError):
        plan(other, **settings(tmp_path, version=2))
    assert plan(other, **settings(tmp_path, version="2")).hash != planned.hash
    assert penstock.render(other, **settings(tmp_path, version="1")).resumed == count(planned)


@SLOW
def test_chunks_of_another_scene_are_rendered_again(tmp_path: Path) -> None:
    made(tmp_path)

    def other(index: int, time_s: float, view: np.ndarray) -> None:
        scene(index, time_s, view)

    report = penstock.render(other, **settings(tmp_path))
    assert report.resumed == 0
    assert len(chunks(tmp_path)) > 0  # those of the first scene stay
    (said,) = report.warnings
    assert f"{tmp_path / 'video.mp4.chunks'}" in said
    again = penstock.render(scene, **settings(tmp_path), resume=False)
    assert (again.resumed, again.warnings) == (0, ())
    assert not (tmp_path / "video.mp4.chunks").exists()


@SLOW
def test_frame_range_with_a_step_is_rendered(tmp_path: Path) -> None:
    report = penstock.render(scene, **settings(tmp_path, frames=range(2, 30, 3), chunk_frames=4))
    got = decode(tmp_path / "video.mp4", SIZE)
    assert report.frames == len(got) == 10
    assert [round(int(frame.mean()) / 4) for frame in got] == list(range(2, 30, 3))
    with pytest.raises(ValueError):
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
        {"settings": penstock.video.EncoderSettings(policy=penstock.cpu.ThreadPolicy(nice=3))},
        {"settings": {"queue_items": 2}},
        [("crf", 20)],
        "crf=20",
    ],
)
def test_encoders_that_cannot_be_joined_are_refused_before_rendering(tmp_path: Path, encoder: Any) -> None:
    output = tmp_path / ("video.webm" if "pixel_format" in encoder else "video.mp4")
    with pytest.raises((TypeError, ValueError)):
        penstock.render(scene, **settings(tmp_path, output=output, encoder_options=encoder))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.linux("limits of a process")
@pytest.mark.exhaustive
def test_the_drivers_memory_does_not_grow_with_the_chunks(tmp_path: Path) -> None:
    code = """
import resource

def scene(index, time_s, view):
    view[:] = index % 256

def grown(chunks):
    encoder = {"codec": "mpeg4"}
    penstock.render(
        scene,
        sys.argv[1],
        frames=3 * chunks,
        size=(32, 32),
        fps=30,
        workers=2,
        chunk_frames=3,
        encoder_options=encoder,
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few, many = grown(20), grown(120)
print(few, many)
assert many < few + 8 * 1024, (few, many)
"""
    succeeded(run_script(code, tmp_path / "video.mp4"))


SCRIPT = """
import inspect
import sys
from penstock.rendering.code import Code

NAMES = ["a", "b"]
WORDS = {"rain", "snow", 3, None, ("hail", frozenset({"sleet", b"fog"}))}

class Scene:
    def __call__(self, index, time_s, view):
        view[:] = len(NAMES) if index in {"x", "y", "z"} or index in WORDS else SIZE

Scene.__firstlineno__ = inspect.currentframe().f_lineno  # as Python 3.13 and newer keep it
print(*(Code.of(code, None, *"itv").digest for code in (Scene, lambda index, time_s, view: SIZE)))
"""


def test_code_hash_is_the_same_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "scene.py"

    def digests(text: str, seed: int) -> list[str]:
        path.write_text(text)
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        run = subprocess.run(
            [sys.executable, path], env=environment, capture_output=True, text=True, check=True
        )
        return run.stdout.split()

    first = digests(f"SIZE = 5{SCRIPT}", 1)
    assert digests(f"SIZE = 5\n\n# moved{SCRIPT}", 2) == first
    other_value, other_code = f"SIZE = 6{SCRIPT}", f"SIZE = 5{SCRIPT.replace('len(NAMES) if', '7 if')}"
    for changed in (other_value, other_code, f"SIZE = 5{SCRIPT.replace('sleet', 'ice')}"):
        assert digests(changed, 1)[0] != first[0]


HELPED = """
import sys
import {form}
from penstock.rendering.code import Code

def scene(index, time_s, view):
    view[:] = {use}

print(Code.of(scene, None, *"itv").digest)
"""


@pytest.mark.parametrize(
    "form, use", [("helper", "helper.level()"), ("package.deep as deep", "deep.helper.level()")]
)
def test_changed_helper_changes_the_code_hash(tmp_path: Path, form: str, use: str) -> None:
    """Of a module of the user's that the scene imports, or that this imports; but not of one that nobody uses."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/deep.py").write_text("import helper")
    (tmp_path / "scene.py").write_text(HELPED.format(form=form, use=use))

    def digest(level: int, unused: int) -> str:
        (tmp_path / "helper.py").write_text(f"def level():\n    return {level}")
        (tmp_path / "unused.py").write_text(f"LEVEL = {unused}")
        run = subprocess.run(
            [sys.executable, "-B", tmp_path / "scene.py"], capture_output=True, text=True, check=True
        )
        return run.stdout

    assert digest(1, 1) == digest(1, 2) != digest(2, 1)


def test_changed_constant_of_a_helper_changes_the_code_hash(tmp_path: Path) -> None:
    (tmp_path / "scenes.py").write_text(
        "from helper import SPEED\ndef scene(index, time_s, view):\n    view[:] = SPEED"
    )
    of_scene = 'Code.of(scenes.scene, None, *"itv")'
    program = f"import scenes\nfrom penstock.rendering.code import Code\nprint({of_scene}.digest)"

    def digest(speed: int) -> str:
        (tmp_path / "helper.py").write_text(f"SPEED = {speed}")
        run = [sys.executable, "-B", "-c", program]
        return subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert digest(1) != digest(2)
