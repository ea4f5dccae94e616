"""Measure how fast this machine is: the fma peak of a core, and the bandwidth of each level of memory.

Knows: how a buffer is read again and again by one core or several. Does not know: data sheets (``teach.rates``),
products, charts. Called by ``python -m blisgemm roofline`` and notebooks.

Where ``peak.measure_bandwidth`` asks how fast NumPy's dot product reads, as a peer of what is measured there, this one
reads inside compiled code: a call costs as much as reading all of L1 several times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numba import njit

import blisgemm

from ..machine import current
from ..plan import Plan, make_plan
from ..teach.rates import Level, Rates, real_of
from ..teach.traffic import flops_of
from .measure import cpu_clock, interleave
from .peak import aligned, bare_fmas

__all__ = ["measure_rates", "read_again", "time_product"]

_SAMPLE = 2e-3  # seconds of one sample: ten times what another program's turn on the core would take unseen
_FLOPS = 2e8  # of one sample of the peak: 2 ms at 100 GFLOP/s
_MEMORY_TIMES = 4  # a buffer so many times the last cache counts as memory
_MOST_BYTES = 512 << 20  # of that buffer, for all threads together


@njit(nogil=True, fastmath={"reassoc"})
def read_again(x: npt.NDArray[np.float32], times: int) -> float:  # pragma: no cover, compiled
    """Add up all elements, so many times: only to read them, so the sums may be split over vectors, in any order.

    Two halves at once: one sum has too few chains of additions for L1 (Zen 3, 2026-11-30: 139 GB/s, 200 with two).
    """
    whole, half = np.float32(0), x.size // 2
    for turn in range(times):
        s, t = np.float32(0), np.float32(0)
        for i in range(half):
            s += x[i]
            t += x[half + i]
        whole += s + t
        if whole == np.float32(-1):  # never, but the compiler can't know: so it reads each time
            x[0] = turn
    return float(whole)


def measure_rates(
    dtype: str = "float32", threads: int = 1, seconds: float = 3.0, report: Callable[[str], None] | None = None
) -> Rates:
    """Measure the peak of a dtype and the bandwidth of every level, with so many threads at work.

    Best of several samples, since a roof is what can be reached. The peak is that of fmas in the vectors of the dtype.

    Args:
        dtype: float32, float64, complex64 or complex128.
        threads: each reads a buffer of its own in its core's caches.
        seconds: about how long in all, compiling aside.
        report: told what is measured next.
    """
    machine = current()
    say = report if report is not None else _be_silent
    kernel = make_plan(2000, 2000, 2000, dtype, path="packed", threads=1).kernel
    assert kernel is not None
    part = seconds / (len(machine.caches) + 2)
    say("multiply-adds")
    call, flops = bare_fmas(kernel, threads)(threads * _FLOPS)
    peak = flops / _best(call, part) / threads
    levels = []
    for cache in machine.caches:
        own = cache.size_bytes // min(threads, cache.cores) // 2
        levels.append((f"L{cache.level}", own))
    last = max(cache.size_bytes for cache in machine.caches)
    levels.append(("memory", min(_MEMORY_TIMES * last, _MOST_BYTES) // threads))
    found = []
    for name, own in levels:
        say(name)
        found.append((name, _read_rate(own, threads, part)))
    # a level can't be slower than one behind it: what was measured there was something else
    for at in range(len(found) - 2, -1, -1):
        found[at] = (found[at][0], max(found[at][1], found[at + 1][1]))
    shared = {"memory", *(f"L{cache.level}" for cache in machine.caches if cache.cores > 1)}
    return Rates(
        machine.name,
        f"measured on this machine, {threads} thread{'s' * (threads > 1)}: bare multiply-adds; reading",
        ((real_of(dtype), peak),),
        tuple(Level(name, rate / threads, rate if name in shared else None) for name, rate in found),
        machine.cores,
    )


def _be_silent(what: str) -> None:
    pass


def _best(call: Callable[[], object], seconds: float) -> float:
    """Return the shortest of the calls that fit in so many seconds, at least five."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _read_rate(own_bytes: int, threads: int, seconds: float) -> float:
    """Return bytes per second that threads read together, each a buffer of its own, again and again."""
    buffers = [aligned(max(64, own_bytes // 4), np.dtype(np.float32)) for _ in range(threads)]
    for buffer in buffers:
        buffer[:] = 1
    read_again(buffers[0], 1)
    once = _best(lambda: read_again(buffers[0], 1), 0.0)
    times = max(1, round(_SAMPLE / once))
    if threads == 1:
        return buffers[0].nbytes * times / _best(lambda: read_again(buffers[0], times), seconds)
    barrier = threading.Barrier(threads)
    spans: list[tuple[float, float]] = []

    def work(buffer: npt.NDArray[np.float32]) -> None:
        barrier.wait()
        begin = time.perf_counter()
        read_again(buffer, times)
        spans.append((begin, time.perf_counter()))

    def together() -> float:
        spans.clear()
        workers = [threading.Thread(target=work, args=(buffer,)) for buffer in buffers]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    end = time.perf_counter() + seconds
    shortest = min(together() for _ in range(3))
    while time.perf_counter() < end:
        shortest = min(shortest, together())
    return buffers[0].nbytes * times * threads / shortest


def time_product(plan: Plan, threads: int, seconds: float) -> float:
    """Return the flops per second of a plan's product of random matrices, hot: the median of repeated calls.

    On one thread by CPU time, so that other programs don't count. A plan that ``matmul`` would not make, with other
    blocks, say, goes through ``gemm``, whose call takes some 30 us more.
    """
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(plan.dtype) for shape in ((plan.m, plan.k), (plan.k, plan.n)))
    out = np.empty((plan.m, plan.n), plan.dtype)
    asked = plan != make_plan(plan.m, plan.n, plan.k, plan.dtype, threads=threads)
    with blisgemm.num_threads(threads):
        clock = cpu_clock()[0] if threads == 1 else time.perf_counter
        call = (lambda: blisgemm.gemm(a, b, out=out, plan=plan)) if asked else (lambda: blisgemm.matmul(a, b, out))
        times = interleave({"product": call}, seconds=seconds, clock=clock)["product"]
    return flops_of(plan.m, plan.n, plan.k, plan.dtype) / float(np.median(times))
