"""ONE generator of microkernels: a KernelSpec in, an LLVM function out.

Knows: how an mr x nr tile of sums is held in vector registers while p runs. Does not know: C (``microtile``), packing,
blocking, threads, Numba. Called by ``bind`` (to run) and by the CLI's ``asm`` (to read).

The function computes, for one micro-tile and one kc block,

    s[i, j] = sum over p ascending of a[i, p] * b[p, j]        from +0, one fma per term
    c[i, j] = alpha * s            where beta = 0              (c is not read)
            = fma(alpha, s, beta * c)   otherwise

Register map (f32_12x32_avx512: 24 accumulators + 2 of B + 1 broadcast = 27 of 32)::

              b_0          b_1          <- row p of B, two vectors of 16 lanes
    a_0  |  acc_0_0      acc_0_1
    a_1  |  acc_1_0      acc_1_1        <- a_i: one element of A in every lane
     :   |     :            :
    a_11 |  acc_11_0     acc_11_1

Packed micro-panels (one k step after the other; buffers start on a page, every step of B on a vector's boundary)::

    A~:  a_0 a_1 ... a_{mr-1} | a_0 a_1 ... | ...       complex: mr times re, then mr times im
    B~:  b_0 b_1 ... b_{nr-1} | b_0 b_1 ... | ...       complex: nr times re, then nr times im

Access: A and B each come either ``packed`` or from the matrix itself. ``strided`` A is read element
by element by row pointers, those of missing rows clamped to the last row that exists (their
sums are thrown away). ``rows`` of B have unit column stride; missing columns are masked off.

Complex keeps four real sums per element, rr ii ri ir, and forms re = rr - ii, im = ri + ir once:
swapping the operands swaps ri and ir only, and conjugation is a sign (``conj`` bit 0: A, bit 1: B).

A Python ``for`` below is a *generation* loop (it writes mr or nr copies); ``count_loop`` writes
a *run* loop. Nothing runs over m or n here but the scalar edge loop at the end.

Source: Van Zee and van de Geijn, BLIS, TOMS 41(3), 2015; Goto and van de Geijn, TOMS 34(3), 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from llvmlite import ir

from .microtile import MicroTile, Tile
from .spec import KernelSpec
from .vec import (
    I64,
    PTR,
    add_target,
    at,
    broadcast,
    count_loop,
    keep_loads_here,
    load,
    masked_load,
    pick_lane,
    prefetch_read,
    real_type,
    uninterleave,
)

__all__ = ["ARGUMENTS", "Access", "emit_microkernel"]

# The C-like signature, the same for every kernel; strides in bytes, conj as above.
ARGUMENTS = (
    "m_cur", "n_cur", "kc_cur", "a", "rs_a", "cs_a", "b", "rs_b", "c", "rs_c", "cs_c",
    "alpha_re", "alpha_im", "beta_re", "beta_im", "conj",
)  # fmt: skip
# A's elements are loaded at most so many rows ahead of their fmas: LLVM 22's scheduler otherwise moves all of a
# step's broadcasts to its top, which spills accumulators of 12x32 and 6x16 (2 to 4 stack accesses a step; with the
# barrier none, and 12x32 went from 0.86 to 0.92 times NumPy's speed at n = 1000 on Emerald Rapids, 2026-11-29).
ROWS_AHEAD = 3

# Direct kernels with rows of so many vectors ask for the row of B that comes so many steps later: rows lie far apart,
# where the hardware's prefetchers don't follow (6 x 2000 x 2000 in f32 on Zen 4, 2026-11-30: 0.84 times NumPy's speed
# without, 1.32 with). Narrower ones serve small products, whose B is in L1.
WIDE_ROW, ROWS_OF_B_AHEAD = 3, 16
_POINTERS = {"a", "b", "c"}
_REALS = {"alpha_re", "alpha_im", "beta_re", "beta_im"}


@dataclass(frozen=True)
class Access:
    """Where a kernel finds its operands: ``packed`` micro-panels or the matrices themselves."""

    a_packed: bool
    b_packed: bool

    @property
    def name(self) -> str:
        """``packed_packed``, ``strided_packed`` or ``strided_rows``."""
        return f"{'packed' if self.a_packed else 'strided'}_{'packed' if self.b_packed else 'rows'}"


def emit_microkernel(module: ir.Module, spec: KernelSpec, access: Access) -> ir.Function:
    """Return the LLVM function of ``spec``, emitted into ``module`` at the first request."""
    name = f"blisgemm_{spec.name}_{access.name}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    real = real_type(spec.real_bits)
    types = [PTR if arg in _POINTERS else real if arg in _REALS else I64 for arg in ARGUMENTS]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    add_target(function, spec.isa.llvm_cpu)
    for argument, text in zip(function.args, ARGUMENTS, strict=True):
        argument.name = text
    b = ir.IRBuilder(function.append_basic_block("entry"))
    _Kernel(spec, access, b, dict(zip(ARGUMENTS, function.args, strict=True))).emit()
    return function


class _Kernel(MicroTile):
    """A whole kernel: the sum over p, then what ``MicroTile`` does with it."""

    def __init__(self, spec: KernelSpec, access: Access, b: ir.IRBuilder, args: dict[str, ir.Value]) -> None:
        super().__init__(spec, b, args)
        self.access = access
        self.zero = ir.Constant(self.vector, None)

    def emit(self) -> None:
        self.prefetch_c()
        sums = self.sum_over_p()
        self.update_c(self.form_tile(sums))

    # ---- the sum over p ------------------------------------------------------------------

    def sum_over_p(self) -> list[ir.Value]:
        """Emit the k loop; return the accumulators, ordered as in ``accumulate``."""
        spec, b, kc = self.spec, self.b, self.args["kc_cur"]
        start = [self.zero] * spec.accumulators
        if self.access.b_packed:
            return self.k_loop(kc, start, masks=None)
        # Whole panels of B's own rows need no mask: two loops, one of which runs. Sets without masked
        # loads get LLVM's scalar expansion of them in the second.
        whole = b.icmp_signed("==", self.args["n_cur"], I64(spec.nr))
        whole_block, edge_block, joined = (b.append_basic_block(n) for n in ("whole", "edge", "joined"))
        b.cbranch(whole, whole_block, edge_block)
        ends = []
        for block, masked in ((whole_block, False), (edge_block, True)):
            b.position_at_end(block)
            sums = self.k_loop(kc, start, masks=self.column_masks() if masked else None)
            ends.append((sums, b.block))
            b.branch(joined)
        b.position_at_end(joined)
        merged = []
        for values in zip(*(sums for sums, _ in ends), strict=True):
            phi = b.phi(self.vector)
            for value, (_, block) in zip(values, ends, strict=True):
                phi.add_incoming(value, block)
            merged.append(phi)
        return merged

    def k_loop(self, kc: ir.Value, start: list[ir.Value], masks: list[ir.Value] | None) -> list[ir.Value]:
        """Emit the run loop over p, ``unroll`` steps a turn, then the p that are left."""
        spec, b, packed = self.spec, self.b, self.access.a_packed and self.access.b_packed
        unroll = spec.unroll if packed else 1
        a_step = I64(spec.mr * spec.itemsize) if self.access.a_packed else self.args["cs_a"]
        b_step = I64(spec.nr * spec.itemsize) if self.access.b_packed else self.args["rs_b"]
        rows = self.row_pointers()

        def steps(count: int):  # type: ignore[no-untyped-def]
            def turn(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                a_offset, b_offset, *sums = carried
                for u in range(count):  # generation loop
                    a_here, b_here = self.step_offset(a_offset, a_step, u), self.step_offset(b_offset, b_step, u)
                    sums = self.accumulate(sums, rows, a_here, b_here, masks)
                advance = (b.mul(a_step, I64(count)), b.mul(b_step, I64(count)))
                return [b.add(a_offset, advance[0]), b.add(b_offset, advance[1]), *sums]

            return turn

        carried = [I64(0), I64(0), *start]
        if unroll > 1:
            carried = count_loop(b, b.udiv(kc, I64(unroll)), carried, steps(unroll), "k")
            kc = b.urem(kc, I64(unroll))
        carried = count_loop(b, kc, carried, steps(1), "k_rest" if unroll > 1 else "k")
        return carried[2:]

    def step_offset(self, offset: ir.Value, step: ir.Value, u: int) -> ir.Value:
        return offset if u == 0 else self.b.add(offset, self.b.mul(step, I64(u)))

    def row_pointers(self) -> list[ir.Value]:
        """Emit where row i of A starts; rows past m_cur are clamped to the last one."""
        spec, b = self.spec, self.b
        if self.access.a_packed:
            return [at(b, self.args["a"], i * self.real_bytes) for i in range(spec.mr)]
        rows = [self.args["a"]]
        for i in range(1, spec.mr):  # generation loop
            exists = b.icmp_signed(">", self.args["m_cur"], I64(i))
            rows.append(
                b.select(exists, at(b, self.args["a"], b.mul(self.args["rs_a"], I64(i))), rows[-1], name=f"a_row_{i}")
            )
        return rows

    def load_b(self, offset: ir.Value, masks: list[ir.Value] | None) -> Tile:
        """Emit row p of the micro-panel of B as [plane][0][vector]."""
        spec, b = self.spec, self.b
        row = at(b, self.args["b"], offset)
        count = spec.row_vectors * spec.planes
        vector_bytes = spec.isa.vector_bytes
        if not self.access.b_packed and spec.row_vectors >= WIDE_ROW:
            ahead = at(b, row, b.mul(self.args["rs_b"], I64(ROWS_OF_B_AHEAD)))
            for line in range(0, count * vector_bytes, 64):
                prefetch_read(b, at(b, ahead, line))
        vectors = []
        for v in range(count):  # generation loop
            address = at(b, row, v * vector_bytes)
            if masks is None:
                align = vector_bytes if self.access.b_packed else 1
                vectors.append(load(b, address, self.vector, f"b_{v}", align))
            else:
                vectors.append(masked_load(b, address, masks[v], self.vector, f"b_{v}"))
        if spec.planes == 1 or self.access.b_packed:
            return [
                [vectors[plane * spec.row_vectors : (plane + 1) * spec.row_vectors]] for plane in range(spec.planes)
            ]
        pairs = [uninterleave(b, vectors[2 * v], vectors[2 * v + 1], spec.lanes) for v in range(spec.row_vectors)]
        return [[[pair[plane] for pair in pairs]] for plane in range(2)]

    def load_a(self, rows: list[ir.Value], offset: ir.Value) -> Callable[[int], list[ir.Value]]:
        """Return what emits element i of column p of the micro-panel of A, broadcast: one vector per plane."""
        spec, b = self.spec, self.b
        packed = self.access.a_packed
        plane_bytes = spec.mr * self.real_bytes if packed else self.real_bytes
        if packed and spec.isa.broadcast == "lane" and spec.mr % spec.lanes == 0:
            column = at(b, self.args["a"], offset)
            vectors = [
                [
                    load(b, at(b, column, plane * plane_bytes + v * spec.isa.vector_bytes), self.vector, f"a_{v}")
                    for v in range(spec.mr // spec.lanes)
                ]
                for plane in range(spec.planes)
            ]
            return lambda i: [pick_lane(b, plane[i // spec.lanes], i % spec.lanes, spec.lanes) for plane in vectors]

        def element(i: int) -> list[ir.Value]:
            if i and i % ROWS_AHEAD == 0:
                keep_loads_here(b)
            address = at(b, rows[i], offset)
            align = self.real_bytes if packed else 1
            scalars = [
                load(b, at(b, address, plane * plane_bytes), self.real, align=align) for plane in range(spec.planes)
            ]
            return [broadcast(b, scalar, spec.lanes, f"a_{i}") for scalar in scalars]

        return element

    def accumulate(
        self, sums: list[ir.Value], rows: list[ir.Value], a_offset: ir.Value, b_offset: ir.Value,
        masks: list[ir.Value] | None,
    ) -> list[ir.Value]:  # fmt: skip
        """Emit one k step: one fma per accumulator, ordered [row][vector][chain]."""
        spec = self.spec
        b_planes = self.load_b(b_offset, masks)
        element_of_a = self.load_a(rows, a_offset)
        # chain -> (plane of A, plane of B): rr, ii, ri, ir
        chains = ((0, 0), (1, 1), (0, 1), (1, 0))[: spec.chains]
        following, old = [], iter(sums)
        for i in range(spec.mr):  # generation loop
            a_planes = element_of_a(i)
            for v, (pa, pb) in product(range(spec.row_vectors), chains):
                following.append(self.emit_fma(a_planes[pa], b_planes[pb][0][v], next(old), name=f"acc_{i}_{v}"))
        return following
