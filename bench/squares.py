"""Square products against NumPy and MKL, in the same process and the same seconds.

Usage: python bench/squares.py [--sizes 256,2000] [--dtypes f32,c128] [--threads N] [--arch haswell]
       [--write-readme]

Every library first multiplies small integers, which must come out exact; then all of them run in turn on
normal deviates. What is reported: GFLOP/s of the median time; the share of the fma peak, which is measured
in between by the library's own microkernel on resident panels (``peak``), one core times the threads;
how many times as long the others took, as the median of the rounds with its quartiles.
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
    parser.add_argument("--sizes", type=timing.positive_list, default="128,256,512,1000,2000", help="n, by commas")
    parser.add_argument("--dtypes", type=timing.dtype_list, default="f32,f64,c64,c128", help="by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arch", help="as BLISGEMM_ARCH; the others are held to the like: haswell, skx, sse2")
    parser.add_argument("--seconds", type=float, default=4.0, help="about how long per row (default 4)")
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the table when asked to."""
    options = arguments()
    timing.set_environment(options.threads, options.arch)

    import mkl_gemm
    import numpy as np
    import peak

    import blisgemm

    library = mkl_gemm.load(options.threads)
    rng = np.random.default_rng(0)
    rows: list[list[object]] = []
    for dtype in options.dtypes:
        packed = blisgemm.make_plan(2000, 2000, 2000, dtype).kernel
        for n in options.sizes:
            a, b, c = (np.empty((n, n), dtype) for _ in range(3))
            plan = blisgemm.make_plan(n, n, n, dtype)
            calls = {
                "blisgemm": lambda a=a, b=b, c=c: blisgemm.matmul(a, b, out=c),
                "numpy": lambda a=a, b=b, c=c: np.matmul(a, b, out=c),
            }
            if library is not None:
                calls["mkl"] = mkl_gemm.product(library, a, b, c)
            timing.fill_exact(rng, a, b)
            for name, call in calls.items():
                c[...] = -1
                call()
                timing.require_exact(a, b, c, f"{name}, {dtype}, n = {n}")
            timing.fill_normal(rng, a, b)
            # The peak is one core's: with threads it is an upper bound that turbo may not allow.
            work = timing.flops(n, n, n, dtype)
            calls["peak"], peak_flops = peak.resident_kernel(packed, min(max(work, 1e7), 5e9))
            times = timing.interleave(calls, seconds=options.seconds)
            rate = work / np.median(times["blisgemm"]) / 1e9
            peak_rate = peak_flops / np.median(times["peak"]) / 1e9 * options.threads
            row = [
                dtype, n, f"{rate:.1f}", f"{rate / peak_rate:.0%}", timing.ratios(times, "numpy"),
                timing.ratios(times, "mkl") if library is not None else "",
            ]  # fmt: skip
            rows.append(row)
            print(*row, plan.kernel.name, plan.path, f"peak {peak_rate:.1f}", sep="  ", flush=True)
    header = ["dtype", "n", "GFLOP/s", "of peak", "× NumPy", "× MKL"]
    table = timing.markdown_table(header, rows)
    threads = "1 thread" if options.threads == 1 else f"{options.threads} threads"
    peers = f", MKL {mkl_gemm.version(library)}" if library is not None else ""
    machine = timing.machine_line()
    about = f"{threads}, C-ordered squares, `out=` given. {machine}{peers}. `{timing.command_line()}`."
    print(f"\n{table}\n\n{about}")
    if options.write_readme:
        timing.write_between(timing.ROOT / "README.md", "bench", f"{table}\n\n{about}")


if __name__ == "__main__":
    main()
