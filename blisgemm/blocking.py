"""The blocking model: how large kc, mc and nc are, and why, in words.

Knows: caches as sets and ways, the micro-tile, the extents. Does not know: this host (``machine``), which
kernel or path is taken (``plan``), or the loops (``loops``). Pure. Called by ``plan`` and ``teach``.

::

    micro-tile of C    mr x nr    registers   accumulators while p runs
    micro-panel of A   mr x kc    L1          reused by every micro-panel of B in the block
    micro-panel of B   kc x nr    L1          streams from L2, once per micro-panel of A
    block of B         kc x nc    L2          reused by every micro-panel of A in the panel
    panel of A         mc x kc    L3          reused by every block of B

These are Goto's with A and B exchanged (``loops`` says why).

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

__all__ = ["KC_MAX", "PANEL_BYTES_MAX", "Blocking", "Footprint", "LowAnswer", "choose_blocking", "even_columns",
           "even_rows", "footprints", "kc_for", "low_et_al", "pack_together", "say_tiles", "tiles_for"]  # fmt: skip

# Elements of k in one block, at most; multiples of KC_STEP. Between BLIS's 256 (haswell) and 640 (altra).
# Source: bench/kc.py on Zen 4 (AVX-512 and AVX2 kernels) and Emerald Rapids, 2026-11-29: of 256, 384, 512
# in f32 the last won by 2 to 4 % over 384 on AVX-512 and lost nothing on AVX2; in f64 384 won by 2 to 4 % over
# 256 on Emerald Rapids and lost at most 1.5 % on Zen 4 with AVX2; complex within 3 % of each other.
KC_MAX = {"float32": 512, "float64": 384, "complex64": 384, "complex128": 256}

# Even kc blocks are rounded up to this many elements: two turns of a k loop unrolled 4 (ukernel.spec).
KC_STEP = 8

# The block of B takes at most this part of a core's part of L2, (numerator, denominator).
# Source, 2026-11-30, GFLOP/s by nc: Emerald Rapids (2 MiB), A as it lies, n = 1000, f32 192 to 672 (18 to 65 %) 160 161
# 161 163 162, f64 144 to 408 (18 to 53 %) 78 79 79 80 79; in a busier hour f64 lost 15 % from 38 to 63 %. Zen 3
# (512 KiB), f32 48 to 288 (18 to 110 %) 82 82 86 87 85, f64 36 to 216 40 40 39 40 38. On 16 threads at n = 8000 in
# f32 tiles of 368 x 336 and 256 x 480 1568 1654.
B_SHARE = (1, 2)

# The panel of A takes at most half of the threads' part of L3; the rest is for B and C.
# Source: BLIS config/haswell f32, where its panel of 4080*256*4 bytes is 50 % of 8 MiB.
A_SHARE = (1, 2)

# Rows of the panel of A, at least: B is packed again for every panel. Source: as many as a panel of B had to have
# columns when it was the outer one: at 288 of 2688, 4 to 5 % were lost, at 1024 less than 1 (f32 and f64, AVX-512,
# Zen 4, 2026-11-29).
MC_MIN = 1024

# Rows of the panel of A where there is no third level to fit. Source: BLIS config/haswell nc.
MC_NO_L3 = 4080

# How the work of several threads is cut: see ``tiles_for``. TILE_LEAST in micro-panels of A and of B.
TILES_PER_THREAD, TILE_LEAST = 32, (12, 4)

# The workspace of a panel stays bounded where L3 is very large (a team has two of each operand). Source: our
# choice; with kc = 512 in f32 it is 16384 rows, 16 times what MC_MIN asks for.
PANEL_BYTES_MAX = 32 << 20


@dataclass(frozen=True)
class Footprint:
    """What one block occupies, and the memory it is meant to stay in.

    ``level``: 0 registers, 1 to 3 caches, 4 memory (the panel of A where there is no L3). ``cache_bytes``:
    this core's part of that level; for the panel of A the part of all threads on one L3; 0 for memory.
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
    """The cache blocks of one product. Units: elements; packed, mc % mr == mt % mr == nc % nr == nb % nr == 0.

    ``mt``: rows of the panel of A that a tile of nc columns takes; ``nb``: columns of B that are packed together. 0
    stands for mc and for nc: one thread packs a block of B at a time and multiplies the whole panel by it.
    """

    mc: int
    nc: int
    kc: int
    footprints: tuple[Footprint, ...]
    reasons: tuple[str, ...]
    mt: int = 0
    nb: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mt", self.mt or self.mc)
        object.__setattr__(self, "nb", self.nb or self.nc)


