"""Answers questions about a file with libav, in a process that confines itself first. `Isolation` runs it."""

from __future__ import annotations

import errno
import json
import sys
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import _native
from penstock._ffmpeg.program.box import MEMORY_STATUS
from penstock._media.exact_json import pack
from penstock._media.info import MediaInfo, Track
from penstock._media.source import Source
from penstock.errors import PenstockError

_NO_MEMORY = (errno.ENOMEM, errno.EAGAIN)


def main(request: dict[str, Any]) -> int:
    """Confines this process, and prints the answer as JSON. Returns the exit status."""
    source = Source(request["source"])
    source.path = request["path"]
    answer = _QUESTIONS[request["question"]]()
    # PyAV and NumPy import parts of themselves, and of the standard library, when a file needs them.
    libraries = [sys.modules[name] for name in ("os", "av", "numpy") if name in sys.modules]
    own = [Path(str(library.__file__)).parent for library in libraries]
    unconfined = _native._confine(
        own, source=request["source"], memory_bytes=request["memory_bytes"], cpu_s=request["cpu_s"]
    )
    said: dict[str, Any] = {"unconfined": unconfined}
    try:
        said["answer"] = pack(answer(source, **request["arguments"]))
    except PenstockError as error:
        said["error"] = str(error)
    except MemoryError:
        return MEMORY_STATUS
    except OSError as error:
        if error.errno in _NO_MEMORY:
            return MEMORY_STATUS
        said["error"] = str(error)
    json.dump(said, sys.stdout)
    return 0


def _media() -> Callable[..., MediaInfo]:
    from penstock._media.probing import probe

    return probe


def _frames() -> Callable[..., int | None]:
    from penstock._media import completeness
    from penstock._media.probing import probe
    from penstock._media.seeking import first_pts

    def count(source: Source, index: int, start: float | None) -> int | None:
        media = probe(source)
        [video] = (one for one in media.video if one.index == index)
        track = Track(source.url, media, video)
        if start is None and (known := completeness.known_frames(track)) is not None:
            return known
        if (pts := completeness.shown_pts(track)) is None:
            return None
        return len(pts) - (0 if start is None else bisect_left(pts, first_pts(start, media, video)))

    return count


# Each imports what it needs, and returns the function that answers.
_QUESTIONS: dict[str, Callable[[], Callable[..., Any]]] = {"media": _media, "frames": _frames}
