"""Views of leased memory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock._native import _Slot
from penstock.ffmpeg.pixels import FrameLayout


def view_of(slot: _Slot, layout: FrameLayout) -> Any:
    """A writable view of a slot, in the shape of a frame; a plain `memoryview` without NumPy."""
    memory = memoryview(slot)
    try:
        import numpy as np
    except ImportError:
        return memory
    return np.frombuffer(memory, dtype=layout.dtype).reshape(layout.shape)


def seal(view: Any) -> None:
    """Keeps whoever has the view from writing to a frame that is on its way."""
    if isinstance(view, memoryview):
        with suppress(BufferError):  # somebody has views of it
            view.release()
    else:
        view.flags.writeable = False
