"""What the compiled lane and a plan decide alike: one text, which ``checks`` compiles and ``ways`` calls.

Knows: extents, bytes and the limits that it is given or that hold everywhere. Does not know: Numba, arrays, or limits
by machine (``limits``). Called by ``ways``, ``checks``, ``driver``, ``plan``, ``lane`` and ``cli``.
"""

from __future__ import annotations

__all__ = [
    "A_CROWDED_BYTES", "COPIED_ROWS", "COPIED_SIZE", "COPIED_WORK", "CROWDED_BYTES", "LANE_BATCH", "LANE_B_BYTES",
    "LANE_ROWS", "SPARE_EXTENT", "TURNED_DEEP", "TURNED_LEAST", "TURNED_ROWS", "TURNED_STEPS",
    "is_copied", "is_narrow", "is_near", "is_swapped", "is_turned",
]  # fmt: skip

# A few rows that meet more than so many bytes of B, times the rows, are left to the plan, which has better ways than
# strip by strip. Its time by sweep's, Zen 3, 2026-11-30, 1 row with 192, 256, 512 KiB: f32 0.90 1.07 1.25, f64 1.18
# 1.15 1.27, c64 0.85 0.92 0.99, c128 0.90 0.94 1.05; 2 rows with 256, 512, 1024 KiB: f32 0.91 1.03 1.25, f64 0.97
# 1.09 1.09, c64 0.70 1.02 1.08, c128 0.72 0.79 1.09; 4 rows with 512, 1024, 2048 KiB: f32 0.80 1.00 0.97, f64 0.85 0.88
# 0.87, c64 0.77 0.95 1.07, c128 0.79 0.99 0.96.
LANE_ROWS, LANE_B_BYTES = 4, 256 * 1024

# Terms of a batch from which on another path or a second thread may repay the 30 us of a general call: two threads'
# worth (``parallel.TERMS_PER_THREAD``).
LANE_BATCH = 2 * 64**3

# Which small B without unit column stride are copied, so that they have it: up to COPIED_WORK terms, times the chains
# of an element, if A has at least COPIED_ROWS rows or B at most COPIED_SIZE elements.
# us, copied against transposed in registers or packed, B transposed, f32: 4x4x4 1.93, 2.25; 1x16x16 1.13, 1.17;
# 1x32x32 2.61, 2.12; 8x32x32 3.06, 3.13; 32x32x32 4.29, 7.15; f64 32^3 5.26, 7.60; c64 16^3 3.45, 3.43. In batches,
# ns per item, copied against packed, f32: 4^3 63, 221; 16^3 234, 429; 64^3 8460, 10965; c64 16^3 1038, 880; 32^3 6181,
# 5145 (Zen 3, 2026-11-30).
COPIED_WORK = 32**3
COPIED_ROWS = 8
COPIED_SIZE = 256
SPARE_EXTENT = 64  # most rows and columns of such a B

# Rows of B whose distance is a multiple of this crowd two of 64 sets of L1, so that a strip of B does not stay there.
# Figures: ``limits.DIRECT_EDGES``; at 1 KiB, four sets, f32 lost nothing and f64 5 to 15 % from n = 80 on (there too).
CROWDED_BYTES = 2048

# Rows of A whose distance is a multiple of this share one of 64 sets of L1: as many as its ways stay there together,
# and a tile may have more rows. Figures: ``limits.NARROW_CROWDED``.
A_CROWDED_BYTES = 4096

# A with few columns of B is turned, so that vectors lie along A's rows, not along the few columns, if A takes at least
# TURNED_LEAST bytes, and has so many columns and rows. ``limits.TURNED_COLUMNS`` says how few columns of B: for an A of
# fewer than TURNED_DEEP columns, a deeper one that fits in L2, and one that doesn't.
TURNED_LEAST, TURNED_STEPS, TURNED_ROWS, TURNED_DEEP = 8 * 1024, 32, 16, 256


def is_swapped(m: int, n: int, unit_row: bool, unit_column: bool) -> bool:
    """Whether to compute C' = B' A': C's transpose has the long unit-stride rows that a micro-tile wants.

    ``unit_row``, ``unit_column``: whether C's row and column stride are one element. A single column is
    always swapped, so that the lanes run over its rows.
    """
    return m > 1 and (n == 1 or (unit_row and not unit_column))


def is_turned(
    rows: int, columns: int, k: int, left_bytes: int, contiguous: bool, shallow: int, deep: int, far: int, l2_bytes: int
) -> bool:
    """Whether to overrule ``is_swapped`` since the right operand has few columns, so that vectors lie along the left.

    Args:
        rows, columns: of the product as ``is_swapped`` has it: the left operand's and the right one's.
        left_bytes, contiguous: what the left operand takes, and whether its rows are contiguous.
        shallow, deep, far, l2_bytes: see ``ways.turned_columns``.
    """
    few = far if left_bytes > l2_bytes else deep if k >= TURNED_DEEP else shallow
    enough = rows >= TURNED_ROWS and k >= TURNED_STEPS and left_bytes >= TURNED_LEAST
    return contiguous and enough and columns >= 2 and columns <= few


def is_copied(work: int, m: int, k: int, n: int) -> bool:
    """Whether a small B without unit column stride is copied. ``work``: terms, times the chains of an element."""
    return work <= COPIED_WORK and max(k, n) <= SPARE_EXTENT and (m >= COPIED_ROWS or k * n <= COPIED_SIZE)


def is_near(m: int, b_bytes: int) -> bool:
    """Whether B is so small that it need not pass m rows to be read once."""
    return b_bytes <= LANE_B_BYTES * m


def is_narrow(
    m: int, n: int, terms: int, tile_rows: int, a_crowded: bool, columns: int, crowded_columns: int, least: int
) -> bool:
    """Whether few columns want a narrow tile in place of a direct one of ``tile_rows`` rows.

    Args:
        a_crowded: whether A's rows lie a multiple of A_CROWDED_BYTES apart.
        columns, crowded_columns, least: see ``ways.narrow_limits``.
    """
    return n <= (crowded_columns if a_crowded else columns) and m > tile_rows and terms >= least
