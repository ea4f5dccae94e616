"""The way of a product: which path, which kernel, and why, from extents, how B lies and the machine.

Knows: from how many terms, rows and columns on each path pays, and what was measured. Does not know: blocks, threads,
or what a plan is (``plan``). Called by ``plan`` (per new plan), ``api`` and ``cli`` (what the fast lane does),
``driver`` (``wants_swap``) and ``tuner`` (``model_limits``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from .blocking import KC_MAX, kc_for
from .errors import BlisgemmValueError, OverrideError
from .machine import current, host_isas
from .machine.facts import Machine
from .outcome import (
    COPIED_ROWS,
    COPIED_SIZE,
    COPIED_WORK,
    CROWDED_BYTES,
    LANE_B_BYTES,
    LANE_ROWS,
    SPARE_EXTENT,
    TURNED_BYTES,
    TURNED_ROWS,
    TURNED_STEPS,
)
from .ukernel import catalog
from .ukernel.spec import KernelSpec, rows_together

if TYPE_CHECKING:  # loaded by the first plan, not by the import of the package, which never needs it
    from .tuning import Tuning

__all__ = [
    "Way",
    "choose_kernel",
    "choose_way",
    "direct_terms",
    "fast_lane_kc",
    "fast_lane_terms",
    "few_of",
    "model_limits",
    "reads_a_as_it_lies",
    "runnable",
    "stack_lane_terms",
    "turned_columns",
    "wants_swap",
    "wants_turn",
]

# Largest n for which n x n x n goes direct, by vector set and dtype: alone; alone where the rows of B crowd few sets
# of L1 (``outcome.CROWDED_BYTES``); as an item of a batch, which pays nothing for a call. What the first two allow the
# fast lane does at once, on the calling thread and holding the GIL: up to 350 us.
# Source, AVX2, Zen 3 VM, one thread, 2026-11-30: direct's time by packed's, with the 1 to 3 us that a plan takes.
#   alone: n = 96 112 120 128 144, f32 0.87 0.88 0.96 1.05 1.05, f64 1.00 0.90 0.98 1.28 1.02;
#     n = 32 40 48 64 128, c64 0.79 0.99 1.12 1.25 1.78, c128 0.85 0.98 1.10 1.6 1.9.
#   B's rows 2 and 4 KiB apart: n = 48 64 96 112, f32 0.66 0.88 1.1 1.1 and 0.86 1.1 1.4 1.5, f64 0.75 0.99 1.25 1.24
#     and 0.91 1.45 1.5 1.5; n = 24 32 40, c64 2 and 8 KiB 0.75 0.96 1.1 and 0.85 1.2 1.4, c128 2 and 4 KiB 0.96 1.1 1.2
#     and 1.05 1.2 1.4.
#   batches: n = 14 20 40 48 64 96, f32 0.74 and less up to 40, then 0.85 0.88 1.01, f64 0.93 and less up to 40, then
#     0.93 1.07 1.19, c64 0.62 1.02 1.26 1.4 1.5 1.5, c128 0.99 1.17 1.3 1.4 1.7 1.8.
# AVX-512, Zen 4: direct won up to 128 (python -m blisgemm bench --shapes small), also with rows 2 KiB apart (n = 512,
# see below); batches were not measured. Nor were other sets, but for SSE2 on Zen 3: at 128 direct loses 0 to 13 %, and
# 20 to 30 % where rows crowd. OpenBLAS's small-matrix kernels go to 100
# (kernel/x86_64/sgemm_small_kernel_permit_skylakex.c).
DIRECT_EDGES = {
    ("avx2", "float32"): (120, 60, 96),
    ("avx2", "float64"): (120, 48, 56),
    ("avx2", "complex64"): (40, 28, 18),
    ("avx2", "complex128"): (36, 20, 14),
}
DIRECT_EDGES_ELSEWHERE = (128, 128, 128)

# Share of L2 that B may take on the direct path, by machine and vector set; a machine without a row packs. Zen 4 with
# AVX-512 (8 rows at once, 48 or 24 columns): direct was 3 to 15 % faster than packed while B fit (f32 n <= 512, f64 n
# <= 360); AVX2 (4 rows: B is read twice as often, and wider tiles run out of address registers): only up to n = 160
# (2026-11-30). Emerald Rapids has no row: direct lost up to half there (f64, n = 512: 0.51 times NumPy, packed 0.9).
DIRECT_SHARE_OF_L2 = {("zen4", "avx512"): 1.0, ("zen4", "avx2"): 1 / 8}

# How much fuller another tile must be: the first one is a few per cent faster where both are full (catalog).
TILE_GAIN = 1.05

# How a few rows meet B, by vector set: (rows up to which they sweep along it, up to six together; rows up to which
# micro-tiles stream along B; steps of p in one pass of the stream path; columns up to which A and B are read as they
# lie).
# Sources, 2026-11-30. Zen 3 VM, AVX2, busy, speed of stream and of packed by that of sweep, B of 1000 and 2000 square:
# f32 2 rows 0.62 0.64 and 0.44 0.43, 6 rows 0.95 0.84 and 0.82 0.67, 12 rows 1.00 0.86 and 1.03 0.87, 16 rows 0.96 0.78
# and 1.06 0.92, 24 rows 0.99 0.76 and 1.17 1.03; f64 0.61 0.51 and 0.42 0.41, 0.89 0.77 and 0.77 0.58, 0.93 0.83 and
# 0.92 0.81, 0.87 0.76 and 0.99 0.87, 0.83 0.82 and 1.08 1.01. Of packed for complex, 700, 1000, 1400 square: 4, 5, 6, 8
# rows c64 0.81 0.72 0.66, 0.94 0.80 0.69, 1.10 0.89 0.79, 1.08 0.92 0.87; c128 0.76 0.64 0.55, 0.92 0.75 0.61, 1.08
# 0.90 0.77, 1.02 0.88 0.84; stream is slower than sweep with any number of rows. GFLOP/s of f32, 2000 square: stream in
# steps of 8, 16, 32 with 6 rows 23 30 24; 32 columns direct 52, packed 53.
# Emerald Rapids, AVX-512, speed of sweep by that of stream, geometric mean over eight B of 500 x 4000 to 3000 square,
# and the least, 2, 3, 4, 6, 8, 12, 16 rows: f32 1.16 1.13 1.11 1.09 0.91 1.07 0.96, 1.08 1.06 0.99 0.95 0.81 0.99 0.88;
# f64 1.31 1.25 1.20 1.16 0.91 1.12 0.98, 1.12 1.07 1.07 1.08 0.78 0.99 0.85; c64 (four B) 1.13 1.08 0.82 1.07 0.99 1.12
# 1.13, c128 1.31 1.17 0.92 1.19 0.98 1.02 1.02. GFLOP/s of f32 (and f64), 2000 square: stream in steps of 16 and 32 16
# rows 79 86 (39 43) against 67 (32) packed, 32 rows 97 106 (44 47) against 92 (44), 64 rows 112 119 (42 43) against 112
# (55); direct 32 columns 142 (42) against 91 (38) packed, 64 columns 140 against 159 with A as it lies.
FEW = {"avx512": (6, 32, 32, 32), "avx2": (12, 12, 16, 16)}
FEW_COMPLEX = {"avx512": (3, 32, 32, 32), "avx2": (5, 5, 16, 16)}
FEW_ELSEWHERE = (4, 12, 16, 16)

# Rows up to which B's columns are transposed on the way to the fmas, once per micro-panel of A, by vector set.
# Source: Zen 3 VM, AVX2, busy, 2026-11-30, packed's time by this one's, B of 300, 1000 and 3000 square: f32 4 rows 1.36
# 1.24 1.92, 6 rows 0.98 0.86 1.25, 8 rows 0.98 0.90 1.34, 12 rows 0.80 0.77 1.00, 16 rows 0.75 0.76 0.95; f64 1.22 1.40
# 1.46, 0.86 0.93 1.10, 0.74 0.89 1.02, 0.65 0.79 1.01, 0.61 0.72 0.88; c64, c128 (300, 1000) 4 rows 1.4 to 1.6, 8 rows
# 0.91 to 1.12. Elsewhere it was not measured: our choice.
COLUMN_ROWS = {"avx2": 8}
COLUMN_ROWS_ELSEWHERE = 16

# Columns of B up to which C' = B' A' is computed where A's rows are contiguous, while A fits in L2 and beyond: vectors
# then lie along the rows of A, transposed in registers, and are full. (Where C is by columns it is the rows of A, and B
# by columns.)
# Source, 2026-11-30, speed turned by that of before, 2, 4, 6, 8 columns. Zen 3 VM, AVX2, A of 300 and 1000 square: f32
# 1.75 1.17 0.76 0.63, 1.82 1.40 0.94 0.77; f64 1.14 0.75 - -, 1.36 0.79 - -; c64 3.3 1.7 1.14 0.88, 3.5 2.0 1.35 0.90;
# c128 1.9 0.98 1.36 1.00, 2.0 0.99 1.39 0.95. Emerald Rapids, AVX-512, 300, 1000, 3000 square, 2, 4, 6, 8, 12, 16
# columns: f32 2.4 1.85 1.26 1.26 0.79 0.63, 2.0 1.9 1.46 1.41 1.11 1.08, 2.1 2.1 1.8 1.7 1.26 1.17; f64 1.5 1.05 0.69
# 0.68 0.67 0.54, 1.4 1.4 1.2 1.1 0.71 0.62, 1.4 1.4 1.3 1.4 0.78 0.63; c64 3.9 2.1 1.4 1.06, 3.1 1.8 1.4 1.03, 2.3 1.5
# 1.08 0.96; c128 2.6 1.24 0.91 0.65, 2.0 1.2 0.84 0.67, 1.2 0.87 0.70 0.57. Of 64 square and smaller, or with 16
# columns of A, level or slower on both.
TURNED_COLUMNS = {
    ("avx512", "float32"): (8, 16),
    ("avx512", "float64"): (4, 8),
    ("avx512", "complex64"): (6, 6),
    ("avx512", "complex128"): (3, 3),
    ("avx2", "float32"): (4, 4),
    ("avx2", "float64"): (2, 2),
    ("avx2", "complex64"): (6, 6),
    ("avx2", "complex128"): (6, 6),
}

# Columns of C up to which the packed path reads an A of contiguous rows as it lies, by vector set; others pack it.
# Source, 2026-11-30, GFLOP/s packed and as it lies: Emerald Rapids, f32 n = 512, 1000, 2000 145 155 153 and 149 161
# 156, f64 68 76 76 and 72 79 80, c64 n = 500 151 and 159, f32 3000 x 64 x 3000 96 and 159, 64 x 64 x 8192 82 and 103;
# Zen 3 (AVX2) f32 level, f64 n = 1000, 2000 40 44 and 39 40.
UNPACKED_A_COLUMNS = {"avx512": 2**63 - 1}

# Bytes of B from which on it passes by more rows than the fast lane takes (``LANE_ROWS``), where it was not measured:
# what fits near L1 is read as well strip by strip. Source: our choice. On AVX2 it is LANE_B_BYTES a row for them too:
# direct's time by sweep's on Zen 3, 2026-11-30, B of 512 KiB, 1, 2 and 3 MiB: 6 rows f32 0.87 1.06 1.01 1.17, f64 0.96
# 1.00 1.08 1.19; 8 rows 1.02 1.27 1.25 1.31, 1.25 1.18 1.22 1.31; 12 rows 0.80 0.91 0.94 1.00, 0.88 0.89 0.97 1.07.
PASSING_BYTES = 96 * 1024


@dataclass(frozen=True)
class Way:
    """How a product goes: the path, the kernel's role, the order of the direct path, whether B's items are copied."""

    path: str
    role: str
    rows_first: bool = False
    copied: bool = False


@cache
def _forced_kernel() -> KernelSpec | None:
    """Return the row that ``BLISGEMM_KERNEL`` names; it holds for the row's own dtype."""
    name = os.environ.get("BLISGEMM_KERNEL")
    if not name:
        return None
    try:
        return runnable(catalog.by_name(name))
    except BlisgemmValueError as error:
        raise OverrideError(f"BLISGEMM_KERNEL: {str(error).removeprefix('kernel: ')}") from None