@dataclass(frozen=True)
class LowAnswer:
    """What the analytical model alone would choose. Units: elements; mc is None without L3."""

    kc: int
    mc: int | None
    nc: int
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


def choose_blocking(
    machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int = 1, *, half: bool = False
) -> Blocking:
    """Choose mc, nc and kc for one product, with footprints and reasons.

    kc is ``kc_for``. nc: the block of B takes the ways of L2 that the micro-panel of A and C leave, at most
    ``B_SHARE``. mc: the panel of A takes ``A_SHARE`` of the L3 of the cores in use, at least ``MC_MIN``
    rows, at most ``PANEL_BYTES_MAX``. Both are then made even over the rows and columns that there
    are: the fewest blocks, as equal as steps of whole micro-panels allow.

    Args:
        machine, kernel: the facts; the kernel need not be of the machine's own vector set.
        m, n, k: extents, >= 0.
        threads: how many share the panel of A, >= 1 (``tiles_for`` then divides the work).
        half: whether A is read as it lies: then all its rows are one panel, which takes no room of its own.

    Raises:
        BlisgemmValueError: an extent is negative or threads is below 1.

    Example:
        >>> from blisgemm.machine import ISAS, KNOWN
        >>> kernel = KernelSpec("float32", "float32", "float32", 6, 16, ISAS["avx2"])
        >>> chosen = choose_blocking(KNOWN["haswell"], kernel, 4000, 4000, 256)
        >>> chosen.mc, chosen.nc, chosen.kc
        (1002, 128, 256)
        >>> print(chosen.footprints[3])
        block of B: 128 KiB in 256 KiB of L2 (50%)
        >>> print(chosen.reasons[2])
        nc = 128: half of L2 holds 128 columns of B; 32 blocks (the last 32) of 4000 columns
    """
    for name, value, least in (("m", m, 0), ("n", n, 0), ("threads", threads, 1)):
        if value < least:
            raise BlisgemmValueError(f"{name}: expected {name} >= {least}; got {value}")
    kc = kc_for(kernel.acc_dtype, k)
    nc, why_nc = _choose_nc(machine.l2, kernel, kc, n)
    if half:
        mc = max(1, _ceil_div(m, kernel.mr)) * kernel.mr
        why_mc = f"mc = {mc}: A is read as it lies, so all its rows are one panel"
    else:
        mc, why_mc = _choose_mc(machine.l3, kernel, kc, m, threads)
    sizes = footprints(machine, kernel, mc, nc, kc, threads)
    rule = f"at most {KC_MAX[kernel.acc_dtype]} for {kernel.acc_dtype}, whatever the machine: the same bits"
    why_kc = f"kc = {kc}: {rule}; {_blocks(k, kc)} of k = {k}"
    return Blocking(mc, nc, kc, sizes, (why_kc, why_mc, why_nc, _say_l1(kernel, sizes[1], sizes[2])))


