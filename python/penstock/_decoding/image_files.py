"""The image files that a name stands for: a folder, a glob, a pattern with a number, a list."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from errno import EISDIR, ENOENT
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock._common.messages import plural, show_name
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import frame_rate
from penstock._ffmpeg.command.endpoints import has_number, split_pattern
from penstock._formats import images

if TYPE_CHECKING:
    from _typeshed import StrPath

    from penstock._facts.source import MediaSource

VideoSource: TypeAlias = "MediaSource | Sequence[StrPath] | ImageFiles"
"""What `MediaSource` has; or image files: a folder, a glob, a pattern with a number, a list."""

# FFmpeg's own for images.
_DEFAULT_FPS = 25


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Image files that a caller named as the source of a video.

    Attributes:
        path: what the caller gave, for messages.
        paths: the files, in their order.
        rate: pictures per second.
    """

    path: str
    paths: tuple[Path, ...]
    rate: Fraction

    @classmethod
    def of(cls, given: object, fps: float | Fraction | None) -> ImageFiles | None:
        """The files that the source of a `Decoder` stands for; None if it is no sequence of images.

        Raises:
            TypeError: it is a list of something else than images.
            ValueError: `fps` is not possible.
            OSError: as `find_images`.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, list | tuple):
            if not all(isinstance(one, str | os.PathLike) and _stands_for_images(one) for one in given):
                raise TypeError("a list must have image files only. Use a Decoder (or probe) for each file")
            names, path = given, f"<{plural(len(given), 'image')}>"
        elif isinstance(given, str | os.PathLike) and not endpoints.is_url(given) and is_sequence(given):
            names, path = [given], os.fspath(given)
        else:
            return None
        return cls(path, tuple(find_images(names)), frame_rate(_DEFAULT_FPS if fps is None else fps))


def _stands_for_images(name: StrPath) -> bool:
    return has_image_name(name) or is_sequence(name)


def has_image_name(path: StrPath) -> bool:
    """Whether the name ends in the suffix of an image that can be read."""
    return images.known(Path(path).suffix.lower()).is_read


def is_pattern(path: StrPath) -> bool:
    """Whether the path is a glob, or has a number such as ``%05d``."""
    return glob.has_magic(str(path)) or has_number(path)


def is_sequence(path: StrPath) -> bool:
    """Whether the path stands for image files: it is a folder, or a glob or pattern, and no file of that name."""
    # "" would be the current folder.
    return os.fspath(path) != "" and (Path(path).is_dir() or (is_pattern(path) and not Path(path).exists()))


def find_images(names: Iterable[StrPath]) -> list[Path]:
    """Returns the image files that the names stand for.

    A name is a file, a folder, a glob, or a pattern with one number (``%04d``). The files of one name are sorted by the
    numbers in their names: 9 comes before 10. A pattern begins with the lowest number that there is, and must have no
    gap: the frame of a missing number was probably lost, and all later ones would come too early.

    Raises:
        FileNotFoundError: a name stands for no file, or a number is missing.
        IsADirectoryError: there is no image in a folder.
        ValueError: a file does not have the name of an image, or a pattern has more than one number.
        OSError: a folder or a file cannot be read.
    """
    paths = [path for name in names for path in _files_of(Path(name))]
    for path in paths:
        if not has_image_name(path):
            known = " ".join(suffix[1:] for suffix in images.READ)
            raise ValueError(
                f"{show_name(path)} is not an image by its name, which must end in one of: {known}"
            )
    return paths


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        images = [entry for entry in path.iterdir() if has_image_name(entry) and entry.name[0] != "."]
        if not images:
            raise IsADirectoryError(EISDIR, "there is no image in this folder", str(path))
        return sorted(images, key=_by_numbers)
    if not is_sequence(path):
        # It raises what opening would raise, and at the call.
        path.stat()
        return [path]
    if has_number(path):
        return _numbered(path)
    # Not Path.glob, which wants folder and pattern separately.
    matches = [Path(each) for each in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    return _matching([match for match in matches if match.is_file()], path)


def _matching(paths: Sequence[Path], name: Path) -> list[Path]:
    if not paths:
        raise FileNotFoundError(ENOENT, "no file matches", str(name))
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
            why = f"this image is missing, but {path.name} exists. Pass the folder or a glob to skip the gap"
            raise FileNotFoundError(ENOENT, why, str(numbered(number)))
    return _matching(paths, pattern)
