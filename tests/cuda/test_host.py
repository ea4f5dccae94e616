"""Products of NumPy arrays on a GPU: exact in any steps, whatever lies where, and whatever runs beside them.

Knows: ``api.gemm`` with host arrays. Does not know: how products are cut (tests/test_cuda_division.py). Everything here
is skipped where no GPU can be used.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from blisgemm.cuda import driver, host
from blisgemm.cuda.api import gemm
from blisgemm.errors import CudaError, OverrideError

if not driver.is_available():
    pytest.skip(str(driver.why_unavailable()), allow_module_level=True)

DTYPES = ("float32", "float64", "complex64", "complex128")
BUDGETS = (None, "65536", "5000000")
_VARIABLE = "BLISGEMM_CUDA_HOST_BYTES"


@pytest.fixture(params=BUDGETS, ids=["free", "64k", "5m"])
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Let the steps of a test have so much memory; fewer bytes are more steps."""
    if request.param is None:
        monkeypatch.delenv(_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(_VARIABLE, request.param)
    return request.param


def whole_numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Return small whole numbers: every partial sum of their products is exact."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape).astype(dtype)
    return x + 1j * rng.integers(-4, 5, shape).astype(dtype) if np.dtype(dtype).kind == "c" else x


def stored(x: Any, storage: str) -> Any:
    """Return a copy of an array, stored in some way."""
    if storage == "C":
        return x.copy()
    if storage == "F":
        return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if storage == "reversed":
        return x[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    frame = np.full((*x.shape[:-2], 2 * x.shape[-2], 3 * x.shape[-1] + 1), np.nan, x.dtype)
    frame[..., ::2, 1::3] = x
    return frame[..., ::2, 1::3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extents", [(1, 1, 1), (65, 33, 130), (300, 257, 301), (1, 500, 700), (513, 7, 3)])
def test_products_are_exact_in_any_steps(budget: str | None, dtype: str, extents: tuple[int, int, int]) -> None:
    m, n, k = extents
    for trans_a, trans_b in (("N", "N"), ("T", "C"), ("R", "T"), ("C", "N")):
        for storage in ("C", "F", "reversed", "sliced"):
            a, b, c = (whole_numbers(i, shape, dtype) for i, shape in enumerate([(m, k), (k, n), (m, n)]))
            left, right = (x.conj() if t in "CR" else x for x, t in ((a, trans_a), (b, trans_b)))
            a, b = (x.T if t in "TC" else x for x, t in ((a, trans_a), (b, trans_b)))
            a, b, c = (stored(x, storage) for x in (a, b, c))
            product = left @ right
            found = gemm(a, b, trans_a=trans_a, trans_b=trans_b)
            assert isinstance(found, np.ndarray) and found.flags.c_contiguous
            assert (found == product).all()
            out = stored(np.full((m, n), np.nan, dtype), storage)
            assert gemm(a, b, c, alpha=2, beta=-3, out=out, trans_a=trans_a, trans_b=trans_b) is out
            assert (out == 2 * product - 3 * c).all()
            if storage == "sliced":  # nothing beside it was written
                assert np.isnan(out.base).sum() == out.base.size - out.size


def test_a_product_of_many_steps_with_k_cut_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = whole_numbers(1, (1500, 3001), "float32"), whole_numbers(2, (3001, 1301), "float32")
    product = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    for budget_bytes in (1 << 20, 40 << 20, 1 << 30):
        monkeypatch.setenv(_VARIABLE, str(budget_bytes))
        division = host.divide(1500, 1301, 3001, 4, budget_bytes)
        assert (division.depth < 3001) == (budget_bytes == 1 << 20)
        for x, y in ((a, b), (np.asfortranarray(a), b[:, ::-1])):
            expected = product if y is b else product[:, ::-1]
            assert (gemm(x, y) == expected).all()


def test_the_same_steps_give_the_same_bits(budget: str | None) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((700, 900)).astype(np.float32), rng.standard_normal((900, 800)).astype(np.float32)
    first = gemm(a, b)
    for _ in range(3):
        assert (gemm(a, b) == first).all()
    exact = a.astype(np.float64) @ b
    bound = (900 + 2) * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert (np.abs(first - exact) <= bound).all()


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((50, 9, 8), (50, 8, 5)), ((2, 3, 9, 8), (8, 5)), ((3, 1, 90, 80), (4, 80, 33)), ((300, 64, 65), (300, 65, 66)),
     ((1, 3, 4), (1000, 4, 3)), ((2, 1, 3, 4), (1, 70, 4, 3))],
)  # fmt: skip
def test_batches_are_exact(budget: str | None, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> None:
    a, b = whole_numbers(1, of_a, "float64"), whole_numbers(2, of_b, "float64")
    product = np.matmul(a, b)
    assert (gemm(a, b) == product).all()
    c = whole_numbers(3, product.shape, "float64")
    out = stored(c, "sliced")
    assert (gemm(a[..., ::-1, :], b, c, beta=2, out=out) == product[..., ::-1, :] + 2 * c).all()


def test_out_may_share_memory_with_the_operands(budget: str | None) -> None:
    for place in range(4):
        memory = whole_numbers(4, (640, 640), "float64")
        a, b, c = memory[:300, :300], memory[300:600, :300], memory[:300, 300:600]
        out = (a, memory[310:610, 10:310], c.T, memory[299::-1, 600:300:-1])[place]
        expected = a @ b + 2 * c
        assert gemm(a, b, c, beta=2, out=out) is out
        assert (out == expected).all()
    a, b, c = whole_numbers(5, (300, 300), "float64"), whole_numbers(6, (300, 300), "float64"), np.ones((300, 300))
    expected = a @ b - 3
    assert gemm(a, b, c, beta=-3, out=c) is c and (c == expected).all()


def test_zero_rules_hold(budget: str | None) -> None:
    ones, nan = np.ones((300, 300)), np.full((300, 300), np.nan)
    assert (gemm(nan, nan, ones, alpha=0, beta=2) == 2).all()
    assert (gemm(nan, nan, alpha=0) == 0).all()
    assert (gemm(ones, ones, nan, beta=-0.0, out=nan.copy()) == 300).all()
    assert (gemm(ones[:, :0], ones[:0], out=nan.copy()) == 0).all()
    assert gemm(ones[:0], ones).shape == (0, 300)
    zeros = np.zeros((300, 300))
    ones[5, 7] = np.inf
    assert np.isnan(gemm(ones, zeros)).sum() == 300


def test_threads_get_their_own_results(budget: str | None) -> None:
    operands = [
        (whole_numbers(i, (200 + i, 300), "float32"), whole_numbers(50 + i, (300, 99 + i), "float32")) for i in range(8)
    ]
    wrong: list[Any] = []

    def work(number: int) -> None:
        a, b = operands[number]
        try:
            wrong.extend(number for _ in range(10) if not (gemm(a, b) == a @ b).all())
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_out_of_memory_leaves_the_context_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones((3000, 3000)), np.ones((3000, 3000))
    real = driver.allocate
    with driver.on_device(0):
        total = driver.free_memory()[1]
    monkeypatch.setattr(driver, "allocate", lambda nbytes, stream: real(4 * total, stream))
    with pytest.raises(CudaError) as caught:
        gemm(a, b)
    assert caught.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
    monkeypatch.undo()
    assert (gemm(a, b) == 3000).all()


def test_a_failing_step_leaves_the_context_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "1000000")
    a, b = np.ones((600, 600)), np.ones((600, 600))
    real, calls = host.multiply, iter(range(1000))

    def fail(*arguments: Any) -> None:
        if next(calls) == 3:
            raise CudaError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "as the test asked")
        real(*arguments)

    monkeypatch.setattr(host, "multiply", fail)
    with pytest.raises(CudaError, match="as the test asked"):
        gemm(a, b)
    monkeypatch.setattr(host, "multiply", real)
    assert (gemm(a, b) == 600).all()


def test_what_is_kept_can_be_released_and_is_made_again() -> None:
    a = np.ones((1200, 1200), np.float32)
    assert (gemm(a, a) == 1200).all() and (gemm(a[:9], a[:, :9]) == 1200).all()
    host.release()
    host.release()
    assert not any(lane.streams or lane.to_card or lane.small for lane in host._lanes.values())
    assert (gemm(a, a) == 1200).all() and (gemm(a[:9], a[:, :9]) == 1200).all()


def test_products_do_not_leak_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "2000000")
    a = np.ones((400, 400))
    gemm(a, a)
    with driver.on_device(0):
        driver.trim()
        before = driver.free_memory()[0]
        for _ in range(50):
            gemm(a, a)
        driver.trim()
        assert before - driver.free_memory()[0] < 16 << 20


def test_an_impossible_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "lots")
    with pytest.raises(OverrideError, match=_VARIABLE):
        gemm(np.ones((2, 2)), np.ones((2, 2)))
