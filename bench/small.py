"""Small products (n up to 128) against np.matmul, with and without ``out=``.

Usage: python bench/small.py [--sizes 4,16,64] [--dtypes f32,f64] [--arch haswell]

One thread; the calls run in turn, and each ratio is the median over the rounds of how many times as
long NumPy took. Results are verified on small integers first, which must be exact.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import timing


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = "1,2,3,4,6,8,12,16,20,24,28,32,40,48,64,96,128"
    parser.add_argument("--sizes", type=timing.positive_list, default=sizes, help="n, by commas")
    parser.add_argument("--dtypes", type=timing.dtype_list, default="f32,f64,c64,c128", help="by commas")
    parser.add_argument("--arch", help="as BLISGEMM_ARCH; NumPy's BLAS is held to the like: haswell, skx, sse2")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long per row (default 0.5)")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = arguments()
    timing.set_environment(1, options.arch)

    import numpy as np

    import blisgemm

    rng = np.random.default_rng(0)
    rows: list[list[object]] = []
    for dtype in options.dtypes:
        for n in options.sizes:
            a, b, c = (np.empty((n, n), dtype) for _ in range(3))
            ours, theirs = blisgemm.matmul, np.matmul
            timing.fill_exact(rng, a, b)
            c[...] = -1
            timing.require_exact(a, b, ours(a, b, out=c), f"blisgemm, out=, {dtype}, n = {n}")
            timing.require_exact(a, b, ours(a, b), f"blisgemm, {dtype}, n = {n}")
            timing.fill_normal(rng, a, b)
            calls = {
                "blisgemm": lambda f=ours, a=a, b=b, c=c: f(a, b, out=c),
                "numpy": lambda f=theirs, a=a, b=b, c=c: f(a, b, out=c),
                "blisgemm new": lambda f=ours, a=a, b=b: f(a, b),
                "numpy new": lambda f=theirs, a=a, b=b: f(a, b),
            }
            times = timing.interleave(calls, seconds=options.seconds, rounds=(15, 1000))
            microseconds = {name: float(np.median(t)) * 1e6 for name, t in times.items()}
            row = [
                dtype, n, f"{microseconds['blisgemm']:.2f}", timing.ratios(times, "numpy"),
                f"{microseconds['blisgemm new']:.2f}", timing.ratios(times, "numpy new", "blisgemm new"),
            ]  # fmt: skip
            rows.append(row)
            print(*row, blisgemm.make_plan(n, n, n, dtype).path, sep="  ", flush=True)
    header = ["dtype", "n", "out=: µs", "× NumPy", "new array: µs", "× NumPy"]
    print(f"\n{timing.markdown_table(header, rows)}\n\n{timing.machine_line()}. `{timing.command_line()}`.")


if __name__ == "__main__":
    main()
