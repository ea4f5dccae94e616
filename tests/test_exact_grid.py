"""Exact data: small integers in floats, compared with ``==`` over every shape, layout, path and kernel.

No tolerance, so rounding can't hide a bug: sums are exact, and where alpha and beta round, they do so once, as pinned.
Tiny blocks (two micro-tiles, a few p) are injected, so that products of a few dozen elements turn all five loops and
meet every edge.
"""

from __future__ import annotations

import zlib
from itertools import product
from typing import Any

import numpy as np
import pytest
from support import (
    COLUMN_LAYOUTS,
    DTYPES,
    INPUT_LAYOUTS,
    OUTPUT_LAYOUTS,
    PATHS_OF_WAYS,
    ROW_LAYOUTS,
    TRANS,
    WAYS,
    case_id,
    chosen_kernel,
    covering,
    draw,
    exact_gemm,
    expect_equal,
    kernel_paths,
    lay_out,
    op,
    rounded_gemm,
    suited,
    surroundings,
    tiny_kc,
    tiny_plan,
)

import blisgemm
from blisgemm.blocking import kc_for
from blisgemm.machine import ISAS, current
from blisgemm.ukernel.spec import KernelSpec

Case = tuple[KernelSpec, str, int]
every_kernel_and_way = pytest.mark.parametrize("case", kernel_paths(), ids=case_id)


def seed(text: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(text.encode()))


def extents(tile: int, *steps: int) -> tuple[int, ...]:
    """The extents around a tile of ``tile``, its parts of ``steps`` and a block of two tiles."""
    values = {0, 1, 2, 3, 2 * tile - 1, 2 * tile, 2 * tile + 1, 4 * tile + 1, 6 * tile + 1}
    return tuple(sorted(values.union(*((x - 1, x, x + 1) for x in (tile, *steps)))))


def depths(kc: int) -> tuple[int, ...]:
    """The extents of p around one and two kc blocks."""
    return tuple(sorted({0, 1, 2, kc - 1, kc, kc + 1, 2 * kc - 1, 2 * kc, 2 * kc + 1, 3 * kc + 1}))


def factors(spec: KernelSpec, values: tuple[complex, ...]) -> tuple[complex, ...]:
    return (*values, 1j, 2 - 1j) if spec.complex else values


def fit(rng: np.random.Generator, way: str, choice: dict[str, Any]) -> None:
    """Give B (or A, where C is computed transposed) the unit stride that a way needs which doesn't pack it."""
    if way == "packed":
        return
    m, n = choice["m"], choice["n"]
    of_c = choice["c"] if choice["out"] == "c" else choice["out"]
    swapped = m > 1 and (n == 1 or of_c in ("F", "columns_F"))
    name = "a" if swapped else "b"
    if way == "half":  # what multiplies from the left, likewise
        name = "b" if swapped else "a"
    transposed = choice[f"trans_{name}"] in ("T", "C")
    by_rows = (way == "columns") == (swapped != transposed)  # each of the three turns rows into columns
    choice[name] = str(rng.choice(ROW_LAYOUTS if by_rows else COLUMN_LAYOUTS))


