"""The rate of one product over kc and nc around the model's choice, by plans whose blocking is forced.

Knows: which blockings to try. Does not know: why the model chose its own (``blocking``). Called by ``cli.bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import blisgemm

from .exact import fill_exact, fill_normal, require_exact
from .measure import cpu_clock, interleave
from .shapes import Case

__all__ = ["Surface", "measure_surface"]

_KC_FACTORS = (0.25, 0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
_NC_FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Surface:
    """GFLOP/s by (nc, kc): ``gflops[i][j]`` is that of ``ncs[i]`` and ``kcs[j]``."""

    case: Case
    dtype: str
    kernel: str
    kcs: tuple[int, ...]
    ncs: tuple[int, ...]
    gflops: tuple[tuple[float, ...], ...]
    model_kc: int
    model_nc: int


def measure_surface(case: Case, dtype: str, seconds: float) -> Surface:
    """Verify and time the packed product on one thread with every pair of block sizes, all of them in turn.

    Args:
        case: two matrices in C order.
        dtype: NumPy's name.
        seconds: about how long; three rounds at least.

    Raises:
        WrongResultError: one of the products is wrong.
    """
    m, n, k = case.m, case.n, case.k
    model = blisgemm.make_plan(m, n, k, dtype, path="packed", threads=1)
    kernel, blocking = model.kernel, model.blocking
    assert kernel is not None
    assert blocking is not None
    kcs = sorted({min(k, max(16, round(blocking.kc * f / 8) * 8)) for f in _KC_FACTORS} | {blocking.kc})
    columns = -(-n // kernel.nr)
    steps = {min(columns, max(1, round(blocking.nc * f / kernel.nr))) for f in _NC_FACTORS}
    ncs = sorted({step * kernel.nr for step in steps} | {blocking.nc})
    a, b, c = np.empty((m, k), dtype), np.empty((k, n), dtype), np.empty((m, n), dtype)
    rng = np.random.default_rng(0)
    fill_exact(rng, a, b, k=k)
    calls: dict[str, Callable[[], object]] = {}
    for nc in ncs:
        for kc in kcs:
            plan = blisgemm.make_plan(m, n, k, dtype, blocking=(blocking.mc, nc, kc), path="packed", threads=1)
            calls[f"{nc} {kc}"] = lambda plan=plan: blisgemm.gemm(a, b, out=c, plan=plan)  # type: ignore[misc]
            c[...] = np.nan
            calls[f"{nc} {kc}"]()
            require_exact(a, b, c, f"blisgemm with nc {nc}, kc {kc}, {case.label} in {dtype}")
    fill_normal(rng, a, b)
    times = interleave(calls, seconds=seconds, rounds=(3, 200), clock=cpu_clock()[0])
    flops = case.flops(dtype)
    rates = tuple(tuple(flops / float(np.median(times[f"{nc} {kc}"])) / 1e9 for kc in kcs) for nc in ncs)
    return Surface(case, dtype, kernel.name, tuple(kcs), tuple(ncs), rates, blocking.kc, blocking.nc)
