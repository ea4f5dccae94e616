"""One row: operands made, every library verified, then all of them and the fma peak timed in turn.

Knows: the order of things, and what a wrong result means. Does not know: how a library is called, how the
numbers look. Called by ``cli.bench``.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import blisgemm

from ..machine import current
from .exact import WrongResultError, fill_exact, fill_normal, require_exact
from .measure import cpu_clock, interleave, ratios, spread
from .operands import Operands, allocate
from .peak import Bandwidth, Maker, bare_fmas, measure_bandwidth
from .peers import PEERS, AbsentError, Peer, UnsupportedError, load
from .results import BEST, OURS, Roof, Row
from .shapes import Case

__all__ = ["Trial", "load_peers", "our_product"]

_PEAK = "fma peak"
_LONG = 2e10  # floating-point operations of a call from which on three rounds must do
_PEAK_WORK = (
    1e7,
    1e9,
)  # flops of a thread in one sample of the peak, at least and at most: 0.1 to 10 ms on a fast core
_DENSE = 64  # flops per byte above which no machine with a fma peak like a cache's bandwidth is bound by memory


def load_peers(names: Sequence[str], most_threads: int) -> tuple[dict[str, Peer], dict[str, str]]:
    """Return the peers that are here, in the order asked for, and why the others aren't."""
    found: dict[str, Peer] = {}
    absent: dict[str, str] = {}
    for name in PEERS:  # their order of loading
        if name in names:
            try:
                found[name] = load(name, most_threads)
            except (AbsentError, OSError) as error:
                absent[name] = str(error)
    return {name: found[name] for name in names if name in found}, absent


def our_product(case: Case, operands: Operands, fresh: bool = False) -> Callable[[], object]:
    """Return the call of blisgemm: ``matmul``, or ``gemm`` where an operand is transposed by a flag.

    Args:
        fresh: whether it returns a new array in place of writing ``operands.c``.
    """
    a, b, c = operands.a, operands.b, None if fresh else operands.c
    if "T" in (case.a, case.b):
        trans_a, trans_b = case.a == "T", case.b == "T"
        a = a.swapaxes(-1, -2) if trans_a else a
        b = b.swapaxes(-1, -2) if trans_b else b
        gemm = blisgemm.gemm
        return lambda: gemm(a, b, out=c, trans_a=trans_a, trans_b=trans_b)
    matmul = blisgemm.matmul
    return lambda: matmul(a, b, out=c)


