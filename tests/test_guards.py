"""Nothing outside the operands is read or written: canaries, NaN poison, pages that may not be touched.

A matrix lies against a page that may not be read, once with its last byte before the page and once
with its first byte behind it; inputs may not be written either. A load or store past an
edge kills the process, so the products run in one subprocess per dtype: this very file, as a script.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # as a script: the library and the other test files lie above and beside
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import pytest
from support import (
    DTYPES,
    case_id,
    chosen_kernel,
    draw,
    exact_gemm,
    expect_equal,
    kernel_paths,
    run_python,
    surroundings,
    tiny_plan,
)

import blisgemm
from blisgemm.ukernel.spec import KernelSpec

Case = tuple[KernelSpec, str, int]
PAGE = mmap.PAGESIZE
NONE, READ, READ_WRITE = 0, 1, 3  # PROT_* of mmap(2) on every Unix

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="guard pages need mmap and mprotect")


class Guarded:
    """``size`` bytes between two pages that may not be touched, against the one or the other."""

    def __init__(self, size: int, side: str) -> None:
        pages = -(-size // PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._inner, self._pages = self._address + PAGE, pages
        for page in (self._address, self._inner + pages * PAGE):
            self._protect(page, PAGE, NONE)
        start = PAGE if side == "before" else (pages + 1) * PAGE - size
        self.bytes = np.frombuffer(self._map, np.uint8, size, start)

    @staticmethod
    def _protect(address: int, size: int, how: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(how)):
            raise OSError(ctypes.get_errno(), "mprotect")

    def freeze(self) -> None:
        """Allow no more writes."""
        self._protect(self._inner, self._pages * PAGE, READ)


def guarded(values: np.ndarray, layout: str, side: str) -> tuple[np.ndarray, Guarded]:
    """Lay ``values`` out against a guard page so that its first and last byte are the buffer's."""
    m, n = values.shape
    size = values.itemsize
    strides = {
        "C": (n * size, size),
        "F": (size, m * size),
        "leading": ((n + 3) * size, size),  # unit column stride, three elements between rows
        "leading_F": (size, (m + 3) * size),
        "sparse": (2 * 3 * n * size, 3 * size),  # gaps everywhere
        "unaligned": (n * size + 1, size),
        "reversed": (-(n + 1) * size, -size),
    }[layout]
    reach = [(extent - 1) * abs(stride) for extent, stride in zip((m, n), strides, strict=True)]
    total = sum(reach) + size
    pages = Guarded(total, side)
    start = sum(r for r, stride in zip(reach, strides, strict=True) if stride < 0)
    whole = total // size * size
    pages.bytes[:whole].view(values.dtype)[:] = np.nan
    view = np.ndarray((m, n), values.dtype, pages.bytes, start, strides)
    view[...] = values
    return view, pages


LAYOUTS = ("C", "F", "leading", "leading_F", "sparse", "unaligned", "reversed")
ROWS, COLUMNS = ("C", "leading", "unaligned"), ("F", "leading_F")  # of unit stride, as the ways without packing need


