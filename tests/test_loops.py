"""The textbook page as plain Python: its five loops over NumPy's meaning of their words, nothing compiled.

Every kernel of the catalog is tried on every host, since no code of it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import draw

from blisgemm import loops, pack
from blisgemm.ukernel import catalog
from blisgemm.ukernel.spec import KernelSpec

KERNELS = tuple(catalog.kernels())


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the Python functions in place of those that would be compiled."""
    for module in (loops, pack):
        for name, value in vars(module).items():
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)


def multiply(
    kernel: KernelSpec, a: np.ndarray, b: np.ndarray, blocking: tuple[int, int, int, int], ma: int, threads: int,
    rows_first: bool = False,
) -> np.ndarray:  # fmt: skip
    """Return a times b by the five loops; ``ma``: rows packed together."""
    _, nc, kc, _ = blocking
    c = np.full((a.shape[0], b.shape[1]), np.nan, a.dtype)
    reals = a.real.dtype
    a_pack = np.full((ma // kernel.mr, kc * kernel.mr * kernel.planes), np.nan, reals)
    b_pack = np.full((nc // kernel.nr, kc * kernel.nr * kernel.planes), np.nan, reals)
    one, zero = kernel.one, kernel.zero
    counter = np.full(1, 99, np.intp)
    loops.five_loops(kernel, blocking, rows_first, threads, one, a, b, zero, c, 0, a_pack, b_pack, counter)
    return c


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_tiles_of_any_blocking_give_the_product_on_any_number_of_threads(data: st.DataObject) -> None:
    pick: Any = lambda most, name: data.draw(st.integers(1, most), name)  # noqa: E731
    kernel = data.draw(st.sampled_from(KERNELS), "kernel")
    m, n, k = pick(5 * kernel.mr, "m"), pick(5 * kernel.nr, "n"), pick(9, "k")
    mc, nc = pick(3, "mc") * kernel.mr, pick(4, "nc") * kernel.nr
    ma, nt = pick(3, "ma") * mc, pick(nc // kernel.nr, "nt") * kernel.nr
    rng = np.random.default_rng(m + n + k)
    a, b = draw(rng, (m, k), kernel.acc_dtype), draw(rng, (k, n), kernel.acc_dtype)
    got = multiply(kernel, a, b, (mc, nc, pick(9, "kc"), nt), ma, pick(5, "threads"), data.draw(st.booleans()))
    assert (got == a @ b).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_each_element_of_c_meets_each_kc_block_once_and_in_order(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS[0]
    m, n, k, kc = 7 * kernel.mr + 1, 6 * kernel.nr + 1, 10, 4
    met = np.zeros((m, n), int)
    packed: list[tuple[int, ...]] = []

    def macrokernel(
        kernel: Any, rows_first: Any, alpha: Any, a: Any, b: Any, beta: Any, c: Any, kc: int, conj: Any
    ) -> None:
        assert (c == c.flat[0]).all(), "one tile has met more blocks than another before"
        assert (beta == 0) == (c.flat[0] == 0)
        c += 1

    monkeypatch.setattr(loops, "macrokernel", macrokernel)
    monkeypatch.setattr(loops, "pack_a", lambda kernel, block, out: packed.append(("a", *block.shape)))
    monkeypatch.setattr(loops, "pack_b", lambda kernel, block, out: packed.append(("b", *block.shape)))
    blocking = (2 * kernel.mr, 3 * kernel.nr, kc, 2 * kernel.nr)
    a, b, counter = np.zeros((m, k)), np.zeros((k, n)), np.zeros(1, np.intp)
    a_pack, b_pack = np.zeros((4, kc * kernel.mr)), np.zeros((3, kc * kernel.nr))
    loops.five_loops(kernel, blocking, False, threads, 1, a, b, 0, met, 0, a_pack, b_pack, counter)
    assert (met == 3).all()
    rows = sum(rows * depth for what, rows, depth in packed if what == "a")
    columns = sum(depth * columns for what, depth, columns in packed if what == "b")
    assert columns == n * k, "a panel of B is packed once"
    assert rows == m * k * 3, "A is packed once for each of three panels"
