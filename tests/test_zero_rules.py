"""The zero rules, once for every path, kernel and number of threads: they break on new fast paths first.

alpha = 0 reads neither a nor b; beta = 0 reads neither c nor out; k = 0 is beta * c; a zero element
is never skipped, so 0 * NaN is NaN; and what fills a micro-panel up never reaches C.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from support import DTYPES, bits, case_id, draw, exact_gemm, expect_equal, kernel_paths, lay_out, suited, tiny_plan

import blisgemm
from blisgemm.ukernel.spec import KernelSpec

BAD = (np.nan, np.inf, -np.inf)
ZEROS = (0, 0.0, -0.0, 0j, complex(-0.0, -0.0))
every_kernel_path = pytest.mark.parametrize("case", kernel_paths(), ids=case_id)
Case = tuple[KernelSpec, str, int]


def shapes(spec: KernelSpec) -> list[tuple[int, int, int]]:
    """A part of a tile, one tile, edges on both sides of several blocks, a single column."""
    return [(1, 1, 1), (2, 3, 4), (spec.mr, spec.nr, 3), (2 * spec.mr + 1, 2 * spec.nr + 3, 23), (spec.nr + 1, 1, 5)]


def zeros_for(dtype: str) -> tuple[complex, ...]:
    return ZEROS if dtype.startswith("complex") else ZEROS[:3]


@every_kernel_path
def test_alpha_zero_reads_neither_a_nor_b(case: Case) -> None:
    spec, way, _ = case
    rng = np.random.default_rng(1)
    for (m, n, k), bad in itertools.product(shapes(spec), BAD):
        a, b = suited(way, *(np.full(shape, bad, spec.acc_dtype) for shape in ((m, k), (k, n))))
        plan = tiny_plan(case, a, b)
        c = draw(rng, (m, n), spec.acc_dtype)
        for alpha in zeros_for(spec.acc_dtype):
            expect_equal(blisgemm.gemm(a, b, alpha=alpha, plan=plan), np.zeros_like(c), plan, (alpha, bad))
            got = blisgemm.gemm(a, b, c, alpha=alpha, beta=2, plan=plan)
            expect_equal(got, 2 * c, plan, (alpha, bad, "beta=2"))
            out = np.full_like(c, np.nan)
            blisgemm.gemm(a, b, alpha=alpha, out=out, plan=plan)
            expect_equal(out, np.zeros_like(c), plan, (alpha, bad, "out held NaN"))


@every_kernel_path
def test_beta_zero_reads_neither_c_nor_out(case: Case) -> None:
    spec, way, _ = case
    rng = np.random.default_rng(2)
    for (m, n, k), bad, layout in itertools.product(shapes(spec), BAD, ("C", "F", "sliced", "unaligned")):
        a, b = suited(way, draw(rng, (m, k), spec.acc_dtype), draw(rng, (k, n), spec.acc_dtype))
        want = exact_gemm(a, b, None, 1, 0)
        for beta in zeros_for(spec.acc_dtype):
            c, out = (lay_out(np.full((m, n), bad, spec.acc_dtype), layout) for _ in range(2))
            told = (beta, bad, layout)
            plan = tiny_plan(case, a, b)
            expect_equal(blisgemm.gemm(a, b, c, beta=beta, plan=plan), want, plan, told)
            plan = tiny_plan(case, a, b, out)  # where out lies by columns, its transpose is computed
            expect_equal(blisgemm.gemm(a, b, beta=beta, out=out, plan=plan), want, plan, told)
            expect_equal(blisgemm.gemm(a, b, c, beta=beta, out=c, plan=plan), want, plan, (*told, "out is c"))


@every_kernel_path
def test_k_zero_is_beta_c_and_plus_zero_whatever_out_held(case: Case) -> None:
    spec, way, _ = case
    rng = np.random.default_rng(3)
    for m, n, _ in shapes(spec):
        a, b = suited(way, np.empty((m, 0), spec.acc_dtype), np.empty((0, n), spec.acc_dtype))
        plan = tiny_plan(case, a, b)
        c, plus_zero = draw(rng, (m, n), spec.acc_dtype), np.zeros((m, n), spec.acc_dtype)
        expect_equal(blisgemm.gemm(a, b, c, beta=-3, plan=plan), -3 * c, plan)
        for junk, alpha in itertools.product((np.nan, -0.0, -7), (1, -1, 0)):
            out = np.full_like(c, junk)
            blisgemm.gemm(a, b, alpha=alpha, out=out, plan=plan)
            expect_equal(out, plus_zero, plan, (junk, alpha), same_bits=True)
            out = np.full_like(c, junk)
            blisgemm.gemm(a, b, np.full_like(c, np.nan), alpha=alpha, beta=-0.0, out=out, plan=plan)
            expect_equal(out, plus_zero, plan, (junk, alpha, "beta=-0.0"), same_bits=True)


@every_kernel_path
def test_zero_times_nan_is_nan_and_stays_in_its_row_and_column(case: Case) -> None:
    spec, way, _ = case
    rng = np.random.default_rng(4)
    for (m, n, k), bad in itertools.product(shapes(spec), BAD):
        a, b = suited(way, draw(rng, (m, k), spec.acc_dtype), draw(rng, (k, n), spec.acc_dtype))
        plan = tiny_plan(case, a, b)
        clean = exact_gemm(a, b, None, 1, 0)
        # the last row and the last p: beside what fills the micro-panels up
        a[-1] = 0
        b[-1, -1] = bad
        poisoned = a.copy(order="K")
        poisoned[0, -1] = bad
        got = blisgemm.gemm(poisoned, b, plan=plan)
        assert np.isnan(got[-1, -1]) or (m == 1), f"0 * {bad} was skipped at (-1, -1)\nplan: {plan}"
        assert not np.isfinite(got[0]).any(), f"{bad} in row 0 of a is missing from row 0\n{got[0]}\nplan: {plan}"
        assert not np.isfinite(got[:, -1]).any(), (
            f"{bad} in the last column of b is missing\n{got[:, -1]}\nplan: {plan}"
        )
        expect_equal(got[1:-1, :-1], clean[1:-1, :-1], plan, f"{bad} leaked into other rows and columns")


@every_kernel_path
def test_a_sum_starts_at_plus_zero(case: Case) -> None:
    spec, way, _ = case
    m, n, k = spec.mr + 1, spec.nr + 1, 12
    a, b = suited(way, np.zeros((m, k), spec.acc_dtype), np.ones((k, n), spec.acc_dtype))
    plan = tiny_plan(case, a, b)
    a[...] = -0.0  # fma(-0, 1, +0) is +0
    got = blisgemm.gemm(a, b, plan=plan)
    assert not np.signbit(got.real).any(), f"-0 came out\nplan: {plan}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 4, 4), (100, 100, 100), (1, 70, 30), (70, 1, 30), (200, 210, 220),
                                   (2, 3000, 900), (5, 1500, 700), (900, 5, 700), (900, 60, 50)])  # fmt: skip
def test_the_rules_hold_on_whatever_path_the_library_chooses(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(5)
    a, b, c = (draw(rng, s, dtype) for s in ((m, k), (k, n), (m, n)))
    nan_a, nan_b, nan_c = (np.full_like(x, np.nan) for x in (a, b, c))
    told = blisgemm.explain(a, b)
    expect_equal(blisgemm.gemm(nan_a, nan_b, c, alpha=0, beta=2), 2 * c, told)
    expect_equal(blisgemm.gemm(nan_a, nan_b, nan_c, alpha=0), np.zeros_like(c), told, same_bits=True)
    expect_equal(blisgemm.gemm(a, b, nan_c), exact_gemm(a, b, None, 1, 0), told)
    expect_equal(blisgemm.gemm(a, b, out=nan_c), exact_gemm(a, b, None, 1, 0), told)
    expect_equal(blisgemm.gemm(a[:, :0], b[:0], c, beta=2), 2 * c, told)
    expect_equal(blisgemm.matmul(a[:, :0], b[:0], out=np.full_like(c, np.nan)), np.zeros_like(c), told, same_bits=True)
    a[0, 0], b[0] = 0, np.nan
    assert np.isnan(blisgemm.matmul(a, b)[0]).all(), told
    assert np.isnan(blisgemm.gemm(a, b)[0]).all(), told


@pytest.mark.parametrize("dtype", DTYPES)
def test_beta_c_keeps_nan_and_inf_when_a_and_b_are_not_read(dtype: str) -> None:
    c = np.array([[np.nan, np.inf, 1], [-np.inf, 0, -2]], dtype)
    a, b = np.full((2, 4), np.nan, dtype), np.full((4, 3), np.nan, dtype)
    for got in (
        blisgemm.gemm(a, b, c, alpha=0, beta=2),
        blisgemm.gemm(a[:, :0], b[:0], c, beta=2),
    ):
        expect_equal(got.real, 2 * c.real)
        assert bits(got.imag) == bits(2 * c.imag), "a real beta must not multiply an infinite c by an imaginary zero"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0), (0, 0)])
def test_an_empty_product_is_empty_and_its_inputs_are_still_checked(dtype: str, m: int, n: int) -> None:
    a, b = np.empty((m, 4), dtype), np.empty((4, n), dtype)
    got = blisgemm.gemm(a, b)
    assert got.shape == (m, n)
    assert got.dtype == dtype
    out = np.empty((m, n), dtype)
    assert blisgemm.gemm(a, b, out=out) is out
    with pytest.raises(ValueError, match="5"):
        blisgemm.gemm(a, np.empty((5, n), dtype))
    with pytest.raises(ValueError, match="out"):
        blisgemm.gemm(a, b, out=np.empty((m + 1, n + 1), dtype))
    with pytest.raises(ValueError, match="beta"):
        blisgemm.gemm(a, b, beta=1)
    with pytest.raises(ValueError, match="trans_a"):
        blisgemm.gemm(a, b, trans_a="X")


def test_factors_beyond_the_dtype_are_infinite_without_a_warning() -> None:
    a = np.ones((2, 2), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isposinf(blisgemm.gemm(a, a, alpha=1e300)).all()
        assert np.isneginf(blisgemm.gemm(a, a, a, beta=np.float64(-1e300))).all()


def test_a_plan_says_that_alpha_is_zero() -> None:
    text = blisgemm.explain(np.ones((3, 4)), np.ones((4, 5)), alpha=0)
    assert "(3 x 4) * (4 x 5)" in text
    assert "alpha = 0" in text
