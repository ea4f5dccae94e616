"""The kernel: block tiles of C, k slab by k slab, in shared memory, warp tiles and registers.

Knows: the order of everything. Does not know: how a slab is copied (``stage``), multiplied (``threadtile``) or stored
(``finish``). Called by ``compile``.

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

from ..ptx import (
    commit_copies,
    count_arrival,
    fence,
    nothing,
    of_type,
    reset,
    shared_base,
    types,
    udiv,
    urem,
    wait_for_copies,
)
from ..tiles import KernelSpec
from .finish import add_part_of, extra_type_of, keep_part_of, store_of
from .stage import copy_of, stage_of
from .threadtile import fragments_of, multiply_of, zeros_of

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
    bm, bn, bk, wm, wn, stages = tile.bm, tile.bn, tile.bk, tile.wm, tile.wn, tile.stages
    warps_n, item, group = bn // wn, spec.itemsize, spec.group
    copy_a, copy_b = copy_of(spec, spec.a, bm), copy_of(spec, spec.b, bn)
    a_by_k, b_by_k = spec.a.layout == "k", spec.b.layout == "k"
    a_held_by_k, b_held_by_k = spec.a.shared == "k", spec.b.shared == "k"  # in shared memory
    stage_a, stage_b = stage_of(spec, copy_a), stage_of(spec, copy_b)
    lead_a, lead_b = spec.leading(spec.a, bm), spec.leading(spec.b, bn)
    across_a, across_b, vec_a, vec_b = copy_a.across, copy_b.across, copy_a.vector, copy_b.vector
    slow_unit_a, fast_unit_a, slow_unit_b, fast_unit_b = (
        copy_a.slow_unit, copy_a.fast_unit, copy_b.slow_unit, copy_b.fast_unit,
    )  # fmt: skip
    fragments = fragments_of(spec)
    lanes_n, unit_m, unit_n = fragments.n_lanes, fragments.m_unit, fragments.n_unit
    zeros, multiply, store = zeros_of(spec), multiply_of(spec), store_of(spec, fragments)
    keep_part, add_part = keep_part_of(spec), add_part_of(spec)
    a_bytes, stage_bytes, part_bytes = spec.a_bytes, spec.stage_bytes, spec.sum_bytes
    dmma = spec.dmma
    atomic = spec.reduction == "atomic"
    asynchronous = spec.copies == "async"
    waiting, commit = (wait_for_copies(stages - 2), commit_copies) if asynchronous else (nothing, nothing)
    last_stage, all_stages = (stages - 1) * stage_bytes, stages * stage_bytes

    @cuda.jit(device=True, inline="always")
    def origin(index, tiles_m, tiles_n):  # type: ignore[no-untyped-def]
        """Return the first row and column of a tile: tiles go down groups of rows, then to the next column."""
        band = udiv(index, i32(group * tiles_n))
        inside = i32(index - band * group * tiles_n)
        high = i32(min(i32(group), i32(tiles_m - band * group)))
        return i32((band * group + urem(inside, high)) * bm), i32(udiv(inside, high) * bn)

    @cuda.jit(device=True, inline="always")
    def tile_sums(a, b, lda, ldb, m, n, k, row, column, first, slabs):  # type: ignore[no-untyped-def]
        """Return this thread's sums of ``slabs`` k slabs of a tile from slab ``first`` on."""
        shared = shared_base()
        t = i32(cuda.threadIdx.x)
        slow_a, fast_a = udiv(t, i32(across_a)), i32(urem(t, i32(across_a)) * vec_a)
        slow_b, fast_b = udiv(t, i32(across_b)), i32(urem(t, i32(across_b)) * vec_b)
        p0 = i64(first) * bk
        if a_by_k:
            source_a = a + (i64(row) + slow_a) * lda + (p0 + fast_a) * item
            step_a = i64(bk * item)
        else:
            source_a = a + (p0 + slow_a) * lda + (i64(row) + fast_a) * item
            step_a = lda * bk
        if b_by_k:
            source_b = b + (i64(column) + slow_b) * ldb + (p0 + fast_b) * item
            step_b = i64(bk * item)
        else:
            source_b = b + (p0 + slow_b) * ldb + (i64(column) + fast_b) * item
            step_b = ldb * bk
        into_a = i32(shared + (slow_a * slow_unit_a + fast_a * fast_unit_a) * item)
        into_b = i32(shared + a_bytes + (slow_b * slow_unit_b + fast_b * fast_unit_b) * item)
        warp, lane = i32(t >> 5), i32(t & 31)
        x, y = udiv(lane, i32(lanes_n)), urem(lane, i32(lanes_n))
        warp_m, warp_n = i32(udiv(warp, i32(warps_n)) * wm), i32(urem(warp, i32(warps_n)) * wn)
        u, v, step = (
            i32(x * unit_m),
            i32(y * unit_n),
            i32(0),
        )  # row of A, column of B, step of p of the lane's first reads
        if dmma:
            v, step = x, y
        if a_held_by_k:
            from_a = i32(shared + ((warp_m + u) * lead_a + step) * item)
        else:
            from_a = i32(shared + (step * lead_a + warp_m + u) * item)
        if b_held_by_k:
            from_b = i32(shared + a_bytes + ((warp_n + v) * lead_b + step) * item)
        else:
            from_b = i32(shared + a_bytes + (step * lead_b + warp_n + v) * item)
        rows, columns, left = i32(m - row), i32(n - column), i32(k - p0)
        sums = zeros()
        for s in range(stages - 1):
            if s < slabs:
                if a_by_k:
                    stage_a(i32(into_a + s * stage_bytes), source_a, lda, slow_a, fast_a, rows, left)
                else:
                    stage_a(i32(into_a + s * stage_bytes), source_a, lda, slow_a, fast_a, left, rows)
                if b_by_k:
                    stage_b(i32(into_b + s * stage_bytes), source_b, ldb, slow_b, fast_b, columns, left)
                else:
                    stage_b(i32(into_b + s * stage_bytes), source_b, ldb, slow_b, fast_b, left, columns)
                source_a += step_a
                source_b += step_b
                left = i32(left - bk)
            commit()
        reading, writing = i32(0), i32(last_stage)
        for slab in range(slabs):
            waiting()
            cuda.syncthreads()
            if slab + (stages - 1) < slabs:
                if a_by_k:
                    stage_a(i32(into_a + writing), source_a, lda, slow_a, fast_a, rows, left)
                else:
                    stage_a(i32(into_a + writing), source_a, lda, slow_a, fast_a, left, rows)
                if b_by_k:
                    stage_b(i32(into_b + writing), source_b, ldb, slow_b, fast_b, columns, left)
                else:
                    stage_b(i32(into_b + writing), source_b, ldb, slow_b, fast_b, left, columns)
                source_a += step_a
                source_b += step_b
                left = i32(left - bk)
            commit()
            sums = multiply(sums, i32(from_a + reading), i32(from_b + reading))
            reading = i32(reading + stage_bytes)
            writing = i32(writing + stage_bytes)
            if reading == all_stages:
                reading = i32(0)
            if writing == all_stages:
                writing = i32(0)
        return sums

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
            sums,
            c + item_of * next_c,
            rs_c,
            cs_c,
            m,
            n,
            row,
            column,
            alpha_re,
            alpha_im,
            beta_re,
            beta_im,
            item_of,
            extra,
        )

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
                    sums,
                    c + item_of * next_c,
                    rs_c,
                    cs_c,
                    m,
                    n,
                    row,
                    column,
                    alpha_re,
                    alpha_im,
                    beta_re,
                    beta_im,
                    item_of,
                    extra,
                )

    return tiles if spec.schedule == "tiles" else streamk
