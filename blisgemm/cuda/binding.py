"""The CUDA driver as Python sees it: is it there, did a call succeed, which devices, which context is current.

Knows: ``cuda.bindings.driver`` (imported at the first call of ``driver()``, never earlier), error codes, device
facts, primary contexts. Does not know: kernels, memory, arrays. Called by ``modules``, ``memory`` and ``driver``,
which hands everything on under one name.

Contexts: everything here uses a device's primary context, the one that torch, cupy and Numba share. It is
retained once per process and never released, as theirs is.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import MappingProxyType
from typing import Any

from ..errors import CudaError, CudaUnavailableError

__all__ = [
    "attributes", "check", "current_device", "device_count", "driver", "free_memory", "is_available", "on_device",
    "relaxed_capture", "why_unavailable",
]  # fmt: skip

_OLDEST_DRIVER = 12000  # CUDA 12.0, in the driver's own counting: 1000 × major + 10 × minor

_EXTRAS = "pip install 'blisgemm[cuda12]' or 'blisgemm[cuda13]'"

# What some codes mean for a caller of this library; the others keep CUDA's own sentence.
_MEANINGS = {
    "CUDA_ERROR_NOT_INITIALIZED": (
        "CUDA isn't initialised in this process; a process forked from one that had used CUDA can't use it: "
        "start workers with 'spawn' or 'forkserver'"
    ),
    "CUDA_ERROR_DEINITIALIZED": "the CUDA driver is shutting down with the interpreter",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another compute capability than this GPU's",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel accessed memory that isn't its own; the process can't use CUDA any more",
}

_api: Any = None  # cuda.bindings.driver once cuInit has succeeded
_retaining = threading.Lock()
_primary: dict[int, Any] = {}  # ordinal -> CUcontext
_primary_handles: dict[int, int] = {}  # ordinal -> the same as an integer, to compare with


# ---- is it there? -----------------------------------------------------------------------------------------------


def why_unavailable() -> str | None:
    """Return the sentence that says why nothing can run on a GPU here; ``None`` if it can. Asked once per process."""
    return _look()[1]


def is_available() -> bool:
    """Return whether a CUDA device can be used."""
    return _look()[1] is None


def driver() -> Any:
    """Return ``cuda.bindings.driver``, initialised.

    Raises:
        CudaUnavailableError: There is no package, no driver, no device, or the driver is too old.
    """
    global _api
    if _api is None:
        found, reason = _look()
        if reason is not None:
            raise CudaUnavailableError(reason)
        _api = found
    return _api


@cache
def _look() -> tuple[Any, str | None]:
    """Return the initialised driver module and ``None``, or ``None`` and what is missing."""
    try:
        api: Any = importlib.import_module("cuda.bindings.driver")
        version = str(getattr(importlib.import_module("cuda.bindings"), "__version__", "0"))
    except (ImportError, OSError, RuntimeError) as error:
        return None, f"the package cuda-bindings can't be imported ({error}): {_EXTRAS}"
    try:
        status = api.cuInit(0)[0]
        known, supported = api.cuDriverGetVersion()
    except Exception as error:  # the library isn't found, or lacks a symbol; cuda-bindings has no one class for it
        text = (str(error).strip() or repr(error)).splitlines()[0]
        return (
            None,
            f"no usable NVIDIA driver library on this machine ({text}); NVIDIA's driver brings it, and what compiles "
            f"and launches kernels comes by {_EXTRAS}",
        )
    needed = max(_OLDEST_DRIVER, 1000 * _major(version))
    if not known and 0 < supported < needed:
        return None, _too_old(supported, needed, version)
    if status:
        return None, _why_not_initialised(status.name)
    failed, devices = api.cuDeviceGetCount()
    if failed or not devices:
        return None, _why_not_initialised("CUDA_ERROR_NO_DEVICE")
    return api, None


def _major(version: str) -> int:
    """Return the major number of a version; 0 if there is none."""
    head = version.split(".")[0]
    return int(head) if head.isdigit() else 0


def _too_old(supported: int, needed: int, bindings: str) -> str:
    """Return the sentence about a driver that is older than the bindings."""
    has, wants = (f"{v // 1000}.{v % 1000 // 10}" for v in (supported, needed))
    what = f"the NVIDIA driver is too old: it supports CUDA {has}, and cuda-bindings {bindings} needs {wants}"
    if supported >= _OLDEST_DRIVER:
        return f"{what}; update the driver, or: pip install 'blisgemm[cuda12]'"
    return f"{what}; update the driver, then: {_EXTRAS}"


def _why_not_initialised(name: str) -> str:
    """Return the sentence about a driver that is there and doesn't start."""
    if name == "CUDA_ERROR_NO_DEVICE":
        return (
            "the NVIDIA driver is here and sees no CUDA device (is CUDA_VISIBLE_DEVICES set?); "
            f"with a device visible, the packages are brought by {_EXTRAS}"
        )
    meaning = _MEANINGS.get(name, "see NVIDIA's list of driver errors")
    return f"the NVIDIA driver doesn't start, {name}: {meaning}; the packages are brought by {_EXTRAS}"


