"""The code of the README and on the pages of the documentation runs, and prints and draws what they show."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.media import ffmpeg, no_opengl

import penstock
from scripts import docs, run_page

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if any(block.language in ("python", "sh") for block in run_page.blocks(page))
]
# The others together take some seconds.
SLOW = {
    "how-to/batches",
    "how-to/depth",
    "how-to/hdr",
    "how-to/images",
    "how-to/live",
    "how-to/matplotlib",
    "how-to/memory",
    "how-to/prores",
    "how-to/quality",
    "how-to/recording",
    "how-to/schedulers",
    "how-to/sound",
    "how-to/untrusted-files",
    "install",
    "tutorials/cluster",
    "tutorials/first-video",
    "tutorials/moderngl",
    "tutorials/read-change-write",
    "tutorials/simulation",
}
#: What a page needs of Linux.
ON_LINUX = {
    "README": "the program wc",
    "concepts/exit-and-fork": "forks",
    "concepts/transports": "the program cat",
    "how-to/descriptors": "the program sha256sum",
    "how-to/pipes": "the program wc",
    "how-to/priorities": "ffmpeg_policy",
    "how-to/several-outputs": "Tee",
}


def test_reference_has_every_public_module() -> None:
    package = ROOT / "python" / "penstock"
    public = {path.stem for path in package.glob("[!_]*.py")} | {"rendering"}
    shown = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert {module for module in public if f"::: penstock.{module}\n" not in shown} == set()


def test_the_gallery_names_every_example() -> None:
    gallery = docs.GALLERY.read_text()
    names = [f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")]
    assert [name for name in names if name not in gallery] == []


@pytest.mark.parametrize("module", ["penstock", "penstock.video"])
def test_grouped_page_shows_every_name_and_every_member(module: str) -> None:
    page = ROOT / "docs" / "reference" / f"{module.rpartition('.')[2]}.md"
    shown = {*re.findall(rf"^::: {module}\.([\w.]+)$", page.read_text(), re.MULTILINE)}
    package = importlib.import_module(module)
    assert {name for name in package.__all__ if not name.endswith(("Error", "Warning", "__"))} <= shown
    for grouped in {path.partition(".")[0] for path in shown if "." in path}:
        members = {f"{grouped}.{name}" for name in dir(getattr(package, grouped)) if name[0] != "_"}
        assert members <= shown


def examples_of_docstrings() -> Iterator[tuple[str, str]]:
    """The blocks of code in the docstrings of the package's names and their members."""
    for name in penstock.__all__:
        target = getattr(penstock, name)
        members = [each for each in dir(target) if each[0] != "_"] if inspect.isclass(target) else []
        for path in (
            name,
            *(f"{name}.{each}" for each in (*members, "__getitem__") if hasattr(target, each)),
        ):
            described = getattr(target, path.partition(".")[2]) if "." in path else target
            for code in re.findall(r"```python\n(.*?)```", inspect.getdoc(described) or "", re.DOTALL):
                yield path, code


def names_for_example(path: str) -> dict[str, object]:
    """What the code of a docstring takes for granted."""
    frames = [np.full((1080, 1920, 3), 50 * number, np.uint8) for number in range(3)]
    names: dict[str, object] = {name: getattr(penstock, name) for name in penstock.__all__}
    names |= {"penstock": penstock, "np": np, "frames": frames}
    match path:
        case "Encoder.lease":
            names["encoder"] = penstock.Encoder("leased.mp4", size=(64, 48), fps=30)
            names["framebuffer"] = SimpleNamespace(read_into=lambda view: view.fill(7))
        case "FanOut":
            names["archive"] = penstock.Encoder("archive.mkv", fps=30, codec="ffv1")
            names["preview"] = penstock.Encoder("preview.mp4", fps=None, preset="ultrafast")
            with Path("raw").open("wb") as file:
                names["raw"] = penstock.Writer(file)
    return names


