"""Check this installation on this machine: products of small integers, where any rounding would show.

Knows: what must hold for every product. Does not know: how products are computed; every reference
is NumPy on 64-bit integers. The full proof is in the tests of the repository; this takes seconds and
needs nothing but the installed package.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from .console import seconds_text, verbatim

__all__ = ["HELP", "add_arguments", "run"]

HELP = "check that products are right on this machine (seconds; the first time half a minute)"

Array = np.ndarray[Any, Any]
Case = tuple[str, Array, Array]  # what, got, expected

_DTYPES = ("float32", "float64", "complex64", "complex128")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the number of threads to compare with one."""
    parser.add_argument("--threads", type=int, metavar="N", help="compare one thread with so many (default: all)")


def run(args: argparse.Namespace, console: Console) -> int:
    """Run every group; print a line each; return 1 if any failed."""
    from ..parallel import check_threads, get_num_threads

    threads = get_num_threads() if args.threads is None else check_threads(args.threads)
    failed = 0
    for name, group in _groups(threads):
        failed += not _run_group(name, group, console)
    verbatim(
        console,
        f"{failed} group{'s' * (failed > 1)} failed" if failed else "all is well",
        "bold red" if failed else "bold green",
    )
    return 1 if failed else 0


def _groups(threads: int) -> Iterator[tuple[str, Callable[[], Iterator[Case]]]]:
    for dtype in _DTYPES:
        yield f"{dtype}: edges of tiles and blocks", partial(_edges, dtype)
    yield "layouts and transposition", _layouts
    yield "alpha, beta, zero rules", _zero_rules
    threads_text = f"1 and {threads} threads" if threads > 1 else "rows, layouts"
    yield f"{threads_text}: same bits", partial(_threads, threads)
    yield "integers, half precision, mixed", _other_dtypes
    yield "matmul beside numpy.matmul", _matmul


def _run_group(name: str, group: Callable[[], Iterator[Case]], console: Console) -> bool:
    start, count, first = time.perf_counter(), 0, ""
    try:
        with console.status(name):  # on a terminal: the first run compiles
            for what, got, expected in group():
                count += 1
                first = first or _difference(what, np.asarray(got), np.asarray(expected))
    except Exception as error:  # a crash of one group is that group's failure
        first = first or f"{type(error).__name__}: {error}"
    mark, style = ("FAIL", "bold red") if first else ("ok", "green")
    took = seconds_text(time.perf_counter() - start)
    console.print(f"{mark:<5}", style=style, end="")
    verbatim(console, f"{name:<36} {count:>4} products {took:>8}")
    if first:
        verbatim(console, f"     {first}")
    return not first


def _difference(what: str, got: Array, expected: Array) -> str:
    """Describe the first wrong element; empty if shape, type and all elements agree."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{what}: expected {expected.shape} {expected.dtype}, got {got.shape} {got.dtype}"
    wrong = np.argwhere(~((got == expected) | ((got != got) & (expected != expected))))
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    return f"{what}: {len(wrong)} elements wrong, the first at {at}: expected {expected[at]}, got {got[at]}"


# ---- data and reference --------------------------------------------------------------------------


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Draw integers of -4 to 4: every sum of a product is exact in every dtype here."""
    dtype = np.dtype(dtype)
    low = 0 if dtype.kind == "u" else -4
    values = rng.integers(low, 5, shape)
    return (values + 1j * rng.integers(-4, 5, shape)).astype(dtype) if dtype.kind == "c" else values.astype(dtype)


def _product(a: Array, b: Array) -> Array:
    """Multiply by 64-bit integers: neither BLAS nor rounding."""
    parts = [(np.real(x).astype(np.int64), np.imag(x).astype(np.int64)) for x in (a, b)]
    (ar, ai), (br, bi) = parts
    real = ar @ br - ai @ bi
    dtype = np.result_type(a, b)
    return (real + 1j * (ar @ bi + ai @ br)).astype(dtype) if dtype.kind == "c" else real.astype(dtype)


# ---- groups --------------------------------------------------------------------------------------


def _edges(dtype: str) -> Iterator[Case]:
    """Both paths around every edge, with blocks so small that all five loops turn."""
    from .. import gemm, make_plan

    rng = np.random.default_rng(1)
    for path in ("direct", "packed"):
        kernel = make_plan(2000, 2000, 2000, dtype).kernel if path == "packed" else make_plan(8, 8, 8, dtype).kernel
        if kernel is None:
            return
        blocking = (2 * kernel.mr, 2 * kernel.nr, 5)
        for m in (1, kernel.mr, kernel.mr + 1, 4 * kernel.mr + 3):
            for n in (1, kernel.nr - 1, kernel.nr, 4 * kernel.nr + 1):
                for k in (1, 5, 12):
                    a, b = _draw(rng, (m, k), dtype), _draw(rng, (k, n), dtype)
                    if path == "direct" and n == 1:  # one column: the library's own way
                        plan = None
                    else:
                        plan = make_plan(m, n, k, dtype, kernel=kernel, blocking=blocking, path=path, threads=1)
                    yield f"{path} {m} x {n} x {k}", gemm(a, b, plan=plan), _product(a, b)
    a, b = _draw(rng, (203, 310), dtype), _draw(rng, (310, 190), dtype)
    yield "203 x 190 x 310, the library's own plan", gemm(a, b, threads=1), _product(a, b)


