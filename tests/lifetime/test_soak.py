"""A short `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "soak"


@pytest.mark.linux("soak, which looks at /proc")
@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1])
def test_half_a_minute_of_soak_succeeds(seed: int) -> None:
    command = [sys.executable, SOAK, "--seed", str(seed), "--minutes", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-20_000:]}"