@pytest.fixture(scope="module")
def in_mp4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 12 s, with sound."""
    path = tmp_path_factory.mktemp("video") / "in.mp4"
    picture = ["-f", "lavfi", "-i", "testsrc2=size=160x120:rate=10:duration=12"]
    sound = ["-f", "lavfi", "-i", "sine=duration=12"]
    ffmpeg(*picture, *sound, "-preset", "ultrafast", "-pix_fmt", "yuv420p", path)
    return path


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param(path, code, id=path)
        for path, code in examples_of_docstrings()
        # Two have a process that the reader has started, and the last renders 2,400 frames. Pages have such programs.
        if path not in ("Tee", "Writer", "render")
    ],
)
def test_docstring_example_runs(
    path: str, code: str, in_mp4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(in_mp4, "in.mp4")
    names = names_for_example(path)
    exec(compile(code, path, "exec"), names)
    for one in names.values():
        if isinstance(one, penstock.Encoder):
            one.close()


def test_the_front_page_names_the_version() -> None:
    assert f"This is version {penstock.__version__}," in (ROOT / "docs/index.md").read_text()


def test_the_page_of_the_commands_has_their_help() -> None:
    assert docs.COMMANDS.read_text() == docs.commands_page(), "run `make docs`"


@pytest.mark.linux("the program git")
def test_a_code_host_can_follow_all_links() -> None:
    assert docs.dead_links_of_repository() == []


def picture(path: Path) -> np.ndarray:
    with penstock.Decoder(path) as decoder:
        return next(iter(decoder)).astype(int)


def means_of_tiles(samples: np.ndarray) -> np.ndarray:
    """Of 8x8 pixels each."""
    height, width, channels = samples.shape
    whole = samples[: height // 8 * 8, : width // 8 * 8]
    return whole.reshape(height // 8, 8, width // 8, 8, channels).mean((1, 3))


def marks_of(name: str) -> Iterator[pytest.MarkDecorator]:
    if name in SLOW:
        yield pytest.mark.slow
    if name in ON_LINUX:
        yield pytest.mark.linux(ON_LINUX[name])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=list(marks_of(name)))
        for page in PAGES
        for name in [page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")]
    ],
)
def test_documentation_page_runs(page: Path, tmp_path: Path) -> None:
    if "import moderngl" in page.read_text() and (reason := no_opengl()):
        pytest.skip(reason)
    run = subprocess.run(
        [sys.executable, run_page.__file__, page],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    missing = run_page.missing_output(page, run.stdout.replace(os.sep, "/"))
    assert missing is None, f"{missing!r} is not in\n{run.stdout}"
    for name in docs.picture_names(page):
        docs.write_middle_frame(tmp_path / f"{name}.mp4", tmp_path / f"{name}.jpg")
        kept = docs.PICTURES / f"{name}.jpg"
        new_samples, kept_samples = picture(tmp_path / f"{name}.jpg"), picture(kept)
        assert new_samples.shape == kept_samples.shape
        # A guess: other encoders and drivers of OpenGL differ by less. In the Game of Life a frame before is 7.7 off,
        # and x264 on another processor 1.5; pixel by pixel that is 4.5.
        difference = np.abs(means_of_tiles(new_samples - kept_samples)).mean()
        assert difference < 4, f"remove {kept}, and run `make docs`"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem) for page in (ROOT / "docs").rglob("*.ipynb")]
)
def test_notebook_runs(page: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip(
        "nbclient", reason="needs a Jupyter kernel (pip install nbclient ipykernel)"
    )
    import nbformat

    notebook = nbformat.read(page, as_version=4)
    folder = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=250, resources=folder, coalesce_streams=True).execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    said = [one.text for one in outputs if one.output_type == "stream"]
    assert [re.findall(r"\b\d+/\d+ frames", text)[-1:] for text in said] == [["90/90 frames"]] * 2
    assert not any("\r" in text or "Warning" in text for text in said)  # lines that were drawn over are gone
    shown = [one.data for one in outputs if "data" in one]
    assert [("image/png" in one, "<video" in one.get("text/html", "")) for one in shown] == [
        *[(False, True)] * 2,
        (True, False),
        (False, False),
        (False, True),
    ]
    assert '<img src="data:image/png' in shown[3]["text/html"]
