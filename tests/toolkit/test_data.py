"""Every kind of `data`: a contiguous buffer is delivered bit by bit, anything else is refused with the remedy."""

from __future__ import annotations

import array
import ctypes
import gc
import io
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from support.cases import MODES, eventually
from support.streams import ReaderThread, noise, read_exactly

import penstock
from penstock import _native

SIZE = 192 << 10
"""Large enough that `auto` stages it, and larger than a new pipe."""


def anonymous_map() -> mmap.mmap:
    area = mmap.mmap(-1, SIZE)
    area[:] = noise(SIZE)
    return area


def file_map(folder: Path) -> mmap.mmap:
    path = folder / "mapped"
    path.write_bytes(noise(SIZE))
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def numbers(dtype: object, *shape: int) -> np.ndarray:
    """An array of any type out of random bits."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    return np.frombuffer(noise(count * dtype.itemsize), np.uint8).view(dtype).reshape(shape).copy()


class BytesOfMine(bytes):
    pass


STRUCT = np.dtype([("id", "<u2"), ("position", "<f4", (3,)), ("name", "S5")])

KINDS = {
    "bytes": lambda: noise(SIZE),
    "bytes subclass": lambda: BytesOfMine(noise(SIZE)),
    "bytearray": lambda: bytearray(noise(SIZE)),
    "memoryview": lambda: memoryview(bytearray(noise(SIZE))),
    "read-only memoryview": lambda: memoryview(noise(SIZE)),
    "slice of a memoryview": lambda: memoryview(noise(SIZE))[1000:-77],
    "memoryview cast to 2-D of double": lambda: memoryview(noise(SIZE)).cast("d", (SIZE // 16, 2)),
    "mmap": anonymous_map,
    "array.array": lambda: array.array("d", noise(SIZE)),
    "ctypes array": lambda: (ctypes.c_uint16 * 4 * (SIZE // 8)).from_buffer_copy(noise(SIZE)),
    "ctypes structure": lambda: ctypes.c_uint64(0x0123456789ABCDEF),
    "BytesIO.getbuffer()": lambda: io.BytesIO(noise(SIZE)).getbuffer(),
    "uint8 frame": lambda: numbers("u1", 120, 160, 10),
    "float16": lambda: numbers("f2", 50_000),
    "float64 4-D": lambda: numbers("f8", 2, 3, 4, 1000),
    "complex128": lambda: numbers("c16", 10_000),
    "big-endian": lambda: numbers(">i4", 50_000),
    "bool": lambda: np.frombuffer(noise(SIZE), "u1") > 127,
    "records": lambda: numbers(STRUCT, 5000),
    "fixed strings": lambda: np.array(["häuser", "bäume"] * 5000, dtype="U7"),
    "datetime64": lambda: numbers("M8[us]", 20_000),
    "timedelta64": lambda: numbers("m8[ns]", 20_000),
    "long double": lambda: np.ones(5000, np.longdouble),
    "0-d array": lambda: np.array(1.5),
    "NumPy scalar": lambda: np.float64(2.5),
    "read-only array": lambda: np.frombuffer(noise(SIZE), "u1"),
    "rows of an array": lambda: numbers("u1", 300, 1000)[10:200],
    "axes of length one with odd strides": lambda: numbers("u1", 400, 1000)[::400, :].T.T,
    "Fortran order of one column": lambda: np.asfortranarray(numbers("u1", SIZE, 1)),
    "masked array": lambda: np.ma.masked_array(numbers("u1", SIZE), mask=False),
}


def bytes_of(data: object) -> bytes:
    """What the buffer protocol says that the bytes are, by way of Python."""
    return data.tobytes() if isinstance(data, (np.ndarray, np.generic, memoryview)) else bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_every_contiguous_kind_is_delivered(pair: tuple[int, int], kind: str) -> None:
    reader, writer = pair
    data = KINDS[kind]()
    want = bytes_of(data)
    assert want
    result = ReaderThread(reader)
    ticket = _native._pipe(data, writer)
    assert ticket.nbytes == len(want)
    os.close(writer)
    assert result.result() == want
    ticket.wait(10)


@pytest.mark.parametrize("mode", MODES)
def test_a_mapped_file_is_delivered(pair: tuple[int, int], tmp_path: Path, mode: str) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    _native._pipe(file_map(tmp_path), writer, mode=mode)
    os.close(writer)
    assert result.result() == noise(SIZE)


EMPTY = {
    "bytes": b"",
    "bytearray": bytearray(),
    "memoryview": memoryview(b""),
    "empty axis first": np.empty((0, 3)),
    "empty axis last": np.empty((3, 0), "f4"),
    "empty and strided": np.empty((4, 0))[::2],
    "ctypes": (ctypes.c_char * 0)(),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", EMPTY)
def test_empty_buffer_is_a_write_too(pair: tuple[int, int], kind: str, mode: str) -> None:
    """It ends in its turn, takes no place in the pipe, and is no end of file to the reader."""
    reader, writer = pair
    _native._pipe(b"before ", writer, mode=mode)
    ticket = _native._pipe(EMPTY[kind], writer, mode=mode)
    _native._pipe(b"behind", writer, mode=mode)
    os.close(writer)
    assert ReaderThread(reader).result() == b"before behind"
    assert ticket.nbytes == 0
    ticket.wait(10)
    _native._sync(EMPTY[kind], timeout=10)


STRIDED = {
    "every second column": lambda: numbers("u1", 100, 100)[:, ::2],
    "flipped": lambda: numbers("u1", 100, 100)[::-1],
    "mirrored": lambda: numbers("u1", 100, 100)[:, ::-1],
    "Fortran": lambda: np.asfortranarray(numbers("f4", 100, 100)),
    "transposed": lambda: numbers("u1", 100, 90).T,
    "one channel": lambda: numbers("u1", 10, 10, 3)[..., 0],
    "window": lambda: numbers("u1", 100, 100)[10:20, 10:20],
    "broadcast": lambda: np.broadcast_to(numbers("u1", 1, 100), (100, 100)),
    "memoryview": lambda: memoryview(noise(100))[::2],
    "memoryview backwards": lambda: memoryview(noise(100))[::-1],
    "tensor": lambda: Tensor(numbers("f4", 10, 20).T),
    "Fortran memoryview": lambda: memoryview(np.asfortranarray(numbers("u1", 10, 10))),
}


@pytest.mark.parametrize("kind", STRIDED)
def test_noncontiguous_data_is_refused_with_the_remedy(pair: tuple[int, int], kind: str) -> None:
    reader, writer = pair
    with penstock.Writer(writer) as stream:
        for take in (stream.submit, stream.write, lambda data: _native._pipe(data, writer)):
            with pytest.raises(ValueError, match="contiguous"):
                take(STRIDED[kind]())
    strided = STRIDED[kind]()
    remedied = np.ascontiguousarray(strided.array if isinstance(strided, Tensor) else strided)
    _native._pipe(remedied, writer)
    os.close(writer)
    assert ReaderThread(reader).result() == remedied.tobytes(), "and of the refused ones nothing came"


@pytest.mark.parametrize(
    "data", ["text", None, 7, [1, 2], object(), np.uint8], ids=lambda data: repr(data)[:12]
)
def test_object_without_a_buffer_raises_type_error(pair: tuple[int, int], data: object) -> None:
    with penstock.Writer(pair[1]) as stream:
        calls = [stream.submit, stream.write, lambda data: _native._pipe(data, pair[1])]
        for call in calls if data is None else [*calls, _native._sync]:
            with pytest.raises(TypeError):
                call(data)


def test_a_released_memoryview_and_a_closed_map_are_value_errors(pair: tuple[int, int]) -> None:
    view = memoryview(b"gone")
    view.release()
    area = mmap.mmap(-1, 4096)
    area.close()
    for data in (view, area):
        with pytest.raises(ValueError):
            _native._pipe(data, pair[1])


class Tensor:
    """Converts as a CPU tensor of torch does: `numpy()` shares its memory, and refuses where a gradient is wanted."""

    def __init__(self, array: np.ndarray, requires_grad: bool = False) -> None:
        self.array = array
        self.requires_grad = requires_grad

    def detach(self) -> Tensor:
        return Tensor(self.array)

    def numpy(self) -> np.ndarray:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return self.array


@pytest.mark.parametrize("requires_grad", [False, True])
def test_object_that_converts_as_a_tensor_is_delivered(pair: tuple[int, int], requires_grad: bool) -> None:
    reader, writer = pair
    tensor = Tensor(numbers("f4", 1000, 500), requires_grad)
    _native._pipe(tensor, writer)
    with pytest.raises(penstock.StalledError):
        _native._sync(tensor, timeout=0.05)  # the same memory, so the same write
    os.close(writer)
    assert ReaderThread(reader).result() == tensor.array.tobytes()
    _native._sync(tensor, timeout=10)


def test_a_tensor_of_torch_is_delivered(pair: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    reader, writer = pair
    tensor = torch.arange(100_000, dtype=torch.float32, requires_grad=True)
    _native._pipe(tensor, writer)
    with pytest.raises(ValueError):
        _native._pipe(tensor.reshape(100, 1000).T, writer)
    os.close(writer)
    assert ReaderThread(reader).result() == tensor.detach().numpy().tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES[1:])
def test_write_of_more_than_2_gib_is_delivered(pair: tuple[int, int], mode: str) -> None:
    """Past 2 GiB a count of 32 bits goes wrong. The map is sparse but for its marks, so that it takes no memory."""
    reader, writer = pair
    size = 2**31 + 4097
    area = mmap.mmap(-1, size)
    for position in (0, 2**30, 2**31 - 3, size - 5):
        area[position : position + 5] = b"mark!"
    ticket = _native._pipe(area, writer, mode=mode)
    assert ticket.nbytes == size
    os.close(writer)
    total = 0
    while piece := os.read(reader, 1 << 20):
        assert piece == area[total : total + len(piece)], f"within {len(piece)} bytes of {total}"
        total += len(piece)
    assert total == size
    ticket.wait(10)
    area.close()


HANDLES = {
    "itself": lambda frame: frame,
    "memoryview": lambda frame: memoryview(frame),
    "slice": lambda frame: frame[7:8],
    "last byte": lambda frame: frame[-1:],
    "reshaped": lambda frame: frame.reshape(2, -1),
    "other type": lambda frame: frame.view("f8"),
    "every hundredth": lambda frame: frame[::100],
    "flipped": lambda frame: frame[::-1],
    "slice of a memoryview": lambda frame: memoryview(frame)[100:101],
    "strided memoryview": lambda frame: memoryview(frame)[-1000::-7],
    "Fortran view": lambda frame: frame.reshape(16, -1).T,
}


@pytest.mark.parametrize("kind", HANDLES)
def test_sync_works_through_any_handle_on_the_memory(pair: tuple[int, int], kind: str) -> None:
    reader, writer = pair
    frame = numbers("u1", 4 << 20)
    _native._pipe(frame, writer)
    with pytest.raises(penstock.StalledError) as stalled:
        _native._sync(HANDLES[kind](frame), timeout=0.05)
    assert stalled.value.bytes_pending == frame.nbytes
    _native._sync(np.zeros_like(frame))  # other memory waits for nobody
    assert read_exactly(reader, frame.nbytes) == frame.tobytes()
    _native._sync(HANDLES[kind](frame), timeout=10)


def test_sync_of_memory_that_is_not_queued_returns_at_once(pair: tuple[int, int]) -> None:
    reader, writer = pair
    frames = numbers("u1", 3, 2 << 20)
    _native._pipe(frames[1], writer)
    _native._sync(frames[0])
    _native._sync(frames[2])
    _native._sync(frames[1][:0])
    with pytest.raises(penstock.StalledError):
        _native._sync(frames, timeout=0.05)
    with pytest.raises(penstock.StalledError):
        _native._sync(frames[:, 5], timeout=0.05)  # reaches over all three
    assert read_exactly(reader, frames[1].nbytes) == frames[1].tobytes()


def test_sync_of_a_buffer_waits_for_writers_as_well(pair: tuple[int, int]) -> None:
    reader, writer = pair
    frame = bytearray(noise(4 << 20))
    with penstock.Writer(writer) as stream:
        stream.submit(frame)
        with pytest.raises(penstock.StalledError):
            _native._sync(frame, timeout=0.05)
        assert read_exactly(reader, len(frame)) == frame
        _native._sync(frame, timeout=10)


def test_one_buffer_goes_into_two_pipes(pair: tuple[int, int]) -> None:
    (reader_a, writer_a), (reader_b, writer_b) = pair, os.pipe()
    frame = bytearray(noise(3 << 20))
    _native._pipe(frame, writer_a)
    _native._pipe(frame, writer_b)
    os.close(writer_b)
    assert ReaderThread(reader_b).result() == frame
    with pytest.raises(penstock.StalledError):
        _native._sync(frame, timeout=0.05)  # the other pipe still needs it
    assert read_exactly(reader_a, len(frame)) == frame
    _native._sync(frame, timeout=10)
    frame.clear()


FREEING = {
    "ticket.wait()": lambda ticket, stream, frame: ticket.wait(10),
    "ticket.done()": lambda ticket, stream, frame: eventually(ticket.done),
    "ticket.exception()": lambda ticket, stream, frame: ticket.exception(10),
    "sync(frame)": lambda ticket, stream, frame: _native._sync(memoryview(frame), timeout=10),
    "flush()": lambda ticket, stream, frame: stream.flush(10),
    "close()": lambda ticket, stream, frame: stream.close(10),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", FREEING)
def test_a_buffer_can_be_resized_as_soon_as_a_wait_says_that_it_is_free(
    pair: tuple[int, int], how: str, mode: str
) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    stream = penstock.Writer(writer, mode=mode)
    frame = bytearray(noise(SIZE))
    ticket = stream.submit(frame)
    FREEING[how](ticket, stream, frame)
    frame.clear()  # BufferError, were it still exported
    stream.close(10)
    os.close(writer)
    assert result.result() == noise(SIZE)


def test_an_object_that_goes_while_its_export_is_released_may_call_back(pair: tuple[int, int]) -> None:
    """Releasing an export may run any Python, and that may come back to us."""
    reader, writer = pair
    result = ReaderThread(reader)
    called = []

    class Owner(bytearray):
        def __del__(self) -> None:
            _native._pipe(b"from __del__", writer).wait(10)
            _native._sync(timeout=10)
            called.append(True)

    _native._pipe(Owner(b"temporary, "), writer).wait(10)
    gc.collect()
    assert called == [True]
    os.close(writer)
    assert result.result() == b"temporary, from __del__"


def test_a_failed_conversion_leaves_no_export_behind(pair: tuple[int, int]) -> None:
    frame = bytearray(noise(100))
    with pytest.raises(ValueError):
        _native._pipe(memoryview(frame)[::2], pair[1])
    with pytest.raises(OSError):
        _native._pipe(frame, pair[0])  # its reading end
    with pytest.raises(ValueError):
        _native._pipe(frame, pair[1], mode="fast")
    gc.collect()
    frame.clear()


def test_pillow_image_is_refused_with_what_to_pass(pair: tuple[int, int]) -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (3, 2))
    with penstock.Writer(pair[1]) as writer, pytest.raises(TypeError):
        writer.submit(image)
