"""The scripts of the documentation find dead links, failing pages and stubs without a docstring."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from support.stub import STUBS

from scripts import docs, run_page

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
