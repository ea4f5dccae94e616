"""Sweep kc, the kernel's shape and its unrolling: what KC_MAX and the catalog's rows are chosen by.

Usage: python bench/kc.py --dtype f32 [--shapes 12x32,8x48] [--kcs 192,256,384,512] [--sizes 500,2000]
       [--unrolls 1,4] [--mc 4080] [--nc 192] [--arch haswell] [--no-numpy]

One thread. For each n, kernel and bound of kc one product with that bound: k is cut into blocks of equal
length at most the bound, and nc is such that nc·kc stays what the blocking model chose, unless --nc says
another. All of them and np.matmul run in turn; GFLOP/s of the median time. The first line of a kernel is
its rate on resident panels. Every variant is verified on small integers first, which must be exact.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import options as given


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=given.SHORT_NAMES, default="f32")
    parser.add_argument(
        "--shapes", type=given.tile_list, help="mr x nr by commas, e.g. 12x32,8x48; the plan's own kernel by default"
    )
    parser.add_argument("--unrolls", type=given.positive_list, help="k steps per turn, by commas; the kernel's own")
    parser.add_argument("--kcs", type=given.positive_list, default="128,192,256,320,384,512", help="by commas")
    parser.add_argument("--sizes", type=given.positive_list, default="500,1000,2000", help="n, by commas")
    parser.add_argument("--mc", type=given.positive, help="rows of the panel of A, instead of the model's")
    parser.add_argument("--nc", type=given.positive, help="columns of the block of B, instead of the model's")
    parser.add_argument("--arch", help="as BLISGEMM_ARCH; NumPy's BLAS is held to the like: haswell, skylake-x, sse2")
    parser.add_argument(
        "--seconds", type=given.positive_seconds, default=10.0, help="about how long per size and kernel (default 10)"
    )
    parser.add_argument("--no-numpy", action="store_true", help="leave np.matmul out")
    return parser.parse_args()


def balanced(extent: int, most: int, step: int) -> int:
    """Return the length of the fewest equal blocks of at most ``most``, in whole steps."""
    blocks = -(-extent // most)
    return min(most, -(-extent // blocks // step) * step)


def main() -> None:
    """Measure and print."""
    options = arguments()
    given.set_environment(1, options.arch)

    import numpy as np

    import blisgemm
    from blisgemm.bench.environment import machine_line
    from blisgemm.bench.exact import fill_exact, fill_normal, require_exact
    from blisgemm.bench.measure import interleave
    from blisgemm.bench.peak import resident_kernel
    from blisgemm.bench.shapes import Case
    from blisgemm.blocking import KC_STEP

    dtype = given.SHORT_NAMES[options.dtype]
    rng = np.random.default_rng(0)
    print(machine_line(), flush=True)
    own = blisgemm.make_plan(2000, 2000, 2000, dtype).kernel
    kernels = given.kernels_of(own, options.shapes)
    if options.unrolls:
        kernels = [replace(kernel, unroll=unroll) for kernel in kernels for unroll in options.unrolls]
    for kernel in kernels:
        for name, step in (("mc", kernel.mr), ("nc", kernel.nr)):
            most = getattr(options, name)
            if most is not None and most < step:
                raise SystemExit(f"--{name}: expected at least {step}, a tile of {kernel.name}; got {most}")
    for kernel in kernels:
        call, work = resident_kernel(kernel)(1e9)
        resident = interleave({"blisgemm": call}, seconds=1)["blisgemm"]
        rate = work / np.median(resident) / 1e9
        print(
            f"{kernel.name} unroll {kernel.unroll}: {kernel.register_account}; resident {rate:.1f} GFLOP/s",
            flush=True,
        )
    for n in options.sizes:
        a, b, c = (np.empty((n, n), dtype) for _ in range(3))
        for kernel in kernels:
            model = blisgemm.make_plan(n, n, n, dtype, kernel=kernel, path="packed").blocking
            calls = {}
            for kc_most in options.kcs:
                kc = balanced(n, kc_most, KC_STEP)
                nc_most = options.nc or max(kernel.nr, model.nc * model.kc // kc)
                nc = balanced(n, nc_most // kernel.nr * kernel.nr, kernel.nr)
                mc = (options.mc or model.mc) // kernel.mr * kernel.mr
                plan = blisgemm.make_plan(
                    n, n, n, dtype, kernel=kernel, blocking=(mc, nc, kc), path="packed", threads=1
                )
                calls[f"kc {kc} nc {nc}"] = lambda plan=plan, a=a, b=b, c=c: blisgemm.gemm(a, b, out=c, plan=plan)
            if not options.no_numpy:
                calls["numpy"] = lambda a=a, b=b, c=c: np.matmul(a, b, out=c)
            fill_exact(rng, a, b, k=n)
            for name, call in calls.items():
                c[...] = -1
                call()
                require_exact(a, b, c, f"{kernel.name}, {name}, n = {n}")
            fill_normal(rng, a, b)
            times = interleave(calls, seconds=options.seconds)
            work = Case("square", n, n, n).flops(dtype) / 1e9
            rates = "  ".join(f"{name}: {work / np.median(t):.1f}" for name, t in times.items())
            print(
                f"n {n}  {kernel.name} unroll {kernel.unroll} (model kc {model.kc} nc {model.nc})  {rates}",
                flush=True,
            )


if __name__ == "__main__":
    main()
