"""What the compiled fast lane is asked and answers, as integers.

Knows: the words. Does not know: Numba, which ``api`` must not import before the first product. Called by
``entry``, ``driver`` and ``api``.

An answer above ``PLAIN`` is a key: everything about three checked operands that their plan depends on, in one
integer (``read_key`` takes it apart)::

    m, n, k of 19 bits each | EXCHANGE, TURN_B, TURN_A where ``op`` has them | access, 2 bits
"""

__all__ = [
    "ACCESSES", "CONJ_BOTH", "COPIED_ROWS", "COPIED_SIZE", "COPIED_WORK", "DECLINED", "DONE", "EXCHANGE", "EXTENT_BITS",
    "LANE_B_BYTES", "LANE_ROWS", "PLAIN", "SPARE_EXTENT", "TURN_A", "TURN_B", "VECTORS", "read_key",
]  # fmt: skip

DECLINED = 0  # something that the general way must look at; nothing was written
DONE = 1  # the product is in ``out``
PLAIN = 2  # checked: plain operands that fit and don't overlap, but too long for a key; nothing was written

# What is done to the operands where they are opened: the bits of ``op``. The first two conjugate A and B.
CONJ_BOTH = 3
TURN_A = 4  # A is transposed
TURN_B = 8
EXCHANGE = 16  # then C' = B' A' is computed in place of C = A B
VECTORS = 32  # 1-d operands are allowed: a row on the left, a column on the right

# A few rows that meet more than so many bytes of B are left to the plan, which has better ways than strip by strip.
LANE_ROWS, LANE_B_BYTES = 4, 96 * 1024

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

EXTENT_BITS = 19
ACCESSES = ("rows", "columns", "general")  # how B lies, as ``Plan.access`` says it


def read_key(key: int) -> tuple[int, int, int, str, int]:
    """Return (m, n, k, access, bits of ``op``) of a key."""
    mask = (1 << EXTENT_BITS) - 1
    extents = key >> 5
    m, n, k = extents >> 2 * EXTENT_BITS, extents >> EXTENT_BITS & mask, extents & mask
    return m, n, k, ACCESSES[key & 3], key & (TURN_A | TURN_B | EXCHANGE)
