"""The compiled functions of a kernel, made when first needed and kept.

Knows: the Numba signature of every entry point and the cache that it goes through. Does not know:
when to call which. Called by ``driver`` and ``api``. Importing this module imports Numba; nothing above
does before the first product.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
from numba import config, types
from numba.np import numpy_support

from . import checks, entry
from .cache import DiskCache
from .errors import BlisgemmError
from .forking import compiling
from .links import arguments_of_direct
from .team import TEAM
from .ukernel.bind import KernelType
from .ukernel.ndarray import PyObject, layout_is_as_expected
from .ukernel.spec import KernelSpec
from .verbose import say

__all__ = ["code_address", "entry_point", "is_kept", "real_dtype"]

if not layout_is_as_expected():
    raise ImportError("blisgemm: this NumPy keeps its array fields elsewhere than NumPy 1.7 to 2.x do")


def real_dtype(kernel: KernelSpec) -> np.dtype[Any]:
    """Return the dtype of the reals in a packed buffer."""
    return np.dtype(f"float{kernel.real_bits}")


def _signature(name: str, kernel: KernelSpec) -> tuple[Any, ...]:
    k, i = KernelType(kernel), types.intp
    scalar = numpy_support.from_dtype(np.dtype(kernel.acc_dtype))
    if name in ("fast_lane", "stack_lane"):
        limits = (PyObject,) if name == "fast_lane" else (i,) * 3
        return (k, *limits, *(PyObject,) * 6, i, scalar, scalar)
    product = (scalar, PyObject, PyObject, scalar, PyObject, i)
    if name in ("run_direct", "run_columns"):
        return arguments_of_direct(k, scalar, PyObject)  # type: ignore[no-any-return]
    if name == "run_batch_direct":
        return (k, i, i, *product, TEAM)
    if name == "run_copied":
        return (k, i, *product, types.Array(scalar, 3, "C"), TEAM)
    if name == "run_batch_copied":
        return (k, i, i, *product, types.Array(scalar, 3, "C"), TEAM)
    real = numpy_support.from_dtype(real_dtype(kernel))
    blocking, blocks, panels = types.UniTuple(i, 4), types.Array(real, 3, "C"), types.Array(real, 2, "C")
    if name == "run_stream":
        return (k, i, i, i, *product, types.Array(real, 4, "C"), TEAM)
    if name == "run_strips":
        return (k, i, i, i, *product, types.Array(real, 4, "C"), blocks, panels, TEAM)
    if name == "run_sweep":
        return (k, i, i, i, *product, types.Array(real, 3, "C"), TEAM)
    if name in ("run_batch_packed", "run_batch_half"):
        return (k, blocking, i, *product, blocks, blocks, TEAM)
    return (k, blocking, *product, blocks, blocks, TEAM)


def _cached(name: str) -> Any:
    """Return the dispatcher of an entry point, with the cache of this library in place of Numba's."""
    dispatcher = getattr(checks if name in checks.__all__ else entry, name)
    if not isinstance(dispatcher._cache, DiskCache):
        dispatcher._cache = DiskCache(name)
    return dispatcher


@cache
def is_kept(name: str, kernel: KernelSpec) -> bool:
    """Whether the cache folder had the machine code of an entry point for ``kernel`` when first asked."""
    dispatcher = _cached(name)
    with compiling():
        return bool(dispatcher._cache.has(_signature(name, kernel), dispatcher.targetctx))


@cache
def entry_point(name: str, kernel: KernelSpec) -> Callable[..., Any]:
    """Return the machine code of an entry point for ``kernel``, from the cache or compiled now."""
    if config.DISABLE_JIT:
        raise BlisgemmError("NUMBA_DISABLE_JIT: expected it unset, since blisgemm's kernels are compiled; got 1")
    dispatcher = _cached(name)
    signature = _signature(name, kernel)
    with compiling():  # of several threads that want it one compiles, and the others find it here
        there = dispatcher.overloads.get(tuple(signature))
        if there is not None:
            return cast("Callable[..., Any]", there.entry_point)
        start, hits = time.perf_counter(), sum(dispatcher.stats.cache_hits.values())
        code: Callable[..., Any] = dispatcher.compile(signature)
        how = "loaded" if sum(dispatcher.stats.cache_hits.values()) > hits else "compiled"
        say(f"{how} {name} for {kernel.name} in {time.perf_counter() - start:.2f} s")
        return code


def code_address(name: str, kernel: KernelSpec) -> int:
    """Return where the machine code of an entry point is, for calls from compiled code (``links``)."""
    entry_point(name, kernel)
    made = _cached(name).overloads[tuple(_signature(name, kernel))]
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))
