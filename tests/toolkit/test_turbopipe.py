"""The drop-in: both of TurboPipe's surfaces, its own way of use, and the transport from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.cases import MODES
from support.processes import run_script, succeeded
from support.streams import ReaderThread, noise, read_exactly

import penstock
import penstock.turbopipe as turbopipe


def test_module_has_the_names_of_all_versions() -> None:
    assert sorted(turbopipe.__all__) == ["close", "done", "pipe", "sync"]


@pytest.mark.parametrize("view", [memoryview, lambda frame: frame], ids=["1.x", "2.x"])
def test_pipe_sync_done_and_close_deliver_every_frame(
    pair: tuple[int, int], view: Callable[[bytearray], Any]
) -> None:
    reader, writer = pair
    got = ReaderThread(reader)
    frames = [bytearray(noise(400_000, seed)) for seed in range(2)]
    expected = b""
    for number in range(6):
        frame = frames[number % 2]
        turbopipe.sync(view(frame))
        frame[:4] = number.to_bytes(4, "little")
        expected += frame
        turbopipe.pipe(view(frame), writer)
    for frame in frames:
        turbopipe.sync(view(frame))
        turbopipe.done(frame)
    turbopipe.sync()
    turbopipe.close()
    os.close(writer)
    assert got.result() == expected


def test_close_with_a_descriptor_waits_as_without(pair: tuple[int, int]) -> None:
    reader, writer = pair
    got = ReaderThread(reader)
    turbopipe.pipe(bytes(400_000), writer)
    turbopipe.close(writer)
    os.close(writer)
    assert got.result() == bytes(400_000)


def test_dead_subprocess_raises_and_does_not_end_the_program() -> None:
    head = [sys.executable, "-S", "-c", "import os; os.read(0, 1000)"]
    with subprocess.Popen(head, stdin=subprocess.PIPE) as process:
        with pytest.raises(penstock.BrokenStreamError) as caught:
            for _ in range(100):
                turbopipe.pipe(bytes(1_000_000), process.stdin.fileno())
        assert caught.value.bytes_lost > 0
        with pytest.raises(penstock.BrokenStreamError):
            turbopipe.close()
        turbopipe.close()
        process.stdin.close()


@pytest.mark.linux("the size of a pipe")
@pytest.mark.parametrize("mode", MODES[1:])
def test_the_environment_sets_the_transport(mode: str) -> None:
    code = """
    import penstock.turbopipe as turbopipe
    reader, writer = os.pipe()
    area = bytearray(200_000)
    penstock.Writer(writer)  # room for all of it
    turbopipe.pipe(area, writer)
    while not are_asleep(workers): pass
    penstock._native._sync(b"")
    try:
        area.append(1)
    except BufferError:
        print(True)  # until the reader has read it
    else:
        print(False)
    os.read(reader, 1 << 20)
    turbopipe.close()
    """
    done = run_script(code, env=os.environ | {"PENSTOCK_MODE": mode})
    assert succeeded(done).decode().strip() == str(mode == "zero-copy")


def test_unknown_transport_raises_at_the_call(pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_MODE", "teleport")
    with pytest.raises(ValueError, match="teleport"):
        turbopipe.pipe(b"x", pair[1])


def test_streams_are_accepted_by_object_and_by_number(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with os.fdopen(writer, "wb", buffering=0, closefd=False) as file:
        turbopipe.pipe(b"by object", file)
        turbopipe.sync()
    assert read_exactly(reader, 9) == b"by object"


def test_the_arguments_may_be_named_as_in_either_version(pair: tuple[int, int]) -> None:
    reader, writer = pair
    frame = bytearray(b"frame ")
    turbopipe.pipe(buffer=frame, fileno=writer)
    turbopipe.sync(buffer=frame)
    turbopipe.pipe(data=frame, file=writer)
    turbopipe.sync(data=frame)
    turbopipe.done(data=frame)
    assert read_exactly(reader, 12) == b"frame frame "
