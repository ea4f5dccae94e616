"""The textbook page as plain Python: its five loops over NumPy's meaning of their words, nothing compiled.

Every kernel of the catalog is tried on every host, since no code of it runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import draw

from blisgemm import loops, pack
from blisgemm.blocking import Blocking
from blisgemm.machine import current
from blisgemm.plan import Plan
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
    kernel: KernelSpec, access: str, a: np.ndarray, b: np.ndarray, blocking: tuple[int, int, int, int], nb: int,
    members: int,
) -> np.ndarray:  # fmt: skip
    """Return a times b by the five loops, run by a team's members one after another, or by one thread without a team.

    What is not to be read is NaN: the buffers, C, and for ``half`` the whole of A's packed panel isn't there.

    Args:
        nb: columns packed together. members: of the team; 0: no team.
    """
    c = np.full((a.shape[0], b.shape[1]), np.nan, a.dtype)
    one, zero = kernel.one, kernel.zero
    a_packs, b_packs = buffers(kernel, access, a, b, blocking, nb, members)
    if members == 0:
        loops.five_loops(kernel, access, blocking, one, a, b, zero, c, 0, a_packs[0], b_packs[0])
    work = np.zeros(2, np.intp)
    for _ in range(members):
        loops.five_loops_together(kernel, access, blocking, one, a, b, zero, c, 0, a_packs, b_packs, work)
        zero = one  # a late member that did something would do harm
    return c


def buffers(
    kernel: KernelSpec, access: str, a: np.ndarray, b: np.ndarray, blocking: tuple[int, int, int, int], nb: int,
    members: int = 1,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the buffers that a plan of a team (``members`` 0: of one thread) borrows, full of NaN."""
    mc, nc, kc, mt = blocking
    blocks = Blocking(mc, nc, kc, (), (), mt, nb)
    plan = Plan(
        a.shape[0], b.shape[1], a.shape[1], kernel.acc_dtype, "packed", kernel, blocks, current(),
        ic_ways=2 if members else 1, half=access == "half",
    )  # fmt: skip
    of_a, of_b = plan.packed_shapes
    return np.full(of_a, np.nan, a.real.dtype), np.full(of_b, np.nan, a.real.dtype)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_tiles_of_any_blocking_give_the_product_and_late_members_do_nothing(data: st.DataObject) -> None:
    pick: Any = lambda most, name: data.draw(st.integers(1, most), name)  # noqa: E731
    kernel, access = data.draw(st.sampled_from(KERNELS), "kernel"), data.draw(st.sampled_from(("packed", "half")))
    m, n, k = pick(5 * kernel.mr, "m"), pick(5 * kernel.nr, "n"), pick(9, "k")
    mc, nc = pick(6, "mc") * kernel.mr, pick(3, "nc") * kernel.nr
    mt, nb = pick(mc // kernel.mr, "mt") * kernel.mr, pick(3, "nb") * nc
    rng = np.random.default_rng(m + n + k)
    a, b = draw(rng, (m, k), kernel.acc_dtype), draw(rng, (k, n), kernel.acc_dtype)
    got = multiply(kernel, access, a, b, (mc, nc, pick(9, "kc"), mt), nb, pick(4, "members") - 1)
    assert (got == a @ b).all()


def in_plain_threads(monkeypatch: pytest.MonkeyPatch, count: int, member: Callable[[], None]) -> None:
    """Run ``member`` on so many Python threads, which share numbers as compiled ones do."""
    lock = threading.Lock()
    take, mark = loops.take_number, loops.mark_done

    def locked(word: Callable[[Any], Any], work: Any) -> Any:
        with lock:
            return word(work)

    def wait(work: Any, pieces: int) -> None:
        while work[1] < pieces:
            time.sleep(0)

    monkeypatch.setattr(loops, "take_number", partial(locked, take))
    monkeypatch.setattr(loops, "mark_done", partial(locked, mark))
    monkeypatch.setattr(loops, "wait_until_done", wait)
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(member) for _ in range(count)]:
            done.result(timeout=60)


