"""Expected traffic: how many bytes of each operand pass between the levels of memory when a plan runs.

Knows: in which order each path touches its operands. Does not know: how a plan is chosen (``plan``), how fast a level
is (``rates``), sets, ways and prefetchers (``cachesim`` counts those). Pure. Called by ``explain`` and ``roofline``.

The model. A path touches each operand in passes. Between two passes over a datum other data are touched: so many bytes
are its *distance*. The datum is found in the nearest cache that holds as many bytes as the distance, as in a cache that
always drops what was used longest ago. Lines are used whole. A write first fetches its line and later sends it back,
so beyond L1 it counts twice. Operands start in memory (cold); packed buffers are those of the call before (warm).
beta = 0. Edges are not padded. Other cores are idle: all of a shared cache serves the threads of the product.

Source: reuse distance: Mattson, Gecsei, Slutz and Traiger, IBM Systems Journal 9(2), 1970; the distances of the packed
path are those of Goto and van de Geijn, TOMS 34(3), 2008.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import BlisgemmValueError
from ..machine.facts import Machine
from ..plan import Plan
from ..ukernel.spec import KernelSpec

__all__ = ["LevelTraffic", "Stream", "Traffic", "Use", "flops_of", "level_bytes", "traffic_of"]

_ANYWHERE = math.inf  # the distance of a first touch


@dataclass(frozen=True)
class Use:
    """Accesses that have one reuse distance.

    Attributes:
        bytes: so many are accessed in all.
        near: bytes that this core touches since the use before; ``inf``: never by this core.
        far: bytes that all cores touch since then; ``inf``: a first touch, served by memory.
    """

    bytes: int
    near: float
    far: float


@dataclass(frozen=True)
class Stream:
    """What one step of the loops does with one operand.

    ``kind``: ``read``, ``write`` (without reading) or ``update`` (read and written back).
    """

    operand: str
    what: str
    kind: str
    uses: tuple[Use, ...]

    @property
    def register_bytes(self) -> int:
        """Bytes between L1 and the registers."""
        return (2 if self.kind == "update" else 1) * sum(use.bytes for use in self.uses)

    def bytes_beyond(self, capacity: int, shared: bool) -> int:
        """Return the bytes that a cache of this capacity exchanges with the level behind it."""
        missed = sum(use.bytes for use in self.uses if (use.far if shared else use.near) > capacity)
        return missed if self.kind == "read" else 2 * missed


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
    streams: tuple[Stream, ...]

    def bytes_of(self, level: str) -> int:
        """Return the bytes that ``level`` exchanges with what is nearer to the registers."""
        return next((each.bytes for each in self.levels if each.level == level), 0)

    def intensity(self, level: str) -> float:
        """Return the arithmetic intensity at a level: flops per byte; ``inf`` where nothing passes."""
        count = self.bytes_of(level)
        return self.flops / count if count else math.inf


def flops_of(m: int, n: int, k: int, dtype: str) -> int:
    """Return the floating-point operations of a product: 2 a term, 8 for complex.

    Example:
        >>> flops_of(2, 3, 4, "float64"), flops_of(2, 3, 4, "complex64")
        (48, 192)
    """
    return m * n * k * (8 if dtype.startswith("complex") else 2)


def level_bytes(machine: Machine) -> tuple[tuple[str, int, bool], ...]:
    """Return each cache as (name, its bytes, whether cores share it).

    Example:
        >>> from blisgemm.machine import KNOWN
        >>> level_bytes(KNOWN["haswell"])
        (('L1', 32768, False), ('L2', 262144, False), ('L3', 8388608, True))
    """
    return tuple((f"L{cache.level}", cache.size_bytes, cache.cores > 1) for cache in machine.caches)


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
    if plan.kernel is None or plan.blocking is None:  # nothing is multiplied; ``scale`` writes C once
        c_bytes = plan.m * plan.n * plan.batch * _ITEM[plan.dtype]
        written = Stream("C", "written", "write", (Use(c_bytes, _ANYWHERE, _ANYWHERE),))
        return _counted(plan, 0, (written,) if c_bytes else ())
    streams = {"packed": _packed, "direct": _direct, "sweep": _sweep, "stream": _stream}[plan.path](plan, plan.kernel)
    streams = tuple(Stream(s.operand, s.what, s.kind, _kept(s.uses, plan.batch)) for s in streams)
    return _counted(plan, flops_of(plan.m, plan.n, plan.k, plan.dtype) * plan.batch, streams)


_ITEM = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


def _kept(uses: Iterable[Use], times: int) -> tuple[Use, ...]:
    return tuple(Use(use.bytes * times, use.near, use.far) for use in uses if use.bytes > 0)


def _counted(plan: Plan, flops: int, streams: tuple[Stream, ...]) -> Traffic:
    """Sum the streams at every level."""
    caches = level_bytes(plan.machine)
    behind = [*(name for name, _, _ in caches[1:]), "memory"]
    names = tuple(dict.fromkeys(stream.operand for stream in streams))

    def by_operand(count: list[int]) -> tuple[tuple[str, int], ...]:
        pairs = zip(streams, count, strict=True)
        total = dict.fromkeys(names, 0)
        for stream, moved in pairs:
            total[stream.operand] += moved
        return tuple(total.items())

    levels = [LevelTraffic("L1", by_operand([stream.register_bytes for stream in streams]))]
    for (_, capacity, shared), level in zip(caches, behind, strict=True):
        levels.append(LevelTraffic(level, by_operand([s.bytes_beyond(capacity, shared) for s in streams])))
    return Traffic(flops, tuple(levels), streams)


def _extents(plan: Plan) -> tuple[int, int, int]:
    return (plan.n, plan.m, plan.k) if plan.swapped else (plan.m, plan.n, plan.k)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _result(c_bytes: int, blocks: int, near: float, far: float) -> tuple[Stream, ...]:
    """Return C's streams: written after the first kc block, updated after each later one."""
    first = Stream("C", "written after the first kc block", "write", (Use(c_bytes, _ANYWHERE, _ANYWHERE),))
    later = Stream("C", "updated after each later kc block", "update", (Use(c_bytes * (blocks - 1), near, far),))
    return (first, later) if blocks > 1 else (first,)


