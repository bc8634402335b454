"""The join fetches chunks of a storage that is not a folder of this machine ahead, and leaves no copies."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support.cases import eventually

from penstock.errors import RenderError
from penstock.rendering import Plan, assemble, join, plan, render_chunk
from penstock.rendering.chunk import data_name
from penstock.rendering.storage import storage_of

pytest.importorskip("fsspec", reason="it opens storages by their URLs")


def gray(index, time_s, view):
    view[:] = index


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    made = plan(
        gray,
        frames=60,
        size=(64, 48),
        fps=30,
        output=tmp_path / "video.mp4",
        chunk_frames=20,
        workers=2,
        storage=f"memory://{tmp_path.name}",
    )
    for chunk in made.chunks:
        render_chunk(made, chunk.number)
    return made


def copies() -> list[Path]:
    return list(Path(tempfile.gettempdir()).rglob("*.mov"))


def test_next_chunk_is_fetched_during_the_join(planned: Plan) -> None:
    paths = join._local_chunks(planned, storage_of(planned.storage))
    first = next(paths)
    assert eventually(lambda: len(copies()) == 2)
    content = first.read_bytes()
    second = next(paths)
    assert not first.exists()
    assert second.exists() and second.read_bytes() != content
    paths.close()
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_video_is_joined_from_fetched_chunks(planned: Plan) -> None:
    assert assemble(planned).frames == 60
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_chunk_that_differs_raises_and_leaves_no_copies(planned: Plan) -> None:
    storage = storage_of(planned.storage)
    with storage.local(data_name(planned, 1)) as copy:
        nbytes = copy.stat().st_size
    files = join._chunk_files(planned, storage)
    path = Path(next(files).name)
    assert eventually(lambda: [one.stat().st_size for one in copies() if one != path] == [nbytes])
    [other] = [one for one in copies() if one != path]
    other.write_bytes(other.read_bytes().replace(b"moov", b"moop", 1))
    with pytest.raises(RenderError):
        next(files)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
