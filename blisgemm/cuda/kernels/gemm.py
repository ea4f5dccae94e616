"""The kernel: block tiles of C, k slab by k slab, in shared memory, warp tiles and registers.

Knows: which block of threads does what, and in which order. Does not know: how a tile's sums are computed
(``slabs``; of a few rows, ``vector``) or stored (``finish``). Called by ``compile``.

::

    tile        block tiles of C, in groups of rows so that neighbours share slabs in L2     (jc and ic)
      slab      p in steps of bk: the next slabs are copied while this one is multiplied      (pc, pack)
        warp tile, thread tile, p                                                             (jr, ir, microkernel)

``tiles``: a block of threads does one tile. ``streamk``: as many blocks of threads as fit on the card share all slabs
of all tiles evenly; who does a part of a tile leaves its sums in memory, and whoever comes last adds all of them in the
order of p, so that the bits are the same in every run.

Source: Osama et al., "Stream-K", PPoPP 2023 (the division of work); NVIDIA CUTLASS, "Efficient GEMM" (the tiles).
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from ..ptx import count_arrival, fence, of_type, reset, types, udiv, urem
from ..tiles import KernelSpec
from .finish import add_part_of, extra_type_of, keep_part_of, store_of
from .slabs import tile_sums_of
from .threadtile import fragments_of, zeros_of
from .vector import vector_sums_of

__all__ = ["kernel_of", "signature_of"]

i32, i64 = types.int32, types.int64


def signature_of(spec: KernelSpec) -> Any:
    """Return the Numba signature: 3 addresses, 4 strides, 3 batch strides, 5 extents, 4 factors, 2 of parts."""
    real, _ = of_type(spec.reals)
    return types.void(*(i64,) * 10, *(i32,) * 6, *(real,) * 4, i64, i64, extra_type_of(spec))


def kernel_of(spec: KernelSpec) -> Any:
    """Return the kernel as a Python function.

    Args of the kernel (all strides in bytes):
        a, b, c: addresses. lda, ldb: distance of slow rows. rs_c, cs_c: strides of C.
        next_a, next_b, next_c: distance of the items of a batch, which blockIdx.z counts.
        m, n, k. tiles_m, tiles_n: how many. whole: of ``streamk``, tiles that a block does on its own first.
        alpha_re, alpha_im, beta_re, beta_im.
        extra: a tuple of the arguments of the epilogue's steps.
        parts: room for the sums of two parts for each block of threads; counters: int32 zeros, one a tile.
    """
    tile = spec.tile
    bm, bn, bk, wm, wn = tile.bm, tile.bn, tile.bk, tile.wm, tile.wn
    warps_n, group = bn // wn, spec.group
    fragments = fragments_of(spec)
    lanes_n, unit_m, unit_n = fragments.n_lanes, fragments.m_unit, fragments.n_unit
    zeros, store = zeros_of(spec), store_of(spec, fragments)
    keep_part, add_part = keep_part_of(spec), add_part_of(spec)
    part_bytes, atomic = spec.sum_bytes, spec.reduction == "atomic"
    tile_sums = vector_sums_of(spec) if spec.streams else tile_sums_of(spec)

    @cuda.jit(device=True, inline="always")
    def origin(index, tiles_m, tiles_n):  # type: ignore[no-untyped-def]
        """Return the first row and column of a tile: tiles go down groups of rows, then to the next column."""
        band = udiv(index, i32(group * tiles_n))
        inside = i32(index - band * group * tiles_n)
        high = i32(min(i32(group), i32(tiles_m - band * group)))
        return i32((band * group + urem(inside, high)) * bm), i32(udiv(inside, high) * bn)

    @cuda.jit(device=True, inline="always")
    def finish(sums, c, rs_c, cs_c, m, n, row, column, ar, ai, br, bi, item_of, extra):  # type: ignore[no-untyped-def]
        t = i32(cuda.threadIdx.x)
        warp, lane = i32(t >> 5), i32(t & 31)
        x, y = udiv(lane, i32(lanes_n)), urem(lane, i32(lanes_n))
        i = i32(row + udiv(warp, i32(warps_n)) * wm + x * unit_m)
        j = i32(column + urem(warp, i32(warps_n)) * wn + y * unit_n)
        at = c + i * rs_c + j * cs_c
        store(sums, at, rs_c, cs_c, i32(m - i), i32(n - j), ar, ai, br, bi, item_of, i64(i), i64(j), extra)

    def tiles(
        a, b, c, lda, ldb, rs_c, cs_c, next_a, next_b, next_c, m, n, k, tiles_m, tiles_n, whole,
        alpha_re, alpha_im, beta_re, beta_im, parts, counters, extra,
    ):  # type: ignore[no-untyped-def]  # fmt: skip
        item_of = i64(cuda.blockIdx.z)
        row, column = origin(i32(cuda.blockIdx.x), tiles_m, tiles_n)
        slabs = udiv(i32(k + (bk - 1)), i32(bk))
        sums = tile_sums(a + item_of * next_a, b + item_of * next_b, lda, ldb, m, n, k, row, column, i32(0), slabs)
        finish(
            sums, c + item_of * next_c, rs_c, cs_c, m, n, row, column, alpha_re, alpha_im, beta_re, beta_im,
            item_of, extra,
        )  # fmt: skip

    def streamk(
        a, b, c, lda, ldb, rs_c, cs_c, next_a, next_b, next_c, m, n, k, tiles_m, tiles_n, whole,
        alpha_re, alpha_im, beta_re, beta_im, parts, counters, extra,
    ):  # type: ignore[no-untyped-def]  # fmt: skip
        me, blocks = i32(cuda.blockIdx.x), i32(cuda.gridDim.x)
        item_of = i64(cuda.blockIdx.z)
        t = i32(cuda.threadIdx.x)
        slabs = udiv(i32(k + (bk - 1)), i32(bk))
        last_one = cuda.shared.array(1, types.int32)
        shared_slabs = i32((tiles_m * tiles_n - whole) * slabs)
        share, more = udiv(shared_slabs, blocks), urem(shared_slabs, blocks)  # the first ``more`` do one slab more
        at = i32(me * share + min(me, more))
        end = i32(at + share + (1 if me < more else 0))
        mine = me
        parts += (item_of * blocks * 2) * part_bytes + i64(t) * 16
        counters += item_of * (tiles_m * tiles_n) * 4
        while mine < whole or at < end:
            if mine < whole:
                index, first, count = mine, i32(0), slabs
                mine = i32(mine + blocks)
            else:
                tile_at = udiv(at, slabs)
                first = i32(at - tile_at * slabs)
                count = i32(min(i32(slabs - first), i32(end - at)))
                index = i32(whole + tile_at)
                at = i32(at + count)
            row, column = origin(index, tiles_m, tiles_n)
            cuda.syncthreads()  # the slabs of the tile before have been read
            sums = tile_sums(a + item_of * next_a, b + item_of * next_b, lda, ldb, m, n, k, row, column, first, count)
            complete = count == slabs
            if atomic:
                complete = True
            if not complete:
                # of a block's two parts, the one that begins inside a tile comes first
                keep_part(sums, parts + (i64(me) * 2 + (0 if first > 0 else 1)) * part_bytes)
                begin = i32((index - whole) * slabs)
                full = i32(more * (share + 1))  # slabs of those who do one more
                opener = udiv(begin, i32(share + 1)) if begin < full else i32(more + udiv(i32(begin - full), share))
                final = i32(begin + slabs - 1)
                closer = udiv(final, i32(share + 1)) if final < full else i32(more + udiv(i32(final - full), share))
                fence()
                cuda.syncthreads()
                if t == 0:
                    before = count_arrival(counters + i64(index) * 4)
                    last_one[0] = 1 if before == closer - opener else 0
                cuda.syncthreads()
                if last_one[0] == 1:
                    fence()
                    complete = True
                    sums = zeros()
                    sums = add_part(sums, parts + (i64(opener) * 2 + 1) * part_bytes)
                    for other in range(opener + 1, closer + 1):
                        sums = add_part(sums, parts + i64(other) * 2 * part_bytes)
                    if t == 0:
                        reset(counters + i64(index) * 4)
            if complete:
                finish(
                    sums, c + item_of * next_c, rs_c, cs_c, m, n, row, column, alpha_re, alpha_im, beta_re, beta_im,
                    item_of, extra,
                )  # fmt: skip

    return tiles if spec.schedule == "tiles" else streamk
