"""Finds the FFmpeg program."""

from __future__ import annotations

import importlib
import os
import shutil

from penstock.errors import DecoderError, EncoderError, FFmpegError

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
    return _find_ffmpeg(ffmpeg, EncoderError)


def find_decoding_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The same as `find_ffmpeg`, but raises a `DecoderError`."""
    return _find_ffmpeg(ffmpeg, DecoderError)


def _find_ffmpeg(ffmpeg: str | os.PathLike[str] | None, error: type[FFmpegError]) -> str:
    found = _named(ffmpeg, error) or shutil.which("ffmpeg") or _from_wheel()
    if found is None:
        raise _missing(error, "no FFmpeg was found on PATH, and no imageio-ffmpeg wheel")
    return found


def _named(argument: str | os.PathLike[str] | None, error: type[FFmpegError]) -> str | None:
    """The program that the argument, or the environment variable, names; None if neither is given."""
    program = os.environ.get(_VARIABLE) or None if argument is None else os.fspath(argument)
    if program is None:
        return None
    found = shutil.which(program)
    if found is None:
        named_by = _VARIABLE if argument is None else "the argument `ffmpeg`"
        raise _missing(error, f"{named_by} names {program!r}, which is no program that can be run")
    return found


def _missing(error: type[FFmpegError], reason: str) -> FFmpegError:
    return error(f"{reason}: {_REMEDY}", reason=reason, advice=_REMEDY)


def _from_wheel() -> str | None:
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # no wheel, or one without a program for this machine
        return None
