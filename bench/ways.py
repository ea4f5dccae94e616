"""Which way is faster where: packed, direct, sweep, stream, strips and turned, beside what the plan takes.

Usage: python bench/ways.py [--dtype f32,f64] [--rows 16,64,300] [--columns 8,16,32,64] [--depths 700,4000]
       [--row-bytes 4096] [--seconds 0.2] [--arch haswell]

One thread, compiled calls only: neither a plan's lookup nor a fast lane is in the figures. "turned" is the plan's way
where it computes C' = B' A' though C lies by rows, as for few columns of B. Each cell is a product of
``rows`` x k times k x ``columns``: the plan's way, its speed by that of the fastest way, which that is, and the time of
the faster of NumPy and MKL (through torch, if it is here) by the plan's. The limits in ``blisgemm/limits.py`` are from
such tables.
"""

from __future__ import annotations

import argparse

import options as given


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", type=given.dtype_list, default="f32,f64", help="by commas")
    parser.add_argument("--rows", type=given.positive_list, default="16,64,300", help="of A, by commas")
    parser.add_argument("--columns", type=given.positive_list, default="8,16,32,64", help="of B, by commas")
    parser.add_argument("--depths", type=given.positive_list, default="700,4000", help="k, by commas")
    parser.add_argument(
        "--row-bytes",
        type=int,
        default=0,
        help="how far apart the rows of B lie, a multiple of the element's; default: they touch",
    )
    parser.add_argument(
        "--seconds", type=given.positive_seconds, default=0.2, help="about how long per cell (default 0.2)"
    )
    parser.add_argument("--arch", help="as BLISGEMM_ARCH: haswell, skylake-x, sse2")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = arguments()
    given.set_environment(1, options.arch)

    import numpy as np

    from blisgemm.bench.environment import machine_line
    from blisgemm.bench.measure import cpu_clock

    clock, clock_name = cpu_clock()
    print(f"{machine_line()}; {clock_name}", flush=True)
    for dtype in options.dtype:
        for k in options.depths:
            print(f"\n{dtype}, k = {k}, columns {', '.join(map(str, options.columns))}", flush=True)
            for m in options.rows:
                cells = [cell(np.dtype(dtype), m, n, k, options, clock) for n in options.columns]
                print(f"{m:5d} rows  " + " | ".join(cells), flush=True)


def cell(dtype, m, n, k, options, clock) -> str:  # type: ignore[no-untyped-def]
    """Measure one product in all ways that it can go."""
    from dataclasses import replace
    from functools import partial
    from statistics import median

    import numpy as np

    import blisgemm
    from blisgemm.bench.measure import interleave
    from blisgemm.driver import route_of
    from blisgemm.errors import BlisgemmValueError
    from blisgemm.outcome import EXCHANGE

    if options.row_bytes < 0 or options.row_bytes % dtype.itemsize or 0 < options.row_bytes < n * dtype.itemsize:
        raise SystemExit(
            f"--row-bytes: expected a multiple of {dtype.itemsize}, at least {n * dtype.itemsize}; got "
            f"{options.row_bytes}"
        )
    rng = np.random.default_rng(0)
    row = max(n, options.row_bytes // dtype.itemsize)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, row)))
    b, out, one, zero = b[:, :n], np.empty((m, n), dtype), dtype.type(1), dtype.type(0)
    chosen = blisgemm.make_plan(m, n, k, dtype=dtype.name, threads=1)
    plans = {}
    for path in ("packed", "direct", "stream", "strips", "sweep"):
        try:
            plans[path] = blisgemm.make_plan(m, n, k, dtype=dtype.name, threads=1, path=path)
        except BlisgemmValueError:
            continue
    rows = n if plans["direct"].swapped else m
    plans["direct"] = replace(plans["direct"], rows_first=rows > plans["direct"].kernel.mr)
    taken = chosen.path if chosen.swapped == plans["packed"].swapped else "turned"
    plans[taken] = chosen
    # a swapped plan is of C' = B' A', and the columns of B, as it lies here, are no rows to read as they lie
    plans = {way: replace(plan, half=plan.half and (not plan.swapped or n == row == 1)) for way, plan in plans.items()}
    calls = {
        way: partial(route_of(plan), one, a, b, zero, out, EXCHANGE if plan.swapped else 0)
        for way, plan in plans.items()
    }
    for way, call in calls.items():
        out[:] = 0
        call()
        if not (out == a @ b).all():
            raise SystemExit(f"{way} is wrong at {m} x {n} x {k}")
    calls["NumPy"] = partial(np.matmul, a, b, out=out)
    try:
        import torch

        torch.set_num_threads(1)
        left, right, target = map(torch.from_numpy, (a, b, out))
        calls["MKL"] = partial(torch.mm, left, right, out=target)
    except ImportError:
        pass
    times = {name: median(of) for name, of in interleave(calls, seconds=options.seconds, clock=clock).items()}
    fastest = min(plans, key=lambda way: times[way])
    peer = min(times[name] for name in ("NumPy", "MKL") if name in times)
    ours = times[taken]
    return f"{taken:6s} {times[fastest] / ours:.2f} of {fastest:6s} x peer {peer / ours:.2f}"


if __name__ == "__main__":
    main()
