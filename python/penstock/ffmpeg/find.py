"""Finds the FFmpeg program, and the ffprobe that comes with it."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

from penstock.errors import DecoderError, EncoderError

_REMEDY = (
    "install FFmpeg with the system's package manager (Debian: apt-get install ffmpeg), "
    "or `pip install 'penstock-io[ffmpeg]'` for a wheel that brings one, "
    "or set PENSTOCK_FFMPEG to the path of the program"
)
_PROBE_REMEDY = (
    "it comes with FFmpeg from the system's package manager (Debian: apt-get install ffmpeg), but not in the "
    "imageio-ffmpeg wheel; or set PENSTOCK_FFPROBE to the path of the program"
)


def find_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The path of the FFmpeg to run: what was asked for, else the best that there is.

    In this order: `ffmpeg` (a path, or a name on ``PATH``), the environment's ``PENSTOCK_FFMPEG``, ``ffmpeg``
    on ``PATH``, and the program in the ``imageio_ffmpeg`` wheel. One that was named and is not there is an
    error, never a reason to take another in silence.

    Raises:
        EncoderError: no FFmpeg was found; the message says how to get one.
    """
    if ffmpeg is not None:
        return _named(os.fspath(ffmpeg), "the argument `ffmpeg`")
    if named := os.environ.get("PENSTOCK_FFMPEG"):
        return _named(named, "PENSTOCK_FFMPEG")
    found = shutil.which("ffmpeg") or _from_wheel()
    if found is None:
        raise EncoderError(f"no FFmpeg was found on PATH, and no imageio-ffmpeg wheel: {_REMEDY}")
    return found


def find_decoding_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """What `find_ffmpeg` finds, for who decodes.

    Raises:
        DecoderError: no FFmpeg was found; the message says how to get one.
    """
    try:
        return find_ffmpeg(ffmpeg)
    except EncoderError as error:
        raise DecoderError(str(error)) from None


def find_ffprobe(
    ffprobe: str | os.PathLike[str] | None = None, ffmpeg: str | os.PathLike[str] | None = None
) -> str:
    """The path of the ffprobe to run: what was asked for, else the one beside FFmpeg.

    In this order: `ffprobe` (a path, or a name on ``PATH``), the environment's ``PENSTOCK_FFPROBE``, the one in the
    folder of the FFmpeg that `find_ffmpeg` finds, and ``ffprobe`` on ``PATH``. The ``imageio_ffmpeg`` wheel has none.

    Raises:
        DecoderError: no ffprobe was found, or one that was named is not there; the message says how to get one.
    """
    if ffprobe is not None:
        return _named_probe(os.fspath(ffprobe), "the argument `ffprobe`")
    if named := os.environ.get("PENSTOCK_FFPROBE"):
        return _named_probe(named, "PENSTOCK_FFPROBE")
    found = _beside_ffmpeg(ffmpeg) or shutil.which("ffprobe")
    if found is None:
        raise DecoderError(f"no ffprobe was found beside FFmpeg or on PATH: {_PROBE_REMEDY}")
    return found


def _named_probe(name: str, named_by: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DecoderError(f"{named_by} names {name!r}, which is no program that can be run: {_PROBE_REMEDY}")
    return found


def _beside_ffmpeg(ffmpeg: str | os.PathLike[str] | None) -> str | None:
    try:
        found = Path(find_ffmpeg(ffmpeg))
    except EncoderError as error:
        # One that was named and is not there: another's ffprobe might tell of formats that it has not.
        if ffmpeg is not None or os.environ.get("PENSTOCK_FFMPEG"):
            raise DecoderError(str(error)) from None
        return None
    # An ffmpeg-7 has an ffprobe-7 beside it.
    names = dict.fromkeys((found.name.replace("ffmpeg", "ffprobe"), "ffprobe"))
    return next(filter(None, (shutil.which(str(found.with_name(name))) for name in names)), None)


def _named(name: str, named_by: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise EncoderError(f"{named_by} names {name!r}, which is no program that can be run: {_REMEDY}")
    return found


def _from_wheel() -> str | None:
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # no wheel, or one without a program for this machine
        return None
