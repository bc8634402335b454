"""What a path must not be on one system, and how it's written there."""

from __future__ import annotations

import ntpath
import re
import shlex
import sys

# "Naming Files, Paths, and Namespaces". NUL alone is a place that somebody may mean.
_DEVICE = re.compile(r"(?:con|prn|aux|com\d|lpt\d|nul(?= *\.)) *(?:\.|$)", re.IGNORECASE)

# What no shell of Windows takes for more than letters.
_PLAIN_WORD = re.compile(r"[\w.:/\\=+-]+")


def check_path(path: str, *, platform: str = sys.platform) -> None:
    """Raises a ValueError for a path that Windows takes for a device or a stream inside of a file.

    Or that lacks a drive's slash. Others take "clip:1.mp4" and "nul.mp4" for names.
    """
    if platform != "win32":
        return
    drive, rest = ntpath.splitdrive(path)
    if ":" in rest or (len(drive) == 2 and not rest.startswith(("/", "\\"))):
        raise ValueError(
            f"{path!r} names a stream inside of a file, or a place on another drive. Pass a path whose only ':' "
            "follows the letter of a drive, such as 'C:/videos/clip.mp4'"
        )
    if _DEVICE.match(ntpath.basename(rest)):
        raise ValueError(f"{path!r} is a device of Windows, and no file. Pass a path with another name")


def shell_word(text: str, *, platform: str = sys.platform) -> str:
    """The text as one word of a command, for people. Windows' shells know no single quotes, and its names no double."""
    if platform != "win32":
        return shlex.quote(text)
    return text if _PLAIN_WORD.fullmatch(text) else f'"{text}"'


def with_slashes(path: str, *, platform: str = sys.platform) -> str:
    """The path for an output of FFmpeg, some of whose muxers look for its folder by "/" alone.

    With backslashes, that of HLS writes the initialization segment into the current folder. A verbatim path stays.
    """
    return path.replace("\\", "/") if platform == "win32" and "\\\\?\\" not in path else path


def without_scheme(name: str, *, platform: str = sys.platform) -> str:
    """On Windows, the path of a URL such as "file:///C:/clip.mp4", which FFmpeg doesn't open. Others stay."""
    return re.sub(r"^file:/*(?=[a-z]:[\\/])", "", name, flags=re.IGNORECASE) if platform == "win32" else name
