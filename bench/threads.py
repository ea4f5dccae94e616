"""Where the time of several threads goes: packing, tiles, waiting, and what is left.

Usage: python bench/threads.py [--sizes 384,1000,2000] [--dtype f32,f64] [--threads 2] [--seconds 2]

The loops are the library's own texts (``loops.five_loops`` and ``five_loops_together``), compiled once more with clocks
around their words. A line each for one thread and for several, which take turns; medians over all calls, in
microseconds of thread-time: the threads' times added up. "rest" is what the threads do outside: they start, and end.
"apart" is for comparison: one thread each for equal parts of the rows, which pack B for themselves and share nothing,
in a batch of so many items.
"""

from __future__ import annotations

import argparse
import time
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import options as given

WORDS = ("packing", "tiles", "waiting")
LINE = 8  # int64s between two counters, so that no two share a cache line


def clocked(counters: np.ndarray) -> dict[str, Callable[..., Any]]:
    """Return the texts with clocks: ticks of packing, of tiles and of waiting are added to ``counters``."""
    from llvmlite import ir
    from numba.core import types as numba_types
    from numba.extending import intrinsic

    from blisgemm import loops
    from blisgemm.ukernel.bind import inlined

    i64, start = ir.IntType(64), counters.ctypes.data

    @intrinsic
    def now(typing_context):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            clock = builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(i64, []))
            return builder.call(clock, [])

        return numba_types.int64(), codegen

    @intrinsic
    def count(typing_context, word, ticks):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            place = builder.add(ir.Constant(i64, start), builder.mul(args[0], ir.Constant(i64, 8 * LINE)))
            builder.atomic_rmw("add", builder.inttoptr(place, i64.as_pointer()), args[1], "monotonic")
            return context.get_dummy_value()

        return numba_types.void(numba_types.int64, numba_types.int64), codegen

    pack_a, pack_b, pack_share = loops.pack_a, loops.pack_b, loops.pack_share
    macrokernel, wait_until_done = loops.macrokernel, loops.wait_until_done

    @inlined
    def pack_panel(kernel, panel, out):  # type: ignore[no-untyped-def]
        begin = now()
        pack_a(kernel, panel, out)
        count(0, now() - begin)

    @inlined
    def pack_block(kernel, block, out):  # type: ignore[no-untyped-def]
        begin = now()
        pack_b(kernel, block, out)
        count(0, now() - begin)

    @inlined
    def pack_part(kernel, part, parts, a_panel, b_panel, a_pack, b_pack):  # type: ignore[no-untyped-def]
        begin = now()
        pack_share(kernel, part, parts, a_panel, b_panel, a_pack, b_pack)
        count(0, now() - begin)

    @inlined
    def tile(kernel, access, alpha, a, a_pack, b_pack, beta, c, kc_cur, conj):  # type: ignore[no-untyped-def]
        begin = now()
        macrokernel(kernel, access, alpha, a, a_pack, b_pack, beta, c, kc_cur, conj)
        count(1, now() - begin)

    @inlined
    def wait(work, pieces):  # type: ignore[no-untyped-def]
        begin = now()
        wait_until_done(work, pieces)
        count(2, now() - begin)

    words = {
        "pack_a": pack_panel, "pack_b": pack_block, "pack_share": pack_part, "macrokernel": tile,
        "wait_until_done": wait,
    }  # fmt: skip
    used = {
        "five_loops": {"pack_a", "pack_b", "macrokernel"},
        "five_loops_together": {"pack_share", "macrokernel", "wait_until_done"},
    }
    texts = {}
    for name, named in used.items():
        text = getattr(loops, name).py_func
        missing = named - set(text.__code__.co_names)
        if missing:
            raise SystemExit(
                f"{name} no longer has the words {', '.join(missing)}, which this script puts clocks around"
            )
        texts[name] = inlined(types.FunctionType(text.__code__, {**text.__globals__, **words}, name))
    return texts


