"""The packer of a KernelSpec as an LLVM function: one serves A and B.

Knows: how the rows of a matrix become packed micro-panels of ``width`` rows. Does not know: blocks, loops, Numba.
Called by ``bind`` only.

A micro-panel holds, for one p after the other, ``width`` elements (mr of A's rows, nr of B's
columns); rows that don't exist are zeros. For complex types the ``width`` real parts come first,
then the ``width`` imaginary parts::

    out:  x[0,0] x[1,0] ... x[width-1,0] | x[0,1] x[1,1] ... | ...      one '|' per p

Five ways through memory, chosen by the strides of x (in bytes) when it runs:

    together   rs_x = one element:   whole vectors are copied, SIDE_BY_SIDE panels at once while there are as many
    columns    rs_x = one element, all rows of one panel there:  the same, one panel
    edge       rs_x = one element, some rows lack:  masked vectors are copied (where the set has masks)
    transpose  cs_x = one element, all rows there:  blocks are transposed in registers
    general    anything else:                       element by element

Source: Goto and van de Geijn, TOMS 34(3), 2008, section 5; the butterfly transpose is Eklundh's (1972).
"""

from __future__ import annotations

from llvmlite import ir

from .operand import PART_BYTES
from .spec import KernelSpec
from .vec import (
    I32,
    I64,
    PTR,
    add_target,
    at,
    concatenate,
    constant_vector,
    count_loop,
    keep_loads_here,
    lane_mask,
    load,
    masked_load,
    prefetch_read,
    real_type,
    store,
    transpose_parts,
    uninterleave,
)

__all__ = ["emit_packer"]


# Panels that are copied in one pass over p: a panel alone reads 64 to 192 bytes of a row, then as much of the next one,
# a page further on, and no prefetcher follows (f32, n = 1000, Emerald Rapids: 6 GB/s; 2026-11-30).
SIDE_BY_SIDE = 4

# Rows that are asked for so much ahead of their copy, since they lie far apart. Source: of 4, 8 and 16, on Emerald
# Rapids, f32 and f64, n = 1000: all products 1 to 5 % faster, with little between them; Zen 3 1 to 2 % (2026-11-30).
ROWS_AHEAD = 8


