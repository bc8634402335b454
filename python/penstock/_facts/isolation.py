"""Isolated reading: a file's facts from a child in a sandbox, so that no byte of the file is parsed in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast, get_type_hints

from penstock._common.messages import plural
from penstock._facts.confined_process import ConfinedProcess
from penstock._facts.exact_json import unpack
from penstock._facts.file_checks import FileChecks
from penstock._facts.info import MediaInfo
from penstock._facts.source import Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.sandbox import Sandbox, SandboxedFile
from penstock.errors import DecoderError, StalledError

T = TypeVar("T")

# Chosen: libav reads the facts of a file in 0.02 s, and all packets of a file of 100 GB in 100 s.
_CPU_S = 600
# The child imports from where this process does, wherever that is.
_PROGRAM = """\
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).main(int(sys.argv[3]))
"""
# The kernel confines the thread that asks for it, and OpenBLAS starts others when NumPy is imported.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}


class Ask(Protocol):
    """Asks one of `FileChecks`, whose answer is of that type."""

    def __call__(self, question: str, kind: type[T], *arguments: object) -> T:
        """Returns the answer."""


class Isolation:
    """A file that only programs in a sandbox read.

    Attributes:
        file: the file, as the programs open it.
        sandbox: what FFmpeg may do.
        path: the file's name, for messages.
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
        self.path, self._decryption = source.path, source.decryption

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
        return self.named(self.ask("media", MediaInfo, timeout_s))

    def named(self, media: MediaInfo) -> MediaInfo:
        """The facts with the file's own name, whatever a child has called it."""
        return replace(media, path=self.path)

    def about(self, index: int, ask: Ask | None = None) -> FileChecks:
        """The questions about the video stream of that index, which `ask` asks; None has new children answer."""

        def ask_new(question: str, kind: type[T], *arguments: object) -> T:
            return self.ask("about", kind, None, index, question, *arguments)

        return cast("FileChecks", _Asked(ask or ask_new))

    def ask(self, call: str, kind: type[T], timeout_s: float | None = None, *arguments: object) -> T:
        """The answer of a child in a sandbox to one of its `Calls`, which is of that type."""
        process = self.process("penstock._facts.confined_child", _CPU_S)
        try:
            process.start()
            printed = process.answer(process.call(call, *arguments), timeout_s)
        finally:
            process.end()
        return self.answer(printed, kind, process, timeout_s=timeout_s)

    def process(self, module: str, cpu_s: int, passed: int | None = None) -> ConfinedProcess:
        """A process that runs ``main`` of a module, which has `Calls`, and makes its own sandbox."""
        source, memory_bytes = self.sandbox.source, self.sandbox.memory_bytes
        request = {
            "path": self.path,
            "decryption": self._decryption,
            "source": source,
            "memory_bytes": memory_bytes,
            "cpu_s": cpu_s,
        }
        paths = json.dumps([str(Path(path).absolute()) for path in sys.path])
        # Without the environment's variables and modules of the user's, and without writing bytecode, which no sandbox
        # allows.
        python = (sys.executable, "-I", "-S", "-B", "-c", _PROGRAM)
        sandbox = _OwnSandbox(source, memory_bytes, cpu_s)
        return ConfinedProcess((*python, paths, module), sandbox, request, passed)

    def answer(
        self,
        printed: bytes | None,
        kind: type[T],
        child: ConfinedProcess,
        frames: int = 0,
        timeout_s: float | None = None,
    ) -> T:
        """What a child has printed, which is of that type. `frames` were delivered before.

        Raises:
            DecoderError: it is something else, or an error; or the child could not be confined, although it must be.
            StalledError: it has printed nothing within `timeout_s`.
        """
        if printed is None:
            seconds = timeout_s or 0.0
            raise StalledError(f"{self.path} was not read within {seconds:g} s", seconds)
        after = f", after {plural(frames, 'frame')}" if frames else ""
        if (limit := child.sandbox.reached_limit(child.returncode, child.stderr)) is not None:
            raise self.failure(f"{self.path} {limit}{after}", child, frames)
        try:
            reply = json.loads(printed)
            self.unconfined = unpack(tuple[str, ...], reply["unconfined"])
            if "error" in reply:
                raise self.failure(unpack(str, reply["error"]), child, frames)
            answer = unpack(kind, reply["answer"])
        # Lists in lists, without end, make json.loads raise a RecursionError.
        except (ValueError, TypeError, KeyError, RecursionError) as strange:
            # It never answered, or was taken over.
            raise self.failure(
                f"{self.path} could not be read: libav's process {child.ending}{after}", child, frames
            ) from strange
        if self.unconfined and self.sandbox.is_strict:
            without = ", ".join(self.unconfined)
            reason = f"this kernel can't confine {without}. Pass isolated=True to read without that"
            raise self.failure(reason, child)
        return answer

    def failure(self, reason: str, child: ConfinedProcess, frames: int = 0) -> DecoderError:
        """The error of a child that failed."""
        words = f"\nThe process said: {child.stderr}" if child.stderr else ""
        return DecoderError(
            f"{reason}{words}",
            reason=reason,
            returncode=child.returncode,
            command=child.command,
            stderr=child.stderr,
            frames=frames,
        )


class _Asked:
    """Answers `FileChecks` by children in a sandbox, which raise what `Isolation.media` raises."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __getattr__(self, question: str) -> Callable[..., Any]:
        return partial(self._ask, question, get_type_hints(getattr(FileChecks, question))["return"])


@dataclass(frozen=True, slots=True)
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
