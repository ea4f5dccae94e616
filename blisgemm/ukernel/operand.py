"""How one step of p comes into registers: a row of B as vectors, a column of A as broadcasts.

Knows: the ways that A and B may lie in memory. Does not know: sums, C, loops. Called by ``emit`` only.

B is read in one of three ways, A in two::

    packed    a micro-panel, every step on a vector's boundary            any kernel
    rows      B itself, unit column stride: vectors, masked at the edge   direct kernels
    columns   B itself, unit row stride: 16 bytes of each column are      direct kernels
              loaded and transposed in registers, which yields 16 bytes' worth of steps at once
    strided   A itself, any strides: element by element                   direct kernels

``columns``, in f32 on AVX2 (b_jp is column j, step p)::

    w_i = | b_i0 b_i1 b_i2 b_i3 | b_i+4,0 ... b_i+4,3 |     i = 0..3: two 16-byte loads each
    transposed within 16 bytes: one vector per p, its lanes the columns 0..7

so that a vector of B costs two shuffles and as many loads as it has 16-byte parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from llvmlite import ir

from .spec import KernelSpec
from .vec import (
    I64,
    at,
    broadcast,
    concatenate,
    count_loop,
    keep_loads_here,
    load,
    masked_load,
    opaque,
    pick_lane,
    prefetch_read,
    real_type,
    stack_vectors,
    store,
    transpose_parts,
    uninterleave,
)

__all__ = [
    "PACKED_ROWS_AHEAD", "PART_BYTES", "ROWS_OF_B_AHEAD", "STRIPS_AHEAD", "WIDE_ROW", "Access", "Columns", "StepOfB",
    "gather_row_of_b", "load_column_of_a", "load_columns_of_b", "load_row_of_b", "steps_of_columns",
]  # fmt: skip

StepOfB = list[list[ir.Value]]  # [plane][vector]

# A's elements are loaded at most so many rows ahead of their fmas: LLVM 22's scheduler otherwise moves all of a
# step's broadcasts to its top, which spills accumulators of 12x32 and 6x16 (2 to 4 stack accesses a step; with the
# barrier none, and 12x32 went from 0.86 to 0.92 times NumPy's speed at n = 1000 on Emerald Rapids, 2026-11-29).
ROWS_AHEAD = 3

# Direct kernels with rows of so many vectors ask for the row of B that comes so many steps later: rows lie far apart,
# where the hardware's prefetchers don't follow (6 x 2000 x 2000 in f32 on Zen 4, 2026-11-30: 0.84 times NumPy's speed
# without, 1.32 with). Narrower ones serve small products, whose B is in L1.
WIDE_ROW, ROWS_OF_B_AHEAD = 3, 16

# Packed kernels of 64-byte vectors ask for the row of B that comes so many steps later, since their micro-panel of B
# streams from L2. Source: Emerald Rapids, 2026-11-30, speed by that without it: f64 n = 1000 in a busy hour 8x24 1.05,
# 12x16 1.10 (2, 4 and 8 steps alike); f32 n = 1000 1.01, n = 2000 1.03, f64 n = 2000 level.
PACKED_ROWS_AHEAD = {64: 4}

# Kernels of parts with 64-byte vectors ask for the same row of B so many strips of nr columns to the right, which the
# parts after the next will read: their first rows came from L3 otherwise, with nobody to ask. Source: Emerald Rapids,
# 2026-11-30, times MKL's speed without it, one and two strips ahead, means over five B of 768 x 768 to 2000 x 2000: f32
# 8 rows 0.84 0.93 1.01, 16 rows 0.74 0.86 0.85, 32 rows 0.70 0.73 0.73; f64 8 rows 0.99 1.16 1.14, 16 rows 1.04 0.99
# 0.95.
STRIPS_AHEAD = {64: 2}

PART_BYTES = 16  # what is transposed at once: the width in which every set here shuffles freely


class Access(Enum):
    """Where a kernel finds its operands."""

    PACKED = "packed"  # micro-panels of both
    HALF = "half"  # a micro-panel of B; A itself, unit column stride
    ROWS = "rows"  # the matrices; B has unit column stride
    COLUMNS = "columns"  # the matrices; B has unit row stride
    ITEMS = "items"  # as ROWS, many products of one shape: beta = 0, real alpha, unit column stride of C
    PARTS = "parts"  # as ROWS, but a kc block may come in parts, between which the sums wait in memory
    STRIP = "strip"  # as PACKED, in parts likewise


@dataclass(frozen=True)
class Columns:
    """The columns of B that the lanes read.

    ``clamped``: where each of them starts, where some may not exist; else they are ``step`` bytes apart. Then four
    columns share a pointer that moves with p, since 16 or more pointers outgrow the address registers.
    """

    start: ir.Value
    step: ir.Value
    clamped: list[ir.Value] | None

    def addresses(self, b: ir.IRBuilder, here: ir.Value, first: int, count: int) -> list[ir.Value]:
        """Emit the addresses of ``count`` columns from ``first`` on; ``here`` has moved down from ``start``."""
        if self.clamped is not None:
            moved = b.sub(b.ptrtoint(here, I64), b.ptrtoint(self.start, I64))
            return [at(b, pointer, moved) for pointer in self.clamped[first : first + count]]
        if first:
            here = at(b, here, b.mul(self.step, I64(first)))
        here = opaque(b, here)
        found = []
        for j in range(count):  # generation loop
            if j and j % 4 == 0:
                here = opaque(b, at(b, here, b.shl(self.step, I64(2))))
            found.append(at(b, here, b.mul(self.step, I64(j % 4))) if j % 4 else here)
        return found


def steps_of_columns(spec: KernelSpec) -> int:
    """Return how many steps of p one transposed part holds."""
    return PART_BYTES // spec.itemsize


def load_row_of_b(
    b: ir.IRBuilder, spec: KernelSpec, row: ir.Value, vectors: int, masks: list[ir.Value] | None, *, packed: bool,
    ahead_bytes: ir.Value | None = None,
) -> StepOfB:  # fmt: skip
    """Emit ``vectors`` vectors per plane of the row of B at ``row``.

    ``masks``: one per vector of memory, of the last vector of each plane only; ``None``: all lanes exist.
    ``ahead_bytes``: a later row to ask for, as a distance.
    """
    width, count = spec.isa.vector_bytes, vectors * spec.planes
    vector = ir.VectorType(real_type(spec.real_bits), spec.lanes)
    if ahead_bytes is not None:
        ahead = at(b, row, ahead_bytes)
        for line in range(0, count * width, 64):
            prefetch_read(b, at(b, ahead, line))
    loaded = []
    for v in range(count):  # generation loop
        address = at(b, row, v * width)
        mask = masks[v - count] if masks is not None and v >= count - len(masks) else None
        if mask is None:
            loaded.append(load(b, address, vector, f"b_{v}", width if packed else 1))
        else:
            loaded.append(masked_load(b, address, mask, vector, f"b_{v}"))
    if spec.planes == 1 or packed:
        stride = spec.row_vectors if packed else vectors
        return [loaded[plane * stride : plane * stride + vectors] for plane in range(spec.planes)]
    pairs = [uninterleave(b, loaded[2 * v], loaded[2 * v + 1], spec.lanes) for v in range(vectors)]
    return [[pair[plane] for pair in pairs] for plane in range(2)]


def load_columns_of_b(
    b: ir.IRBuilder, spec: KernelSpec, columns: Columns, here: ir.Value, vector: int
) -> list[list[ir.Value]]:
    """Emit vector ``vector`` of the next ``steps_of_columns`` rows of B, as [step][plane]."""
    real = real_type(spec.real_bits)
    side = PART_BYTES * 8 // spec.real_bits  # reals in a part, and columns in one
    part = ir.VectorType(real, side)
    addresses = columns.addresses(b, here, vector * spec.lanes, spec.lanes)
    rows = [concatenate(b, [load(b, address, part) for address in addresses[i::side]]) for i in range(side)]
    turned = transpose_parts(b, rows, side)
    return [turned[step : step + spec.planes] for step in range(0, side, spec.planes)]


def gather_row_of_b(
    b: ir.IRBuilder, spec: KernelSpec, step: ir.Value, here: ir.Value, columns: ir.Value, vectors: int
) -> StepOfB:
    """Emit the row of B at ``here``, ``columns`` elements ``step`` bytes apart, for the steps that fill no part.

    By a run loop through the stack: it is a few steps of a product, and would be much code in each variant.
    """
    real, real_bytes = real_type(spec.real_bits), spec.real_bits // 8
    vector, plane_bytes = ir.VectorType(real, spec.lanes), vectors * spec.isa.vector_bytes
    row = stack_vectors(b, vector, vectors * spec.planes, "row_of_b")
    for v in range(vectors * spec.planes):  # lanes of columns that don't exist
        store(b, ir.Constant(vector, None), at(b, row, v * spec.isa.vector_bytes))

    def element(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        keep_loads_here(b)
        source, target = at(b, here, b.mul(j, step)), at(b, row, b.mul(j, I64(real_bytes)))
        for plane in range(spec.planes):
            value = load(b, at(b, source, plane * real_bytes), real)
            store(b, value, at(b, target, plane * plane_bytes))
        return []

    count_loop(b, columns, [], element, "gather")
    return [
        [load(b, at(b, row, plane * plane_bytes + v * spec.isa.vector_bytes), vector) for v in range(vectors)]
        for plane in range(spec.planes)
    ]


def load_column_of_a(
    b: ir.IRBuilder, spec: KernelSpec, rows: list[ir.Value], offset: ir.Value, *, packed: bool
) -> Callable[[int], list[ir.Value]]:
    """Return what emits element i of column p of A, broadcast: one vector per plane."""
    real, real_bytes = real_type(spec.real_bits), spec.real_bits // 8
    plane_bytes = spec.mr * real_bytes if packed else real_bytes
    if packed and spec.isa.broadcast == "lane" and spec.mr % spec.lanes == 0:
        vector = ir.VectorType(real, spec.lanes)
        column = at(b, rows[0], offset)
        vectors = [
            [
                load(b, at(b, column, plane * plane_bytes + v * spec.isa.vector_bytes), vector, f"a_{v}")
                for v in range(spec.mr // spec.lanes)
            ]
            for plane in range(spec.planes)
        ]
        return lambda i: [pick_lane(b, plane[i // spec.lanes], i % spec.lanes, spec.lanes) for plane in vectors]

    def element(i: int) -> list[ir.Value]:
        if i and i % ROWS_AHEAD == 0:
            keep_loads_here(b)
        address = at(b, rows[i], offset)
        align = real_bytes if packed else 1
        scalars = [load(b, at(b, address, plane * plane_bytes), real, align=align) for plane in range(spec.planes)]
        return [broadcast(b, scalar, spec.lanes, f"a_{i}") for scalar in scalars]

    return element
