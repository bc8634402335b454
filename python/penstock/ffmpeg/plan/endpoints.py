"""What FFmpeg reads from and writes to: local paths, URLs and its standard output."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from errno import EACCES, EISDIR, ENOENT, ENOTDIR
from pathlib import Path
from typing import BinaryIO, NamedTuple

from penstock.ffmpeg.naming import argument

_FILE = "file:"
# The protocols that FFmpeg may open for a local path: no network. This is FFmpeg's default, made explicit.
_LOCAL_PROTOCOLS = "file,crypto,data"
#: FFmpeg's demuxers for files that lead to other files, or that are scripts.
PLAYLIST_CONTAINERS = frozenset(
    (
        *("applehttp", "avisynth", "concat", "dash", "dvdvideo", "hls", "imf", "rtp", "rtsp", "sap", "sdp"),
        *("vapoursynth", "vobsub", "webm_dash_manifest"),
    )
)
#: FFmpeg's names of two demuxers.
QUICKTIME, MATROSKA = "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"
_STDOUT = "pipe:1"
# Of a file that is several segments: size and beginning of one, and the file's name.
_PART = re.compile(r"^#EXT-X-BYTERANGE:(\d+)@(\d+)\n(?:#.*\n)*(.+)", re.MULTILINE)
_SEGMENT_ENDINGS = (".aac", ".m4s", ".mp4", ".ts", ".webm")
# Linux follows no more links than these (path_resolution(7)).
_MOST_LINKS = 40
# One output of the muxer `tee`, as FFmpeg's av_get_token cuts them: a backslash or single quotes protect a "|".
_TEE_OUTPUT = re.compile(r"((?:\\.|'[^']*'|[^|])*)(?:\||$)", re.DOTALL)
_NUMBER = re.compile(r"%\d*d")
_IGNORES_FAILURE = re.compile(r"\s*\[([^\]]*:)?onfail=(?i:ignore)[:\]]")
# One scheme or several, as in "zmq:tcp://127.0.0.1:5555".
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*:)+//", re.IGNORECASE)
# The default container of each protocol: FFmpeg guesses a container from a file's extension, which a stream lacks.
# RTMP carries nothing but FLV (Adobe's specification, 6.1).
_LIVE_CONTAINERS = {
    **dict.fromkeys(("rtmp", "rtmps", "rtmpt", "rtmpts", "rtmpe", "rtmpte"), "flv"),
    **dict.fromkeys(("udp", "tcp", "srt", "rist"), "mpegts"),
    "rtsp": "rtsp",
}


def target(output: str | os.PathLike[str], container_format: str | None = None) -> str:
    """FFmpeg's name for an output: a URL unchanged, or a path after ``file:``, which makes FFmpeg take it literally.

    A `str` is a URL if it begins with a scheme and ``//``, and FFmpeg's standard output if it is ``-``, ``pipe:`` or
    ``pipe:1``, or a path to this process's standard output (``/dev/stdout``). Anything else is a path, whatever its
    characters. For the container ``tee``, `output` is a list of
    outputs and stays unchanged.

    Raises:
        FileNotFoundError: the path's folder does not exist.
        NotADirectoryError: the path's folder is a file.
        IsADirectoryError: the path is a folder.
        PermissionError: the file, or the folder of a new file, is not writable.
        ValueError: it is a pipe that FFmpeg does not get.
        TypeError: it is neither a `str` nor a path.
    """
    _check_type("an output", output, f"an Encoder for each, or {argument('options.f', 'tee')}")
    if isinstance(output, str):
        if output == "-" or re.fullmatch(r"pipe:\d*", output):
            return _pipe(output)
        if _URL.match(output) or (container_format == "tee" and not output.startswith("-")):
            return output
    path = Path(output).absolute()
    if (number := own_descriptor(path)) is not None:
        return _pipe(f"pipe:{number}")
    # Path removes a slash at the end.
    _check_writable(path, named_as_folder=os.fspath(output).endswith("/"))
    return f"{_FILE}{path}"


# Whose header FFmpeg completes at the end of a file. In a pipe it leaves it as it is, and nothing reads the result.
_COMPLETED_LATER = ("aiff", "mxf_opatom", "w64", "wtv")
_COMPLETED_LATER_ENDINGS = (".aif", ".aifc", ".aiff", ".w64", ".wtv")
# Containers that FFmpeg writes to a pipe in vain.
_NOT_STREAMED = ("apng", "avif", "dash", "hls", "image2", "segment", "smoothstreaming", "tee", "webp")


def target_or_sink(
    output: str | os.PathLike[str] | BinaryIO, container_format: str | None
) -> tuple[str, BinaryIO | None]:
    """`target`; or FFmpeg's standard output, and the binary object to which it is to go.

    Raises:
        TypeError: the object is for text.
        ValueError: the container has several files, or goes back; or as for `target`.
        OSError: as for `target`.
    """
    if isinstance(output, str | os.PathLike) or not callable(getattr(output, "write", None)):
        return target(output, container_format), None  # type: ignore[arg-type]
    if isinstance(output, io.TextIOBase):
        raise TypeError(f"the output takes text, and a video is bytes: open it as 'wb'; got {output!r}")
    if container_format in _NOT_STREAMED:
        raise ValueError(
            f"{argument('options.f', container_format)} has several files, or goes back in one; an object cannot: "
            "take matroska, webm, mpegts, or mp4 with movflags=frag_keyframe+empty_moov"
        )
    return _STDOUT, output


def source(path_or_url: str | os.PathLike[str]) -> str:
    """FFmpeg's name for an input: a URL unchanged, or a path after ``file:``, which makes FFmpeg take it literally.

    A `str` is a URL if it begins with a scheme and ``//``. Anything else is a path, whatever its characters: ``-`` is
    a file of that name.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: it is a folder.
        PermissionError: it is not readable.
        OSError: the system cannot resolve the path for another reason, such as a loop of symbolic links.
        TypeError: it is neither a `str` nor a path.
    """
    _check_type("an input", path_or_url, "a Decoder (or probe) for each file")
    if isinstance(path_or_url, str) and _URL.match(path_or_url):
        return path_or_url
    path = os.fspath(path_or_url)
    # Not through Path, which would make the file clip.mp4 of "clip.mp4/", for which the system raises an error.
    if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    _check_access(Path(path), os.R_OK, os.strerror(EACCES))
    return f"{_FILE}{Path(path).absolute()}"


def is_path(target: str) -> bool:
    """Whether `target` is a local path, and not a URL or a pipe."""
    return target.startswith(_FILE)


def is_same_file(source: str, target: str) -> bool:
    """Whether both are paths of one file that exists."""
    paths = [Path(without_protocol(name)) for name in (source, target) if is_path(name)]
    return len(paths) == 2 and paths[1].exists() and paths[0].samefile(paths[1])


def without_protocol(target: str) -> str:
    """The path of a local `target`, or a URL unchanged."""
    return target.removeprefix(_FILE)


class Identity(NamedTuple):
    """What changes if another file, or other content, comes to be at a path."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def identity(target: str) -> Identity | None:
    """The identity of the file at `target`; None if it is not a regular file."""
    with suppress(OSError):
        status = Path(without_protocol(target)).stat()
        if stat.S_ISREG(status.st_mode):
            return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return None