def emit_packer(module: ir.Module, spec: KernelSpec, width: int) -> ir.Function:
    """Return ``pack(rows, kc, x, rs_x, cs_x, out, panel_bytes)`` for micro-panels of ``width``, emitted once a module.

    It packs ceil(rows / width) micro-panels, which start ``panel_bytes`` apart.
    """
    name = f"blisgemm_pack_{spec.acc_dtype}_{width}_{spec.isa.name}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR, I64, I64, PTR, I64]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    add_target(function, spec.isa.llvm_cpu)
    for argument, text in zip(function.args, ("rows", "kc", "x", "rs_x", "cs_x", "out", "panel_bytes"), strict=True):
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
        self.all_rows, self.kc, self.all_x, self.rs_x, self.cs_x, self.all_out, self.panel_bytes = args
        self.rows, self.x, self.out = self.all_rows, self.all_x, self.all_out  # of the panel at hand
        self.real = real_type(spec.real_bits)
        self.real_bytes = spec.real_bits // 8
        self.step_bytes = width * spec.itemsize  # of the packed panel, one p

    def emit(self) -> None:
        b = self.b
        unit_rows = b.icmp_signed("==", self.rs_x, I64(self.spec.itemsize))
        together = b.select(unit_rows, b.sdiv(self.all_rows, I64(SIDE_BY_SIDE * self.width)), I64(0))

        def group(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self.go_to(b.mul(index, I64(SIDE_BY_SIDE)))
            self.copy_columns(SIDE_BY_SIDE)
            return []

        count_loop(b, together, [], group, "group")
        done = b.mul(together, I64(SIDE_BY_SIDE))
        panels = b.sdiv(b.add(self.all_rows, I64(self.width - 1)), I64(self.width))

        def single(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self.go_to(b.add(done, index))
            self.pack_panel(unit_rows)
            return []

        count_loop(b, b.sub(panels, done), [], single, "panel")
        b.ret_void()

    def go_to(self, panel: ir.Value) -> None:
        """Emit where panel number ``panel`` begins, in x and in the packed block."""
        b = self.b
        first = b.mul(panel, I64(self.width))
        left = b.sub(self.all_rows, first)
        self.rows = b.select(b.icmp_signed("<", left, I64(self.width)), left, I64(self.width))
        self.x = at(b, self.all_x, b.mul(first, self.rs_x))
        self.out = at(b, self.all_out, b.mul(panel, self.panel_bytes))

    def pack_panel(self, unit_rows: ir.Value) -> None:
        """Emit one panel by the way that its strides ask for."""
        b = self.b
        done = b.append_basic_block("packed")
        whole = b.icmp_signed("==", self.rows, I64(self.width))
        unit_columns = b.icmp_signed("==", self.cs_x, I64(self.spec.itemsize))
        self.branch(b.and_(whole, unit_rows), lambda: self.copy_columns(1), "columns", done)
        if self.spec.isa.masks:
            self.branch(unit_rows, self.copy_edge, "edge", done)
        self.branch(b.and_(whole, unit_columns), self.transpose, "transpose", done)
        self.general(I64(0))
        b.branch(done)
        b.position_at_end(done)

    def branch(self, condition: ir.Value, way, name: str, done: ir.Block) -> None:  # type: ignore[no-untyped-def]
        b = self.b
        taken, other = b.append_basic_block(name), b.append_basic_block(f"not_{name}")
        b.cbranch(condition, taken, other)
        b.position_at_end(taken)
        way()
        b.branch(done)
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

    def copy_columns(self, panels: int) -> None:
        def step(p: ir.Value) -> None:
            source = self.source(0, p)
            following, last = self.b.add(p, I64(ROWS_AHEAD)), self.b.sub(self.kc, I64(1))
            later = self.source(0, self.b.select(self.b.icmp_signed("<", following, last), following, last))
            for line in range(0, panels * self.step_bytes, 64):
                prefetch_read(self.b, at(self.b, later, line))
            for panel in range(panels):  # generation loop
                out = at(self.b, self.target(p, 0), self.b.mul(self.panel_bytes, I64(panel)))
                for first, count in _groups(self.width, self.spec.lanes):
                    vectors = self.load_elements(
                        at(self.b, source, (panel * self.width + first) * self.spec.itemsize), count
                    )
                    for plane, vector in enumerate(vectors):
                        store(self.b, vector, at(self.b, out, (plane * self.width + first) * self.real_bytes))

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
        """Emit groups of rows, as many as a vector has lanes: by 16-byte parts where their number allows it."""
        b, spec = self.b, self.spec
        side = PART_BYTES // self.real_bytes  # reals in a part, and rows that one transposes with
        steps = side // spec.planes

        def block(index: ir.Value) -> None:
            p0 = b.mul(index, I64(steps))
            for first, count in _groups(self.width, spec.lanes):  # generation loop
                sources = [self.source(first + i, p0) for i in range(count)]
                if count % side == 0:
                    part = ir.VectorType(self.real, side)
                    rows = [concatenate(b, [load(b, x, part) for x in sources[i::side]]) for i in range(side)]
                    columns = transpose_parts(b, rows, side)
                else:
                    pairs = [load(b, x, ir.VectorType(self.real, side)) for x in sources]
                    columns = self.transposed(pairs, side)
                for q, column in enumerate(columns):
                    step, plane = divmod(q, spec.planes)
                    store(b, column, self.target(b.add(p0, I64(step)), first, plane))

        self.for_p(block, b.udiv(self.kc, I64(steps)))
        if steps > 1:
            self.general(b.mul(b.udiv(self.kc, I64(steps)), I64(steps)))

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
