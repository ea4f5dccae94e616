"""The CPU ladder: every rung exact, short and in its place; its accesses those of its own text; the command that times.

Knows: what a rung must compute, and how its text is run on things that record. Does not know: times.
"""

from __future__ import annotations

import ast
import builtins
import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from support import REPOSITORY, chosen_kernel, run_python

import blisgemm
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError
from blisgemm.ladder import RUNGS, Rung, accesses, r2_loop_order, run, rung_of
from blisgemm.ladder.accesses import A_PACK, B_PACK, READ, WRITE, A, B, C
from blisgemm.plan import make_plan

LINES = 60  # of a rung's file, at most
MR, NR = chosen_kernel("float32").mr, chosen_kernel("float32").nr
SHAPES = (
    (1, 1, 1), (1, 7, 3), (13, 1, 5), (2, 3, 1), (4, 4, 4), (MR - 1, NR - 1, 4), (MR, NR, 5), (MR + 1, NR + 1, 7),
    (2 * MR + 1, 2 * NR + 3, 11), (37, 53, 29), (3 * MR, NR, 64),
)  # fmt: skip
FACTORED = [rung for rung in RUNGS if rung.number >= 7]
BLOCKED = [rung for rung in RUNGS if 5 <= rung.number <= 7]


def name_of(rung: Rung) -> str:
    return rung.short


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rungs 4 to 7 take one kernel for each dtype, as the plan chooses among several by how full tiles are."""

    def plan(m: int, n: int, k: int, dtype: Any, **words: Any) -> Any:
        return make_plan(m, n, k, dtype, kernel=chosen_kernel(np.dtype(dtype).name), **words)

    for rung in RUNGS[4:8]:
        monkeypatch.setattr(rung.module(), "make_plan", plan)


def integers(m: int, n: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(m * 1000 + n).integers(-4, 5, (m, n)).astype(dtype)


def gaps(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return x with strides of no layout: every other row and column of a larger array, rows from the last."""
    around = np.full((2 * x.shape[0], 2 * x.shape[1]), 77, x.dtype)[::-2, ::2]
    around[...] = x
    return around


LAYOUTS = {"C": np.ascontiguousarray, "F": np.asfortranarray, "gaps": gaps}


def check(rung: Rung, m: int, n: int, k: int, dtype: str = "float32", layouts: str = "CCC", **factors: Any) -> None:
    """Multiply small integers, into memory that was NaN unless it counts."""
    a, b, c = integers(m, k, dtype), integers(k, n, dtype), integers(m, n, dtype)
    expected = factors.get("alpha", 1) * (a @ b) + factors.get("beta", 0) * c
    lay = [LAYOUTS.get(layout, gaps) for layout in layouts]
    out = lay[2](c if factors.get("beta") else np.full_like(c, np.nan))
    base = out.base if layouts[2] == "g" else None
    x, y = lay[0](a), lay[1](b)
    run(rung, x, y, out, **factors)
    assert np.array_equal(out, expected), f"{rung.name}, {m, n, k}, {layouts}: {np.argwhere(out != expected)[:1]}"
    assert np.array_equal(x, a) and np.array_equal(y, b)
    if base is not None:
        assert (base == 77).sum() >= base.size - out.size, f"{rung.name} wrote beside C"


# ---- the table --------------------------------------------------------------------------------------------------


def test_importing_the_table_loads_no_compiler() -> None:
    done = run_python("import sys, blisgemm.ladder; print(sorted({'numba', 'llvmlite', 'rich'} & set(sys.modules)))")
    assert done.stdout.strip() == "[]"


def test_every_file_of_a_rung_is_in_the_table_and_in_order() -> None:
    files = sorted(path.stem for path in (REPOSITORY / "blisgemm/ladder").glob("r[0-9]_*.py"))
    assert files == [rung.name for rung in RUNGS]
    assert [rung.number for rung in RUNGS] == list(range(9))
    assert rung_of("r3") is RUNGS[3] and rung_of("r3_register_tile") is RUNGS[3]
    with pytest.raises(BlisgemmValueError, match=r"expected one of r0_triple_loop.*got 'r9'"):
        rung_of("r9")


