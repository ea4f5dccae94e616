"""An array in GPU memory of our own: the result for arrays whose library can't be asked to make one.

Knows: memory in the order of a stream, the CUDA array interface, DLPack through cuda-core. Does not know:
arithmetic; torch, cupy and Numba take it without a copy. Called by ``arrays`` and by programs without any of these.
"""

from __future__ import annotations

import importlib
from math import prod
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from .binding import current_device, on_device
from .memory import allocate, copy_to_device, copy_to_host, free, synchronize

__all__ = ["DeviceArray"]


class DeviceArray:
    """An uninitialised array in GPU memory, in C order, freed with the object.

    Args:
        shape: The extents.
        dtype: A NumPy dtype's name, or ``"bfloat16"``.
        device: Ordinal of the device; the current one, or 0, if not given.
        stream: The stream that uses it; it's freed in the order of that stream.

    ``torch.as_tensor(x, device="cuda")``, ``cupy.asarray(x)`` and ``numba.cuda.as_cuda_array(x)`` share its memory.
    """

    __slots__ = ("__weakref__", "_freed", "device", "dtype", "nbytes", "pointer", "shape", "stream", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int | None = None, stream: int = 0) -> None:
        self._freed = True  # until there is something to free
        item_bytes = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        if device is None:
            current = current_device()
            device = 0 if current is None else current
        self.shape = tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in self.shape):
            raise BlisgemmValueError(f"expected extents of at least 0, got the shape {self.shape}")
        self.dtype, self.device, self.stream = dtype, device, stream
        self.strides = tuple(item_bytes * prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        self.nbytes = item_bytes * prod(self.shape)
        self.pointer = 0
        if self.nbytes:
            with on_device(device):
                self.pointer = allocate(self.nbytes, stream)
            self._freed = False

    @classmethod
    def from_host(cls, x: Any, device: int | None = None, stream: int = 0) -> DeviceArray:
        """Return a copy of a host array in GPU memory."""
        host = np.ascontiguousarray(x).reshape(np.shape(x))
        made = cls(host.shape, host.dtype.name, device, stream)
        with on_device(made.device):
            copy_to_device(made.pointer, host.ctypes.data, made.nbytes, stream)
            synchronize(stream)
        return made

    def copy_to_host(self) -> np.ndarray[Any, Any]:
        """Return the values as a NumPy array, when all work on ``stream`` is done.

        Raises:
            BlisgemmTypeError: NumPy has no such dtype.
        """
        if self.dtype == "bfloat16":
            raise BlisgemmTypeError("NumPy has no bfloat16: copy it with torch or cupy")
        host = np.empty(self.shape, dtype=self.dtype)
        with on_device(self.device):
            copy_to_host(host.ctypes.data, self.pointer, self.nbytes, self.stream)
            synchronize(self.stream)
        return host

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3: the stream, where 0 is called 1, is the one to wait for."""
        typestr = "|V2" if self.dtype == "bfloat16" else np.dtype(self.dtype).str
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.pointer, False),
            "strides": None,
            "stream": self.stream or 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA memory, and which device."""
        return 2, self.device

    def __dlpack__(self, *, stream: int | None = None, **keywords: Any) -> Any:
        """Export the memory; cuda-core writes the capsule. Waits for ``self.stream``."""
        memory_view: Any = importlib.import_module("cuda.core.utils").StridedMemoryView
        if stream != -1:
            with on_device(self.device):
                synchronize(self.stream)
        view = memory_view.from_cuda_array_interface(self, stream_ptr=-1)
        return view.__dlpack__(stream=-1, **keywords)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def __del__(self) -> None:
        if not getattr(self, "_freed", True):
            self._freed = True
            try:
                with on_device(self.device):
                    free(self.pointer, self.stream)
            except Exception:  # the interpreter or the driver is shutting down, or the context is lost
                return
