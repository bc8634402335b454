"""Answers questions about a file with libav, in a process that confines itself first. `Isolation` runs it."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import _native
from penstock._facts.exact_json import pack, unpack
from penstock._facts.probing import probe
from penstock._facts.source import Source
from penstock._ffmpeg.program.sandbox import MEMORY_STATUS
from penstock.errors import PenstockError

_NO_MEMORY = (errno.ENOMEM, errno.EAGAIN)


def main(request: dict[str, Any]) -> int:
    """Confines this process, and prints the answer as JSON. Returns the exit status."""
    source = Source(request["source"])
    source.path, source.decryption = request["path"], request["decryption"]
    answer = probe if request["question"] == "media" else _about_track(request["question"], request["index"])
    # PyAV and NumPy import parts of themselves, and of the standard library, when a file needs them.
    libraries = [sys.modules[name] for name in ("os", "av", "numpy") if name in sys.modules]
    own = [Path(str(library.__file__)).parent for library in libraries]
    unconfined = _native._confine(
        own, source=request["source"], memory_bytes=request["memory_bytes"], cpu_s=request["cpu_s"]
    )
    said: dict[str, Any] = {"unconfined": unconfined}
    try:
        said["answer"] = pack(answer(source, *request["arguments"]))
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


def _about_track(question: str, index: int) -> Callable[..., Any]:
    """The answer to one of `Questions`. Its modules are not imported for the facts alone."""
    from penstock._facts.completeness import Delivered
    from penstock._facts.info import Track
    from penstock._facts.questions import InProcess

    def answer(source: Source, *arguments: Any) -> Any:
        media = probe(source)
        [video] = (one for one in media.video if one.index == index)
        given = [unpack(Delivered, one) if isinstance(one, dict) else one for one in arguments]
        return getattr(InProcess(Track(source.url, media, video)), question)(*given)

    return answer
