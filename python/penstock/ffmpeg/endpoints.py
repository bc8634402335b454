"""What FFmpeg reads from and writes to: local paths, URLs and its standard output."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from errno import EACCES, EISDIR, ENOENT, ENOTDIR
from pathlib import Path

_FILE = "file:"
#: What FFmpeg may open by itself where it reads a local path: no network. FFmpeg's own default, said all the same.
_LOCAL_PROTOCOLS = "file,crypto,data"
#: FFmpeg's demuxers of files that lead to other files, or are programs to be run.
LEADING_CONTAINERS = frozenset(
    (
        *("applehttp", "avisynth", "concat", "dash", "dvdvideo", "hls", "imf", "rtp", "rtsp", "sap", "sdp"),
        *("vapoursynth", "vobsub", "webm_dash_manifest"),
    )
)
_STDOUT = "pipe:1"
# A scheme, and perhaps others before it, as in "zmq:tcp://127.0.0.1:5555".
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*:)+//", re.IGNORECASE)
# What goes through each, where no container is named: FFmpeg guesses from the end of a file's name, which a stream
# has not. RTMP carries nothing but FLV (Adobe's specification, 6.1).
_LIVE_CONTAINERS = {
    **dict.fromkeys(("rtmp", "rtmps", "rtmpt", "rtmpts", "rtmpe", "rtmpte"), "flv"),
    **dict.fromkeys(("udp", "tcp", "srt", "rist"), "mpegts"),
    "rtsp": "rtsp",
}


def target(output: str | os.PathLike[str], container_format: str | None = None) -> str:
    """What FFmpeg is told to write to: a URL as it is, a path behind the protocol that takes it literally.

    A `str` is a URL if it begins with a scheme and ``//``, and FFmpeg's standard output if it is ``-``, ``pipe:`` or
    ``pipe:1``. All else is a path, whatever its characters. With the container ``tee`` the output is its list of
    outputs, and stays as it is.

    Raises:
        FileNotFoundError: the path's folder does not exist.
        NotADirectoryError: it is no folder.
        IsADirectoryError: the path itself is a folder.
        PermissionError: the file, or the folder of a new one, may not be written to.
        ValueError: a pipe that FFmpeg does not have.
    """
    if isinstance(output, str):
        if output == "-" or re.fullmatch(r"pipe:\d*", output):
            return _pipe(output)
        if _URL.match(output) or (container_format == "tee" and not output.startswith("-")):
            return output
    path = Path(output).absolute()
    # A Path has no slash at its end any more.
    _check_writable(path, named_as_folder=os.fspath(output).endswith("/"))
    return f"{_FILE}{path}"


def source(path_or_url: str | os.PathLike[str]) -> str:
    """What FFmpeg is told to read from: a URL as it is, a path behind the protocol that takes it literally.

    A `str` is a URL if it begins with a scheme and ``//``. All else is a path, whatever its characters: ``-`` is a
    file of that name.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: it is a folder.
        PermissionError: it may not be read.
        OSError: the system does not lead to it for another reason, such as a loop of symbolic links.
    """
    if isinstance(path_or_url, str) and _URL.match(path_or_url):
        return path_or_url
    path = os.fspath(path_or_url)
    # As it was given: Path("clip.mp4/") is the file clip.mp4, which the system says is no folder.
    if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    _check_access(Path(path), os.R_OK, os.strerror(EACCES))
    return f"{_FILE}{Path(path).absolute()}"


def is_path(target: str) -> bool:
    """Whether `target` is a local path, and no URL or pipe."""
    return target.startswith(_FILE)


def without_protocol(target: str) -> str:
    """The path of a local `target`, or its URL."""
    return target.removeprefix(_FILE)


def file_bytes(target: str) -> int | None:
    """The size of the file at `target`; None if it is not a regular file."""
    path = Path(without_protocol(target))
    return path.stat().st_size if path.is_file() else None


def uses_stdout(target: str) -> bool:
    """Whether FFmpeg writes `target` to its standard output, which then has to be ours."""
    return target == _STDOUT


def container_for(target: str, container_format: str | None) -> str | None:
    """The container for `target`: `container_format`, or what its protocol carries; None leaves it to its name.

    Raises:
        ValueError: nothing tells the container of what goes through a pipe.
    """
    if container_format is not None:
        return container_format
    if uses_stdout(target):
        raise ValueError(
            "a pipe has no name to tell its container: give container_format, such as 'matroska', 'mpegts', 'nut' "
            "or 'rawvideo'"
        )
    return _LIVE_CONTAINERS.get(target.partition("://")[0].lower())


def confining_arguments(source: str, containers: Iterable[str]) -> list[str]:
    """FFmpeg's arguments that keep it from opening anything but `source`, if that is a path.

    Args:
        containers: those that it may be; none for any.
    """
    if not is_path(source):
        return []
    allowed = ",".join(containers)
    whitelist = ["-format_whitelist", allowed] if allowed else []
    return ["-protocol_whitelist", _LOCAL_PROTOCOLS, *whitelist]


def literal_arguments(source: str) -> list[str]:
    """FFmpeg's arguments to take a picture's path, if `source` is one, for no pattern: ``shot%03d.png``."""
    return ["-pattern_type", "none"] if is_path(source) else []


def leads_elsewhere(container: str) -> bool:
    """Whether a file of this container, by ffprobe's names, leads to other files."""
    return not LEADING_CONTAINERS.isdisjoint(container.split(","))


def _pipe(output: str) -> str:
    if output in ("-", "pipe:", _STDOUT):
        return _STDOUT
    raise ValueError(
        f"FFmpeg gets none of our descriptors but standard output, pipe:1; got {output!r}. "
        f"A file of that name is Path({output!r})"
    )


def _check_writable(path: Path, *, named_as_folder: bool) -> None:
    """Raises what opening `path` for writing would raise, as far as it can be known without making anything."""
    if path.is_dir() or named_as_folder:
        raise IsADirectoryError(EISDIR, "the output is a folder, and not a file in one", str(path))
    if path.exists():
        _check_access(path, os.W_OK, "the output may not be written to")
        return
    # Of a symbolic link that leads to nothing yet, the folder in which FFmpeg makes the file.
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.exists():
        raise FileNotFoundError(ENOENT, "the output's folder does not exist", str(folder))
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, "the output's folder is a file", str(folder))
    _check_access(folder, os.W_OK | os.X_OK, "no file may be made in the output's folder")


def _check_access(path: Path, access: int, refusal: str) -> None:
    if not os.access(path, access, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(EACCES, refusal, str(path))
