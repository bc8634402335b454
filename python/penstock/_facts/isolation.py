"""Isolated reading: a file's facts from a child in a sandbox, so that no byte of the file is parsed in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar, cast

from penstock._facts.completeness import Delivered, End
from penstock._facts.exact_json import pack, unpack
from penstock._facts.info import MediaInfo
from penstock._facts.source import Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.child import CapturedChild, NotStartedError, TimedOutError, run
from penstock._ffmpeg.program.sandbox import Sandbox, SandboxedFile
from penstock.errors import DecoderError, StalledError

T = TypeVar("T")

# Chosen: libav reads the facts of a file in 0.02 s, and all packets of a file of 100 GB in 100 s.
_CPU_S = 600
# The child imports from where this process does, wherever that is.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from penstock._facts.isolated_facts import main
sys.exit(main(json.loads(sys.argv[2])))
"""
# The kernel confines the thread that asks for it, and OpenBLAS starts others when NumPy is imported.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}


class Isolation:
    """A file that only programs in a sandbox read.

    Attributes:
        file: the file, as the programs open it.
        sandbox: what FFmpeg may do.
        unconfined: what the kernel cannot confine, from the first answer on, such as "files", "signals" and "system
            calls".

    Raises:
        ValueError: the source is no regular file.
        OSError: it cannot be opened.
    """

    def __init__(self, source: Source, *, threads: int, is_strict: bool) -> None:
        if source.single_pass is not None or not endpoints.is_path(source.url):
            raise _not_isolated(source.path)
        file = SandboxedFile.opened(endpoints.without_protocol(source.url))
        if file is None:
            raise _not_isolated(source.path)
        self.file = file
        self.sandbox = Sandbox.around(file.descriptor, threads=threads, is_strict=is_strict)
        self.unconfined: tuple[str, ...] = ()
        self._path, self._decryption = source.path, source.decryption

    @classmethod
    def of(
        cls, source: Source, *, threads: int, isolated: bool | Literal["strict"], follow_playlists: bool
    ) -> Isolation:
        """The isolation that the arguments of these names ask for."""
        if isolated not in (True, "strict"):
            raise ValueError(f'isolated must be False, True or "strict", not {isolated!r}')
        if follow_playlists:
            raise ValueError(
                "isolated and follow_playlists can't be combined: an isolated reader opens one file only"
            )
        return cls(source, threads=threads, is_strict=isolated == "strict")

    def media(self, timeout_s: float | None) -> MediaInfo:
        """The facts about the file.

        Raises:
            DecoderError: libav cannot read the file, needs more than the sandbox allows, or crashes.
            StalledError: it took longer than `timeout_s`.
            OSError: no descriptor, memory, process or thread is left.
        """
        return self.ask("media", MediaInfo, timeout_s)

    def about(self, index: int) -> _AboutTrack:
        """The questions about the video stream of that index."""
        return _AboutTrack(self, index)

    def ask(
        self, question: str, kind: type[T], timeout_s: float | None = None, index: int = 0, *arguments: object
    ) -> T:
        """The answer of a child in a sandbox, which is of that type: to "media", or to one of `Questions`."""
        request = {
            "question": question,
            "index": index,
            "arguments": pack(arguments),
            "path": self._path,
            "decryption": self._decryption,
            "source": self.sandbox.source,
            "memory_bytes": self.sandbox.memory_bytes,
            "cpu_s": _CPU_S,
        }
        paths = [str(Path(path).absolute()) for path in sys.path]
        command = (*(sys.executable, "-I", "-S", "-B", "-c", _PROGRAM), *map(json.dumps, (paths, request)))
        sandbox = _OwnSandbox(self.sandbox.source, self.sandbox.memory_bytes, _CPU_S)
        try:
            child = run(command, timeout_s, check=False, sandbox=sandbox)
        except NotStartedError as failure:
            raise DecoderError(
                f"Python, which reads {self._path} in a sandbox, could not start: {failure}"
            ) from failure
        except TimedOutError as late:
            seconds = timeout_s or 0.0
            raise StalledError(f"{self._path} was not read within {seconds:g} s", seconds) from late
        return self._answer(child, sandbox, kind)

    def _answer(self, child: CapturedChild, sandbox: Sandbox, kind: type[T]) -> T:
        if (limit := sandbox.reached_limit(child.returncode, child.stderr)) is not None:
            raise self._failure(f"{self._path} {limit}", child)
        try:
            said = json.loads(child.stdout)
            self.unconfined = unpack(tuple[str, ...], said["unconfined"])
            if "error" in said:
                raise self._failure(unpack(str, said["error"]), child)
            answer = unpack(kind, said["answer"])
        except (ValueError, TypeError, KeyError, RecursionError) as strange:
            # It never answered, or was taken over.
            raise self._failure(
                f"{self._path} could not be read: libav's process {child.ending}", child
            ) from strange
        if self.unconfined and self.sandbox.is_strict:
            without = ", ".join(self.unconfined)
            reason = f"this kernel can't confine {without}. Pass isolated=True to read without that"
            raise self._failure(reason, child)
        return answer

    def _failure(self, reason: str, child: CapturedChild) -> DecoderError:
        said = f"\nThe process said: {child.stderr}" if child.stderr else ""
        return DecoderError(
            f"{reason}{said}",
            reason=reason,
            returncode=child.returncode,
            command=child.command,
            stderr=child.stderr,
        )


class _AboutTrack:
    """Answers `Questions` by children in a sandbox, which raise what `Isolation.media` raises."""

    def __init__(self, isolation: Isolation, index: int) -> None:
        self._isolation, self._index = isolation, index

    def frames(self, start_pts: int | None) -> int | None:
        return self._ask("frames", cast("type[int | None]", int | None), start_pts)

    def misses_frames(self, start: float | None) -> bool:
        return self._ask("misses_frames", bool, start)

    def begins_inside_group(self) -> bool:
        return self._ask("begins_inside_group", bool)

    def at_end(self, delivered: Delivered) -> End:
        return self._ask("at_end", End, delivered)

    def _ask(self, question: str, kind: type[T], *arguments: object) -> T:
        return self._isolation.ask(question, kind, None, self._index, *arguments)


class _OwnSandbox(Sandbox):
    """A sandbox that the program makes itself, once it has imported what it needs."""

    def launch(self, command: Sequence[str]) -> tuple[str, ...]:
        return tuple(command)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {**Sandbox.environment(self, environment), **_ONE_THREAD}


def _not_isolated(path: str) -> ValueError:
    return ValueError(
        f"isolated=True needs a regular file, which {path} is not. Save it to a file, or leave isolated out"
    )
