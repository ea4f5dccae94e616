"""Rung 5: 128 bits at a time, and fragments as tuples.

Question: rung 4 has the right tiles; what is lost in how its numbers travel?

Idea: four adjacent floats in one instruction: a quarter of the loads and stores, in global and in shared memory. For
that the elements that a thread needs together must lie together: the slab of A is transposed while it is stored, so
that the 8 rows of one step are adjacent, and a thread's 8 columns become two groups of four, 64 apart, so that the
lanes of a warp cover all banks. Fragments are tuples that a word takes in and gives back: values, which have no
address, so that they can be nowhere but in registers.

Look at: ``PITCH``. With 128 floats a row, the two steps 0 and 4 that the lanes of a warp store at once would be in the
same banks; four floats of padding move them 16 banks apart. And at ``read4``: where rows are not aligned to 16 bytes,
or end, single elements are read instead.

On the CPU: vector registers in the microkernel, and the packed micro-panel of A, in which the mr elements of one step
are adjacent.

Expect: 65.7 % of cuBLAS at 4096, measured on one H200 in experiments before this library. Counterpart: kernel 6 of
https://siboehm.com/articles/22/CUDA-MMM.

Knows: thread tiles in a block tile, in vectors. Does not know: warps. Called by ``run`` and the tests.
"""

from __future__ import annotations

from numba import cuda

from ..ptx import SHARED, address_of, fma, intrinsic_of, pack, shared_base, store, types, unpack
from .words import FOUR, read4, shared4, store_shared4, tile_of, write_tile_of, zeros_of

BLOCK = BM, BN = 128, 128
BK = 8
THREADS = 256  # 16 x 16, each 8 x 8 elements
PITCH = BM + 4  # floats from one step of A's slab to the next
A_BYTES = BK * PITCH * 4
SHARED_BYTES = A_BYTES + BK * BN * 4
ROWS, COLUMNS = range(8), (0, 64)  # of a thread tile: its rows and its groups of four columns
i32, i64, EIGHT, SUMS = types.int32, types.int64, tile_of(8), tile_of(64)


def grid(m, n):
    """Return how many blocks of threads in x, y, z."""
    return -(-n // BN), -(-m // BM), 1


def _emit_column(b, args):
    for q, value in enumerate(unpack(b, args[1], 4)):  # generation loop: four steps of one row
        store(b, [value], address_of(b, args[0], q * PITCH * 4), SHARED)


def _emit_products(b, args):
    sums, x, y = unpack(b, args[0], 64), unpack(b, args[1], 8), unpack(b, args[2], 8)
    return pack(b, [fma(b, x[e // 8], y[e % 8], sums[e]) for e in range(64)])  # generation loop


store_column = intrinsic_of("store_column", (i32, FOUR), _emit_column)
add_products = intrinsic_of("add_products", (SUMS, EIGHT, EIGHT), _emit_products, SUMS)
zeros, write_tile = zeros_of(64), write_tile_of(ROWS, COLUMNS)


def kernel():
    """Return the kernel (a, b, c, m, n, k)."""
    return multiply


def multiply(a, b, c, m, n, k):
    """Compute C = A · B, an 8 x (4 + 4) tile of it."""
    t, shared = i32(cuda.threadIdx.x), shared_base()
    row, column = i32(cuda.blockIdx.y * BM), i32(cuda.blockIdx.x * BN)  # where the block's tile begins
    a_row, a_p, b_p, b_column = i32(t >> 1), i32((t & 1) * 4), i32(t >> 5), i32((t & 31) * 4)  # what this thread copies
    from_a, from_b = a + (i64(row + a_row) * k + a_p) * 4, b + (i64(b_p) * n + column + b_column) * 4
    to_a, to_b = i32(shared + (a_p * PITCH + a_row) * 4), i32(shared + A_BYTES + (b_p * BN + b_column) * 4)
    aligned_a, aligned_b, aligned_c = (a | k * 4) & 15 == 0, (b | n * 4) & 15 == 0, (c | n * 4) & 15 == 0
    y, x = i32((t >> 4) * 8), i32((t & 15) * 4)  # the thread's tile in the block's
    sums = zeros()
    for p in range(0, k, BK):
        of_a = read4(from_a, i32(k - p - a_p if row + a_row < m else 0), aligned_a, a)
        of_b = read4(from_b, i32(n - column - b_column if p + b_p < k else 0), aligned_b, b)
        cuda.syncthreads()  # the slabs before have been read
        store_column(to_a, of_a)
        store_shared4(to_b, of_b)
        cuda.syncthreads()
        for q in range(BK):
            at_a, at_b = i32(shared + (q * PITCH + y) * 4), i32(shared + A_BYTES + (q * BN + x) * 4)
            of_y, of_x = shared4(at_a) + shared4(i32(at_a + 16)), shared4(at_b) + shared4(i32(at_b + 256))
            sums = add_products(sums, of_y, of_x)
        from_a += BK * 4
        from_b += i64(n) * (BK * 4)
    i, j = i32(row + y), i32(column + x)
    write_tile(sums, c + (i64(i) * n + j) * 4, i64(n) * 4, i32(m - i), i32(n - j), aligned_c)