def _packed(plan: Plan, kernel: KernelSpec) -> tuple[Stream, ...]:
    """Return the streams of ``loops.five_loops``."""
    assert plan.blocking is not None
    (m, n, k), blk, size, team = _extents(plan), plan.blocking, kernel.itemsize, plan.ic_ways
    kc, mc, nc, mt = min(blk.kc, k), min(blk.mc, m), min(blk.nc, n), min(blk.mt, m)
    nb = min(blk.nb, n) if team > 1 else nc
    panels, blocks, steps = _ceil_div(m, blk.mc), _ceil_div(n, blk.nc), _ceil_div(k, kc)
    rows, columns = _ceil_div(m, kernel.mr), _ceil_div(n, kernel.nr)
    tile_rows = sum(_ceil_div(min(blk.mc, m - ic), blk.mt) for ic in range(0, m, blk.mc))
    a_bytes, b_bytes, c_bytes = m * k * size, k * n * size, m * n * size
    a_panel, b_block, b_together = mc * kc * size, kc * nc * size, kc * nb * size
    a_source = 0 if plan.half else a_panel  # what packing reads beside what it writes

    tile = (kernel.mr * kc + kc * kernel.nr + kernel.mr * kernel.nr) * size  # between two micro-tiles of a row of them
    strip = b_block + (kernel.mr * kc + kernel.mr * nc) * size  # between two micro-panels of A
    near_block = a_panel + 2 * b_block + mt * nc * size  # between two blocks of B
    far_block = a_panel + 2 * b_block * team + mc * nc * size
    step = a_source + a_panel + kc * n * size + b_together + mc * n * size  # between two kc blocks
    panel = (mc * k + k * n + mc * n) * size + b_together  # between two panels of A
    alone = team == 1
    packed_b = 2 * b_together + kernel.mr * kc * size

    a_name = "A" if plan.half else "packed A"
    a_first = (
        [Use(a_bytes, _ANYWHERE, _ANYWHERE), Use(a_bytes * (blocks - 1), near_block, far_block)]
        if plan.half
        else [Use(a_bytes * blocks, near_block, far_block)]
    )
    packing_a = (
        Stream("A", "read by packing", "read", (Use(a_bytes, _ANYWHERE, _ANYWHERE),)),
        Stream("packed A", "written by packing", "write", (Use(a_bytes, step, step),)),
    )
    return (
        *(() if plan.half else packing_a),
        Stream("B", "read by packing", "read", (
            Use(b_bytes, _ANYWHERE, _ANYWHERE), Use(b_bytes * (panels - 1), panel if alone else _ANYWHERE, panel),
        )),
        Stream("packed B", "written by packing", "write", (
            Use(b_bytes * panels, packed_b if alone else _ANYWHERE, packed_b + (0 if alone else step - b_together)),
        )),
        Stream(a_name, "read by the microkernel", "read", (
            *a_first, Use(a_bytes * (columns - blocks), tile, tile * team),
        )),
        Stream("packed B", "read by the microkernel", "read", (
            Use(b_bytes * tile_rows, packed_b if alone else _ANYWHERE, packed_b + (0 if alone else a_panel)),
            Use(b_bytes * (rows - tile_rows), strip, strip * team),
        )),
        *_result(c_bytes, steps, step, step),
    )  # fmt: skip


