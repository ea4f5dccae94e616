"""The orders of access that the page has a button for: the rungs of the ladder, and a variant of the library's own.

Knows: how each order's steps are recorded, and which blocks it can be given. Does not know: how caches work
(``cachesim``), or how steps are shown (``page_steps``). Called by ``page_model``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ladder import DTYPES, rung_of
from ..machine.facts import Machine
from ..machine.isas import GENERIC
from ..plan import PASSING
from ..ukernel import catalog
from ..ukernel.spec import KernelSpec
from .cachesim import Counts, simulate_trace
from .elsewhere import plan_on
from .page_rungs import blocks_trace, order_trace, tiles_trace
from .page_steps import Loop
from .trace import Trace, least_events, trace

__all__ = ["ORDERS", "Order", "Problem"]

_TILE = ("mr", "nr")
_BLOCKS = (*_TILE, "mc", "nc", "kc")
_WORDS = {"i": "rows of A and C", "j": "columns of B and C", "p": "the summed dimension"}

Blocks = Mapping[str, int]


@dataclass(frozen=True)
class Recorded:
    """The steps of a setting, what they did to the caches after each of them, the loops, and the microkernel if any."""

    steps: Trace
    counts: Counts
    loops: tuple[Loop, ...]
    kernel: KernelSpec | None


@dataclass(frozen=True)
class Problem:
    """A product and the machine whose caches and registers it meets."""

    m: int
    n: int
    k: int
    dtype: str
    machine: Machine

    @property
    def extents(self) -> tuple[int, int, int]:
        """m, n and k."""
        return self.m, self.n, self.k

    @property
    def terms(self) -> int:
        """m n k."""
        return self.m * self.n * self.k

    def kernel(self, mr: int, nr: int) -> KernelSpec:
        """Return a microkernel of that tile in the machine's registers.

        Raises:
            BlisgemmValueError: its sums don't fit there, or nr isn't a whole number of vectors.
        """
        return KernelSpec(self.dtype, self.dtype, self.dtype, mr, nr, self.machine.isa)


@dataclass(frozen=True)
class Order:
    """One order of access: its key, name and idea, the blocks that it can be given, and how its steps are recorded."""

    key: str
    name: str
    idea: str
    axes: tuple[str, ...]
    record: Callable[[Problem, Blocks], Recorded]
    most_terms: int = 1 << 62

    def suits(self, problem: Problem) -> bool:
        """Whether it is shown for a product: not every rung knows every dtype, nor is one counted in seconds."""
        return problem.terms <= self.most_terms and (problem.dtype in DTYPES or self.key in ("r6", "half", "r8"))

    def least_steps(self, problem: Problem, blocks: Blocks) -> int:
        """Return how many steps it takes at least, without recording any."""
        own = plan_on(problem.machine, *problem.extents, problem.dtype, threads=1)
        if own.path in PASSING and not self.axes:
            return 1
        assert own.kernel is not None  # every dtype here has kernels, and every extent is at least 1
        mr, nr = (blocks[x] if x in self.axes else getattr(own.kernel, x) for x in _TILE)
        return least_events(*problem.extents, mr, nr, blocks["kc"] if "kc" in self.axes else problem.k)


# Terms up to which plain loops and small tiles are counted access by access. Source: our choice; 6 * 10^6 accesses,
# some 200 MB and a few seconds.
_MOST_TERMS = 128**3


def _plain(order: str) -> Callable[[Problem, Blocks], Recorded]:
    def record(problem: Problem, blocks: Blocks) -> Recorded:
        steps, counts = order_trace(order, *problem.extents, problem.dtype, problem.machine)
        extents = dict(zip("ijp", (problem.m, problem.n, problem.k), strict=True))
        at = ("ir", "jr", "")
        loops = tuple(Loop("  " * depth + x, at[depth], 1, extents[x], _WORDS[x]) for depth, x in enumerate(order))
        return Recorded(steps, counts, loops, None)

    return record


def _recorded(problem: Problem, steps: Trace, kernel: KernelSpec) -> Recorded:
    five = bool(len(steps)) and bool((steps.events["ic"] >= 0).any())
    counts = simulate_trace(steps, problem.machine, record=True)
    return Recorded(steps, counts, _five(steps) if five else _two(steps), kernel)


def _small_tiles(problem: Problem, blocks: Blocks) -> Recorded:
    kernel = KernelSpec(problem.dtype, problem.dtype, problem.dtype, 4, 4, GENERIC)  # short vectors, as the rung says
    return _recorded(problem, tiles_trace(*problem.extents, kernel, problem.machine.name), kernel)


def _tiles(problem: Problem, blocks: Blocks) -> Recorded:
    kernel = problem.kernel(blocks["mr"], blocks["nr"])
    return _recorded(problem, tiles_trace(*problem.extents, kernel, problem.machine.name), kernel)


def _sizes(blocks: Blocks) -> tuple[int, int, int]:
    """Return (mc, nc, kc) with mc and nc in whole micro-panels."""
    mr, nr = blocks["mr"], blocks["nr"]
    return -(-blocks["mc"] // mr) * mr, -(-blocks["nc"] // nr) * nr, blocks["kc"]


def _unpacked(problem: Problem, blocks: Blocks) -> Recorded:
    kernel = problem.kernel(blocks["mr"], blocks["nr"])
    steps = blocks_trace(*problem.extents, kernel, _sizes(blocks), problem.machine.name)
    return _recorded(problem, steps, kernel)


def _packed(problem: Problem, blocks: Blocks, half: bool = False) -> Recorded:
    steps = trace(
        *problem.extents, machine=problem.machine, dtype=problem.dtype, mr=blocks["mr"], nr=blocks["nr"],
        blocking=_sizes(blocks), half=half,
    )  # fmt: skip
    return _recorded(problem, steps, problem.kernel(blocks["mr"], blocks["nr"]))


def _half(problem: Problem, blocks: Blocks) -> Recorded:
    return _packed(problem, blocks, half=True)


def _library(problem: Problem, blocks: Blocks) -> Recorded:
    steps = trace(*problem.extents, machine=problem.machine, dtype=problem.dtype)
    return _recorded(problem, steps, catalog.by_name(steps.kernel))


def _two(steps: Trace) -> tuple[Loop, ...]:
    return (
        Loop("ir", "ir", steps.mr, steps.m, "rows of C in micro-tiles"),
        Loop("jr", "jr", steps.nr, steps.n, "columns of C in micro-tiles"),
        Loop("pc", "pc", steps.kc, steps.k, "the summed dimension"),
    )


def _five(steps: Trace) -> tuple[Loop, ...]:
    panel = "a panel of A is packed" if steps.path == "packed" and not steps.half else "a panel of A, as it lies"
    block = "a block of B is packed" if steps.path == "packed" else "a block of B, as it lies"
    return (
        Loop("ic", "ic", steps.mc, steps.m, f"5th loop, rows of C and A: {panel}, for L3"),
        Loop("  pc", "pc", steps.kc, steps.k, "4th loop, the summed dimension"),
        Loop("    jc", "jc", steps.nc, steps.n, f"3rd loop, columns of C and B: {block}, for L2"),
        Loop("      ir", "ir", steps.mr, steps.mc, "2nd loop: a micro-panel of A stays in L1"),
        Loop("        jr", "jr", steps.nr, steps.nc, "1st loop: micro-panels of B pass; a micro-tile of C"),
    )


def _order(
    key: str, name: str, more: str, axes: tuple[str, ...], record: Callable[[Problem, Blocks], Recorded], *rungs: str
) -> Order:  # fmt: skip
    """Return an order whose idea begins with what the ladder says of its rungs."""
    told = ". ".join(f"Rung {rung_of(rung).number}: {rung_of(rung).title}" for rung in rungs)
    return Order(key, name, f"{told}. {more}", axes, record, 1 << 62 if rungs[0] > "r3" else _MOST_TERMS)


ORDERS: tuple[Order, ...] = (
    _order("r0", "r0 r1 · i j p", "B is walked down its columns, each element in another line.", (), _plain("ijp"),
           "r0", "r1"),
    _order("r2", "r2 · i p j", "B and C are walked along their rows.", (), _plain("ipj"), "r2"),
    _order("jpi", "r2 · j p i", "The worst by rows: A and C are both walked down their columns.", (), _plain("jpi"),
           "r2"),
    _order("r3", "r3 · 4 × 4", "A tile of C stays in registers while p runs.", (), _small_tiles, "r3"),
    _order("r4", "r4 · micro-tiles", "Nothing is packed, and no block is cut for a cache.", _TILE, _tiles, "r4"),
    _order("r5", "r5 · blocks", "The five loops on the matrices as they lie.", _BLOCKS, _unpacked, "r5"),
    _order("r6", "r6 r7 · packed", "The library's five loops.", _BLOCKS, _packed, "r6", "r7"),
    Order("half", "A as it lies", "The five loops with B packed, A read where it lies: the library, where faster.",
          _BLOCKS, _half),
    _order("r8", "r8 · library", "What the library chooses for this product and machine, on one thread.", (), _library,
           "r8"),
)  # fmt: skip
