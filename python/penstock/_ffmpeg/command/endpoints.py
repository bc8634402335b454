"""What FFmpeg reads from and writes to: local paths, URLs and its standard output."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from errno import EACCES, EISDIR, ENOENT, ENOTDIR
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from penstock._common.messages import argument, show_name
from penstock._formats import containers, images
from penstock._formats.containers import Container, Muxer
from penstock._platform import descriptors
from penstock._platform.paths import check_path, with_slashes, without_scheme

_FILE = "file:"
# The protocols that FFmpeg may open for a local path: no network. This is FFmpeg's default, made explicit.
_LOCAL_PROTOCOLS = "file,crypto,data"
_STDOUT = "pipe:1"
# Linux follows no more links than these (path_resolution(7)).
_MOST_LINKS = 40
# One output of the muxer `tee`, as FFmpeg's av_get_token cuts them: a backslash or single quotes protect a "|".
_TEE_OUTPUT = re.compile(r"((?:\\.|'[^']*'|[^|])*)(?:\||$)", re.DOTALL)
# A number in the name of a segment or an image, and the least number of its digits. As FFmpeg takes it: %5d is %05d.
_NUMBER = re.compile(r"%0*(\d+)?d")
_IGNORES_FAILURE = re.compile(r"\s*\[([^\]]*:)?onfail=(?i:ignore)[:\]]")
# One scheme or several, as in "zmq:tcp://127.0.0.1:5555". One letter is a drive of Windows.
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]+:)+//", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Output:
    """Where the result of an encode goes, and in which container.

    Attributes:
        target: what FFmpeg writes to: a URL, its standard output, or a path after ``file:``.
        container_format: the container by FFmpeg's name; None if FFmpeg is to guess it.
        sink: the object to which FFmpeg's standard output goes; None for none.
    """

    target: str
    container_format: str | None = None
    sink: BinaryIO | None = None

    @classmethod
    def of(cls, output: str | os.PathLike[str] | BinaryIO, container_format: object) -> Self:
        """The output that a caller names: a path, a URL, or a binary object.

        Raises:
            TypeError: the object is for text; or as for `target`.
            ValueError: the container is no name, or not known, or it needs several files or seeking, which the output
                cannot do; or as for `target`.
            OSError: as for `target`.
        """
        if not isinstance(container_format, str | None):
            raise ValueError(
                f"options['f'] must be FFmpeg's name of a container, such as 'mp4', not {container_format!r}"
            )
        if isinstance(output, str | os.PathLike) or not callable(getattr(output, "write", None)):
            to, sink = target(output, container_format), None  # type: ignore[arg-type]
        elif isinstance(output, io.TextIOBase):
            raise TypeError(f"the output must be a binary file, not {output!r}. Open it with mode 'wb'")
        elif cls("", container_format).needs_files:
            raise ValueError(
                f"{argument('options.f', container_format)} needs several files or seeking, which an object can't do. "
                f"Use matroska, webm or mpegts, or mp4 with {argument('crash_safe', True)}"
            )
        else:
            to, sink = _STDOUT, output
        if container_format is None:
            container_format = containers.OF_PROTOCOLS.get(to.partition("://")[0].lower())
        found = cls(to, container_format, sink)
        found._check_container()
        if found.is_image_sequence:
            split_pattern(found.path)
        return found

    def _check_container(self) -> None:
        is_pipe = uses_stdout(self.target)
        if self.facts.completes_header and (is_pipe or self.path.is_fifo()):
            raise ValueError(
                f"{self.container_name} can't be written to a pipe or an object, because its header is written last. "
                "Write a file, or use matroska, or for audio alone also wav, au or flac"
            )
        if is_pipe and self.container_format is None:
            raise ValueError(
                f"a pipe has no name to tell its container. Pass {argument('options.f', 'matroska')}, or mpegts, nut "
                "or rawvideo"
            )

    @property
    def path(self) -> Path:
        """The path of a local file."""
        return Path(without_protocol(self.target))

    @property
    def name(self) -> str:
        """What is written to, for people."""
        return without_protocol(self.target) if self.sink is None else f"<{type(self.sink).__name__}>"

    @property
    def ending(self) -> str:
        """The ending of the target's name in lower case, with its dot; empty if it has none."""
        return ending_of(self.target).lower()

    @property
    def container(self) -> str:
        """FFmpeg's name of the container; the extension of the target's name if that belongs to no known container."""
        if (
            self.container_format is None
            and self.is_numbered
            and (of_images := images.known(self.ending).numbered)
        ):
            return of_images  # without a number, it may move
        return self.container_format or (self.known.name if self.known else self.ending)

    @property
    def facts(self) -> Container:
        """What is known of the container."""
        return containers.known(self.container)

    @property
    def known(self) -> Muxer | None:
        """What libav says of the container; None if it does not know it."""
        if self.container_format is not None:
            return containers.of_format(self.container_format)
        return containers.of_ending(self.ending)

    @property
    def holds_sound(self) -> bool:
        """Whether it has a place for sound, as containers have and pictures have not."""
        return self.known is None or self.known.holds_sound

    @property
    def container_name(self) -> str:
        """The container, or else the ending of the name, for people."""
        return self.container_format or self.ending[1:]

    @property
    def kind(self) -> str:
        """The container that was given, as a file extension (``.matroska``), or else the extension of the name."""
        is_told = self.container_format is not None and not self.are_images
        return f".{self.container_format}" if is_told else self.ending

    @property
    def is_numbered(self) -> bool:
        """Whether the name has a number such as ``%05d``, which stands for that of a picture or a segment."""
        return _NUMBER.search(self.target) is not None

    @property
    def are_images(self) -> bool:
        """Whether each frame becomes an image file."""
        return self.facts.are_images

    @property
    def is_image_sequence(self) -> bool:
        """Whether each frame becomes a local image file with a number in its name."""
        return self.are_images and is_path(self.target) and has_number(self.path)

    @property
    def argument(self) -> str:
        """The target as FFmpeg takes it. In the pattern of an image sequence, a % beside the number is doubled."""
        if not self.is_image_sequence:
            return with_slashes(self.target) if is_path(self.target) else self.target
        before, digits, after = (part and part.replace("%", "%%") for part in split_pattern(self.path))
        folder = str(self.path.parent).replace("%", "%%")
        return f"{_FILE}{Path(folder, f'{before}%0{digits}d{after}' if digits else f'{before}%d{after}')}"

    @property
    def is_several_files(self) -> bool:
        """Whether it may be more than one file."""
        return self.is_numbered or (self.known is not None and self.known.is_several_files)

    @property
    def needs_files(self) -> bool:
        """Whether FFmpeg can't write it to a pipe, because it needs several files or seeking."""
        return self.are_images or self.is_several_files or self.facts.needs_seeking


