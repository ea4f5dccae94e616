"""Intel MKL's gemm through ctypes, from the ``mkl`` wheel.

Knows: where the wheel puts its library and how cblas is called. Does not know: what is measured.
Called by ``squares``. MKL reads its variables when it is loaded (``timing.set_environment``).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

_ROW_MAJOR, _NO_TRANS = 101, 111  # cblas.h
_CALLS = {
    "float32": "cblas_sgemm",
    "float64": "cblas_dgemm",
    "complex64": "cblas_cgemm",
    "complex128": "cblas_zgemm",
}


def load(threads: int) -> ctypes.CDLL | None:
    """Return libmkl_rt, set to ``threads`` threads, or None when the wheel is not installed."""
    os.environ["MKL_THREADING_LAYER"] = "SEQUENTIAL" if threads == 1 else "INTEL"
    places = (Path(sys.prefix, "lib"), Path(sys.prefix, "Library", "bin"))
    for path in sorted(x for place in places for x in [*place.glob("libmkl_rt.so*"), *place.glob("mkl_rt*.dll")]):
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)  # it loads its kernels itself and needs its own names
        library.MKL_Set_Num_Threads(ctypes.c_int(threads))
        return library
    return None


def version(library: ctypes.CDLL) -> str:
    """Return MKL's version, e.g. ``2026.2``."""
    text = ctypes.create_string_buffer(200)
    library.mkl_get_version_string(text, ctypes.c_int(len(text)))
    found = re.search(r"Version ([\d.]+)", text.value.decode())
    return found[1] if found else "of unknown version"


def product(library: ctypes.CDLL, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], object]:
    """Return a call that does ``c[:] = a @ b`` for C-contiguous matrices of one dtype.

    The arguments are made once: the time of the call is MKL's, with about 1 µs of ctypes.
    """
    (m, k), n = a.shape, b.shape[1]
    assert all(x.flags.c_contiguous and x.dtype == c.dtype for x in (a, b, c))
    integers = partial(map, ctypes.c_int)
    one, zero = np.ones(1, c.dtype), np.zeros(1, c.dtype)
    if c.dtype.kind == "c":  # by address
        factors = [ctypes.c_void_p(x.ctypes.data) for x in (one, zero)]
    else:
        real = ctypes.c_float if c.dtype == np.float32 else ctypes.c_double
        factors = [real(1), real(0)]
    pointer_a, pointer_b, pointer_c = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
    arguments = (
        *integers((_ROW_MAJOR, _NO_TRANS, _NO_TRANS, m, n, k)),
        factors[0], pointer_a, ctypes.c_int(k), pointer_b, ctypes.c_int(n),
        factors[1], pointer_c, ctypes.c_int(n),
    )  # fmt: skip
    gemm = getattr(library, _CALLS[c.dtype.name])
    gemm.restype = None
    operands = (a, b, c, one, zero)  # alive as long as the call is

    def call(operands: object = operands) -> None:
        gemm(*arguments)

    return call