def even_rows(kernel: KernelSpec, m: int, most: int) -> int:
    """Return the step of at most ``most`` rows (one micro-panel at least) that is even over the rows."""
    return _even_step(max(1, _ceil_div(m, kernel.mr)), max(1, most // kernel.mr)) * kernel.mr


def even_columns(kernel: KernelSpec, n: int, most: int) -> int:
    """Return the step of at most ``most`` columns (one micro-panel at least) that is even over the columns."""
    return _even_step(max(1, _ceil_div(n, kernel.nr)), max(1, most // kernel.nr)) * kernel.nr


def tiles_for(kernel: KernelSpec, chosen: Blocking, m: int, n: int, threads: int) -> Blocking:
    """Divide a blocking among threads: tiles of mt x nc that each takes when it is free, of columns packed together.

    About ``TILES_PER_THREAD`` each, so that a slow core delays the others little, twice as wide as high and no wider
    than L2 allows; but none below ``TILE_LEAST`` micro-panels before it is made even, since its panels would be
    fetched too often.

    Source: 16 cores of an Emerald Rapids VM, 2026-11-30, MKL's time by ours with about 8, 16, 32 and 64 tiles for each
    thread: f32 n = 4000 1.04 1.04 1.15 1.11, 8000 0.88 0.91 0.99 0.98, f64 4000 0.75 0.84 0.86 0.87. With ic x jr ways
    of fixed shares, in the loop order of before, f32 n = 2000, 4000, 8000 785 870 896 GFLOP/s, tiles 1278 1482 1631.
    """
    mc_cur = min(chosen.mc, m)
    area = n * mc_cur / (threads * TILES_PER_THREAD)
    columns = max(TILE_LEAST[1] * kernel.nr, round(math.sqrt(2 * area)))
    nc = even_columns(kernel, n, min(chosen.nc, columns))
    mt = even_rows(kernel, mc_cur, max(TILE_LEAST[0] * kernel.mr, round(area / nc)))
    cut = replace(chosen, nc=nc, mt=mt)
    why_nc = f"nc = {nc}: tiles for {threads} threads are narrower than the {chosen.nc} columns that L2 would hold"
    reasons = [why_nc if nc < chosen.nc and text.startswith("nc = ") else text for text in chosen.reasons]
    return pack_together(kernel, replace(cut, reasons=(*reasons, say_tiles(cut, m, n, threads))), n)


def say_tiles(chosen: Blocking, m: int, n: int, threads: int) -> str:
    """Say how many tiles a full panel has, and for whom."""
    tiles = _ceil_div(min(chosen.mc, m), chosen.mt) * _ceil_div(n, chosen.nc)
    shared = f"{tiles} tiles of {chosen.mt} x {chosen.nc} for {threads} threads"
    return f"mt = {chosen.mt}: {shared}, each of which takes the next when it is free"


def pack_together(kernel: KernelSpec, chosen: Blocking, n: int) -> Blocking:
    """Let all columns of B be packed together, or as many whole blocks as ``PANEL_BYTES_MAX`` holds.

    A team has room for twice as many, since it packs ahead. Half as many in the same room lost 5 to 10 % (16 threads on
    Emerald Rapids, 2026-11-30).
    """
    block_bytes = chosen.kc * kernel.itemsize * chosen.nc
    blocks = max(1, PANEL_BYTES_MAX // block_bytes)
    sizes = tuple(
        replace(each, bytes=block_bytes, share=block_bytes / each.cache_bytes) if each.what == "block of B" else each
        for each in chosen.footprints
    )
    return replace(chosen, nb=chosen.nc * min(blocks, _ceil_div(n, chosen.nc)), footprints=sizes)


def footprints(
    machine: Machine, kernel: KernelSpec, mc: int, nc: int, kc: int, threads: int = 1
) -> tuple[Footprint, ...]:
    """Return what each block of a blocking, chosen or forced, occupies: nearest to the fmas first."""
    l1, l2, l3, isa, size = machine.l1, machine.l2, machine.l3, kernel.isa, kernel.itemsize
    l3_bytes = l3.size_bytes * min(threads, l3.cores) // l3.cores if l3 else 0
    rows = (
        ("micro-tile of C", 0, kernel.accumulators * isa.vector_bytes, isa.registers * isa.vector_bytes),
        ("micro-panel of A", 1, kernel.mr * kc * size, l1.size_bytes // l1.cores),
        ("micro-panel of B", 1, kc * kernel.nr * size, l1.size_bytes // l1.cores),
        ("block of B", 2, kc * nc * size, l2.size_bytes // l2.cores),
        ("panel of A", 3 if l3 else 4, mc * kc * size, l3_bytes),
    )
    return tuple(Footprint(*row, row[2] / row[3] if row[3] else 0.0) for row in rows)


def low_et_al(machine: Machine, kernel: KernelSpec) -> LowAnswer:
    """Return what the model of Low et al. answers, for comparison; it is not what runs.

    The paper's formulas as Polly writes them, A and B exchanged as everywhere here: whole caches, not rounded to mr
    and nr, not evened out. A cache with too few ways yields one way, or one micro-panel.

    Source: Low et al., TOMS 43(2), 2016; LLVM Polly, getMacroKernelParams.

    Example:
        >>> from blisgemm.machine import ISAS, KNOWN
        >>> kernel = KernelSpec("float64", "float64", "float64", 4, 8, ISAS["avx2"])
        >>> low_et_al(KNOWN["haswell"], kernel).kc
        256
    """
    l1, l2, l3, size = machine.l1, machine.l2, machine.l3, kernel.itemsize
    ways_b = max(1, (l1.ways - 1) * kernel.nr // (kernel.mr + kernel.nr))
    kc = max(1, ways_b * l1.size_bytes // (l1.ways * kernel.nr * size))
    ways_l2, ways_l3 = max(1, l2.ways - 2), max(1, l3.ways - 2) if l3 else 0
    nc = max(kernel.nr, ways_l2 * l2.size_bytes // (l2.ways * kc * size))
    mc = max(kernel.mr, ways_l3 * l3.size_bytes // (l3.ways * kc * size)) if l3 else None
    text = f"Low et al. (TOMS 43(2), 2016), A and B exchanged, for {kernel.name} on {machine.name}: "
    text += f"kc = {kc}, the micro-panel of B in {ways_b} of {l1.ways} L1 ways; "
    text += f"nc = {nc}, the block of B in {ways_l2} of {l2.ways} L2 ways; "
    text += f"mc = {mc}, the panel of A in {ways_l3} of {l3.ways} L3 ways" if l3 else "no L3, so no mc"
    if kc < KC_MAX.get(kernel.acc_dtype, 0):
        text += f". It keeps both micro-panels in L1; kc is up to {KC_MAX[kernel.acc_dtype]} here, since B may "
        text += "stream from L2 behind the fmas (above all on AVX-512), and one rule keeps the bits"
    return LowAnswer(kc, mc, nc, text)


def _choose_nc(l2: Cache, kernel: KernelSpec, kc: int, n: int) -> tuple[int, str]:
    """Return nc and why: a part of L2, then even over the columns.

    Between two uses of a line of the block of B there pass all of B, one micro-panel of A and one row
    strip of C (mr x nc): all three together must not exceed L2. Cores that share an L2 have a part of it each.
    """
    l2_bytes = l2.size_bytes // l2.cores
    beside_a = l2_bytes - kc * kernel.mr * kernel.itemsize
    b_bytes, why = min(
        (l2_bytes * B_SHARE[0] // B_SHARE[1], "half of L2 holds"),
        (beside_a * kc // (kc + kernel.mr), "beside a micro-panel of A and its part of C, L2 holds"),
    )
    limit = max(1, b_bytes // (kc * kernel.itemsize * kernel.nr))
    nc = even_columns(kernel, n, limit * kernel.nr)
    shared = f" for each of {l2.cores} cores" if l2.cores > 1 else ""
    return nc, f"nc = {nc}: {why} {limit * kernel.nr} columns of B{shared}; {_blocks(n, nc)} of {n} columns"


def _choose_mc(l3: Cache | None, kernel: KernelSpec, kc: int, m: int, threads: int) -> tuple[int, str]:
    """Return mc and why: the threads' part of L3, then even over m.

    The panel is read once per block of B, so each element of A that comes from L3 (or memory) feeds nc
    multiply-adds: a panel that outgrows L3 costs little, one that is too low packs B again and again.
    """
    row_bytes = kc * kernel.itemsize
    if l3 is None:
        limit, why = MC_NO_L3, f"no L3, A streams from memory once per block of B: {MC_NO_L3} rows"
    else:
        users = min(threads, l3.cores)
        limit = l3.size_bytes * users * A_SHARE[0] // (l3.cores * A_SHARE[1] * row_bytes)
        why = f"half of the L3 of {users} of {l3.cores} cores holds {limit} rows of A"
        if limit < MC_MIN:
            limit, why = MC_MIN, f"{why}, but fewer than {MC_MIN} would pack B too often"
    if limit * row_bytes > PANEL_BYTES_MAX:
        limit = PANEL_BYTES_MAX // row_bytes
        why = f"the panel of A is bounded to {_size(PANEL_BYTES_MAX)}, {limit} rows"
    mc = even_rows(kernel, m, limit)
    return mc, f"mc = {mc}: {why}; {_blocks(m, mc)} of {m} rows"


def _say_l1(kernel: KernelSpec, a: Footprint, b: Footprint) -> str:
    """Say where the micro-panels come from while the microkernel runs."""
    takes = f"L1: the micro-panel of A takes {a.share:.0%} of {_size(a.cache_bytes)}, that of B {b.share:.0%}"
    if a.share + b.share <= 1:
        return f"{takes}; A's stays there while those of B stream from L2"
    step = f"{(kernel.mr + kernel.nr) * kernel.itemsize} bytes per {kernel.fmas_per_k} fmas"
    return f"{takes}, more than all: both stream from L2, {step}"


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