def ending_of(name: str) -> str:
    """The ending of a name with its dot, as FFmpeg sees it: that of ``.mp4`` is the whole. Empty if it has none."""
    found = re.search(r"\.[^./]*$", name)
    return found[0] if found else ""


def has_number(path: str | os.PathLike[str]) -> bool:
    """Whether the last part of the path has a number such as ``%05d``, which stands for a sequence of files."""
    return _NUMBER.search(Path(path).name) is not None


def split_pattern(pattern: Path) -> tuple[str, str | None, str]:
    """What comes before the number in the pattern's name, the least number of its digits, and what comes after.

    Raises:
        ValueError: it has no number, or several.
    """
    parts = _NUMBER.split(pattern.name)
    if len(parts) != 3:
        raise ValueError(f"{show_name(pattern)}: a pattern must have one number, such as %d or %04d")
    return parts[0], parts[1], parts[2]


def target(output: str | os.PathLike[str], container_format: str | None = None) -> str:
    """FFmpeg's name for an output: a URL unchanged, or a path after ``file:``, which makes FFmpeg take it literally.

    A `str` is a URL if it begins with a scheme and ``//``, and FFmpeg's standard output if it is ``-``, ``pipe:`` or
    ``pipe:1``, or a path to this process's standard output (``/dev/stdout``). Anything else is a path, whatever its
    characters. For the container ``tee``, `output` is a list of
    outputs and stays unchanged.

    Raises:
        FileNotFoundError: the path's folder does not exist, and the path is no pattern of images.
        NotADirectoryError: the path's folder is a file.
        IsADirectoryError: the path is a folder.
        PermissionError: the file, or the folder of a new file, is not writable.
        ValueError: it is a pipe that FFmpeg does not get.
        TypeError: it is neither a `str` nor a path.
    """
    _check_type("an output", output, f"an Encoder for each, or {argument('options.f', 'tee')}")
    if isinstance(output, str):
        output = without_scheme(output)
        if output == "-" or re.fullmatch(r"pipe:\d*", output):
            return _pipe(output)
        if _URL.match(output) or (
            containers.known(container_format or "").is_list and not output.startswith("-")
        ):
            return output
    check_path(os.fspath(output))
    path = Path(output).absolute()
    if (number := own_descriptor(path)) is not None:
        return _pipe(f"pipe:{number}")
    found = Output(f"{_FILE}{path}", container_format)
    # The missing folders of an image sequence are made when FFmpeg starts.
    first = path
    while found.is_image_sequence and not first.parent.exists():
        first = first.parent
    # Path removes a slash at the end.
    _check_writable(first, named_as_folder=os.fspath(output).endswith(("/", os.sep)))
    return found.target


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
    path = without_scheme(os.fspath(path_or_url))
    if isinstance(path_or_url, str) and is_url(path):
        return path
    check_path(path)
    # Not through Path, which would make the file clip.mp4 of "clip.mp4/", for which the system raises an error.
    if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    _check_access(Path(path), os.R_OK, os.strerror(EACCES))
    return f"{_FILE}{Path(path).absolute()}"


