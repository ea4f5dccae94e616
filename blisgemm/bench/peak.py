"""What this core can do at most: bare multiply-adds, a microkernel alone, the bandwidth of each level of memory.

Knows: how to run fmas that touch no memory, how to run blisgemm's own microkernel again and again on the same packed
micro-panels, and how fast a dot product reads. Does not know: any processor's data sheet. Called by ``trial``,
``rates``, ``rungs`` and the scripts of ``bench/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ..machine import current
from ..parallel import in_region
from ..team import join, take_number
from ..ukernel.bind import microkernel
from ..ukernel.vec import I64, add_target, broadcast, count_loop, fma, real_type
from .measure import interleave

if TYPE_CHECKING:
    from ..ukernel.spec import KernelSpec

__all__ = ["Bandwidth", "Maker", "aligned", "bare_fmas", "measure_bandwidth", "repeat_fmas", "resident_kernel"]

# From the work of one call, in about so many floating-point operations, to that call and its exact number of them.
Maker = Callable[[float], tuple[Callable[[], None], float]]

_PIECES = 8  # of each thread's fmas: cores that are slower, or come later, do fewer
_KC = (64, 128, 256, 512)  # lengths of the micro-panels that are tried


@intrinsic
def _fmas(typing_context: Any, kernel: Any, steps: Any, start: Any) -> Any:  # pragma: no cover, compiled
    """Do so many steps of as many independent fmas as the kernel has accumulators; return something of each.

    ``start`` differs from call to call, or the compiler would do one for all.
    """
    spec = kernel.spec

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        real = real_type(spec.real_bits)
        name = f"blisgemm_bare_{spec.name}"
        function = ir.Function(builder.module, ir.FunctionType(real, [I64, real, real]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        add_target(function, spec.isa.llvm_cpu)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        factor = broadcast(b, function.args[1], spec.lanes)
        # chains that began alike would be one chain
        starts = [b.fadd(function.args[2], ir.Constant(real, float(i))) for i in range(spec.accumulators)]
        sums = [broadcast(b, x, spec.lanes) for x in starts]

        def step(index: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            return [fma(b, factor, factor, x, fused=spec.isa.fma) for x in sums]

        sums = count_loop(b, function.args[0], sums, step, "bare")
        total = sums[0]
        for x in sums[1:]:
            total = b.fadd(total, x)
        b.ret(b.extract_element(total, ir.IntType(32)(0)))
        start = builder.sitofp(args[2], real)
        value = builder.call(function, [args[1], ir.Constant(real, 0.25), start])
        return value if spec.real_bits == 64 else builder.fpext(value, ir.DoubleType())

    return types.float64(kernel, types.int64, types.int64), codegen


@njit(nogil=True)
def repeat_fmas(kernel, steps):
    """Do ``steps`` fmas on each of the kernel's accumulators, in registers."""
    return _fmas(kernel, steps, 0)


@njit(nogil=True)
def _fmas_of_team(kernel, steps, pieces, team):  # pragma: no cover, compiled
    """Do ``steps`` fmas on each accumulator ``pieces`` times, each time by the thread that is free."""
    work = join(team)
    total = 0.0
    number = take_number(work)
    while number < pieces:
        total += _fmas(kernel, steps, number)
        number = take_number(work)
    return total


def bare_fmas(kernel: KernelSpec, threads: int = 1) -> Maker:
    """Return what makes calls of multiply-adds of registers alone, as many chains of them as ``kernel`` has sums.

    That is the fma peak: no load, no store, nothing to wait for. No product can be faster. That of several threads is
    below so many times one's where cores share a clock or are shared themselves.

    Args:
        kernel: a microkernel that runs here; its vector set and real type are used.
        threads: that work together.
    """
    pieces = 1 if threads == 1 else _PIECES * threads
    flops_per_step = 2 * kernel.accumulators * kernel.lanes * pieces

    def run(steps: int) -> None:
        in_region(threads, lambda team: _fmas_of_team(kernel, steps, pieces, team))

    run(1)  # compiles

    def make(work: float) -> tuple[Callable[[], None], float]:
        steps = max(1, round(work / flops_per_step))
        return partial(run, steps), float(flops_per_step * steps)

    return make


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


def resident_kernel(kernel: KernelSpec) -> Maker:
    """Return what makes calls that run ``kernel`` on the same two micro-panels again and again.

    That is the most that any loops around this microkernel can reach. Long panels make the update of the tile
    of C rare, short ones stay in L1; which of them wins is tried out here.

    Args:
        kernel: a microkernel that runs here.
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