@pytest.mark.parametrize("access", ["packed", "half"])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_element_of_c_meets_each_kc_block_once_and_in_order(
    threads: int, access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KERNELS[0]
    m, n, k, kc = 7 * kernel.mr + 1, 6 * kernel.nr + 1, 10, 4
    met = np.zeros((m, n), int)
    packed: list[tuple[str, int]] = []

    def macrokernel(
        kernel: Any, access: str, alpha: Any, a: Any, a_pack: Any, b: Any, beta: Any, c: Any, kc: int, conj: Any
    ) -> None:
        assert a.shape == (c.shape[0], kc)
        assert (c == c.flat[0]).all(), "one tile has met more blocks than another before"
        assert (beta == 0) == (c.flat[0] == 0)
        c += 1
        time.sleep(0)

    monkeypatch.setattr(loops, "macrokernel", macrokernel)
    monkeypatch.setattr(loops, "pack_a", lambda kernel, panel, out: packed.append(("a", panel.size)))
    monkeypatch.setattr(loops, "pack_b", lambda kernel, block, out: packed.append(("b", block.size)))
    blocking = (4 * kernel.mr, 2 * kernel.nr, kc, 2 * kernel.mr)
    a, b, work = np.zeros((m, k)), np.zeros((k, n)), np.zeros(2, np.intp)
    a_packs, b_packs = buffers(kernel, access, a, b, blocking, 4 * kernel.nr)
    in_plain_threads(
        monkeypatch, threads,
        lambda: loops.five_loops_together(kernel, access, blocking, 1, a, b, 0, met, 0, a_packs, b_packs, work),
    )  # fmt: skip
    assert (met == 3).all()
    assert sum(size for what, size in packed if what == "a") == (m * k if access == "packed" else 0), "A once, or not"
    assert sum(size for what, size in packed if what == "b") == 2 * n * k, "B once for each of two panels of A"


@pytest.mark.parametrize("access", ["packed", "half"])
@pytest.mark.parametrize(("rows", "columns", "k"), [(7, 6, 11), (3, 2, 11), (3, 9, 3), (9, 2, 3), (3, 2, 3)])
def test_nothing_is_packed_over_what_a_tile_still_reads(
    rows: int, columns: int, k: int, access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three threads, each slow at every tile and every share of packing; the products are right at the end too."""
    kernel = KERNELS[0]
    m, n = rows * kernel.mr + 1, columns * kernel.nr + 1
    blocking = (4 * kernel.mr, 2 * kernel.nr, 4, 2 * kernel.mr)
    rng = np.random.default_rng(0)
    a, b = draw(rng, (m, k), kernel.acc_dtype), draw(rng, (k, n), kernel.acc_dtype)
    a_packs, b_packs = buffers(kernel, access, a, b, blocking, 4 * kernel.nr)
    busy: list[tuple[str, int]] = []  # which buffers are read, and which are written
    multiply_tile, pack_part = loops.macrokernel, loops.pack_share

    def buffer_of(part: np.ndarray, whole: np.ndarray) -> int:
        return (part.ctypes.data - whole.ctypes.data) // whole[0].nbytes if part.size else -1

    def macrokernel(
        kernel: Any, access: str, alpha: Any, a: Any, a_pack: Any, b_pack: Any, beta: Any, c: Any, kc: int, conj: Any
    ) -> None:
        reads = [("a", buffer_of(a_pack, a_packs)), ("b", buffer_of(b_pack, b_packs))]
        busy.extend(("read " + name, number) for name, number in reads)
        time.sleep(0.001)
        assert not [write for write in busy if (write[0], write[1]) in [("write " + x, y) for x, y in reads if y >= 0]]
        multiply_tile(kernel, access, alpha, a, a_pack, b_pack, beta, c, kc, conj)
        for name, number in reads:
            busy.remove(("read " + name, number))

    def pack_share(kernel: Any, part: int, parts: int, a_panel: Any, b_panel: Any, a_pack: Any, b_pack: Any) -> None:
        writes = [("a", buffer_of(a_pack, a_packs) if a_panel.size else -1)]
        writes += [("b", buffer_of(b_pack, b_packs) if b_panel.size else -1)]
        busy.extend(("write " + name, number) for name, number in writes)
        time.sleep(0.001)
        assert not [read for read in busy if read in [("read " + x, y) for x, y in writes if y >= 0]]
        pack_part(kernel, part, parts, a_panel, b_panel, a_pack, b_pack)
        for name, number in writes:
            busy.remove(("write " + name, number))

    monkeypatch.setattr(loops, "macrokernel", macrokernel)
    monkeypatch.setattr(loops, "pack_share", pack_share)
    one, zero = kernel.one, kernel.zero
    c, work = np.full((m, n), np.nan, a.dtype), np.zeros(2, np.intp)
    in_plain_threads(
        monkeypatch, 3,
        lambda: loops.five_loops_together(
            kernel, access, blocking, one, a, b, zero, c, 0, a_packs, b_packs, work
        ),
    )  # fmt: skip
    assert not busy and (c == a @ b).all()
