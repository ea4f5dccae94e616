"""The sums of a block tile of C, k slab by k slab through shared memory.

Knows: the order of copies, waits and products. Does not know: how a slab is copied (``stage``) or multiplied
(``threadtile``), which tiles there are (``gemm``). Called by ``gemm``.

The next slabs are on their way while one is multiplied. What is copied asynchronously is asked for ``stages - 1`` slabs
ahead; what is turned through registers is loaded before a slab is multiplied and stored after it.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from ..ptx import commit_copies, nothing, shared_base, types, udiv, urem, wait_for_copies
from ..tiles import KernelSpec
from .stage import copy_of, stage_of
from .threadtile import fragments_of, state_words_of

__all__ = ["tile_sums_of"]

i32, i64 = types.int32, types.int64


def tile_sums_of(spec: KernelSpec) -> Any:
    """Return the device function that computes a thread's sums of a tile."""
    tile = spec.tile
    bm, bn, bk, wm, wn, stages = tile.bm, tile.bn, tile.bk, tile.wm, tile.wn, tile.stages
    warps_n, item = bn // wn, spec.itemsize
    copy_a, copy_b = copy_of(spec, spec.a, bm), copy_of(spec, spec.b, bn)
    a_by_k, b_by_k = spec.a.layout == "k", spec.b.layout == "k"
    a_held_by_k, b_held_by_k = spec.a.shared == "k", spec.b.shared == "k"  # in shared memory
    (fetch_a, put_a), (fetch_b, put_b) = stage_of(spec, copy_a), stage_of(spec, copy_b)
    lead_a, lead_b = spec.leading(spec.a, bm), spec.leading(spec.b, bn)
    across_a, across_b, vec_a, vec_b = copy_a.across, copy_b.across, copy_a.vector, copy_b.vector
    slow_unit_a, fast_unit_a, slow_unit_b, fast_unit_b = (
        copy_a.slow_unit, copy_a.fast_unit, copy_b.slow_unit, copy_b.fast_unit,
    )  # fmt: skip
    fragments = fragments_of(spec)
    lanes_n, unit_m, unit_n = fragments.n_lanes, fragments.m_unit, fragments.n_unit
    words = state_words_of(spec)
    first_step, most_steps, last_step, sums_of = words.first, words.most, words.last, words.sums
    a_bytes, stage_bytes, dmma = spec.a_bytes, spec.stage_bytes, spec.dmma
    asynchronous = spec.copies == "async"
    waiting, commit = (wait_for_copies(stages - 2), commit_copies) if asynchronous else (nothing, nothing)
    last_stage, all_stages = (stages - 1) * stage_bytes, stages * stage_bytes

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
        u, v, step = i32(x * unit_m), i32(y * unit_n), i32(0)  # the lane's first row of A, column of B, step of p
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
        slow_left_a, fast_left_a = (rows, left) if a_by_k else (left, rows)
        slow_left_b, fast_left_b = (columns, left) if b_by_k else (left, columns)
        for s in range(stages - 1):
            more, stage = s < slabs, i32(s * stage_bytes)
            held_a = fetch_a(more, i32(into_a + stage), source_a, lda, slow_a, fast_a, slow_left_a, fast_left_a)
            held_b = fetch_b(more, i32(into_b + stage), source_b, ldb, slow_b, fast_b, slow_left_b, fast_left_b)
            commit()
            put_a(held_a, more, i32(into_a + stage), slow_a)
            put_b(held_b, more, i32(into_b + stage), slow_b)
            source_a += step_a
            source_b += step_b
            left = i32(left - bk)
            slow_left_a, fast_left_a = (rows, left) if a_by_k else (left, rows)
            slow_left_b, fast_left_b = (columns, left) if b_by_k else (left, columns)
        waiting()
        cuda.syncthreads()
        state = first_step(from_a, from_b)
        reading, writing = i32(0), i32(last_stage)
        for slab in range(slabs):
            more = slab + (stages - 1) < slabs
            held_a = fetch_a(more, i32(into_a + writing), source_a, lda, slow_a, fast_a, slow_left_a, fast_left_a)
            held_b = fetch_b(more, i32(into_b + writing), source_b, ldb, slow_b, fast_b, slow_left_b, fast_left_b)
            commit()
            source_a += step_a
            source_b += step_b
            left = i32(left - bk)
            slow_left_a, fast_left_a = (rows, left) if a_by_k else (left, rows)
            slow_left_b, fast_left_b = (columns, left) if b_by_k else (left, columns)
            state = most_steps(state, i32(from_a + reading), i32(from_b + reading))
            put_a(held_a, more, i32(into_a + writing), slow_a)
            put_b(held_b, more, i32(into_b + writing), slow_b)
            reading = i32(reading + stage_bytes)
            writing = i32(writing + stage_bytes)
            if reading == all_stages:
                reading = i32(0)
            if writing == all_stages:
                writing = i32(0)
            waiting()
            cuda.syncthreads()
            state = last_step(state, i32(from_a + reading), i32(from_b + reading))
        return sums_of(state)

    return tile_sums
