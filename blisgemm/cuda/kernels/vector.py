"""Products of a few rows of A, matrix times vector above all: every element of B passes once, straight to registers.

Knows: which thread reads which elements and how the sums of threads are added up. Does not know: what becomes of them.
Called by ``gemm``, in place of ``stage`` and ``threadtile``.

There is nothing to share, so nothing goes through shared memory but sums. Memory is the bound: many loads of 16 bytes
must be under way at once.

``rows``, for B by rows: a lane has the same few columns in every step of p, the warps of a block divide the steps of a
slab among themselves, and their sums are added in the order of the warps::

    slab    warp 0: p = 0 ... 7      lane 0: columns 0 1 2 3 | lane 1: 4 5 6 7 | ...
            warp 1: p = 8 ... 15     the same columns

``dots``, for B by columns: a warp has a few columns of B, and its lanes divide the steps::

    warp 0: columns 0 1 2 3          lane 0: p = 0 1 2 3 | lane 1: 4 5 6 7 | ...    then sums of all lanes, in pairs
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda

from ..ptx import (
    GLOBAL,
    I64,
    SHARED,
    address_of,
    asm,
    constant,
    either,
    intrinsic_of,
    load,
    load_once,
    of_type,
    pack,
    shared_base,
    store,
    types,
    unpack,
)
from ..tiles import KernelSpec
from .threadtile import add_product, zeros_of

__all__ = ["vector_sums_of"]

Planes = list[ir.Value]
i32, i64 = types.int32, types.int64


def vector_sums_of(spec: KernelSpec) -> Any:
    """Return the device function that has ``gemm``'s ``tile_sums`` for its twin: this thread's sums of a tile."""
    tile = spec.tile
    bk, wn, tn, item, vector = tile.bk, tile.wn, tile.tn, spec.itemsize, spec.b.vector
    a_by_k, dots = spec.a.layout == "k", tile.engine == "dots"
    of_warp = bk // (tile.threads // 32)
    zeros, add = zeros_of(spec), _add_of(spec)
    together = _lanes_together_of(spec)
    leave, gather = _warps_together_of(spec)
    room = i32(tile.tm * tn * spec.planes * (4 if spec.reals == "float32" else 8))  # of a lane's sums

    @cuda.jit(device=True, inline="always")
    def tile_sums(a, b, lda, ldb, m, n, k, row, column, first, slabs):  # type: ignore[no-untyped-def]
        t = i32(cuda.threadIdx.x)
        warp, lane = i32(t >> 5), i32(t & 31)
        if dots:
            p, j = i32(first * bk + lane * vector), i32(column + warp * wn)
            from_b = b + i64(j) * ldb + i64(p) * item
            step_b = i64(bk * item)
        else:
            p, j = i32(first * bk + warp * of_warp), i32(column + lane * vector)
            from_b = b + i64(p) * ldb + i64(j) * item
            step_b = ldb * bk
        if a_by_k:
            next_row, next_p = lda, i64(item)
        else:
            next_row, next_p = i64(item), lda
        from_a = a + i64(row) * next_row + i64(p) * next_p
        left = i32(k - p)
        sums = zeros()
        for _ in range(slabs):
            sums = add(sums, from_a, from_b, next_row, next_p, ldb, left, i32(m - row), i32(n - j))
            from_a += next_p * bk
            from_b += step_b
            left = i32(left - bk)
        if dots:
            sums = together(sums)
        else:
            shared = shared_base()
            cuda.syncthreads()  # what was there before has been read
            leave(sums, i32(shared + t * room))
            cuda.syncthreads()
            sums = gather(i32(shared + lane * room))
        return sums

    return tile_sums


def _add_of(spec: KernelSpec) -> Any:
    """Return the word ``add(sums, a, b, next row, next p, ldb, steps left, rows left, columns left)`` of one slab."""
    tile = spec.tile
    vector, planes, item = spec.b.vector, spec.planes, spec.itemsize
    numba_real, real = of_type(spec.reals)
    sums_type = types.UniTuple(numba_real, spec.sums)
    dots = tile.engine == "dots"

    def element_of_a(b: ir.IRBuilder, args: list[ir.Value], i: int, p: int) -> Planes:
        _, from_a, _, next_row, next_p, _, left, rows, _ = args
        exists = b.and_(b.icmp_signed("<", constant(p), left), b.icmp_signed("<", constant(i), rows))
        at = b.add(from_a, b.mul(next_p, constant(p, I64))) if p else from_a
        at = b.add(at, b.mul(next_row, constant(i, I64))) if i else at
        return either(b, exists, lambda: load(b, at, real, planes, GLOBAL), real, planes)

    def chunk_of_b(b: ir.IRBuilder, args: list[ir.Value], j: int, p: int) -> list[Planes]:
        """Emit the load of ``vector`` elements that follow each other: along p (dots) or along columns."""
        _, _, from_b, _, _, ldb, left, _, columns = args
        exists = b.and_(b.icmp_signed("<", constant(p), left), b.icmp_signed("<", constant(j), columns))
        far, near = (j, p) if dots else (p, j)
        at = b.add(from_b, b.mul(ldb, constant(far, I64))) if far else from_b
        at = address_of(b, at, near * item)
        found = either(b, exists, lambda: load_once(b, at, real, vector * planes), real, vector * planes)
        return [found[q * planes : (q + 1) * planes] for q in range(vector)]

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        values = unpack(b, args[0], spec.sums)
        if dots:
            steps = [p + q for p in range(0, tile.bk, 32 * vector) for q in range(vector)]
            chunks = {(j, p): chunk_of_b(b, args, j, p) for p in steps[::vector] for j in range(tile.tn)}
            of_b = {(j, p + q): x for (j, p), chunk in chunks.items() for q, x in enumerate(chunk)}
        else:
            steps = list(range(tile.bk // (tile.threads // 32)))
            places = range(0, tile.tn * 32, 32 * vector)
            chunks = {(g, p): chunk_of_b(b, args, j, p) for p in steps for g, j in enumerate(places)}
            of_b = {(g * vector + q, p): x for (g, p), chunk in chunks.items() for q, x in enumerate(chunk)}
        for p in steps:  # generation loops, and every load of B is under way by now
            of_a = [element_of_a(b, args, i, p) for i in range(tile.tm)]
            for i in range(tile.tm):
                for j in range(tile.tn):
                    add_product(b, spec, values, (i * tile.tn + j) * planes, of_a[i], of_b[j, p])
        return pack(b, values)

    addresses = (types.int64,) * 5
    return intrinsic_of("add_slab", (sums_type, *addresses, types.int32, types.int32, types.int32), emit, sums_type)


def _lanes_together_of(spec: KernelSpec) -> Any:
    """Return the word ``together(sums)``: the sums of all lanes of the warp, in every lane, added in pairs."""
    sums_type = types.UniTuple(of_type(spec.reals)[0], spec.sums)
    real = of_type(spec.reals)[1]

    def other_lanes(b: ir.IRBuilder, x: ir.Value, distance: int) -> ir.Value:
        if spec.reals == "float32":
            return asm(b, f"shfl.sync.bfly.b32 $0, $1, {distance}, 31, -1;", [x], [real])
        halves = "; ".join(f"shfl.sync.bfly.b32 {half}, {half}, {distance}, 31, -1" for half in ("low", "high"))
        text = f"{{ .reg .b32 low, high; mov.b64 {{low, high}}, $1; {halves}; mov.b64 $0, {{low, high}}; }}"
        return asm(b, text, [x], [real])

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        values = unpack(b, args[0], spec.sums)
        for distance in (16, 8, 4, 2, 1):  # generation loop
            values = [b.fadd(x, other_lanes(b, x, distance)) for x in values]
        return pack(b, values)

    return intrinsic_of("lanes_together", (sums_type,), emit, sums_type)


def _warps_together_of(spec: KernelSpec) -> tuple[Any, Any]:
    """Return ``leave(sums, shared)`` and ``gather(shared)``: the sums of all warps' lanes, added in their order."""
    sums_type = types.UniTuple(of_type(spec.reals)[0], spec.sums)
    real, real_bytes = of_type(spec.reals)[1], 4 if spec.reals == "float32" else 8
    per, warps = 16 // real_bytes, spec.tile.threads // 32
    at_once = [min(per, spec.sums - i) for i in range(0, spec.sums, per)]

    def leave(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        values = unpack(b, args[0], spec.sums)
        for i, count in enumerate(at_once):  # generation loop
            store(b, values[i * per : i * per + count], address_of(b, args[1], i * 16), SHARED)

    def gather(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        def of_warp(warp: int) -> Planes:
            at = address_of(b, args[0], warp * 32 * spec.sums * real_bytes)
            return [x for i, n in enumerate(at_once) for x in load(b, address_of(b, at, i * 16), real, n, SHARED)]

        values = of_warp(0)
        for warp in range(1, warps):  # generation loop
            values = [b.fadd(x, y) for x, y in zip(values, of_warp(warp), strict=True)]
        return pack(b, values)

    return (
        intrinsic_of("leave_sums", (sums_type, types.int32), leave),
        intrinsic_of("gather_sums", (types.int32,), gather, sums_type),
    )
