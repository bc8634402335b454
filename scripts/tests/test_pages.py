"""The scripts of the documentation find dead links, failing pages and stubs without a docstring."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from support.stub import STUBS

from scripts import animation, docs, run_page

ROOT = Path(__file__).parents[2]

LINKS = """
# What `x_y` does, and *why*

[to a heading](#what-x_y-does-and-why), [of another page](other.md#one), [to a name](other.md#penstock.Encoder),
[to a folder](folder), <img src="there.png">
[to no heading](#what-x), [of another page](other.md#two), [to no file](gone.md), ![to no picture](gone.png)

```text
[this is code](code.md)
```
"""


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    pages = {page: docs.HostedPage(LINKS), other: docs.HostedPage("## One")}
    files = {page, other, tmp_path / "folder", tmp_path / "there.png"}
    dead = ["#what-x", "other.md#two", "gone.md", "gone.png"]
    assert docs.dead_links(pages, files.__contains__) == [f"{page}: {link}" for link in dead]


def test_link_to_the_repository_is_checked_as_a_file() -> None:
    source = docs.HOME["Source"]
    page = docs.DOCS / "index.md"
    assert docs.local_link(f"{source}/blob/main/docs/limits.md#gpu", page) == "../docs/limits.md#gpu"
    assert docs.local_link(f"{source}/raw/main/docs/speed-light.svg", docs.ROOT / "README.md") == (
        "./docs/speed-light.svg"
    )
    for other in (f"{source}/issues", f"{source}/blob/v0.1.0/README.md", "https://example.com/blob/main/a"):
        assert docs.local_link(other, page) == other


def test_link_to_the_published_site_is_checked_as_a_page() -> None:
    home = docs.HOME["Documentation"]
    page = docs.SITE / "how-to" / "memory" / "index.html"
    assert docs.site_link(f"{home}benchmarks/#render", page) == "../../benchmarks/#render"
    assert docs.site_link(f"{home}install/", docs.SITE / "README.md") == "./install/"
    assert docs.site_link("../install/", page) == "../install/"


def test_all_links_of_the_readme_are_absolute() -> None:
    """The package index shows it, too."""
    links = docs.HostedPage((ROOT / "README.md").read_text()).links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_animation_is_small_and_has_all_frames(tmp_path: Path) -> None:
    path = tmp_path / "silk.webp"
    subprocess.run([sys.executable, animation.__file__, path], check=True, capture_output=True)
    data = path.read_bytes()
    assert data.count(b"ANMF") == animation.FRAMES
    assert len(data) < 600_000


PAGE_OF_ALL_KINDS = """
```python
word = "first"
print(word)
```

```sh
echo second
```

<!-- not run: it fails -->
```python
raise SystemExit("this block ran")
```

<!-- needs: no_such_module -->
```python
import no_such_module
```

```python
print(word, "again")
```

```text
first
sec…
first again
```
"""


def test_a_page_is_one_program_and_its_output_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE_OF_ALL_KINDS)
    run = [sys.executable, run_page.__file__, page]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert output == "first\nsecond\nfirst again\n"
    assert run_page.missing_output(page, output) is None
    assert run_page.missing_output(page, "first again\nsecond\nfirst\n") == "sec…"
    assert run_page.missing_output(page, "first\nsecond\n") == "first again"


def test_the_stub_check_finds_a_difference(tmp_path: Path) -> None:
    """Also where a docstring is missing."""
    script = shutil.copytree(ROOT / "scripts", tmp_path / "scripts") / "stub_docs.py"
    stub = shutil.copytree(STUBS, tmp_path / "python" / "penstock" / "_native") / "ticket.pyi"
    changed = stub.read_text().replace('"""The size of the write in bytes."""', "...")
    stub.write_text(changed.replace("Stop watching", "Look on"))
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nbytes, stop;" in done.stderr
