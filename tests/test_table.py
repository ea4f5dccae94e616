"""Products that the compiled lane calls by address: the same results and bits as by their plans, and only those."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from support import DTYPES, draw, expect_equal

import blisgemm
from blisgemm import driver, lane, outcome, table
from blisgemm.operands import prepare
from blisgemm.parallel import TERMS_PER_THREAD

# Columns of A once (x A', A x) and a few times, deep sums of several kc blocks, crowded rows of B.
SHAPES = [(40, 1, 37), (1, 40, 37), (3, 50, 29), (5, 6, 1300), (1, 1, 700)]


def call(a: np.ndarray, b: np.ndarray, out: np.ndarray, op: int, alpha: Any = 1.0, beta: Any = 0.0) -> int:
    """Ask the compiled lane itself; its answer."""
    code, kernel, known, _, spare, _ = lane.lane_of(a.dtype)
    return int(code(kernel, known, spare, a, b, out, np.ndarray, a.dtype, op, alpha, beta))


def layouts(x: np.ndarray) -> list[np.ndarray]:
    wide = np.full((2 * x.shape[0], 3 * x.shape[1]), 9, x.dtype)[::2, ::3]
    wide[...] = x
    return [x, np.asfortranarray(x), wide]


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    lane.forget_lanes()
    blisgemm.matmul(np.ones((2, 2), request.param), np.ones((2, 2), request.param))
    return str(request.param)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_planned_once_is_done_by_the_lane_with_the_same_bits(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(7)
    by_address = 0
    for i, j, o, conj, (alpha, beta) in product(range(3), range(3), range(3), range(4), [(1.0, 0.0), (0.7, -1.3)]):
        a, b, c = (
            layouts((rng.standard_normal((*s, 2)) @ [1, 1j]).astype(dtype) if dtype[0] == "c" else
                    rng.standard_normal(s).astype(dtype))[layout]
            for s, layout in (((m, k), i), ((k, n), j), ((m, n), o))
        )  # fmt: skip
        first, second = c.copy(order="K"), c.copy(order="K")
        if o == 2:
            first, second = layouts(np.ascontiguousarray(c))[2], layouts(np.ascontiguousarray(c))[2]
        words = {"trans_a": "R" if conj & 1 else "N", "trans_b": "R" if conj & 2 else "N"}
        prepared = prepare(a, b, first, alpha, beta, first, *words.values(), None, None, "same_kind", "K")
        driver.run(driver.plan_operands(prepared, 1), prepared)  # the general way
        blisgemm.gemm(a, b, second, out=second, alpha=alpha, beta=beta, **words)  # may plan it
        expect_equal(second, first, same_bits=True)
        third = layouts(np.ascontiguousarray(c))[o]
        state = call(a, b, third, conj, alpha, beta)
        if state == outcome.DONE:
            by_address += 1
            expect_equal(third, first, case=(i, j, o, conj), same_bits=True)
        else:
            expect_equal(third, c, case="nothing is written by a lane that only answers", same_bits=True)
    known = lane.lane_of(np.dtype(dtype))[2]
    assert by_address and np.count_nonzero(known[table.FIRST :: table.WIDTH]), "no product was called by address"


def test_two_keys_with_one_row_take_turns_and_stay_right(dtype: str) -> None:
    """The extents are searched for: products of a row times columns whose keys fall on one row of the table."""
    place = {}
    for k in range(100, 100 + 3 * table.ROWS, 1):
        a, b = draw(np.random.default_rng(k), (1, k), dtype), draw(np.random.default_rng(k + 1), (30, k), dtype).T
        out = np.zeros((1, 30), dtype)
        key = call(a, b, out, 0)
        if key <= outcome.PLAIN:
            continue
        row = table.place(key)
        assert table.FIRST <= row < table.FIRST + table.ROWS * table.WIDTH and (row - table.FIRST) % table.WIDTH == 0
        blisgemm.matmul(a, b, out=out)
        expect_equal(out, a @ b)
        if call(a, b, out, 0) == outcome.DONE and row in place:
            break
        place[row] = a, b
    else:
        pytest.fail("no two keys met in one row")
    known = lane.lane_of(np.dtype(dtype))[2]
    assert known[row] == key, "the last that came has the row"
    for x, y in (place[row], (a, b), place[row]):
        out = np.zeros((1, 30), dtype)
        blisgemm.matmul(x, y, out=out)
        expect_equal(out, x @ y)


def test_a_product_with_a_copy_of_c_is_checked_before_anything_is_written(dtype: str) -> None:
    a, b = draw(np.random.default_rng(1), (1, 90), dtype), draw(np.random.default_rng(2), (60, 90), dtype).T
    c = draw(np.random.default_rng(3), (1, 60), dtype)
    out = np.zeros_like(c)
    for _ in range(3):
        blisgemm.matmul(a, b, out=out)  # from the second on by address
        blisgemm.gemm(a, b, c, beta=2, out=out)
        expect_equal(out, a @ b + 2 * c)


def test_long_products_are_not_called_while_the_lock_of_python_is_held(dtype: str) -> None:
    n = 600
    assert n * n > TERMS_PER_THREAD
    a, x, out = draw(np.random.default_rng(1), (n, n), dtype), draw(np.random.default_rng(2), (n,), dtype), None
    for _ in range(2):
        out = blisgemm.matmul(a, x)
    expect_equal(out, a @ x)
    assert call(a, x, np.zeros_like(x), outcome.VECTORS) > outcome.PLAIN
