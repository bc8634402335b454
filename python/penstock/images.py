"""Image sequences: which files they are, and their pixels, which an FFmpeg of its own decodes."""

from __future__ import annotations

import fcntl
import glob
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryDirectory
from typing import Self

import click

from penstock.cli.endpoints import FIFO_PREFIX, STANDARD, show_name

#: Ends of the names of images, as FFmpeg's image2 demuxer knows them. Not those that hold light (exr, hdr) or may hold
#: densities (dpx), which FFmpeg would take for the brightness that a screen shows.
SUFFIXES = (
    *(".bmp", ".jp2", ".jpeg", ".jpg", ".jxl", ".pam", ".pbm", ".pgm", ".png"),
    *(".pnm", ".ppm", ".qoi", ".sgi", ".tga", ".tif", ".tiff", ".webp"),
)
#: What files begin with that are often named as something else; by its name FFmpeg would take them for that.
MAGICS = (
    (rb"\x89PNG\r\n\x1a\n", ".png"),
    (rb"\xff\xd8\xff", ".jpg"),
    (rb"RIFF....WEBP", ".webp"),
    (rb"II\*\x00|MM\x00\*", ".tif"),
)
#: What their frames are made of.
PIXEL_FORMAT = "rgb24"
#: What a pipe may hold without a privilege, as a rule (pipe(7)): fewer turns between FFmpeg and us.
PIPE_BYTES = 1 << 20

#: Of the names of folders with links.
PREFIX = "penstock-images-"

#: A number in a name, and how many digits it has at least.
NUMBER = re.compile(r"%(?:0(\d+))?d")
#: In front of FFmpeg's complaints: which of its parts complains.
_COMPLAINERS = re.compile(r"(?:\[[^\[\]]+ @ 0x[0-9a-f]+\] ?)+")


class SourceError(click.ClickException):
    """The input fails, perhaps after some of its frames."""


def are_images(names: Sequence[str]) -> bool:
    """Whether the names of an input stand for images, and not for one stream of raw frames."""
    if len(names) != 1:
        return len(names) > 1
    [name] = names
    if name in ("", STANDARD) or name.startswith(FIFO_PREFIX):
        return False
    path = Path(name)
    mode = _mode(path)
    return has_image_name(path) or S_ISDIR(mode) or (_is_pattern(path) and not mode)


def has_image_name(path: Path) -> bool:
    """Whether its name ends as an image's does."""
    return path.suffix.lower() in SUFFIXES


def without_complainers(said: str) -> str:
    """FFmpeg's words without the names and addresses of its parts."""
    return _COMPLAINERS.sub("", said)


def find_images(names: Sequence[str]) -> list[Path]:
    """The images that the names stand for: files, folders, globs, and patterns with one number (``%04d``).

    Names are taken in the order given, and what one of them stands for by the numbers in it: 9 before 10.

    Raises:
        SourceError: there are none, one is missing, or one has not the name of an image.
    """
    found = [path for name in names for path in _meant_by(Path(name))]
    for path in found:
        if not has_image_name(path):
            known = " ".join(suffix[1:] for suffix in SUFFIXES)
            raise SourceError(f"{_title(path)}: not an image by its name, which would end in one of: {known}")
    return found


