"""What the compiled fast lane is asked and answers, as integers.

Knows: the words. Does not know: Numba, which ``api`` must not import before the first product. Called by
``checks``, ``entry``, ``driver`` and ``lane``.

An answer above ``PLAIN`` is a key: everything about three checked operands that their plan depends on, in one
integer (``read_key`` takes it apart)::

    m, n, k of 18 bits each | A_CROWDED | A_ROWS | EXCHANGE, TURN_B, TURN_A where ``op`` has them | access, 2 bits
"""

__all__ = [
    "ACCESSES", "A_CROWDED", "A_ROWS", "CONJ_BOTH", "DECLINED", "DONE", "EXCHANGE", "EXTENT_BITS", "FLAG_BITS", "PLAIN",
    "TURN_A", "TURN_B", "VECTORS", "read_key",
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
A_CROWDED = 64  # of a key: its rows crowd L1 (``rules.A_CROWDED_BYTES``)
VECTORS = 32  # 1-d operands are allowed: a row on the left, a column on the right

EXTENT_BITS, FLAG_BITS = 18, 7
ACCESSES = ("rows", "columns", "general", "crowded")  # how B lies; the last: by rows that crowd few sets of L1


def read_key(key: int) -> tuple[int, int, int, str, int, bool, bool]:
    """Return (m, n, k, access, bits of ``op``, whether A has unit column stride, and whether its rows crowd L1)."""
    mask = (1 << EXTENT_BITS) - 1
    extents = key >> FLAG_BITS
    m, n, k = extents >> 2 * EXTENT_BITS, extents >> EXTENT_BITS & mask, extents & mask
    op = key & (TURN_A | TURN_B | EXCHANGE)
    return m, n, k, ACCESSES[key & 3], op, bool(key & A_ROWS), bool(key & A_CROWDED)