def is_url(given: str | os.PathLike[str]) -> bool:
    """Whether a caller means a URL: a `str` that begins with a scheme and ``//``."""
    return isinstance(given, str) and _URL.match(given) is not None


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
    """Facts about a file that differ once it is replaced or rewritten."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def identity(target: str) -> Identity | None:
    """The identity of the file at `target`; None if it is not a regular file."""
    with suppress(OSError):
        status = descriptors.status_of(without_protocol(target))
        if stat.S_ISREG(status.st_mode):
            return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return None


def is_sequential(target: str) -> bool:
    """Whether `target` is a path to what is no regular file, such as a pipe."""
    return is_path(target) and identity(target) is None


def file_bytes(target: str) -> int | None:
    """The size in bytes of the file at `target`; None if it is not a regular file."""
    found = identity(target)
    return None if found is None else found.size_bytes


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
        remedy = f". Use {instead}"
    elif isinstance(given, bytes):
        remedy = ". Pass os.fsdecode(path)"
    elif hasattr(given, "read") or hasattr(given, "write"):
        remedy = ". Pass the path of the file"
    kind = type(given).__name__
    raise TypeError(f"{what} must be one path or URL, a str or a pathlib.Path, not {kind}{remedy}")


def own_descriptor(path: Path) -> str | None:
    """The number of this process's descriptor that a path means, such as ``/dev/stdout``; None if it means none.

    In FFmpeg, such a path would mean FFmpeg's own.
    """
    folders = ("/proc/self/fd", "/proc/thread-self/fd")
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) in map(os.path.realpath, folders):
            return path.name
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _pipe(output: str) -> str:
    if output in ("-", "pipe:", _STDOUT):
        return _STDOUT
    number = output.partition(":")[2]
    raise ValueError(
        f"the output must be a path, a URL or standard output (pipe:1), not {output!r}. Pass open({number}, 'wb', "
        f"closefd=False) for descriptor {number}, or Path({output!r}) for a file of that name"
    )


def _check_writable(path: Path, *, named_as_folder: bool) -> None:
    """Raises what opening `path` for writing would raise, as far as that is known without creating anything."""
    if path.is_dir() or named_as_folder:
        raise IsADirectoryError(EISDIR, "the output is a folder, not a file", str(path))
    with suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # fails for a loop of links
        _check_access(path, os.W_OK, "the output is not writable")
        return
    # For a symbolic link to a file that does not exist, this is the folder in which FFmpeg creates it.
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.exists():
        raise FileNotFoundError(ENOENT, "the output's folder does not exist", str(folder))
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, "the output's folder is a file", str(folder))
    _check_access(folder, os.W_OK | os.X_OK, "the output's folder is not writable")


def _check_access(path: Path, access: int, refusal: str) -> None:
    if not os.access(path, access, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(EACCES, refusal, str(path))
