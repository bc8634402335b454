"""Frames of every library, on the CPU and on a GPU: written and read without a copy more than they need.

What `support.devices` has stands in for tensors on a GPU. Where there is one, PyTorch and CuPy themselves run as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clips import clip
from support.devices import (
    KINDS,
    CupyArray,
    DescribedTensor,
    DlpackTensor,
    JaxArray,
    TorchTensor,
)
from support.devices import devices as devices
from support.media import SIZE, make
from support.streams import ReaderThread

from penstock import Decoder, Encoder, FanOut, Writer, write_video

WIDTH, HEIGHT = SIZE
FRAMES = list(np.random.default_rng(3).integers(0, 256, (6, HEIGHT, WIDTH, 3), np.uint8))
# Those that can be copied into memory of ours.
COPIES_INTO = (TorchTensor, CupyArray)

on_stand_ins = pytest.mark.usefixtures("devices")


def lossless(path: Path, **options: Any) -> Encoder:
    return make(path, codec="ffv1", **options)


def frames_of(path: Path) -> np.ndarray:
    with Decoder(path, pixel_format="rgb24") as decoder:
        return np.stack(list(decoder))


async def awrite(encoder: Encoder, frame: Any, **options: Any) -> None:
    await encoder.awrite(frame, **options)


CALLS: dict[str, Callable[..., object]] = {
    "write": Encoder.write,
    "submit": Encoder.submit,
    "awrite": lambda *given, **options: asyncio.run(awrite(*given, **options)),
}


# --- frames on a GPU ---------------------------------------------------------------------------------------------


@on_stand_ins
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_on_a_device_is_written(tmp_path: Path, kind: type, call: str) -> None:
    with lossless(tmp_path / "v.mkv") as encoder:
        for frame in FRAMES:
            CALLS[call](encoder, kind(frame))
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


@on_stand_ins
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_on_a_device_is_converted_as_any_other(tmp_path: Path, kind: type) -> None:
    """To yuv420p, by the worker while it is idle, and by the caller while frames wait."""
    for name, written in (("arrays", list), ("tensors", lambda frames: [kind(frame) for frame in frames])):
        raw = {"codec": "rawvideo", "output_pixel_format": "yuv420p", "options": {"f": "rawvideo"}}
        with make(tmp_path / name, **raw) as encoder:
            assert encoder.converted_by == "penstock"
            for frame in written(FRAMES * 10):
                encoder.write(frame)
    assert (tmp_path / "tensors").read_bytes() == (tmp_path / "arrays").read_bytes()


@on_stand_ins
@pytest.mark.parametrize("kind", COPIES_INTO)
def test_a_frame_on_a_device_is_copied_once_into_memory_of_the_encoder(tmp_path: Path, kind: Any) -> None:
    with lossless(tmp_path / "v.mkv") as encoder:
        for number, frame in enumerate(FRAMES, 1):
            encoder.write(kind(frame))
            assert len(kind.copies) == number
            target = kind.copies[-1] if kind is CupyArray else kind.copies[-1].numpy()
            assert target.ctypes.data % 4096 == 0, "a slot, which is page-aligned"
        kind.copies.clear()


@on_stand_ins
@pytest.mark.parametrize("kind", KINDS)
def test_first_frame_on_a_device_sets_the_size(tmp_path: Path, kind: Any) -> None:
    with lossless(tmp_path / "v.mkv", size=None) as encoder:
        encoder.write(kind(FRAMES[0]))
        if kind is not DlpackTensor:  # which tells its shape by a copy alone
            assert len(kind.copies) == 1
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES[:1])


WRONG = [
    np.zeros((WIDTH, HEIGHT, 3), np.uint8),
    np.zeros((HEIGHT, WIDTH, 4), np.uint8),
    np.zeros((3, HEIGHT, WIDTH), np.uint8),
    np.zeros((HEIGHT, WIDTH), np.uint8),
    np.zeros((2, HEIGHT, WIDTH, 3), np.uint8),
    np.zeros((HEIGHT, WIDTH, 3), np.uint16),
    np.zeros((HEIGHT, WIDTH, 3), np.int64),
    np.zeros((HEIGHT, WIDTH, 3), bool),
    np.zeros(100, np.uint8),
]


@on_stand_ins
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_frame_on_a_device_gets_the_same_error_as_an_array(
    tmp_path: Path, kind: Any, call: str
) -> None:
    with make(tmp_path / "v.mp4") as encoder:
        for frame in WRONG:
            with pytest.raises(ValueError) as of_array:
                encoder.write(frame)
            with pytest.raises(ValueError) as caught:
                CALLS[call](encoder, kind(frame))
            said = str(of_array.value)
            if kind is TorchTensor:
                said = said.replace(".astype(np.", ".to(torch.").replace("frame.transpose(", "frame.permute(")
            assert str(caught.value) == said
        if kind is not DlpackTensor:
            assert not kind.copies, "before any copy"
        assert encoder.frames_submitted == 0
        encoder.write(FRAMES[0])


@on_stand_ins
@pytest.mark.parametrize("fps", [30, None])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_channels_first_floats_on_a_device_are_written(
    tmp_path: Path, kind: Any, dtype: str, fps: int | None
) -> None:
    form: dict[str, Any] = {"value_range": (0.0, 255.0), "channels_first": True}
    with lossless(tmp_path / "v.mkv", fps=fps, size=None, **form) as encoder:
        for number, frame in enumerate(FRAMES):
            planes = kind(np.ascontiguousarray(frame.transpose(2, 0, 1)).astype(dtype))
            call = encoder.submit if number % 2 else encoder.write
            call(planes, time_s=Fraction(number, 30))
        if kind is not DlpackTensor:
            assert len(kind.copies) == len(FRAMES)
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


@on_stand_ins
@pytest.mark.parametrize("kind", KINDS)
def test_a_fan_out_copies_floats_of_a_device_once(tmp_path: Path, kind: Any) -> None:
    form: dict[str, Any] = {"value_range": (0.0, 255.0), "channels_first": True}
    planes = [np.ascontiguousarray(frame.transpose(2, 0, 1)).astype(np.float32) for frame in FRAMES]
    reader, end = os.pipe()
    raw, got = Writer(end), ReaderThread(reader)
    os.close(end)
    timed = lossless(tmp_path / "timed.mkv", fps=None, **form)
    with FanOut([lossless(tmp_path / "plain.mkv", **form), timed, raw]) as fan_out:
        for number, frame in enumerate(planes):
            fan_out.write(kind(frame), time_s=Fraction(number, 30))
        if kind is not DlpackTensor:
            assert len(kind.copies) == len(FRAMES)
    for name in ("plain", "timed"):
        np.testing.assert_array_equal(frames_of(tmp_path / f"{name}.mkv"), FRAMES)
    assert got.result() == b"".join(frame.tobytes() for frame in planes)


@on_stand_ins
@pytest.mark.parametrize("samples", [np.complex64, np.dtype([("x", "u1")])])
def test_samples_of_an_unknown_type_are_refused(tmp_path: Path, samples: Any) -> None:
    with make(tmp_path / "v.mp4") as encoder:
        with pytest.raises(ValueError):
            encoder.write(JaxArray(np.zeros((HEIGHT, WIDTH, 3), samples)))
        encoder.write(FRAMES[0])


@on_stand_ins
def test_bfloat16_on_a_device_is_taken_as_float32(tmp_path: Path) -> None:
    values = np.float32([[0.0, 0.5], [1.0, 0.25]])
    raw = {"codec": "rawvideo", "output_pixel_format": "ffmpeg", "options": {"f": "rawvideo"}}
    with make(tmp_path / "v.raw", size=(2, 2), pixel_format="grayf32le", **raw) as encoder:
        encoder.write(TorchTensor(values, dtype="bfloat16"))
    np.testing.assert_array_equal(np.fromfile(tmp_path / "v.raw", np.float32), values.reshape(-1))


@on_stand_ins
def test_a_device_whose_library_makes_no_copy_is_an_error(tmp_path: Path) -> None:
    class Stuck(DescribedTensor):
        def __dlpack__(self, *, dl_device: Any = None, **_: Any) -> Any:
            raise BufferError("no copies here")

    with make(tmp_path / "v.mp4") as encoder:
        with pytest.raises(TypeError):
            encoder.write(Stuck(FRAMES[0]))
        assert encoder.frames_submitted == 0
        encoder.write(FRAMES[0])


@on_stand_ins
@pytest.mark.parametrize("kind", KINDS)
def test_all_outputs_of_a_fan_out_share_one_copy_of_a_frame_on_a_device(tmp_path: Path, kind: Any) -> None:
    reader, end = os.pipe()
    raw, got = Writer(end), ReaderThread(reader)
    os.close(end)
    timed = lossless(tmp_path / "timed.mkv", fps=None)
    with FanOut([lossless(tmp_path / "plain.mkv"), timed, raw]) as fan_out:
        for number, frame in enumerate(FRAMES):
            fan_out.write(kind(frame), time_s=Fraction(number, 30))
            if kind in COPIES_INTO:
                assert len(kind.copies) == number + 1
    for name in ("plain", "timed"):
        np.testing.assert_array_equal(frames_of(tmp_path / f"{name}.mkv"), FRAMES)
    assert got.result() == b"".join(frame.tobytes() for frame in FRAMES)


@on_stand_ins
def test_a_fan_out_refuses_a_wrong_frame_before_a_copy(tmp_path: Path) -> None:
    with FanOut([make(tmp_path / "v.mp4")]) as fan_out:
        with pytest.raises(ValueError):
            fan_out.write(TorchTensor(np.zeros((WIDTH, HEIGHT, 3), np.uint8)))
        assert not TorchTensor.copies
        fan_out.write(FRAMES[0])


@on_stand_ins
@pytest.mark.parametrize("kind", COPIES_INTO)
def test_write_video_takes_a_batch_on_a_device(tmp_path: Path, kind: Any) -> None:
    write_video(tmp_path / "v.mkv", kind(np.stack(FRAMES)), 30, codec="ffv1")
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)
    assert len(kind.copies) == len(FRAMES)


# --- batches on a GPU --------------------------------------------------------------------------------------------


@on_stand_ins
@pytest.mark.parametrize("kind", COPIES_INTO)
def test_batch_copies_each_frame_to_a_device_once(kind: Any) -> None:
    with Decoder(clip("long")) as decoder:
        numbers, memory = [7, 3, 3, -1], np.zeros((4, *decoder.shape), np.uint8)
        out = kind(memory)
        assert decoder.batch(numbers, out=out) is out
        assert len(kind.copies) == 4
        np.testing.assert_array_equal(memory, decoder.batch(numbers))


@on_stand_ins
@pytest.mark.parametrize("kind", COPIES_INTO)
def test_a_batch_on_a_device_must_have_the_form_of_the_frames(kind: Any) -> None:
    with Decoder(clip("long")) as decoder:
        wrong = [
            ((2, *decoder.shape), np.uint8),
            (decoder.shape, np.uint8),
            ((1, *decoder.shape), np.float32),
        ]
        for shape, dtype in wrong:
            with pytest.raises(ValueError):
                decoder.batch([0], out=kind(np.zeros(shape, dtype)))
        assert not kind.copies


@on_stand_ins
def test_a_batch_cannot_go_to_an_array_that_nobody_can_change() -> None:
    with Decoder(clip("long")) as decoder, pytest.raises(BufferError):
        decoder.batch([0], out=JaxArray(np.zeros((1, *decoder.shape), np.uint8)))


# --- decoded frames as tensors -----------------------------------------------------------------------------------


@pytest.fixture(params=["iterated", "numbered"])
def frame(request: pytest.FixtureRequest) -> np.ndarray:
    with Decoder(clip("long")) as decoder:
        return next(decoder) if request.param == "iterated" else decoder[1]


def test_a_decoded_frame_is_shared_by_dlpack(frame: np.ndarray) -> None:
    shared = np.from_dlpack(frame)
    assert np.shares_memory(shared, frame)
    assert shared.shape == frame.shape


def test_a_decoded_frame_is_a_tensor_of_torch_on_the_same_memory(frame: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    for tensor in (torch.from_numpy(frame), torch.as_tensor(frame), torch.from_dlpack(frame)):
        assert tensor.data_ptr() == frame.ctypes.data
        tensor[0, 0, 0] = 255 - tensor[0, 0, 0]
        assert frame[0, 0, 0] == tensor[0, 0, 0]


def test_a_decoded_frame_is_an_array_of_jax_on_the_same_memory(frame: np.ndarray) -> None:
    jax = pytest.importorskip("jax")
    array = jax.numpy.from_dlpack(frame)
    assert array.unsafe_buffer_pointer() == frame.ctypes.data
    np.testing.assert_array_equal(array, frame)


# --- the libraries themselves ------------------------------------------------------------------------------------


def torch_on(device: str) -> Any:
    """PyTorch, if it has that device."""
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU here")
    return torch


def cupy() -> Any:
    """CuPy, if it has a GPU."""
    module = pytest.importorskip("cupy")
    if not module.is_available():
        pytest.skip("CuPy has no GPU here")
    return module


def written(path: Path, frames: list[Any], **options: Any) -> None:
    with lossless(path, **options) as encoder:
        for number, frame in enumerate(frames):
            call = encoder.submit if number % 2 else encoder.write
            call(frame, time_s=Fraction(number, 30))


@pytest.mark.parametrize("fps", [30, None])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tensors_of_torch_are_written(tmp_path: Path, device: str, fps: int | None) -> None:
    torch = torch_on(device)
    written(tmp_path / "v.mkv", [torch.as_tensor(frame).to(device) for frame in FRAMES], fps=fps)
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tensors_of_torch_need_not_be_contiguous(tmp_path: Path, device: str) -> None:
    torch = torch_on(device)
    with lossless(tmp_path / "v.mkv") as encoder:
        for frame in FRAMES:
            planes = torch.as_tensor(frame).to(device).permute(2, 0, 1).contiguous()
            encoder.write(planes.permute(1, 2, 0))
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_floats_of_torch_are_taken_with_a_gradient_and_as_bfloat16(
    tmp_path: Path, device: str, dtype: str
) -> None:
    torch = torch_on(device)
    tensor = torch.tensor([[0.0, 0.5], [1.0, 0.25]], device=device, dtype=getattr(torch, dtype))
    raw = {"codec": "rawvideo", "output_pixel_format": "ffmpeg", "options": {"f": "rawvideo"}}
    with make(tmp_path / "v.raw", size=(2, 2), pixel_format="grayf32le", **raw) as encoder:
        encoder.write(tensor.requires_grad_())
    assert np.fromfile(tmp_path / "v.raw", np.float32).tolist() == [0.0, 0.5, 1.0, 0.25]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_floats_of_torch_with_their_channels_first_are_scaled(
    tmp_path: Path, device: str, dtype: str
) -> None:
    torch = torch_on(device)
    with lossless(tmp_path / "v.mkv", value_range=(0.0, 255.0), channels_first=True) as encoder:
        for frame in FRAMES:
            encoder.write(torch.as_tensor(frame).to(device).permute(2, 0, 1).to(getattr(torch, dtype)))
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_wrong_tensor_of_torch_is_refused(tmp_path: Path, device: str) -> None:
    torch = torch_on(device)
    with make(tmp_path / "v.mp4") as encoder:
        with pytest.raises(ValueError):
            encoder.write(torch.zeros((HEIGHT, WIDTH, 3), device=device, dtype=torch.float16))
        with pytest.raises(ValueError):
            encoder.write(torch.zeros((WIDTH, HEIGHT, 3), device=device, dtype=torch.uint8))
        encoder.write(FRAMES[0])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_batch_goes_to_a_tensor_of_torch(device: str) -> None:
    torch = torch_on(device)
    with Decoder(clip("long")) as decoder:
        numbers = [7, 3, 3, -1]
        out = torch.zeros((4, *decoder.shape), dtype=torch.uint8, device=device)
        assert decoder.batch(numbers, out=out) is out
        np.testing.assert_array_equal(out.cpu().numpy(), decoder.batch(numbers))
        with pytest.raises(ValueError):
            decoder.batch(numbers, out=out.bfloat16())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_write_video_takes_a_tensor_of_torch(tmp_path: Path, device: str) -> None:
    torch = torch_on(device)
    write_video(tmp_path / "v.mkv", torch.as_tensor(np.stack(FRAMES)).to(device), 30, codec="ffv1")
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


def test_arrays_of_cupy_are_written_and_filled(tmp_path: Path) -> None:
    module = cupy()
    written(tmp_path / "v.mkv", [module.asarray(frame) for frame in FRAMES])
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)
    with Decoder(tmp_path / "v.mkv", pixel_format="rgb24") as decoder:
        out = module.zeros((2, *decoder.shape), module.uint8)
        decoder.batch([4, 1], out=out)
    np.testing.assert_array_equal(out.get(), [FRAMES[4], FRAMES[1]])


def test_arrays_of_jax_are_written(tmp_path: Path) -> None:
    """On the GPU, if JAX has one."""
    jax = pytest.importorskip("jax")
    written(tmp_path / "v.mkv", [jax.numpy.asarray(frame) for frame in FRAMES])
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)


def test_bfloat16_of_jax_is_taken_as_float32(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    values = jax.numpy.asarray([[0.0, 0.5], [1.0, 0.25]], jax.numpy.bfloat16)
    raw = {"codec": "rawvideo", "output_pixel_format": "ffmpeg", "options": {"f": "rawvideo"}}
    with make(tmp_path / "v.raw", size=(2, 2), pixel_format="grayf32le", **raw) as encoder:
        encoder.write(values)
        encoder.write(np.asarray(values))
    assert np.fromfile(tmp_path / "v.raw", np.float32).tolist() == [0.0, 0.5, 1.0, 0.25] * 2


def test_a_batch_cannot_go_to_an_array_of_jax() -> None:
    jax = pytest.importorskip("jax")
    with Decoder(clip("long")) as decoder, pytest.raises(BufferError):
        decoder.batch([0], out=jax.numpy.zeros((1, *decoder.shape), jax.numpy.uint8))


def test_dlpack_on_the_cpu_needs_no_other_protocol(tmp_path: Path) -> None:
    class Bare:
        def __init__(self, samples: np.ndarray) -> None:
            self.__dlpack__, self.samples = samples.__dlpack__, samples

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with lossless(tmp_path / "v.mkv") as encoder:
        for frame in FRAMES:
            encoder.write(Bare(frame))  # type: ignore[arg-type]
    np.testing.assert_array_equal(frames_of(tmp_path / "v.mkv"), FRAMES)