@pytest.mark.parametrize("rung", RUNGS, ids=name_of)
def test_a_rung_is_short_and_says_what_it_teaches(rung: Rung) -> None:
    source = (REPOSITORY / f"blisgemm/ladder/{rung.name}.py").read_text()
    assert len(source.splitlines()) <= LINES
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    assert text.startswith(f"Rung {rung.number}: ")
    words = ["Question:", "Idea:", "Look at:", "Elsewhere:", "Knows:", "Does not know:"]
    places = [text.find(word) for word in words]
    assert min(places) > 0 and places == sorted(places), dict(zip(words, places, strict=True))
    for what, place in (("LAFF", rung.laff), ("worklog", rung.worklog), ("ulmBLAS", rung.ulmblas)):
        assert not place or what in text, f"{what} {place} is in the table only"


# ---- results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", RUNGS, ids=name_of)
def test_small_integers_are_exact_for_every_shape(rung: Rung) -> None:
    for m, n, k in SHAPES:
        check(rung, m, n, k)


@pytest.mark.parametrize("rung", RUNGS, ids=name_of)
@pytest.mark.parametrize("layouts", ["FFF", "ggg"])
def test_any_layout_is_right(rung: Rung, layouts: str) -> None:
    for m, n, k in ((1, 5, 3), (2 * MR + 1, NR + 3, 9)):
        check(rung, m, n, k, layouts=layouts)


@pytest.mark.parametrize("rung", RUNGS[:8], ids=name_of)
def test_double_precision_is_double(rung: Rung) -> None:
    check(rung, 15, 27, 6, "float64")
    a, b, c = np.full((1, 1), 1 + 2.0**-40), np.ones((1, 1)), np.zeros((1, 1))
    run(rung, a, b, c)
    assert c[0, 0] == a[0, 0]


@pytest.mark.parametrize("order", r2_loop_order.ORDERS)
def test_all_orders_are_exact(order: str) -> None:
    a, b = integers(7, 9), integers(9, 5)
    c = np.full((7, 5), np.nan, np.float32)
    r2_loop_order.in_order(order, a, b, c)
    assert np.array_equal(c, a @ b)


@pytest.mark.parametrize("rung", BLOCKED, ids=name_of)
def test_blocks_of_any_size_are_exact(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rung.module(), "make_plan", partial(rung.module().make_plan, blocking=(2 * MR, 2 * NR, 5)))
    for m, n, k in ((5 * MR + 1, 5 * NR + 2, 13), (2 * MR, 4 * NR, 10), (4 * MR - 1, NR, 4)):
        check(rung, m, n, k)


@pytest.mark.parametrize("rung", FACTORED, ids=name_of)
def test_alpha_and_beta(rung: Rung) -> None:
    for factors in ({"alpha": 3}, {"alpha": -2, "beta": 1}, {"beta": -3.0}, {"alpha": 2, "beta": 0}):
        check(rung, 2 * MR + 1, NR + 1, 6, **factors)


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung.number >= 4], ids=name_of)
def test_from_which_rung_on_the_bits_are_those_of_the_library(rung: Rung) -> None:
    rng = np.random.default_rng(0)
    longest = blisgemm.blocking.KC_MAX["float32"]
    shapes = [(3 * MR, 2 * NR, longest)]  # rung 4: whole tiles, one kc block
    shapes += [(3 * MR, 2 * NR, longest + 90)] if rung.number >= 5 else []  # whole tiles
    shapes += [(3 * MR + 1, 2 * NR + 5, longest + 90)] if rung.number >= 7 else []  # anything
    for m, n, k in shapes:
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
        c = np.full((m, n), np.nan, np.float32)
        for threads in (1, 2) if rung.number == 8 else (1,):
            with blisgemm.num_threads(threads):
                run(rung, a, b, c)
            assert np.array_equal(c, blisgemm.gemm(a, b)), f"{m, n, k}"


def test_the_bits_of_rungs_that_round_twice_differ() -> None:
    if not chosen_kernel("float32").isa.fma:
        pytest.skip("no fma: every rung rounds twice a term")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64), np.float32) for _ in range(2))
    c = np.empty_like(a)
    run("r1", a, b, c)
    assert not np.array_equal(c, blisgemm.gemm(a, b))
    assert np.allclose(c, a @ b, atol=1e-4)


