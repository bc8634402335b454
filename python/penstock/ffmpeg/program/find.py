"""Finds the FFmpeg program."""

from __future__ import annotations

import importlib
import os
import shutil

from penstock.errors import DecoderError, EncoderError

_VARIABLE = "PENSTOCK_FFMPEG"
_REMEDY = (
    "run `pip install 'penstock-io[ffmpeg]'`, which brings one (or install your system's, on Debian: "
    "apt-get install ffmpeg; or set PENSTOCK_FFMPEG to the path of the program)"
)


def find_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The path of the FFmpeg to run: the one that you name, or else the best that is installed.

    In this order: `ffmpeg` (a path, or a name on ``PATH``), the environment variable ``PENSTOCK_FFMPEG``, ``ffmpeg``
    on ``PATH``, and the program in the ``imageio_ffmpeg`` wheel. If a program that you name is missing, that is an
    error; no other program replaces it.

    Raises:
        EncoderError: there is no FFmpeg; the message says how to get one.
    """
    named = os.environ.get(_VARIABLE) or None if ffmpeg is None else os.fspath(ffmpeg)
    found = shutil.which("ffmpeg") or _from_wheel() if named is None else shutil.which(named)
    if found is None:
        named_by = _VARIABLE if ffmpeg is None else "the argument `ffmpeg`"
        reason = "no FFmpeg was found on PATH, and no imageio-ffmpeg wheel"
        if named is not None:
            reason = f"{named_by} names {named!r}, which is no program that can be run"
        raise EncoderError(f"{reason}: {_REMEDY}", reason=reason, advice=_REMEDY)
    return found


def find_decoding_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The same as `find_ffmpeg`, but raises a `DecoderError`."""
    try:
        return find_ffmpeg(ffmpeg)
    except EncoderError as error:
        raise DecoderError(str(error), reason=error.reason, advice=error.advice) from None


def _from_wheel() -> str | None:
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # no wheel, or one without a program for this machine
        return None
