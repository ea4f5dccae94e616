"""The routes of a call: what the compiled lanes do and decline, what keys lead to, and that no route allocates."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from support import DTYPES, TRANS, draw, expect_equal, surroundings

import blisgemm
from blisgemm import driver, lane, limits, outcome, workspace
from blisgemm.lane_limits import fast_lane_kc
from blisgemm.operands import prepare
from blisgemm.rules import A_CROWDED_BYTES
from blisgemm.table import FIRST
from blisgemm.ways import choose_kernel

# Sides of 4 to 40 are done or copied by the lane, k = 600 is longer than a kc block, 150 is more than the lane does.
SHAPES = [(4, 4, 4), (1, 5, 3), (5, 1, 3), (40, 33, 20), (9, 2, 600), (150, 151, 149)]


def numbers(*shape: int, dtype: Any = "float32", seed: int = 0) -> np.ndarray:
    return draw(np.random.default_rng(seed), shape, dtype)


def layouts(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield x in C and F order, with gaps in both directions, backwards, and every row the same memory apart."""
    yield "C", x
    yield "F", np.asfortranarray(x)
    gaps = np.full((*x.shape[:-2], 2 * x.shape[-2], 3 * x.shape[-1]), 9, x.dtype)[..., ::2, ::3]
    gaps[...] = x
    yield "gaps", gaps
    yield "backwards", np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]


def by_numpy(x: np.ndarray, trans: Any) -> np.ndarray:
    turned = x.swapaxes(-1, -2) if trans in (True, "T", "C") else x
    return turned.conj() if trans in ("C", "R") else turned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gemm_of_plain_matrices_in_any_layout(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    factors = [(2, 0), (1, 1), (-1.0, 3.0), (3, -0.0)]
    cases = (
        product(TRANS, TRANS, range(4), range(4), range(4))
        if m * n * k < 1000
        else [("T", "C", 1, 2, 3), (False, "R", 2, 1, 1)]
    )
    for count, (trans_a, trans_b, i, j, o) in enumerate(cases):
        a = numbers(*((k, m) if trans_a in ("T", "C") else (m, k)), dtype=dtype)
        b = numbers(*((n, k) if trans_b in ("T", "C") else (k, n)), dtype=dtype, seed=1)
        c = numbers(m, n, dtype=dtype, seed=2)
        alpha, beta = factors[count % 4]
        a, b = list(layouts(a))[i][1], list(layouts(b))[j][1]
        want = alpha * (by_numpy(a, trans_a) @ by_numpy(b, trans_b)) + beta * c
        out = list(layouts(c.copy()))[o][1]
        around = surroundings(out)
        got = blisgemm.gemm(a, b, out, alpha=alpha, beta=beta, out=out, trans_a=trans_a, trans_b=trans_b)
        assert got is out
        expect_equal(out, want, case=(trans_a, trans_b, i, j, o))
        assert surroundings(out) == around
        fresh = blisgemm.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b)
        expect_equal(fresh, want, case=(trans_a, trans_b, i, j))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), [(1, 1), (3, 1), (1, 4), (4, 5), (17, 33), (128, 128), (9, 600), (300, 200)])
def test_vectors_go_with_matrices_in_any_layout(dtype: str, m: int, k: int) -> None:
    x, y = numbers(k, dtype=dtype, seed=1), numbers(m, dtype=dtype, seed=2)
    for (name, a), step in product(layouts(numbers(m, k, dtype=dtype)), (1, 2, -1)):
        right, left = np.repeat(x, abs(step))[::step], np.repeat(y, abs(step))[::step]
        for got, want in (
            (lambda out, a=a, v=right: blisgemm.matmul(a, v, out), a @ right),
            (lambda out, a=a, v=left: blisgemm.matmul(v, a, out), left @ a),
        ):
            expect_equal(got(None), want, case=(name, step))
            out = np.full(2 * len(want), 77, dtype)[::2]
            around = surroundings(out)
            assert got(out) is out
            expect_equal(out, want, case=(name, step))
            assert surroundings(out) == around
        dot = blisgemm.matmul(right, right)
        assert isinstance(dot, np.generic) and dot.dtype == dtype
        assert dot == right @ right
        into = np.zeros((), dtype)
        assert blisgemm.matmul(right, right, into) is into
        assert into == dot


