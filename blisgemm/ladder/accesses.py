"""What each rung touches in memory, element by element, in order: food for a cache simulator.

Knows: the loops of every rung once more, as counting texts; the tests hold each against the rung's own text. Does not
know: caches, vectors, values. Called by whoever simulates or counts, and the tests.

An access is one load or one store of one element of A, B, C or a packed buffer, as the rung's text says it. What a
variable or a register holds is loaded once and not counted again: the sum of rung 0, ``a_ip`` of rung 2, a micro-tile
while p runs. ``c[i, j] += x`` is a load and a store. In a microkernel each p loads mr elements of A and nr of B, and at
the end each element of the tile is stored, loaded before if it is added to. Vector loads of 8 elements are 8 accesses.

Matrices lie by rows: element (i, p) of A has index i k + p. Packed, row r and p of micro-panel x has index
x width kc + p width + r, where kc is at most k, and buffers are used again from block to block.

Rung 1 touches what rung 0 does. Rung 8 is here what one thread would do, rung 7; in which order its threads pack and
take tiles is no fixed one. The packers of rung 7 copy by vectors: the order within a micro-panel is that of rung 6.

Importing this compiles: the texts have fixed types, lest Numba compile one for each constant that is passed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from numba import njit

from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..parallel import check_threads
from ..plan import make_plan
from . import rung_of
from .r2_loop_order import ORDERS
from .r3_register_tile import MR, NR

__all__ = ["A_PACK", "B_PACK", "READ", "WRITE", "A", "B", "C", "accesses", "chunks", "count"]

A, B, C, A_PACK, B_PACK = range(5)  # operands
READ, WRITE = range(2)

_MOST_TERMS = 1 << 36
_LARGEST_BLOCK = 1 << 30

Stream = npt.NDArray[np.int32]


def accesses(rung: str, m: int, n: int, k: int, **blocks: int | str) -> Stream:
    """Return all accesses of c := a · b by a rung.

    Args:
        rung: its name; ``r4`` will do.
        m, n, k: extents, at least 1. A rung makes some 2 to 4 m n k accesses, of 12 bytes each here; up to 2**36 terms
            are walked through, a minute or two, and no matrix has 2**31 elements.
        blocks: ``mr, nr, mc, nc, kc`` in place of the plan's for float32 (mr and nr from rung 3, the others from rung 5
            on), ``order`` in place of rung 2's ``ipj``.

    Returns:
        Rows of (operand, index, READ or WRITE), an access each. operand: A, B, C, A_PACK or B_PACK.

    Example:
        >>> accesses("r0", 1, 1, 2).tolist()  # A[0, 0], B[0, 0], A[0, 1], B[1, 0], then C
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [2, 0, 1]]
    """
    nest = _nest(rung, m, n, k, blocks)
    out = np.empty((_walk(np.empty((0, 3), np.int32), 0, *nest), 3), np.int32)
    _walk(out, 0, *nest)
    return out


def chunks(rung: str, m: int, n: int, k: int, size: int = 1 << 24, **blocks: int | str) -> Iterator[Stream]:
    """Yield the same rows, ``size`` at a time; each chunk walks through all loops again."""
    check_threads(size, "size")
    nest = _nest(rung, m, n, k, blocks)
    total = _walk(np.empty((0, 3), np.int32), 0, *nest)
    for first in range(0, total, size):
        out = np.empty((min(size, total - first), 3), np.int32)
        _walk(out, first, *nest)
        yield out


def count(rung: str, m: int, n: int, k: int, **blocks: int | str) -> int:
    """Return how many accesses there are."""
    return int(_walk(np.empty((0, 3), np.int32), 0, *_nest(rung, m, n, k, blocks)))


def _nest(rung: str, m: int, n: int, k: int, blocks: dict[str, int | str]) -> tuple[int, ...]:
    """Return (rung's number, order, m, n, k, mr, nr, mc, nc, kc), checked."""
    number = rung_of(rung).number
    plan = make_plan(m, n, k, "float32", path="packed", threads=1)
    kernel, of_plan = plan.kernel, plan.blocking
    if kernel is None or of_plan is None or k < 1:
        raise BlisgemmValueError(f"m, n, k: expected at least 1; got {m}, {n}, {k}")
    if m * n * k > _MOST_TERMS or max(m * n, m * k, k * n) >= 1 << 31:
        limits = f"at most {_MOST_TERMS:,} terms and matrices of less than 2**31 elements"
        raise BlisgemmValueError(f"m, n, k: expected {limits}; got {m}, {n}, {k}")
    sizes = {"mr": MR, "nr": NR} if number == 3 else {"mr": kernel.mr, "nr": kernel.nr} if number > 3 else {}
    sizes |= {"mc": of_plan.mc, "nc": of_plan.nc, "kc": of_plan.kc} if number > 4 else {}
    if unknown := set(blocks) - ({"order"} if number == 2 else set(sizes)):
        raise BlisgemmTypeError(f"{', '.join(sorted(unknown))}: no block of {rung}, which has {list(sizes) or 'none'}")
    order = str(blocks.get("order", "ipj" if number > 1 else "ijp"))
    if order not in ORDERS:
        raise BlisgemmValueError(f"order: expected one of {', '.join(ORDERS)}; got {order!r}")
    asked: dict[str, int] = {}
    for name, value in blocks.items():
        if name != "order":
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise BlisgemmTypeError(f"{name}: expected an integer >= 1; got {value!r}")
            asked[name] = value.__index__()
    sizes = {"mr": 1, "nr": 1, "mc": m, "nc": n, "kc": k} | sizes | asked
    mr, nr, mc, nc, kc = (sizes[x] for x in ("mr", "nr", "mc", "nc", "kc"))
    if min(mr, nr, mc, nc, kc) < 1 or (number > 4 and (mc % mr or nc % nr)):
        raise BlisgemmValueError(f"blocks: expected mc a multiple of mr, nc of nr, all at least 1; got {sizes}")
    if max(mr, nr, mc, nc) > _LARGEST_BLOCK:
        raise BlisgemmValueError(f"blocks: expected at most {_LARGEST_BLOCK}; got {sizes}")
    return number, ORDERS.index(order), int(m), int(n), int(k), mr, nr, mc, nc, min(kc, int(k))


@njit("i8(i4[:, ::1], i8, i8, i8, i8, i8)")
def _touch(out, first, at, operand, index, what):  # type: ignore[no-untyped-def]
    """Note an access if the chunk that begins at ``first`` has its place; return the next number."""
    if first <= at < first + out.shape[0]:
        out[at - first, 0], out[at - first, 1], out[at - first, 2] = operand, index, what
    return at + 1


@njit("i8(i4[:, ::1], i8, i8, i8, i8, i8, i8, UniTuple(i8, 4), UniTuple(i8, 4), UniTuple(i8, 4))")
def _loops(out, first, at, order, m, n, k, x, y, c):  # type: ignore[no-untyped-def]
    """Rung 2 on a part of C. x: (operand, its first element, stride of rows, of p); y: (..., of p, of columns); c."""
    for i in range(m if order == 2 else 0):
        for j in range(n):
            at = _touch(out, first, at, c[0], c[1] + i * c[2] + j * c[3], WRITE)
    for outer in range(k if order == 2 else m):
        for j in range(n if order == 1 else 0):
            at = _touch(out, first, at, c[0], c[1] + outer * c[2] + j * c[3], WRITE)
        for middle in range(n if order == 0 else m if order == 2 else k):
            if order == 0:
                for p in range(k):
                    at = _touch(out, first, at, x[0], x[1] + outer * x[2] + p * x[3], READ)
                    at = _touch(out, first, at, y[0], y[1] + p * y[2] + middle * y[3], READ)
                at = _touch(out, first, at, c[0], c[1] + outer * c[2] + middle * c[3], WRITE)
            else:
                i, p = (middle, outer) if order == 2 else (outer, middle)
                at = _touch(out, first, at, x[0], x[1] + i * x[2] + p * x[3], READ)
                for j in range(n):
                    at = _touch(out, first, at, c[0], c[1] + i * c[2] + j * c[3], READ)
                    at = _touch(out, first, at, y[0], y[1] + p * y[2] + j * y[3], READ)
                    at = _touch(out, first, at, c[0], c[1] + i * c[2] + j * c[3], WRITE)
    return at


@njit("i8(i4[:, ::1], i8, i8, i8, i8, i8, UniTuple(i8, 4), i8, i8)")
def _pack(out, first, at, rows, k, width, x, packed, kc):  # type: ignore[no-untyped-def]
    """Pack ``rows`` rows of x = (operand, first element, stride of rows, of p); missing rows are stored only."""
    for panel in range((rows + width - 1) // width):
        for p in range(k):
            for r in range(width):
                if panel * width + r < rows:
                    at = _touch(out, first, at, x[0], x[1] + (panel * width + r) * x[2] + p * x[3], READ)
                at = _touch(out, first, at, packed, panel * width * kc + p * width + r, WRITE)
    return at


@njit
def _walk(out, first, number, order, m, n, k, mr, nr, mc, nc, kc):  # type: ignore[no-untyped-def]
    """Walk through a rung's loops; return how many accesses there are."""
    at, a, b, c = 0, (A, 0, k, 1), (B, 0, n, 1), (C, 0, n, 1)
    if number < 3:
        if order < 3:
            return _loops(out, first, at, order, m, n, k, a, b, c)
        return _loops(out, first, at, order - 3, n, m, k, (B, 0, 1, n), (A, 0, 1, k), (C, 0, 1, n))
    m_end, n_end = (m, n) if number > 6 else (m // mr * mr, n // nr * nr)
    for ic in range(0, m_end, mc):
        mc_cur = min(mc, m_end - ic)
        for pc in range(0, k, kc):
            kc_cur = min(kc, k - pc)
            if number > 5:
                at = _pack(out, first, at, mc_cur, kc_cur, mr, (A, ic * k + pc, k, 1), A_PACK, kc)
            for jc in range(0, n_end, nc):
                nc_cur = min(nc, n_end - jc)
                if number > 5:
                    at = _pack(out, first, at, nc_cur, kc_cur, nr, (B, pc * n + jc, 1, n), B_PACK, kc)
                for ir in range(0, mc_cur, mr):
                    for jr in range(0, nc_cur, nr):
                        for p in range(kc_cur):
                            for i in range(mr):
                                index = ir * kc + p * mr + i if number > 5 else (ic + ir + i) * k + pc + p
                                at = _touch(out, first, at, A_PACK if number > 5 else A, index, READ)
                            for j in range(nr):
                                index = jr * kc + p * nr + j if number > 5 else (pc + p) * n + jc + jr + j
                                at = _touch(out, first, at, B_PACK if number > 5 else B, index, READ)
                        for i in range(min(mr, mc_cur - ir)):
                            for j in range(min(nr, nc_cur - jr)):
                                index = (ic + ir + i) * n + jc + jr + j
                                if pc > 0:
                                    at = _touch(out, first, at, C, index, READ)
                                at = _touch(out, first, at, C, index, WRITE)
    if m_end < m:
        at = _loops(out, first, at, 1, m - m_end, n, k, (A, m_end * k, k, 1), b, (C, m_end * n, n, 1))
    if n_end < n:
        at = _loops(out, first, at, 1, m_end, n - n_end, k, a, (B, n_end, n, 1), (C, n_end, n, 1))
    return at