def child(dtype: str) -> None:
    """Run the guarded products of one dtype; the last line printed is the case at hand."""
    rng = np.random.default_rng(9)
    for case in [case for case in kernel_paths() if case[0].acc_dtype == dtype]:
        spec, way, _ = case
        for turn in range(50):
            tall = rng.integers(0, 3)  # a third each: edges of one tile, of few tiles, anything
            m = int(rng.integers(1, (spec.mr, 3 * spec.mr, 40)[tall] + 2))
            n = int(rng.integers(1, (spec.nr, 2 * spec.nr, 40)[tall] + 2))
            k = int(rng.integers(1, 41 if turn % 3 else 5))
            layouts = [str(x) for x in rng.choice(LAYOUTS, 3)]
            if turn < 14:  # each layout of each operand at least once in the shape that vectors like
                layouts = [LAYOUTS[turn % 7], LAYOUTS[(turn // 2) % 7], LAYOUTS[(turn // 3) % 7]]
            if way != "packed":
                swapped = m > 1 and (n == 1 or layouts[2] in COLUMNS)
                by_rows = (way == "columns") == swapped
                layouts[int(swapped == (way == "half"))] = str(rng.choice(ROWS if by_rows else COLUMNS))
            for side in ("behind", "before"):
                alpha, beta = (1, 0) if turn % 2 else (2, -1)
                print(
                    case_id(case),
                    f"m, n, k = {m, n, k} layouts of a, b, c {layouts} {side} beta={beta}",
                    flush=True,
                )
                run_one(rng, case, (m, n, k), layouts, side, alpha, beta)
        if way != "packed":
            every_edge_guarded(rng, case)
    print("done", flush=True)


def every_edge_guarded(rng: np.random.Generator, case: Case) -> None:
    """Run every edge of a tile against the pages behind its operands: a kernel has a variant for each."""
    spec, way, _ = case
    for m in range(1, (spec.sweep_rows if way == "sweep" else spec.mr) + 1):
        for n in range(1, spec.nr + 1):
            k = int(rng.choice((1, 2, 4, 5, 8, 9)))
            layouts = ["C", "F" if way == "columns" else "C", "C"]
            if n == 1 and m > 1:  # computed transposed
                layouts[0] = "C" if way == "columns" else "F"
            alpha, beta = (1, 0) if (m + n) % 3 else (2, -1)
            print(case_id(case), f"m, n, k = {m, n, k}, every edge, beta={beta}", flush=True)
            run_one(rng, case, (m, n, k), layouts, "behind", alpha, beta)


def run_one(
    rng: np.random.Generator, case: Case, shape: tuple[int, int, int], layouts: list[str], side: str, alpha: int,
    beta: int,
) -> None:  # fmt: skip
    m, n, k = shape
    values = [draw(rng, s, case[0].acc_dtype) for s in ((m, k), (k, n), (m, n))]
    (a, a_pages), (b, b_pages), (c, c_pages) = (
        guarded(x, layout, side) for x, layout in zip(values, layouts, strict=True)
    )
    a_pages.freeze()
    b_pages.freeze()
    gaps = gap_bytes(c, c_pages)
    plan = tiny_plan(case, a, b, c)
    got = blisgemm.gemm(a, b, c, alpha=alpha, beta=beta, out=c, plan=plan)
    expect_equal(got, exact_gemm(*values, alpha, beta), plan, (shape, layouts, side))
    assert gap_bytes(c, c_pages) == gaps, f"a gap of c was written: {shape} {layouts} {side}\n{plan}"


def gap_bytes(c: np.ndarray, pages: Guarded) -> bytes:
    """Return the bytes of the guarded buffer that lie between the elements of ``c``."""
    start = c.__array_interface__["data"][0] - pages.bytes.__array_interface__["data"][0]
    rows, columns = np.meshgrid(*(np.arange(e) * s for e, s in zip(c.shape, c.strides, strict=True)), indexing="ij")
    first = (start + rows + columns).reshape(-1)
    outside = np.ones(pages.bytes.size, bool)
    outside[(first[:, None] + np.arange(c.itemsize)).reshape(-1)] = False
    return pages.bytes[outside].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_kernel_touches_a_byte_outside_its_operands(dtype: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", __file__, dtype], capture_output=True, text=True, timeout=300
    )
    lines = done.stdout.splitlines() or ["nothing ran"]
    assert done.returncode == 0, f"status {done.returncode} in: {lines[-1]}\n{done.stderr[-4000:]}"
    assert lines[-1] == "done"


def test_a_guard_page_kills_the_process_that_reads_past_the_end() -> None:
    done = run_python(
        """
        from test_guards import Guarded
        import ctypes, sys
        pages = Guarded(100, sys.argv[1])
        first = pages.bytes.__array_interface__["data"][0]
        print("inside", ctypes.string_at(first, 100) == bytes(100), flush=True)
        ctypes.string_at(first + (100 if sys.argv[1] == "behind" else -1), 1)
        print("outside")
        """,
        "behind",
        check=False,
    )
    assert "inside True" in done.stdout
    assert "outside" not in done.stdout, "the guard page let a read through, so the test above proves nothing"
    assert done.returncode < 0


def test_a_frozen_input_kills_the_process_that_writes_it() -> None:
    done = run_python(
        """
        from test_guards import Guarded
        import ctypes
        pages = Guarded(100, "behind")
        pages.freeze()
        print("inside", flush=True)
        ctypes.memset(pages.bytes.__array_interface__["data"][0], 1, 1)
        print("written")
        """,
        check=False,
    )
    assert "inside" in done.stdout
    assert "written" not in done.stdout


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_canaries_around_and_in_the_gaps_of_out_survive_large_products(dtype: str, threads: int) -> None:
    rng = np.random.default_rng(10)
    m, n, k = 150, 161, 90
    a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
    for rows, columns in (
        (slice(3, 3 + m), slice(5, 5 + n)),
        (slice(1, 2 * m, 2), slice(2, 3 * n + 2, 3)),
        (slice(m, 0, -1), slice(n, 0, -1)),
    ):
        base = np.full((2 * m + 4, 3 * n + 6), 77, dtype)
        out = base[rows, columns]
        before = surroundings(out)
        blisgemm.gemm(a, b, out=out, threads=threads)
        expect_equal(out, exact_gemm(a, b, None, 1, 0), blisgemm.explain(a, b))
        assert surroundings(out) == before, "a canary died"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5, 7), (40, 33, 21), (150, 161, 90)])
def test_nan_around_slices_of_a_and_b_never_reaches_c(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(11)
    a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
    want = exact_gemm(a, b, None, 1, 0)
    for step in (1, 2, -1, -3):
        poisoned = []
        for x in (a, b):
            span = abs(step)
            base = np.full((x.shape[0] * span + 2, x.shape[1] * span + 2), np.nan, dtype)
            view = base[1 : 1 + span * x.shape[0] : span, 1 : 1 + span * x.shape[1] : span]
            view = view[::-1, ::-1] if step < 0 else view
            view[...] = x
            poisoned.append(view)
        for left, right in ((poisoned[0], b), (a, poisoned[1]), poisoned):
            expect_equal(blisgemm.matmul(left, right), want, blisgemm.explain(left, right), (shape, step))


@pytest.mark.parametrize("dtype", DTYPES)
def test_leftovers_of_a_larger_product_in_the_workspace_never_reach_c(dtype: str) -> None:
    rng = np.random.default_rng(12)
    spec = chosen_kernel(dtype)
    poison = np.full((300, 300), np.nan, dtype)
    for m, n, k in ((spec.mr + 1, spec.nr + 1, 5), (2 * spec.mr - 1, spec.nr - 1, 60)):
        blisgemm.gemm(poison, poison, plan=blisgemm.make_plan(300, 300, 300, dtype, path="packed", threads=1))
        a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
        plan = blisgemm.make_plan(m, n, k, dtype, path="packed", threads=1)
        expect_equal(blisgemm.gemm(a, b, plan=plan), exact_gemm(a, b, None, 1, 0), plan)


if __name__ == "__main__":
    child(sys.argv[1])