@every_kernel_and_way
def test_every_kernel_way_shape_layout_and_factor_is_exact(case: Case) -> None:
    spec, way, threads = case
    rng = seed(case_id(case))
    grid = covering(
        rng, 330, m=extents(spec.mr, 4), n=extents(spec.nr, spec.lanes, 2 * spec.lanes),
        k=depths(tiny_kc(spec, way)), alpha=factors(spec, (0, 1, -1, 0.7)), beta=factors(spec, (0, 1, -1, 1.3)),
        trans_a=TRANS, trans_b=TRANS,
        a=INPUT_LAYOUTS, b=INPUT_LAYOUTS, c=INPUT_LAYOUTS, out=(None, "c", *OUTPUT_LAYOUTS),
    )  # fmt: skip
    for choice in grid:
        m, n, k, alpha, beta = (choice[name] for name in ("m", "n", "k", "alpha", "beta"))
        in_place = choice["out"] == "c"
        if in_place and choice["c"].startswith("zero"):
            choice["c"] = "sliced"
        fit(rng, way, choice)
        trans_a, trans_b = choice["trans_a"], choice["trans_b"]
        a = lay_out(draw(rng, (k, m) if trans_a in ("T", "C") else (m, k), spec.acc_dtype, 2), choice["a"])
        b = lay_out(draw(rng, (n, k) if trans_b in ("T", "C") else (k, n), spec.acc_dtype, 2), choice["b"])
        c = lay_out(draw(rng, (m, n), spec.acc_dtype), choice["c"])
        inputs = [np.array(x) for x in (a, b, c)]
        junk = draw(rng, (m, n), spec.acc_dtype)
        out = None if choice["out"] is None else c if in_place else lay_out(junk, choice["out"])
        around = None if out is None else surroundings(out)
        lying_a, lying_b = (x.T if trans in ("T", "C") else x for x, trans in ((a, trans_a), (b, trans_b)))
        plan = tiny_plan(case, lying_a, lying_b, out)
        kc = tiny_kc(spec, way)
        want = rounded_gemm(op(a, trans_a), op(b, trans_b), c, alpha, beta, kc, fused=spec.isa.fma)

        got = blisgemm.gemm(
            a,
            b,
            c,
            alpha=alpha,
            beta=beta,
            out=out,
            trans_a=trans_a,
            trans_b=trans_b,
            threads=threads,
            plan=plan,
        )

        expect_equal(got, want, plan, choice)
        assert out is None or got is out, f"expected out itself back\ncase: {choice}"
        if out is not None:
            assert surroundings(out) == around, f"something was written outside out\ncase: {choice}\nplan: {plan}"
        for name, x, before in zip("abc", (a, b, c), inputs, strict=True):
            if not (name == "c" and in_place):
                expect_equal(x, before, plan, f"{name} itself changed, {choice}")


@pytest.mark.parametrize("case", [case for case in kernel_paths() if case[1:] != ("packed", 1)], ids=case_id)
def test_every_edge_of_a_tile_is_exact_and_written_alone(case: Case) -> None:
    """A direct kernel is as many kernels as its tile has edges: all of them, in a sea of canaries."""
    spec, way, _ = case
    rng = seed(f"edges {case_id(case)}")
    kc = tiny_kc(spec, way)
    rows, columns = (spec.sweep_rows if way == "sweep" else spec.mr) + 1, spec.nr + 1
    for k, (alpha, beta) in product((1, kc, 2 * kc - 1), ((1, 0), (2, -1))):
        a, b = suited(way, draw(rng, (rows, k), spec.acc_dtype), draw(rng, (k, columns), spec.acc_dtype))
        sea = draw(rng, (rows + 2, columns + 2 * spec.lanes), spec.acc_dtype)
        whole = exact_gemm(a, b, sea[1 : rows + 1, 1 : columns + 1], alpha, beta)
        for m, n in product(range(1, rows + 1), range(1, columns + 1)):
            got, want = sea.copy(), sea.copy()
            want[1 : m + 1, 1 : n + 1] = whole[:m, :n]
            out = got[1 : m + 1, 1 : n + 1]
            plan = tiny_plan(case, a[:m], b[:, :n], out)
            blisgemm.gemm(a[:m], b[:, :n], out, alpha=alpha, beta=beta, out=out, plan=plan)
            if (got != want).any():
                expect_equal(got, want, plan, (m, n, k, alpha, beta))


# A kernel small enough that 7 x 9 x 5 turns all five loops, and all shapes up to it can be tried.
TINY = KernelSpec("float64", "float64", "float64", 2, 2, ISAS["generic"])


