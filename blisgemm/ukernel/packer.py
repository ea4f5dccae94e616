"""The micro-panel packer of a KernelSpec as an LLVM function: one serves A and B.

Knows: how ``width`` rows of a matrix become one packed micro-panel. Does not know: blocks,
loops, Numba. Called by ``bind`` only.

A micro-panel holds, for one p after the other, ``width`` elements (mr of A's rows, nr of B's
columns); rows that don't exist are zeros. For complex types the ``width`` real parts come first,
then the ``width`` imaginary parts::

    out:  x[0,0] x[1,0] ... x[width-1,0] | x[0,1] x[1,1] ... | ...      one '|' per p

Four ways through memory, chosen by the strides of x (in bytes) when it runs:

    columns    rs_x = one element, all rows there:  whole vectors are copied
    edge       rs_x = one element, some rows lack:  masked vectors are copied (where the set has masks)
    transpose  cs_x = one element, all rows there:  square blocks are transposed in registers
    general    anything else:                       element by element

Source: Goto and van de Geijn, TOMS 34(3), 2008, section 5; the butterfly transpose is Eklundh's (1972).
"""

from __future__ import annotations

from llvmlite import ir

from .spec import KernelSpec
from .vec import (
    I32,
    I64,
    PTR,
    add_target,
    at,
    constant_vector,
    count_loop,
    keep_loads_here,
    lane_mask,
    load,
    masked_load,
    real_type,
    store,
    uninterleave,
)

__all__ = ["emit_packer"]


def emit_packer(module: ir.Module, spec: KernelSpec, width: int) -> ir.Function:
    """Return ``pack(rows, kc, x, rs_x, cs_x, out)`` for micro-panels of ``width``, emitted once a module."""
    name = f"blisgemm_pack_{spec.acc_dtype}_{width}_{spec.isa.name}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR, I64, I64, PTR]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    add_target(function, spec.isa.llvm_cpu)
    for argument, text in zip(function.args, ("rows", "kc", "x", "rs_x", "cs_x", "out"), strict=True):
        argument.name = text
    _Packer(spec, width, ir.IRBuilder(function.append_basic_block("entry")), function.args).emit()
    return function


def _groups(width: int, largest: int) -> list[tuple[int, int]]:
    """Split ``width`` rows into (first, count) groups, every count a power of two <= ``largest``."""
    groups, first = [], 0
    while first < width:
        count = largest
        while count > width - first:
            count //= 2
        groups.append((first, count))
        first += count
    return groups


