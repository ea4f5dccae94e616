"""Where the time of a packed product goes: from bare multiply-adds to the whole, one thing added at a time.

Usage: python bench/anatomy.py [--sizes 1000,2000] [--dtype f32,f64] [--shapes 8x48,12x32] [--arch haswell]
       [--seconds 3]

One thread. Each line does the same multiply-adds, n^3 of them and the padding, and adds one thing to the line above:

    fma        on as many accumulators as the micro-tile has, nothing loaded
    resident   the microkernel on one pair of short micro-panels that stay in L1, one tile of C
    kc         the same on micro-panels of the product's own length
    stream     every micro-panel of the packed blocks passes, in the order of the loops; still one tile of C
    update     C itself: each micro-tile where it belongs
    packed     A and B are packed: the whole product
    half       the whole product, with A read as it lies
    of A, of B what packing all of A, or of B, takes by itself: share of the whole, and ns per element

All lines run in turn; medians. A line can be a little faster than the one above it: they are other code.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

import options as given


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=given.positive_list, default="1000,2000", help="n, by commas")
    parser.add_argument("--dtype", type=given.dtype_list, default="f32,f64", help="by commas")
    parser.add_argument(
        "--shapes", type=given.tile_list, help="mr x nr by commas, e.g. 12x32,8x48; the plan's own kernel by default"
    )
    parser.add_argument("--arch", help="as BLISGEMM_ARCH: haswell, skylake-x, sse2")
    parser.add_argument(
        "--seconds", type=given.positive_seconds, default=3.0, help="about how long per table (default 3)"
    )
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = arguments()
    given.set_environment(1, options.arch)

    import numpy as np

    import blisgemm
    from blisgemm.bench import parts
    from blisgemm.bench.environment import machine_line
    from blisgemm.bench.exact import fill_exact, require_exact
    from blisgemm.bench.measure import cpu_clock, interleave
    from blisgemm.bench.shapes import Case

    clock, clock_name = cpu_clock()
    rng = np.random.default_rng(0)
    print(f"{machine_line()}; {clock_name}", flush=True)
    for dtype in options.dtype:
        own = blisgemm.make_plan(2000, 2000, 2000, dtype, path="packed").kernel
        kernels = given.kernels_of(own, options.shapes)
        for n in options.sizes:
            a, b, c = (np.empty((n, n), dtype) for _ in range(3))
            useful = Case("square", n, n, n).flops(dtype)
            for kernel in kernels:
                plan = blisgemm.make_plan(n, n, n, dtype, kernel=kernel, path="packed", threads=1)
                packed, half = (replace(plan, half=half) for half in (False, True))
                whole = {
                    name: partial(blisgemm.gemm, a, b, out=c, plan=each)
                    for name, each in (("packed", packed), ("half", half))
                }
                fill_exact(rng, a, b, k=n)
                for name, call in whole.items():
                    c[...] = -1
                    call()
                    require_exact(a, b, c, f"{kernel.name}, {name}, n = {n}")
                calls = {**parts.of_product(packed, a, b, c), **whole}
                calls["numpy"] = partial(np.matmul, a, b, out=c)
                times = interleave(calls, seconds=options.seconds, clock=clock)
                blk = plan.blocking
                padded = parts.terms(packed) / n**3
                print(
                    f"{kernel.name}, n = {n}: mc {blk.mc} nc {blk.nc} kc {blk.kc}; with padding {padded:.3f} n^3 terms"
                )
                best = np.median(times["fma"])
                for name in ("fma", "resident", "kc", "stream", "update", "packed", "half", "numpy"):
                    seconds = np.median(times[name])
                    print(f"  {name:8} {useful / seconds / 1e9:8.1f} GFLOP/s  {best / seconds:6.1%}", flush=True)
                for name in ("of A", "of B"):
                    seconds = np.median(times[name])
                    share = seconds / np.median(times["packed"])
                    print(f"  {name:8} {share:8.1%}  {seconds / n**2 * 1e9:14.2f} ns per element", flush=True)


if __name__ == "__main__":
    main()
