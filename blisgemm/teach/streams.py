"""Which elements a product touches, and in what order, as loop nests that are short to write down.

Knows: how A, B, C and the packed buffers lie, and what one step of a trace reads and writes. Does not know: caches.
Called by ``cachesim``.

A nest is three loops (extents e0, e1, e2, the last innermost) around some references, each a run of elements::

    for i0, i1, i2:   for each reference:   elements  base + i0 * s0 + i1 * s1 + i2 * s2 + x * step,  x < count

An element is one access, whatever the width of the vector that loads it: misses and traffic are of lines, and
neighbours in a line hit. A matrix lies as NumPy's default has it, by rows (C-contiguous).

- pack of A: micro-panel after micro-panel, for each p the mr rows; of B: for each p the columns of a few
  micro-panels (``SIDE_BY_SIDE``).
- microkernel: for each p the column of A and the row of B; then the tile of C, read unless it is the first kc block.
- sums that wait in memory (``plan.PASSING``) are the operand "sums".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..plan import PASSING
from .trace import MICROKERNEL, PACK_A, Trace

__all__ = [
    "A_PACK",
    "B_PACK",
    "OPERANDS",
    "READ",
    "SIDE_BY_SIDE",
    "SUMS",
    "UPDATE",
    "WRITE",
    "A",
    "B",
    "C",
    "Nests",
    "loop_order_stream",
    "sizes_of",
    "trace_stream",
]  # fmt: skip

OPERANDS = ("A", "B", "C", "packed A", "packed B", "sums")
A, B, C, A_PACK, B_PACK, SUMS = range(6)

# What an access does. UPDATE reads and then writes the same element: two accesses, the second of which always hits.
READ, WRITE, UPDATE = range(3)

Table = npt.NDArray[np.int64]

# Micro-panels of B that are packed in one pass over p. Source: ``ukernel.packer``, whose own it is (a test holds it).
SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Nests:
    """Loop nests in the order in which they run.

    Attributes:
        nests: rows of (e0, e1, e2, first reference, end of references, number of the trace's step or 0).
        refs: rows of (operand, base, s0, s1, s2, count, step, what): what is READ, WRITE or UPDATE; units: elements.
    """

    nests: Table
    refs: Table

    @classmethod
    def one(cls, extents: tuple[int, int, int], *refs: tuple[int, ...]) -> Nests:
        """Return a single nest."""
        return cls(np.array([(*extents, 0, len(refs), 0)], np.int64), np.array(refs, np.int64).reshape(-1, 8))

    @property
    def accesses(self) -> int:
        """How many elements are touched, one that is read and written twice."""
        each = self.refs[:, 5] * np.where(self.refs[:, 7] == UPDATE, 2, 1)
        upto = np.concatenate(([0], np.cumsum(each)))
        return int((np.prod(self.nests[:, :3], axis=1) * (upto[self.nests[:, 4]] - upto[self.nests[:, 3]])).sum())


def loop_order_stream(order: str, m: int, n: int, k: int) -> Nests:
    """Return the accesses of three plain loops in an order: ``C[i, j] += A[i, p] * B[p, j]``, C read and written.

    Args:
        order: a permutation of ``ijp`` (``ijk`` is taken as well), outermost first.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: it isn't, or an extent is no integer from 0 on.

    Example:
        >>> loop_order_stream("ijk", 2, 3, 4).accesses == 4 * 2 * 3 * 4
        True
    """
    loops = order.replace("k", "p") if isinstance(order, str) else ""
    if sorted(loops) != ["i", "j", "p"]:
        raise BlisgemmValueError(f"order: expected a permutation of 'ijk'; got {order!r}")
    for name, extent in (("m", m), ("n", n), ("k", k)):
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise BlisgemmTypeError(f"{name}: expected an integer >= 0; got {extent!r}")
        if not 0 <= extent < 1 << 31:
            raise BlisgemmValueError(f"{name}: expected an integer of 0 to 2**31 - 1; got {extent!r}")
    extents = {"i": m, "j": n, "p": k}
    strides = ({"i": k, "p": 1, "j": 0}, {"p": n, "j": 1, "i": 0}, {"i": n, "j": 1, "p": 0})
    refs = [
        (operand, 0, *(stride[x] for x in loops), 1, 1, UPDATE if operand == C else READ)
        for operand, stride in enumerate(strides)
    ]
    e0, e1, e2 = (extents[x] for x in loops)
    return Nests.one((e0, e1, e2), *refs)


def sizes_of(steps: Trace) -> dict[int, int]:
    """Return how many elements each operand of a trace has."""
    kc = min(steps.kc, max(1, steps.k))
    sizes = {A: steps.m * steps.k, B: steps.k * steps.n, C: steps.m * steps.n}
    if steps.path == "packed":
        sizes[A_PACK] = 0 if steps.half else steps.buffers[0] * steps.mc * kc
        sizes[B_PACK] = steps.buffers[1] * steps.nb * kc
    elif steps.access == "copied":
        sizes[B_PACK] = steps.k * steps.n
    elif steps.path in PASSING:
        if steps.path == "strips":
            sizes |= {A_PACK: -(-steps.m // steps.mr) * steps.mr * kc, B_PACK: steps.step * steps.nr}
        sizes[SUMS] = -(-steps.m // steps.mr) * steps.mr * steps.nc * _sums_per_element(steps)
    return sizes


def trace_stream(steps: Trace) -> Nests:
    """Return what the steps of a trace touch."""
    acting = steps.events["kind"] == MICROKERNEL
    nests, refs = _of_microkernels(steps, np.flatnonzero(acting))
    more_nests: list[tuple[int, ...]] = []
    more_refs: list[tuple[int, ...]] = []
    for number in np.flatnonzero(~acting).tolist():
        for extent, *its in _of_packing(steps, steps.events[number]):
            first = len(refs) + len(more_refs)
            more_refs += its
            more_nests.append((1, 1, extent, first, first + len(its), number))
    nests = np.concatenate((nests, np.array(more_nests, np.int64).reshape(-1, 6)))
    refs = np.concatenate((refs, np.array(more_refs, np.int64).reshape(-1, 8)))
    return Nests(np.ascontiguousarray(nests[np.argsort(nests[:, 5], kind="stable")]), refs)


def _strides(steps: Trace) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return (row, column) strides of the loops' A, B and C."""
    if steps.swapped:
        return (1, steps.m), (1, steps.k), (1, steps.m)
    return (steps.k, 1), (steps.n, 1), (steps.n, 1)


def _sums_per_element(steps: Trace) -> int:
    return 2 if steps.dtype.startswith("complex") else 1  # four real sums for two reals


def _of_microkernels(steps: Trace, numbers: Any) -> tuple[Table, Table]:
    """Return nests and references of the microkernel's steps: the sum over p, then the sums or the tile of C."""
    (rs_a, cs_a), (rs_b, cs_b), (rs_c, cs_c) = _strides(steps)
    event = {name: steps.events[name][numbers].astype(np.int64) for name in steps.events.dtype.names or ()}
    i0, j0, p0, p1 = event["i0"], event["j0"], event["p0"], event["p1"]
    m_cur, n_cur, kc_row = event["i1"] - i0, event["j1"] - j0, min(steps.kc, max(1, steps.k))
    zero, one = np.zeros_like(i0), np.ones_like(i0)

    def ref(*columns: Any) -> Table:
        return np.stack([column + zero for column in columns], axis=1)

    if steps.path == "packed" and not steps.half:
        panel = _buffers(steps, event["ic"], event["pc"], j0)[0]
        panel = panel + (i0 - event["ic"]) // steps.mr * (steps.mr * kc_row)
        a = ref(A_PACK, panel, 0, 0, steps.mr, steps.mr, 1, READ)
    elif steps.path == "strips":
        inside = (p0 - event["pc"]) * steps.mr
        a = ref(A_PACK, i0 // steps.mr * (steps.mr * kc_row) + inside, 0, 0, steps.mr, steps.mr, 1, READ)
    else:
        a = ref(A, i0 * rs_a + p0 * cs_a, 0, 0, cs_a, m_cur, rs_a, READ)
    if steps.path == "strips":
        b = ref(B_PACK, 0, 0, 0, steps.nr, steps.nr, 1, READ)
    elif steps.path == "packed":
        block = _buffers(steps, event["ic"], event["pc"], j0)[1] + j0 % steps.nb // steps.nr * (steps.nr * kc_row)
        b = ref(B_PACK, block, 0, 0, steps.nr, steps.nr, 1, READ)
    elif steps.access == "copied":
        b = ref(B_PACK, p0 * steps.n + j0, 0, 0, steps.n, n_cur, 1, READ)
    else:
        b = ref(B, p0 * rs_b + j0 * cs_b, 0, 0, rs_b, n_cur, cs_b, READ)
    ends = p1 == np.minimum(steps.k, event["pc"] + steps.kc)
    first_block = np.where(event["pc"] == 0, WRITE, UPDATE)
    c = ref(C, i0 * rs_c + j0 * cs_c, 0, 0, rs_c, n_cur, cs_c, first_block)
    parts = [(p1 - p0, a, b), (np.where(ends, m_cur, 0), c)]
    if steps.path in PASSING:
        wide = _sums_per_element(steps)
        if steps.path != "sweep":
            tiles = -(-steps.m // steps.mr)
            base, count = (
                (event["jr"] // steps.nr * tiles + i0 // steps.mr) * (steps.mr * steps.nr),
                steps.mr * steps.nr,
            )
            parts.insert(1, (one, ref(SUMS, base * wide, 0, 0, 0, count * wide, 1, UPDATE)))
        else:
            row = steps.nc * wide
            parts.insert(1, (m_cur, ref(SUMS, i0 * row, 0, 0, row, n_cur * wide, 1, UPDATE)))
    refs, nests, first = [], [], 0
    at = np.arange(len(i0), dtype=np.int64)
    width = sum(len(part) - 1 for part in parts)
    for extent, *its in parts:
        nests.append(np.stack([one, one, extent, at * width + first, at * width + first + len(its), numbers], axis=1))
        refs += its
        first += len(its)
    return np.stack(nests, axis=1).reshape(-1, 6), np.stack(refs, axis=1).reshape(-1, 8)


def _buffers(steps: Trace, ic: Any, pc: Any, j0: Any) -> tuple[Any, Any]:
    """Return where the buffers begin that hold the panel of A and the columns of B of a step."""
    panel = ic // steps.mc * -(-steps.k // steps.kc) + pc // steps.kc
    step = panel * -(-steps.n // steps.nb) + j0 // steps.nb
    kc = min(steps.kc, max(1, steps.k))
    return panel % steps.buffers[0] * steps.mc * kc, step % steps.buffers[1] * steps.nb * kc


def _of_packing(steps: Trace, event: Any) -> list[tuple[Any, ...]]:
    """Return (extent, references ...) of a step that packs."""
    (rs_a, cs_a), (rs_b, cs_b), _ = _strides(steps)
    i0, i1, j0, j1, p0, p1 = (int(event[x]) for x in ("i0", "i1", "j0", "j1", "p0", "p1"))
    kc_row, mr, nr = min(steps.kc, max(1, steps.k)), steps.mr, steps.nr
    if event["kind"] == PACK_A:
        panels = []
        for i in range(i0, i1, mr):
            to = _buffers(steps, int(event["ic"]), p0, 0)[0] + (i - int(event["ic"])) // mr * mr * kc_row
            source = (A, i * rs_a + p0 * cs_a, 0, 0, cs_a, min(mr, i1 - i), rs_a, READ)
            panels.append((p1 - p0, source, (A_PACK, to, 0, 0, mr, mr, 1, WRITE)))
        return panels
    source = (B, p0 * rs_b + j0 * cs_b, 0, 0, rs_b, j1 - j0, cs_b, READ)
    if steps.path == "strips":
        return [(p1 - p0, source, (B_PACK, 0, 0, 0, nr, nr, 1, WRITE))]
    if steps.path != "packed":
        return [(p1 - p0, source, (B_PACK, 0, 0, 0, steps.n, steps.n, 1, WRITE))]
    start = _buffers(steps, int(event["ic"]), p0, j0)[1] + j0 % steps.nb // nr * nr * kc_row
    groups = []
    for j in range(j0, j1, SIDE_BY_SIDE * nr):
        end = min(j1, j + SIDE_BY_SIDE * nr)
        targets = [(B_PACK, start + (x - j0) * kc_row, 0, 0, nr, nr, 1, WRITE) for x in range(j, end, nr)]
        groups.append((p1 - p0, (B, p0 * rs_b + j * cs_b, 0, 0, rs_b, end - j, cs_b, READ), *targets))
    return groups
