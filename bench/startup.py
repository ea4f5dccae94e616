"""What the first use costs: the import, and the first product of each dtype, cold and warm.

Usage: python bench/startup.py [--dtypes f32,f64] [--repeat 5]

Each number comes from a process of its own. Import: seconds of ``import blisgemm`` after ``import numpy,
numba``. Cold: an empty cache folder, so that the loops are compiled; warm: the next process
with the same folder. Later: the calls that follow, which are ``gemm`` and not the shorter way of ``matmul``.
Medians; results are verified.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import options as given

IMPORT = """
import time
t0 = time.perf_counter(); import numpy
t1 = time.perf_counter(); import numba
t2 = time.perf_counter(); import blisgemm
t3 = time.perf_counter(); blisgemm.gemm
t4 = time.perf_counter(); print(t1 - t0, t2 - t1, t4 - t2)
"""
ALONE = "import time; t = time.perf_counter(); import blisgemm; print(time.perf_counter() - t)"
FIRST = """
import sys, time
import numpy as np, numba, blisgemm
blisgemm.gemm
n, dtype, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
a, b = np.ones((n, n), dtype), np.full((n, n), 2, dtype)
t = time.perf_counter(); c = blisgemm.gemm(a, b, threads=threads); first = time.perf_counter() - t
assert (c == 2 * n).all()
later = []
for _ in range(20):
    t = time.perf_counter(); blisgemm.gemm(a, b, threads=threads); later.append(time.perf_counter() - t)
print(first, sorted(later)[10])
"""


def child(code: str, *words: object, cache: str) -> list[float]:
    """Run code in a new process and return the numbers that it prints."""
    environment = os.environ | {"BLISGEMM_CACHE_DIR": cache, "PYTHONPATH": str(given.ROOT)}
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def medians(samples: list[list[float]]) -> list[float]:
    """Return the median of each column."""
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", type=given.dtype_list, default="f32,f64,c64,c128", help="by commas")
    parser.add_argument("--repeat", type=given.positive, default=5, help="processes per number (default 5; cold: 1)")
    options = parser.parse_args()
    given.set_environment(1)
    from blisgemm.bench.environment import command_line, machine_line
    from blisgemm.bench.tables import markdown_table

    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as cache:
        child(IMPORT, cache=cache)  # the files into the page cache
        numpy_s, numba_s, ours_s = medians([child(IMPORT, cache=cache) for _ in range(options.repeat)])
        [alone_s] = medians([child(ALONE, cache=cache) for _ in range(options.repeat)])
    print(f"import: numpy {numpy_s:.3f} s, then numba {numba_s:.3f} s, then blisgemm {ours_s:.3f} s")
    print(f"import blisgemm alone: {alone_s:.3f} s")
    for path, n, threads in (("direct", 8, 1), ("packed", 200, 1), ("packed", 200, 2), ("packed", 1000, 2)):
        for dtype in options.dtypes:
            with tempfile.TemporaryDirectory() as cache:
                cold_s = child(FIRST, n, dtype, threads, cache=cache)[0]
                warm_s, later_s = medians([child(FIRST, n, dtype, threads, cache=cache) for _ in range(options.repeat)])
            rows.append([dtype, path, n, threads, f"{cold_s:.2f}", f"{warm_s:.3f}", f"{later_s * 1e6:.1f}"])
            print(*rows[-1], sep="  ", flush=True)
    header = ["dtype", "path", "n", "threads", "first, cold: s", "first, warm: s", "later: µs"]
    print(f"\n{markdown_table(header, rows)}\n\n{machine_line()}. `{command_line()}`.")


if __name__ == "__main__":
    main()
