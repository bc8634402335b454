"""The others' libraries: whether they are here, and how to get them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

#: What pip calls the modules that have another name there.
PACKAGES_OF_MODULES = {"cv2": "opencv-python-headless", "imageio_ffmpeg": "imageio-ffmpeg"}


def unavailable(modules: Iterable[str]) -> str | None:
    """Why what needs these modules cannot be run; None if it can."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    packages = " ".join(PACKAGES_OF_MODULES.get(name, name) for name in missing)
    return f"not installed (pip install {packages})"
