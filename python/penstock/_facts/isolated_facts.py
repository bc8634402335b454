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


def main(request: dict[str, Any]) -> None:
    """Prints the answer as JSON."""
    answer = probe if request["question"] == "media" else _about_track(request["question"], request["index"])
    source, answered = confined(request)
    answered(lambda: answer(source, *request["arguments"]))


def confined(request: dict[str, Any]) -> tuple[Source, Callable[[Callable[[], Any]], None]]:
    """Confines this process. Returns the file, and a function that prints what another one returns, or its error."""
    source = Source(request["source"])
    source.path, source.decryption = request["path"], request["decryption"]
    # PyAV, NumPy and we import parts of ourselves, and of the standard library, when a file needs them.
    libraries = [sys.modules[name] for name in ("os", "av", "numpy", "penstock") if name in sys.modules]
    own = [Path(str(library.__file__)).parent for library in libraries]
    unconfined = _native._confine(
        own, source=request["source"], memory_bytes=request["memory_bytes"], cpu_s=request["cpu_s"]
    )

    def answered(answer: Callable[[], Any]) -> None:
        said: dict[str, Any] = {"unconfined": unconfined}
        try:
            said["answer"] = pack(answer())
        except PenstockError as error:
            said["error"] = str(error)
        except MemoryError:
            sys.exit(MEMORY_STATUS)
        except OSError as error:
            if error.errno in _NO_MEMORY:
                sys.exit(MEMORY_STATUS)
            said["error"] = str(error)
        print(json.dumps(said), flush=True)

    return source, answered


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