def _direct(plan: Plan, kernel: KernelSpec) -> tuple[Stream, ...]:
    """Return the streams of ``loops.direct``: each thread has a part of C, all of its rows of A and columns of B."""
    assert plan.blocking is not None
    (m, n, k), size = _extents(plan), kernel.itemsize
    ic, jr, kc = plan.ic_ways, plan.jr_ways, min(plan.blocking.kc, k)
    own_m, own_n, team = _ceil_div(m, ic), _ceil_div(n, jr), ic * jr
    rows, columns, steps = _ceil_div(m, kernel.mr), _ceil_div(n, kernel.nr), _ceil_div(k, kc)
    a_bytes, b_bytes, c_bytes = m * k * size, k * n * size, m * n * size
    everything = a_bytes + b_bytes + c_bytes
    mr, nr = min(kernel.mr, m), min(kernel.nr, n)
    tile = (mr * k + k * nr + mr * nr) * size
    part = (mr * kc + kc * nr + mr * nr) * size
    if plan.rows_first:
        a_near, b_near = tile, (k * own_n + mr * k + mr * own_n) * size
    else:
        a_near, b_near = (own_m * k + k * nr + own_m * nr) * size, tile
    copied = plan.access == "copied"
    copying = (
        Stream("B", "read by copying", "read", (Use(b_bytes, _ANYWHERE, _ANYWHERE),)),
        Stream("copy of B", "written by copying", "write", (Use(b_bytes, 2 * b_bytes, 2 * b_bytes),)),
    )
    b_first = 2.0 * b_bytes if copied else _ANYWHERE
    return (
        *(copying if copied else ()),
        Stream("A", "read by the microkernel", "read", (
            Use(a_bytes, _ANYWHERE, _ANYWHERE), Use(a_bytes * (jr - 1), _ANYWHERE, everything),
            Use(a_bytes * (columns - jr), a_near, a_near * team),
        )),
        Stream("copy of B" if copied else "B", "read by the microkernel", "read", (
            Use(b_bytes, b_first, b_first), Use(b_bytes * (ic - 1), _ANYWHERE, everything),
            Use(b_bytes * (rows - ic), b_near, b_near * team),
        )),
        *_result(c_bytes, steps, part, part * team),
    )  # fmt: skip


def _waiting(plan: Plan, kernel: KernelSpec, sums_bytes: int, row: int, rows: int) -> tuple[Stream, ...]:
    """Return the streams of the two paths where B passes by and sums wait in a buffer.

    Args:
        sums_bytes: of all columns. row, rows: rows of C that meet B at once, and how many times it is met.
    """
    assert plan.blocking is not None
    (m, n, k), size, team = _extents(plan), kernel.itemsize, plan.jr_ways
    kc, nc, step = min(plan.blocking.kc, k), min(plan.blocking.nc, n), plan.step
    width = nc if plan.path == "sweep" else min(kernel.nr, n)  # columns between two rows that meet the same B
    a_bytes, b_bytes, c_bytes = m * k * size, k * n * size, m * n * size
    passes, blocks = _ceil_div(n, nc), _ceil_div(k, kc)
    steps = sum(_ceil_div(min(kc, k - pc), step) for pc in range(0, k, kc))
    sums = sums_bytes * nc // n  # of the columns that pass at once
    b_near = (step * width + row * step) * size + sums_bytes * width // n
    all_sums = sums + (step * nc + m * step) * size
    a_reads = passes if plan.path == "sweep" else _ceil_div(n, kernel.nr)
    a_near, a_step = (m * k + k * nc) * size + sums, (m * step + step * width) * size + sums * width // nc
    block = sums + (kc * nc + m * kc + m * nc) * size
    return (
        Stream("B", "read once for each row of tiles", "read", (
            Use(b_bytes, _ANYWHERE, _ANYWHERE), Use(b_bytes * (rows - 1), b_near, b_near * team),
        )),
        Stream("A", "read with each part of B", "read", (
            Use(a_bytes, _ANYWHERE, _ANYWHERE), Use(a_bytes * (passes - 1), a_near, a_near * team),
            Use(a_bytes * (a_reads - passes), a_step, a_step * team),
        )),
        Stream("sums", "set to zero", "write", (Use(sums_bytes * blocks, block, block * team),)),
        Stream("sums", "updated in each step", "update", (Use(sums_bytes * steps, all_sums, all_sums * team),)),
        *_result(c_bytes, blocks, block, block * team),
    )  # fmt: skip


def _sweep(plan: Plan, kernel: KernelSpec) -> tuple[Stream, ...]:
    """Return the streams of ``loops.sweep_rows``: every row meets ``step`` rows of B on its own."""
    m, n, _ = _extents(plan)
    return _waiting(plan, kernel, m * n * kernel.chains * kernel.real_bits // 8, 1, m)


def _stream(plan: Plan, kernel: KernelSpec) -> tuple[Stream, ...]:
    """Return the streams of ``loops.stream``: micro-tiles of ``step`` terms, side by side."""
    m, n, _ = _extents(plan)
    tiles = _ceil_div(m, kernel.mr)
    sums_bytes = tiles * _ceil_div(n, kernel.nr) * kernel.sums * kernel.real_bits // 8
    return _waiting(plan, kernel, sums_bytes, min(kernel.mr, m), tiles)
