"""Products of host arrays without a GPU: how they are cut, and that a fake card's copies and steps give them exactly.

Knows: a fake card whose streams run as late as they may, or at random. Does not know: a device; tests/cuda has what
needs one.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from blisgemm import errors
from blisgemm.cuda import division, host
from blisgemm.cuda.arrays import view_of
from blisgemm.cuda.division import Division, divide
from blisgemm.cuda.host import gemm_on_host
from blisgemm.cuda.run import Factors
from blisgemm.cuda.view import View

GIB = 1 << 30
EXTENTS = (1, 7, 128, 131, 1025, 4099, 100_003)
BUDGETS = (4096, 100_001, 1 << 20, 80 << 20, 3 * GIB)

# ---- the division -----------------------------------------------------------------------------------------------


def check(division: Division, m: int, n: int, k: int, budget_bytes: int) -> None:
    assert division.device_bytes <= budget_bytes
    assert 1 <= division.rows <= m and 1 <= division.columns <= n and 1 <= division.depth <= k
    steps = -(-m // division.rows) * -(-n // division.columns) * -(-k // division.depth)
    if steps > 2000:
        return
    covered = 0
    seen: set[tuple[int, int]] = set()
    previous = None
    for rows, columns, depth in division.tiles():
        assert rows.stop - rows.start <= division.rows and columns.stop - columns.start <= division.columns
        tile = (rows.start, columns.start)
        if depth.start == 0:
            assert tile not in seen
            seen.add(tile)
            covered += (rows.stop - rows.start) * (columns.stop - columns.start)
        else:
            assert previous == (*tile, depth.start)  # goes on where the step before ended, in the same tile
        previous = (*tile, depth.stop)
        if depth.stop < k:
            assert depth.stop - depth.start == division.depth
    assert covered == m * n  # tiles begin at different places of a grid, so none is covered twice
    assert all(i % division.rows == 0 and j % division.columns == 0 for i, j in seen)


@pytest.mark.parametrize("budget_bytes", BUDGETS)
@pytest.mark.parametrize("item_bytes", [4, 8, 16])
def test_tiles_cover_c_once_with_k_in_order_within_the_budget(item_bytes: int, budget_bytes: int) -> None:
    for m, n, k in itertools.product(EXTENTS, repeat=3):
        check(divide(m, n, k, item_bytes, budget_bytes), m, n, k, budget_bytes)


@pytest.mark.parametrize("extents", [(10**7, 10**7, 10**7), (1, 1, 10**12), (10**9, 1, 1), (3, 10**9, 5)])
def test_huge_products_are_cut_within_the_budget(extents: tuple[int, int, int]) -> None:
    for budget_bytes in (4096, 70 * GIB):
        check(divide(*extents, 4, budget_bytes), *extents, budget_bytes)


def test_what_fits_is_cut_without_regard_to_the_budget() -> None:
    for m, n, k in ((8192, 8192, 8192), (64, 64, 10**6), (3000, 200, 5000)):
        assert divide(m, n, k, 4, 20 * GIB) == divide(m, n, k, 4, 70 * GIB)


def test_k_is_cut_only_where_panels_do_not_fit() -> None:
    whole = divide(100_000, 100_000, 100_000, 4, 70 * GIB)
    assert whole.depth == 100_000 and whole.b_slots == -(-100_000 // whole.columns)
    passing = divide(100_000, 100_000, 100_000, 4, 10 * GIB)
    assert passing.depth == 100_000 and passing.b_slots == 2
    assert divide(100_000, 100_000, 100_000, 4, GIB // 2).depth < 100_000


@pytest.mark.parametrize("budget_bytes", BUDGETS)
def test_groups_of_a_batch_stay_within_the_budget(budget_bytes: int) -> None:
    for m, n, k, batch in itertools.product((1, 5, 64, 1025), (1, 64), (3, 500), (1, 2, 1000, 10**6)):
        for shared_a, shared_b in itertools.product((False, True), repeat=2):
            division = divide(m, n, k, 8, budget_bytes, batch, shared_a, shared_b)
            assert division.device_bytes <= budget_bytes and 1 <= division.items <= batch
            if division.items > 1:
                assert (division.rows, division.columns, division.depth) == (m, n, k)
            if batch > 1:
                assert division.c_slots == 2


def test_a_budget_below_six_elements_is_refused() -> None:
    with pytest.raises(errors.BlisgemmValueError, match="budget_bytes"):
        divide(5, 5, 5, 16, 95)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (1, 4, 100), (10, 1, 9), (2, 3, 64)])
def test_pieces_cover_a_tile_once_and_fit_into_a_buffer(shape: tuple[int, int, int]) -> None:
    for most in (1, 3, 8, 64, 1000):
        pitch = division.pitch_of(shape[2], 4)
        filled = np.zeros(shape, int)
        room = np.zeros(shape[0] * shape[1] * pitch, int)
        for items, rows, columns, start, elements in division.pieces_of(shape, pitch, most):
            assert elements <= most
            filled[items, rows, columns] += 1
            room[start : start + elements] += 1
        assert (filled == 1).all() and room.max() == 1


# ---- views ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-2], lambda x: x[3:3], lambda x: x[1:2, ::3],
        lambda x: np.broadcast_to(x[:, :1], (9, 4)), lambda x: np.broadcast_to(x, (5, *x.shape))[::2, ::-1],
        lambda x: x.astype(np.complex64).T[::-1, ::2], lambda x: np.asfortranarray(x)[2:, 1:],
    ],
)  # fmt: skip
def test_a_view_becomes_the_array_it_describes(change: Callable[[Any], Any]) -> None:
    x = change(np.arange(63.0).reshape(9, 7))
    found = host._ndarray(view_of("x", x))
    assert found.shape == x.shape and found.dtype == x.dtype and (found == x).all()
    assert np.shares_memory(found, x) or x.size == 0
    assert found.flags.writeable == x.flags.writeable


def test_a_view_of_unaligned_memory_becomes_an_array() -> None:
    x = np.frombuffer(bytes(range(81)), np.uint8)[1:].view(np.float64)
    assert (host._ndarray(view_of("x", x)) == x).all()


def test_an_array_keeps_the_owner_of_its_view_alive() -> None:
    found = host._ndarray(view_of("x", np.full(100_000, 7.0)))
    assert (found == 7).all() and found.base.owner.size == 100_000


def test_batch_dimensions_become_as_few_as_strides_allow() -> None:
    x, y = np.zeros((2, 3, 4, 5, 6)), np.zeros((1, 1, 1, 5, 6))
    assert [z.shape for z in host._batches([x, x])] == [(24, 5, 6)] * 2
    assert [z.shape for z in host._batches([x, np.broadcast_to(y, x.shape)])] == [(24, 5, 6)] * 2
    assert host._batches([x[:, :, ::2]])[0].shape == (12, 5, 6)
    assert host._batches([x[:, ::2, :]])[0].shape == (2, 2, 4, 5, 6)
    assert host._batches([x[0, 0, 0]])[0].shape == (1, 5, 6)
    assert host._batches([x.transpose(2, 1, 0, 3, 4)])[0].shape == (3, 2, 4, 5, 6)


# ---- a fake card ------------------------------------------------------------------------------------------------


class Card:
    """A card in host memory. What is enqueued on a stream runs when something waits for it, or at random.

    Args:
        seed: Of the random runs; ``None``: as late as the order of streams and events allows.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.random = None if seed is None else random.Random(seed)
        self.queues: dict[int, list[Any]] = {}
        self.done: dict[int, int] = {}
        self.memory: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.most_bytes = self.uploaded_bytes = self.multiplies = 0
        self.fail_in = -1  # calls until the card is out of memory
        self.handles = itertools.count(1)

    # streams

    def create_stream(self) -> int:
        stream = next(self.handles)
        self.queues[stream], self.done[stream] = [], 0
        return stream

    def destroy_stream(self, stream: int) -> None:
        self.synchronize(stream)
        del self.queues[stream]

    def enqueue(self, stream: int, work: Any) -> None:
        self.queues[stream].append(work)
        if self.random:
            some = self.random.choice(list(self.queues))
            self.advance(some, self.random.randint(0, len(self.queues[some])))

    def advance(self, stream: int, upto: int) -> None:
        while self.done[stream] < upto:
            work = self.queues[stream][self.done[stream]]
            self.done[stream] += 1
            if isinstance(work, tuple):
                self.advance(*work)
            else:
                work()

    def synchronize(self, stream: int) -> None:
        self.advance(stream, len(self.queues[stream]))

    # memory

    def _may_fail(self) -> None:
        self.fail_in -= 1
        if self.fail_in == 0:
            raise errors.CudaError("fake", "CUDA_ERROR_OUT_OF_MEMORY", "as the test asked")

    def allocate(self, nbytes: int, stream: int) -> int:
        self._may_fail()
        memory = (ctypes.c_ubyte * nbytes)()
        self.enqueue(stream, lambda: ctypes.memset(memory, 255, nbytes))  # NaN; it may be used from here on
        address = ctypes.addressof(memory)
        self.memory[address] = memory
        self.most_bytes = max(self.most_bytes, nbytes)
        return address

    def free(self, pointer: int, stream: int) -> None:
        memory = self.memory[pointer]
        assert memory is not None
        self.enqueue(stream, lambda: ctypes.memset(memory, 255, len(memory)))
        self.enqueue(stream, lambda: self.memory.pop(pointer))

    def allocate_host(self, nbytes: int) -> int:
        self._may_fail()
        memory = (ctypes.c_ubyte * nbytes)()
        ctypes.memset(memory, 255, nbytes)
        self.pinned[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free_host(self, pointer: int) -> None:
        del self.pinned[pointer]

    def check(self, where: dict[int, Any], pointer: int, nbytes: int) -> None:
        assert any(start <= pointer and pointer + nbytes <= start + len(x) for start, x in where.items())

    def copy_to_device(self, pointer: int, source: int, nbytes: int, stream: int) -> None:
        self._may_fail()
        self.check(self.memory, pointer, nbytes)
        self.check(self.pinned, source, nbytes)
        self.uploaded_bytes += nbytes
        self.enqueue(stream, lambda: ctypes.memmove(pointer, source, nbytes))

    def copy_to_host(self, target: int, pointer: int, nbytes: int, stream: int) -> None:
        self._may_fail()
        self.check(self.memory, pointer, nbytes)
        self.check(self.pinned, target, nbytes)
        self.enqueue(stream, lambda: ctypes.memmove(target, pointer, nbytes))

    def multiply(self, a: View, b: View, c: View, factors: Factors, stream: int) -> None:
        self._may_fail()
        self.multiplies += 1
        x, y, z = (host._ndarray(view) for view in (a, b, c))
        assert x.shape[:-2] == y.shape[:-2] == z.shape[:-2]

        def work() -> None:
            real = x.dtype.kind != "c"
            alpha, beta = (v.real if real else v for v in (complex(factors.alpha), complex(factors.beta)))
            product = np.matmul(x.conj() if factors.conj_a else x, y.conj() if factors.conj_b else y) * alpha
            z[...] = product if beta == 0 else product + beta * z

        self.enqueue(stream, work)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        card = self

        class Event:
            def __init__(self) -> None:
                self.mark: tuple[int, int] | None = None

            def record(self, stream: int) -> None:
                self.mark = (stream, len(card.queues[stream]))

            def wait(self, stream: int) -> None:
                if self.mark:
                    card.enqueue(stream, self.mark)

            def synchronize(self) -> None:
                if self.mark:
                    card.advance(*self.mark)

        for name in ("allocate", "free", "allocate_host", "free_host", "copy_to_device", "copy_to_host",
                     "create_stream", "destroy_stream", "synchronize"):  # fmt: skip
            patch.setattr(host.driver, name, getattr(self, name))
        patch.setattr(host.driver, "Event", Event)
        patch.setattr(host.driver, "on_device", lambda ordinal: nullcontext())
        patch.setattr(host.driver, "relaxed_capture", nullcontext)
        patch.setattr(host.driver, "current_device", lambda: None)
        patch.setattr(host.driver, "free_memory", lambda: (8 * GIB, 10 * GIB))
        patch.setattr(host, "multiply", self.multiply)
        patch.setattr(host, "_lanes", {})


@pytest.fixture(params=[None, 1], ids=["latest", "random"])
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    made = Card(request.param)
    made.install(monkeypatch)
    monkeypatch.delenv("BLISGEMM_CUDA_HOST_BYTES", raising=False)
    yield made
    host.release()
    assert not made.memory and not made.pinned and not made.queues


def call(
    a: Any, b: Any, c: Any = None, out: Any = None, alpha: complex = 1, beta: complex = 0, trans: str = "NN"
) -> Any:  # fmt: skip
    """Call gemm_on_host as ``api.gemm`` does, with arrays."""
    x, y = (v.swapaxes(-1, -2) if t in "TC" else v for v, t in ((a, trans[0]), (b, trans[1])))
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*batch, x.shape[-2], y.shape[-1])
    views = [view_of("x", np.broadcast_to(v, (*batch, *v.shape[-2:]))) for v in (x, y)]
    of_c, of_out = (None if v is None else view_of("x", v) for v in (c, out))
    factors = Factors(complex(alpha), complex(beta), trans[0] in "CR", trans[1] in "CR")
    return gemm_on_host(views[0], views[1], of_c, of_out, shape, factors, out)


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    x = rng.integers(-4, 5, shape).astype(dtype)
    return x + 1j * rng.integers(-4, 5, shape).astype(dtype) if np.dtype(dtype).kind == "c" else x


CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((1, 1), (1, 1)), ((5, 3), (3, 7)), ((37, 41), (41, 29)), ((64, 1), (1, 64)), ((1, 700), (700, 1)),
    ((130, 67), (67, 3)), ((2, 3), (3, 500)), ((6, 9, 8), (6, 8, 5)), ((2, 3, 9, 8), (8, 5)), ((9, 8), (4, 8, 5)),
    ((3, 1, 9, 8), (1, 5, 8, 2)), ((3, 1, 40, 30), (4, 30, 33)), ((40, 2, 2), (40, 2, 2)), ((2, 1, 3, 4), (1, 7, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "budget"),
    [("float32", None), ("float32", 4096), ("float64", 20_000), ("complex64", 8192), ("complex128", 30_000)],
)
def test_products_are_exact_in_any_steps(
    card: Card, monkeypatch: pytest.MonkeyPatch, dtype: str, budget: int | None
) -> None:
    if budget:
        monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", str(budget))
        monkeypatch.setattr(host, "_CHUNK_BYTES", 256)
    rng = np.random.default_rng(5)
    for of_a, of_b in CASES:
        for trans, storage in (("NN", "C"), ("TN", "F"), ("NC", "reversed"), ("RT", "sliced")):
            a, b = whole_numbers(rng, of_a, dtype), whole_numbers(rng, of_b, dtype)
            left, right = (x.conj() if t in "CR" else x for x, t in ((a, trans[0]), (b, trans[1])))
            a, b = (x.swapaxes(-1, -2).copy() if t in "TC" else x for x, t in ((a, trans[0]), (b, trans[1])))
            product = np.matmul(left, right)
            c = whole_numbers(rng, product.shape, dtype)
            a, b, c = (stored(x, storage) for x in (a, b, c))
            found = call(a, b, trans=trans)
            assert found.dtype == dtype and found.flags.c_contiguous and (found == product).all()
            out = stored(np.full(product.shape, np.nan, dtype), storage)
            frame = out.base if storage == "sliced" else None
            expected = 2 * product - 3 * c
            assert call(a, b, c, out, alpha=2, beta=-3, trans=trans) is out
            assert (out == expected).all()
            if frame is not None:  # nothing beside it was written
                assert np.isnan(frame).sum() == frame.size - out.size
            assert (call(a, b, c, alpha=2, beta=-3, trans=trans) == expected).all()
            call(a, b, c, c, alpha=2, beta=-3, trans=trans)  # in place
            assert (c == expected).all()
    assert card.most_bytes <= (budget or 5 * GIB)


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


