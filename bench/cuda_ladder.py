"""The GPU ladder, rung by rung: float32 products of one size on this machine's GPU, against cuBLAS.

Usage: python bench/cuda_ladder.py [--size 4096] [--rungs g2,g6,g7] [--rounds 10] [--write README.md]

Needs a GPU, torch (arrays, and cuBLAS through torch.mm, TF32 off) and numba-cuda. Every rung is verified first, on
small integers, whose products are exact, at sizes around its tiles and at the size that is timed, in memory that was
NaN before. Then all are timed in turn, two launches each per round, of which the second counts, by events on the
stream: medians over the rounds; the share of cuBLAS is the median of the ratios within a round. g7 is the library.

With --write the table replaces what stands between ``<!-- cuda-ladder:begin -->`` and ``<!-- cuda-ladder:end -->``.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import options  # also puts this checkout before an installed one

SIZES = ((1, 1, 1), (33, 33, 33), (127, 127, 127), (129, 129, 129), (300, 77, 129), (1, 257, 5), (257, 1, 68),
         (128, 132, 64), (192, 256, 96), (64, 128, 31))  # fmt: skip
CUBLAS = "cuBLAS"
Multiply = Callable[[Any, Any, Any], Any]


def main() -> None:
    """Verify, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=options.positive, default=4096, help="m = n = k (default 4096)")
    parser.add_argument("--rungs", type=lambda text: text.split(","), help="g0 ... g7 (default: all)")
    parser.add_argument("--rounds", type=options.positive, default=10, help="launches of each (default 10)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between this file's markers")
    asked = parser.parse_args()
    from blisgemm.bench.environment import command_line
    from blisgemm.bench.tables import check_markers, markdown_table, write_between

    if asked.write:
        try:
            check_markers(asked.write, "cuda-ladder")
        except (OSError, ValueError) as error:
            raise SystemExit(f"--write: {error}") from None
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    products, facts = ladder(asked.rungs)
    for name, multiply in products.items():
        for m, n, k in [*SIZES, (asked.size,) * 3]:
            verify(torch, name, multiply, m, n, k)
        print(f"{name}: exact", flush=True)
    products[CUBLAS] = lambda a, b, c: torch.mm(a, b, out=c)
    seconds = measure(torch, products, asked.size, asked.rounds)
    rows = []
    for name, of_rung in seconds.items():
        teraflops = 2 * asked.size**3 / np.median(of_rung) / 1e12
        share = np.median(np.array(seconds[CUBLAS]) / of_rung)
        idea, expected, registers, spilled = facts.get(name, ("", "", "", ""))
        rows.append(
            [f"{name}: {idea}" if idea else name, f"{teraflops:.2f}", f"{share:.1%}", expected, registers, spilled]
        )
    header = ["rung: its idea", "TFLOP/s", "of cuBLAS", "expected", "registers", "bytes spilled"]
    print(plain_table([header, *rows]))
    if asked.write:
        command = command_line(without=("--write",))
        text = (
            f"{markdown_table(header, rows)}\n\nfloat32, {asked.size} x {asked.size} x {asked.size}, TF32 off, "
            f"medians of {asked.rounds} rounds on one {torch.cuda.get_device_name()}, torch {torch.__version__}. "
            f"`{command}`."
        )
        write_between(asked.write, "cuda-ladder", text)


def ladder(wanted: list[str] | None) -> tuple[dict[str, Multiply], dict[str, tuple[str, str, str, str]]]:
    """Return the rungs by name, each as multiply(a, b, c), and what the table says of each beside its times."""
    from blisgemm.cuda import driver
    from blisgemm.cuda.ladder import RUNGS
    from blisgemm.cuda.ladder.run import compiled, run

    capability = driver.attributes(0)["capability"]
    products: dict[str, Multiply] = {}
    facts = {}
    for rung in RUNGS:
        if wanted and rung.name.split("_")[0] not in wanted:
            continue
        code = compiled(rung, capability)
        expected = "" if rung.share is None else f"{rung.share} %"
        spilled = str(code.spill_bytes + code.local_bytes)
        facts[rung.name] = (rung.idea, expected, str(code.registers), spilled)
        products[rung.name] = lambda a, b, c, rung=rung: run(rung, a, b, c)
    gemm = getattr(importlib.import_module("blisgemm.cuda"), "gemm", None)
    if gemm is not None and (not wanted or "g7" in wanted):
        products["g7"] = lambda a, b, c: gemm(a, b, out=c)
        facts["g7"] = ("the library", "", "", "")
    return products, facts


def verify(torch: Any, name: str, multiply: Multiply, m: int, n: int, k: int) -> None:
    """Stop unless a product of small integers is exact, and nothing beside C was written."""
    from blisgemm.bench.exact import fill_exact, require_exact

    a, b = np.empty((m, k), np.float32), np.empty((k, n), np.float32)
    fill_exact(np.random.default_rng(m + n + k), a, b, k=k)
    around = torch.full((m * n + 512,), float("nan"), dtype=torch.float32, device="cuda")
    c = around[256 : 256 + m * n].view(m, n)
    multiply(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), c)
    require_exact(a, b, c.cpu().numpy(), f"{name}, {m} x {n} x {k}")
    if not (around[:256].isnan().all() and around[256 + m * n :].isnan().all()):
        raise SystemExit(f"{name}, {m} x {n} x {k}: memory beside C was written")


def measure(torch: Any, products: dict[str, Multiply], size: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each product, one per round, all in turn; a round before the first warms up."""
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    c = torch.empty(size, size, device="cuda")
    seconds: dict[str, list[float]] = {name: [] for name in products}
    for repeat in range(rounds + 1):
        events = {}
        for name, multiply in products.items():
            # two launches, of which the second is timed: while the first runs, the host prepares it
            multiply(a, b, c)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            multiply(a, b, c)
            end.record()
            events[name] = begin, end
        torch.cuda.synchronize()
        if repeat:
            for name, (begin, end) in events.items():
                seconds[name].append(begin.elapsed_time(end) / 1e3)
    return seconds


def plain_table(rows: list[list[str]]) -> str:
    """Return rows in columns as wide as they need."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[i]) if i < 1 else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    main()
