"""Rung 6: a level between block and thread, and copies that are under way while the threads multiply.

Question: in rung 5 all threads wait while a slab is copied, and the lanes of a warp read from all over the slabs; what
is gained if neither is so?

Idea: a warp has a tile of its own, 32 x 64 of the block's 64 x 128: 4 x 8 lanes, which share what they read. And two
slabs of 32 steps are in shared memory: ``cp.async`` copies the next one, past the registers, while the threads
multiply with this one, so that one barrier per slab is enough.

Look at: the loop over slabs: wait for this one, begin to copy the next, multiply. A's slab stays as it comes, its
steps adjacent, since cp.async can't transpose: a thread reads four steps of a row at once. Padding keeps rows in other
banks.

On the CPU: the macrokernel's loops jr and ir over a block in cache (the warp tile), and prefetching.

Expect: 95.6 % of cuBLAS at 4096, measured on one H200 in experiments before this library (there with blocks in groups
of eight rows, so that neighbours share slabs in L2; the library's kernel has that). Counterpart: kernel 10 of
https://siboehm.com/articles/22/CUDA-MMM.

Knows: all levels. Does not know: other tiles, dtypes, layouts: the library does. Called by ``run`` and the tests.
"""

from __future__ import annotations

from numba import cuda

from .. import ptx
from ..ptx import F32, SHARED, address_of, commit_copies, fma, load, pack, shared_base, types, unpack
from .words import copy_rows_of, tile_of, write_tile_of, zeros_of

BLOCK = BM, BN = 64, 128
BK = 32
THREADS = 128  # 2 x 2 warps of 32 x 64, each of 4 x 8 lanes of 8 x 8 elements
PITCH = BK + 4  # floats from one row of A's slab to the next
A_BYTES = BM * PITCH * 4
STAGE_BYTES = A_BYTES + BK * BN * 4
SHARED_BYTES = 2 * STAGE_BYTES
ROWS, COLUMNS = range(0, 32, 4), (0, 32)  # of a thread tile: its rows and its groups of four columns
ROWS_A, ROWS_B = range(0, BM, 16), range(0, BK, 4)  # of a slab: those that one thread copies four floats of
SERPENTINE = [8 * i + (j if i % 2 == 0 else 7 - j) for i in range(8) for j in range(8)]  # neighbours share an operand
i32, i64, SUMS = types.int32, types.int64, tile_of(64)


def grid(m, n):
    """Return how many blocks of threads in x, y, z."""
    return -(-n // BN), -(-m // BM), 1


def _emit_slab(b, args):
    def of_a(p):  # four steps of this thread's eight rows
        return [load(b, address_of(b, args[1], (i * PITCH + p) * 4), F32, 4, SHARED) for i in ROWS]

    def of_b(p):  # one step of its eight columns
        return [v for j in COLUMNS for v in load(b, address_of(b, args[2], (p * BN + j) * 4), F32, 4, SHARED)]

    sums, x, y = unpack(b, args[0], 64), of_a(0), of_b(0)
    for p in range(BK):  # generation loop: the next step's elements are read before this one's products are made
        next_x = of_a(p + 1) if p % 4 == 3 and p + 1 < BK else x
        next_y = of_b(p + 1) if p + 1 < BK else y
        for e in SERPENTINE:
            sums[e] = fma(b, x[e // 8][p % 4], y[e % 8], sums[e])
        x, y = next_x, next_y
    return pack(b, sums)


copy_a, copy_b = copy_rows_of(ROWS_A, PITCH), copy_rows_of(ROWS_B, BN)
multiply_slab = ptx.intrinsic_of("multiply_slab", (SUMS, i32, i32), _emit_slab, SUMS)
zeros, write_tile, wait = zeros_of(64), write_tile_of(ROWS, COLUMNS), ptx.wait_for_copies(0)


def kernel():
    """Return the kernel (a, b, c, m, n, k)."""
    return multiply


def multiply(a, b, c, m, n, k):
    """Compute C = A · B, the rows y, y + 4 ... of it and the columns x to x + 3, x + 32 to x + 35."""
    t, shared = i32(cuda.threadIdx.x), shared_base()
    row, column = i32(cuda.blockIdx.y * BM), i32(cuda.blockIdx.x * BN)  # where the block's tile begins
    a_row, a_p, b_p, b_column = i32(t >> 3), i32((t & 7) * 4), i32(t >> 5), i32((t & 31) * 4)  # what this thread copies
    from_a, from_b = a + (i64(row + a_row) * k + a_p) * 4, b + (i64(b_p) * n + column + b_column) * 4
    to_a, to_b = i32(shared + (a_row * PITCH + a_p) * 4), i32(shared + A_BYTES + (b_p * BN + b_column) * 4)
    aligned_a, aligned_b, aligned_c = (a | k * 4) & 15 == 0, (b | n * 4) & 15 == 0, (c | n * 4) & 15 == 0
    warp, lane = i32(t >> 5), i32(t & 31)
    y, x = i32((warp >> 1) * 32 + (lane >> 3)), i32((warp & 1) * 64 + (lane & 7) * 4)  # its first element
    at_a, at_b = i32(shared + y * PITCH * 4), i32(shared + A_BYTES + x * 4)
    rows, columns, stage = i32(m - row - a_row), i32(n - column - b_column), i32(0)
    sums = zeros()
    copy_a(to_a, from_a, i64(k) * 4, rows, i32(k - a_p), aligned_a)
    copy_b(to_b, from_b, i64(n) * 4, i32(k - b_p), columns, aligned_b)
    commit_copies()
    for p in range(0, k, BK):
        wait()
        cuda.syncthreads()  # this slab is there, the one before has been read
        following, other = i32(p + BK), i32(STAGE_BYTES - stage)
        from_a += BK * 4
        from_b += i64(n) * (BK * 4)
        if following < k:
            copy_a(i32(to_a + other), from_a, i64(k) * 4, rows, i32(k - following - a_p), aligned_a)
            copy_b(i32(to_b + other), from_b, i64(n) * 4, i32(k - following - b_p), columns, aligned_b)
            commit_copies()
        sums = multiply_slab(sums, i32(at_a + stage), i32(at_b + stage))
        stage = other
    i, j = i32(row + y), i32(column + x)
    write_tile(sums, c + (i64(i) * n + j) * 4, i64(n) * 4, i32(m - i), i32(n - j), aligned_c)
