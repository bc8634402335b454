"""Where the result of an encode goes: a file beside an old one, whose place it takes in the end, or a Python object."""

from __future__ import annotations

import operator
import os
import re
import shutil
import threading
from contextlib import suppress
from io import FileIO, RawIOBase
from pathlib import Path
from typing import Any

from penstock.ffmpeg.command import endpoints
from penstock.ffmpeg.command.endpoints import Output

# Size, offset and file name of a segment that is a part of a file, in an HLS playlist.
_PART = re.compile(r"^#EXT-X-BYTERANGE:(\d+)@(\d+)\n(?:#.*\n)*(.+)", re.MULTILINE)
_SEGMENT_ENDINGS = (".aac", ".m4s", ".mp4", ".ts", ".webm")
# Of a WebP: bytes before its first chunk, where the flags are in the chunk of a frame, and one of them.
_RIFF_HEADER_BYTES, _ANMF_FLAGS, _DO_NOT_BLEND = 12, 15, 2
# Chosen: with what is added, the name is short enough for every file system.
_KEPT_LETTERS = 40


class ReplacedError(Exception):
    """The new file did not take the place of the old one. The message has its path."""


class Replacement:
    """A new file beside an old one, whose place it takes in the end.

    Args:
        path: the old file, which is no link.
        status: its status.

    Attributes:
        url: what FFmpeg writes.

    Raises:
        OSError: there can be no file beside it with the same owner and mode.
    """

    def __init__(self, path: Path, status: os.stat_result) -> None:
        self._path, self._old = path, (status.st_dev, status.st_ino)
        name = f".{path.stem[:_KEPT_LETTERS]}.{os.urandom(4).hex()}.part{endpoints.ending_of(path.name)}"
        self._part: Path | None = path.with_name(name)
        os.close(os.open(self._part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self.url = f"file:{self._part}"
        try:
            own = self._part.stat()
            if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
                os.chown(self._part, status.st_uid, status.st_gid)
            shutil.copystat(path, self._part)
        except BaseException:
            self.discard()
            raise

    def take_place(self) -> None:
        """Puts the new file, which is whole, in the place of the old one.

        Raises:
            ReplacedError: another program has put something else there, or the system refuses it.
        """
        part = self._part
        assert part is not None, "it is done once"
        try:
            status = self._path.stat()
            if (status.st_dev, status.st_ino) != self._old:
                raise ReplacedError(f"{self._path} was replaced by another program: the new video is {part}")
            _sync(part)
            part.replace(self._path)
            self._part = None
            _sync(self._path.parent)
        except OSError as error:
            raise ReplacedError(
                f"{self._path} could not be replaced ({error.strerror}): the new video is {part}"
            ) from error
        finally:
            self._part = None

    def discard(self) -> None:
        """Removes the new file, unless it has taken its place."""
        if self._part is not None:
            with suppress(OSError):
                self._part.unlink()
            self._part = None


def ordinary_path(output: Output) -> Path | None:
    """The path of an output, without links, if it is an ordinary file or will be one."""
    if not endpoints.is_path(output.target):
        return None
    try:
        # Not Path.resolve, which treats a loop of links differently by version of Python. Here a link is left.
        path = Path(os.path.realpath(output.path))
        return None if path.is_symlink() or (path.exists() and not path.is_file()) else path
    except OSError:  # of a file:// URL, which is not checked at the start: FFmpeg reports it
        return None


def replacement_of(output: Output) -> tuple[Replacement | None, str | None]:
    """Returns a replacement for the file at `output`, if that is an ordinary file with content.

    If such a file cannot be replaced, returns None and a warning that it is overwritten in place.
    """
    path = None if output.is_several_files else ordinary_path(output)
    status = None
    with suppress(OSError):  # FFmpeg reports what is wrong with the path
        status = None if path is None else path.stat()
    if path is None or status is None or not status.st_size:
        return None, None
    reason = "it has several hard links" if status.st_nlink > 1 else None
    if _is_mounted(path):
        reason = "it is mounted"
    if reason is None:
        try:
            return Replacement(path, status), None
        except OSError as error:
            reason = f"no such file can be made beside it: {error.strerror}"
    return (
        None,
        f"{path} is overwritten in place ({reason}): the old content is lost even if the encode fails",
    )


def disable_blending(path: str) -> None:
    """Sets "do not blend" on each frame of a WebP: FFmpeg writes whole pictures, and blending shows with alpha.

    See "Animation" in https://developers.google.com/speed/webp/docs/riff_container for the chunks.
    """
    with Path(path).open("r+b") as file:
        at = _RIFF_HEADER_BYTES
        while file.seek(at) == at and len(head := file.read(8)) == 8:
            if head[:4] == b"ANMF":
                file.seek(at + 8 + _ANMF_FLAGS)
                flags = file.read(1)[0] | _DO_NOT_BLEND
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes((flags,)))
            nbytes = int.from_bytes(head[4:], "little")
            at += 8 + nbytes + nbytes % 2


def lost_segments(output: Output, since_s: float) -> list[str]:
    """What an HLS or DASH output lacks, in sentences: FFmpeg succeeds although the disk is full.

    Args:
        since_s: when the output was begun, in seconds since 1970. Older files beside the playlist are left out.
    """
    if not endpoints.is_path(output.target) or output.container not in ("dash", "hls"):
        return []
    playlist = output.path
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


def _is_mounted(path: Path) -> bool:
    """Whether the file itself is a mount point, which cannot be renamed (proc_pid_mountinfo(5))."""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), line.split(b" ")[4])
            if point == os.fsencode(path):
                return True
    return False


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# What a pipe holds at most by default: pipe(7).
_READ_BYTES = 64 << 10


class Sink:
    """Writes what FFmpeg puts out to a binary object, on a thread of its own. FFmpeg waits while ``write`` does.

    Attributes:
        failure: what ``write`` has raised; None if nothing. FFmpeg then finds its pipe closed.
        nbytes: how many bytes it has taken.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self.failure: BaseException | None = None
        self.nbytes = 0
        self._thread: threading.Thread | None = None

    def start(self, pipe: FileIO) -> None:
        """Starts to read `pipe`, which is closed at its end."""
        self._thread = threading.Thread(target=self._copy, args=(pipe,), name="penstock-sink", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end of the pipe. Returns whether it has come, and all has been written."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _copy(self, pipe: FileIO) -> None:
        with pipe:
            while data := pipe.read(_READ_BYTES):
                try:
                    self._write(data)
                except BaseException as failure:  # on this thread, nobody else hears of it
                    self.failure = failure
                    return
                self.nbytes += len(data)

    def _write(self, data: bytes) -> None:
        """Writes all of `data`: ``write`` of an unbuffered file may take a part, and returns its size."""
        while data:
            taken = self._target.write(data)
            if taken is None and not isinstance(self._target, RawIOBase):
                return
            try:
                count = 0 if isinstance(taken, bool) else operator.index(taken)
            except TypeError:
                count = 0
            if not 0 < count <= len(data):
                raise OSError(f"its write took {taken!r} of {len(data)} bytes")
            data = data[count:]