def _meant_by(path: Path) -> list[Path]:
    mode = _mode(path)
    if S_ISDIR(mode):
        with _told(path):
            images = [entry for entry in path.iterdir() if has_image_name(entry) and entry.name[0] != "."]
        return _in_order(images, path, "there is no image in this folder")
    if mode or not _is_pattern(path):
        with _told(path):
            path.stat()
        return [path]
    if NUMBER.search(path.name):
        return _numbered(path)
    # Path.glob wants the folder apart, which a pattern need not have.
    matches = [Path(each) for each in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    return _in_order([match for match in matches if match.is_file()], path, "no file matches")


def _mode(path: Path) -> int:
    """What is there, as stat(2) has it; 0 for nothing that can be looked at."""
    with suppress(OSError):
        return path.stat().st_mode
    return 0


def _is_pattern(path: Path) -> bool:
    return glob.has_magic(str(path)) or NUMBER.search(path.name) is not None


def _in_order(paths: Sequence[Path], meant_by: Path, complaint: str) -> list[Path]:
    if not paths:
        raise SourceError(f"{_title(meant_by)}: {complaint}")
    return sorted(paths, key=_by_numbers)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """A key by which numbers count as such; text comes after them, as letters come after digits."""
    parts = re.split(r"([0-9]+)", str(path))
    return [(int(part), part) if number % 2 else (-1, part) for number, part in enumerate(parts)]


def _numbered(pattern: Path) -> list[Path]:
    """The files of a pattern such as ``%04d.png``, from the lowest number on, whatever that is.

    A number that is missing is an error: as a rule its frame was lost, and all that follow would come too early.
    """
    parts = NUMBER.split(pattern.name)
    if len(parts) != 3:
        raise SourceError(f"{_title(pattern)}: a pattern has one number, such as %d or %04d")
    before, digits, after = parts

    def numbered(number: int) -> Path:
        return pattern.with_name(f"{before}{str(number).zfill(int(digits or 0))}{after}")

    with _told(pattern.parent):
        names = {entry.name for entry in pattern.parent.iterdir()}
    matches = (re.fullmatch(f"{re.escape(before)}([0-9]+){re.escape(after)}", name) for name in names)
    numbers = sorted({int(match[1]) for match in matches if match})
    paths = [numbered(number) for number in numbers if numbered(number).name in names]
    if not paths:
        raise SourceError(f"{_title(pattern)}: no file matches")
    for number, path in enumerate(paths, numbers[0]):
        if path != numbered(number):
            raise SourceError(
                f"{_title(numbered(number))}: missing, while {path.name} is there; "
                "name the folder, or a glob, to take what there is"
            )
    return paths


class Images:
    """The frames of image files, which must have one size. A context: leaving it ends FFmpeg.

    Args:
        paths: the images, at least one.
        program: FFmpeg, which decodes them.

    Attributes:
        size: width and height of each, in pixels.

    Raises:
        SourceError: one cannot be read, or the first cannot be decoded.
    """

    def __init__(self, paths: Sequence[Path], program: str) -> None:
        self._paths = paths
        self._kinds = [_kind(path) for path in paths]
        self._program = str(Path(program).absolute())
        self._given = 0
        self._decoder: subprocess.Popen[bytes] | None = None
        # FFmpeg takes many images by a number in their names only. There the links to them have one.
        self._folder = TemporaryDirectory(prefix=PREFIX)
        try:
            for index in range(len(paths)):
                self._link(index, self._folder.name)
            self.size, _ = self._decoded(0)
        except BaseException:
            self.close()
            raise

    @property
    def title(self) -> str:
        """For people."""
        return f"{len(self._paths)} images"

    @property
    def total_frames(self) -> int | None:
        """How many there are."""
        return len(self._paths)

    def fill(self, frame: memoryview) -> int:
        """Puts the next image into `frame`, of its size in bytes. Returns that size, or 0 after the last image.

        Raises:
            SourceError: the image cannot be decoded, or has another size than the first.
        """
        if self._given == len(self._paths):
            return 0
        if self._decoder is None:
            self._decoder = self._start()
        assert self._decoder.stdout is not None
        if self._decoder.stdout.readinto(frame) < frame.nbytes:  # type: ignore[attr-defined]
            # FFmpeg reads ahead: what it fails of may be this image, or one behind it.
            self._end_decoder()
            frame[:] = self._alone(self._given)
        self._given += 1
        # An image of another kind is for another decoder.
        if self._kinds[self._given - 1 : self._given] != self._kinds[self._given : self._given + 1]:
            self._end_decoder()
        return frame.nbytes

    def close(self) -> None:
        """Ends FFmpeg, wherever it is."""
        self._end_decoder()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _link(self, index: int, folder: str) -> None:
        Path(folder, f"{index:09}{self._kinds[index]}").symlink_to(self._paths[index].absolute())

    def _start(self) -> subprocess.Popen[bytes]:
        width, height = self.size
        # An image of another size must not be scaled in silence: it is cut to nothing, which FFmpeg refuses.
        only_this_size = f"crop=w=iw*eq(iw\\,{width})*eq(ih\\,{height}):h=ih:exact=1"
        decoder = subprocess.Popen(
            [
                *self._command(self._given),
                "-vf",
                only_this_size,
                "-c:v",
                "rawvideo",
                "-f",
                "rawvideo",
                "pipe:1",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what is wrong with an image is asked of that one alone
            cwd=self._folder.name,
            process_group=0,  # as the encoder's: Ctrl-C on the terminal is for us
        )
        assert decoder.stdout is not None
        with suppress(OSError):
            fcntl.fcntl(decoder.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return decoder

    def _command(self, index: int) -> list[str]:
        """FFmpeg's command for the images from `index` on, up to one of another kind, or the end."""
        return [
            *(self._program, "-hide_banner", "-nostats", "-loglevel", "error", "-xerror"),
            *("-noautorotate", "-err_detect", "explode", "-f", "image2", "-start_number", str(index)),
            *("-i", f"%09d{self._kinds[index]}", "-map", "0:v:0"),
            *("-pix_fmt", PIXEL_FORMAT, "-sws_flags", "bicubic+accurate_rnd+full_chroma_int"),
        ]

    def _end_decoder(self) -> None:
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            with decoder:  # closes its output, and reaps it
                decoder.kill()

    def _alone(self, index: int) -> bytes:
        """The pixels of one image, which has the size of the first, or is an error."""
        size, pixels = self._decoded(index)
        if size != self.size:
            raise SourceError(
                f"{_title(self._paths[index])}: {_pixels(size)} pixels, "
                f"while {_title(self._paths[0])} has {_pixels(self.size)}; all images must have one size"
            )
        return pixels

    def _decoded(self, index: int) -> tuple[tuple[int, int], bytes]:
        """Width, height and pixels of one image.

        Raises:
            SourceError: it cannot be decoded.
        """
        # In a folder of its own, for FFmpeg looks at the images behind the one that it is asked for, and fails of them.
        with TemporaryDirectory(prefix=PREFIX) as folder:
            self._link(index, folder)
            decoding = subprocess.run(
                # A PPM begins with them: "P6\n64 48\n255\n".
                [*self._command(index), "-c:v", "ppm", "-f", "image2pipe", "pipe:1"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=folder,
                process_group=0,
                check=False,
            )
        header = re.match(rb"P6\s(\d+)\s(\d+)\s255\s", decoding.stdout)
        if decoding.returncode != 0 or header is None:
            said = decoding.stderr.decode(errors="replace").partition("\n")[0]
            reason = without_complainers(said).strip() or "it has no picture"
            raise SourceError(f"{_title(self._paths[index])}: this image cannot be decoded: {reason}")
        return (int(header[1]), int(header[2])), decoding.stdout[header.end() :]


def _kind(path: Path) -> str:
    """The end that an image's name should have, by what is in the file, or else the one that it has."""
    with _told(path), path.open("rb") as file:
        begin = file.read(12)
    suffixes = (suffix for magic, suffix in MAGICS if re.match(magic, begin, re.DOTALL))
    return next(suffixes, path.suffix.lower())


def _pixels(size: tuple[int, int]) -> str:
    return "x".join(map(str, size))


def _title(path: Path) -> str:
    return show_name(str(path))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns a failure of the system into one line for people."""
    try:
        yield
    except (OSError, ValueError) as error:  # the latter for a name with a zero byte
        raise SourceError(f"{_title(path)}: {getattr(error, 'strerror', None) or error}") from None
