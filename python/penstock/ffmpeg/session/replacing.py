"""A file that is there already keeps its content until the new one is whole: FFmpeg writes beside it."""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from penstock.ffmpeg.plan import endpoints

# Containers that are several files, whose names follow from the output's, by FFmpeg's names and their usual endings.
_SEVERAL_FILES = (
    *("dash", "hds", "hls", "segment", "smoothstreaming", "ssegment", "stream_segment", "tee"),
    *("webm_chunk", "webm_dash_manifest"),
)
_SEVERAL_FILES_ENDINGS = (".m3u8", ".mpd")
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
        name = f".{path.stem[:_KEPT_LETTERS]}.{os.urandom(4).hex()}.part{path.suffix}"
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
                raise ReplacedError(f"{self._path} was replaced meanwhile: the new video is {part}")
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


def replacement_of(target: str, container_format: str | None) -> tuple[Replacement | None, str | None]:
    """A new file in place of what is at `target`, if that is an ordinary file with content.

    Otherwise None, and why that has to be overwritten in place, if it is such a file.
    """
    if not endpoints.is_path(target) or is_several_files(target, container_format):
        return None, None
    try:
        path = Path(os.path.realpath(endpoints.without_protocol(target)))
        status = path.stat()
    except OSError:  # it is not there; or a file:// URL names links that lead in a circle
        return None, None
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None, None
    reason = "it has several hard links" if status.st_nlink > 1 else None
    if _is_mounted(path):
        reason = "it is mounted"
    if reason is None:
        try:
            return Replacement(path, status), None
        except OSError as error:
            reason = f"no such file can be made beside it: {error.strerror}"
    return None, f"{path} is overwritten in place ({reason}): what it was is lost even if the encode fails"


def is_several_files(target: str, container_format: str | None) -> bool:
    """Whether an output in this container, or with this name, may be more than one file."""
    return endpoints.is_numbered(target) or endpoints.is_container(
        target, container_format, _SEVERAL_FILES, _SEVERAL_FILES_ENDINGS
    )


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
