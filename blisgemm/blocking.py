"""The blocking model: how large kc, mc and nc are, and why, in words.

Knows: caches as sets and ways, the micro-tile, the extents. Does not know: this host (``machine``), which
kernel or path is taken (``plan``), or the loops (``loops``). Pure. Called by ``plan`` and ``teach``.

::

    micro-tile of C    mr x nr    registers   accumulators while p runs
    micro-panel of B   kc x nr    L1          reused by every micro-panel of A in the block
    micro-panel of A   mr x kc    L1          streams from L2, once per micro-panel of B
    block of A         mc x kc    L2          reused by every micro-panel of B in the panel
    panel of B         kc x nc    L3          reused by every block of A

mc and nc change speed only. kc changes bits, since a kc block is one chain of sums: it follows from
(dtype, k) alone, so that every machine, kernel, path and number of threads computes the same bits.

Source: Goto and van de Geijn, TOMS 34(3), 2008; Low, Igual, Smith and Quintana-Orti, TOMS 43(2), 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .errors import BlisgemmValueError
from .machine.facts import Cache, Machine
from .ukernel.spec import KernelSpec

__all__ = ["KC_MAX", "PANEL_BYTES_MAX", "Blocking", "Footprint", "LowAnswer", "choose_blocking", "even_mc",
           "even_nc", "footprints", "kc_for", "low_et_al", "pack_together", "say_tiles", "tiles_for"]  # fmt: skip

# Elements of k in one block, at most; multiples of KC_STEP. Between BLIS's 256 (haswell) and 640 (altra).
# Source: bench/kc.py on Zen 4 (AVX-512 and AVX2 kernels) and Emerald Rapids, 2026-11-29: of 256, 384, 512
# in f32 the last won by 2 to 4 % over 384 on AVX-512 and lost nothing on AVX2; in f64 384 won by 2 to 4 % over
# 256 on Emerald Rapids and lost at most 1.5 % on Zen 4 with AVX2; complex within 3 % of each other.
KC_MAX = {"float32": 512, "float64": 384, "complex64": 384, "complex128": 256}

# Even kc blocks are rounded up to this many elements: two turns of a k loop unrolled 4 (ukernel.spec).
KC_STEP = 8

# The block of A takes at most two thirds of a core's part of L2, (numerator, denominator). Source: BLIS
# config: haswell f32 168*256*4 is 66 % of 256 KiB, skx f32 480*384*4 is 70 % of 1 MiB, altra f32 192*640*4
# is 47 % of 1 MiB. On Zen 4 (1 MiB) shares of 18 to 97 % all lay within 3 % (f32_8x48_avx512; [1]).
A_SHARE = (2, 3)

# The same where all of B fits in half of L2. Source: n = 512 on Emerald Rapids, 2026-11-30, times NumPy's speed with
# mc = 120, 240 and 512: f32 0.98 0.95 0.91, f64 1.01 1.00 0.91; level on Zen 3 (n = 256).
A_BESIDE_B = (1, 8)

# The panel of B takes at most half of the threads' part of L3; the rest is for A on its way to L2 and
# for C. Source: BLIS config/haswell f32: 4080*256*4 is 50 % of 8 MiB.
B_SHARE = (1, 2)

# Columns of the panel of B, at least: A is packed again for every panel. Source: [1], GFLOP/s at nc = 144,
# 288, 384, 576, 912, 2688: f32_8x48_avx512 98.5 104.2 106.5 108.3 109.3 110.0; f64_8x24_avx512 50.1 52.4
# 53.4 53.7 54.0 54.6. So 1024 is within 1 % of a single panel, and 288 loses 4 to 5 %.
# [1] five_loops, m = n = k = 2688, one thread, best of 12 or more, EPYC (Zen 4) in a VM, 2026-11-29.
NC_MIN = 1024

# Columns of the panel of B where there is no third level to fit. Source: BLIS config/haswell nc.
NC_NO_L3 = 4080

# How the work of several threads is cut: see ``tiles_for``. TILE_LEAST in micro-panels of A and of B.
TILES_PER_THREAD, TILE_LEAST = 16, (12, 4)

# The workspace of a panel of B stays bounded where L3 is very large. Source: our choice; with kc = 512 in
# f32 it is 16384 columns, 16 times what NC_MIN asks for.
PANEL_BYTES_MAX = 32 << 20


@dataclass(frozen=True)
class Footprint:
    """What one block occupies, and the memory it is meant to stay in.

    ``level``: 0 registers, 1 to 3 caches, 4 memory (the panel of B where there is no L3). ``cache_bytes``:
    this core's part of that level; for the panel of B the part of all threads on one L3; 0 for memory.
    """

    what: str
    level: int
    bytes: int
    cache_bytes: int
    share: float

    def __str__(self) -> str:
        place = ("registers", "L1", "L2", "L3", "memory")[self.level]
        of = f"{_size(self.cache_bytes)} of {place} ({self.share:.0%})" if self.cache_bytes else place
        return f"{self.what}: {_size(self.bytes)} in {of}"


@dataclass(frozen=True)
class Blocking:
    """The cache blocks of one product. Units: elements; mc % mr == ma % mr == nc % nr == nt % nr == 0.

    ``nt``: columns that a tile of mc rows takes of the panel; ``ma``: rows of A that are packed together. 0 stands
    for nc and for mc: one thread packs a block at a time and multiplies it by the whole panel.
    """

    mc: int
    nc: int
    kc: int
    footprints: tuple[Footprint, ...]
    reasons: tuple[str, ...]
    nt: int = 0
    ma: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nt", self.nt or self.nc)
        object.__setattr__(self, "ma", self.ma or self.mc)


@dataclass(frozen=True)
class LowAnswer:
    """What the analytical model alone would choose. Units: elements; nc is None without L3."""

    kc: int
    mc: int
    nc: int | None
    text: str


def kc_for(dtype: str, k: int) -> int:
    """Return the kc block of a product, from (dtype, k) alone: the same bits on every machine.

    An element of C is one chain of sums within a kc block, and blocks are added in order: another kc rounds
    otherwise. So kc may not look at caches, kernels, m, n or threads. A longer k is split evenly, since a
    short last block costs a whole update of C.

    Args:
        dtype: NumPy name of the accumulator.
        k: extent of the summed dimension, >= 0.

    Returns:
        kc >= 1 (1 also for k = 0, where there is no block); at most ``KC_MAX[dtype]``.

    Raises:
        BlisgemmValueError: the dtype has no row in ``KC_MAX``, or k < 0.

    Example:
        >>> kc_for("float32", 512), kc_for("float32", 513), kc_for("float32", 1200)
        (512, 264, 400)
    """
    if dtype not in KC_MAX:
        raise BlisgemmValueError(f"dtype: expected one of {', '.join(KC_MAX)}; got {dtype!r}")
    if k < 0:
        raise BlisgemmValueError(f"k: expected k >= 0; got {k}")
    kc_max = KC_MAX[dtype]
    return max(k, 1) if k <= kc_max else _ceil_div(_even_step(k, kc_max), KC_STEP) * KC_STEP


def choose_blocking(machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int = 1) -> Blocking:
    """Choose mc, nc and kc for one product, with footprints and reasons.

    kc is ``kc_for``. mc: the block of A takes the ways of L2 that the micro-panel of B and C leave, at most
    ``A_SHARE``. nc: the panel of B takes ``B_SHARE`` of the L3 of the cores in use, at least ``NC_MIN``
    columns, at most ``PANEL_BYTES_MAX``. Both are then made even over the rows and columns that there
    are: the fewest blocks, as equal as steps of whole micro-panels allow.

    Args:
        machine, kernel: the facts; the kernel need not be of the machine's own vector set.
        m, n, k: extents, >= 0.
        threads: how many share the panel of B, >= 1 (``tiles_for`` then divides the work).

    Raises:
        BlisgemmValueError: an extent is negative or threads is below 1.

    Example:
        >>> from blisgemm.machine import ISAS, KNOWN
        >>> kernel = KernelSpec("float32", "float32", "float32", 6, 16, ISAS["avx2"])
        >>> chosen = choose_blocking(KNOWN["haswell"], kernel, 4000, 4000, 256)
        >>> chosen.mc, chosen.nc, chosen.kc
        (168, 1008, 256)
        >>> print(chosen.footprints[3])
        block of A: 168 KiB in 256 KiB of L2 (66%)
        >>> print(chosen.reasons[1])
        mc = 168: two thirds of L2 hold 168 rows of A; 24 blocks (the last 136) of 4000 rows
    """
    for name, value, least in (("m", m, 0), ("n", n, 0), ("threads", threads, 1)):
        if value < least:
            raise BlisgemmValueError(f"{name}: expected {name} >= {least}; got {value}")
    kc = kc_for(kernel.acc_dtype, k)
    mc, why_mc = _choose_mc(machine.l2, kernel, kc, m, n)
    nc, why_nc = _choose_nc(machine.l3, kernel, kc, n, threads)
    sizes = footprints(machine, kernel, mc, nc, kc, threads)
    rule = f"at most {KC_MAX[kernel.acc_dtype]} for {kernel.acc_dtype}, whatever the machine: the same bits"
    why_kc = f"kc = {kc}: {rule}; {_blocks(k, kc)} of k = {k}"
    return Blocking(mc, nc, kc, sizes, (why_kc, why_mc, why_nc, _say_l1(kernel, sizes[1])))


def even_mc(kernel: KernelSpec, m: int, most: int) -> int:
    """Return the mc of at most ``most`` rows (one micro-panel at least) that is even over the rows."""
    return _even_step(max(1, _ceil_div(m, kernel.mr)), max(1, most // kernel.mr)) * kernel.mr


def even_nc(kernel: KernelSpec, n: int, most: int) -> int:
    """Return the nc of at most ``most`` columns (one micro-panel at least) that is even over the columns."""
    return _even_step(max(1, _ceil_div(n, kernel.nr)), max(1, most // kernel.nr)) * kernel.nr


def tiles_for(kernel: KernelSpec, chosen: Blocking, m: int, n: int, threads: int) -> Blocking:
    """Divide a blocking among threads: tiles of mc x nt that each takes when it is free, of rows packed together.

    About ``TILES_PER_THREAD`` each, so that a slow core delays the others little, twice as wide as high and no higher
    than L2 allows; but none below ``TILE_LEAST`` micro-panels before it is made even, since its panels would be
    fetched too often.

    Source: f32 on 16 cores of an Emerald Rapids VM, 2026-11-30, GFLOP/s with ic x jr ways of fixed shares and with
    tiles of 96x192, 192x384, 480x768: n = 1000 619, 878 711 292; 2000 785, 1278 1272 725; 4000 870, 1425 1482
    1204; 8000 896, 1447 1443 1631 (OpenBLAS 672 882 909 935).
    """
    nc_cur = min(chosen.nc, n)
    area = m * nc_cur / (threads * TILES_PER_THREAD)
    rows = max(TILE_LEAST[0] * kernel.mr, round(math.sqrt(area / 2)))
    mc = even_mc(kernel, m, min(chosen.mc, rows))
    nt = even_nc(kernel, nc_cur, max(TILE_LEAST[1] * kernel.nr, round(area / mc)))
    cut = replace(chosen, mc=mc, nt=nt)
    why_mc = f"mc = {mc}: tiles for {threads} threads are lower than the {chosen.mc} rows that L2 would hold"
    reasons = [why_mc if mc < chosen.mc and text.startswith("mc = ") else text for text in chosen.reasons]
    return pack_together(kernel, replace(cut, reasons=(*reasons, say_tiles(cut, m, n, threads))), m)


def say_tiles(chosen: Blocking, m: int, n: int, threads: int) -> str:
    """Say how many tiles a full panel has, and for whom."""
    tiles = _ceil_div(m, chosen.mc) * _ceil_div(min(chosen.nc, n), chosen.nt)
    shared = f"{tiles} tiles of {chosen.mc} x {chosen.nt} for {threads} threads"
    return f"nt = {chosen.nt}: {shared}, each of which takes the next when it is free"


def pack_together(kernel: KernelSpec, chosen: Blocking, m: int) -> Blocking:
    """Let all rows of A be packed together, or as many whole blocks as ``PANEL_BYTES_MAX`` holds."""
    block_bytes = chosen.kc * kernel.itemsize * chosen.mc
    blocks = max(1, PANEL_BYTES_MAX // block_bytes)
    sizes = tuple(
        replace(each, bytes=block_bytes, share=block_bytes / each.cache_bytes) if each.what == "block of A" else each
        for each in chosen.footprints
    )
    return replace(chosen, ma=chosen.mc * min(blocks, _ceil_div(m, chosen.mc)), footprints=sizes)


def footprints(
    machine: Machine, kernel: KernelSpec, mc: int, nc: int, kc: int, threads: int = 1
) -> tuple[Footprint, ...]:
    """Return what each block of a blocking, chosen or forced, occupies: nearest to the fmas first."""
    l1, l2, l3, isa, size = machine.l1, machine.l2, machine.l3, kernel.isa, kernel.itemsize
    l3_bytes = l3.size_bytes * min(threads, l3.cores) // l3.cores if l3 else 0
    rows = (
        ("micro-tile of C", 0, kernel.accumulators * isa.vector_bytes, isa.registers * isa.vector_bytes),
        ("micro-panel of B", 1, kc * kernel.nr * size, l1.size_bytes // l1.cores),
        ("micro-panel of A", 1, kernel.mr * kc * size, l1.size_bytes // l1.cores),
        ("block of A", 2, mc * kc * size, l2.size_bytes // l2.cores),
        ("panel of B", 3 if l3 else 4, kc * nc * size, l3_bytes),
    )
    return tuple(Footprint(*row, row[2] / row[3] if row[3] else 0.0) for row in rows)


def low_et_al(machine: Machine, kernel: KernelSpec) -> LowAnswer:
    """Return what the model of Low et al. answers, for comparison; it is not what runs.

    The paper's formulas as Polly writes them: whole caches, not rounded to mr and nr, not evened out.
    A cache with too few ways yields one way, or one micro-panel.

    Source: Low et al., TOMS 43(2), 2016; LLVM Polly, getMacroKernelParams.

    Example:
        >>> from blisgemm.machine import ISAS, KNOWN
        >>> kernel = KernelSpec("float64", "float64", "float64", 4, 8, ISAS["avx2"])
        >>> low_et_al(KNOWN["haswell"], kernel).kc
        256
    """
    l1, l2, l3, size = machine.l1, machine.l2, machine.l3, kernel.itemsize
    ways_a = max(1, (l1.ways - 1) * kernel.mr // (kernel.mr + kernel.nr))
    kc = max(1, ways_a * l1.size_bytes // (l1.ways * kernel.mr * size))
    ways_l2, ways_l3 = max(1, l2.ways - 2), max(1, l3.ways - 2) if l3 else 0
    mc = max(kernel.mr, ways_l2 * l2.size_bytes // (l2.ways * kc * size))
    nc = max(kernel.nr, ways_l3 * l3.size_bytes // (l3.ways * kc * size)) if l3 else None
    text = f"Low et al. (TOMS 43(2), 2016) for {kernel.name} on {machine.name}: "
    text += f"kc = {kc}, the micro-panel of A in {ways_a} of {l1.ways} L1 ways; "
    text += f"mc = {mc}, the block of A in {ways_l2} of {l2.ways} L2 ways; "
    text += f"nc = {nc}, the panel of B in {ways_l3} of {l3.ways} L3 ways" if l3 else "no L3, so no nc"
    if kc < KC_MAX.get(kernel.acc_dtype, 0):
        text += f". It keeps both micro-panels in L1; kc is up to {KC_MAX[kernel.acc_dtype]} here, since A may "
        text += "stream from L2 behind the fmas (above all on AVX-512), and one rule keeps the bits"
    return LowAnswer(kc, mc, nc, text)


def _choose_mc(l2: Cache, kernel: KernelSpec, kc: int, m: int, n: int) -> tuple[int, str]:
    """Return mc and why: L2 counted in ways, then even over the rows.

    Between two uses of a line of the block of A there pass all of A, one micro-panel of B and one column
    strip of C (mc x nr): in an LRU cache all three together must not exceed the ways. Cores that share
    an L2 each have their own three, so the ways are counted for all of them and then divided. Where L2 can
    keep the whole panel of B besides, A takes no more than ``A_BESIDE_B`` of it.
    """
    way_bytes = l2.way_bytes // l2.cores  # this core's part of one way
    ways_b = min(_ceil_div(kc * kernel.nr * kernel.itemsize, way_bytes), max(1, l2.ways - 2))
    left = max(2, l2.ways - ways_b) * way_bytes  # for A and C
    choices = [
        (l2.size_bytes * A_SHARE[0] // (A_SHARE[1] * l2.cores), "two thirds of L2 hold"),
        (left - way_bytes, f"of {l2.ways} L2 ways B takes {ways_b} and C 1; the others hold"),
        (left * kc // (kc + kernel.nr), f"of {l2.ways} L2 ways B takes {ways_b}; beside C, the others hold"),
    ]
    if 2 * kc * n * kernel.itemsize * l2.cores <= l2.size_bytes:
        room = l2.size_bytes * A_BESIDE_B[0] // (A_BESIDE_B[1] * l2.cores)
        choices.append((room, "beside all of B, an eighth of L2 holds"))
    a_bytes, why = min(choices)
    limit = max(1, a_bytes // (kc * kernel.itemsize * kernel.mr))
    mc = even_mc(kernel, m, limit * kernel.mr)
    shared = f" for each of {l2.cores} cores" if l2.cores > 1 else ""
    return mc, f"mc = {mc}: {why} {limit * kernel.mr} rows of A{shared}; {_blocks(m, mc)} of {m} rows"


def _choose_nc(l3: Cache | None, kernel: KernelSpec, kc: int, n: int, threads: int) -> tuple[int, str]:
    """Return nc and why: the threads' part of L3, then even over n.

    The panel is read once per block of A, so each element of B that comes from L3 (or memory) feeds mc
    multiply-adds: a panel that outgrows L3 costs little, one that is too narrow packs A again and again.
    """
    column_bytes = kc * kernel.itemsize
    if l3 is None:
        limit, why = NC_NO_L3, f"no L3, B streams from memory once per block of A: BLIS's {NC_NO_L3} columns"
    else:
        users = min(threads, l3.cores)
        limit = l3.size_bytes * users * B_SHARE[0] // (l3.cores * B_SHARE[1] * column_bytes)
        why = f"half of the L3 of {users} of {l3.cores} cores holds {limit} columns of B"
        if limit < NC_MIN:
            limit, why = NC_MIN, f"{why}, but fewer than {NC_MIN} would pack A too often"
    if limit * column_bytes > PANEL_BYTES_MAX:
        limit = PANEL_BYTES_MAX // column_bytes
        why = f"the panel of B is bounded to {_size(PANEL_BYTES_MAX)}, {limit} columns"
    nc = even_nc(kernel, n, limit)
    return nc, f"nc = {nc}: {why}; {_blocks(n, nc)} of {n} columns"


def _say_l1(kernel: KernelSpec, b: Footprint) -> str:
    """Say where the micro-panels come from while the microkernel runs."""
    takes = f"L1: the micro-panel of B takes {b.share:.0%} of {_size(b.cache_bytes)}"
    if 2 * b.bytes <= b.cache_bytes:
        return f"{takes} and stays there while those of A stream from L2"
    step = f"{(kernel.mr + kernel.nr) * kernel.itemsize} bytes per {kernel.fmas_per_k} fmas"
    return f"{takes}, more than half: micro-panels of A and B stream from L2, {step}"


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _even_step(extent: int, limit: int) -> int:
    """Return the step <= limit that covers the extent in the fewest steps, as equal as one step allows."""
    return _ceil_div(extent, _ceil_div(extent, limit))


def _blocks(extent: int, step: int) -> str:
    count = _ceil_div(extent, step)
    return "one block" if count <= 1 else f"{count} blocks (the last {extent - (count - 1) * step})"


def _size(count: int) -> str:
    """Write a number of bytes in the unit that people use for it."""
    return f"{count / 2**20:.4g} MiB" if count >= 2**20 else f"{count / 2**10:.4g} KiB"
