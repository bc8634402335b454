"""Arrays and tensors of any library, in the CPU's memory or on a device: frames are read from them, or put into them.

No library is imported for that: whoever has one of its tensors has imported it, and it is in `sys.modules`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Buffer

# NumPy's kinds of types, by the format characters of the buffer protocol (those of `struct`).
_KINDS = {
    **dict.fromkeys("BHILQN", "uint"),
    **dict.fromkeys("bhilqn", "int"),
    **dict.fromkeys("efdg", "float"),
    "?": "bool",
}
_UNKNOWN = "unknown samples"
# DLPack's devices whose memory the CPU reads: its own, and what CUDA and ROCm have pinned, and what CUDA manages.
_CPU_DEVICES = (1, 3, 11, 13)


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a frame. `owner` is the library whose methods it has: numpy, torch, PIL, memoryview."""

    owner: str
    nbytes: int
    shape: tuple[int, ...]
    kind: str
    sample_bytes: int
    is_big_endian: bool

    @property
    def dtype(self) -> str:
        """NumPy's name for the type of a sample."""
        return self.kind if self.kind in ("bool", _UNKNOWN) else f"{self.kind}{8 * self.sample_bytes}"

    def __str__(self) -> str:
        return f"{self.shape} of {self.dtype}" if len(self.shape) > 1 else f"{self.nbytes} bytes"


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A frame in memory that the CPU cannot read, such as a GPU's.

    Attributes:
        contents: its own shape and dtype, known without a copy.
        copy: copies it into an array of that shape and dtype, and returns when the copy is done.
        turn: makes a view with the axes in the order that is wanted.
    """

    contents: Contents
    copy: Callable[[npt.NDArray[Any]], object]
    turn: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] = np.asarray

    def copy_to(self, memory: Any) -> npt.NDArray[Any]:
        """Copies it to `memory`, a writable buffer of the same size. Returns an array on that memory, turned."""
        contents = self.contents
        array = np.frombuffer(memoryview(memory), contents.dtype).reshape(contents.shape)
        self.copy(array)
        return self.turn(array)


def memory_of(frame: Any) -> Any | OnDevice:
    """`frame` as an object with the buffer protocol, contiguous or not, or as one on a device.

    NumPy has no bfloat16: samples of that type become float32.

    Raises:
        TypeError: it is not a buffer.
        ValueError: it is a masked array.
    """
    if hasattr(frame, "filled") and frame.mask.any():
        raise ValueError("a masked array has no values where it is masked. Pass frame.filled(0)")
    try:
        memoryview(frame).release()
        return frame
    except TypeError:
        pass
    except (BufferError, ValueError):  # JAX on a device; JAX and NumPy with bfloat16
        if not hasattr(frame, "dtype"):
            raise
    if _is_torch(frame):
        return _memory_of_torch(frame.detach())
    if (contents := _own_contents(frame)) is not None:
        if _is_cupy(frame):
            return OnDevice(contents, lambda array: frame.get(out=array))
        if _is_on_device(frame):
            return OnDevice(contents, lambda array: np.copyto(array, _array_of(frame), casting="unsafe"))
    array = _array_of(frame)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def contents_of(frame: Any, memory: Any | OnDevice) -> Contents:
    """What is in `frame`, by its `memory_of`."""
    if isinstance(memory, OnDevice):
        return memory.contents
    with memoryview(memory) as view:
        kind = _KINDS.get(view.format.lstrip("@=<>!"), _UNKNOWN)
        is_big_endian = view.format[0] in ">!"
        return Contents(_library_of(frame), view.nbytes, view.shape or (), kind, view.itemsize, is_big_endian)


def memory_and_size(frame: Any) -> tuple[Any, int]:
    """As `memory_of`, or a ``moderngl.Buffer`` as it is, which a memoryview would map; and the size in bytes.

    Raises:
        TypeError: it is not a buffer.
    """
    if hasattr(frame, "mglo"):
        return frame, frame.size
    memory = memory_of(frame)
    return memory, contents_of(frame, memory).nbytes


def memory_of_out(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any] | None, Callable[[int, npt.NDArray[Any]], object]]:
    """The memory of `out`, of that shape and dtype, and a function that copies a frame into ``out[number]``.

    Returns:
        A C-contiguous array on that memory, or None if there is none that native threads can write to: `out` is on a
        device, or strided. And the function, which copies once, also to a device.

    Raises:
        ValueError: `out` has another shape or dtype.
        BufferError: it is read-only, or the CPU cannot write to it.
        TypeError: it is no array.
    """
    if _is_torch(out) and out.device.type != "cpu":
        _check_form(out, shape, dtype)
        tensor, torch = out.detach(), sys.modules["torch"]
        return None, lambda number, frame: tensor[number].copy_(torch.from_numpy(frame))
    if _is_cupy(out):
        _check_form(out, shape, dtype)
        return None, lambda number, frame: out[number].set(frame)
    array = _writable(out, shape, dtype)
    return array if array.flags.c_contiguous else None, array.__setitem__


def _writable(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if _is_torch(out):
        _check_form(out, shape, dtype)
        return cast("npt.NDArray[Any]", out.detach().numpy())
    array = np.asarray(out) if hasattr(out, "__array__") else np.asarray(memoryview(cast("Buffer", out)))
    _check_form(array, shape, dtype)
    # JAX, for example, makes a copy.
    address = out.data_ptr() if hasattr(out, "data_ptr") else array.ctypes.data
    if not array.flags.writeable or array.ctypes.data != address:
        raise BufferError("out must be writable and in the memory of this process")
    return array


def _check_form(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    is_array = isinstance(out, np.ndarray)
    if tuple(out.shape) != shape or (out.dtype != dtype if is_array else _dtype_of(out) != dtype.name):
        got = out.dtype if is_array else _dtype_of(out)
        raise ValueError(f"out must be {shape} of {dtype}, not {tuple(out.shape)} of {got}")


def _is_torch(frame: Any) -> bool:
    return isinstance(frame, getattr(sys.modules.get("torch"), "Tensor", ()))


def _is_cupy(frame: Any) -> bool:
    return isinstance(frame, getattr(sys.modules.get("cupy"), "ndarray", ()))


def _is_on_device(frame: Any) -> bool:
    try:
        return int(frame.__dlpack_device__()[0]) not in _CPU_DEVICES
    except (AttributeError, BufferError):  # an array of JAX on several devices has no single one
        return False


def _dtype_of(frame: Any) -> str:
    """The name of its dtype, which libraries write as uint8 or torch.uint8."""
    return getattr(frame.dtype, "name", None) or str(frame.dtype).rpartition(".")[2]


def _own_contents(frame: Any) -> Contents | None:
    """What is in `frame` by its attributes, as after a copy to the CPU; None if they do not tell."""
    if not hasattr(frame, "shape") or not hasattr(frame, "dtype"):
        return None
    found = re.fullmatch(r"(bool|(?:uint|int|float|bfloat)(?=8|16|32|64))(\d*)", _dtype_of(frame))
    if found is None:
        return None
    kind, bits = ("float", 32) if found[1] == "bfloat" else (found[1], int(found[2] or 8))
    shape = tuple(map(int, frame.shape))
    return Contents(_library_of(frame), prod(shape) * bits // 8, shape, kind, bits // 8, False)


def _library_of(frame: Any) -> str:
    if hasattr(frame, "permute"):
        return "torch"
    if hasattr(frame, "convert"):
        return "PIL"
    return "memoryview" if isinstance(frame, memoryview) else "numpy"


def _memory_of_torch(tensor: Any) -> Any | OnDevice:
    if tensor.device.type != "cpu" and (contents := _own_contents(tensor)) is not None:
        return OnDevice(contents, lambda array: sys.modules["torch"].from_numpy(array).copy_(tensor))
    return (tensor.float() if _dtype_of(tensor) == "bfloat16" else tensor).cpu().numpy()


def _array_of(frame: Any) -> npt.NDArray[Any]:
    """An array on the memory of `frame`, or on a copy that its library makes."""
    if hasattr(frame, "numpy"):  # a tensor; one that has a gradient must be detached from it
        return cast("npt.NDArray[Any]", (frame.detach() if hasattr(frame, "detach") else frame).numpy())
    if hasattr(frame, "__array_interface__") or hasattr(frame, "__array__"):
        return np.asarray(frame)
    if hasattr(frame, "__dlpack__"):
        return _array_of_dlpack(frame)
    if isinstance(frame, list | tuple):
        raise TypeError(
            f"a frame must be one buffer, such as a NumPy array, not a {type(frame).__name__}. Pass "
            "numpy.asarray(frame, numpy.uint8), or write the frames one by one"
        )
    raise TypeError(
        f"a frame must be a buffer of pixels, such as a NumPy array, a tensor or bytes, not {type(frame).__name__}"
    )


def _array_of_dlpack(frame: Any) -> npt.NDArray[Any]:
    if not _is_on_device(frame):
        return np.from_dlpack(frame)
    try:
        return np.from_dlpack(frame, device="cpu")
    # NumPy before 2.1 takes no device, and some libraries make no copy.
    except (TypeError, BufferError, ValueError) as error:
        raise TypeError(
            f"a {type(frame).__name__} on a device can't be copied to the CPU by DLPack ({error}). Pass a copy on the "
            "CPU"
        ) from error