# ---- errors -----------------------------------------------------------------------------------------------------


def _swapped(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(x.astype(x.dtype.newbyteorder()) for x in arrays)


def test_what_a_rung_can_not_take_is_refused_before_it_runs() -> None:
    a, b, c = integers(3, 4), integers(4, 5), np.full((3, 5), 9, np.float32)
    read_only = c.copy()
    read_only.flags.writeable = False
    wrong: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (BlisgemmTypeError, "a: expected an ndarray of float32 or float64", (a.astype(int), b, c), {}),
        (BlisgemmTypeError, "b: .* got float64 beside float32", (a, b.astype(float), c), {}),
        (BlisgemmTypeError, "a: .* got list", ([[1]], b, c), {}),
        (BlisgemmTypeError, "alpha: expected none below rung 7", (a, b, c), {"alpha": 2}),
        (BlisgemmValueError, "a, b, c: expected shapes m x k", (a, b.T.copy(), c), {}),
        (BlisgemmValueError, "a, b, c: expected shapes m x k", (a, b, c.T.copy()), {}),
        (BlisgemmValueError, "a: expected two extents of at least 1", (a[:0], b, c[:0]), {}),
        (BlisgemmValueError, "c: expected a writable array", (a, b, read_only), {}),
        (BlisgemmTypeError, "a: expected an ndarray without a mask", (np.ma.array(a), b, c), {}),
        (BlisgemmTypeError, "c: .* got NoneType", (a, b, None), {}),
        (BlisgemmValueError, "a: expected an aligned array in .* byte order; got dtype", _swapped(a, b, c), {}),
        (BlisgemmValueError, "c: expected elements that share no memory", (a, b, as_strided(c, (3, 5), (4, 4))), {}),
        (BlisgemmValueError, "c: expected elements that share no memory", (a, b, as_strided(c, (3, 5), (0, 4))), {}),
        (BlisgemmValueError, "shares no memory", (a, b, np.concatenate((b, b))[:3].copy()[:, :5]), {}),
    ]
    for error, text, arrays, factors in wrong[:-1]:
        with pytest.raises(error, match=text):
            run("r6", *arrays, **factors)
    for error, text, more in (
        (BlisgemmTypeError, "alpha: expected a real number; got 'x'", {"alpha": "x"}),
        (BlisgemmTypeError, "beta: expected a real number; got 1j", {"beta": 1j}),
        (BlisgemmTypeError, "alpha: expected a real number; got array", {"alpha": np.ones(2)}),
        (BlisgemmTypeError, "alpha: expected a real number; got None", {"alpha": None}),
        (BlisgemmTypeError, "threads: expected alpha and beta only", {"threads": 2}),
    ):
        for rung in ("r7", "r8"):
            with pytest.raises(error, match=text):
                run(rung, a, b, c, **more)
    for no_rung in (3, None, RUNGS):
        with pytest.raises(BlisgemmValueError, match="rung: expected one of r0_triple_loop"):
            run(no_rung, a, b, c)  # type: ignore[arg-type]
    square = integers(4, 4)
    with pytest.raises(BlisgemmValueError, match="shares no memory"):
        run("r1", square, square.copy(), square)
    assert (c == 9).all()


# ---- accesses ---------------------------------------------------------------------------------------------------


class Recording:
    """A matrix or a packed buffer, or a part of it, that notes each element that is read or written."""

    def __init__(self, log: list[Any], operand: int, shape: tuple[int, ...], strides: tuple[int, ...], first: int = 0):
        self.log, self.operand, self.shape, self.strides, self.first = log, operand, shape, strides, first
        self.dtype = SimpleNamespace(type=float)

    @property
    def T(self) -> Recording:
        return Recording(self.log, self.operand, self.shape[::-1], self.strides[::-1], self.first)

    def part(self, key: Any) -> Recording:
        keys = (*(key if isinstance(key, tuple) else (key,)), slice(None), slice(None))
        first, shape, strides = self.first, [], []
        for part, extent, stride in zip(keys, self.shape, self.strides, strict=False):
            if isinstance(part, slice):
                start, stop, _ = part.indices(extent)
                first += start * stride
                shape.append(stop - start)
                strides.append(stride)
            else:
                assert 0 <= part < extent, f"{part} of {extent} in {self.operand}"
                first += part * stride
        return Recording(self.log, self.operand, tuple(shape), tuple(strides), first)

    def note(self, what: int) -> None:
        for index in np.ndindex(self.shape):
            place = self.first + sum(i * stride for i, stride in zip(index, self.strides, strict=True))
            self.log.append((self.operand, place, what))

    def __getitem__(self, key: Any) -> Any:
        part = self.part(key)
        if part.shape:
            return part
        part.note(READ)
        return 0.0

    def __setitem__(self, key: Any, value: Any) -> None:
        self.part(key).note(WRITE)


