"""Planes of libav's frames become pixels, in native threads."""

from __future__ import annotations

import gc
import os
import sys
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from support.processes import run_script, succeeded

from penstock._native import _Conversion, _PlaneConverter, _PlaneJob, _SlotPool

Rows = list[tuple[int, int]]

# Bytes of a sample of luma, columns and rows that share a sample of chroma; planes of chroma.
LAYOUTS = {
    "gray": (1, 1, 1, 0),
    "yuv420p": (1, 2, 2, 2),
    "yuv422p": (1, 2, 1, 2),
    "yuv444p": (1, 1, 1, 2),
    "nv12": (1, 2, 2, 1),
    "yuv420p10le": (2, 2, 2, 2),
    "yuv422p10le": (2, 2, 1, 2),
    "yuv444p10le": (2, 1, 1, 2),
}
SIZES = [(1, 1), (101, 67), (640, 36), (1920, 18)]


def rows_of(pixel_format: str, width: int, height: int) -> Rows:
    """Of each plane, the number of rows and the bytes of each."""
    sample_bytes, columns, rows, chroma = LAYOUTS[pixel_format]
    shared = 2 // chroma * sample_bytes if chroma else 0
    luma = (height, width * sample_bytes)
    return [luma, *[(-(-height // rows), -(-width // columns) * shared)] * chroma]


def frame_of(pixel_format: str, width: int, height: int, *, seed: int = 0) -> Any:
    """A frame of noise, which libav pads."""
    frame = av.VideoFrame(width, height, pixel_format)
    random = np.random.default_rng(seed)
    for plane in frame.planes:
        if "10" in pixel_format:
            noise = random.integers(0, 1024, plane.buffer_size // 2, np.uint16).tobytes()
        else:
            noise = random.bytes(plane.buffer_size)
        plane.update(noise)
    return frame


def turned_over(frame: Any) -> Any:
    """The same memory, read from the last row to the first."""
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25)
    )
    flip, sink = graph.add("vflip"), graph.add("buffersink")
    source.link_to(flip)
    flip.link_to(sink)
    graph.configure()
    graph.vpush(frame)
    return graph.vpull()


def strides_of(frame: Any) -> list[int]:
    return [plane.line_size for plane in frame.planes]


def samples(frame: Any, rows: Rows) -> bytes:
    """The samples of a frame, plane after plane, by NumPy."""
    planes = []
    for plane, (count, row_bytes) in zip(frame.planes, rows, strict=True):
        memory = np.frombuffer(plane, np.uint8)[: count * abs(plane.line_size)].reshape(count, -1)
        planes.append(memory[:: -1 if plane.line_size < 0 else 1, :row_bytes].tobytes())
    return b"".join(planes)


def conversion_of(source: str, target: str, width: int, height: int) -> _Conversion:
    return _Conversion(
        source, target, width, height, matrix="bt709", range="limited", vflip=False, odd_size="keep"
    )


def expected(conversion: _Conversion, frame: Any, rows: Rows, frame_bytes: int) -> bytes:
    return bytes(memoryview(_SlotPool(frame_bytes, 0).filled(samples(frame, rows), conversion)))


def converter_of(size: tuple[int, int], threads: int = 2, keep_slots: int = 2) -> _PlaneConverter:
    rows = rows_of("yuv420p", *size)
    return _PlaneConverter(conversion_of("yuv420p", "rgb24", *size), rows, keep_slots, threads)


def begun(converter: _PlaneConverter, frame: Any, out: Any = None) -> _PlaneJob:
    return converter.begin(frame.planes, strides_of(frame), out)


def pixels(job: _PlaneJob) -> npt.NDArray[np.uint8]:
    slot = job.wait()
    assert slot is not None
    return np.frombuffer(memoryview(slot), np.uint8)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pixel_format", sorted(LAYOUTS))
def test_planes_make_the_same_pixels_as_joined_samples(
    pixel_format: str, size: tuple[int, int], threads: int
) -> None:
    frame, rows = frame_of(pixel_format, *size), rows_of(pixel_format, *size)
    conversion = conversion_of(pixel_format, "rgb24", *size)
    converter = _PlaneConverter(conversion, rows, 2, threads)
    for libavs in [frame, turned_over(frame)]:
        want = expected(conversion, libavs, rows, size[0] * size[1] * 3)
        assert pixels(begun(converter, libavs)).tobytes() == want
    assert strides_of(turned_over(frame))[0] < 0, "rows from the last to the first were among them"
    assert converter.converting_s > 0


@pytest.mark.parametrize("threads", [0, 2])
def test_a_batch_is_filled_in_place_while_many_frames_are_in_flight(threads: int) -> None:
    size, count = (320, 240), 40
    converter = converter_of(size, threads)
    frames = [frame_of("yuv420p", *size, seed=seed) for seed in range(count)]
    batch = np.zeros((count, size[1], size[0], 3), np.uint8)
    jobs = [begun(converter, frame, out) for frame, out in zip(frames, batch, strict=True)]
    assert [job.wait() for job in jobs] == [None] * count
    assert all(job.done for job in jobs)
    for frame, made in zip(frames, batch, strict=True):
        assert pixels(begun(converter, frame)).tobytes() == made.tobytes()


def test_a_slot_is_used_again_once_no_array_views_it() -> None:
    size = (1280, 720)
    converter, frame = converter_of(size), frame_of("yuv420p", *size)
    first = pixels(begun(converter, frame))
    place = first.ctypes.data
    kept = first.tobytes()
    assert pixels(begun(converter, frame)).ctypes.data != place, "the first is in use"
    assert first.tobytes() == kept
    del first
    assert place in {pixels(begun(converter, frame)).ctypes.data for _ in range(3)}
    assert place % 4096 == 0


def test_exports_are_held_until_the_frame_is_made_and_no_longer() -> None:
    size = (64, 32)
    rows = rows_of("yuv420p", *size)
    for threads in [0, 2]:
        converter = _PlaneConverter(None, rows, 1, threads)
        planes = [bytearray(count * row_bytes) for count, row_bytes in rows]
        out = bytearray(sum(map(len, planes)))
        job = converter.begin(planes, [row_bytes for _, row_bytes in rows], out)
        for buffer in [*planes, out]:
            with pytest.raises(BufferError):
                buffer.append(0)
        job.wait()
        for buffer in [*planes, out]:
            buffer.append(0)


@pytest.mark.parametrize("threads", [0, 2])
def test_dropped_job_ends_and_releases_its_buffers(threads: int) -> None:
    size = (1920, 1080)
    rows = rows_of("yuv420p", *size)
    converter = converter_of(size, threads)
    planes = [bytearray(count * row_bytes) for count, row_bytes in rows]
    out = bytearray(size[0] * size[1] * 3)
    strides = [row_bytes for _, row_bytes in rows]
    jobs = [converter.begin(planes, strides, None if index else out) for index in range(8)]
    cycle: list[Any] = [jobs]
    cycle.append(cycle)
    del jobs, cycle
    gc.collect()
    out[:] = bytes(len(out))
    assert not any(out), "nobody writes there any more"
    for buffer in [*planes, out]:
        buffer.append(0)


def test_planes_or_outputs_that_do_not_fit_are_refused_and_released() -> None:
    size = (16, 8)
    rows = rows_of("yuv420p", *size)
    converter = converter_of(size)
    planes = [bytearray(count * row_bytes) for count, row_bytes in rows]
    strides = [row_bytes for _, row_bytes in rows]
    wrong: list[tuple[Any, Any, Any]] = [
        (planes[:2], strides[:2], None),
        (planes, strides[:2], None),
        ([*planes, b""], [*strides, 1], None),
        ([planes[0][:-1], *planes[1:]], strides, None),
        (planes, [17, 8, 8], None),
        (planes, [-17, 8, 8], None),
        (planes, [15, 8, 8], None),
        (planes, [0, 8, 8], None),
        (planes, [sys.maxsize, 8, 8], None),
        (planes, [-sys.maxsize - 1, 8, 8], None),
        (planes, strides, bytearray(16 * 8 * 3 - 1)),
        (planes, strides, np.zeros((8, 16, 6), np.uint8)[..., ::2]),
        ([np.zeros(256, np.uint8)[::2], *planes[1:]], strides, None),
    ]
    for case in wrong:
        with pytest.raises(ValueError):
            converter.begin(*case)
    with pytest.raises(TypeError):
        converter.begin([1, 2, 3], strides)  # type: ignore[list-item]
    with pytest.raises(BufferError):
        converter.begin(planes, strides, bytes(16 * 8 * 3))
    for plane in planes:
        plane.append(0)


def test_impossible_rows_are_refused() -> None:
    conversion = conversion_of("yuv420p", "rgb24", 16, 8)
    for rows in [[(8, 16)], [(8, 16), (4, 8), (4, 9)], [(8, 16), (4, 8), (4, 8), (4, 8)]]:
        with pytest.raises(ValueError):
            _PlaneConverter(conversion, rows, 1, 1)
    with pytest.raises(ValueError):
        _PlaneConverter(None, [(sys.maxsize, 2)], 1, 1)
    with pytest.raises(OverflowError):
        _PlaneConverter(None, [(1, 2)], 1, -1)


FORKING = """
import gc
import av, numpy as np
from penstock._native import _Conversion, _PlaneConverter
from penstock.errors import ClosedError

size = 1920, 1080
rows = [(1080, 1920), (540, 960), (540, 960)]
conversion = _Conversion(
    "yuv420p", "rgb24", *size, matrix="bt709", range="limited", vflip=False, odd_size="keep"
)
converter = _PlaneConverter(conversion, rows, 2, {threads})
frame = av.VideoFrame(*size, "yuv420p")
for plane in frame.planes:
    plane.update(bytes(range(256)) * (plane.buffer_size // 256))
strides = [plane.line_size for plane in frame.planes]
begin = lambda with_: with_.begin(frame.planes, strides)
want = bytes(memoryview(begin(converter).wait()))

for _ in range(5):
    jobs = [begin(converter) for _ in range(6)]
    pid = os.fork()
    if pid == 0:
        try:
            jobs[0].wait()
        except ClosedError:
            pass
        else:
            os._exit(2)
        jobs[1].done
        del jobs
        gc.collect()
        assert bytes(memoryview(begin(converter).wait())) == want, "in threads of the child's"
        del converter
        own = _PlaneConverter(conversion, rows, 2, {threads})
        frames = [bytes(memoryview(job.wait())) for job in [begin(own) for _ in range(3)]]
        os._exit(0 if frames == [want] * 3 else 3)
    assert [bytes(memoryview(job.wait())) for job in jobs] == [want] * 6
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.mark.linux("forks")
@pytest.mark.parametrize("threads", [0, 2])
def test_a_fork_leaves_its_jobs_to_the_parent_and_the_child_makes_its_own(threads: int) -> None:
    succeeded(run_script(FORKING.replace("{threads}", str(threads))))


@pytest.mark.linux("sched_getaffinity")
def test_the_threads_are_few_and_serve_all_converters() -> None:
    code = """
    from penstock._native import _PlaneConverter
    made = [_PlaneConverter(None, [(64, 64)], 1, 2) for _ in range(20)]
    assert not pixel_threads(), "none before the first frame"
    for _ in range(3):
        for job in [converter.begin([bytes(4096)], [64]) for converter in made]:
            job.wait()
    deadline = time.monotonic() + 30
    while len(pixel_threads()) < {threads} and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread takes its name once it runs
    assert len(pixel_threads()) == {threads}, pixel_threads()
    """
    threads = 2 if len(os.sched_getaffinity(0)) > 1 else 0
    succeeded(run_script(code.replace("{threads}", str(threads))))


@pytest.mark.linux("sched_getaffinity")
def test_a_process_with_one_cpu_makes_frames_without_threads() -> None:
    code = """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from penstock._native import _PlaneConverter
    converter = _PlaneConverter(None, [(64, 64)], 1, 2)
    slot = converter.begin([bytes(range(64)) * 64], [64]).wait()
    assert bytes(memoryview(slot)) == bytes(range(64)) * 64
    assert not pixel_threads()
    """
    succeeded(run_script(code))


def test_an_exit_with_jobs_in_flight_is_quiet() -> None:
    code = FORKING.replace("{threads}", "2").partition("for _ in range(5)")[0]
    succeeded(run_script(code + "jobs = [begin(converter) for _ in range(6)]\n"))