def is_sequential(target: str) -> bool:
    """Whether `target` is a path to what is no regular file, such as a pipe."""
    return is_path(target) and identity(target) is None


def file_bytes(target: str) -> int | None:
    """The size in bytes of the file at `target`; None if it is not a regular file."""
    path = Path(without_protocol(target))
    return path.stat().st_size if path.is_file() else None


def tee_output(target: str, number: int) -> str:
    """The output of that `number` in `target`, a list of outputs for the container ``tee``, with its options."""
    outputs: list[str] = _TEE_OUTPUT.findall(target)
    return outputs[number] if number < len(outputs) else target


def ignores_failure(output: str) -> bool:
    """Whether an output of ``tee`` has the option ``onfail=ignore``."""
    return _IGNORES_FAILURE.match(output) is not None


def uses_stdout(target: str) -> bool:
    """Whether `target` is FFmpeg's standard output."""
    return target == _STDOUT


def container_for(target: str, container_format: str | None) -> str | None:
    """The container for `target`: `container_format`, or the default of its protocol; None if FFmpeg is to guess.

    Raises:
        ValueError: nothing tells the container, or it cannot be written to a pipe.
    """
    if is_container(target, container_format, _COMPLETED_LATER, _COMPLETED_LATER_ENDINGS) and (
        uses_stdout(target) or Path(without_protocol(target)).is_fifo()
    ):
        raise ValueError(
            f"{container_format or target.rpartition('.')[2]} has a header that is completed at the end, which FFmpeg "
            "cannot do in a pipe or an object: write a file, or take wav, au, flac or matroska"
        )
    if container_format is not None:
        return container_format
    if uses_stdout(target):
        raise ValueError(
            f"a pipe has no name to tell its container: give {argument('options.f')}, such as matroska, mpegts, nut or "
            "rawvideo"
        )
    return _LIVE_CONTAINERS.get(target.partition("://")[0].lower())


