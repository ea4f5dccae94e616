"""What this core can do at most: the fma peak of a microkernel, and the bandwidth of each level of memory.

Knows: how to run blisgemm's own microkernel again and again on the same packed micro-panels, and how fast a
dot product reads. Does not know: any processor's data sheet. Called by ``trial`` and ``bench/kc.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from ..machine import current
from ..ukernel.bind import microkernel
from .measure import interleave

if TYPE_CHECKING:
    from ..ukernel.spec import KernelSpec

__all__ = ["Bandwidth", "aligned", "measure_bandwidth", "resident_kernel"]

_KC = (64, 128, 256, 512)  # lengths of the micro-panels that are tried


@njit(nogil=True)
def _repeat(kernel, reps, kc, a_panel, b_panel, c):
    """Do ``reps`` micro-tiles, one kc block each."""
    for _ in range(reps):
        microkernel(kernel, "packed", kernel.mr, kernel.nr, kc, kernel.one, a_panel, b_panel, kernel.one, c, 0)


def aligned(count: int, dtype: np.dtype) -> np.ndarray:
    """Return ``count`` zeros on a page boundary."""
    room = np.zeros(count * dtype.itemsize + 4096, np.uint8)
    skip = -room.ctypes.data % 4096
    return room[skip : skip + count * dtype.itemsize].view(dtype)


def resident_kernel(kernel: KernelSpec) -> Callable[[float], tuple[Callable[[], None], float]]:
    """Return what makes calls that run ``kernel`` on the same two micro-panels again and again.

    That is the most that any loops around this microkernel can reach. Long panels make the update of the tile
    of C rare, short ones stay in L1; which of them wins is tried out here.

    Args:
        kernel: a microkernel that runs here.

    Returns:
        A function from the work of one call, in about so many floating-point operations, to that call and
        its exact number of them.
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

    def make(work: float) -> tuple[Callable[[], None], float]:
        reps = max(1, round(work / (kernel.flops_per_k * best)))

        def call() -> None:
            _repeat(kernel, reps, best, a_panel, b_panel, c)

        return call, float(kernel.flops_per_k * best * reps)

    return make


@dataclass(frozen=True)
class Bandwidth:
    """Readable bytes per second of each level, nearest first: (level, bytes that it holds, bytes per second)."""

    levels: tuple[tuple[str, float, float], ...]

    def of(self, working_set_bytes: float, cold: bool = False) -> tuple[str, float]:
        """Return the level that holds so many bytes and what it yields; cold data are in memory."""
        if not cold:
            for level, held, rate in self.levels:
                if working_set_bytes <= held:
                    return level, rate
        return self.levels[-1][0], self.levels[-1][2]


def measure_bandwidth(threads: int, seconds: float = 0.15) -> Bandwidth:
    """Measure how fast NumPy's dot product of two float32 vectors reads, from each cache and from memory.

    A buffer fills half of a cache, or four times the last one.

    Args:
        threads: what NumPy's BLAS has been given; so many have private caches of their own.
        seconds: of each level.
    """
    caches = [(f"L{x.level}", x.size_bytes * max(1, threads // max(1, x.cores))) for x in current().caches]
    sizes = [(level, size, size // 2) for level, size in caches]
    sizes.append(("memory", 1 << 62, 4 * max((size for _, size in caches), default=1 << 24)))
    levels = []
    for level, held, taken in sizes:
        x = np.ones(taken // 8, np.float32)
        y = np.ones(taken // 8, np.float32)
        times = interleave({"dot": partial(np.dot, x, y)}, seconds=seconds, rounds=(3, 100))["dot"]
        levels.append((level, float(held), 8 * x.size / float(np.median(times))))
    # a level can't be slower than one behind it: what was measured there was the call
    for i in range(len(levels) - 2, -1, -1):
        levels[i] = (*levels[i][:2], max(levels[i][2], levels[i + 1][2]))
    return Bandwidth(tuple(levels))