def check(result: tuple[Any, ...], call: str) -> Any:
    """Unpack what a driver call returned.

    Args:
        result: The status, then the values.
        call: Name of the driver function, for the error.

    Returns:
        Nothing, the value, or the tuple of values.

    Raises:
        CudaError: The status isn't success.
    """
    if result[0]:
        raise _error(result[0], call)
    if len(result) == 2:
        return result[1]
    return result[1:] or None


def _error(status: Any, call: str) -> CudaError:
    """Return the exception for a status."""
    name = getattr(status, "name", str(status))
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        return CudaError(call, name, _out_of_memory())
    text = _MEANINGS.get(name)
    if text is None:
        try:
            failed, found = driver().cuGetErrorString(status)
            text = "no description" if failed else found.decode(errors="replace")
        except Exception:  # a status from a newer driver: its name must do
            text = "no description"
    return CudaError(call, name, text)


def _out_of_memory() -> str:
    """Return the sentence for a GPU without enough free memory."""
    what = "the GPU has too little free memory for this"
    failed, free, total = driver().cuMemGetInfo()
    return what if failed else f"{what}: {int(free) >> 20} of {int(total) >> 20} MiB are free"


# ---- devices ----------------------------------------------------------------------------------------------------


def device_count() -> int:
    """Return the number of CUDA devices that this process sees."""
    return int(check(driver().cuDeviceGetCount(), "cuDeviceGetCount"))


# What a model of the GPU needs: our word -> the driver's, after CU_DEVICE_ATTRIBUTE_.
_ATTRIBUTES = {
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "shared_bytes_per_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_bytes_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "reserved_shared_bytes_per_block": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "registers_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "threads_per_multiprocessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "threads_per_block": "MAX_THREADS_PER_BLOCK",
    "blocks_per_multiprocessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "warp_threads": "WARP_SIZE",
    "l2_bytes": "L2_CACHE_SIZE",
    "clock_khz": "CLOCK_RATE",
    "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
    "memory_pools": "MEMORY_POOLS_SUPPORTED",
}


@cache
def attributes(ordinal: int) -> Mapping[str, Any]:
    """Return the facts of a device that a model of it needs.

    Args:
        ordinal: CUDA's number of the device, as torch and cupy count.

    Returns:
        ``name``, ``capability`` (major, minor), ``memory_bytes`` and the words of ``_ATTRIBUTES``; read-only.
        An attribute that this driver doesn't know is 0.
    """
    api = driver()
    device = check(api.cuDeviceGet(ordinal), "cuDeviceGet")

    def ask(word: str) -> int:
        which = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{word}", None)
        if which is None:
            return 0
        failed, value = api.cuDeviceGetAttribute(which, device)
        return 0 if failed else int(value)

    facts: dict[str, Any] = {
        "name": check(api.cuDeviceGetName(256, device), "cuDeviceGetName").split(b"\0")[0].decode(errors="replace"),
        "capability": (ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        "memory_bytes": int(check(api.cuDeviceTotalMem(device), "cuDeviceTotalMem")),
    }
    facts.update((ours, ask(theirs)) for ours, theirs in _ATTRIBUTES.items())
    return MappingProxyType(facts)


def free_memory() -> tuple[int, int]:
    """Return (free, total) bytes of the current device; a context must be current."""
    free, total = check(driver().cuMemGetInfo(), "cuMemGetInfo")
    return int(free), int(total)


# ---- contexts ---------------------------------------------------------------------------------------------------


def current_device() -> int | None:
    """Return the ordinal of the device of the calling thread's current context; ``None`` if there is no context."""
    status, device = driver().cuCtxGetDevice()
    return None if status else int(device)


class _Pushed:
    """A primary context that is current inside the ``with`` block and popped after it."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        check(driver().cuCtxPushCurrent(self._context), "cuCtxPushCurrent")

    def __exit__(self, *error: object) -> None:
        check(driver().cuCtxPopCurrent(), "cuCtxPopCurrent")


_ALREADY = nullcontext()


def on_device(ordinal: int) -> AbstractContextManager[None]:
    """Make a device's primary context current inside a ``with`` block; cheap if it already is.

    Use it at once, as in ``with on_device(0):``: what is current is looked up by the call.
    """
    api = _api or driver()
    status, context = api.cuCtxGetCurrent()
    if not status and _primary_handles.get(ordinal) == int(context):
        return _ALREADY
    if ordinal not in _primary_handles:
        _retain(api, ordinal)
        if not status and _primary_handles[ordinal] == int(context):
            return _ALREADY
    return _Pushed(_primary[ordinal])


def _retain(api: Any, ordinal: int) -> None:
    """Take hold of a device's primary context, once."""
    with _retaining:
        if ordinal not in _primary_handles:
            device = check(api.cuDeviceGet(ordinal), "cuDeviceGet")
            context = check(api.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")
            _primary[ordinal] = context
            _primary_handles[ordinal] = int(context)


class relaxed_capture:
    """Let this thread allocate and load modules while some stream is being captured into a CUDA graph.

    Both are forbidden during a capture in CUDA's strictest mode, the default, though neither becomes
    part of the graph.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        api = driver()
        self._before = self._exchange(api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)

    def __exit__(self, *error: object) -> None:
        self._exchange(self._before)

    @staticmethod
    def _exchange(mode: Any) -> Any:
        return check(driver().cuThreadExchangeStreamCaptureMode(mode), "cuThreadExchangeStreamCaptureMode")
