"""``penstock tee``: what it moves, how it ends, and what it says."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from support.cases import eventually
from support.command_line import ENDING, delivered, failed, finish, open_blocking, run, start
from support.streams import ReaderThread, noise

pytestmark = pytest.mark.linux("Tee")


def test_smoke(big: Path, tmp_path: Path) -> None:
    data = big.read_bytes()
    assert delivered(run("tee", "-", "-", tmp_path / "a", tmp_path / "b", data=data)) == data
    assert (tmp_path / "a").read_bytes() == data
    assert (tmp_path / "b").read_bytes() == data


def test_broken_output_is_reported_and_the_others_get_everything(big: Path, tmp_path: Path) -> None:
    with start("tee", big, "-", tmp_path / "a") as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        process.stdout = None
        status, said = finish(process)
    assert status == 1
    assert said.splitlines() == ["Error: standard output: the reader went away; 10 bytes were delivered"]
    assert (tmp_path / "a").read_bytes() == big.read_bytes()


def test_failed_output_is_reported_and_the_others_get_everything(big: Path) -> None:
    done = run("tee", big, "/dev/full", "-")
    assert f"/dev/full: {os.strerror(errno.ENOSPC)}; 0 bytes" in failed(done)
    assert done.stdout == big.read_bytes()


def test_stalled_output_is_evicted(big: Path, fifo: Path) -> None:
    # The other is a file, which takes its bytes however busy this machine is.
    with start("tee", big, fifo, big.parent / "a", "--evict-after", "0.2") as process:
        stalled = os.open(fifo, os.O_RDONLY)
        status, said = finish(process)
    os.close(stalled)
    assert (big.parent / "a").read_bytes() == big.read_bytes()
    assert status == 1
    assert f"{fifo}: dropped, because it took nothing for" in said


@pytest.mark.parametrize("is_standard_output", [True, False])
def test_evicted_output_sees_end_of_file_while_the_others_continue(
    fifo: Path, tmp_path: Path, is_standard_output: bool
) -> None:
    arguments = ["tee", "-", "-" if is_standard_output else fifo, tmp_path / "a", "--evict-after", "0.2"]
    with start(*arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stalled = os.dup(process.stdout.fileno()) if is_standard_output else os.open(fifo, os.O_RDONLY)
        data = noise(3 << 20)
        process.stdin.write(data)
        process.stdin.flush()
        # It reads again only when it has been given up: the others have got everything.
        assert eventually(lambda: (tmp_path / "a").stat().st_size == len(data))
        late = ReaderThread(stalled).result()
        assert process.poll() is None
        assert data.startswith(late)
        process.stdin.write(b"more")
        assert finish(process)[0] == 1
    assert (tmp_path / "a").read_bytes() == data + b"more"


def test_tee_ends_if_no_output_is_left(fifo: Path) -> None:
    with start("tee", "/dev/zero", fifo) as process:
        reader = os.open(fifo, os.O_RDONLY)
        os.read(reader, 1)
        os.close(reader)
        status, said = finish(process)
    assert (status, "the reader went away" in said) == (1, True)


@pytest.mark.parametrize("repeated", [["a", "a"], ["a", "big"], ["-", "-"]])
def test_same_output_twice_is_refused_unharmed(big: Path, repeated: list[str]) -> None:
    (big.parent / "a").write_bytes(b"kept")
    failed(run("tee", big, *repeated, cwd=big.parent), status=2 if repeated == ["-", "-"] else 1)
    assert (big.parent / "a").read_bytes() == b"kept"
    assert big.stat().st_size == 3 << 20


def test_an_output_that_cannot_be_opened_harms_no_other(big: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"kept")
    failed(run("tee", big, tmp_path / "a", tmp_path))
    assert (tmp_path / "a").read_bytes() == b"kept"


@pytest.mark.parametrize(("prefix", "order"), [("fifo:", (0, 1, 2)), ("", (2, 1, 0)), ("", (1, 2, 0))])
def test_fifos_may_be_opened_in_any_order(
    big: Path, tmp_path: Path, prefix: str, order: tuple[int, ...]
) -> None:
    source, *rest = fifos = [tmp_path / name for name in ("in", "a", "b")]
    for path in fifos:
        os.mkfifo(path)
    with start("tee", *(f"{prefix}{path}" for path in fifos)) as process:
        modes = dict.fromkeys(rest, "rb") | {source: "wb"}
        files = {fifos[number]: open_blocking(fifos[number], modes[fifos[number]]) for number in order}
        readers = [ReaderThread(os.dup(files[path].fileno())) for path in rest]
        files[source].write(big.read_bytes())
        for file in files.values():
            file.close()
        assert [reader.result() == big.read_bytes() for reader in readers] == [True, True]
        assert finish(process) == (0, "")


def test_nothing_is_moved_or_emptied_before_all_fifos_are_open(big: Path, fifo: Path) -> None:
    (big.parent / "a").write_bytes(b"kept")
    other = big.parent / "other"
    os.mkfifo(other)
    with start("tee", big, "a", fifo, other, cwd=big.parent) as process, fifo.open("rb", 0) as early:
        assert (big.parent / "a").read_bytes() == b"kept"
        with other.open("rb", 0) as late:
            readers = [ReaderThread(os.dup(file.fileno())) for file in (early, late)]
            assert [reader.result() == big.read_bytes() for reader in readers] == [True, True]
        assert finish(process) == (0, "")
    assert (big.parent / "a").read_bytes() == big.read_bytes()


def test_tee_writes_to_shell_pipes(big: Path) -> None:
    reader, writer = os.pipe()
    with start("tee", big, f"/dev/fd/{writer}", "-", pass_fds=[writer]) as process:
        os.close(writer)
        assert process.stdout is not None
        readers = [ReaderThread(reader), ReaderThread(os.dup(process.stdout.fileno()))]
        assert [each.result() == big.read_bytes() for each in readers] == [True, True]
        assert finish(process) == (0, "")


@pytest.mark.parametrize(("number", "what"), ENDING)
def test_signal_ends_tee(tmp_path: Path, number: int, what: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"begun")
    with start("tee", "-", "-", tmp_path / "a", stdin=reader) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"begun"
        assert eventually(lambda: (tmp_path / "a").read_bytes() == b"begun")
        process.send_signal(number)
        status, said = finish(process)
    os.close(reader)
    os.close(writer)
    assert status == -number
    assert said == f"Error: {what}; bytes delivered: 5 to -, 5 to {tmp_path}/a\n"
