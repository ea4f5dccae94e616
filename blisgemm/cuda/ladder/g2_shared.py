"""Rung 2: tiles of A and B in shared memory.

Question: every element of A is read n times and every element of B m times; can a block of threads read them once?

Idea: the block's 32 x 32 elements of C need 32 rows of A and 32 columns of B. Step by step along p, its 1024 threads
copy a 32 x 32 tile of each into shared memory, one element per thread, wait for each other, and multiply from there.
Global memory is read 32 times less often.

Look at: the two barriers (the tile is complete; the tile may be overwritten), and the zeros where a tile ends outside
its matrix: they add nothing, so that the innermost loop needs no tests.

On the CPU: the slabs of kc steps (loop pc) and the packing of A and B into blocks that stay in cache, zero padding
included. Shared memory is a cache that the program fills itself.

Expect: 15.9 % of cuBLAS at 4096, measured on one H200 in experiments before this library. Counterpart: kernel 3 of
https://siboehm.com/articles/22/CUDA-MMM.

Knows: one element, and the tiles that it shares. Does not know: registers. Called by ``run`` and the tests.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

TILE = 32
BLOCK = TILE, TILE
THREADS = TILE * TILE
SHARED_BYTES = 2 * TILE * TILE * 4


def grid(m, n):
    """Return how many blocks of threads in x, y, z."""
    return -(-n // TILE), -(-m // TILE), 1


def kernel():
    """Return the kernel (A, B, C)."""
    return multiply


def multiply(A, B, C):
    """Compute C = A · B, element (i, j) of it."""
    tile_a = cuda.shared.array((TILE, TILE), np.float32)
    tile_b = cuda.shared.array((TILE, TILE), np.float32)
    m, n, k = C.shape[0], C.shape[1], A.shape[1]
    y, x = cuda.threadIdx.x // TILE, cuda.threadIdx.x % TILE
    i, j = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE + x
    total = np.float32(0)
    for p0 in range(0, k, TILE):
        tile_a[y, x] = A[i, p0 + x] if i < m and p0 + x < k else np.float32(0)
        tile_b[y, x] = B[p0 + y, j] if p0 + y < k and j < n else np.float32(0)
        cuda.syncthreads()
        for p in range(TILE):
            total += tile_a[y, p] * tile_b[p, x]
        cuda.syncthreads()
    if i < m and j < n:
        C[i, j] = total
