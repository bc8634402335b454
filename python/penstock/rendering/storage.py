"""Where chunks are kept: a folder, or a URL that fsspec opens. Both know whole files only."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock._platform.workers import held_name
from penstock.errors import RenderError


@contextmanager
def locked(output: str) -> Iterator[None]:
    """Locks `output` for one render on this machine while the block runs, by whatever path it is reached.

    Raises:
        RenderError: another render has the lock.
        OSError: its folder isn't there.
    """
    path = Path(os.path.realpath(output))
    # Containers and chroots with one network see each other's names, and may have other files at the same path.
    folder, name = path.parent.stat(), os.path.normcase(path.name)
    identity = os.fsencode(f"{folder.st_dev} {folder.st_ino} {name}")
    with held_name(f"penstock-render-{hashlib.sha256(identity).hexdigest()}") as is_free:
        if not is_free:
            raise RenderError(f"another render is writing {output}. Wait for its end")
        yield


def storage_of(url: str) -> Storage:
    """The storage at a path or URL."""
    return RemoteStorage(url) if "://" in url else LocalStorage(Path(url))


class LocalStorage:
    """A folder of this machine, or one that all machines share. Names of files may have a folder before them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Yields a path to write to. The file is there under its name, and whole, when the block ends."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several machines may write the same chunk, if one was thought lost; their process ids may be the same.
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            part.touch()  # an Encoder does not rename what was there, if it fails
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """Yields the path of a local file with these bytes."""
        yield self._folder / name

    def read(self, name: str) -> str | None:
        """The text in a file; None if there is none."""
        try:
            return (self._folder / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, text: str) -> None:
        """Writes a file with this text at once."""
        with self.new_file(name) as part:
            part.write_text(text)

    def names(self, suffix: str) -> list[str]:
        """The names of all files with this suffix, in this folder and in those below it."""
        return sorted(str(path.relative_to(self._folder)) for path in self._folder.rglob(f"*{suffix}"))

    def remove(self, name: str) -> None:
        """Removes a file or a folder, if there is one; all of it if the name is empty."""
        path = self._folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class RemoteStorage:
    """The same at a URL that fsspec opens, ``s3://bucket/folder``. Its files appear when they are complete."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ImportError(f"storage={url!r} needs fsspec. Run: pip install 'penstock-io[ray]'") from None
        self._files, self._folder = url_to_fs(url)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            part = Path(folder) / Path(name).name
            yield part
            path = self._path(name)
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(part), path)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            path = Path(folder) / Path(name).name
            self._files.get_file(self._path(name), str(path))
            yield path

    def read(self, name: str) -> str | None:
        try:
            text: bytes = self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return text.decode()

    def write(self, name: str, text: str) -> None:
        path = self._path(name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, text.encode())

    def names(self, suffix: str) -> list[str]:
        found = self._files.find(self._folder)
        return sorted(path.removeprefix(self._folder).lstrip("/") for path in found if path.endswith(suffix))

    def remove(self, name: str) -> None:
        if self._files.exists(self._path(name)):
            self._files.rm(self._path(name), recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if name else str(self._folder)


#: Where chunks are kept.
Storage = LocalStorage | RemoteStorage
