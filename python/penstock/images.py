"""Image files as frames: find the files that a name stands for, and read them. FFmpeg does the decoding.

```python
with ImageReader(find_images(["shots"])) as images:
    frame = bytearray(images.frame_bytes)
    while images.readinto(frame):
        show(frame, images.size)
```
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from errno import ENOENT
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from penstock._ffmpeg.command.endpoints import has_number, split_pattern
from penstock._ffmpeg.command.settings import DEFAULT_DECODER_SETTINGS
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._ffmpeg.program.child import NotStartedError, TimedOutError, run
from penstock._ffmpeg.program.messages import without_components
from penstock._media.decode_session import DecodeSession
from penstock._messages import show_name
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    from _typeshed import StrPath, WriteableBuffer

__all__ = ["ImageReader", "find_images"]

#: Suffixes of the images that can be read, as FFmpeg's image2 demuxer knows them. Left out are scene-linear (exr, hdr)
#: and log (dpx) formats: FFmpeg would treat them as display-referred.
SUFFIXES = (
    *(".bmp", ".jp2", ".jpeg", ".jpg", ".jxl", ".pam", ".pbm", ".pgm", ".png"),
    *(".pnm", ".ppm", ".qoi", ".sgi", ".tga", ".tif", ".tiff", ".webp"),
)
# Magic numbers of formats whose files often have another format's suffix. FFmpeg would trust the suffix.
_MAGICS = (
    (rb"\x89PNG\r\n\x1a\n", ".png"),
    (rb"\xff\xd8\xff", ".jpg"),
    (rb"RIFF....WEBP", ".webp"),
    (rb"II\*\x00|MM\x00\*", ".tif"),
)
# With ``-err_detect explode``, FFmpeg's TIFF decoder would fail at unknown tags, which most files have. So damage shows
# only in its messages, which is why the FFmpeg program reads images, and not libav.
_TIFF = (".tif", ".tiff")


def has_image_name(path: StrPath) -> bool:
    """Whether the name ends in the suffix of an image that can be read."""
    return Path(path).suffix.lower() in SUFFIXES


def is_pattern(path: StrPath) -> bool:
    """Whether the path is a glob, or has a number such as ``%05d``."""
    return glob.has_magic(str(path)) or has_number(path)


def find_images(names: Iterable[StrPath]) -> list[Path]:
    """Return the image files that the names stand for.

    A name is a file, a folder, a glob, or a pattern with one number (``%04d``). The files of one name are sorted by the
    numbers in their names: 9 comes before 10. A pattern begins with the lowest number that there is, and must have no
    gap: as a rule the frame of a missing number was lost, and all later ones would come too early.

    Raises:
        FileNotFoundError: a name stands for no file, or a number is missing.
        ValueError: a file does not have the name of an image, or a pattern has more than one number.
        OSError: a folder or a file cannot be read.
    """
    found = [path for name in names for path in _files_of(Path(name))]
    for path in found:
        if not has_image_name(path):
            known = " ".join(suffix[1:] for suffix in SUFFIXES)
            raise ValueError(
                f"{show_name(path)}: not an image by its name, which would end in one of: {known}"
            )
    return found


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        images = [entry for entry in path.iterdir() if has_image_name(entry) and entry.name[0] != "."]
        return _sorted(images, path, "there is no image in this folder")
    if path.exists() or not is_pattern(path):
        path.stat()
        return [path]
    if has_number(path):
        return _numbered(path)
    # Not Path.glob, which wants folder and pattern separately.
    matches = [Path(each) for each in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    return _sorted([match for match in matches if match.is_file()], path, "no file matches")


def _sorted(paths: Sequence[Path], name: Path, if_none: str) -> list[Path]:
    if not paths:
        raise FileNotFoundError(ENOENT, if_none, str(name))
    return sorted(paths, key=_by_numbers)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """A key that compares numbers by value. Text comes after numbers, as letters come after digits."""
    parts = re.split(r"([0-9]+)", str(path))
    return [(int(part), part) if number % 2 else (-1, part) for number, part in enumerate(parts)]


def _numbered(pattern: Path) -> list[Path]:
    before, digits, after = split_pattern(pattern)

    def numbered(number: int) -> Path:
        return pattern.with_name(f"{before}{str(number).zfill(int(digits or 0))}{after}")

    names = {entry.name for entry in pattern.parent.iterdir()}
    matches = (re.fullmatch(f"{re.escape(before)}([0-9]+){re.escape(after)}", name) for name in names)
    numbers = sorted({int(match[1]) for match in matches if match})
    paths = [numbered(number) for number in numbers if numbered(number).name in names]
    for number, path in enumerate(paths, numbers[0] if numbers else 0):
        if path != numbered(number):
            why = f"missing, while {path.name} is there; name the folder, or a glob, to take what there is"
            raise FileNotFoundError(ENOENT, why, str(numbered(number)))
    return _sorted(paths, pattern, "no file matches")


class ImageReader:
    """Reads image files as frames of rgb24: height × width × 3 bytes each. A context manager: leaving it ends FFmpeg.

    All images must have one size. Transparency is dropped. Orientation tags are ignored.

    Args:
        paths: the image files, at least one.
        ffmpeg: the program; None finds one (see `penstock.video.find_ffmpeg`).

    Attributes:
        size: width and height of each image, in pixels.
        frame_bytes: bytes of each frame.
        pixel_format: ``"rgb24"``, the layout of the samples of each frame.

    Raises:
        ValueError: there are no paths.
        TypeError: ``paths`` is a single path.
        OSError: a file cannot be read.
        DecoderError: the first image cannot be decoded, or FFmpeg is missing.
        StalledError: FFmpeg was not done with the first image within 60 s.
    """

    pixel_format = "rgb24"

    def __init__(self, paths: Sequence[StrPath], ffmpeg: StrPath | None = None) -> None:
        if isinstance(paths, str | os.PathLike):
            raise TypeError(f"paths is a single path: pass find_images([{str(paths)!r}])")
        if not paths:
            raise ValueError("paths is empty: there is no image to read")
        self._paths = [Path(path) for path in paths]
        self._kinds = [_kind(path) for path in self._paths]
        self._program = find_decoding_ffmpeg(ffmpeg)
        self._frames_read = 0
        self._session: DecodeSession | None = None
        # FFmpeg reads a sequence of files only by a number in their names. Links in this folder have one.
        self._links = TemporaryDirectory(prefix="penstock-images-")
        try:
            for index in range(len(self._paths)):
                self._link(index, self._links.name)
            self.size, _ = self._decode(0)
        except BaseException:
            self.close()
            raise
        self.frame_bytes = 3 * self.size[0] * self.size[1]

    def readinto(self, frame: WriteableBuffer) -> int:
        """Read the next image into `frame`, a writable buffer of `frame_bytes` bytes.

        Returns:
            `frame_bytes`; 0 after the last image.

        Raises:
            DecoderError: the image cannot be decoded, or has another size than the first.
            StalledError: FFmpeg gave no sign of life for 60 s.
            ValueError: `frame` has another number of bytes.
        """
        if self._frames_read == len(self._paths):
            return 0
        with memoryview(frame) as view, view.cast("B") as flat:
            if flat.nbytes != self.frame_bytes:
                raise ValueError(f"frame has {flat.nbytes} bytes, and an image has {self.frame_bytes}")
            flat[:] = self._next()
        self._frames_read += 1
        if self._kinds[self._frames_read : self._frames_read + 1] != [self._kinds[self._frames_read - 1]]:
            self._check_end()
            self._end_session()  # the next image needs another decoder, or there is none
        return self.frame_bytes

    def __len__(self) -> int:
        """The number of images."""
        return len(self._paths)

    def close(self) -> None:
        """End FFmpeg. May be called again."""
        self._end_session()
        self._links.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session: DecodeSession | None = getattr(self, "_session", None)
        if session is not None:
            session.end_collected()

    def _link(self, index: int, folder: str) -> None:
        Path(folder, f"{index:09}{self._kinds[index]}").symlink_to(self._paths[index].absolute())

    def _next(self) -> memoryview | bytes:
        """The pixels of the next image."""
        if self._session is None:
            self._session = self._start_session()
        with suppress(DecoderError):
            if (frame := self._session.read()) is not None:
                return memoryview(frame).cast("B")
        # FFmpeg reads ahead: this image may be the bad one, or a later one.
        self._end_session()
        return self._decode_alone(self._frames_read)

    def _start_session(self) -> DecodeSession:
        self._first = self._frames_read
        width, height = self.size
        # FFmpeg would scale an image of another size. This crops it to nothing, which is an error.
        only_this_size = f"crop=w=iw*eq(iw\\,{width})*eq(ih\\,{height}):h=ih:exact=1"
        encoding = ("-vf", only_this_size, "-c:v", "rawvideo", "-f", "rawvideo", "pipe:1")
        session = DecodeSession(
            self._program,
            [*self._arguments(self._frames_read, self._links.name), *encoding],
            path=self._links.name,
            title=f"<ImageReader of {len(self)} images>",
            settings=DEFAULT_DECODER_SETTINGS,
            frame_bytes=self.frame_bytes,
            is_strict=True,
        )
        session.start()
        return session

    def _arguments(self, index: int, folder: str) -> list[str]:
        """FFmpeg's arguments for the images from `index` on, up to one of another kind or the end."""
        kind = self._kinds[index]
        pattern = f"{_escaped(folder)}/%09d{_escaped(kind)}"
        strict = () if kind in _TIFF else ("-err_detect", "explode")
        return [
            *("-noautorotate", *strict, "-f", "image2", "-start_number", str(index)),
            *("-i", pattern, "-map", "0:v:0"),
            *("-pix_fmt", self.pixel_format, "-sws_flags", "bicubic+accurate_rnd+full_chroma_int"),
        ]

    def _check_end(self) -> None:
        """Raises if FFmpeg complained about the TIFF images before, which it decodes even if they are damaged."""
        last = self._frames_read - 1
        if self._session is None or self._kinds[last] not in _TIFF:
            return
        try:
            self._session.read()
        except DecoderError:
            for index in range(self._first, last + 1):
                self._decode(index)
            raise

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _decode_alone(self, index: int) -> bytes:
        """The pixels of one image, which must have the size of the first."""
        size, pixels = self._decode(index)
        if size != self.size:
            raise DecoderError(
                f"{show_name(self._paths[index])}: {size[0]}x{size[1]} pixels, while {show_name(self._paths[0])} has "
                f"{self.size[0]}x{self.size[1]}; all images must have one size"
            )
        return pixels

    def _decode(self, index: int) -> tuple[tuple[int, int], bytes]:
        """Width, height and pixels of one image."""
        # In a folder of its own, because FFmpeg looks at the next images as well, and fails if one is damaged.
        with TemporaryDirectory(prefix="penstock-images-") as folder:
            self._link(index, folder)
            # A PPM begins with width and height: "P6\n64 48\n255\n".
            command = [
                *(self._program, "-hide_banner", "-nostats", "-loglevel", "error", "-xerror"),
                *(*self._arguments(index, folder), "-c:v", "ppm", "-f", "image2pipe", "pipe:1"),
            ]
            try:
                child = run(command, DEFAULT_DECODER_SETTINGS.stall_timeout, check=False)
            except NotStartedError as error:
                raise DecoderError(f"could not start FFmpeg: {error}", command=command) from error
            except TimedOutError as error:
                raise StalledError(f"{show_name(self._paths[index])}: {error}") from error
        output, stderr = bytes(child.stdout), child.stderr
        header = re.match(rb"P6\s(\d+)\s(\d+)\s255\s", output)
        if child.returncode != 0 or header is None or (stderr and self._kinds[index] in _TIFF):
            reason = without_components(stderr.partition("\n")[0]).replace(f"{folder}/", "").strip()
            raise DecoderError(
                f"{show_name(self._paths[index])}: this image cannot be decoded: {reason or 'it has no picture'}",
                returncode=child.returncode,
                command=command,
                stderr=stderr,
            )
        return (int(header[1]), int(header[2])), output[header.end() :]


def _kind(path: Path) -> str:
    """The suffix that fits the file's content; its own suffix if the content is of no known kind."""
    with path.open("rb") as file:
        begin = file.read(12)
    suffixes = (suffix for magic, suffix in _MAGICS if re.match(magic, begin, re.DOTALL))
    return next(suffixes, path.suffix.lower())


def _escaped(text: str) -> str:
    """Text in one of FFmpeg's patterns, where a % begins a number."""
    return text.replace("%", "%%")
