"""The ladder's rungs timed: verified first, then all of them, NumPy and the fma peak in turn.

Knows: how fair times are taken of rungs that differ ten thousandfold. Does not know: what a rung does (``ladder``), how
its numbers look. Called by ``cli.ladder``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import blisgemm

from .. import ladder
from .exact import fill_exact, fill_normal, require_exact
from .measure import cpu_clock, interleave, ratios, spread
from .peak import Maker, bare_fmas
from .peers import UnsupportedError, load

__all__ = ["MOST_OF_PYTHON", "Climb", "Timed", "climb"]

MOST_OF_PYTHON = 64  # n of rung 0, at most: in Python one product of 512 would take about a minute
_LARGE = 700  # n from which on one round of the slow rungs must do
_NUMPY, _PEAK = "numpy", "fma peak"
_PEAK_WORK = 1e8  # flops of one sample of the peak: some milliseconds, as in ``trial``


@dataclass(frozen=True)
class Timed:
    """One rung, or one order of loops: its rate, and its shares of the fma peak and of NumPy's rate (None: unknown).

    name: ``r4``, or an order such as ``ipj``. threads: that peak and NumPy had as well. of_peak, of_numpy: 1 is all.
    """

    name: str
    title: str
    n: int
    threads: int
    gflops: float
    of_peak: float
    of_numpy: float | None

    def beside(self, n: int) -> str:
        """Say in parentheses how this differs from the others, of ``n`` on one thread."""
        facts = [f"n = {self.n}"] if self.n != n else []
        facts += [f"{self.threads} threads"] if self.threads > 1 else []
        return f" ({', '.join(facts)})" if facts else ""


@dataclass(frozen=True)
class Climb:
    """All rungs of one dtype and n. peak_gflops: of one thread. clock: of one thread; several take wall time."""

    dtype: str
    n: int
    clock: str
    peak_gflops: float
    rungs: tuple[Timed, ...]
    orders: tuple[Timed, ...]


def climb(n: int, dtype: str, threads: int, seconds: float) -> Climb:
    """Verify and time the ladder: one thread first, where there are more the last rung again on all of them.

    Args:
        n: m = n = k; rung 0 takes at most ``MOST_OF_PYTHON``.
        dtype: ``float32`` or ``float64``.
        threads: of the last rung.
        seconds: about how long to time the rungs, and likewise the orders, and the last rung on several threads.

    Raises:
        WrongResultError: the product of a rung is wrong.
    """
    rng, small = np.random.default_rng(0), min(n, MOST_OF_PYTHON)
    operands = {size: _operands(rng, size, dtype) for size in dict.fromkeys((n, small))}
    sizes = {rung.short: small if rung.number == 0 else n for rung in ladder.RUNGS}
    orders = ladder.rung_of("r2").module()
    products: dict[str, Callable[..., Any]] = {rung.short: rung.module().multiply for rung in ladder.RUNGS}
    products |= {order: _in_order(orders.in_order, order) for order in orders.ORDERS}
    calls = {name: _call(product, operands[sizes.get(name, n)]) for name, product in products.items()}
    with blisgemm.num_threads(1):
        for name, product in products.items():
            _verify(rng, name, product, operands[sizes.get(name, n)])
        for a, b, _ in operands.values():
            fill_normal(rng, a, b)
        clock, clock_name = cpu_clock()
        rounds = (1 if n > _LARGE else 3, 50)
        flops, make_peak = 2.0 * n**3, _peak(dtype)
        peak_call, peak_flops = make_peak(_PEAK_WORK)
        one = {rung.short: calls[rung.short] for rung in ladder.RUNGS} | {_PEAK: peak_call}
        numpy_one = _numpy(1, threads, operands[n])
        times = interleave(one | numpy_one, seconds=seconds, rounds=rounds, clock=clock)
        peak = peak_flops / spread(times[_PEAK]).median / 1e9
        slow = {order: calls[order] for order in orders.ORDERS}
        times_of_orders = interleave(slow | numpy_one, seconds=seconds, rounds=rounds, clock=clock)

    def timed(name: str, title: str, times: dict[str, list[float]], threads: int = 1) -> Timed:
        size = sizes.get(name, n)
        gflops = 2.0 * size**3 / spread(times[name]).median / 1e9
        share = None
        if _NUMPY in times and size == n:
            share = ratios(times, _NUMPY, name).median
        elif _NUMPY in times:  # of another n: NumPy's rate at this ladder's
            share = gflops * spread(times[_NUMPY]).median * 1e9 / flops
        return Timed(name, title, size, threads, gflops, gflops / (peak * threads), share)

    rungs = [timed(rung.short, rung.title, times) for rung in ladder.RUNGS]
    if threads > 1:
        last = ladder.RUNGS[-1]
        with blisgemm.num_threads(threads):
            several = {last.short: calls[last.short]} | _numpy(threads, threads, operands[n])
            _verify(rng, last.short, products[last.short], operands[n])
            fill_normal(rng, *operands[n][:2])
            times = interleave(several, seconds=seconds, rounds=(5, 100), clock=time.perf_counter, pause=True)
        rungs.append(timed(last.short, last.title, times, threads))
    of_orders = tuple(timed(order, f"loops {', '.join(order)}", times_of_orders) for order in orders.ORDERS)
    return Climb(dtype, n, clock_name, peak, tuple(rungs), of_orders)


Operands = tuple[np.ndarray, np.ndarray, np.ndarray]


def _operands(rng: np.random.Generator, n: int, dtype: str) -> Operands:
    a, b, c = (np.empty((n, n), dtype) for _ in range(3))
    return a, b, c


def _in_order(in_order: Callable[..., Any], order: str) -> Callable[..., Any]:
    return lambda a, b, c: in_order(order, a, b, c)


def _call(product: Callable[..., Any], operands: Operands) -> Callable[[], Any]:
    return lambda: product(*operands)


def _verify(rng: np.random.Generator, name: str, product: Callable[..., Any], operands: Operands) -> None:
    """Multiply small integers, into memory that was NaN."""
    a, b, c = operands
    fill_exact(rng, a, b, k=a.shape[1])
    c[...] = np.nan
    product(a, b, c)
    require_exact(a, b, c, f"{name}, n = {a.shape[0]} in {c.dtype}")


def _peak(dtype: str) -> Maker:
    kernel = blisgemm.make_plan(2000, 2000, 2000, dtype, path="packed", threads=1).kernel
    assert kernel is not None
    return bare_fmas(kernel)


def _numpy(threads: int, most_threads: int, operands: Operands) -> dict[str, Callable[[], Any]]:
    """Return NumPy's call on so many threads, or nothing where their number can't be set."""
    peer = load(_NUMPY, most_threads)
    try:
        peer.set_threads(threads)
    except UnsupportedError:
        return {}
    return {_NUMPY: peer.product(*operands)}