def is_numbered(target: str) -> bool:
    """Whether the path has a number such as ``%05d``, which stands for that of a picture or a segment."""
    return _NUMBER.search(target) is not None


def is_container(
    target: str, container_format: str | None, formats: tuple[str, ...], endings: tuple[str, ...]
) -> bool:
    """Whether the container of `target` is one of `formats`, by its name; or else by the ending of the target's."""
    return container_format in formats if container_format else target.lower().endswith(endings)


def lost_segments(target: str, container_format: str | None, since_s: float) -> list[str]:
    """What an HLS or DASH output lacks, in sentences: FFmpeg succeeds although the disk is full.

    Args:
        since_s: when the output was begun, in seconds since 1970. Older files beside the playlist are left out.
    """
    if not is_path(target) or not is_container(target, container_format, ("dash", "hls"), (".m3u8", ".mpd")):
        return []
    playlist = Path(without_protocol(target))
    segments = [
        one for one in playlist.parent.iterdir() if one.suffix in _SEGMENT_ENDINGS and one != playlist
    ]
    sizes = {one: one.stat().st_size for one in segments if one.stat().st_mtime >= since_s}
    is_there = playlist.is_file()  # to read a FIFO would wait
    listed = playlist.read_text(errors="replace") if is_there else ""
    is_empty = is_there and not listed
    empty = [playlist.name] * is_empty + sorted(one.name for one, size in sizes.items() if not size)
    parts = {playlist.parent / one[3]: int(one[1]) + int(one[2]) for one in _PART.finditer(listed)}
    cut = [one.name for one, end in parts.items() if sizes.get(one, end) < end]
    return [
        f"these files are {what}: {', '.join(names)}; is the disk full?"
        for what, names in (("empty", empty), ("shorter than the playlist says", cut))
        if names
    ]


def confining_arguments(source: str, containers: Iterable[str]) -> list[str]:
    """FFmpeg's arguments by which it opens only `source`, if that is a path, and only `containers` (empty for any)."""
    if not is_path(source):
        return []
    allowed = ",".join(containers)
    whitelist = ["-format_whitelist", allowed] if allowed else []
    return ["-protocol_whitelist", _LOCAL_PROTOCOLS, *whitelist]


def literal_arguments(source: str) -> list[str]:
    """FFmpeg's arguments to take the path of a picture literally, and not for a pattern: ``shot%03d.png``."""
    return ["-pattern_type", "none"] if is_path(source) else []


def _check_type(what: str, given: object, instead: str) -> None:
    """Checks that `given` is a path or a URL. For several of them, the error says what to use `instead`."""
    if isinstance(given, str) or (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str)):
        return
    remedy = ""
    if isinstance(given, list | tuple | set | frozenset):
        remedy = f": use {instead}"
    elif isinstance(given, bytes):
        remedy = ": pass os.fsdecode(path)"
    elif hasattr(given, "read") or hasattr(given, "write"):
        remedy = ": pass the path of the file"
    kind = type(given).__name__
    raise TypeError(f"{what} is one path or URL, a str or a pathlib.Path; got {kind}{remedy}")


def own_descriptor(path: Path) -> str | None:
    """The number of this process's descriptor that a path means, such as ``/dev/stdout``; None if it means none.

    In FFmpeg, such a path would mean FFmpeg's own.
    """
    folders = {Path("/proc/self/fd").resolve(), Path("/proc/thread-self/fd").resolve()}
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and Path(os.path.realpath(path.parent)) in folders:
            return path.name
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _pipe(output: str) -> str:
    if output in ("-", "pipe:", _STDOUT):
        return _STDOUT
    raise ValueError(
        f"FFmpeg gets none of our descriptors but standard output, pipe:1; got {output!r}. "
        f"A file of that name is Path({output!r})"
    )


def _check_writable(path: Path, *, named_as_folder: bool) -> None:
    """Raises what opening `path` for writing would raise, as far as that is known without creating anything."""
    if path.is_dir() or named_as_folder:
        raise IsADirectoryError(EISDIR, "the output is a folder, and not a file in one", str(path))
    with suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # fails for a loop of links
        _check_access(path, os.W_OK, "the output may not be written to")
        return
    # For a symbolic link to a file that does not exist, this is the folder in which FFmpeg creates it.
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.exists():
        raise FileNotFoundError(ENOENT, "the output's folder does not exist", str(folder))
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, "the output's folder is a file", str(folder))
    _check_access(folder, os.W_OK | os.X_OK, "no file may be made in the output's folder")


def _check_access(path: Path, access: int, refusal: str) -> None:
    if not os.access(path, access, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(EACCES, refusal, str(path))
