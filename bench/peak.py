"""The fma peak of this core: a microkernel on panels that stay in the nearest caches.

Knows: how to run blisgemm's own microkernel again and again on the same packed micro-panels. Does not
know: any processor's data sheet. Called by ``squares`` and ``kc``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from blisgemm.ukernel.bind import microkernel

if TYPE_CHECKING:
    from blisgemm.ukernel.spec import KernelSpec

_KC = (64, 128, 256, 512)  # lengths of the micro-panels that are tried


@njit(nogil=True)
def _repeat(kernel, reps, kc, a_panel, b_panel, c):
    """Do ``reps`` micro-tiles, one kc block each."""
    for _ in range(reps):
        microkernel(kernel, kernel.mr, kernel.nr, kc, kernel.one, a_panel, b_panel, kernel.one, c, 0)


def aligned(count: int, dtype: np.dtype) -> np.ndarray:
    """Return ``count`` zeros on a page boundary."""
    room = np.zeros(count * dtype.itemsize + 4096, np.uint8)
    skip = -room.ctypes.data % 4096
    return room[skip : skip + count * dtype.itemsize].view(dtype)


def resident_kernel(kernel: KernelSpec, work: float = 2e8) -> tuple[Callable[[], None], float]:
    """Return a call that runs ``kernel`` on the same two micro-panels again and again, and its flops.

    That is the most that any loops around this microkernel can reach. Long panels make the update of the tile
    of C rare, short ones stay in L1; which of them wins is tried out here.

    Args:
        kernel: a microkernel that runs here.
        work: floating-point operations of one call, about.
    """
    real = np.dtype(kernel.acc_dtype).type(0).real.dtype
    c = np.zeros((kernel.mr, kernel.nr), kernel.acc_dtype)
    a_panel = aligned(max(_KC) * kernel.mr * kernel.planes, real)
    b_panel = aligned(max(_KC) * kernel.nr * kernel.planes, real)

    def run(kc: int, flops: float) -> float:
        reps = max(1, round(flops / (kernel.flops_per_k * kc)))
        begin = time.perf_counter()
        _repeat(kernel, reps, kc, a_panel, b_panel, c)
        return (time.perf_counter() - begin) / (reps * kc)

    run(_KC[0], 1.0)  # compiles
    best = min(_KC, key=lambda kc: min(run(kc, 5e7) for _ in range(5)))
    reps = max(1, round(work / (kernel.flops_per_k * best)))

    def call() -> None:
        _repeat(kernel, reps, best, a_panel, b_panel, c)

    return call, float(kernel.flops_per_k * best * reps)
