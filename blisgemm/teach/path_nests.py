"""The loop nests of each path, as the traffic model takes them, and how many elements they read and write.

Knows: in which order each path touches its operands, on one thread and on several. Does not know: caches, or how a
plan is chosen (``plan``). Pure. Called by ``traffic``.

An element is one access at the registers, as in ``streams``: a tile that is cut off at an edge reads whole micro-panels
where they are packed, and what there is where they are not. Setting waiting sums to zero is not counted.

Threads: a core of a team has its part of C's rows and columns, packs its share and reads what the others have packed.
That it packs a step ahead, into a second buffer, moves as much; that two buffers take more of a cache is left out.

Source: ``loops``, whose text it restates; the tests hold it against what the loops' own text touches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..plan import Plan
from ..ukernel.spec import KernelSpec, rows_together
from .nest import Loop, Nest, Place
from .streams import A_PACK, B_PACK, SUMS, A, B, C
from .trace import Trace

__all__ = ["Blocks", "blocks_of_plan", "blocks_of_trace", "elements", "nest_of", "of_one_core", "of_order"]


@dataclass(frozen=True)
class Blocks:
    """What the order of accesses depends on; names as in ``Plan``. m, n, k: of the product that the loops compute.

    mr: on the sweep path, rows that meet B at once. ``ways``: threads over rows and over columns of C.
    ``packed_here``: as in ``Nest``.
    """

    path: str
    m: int
    n: int
    k: int
    itemsize: int
    wide: int
    mr: int
    nr: int
    mc: int
    nc: int
    kc: int
    nb: int
    half: bool
    swapped: bool
    access: str
    rows_first: bool
    step: int
    ways: tuple[int, int] = (1, 1)
    packed_here: tuple[tuple[int, float], ...] = ()

    @property
    def team(self) -> int:
        """Threads that work on one product."""
        return self.ways[0] * self.ways[1]


def blocks_of_plan(plan: Plan, kernel: KernelSpec) -> Blocks:
    """Return the blocks of a plan that multiplies."""
    blk = plan.blocking
    assert blk is not None
    m, n = (plan.n, plan.m) if plan.swapped else (plan.m, plan.n)
    ways = (plan.ic_ways, plan.jr_ways)
    if plan.path == "packed" and plan.ic_ways > 1:  # who takes which tile is not fixed: even parts
        down = min(plan.ic_ways, -(-min(blk.mc, m) // blk.mt))
        ways = (down, -(-plan.ic_ways // down))
    rows = rows_together(kernel, m) if plan.path == "sweep" else kernel.mr
    return Blocks(
        plan.path, m, n, plan.k, kernel.itemsize, kernel.planes, rows, kernel.nr, blk.mc, blk.nc,
        min(blk.kc, max(1, plan.k)), blk.nb if plan.ic_ways > 1 else blk.nc, plan.half, plan.swapped,
        plan.access, plan.rows_first and plan.access != "copied", plan.step, ways,
    )  # fmt: skip


def blocks_of_trace(steps: Trace) -> Blocks:
    """Return the blocks of a trace."""
    sizes = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
    return Blocks(
        steps.path, steps.m, steps.n, steps.k, sizes[steps.dtype], 1 + steps.dtype.startswith("complex"), steps.mr,
        steps.nr, steps.mc, steps.nc, steps.kc, steps.nb, steps.half, steps.swapped, steps.access,
        steps.rows_first, steps.step,
    )  # fmt: skip


def of_one_core(x: Blocks) -> Blocks:
    """Return the part of one core of a team, as it meets its own caches."""
    down, along = x.ways
    mine = replace(x, m=-(-x.m // down), n=-(-x.n // along), ways=(1, 1))
    if x.path != "packed" or x.team == 1:
        return mine
    of_a, of_b = (A_PACK,) if x.half else (A, A_PACK), (B, B_PACK)
    shares = (*((name, 1 / along) for name in of_a), *((name, 1 / down) for name in of_b))
    mc, nb = _share(x.mc, down, x.mr), _share(x.nb, along, x.nr)
    return replace(mine, mc=mc, nb=nb, nc=min(x.nc, nb), packed_here=shares)


def _share(extent: int, parts: int, step: int) -> int:
    return -(-extent // (parts * step)) * step


def nest_of(x: Blocks, line_bytes: int, at_once: tuple[int, int] = (1, 1)) -> Nest:
    """Return the loop nest.

    Args:
        x: the blocks. line_bytes: of a cache.
        at_once: of the packed path, how many tiles of C a team has under way, one below the other and side by side.
    """
    down, along = at_once
    places = {A: Place("i", "p"), B: Place("p", "j"), C: Place("i", "j")}
    if x.swapped:
        places = {name: Place(place.second, place.first) for name, place in places.items()}
    if x.path == "direct" and x.access == "columns":
        places[B] = Place("j", "p")
    body: tuple[int, ...] = (A, B, C)
    written: tuple[int, ...] = (C,)
    if x.path == "packed":
        places[A_PACK] = Place("i", "p", x.mc, x.kc, pad_rows=x.mr)
        places[B_PACK] = Place("p", "j", x.kc, x.nb, pad_columns=x.nr)
        from_a = () if x.half else ((A, A_PACK),)
        loops: tuple[Loop, ...] = (
            Loop("i", x.mc), Loop("p", x.kc, from_a), Loop("j", x.nb, ((B, B_PACK),)), Loop("j", x.nc * along),
            Loop("i", x.mr * down), Loop("j", x.nr),
        )  # fmt: skip
        body = (A if x.half else A_PACK, B_PACK, C)
    elif x.path == "direct":
        i, j, p = Loop("i", x.mr), Loop("j", x.nr), Loop("p", x.kc)
        loops = (j, p, i) if x.access == "columns" else (p, i, j) if x.rows_first else (p, j, i)
        if x.access == "copied":
            places[B_PACK] = Place("p", "j", x.k, x.n)
            loops, body = (Loop("i", max(1, x.m), ((B, B_PACK),)), *loops), (A, B_PACK, C)
    elif x.path == "strips":
        places[SUMS] = Place("i", "j", _share(x.m, 1, x.mr), x.nc, x.mr, x.nr, x.wide)
        places[A_PACK] = Place("i", "p", _share(x.m, 1, x.mr), x.kc, pad_rows=x.mr)
        places[B_PACK] = Place("p", "j", x.step, x.nr, pad_columns=x.nr)
        loops = (
            Loop("j", x.nc), Loop("p", x.kc, ((A, A_PACK),), ends=(C,)), Loop("p", x.step),
            Loop("j", x.nr, ((B, B_PACK),)), Loop("i", x.mr),
        )  # fmt: skip
        body, written = (A_PACK, B_PACK, SUMS), (SUMS,)
    else:
        places[SUMS] = Place("i", "j", _share(x.m, 1, _sum_rows(x)), x.nc, _sum_rows(x), _sum_columns(x), x.wide)
        tiles = (Loop("j", x.nr), Loop("i", x.mr)) if x.path == "stream" else (Loop("i", x.mr),)
        loops = (Loop("j", x.nc), Loop("p", x.kc, ends=(C,)), Loop("p", x.step), *tiles)
        body, written = (A, B, SUMS), (SUMS,)
    spans = {"i": x.m, "j": x.n, "p": x.k}
    return Nest(loops, body, written, spans, places, line_bytes / x.itemsize, dict(x.packed_here))


def _sum_rows(x: Blocks) -> int:
    return x.mr if x.path == "stream" else 1


def _sum_columns(x: Blocks) -> int:
    return x.nr if x.path == "stream" else 1


def of_order(order: str, m: int, n: int, k: int, per_line: float) -> Nest:
    """Return the nest of three plain loops over single elements; order: a permutation of ``ijp``."""
    places = {A: Place("i", "p"), B: Place("p", "j"), C: Place("i", "j")}
    return Nest(tuple(Loop(x, 1) for x in order), (A, B, C), (C,), {"i": m, "j": n, "p": k}, places, per_line)


def elements(x: Blocks) -> dict[int, int]:
    """Return how many elements of each operand pass between the registers and L1, in reads and writes."""
    m, n, k = x.m, x.n, x.k
    rows, columns, blocks = -(-m // x.mr), -(-n // x.nr), -(-k // x.kc)
    result = m * n * (2 * blocks - 1)
    if x.path == "packed":
        panels = -(-m // x.mc)
        used, packs = columns * k * (m if x.half else rows * x.mr), k * rows * x.mr
        of_b = k * columns * x.nr
        a = {A: used} if x.half else {A: m * k, A_PACK: used + packs}
        return {**a, B: panels * k * n, B_PACK: (rows + panels) * of_b, C: result}
    if x.path == "direct":
        b = {B: k * n, B_PACK: (1 + rows) * k * n} if x.access == "copied" else {B: rows * k * n}
        return {A: columns * m * k, **b, C: result}
    steps = sum(-(-min(x.kc, k - pc) // x.step) for pc in range(0, k, x.kc))
    if x.path == "strips":
        panels, sums = -(-n // x.nc), rows * x.mr * columns * x.nr * x.wide
        of_a, of_b = k * rows * x.mr, k * columns * x.nr
        return {
            A: panels * m * k, A_PACK: (panels + columns) * of_a, B: k * n, B_PACK: (1 + rows) * of_b, C: result,
            SUMS: 2 * steps * sums,
        }  # fmt: skip
    if x.path == "stream":
        sums = rows * x.mr * columns * x.nr * x.wide
        return {A: columns * m * k, B: rows * k * n, C: result, SUMS: 2 * steps * sums}
    return {A: -(-n // x.nc) * m * k, B: rows * k * n, C: result, SUMS: 2 * steps * m * n * x.wide}
