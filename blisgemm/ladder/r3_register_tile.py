"""Rung 3: a small tile of C stays in registers while p runs.

Question: rung 2 loads two elements and stores one for each multiply-add; can it be less?

Idea: 4 x 4 sums in variables, which the compiler keeps in registers. For each p, 4 elements of A and 4 of B are loaded
and used 4 times each: 8 loads for 16 multiply-adds, and C is stored once, at the end. In general mr + nr loads for
mr · nr: the tile is where reuse begins.

Look at: the loop over p in ``tiles.inspect_asm()``: no element of C in it, and 16 chains of sums that don't wait for
each other. But every operation is of one element, as the compiler makes no vectors of variables: so compare it with
rung 1, which has none either. Rung 2 has vectors and no reuse, this has reuse and no vectors, rung 4 has both.

Elsewhere: LAFF 2.3.2 (a micro-tile of 4 x 4); worklog kernels 4 and 5; ulmBLAS page 2, its micro-kernel.

Knows: tiles of 4 x 4. Does not know: vectors, caches. Called by ``ladder.run``; ``borders`` by rungs 4 to 6 too.
"""

from numba import njit

from . import r2_loop_order

__all__ = ["borders", "multiply"]

MR, NR = 4, 4


@njit(nogil=True)
def tiles(a, b, c):
    """Compute all whole 4 x 4 tiles of c := a · b."""
    zero = c.dtype.type(0)
    for i in range(0, c.shape[0] - MR + 1, MR):
        for j in range(0, c.shape[1] - NR + 1, NR):
            c00 = c01 = c02 = c03 = c10 = c11 = c12 = c13 = zero
            c20 = c21 = c22 = c23 = c30 = c31 = c32 = c33 = zero
            for p in range(a.shape[1]):
                a0, a1, a2, a3 = a[i, p], a[i + 1, p], a[i + 2, p], a[i + 3, p]
                b0, b1, b2, b3 = b[p, j], b[p, j + 1], b[p, j + 2], b[p, j + 3]
                c00, c01, c02, c03 = c00 + a0 * b0, c01 + a0 * b1, c02 + a0 * b2, c03 + a0 * b3
                c10, c11, c12, c13 = c10 + a1 * b0, c11 + a1 * b1, c12 + a1 * b2, c13 + a1 * b3
                c20, c21, c22, c23 = c20 + a2 * b0, c21 + a2 * b1, c22 + a2 * b2, c23 + a2 * b3
                c30, c31, c32, c33 = c30 + a3 * b0, c31 + a3 * b1, c32 + a3 * b2, c33 + a3 * b3
            c[i, j], c[i, j + 1], c[i, j + 2], c[i, j + 3] = c00, c01, c02, c03
            c[i + 1, j], c[i + 1, j + 1], c[i + 1, j + 2], c[i + 1, j + 3] = c10, c11, c12, c13
            c[i + 2, j], c[i + 2, j + 1], c[i + 2, j + 2], c[i + 2, j + 3] = c20, c21, c22, c23
            c[i + 3, j], c[i + 3, j + 1], c[i + 3, j + 2], c[i + 3, j + 3] = c30, c31, c32, c33


def borders(mr, nr, a, b, c):
    """Compute the rows and columns that whole mr x nr tiles leave over, as rung 2 does."""
    m_tiles, n_tiles = c.shape[0] // mr * mr, c.shape[1] // nr * nr
    if m_tiles < c.shape[0]:
        r2_loop_order.multiply(a[m_tiles:], b, c[m_tiles:])
    if n_tiles < c.shape[1]:
        r2_loop_order.multiply(a[:m_tiles], b[:, n_tiles:], c[:m_tiles, n_tiles:])


def multiply(a, b, c):
    """Compute c := a · b."""
    tiles(a, b, c)
    borders(MR, NR, a, b, c)
