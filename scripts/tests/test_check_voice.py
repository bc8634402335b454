"""The checker of phrases finds them in prose, on the right line, and leaves code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_voice

PAGE = """
# Voice of a page

A frame of another dtype is a
`ValueError`. `StalledError` is a `TimeoutError`.

```python
raise ValueError  # in silence
```

- Of a pipe, only the end is read.
| a table | that begins anew |
"""
RULES = "## Voice\n\nNot: as a rule\n\n## Next\n\nIt is told.\n"
MODULE = '''
"""Reads.

What it lacks is a ``penstock.StalledError``.
"""

# This comment goes on as a
# rule.
MESSAGE = f"{name} has no " "place for it"
'''
CRATE = """
/// Where this gives, that stands.
let name = "in silence"; // is told
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, source in {
        "README.md": PAGE,
        "CONTRIBUTING.md": RULES,
        "python/penstock/module.py": MODULE,
        "crates/one/src/lib.rs": CRATE,
        "elsewhere.md": PAGE,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    return tmp_path


def test_refused_phrases_are_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_voice.main(root, []) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "README.md:4: is a `ValueError",
        "README.md:11: Of a",
        "README.md:12: anew",
        "CONTRIBUTING.md:7: is told",
        "python/penstock/module.py:4: is a ``penstock.StalledError",
        "python/penstock/module.py:7: as a rule",
        "python/penstock/module.py:9: has no place",
        "crates/one/src/lib.rs:3: is told",
    ]


def test_doubtful_words_are_listed_but_never_fail_the_check(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_voice.main(root, ["--list"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found == [f"crates/one/src/lib.rs:2: {word}" for word in ("Where", "gives", "stands")]


def test_a_clean_tree_passes(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Penstock writes videos.")
    assert check_voice.main(tmp_path, []) == 0
