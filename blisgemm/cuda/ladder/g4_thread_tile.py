"""Rung 4: each thread makes an 8 x 8 tile of C.

Question: how few reads of shared memory can a multiply-add have?

Idea: a thread tile of two dimensions. For each p a thread reads 8 elements of A and 8 of B into registers and makes
all 64 products: one read for four multiply-adds, where rung 3 has nine for eight. 256 threads make a 128 x 128 block,
in slabs of 8 steps; each copies four elements of each slab.

Look at: three local arrays, 80 registers, all indices known after unrolling. And at what is still wrong: the compiler
sees 16 separate reads of four bytes per p, and threads beside each other read columns that are 8 apart, so that four
of them want the same bank of shared memory at once. The next rung mends both.

On the CPU: the microtile mr x nr, whose sums stay in registers while p runs (an outer product per step), in the loops
jr and ir over the block.

Expect: 28.2 % of cuBLAS at 4096, measured on one H200 in experiments before this library (with the slab of A
transposed). Counterpart: kernel 5 of https://siboehm.com/articles/22/CUDA-MMM.

Knows: thread tiles in a block tile. Does not know: vectors, warps. Called by ``run`` and the tests.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

BLOCK = BM, BN = 128, 128
BK = 8
TM, TN = 8, 8
THREADS = BM // TM * (BN // TN)
SHARED_BYTES = (BM + BN) * BK * 4


def grid(m, n):
    """Return how many blocks of threads in x, y, z."""
    return -(-n // BN), -(-m // BM), 1


def kernel():
    """Return the kernel (A, B, C)."""
    return multiply


def multiply(A, B, C):
    """Compute C = A · B, elements (i ... i + TM - 1, j ... j + TN - 1) of it."""
    slab_a = cuda.shared.array((BM, BK), np.float32)
    slab_b = cuda.shared.array((BK, BN), np.float32)
    sums = cuda.local.array((TM, TN), np.float32)
    of_a = cuda.local.array(TM, np.float32)
    of_b = cuda.local.array(TN, np.float32)
    m, n, k = C.shape[0], C.shape[1], A.shape[1]
    t = cuda.threadIdx.x
    row, column = cuda.blockIdx.y * BM, cuda.blockIdx.x * BN  # where the block's tile begins
    y, x = t // (BN // TN) * TM, t % (BN // TN) * TN  # and in it the thread's
    for r in range(TM):
        for s in range(TN):
            sums[r, s] = 0
    for p0 in range(0, k, BK):
        for e in range(t, BM * BK, THREADS):
            i, p = row + e // BK, p0 + e % BK
            slab_a[e // BK, e % BK] = A[i, p] if i < m and p < k else np.float32(0)
        for e in range(t, BK * BN, THREADS):
            p, j = p0 + e // BN, column + e % BN
            slab_b[e // BN, e % BN] = B[p, j] if p < k and j < n else np.float32(0)
        cuda.syncthreads()
        for p in range(BK):
            for r in range(TM):
                of_a[r] = slab_a[y + r, p]
            for s in range(TN):
                of_b[s] = slab_b[p, x + s]
            for r in range(TM):
                for s in range(TN):
                    sums[r, s] += of_a[r] * of_b[s]
        cuda.syncthreads()
    for r in range(TM):
        for s in range(TN):
            if row + y + r < m and column + x + s < n:
                C[row + y + r, column + x + s] = sums[r, s]
