"""Compile a rung, load it, launch it.

Knows: how each kind of rung takes its arguments. Does not know: what a rung does. Called by ``bench/cuda_ladder.py``
and the tests.

A rung is compiled once per compute capability and loaded once per device, both in this process only: the ladder has no
disk cache.
"""

from __future__ import annotations

import functools
from typing import Any

from ...errors import BlisgemmTypeError, BlisgemmValueError
from .. import driver
from ..arrays import View, current_stream, view_of, wait_for
from ..compile import Compiled, compile_python
from . import ARRAYS, Rung, rung_of

__all__ = ["compiled", "loaded", "run"]

_BLOCKS_AT_ONCE = 2  # that a multiprocessor shall hold, at least; it bounds the registers of a thread
_MOST_BLOCKS_IN_Y = 65535  # of a grid; CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"


@functools.cache
def compiled(rung: Rung, capability: tuple[int, int]) -> Compiled:
    """Compile a rung for a compute capability, such as (9, 0). No GPU is needed."""
    module = rung.module()
    from ..ptx import types

    if rung.arguments == ARRAYS:
        signature = types.void(*(types.Array(types.float32, 2, "C"),) * 3)
    else:
        signature = types.void(*(types.int64,) * 3, *(types.int32,) * 3)
    return compile_python(module.kernel(), signature, capability, (module.THREADS, _BLOCKS_AT_ONCE))


@functools.cache
def loaded(rung: Rung, ordinal: int) -> driver.Kernel:
    """Return a rung's kernel on a device."""
    code = compiled(rung, driver.attributes(ordinal)["capability"])
    dynamic_bytes = 0 if rung.arguments == ARRAYS else rung.module().SHARED_BYTES
    return driver.load_kernel(code.cubin, code.name, dynamic_bytes, ordinal)


def run(rung: Rung | str, a: Any, b: Any, c: Any) -> None:
    """Enqueue C = A · B on the current stream of the library that C comes from.

    Args:
        rung: One of ``RUNGS``, or its name; ``g4`` will do.
        a, b, c: float32 arrays on one device, row-major without gaps, of torch, cupy or Numba. c is overwritten,
            and may share no memory with the others.

    Shapes: a m x k, b k x n, c m x n; every extent is at least 1.

    Raises:
        BlisgemmTypeError: An array is not of float32.
        BlisgemmValueError: Shapes don't fit, or an array has gaps or lies elsewhere.
    """
    rung = rung_of(rung) if isinstance(rung, str) else rung
    views = [view_of(name, x) for name, x in zip("abc", (a, b, c), strict=True)]
    m, n, k = _extents(views)
    module = rung.module()
    blocks = module.grid(m, n)
    if blocks[1] > _MOST_BLOCKS_IN_Y:
        raise BlisgemmValueError(f"c: expected at most {_MOST_BLOCKS_IN_Y * module.BLOCK[0]} rows, got {m}")
    of_c = views[2]
    kernel = loaded(rung, of_c.device)
    if rung.arguments == ARRAYS:
        arguments = driver.pack("q" * 27, [word for view in views for word in _array_words(view)])
    else:
        arguments = driver.pack("qqqiii", [*(view.pointer for view in views), m, n, k])
    with driver.on_device(of_c.device):
        stream = current_stream(of_c.kind, of_c.device)
        for view in views[:2]:
            wait_for(view, stream)
        driver.launch(kernel, blocks, module.THREADS, kernel.dynamic_shared_bytes, stream, arguments)


def _extents(views: list[View]) -> tuple[int, int, int]:
    """Check shapes, dtypes and layouts; return m, n, k."""
    for name, view in zip("abc", views, strict=True):
        if view.dtype != "float32":
            raise BlisgemmTypeError(f"{name}: expected float32, got {view.dtype}")
        if len(view.shape) != 2 or min(view.shape) < 1 or max(view.shape) > 2**31 - 256:
            raise BlisgemmValueError(f"{name}: expected two extents from 1 to 2**31 - 256, got shape {view.shape}")
        rows, columns = view.shape
        if (columns > 1 and view.strides[1] != 1) or (rows > 1 and view.strides[0] != columns):
            raise BlisgemmValueError(f"{name}: expected rows without gaps, got strides {view.strides}")
        if view.device < 0 or view.device != views[2].device:
            raise BlisgemmValueError(f"{name}: expected memory of one GPU, got devices {[v.device for v in views]}")
    (m, k), (k_of_b, n), shape_of_c = (view.shape for view in views)
    if k_of_b != k or shape_of_c != (m, n):
        raise BlisgemmValueError(f"expected shapes m x k, k x n, m x n; got {[view.shape for view in views]}")
    return m, n, k


def _array_words(view: View) -> tuple[int, ...]:
    """Return what Numba makes of an array argument: two owners (none here), extents and strides in bytes, all int64."""
    rows, columns = view.shape
    return 0, 0, rows * columns, 4, view.pointer, rows, columns, columns * 4, 4
