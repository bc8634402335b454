"""Finds the FFmpeg program."""

from __future__ import annotations

import importlib
import os
import shutil

from penstock.errors import EncoderError

_REMEDY = (
    "install FFmpeg with the system's package manager (Debian: apt-get install ffmpeg), "
    "or `pip install 'penstock[ffmpeg]'` for a wheel that brings one, "
    "or set PENSTOCK_FFMPEG to the path of the program"
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
