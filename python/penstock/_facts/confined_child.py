"""Answers calls about a file with libav, in a process that confines itself first. `Isolation` runs it."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import _native
from penstock._facts.exact_json import pack, unpack
from penstock._facts.info import MediaInfo, Track
from penstock._facts.probing import probe
from penstock._facts.source import Source
from penstock._ffmpeg.program.sandbox import MEMORY_STATUS
from penstock.errors import PenstockError

_NO_MEMORY = (errno.ENOMEM, errno.EAGAIN)


class Calls:
    """What may be called, by name.

    Args:
        source: the file.
        records: a pipe for frames.
    """

    def __init__(self, source: Source, records: int) -> None:
        self.source, self.records = source, records

    def media(self) -> MediaInfo:
        """The facts about the file."""
        return probe(self.source)

    def about(self, index: int, question: str, *arguments: Any) -> Any:
        """The answer to one of `FileChecks` about a video stream. Its modules are not imported for the facts alone."""
        from penstock._facts.completeness import Delivered
        from penstock._facts.file_checks import FileChecks

        media = self.media()
        [video] = (one for one in media.video if one.index == index)
        given = [unpack(Delivered, one) if isinstance(one, dict) else one for one in arguments]
        return getattr(FileChecks(Track(self.source.url, media, video)), question)(*given)


def main(records: int, calls: type[Calls] = Calls) -> None:
    """Confines this process as the first line asks for, and prints an answer to each further one."""
    request = json.loads(sys.stdin.readline())
    source = Source(request["source"])
    source.path, source.decryption = request["path"], request["decryption"]
    # PyAV, NumPy and we import parts of ourselves, and of the standard library, when a file needs them.
    libraries = [sys.modules[name] for name in ("os", "av", "numpy", "penstock") if name in sys.modules]
    own = [Path(str(library.__file__)).parent for library in libraries]
    unconfined = _native._confine(
        own, source=request["source"], memory_bytes=request["memory_bytes"], cpu_s=request["cpu_s"]
    )
    callable_ = calls(source, records)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        reply = {"unconfined": unconfined, **_outcome(getattr(callable_, name), arguments)}
        print(json.dumps(reply), flush=True)


def _outcome(function: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"answer": pack(function(*arguments))}
    except MemoryError:
        sys.exit(MEMORY_STATUS)
    except (PenstockError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _NO_MEMORY:
            sys.exit(MEMORY_STATUS)
        return {"error": str(error)}
