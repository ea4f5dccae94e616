"""Rung 0: a thread for each element of C, the threads of a warp down a column.

Question: how fast is the definition, C[i, j] = sum over p of A[i, p] · B[p, j], if every element has a thread?

Idea: none yet. Threads are numbered down the columns of a 32 x 32 block of C, so that the 32 threads of a warp, which
run in step, have 32 different i and one j. In one step they read 32 elements of A that are k elements apart, each from
a line of memory of its own, and one of B.

Look at: the line that computes i and j; the next rung changes nothing else.

On the CPU: no tile at all, the three plain loops; a warp is the vector, and this one gathers instead of loading.

Expect: less than the next rung; no experiment was made. Counterpart: kernel 1 of
https://siboehm.com/articles/22/CUDA-MMM.

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
    i, j = cuda.blockIdx.y * BM + t % BM, cuda.blockIdx.x * BN + t // BM
    if i < C.shape[0] and j < C.shape[1]:
        total = np.float32(0)
        for p in range(A.shape[1]):
            total += A[i, p] * B[p, j]
        C[i, j] = total
