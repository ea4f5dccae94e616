"""Memory that a product takes beside its operands, by strides, against the workspace that is documented.

Usage: python bench/memory.py [--size 2000] [--dtypes f32,c128] [--threads N]

Linux only: each case is a process of its own, which compiles on a small product, lowers the peak of its
resident set to the present (/proc/self/clear_refs, 5), multiplies, and reads the peak again (VmHWM). The
result array exists before and is written before, so that it does not count. Right is: blisgemm's extra is
its workspace (``blisgemm.workspace_bytes()``) whatever the strides are, give or take some pages. Results
are verified.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import options as given

CASES = ("C·C", "F·F", "gaps", "reversed", "unaligned", "byte-swapped", "out F", "out gaps", "out reversed")


def lay_out(values, layout):
    """Return an array equal to ``values`` with the strides that ``layout`` names."""
    import numpy as np

    m, n = values.shape
    if layout == "F":
        return np.array(values, order="F")
    if layout == "gaps":
        view = np.zeros((2 * m, 3 * n), values.dtype)[::2, ::3]
    elif layout == "reversed":
        view = np.zeros((m, n), values.dtype)[::-1, ::-1]
    elif layout == "unaligned":
        view = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(m, n)
    elif layout == "byte-swapped":
        view = np.zeros((m, n), values.dtype.newbyteorder())
    else:
        return np.array(values, order="C")
    view[...] = values
    return view


def resident(field: str) -> int:
    """Return VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}")


def measure(library: str, case: str, n: int, dtype: str) -> None:
    """Print the extra bytes of one product and the bytes of blisgemm's workspace."""
    import numpy as np

    import blisgemm
    from blisgemm.bench.exact import fill_exact, require_exact

    product = blisgemm.matmul if library == "blisgemm" else np.matmul
    rng = np.random.default_rng(0)
    a, b, c = (np.zeros((n, n), dtype) for _ in range(3))
    fill_exact(rng, a, b, k=n)
    kind = case.removeprefix("out ")
    if case.startswith("out "):
        x, y, out = a, b, lay_out(c, kind)
    else:
        x, y, out = (
            lay_out(a, kind[0] if "·" in kind else kind),
            lay_out(b, kind[0] if "·" in kind else kind),
            c,
        )
    out[...] = -1
    # The same product, once before, compiles everything (a smaller one may take another path).
    product(x, y, out=out)
    blisgemm.free_workspace()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system, so that it counts again
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    product(x, y, out=out)
    extra = resident("VmHWM") - before
    workspace = blisgemm.workspace_bytes()
    require_exact(a, b, out, f"{library}, {case}, {dtype}")
    print(extra, workspace)


def main() -> None:
    """Run every case in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=given.positive, default=2000, help="n (default 2000)")
    parser.add_argument("--dtypes", type=given.dtype_list, default="f32,c128", help="by commas")
    parser.add_argument("--threads", type=given.positive, default=1)
    parser.add_argument("--case", nargs=2, metavar=("LIBRARY", "CASE"), help="one case, in this process")
    options = parser.parse_args()
    given.set_environment(options.threads)
    if options.case:
        measure(*options.case, options.size, options.dtypes[0])
        return
    from blisgemm.bench.environment import command_line, machine_line
    from blisgemm.bench.tables import markdown_table

    mib, rows = 1 << 20, []
    short = {name: key for key, name in given.SHORT_NAMES.items()}
    for dtype in options.dtypes:
        for case in CASES:
            bytes_of = {}
            for library in ("blisgemm", "numpy"):
                command = [
                    sys.executable, __file__, "--size", str(options.size), "--dtypes", short[dtype],
                    "--threads", str(options.threads), "--case", library, case,
                ]  # fmt: skip
                done = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, text=True, check=True)
                bytes_of[library] = [int(word) for word in done.stdout.split()]
            extra, workspace = bytes_of["blisgemm"]
            cells = (extra, workspace, bytes_of["numpy"][0])
            rows.append([dtype, case, *(f"{x / mib:.1f}" for x in cells)])
            print(*rows[-1], sep="  ", flush=True)
    header = ["dtype", "strides", "blisgemm: extra MiB", "its workspace MiB", "NumPy: extra MiB"]
    about = f"n = {options.size}. {machine_line()}. `{command_line()}`."
    print(f"\n{markdown_table(header, rows)}\n\n{about}")


if __name__ == "__main__":
    main()