class _Packer:
    """The values that the four ways share while they are written."""

    def __init__(self, spec: KernelSpec, width: int, b: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        self.spec, self.width, self.b = spec, width, b
        self.rows, self.kc, self.x, self.rs_x, self.cs_x, self.out = args
        self.real = real_type(spec.real_bits)
        self.real_bytes = spec.real_bits // 8
        self.step_bytes = width * spec.itemsize  # of the packed panel, one p

    def emit(self) -> None:
        b = self.b
        one_element = I64(self.spec.itemsize)
        whole = b.icmp_signed("==", self.rows, I64(self.width))
        unit_rows = b.icmp_signed("==", self.rs_x, one_element)
        unit_columns = b.icmp_signed("==", self.cs_x, one_element)
        self.branch(b.and_(whole, unit_rows), self.copy_columns, "columns")
        if self.spec.isa.masks:
            self.branch(unit_rows, self.copy_edge, "edge")
        self.branch(b.and_(whole, unit_columns), self.transpose, "transpose")
        self.general(I64(0))
        b.ret_void()

    def branch(self, condition: ir.Value, way, name: str) -> None:  # type: ignore[no-untyped-def]
        b = self.b
        taken, other = b.append_basic_block(name), b.append_basic_block(f"not_{name}")
        b.cbranch(condition, taken, other)
        b.position_at_end(taken)
        way()
        b.ret_void()
        b.position_at_end(other)

    def source(self, i: ir.Value | int, p: ir.Value) -> ir.Value:
        row = self.b.mul(self.rs_x, I64(i) if isinstance(i, int) else i)
        return at(self.b, self.x, self.b.add(row, self.b.mul(p, self.cs_x)))

    def target(self, p: ir.Value, first: int, plane: int = 0) -> ir.Value:
        inside = plane * self.width * self.real_bytes + first * self.real_bytes
        return at(self.b, at(self.b, self.out, self.b.mul(p, I64(self.step_bytes))), inside)

    def for_p(self, step, count: ir.Value | None = None) -> None:  # type: ignore[no-untyped-def]
        def turn(p: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            step(p)
            return []

        count_loop(self.b, self.kc if count is None else count, [], turn, "p")

    # ---- x has unit row stride: column p of the panel is contiguous in memory ------------------

    def copy_columns(self) -> None:
        def step(p: ir.Value) -> None:
            for first, count in _groups(self.width, self.spec.lanes):  # generation loop
                vectors = self.load_elements(at(self.b, self.source(0, p), first * self.spec.itemsize), count)
                for plane, vector in enumerate(vectors):
                    store(self.b, vector, self.target(p, first, plane))

        self.for_p(step)

    def load_elements(self, address: ir.Value, count: int) -> list[ir.Value]:
        """Load ``count`` adjacent elements as one vector per plane."""
        if not self.spec.complex:
            return [load(self.b, address, ir.VectorType(self.real, count))]
        pairs = load(self.b, address, ir.VectorType(self.real, 2 * count))
        return [
            self.b.shuffle_vector(pairs, pairs, constant_vector(I32, range(plane, 2 * count, 2))) for plane in range(2)
        ]

    def copy_edge(self) -> None:
        spec, b = self.spec, self.b
        per_vector = spec.lanes // spec.planes
        groups = _groups(self.width, spec.lanes)
        # a masked load reads whole vectors: positions past the group's own rows are masked off too
        limits = {}
        for first, count in groups:
            end = I64(first + count)
            limits[first] = b.select(b.icmp_signed("<", self.rows, end), self.rows, end)

        def step(p: ir.Value) -> None:
            for first, count in groups:  # generation loop
                vectors = []
                for v in range(spec.planes):
                    start = first + v * per_vector
                    positions = [start + lane // spec.planes for lane in range(spec.lanes)]
                    mask = lane_mask(b, limits[first], positions)
                    address = at(b, self.source(0, p), start * spec.itemsize)
                    vectors.append(masked_load(b, address, mask, ir.VectorType(self.real, spec.lanes)))
                planes = vectors if spec.planes == 1 else uninterleave(b, vectors[0], vectors[1], spec.lanes)
                for plane, vector in enumerate(planes):
                    if count < spec.lanes:
                        vector = b.shuffle_vector(vector, vector, constant_vector(I32, range(count)))
                    store(b, vector, self.target(p, first, plane))

        self.for_p(step)

    # ---- x has unit column stride: blocks are transposed in registers ----------------------------

    def transpose(self) -> None:
        b = self.b
        side = 8 if self.spec.real_bits == 32 else 4  # 256-bit blocks; narrower sets split them
        side = min(side, self.spec.lanes)

        def block(index: ir.Value) -> None:
            p0 = b.mul(index, I64(side))
            for first, count in _groups(self.width, side):  # generation loop
                rows = [self.load_elements(self.source(first + i, p0), side) for i in range(count)]
                for plane in range(self.spec.planes):
                    columns = self.transposed([row[plane] for row in rows], side)
                    for q, column in enumerate(columns):
                        store(b, column, self.target(b.add(p0, I64(q)), first, plane))

        self.for_p(block, b.udiv(self.kc, I64(side)))
        self.general(b.mul(b.udiv(self.kc, I64(side)), I64(side)))

    def transposed(self, rows: list[ir.Value], side: int) -> list[ir.Value]:
        """Emit the ``side`` columns of ``len(rows)`` vectors of ``side`` lanes, by halving the rows."""
        count = len(rows)
        if count == 1:
            return [self.b.shuffle_vector(rows[0], rows[0], constant_vector(I32, [q])) for q in range(side)]
        # Butterfly: after stage s, 2^s x 2^s blocks are transposed.
        vectors, step = list(rows), 1
        while step < count:
            following = list(vectors)
            for i in range(count):
                if i & step:
                    continue
                low, high = vectors[i], vectors[i + step]
                take_low, take_high = [], []
                for lane in range(side):
                    inside = lane & step
                    take_low.append(lane if not inside else side + lane - step)
                    take_high.append(lane + step if not inside else side + lane)
                following[i] = self.b.shuffle_vector(low, high, constant_vector(I32, take_low))
                following[i + step] = self.b.shuffle_vector(low, high, constant_vector(I32, take_high))
            vectors, step = following, 2 * step
        # Column q now sits in vector q mod count, in the lanes of its own block.
        columns = []
        for q in range(side):
            start = q - q % count
            vector = vectors[q % count]
            if count < side:
                vector = self.b.shuffle_vector(vector, vector, constant_vector(I32, range(start, start + count)))
            columns.append(vector)
        return columns

    # ---- any strides, missing rows -----------------------------------------------------------------

    def general(self, first_p: ir.Value) -> None:
        spec, b = self.spec, self.b
        zero = ir.Constant(self.real, 0.0)

        def step(index: ir.Value) -> None:
            p = b.add(first_p, index)

            def element(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                keep_loads_here(b)  # or LLVM makes vector loops of this, in several versions
                inside = b.mul(i, I64(self.real_bytes))
                for plane in range(spec.planes):
                    value = load(b, at(b, self.source(i, p), plane * self.real_bytes), self.real)
                    store(b, value, at(b, self.target(p, 0, plane), inside))
                return []

            def padding(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                inside = b.mul(b.add(i, self.rows), I64(self.real_bytes))
                for plane in range(spec.planes):
                    store(b, zero, at(b, self.target(p, 0, plane), inside))
                return []

            count_loop(b, self.rows, [], element, "i")
            count_loop(b, b.sub(I64(self.width), self.rows), [], padding, "pad")

        self.for_p(step, b.sub(self.kc, first_p))