def test_a_vector_has_the_bits_of_the_matrix_that_holds_it() -> None:
    rng = np.random.default_rng(3)
    for dtype, (m, k) in product(DTYPES, ((7, 5), (64, 700), (130, 260))):
        a, x = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal(k).astype(dtype)
        whole = blisgemm.matmul(a, np.stack([x] * 3, axis=1))[:, 1]
        for _, layout in layouts(a):
            expect_equal(blisgemm.matmul(layout, x), whole, same_bits=True)
            expect_equal(blisgemm.matmul(x, layout.T), whole, same_bits=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("items", "shape"), [(1, (3, 4, 5)), (6, (4, 4, 4)), (5, (1, 3, 4)), (5, (3, 1, 4)), (3, (40, 33, 20))]
)
def test_batches_in_any_layout_with_one_operand_for_all(dtype: str, items: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    lefts = [
        *layouts(numbers(items, m, k, dtype=dtype)),
        ("one", numbers(m, k, dtype=dtype)),
        ("1", numbers(1, m, k, dtype=dtype)),
    ]
    rights = [
        *layouts(numbers(items, k, n, dtype=dtype, seed=1)),
        ("one by columns", numbers(n, k, dtype=dtype, seed=1).T),
        ("zero stride", np.broadcast_to(numbers(k, n, dtype=dtype, seed=1), (items, k, n))),
    ]
    for (left, a), (right, b) in product(lefts, rights):
        want = np.matmul(a, b)
        expect_equal(blisgemm.matmul(a, b), want, case=(left, right))
        expect_equal(
            blisgemm.gemm(b, a, trans_a="T", trans_b="C", alpha=2),
            2 * np.matmul(b.swapaxes(-1, -2), a.conj().swapaxes(-1, -2)),
        )
        for name, out in layouts(np.zeros_like(want)):
            around = surroundings(out)
            assert blisgemm.matmul(a, b, out) is out
            expect_equal(out, want, case=(left, right, name))
            c = numbers(*want.shape, dtype=dtype, seed=4)
            out[...] = c
            blisgemm.gemm(a, b, out, alpha=-1, beta=2, out=out)
            expect_equal(out, 2 * c - want, case=(left, right, name))
            assert surroundings(out) == around


@pytest.mark.parametrize("path", ["copied", "packed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_batch_without_unit_strides_is_one_loop(
    path: str, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, n = (9000, 4) if path == "copied" else (12, 70)
    a = numbers(items, 2 * n, 2 * n, dtype=dtype)[:, ::2, ::2]
    monkeypatch.setattr(driver, "_run_matrix", None)  # what one item alone would take
    text = blisgemm.explain(a, a, threads=threads)
    assert ("copies" if path == "copied" else "path      packed") in text, text
    expect_equal(blisgemm.gemm(a, a, threads=threads), np.matmul(a, a), text)
    one = np.broadcast_to(a[0], a.shape)
    expect_equal(blisgemm.gemm(a, one, threads=threads), np.matmul(a, one), text)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_key_leads_to_the_plan_of_the_general_way(dtype: str) -> None:
    """What the lane says of its operands is what ``plan_operands`` sees in them."""
    blisgemm.matmul(np.ones((2, 2), dtype), np.ones((2, 2), dtype))
    code, kernel, _, checks, spare, _ = lane.lane_of(np.dtype(dtype))
    far = numbers(9, 1024, dtype=dtype)[:, :5]  # rows that crowd few sets of L1
    a, out = numbers(7, 9, dtype=dtype), numbers(7, 5, dtype=dtype)
    key = code(kernel, checks, spare, a, far, out, np.ndarray, far.dtype, 0, 1.0, 0.0)
    assert outcome.read_key(key)[3] == "crowded" == blisgemm.driver._access(far)
    for m, n, k in SHAPES:
        for (_, a), (_, b), (_, out) in product(*(layouts(numbers(*s, dtype=dtype)) for s in ((m, k), (k, n), (m, n)))):
            key = code(kernel, checks, spare, a, b, out, np.ndarray, a.dtype, 0, 1.0, 0.0)
            assert key > outcome.PLAIN
            *extents, access, op, a_rows, a_crowded = outcome.read_key(key)
            left = b.T if op & outcome.EXCHANGE else a
            assert extents == [m, n, k]
            assert a_rows == blisgemm.driver._has_rows(left)
            assert a_crowded == (left.strides[0] % A_CROWDED_BYTES == 0)
            plan = blisgemm.driver.plan_operands(
                prepare(a, b, None, 1, 0, out, False, False, None, None, "same_kind", "K"), 1
            )
            by_key = blisgemm.driver.plan_for(
                m, n, k, dtype, 1, access, bool(op & outcome.EXCHANGE), a_rows=a_rows, a_crowded=a_crowded
            )
            assert by_key == plan


def lane_without_routes(dtype: str) -> tuple[Any, ...]:
    """Return the lane of a dtype with a table of its own, which has no product that it may call by address."""
    blisgemm.matmul(np.ones((2, 2), dtype), np.ones((2, 2), dtype))
    code, kernel, table, _, spare, _ = lane.lane_of(np.dtype(dtype))
    fresh = table.copy()
    fresh[FIRST:] = 0
    return code, kernel, fresh, spare


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lane_leaves_products_of_few_columns_to_a_plan_that_has_a_narrow_tile(dtype: str) -> None:
    """And does those of an A whose rows crowd L1 where narrow tiles don't bear it."""
    code, kernel, fresh, spare = lane_without_routes(dtype)
    narrow, seen = choose_kernel(dtype, "narrow")[0], set()
    m, k = 130, 64
    far = np.zeros((m, 2 * A_CROWDED_BYTES // np.dtype(dtype).itemsize), dtype)[:, :k]
    for n, a in product((2, 4, 5), (np.zeros((m, k), dtype), far)):
        b, out = np.zeros((k, n), dtype), np.zeros((m, n), dtype)
        key = code(kernel, fresh, spare, a, b, out, np.ndarray, a.dtype, 0, 1.0, 0.0)
        plan = blisgemm.driver.plan_operands(
            prepare(a, b, None, 1, 0, out, False, False, None, None, "same_kind", "K"), 1
        )
        if plan.path == "direct" and plan.access == "rows" and narrow != kernel:
            seen.add((key == outcome.DONE, plan.kernel == narrow))
    assert seen <= {(True, False), (False, True)}
    if narrow != kernel:
        crowded = {(True, False)} if choose_kernel(dtype, "narrow")[0].isa.name not in limits.NARROW_CROWDED else set()
        assert seen >= {(False, True)} | crowded


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_lane_does_at_once_is_what_the_plan_says(dtype: str) -> None:
    """Its tile, down the columns of C."""
    code, kernel, fresh, spare = lane_without_routes(dtype)
    done = 0
    for m, n, k in ((2, 512, 33), (24, 24, 24), (40, 40, 40), (4, 22, 16), (3, 25, 256), (8, 100, 60), (16, 100, 30)):
        a, b, out = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype), numbers(m, n, dtype=dtype)
        if code(kernel, fresh, spare, a, b, out, np.ndarray, a.dtype, 0, 1.0, 0.0) != outcome.DONE:
            continue
        done += 1
        plan = blisgemm.make_plan(m, n, k, dtype, threads=1)
        assert (plan.path, plan.kernel, plan.rows_first) == ("direct", kernel, False), (m, n, k)
    assert done


def test_the_lane_declines_what_it_may_not_write() -> None:
    a = numbers(4, 4)
    before = a.copy()
    frozen = np.zeros((4, 4), np.float32)
    frozen.flags.writeable = False
    wide = np.zeros((4, 7), np.float32)
    overlapping = np.lib.stride_tricks.as_strided(wide, (4, 4), (8, 4))
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: blisgemm.gemm(a, a, out=frozen, alpha=2), ValueError),
        (lambda: blisgemm.gemm(a, a[0]), ValueError),
        (lambda: blisgemm.gemm(a, a, trans_a=1), ValueError),
        (lambda: blisgemm.gemm(a, a, trans_b="t"), ValueError),
        (lambda: blisgemm.gemm(a, a, threads=0), ValueError),
        (lambda: blisgemm.gemm(a, a, beta=2), ValueError),
        (lambda: blisgemm.gemm(a, a, np.ones((3, 3), np.float32), beta=2), ValueError),
        (lambda: blisgemm.gemm(a, a, np.ones((3, 3), np.float32)), ValueError),
        (lambda: blisgemm.gemm(a, a, alpha=2j), TypeError),
        (lambda: blisgemm.matmul(a, numbers(3)), ValueError),
        (lambda: blisgemm.matmul(numbers(3), a), ValueError),
        (lambda: blisgemm.matmul(numbers(2, 4, 4), numbers(3, 4, 4)), ValueError),
        (lambda: blisgemm.matmul(numbers(2, 4, 4), numbers(2, 3, 4)), ValueError),
        (lambda: blisgemm.matmul(np.empty((400_000, 3), np.float32), np.empty((4, 400_000), np.float32)), ValueError),
        (lambda: blisgemm.matmul(numbers(2, 4, 4), a, np.broadcast_to(frozen, (2, 4, 4))), ValueError),
    ]
    for call, error in refused:
        with pytest.raises(error):
            call()
    expect_equal(a, before)
    expect_equal(blisgemm.gemm(a, a, out=overlapping, alpha=2)[3], 2 * (a @ a)[3])


@pytest.mark.parametrize("n", [4, 30, 140])
def test_operands_that_share_memory_with_out_are_read_first(n: int) -> None:
    for place in (slice(0, n), slice(1, n + 1)):
        base = numbers(n + 1, n)
        want = 2 * (base[:n] @ base[:n].T) + base[place]
        got = blisgemm.gemm(base[:n], base[:n], base[place], alpha=2, beta=1, trans_b=True, out=base[place])
        expect_equal(got, want)
    stack = numbers(4, n, n)
    want = np.matmul(stack[:3], stack[0])
    expect_equal(blisgemm.matmul(stack[:3], stack[0], stack[1:]), want)
    line = numbers(n * n)
    want = line.reshape(n, n) @ line[:n]
    expect_equal(blisgemm.matmul(line.reshape(n, n), line[:n], line[-n:]), want)


@pytest.mark.parametrize("alpha", [0, 0.0, 1e-60, 1e60, float("inf"), float("nan"), 2**80, True, np.float64(2), 1 + 0j])
def test_factors_of_every_kind_mean_what_the_general_way_makes_of_them(alpha: Any) -> None:
    a = numbers(4, 4, dtype="complex64")
    with np.errstate(over="ignore", invalid="ignore"):
        plain = blisgemm.gemm(a, a, alpha=alpha)
        general = blisgemm.gemm(a, a, alpha=alpha, dtype="complex64")
    expect_equal(plain, general, same_bits=True)


ROUTES: dict[str, Callable[[], Callable[[], Any]]] = {}


def route(make: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
    ROUTES[make.__name__] = make
    return make


def _call(a: np.ndarray, b: np.ndarray, function: Any = blisgemm.matmul, **keywords: Any) -> Callable[[], Any]:
    out = np.zeros_like(np.matmul(a, b))
    return lambda: function(a, b, out=out, **keywords)


@route
def of_lane() -> Callable[[], Any]:
    return _call(numbers(5, 5), numbers(5, 5))


@route
def direct() -> Callable[[], Any]:
    return _call(numbers(2, 600), numbers(600, 2))


@route
def columns() -> Callable[[], Any]:
    return _call(numbers(2, 90), numbers(90, 90).T)


@route
def packed() -> Callable[[], Any]:
    return _call(numbers(90, 90), numbers(90, 90).T)


@route
def sweep() -> Callable[[], Any]:
    return _call(numbers(1, 2000), numbers(2000, 1500))


@route
def matrix_times_vector() -> Callable[[], Any]:
    return _call(numbers(128, 128), numbers(128))


@route
def vector_times_matrix() -> Callable[[], Any]:
    return _call(numbers(128), numbers(128, 128))


@route
def small_batch() -> Callable[[], Any]:
    return _call(numbers(5, 4, 4), numbers(4, 4).T)


@route
def factors_and_turns() -> Callable[[], Any]:
    return _call(numbers(90, 90), numbers(90, 90), blisgemm.gemm, alpha=2, trans_b=True, trans_a=True)


@pytest.mark.parametrize("name", ROUTES)
def test_a_repeated_call_leaves_and_takes_no_memory(name: str) -> None:
    call = ROUTES[name]()
    with blisgemm.num_threads(1):
        for _ in range(3):
            call()
        kept = workspace.workspace_bytes()
        before = sys.getallocatedblocks()
        for _ in range(300):
            call()
        assert sys.getallocatedblocks() - before < 20
        assert workspace.workspace_bytes() == kept
        tracemalloc.start()
        try:
            call()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for _ in range(20):
                call()
            later, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert later - size < 500
        assert peak - size < 2000, "a few tuples and numbers, and no array"


def test_the_workspace_counts_what_it_keeps() -> None:
    blisgemm.free_workspace()
    key = (((3, 4), (5, 6)), np.dtype(np.float32))
    first = workspace.borrow(key)
    assert [x.shape for x in first.arrays] == [(3, 4), (5, 6)]
    assert all(x.ctypes.data % 4096 == 0 for x in first.arrays)
    second = workspace.borrow(key)
    assert second is not first
    workspace.give_back(first)
    workspace.give_back(second)
    assert workspace.workspace_bytes() == first.nbytes + second.nbytes
    assert workspace.borrow(key) is second
    smaller = workspace.borrow((((2, 2),), np.dtype(np.float64)))
    assert smaller is first, "a larger piece serves a smaller call"
    assert workspace.workspace_bytes() == 0


def test_lanes_are_for_the_kernel_and_blocks_that_plans_name() -> None:
    for dtype in DTYPES:
        blisgemm.matmul(np.ones((2, 2), dtype), np.ones((2, 2), dtype))
        _, kernel, (kc_max, *_), *_ = lane.lane_of(np.dtype(dtype))
        assert kernel == choose_kernel(dtype, "direct")[0]
        assert kc_max == fast_lane_kc(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("few", [2, 5])
def test_few_columns_or_rows_in_any_layout(dtype: str, few: int) -> None:
    """Whether C or its transpose is computed depends on all three layouts, in compiled code and in Python alike."""
    for m, n, k in ((260, few, 131), (few, 260, 131)):
        a0, b0, c0 = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1), numbers(m, n, dtype=dtype, seed=2)
        for (i, a), (j, b), o in product(enumerate(layouts_of(a0)), enumerate(layouts_of(b0)), range(4)):
            out = layouts_of(c0.copy())[o]
            expect_equal(blisgemm.matmul(a, b, out=out), a0 @ b0, case=f"layouts {i} {j} {o}")
            out[...] = c0
            prepared = prepare(a, b, out, 2, 3, out, False, False, None, None, "same_kind", "K")
            plan = driver.plan_operands(prepared, 1)
            expect_equal(driver.run(plan, prepared), 2 * (a0 @ b0) + 3 * c0, plan, f"layouts {i} {j} {o}")


def layouts_of(x: np.ndarray) -> list[np.ndarray]:
    return [layout for _, layout in layouts(x)]


def test_the_lane_and_the_plan_turn_the_same_products(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[bool] = []
    seen = 0
    planned = lane.planned

    def spy(of: Any, key: tuple[int, int], dtype: Any) -> Any:
        met.append(bool(outcome.read_key(key[0])[4] & outcome.EXCHANGE))
        return planned(of, key, dtype)

    monkeypatch.setattr(lane, "planned", spy)
    blisgemm.matmul(numbers(3, 3), numbers(3, 3))  # opens the lane
    lane.forget_lanes()
    for (m, n, k), i, j, o in product([(600, 2, 500), (2, 600, 500), (600, 8, 500), (600, 30, 500)], *[range(3)] * 3):
        a, b, out = layouts_of(numbers(m, k))[i], layouts_of(numbers(k, n))[j], layouts_of(numbers(m, n))[o]
        met.clear()
        blisgemm.matmul(a, b, out=out)
        prepared = prepare(a, b, None, 1, 0, out, False, False, None, None, "same_kind", "K")
        if met:  # not done by the lane itself, nor met before
            assert met == [driver.plan_operands(prepared, 1).swapped], (m, n, k, i, j, o)
            seen += 1
    assert seen > 20