def runnable(spec: KernelSpec) -> KernelSpec:
    """Return the kernel.

    Raises:
        BlisgemmValueError: this machine can't run it.
    """
    here = [isa.name for isa in host_isas()]
    if spec.isa.name not in here:
        raise BlisgemmValueError(f"kernel: expected one that this machine can run ({', '.join(here)}); got {spec.name}")
    return spec


def choose_kernel(dtype: str, role: str, m: int = 0, n: int = 0) -> tuple[KernelSpec, str]:
    """Return the kernel for a dtype in a role of ``catalog.ROLES`` on this machine, and why.

    Of several packed ones it is the first, unless m x n fills the tiles of another by ``TILE_GAIN`` better.
    """
    forced = _forced_kernel()
    if forced is not None and forced.acc_dtype == dtype:
        return forced, f"kernel: BLISGEMM_KERNEL names {forced.name}"
    machine = current()
    spec, *others = catalog.candidates(dtype, machine.isa, role)

    def padded(tile: KernelSpec) -> int:
        return -(-m // tile.mr) * tile.mr * -(-n // tile.nr) * tile.nr

    for other in others if role == "packed" else ():
        if TILE_GAIN * padded(other) < padded(spec):
            text = f"kernel: {other.name}, since {spec.name} would compute {padded(spec):,} elements of C for {m * n:,}"
            return other, f"{text}, this one {padded(other):,}"
    return spec, f"kernel: {spec.name} is the {role} kernel of {machine.isa.name}"


def wants_swap(m: int, n: int, *, unit_row: bool, unit_column: bool) -> bool:
    """Whether to compute C' = B' A': C's transpose has the long unit-stride rows that a micro-tile wants.

    ``unit_row``, ``unit_column``: whether C's row and column stride are one element. A single column is
    always swapped, so that the lanes run over its rows.
    """
    if n == 1:
        return m > 1
    return m > 1 and unit_row and not unit_column


def wants_turn(m: int, n: int, k: int, dtype: str, *, swapped: bool, a_rows: bool, b_columns: bool) -> bool:
    """Whether the other one of C = A B and C' = B' A' is computed than ``wants_swap`` says, for few columns of B.

    Args:
        swapped: what ``wants_swap`` says.
        a_rows, b_columns: whether A's rows, B's columns are contiguous.
    """
    rows, columns, contiguous = (n, m, b_columns) if swapped else (m, n, a_rows)
    near, far, l2_bytes = turned_columns(dtype)
    if not contiguous or not 2 <= columns <= max(near, far):
        return False
    left_bytes = rows * k * catalog.candidates(dtype, current().isa, "direct")[0].itemsize
    enough = rows >= TURNED_ROWS and k >= TURNED_STEPS and left_bytes >= TURNED_BYTES
    return enough and columns <= (far if left_bytes > l2_bytes else near)


def turned_columns(dtype: str) -> tuple[int, int, int]:
    """Return the row of ``TURNED_COLUMNS`` for this machine, and the bytes of L2 that part its two limits."""
    l2 = current().l2
    return *TURNED_COLUMNS.get((current().isa.name, dtype), (0, 0)), l2.size_bytes // l2.cores


def choose_way(
    machine: Machine, m: int, n: int, k: int, dtype: str, access: str, tuning: Tuning, threads: int, batch: int
) -> tuple[Way, str, tuple[str, ...]]:
    """Return the way, why, and what of it is tuned."""
    from .tuning import direct_limits

    alone, crowded, item = direct_terms(dtype)
    most = min(crowded if access == "crowded" else alone, alone if batch == 1 else item)  # whatever is tuned
    lying = "rows" if access == "crowded" else access
    terms, share = model_limits(dtype)
    model = _way_within(machine, m, n, k, dtype, lying, batch, min(terms, most), share)
    if access == "crowded" and model[0].path == "packed" and m * n * k <= alone:
        model = model[0], f"{model[1]} where B's rows lie a multiple of {CROWDED_BYTES} bytes apart"
    kernels = tuple(choose_kernel(dtype, role)[0].name for role in ("direct", "wide"))
    terms, share, reasons = direct_limits(tuning, dtype, kernels, threads, terms, share)
    if not reasons:
        return *model, ()
    terms = terms if most == alone else min(terms, most)
    tuned = _way_within(machine, m, n, k, dtype, lying, batch, terms, share)
    return (*model, ()) if tuned[0] == model[0] else (*tuned, reasons)


def direct_terms(dtype: str) -> tuple[int, int, int]:
    """Return up to how many terms products go direct here: alone, alone if B's rows crowd L1, as an item of a batch."""
    alone, crowded, item = DIRECT_EDGES.get((current().isa.name, dtype), DIRECT_EDGES_ELSEWHERE)
    return alone**3, crowded**3, item**3


def model_limits(dtype: str) -> tuple[int, float]:
    """Return up to how many terms, and to what share of L2 for B, products go direct here unless it is tuned."""
    machine = current()
    return direct_terms(dtype)[0], DIRECT_SHARE_OF_L2.get((machine.name, machine.isa.name), 0.0)


def _way_within(
    machine: Machine, m: int, n: int, k: int, dtype: str, access: str, batch: int, terms: int, share: float
) -> tuple[Way, str]:
    """Return the way, and why, if products go direct up to so many terms, or with B in a share of L2."""
    small, wide, row, column = (choose_kernel(dtype, role)[0] for role in ("direct", "wide", "row", "column"))
    l2_bytes = machine.l2.size_bytes // machine.l2.cores
    kc = kc_for(dtype, k)
    b_block_bytes, b_bytes = kc * n * wide.itemsize, k * n * wide.itemsize
    rows_first = m > small.mr and b_block_bytes <= l2_bytes // 2
    if access != "rows" and k <= kc and _is_copied(m * n * k * small.chains, m if batch == 1 else COPIED_ROWS, k, n):
        return Way("direct", "direct", copied=True), (
            f"path: m n k = {m * n * k:,}, so little that B, without rows of unit stride, is copied, not packed"
        )
    if access == "general":
        return Way("packed", "row" if m <= row.mr else "packed"), (
            "path: neither B's rows nor its columns have unit stride, so vectors of it must be packed"
        )
    if access == "columns":
        if m <= COLUMN_ROWS.get(machine.isa.name, COLUMN_ROWS_ELSEWHERE):
            return Way("direct", "column"), (
                f"path: {m} rows use each element of B {'once' if m <= column.mr else 'little'}; vectors of its "
                "columns are transposed in registers"
            )
        return Way("packed", "packed"), "path: B's columns have unit stride, so vectors of it must be packed"
    sweep_rows, stream_rows, _, direct_columns = few_of(machine, dtype)
    few = m <= stream_rows and batch == 1
    passes = b_bytes > (LANE_B_BYTES * m if m <= LANE_ROWS or machine.isa.name == "avx2" else PASSING_BYTES)
    if few and passes and (m <= min(sweep_rows, LANE_ROWS) or m * n * k > terms):
        why = f"path: {m} rows use each element of B {'once' if m <= small.mr else 'little'}: it passes by, "
        if m <= sweep_rows:
            return Way("sweep", "row"), f"{why}whole rows side by side, for {rows_together(row, m)} of A at once"
        return Way("stream", "direct" if m <= small.mr else "packed"), f"{why}row after row of micro-tiles"
    if m * n * k <= terms:
        return Way("direct", "direct"), f"path: m n k = {m * n * k:,} <= {terms:,}, too little work to repay packing"
    if few and not passes and m > row.mr:
        return Way("direct", "direct"), f"path: {m} rows use B little, and its {b_bytes // 1024:,} KiB stay near"
    if m <= max(small.mr, row.mr):
        why = f"path: {m} rows use each element of B once, so packing it would be a copy for nothing"
        return Way("direct", "row" if m <= row.mr else "wide"), why
    if n <= max(small.nr, direct_columns) and rows_first and m > 2 * n:
        why = f"path: {n} columns use each element of A little, so packing it would be a copy for nothing"
        return Way("direct", "direct", rows_first), why
    room = int(l2_bytes * share)
    if b_bytes <= room:
        why = (
            f"path: B's {b_bytes // 1024:,} KiB stay in L2 ({room // 1024:,} KiB used so), where packing gains nothing"
        )
        # padding columns to whole tiles may cost more than the 3 to 7 % that the wide tile gains (catalog)
        padded_small, padded_wide = (-(-n // spec.nr) * spec.nr for spec in (small, wide))
        return Way("direct", "wide" if padded_wide <= 1.04 * padded_small else "direct"), why
    why = f"path: m n k = {m * n * k:,} > {terms:,}, enough work to repay packing"
    if room:
        why += f", and B's {b_bytes // 1024:,} KiB exceed the {room // 1024:,} KiB of L2 that it could use as it lies"
    return Way("packed", "packed"), why


def reads_a_as_it_lies(machine: Machine, n: int) -> bool:
    """Whether the packed path packs B only, where A's rows are contiguous."""
    return n <= UNPACKED_A_COLUMNS.get(machine.isa.name, 0)


def few_of(machine: Machine, dtype: str) -> tuple[int, int, int, int]:
    """Return the row of ``FEW`` for this machine's vector set."""
    rows = FEW_COMPLEX if dtype.startswith("complex") else FEW
    return rows.get(machine.isa.name, FEW.get(machine.isa.name, FEW_ELSEWHERE))


def _is_copied(work: int, m: int, k: int, n: int) -> bool:
    """Whether a small B without unit column stride is copied; ``entry.is_copied`` says the same."""
    return work <= COPIED_WORK and max(k, n) <= SPARE_EXTENT and (m >= COPIED_ROWS or k * n <= COPIED_SIZE)


def fast_lane_kc(dtype: str) -> int:
    """Return the largest k that is one kc block."""
    return KC_MAX[dtype]


def fast_lane_terms(dtype: str) -> tuple[int, int]:
    """Return the largest m * n * k that the fast lane does at once: as a rule, and where B's rows crowd few sets of L1.

    A tuned limit may lower them, not raise them.
    """
    from .tuning import in_force, lane_terms

    alone, crowded, _ = direct_terms(dtype)
    most = lane_terms(in_force(current()), dtype, alone)
    return most, min(most, crowded)


def stack_lane_terms(dtype: str) -> int:
    """Return the largest m * n * k of an item of a batch that the lane of small batches does; tuning may lower it."""
    alone, _, item = direct_terms(dtype)
    most, _ = fast_lane_terms(dtype)
    return item if most == alone else min(item, most)