def recorded_microkernel(  # the words of ``bind``, as accesses
    kernel: Any, access: str, m_cur: int, n_cur: int, kc_cur: int, alpha: Any, a: Any, b: Any, beta: Any, c: Any,
    conj: int,
) -> None:  # fmt: skip
    for p in range(kc_cur):
        for i in range(kernel.mr):
            a[p * kernel.mr + i] if access == "packed" else a[i, p]
        for j in range(kernel.nr):
            b[p * kernel.nr + j] if access == "packed" else b[p, j]
    for i in range(m_cur):
        for j in range(n_cur):
            if beta != 0:
                c[i, j]
            c[i, j] = 0


def recorded_pack(kernel: Any, width: int, x: Any, packed: Any) -> None:
    for row in range(0, x.shape[0], width):
        for p in range(x.shape[1]):
            for r in range(width):
                if row + r < x.shape[0]:
                    x[row + r, p]
                packed[row // width, p * width + r] = 0


def record(
    rung: Rung, m: int, n: int, k: int, order: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Run a rung's own text, as plain Python, on matrices that record."""
    log: list[Any] = []
    a, b, c = (Recording(log, x, e, (e[1], 1)) for x, e in ((A, (m, k)), (B, (k, n)), (C, (m, n))))
    texts = {name: text.py_func for name, text in r2_loop_order._TEXTS.items()}
    monkeypatch.setattr(r2_loop_order, "_TEXTS", texts)
    monkeypatch.setattr(r2_loop_order, "multiply", texts["ipj"])
    module = rung.module()
    if rung.number < 2:
        getattr(module.multiply, "py_func", module.multiply)(a, b, c)
        return log
    if rung.number == 2:
        r2_loop_order.in_order(order, a, b, c)
        return log
    mr, nr = sizes.get("mr", 4), sizes.get("nr", 4)
    if rung.number == 3:
        module.tiles.py_func(a, b, c)
    else:
        kernel = SimpleNamespace(mr=mr, nr=nr, one=1.0, zero=0.0)
        monkeypatch.setattr(module, "microkernel", recorded_microkernel)
        if rung.number == 4:
            module.tiles.py_func(kernel, a, b, c)
        else:
            mc, nc, kc = sizes["mc"], sizes["nc"], min(sizes["kc"], k)
            a_pack = Recording(log, A_PACK, (mc // mr, kc * mr), (kc * mr, 1))
            b_pack = Recording(log, B_PACK, (nc // nr, kc * nr), (kc * nr, 1))
            if rung.number == 5:
                module.blocks.py_func(kernel, mc, nc, kc, a, b, c)
            elif rung.number == 6:
                monkeypatch.setattr(module, "pack", module.pack.py_func)
                module.blocks.py_func(kernel, mc, nc, kc, a, b, c, a_pack, b_pack)
            else:
                monkeypatch.setattr(module, "pack_a", lambda kernel, x, out: recorded_pack(kernel, mr, x, out))
                monkeypatch.setattr(module, "pack_b", lambda kernel, x, out: recorded_pack(kernel, nr, x.T, out))
                module.blocks.py_func(kernel, mc, nc, kc, 1.0, a, b, 0.0, c, a_pack, b_pack)
    if rung.number < 7:
        from blisgemm.ladder.r3_register_tile import borders

        borders(mr, nr, a, b, c)
    return log


STREAMS = [(rung, order) for rung in RUNGS[:8] for order in (r2_loop_order.ORDERS if rung.number == 2 else ("ijp",))]
EXTENTS = ((7, 11, 5), (1, 1, 1), (8, 12, 6), (3, 13, 9))


def blocks_of(rung: Rung, order: str) -> dict[str, Any]:
    tiny = {"mr": 2, "nr": 3, "mc": 4, "nc": 6, "kc": 4}
    return {"order": order} if rung.number == 2 else {x: tiny[x] for x in tiny if rung.number > 4 or x in ("mr", "nr")}


def sizes_of(rung: Rung, order: str) -> dict[str, Any]:
    return {} if rung.number < 2 or rung.number == 3 else blocks_of(rung, order)


@pytest.mark.parametrize(("rung", "order"), STREAMS, ids=lambda x: getattr(x, "short", x))
def test_accesses_are_those_of_the_rungs_own_text(rung: Rung, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for m, n, k in EXTENTS:
        sizes = sizes_of(rung, order)
        found = accesses.accesses(rung.short, m, n, k, **sizes)
        expected = record(rung, m, n, k, order, sizes, monkeypatch)
        monkeypatch.undo()
        assert found.shape == (len(expected), 3)
        assert found.tolist() == [list(row) for row in expected]


def products_of(stream: list[list[int]], n: int, k: int) -> Counter[tuple[int, int, int]]:
    """Return how often each (i, j, p) is added to C, by what was loaded since C was stored before."""
    found: Counter[tuple[int, int, int]] = Counter()
    buffers: dict[tuple[int, int], tuple[int, int] | None] = {}
    loaded: dict[int, list[tuple[int, int]]] = {A: [], B: []}
    stale = {A: False, B: False}
    last: tuple[int, int, int] | None = None
    for operand, index, what in stream:
        source: tuple[int, int] | None = (operand, index)
        if operand in (A_PACK, B_PACK):
            if what == WRITE:
                packs = last is not None and last[0] in (A, B) and last[2] == READ
                buffers[operand, index] = last[:2] if packs and last else None
                if packs and last:
                    loaded[last[0]].pop()
                last = None
                continue
            source = buffers[operand, index]
        if operand == C:
            if what == WRITE:
                i, j = divmod(index, n)
                rows = {p for x, p in (divmod(place, k) for _, place in loaded[A]) if x == i}
                columns = Counter(p for p, y in (divmod(place, n) for _, place in loaded[B]) if y == j and p in rows)
                found.update({(i, j, p): times for p, times in columns.items()})
                stale = {A: True, B: True}
        elif source is not None:
            if stale[source[0]]:
                loaded[source[0]], stale[source[0]] = [], False
            loaded[source[0]].append(source)
        last = operand, index, what
    return found


@pytest.mark.parametrize(("rung", "order"), STREAMS, ids=lambda x: getattr(x, "short", x))
def test_accesses_make_every_product_once(rung: Rung, order: str) -> None:
    for m, n, k in EXTENTS:
        stream = accesses.accesses(rung.short, m, n, k, **sizes_of(rung, order)).tolist()
        expected = Counter((i, j, p) for i in range(m) for j in range(n) for p in range(k))
        assert products_of(stream, n, k) == expected, f"{m, n, k}"


def test_accesses_are_as_many_as_the_textbook_says() -> None:
    m, n, k, mr, nr = 12, 18, 10, 2, 3

    def loads(rung: str, **blocks: Any) -> Counter[tuple[int, int]]:
        stream = accesses.accesses(rung, m, n, k, **blocks)
        return Counter((operand, what) for operand, _, what in stream.tolist())

    naive = loads("r1")
    assert naive[A, READ] + naive[B, READ] == 2 * m * n * k and naive[C, WRITE] == m * n
    rows = loads("r2")
    assert (rows[A, READ], rows[B, READ], rows[C, READ]) == (m * k, m * n * k, m * n * k)
    tiles = loads("r4", mr=mr, nr=nr)
    assert tiles[A, READ] + tiles[B, READ] == m * n * k // nr + m * n * k // mr
    assert tiles[C, READ] == 0 and tiles[C, WRITE] == m * n
    packed = loads("r7", mr=mr, nr=nr, mc=6, nc=9, kc=5)
    assert packed[A, READ] == packed[A_PACK, WRITE] == m * k  # packed once a panel
    assert packed[B, READ] == packed[B_PACK, WRITE] == n * k * (m // 6)  # and B once for each panel of A
    assert packed[A_PACK, READ] == m * n * k // nr and packed[B_PACK, READ] == m * n * k // mr
    assert packed[C, READ] == m * n and packed[C, WRITE] == 2 * m * n  # two kc blocks


def test_chunks_are_the_same_accesses() -> None:
    whole = accesses.accesses("r7", 9, 8, 7, mr=2, nr=4, mc=4, nc=4, kc=3)
    parts = list(accesses.chunks("r7", 9, 8, 7, size=100, mr=2, nr=4, mc=4, nc=4, kc=3))
    assert [len(part) for part in parts[:-1]] == [100] * (len(parts) - 1) and len(parts) > 3
    assert np.array_equal(np.concatenate(parts), whole)
    assert accesses.count("r7", 9, 8, 7, mr=2, nr=4, mc=4, nc=4, kc=3) == len(whole)
    assert np.array_equal(accesses.accesses("r8", 30, 40, 50), accesses.accesses("r7", 30, 40, 50))


@pytest.mark.parametrize(
    ("rung", "blocks", "error"),
    [
        ("r0", {"mr": 4}, BlisgemmTypeError), ("r2", {"order": "ikj"}, BlisgemmValueError),
        ("r4", {"mc": 8}, BlisgemmTypeError), ("r6", {"mr": 4, "mc": 6}, BlisgemmValueError),
        ("r3", {"mr": 0}, BlisgemmValueError), ("r9", {}, BlisgemmValueError),
        ("r3", {"mr": "a"}, BlisgemmTypeError), ("r5", {"mr": 2.5}, BlisgemmTypeError),
        ("r6", {"mr": 10**30, "mc": 10**30}, BlisgemmValueError),
    ],
)  # fmt: skip
def test_blocks_that_a_rung_has_not_are_refused(rung: str, blocks: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        accesses.accesses(rung, 8, 8, 8, **blocks)
    with pytest.raises(BlisgemmValueError, match="at least 1"):
        accesses.accesses("r0", 8, 8, 0)
    for shape in ((10**5, 10**5, 10**5), (2**16, 1, 2**15), (2**40, 1, 1)):  # too long; indices of more than 31 bits
        with pytest.raises(BlisgemmValueError, match="m, n, k: expected at most 68,719,476,736 terms and matrices"):
            accesses.count("r0", *shape)
    with pytest.raises(BlisgemmValueError, match="size: expected an integer >= 1; got 0"):
        next(accesses.chunks("r0", 2, 2, 2, size=0))


# ---- the command ------------------------------------------------------------------------------------------------


def command(*words: str) -> int:
    """Run a command."""
    pytest.importorskip("rich")
    from blisgemm.cli import main

    return main(words)


def ladder(*words: str) -> int:
    """Run the command on tiny matrices."""
    return command("ladder", "--n", "24", "--seconds", "0", *words)


def test_the_command_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- ladder:begin -->\nold\n<!-- ladder:end -->\nafter\n")
    words = ["--threads", "1", "--json", str(tmp_path / "a.json"), "--write-readme", str(readme)]
    assert ladder(*words) == 0
    out = capsys.readouterr().out
    for rung in RUNGS:
        assert f"{rung.short} " in out
    assert "g0, g1" in out and "need a GPU, and bench/cuda_ladder.py" in out
    found = json.loads((tmp_path / "a.json").read_text())
    assert [x["name"] for x in found["rungs"]] == [rung.short for rung in RUNGS]
    assert [x["name"] for x in found["orders"]] == list(r2_loop_order.ORDERS)
    for x in found["rungs"] + found["orders"]:
        assert x["gflops"] > 0 and x["of_numpy"] > 0
        assert x["of_peak"] == pytest.approx(x["gflops"] / found["peak_gflops"])
    text = readme.read_text()
    assert text.startswith("before\n<!-- ladder:begin -->\n| rung") and text.endswith("<!-- ladder:end -->\nafter\n")
    for rung in RUNGS:
        assert f"[{rung.short}](blisgemm/ladder/{rung.name}.py): {rung.title}" in text


def test_the_picture_shows_every_rung_and_order(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from blisgemm.bench.rungs import Climb, Timed
    from blisgemm.bench.rungs_picture import draw_climb

    rungs = [
        Timed(rung.short, rung.title, 64 if rung.number == 0 else 512, 1, 2.0**rung.number, 0.1, 0.2) for rung in RUNGS
    ]
    rungs.append(Timed("r8", "threads", 512, 2, 300.0, 0.5, None))
    orders = [Timed(order, order, 512, 1, 1.0 + i, 0.1, 0.2) for i, order in enumerate(r2_loop_order.ORDERS)]
    draw_climb(tmp_path / "a.svg", Climb("float32", 512, "CPU time", 300.0, tuple(rungs), tuple(orders)), "a machine")
    texts = "\n".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())
    for word in [rung.title for rung in RUNGS] + list(r2_loop_order.ORDERS) + ["(n = 64)", "(2 threads)", "300"]:
        assert word in texts


def test_a_wrong_rung_stops_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(a: Any, b: Any, c: Any) -> None:
        c[...] = a @ b
        c[-1, -1] += 1

    monkeypatch.setattr(rung_of("r6").module(), "multiply", wrong)
    assert ladder("--threads", "1") == 1
    assert "WRONG r6" in capsys.readouterr().out


def test_the_list_names_the_counterparts_and_the_gpu_rungs(capsys: pytest.CaptureFixture[str]) -> None:
    from blisgemm.cuda.ladder import RUNGS as GPU_RUNGS

    assert ladder("--list") == 0
    out = capsys.readouterr().out
    for rung in (*RUNGS, *GPU_RUNGS):
        assert f"{rung.name}.py" in out
    for rung in RUNGS:
        assert rung.laff in out and rung.worklog in out and rung.ulmblas in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--n", "3"), "at least 16"), (("--dtype", "c64"), "invalid choice"), (("--threads", "0"), "from 1 to"),
        (("--seconds", "x"), "at least 0"), (("--plot", "/nowhere/a.png"), "existing folder"),
        (("--write-readme", "/nowhere.md"), "isn't there"), (("--json", "."), "expected a file; . is a folder"),
        (("--plot", "."), "expected a file; . is a folder"),
    ],
)  # fmt: skip
def test_words_that_make_no_sense(words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ladder(*words) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_markers_are_counted_before_the_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blisgemm.bench.rungs.climb", None)
    readme = tmp_path / "README.md"
    readme.write_text("<!-- ladder:begin -->\n")
    assert ladder("--write-readme", str(readme)) == 2
    found = capsys.readouterr()
    assert "<!-- ladder:end -->; got 1 and 0" in found.err and found.out == ""


@pytest.mark.parametrize("words", [["ladder"], ["bench", "--shapes", "8"], ["roofline"]])
def test_a_picture_of_no_known_format_is_refused_before_the_measuring(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert command(*words, "--plot", str(tmp_path / "a.cake")) == 2
    found = capsys.readouterr()
    assert "error: --plot: expected a file that ends in one of ." in found.err
    assert found.out == "" and ".png" in found.err and found.err.count("\n") == 1


def test_a_place_that_turns_out_not_to_be_one_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("no folder that takes no file, whoever writes")
    assert command("explain", "2", "2", "2", "--html", "/proc/x.html") == 2
    assert capsys.readouterr().err.startswith("blisgemm explain: error: html: cannot write /proc/x.html: ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blisgemm.bench.rungs.climb", lambda *_: None)
        patch.setattr("blisgemm.cli.ladder._print_climb", lambda *_: None)
        patch.setattr("blisgemm.cli.ladder._json", lambda _: "{}")
        assert ladder("--json", "/proc/x.json") == 2
    assert capsys.readouterr().err == "blisgemm ladder: error: /proc/x.json: No such file or directory\n"


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args: Any, **keywords: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return imported(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert ladder("--plot", str(tmp_path / "a.png")) == 2
    assert "pip install 'blisgemm[plot]'" in capsys.readouterr().err
