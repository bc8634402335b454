"""Encoders of hardware: which to try for a kind of video, and what an FFmpeg says of one."""

from __future__ import annotations

import functools
import re

from penstock.ffmpeg.naming import argument
from penstock.ffmpeg.program import capabilities
from penstock.ffmpeg.program.child import ProgramError
from penstock.ffmpeg.program.messages import StderrLog
from penstock.ffmpeg.program.runner import run

# The software that encodes each kind of video: the first one that FFmpeg has.
_SOFTWARE = {
    "auto-h264": ("libx264",),
    "auto-hevc": ("libx265",),
    "auto-av1": ("libsvtav1", "libaom-av1"),
}
#: The values of `codec` that mean the hardware's encoder for a kind of video, or else the software's.
CODECS = tuple(_SOFTWARE)
# Ends of the names of encoders, in the order in which they are tried: NVIDIA, Intel and AMD. Those of VA-API and Vulkan
# need a device and filters of their own.
_MAKERS = ("nvenc", "qsv", "amf")
# Guessed: a driver takes up to 2 s to load when its files are not cached.
_PATIENCE_S = 10.0
_UNUSED = re.compile(r"AVOption (\S+) .* has not been used for any stream")
_COMPONENTS = re.compile(r"(?:\[[^\]]+\] )*")


def software(codec: str, program: str) -> str:
    """The encoder that `codec` names, and that of software for those of `CODECS`.

    Raises:
        ValueError: it begins like those, and is none.
    """
    if not codec.startswith("auto-"):
        return codec
    if codec not in CODECS:
        known = ", ".join(CODECS)
        raise ValueError(f"{argument('codec', codec)} is none of auto, {known}, and no encoder of FFmpeg's")
    first, *others = _SOFTWARE[codec]
    return next((one for one in others if first not in capabilities.encoders(program)), first)


def encoders(codec: str) -> tuple[str, ...]:
    """The encoders of hardware to try for `codec`, in this order; none if it is not one of `CODECS`."""
    kind = codec.removeprefix("auto-")
    return tuple(f"{kind}_{maker}" for maker in _MAKERS) if codec in CODECS else ()


@functools.lru_cache(maxsize=256)
def why_not(program: str, *arguments: str) -> str | None:
    """Why FFmpeg cannot encode by these arguments, in its own words; None if it can, and no option is left out.

    The answer is remembered, because no hardware comes or goes while a program runs.
    """
    try:
        trial = run(
            (program, "-hide_banner", "-nostdin", "-loglevel", "level+warning", *arguments),
            _PATIENCE_S,
            check=False,
        )
    except ProgramError as error:
        return str(error)
    log = StderrLog(trial.stderr.encode().splitlines())
    if trial.returncode != 0:
        # Of an option's value, the next line says more.
        errors = (_COMPONENTS.sub("", line, count=1) for line in log.errors if "[Eval]" not in line)
        return next(errors, f"FFmpeg {trial.ending}")
    unused = (found[1] for line in log.warnings if (found := _UNUSED.search(line)))
    return next((f"it has no option {name}" for name in unused), None)
