"""Files of public test suites, of which it's known what is right. They aren't part of the project."""

from __future__ import annotations

from pathlib import Path

import pytest


def real_file(name: str) -> Path:
    """The file of that name in ``shared/media``, beside the project. Skips the test if that isn't there."""
    for folder in Path(__file__).resolve().parents[2:]:
        if (path := folder / "shared/media" / name).exists():
            return path
    pytest.skip(f"shared/media/{name} isn't there")