def product(plan: Any, texts: dict[str, Any]) -> Callable[..., None]:
    """Return a call of (a, b, c) that runs a packed plan by these texts."""
    from numba import njit

    from blisgemm.compiled import _signature, real_dtype
    from blisgemm.entry import conjugated, opened
    from blisgemm.parallel import in_region
    from blisgemm.team import join
    from blisgemm.workspace import borrow

    access, kernel, blk = "half" if plan.half else "packed", plan.kernel, plan.blocking
    alone, together = texts["five_loops"], texts["five_loops_together"]

    if plan.threads == 1:

        @njit(nogil=True)
        def run(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_packs, b_packs, team):  # type: ignore[no-untyped-def]
            a, b, c = opened(kernel, a_object, b_object, c_object, op)
            alone(kernel, access, blocking, alpha, a, b, beta, c, conjugated(op), a_packs[0], b_packs[0])
    else:

        @njit(nogil=True)
        def run(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_packs, b_packs, team):  # type: ignore[no-untyped-def]
            work = join(team)
            a, b, c = opened(kernel, a_object, b_object, c_object, op)
            together(kernel, access, blocking, alpha, a, b, beta, c, conjugated(op), a_packs, b_packs, work)

    code = run.compile(_signature(f"run_{access}", kernel))
    packs = borrow((plan.packed_shapes, real_dtype(kernel))).arrays

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        blocking = (blk.mc, blk.nc, blk.kc, blk.mt)
        in_region(plan.threads, lambda team: code(kernel, blocking, kernel.one, a, b, kernel.zero, c, 0, *packs, team))

    return call


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=given.positive_list, default="384,1000,2000", help="n, by commas")
    parser.add_argument("--dtype", type=given.dtype_list, default="f32,f64", help="by commas")
    parser.add_argument("--threads", type=given.positive, default=2, help="how many (default 2)")
    parser.add_argument(
        "--seconds", type=given.positive_seconds, default=2.0, help="about how long per table (default 2)"
    )
    options = parser.parse_args()
    if options.threads < 2:
        parser.error(f"--threads: expected at least 2; got {options.threads}")
    if min(options.sizes) < options.threads:
        parser.error(
            f"--sizes: expected n of at least {options.threads}, a row for each thread; got {min(options.sizes)}"
        )
    given.set_environment(options.threads)

    import blisgemm
    from blisgemm.bench.environment import machine_line
    from blisgemm.bench.exact import fill_exact, require_exact
    from blisgemm.parallel import threading_layer

    rng, counters = np.random.default_rng(0), np.zeros(len(WORDS) * LINE, np.int64)
    texts = clocked(counters)
    for dtype in options.dtype:
        for n in options.sizes:
            n -= n % options.threads  # equal parts
            a, b, c = (np.empty((n, n), dtype) for _ in range(3))
            fill_exact(rng, a, b, k=n)
            parts = tuple(x.reshape(options.threads, -1, n) for x in (a, c))
            calls: dict[str, Callable[[], Any]] = {}
            for threads in (1, options.threads):
                plan = blisgemm.make_plan(n, n, n, dtype, path="packed", threads=threads)
                calls[f"{threads} threads"] = partial(product(plan, texts), a, b, c)
            calls["apart"] = partial(blisgemm.gemm, parts[0], b, out=parts[1], threads=options.threads)
            for name, call in calls.items():
                c[...] = -1
                call()
                require_exact(a, b, c, f"{dtype}, n = {n}, {name}")
            show(n, dtype, calls, counters, options)
    print(f"threading layer {threading_layer()}; {machine_line()}")


def show(n: int, dtype: str, calls: dict[str, Callable[[], Any]], counters: np.ndarray, options: Any) -> None:
    """Time the calls in turn and print a table."""
    samples: dict[str, list[Any]] = {name: [] for name in calls}
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(samples["apart"]) < 5:
        for name, call in calls.items():
            call()  # wakes the threads, and warms the caches
            counters[:] = 0
            begin = time.perf_counter()
            call()
            wall = time.perf_counter() - begin
            samples[name].append([wall * 1e6, *counters[::LINE]])
    medians = {name: np.median(rows, axis=0) for name, rows in samples.items()}
    one = medians["1 threads"]
    ticks = one[1:].sum() / one[0]  # in a microsecond: one thread does nothing else
    print(f"\n{dtype} n = {n}: us  {'wall':>9} {'times':>6}  " + " ".join(f"{word:>9}" for word in (*WORDS, "rest")))
    for name, (wall, *counted) in medians.items():
        line = f"{name:>16}  {wall:9.0f} {one[0] / wall:6.2f}"
        if any(counted):
            spent = [ticked / ticks for ticked in counted]
            threads = 1 if name == "1 threads" else options.threads
            line += "  " + " ".join(f"{x:9.0f}" for x in (*spent, threads * wall - sum(spent)))
        print(line, flush=True)


if __name__ == "__main__":
    main()
