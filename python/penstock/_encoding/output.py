"""Where the result of an encode goes: a file, which may take the place of an old one in the end, or a Python object."""

from __future__ import annotations

import operator
import os
import re
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from errno import EEXIST
from io import FileIO, RawIOBase
from pathlib import Path
from typing import Any

from penstock._common.messages import plural
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._platform.descriptors import sync

# Size, offset and file name of a segment that is a part of a file, in an HLS playlist.
_PART = re.compile(r"^#EXT-X-BYTERANGE:(\d+)@(\d+)\n(?:#.*\n)*(.+)", re.MULTILINE)
# In a WebP: the bytes before its first chunk, the place of the flags in the chunk of a frame, and one of the flags.
_RIFF_HEADER_BYTES, _ANMF_FLAGS, _DO_NOT_BLEND = 12, 15, 2
# Chosen: with what is added, the name is short enough for every file system.
_KEPT_LETTERS = 60
# Chosen: nobody has so many, and the search for a free name ends.
_MOST_PARTS = 1000


class ReplacedError(Exception):
    """The new file did not take its place. The message says where it is."""


class Destination:
    """Where FFmpeg writes: a file, beside an old one if there is one, several files, a URL or a Python object.

    Attributes:
        url: FFmpeg's name of it.
        is_cut_short: FFmpeg finishes it although nobody has said that the frames are all: an old file stays.
    """

    def __init__(self, output: Output) -> None:
        self._output, self._begun_s = output, time.time()
        self._path = path = ordinary_path(output)
        self._file = file = None if path is None or output.is_several_files else OutputFile(path)
        self.url = f"file:{file.written}" if file is not None and file.is_beside else output.argument
        self._sink = None if output.sink is None else ObjectWriter(output.sink)
        self.is_cut_short = False
        if output.is_image_sequence:
            output.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def stdout(self) -> int | None:
        """The standard output of FFmpeg, as `FFmpegProcess` takes it."""
        if self._sink is not None:
            return subprocess.PIPE
        return None if endpoints.uses_stdout(self.url) else subprocess.DEVNULL

    @property
    def fifo(self) -> Path | None:
        """The FIFO that FFmpeg writes to; None if it writes to none."""
        output = self._output
        return output.path if endpoints.is_path(output.target) and output.path.is_fifo() else None

    @property
    def new_file(self) -> Path | None:
        """The one new file that FFmpeg writes under its own name; None if there is none."""
        return None if self._file is None or self._file.is_beside else self._path

    @property
    def warning(self) -> str | None:
        """Why an old file is overwritten in place; None if there is no old file, or it can be replaced."""
        return None if self._file is None else self._file.warning

    def start(self, process: FFmpegProcess) -> None:
        """Starts to read what FFmpeg writes for a Python object."""
        if self._sink is not None:
            process.our_ends.remove(process.stdout)  # it stays open until FFmpeg has written all
            self._sink.start(process.stdout)

    def wait(self, timeout_s: float) -> bool:
        """Waits, once FFmpeg has ended, until a Python object has everything. Returns whether it has."""
        return self._sink is None or self._sink.wait(timeout_s)

    @property
    def keeps_old_file(self) -> bool:
        """Whether the file is left beside an old one, although FFmpeg has finished it."""
        return self.is_cut_short and self._file is not None and self._file.is_beside

    @property
    def left_part(self) -> str | None:
        """Where an unfinished file was left beside its place, in words; None if it was not."""
        if self._file is None or self._file.written in (None, self._file.path):
            return None
        return f"FFmpeg's unfinished file is {self._file.written}"

    def whereabouts(self, frames: int) -> str:
        """Where the frames of a video are that was cut short, in a sentence."""
        written = f"{plural(frames, 'frame')} written before"
        if self._file is not None and self.keeps_old_file:
            verb = "is" if frames == 1 else "are"
            return f"{self._file.path} is still the old file. The {written} {verb} in {self._file.written}"
        return f"{self._output.name} has the {written}"

    @property
    def identity(self) -> endpoints.Identity | None:
        """Which file is there now; None if FFmpeg does not write one file."""
        is_one = endpoints.is_path(self._output.target) and not self._output.is_several_files
        return endpoints.identity(self.url) if is_one else None

    def put_in_place(self, process: FFmpegProcess, *, is_blended: bool) -> None:
        """Moves the new file, which is whole, over the old one.

        Args:
            is_blended: the frames of an animated WebP are marked for blending, although each is a whole picture.

        Raises:
            ReplacedError: that fails, or the new file is gone.
        """
        if is_blended and self._path is not None:
            with suppress(FileNotFoundError):  # the next lines tell that the file is gone
                disable_blending(endpoints.without_protocol(self.url))
        if self._file is not None and self.keeps_old_file:
            self._file.leave(is_finished=True)
        elif self._file is not None:
            self._file.take_place(is_expected=bool(process.output_bytes))

    def leave(self, process: FFmpegProcess) -> None:
        """Leaves what FFmpeg has written, unless that has taken its place. Removes it if no frame is in it."""
        if self._file is None:
            return
        # One that was killed may not have told of its last frames. Its exit status doesn't say so on Windows.
        if process.frames or not process.is_complete:
            self._file.leave(is_finished=process.has_succeeded)
        else:
            self._file.discard()

    def discard(self) -> None:
        """Removes what FFmpeg has written, unless that is in the place of a file that was there before."""
        if self._file is not None:
            self._file.discard()

    def lost(self, frames: int) -> list[str]:
        """What it lacks after so many frames, although FFmpeg may have succeeded, in sentences."""
        lost = lost_segments(self._output, self._begun_s) if frames else []
        if self._sink is not None and self._sink.failure is not None:
            lost.append(f"the output {self._output.name} failed: {self._sink.failure!r}")
        return lost

    def failed(self, process: FFmpegProcess, *, ignored: bool) -> list[str]:
        """The outputs of the muxer `tee` that failed, in sentences: those with ``onfail=ignore``, or the others."""
        failed = process.log.failed_outputs.items()
        named = [(endpoints.tee_output(self._output.target, number), why) for number, why in failed]
        return [
            f"the output {name!r} failed{why and ': '}{why}"
            for name, why in named
            if endpoints.ignores_failure(name) == ignored
        ]

    @property
    def name(self) -> str:
        """What a report calls it."""
        if self._sink is not None:
            return self._output.name
        return endpoints.without_protocol(self.url if self.keeps_old_file else self._output.target)

    @property
    def nbytes(self) -> int | None:
        """Its size; None if that is not known."""
        if self._sink is not None:
            return self._sink.nbytes
        return endpoints.file_bytes(self.url if self.keeps_old_file else self._output.target)


