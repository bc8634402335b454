"""Finds the FFmpeg program, and the ffprobe that comes with it."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from penstock.errors import DecoderError, EncoderError, FFmpegError

_REMEDY = (
    "run `pip install 'penstock-io[ffmpeg]'`, which brings one (or install your system's, on Debian: "
    "apt-get install ffmpeg; or set PENSTOCK_FFMPEG to the path of the program)"
)
_PROBE_REMEDY = (
    "it comes with FFmpeg from the system's package manager (Debian: apt-get install ffmpeg), but not in the "
    "imageio-ffmpeg wheel; or set PENSTOCK_FFPROBE to the path of the program"
)


class Prober(NamedTuple):
    """The program that inspects files: an ffprobe, or an FFmpeg where there is no ffprobe."""

    program: str
    is_ffprobe: bool


def find_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The path of the FFmpeg to run: the one that you name, or else the best that is installed.

    In this order: `ffmpeg` (a path, or a name on ``PATH``), the environment variable ``PENSTOCK_FFMPEG``, ``ffmpeg``
    on ``PATH``, and the program in the ``imageio_ffmpeg`` wheel. If a program that you name is missing, that is an
    error; no other program replaces it.

    Raises:
        EncoderError: there is no FFmpeg; the message says how to get one.
    """
    return _find_ffmpeg(ffmpeg, EncoderError)


def find_decoding_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The same as `find_ffmpeg`, but raises a `DecoderError`."""
    return _find_ffmpeg(ffmpeg, DecoderError)


def find_ffprobe(
    ffprobe: str | os.PathLike[str] | None = None, ffmpeg: str | os.PathLike[str] | None = None
) -> str:
    """The path of the ffprobe to run: the one that you name, or else the one beside FFmpeg.

    In this order: `ffprobe` (a path, or a name on ``PATH``), the environment variable ``PENSTOCK_FFPROBE``, the one in
    the folder of the FFmpeg that `find_ffmpeg` finds, and ``ffprobe`` on ``PATH``. The ``imageio_ffmpeg`` wheel has
    none; `probe` and the decoders then ask FFmpeg itself.

    Raises:
        DecoderError: there is no ffprobe, or a program that you name is missing; the message says how to get one.
    """
    found = _find_ffprobe(ffprobe, ffmpeg)
    if found is None:
        raise _missing(DecoderError, "no ffprobe was found beside FFmpeg or on PATH", _PROBE_REMEDY)
    return found


def find_prober(
    ffprobe: str | os.PathLike[str] | None = None, ffmpeg: str | os.PathLike[str] | None = None
) -> Prober:
    """The ffprobe that `find_ffprobe` finds, or else the FFmpeg that `find_ffmpeg` finds.

    Raises:
        DecoderError: there is neither, or a program that you name is missing; the message says how to get one.
    """
    found = _find_ffprobe(ffprobe, ffmpeg)
    return Prober(find_decoding_ffmpeg(ffmpeg), False) if found is None else Prober(found, True)


def _find_ffprobe(
    ffprobe: str | os.PathLike[str] | None, ffmpeg: str | os.PathLike[str] | None
) -> str | None:
    named = _named("ffprobe", ffprobe, DecoderError, _PROBE_REMEDY)
    return named or _beside_ffmpeg(ffmpeg) or shutil.which("ffprobe")


def _find_ffmpeg(ffmpeg: str | os.PathLike[str] | None, error: type[FFmpegError]) -> str:
    found = _named("ffmpeg", ffmpeg, error, _REMEDY) or shutil.which("ffmpeg") or _from_wheel()
    if found is None:
        raise _missing(error, "no FFmpeg was found on PATH, and no imageio-ffmpeg wheel", _REMEDY)
    return found


def _named(
    name: str, argument: str | os.PathLike[str] | None, error: type[FFmpegError], remedy: str
) -> str | None:
    """The program that the argument, or the environment variable ``PENSTOCK_…``, names; None if neither is given."""
    variable = f"PENSTOCK_{name.upper()}"
    program = os.environ.get(variable) or None if argument is None else os.fspath(argument)
    if program is None:
        return None
    found = shutil.which(program)
    if found is None:
        named_by = variable if argument is None else f"the argument `{name}`"
        raise _missing(error, f"{named_by} names {program!r}, which is no program that can be run", remedy)
    return found


def _missing(error: type[FFmpegError], reason: str, remedy: str) -> FFmpegError:
    return error(f"{reason}: {remedy}", reason=reason, advice=remedy)


def _beside_ffmpeg(ffmpeg: str | os.PathLike[str] | None) -> str | None:
    try:
        found = Path(find_decoding_ffmpeg(ffmpeg))
    except DecoderError:
        # Do not use another FFmpeg's ffprobe: it may support other formats.
        if ffmpeg is not None or os.environ.get("PENSTOCK_FFMPEG"):
            raise
        return None
    # An ffmpeg-7 has an ffprobe-7 beside it.
    names = dict.fromkeys((found.name.replace("ffmpeg", "ffprobe"), "ffprobe"))
    return next(filter(None, (shutil.which(str(found.with_name(name))) for name in names)), None)


def _from_wheel() -> str | None:
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # no wheel, or one without a program for this machine
        return None
