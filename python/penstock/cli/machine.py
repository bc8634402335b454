"""The facts of ``penstock info`` as plain data. What cannot be determined is None, if possible with the reason."""

from __future__ import annotations

import json
import mmap
import platform
import re
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Any

from penstock import cpu
from penstock._encoding.encoders import AUTO_CODECS
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.request import Request
from penstock._ffmpeg.program.capabilities import entries, find_ffmpeg, quickest_ffmpeg
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._native import Tee, Writer, __version__, _try_priorities
from penstock._platform.machine import limit, memory_bytes, setting
from penstock._streams.relay import relay
from penstock.errors import EncoderError
from penstock.pipes import make_pipe

SCHEMA = 1
#: The capacity that the writer asks for.
WANTED_PIPE_BYTES = 1 << 20
#: How long a program may take. Guessed: FFmpeg takes 0.1 s and a driver 2 s, but caches may be cold.
PATIENCE_S = 20.0

_USUAL_SIZE = (640, 360)
_KINDS = {"V": "video", "A": "audio", "S": "subtitle"}

# In a process of its own, because drivers may print, hang, or end the process.
_GL_PROGRAM = """
import json, moderngl
try:
    context = moderngl.create_context(standalone=True)
except Exception as error:
    try:
        context = moderngl.create_context(standalone=True, backend="egl")
    except Exception:
        raise error
info = {name: context.info[f"GL_{name.upper()}"] for name in ("renderer", "vendor", "version")}
print()
print(json.dumps(info))
"""


def gather() -> dict[str, Any]:
    """Return everything, in the form that ``--json`` prints."""
    return {
        "schema": SCHEMA,
        "penstock": __version__,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "memory_bytes": memory_bytes(),
        "cpus": asdict(cpu.topology()),
        "usable_cpus": cpu.usable(),
        "priorities": priorities(),
        "pipes": pipes(),
        "huge_pages": huge_pages(),
        "ffmpeg": ffmpeg(),
        "gl": gl(),
    }


def priorities() -> dict[str, Any]:
    """Return what each level comes to, and what prevents it."""
    levels = {
        level: {
            "granted": applied.priority == level,
            "nice": applied.nice,
            "scheduling_class": applied.scheduling_class,
            "notes": list(applied.notes),
        }
        for level, applied in _try_priorities()
    }
    return {
        "levels": levels,
        "rlimit_nice": limit("RLIMIT_NICE"),
        "rlimit_rtprio": limit("RLIMIT_RTPRIO"),
        "autogroup": _number("/proc/sys/kernel/sched_autogroup_enabled") == 1,
    }


def pipes() -> dict[str, Any]:
    """Return the kernel's limits, and the capacity that a pipe gets."""
    return {
        "max_size_bytes": _number("/proc/sys/fs/pipe-max-size"),
        "user_pages_soft": _number("/proc/sys/fs/pipe-user-pages-soft"),
        "user_pages_hard": _number("/proc/sys/fs/pipe-user-pages-hard"),
        "page_bytes": mmap.PAGESIZE,
        "wanted_bytes": WANTED_PIPE_BYTES,
        "granted_bytes": _granted_pipe_bytes(),
        "methods": methods(),
    }


def methods() -> dict[str, dict[str, str]]:
    """Return how bytes move here, by trying it: the method of each way to move them, and why it was taken."""
    # The commands' names.
    tried = {"zero-copy": _zero_copy, "relay": _relayed, "copy": _copied, "tee": _teed}
    return {name: dict(zip(("method", "reason"), _tried(move), strict=True)) for name, move in tried.items()}