class OutputFile:
    """The one file that FFmpeg writes, and what becomes of it: see `take_place`, `leave` and `discard`.

    A new file has its final name from the start, so that FFmpeg finishes it there if Python is killed. If there is a
    file with content, it stays until the new one is whole, which is written beside it as ``out.part.mp4``
    (``out.part2.mp4`` if there is one of that name).

    Attributes:
        path: where the result belongs, without links.
        written: where FFmpeg writes it, and what it has written is in the end; None if nothing is left.
        warning: why an old file is overwritten in place; None if it is not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: Path | None = path
        self.warning: str | None = None
        self._is_new = self._is_settled = False
        self._replaced: os.stat_result | None = None
        try:
            status = path.stat()
        except FileNotFoundError:
            self._is_new = True
            return
        except OSError:  # FFmpeg reports it
            return
        if status.st_size:
            self._write_beside(status)

    @property
    def is_beside(self) -> bool:
        """Whether it is written beside an old file."""
        return self._replaced is not None

    def take_place(self, *, is_expected: bool) -> None:
        """Puts the file, which is whole, in its place.

        Args:
            is_expected: FFmpeg says that it has written something.

        Raises:
            ReplacedError: another program, or another encoder, has put something else there, or the system refuses it.
        """
        self._is_settled = True
        part = self.written
        assert part is not None, "nothing was left or removed before"
        if self._replaced is None:
            if is_expected and not part.exists():
                raise ReplacedError(f"{part} was removed or renamed while it was written")
            return
        try:
            if not os.path.samestat(self.path.stat(), self._replaced):
                raise ReplacedError(
                    f"{self.path} was replaced while the video was written. The new video is {part}"
                )
            # The bytes come before the name: after a power failure there is the old file or the new one, whole.
            sync(part)
            part.replace(self.path)
            self.written = self.path
            # The folder has the name.
            sync(self.path.parent)
        except OSError as error:
            raise ReplacedError(
                f"{self.path} couldn't be replaced ({error.strerror}). The new video is {part}"
            ) from error

    def leave(self, *, is_finished: bool) -> None:
        """Leaves what FFmpeg has written, which is not all that it was to be, and any old file as it was.

        A new file that FFmpeg has not finished gets the name ``out.part.mp4``. Does nothing after the first call.
        """
        if self._is_settled or self.written is None:
            return
        with suppress(OSError):  # then it stays where it is
            if not self.written.stat().st_size:
                self.discard()
            elif self._is_new and not is_finished:
                part = _make_beside(self.path)
                self.written = self.path.replace(part)
        self._is_settled = True

    def discard(self) -> None:
        """Removes what FFmpeg has written, unless that is in the place of a file that was there before."""
        if self._is_settled or self.written is None:
            return
        self._is_settled = True
        if self._is_new or self.is_beside:
            with suppress(OSError):
                self.written.unlink(missing_ok=True)
            self.written = None

    def _write_beside(self, status: os.stat_result) -> None:
        """Prepares to write beside the file with that status. If that is not possible, it is overwritten in place."""
        reason = "it has several hard links" if status.st_nlink > 1 else None
        if _is_mounted(self.path):
            reason = "it is mounted"
        if reason is None:
            try:
                self.written = _make_like(self.path, status)
                self._replaced = status
                return
            except OSError as error:
                reason = f"no file can be created beside it ({error.strerror})"
        lost = "The old content is lost even if the encode fails"
        self.warning = f"{self.path} is overwritten in place, because {reason}. {lost}"


def _make_beside(path: Path) -> Path:
    """Makes an empty file beside `path`, of a name that is free and says that it is a part."""
    ending = endpoints.ending_of(path.name)
    stem = path.name.removesuffix(ending)[:_KEPT_LETTERS]
    for number in ("", *map(str, range(2, _MOST_PARTS))):
        part = path.with_name(f"{stem}.part{number}{ending}")
        with suppress(FileExistsError):
            # For nobody else to read until it has the mode of the old file.
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return part
    raise FileExistsError(EEXIST, "there are too many unfinished files", str(path))


def _make_like(path: Path, status: os.stat_result) -> Path:
    """Makes an empty file beside `path`, with the owner and mode of its status."""
    part = _make_beside(path)
    try:
        # The owner before the mode: chown(2) clears the set-user-ID and set-group-ID bits.
        own = part.stat()
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.chown(part, status.st_uid, status.st_gid)
        shutil.copystat(path, part)
    except BaseException:
        part.unlink()
        raise
    return part


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
    if not endpoints.is_path(output.target) or not (endings := output.facts.segment_endings):
        return []
    playlist = output.path
    segments = [one for one in playlist.parent.iterdir() if one.suffix in endings and one != playlist]
    sizes = {one: one.stat().st_size for one in segments if one.stat().st_mtime >= since_s}
    is_there = playlist.is_file()  # to read a FIFO would wait
    listed = playlist.read_text(errors="replace") if is_there else ""
    is_empty = is_there and not listed
    empty = [playlist.name] * is_empty + sorted(one.name for one, size in sizes.items() if not size)
    parts = {playlist.parent / one[3]: int(one[1]) + int(one[2]) for one in _PART.finditer(listed)}
    cut = [one.name for one, end in parts.items() if sizes.get(one, end) < end]
    return [
        f"these files are {what}: {', '.join(names)}. Check whether the disk is full"
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


# What a pipe holds at most by default: pipe(7).
_READ_BYTES = 64 << 10


class ObjectWriter:
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
                raise OSError(f"write() must return how many of the {len(data)} bytes it took, not {taken!r}")
            data = data[count:]
