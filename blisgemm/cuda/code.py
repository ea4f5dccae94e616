"""The compiled kernels: made once, kept on disk and in memory.

Knows: where a kernel comes from: memory, the folder of cubins, the compiler, in this order. Does not know: which kernel
a product needs. Called by ``run``. Numba is imported only if a kernel must be compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..errors import BlisgemmTypeError, CudaUnavailableError
from ..verbose import say
from . import cubins, driver
from .tiles import KernelSpec

__all__ = ["copy_kernel", "gemm_kernel", "scale_kernel"]

_loaded: dict[tuple[Any, ...], driver.Kernel] = {}
_lock = threading.Lock()


def gemm_kernel(spec: KernelSpec, ordinal: int) -> driver.Kernel:
    """Return the kernel of a spec, loaded on a device.

    Raises:
        CudaUnavailableError: it must be compiled, and the compiler is missing.
    """
    found = _loaded.get((spec, ordinal))
    return found or _get((spec, ordinal), spec.name, spec.shared_bytes, lambda cc: _compiler().compile_kernel(spec, cc))


def copy_kernel(item_bytes: int, ordinal: int) -> driver.Kernel:
    """Return the kernel that copies between any strides (``kernels.copy``)."""
    key = ("copy", item_bytes, ordinal)
    return _loaded.get(key) or _get(key, f"copy{item_bytes}", 0, lambda cc: _compiler().compile_copy(item_bytes, cc))


def scale_kernel(dtype: str, ordinal: int) -> driver.Kernel:
    """Return the kernel of ``c := beta * c``."""
    key = ("scale", dtype, ordinal)
    return _loaded.get(key) or _get(key, f"scale_{dtype}", 0, lambda cc: _compiler().compile_scale(dtype, cc))


def _compiler() -> Any:
    try:
        from . import compile as compiler

        compiler.require()
    except ImportError as error:
        text = f"a kernel must be compiled, and {error.name or error} is missing"
        raise CudaUnavailableError(f"{text}: pip install 'blisgemm[cuda12]' or 'blisgemm[cuda13]'") from None
    return compiler


def _get(key: tuple[Any, ...], name: str, shared_bytes: int, make: Callable[[tuple[int, int]], Any]) -> driver.Kernel:
    """Return a kernel from the folder, or compiled; one thread at a time, so that none is compiled twice."""
    with _lock:
        found = _loaded.get(key)
        if found is not None:
            return found
        ordinal = key[-1]
        capability = driver.attributes(ordinal)["capability"]
        on_disk = cubins.key((repr(key[:-1]), capability))
        lasts = getattr(key[0], "lasts", True)
        entry = cubins.load(on_disk) if lasts else None
        kernel = None
        if entry is not None:
            try:
                kernel = driver.load_kernel(entry.cubin, entry.name, shared_bytes, ordinal)
            except Exception as error:  # a file that doesn't load is the same as no file
                say(f"the cubin of {name} doesn't load ({error}); compiling it again")
        if kernel is None:
            say(f"compiling {name} for compute capability {capability[0]}.{capability[1]}")
            made = _made(make, capability, key[0])
            kernel = driver.load_kernel(made.cubin, made.name, shared_bytes, ordinal)
            metadata = {"registers": made.registers, "spill_bytes": made.spill_bytes}
            if lasts:
                cubins.save(on_disk, cubins.Entry(made.cubin, made.name, metadata))
        _loaded[key] = kernel
        return kernel


def _made(make: Callable[[tuple[int, int]], Any], capability: tuple[int, int], what: Any) -> Any:
    """Compile; say of a caller's function that doesn't compile what it is."""
    functions = [step.function.__name__ for step in getattr(what, "epilogue", ()) if step.function is not None]
    if not functions:
        return make(capability)
    try:
        return make(capability)
    except CudaUnavailableError:
        raise
    except Exception as error:
        text = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise BlisgemmTypeError(
            f"epilogue: expected functions that Numba compiles and that return a number; {', '.join(functions)}: {text}"
        ) from error
