"""The GPU ladder: float32 C = A · B in seven rungs, each one idea faster than the rung before.

Knows: the rungs in order, and what each is expected to do. Does not know: how they are written or run: it imports
neither Numba nor CUDA. Called by ``run``, ``bench/cuda_ladder.py`` and the tests. The eighth rung, g7, is the
library's own ``blisgemm.cuda.gemm``.

All matrices are row-major and without gaps: A is m x k, B is k x n, C is m x n, of any extents from 1 on. The words
are the CPU's: m, n, k are extents, i, j, p run along them.

Each rung's module holds ``kernel()`` (the Python function), ``BLOCK`` (rows and columns of C that one block of threads
makes), ``THREADS`` (of a block), ``SHARED_BYTES`` (of a block) and ``grid(m, n)`` (blocks in x, y, z).

Source of the counterparts: Simon Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance",
https://siboehm.com/articles/22/CUDA-MMM, by the number of the kernel there.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

__all__ = ["ADDRESSES", "ARRAYS", "RUNGS", "Rung", "rung_of"]  # fmt: skip

ARRAYS = "arrays"  # kernel(A, B, C): 2-D float32 device arrays, static shared memory
ADDRESSES = "addresses"  # kernel(a, b, c, m, n, k): int64 addresses, int32 extents, dynamic shared memory


@dataclass(frozen=True)
class Rung:
    """One rung. idea: in a few words. counterpart: the kernel's number in the worklog, 0 if it has none.

    share: expected, of cuBLAS at 4096 x 4096 x 4096; per cent, measured on one H200 in experiments before this library,
    None where no experiment was made.
    """

    name: str
    idea: str
    arguments: str
    counterpart: int
    share: float | None

    def module(self) -> Any:
        """Import the rung's module, and with it Numba."""
        return importlib.import_module(f"{__name__}.{self.name}")


RUNGS = (
    Rung("g0_naive", "a thread per element, a warp down a column", ARRAYS, 1, None),
    Rung("g1_coalesced", "a warp along a row", ARRAYS, 2, 2.7),
    Rung("g2_shared", "32 x 32 tiles in shared memory", ARRAYS, 3, 15.9),
    Rung("g3_column", "8 x 1 elements a thread", ARRAYS, 4, None),
    Rung("g4_thread_tile", "8 x 8 elements a thread", ARRAYS, 5, 28.2),
    Rung("g5_vectors", "128 bits a load, fragments as tuples", ADDRESSES, 6, 65.7),
    Rung("g6_warp_tile", "warp tiles, copies under way", ADDRESSES, 10, 95.6),
)


def rung_of(name: str) -> Rung:
    """Return the rung whose name is or begins with ``name``.

    Example:
        >>> rung_of("g4").idea
        '8 x 8 elements a thread'
    """
    for rung in RUNGS:
        if rung.name == name or rung.name.split("_")[0] == name:
            return rung
    raise KeyError(f"expected one of {', '.join(rung.name for rung in RUNGS)}; got {name!r}")
