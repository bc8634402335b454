"""Stand-ins for tensors on a GPU, for machines without one: only their own methods lead to their samples.

They behave as those of their libraries in what copying frames relies on, and note each copy.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest


class TorchTensor:
    """Stands in for ``torch.Tensor``. On "cuda", NumPy and the buffer protocol get nothing."""

    copies: ClassVar[list[TorchTensor]] = []

    def __init__(self, samples: np.ndarray, device: str = "cuda", dtype: str | None = None) -> None:
        self._samples, self.device = samples, SimpleNamespace(type=device)
        # Its str() is that of torch's, which has no attribute for the bare name.
        self._dtype = dtype or samples.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self._samples.shape

    @property
    def dtype(self) -> Any:
        return type("dtype", (), {"__str__": lambda _: f"torch.{self._dtype}"})()

    def detach(self) -> TorchTensor:
        return self

    def permute(self, *axes: int) -> TorchTensor:
        return TorchTensor(self._samples.transpose(axes), self.device.type, self._dtype)

    def numpy(self) -> np.ndarray:
        if self.device.type != "cpu":
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor"
            )
        return self._samples

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.numpy()

    def __getitem__(self, number: int) -> TorchTensor:
        return TorchTensor(self._samples[number], self.device.type, self._dtype)

    def copy_(self, source: TorchTensor) -> TorchTensor:
        assert self.shape == source.shape
        self._samples[...] = source._samples
        TorchTensor.copies.append(self)
        return self


class CupyArray:
    """Stands in for ``cupy.ndarray``."""

    copies: ClassVar[list[np.ndarray]] = []

    def __init__(self, samples: np.ndarray) -> None:
        self._samples, self.shape, self.dtype = samples, samples.shape, samples.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self, *, out: np.ndarray) -> np.ndarray:
        assert isinstance(out, np.ndarray) and out.flags.c_contiguous
        assert (out.shape, out.dtype) == (self.shape, self.dtype)
        out[...] = self._samples
        CupyArray.copies.append(out)
        return out

    def set(self, source: np.ndarray) -> None:
        assert isinstance(source, np.ndarray)
        assert (source.shape, source.dtype) == (self.shape, self.dtype)
        self._samples[...] = source
        CupyArray.copies.append(source)

    def __getitem__(self, number: int) -> CupyArray:
        return CupyArray(self._samples[number])


class DlpackTensor:
    """Stands in for a tensor on a GPU whose library has DLPack alone, which copies it to the CPU if asked to."""

    copies: ClassVar[list[np.ndarray]] = []

    def __init__(self, samples: np.ndarray) -> None:
        self._samples = samples

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, dl_device: tuple[int, int] | None = None, **_: Any) -> Any:
        if dl_device != (1, 0):
            raise BufferError("the samples are on a GPU")
        copy = self._samples.copy()
        type(self).copies.append(copy)
        return copy.__dlpack__()


class DescribedTensor(DlpackTensor):
    """The same with a shape and a dtype, as most libraries have them."""

    copies: ClassVar[list[np.ndarray]] = []

    def __init__(self, samples: np.ndarray) -> None:
        super().__init__(samples)
        self.shape, self.dtype = samples.shape, samples.dtype


class JaxArray:
    """Stands in for an array of JAX on a GPU, which `numpy.asarray` copies to the CPU."""

    copies: ClassVar[list[np.ndarray]] = []

    def __init__(self, samples: np.ndarray) -> None:
        self._samples, self.shape, self.dtype = samples, samples.shape, samples.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("the samples are on a GPU")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        made = self._samples.copy()
        made.flags.writeable = False
        JaxArray.copies.append(made)
        return made


KINDS = (TorchTensor, CupyArray, JaxArray, DescribedTensor, DlpackTensor)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the stand-ins in the place of their libraries, as if these had been imported, and forgets old copies."""
    torch, cupy = ModuleType("torch"), ModuleType("cupy")
    torch.__dict__.update(Tensor=TorchTensor, from_numpy=lambda array: TorchTensor(array, "cpu"))
    cupy.__dict__.update(ndarray=CupyArray)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for kind in KINDS:
        monkeypatch.setattr(kind, "copies", [])