def _tried(move: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    try:
        return move()
    except (OSError, ValueError) as refused:  # as Windows does some of them
        return "none", str(refused)


def _zero_copy() -> tuple[str, str]:
    reader, writer = make_pipe()
    with reader, writer, Writer(writer, mode="zero-copy") as stream:
        stream.submit(b"bytes")
        reader.read(5)
        stream.flush()
        return str(stream.stats.transport), stream.stats.reason


def _relayed() -> tuple[str, str]:
    (source, feed), (reader, writer) = make_pipe(), make_pipe()
    with source, feed, reader, writer:
        feed.write(b"bytes")
        relayed = relay(source, writer, 5)
        return relayed.method, relayed.reason


def _copied() -> tuple[str, str]:
    with TemporaryFile(buffering=0) as source, TemporaryFile(buffering=0) as copy:
        source.write(b"bytes")
        relayed = relay(source, copy, offset=0)
        return relayed.method, relayed.reason


def _teed() -> tuple[str, str]:
    (source, feed), (reader, writer), (other, last) = (make_pipe() for _ in range(3))
    with source, reader, writer, other, last:
        with feed:
            feed.write(b"bytes")
        with Tee(source, writer, last) as tee:  # the last one gets its bytes by splice(2)
            first, _ = tee.wait().outputs
        return first.method, first.reason


def huge_pages() -> dict[str, Any]:
    """Return whether memory may have huge pages, and their size."""
    folder = "/sys/kernel/mm/transparent_hugepage"
    return {
        "transparent": _chosen(f"{folder}/enabled"),
        "shared_memory": _chosen(f"{folder}/shmem_enabled"),
        "size_bytes": _number(f"{folder}/hpage_pmd_size"),
    }


def ffmpeg() -> dict[str, Any]:
    """Return the FFmpegs that an `Encoder` would run, the encoders that one lists, and those that it would choose."""
    found: dict[str, Any] = {"path": None, "version": None, "encoders": [], "auto": {}, "error": None}
    found["of_listed_pairs"] = quickest_ffmpeg()
    try:
        found["path"] = path = find_ffmpeg()
        first_line = _output([path, "-version"]).partition("\n")[0]
        found["version"] = first_line.removeprefix("ffmpeg version ").partition(" ")[0]
        found["encoders"] = [
            {"kind": _KINDS[flags[0]], "name": name, "description": description}
            for flags, name, description in entries(_output([path, "-hide_banner", "-encoders"]))
        ]
        names = {one["name"] for one in found["encoders"]}
        found["auto"] = {codec: _chosen_encoder(codec, names) for codec in AUTO_CODECS if names}
    except (EncoderError, OSError) as error:
        found["error"] = str(error)
    return found


def _chosen_encoder(codec: str, names: Container[str]) -> dict[str, Any]:
    """Return the encoder that this codec means for a usual picture, if FFmpeg has it, and why not the others."""
    # Nothing is written.
    made = working_plan(Request("-", fps=30, codec=codec, options={"f": "null"}), _USUAL_SIZE)
    encoder = made.codec if made.codec in names else None
    return {"encoder": encoder, "skipped_encoders": list(made.skipped_encoders)}


def gl() -> dict[str, Any]:
    """Return the renderer that ModernGL gets without a window."""
    found: dict[str, Any] = {"renderer": None, "vendor": None, "version": None, "error": None}
    try:
        # -P: the current folder, which may have a moderngl.py, is not on the path.
        last_line = _output([sys.executable, "-P", "-c", _GL_PROGRAM]).rstrip().rpartition("\n")[2]
        found |= json.loads(last_line)
    except (OSError, ValueError) as error:
        found["error"] = str(error)
    return found


def _output(command: Sequence[str]) -> str:
    """Return what a program prints."""
    try:
        return run(command, PATIENCE_S).text
    except ProgramError as error:
        raise OSError(str(error)) from error


def _granted_pipe_bytes() -> int | None:
    try:
        reader, writer = make_pipe(capacity_bytes=WANTED_PIPE_BYTES)
        with reader, writer:
            return writer.capacity_bytes
    except OSError:
        return None


def _chosen(path: str) -> str | None:
    """The word in brackets of a setting such as ``always [madvise] never``."""
    match = re.search(r"\[(.+?)\]", setting(path) or "")
    return match[1] if match else None


def _number(path: str) -> int | None:
    text = setting(path)
    return int(text) if text is not None and text.isdecimal() else None
