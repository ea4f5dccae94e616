"""What a call costs beside the arithmetic: the parts of the plain route, and small products on every route.

Usage: python bench/overhead.py [--dtype f32] [--seconds 0.3] [--items 10000]

One thread, calls in turn with NumPy's, medians. Every product is checked on small integers first. The parts are those
of ``matmul`` of two matrices with ``out=``: the compiled checks, the lookup of what runs the plan, and the run of a
1 x 1 product by it. "Blocks" counts what a thousand repeated calls with ``out=`` left allocated.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import options as given

Call = Callable[[], Any]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", type=given.dtype_list, default="f32", help="f32, f64, c64 or c128; or several")
    parser.add_argument("--seconds", type=given.positive_seconds, default=0.3, help="per row (default 0.3)")
    parser.add_argument("--items", type=given.positive, default=10_000, help="of the batches (default 10000)")
    options = parser.parse_args()
    given.set_environment(1)
    from blisgemm.bench.environment import command_line, machine_line
    from blisgemm.bench.measure import cpu_clock, interleave, spread
    from blisgemm.bench.tables import markdown_table

    clock, clock_name = cpu_clock()
    for dtype in options.dtype:
        rows: list[list[object]] = []
        for name, ours, peer in [*parts(dtype), *products(dtype, options.items)]:
            calls = {"ours": ours} | ({"numpy": peer} if peer else {})
            times = interleave(calls, seconds=options.seconds, clock=clock)
            medians = {key: spread(samples).median for key, samples in times.items()}
            show = [f"{medians[key] * 1e6:.2f}" if key in medians else "" for key in ("ours", "numpy")]
            rows.append([name, *show, left_allocated(ours) if peer else ""])
            print(*rows[-1], sep="  ", flush=True)
        header = [dtype, "µs", "NumPy: µs", "blocks"]
        print(f"\n{markdown_table(header, rows)}\n\n1 thread, {clock_name}. {machine_line()}. `{command_line()}`.\n")


def left_allocated(call: Call) -> int:
    """Return how many blocks of Python's allocator are in use after a thousand calls that were not before."""
    call()
    gc.collect()  # also empties the lists of free tuples, which count as allocated
    before = sys.getallocatedblocks()
    for _ in range(1000):
        call()
    gc.collect()
    return sys.getallocatedblocks() - before


def parts(dtype: str) -> list[tuple[str, Call, None]]:
    """Return the steps of a plain product that the fast lane checks and does not do."""
    import blisgemm
    from blisgemm import lane
    from blisgemm.outcome import VECTORS
    from blisgemm.parallel import get_num_threads

    one = np.ones((1, 1), dtype)
    out = np.zeros_like(one)
    blisgemm.matmul(one, one, out)
    dt = one.dtype
    opened = lane.lane_of(dt)
    code, kernel, _, only_checks, spare, routes = opened
    head = (kernel, only_checks, spare)

    def checks() -> Any:
        return code(*head, one, one, out, np.ndarray, dt, VECTORS, 1.0, 0.0)

    key = checks()
    route = lane.planned(opened, (key, get_num_threads()), dt)
    return [
        ("an empty Python call", lambda: None, None),
        ("plain route: checks", checks, None),
        ("plain route: lookup", lambda: routes.get((key, get_num_threads())), None),
        ("plain route: run 1x1x1", lambda: route(1.0, one, one, 0.0, out, VECTORS), None),
    ]


def products(dtype: str, items: int) -> list[tuple[str, Call, Call | None]]:
    """Return (name, our call, NumPy's) for small products, each verified now; all write into ``out=``."""
    import blisgemm
    from blisgemm.bench.exact import fill_exact, require_exact

    rng = np.random.default_rng(0)
    found: list[tuple[str, Call, Call | None]] = []

    def numbers(*shape: int) -> np.ndarray:
        x = np.empty(shape, dtype)
        fill_exact(rng, x)
        return x

    def add(name: str, a: np.ndarray, b: np.ndarray, **gemm: Any) -> None:
        """Time ``matmul``, or ``gemm`` if it gets arguments; NumPy multiplies the same operands."""
        op_a, op_b = (x.T if gemm.get(f"trans_{s}") else x for s, x in (("a", a), ("b", b)))
        want = np.matmul(op_a, op_b)
        out, other = np.zeros_like(want), np.zeros_like(want)

        def ours() -> Any:
            return blisgemm.gemm(a, b, out=out, **gemm) if gemm else blisgemm.matmul(a, b, out)

        ours()
        got = out / gemm.get("alpha", 1)
        if op_a.ndim > 2 and op_b.ndim == 1:
            require_exact(op_a, op_b[:, None], got[..., None], name)
        elif out.ndim:
            require_exact(op_a, op_b, got, name)
        elif out != want:
            raise SystemExit(f"{name}: expected {want}; got {out}")
        found.append((name, ours, lambda: np.matmul(op_a, op_b, other)))

    for n in (4, 16, 32, 64):
        a, b = numbers(n, n), numbers(n, n)
        add(f"matmul {n}", a, b)
        add(f"matmul {n}, B transposed", a, b.T)
        add(f"matmul {n}, strided", numbers(2 * n, 2 * n)[::2, ::2], numbers(2 * n, 2 * n)[::2, ::2])
        add(f"gemm {n}, alpha", a, b, alpha=2.0)
        add(f"gemm {n}, trans_b", a, b, trans_b=True)
        add(f"gemm {n}, dtype given", a, b, dtype=a.dtype)
    for n in (4, 128):
        a, x = numbers(n, n), numbers(n)
        add(f"{n} x {n} times vector", a, x)
        add(f"vector times {n} x {n}", x, a)
        add(f"dot product, {n}", x, x)
    for count, n in ((3, 4), (items, 4), (items // 5, 16)):
        a, b, wide = numbers(count, n, n), numbers(count, n, n), numbers(count, 2 * n, 2 * n)[:, ::2, ::2]
        title = f"{count:,} of {n} x {n}"
        add(title, a, b)
        add(f"{title}, B transposed", a, b.swapaxes(1, 2))
        add(f"{title}, A transposed", a.swapaxes(1, 2), b)
        add(f"{title}, both strided", wide, wide)
        add(f"{title}, one B for all", a, b[0])
        add(f"{title}, one A for all", a[0], b)
        add(f"{title}, times a vector", a, b[0, 0])
    return found


if __name__ == "__main__":
    main()
