"""Check the library on the processor that runs this file: run.sh does so under emulation.

Knows: what must hold on every processor (zero rules, exact products, the pinned bits).
Does not know: which emulator runs it. Called by ``run.sh`` as ``check.py ISA``; a plain
script, because the emulated root has numba, llvmlite, numpy and the standard library only.
Small on purpose: emulation is 10 to 500 times slower than the processor.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for golden

import numpy as np

# All four, or those that BLISGEMM_EMULATED_DTYPES names: compiling is what takes the time.
_NAMES = os.environ.get("BLISGEMM_EMULATED_DTYPES") or "float32 float64 complex64 complex128"
DTYPES = tuple(np.dtype(name).type for name in _NAMES.split())

# m, n, k. Around every mr and nr of the catalogue (4, 6, 8, 12; 4, 8, 16, 32), k of 0 to 2 and
# beyond each kc (at most 512 or so), vectors.
SHAPES = (
    (1, 1, 1), (1, 40, 7), (40, 1, 7), (2, 3, 2), (5, 7, 3), (6, 16, 8), (7, 17, 9), (8, 12, 5),
    (13, 33, 4), (12, 32, 64), (25, 49, 31), (48, 64, 96), (181, 40, 20), (9, 19, 800),
)  # fmt: skip
TRANS = ((False, False), (True, False), (False, True), ("T", "N"), ("C", "R"), ("R", "C"), (True, True))
LAYOUTS = ("C", "F", "gaps", "reversed", "unaligned", "swapped")
OUT_LAYOUTS = ("C", "gaps", "F", "reversed")
CANARY = 77


def gaps(m: int, n: int) -> tuple[slice, slice]:
    """Return every second row and third column, with something outside on every side."""
    return slice(1, 2 * m, 2), slice(1, 3 * n, 3)


def lay_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Return an array equal to ``values`` (2-d) with the strides that ``layout`` names."""
    m, n = values.shape
    if layout == "C":
        return np.array(values, order="C")
    if layout == "F":
        return np.array(values, order="F")
    if layout == "gaps":
        view = np.full((2 * m + 1, 3 * n + 2), CANARY, values.dtype)[gaps(m, n)]
    elif layout == "reversed":
        view = np.empty((m, n), values.dtype)[::-1, ::-1]
    elif layout == "unaligned":
        view = np.empty(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(m, n)
    elif layout == "swapped":
        view = np.empty((m, n), values.dtype.newbyteorder())
    else:
        raise ValueError(f"layout: expected one of {LAYOUTS}, got {layout!r}")
    view[...] = values
    return view


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Small integers: every partial sum of a product is exact, whatever the order."""
    values: np.ndarray = rng.integers(-4, 5, shape).astype(dtype)
    if values.dtype.kind == "c":
        values = values + dtype(1j) * rng.integers(-4, 5, shape).astype(dtype)
    return values


def op(x: np.ndarray, trans: bool | str) -> np.ndarray:
    """Return ``op(x)`` of gemm."""
    if trans in ("C", "R"):
        x = x.conj()
    return x.T if trans in (True, "T", "C") else x


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b by NumPy in 64-bit integers: no BLAS, no rounding."""

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x.real.astype(np.int64), x.imag.astype(np.int64)

    product = np.empty((a.shape[0], b.shape[1]), a.dtype)
    if a.dtype.kind != "c":
        product[...] = np.matmul(a.astype(np.int64), b.astype(np.int64))
        return product
    (ar, ai), (br, bi) = parts(a), parts(b)
    product.real, product.imag = ar @ br - ai @ bi, ar @ bi + ai @ br
    return product


def expect_equal(got: Any, want: np.ndarray, case: str) -> None:
    """Raise AssertionError that names the case and the first wrong element."""
    got = np.asarray(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(f"{case}: expected {want.dtype}{want.shape}, got {got.dtype}{got.shape}")
    wrong = np.argwhere(got != want)
    if len(wrong):
        at = tuple(int(x) for x in wrong[0])
        raise AssertionError(
            f"{case}: {len(wrong)} of {want.size} elements wrong, the first at {at}: expected {want[at]}, got {got[at]}"
        )


def bits(x: Any) -> bytes:
    """Return the bytes of ``x`` in C order."""
    return np.ascontiguousarray(x).tobytes()


def check_zero_rules(gemm: Callable[..., Any]) -> Iterator[str]:
    """alpha = 0 reads neither a nor b, beta = 0 reads no c, k = 0 is beta·c, 0·NaN is NaN."""
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        nan = dtype(np.nan)
        for m, n, k in ((3, 4, 5), (20, 35, 13), (70, 90, 140)):
            case = f"{dtype.__name__} {m}x{n}x{k}"
            a, b, c = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype), draw(rng, (m, n), dtype)
            nan_a, nan_b, nan_c = (np.full_like(x, nan) for x in (a, b, c))
            zeros, product = np.zeros_like(c), exact_product(a, b)

            expect_equal(gemm(nan_a, nan_b, c, alpha=0, beta=2), 2 * c, f"{case} alpha=0 beta=2")
            expect_equal(gemm(nan_a, nan_b, alpha=0), zeros, f"{case} alpha=0")
            expect_equal(gemm(nan_a, nan_b, nan_c, alpha=0, beta=0), zeros, f"{case} alpha=0 beta=0")
            expect_equal(gemm(a, b, nan_c, beta=0), product, f"{case} beta=0")
            expect_equal(gemm(a, b, nan_c, beta=-0.0), product, f"{case} beta=-0.0")
            out = nan_c.copy()
            expect_equal(gemm(a, b, out, alpha=3, beta=0, out=out), 3 * product, f"{case} beta=0 out is c")
            expect_equal(out, 3 * product, f"{case} beta=0, out afterwards")

            empty_a, empty_b = a[:, :0], b[:0]
            expect_equal(gemm(empty_a, empty_b, c, beta=2), 2 * c, f"{case} k=0 beta=2")
            got = gemm(empty_a, empty_b, out=nan_c.copy())
            expect_equal(got, zeros, f"{case} k=0")
            if bits(got) != bits(zeros):
                raise AssertionError(f"{case} k=0: expected +0 everywhere, got a -0")

            poisoned = b.copy()
            poisoned[k // 2, n - 1] = nan
            got = gemm(np.zeros_like(a), poisoned)
            want = np.zeros((m, n), bool)
            want[:, n - 1] = True
            expect_equal(np.isnan(got), want, f"{case} 0*NaN, where NaN stands")
            poisoned = a.copy()
            poisoned[m - 1, k - 1] = nan
            got = gemm(poisoned, np.zeros_like(b))
            want = np.zeros((m, n), bool)
            want[m - 1] = True
            expect_equal(np.isnan(got), want, f"{case} NaN*0, where NaN stands")
        yield dtype.__name__


def check_exact_products(gemm: Callable[..., Any], matmul: Callable[..., Any]) -> Iterator[str]:
    """Products of small integers are equal to NumPy's, over shapes, trans, strides, alpha and beta."""
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        is_complex = np.dtype(dtype).kind == "c"
        alpha, beta = (2 - 1j, -3 + 2j) if is_complex else (2, -3)
        for turn, (m, n, k) in enumerate(SHAPES):
            # Three of the combinations per shape; their periods 7, 6, 5 and 4 differ, so that the
            # shapes meet different ones.
            for index in range(3 * turn, 3 * turn + 3):
                trans_a, trans_b = TRANS[index % len(TRANS)]
                layout_a, layout_b = LAYOUTS[index % 6], LAYOUTS[(index // 2 + index) % 6]
                layout_c = OUT_LAYOUTS[index % 4]
                case = (
                    f"{dtype.__name__} {m}x{n}x{k} trans {trans_a},{trans_b} a {layout_a} b {layout_b} out {layout_c}"
                )
                op_a, op_b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
                # op undoes itself, so that it also makes the array to store.
                a, b = lay_out(op(op_a, trans_a), layout_a), lay_out(op(op_b, trans_b), layout_b)
                product, c = exact_product(op_a, op_b), draw(rng, (m, n), dtype)
                before = bits(a), bits(b)

                expect_equal(gemm(a, b, trans_a=trans_a, trans_b=trans_b), product, case)
                out = lay_out(c, layout_c)
                got = gemm(a, b, out, alpha=alpha, beta=beta, out=out, trans_a=trans_a, trans_b=trans_b)
                want = (alpha * product + beta * c).astype(dtype)
                expect_equal(got, want, f"{case} alpha={alpha} beta={beta}")
                expect_equal(out, want, f"{case} alpha={alpha} beta={beta}, out afterwards")
                if layout_c == "gaps" and out.base is not None:
                    outside = np.ones(out.base.shape, bool)
                    outside[gaps(m, n)] = False
                    if (out.base[outside] != CANARY).any():
                        raise AssertionError(f"{case}: written outside out")
                if before != (bits(a), bits(b)):
                    raise AssertionError(f"{case}: an input has changed")
        a, b = draw(rng, (3, 1, 9, 10), dtype), draw(rng, (2, 10, 11), dtype)
        want = np.stack([np.stack([exact_product(x[0], y) for y in b]) for x in a])
        expect_equal(matmul(a, b), want, f"{dtype.__name__} matmul, batch of (3, 1) and (2,)")
        expect_equal(matmul(a[0, 0], b[0, :, 0]), want[0, 0, :, 0], f"{dtype.__name__} matmul of a vector")
        row = np.broadcast_to(a[0, 0, :1], (9, 10))
        expect_equal(matmul(row, b[0]), exact_product(row, b[0]), f"{dtype.__name__} matmul, zero stride")
        yield dtype.__name__


def check_same_bits(gemm: Callable[..., Any]) -> Iterator[str]:
    """Rows alone, the transposed product and other strides give the same bits."""
    rng = np.random.default_rng(3)
    for dtype in DTYPES:
        m, n, k = 14, 37, 600
        a, b = (rng.standard_normal(s) for s in ((m, k), (k, n)))
        if np.dtype(dtype).kind == "c":
            a, b = a + 1j * rng.standard_normal(a.shape), b + 1j * rng.standard_normal(b.shape)
        a, b = a.astype(dtype), b.astype(dtype)
        whole = gemm(a, b)
        others = {
            "the last row alone": (gemm(a[-1:], b), whole[-1:]),
            "the first column alone": (gemm(a, b[:, :1]), whole[:, :1]),
            "(B^T A^T)^T": (gemm(b, a, trans_a=True, trans_b=True).T, whole),
            "reversed strides": (gemm(lay_out(a, "reversed"), lay_out(b, "gaps")), whole),
        }
        for name, (got, want) in others.items():
            if bits(got) != bits(want):
                raise AssertionError(f"{dtype.__name__} {m}x{n}x{k}: {name}: not the bits of the whole")
        yield dtype.__name__


def check_threads(gemm: Callable[..., Any]) -> Iterator[str]:
    """Two threads give the bits of one; one dtype, as all share their text."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((150, 100)).astype(np.float32), rng.standard_normal((100, 160)).astype(np.float32)
    if bits(gemm(a, b, threads=2)) != bits(gemm(a, b, threads=1)):
        raise AssertionError("two threads: not the bits of one")
    yield "float32"


def check_golden() -> Iterator[str]:
    """Digests are those of every other machine."""
    import golden

    chosen = {np.dtype(dtype).name for dtype in DTYPES}
    want, got = golden.load(chosen), golden.digests(chosen)
    wrong = sorted(key for key in want.keys() | got.keys() if want.get(key) != got.get(key))
    if wrong:
        lines = (f"  {key}: expected {want.get(key)}, got {got.get(key)}" for key in wrong[:8])
        raise AssertionError("\n".join([f"{len(wrong)} of {len(want)} golden digests differ:", *lines]))
    yield f"{len(want)} digests"


def report(title: str, steps: Callable[[], Iterator[str]]) -> bool:
    """Run a check, print a line per step with its seconds, return whether it held."""
    begin = time.perf_counter()
    try:
        for step in steps():
            now = time.perf_counter()
            print(f"  {title}: {step} ok, {now - begin:.1f} s", flush=True)
            begin = now
    except AssertionError as error:
        print(f"  {title}: FAILED: {error}", flush=True)
        return False
    except Exception:
        print(f"  {title}: FAILED:\n{traceback.format_exc()}", flush=True)
        return False
    return True


def main(expected_isa: str) -> int:
    """Run every check; return the exit status."""
    begin = time.perf_counter()
    import llvmlite.binding
    import numba

    import blisgemm
    import blisgemm.machine

    machine = blisgemm.machine.current()
    print(
        f"  Python {platform.python_version()} on {platform.machine()}, numpy {np.__version__}, "
        f"numba {numba.__version__}, LLVM's CPU {llvmlite.binding.get_host_cpu_name()}, "
        f"cache {os.environ.get('BLISGEMM_CACHE_DIR')}"
    )
    print(f"  machine: {machine}")
    print(f"  isa: {machine.isa.name}; imported in {time.perf_counter() - begin:.1f} s", flush=True)
    if machine.isa.name != expected_isa:
        print(f"  FAILED: expected isa {expected_isa}, got {machine.isa.name}")
        return 1

    gemm, matmul = blisgemm.gemm, blisgemm.matmul
    held = [
        report("zero rules", lambda: check_zero_rules(gemm)),
        report("exact products", lambda: check_exact_products(gemm, matmul)),
        report("threads", lambda: check_threads(gemm)),
    ]
    if machine.isa.fma:
        held += [report("same bits", lambda: check_same_bits(gemm)), report("golden", check_golden)]
    else:
        print(f"  same bits, golden: skipped: {machine.isa.name} has no fma: its sums round twice per term")
    return 0 if all(held) else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check.py ISA (avx2, sse2, neon, ...)")
    sys.exit(main(sys.argv[1]))
