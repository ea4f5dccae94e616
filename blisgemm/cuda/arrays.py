"""Arrays of any library as a description of memory: pointer, shape, strides, dtype, device.

Knows: how torch, cupy, Numba, ``__cuda_array_interface__`` and DLPack tell where their data lies, and how to make a
result of the same kind. Does not know: what is computed with them. Called by the interface and by ``driver``'s users.

None of these libraries is imported here: whoever holds an array of one has imported it. Reading a torch
tensor costs one or two microseconds of the host, the interfaces some more.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from .device_array import DeviceArray
from .memory import Event, pointer_device
from .view import ITEM_BYTES, View, overlap

__all__ = ["ITEM_BYTES", "View", "current_stream", "new_like", "overlap", "view_of", "wait_for"]

_LEGACY_STREAM = 1  # how the interfaces call stream 0, which means "none" to some of them
_DLPACK_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_NO_ORDER = -1  # to a DLPack producer: don't wait, the caller sees to that


# ---- reading ----------------------------------------------------------------------------------------------------


def view_of(argument: str, x: Any) -> View:
    """Describe an array.

    Args:
        argument: Name of the caller's argument, for errors.
        x: A torch CUDA tensor, a cupy or Numba device array, anything with ``__cuda_array_interface__`` or
            ``__dlpack__`` in GPU memory, or a NumPy array or what NumPy makes one of.

    Returns:
        The description. ``kind`` is ``"numpy"`` for host memory, which only NumPy may bring.

    Raises:
        BlisgemmTypeError: It's no such array, or its dtype or layout has no description.
        BlisgemmValueError: Its strides aren't whole elements.
    """
    if type(x) is View:
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise BlisgemmTypeError(f"{argument}: expected an array without a mask; got a MaskedArray (see numpy.ma.dot)")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, getattr(torch, "Tensor", ())):
        return _torch_view(argument, x)
    if isinstance(x, np.ndarray):
        return _numpy_view(argument, x, x)
    if type(x) is DeviceArray:
        return View(x.pointer, x.shape, _c_order(x.shape), x.dtype, x.device, "dlpack", x, False, x.stream)
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_view(argument, x, interface)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _dlpack_view(argument, x)
    if isinstance(x, (list, tuple, int, float, complex, np.generic)) or hasattr(x, "__array__"):
        return _numpy_view(argument, np.asarray(x), x)
    raise _wrong(argument, x)


def _wrong(argument: str, x: Any, what: str = "") -> BlisgemmTypeError:
    """Return the error about an argument that is no array we can read."""
    came = what or f"{type(x).__module__}.{type(x).__qualname__}"
    return BlisgemmTypeError(f"{argument}: expected an array in GPU memory or a NumPy array, got {came}")


_torch_dtypes: dict[Any, str] = {}  # torch.dtype -> name


def _torch_names() -> dict[Any, str]:
    """Return torch's dtypes with their names."""
    torch = sys.modules["torch"]
    if not _torch_dtypes:
        names = {getattr(torch, name): name for name in ITEM_BYTES if hasattr(torch, name)}
        _torch_dtypes.update(names)  # at once, for threads beside this one
    return _torch_dtypes


def _torch_view(argument: str, x: Any) -> View:
    """Describe a tensor. One that requires grad is read as data: the product isn't recorded."""
    if not x.is_cuda:
        raise _wrong(argument, x, f"a torch tensor on {x.device} (move it with .cuda(), or pass its .numpy())")
    dtype = (_torch_dtypes or _torch_names()).get(x.dtype)
    if dtype is None:
        raise BlisgemmTypeError(f"{argument}: expected a dtype of numbers, got {x.dtype}")
    if x.layout is not sys.modules["torch"].strided:
        raise BlisgemmTypeError(f"{argument}: expected a dense tensor, got layout {x.layout}; call .to_dense() first")
    if x.is_conj():
        raise BlisgemmTypeError(f"{argument}: the tensor is conjugated lazily; call .resolve_conj() first")
    if x.is_neg():
        raise BlisgemmTypeError(f"{argument}: the tensor is negated lazily; call .resolve_neg() first")
    return View(x.data_ptr(), tuple(x.shape), x.stride(), dtype, x.get_device(), "torch", x)


