"""Expected traffic: how many bytes of each operand pass between the levels of memory when a product runs.

Knows: how loops and caches are put together, for plans, traces and plain loops, and how a prediction stands beside a
count. Does not know: the rule (``nest``), the loops of each path (``path_nests``), how fast a level is (``rates``),
sets and ways (``cachesim`` counts those). Pure. Called by ``explain``, ``roofline``, ``python -m blisgemm trace
--cache`` and notebooks.

At the registers it is counting. A loop over single elements reads two elements for each of the m n k terms; tiles of
bm x bn read m n k (1/bn + 1/bm). At a cache it is the rule of ``nest``. All caches are empty at first, beta is 0, other
cores do nothing else. A cache that several threads share holds what all of them touch; their own caches each hold
their own part, so what two of them need is fetched twice.

Held against ``cachesim`` on one thread of Haswell, Zen 3 and Skylake-X, float32, float64 and complex64, 78 products of
96 cubed to 720 cubed and of 1 to 20 rows: elements at the registers are exact; memory is within 1 %; between the
caches the packed path is within 16 %, the sweep within 8, the stream path, whose blocks fill L1, within 40. The direct
path is within 28 % unless rows of B lie a power of two apart (n = 512: 3.4 times as much counted as predicted), or a
strip of B fills L1 just so (complex64 500 x 100 x 300: a third counted). For several threads there is no such check.

Source: Goto and van de Geijn, TOMS 34(3), 2008, section 4; ``nest``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import BlisgemmValueError
from ..machine.facts import Cache, Machine
from ..plan import Plan
from .cachesim import Counts, levels_of
from .nest import Lines
from .path_nests import Blocks, blocks_of_plan, blocks_of_trace, elements, nest_of, of_one_core, of_order
from .streams import B_PACK, OPERANDS, A, B, C
from .trace import Trace

__all__ = [
    "WHY_THEY_DIFFER", "LevelTraffic", "Traffic", "compare", "flops_of", "loops_traffic", "tile_reads", "trace_traffic",
    "traffic_of",
]  # fmt: skip

WHY_THEY_DIFFER = (
    "The rule takes a cache as one heap that holds whatever fits. Counted are sets and ways: rows that lie a power of "
    "two apart meet in few sets and push each other out though there is room elsewhere (counted above predicted). A "
    "block that is a little too large loses only a part of its lines where the rule gives up all of them (counted "
    "below). Of what is used last in a turn the next use can be two turns' lines away, so a turn that fills more than "
    "half of a cache may lose it (counted above). Blocks begin and end within lines, and what was used last is still "
    "there when the next block begins."
)

_SIZES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


def flops_of(m: int, n: int, k: int, dtype: str) -> int:
    """Return the floating-point operations of a product: 2 a term, 8 for complex.

    Example:
        >>> flops_of(2, 3, 4, "float64"), flops_of(2, 3, 4, "complex64")
        (48, 192)
    """
    return m * n * k * (8 if dtype.startswith("complex") else 2)


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
class LevelTraffic:
    """What one level sends towards the registers and gets back: by operand, and in all. Units: bytes."""

    level: str
    operands: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        """All operands together."""
        return sum(count for _, count in self.operands)


@dataclass(frozen=True)
class Traffic:
    """The traffic of one product, nearest level first, and the work that it is for."""

    flops: int
    levels: tuple[LevelTraffic, ...]

    def bytes_of(self, level: str, operand: str | None = None) -> int:
        """Return the bytes that ``level`` exchanges with what is nearer to the registers, in all or of one operand."""
        for each in self.levels:
            if each.level == level:
                return each.bytes if operand is None else dict(each.operands).get(operand, 0)
        return 0

    def intensity(self, level: str) -> float:
        """Return the arithmetic intensity at a level: flops per byte; ``inf`` where nothing passes."""
        count = self.bytes_of(level)
        return self.flops / count if count else math.inf


def traffic_of(plan: Plan) -> Traffic:
    """Return the expected traffic of a plan on its machine.

    Where the plan is ``swapped``, A and B are those of the product that is computed, op(B)' times op(A)'.

    Raises:
        BlisgemmValueError: NumPy would compute the product, so its loops are not known.

    Example:
        >>> from blisgemm.teach.elsewhere import plan_on
        >>> traffic = traffic_of(plan_on("haswell", 960, 960, 960, threads=1))
        >>> [each.level for each in traffic.levels]
        ['L1', 'L2', 'L3', 'memory']
        >>> traffic.bytes_of("memory") >= 3 * 960 * 960 * 4
        True
    """
    if plan.path == "numpy":
        raise BlisgemmValueError(f"plan: expected one that the library's loops run; got path {plan.path!r}")
    caches = plan.machine.caches
    if plan.kernel is None or plan.blocking is None:  # nothing is multiplied; ``scale`` writes C once
        count = plan.m * plan.n * plan.batch * _SIZES[plan.dtype]
        levels = [LevelTraffic("L1", (("C", count),))]
        levels += [LevelTraffic(name, (("C", 2 * count),)) for name in _behind(caches)]  # fetched, and sent back
        return Traffic(0, tuple(levels))
    flops = flops_of(plan.m, plan.n, plan.k, plan.dtype) * plan.batch
    return _traffic(blocks_of_plan(plan, plan.kernel), caches, flops, plan.batch, plan.batch_ways)


def trace_traffic(steps: Trace, machine: Machine | str | Sequence[Cache] | None = None) -> Traffic:
    """Return what the loops of a trace are expected to move between the levels of a machine.

    Args:
        steps: its steps are not looked at, only its blocks.
        machine: as ``cachesim.simulate`` takes it.

    Raises:
        BlisgemmValueError: it has no loops.

    Example:
        >>> from blisgemm.teach.trace import trace
        >>> steps = trace(64, 64, 64, machine="teaching", mr=4, nr=4, blocking=(32, 16, 16))
        >>> trace_traffic(steps, "teaching").bytes_of("L1") / (2 * 64**3 * 4)  # of what three plain loops read
        0.3515625
    """
    if steps.path in ("empty", "scale"):
        raise BlisgemmValueError(f"steps: expected a trace with steps; got one of path {steps.path}")
    flops = flops_of(steps.m, steps.n, steps.k, steps.dtype)
    return _traffic(blocks_of_trace(steps), levels_of(machine), flops)


def loops_traffic(
    order: str, m: int, n: int, k: int, machine: Machine | str | Sequence[Cache] | None = None, *, itemsize: int = 4
) -> Traffic:
    """Return what three plain loops in an order are expected to move (``streams.loop_order_stream``).

    Example:
        >>> loops_traffic("ijk", 500, 500, 500, "haswell").bytes_of("L1") == 4 * 500**3 * 4
        True
    """
    loops = order.replace("k", "p")
    if sorted(loops) != ["i", "j", "p"]:
        raise BlisgemmValueError(f"order: expected a permutation of 'ijk'; got {order!r}")
    caches = levels_of(machine)
    nest = of_order(loops, m, n, k, caches[0].line_bytes / itemsize)
    levels = [_level("L1", {A: m * n * k, B: m * n * k, C: 2 * m * n * k}, itemsize)]
    for name, cache in zip(_behind(caches), caches, strict=True):
        moved = _sum(*nest.moved(cache.sets * cache.ways)) if m * n * k else {}
        levels.append(_level(name, moved, cache.line_bytes))
    return Traffic(2 * m * n * k, tuple(levels))


def _behind(caches: Sequence[Cache]) -> list[str]:
    """Return the names of what lies behind each cache."""
    return [*(f"L{cache.level}" for cache in caches[1:]), "memory"]


def _level(name: str, moved: Lines | dict[int, int], unit: int, times: int = 1, copied: bool = False) -> LevelTraffic:
    names = [f"copy of {OPERANDS[B]}" if copied and x == B_PACK else OPERANDS[x] for x in moved]
    counts = [round(count * unit) * times for count in moved.values()]
    return LevelTraffic(name, tuple(zip(names, counts, strict=True)))


def _sum(fetched: Lines, back: Lines) -> Lines:
    return {x: count + back.get(x, 0.0) for x, count in fetched.items()}


def _traffic(x: Blocks, caches: Sequence[Cache], flops: int, batch: int = 1, batch_ways: int = 1) -> Traffic:
    first, copied = elements(x), x.access == "copied" and x.path == "direct"
    levels = [_level("L1", first, x.itemsize, batch, copied)]
    for name, cache in zip(_behind(caches), caches, strict=True):
        lines = cache.sets * cache.ways
        if cache.cores > 1:
            moved = _shared(x, lines // batch_ways, cache.line_bytes)
        else:
            mine = _sum(*nest_of(of_one_core(x), cache.line_bytes).moved(lines))
            moved = {operand: x.team * count for operand, count in mine.items()}
        ordered = {operand: moved.get(operand, 0.0) for operand in first}
        levels.append(_level(name, ordered, cache.line_bytes, batch, copied))
    return Traffic(flops, tuple(levels))


def _shared(x: Blocks, lines: int, line_bytes: int) -> Lines:
    """Return what a cache moves that the whole team shares."""
    if x.path == "packed" or x.team == 1:
        return _sum(*nest_of(x, line_bytes, x.ways).moved(lines))
    whole, mine = nest_of(x, line_bytes), nest_of(of_one_core(x), line_bytes)
    once = _sum(*whole.once())
    if sum(whole.once()[0].values()) <= lines:
        return once
    parts = _sum(*mine.moved(lines // x.team))
    return {operand: max(once[operand], x.team * count) for operand, count in parts.items()}


@dataclass(frozen=True)
class Row:
    """One line of a comparison: bytes between two places, as predicted and as counted."""

    between: str
    predicted: int
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
        >>> rows = compare(trace_traffic(steps, "teaching"), simulate_trace(steps, "teaching"))
        >>> [row.between for row in rows]
        ['registers and L1', 'L1 and L2', 'L2 and L3', 'L3 and memory']
    """
    names = ["registers", *(f"L{x.level}" for x in counts.levels), "memory"]
    predicted = [each.bytes for each in expected.levels]
    counted = (counts.element_bytes, *counts.traffic_bytes)
    return tuple(
        Row(f"{inner} and {outer}", x, y)
        for (inner, outer), x, y in zip(pairwise(names), predicted, counted, strict=True)
    )
