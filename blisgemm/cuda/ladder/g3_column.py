"""Rung 3: each thread makes eight elements of a column of C.

Question: rung 2 reads shared memory twice for one multiply-add; can a thread read less for each?

Idea: a thread keeps 8 sums in registers, one below the other in C. For each p it reads one element of B, uses it 8
times, and reads 8 of A: nine reads for eight multiply-adds instead of sixteen. Fewer threads make more elements: 512
threads a 64 x 64 block. Its slabs are 8 steps deep, which is one element of each for every thread to copy.

Look at: ``sums``, a local array. Its indices are known when the loops are unrolled, so that it lies in registers and
not in the memory that is called local.

On the CPU: a microkernel of mr x 1: the register tile has one column, and an element of B is broadcast to it.

Expect: between rungs 2 and 4; no experiment was made. Counterpart: kernel 4 of
https://siboehm.com/articles/22/CUDA-MMM.

Knows: a column of eight elements. Does not know: tiles of two dimensions. Called by ``run`` and the tests.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

BLOCK = BM, BN = 64, 64
BK = 8
TM = 8
THREADS = BM // TM * BN  # also BM * BK and BK * BN: one element of each slab per thread
SHARED_BYTES = (BM + BN) * BK * 4


def grid(m, n):
    """Return how many blocks of threads in x, y, z."""
    return -(-n // BN), -(-m // BM), 1


def kernel():
    """Return the kernel (A, B, C)."""
    return multiply


def multiply(A, B, C):
    """Compute C = A · B, elements (i ... i + TM - 1, j) of it."""
    slab_a = cuda.shared.array((BM, BK), np.float32)
    slab_b = cuda.shared.array((BK, BN), np.float32)
    sums = cuda.local.array(TM, np.float32)
    m, n, k = C.shape[0], C.shape[1], A.shape[1]
    t = cuda.threadIdx.x
    row, column = cuda.blockIdx.y * BM, cuda.blockIdx.x * BN  # where the block's tile begins
    y, x = t // BN * TM, t % BN  # and in it the thread's
    a_row, a_p = t // BK, t % BK  # what the thread copies
    b_p, b_column = t // BN, t % BN
    for r in range(TM):
        sums[r] = 0
    for p0 in range(0, k, BK):
        inside = row + a_row < m and p0 + a_p < k
        slab_a[a_row, a_p] = A[row + a_row, p0 + a_p] if inside else np.float32(0)
        inside = p0 + b_p < k and column + b_column < n
        slab_b[b_p, b_column] = B[p0 + b_p, column + b_column] if inside else np.float32(0)
        cuda.syncthreads()
        for p in range(BK):
            of_b = slab_b[p, x]
            for r in range(TM):
                sums[r] += slab_a[y + r, p] * of_b
        cuda.syncthreads()
    for r in range(TM):
        if row + y + r < m and column + x < n:
            C[row + y + r, column + x] = sums[r]