def _numpy_view(argument: str, x: np.ndarray[Any, Any], given: Any) -> View:
    """Describe an array in host memory; ``given`` is what it was made of."""
    if x.dtype.name not in ITEM_BYTES or not x.dtype.isnative:
        raise BlisgemmTypeError(f"{argument}: expected numbers in this machine's byte order, got dtype {x.dtype!r}")
    strides = _elements(argument, x.strides, x.itemsize)
    return View(x.ctypes.data, x.shape, strides, x.dtype.name, -1, "numpy", x, not x.flags.writeable)


def _elements(argument: str, strides_bytes: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    """Return strides in elements."""
    strides = tuple([s // item_bytes for s in strides_bytes])
    if any([s * item_bytes != b for s, b in zip(strides, strides_bytes, strict=True)]):  # noqa: C419 (it's quicker)
        raise BlisgemmValueError(
            f"{argument}: expected strides of whole elements of {item_bytes} bytes, got {strides_bytes} bytes"
        )
    return strides


def _c_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array without gaps."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _interface_view(argument: str, x: Any, interface: dict[str, Any]) -> View:
    """Describe what has a ``__cuda_array_interface__`` of version 2 or 3.

    Source: Numba's documentation, "CUDA Array Interface (Version 3)".
    """
    if interface.get("mask") is not None:
        raise BlisgemmTypeError(f"{argument}: masked arrays aren't accepted")
    dtype = _typestr_name(argument, x, interface["typestr"])
    shape = tuple(int(extent) for extent in interface["shape"])
    strides_bytes = interface.get("strides")
    strides = _c_order(shape) if strides_bytes is None else _elements(argument, tuple(strides_bytes), ITEM_BYTES[dtype])
    pointer, read_only = interface["data"]
    kind = type(x).__module__.split(".")[0]
    if kind not in ("cupy", "numba"):
        kind = "numba" if kind == "numba_cuda" else "dlpack"
    device = _device(argument, x, kind, int(pointer or 0))
    stream = interface.get("stream")
    return View(
        int(pointer or 0), shape, strides, dtype, device, kind, x, bool(read_only),
        None if stream is None else int(stream),
    )  # fmt: skip


def _typestr_name(argument: str, x: Any, typestr: str) -> str:
    """Return the dtype of a type string such as ``<f4``."""
    if typestr[1:2] == "V":  # what has no letter of its own: the array's dtype must say what it is
        name = str(getattr(getattr(x, "dtype", None), "name", ""))
    else:
        try:
            dtype = np.dtype(typestr)
        except TypeError:
            raise BlisgemmTypeError(f"{argument}: expected a dtype of numbers, got {typestr!r}") from None
        if not dtype.isnative:
            raise BlisgemmTypeError(f"{argument}: expected this machine's byte order, got dtype {typestr!r}")
        name = dtype.name
    if name not in ITEM_BYTES:
        raise BlisgemmTypeError(f"{argument}: expected a dtype of numbers, got {typestr!r}")
    return name


def _device(argument: str, x: Any, kind: str, pointer: int) -> int:
    """Return the ordinal of the device that an array lies on."""
    if kind == "cupy":
        return int(x.device.id)
    if not pointer:  # an array without elements lies nowhere
        return 0
    ordinal = pointer_device(pointer)
    if ordinal is None:
        raise _wrong(argument, x, f"the pointer {pointer:#x}, which isn't GPU memory that this process can use")
    return ordinal


def _dlpack_view(argument: str, x: Any) -> View:
    """Describe what speaks DLPack only, read by cuda-core."""
    where, ordinal = x.__dlpack_device__()
    if int(where) not in _DLPACK_DEVICES:
        raise _wrong(argument, x, f"an array on the DLPack device {(int(where), int(ordinal))}")
    try:
        memory_view: Any = importlib.import_module("cuda.core.utils").StridedMemoryView
    except ImportError as error:
        raise BlisgemmTypeError(
            f"{argument}: reading an array through DLPack needs the package cuda-core ({error}): "
            "pip install 'blisgemm[cuda12]' or 'blisgemm[cuda13]'"
        ) from None
    found = memory_view.from_dlpack(x, stream_ptr=_NO_ORDER)
    name = np.dtype(found.dtype).name if found.dtype is not None else "nothing"
    if name not in ITEM_BYTES:
        raise BlisgemmTypeError(f"{argument}: expected a dtype of numbers, got {found.dtype!r}")
    shape = tuple(found.shape)
    strides = _c_order(shape) if found.strides is None else tuple(found.strides)
    return View(int(found.ptr), shape, strides, name, int(ordinal), "dlpack", (x, found), bool(found.readonly))


# ---- making -----------------------------------------------------------------------------------------------------


_Shape = tuple[int, ...]


def _new_torch(like: Any, shape: _Shape, dtype: str, device: int, stream: int) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype), device=f"cuda:{device}")


def _new_cupy(like: Any, shape: _Shape, dtype: str, device: int, stream: int) -> Any:
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(device):
        return cupy.empty(shape, dtype=like.dtype if like.dtype.name == dtype else dtype)


def _new_numba(like: Any, shape: _Shape, dtype: str, device: int, stream: int) -> Any:
    cuda = sys.modules["numba.cuda"]
    with cuda.gpus[device]:
        return cuda.device_array(shape, dtype=np.dtype(dtype))


def _new_ours(like: Any, shape: _Shape, dtype: str, device: int, stream: int) -> Any:
    return DeviceArray(shape, dtype, device, stream)


def _new_numpy(like: Any, shape: _Shape, dtype: str, device: int, stream: int) -> Any:
    return np.empty(shape, dtype=like.dtype if like.dtype.name == dtype else dtype)


_MAKERS: dict[str, Callable[[Any, _Shape, str, int, int], Any]] = {
    "torch": _new_torch,
    "cupy": _new_cupy,
    "numba": _new_numba,
    "dlpack": _new_ours,
    "numpy": _new_numpy,
}


def new_like(kind: str, like: Any, shape: _Shape, dtype: str, device: int, stream: int = 0) -> tuple[Any, View]:
    """Make an uninitialised array in C order.

    Args:
        kind: Of which library.
        like: An array of that library, as ``View.owner`` has it.
        shape: The shape wanted.
        dtype: One of ``ITEM_BYTES``.
        device: The ordinal, ignored for ``"numpy"``.
        stream: The stream that will write it, which ``"dlpack"`` allocates and frees it on; the others use their
            library's current stream.

    Returns:
        The array and its view.
    """
    made = _MAKERS[kind](like, shape, dtype, device, stream)
    return made, view_of("the result", made)


# ---- order ------------------------------------------------------------------------------------------------------


def current_stream(kind: str, device: int) -> int:
    """Return the handle of the stream that a library enqueues its work on, in this thread; 0 if it has no such word."""
    if kind == "torch":
        torch = sys.modules["torch"]
        try:
            return int(torch._C._cuda_getCurrentRawStream(device))  # what torch's own generated code calls
        except AttributeError:
            return int(torch.cuda.current_stream(device).cuda_stream)
    if kind == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0


def wait_for(view: View, stream: int) -> None:
    """Let what is enqueued on the stream later wait until the array's data is ready.

    That is: for what has been enqueued on the stream that its interface named, or, if it named none, on
    the current stream of torch or cupy. Nothing is done where that is the same stream. The device must be current.
    """
    producer = view.stream
    if producer is None:
        if view.kind not in ("torch", "cupy"):
            return
        producer = current_stream(view.kind, view.device)
    if producer == _LEGACY_STREAM:
        producer = 0
    if producer == (0 if stream == _LEGACY_STREAM else stream):
        return
    event = Event()
    event.record(producer)
    event.wait(stream)
