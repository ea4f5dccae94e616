"""Batches: leading dimensions broadcast, in any memory, and every item is the product it is alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from support import (
    DTYPES,
    case_id,
    draw,
    draw_reals,
    exact_gemm,
    expect_equal,
    kernel_paths,
    surroundings,
    tiny_plan,
)

import blisgemm

# Large products run loops that take long to compile: one real and one complex type, of both widths.
LARGE_DTYPES = ("float32", "complex128")
every_shape_and_dtype = pytest.mark.parametrize(
    ("dtype", "shape"),
    [(dtype, (3, 4, 5)) for dtype in DTYPES] + [(dtype, (130, 140, 135)) for dtype in LARGE_DTYPES],
)


def numbers(*shape: int, dtype: Any = "float64", seed: int = 0) -> np.ndarray:
    return draw(np.random.default_rng(seed), shape, dtype)


def expect_numpys_batch(dtype: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = numbers(*left, dtype=dtype), numbers(*right, dtype=dtype, seed=1)
    want = np.matmul(a, b)
    expect_equal(blisgemm.matmul(a, b), want)
    expect_equal(blisgemm.gemm(a, b), want, blisgemm.explain(a, b))
    expect_equal(blisgemm.gemm(a, b, threads=4), want, blisgemm.explain(a, b, threads=4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7, 3, 4), (7, 4, 5)),
        ((7, 3, 4), (4, 5)),
        ((3, 4), (7, 4, 5)),
        ((1, 3, 4), (7, 4, 5)),
        ((7, 1, 3, 4), (6, 4, 5)),
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((2, 1, 4, 5), (1, 3, 5, 6)),
        ((0, 3, 4), (0, 4, 5)),
        ((0, 3, 4), (4, 5)),
        ((1, 3, 4), (0, 4, 5)),
        ((7, 0, 4), (7, 4, 5)),
        ((7, 3, 0), (7, 0, 5)),
        ((2, 2, 2, 2, 3, 4), (2, 1, 2, 4, 5)),
        ((1, 1, 3, 4), (1, 4, 1)),
    ],
)
def test_leading_dimensions_broadcast(dtype: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    expect_numpys_batch(dtype, left, right)


@pytest.mark.parametrize("dtype", LARGE_DTYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 150, 60), (3, 60, 155)), ((2, 130, 140), (140, 150)), ((150, 140), (2, 140, 150))],
)
def test_leading_dimensions_of_large_matrices_broadcast(
    dtype: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    expect_numpys_batch(dtype, left, right)


@every_shape_and_dtype
def test_odd_memory_of_whole_batches(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = numbers(4, m, k, dtype=dtype), numbers(4, k, n, dtype=dtype, seed=1)
    want = np.matmul(a, b)
    lefts = {
        "last axis first": np.ascontiguousarray(a.transpose(1, 2, 0)).transpose(2, 0, 1),
        "batch backwards": np.ascontiguousarray(a[::-1])[::-1],
        "everything backwards": np.ascontiguousarray(a[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
        "each transposed": np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
        "every second item": np.repeat(a, 2, axis=0)[::2],
        "swapped bytes": a.astype(a.dtype.newbyteorder()),
    }
    rights = {
        "plain": b,
        "batch backwards": np.ascontiguousarray(b[::-1])[::-1],
        "last axis first": np.ascontiguousarray(b.transpose(1, 2, 0)).transpose(2, 0, 1),
        "each transposed": np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2),
    }
    for left_name, left in lefts.items():
        for right_name, right in rights.items():
            expect_equal(blisgemm.matmul(left, right), want, case=(left_name, right_name))
            expect_equal(blisgemm.gemm(left, right, alpha=-1), -want, case=(left_name, right_name, "gemm"))


@every_shape_and_dtype
def test_a_zero_stride_batch_repeats_one_matrix(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = numbers(m, k, dtype=dtype), numbers(5, k, n, dtype=dtype, seed=1)
    repeated = np.broadcast_to(a, (5, m, k))
    expect_equal(blisgemm.matmul(repeated, b), np.matmul(a, b))
    expect_equal(blisgemm.gemm(repeated, np.broadcast_to(b[0], b.shape)), np.broadcast_to(a @ b[0], (5, m, n)))
    four = np.broadcast_to(b[:, None], (5, 3, k, n))
    expect_equal(blisgemm.matmul(a, four), np.matmul(a, four))


@every_shape_and_dtype
def test_out_of_a_batch_in_any_memory(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = numbers(2, 3, m, k, dtype=dtype), numbers(3, k, n, dtype=dtype, seed=1)
    want = np.matmul(a, b)
    outs = {
        "C": np.zeros(want.shape, dtype),
        "F": np.zeros(want.shape, dtype, order="F"),
        "batch last": np.zeros((m, n, 2, 3), dtype).transpose(2, 3, 0, 1),
        "backwards": np.zeros(want.shape, dtype)[::-1, ::-1, ::-1, ::-1],
        "gaps": np.full((4, 7, 2 * m + 1, 3 * n + 1), 77, dtype)[::2, 1::2, 1::2, 1::3],
        "batch exchanged": np.zeros((3, 2, m, n), dtype).transpose(1, 0, 2, 3),
    }
    for name, out in outs.items():
        around = surroundings(out)
        assert blisgemm.matmul(a, b, out=out) is out
        expect_equal(out, want, case=name)
        c = numbers(*want.shape, dtype=dtype, seed=2)
        out[...] = c
        assert blisgemm.gemm(a, b, out, alpha=2, beta=-1, out=out) is out
        expect_equal(out, 2 * want - c, case=name)
        assert surroundings(out) == around, name


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_dimensions_that_run_backwards_together(dtype: str) -> None:
    a, b = numbers(2, 3, 4, 5, dtype=dtype), numbers(2, 3, 5, 6, dtype=dtype, seed=1)
    want = np.matmul(a, b)
    backwards = [np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1] for x in (a, b)]
    base = np.full((4, 3, 4, 6), 77, dtype)
    for out in (base[3:1:-1, ::-1], base[1:3], np.ascontiguousarray(want)):
        expect_equal(blisgemm.gemm(*backwards, out=out), want)
        expect_equal(blisgemm.matmul(a, backwards[1], out=out), want)
        expect_equal(blisgemm.matmul(backwards[0], b), want)
    assert (base[0] == 77).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_c_broadcasts_over_the_batch_and_is_not_changed(dtype: str) -> None:
    a, b = numbers(4, 3, 5, dtype=dtype), numbers(4, 5, 2, dtype=dtype, seed=1)
    for shape in ((3, 2), (4, 3, 2), (1, 3, 2), (2,), (3, 1), ()):
        c = numbers(*shape, dtype=dtype, seed=2)
        before = np.copy(c)
        expect_equal(blisgemm.gemm(a, b, c, beta=2), np.matmul(a, b) + 2 * c, case=shape)
        expect_equal(c, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_trans_turns_each_matrix_of_a_batch(dtype: str) -> None:
    a, b = numbers(4, 5, 3, dtype=dtype), numbers(4, 2, 5, dtype=dtype, seed=1)
    want = np.matmul(a.conj().swapaxes(1, 2), b.swapaxes(1, 2))
    expect_equal(blisgemm.gemm(a, b, trans_a="C", trans_b="T"), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_item_has_the_bits_of_the_product_alone(dtype: str) -> None:
    rng = np.random.default_rng(16)
    for m, n, k in ((3, 4, 5), (33, 34, 700), (130, 140, 150)):
        if m == 130 and dtype not in LARGE_DTYPES:
            continue
        a, b = draw_reals(rng, (3, m, k), dtype), draw_reals(rng, (3, k, n), dtype)
        for threads in (1, 4):
            got = blisgemm.gemm(a, b, alpha=0.7, threads=threads)
            for i in range(3):
                expect_equal(got[i], blisgemm.gemm(a[i], b[i], alpha=0.7), case=(m, n, k, threads, i), same_bits=True)


@pytest.mark.parametrize("way", ["sweep", "stream", "strips", "packed"])
def test_a_plan_of_any_path_runs_every_item_of_a_batch(way: str) -> None:
    # the library itself never sweeps over a batch; a plan that is given may
    a, b = numbers(3, 2, 9, 25, dtype="float32"), numbers(2, 25, 67, dtype="float32", seed=1)
    c = numbers(3, 2, 9, 67, dtype="float32", seed=2)
    for case in kernel_paths():
        if case[0].acc_dtype == "float32" and case[1:] == (way, 1):
            plan = tiny_plan(case, a[0, 0], b[0])
            got = blisgemm.gemm(a, b, c, alpha=2, beta=-1, plan=plan)
            for i, j in np.ndindex(3, 2):
                expect_equal(got[i, j], exact_gemm(a[i, j], b[j], c[i, j], 2, -1), plan, (case_id(case), i, j))


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_go_with_batches(dtype: str) -> None:
    vector, stack = numbers(4, dtype=dtype), numbers(5, 3, 4, dtype=dtype, seed=1)
    expect_equal(blisgemm.matmul(stack, vector), np.matmul(stack, vector))
    expect_equal(blisgemm.matmul(vector, stack.swapaxes(1, 2)), np.matmul(vector, stack.swapaxes(1, 2)))
    out = np.zeros((5, 3), dtype)
    assert blisgemm.matmul(stack, vector, out=out) is out
    expect_equal(out, np.matmul(stack, vector))
    long = numbers(5, 200, 150, dtype=dtype)
    expect_equal(blisgemm.matmul(long, numbers(150, dtype=dtype)), np.matmul(long, numbers(150, dtype=dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_ten_thousand_small_matrices_in_one_call_are_right_and_quick(dtype: str, threads: int) -> None:
    a, b = numbers(10_000, 3, 3, dtype=dtype), numbers(10_000, 3, 3, dtype=dtype, seed=1)
    got = blisgemm.gemm(a, b, threads=threads)
    expect_equal(got, np.matmul(a, b), blisgemm.explain(a, b, threads=threads))
    took = 1.0
    for _ in range(5):  # the machine may be busy with something else
        begin = time.perf_counter()
        blisgemm.gemm(a, b, threads=threads)
        took = min(took, time.perf_counter() - begin)
    assert took < 0.25, f"{took:.3f} s for 10^4 products of 3 x 3: a Python step for each takes about that"


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize(("m", "n", "k"), [(13, 33, 32), (32, 9, 31)])
def test_batches_larger_than_a_cache_are_right_in_any_memory(dtype: str, m: int, n: int, k: int) -> None:
    # from 12 MiB on items are asked for ahead, also past the end of the arrays
    items = 14 * 2**20 // (np.dtype(dtype).itemsize * (m * k + k * n + m * n))
    a, b = numbers(items, m, k, dtype=dtype), numbers(items, k, n, dtype=dtype, seed=1)
    want = np.matmul(a, b)
    lefts = {
        "plain": a,
        "backwards": np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        "transposed": np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
        "gaps": np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3],
    }
    for name, left in lefts.items():
        for threads in (1, 3):
            expect_equal(blisgemm.gemm(left, b, threads=threads), want, case=(name, threads))
    out = np.full((items, m + 1, n + 3), 77, dtype)
    assert blisgemm.matmul(a, b, out=out[:, :m, :n]) is not None
    expect_equal(out[:, :m, :n], want)
    assert (out[:, m:] == 77).all() and (out[:, :, n:] == 77).all()
    expect_equal(blisgemm.gemm(a, b[0]), np.matmul(a, b[0]))
    expect_equal(blisgemm.gemm(a[0], b), np.matmul(a[0], b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(1200,), (3, 40), (2, 1, 3, 20), (0,), (2, 0, 3)])
def test_items_that_follow_each_other_in_memory_are_one_product(dtype: str, batch: tuple[int, ...]) -> None:
    for m, n, k in ((5, 7, 3), (3, 20, 4), (4, 1, 6), (6, 5, 0)):
        a, b = numbers(*batch, m, k, dtype=dtype), numbers(*batch, k, n, dtype=dtype, seed=1)
        one = numbers(k, n, dtype=dtype, seed=2)
        turned, gaps = np.ascontiguousarray(a.swapaxes(-1, -2)), np.repeat(a, 2, axis=-2)[..., ::2, :]
        for right in (one, np.ascontiguousarray(one.T).T, one[:, 0], b, b[..., :1]):
            want = np.matmul(a, right)
            for left in (a, gaps, turned.swapaxes(-1, -2)):
                expect_equal(blisgemm.matmul(left, right), want, case=(m, n, k, right.shape))
            out = np.full((*want.shape[:-1], want.shape[-1] + 1), 77, dtype)
            blisgemm.matmul(a, right, out=out[..., :-1])
            expect_equal(out[..., :-1], want)
            assert (out[..., -1] == 77).all()
            if right.ndim > 1:
                c = numbers(*want.shape, dtype=dtype, seed=3)
                expected = want * 2 - c
                expect_equal(blisgemm.gemm(a, right, c, alpha=2, beta=-1), expected)
                expect_equal(blisgemm.gemm(a, right, c, alpha=2, beta=-1, out=c), expected)
                expect_equal(blisgemm.gemm(turned, right.conj(), trans_a="T"), np.matmul(a, right.conj()))
        conjugated = np.matmul(a.conj(), one.T.conj().T) if a.size else np.zeros((*batch, m, n), dtype)
        expect_equal(blisgemm.gemm(a, np.ascontiguousarray(one.T), trans_a="R", trans_b="C"), conjugated)


def test_items_that_overlap_out_are_not_folded_wrongly() -> None:
    base = numbers(601, 8, 8)
    want = np.matmul(base[:600].copy(), base[0].copy())
    blisgemm.matmul(base[:600], base[0].copy(), out=base[1:])
    expect_equal(base[1:], want)
    with pytest.raises(ValueError, match="expected"):
        blisgemm.matmul(numbers(100, 8, 8), numbers(7, 8))
    with pytest.raises(ValueError, match="out"):
        blisgemm.matmul(numbers(100, 8, 8), numbers(8, 8), out=np.zeros((800, 8)))
    with pytest.raises(ValueError, match="out"):
        blisgemm.matmul(numbers(10, 10, 8, 8), numbers(8), out=np.zeros((100, 8)))


def test_folded_batches_have_the_bits_of_the_items_and_say_so() -> None:
    rng = np.random.default_rng(3)
    for dtype in DTYPES:
        a, b = draw_reals(rng, (350, 9, 600), dtype), draw_reals(rng, (600, 11), dtype)
        got = blisgemm.matmul(a, b)
        for i in (0, 33, 349):
            expect_equal(got[i], blisgemm.matmul(a[i], b), same_bits=True)
        assert "one A of shape (3150, 600)" in blisgemm.explain(a, b)
        assert "one A" not in blisgemm.explain(a.swapaxes(1, 2), b, trans_a="T")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("items", [1, 2, 9, 60])
def test_small_batches_are_right_in_any_memory(dtype: str, items: int) -> None:
    for m, n, k in ((1, 1, 1), (2, 2, 2), (7, 5, 3), (8, 17, 9), (13, 1, 4), (1, 19, 6)):
        a, b = numbers(items, m, k, dtype=dtype), numbers(items, k, n, dtype=dtype, seed=1)
        lefts = (a, a[:1], a[0], np.ascontiguousarray(a[::-1])[::-1], np.repeat(a, 2, axis=2)[:, :, ::2])
        rights = (b, b[:1], b[0], np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2), np.repeat(b, 2, axis=0)[::2])
        for i, left in enumerate(lefts):
            for j, right in enumerate(rights):
                want = np.matmul(left, right)
                expect_equal(blisgemm.matmul(left, right), want, case=(m, n, k, i, j))
                for alpha, beta in ((-1, 0), (2, -1)):
                    out = numbers(*want.shape, dtype=dtype, seed=2)
                    expected = alpha * want + beta * out
                    blisgemm.gemm(left, right, out, alpha=alpha, beta=beta, out=out)
                    expect_equal(out, expected, case=(m, n, k, i, j, alpha))


def test_a_transposed_batch_of_small_matrices_is_not_walked_in_python() -> None:
    a = numbers(100, 100, 3, 3).transpose(1, 0, 3, 2)
    b = numbers(3, 3)
    expect_equal(blisgemm.matmul(a, b), np.matmul(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_rules_hold_in_batches(dtype: str) -> None:
    for m, n, k in ((3, 4, 5), (130, 140, 135)):
        if m == 130 and dtype not in LARGE_DTYPES:
            continue
        nan_a, nan_b = np.full((2, m, k), np.nan, dtype), np.full((k, n), np.nan, dtype)
        c = numbers(2, m, n, dtype=dtype)
        expect_equal(blisgemm.gemm(nan_a, nan_b, c, alpha=0, beta=3), 3 * c)
        expect_equal(
            blisgemm.gemm(nan_a[..., :0], nan_b[:0], out=np.full_like(c, np.nan)),
            np.zeros_like(c),
            same_bits=True,
        )
        a, b = numbers(2, m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
        expect_equal(blisgemm.gemm(a, b, np.full_like(c, np.nan), beta=-0.0), np.matmul(a, b))
        expect_equal(blisgemm.matmul(a, b, out=np.full_like(c, np.nan)), np.matmul(a, b))
        a[1, 0, 0], b[0, 0] = 0, np.inf
        assert np.isnan(blisgemm.matmul(a, b)[1, 0, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_that_overlaps_another_item_of_the_batch_is_safe(dtype: str) -> None:
    for n in (3, 140):
        base = numbers(4, n, n, dtype=dtype)
        square = numbers(n, n, dtype=dtype, seed=1)
        for out_slice, in_slice in (
            (slice(1, 4), slice(0, 3)),
            (slice(0, 3), slice(1, 4)),
            (slice(None, None, -1), slice(None)),
        ):
            x = base.copy()
            want = np.matmul(x[in_slice].copy(), square)
            blisgemm.matmul(x[in_slice], square, out=x[out_slice])
            expect_equal(x[out_slice], want, case=(n, out_slice, in_slice))


def test_gemm_refuses_vectors_and_an_out_larger_than_the_batch() -> None:
    with pytest.raises(ValueError, match="matmul"):
        blisgemm.gemm(np.ones(3), np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match=r"^out: expected shape \(2, 3, 3\); got \(4, 2, 3, 3\)"):
        blisgemm.gemm(np.ones((2, 3, 4)), np.ones((4, 3)), out=np.ones((4, 2, 3, 3)))
