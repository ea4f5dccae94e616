"""What the compiled fast lane is asked and answers, as integers.

Knows: the words. Does not know: Numba, which ``api`` must not import before the first product. Called by
``checks``, ``entry``, ``driver`` and ``lane``.

An answer above ``PLAIN`` is a key: everything about three checked operands that their plan depends on, in one
integer (``read_key`` takes it apart)::

    m, n, k of 18 bits each | A_CROWDED | A_ROWS | EXCHANGE, TURN_B, TURN_A where ``op`` has them | access, 2 bits
"""

__all__ = [
    "ACCESSES", "A_CROWDED", "A_CROWDED_BYTES", "A_ROWS", "CONJ_BOTH", "COPIED_ROWS", "COPIED_SIZE", "COPIED_WORK",
    "CROWDED_BYTES", "DECLINED", "DONE", "EXCHANGE", "EXTENT_BITS", "FLAG_BITS", "LANE_BATCH", "LANE_B_BYTES",
    "LANE_ROWS", "PLAIN", "SPARE_EXTENT", "TURNED_BYTES", "TURNED_LEAST", "TURNED_ROWS", "TURNED_STEPS", "TURN_A",
    "TURN_B", "VECTORS", "read_key",
]  # fmt: skip

DECLINED = 0  # something that the general way must look at; nothing was written
DONE = 1  # the product is in ``out``
PLAIN = 2  # checked: plain operands that fit and don't overlap, but too long for a key; nothing was written

# What is done to the operands where they are opened: the bits of ``op``. The first two conjugate A and B.
CONJ_BOTH = 3
TURN_A = 4  # A is transposed
TURN_B = 8
EXCHANGE = 16  # then C' = B' A' is computed in place of C = A B
A_ROWS = 32  # of a key: what multiplies from the left has unit column stride
A_CROWDED = 64  # of a key: its rows lie a multiple of A_CROWDED_BYTES apart
VECTORS = 32  # 1-d operands are allowed: a row on the left, a column on the right

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
# TURNED_LEAST bytes, and has so many columns and rows. ``limits.TURNED_COLUMNS`` says how few columns of B: for an A
# below TURNED_BYTES, one that fits in L2, and a larger one.
TURNED_LEAST, TURNED_BYTES, TURNED_STEPS, TURNED_ROWS = 16 * 1024, 64 * 1024, 64, 16

EXTENT_BITS, FLAG_BITS = 18, 7
ACCESSES = ("rows", "columns", "general", "crowded")  # how B lies; the last: by rows that crowd few sets of L1


def read_key(key: int) -> tuple[int, int, int, str, int, bool, bool]:
    """Return (m, n, k, access, bits of ``op``, whether A has unit column stride, and whether its rows crowd L1)."""
    mask = (1 << EXTENT_BITS) - 1
    extents = key >> FLAG_BITS
    m, n, k = extents >> 2 * EXTENT_BITS, extents >> EXTENT_BITS & mask, extents & mask
    op = key & (TURN_A | TURN_B | EXCHANGE)
    return m, n, k, ACCESSES[key & 3], op, bool(key & A_ROWS), bool(key & A_CROWDED)