def test_a_and_b_are_uploaded_once_where_they_fit(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "_LEAST_TILE", 8)
    monkeypatch.setattr(division, "_MOST_TILE", 8)
    monkeypatch.setattr(host, "_SMALL_BYTES", 0)
    a, b = np.ones((64, 16)), np.ones((16, 40))
    assert (call(a, b) == 16).all()
    assert card.multiplies == 8 * 5 and card.uploaded_bytes == a.nbytes + b.nbytes


def test_a_shared_operand_of_a_batch_is_uploaded_once(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_SMALL_BYTES", 0)
    monkeypatch.setattr(division, "_STEP_BYTES", 4096)
    a, b = np.ones((16, 16)), np.ones((50, 16, 8))
    assert (call(a, b) == 16).all()
    assert 1 < card.multiplies < 50 and card.uploaded_bytes == a.nbytes + b.nbytes


def test_a_small_product_takes_one_copy_there_and_one_product(card: Card) -> None:
    a, b = np.ones((3, 1, 64, 20)), np.ones((5, 20, 33))
    assert (call(a, b) == 20).all()
    assert card.multiplies == 1 and len(card.pinned) == 1


@pytest.mark.parametrize("budget", ["4096", None])
def test_out_may_share_memory_with_the_operands(
    card: Card, monkeypatch: pytest.MonkeyPatch, budget: str | None
) -> None:
    if budget:
        monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", budget)
    rng = np.random.default_rng(6)
    for make in (
        lambda x: (x[:30, :30], x[30:60, :30], x[:30, 30:60], x[:30, :30]),  # out is a
        lambda x: (x[:30, :30], x[30:60, :30], x[:30, 30:60], x[31:61, 1:31]),  # out is b, a row and a column on
        lambda x: (x[:30, :30], x[30:60, :30], x[:30, 30:60], x[:30, 30:60].T),  # out is c, turned
        lambda x: (x[:30, :30], x[30:60, :30], x[:30, 30:60], x[29::-1, 60:30:-1]),
        lambda x: (x[:60:2, :30], x[30:60, :30], x[:30, 30:60], x[1:61:2, :30]),  # rows in between
    ):
        memory = rng.integers(-4, 5, (64, 64)).astype(np.float64)
        a, b, c, out = make(memory)
        expected = a @ b + 2 * c
        call(a, b, c, out, beta=2)
        assert (out == expected).all()


# ---- zero rules -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise AssertionError("the driver was called")

    for name in ("current_device", "on_device", "free_memory"):
        monkeypatch.setattr(host.driver, name, refuse)


@pytest.mark.usefixtures("no_card")
def test_what_reads_neither_a_nor_b_needs_no_card() -> None:
    nan, c = np.full((3, 4), np.nan), np.arange(12.0).reshape(3, 4)
    square = np.full((4, 4), np.nan)
    assert (call(nan, square, alpha=0) == 0).all()
    assert (call(nan, square, c, alpha=0, beta=2) == 2 * c).all()
    assert (call(nan, square, nan, out=nan.copy(), alpha=0, beta=-0.0) == 0).all()
    out = np.full((3, 4), np.nan)
    empty = np.empty((3, 0)), np.empty((0, 4))
    assert call(*empty, out=out) is out and (out == 0).all() and not np.signbit(out).any()
    assert (call(*empty, c, beta=3) == 3 * c).all()
    turning = tuple(x + 0j for x in empty)
    assert (call(*turning, c + 0j, beta=1j) == 1j * c).all()
    call(*empty, c[::-1], out=c, beta=2)  # c and out overlap
    assert (c == 2 * np.arange(12.0).reshape(3, 4)[::-1]).all()


@pytest.mark.usefixtures("no_card")
def test_an_empty_result_needs_no_card() -> None:
    assert call(np.ones((0, 3)), np.ones((3, 4))).shape == (0, 4)
    assert call(np.ones((2, 3)), np.ones((3, 0))).shape == (2, 0)
    assert call(np.ones((0, 2, 3)), np.ones((3, 5))).shape == (0, 2, 5)


@pytest.mark.parametrize("budget", ["4096", None])
def test_beta_zero_ignores_nan_in_c_and_out(card: Card, monkeypatch: pytest.MonkeyPatch, budget: str | None) -> None:
    if budget:
        monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", budget)
    nan = np.full((50, 60), np.nan)
    assert (call(np.ones((50, 70)), np.ones((70, 60)), nan, nan.copy()) == 70).all()
    assert (call(np.ones((50, 70)), np.ones((70, 60)), nan, nan, beta=-0.0) == 70).all()


@pytest.mark.parametrize("budget", ["4096", None])
def test_nan_and_infinity_propagate(card: Card, monkeypatch: pytest.MonkeyPatch, budget: str | None) -> None:
    if budget:
        monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", budget)
    a, b = np.ones((50, 70)), np.zeros((70, 60))
    a[7, 3], b[5, 9] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        found = call(a, b)
    assert np.isnan(found).sum() == 60 + 50 - 1


# ---- failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "many", "-5", "1e9", "4095", "8 GiB", "٤٠٩٦"])
def test_an_impossible_budget_is_refused(card: Card, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", text)
    with pytest.raises(errors.OverrideError, match="BLISGEMM_CUDA_HOST_BYTES: expected a whole number of bytes"):
        call(np.ones((2, 2)), np.ones((2, 2)))


def test_the_budget_is_a_part_of_all_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, budget in ((80, 40), (60, 40), (40, 20), (6, 5), (0, 0)):
        monkeypatch.setattr(host.driver, "free_memory", lambda free=free: (free * GIB, 80 * GIB))
        assert host._budget() == max(4096, budget * GIB)


def test_a_failure_frees_the_card_and_leaves_the_next_product_right(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    a, b = whole_numbers(rng, (40, 50), "float64"), whole_numbers(rng, (50, 30), "float64")
    for budget in (None, "8192"):
        if budget:
            monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", budget)
        for calls in itertools.count(1):
            card.fail_in = calls
            try:
                found = call(a, b)
            except errors.CudaError:
                for stream in list(card.queues):
                    assert card.done[stream] == len(card.queues[stream]) or stream == host._lanes[0].streams[1]
                card.fail_in = -1
                assert (call(a, b) == a @ b).all()
                assert len([x for x in card.memory.values() if len(x) != 2 * host._SMALL_BYTES]) <= 1
            else:
                card.fail_in = -1
                assert (found == a @ b).all()
                assert calls > 3
                break


def test_out_must_be_an_array() -> None:
    x = np.ones((2, 2))
    view = view_of("x", x)
    with pytest.raises(errors.BlisgemmTypeError, match="out: expected a NumPy array"):
        gemm_on_host(view, view, None, view, (2, 2), Factors(), [[1.0, 2.0], [3.0, 4.0]])


def test_threads_take_turns(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLISGEMM_CUDA_HOST_BYTES", "8192")
    rng = np.random.default_rng(8)
    operands = [(whole_numbers(rng, (33, 40), "float32"), whole_numbers(rng, (40, 21), "float32")) for _ in range(6)]
    found: list[Any] = [None] * len(operands)

    def work(number: int) -> None:
        found[number] = call(*operands[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((x == a @ b).all() for x, (a, b) in zip(found, operands, strict=True))


def test_large_copies_by_several_threads_are_whole(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_ALONE_BYTES", 1000)
    monkeypatch.setattr(host, "_SMALL_BYTES", 0)
    rng = np.random.default_rng(9)
    for of_a, of_b in (((200, 150), (150, 100)), ((300, 5, 6), (300, 6, 7)), ((20, 20000), (20000, 3))):
        a, b = whole_numbers(rng, of_a, "float64"), whole_numbers(rng, of_b, "float64")
        host._lane_of(0).threads = 3
        assert (call(a, b) == np.matmul(a, b)).all()


def test_vectors_of_numpy_are_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from blisgemm.cuda import api

    def product(a: View, b: View, c: Any, out_view: View, shape: Any, factors: Factors, out: Any) -> Any:
        host._ndarray(out_view)[...] = host._ndarray(a) @ host._ndarray(b)
        return out

    monkeypatch.setattr(host, "gemm_on_host", product)
    rng = np.random.default_rng(0)
    for shapes in (
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((5, 3), (3,)),
        ((2, 5, 3), (3,)),
        ((3,), (2, 3, 4)),
        ((2, 1, 5, 3), (3,)),
    ):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes)
        want = np.matmul(a, b)
        got = api.matmul(a, b)
        assert np.shape(got) == want.shape
        assert (got == want).all()
        assert type(got) is type(want)
        if want.shape:
            out = np.empty(want.shape[::-1], np.float32).T
            assert api.matmul(a, b, out=out) is out
            assert (out == want).all()
    with pytest.raises(ValueError, match="out: expected shape"):
        api.matmul(a, b, out=np.empty(3, np.float32))