@pytest.mark.parametrize("way", WAYS)
def test_all_shapes_up_to_7x9x5_are_exact_with_a_2x2_kernel(way: str) -> None:
    rng = seed(way)
    turns = []
    for m, n, k in product(range(8), range(10), range(6)):
        a, b = suited(way, draw(rng, (m, k), "float64"), draw(rng, (k, n), "float64"))
        c = draw(rng, (m, n), "float64")
        plan = tiny_plan((TINY, way, 1), a, b, kc=3)
        turns.append(
            (-(-n // plan.blocking.nc), -(-k // plan.blocking.kc), -(-m // plan.blocking.mc)) if plan.blocking else (0,)
        )
        got = blisgemm.gemm(a, b, c, alpha=-2, beta=3, plan=plan)
        expect_equal(got, exact_gemm(a, b, c, -2, 3), plan, (m, n, k))
    assert plan.kernel == TINY, "the forced kernel must be the one that ran"
    assert plan.path == PATHS_OF_WAYS.get(way, way)
    assert (plan.half, plan.access) == (way == "half", "columns" if way == "columns" else "rows")
    at_least = {"packed": 2, "half": 2, "sweep": 1, "stream": 1}.get(way, 0)
    assert max(min(turn) for turn in turns) >= at_least, f"7 x 9 x 5 was to turn every loop more than once: {turns}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_plans_chosen_by_the_library_are_exact_at_the_edges_of_its_own_blocks(dtype: str) -> None:
    spec = chosen_kernel(dtype)
    plan = blisgemm.make_plan(2000, 2000, 2000, dtype, threads=1)
    mc, kc = plan.blocking.mc, plan.blocking.kc
    rng = seed(dtype)
    shapes = [
        (m, n, k)
        for m, n, k in (
            (mc - 1, spec.nr + 1, 5), (mc, 7, 9), (mc + 1, spec.nr, 3), (2 * mc + 1, 3, 2),
            (spec.mr + 1, spec.nr - 1, kc - 1), (spec.mr, spec.nr, kc), (3, 2, kc + 1),
            (2 * spec.mr + 1, 50, 2 * kc + 1),
            (1, 300, 5), (300, 1, 5), (1, 1, 2 * kc + 1), (130, 140, 150),
        )
    ]  # fmt: skip
    for (m, n, k), threads, trans in product(shapes, (1, 2), ((False, False), ("T", "C"))):
        a = draw(rng, (k, m) if trans[0] else (m, k), dtype)  # transposed A is A by columns
        b = draw(rng, (n, k) if trans[1] else (k, n), dtype)
        c = draw(rng, (m, n), dtype)
        keywords = {"alpha": 2, "beta": -1, "trans_a": trans[0], "trans_b": trans[1], "threads": threads}
        want = exact_gemm(op(a, trans[0]), op(b, trans[1]), c, 2, -1)
        case = (m, n, k, keywords)
        expect_equal(blisgemm.gemm(a, b, c, **keywords), want, blisgemm.explain(a, b, c, **keywords), case)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_without_a_plan_are_exact_in_every_layout(dtype: str) -> None:
    # the fast lane for small and plain operands, and every path that the library chooses by itself
    rng = seed(f"lane {dtype}")
    shapes = (
        (1, 1, 1), (3, 5, 7), (17, 19, 23), (1, 70, 33), (70, 1, 33), (8, 8, 900), (2, 1100, 960), (5, 660, 640),
        (660, 5, 640), (300, 250, 30), (130, 140, 150),
    )  # fmt: skip
    values: tuple[complex, ...] = (1, -1, 0.7) if dtype.startswith("float") else (1, 0.7, 2 - 1j)
    grid = covering(
        rng, 55, shape=shapes, alpha=values, beta=(0, 1, 1.3), trans_a=TRANS, trans_b=TRANS, a=INPUT_LAYOUTS,
        b=INPUT_LAYOUTS, c=INPUT_LAYOUTS, out=(None, "c", *OUTPUT_LAYOUTS),
    )  # fmt: skip
    for number, choice in enumerate(grid):
        m, n, k = choice["shape"]
        if number % 2:  # plain ones, which the lane takes
            choice |= {name: str(rng.choice(("C", "F", "columns"))) for name in "abc"}
        if k > 100:  # the same term so often adds up to more than rounded_gemm can hold
            choice |= {name: "sliced" for name in "ab" if choice[name].startswith("zero")}
        in_place = choice["out"] == "c"
        if in_place and choice["c"].startswith("zero"):
            choice["c"] = "columns"
        trans = {"trans_a": choice["trans_a"], "trans_b": choice["trans_b"]}
        a = lay_out(draw(rng, (k, m) if trans["trans_a"] in ("T", "C") else (m, k), dtype, 1), choice["a"])
        b = lay_out(draw(rng, (n, k) if trans["trans_b"] in ("T", "C") else (k, n), dtype, 1), choice["b"])
        c = lay_out(draw(rng, (m, n), dtype), choice["c"])
        out = c if in_place else choice["out"] and lay_out(draw(rng, (m, n), dtype), choice["out"])
        around = None if out is None else surroundings(out)
        factors = {"alpha": choice["alpha"], "beta": choice["beta"]}
        op_a, op_b = op(a, trans["trans_a"]), op(b, trans["trans_b"])
        want = rounded_gemm(op_a, op_b, c, **factors, kc=kc_for(dtype, k), fused=current().isa.fma)
        plan = blisgemm.explain(a, b, c, **trans, **factors, out=out, threads=1)
        expect_equal(blisgemm.gemm(a, b, c, **trans, **factors, out=out, threads=1), want, plan, choice)
        assert out is None or surroundings(out) == around, f"something was written outside out\n{choice}\n{plan}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_alpha_and_beta_that_round_are_still_exact_where_their_products_are(dtype: str) -> None:
    # 0.5 and 0.75 are no integers but exact; with a multiple of 4 everywhere nothing rounds
    rng = seed(dtype)
    for m, n, k in ((5, 9, 4), (70, 80, 90)):
        a, b, c = (draw(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        a *= 4
        c *= 4
        got = blisgemm.gemm(a, b, c, alpha=0.75, beta=-0.5)
        expect_equal(4 * got, exact_gemm(a, b, c, 3, -2), blisgemm.explain(a, b), (m, n, k))


@pytest.mark.parametrize("values", [(-128, 127), (-128, -128), (127, 127)])
@pytest.mark.parametrize("k", [1, 2, 3, 64, 517])
def test_gemm_of_int8_sums_and_returns_int32_at_the_extremes(values: tuple[int, int], k: int) -> None:
    a, b = np.full((5, k), values[0], np.int8), np.full((k, 7), values[1], np.int8)
    got = blisgemm.gemm(a, b)
    expect_equal(got, np.full((5, 7), values[0] * values[1] * k, np.int32))


def test_gemm_of_uint8_and_of_uint8_with_int8_returns_int32() -> None:
    rng = seed("uint8")
    u, s = rng.integers(0, 256, (9, 70)).astype(np.uint8), rng.integers(-128, 128, (70, 8)).astype(np.int8)
    u[0], s[:, 0] = 255, -128
    expect_equal(blisgemm.gemm(u, s), u.astype(np.int32) @ s.astype(np.int32))
    expect_equal(blisgemm.gemm(u, u.T), u.astype(np.int32) @ u.T.astype(np.int32))


def test_gemm_of_int8_wraps_to_int8_only_when_asked() -> None:
    a = np.full((2, 3), 100, np.int8)
    expect_equal(blisgemm.gemm(a, a.T, dtype=np.int8, acc_dtype=np.int8, casting="unsafe"), (a @ a.T))
    assert not np.array_equal(blisgemm.gemm(a, a.T), a @ a.T), "int32 was expected to hold what int8 wraps"


def test_gemm_of_float16_sums_in_float32_and_rounds_once() -> None:
    # 2048 + 1 isn't a float16: a sum kept in float16 stops at 2048
    k = 4096
    a, b = np.ones((3, k), np.float16), np.ones((k, 5), np.float16)
    expect_equal(blisgemm.gemm(a, b), np.full((3, 5), k, np.float16))
    rng = seed("float16")
    a, b = (
        rng.integers(-3, 4, (6, 1500)).astype(np.float16),
        rng.integers(-3, 4, (1500, 4)).astype(np.float16),
    )
    expect_equal(blisgemm.gemm(a, b), (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float16))


def test_acc_dtype_is_the_dtype_of_the_sums_and_dtype_that_of_the_result() -> None:
    a = np.array([[2.0**24, 1, -(2.0**24)]], np.float32)  # 2**24 + 1 is no float32
    ones = np.ones((3, 1), np.float32)
    in_float32 = blisgemm.gemm(a, ones)
    expect_equal(in_float32, np.zeros((1, 1), np.float32))
    expect_equal(blisgemm.gemm(a, ones, acc_dtype=np.float64), np.ones((1, 1), np.float32))
    expect_equal(blisgemm.gemm(a, ones, dtype=np.float64), np.ones((1, 1), np.float64))
    out = np.zeros((1, 1), np.float64)
    assert blisgemm.gemm(a, ones, out=out) is out
    assert out == 0, "out doesn't choose the dtype of the sums"


@pytest.mark.parametrize("dtype", ["float16", "int32", "int64", "uint16", "bool", "longdouble", "object"])
def test_gemm_of_dtypes_without_a_kernel_follows_the_same_formula_and_zero_rules(dtype: str) -> None:
    rng = seed(dtype)
    a, b, c = (rng.integers(0, 2, shape).astype(dtype) for shape in ((5, 3), (3, 4), (5, 4)))
    product = np.matmul(a, b)
    expect_equal(blisgemm.gemm(a, b), product, blisgemm.explain(a, b))
    assert "numpy" in blisgemm.explain(a, b) or dtype == "float16", "a fallback is visible in the plan"
    if dtype == "bool":
        return
    alpha, beta = np.dtype(dtype).type(2), np.dtype(dtype).type(3)
    if dtype == "object":
        alpha, beta = 2, 3
    expect_equal(blisgemm.gemm(a, b, c, alpha=2, beta=3), alpha * product + beta * c)
    expect_equal(blisgemm.gemm(a.T, b.T, c, alpha=2, beta=3, trans_a=True, trans_b=True), alpha * product + beta * c)
    expect_equal(blisgemm.gemm(a, b, c, alpha=0, beta=3), beta * c)
    expect_equal(blisgemm.gemm(a[:, :0], b[:0], c, beta=3), beta * c)
    if np.dtype(dtype).kind == "f":
        nan = np.full_like(c, np.nan)
        expect_equal(blisgemm.gemm(a, b, nan, beta=-0.0, out=nan), product)
        expect_equal(blisgemm.gemm(np.full_like(a, np.nan), b, c, alpha=0, beta=3), beta * c)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [6, 150])
def test_c_and_out_may_overlap_in_every_way(dtype: str, n: int) -> None:
    rng = seed(f"overlap {n}")
    base, a, b = draw(rng, (2 * n, n), dtype), draw(rng, (n, n), dtype), draw(rng, (n, n), dtype)
    cases = {
        "out is c": lambda x: (a, b, x[:n], x[:n]),
        "out is c transposed": lambda x: (a, b, x[:n].T, x[:n]),
        "out starts a row after c": lambda x: (a, b, x[:n], x[1 : n + 1]),
        "out starts a row before c": lambda x: (a, b, x[1 : n + 1], x[:n]),
        "out is c backwards": lambda x: (a, b, x[:n], x[:n][::-1]),
        "all of them are one": lambda x: (x[:n], x[:n], x[:n], x[:n]),
        "a is out, c another": lambda x: (x[:n], b, x[n:], x[:n]),
        "b is out and c": lambda x: (a, x[:n], x[:n], x[:n]),
        "c is one row of out": lambda x: (a, b, x[2], x[:n]),
    }
    for name, build in cases.items():
        left, right, c, out = build(base.copy())
        want = exact_gemm(left, right, np.broadcast_to(c, out.shape), 2, -1)
        assert blisgemm.gemm(left, right, c, alpha=2, beta=-1, out=out) is out
        expect_equal(out, want, blisgemm.explain(left, right), name)