class Trial:
    """What the rows of a run share.

    Args:
        peers: by name.
        seconds: about how long to time a row.
        cold: rotate the operands through twice the memory of the caches.
        fresh: let every call take memory for its result.
        report: told, by name and reason, of a peer that is wrong or skipped; once each.
    """

    def __init__(
        self, peers: Mapping[str, Peer], seconds: float, report: Callable[[str, str], None], *, cold: bool = False,
        fresh: bool = False,
    ) -> None:  # fmt: skip
        self._peers = dict(peers)
        self._seconds, self._report, self._cold, self._fresh = seconds, report, cold, fresh
        self._wrong: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._peaks: dict[tuple[str, int], Maker] = {}
        self._bandwidths: dict[int, Bandwidth] = {}

    @property
    def wrong(self) -> dict[str, str]:
        """Peers that computed something wrong and were dropped, with what."""
        return dict(self._wrong)

    def measure(self, case: Case, dtype: str, threads: int) -> Row:
        """Verify and time one row.

        Raises:
            WrongResultError: blisgemm's product is wrong.
        """
        with blisgemm.num_threads(threads):
            return self._measure(case, dtype, threads)

    def _measure(self, case: Case, dtype: str, threads: int) -> Row:
        caches = sum(cache.size_bytes for cache in current().caches)
        sets = allocate(case, dtype, 2 * caches if self._cold else 0)
        skipped = dict(self._wrong)
        calls = self._calls(case, sets, threads, skipped)
        self._verify(case, dtype, sets, calls, skipped)
        rng = np.random.default_rng(0)
        for operands in sets:
            fill_normal(rng, operands.a, operands.b)
        runners: dict[str, Callable[[], Any]] = {name: x[0] for name, x in calls.items()}
        if len(sets) > 1:  # one position for all: the next library must not find what the last one has read
            position = itertools.cycle(range(len(sets)))
            runners = {name: _rotating(x, position) for name, x in calls.items()}
        flops = case.flops(dtype)
        work = min(max(flops, threads * _PEAK_WORK[0]), threads * _PEAK_WORK[1])
        runners[_PEAK], peak_flops = self._peak(dtype, threads)(work)
        clock, clock_name = cpu_clock() if threads == 1 else (time.perf_counter, "wall time")
        times = interleave(
            runners, seconds=self._seconds, rounds=(3 if flops > _LONG else 5, 1000), clock=clock, pause=threads > 1
        )
        peak = peak_flops / float(np.median(times.pop(_PEAK))) / 1e9
        seconds = {name: spread(x) for name, x in times.items()}
        others = [name for name in times if name != OURS]
        best = min(others, key=lambda name: seconds[name].median, default="")
        against = {name: ratios(times, name) for name in others}
        if best:
            against[BEST] = against[best]
        path, kernel = _path_and_kernel(sets[0])
        bytes_once = case.elements() * np.dtype(dtype).itemsize
        return Row(
            case=case, dtype=dtype, threads=threads, out="new" if self._fresh else "given",
            state="cold" if self._cold else "hot",
            rotated_bytes=bytes_once * len(sets), clock=clock_name, path=path,
            kernel=kernel, flops=flops, rounds=len(times[OURS]), seconds=seconds,
            peak_gflops=peak, roof=self._roof(threads, flops, bytes_once, flops / seconds[OURS].median / 1e9, peak),
            ratios=against, best=best, skipped=skipped,
        )  # fmt: skip

    def _calls(
        self, case: Case, sets: Sequence[Operands], threads: int, skipped: dict[str, str]
    ) -> dict[str, list[Callable[[], object]]]:
        calls = {OURS: [our_product(case, operands, self._fresh) for operands in sets]}
        for name, peer in self._peers.items():
            try:
                peer.set_threads(threads)
                calls[name] = [peer.fresh(x.a, x.b) if self._fresh else peer.product(x.a, x.b, x.c) for x in sets]
            except UnsupportedError as error:
                skipped[name] = str(error)
                self._tell(name, str(error))
        return calls

    def _verify(
        self, case: Case, dtype: str, sets: Sequence[Operands], calls: dict[str, list[Callable[[], object]]],
        skipped: dict[str, str],
    ) -> None:  # fmt: skip
        """Let every library multiply integers; drop the peers that are wrong."""
        rng = np.random.default_rng(0)
        first = sets[0]
        fill_exact(rng, first.a, first.b, k=case.k)
        for name in list(calls):
            first.c[...] = np.nan  # what isn't written differs from everything
            what = f"{name}, {case.label} in {dtype}"
            try:
                result = calls[name][0]()
                require_exact(first.a, first.b, np.asarray(result) if self._fresh else first.c, what)
            except WrongResultError as error:
                if name == OURS:
                    raise
                self._drop(name, f"wrong result, so it is dropped: {error}", calls, skipped)
            except Exception as error:
                if name == OURS:
                    raise
                self._drop(name, f"failed, so it is dropped: {what}: {error}", calls, skipped)

    def _drop(self, name: str, reason: str, calls: dict[str, Any], skipped: dict[str, str]) -> None:
        del calls[name], self._peers[name]
        self._wrong[name] = skipped[name] = reason
        self._tell(name, reason)

    def _tell(self, name: str, reason: str) -> None:
        if (name, reason) not in self._told:
            self._told.add((name, reason))
            self._report(name, reason)

    def _peak(self, dtype: str, threads: int) -> Maker:
        if (dtype, threads) not in self._peaks:
            kernel = blisgemm.make_plan(2000, 2000, 2000, dtype, path="packed").kernel
            assert kernel is not None
            self._peaks[dtype, threads] = bare_fmas(kernel, threads)
        return self._peaks[dtype, threads]

    def _roof(self, threads: int, flops: int, bytes_once: int, gflops: float, peak: float) -> Roof | None:
        """Return the roofline where it is below the fma peak."""
        if flops > _DENSE * bytes_once:
            return None
        if threads not in self._bandwidths:
            with contextlib.suppress(UnsupportedError):  # it is NumPy's BLAS that reads
                load("numpy", threads).set_threads(threads)
            self._bandwidths[threads] = measure_bandwidth(threads)
        level, rate = self._bandwidths[threads].of(bytes_once, self._cold)
        bound = min(peak, rate * flops / bytes_once / 1e9)
        return Roof(level, rate, bound, gflops / bound) if bound < peak else None


def _rotating(calls: Sequence[Callable[[], object]], position: Iterator[int]) -> Callable[[], object]:
    return lambda: calls[next(position)]()


def _path_and_kernel(operands: Operands) -> tuple[str, str]:
    """Return the path and the kernel that ``explain`` names for a call, in its own words."""
    a, b, c = operands.a, operands.b, operands.c
    if a.ndim == 1:
        a, c = a[None], c[None]
    elif b.ndim == 1:
        b, c = b[:, None], c[:, None]
    facts: dict[str, str] = {}
    for line in blisgemm.explain(a, b, out=c).splitlines():
        what, _, fact = line.partition(" ")
        facts.setdefault(what, fact.strip())
    return facts.get("path", "").split(",")[0], facts.get("kernel", "").split(":")[0]
