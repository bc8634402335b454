"""The code of the README and on the pages of the documentation runs, and prints and draws what they show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.media import no_opengl

import penstock
from scripts import docs, run_page

ROOT = Path(__file__).parents[1]
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
    "how-to/sound",
    "how-to/untrusted-files",
    "install",
    "tutorials/cluster",
    "tutorials/first-video",
    "tutorials/moderngl",
    "tutorials/read-change-write",
    "tutorials/simulation",
}


def test_each_public_module_is_in_the_reference() -> None:
    package = ROOT / "python" / "penstock"
    public = {path.stem for path in package.glob("[!_]*.py")} | {"rendering"}
    shown = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert {module for module in public if f"::: penstock.{module}\n" not in shown} == set()


def test_the_front_page_names_the_version() -> None:
    assert f"This is version {penstock.__version__}," in (ROOT / "docs/index.md").read_text()


def test_the_page_of_the_commands_has_their_help() -> None:
    assert docs.COMMANDS.read_text() == docs.commands_page(), "run `make docs`"


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


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for page in PAGES
        for name in [page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")]
    ],
)
def test_page(page: Path, tmp_path: Path) -> None:
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
    missing = run_page.missing_output(page, run.stdout)
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
def test_notebook(page: Path, tmp_path: Path) -> None:
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
