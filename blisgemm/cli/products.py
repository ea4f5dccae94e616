"""Products by the clock, for ``tune``: checked first, on operands of their own, as a plan says.

Knows: how a plan is run as a call would run it, and how long a sample must last. Does not know: which plans meet,
or what wins (``tuner``, whose ``Stopwatch`` this is). Called by ``tune``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..plan import Plan
from .console import CommandError

__all__ = ["ProductWatch"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int]

# Seconds: a sample lasts at least this long, so that the clock's grain (under 0.1 µs) doesn't matter. As in ``race``.
_SAMPLE = 2e-3
_LINE, _PAGE = 64, 4096  # bytes


class ProductWatch:
    """Times plans of one dtype; ``tick`` is called after every sample."""

    def __init__(self, dtype: str, tick: Callable[[], None] = lambda: None) -> None:
        self._dtype, self._tick = np.dtype(dtype), tick
        self._rng = np.random.default_rng(0)
        self._operands: dict[Shape, tuple[Array, Array, Array]] = {}
        self._model: dict[Shape, bytes] = {}
        self._calls: dict[tuple[Plan, int], Callable[[], Any]] = {}
        self._repeats: dict[Shape, int] = {}
        self._age = 0

    def now(self) -> float:
        """Return seconds."""
        return time.perf_counter()

    def check(self, plan: Plan) -> None:
        """Compute integers, where any rounding would show, and reals, whose bits must be those of the first plan.

        Raises:
            CommandError: the product is wrong.
        """
        m, n, k = shape = plan.m, plan.n, plan.k
        a, b = self._integers((m, k)), self._integers((k, n))
        out = np.full((m, n), np.nan, self._dtype)
        self._call(plan, a, b, out)()
        if not (out == a @ b).all():
            raise CommandError(f"a product is wrong, nothing is tuned: {' '.join(str(plan).split())}")
        a, b, out = self._drawn(shape)
        self._call(plan, a, b, out)()
        if self._model.setdefault(shape, out.tobytes()) != out.tobytes():
            raise CommandError(f"a product has other bits, nothing is tuned: {' '.join(str(plan).split())}")

    def sample(self, plan: Plan) -> float:
        """Return the seconds of one product: of as many as make a sample, by their number."""
        key, shape = (plan, self._age), (plan.m, plan.n, plan.k)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._call(plan, *self._drawn(shape))
            call()
            call()
        if shape not in self._repeats:
            self._repeats[shape] = max(1, round(_SAMPLE / self._time(call, 3)))
        seconds = self._time(call, self._repeats[shape])
        self._tick()
        return seconds

    def renew(self) -> None:
        """Draw other operands, elsewhere in memory."""
        self._age += 1
        for cache in (self._operands, self._model, self._calls):
            cache.clear()  # type: ignore[attr-defined]

    def _time(self, call: Callable[[], Any], count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    def _call(self, plan: Plan, a: Array, b: Array, out: Array) -> Callable[[], Any]:
        """Return the product as ``matmul`` would run it by this plan: by the fast lane where that does it."""
        from ..api import matmul
        from ..driver import run
        from ..lane_limits import fast_lane_kc, fast_lane_terms
        from ..operands import prepare
        from ..rules import CROWDED_BYTES
        from ..ways import choose_kernel

        name = self._dtype.name
        limit = fast_lane_terms(name)[b.strides[0] % CROWDED_BYTES == 0]
        small = plan.m * plan.n * plan.k <= limit and plan.k <= fast_lane_kc(name)
        if plan.path == "direct" and small and plan.threads == 1 and plan.kernel == choose_kernel(name, "direct")[0]:
            return lambda: matmul(a, b, out)
        prepared = prepare(a, b, None, 1, 0, out, False, False, None, None, "same_kind", "K")
        return lambda: run(plan, prepared)

    def _drawn(self, shape: Shape) -> tuple[Array, Array, Array]:
        """Return operands and result for a shape, the same until ``renew``."""
        if shape not in self._operands:
            m, n, k = shape
            a, b = self._reals((m, k)), self._reals((k, n))
            self._operands[shape] = a, b, self._placed((m, n))
        return self._operands[shape]

    def _reals(self, shape: tuple[int, int]) -> Array:
        x = self._placed(shape)
        x[...] = self._rng.standard_normal(shape)
        if x.dtype.kind == "c":
            x.imag = self._rng.standard_normal(shape)
        return x

    def _integers(self, shape: tuple[int, int]) -> Array:
        x = self._placed(shape)
        x[...] = self._rng.integers(-4, 5, shape)
        if x.dtype.kind == "c":
            x.imag = self._rng.integers(-4, 5, shape)
        return x

    def _placed(self, shape: tuple[int, int]) -> Array:
        """Return an array that starts on some line of some page, for no plan's luck to last."""
        count = shape[0] * shape[1] * self._dtype.itemsize
        raw = np.empty(count + 2 * _PAGE, np.uint8)
        start = -raw.ctypes.data % _LINE + _LINE * int(self._rng.integers(0, _PAGE // _LINE))
        return raw[start : start + count].view(self._dtype).reshape(shape)