def _layouts() -> Iterator[Case]:
    from .. import gemm

    rng = np.random.default_rng(2)
    views: dict[str, Callable[[Array], Array]] = {
        "C": np.ascontiguousarray,
        "F": np.asfortranarray,
        "sliced": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
        "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
        "read-only": lambda x: np.broadcast_to(x, x.shape),
    }
    a, b = _draw(rng, (37, 29), "float64"), _draw(rng, (29, 53), "float64")
    for left, lay_a in views.items():
        for right, lay_b in views.items():
            yield f"A {left}, B {right}", gemm(lay_a(a), lay_b(b)), _product(a, b)
    x, y = _draw(rng, (29, 37), "complex64"), _draw(rng, (53, 29), "complex64")
    yield "transposed", gemm(x, y, trans_a="T", trans_b="T"), _product(x.T, y.T)
    yield "conjugate transposed", gemm(x, y, trans_a="C", trans_b="C"), _product(x.conj().T, y.conj().T)
    out = np.full((2 * 37, 53), 7.0)[::2]
    yield "into a strided out", gemm(a, b, out=out), _product(a, b)


def _zero_rules() -> Iterator[Case]:
    from .. import gemm as gemm_on_threads

    gemm = partial(gemm_on_threads, threads=1)  # several are compared with one elsewhere
    rng = np.random.default_rng(3)
    for dtype in _DTYPES:
        for size in (7, 150):
            a, b, c = (_draw(rng, (size, size), dtype) for _ in range(3))
            product = _product(a, b)
            bad = np.full((size, size), np.nan, dtype)
            what = f"{dtype} {size}"
            yield f"{what}: 2 A B - 3 C", gemm(a, b, c, alpha=2, beta=-3), (2 * product - 3 * c).astype(dtype)
            yield f"{what}: beta = 0 reads no C", gemm(a, b, bad, beta=0, out=bad.copy()), product
            yield (
                f"{what}: alpha = 0 reads no A, B",
                gemm(bad, bad, c, alpha=0, beta=2),
                (2 * c).astype(dtype),
            )
            yield f"{what}: k = 0", gemm(a[:, :0], b[:0], c, beta=2), (2 * c).astype(dtype)
            yield (
                f"{what}: 0 times NaN",
                gemm(np.zeros_like(a), bad).real,
                np.full((size, size), np.nan, dtype).real,
            )


def _threads(threads: int) -> Iterator[Case]:
    from .. import gemm

    rng = np.random.default_rng(4)
    for dtype in ("float32", "complex128"):  # the loops are the same text for every dtype
        a, b = (rng.standard_normal((x, y)).astype(dtype) for x, y in ((411, 300), (300, 523)))
        one = gemm(a, b, threads=1)
        yield f"{dtype}: threads", gemm(a, b, threads=threads), one
        yield f"{dtype}: rows alone", gemm(a[100:103], b), one[100:103]
        yield f"{dtype}: other layout", gemm(np.asfortranarray(a), np.asfortranarray(b)), one


def _other_dtypes() -> Iterator[Case]:
    from .. import gemm, matmul

    rng = np.random.default_rng(5)
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "float16"):
        a, b = _draw(rng, (33, 21), dtype), _draw(rng, (21, 40), dtype)
        want = _product(a, b)
        yield f"gemm {dtype}", gemm(a, b), want.astype(np.int32) if dtype in ("int8", "uint8") else want
        yield f"matmul {dtype}", matmul(a, b), want
    a, b = _draw(rng, (33, 21), "float32"), _draw(rng, (21, 40), "float64")
    yield "float32 times float64", gemm(a, b), _product(a, b)


def _matmul() -> Iterator[Case]:
    from .. import matmul

    rng = np.random.default_rng(6)
    vectors = [((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4,))]
    batches = [((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2))]
    plain = [((3, 4), (4, 5)), ((0, 4), (4, 3)), ((3, 0), (0, 2))]
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [*plain, *vectors, *batches]
    for left, right in shapes:
        a, b = _draw(rng, left, "float64"), _draw(rng, right, "float64")
        yield f"{left} @ {right}", matmul(a, b), np.matmul(a, b)
