"""Products on this machine's GPU against cuBLAS through torch: sizes, layouts, dtypes, skinny ones, batches, epilogues.

Usage: python bench/cuda_gemm.py [--only float32,epilogue] [--rounds 7]

Needs a GPU and torch. Each product is verified first on small integers, whose sums are exact, in memory that was NaN
before. Then both run in turn, timed by events on the stream; medians over the rounds, the share is the median of the
ratios within a round. Groups: float32, float64, complex, skinny, batch, epilogue, host (time of a call on the host).
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import options  # also puts this checkout before an installed one

from blisgemm import cuda

# name: (dtype, batch or 0, m, n, k, whether A and B are transposed)
Product = tuple[str, int, int, int, int, str]
GROUPS: dict[str, list[Product]] = {
    "float32": [
        ("float32", 0, n, n, n, "NN") for n in (512, 768, 1000, 1024, 1536, 2048, 3072, 3333, 4095, 4096, 4097, 8192)
    ]
    + [("float32", 0, 4096, 4096, 4096, trans) for trans in ("NT", "TN", "TT")],
    "float64": [("float64", 0, n, n, n, "NN") for n in (1024, 2048, 4095, 4096, 8192)]
    + [("float64", 0, 4096, 4096, 4096, trans) for trans in ("NT", "TN")],
    "complex": [(dtype, 0, 2048, 2048, 2048, "NN") for dtype in ("complex64", "complex128")],
    "skinny": [
        ("float32", 0, 16, 8192, 8192, "NN"),
        ("float32", 0, 8192, 16, 8192, "NN"),
        ("float64", 0, 16, 8192, 8192, "NN"),
        ("float32", 0, 512, 512, 32768, "NN"),
        ("float32", 0, 1, 8192, 8192, "NN"),
        ("float32", 0, 8192, 1, 8192, "NN"),
        ("float32", 0, 4, 8192, 8192, "NN"),
        ("float32", 0, 8192, 4, 8192, "NN"),
        ("float32", 0, 1, 8192, 8192, "NT"),
        ("float64", 0, 1, 8192, 8192, "NN"),
        ("float64", 0, 8192, 1, 8192, "NN"),
        ("complex64", 0, 1, 8192, 8192, "NN"),
    ],
    "batch": [("float32", 1024, 128, 128, 128, "NN")],
}


def main() -> None:
    """Verify, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), help="groups (default: all)")
    parser.add_argument("--rounds", type=options.positive, default=7, help="samples of each (default 7)")
    asked = parser.parse_args()
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    print(f"{'product':44}{'cuBLAS':>9}{'here':>9}{'share':>8}  TFLOP/s")
    wanted = asked.only or [*GROUPS, "epilogue", "host"]
    for group in (name for name in GROUPS if name in wanted):
        for product in GROUPS[group]:
            verify(torch, product)
            compare(torch, product, asked.rounds)
    if "epilogue" in wanted:
        epilogue(torch, asked.rounds)
    if "host" in wanted:
        host(torch)


def operands(torch: Any, product: Product, *, integers: bool) -> tuple[Any, Any, Any]:
    """Return A, B and room for C."""
    dtype, batch, m, n, k, trans = product
    kind = getattr(torch, dtype)

    def made(rows: int, columns: int, turned: bool) -> Any:
        shape = (columns, rows) if turned else (rows, columns)
        shape = (batch, *shape) if batch else shape
        x = (
            torch.randint(-3, 4, shape, device="cuda").to(kind)
            if integers
            else torch.randn(shape, dtype=kind, device="cuda")
        )
        return x.mT if turned else x

    out = torch.full((batch, m, n) if batch else (m, n), float("nan"), dtype=kind, device="cuda")
    return made(m, k, trans[0] == "T"), made(k, n, trans[1] == "T"), out


def verify(torch: Any, product: Product) -> None:
    """Raise unless the product of small integers is exact."""
    a, b, out = operands(torch, product, integers=True)
    wide = torch.complex128 if out.is_complex() else torch.float64
    if not torch.equal(cuda.gemm(a, b, out=out).to(wide), a.to(wide) @ b.to(wide)):
        raise SystemExit(f"{product}: not exact")


def compare(torch: Any, product: Product, rounds: int) -> None:
    """Time a product and print its line."""
    dtype, batch, m, n, k, trans = product
    a, b, out = operands(torch, product, integers=False)
    theirs = torch.empty_like(out)
    calls = {"cuBLAS": lambda: torch.matmul(a, b, out=theirs), "here": lambda: cuda.gemm(a, b, out=out)}
    operations = 2 * m * n * k * max(1, batch) * (4 if out.is_complex() else 1)
    milliseconds = timed(torch, calls, max(2, min(50, int(6e11 / operations))), rounds)
    share = np.median(milliseconds["cuBLAS"] / milliseconds["here"])
    teraflops = [operations / np.median(milliseconds[name]) / 1e9 for name in calls]
    name = f"{dtype} {f'{batch} of ' if batch else ''}{m}x{n}x{k} {trans}"
    (kernel,) = (line.split()[1] for line in cuda.explain(a, b).splitlines() if line.startswith("kernel"))
    print(f"{name:44}{teraflops[0]:9.1f}{teraflops[1]:9.1f}{share:8.2f}  {kernel}", flush=True)


def timed(torch: Any, calls: dict[str, Callable[[], Any]], count: int, rounds: int) -> dict[str, Any]:
    """Return milliseconds of one call each, by rounds of ``count`` calls in turn."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            found[name].append(start.elapsed_time(end) / count)
    return {name: np.array(samples) for name, samples in found.items()}


def epilogue(torch: Any, rounds: int) -> None:
    """Time bias, gelu and residual in registers, against a plain product and against torch's functions."""
    n = 4096
    a, b, residual = (torch.randn(n, n, device="cuda") for _ in range(3))
    bias, out = torch.randn(n, device="cuda"), torch.empty(n, n, device="cuda")
    steps = [("bias", bias), "gelu", ("residual", residual)]
    calls: dict[str, Callable[[], Any]] = {
        "plain": lambda: cuda.gemm(a, b, out=out),
        "fused": lambda: cuda.gemm(a, b, out=out, epilogue=steps),
        "function": lambda: cuda.gemm(a, b, out=out, epilogue=(lambda x, i, j, v: x * 0.5 + v[j], bias)),
        "torch": lambda: torch.nn.functional.gelu(torch.addmm(bias, a, b)) + residual,
    }
    found = timed(torch, calls, 5, rounds)
    error = (cuda.gemm(a, b, epilogue=steps) - calls["torch"]()).abs().max()
    print(
        f"bias + gelu + residual, {n}: {np.median(found['fused'] / found['plain']):.3f} of a plain product's time, "
        f"torch's three calls {np.median(found['torch'] / found['fused']):.3f} of the fused one's; a Python function "
        f"{np.median(found['function'] / found['plain']):.3f}; largest difference {float(error):.1e}"
    )


def host(torch: Any) -> None:
    """Time what a call takes of the host, without waiting for the GPU."""
    a = torch.randn(64, 64, device="cuda")
    out = torch.empty_like(a)
    for name, call in {
        "torch.mm(out=)": lambda: torch.mm(a, a, out=out),
        "gemm(out=)": lambda: cuda.gemm(a, a, out=out),
        "gemm": lambda: cuda.gemm(a, a),
    }.items():
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(3000):
            call()
        print(f"{name:15} {(time.perf_counter() - start) / 3000 * 1e6:.1f} us of the host")
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
