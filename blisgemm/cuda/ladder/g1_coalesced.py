"""Rung 1: a thread for each element of C, the threads of a warp along a row.

Question: the arithmetic stays as it is; what does the order of the threads alone do?

Idea: memory comes in sectors of 32 bytes and lines of 128. If the 32 threads of a warp have one i and 32 adjacent j, a
step reads one element of A, for all of them, and 32 adjacent ones of B: four sectors instead of 32, all of them used.

Look at: the line that computes i and j. Everything else is rung 0.

On the CPU: still no tile; the order of the loops in which the innermost one runs along the rows of B and C, so that
vectors are loaded and not gathered.

Expect: 2.7 % of cuBLAS at 4096, measured on one H200 in experiments before this library (with blocks of one row).
Counterpart: kernel 2 of https://siboehm.com/articles/22/CUDA-MMM.

Knows: one element. Does not know: its neighbours. Called by ``run`` and the tests.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

BLOCK = BM, BN = 32, 32
THREADS = BM * BN
SHARED_BYTES = 0


def grid(m, n):
    """Return how many blocks of threads in x, y, z."""
    return -(-n // BN), -(-m // BM), 1


def kernel():
    """Return the kernel (A, B, C)."""
    return multiply


def multiply(A, B, C):
    """Compute C = A · B, element (i, j) of it."""
    t = cuda.threadIdx.x
    i, j = cuda.blockIdx.y * BM + t // BN, cuda.blockIdx.x * BN + t % BN
    if i < C.shape[0] and j < C.shape[1]:
        total = np.float32(0)
        for p in range(A.shape[1]):
            total += A[i, p] * B[p, j]
        C[i, j] = total
