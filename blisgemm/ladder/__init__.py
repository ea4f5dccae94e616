"""The CPU ladder: C = A · B in nine rungs, from three loops of Python to the library, each with one new idea.

Knows: the rungs in order, with what each is called elsewhere, and what a rung may be called with. Does not know: how a
rung is written or timed: it imports neither NumPy nor Numba. Called by ``cli.ladder`` and the tests.

Every rung's module holds ``multiply(a, b, c)``: c := a · b on arrays of float32 or float64 of any strides, which share
no memory; c is overwritten, and not read. From rung 7 on ``multiply`` takes ``alpha`` and ``beta`` besides. It checks
nothing, as loops don't; ``run`` here does. m, n, k are extents, i, j, p run along them.

Sources of the counterparts, by unit, page and number of the kernel:

- LAFF: Robert van de Geijn, Margaret Myers, Devangi Parikh, "LAFF-On Programming for High Performance",
  https://www.cs.utexas.edu/users/flame/laff/pfhp/
- worklog: Simon Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance",
  https://siboehm.com/articles/22/CUDA-MMM
- ulmBLAS: Michael Lehn, "GEMM: From Pure C to SSE Optimized Micro Kernels",
  https://www.mathematik.uni-ulm.de/~lehn/sghpc/gemm/
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ..errors import BlisgemmTypeError, BlisgemmValueError

__all__ = ["DTYPES", "RUNGS", "Rung", "run", "rung_of"]

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Rung:
    """One rung: its module's name, its idea in a few words, and its counterparts elsewhere (empty: none)."""

    name: str
    title: str
    laff: str
    worklog: str
    ulmblas: str

    @property
    def short(self) -> str:
        """``r3`` of ``r3_register_tile``."""
        return self.name.split("_")[0]

    @property
    def number(self) -> int:
        """Its place on the ladder, from 0 on."""
        return int(self.short[1:])

    def module(self) -> Any:
        """Import the rung's module, and with it Numba."""
        return importlib.import_module(f"{__name__}.{self.name}")


RUNGS = (
    Rung("r0_triple_loop", "three loops of Python", "1.1.1", "kernel 1", "page 1, its reference"),
    Rung("r1_jit", "the same text, compiled", "1.1.1", "kernel 1", "page 1, its reference"),
    Rung("r2_loop_order", "loops in another order", "1.2.4", "kernel 2", ""),
    Rung("r3_register_tile", "a 4 x 4 tile of C in registers", "2.3.2", "kernels 4 and 5", "page 2, its micro-kernel"),
    Rung("r4_vector_microkernel", "a tile of vectors: the microkernel", "2.4.2", "kernel 6", "pages 3 to 12"),
    Rung("r5_cache_blocks", "blocks that fit the caches", "3.2.5", "kernels 3 and 10", "page 2, its loops"),
    Rung("r6_packing", "blocks copied in the order of use", "3.3.5", "kernel 3", "page 2, its pack functions"),
    Rung("r7_edges_alpha_beta", "edges, alpha and beta", "", "", "page 2, its macro-kernel"),
    Rung("r8_threads", "threads: the library", "week 4", "kernel 1, its grid", ""),
)


def rung_of(name: str) -> Rung:
    """Return the rung whose name is or begins with ``name``.

    Raises:
        BlisgemmValueError: there is none.

    Example:
        >>> rung_of("r6").title
        'blocks copied in the order of use'
    """
    for rung in RUNGS:
        if name in (rung.name, rung.short):
            return rung
    raise BlisgemmValueError(f"rung: expected one of {', '.join(rung.name for rung in RUNGS)}; got {name!r}")


def run(rung: Rung | str, a: Any, b: Any, c: Any, **factors: Any) -> None:
    """Check the arrays and let a rung compute c := a · b.

    Args:
        rung: one of ``RUNGS``, or its name; ``r4`` will do.
        a, b, c: ndarrays of one dtype, float32 or float64; any strides. c shares no memory with the others.
        factors: ``alpha`` and ``beta``, real numbers, for rungs 7 and 8.

    Shapes: a m x k, b k x n, c m x n; every extent is at least 1.

    Raises:
        BlisgemmTypeError: an array is of another dtype or masked, or factors are given to a rung that has none.
        BlisgemmValueError: shapes don't fit, c can't be written, or arrays or elements of c share memory.
    """
    rung = rung if isinstance(rung, Rung) else rung_of(rung)
    if factors and rung.number < 7:
        raise BlisgemmTypeError(f"{', '.join(factors)}: expected none below rung 7; got some for {rung.name}")
    _check(a, b, c)
    _check_factors(factors)
    rung.module().multiply(a, b, c, **factors)


def _check(a: Any, b: Any, c: Any) -> None:
    import numpy as np

    from ..operands import _overlaps_itself

    wanted = getattr(c, "dtype", None)
    for name, x in zip("abc", (a, b, c), strict=True):
        if isinstance(x, np.ma.MaskedArray):
            raise BlisgemmTypeError(f"{name}: expected an ndarray without a mask; got a MaskedArray")
        if not isinstance(x, np.ndarray) or x.dtype.name not in DTYPES or x.dtype != (wanted or x.dtype):
            got = f"{x.dtype} beside {c.dtype}" if hasattr(x, "dtype") and hasattr(c, "dtype") else type(x).__name__
            raise BlisgemmTypeError(f"{name}: expected an ndarray of float32 or float64, as c; got {got}")
        if x.ndim != 2 or min(x.shape) < 1:
            raise BlisgemmValueError(f"{name}: expected two extents of at least 1; got shape {x.shape}")
        if not x.flags.aligned or not x.dtype.isnative:
            how = "an unaligned one" if x.dtype.isnative else f"dtype {x.dtype.str}"
            raise BlisgemmValueError(f"{name}: expected an aligned array in the processor's byte order; got {how}")
    if a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
        raise BlisgemmValueError(f"a, b, c: expected shapes m x k, k x n, m x n; got {a.shape}, {b.shape}, {c.shape}")
    if not c.flags.writeable or np.may_share_memory(c, a) or np.may_share_memory(c, b):
        raise BlisgemmValueError("c: expected a writable array that shares no memory with a and b")
    if _overlaps_itself(c):
        raise BlisgemmValueError(f"c: expected elements that share no memory; got strides {c.strides}")


def _check_factors(factors: dict[str, Any]) -> None:
    import numpy as np

    for name, value in factors.items():
        if name not in ("alpha", "beta"):
            raise BlisgemmTypeError(f"{name}: expected alpha and beta only; got {name}={value!r}")
        if np.ndim(value) or np.asarray(value).dtype.kind not in "biuf":
            raise BlisgemmTypeError(f"{name}: expected a real number; got {value!r}")
