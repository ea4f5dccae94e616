"""What the textbook expects to move between levels, from the loops' extents alone, to hold beside what is counted.

Knows: when reuse is caught by a cache, and which loop turns over which operand. Does not know: sets, ways or single
accesses (``cachesim`` counts those). Called by ``python -m blisgemm trace --cache`` and whatever explains a plan.

At the registers it is counting. A loop over single elements reads two elements for each of the m n k terms; tiles of
bm x bn read m n k (1/bn + 1/bm). At a cache it is one rule, used from the innermost loop outwards:

    if all that one turn of a loop touches fits in the cache, what the next turn touches again is still there, and the
    whole loop fetches each line once; if not, every turn fetches anew what it needs.

A line of C that is fetched is written back later, a packed one once for every time that it was packed and dropped.

Source: Goto and van de Geijn, TOMS 34(3), 2008, section 4 (which block stays where); Lam, Rothberg and Wolf, ASPLOS IV,
1991 (reuse in tiled loops, and why sets and ways spoil such predictions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import BlisgemmValueError
from ..machine.facts import Cache, Machine
from .cachesim import Counts, levels_of
from .streams import A_PACK, B_PACK, OPERANDS, A, B, C
from .trace import MICROKERNEL, Trace

__all__ = ["WHY_THEY_DIFFER", "Traffic", "compare", "predicted_loop_order", "predicted_traffic", "tile_reads"]

WHY_THEY_DIFFER = (
    "The rule takes a cache as one heap that holds whatever fits. Counted are sets and ways: rows that lie a power of "
    "two apart meet in few sets and push each other out though there is room elsewhere (counted above predicted). A "
    "block that is a little too large loses only a part of its lines where the rule gives up all of them (counted "
    "below). Blocks begin and end within lines, edges are padded to whole tiles, and what was used last is still there "
    "when the next block begins."
)

Lines = dict[int, float]


def tile_reads(m: int, n: int, k: int, bm: int = 1, bn: int = 1) -> float:
    """Return how many elements of A and B an m x k by k x n product reads with tiles of bm x bn of C in registers.

    Example:
        >>> tile_reads(512, 512, 512) == 2 * 512**3
        True
        >>> tile_reads(512, 512, 512, 8, 32) / 512**3
        0.15625
    """
    return m * n * k * (1 / bn + 1 / bm)


@dataclass(frozen=True)
class Traffic:
    """Expected accesses and lines. Rows of the arrays are levels, nearest first; columns are ``OPERANDS``.

    Attributes:
        elements: reads and writes of elements between registers and L1, as the formulas have it.
        fetched, written_back: lines into a level from the next, and back.
    """

    levels: tuple[Cache, ...]
    itemsize: int
    elements: float
    fetched: np.ndarray[Any, np.dtype[np.float64]]
    written_back: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def element_bytes(self) -> float:
        """Bytes between the registers and L1, element by element."""
        return self.elements * self.itemsize

    @property
    def traffic_bytes(self) -> tuple[float, ...]:
        """Bytes between each level and the next one out, in both directions."""
        lines = (self.fetched + self.written_back).sum(axis=1)
        return tuple(float(x) for x in lines * self.levels[0].line_bytes)


@dataclass(frozen=True)
class _Loop:
    """One loop over ``i``, ``j`` or ``p``; ``packs``: (source, packed) that begins every turn of it."""

    over: str
    step: int
    packs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Nest:
    """Loops, outermost first, what their body touches, and how that lies.

    Attributes:
        body: operands that the innermost body touches. spans: extents by index.
        rows: for each operand its two indices, that of contiguous elements last, and the extents of its buffer (0: the
            matrix itself) in which both are counted; a packed operand is contiguous as a whole.
    """

    loops: tuple[_Loop, ...]
    body: tuple[int, ...]
    spans: dict[str, int]
    rows: dict[int, tuple[str, str, int, int]]
    per_line: float

    def lines(self, operand: int, spans: dict[str, float]) -> float:
        """Return how many lines of an operand lie within spans of i, j and p."""
        first, second, most_first, most_second = self.rows[operand]
        x, y = spans[first], spans[second]
        if most_first:
            return min(x, most_first) * min(y, most_second) / self.per_line
        if y >= self.spans[second]:
            return x * y / self.per_line
        begins_with_a_line = self.spans[second] % self.per_line == 0 and (
            y % self.per_line == 0 or self.per_line % y == 0
        )
        return x * (max(1.0, y / self.per_line) if begins_with_a_line else 1 + (y - 1) / self.per_line)

    def touched(self, depth: int) -> tuple[int, ...]:
        """Return the operands that the body of loop ``depth`` touches."""
        packed = [x for loop in self.loops[depth:] for pair in loop.packs for x in pair]
        return tuple(dict.fromkeys([*self.body, *packed]))

    def stays(self, capacity: int, depth: int, spans: dict[str, float], source: int, packed: int) -> bool:
        """Whether a packed buffer is still there when the next block of ``source`` is packed into it.

        It is if one turn of an inner loop that uses all of it fits together with that block.
        """
        copy, block, inner = self.lines(packed, spans), self.lines(source, spans), spans
        for loop in self.loops[depth + 1 :]:
            inner = {**inner, loop.over: min(loop.step, inner[loop.over])}
            if self.lines(packed, inner) < copy:
                return False
            if block + sum(self.lines(x, inner) for x in self.body) <= capacity:
                return True
        return False

    def moved(self, capacity: int, depth: int = 0, spans: dict[str, float] | None = None) -> tuple[Lines, Lines]:
        """Return lines fetched and lines written back by the loops from ``depth`` on, for a cache of so many lines."""
        around: dict[str, float] = dict(self.spans) if spans is None else spans
        if depth == len(self.loops):
            fetched = {x: self.lines(x, around) for x in self.body}
            return fetched, {C: fetched[C]}
        loop = self.loops[depth]
        inner = {**around, loop.over: min(loop.step, around[loop.over])}
        fetched, back = self.moved(capacity, depth + 1, inner)
        for source, packed in loop.packs:
            block, copy = self.lines(source, inner), self.lines(packed, inner)
            still_there = copy if block + copy <= capacity else 0.0
            fetched[source] = fetched.get(source, 0.0) + block
            new = 0.0 if self.stays(capacity, depth, inner, source, packed) else copy
            fetched[packed] = new + max(0.0, fetched.get(packed, 0.0) - still_there)
            back[packed] = new
        fits = sum(self.lines(x, inner) for x in self.touched(depth)) <= capacity
        turns = around[loop.over] / inner[loop.over] if inner[loop.over] else 0.0
        for lines in (fetched, back):
            for x in lines:
                once = self.lines(x, around)
                lines[x] = once if fits else max(once, turns * lines[x])
        return fetched, back


def predicted_traffic(steps: Trace, machine: Machine | str | Sequence[Cache] | None = None) -> Traffic:
    """Return what the loops of a trace are expected to move between the levels of a machine.

    Args:
        steps: of the packed or the direct path; its steps are not looked at, only its blocks.
        machine: as ``simulate`` takes it.

    Raises:
        BlisgemmValueError: it is of another path.
    """
    if steps.path not in ("packed", "direct"):
        raise BlisgemmValueError(f"steps: expected a trace of the packed or direct path; got {steps.path}")
    m, n, k, mr, nr, kc = steps.m, steps.n, steps.k, steps.mr, steps.nr, steps.kc
    blocks = -(-k // kc)
    elements = tile_reads(m, n, k, min(mr, m), min(nr, n)) + m * n * (2 * blocks - 1)
    rows = {A: ("i", "p", 0, 0), B: ("p", "j", 0, 0), C: ("i", "j", 0, 0)}
    if steps.swapped:
        rows = {x: (second, first, 0, 0) for x, (first, second, _, _) in rows.items()}
    if steps.path == "packed":
        rows |= {A_PACK: ("i", "p", steps.mc, kc), B_PACK: ("p", "j", kc, steps.nb)}
        from_a = () if steps.half else ((A, A_PACK),)
        loops: tuple[_Loop, ...] = (
            _Loop("i", steps.mc), _Loop("p", kc, from_a), _Loop("j", steps.nb, ((B, B_PACK),)), _Loop("j", steps.nc),
            _Loop("i", steps.mt), _Loop("i", mr), _Loop("j", nr),
        )  # fmt: skip
        body: tuple[int, ...] = (A if steps.half else A_PACK, B_PACK, C)
        elements += 2 * n * k * -(-m // steps.mc) + (0 if steps.half else 2 * m * k)
    else:
        tiles = (_Loop("i", mr), _Loop("j", nr)) if _goes_along_rows(steps) else (_Loop("j", nr), _Loop("i", mr))
        loops, body = (*tiles, _Loop("p", kc)), (A, B, C)
        if steps.access == "copied":
            rows[B_PACK] = ("p", "j", k, n)
            loops, body = (_Loop("i", m, ((B, B_PACK),)), *loops), (A, B_PACK, C)
            elements += 2 * n * k
    itemsize = int(np.dtype(steps.dtype).itemsize)
    return _predicted(loops, body, {"i": m, "j": n, "p": k}, rows, itemsize, elements, levels_of(machine))


def _goes_along_rows(steps: Trace) -> bool:
    """Whether the second micro-tile of the direct path lies beside the first, not below it."""
    tiles = steps.events[steps.events["kind"] == MICROKERNEL]
    return bool((tiles["ir"][: np.argmax(tiles["jr"] > 0)] == 0).all()) if tiles["jr"].any() else True


def predicted_loop_order(
    order: str, m: int, n: int, k: int, machine: Machine | str | Sequence[Cache] | None = None, *, itemsize: int = 4
) -> Traffic:
    """Return what three plain loops in an order are expected to move (``streams.loop_order_stream``).

    Example:
        >>> predicted_loop_order("ijk", 500, 500, 500, "haswell").elements == 4 * 500**3
        True
    """
    indices = order.replace("k", "p")
    if sorted(indices) != ["i", "j", "p"]:
        raise BlisgemmValueError(f"order: expected a permutation of 'ijk'; got {order!r}")
    rows = {A: ("i", "p", 0, 0), B: ("p", "j", 0, 0), C: ("i", "j", 0, 0)}
    loops = tuple(_Loop(x, 1) for x in indices)
    spans = {"i": m, "j": n, "p": k}
    elements = tile_reads(m, n, k) + 2 * m * n * k
    return _predicted(loops, (A, B, C), spans, rows, itemsize, elements, levels_of(machine))


def _predicted(
    loops: tuple[_Loop, ...], body: tuple[int, ...], spans: dict[str, int], rows: dict[int, tuple[str, str, int, int]],
    itemsize: int, elements: float, levels: tuple[Cache, ...],
) -> Traffic:  # fmt: skip
    fetched, back = (np.zeros((len(levels), len(OPERANDS))) for _ in range(2))
    nest = _Nest(loops, body, spans, rows, levels[0].line_bytes / itemsize)
    for row, level in enumerate(levels if min(spans.values()) else ()):
        for figures, lines in zip((fetched, back), nest.moved(level.sets * level.ways), strict=True):
            for operand, count in lines.items():
                figures[row, operand] = count
    return Traffic(levels, itemsize, elements, fetched, back)


@dataclass(frozen=True)
class Row:
    """One line of a comparison: bytes between two places, as predicted and as counted."""

    between: str
    predicted: float
    counted: int

    @property
    def ratio(self) -> float:
        """Counted by predicted."""
        return self.counted / self.predicted if self.predicted else float("nan")


def compare(expected: Traffic, counts: Counts) -> tuple[Row, ...]:
    """Return prediction and count side by side, from the registers outwards.

    Example:
        >>> from blisgemm.teach.cachesim import simulate_trace
        >>> from blisgemm.teach.trace import trace
        >>> steps = trace(64, 64, 64, machine="teaching", mr=4, nr=4, blocking=(32, 16, 16))
        >>> rows = compare(predicted_traffic(steps, "teaching"), simulate_trace(steps, "teaching"))
        >>> [row.between for row in rows]
        ['registers and L1', 'L1 and L2', 'L2 and L3', 'L3 and memory']
    """
    names = ["registers", *(f"L{x.level}" for x in counts.levels), "memory"]
    predicted = (expected.element_bytes, *expected.traffic_bytes)
    counted = (counts.element_bytes, *counts.traffic_bytes)
    return tuple(
        Row(f"{inner} and {outer}", x, y)
        for (inner, outer), x, y in zip(pairwise(names), predicted, counted, strict=True)
    )
