"""The README's examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import run_page

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = [block.code for block in run_page.blocks(README) if block.language == "python"]
EXPECTED = {
    "penstock.Decoder": "50 frames",
    "penstock.Reader": "9 frames, and 4012800 bytes of another",
    "cpu.policy": "<AppliedPolicy priority=",
    "penstock.Encoder": "frames_encoded=60",
    "penstock.Writer": "  -\n",
    "penstock.relay": "bytes by splice",
    "with Pipeline": "% of its time",
    "penstock.Tee": "90433fcbd9e16297e6a7c1dacb1056394743194776e52f78ebf0a44b80b6b14f  -",
}


def test_each_example_is_tried() -> None:
    assert len(EXAMPLES) == len(EXPECTED)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: str, tmp_path: Path) -> None:
    # The first: an example may use what another is about.
    expected = next(output for name, output in EXPECTED.items() if name + "(" in example)
    run = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout
