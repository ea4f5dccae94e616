"""The ladder's rungs as steps: their own text, run with words that record, as ``trace`` does it with the library's.

Knows: which loops of a rung to run, and what it calls. Does not know: caches, or how steps are shown. Called by
``page_orders``.

Rungs 0 and 2 are their accesses (``ladder.accesses``), cut into steps. Rungs 3 to 5 work tile by tile; 3 is 4's text
with tiles of 4 x 4. What whole tiles leave over at the edges, they leave to rung 2: here a row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..ladder import rung_of
from ..machine.facts import Machine
from ..ukernel.spec import KernelSpec
from .cachesim import Counts, _bases, levels_of
from .region import Region
from .relink import relinked
from .streams import OPERANDS, A, B, C, sizes_of
from .trace import EVENT, MICROKERNEL, Events, Trace

__all__ = ["blocks_trace", "order_trace", "simulate_steps", "tiles_trace"]


class _Recorder:
    """A microkernel, a loop and what does the edges, which note where they are and what they were given."""

    def __init__(self) -> None:
        self.rows = Events()
        self.loops: list[int] = []

    def range(self, *bounds: int) -> Iterator[int]:
        depth = len(self.loops)
        for index in range(*bounds):
            self.loops[depth:] = [index]
            yield index
        del self.loops[depth:]

    def microkernel(
        self, kernel: Any, access: str, m_cur: int, n_cur: int, k_cur: int, alpha: Any, a: Region, b: Region, beta: Any,
        c: Region, conj: int,
    ) -> None:  # fmt: skip
        ic, pc, jc = self.loops[:3] if len(self.loops) == 5 else (-1, 0, -1)
        ir, jr = self.loops[-2] - max(ic, 0), self.loops[-1] - max(jc, 0)
        at = (c.row, c.row + m_cur, c.column, c.column + n_cur, a.column, a.column + k_cur)
        self.rows.append((MICROKERNEL, ic, pc, jc, ir, jr, *at))

    def edges(self, a: Region, b: Region, c: Region) -> None:
        """Note what rung 2 does with some rows or columns that are left."""
        if c.column < c.column_end:
            for i in range(c.row, c.row_end):
                at = (i, i + 1, c.column, c.column_end, a.column, a.column_end)
                self.rows.append((MICROKERNEL, -1, 0, -1, i, c.column, *at))


def tiles_trace(m: int, n: int, k: int, kernel: KernelSpec, machine: str) -> Trace:
    """Return what rung 4, and with a kernel of 4 x 4 rung 3, does: tiles along the rows of C, each over all of k."""
    return _run("r4", m, n, k, kernel, machine, None)


def blocks_trace(m: int, n: int, k: int, kernel: KernelSpec, blocking: tuple[int, int, int], machine: str) -> Trace:
    """Return what rung 5 does with blocks (mc, nc, kc): five loops, without packing."""
    return _run("r5", m, n, k, kernel, machine, blocking)


def _run(
    rung: str, m: int, n: int, k: int, kernel: KernelSpec, machine: str, blocking: tuple[int, int, int] | None
) -> Trace:  # fmt: skip
    recorder = _Recorder()
    a, b, c = Region.whole(m, k), Region.whole(k, n), Region.whole(m, n)
    left_over = SimpleNamespace(multiply=recorder.edges)
    borders = relinked(rung_of("r3").module(), r2_loop_order=left_over)["borders"]
    words = relinked(rung_of(rung).module(), range=recorder.range, microkernel=recorder.microkernel)
    if blocking is None:
        words["tiles"](kernel, a, b, c)
    else:
        words["blocks"](kernel, *blocking, a, b, c)
    borders(kernel.mr, kernel.nr, a, b, c)
    mc, nc, kc = blocking or (m, n, k)
    return _trace(m, n, k, kernel.acc_dtype, (kernel.mr, kernel.nr, mc, nc, kc), kernel.name, machine,
        recorder.rows.array(),
    )  # fmt: skip


def order_trace(order: str, m: int, n: int, k: int, dtype: str, machine: Machine) -> tuple[Trace, Counts]:
    """Return what rung 0 (``ijp``) or rung 2 does, a round of its innermost loop a step, and its counts.

    Args:
        order: a permutation of ``ijp``, outermost first.

    Example:
        >>> from .machines import TEACHING_MACHINE
        >>> steps, counts = order_trace("ijp", 2, 3, 4, "float32", TEACHING_MACHINE)
        >>> len(steps), steps.events[4][["i0", "i1", "j0", "j1", "p0", "p1"]].tolist(), counts.accesses
        (6, (1, 2, 1, 2, 0, 4), 54)
    """
    from ..ladder import accesses

    stream = accesses.accesses("r0", m, n, k) if order == "ijp" else accesses.accesses("r2", m, n, k, order=order)
    operand, index, what = stream.T
    stores = (operand == C) & (what == accesses.WRITE)
    starts = np.zeros(len(stream), bool)
    starts[0] = True
    if order.endswith("p"):  # a round ends with the store of its sum
        starts[1:] = stores[:-1]
    else:  # a round begins with the element that it multiplies by; rows of zeros come before some
        starts |= operand == (A if order.endswith("j") else B)
        starts[2:] |= stores[2:] & stores[1:-1] & ~stores[:-2]
    first = np.flatnonzero(starts)
    nowhere = 1 << 30
    i = np.where(operand == A, index // k, np.where(operand == C, index // n, nowhere))
    j = np.where(operand == A, nowhere, index % n)
    p = np.where(operand == A, index % k, np.where(operand == B, index // n, nowhere))
    rows = np.zeros(len(first), EVENT)
    rows["kind"] = MICROKERNEL
    for name, places in (("i", i), ("j", j), ("p", p)):
        low = np.minimum.reduceat(places, first)
        high = np.maximum.reduceat(np.where(places == nowhere, -1, places), first) + 1
        rows[f"{name}0"], rows[f"{name}1"] = np.where(high > 0, low, 0), high
    rows["ic"] = rows["jc"] = -1
    rows["ir"], rows["jr"] = rows[f"{order[0]}0"], rows[f"{order[1]}0"]
    steps = _trace(m, n, k, dtype, (1, 1, m, n, k), "", machine.name, rows)
    return steps, simulate_steps((operand, index, what), first, steps, machine)


def simulate_steps(accesses: tuple[Any, Any, Any], first: Any, steps: Trace, machine: Machine) -> Counts:
    """Run accesses (operand, index, what) through the caches of a machine, with counts after each step.

    Args:
        first: where each step's accesses begin.
        steps: whose operands they are.
    """
    from . import lru

    itemsize = int(np.dtype(steps.dtype).itemsize)
    levels = levels_of(machine)
    state = lru.new_state(levels, len(OPERANDS))
    bases, shift = _bases(sizes_of(steps), itemsize), levels[0].line_bytes.bit_length() - 1
    operand, index, what = (
        np.ascontiguousarray(x, kind) for x, kind in zip(accesses, (np.uint8, np.int64, np.uint8), strict=True)
    )
    history = np.zeros((len(first), *state[2].shape), np.int64)
    for number, (start, end) in enumerate(pairwise([*first.tolist(), len(index)])):
        lru.run_accesses(state, bases, itemsize, shift, operand[start:end], index[start:end], what[start:end])
        history[number] = state[2]
    lru.flush(state)
    hits, misses, back, _ = state[2]
    after = (history[:, x] for x in (lru.HITS, lru.MISSES, lru.RESIDENT))
    return Counts(levels, OPERANDS, itemsize, hits, misses, back, *after)


def _trace(
    m: int, n: int, k: int, dtype: str, sizes: tuple[int, ...], kernel: str, machine: str, events: Any
) -> Trace:  # fmt: skip
    mr, nr, mc, nc, kc = sizes
    return Trace(m, n, k, dtype, "direct", "rows", mr, nr, mc, nc, kc, mc, nc, False, False, kernel, machine, events)
