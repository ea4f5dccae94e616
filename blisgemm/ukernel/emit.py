"""ONE generator of microkernels: a KernelSpec in, an LLVM function out.

Knows: how an mr x nr tile of C is held in vector registers. Does not know: packing,
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

from .spec import KernelSpec
from .vec import (
    I1,
    I64,
    PTR,
    add_target,
    at,
    broadcast,
    count_loop,
    fma,
    interleave,
    keep_loads_here,
    lane_mask,
    load,
    masked_load,
    masked_store,
    pick_lane,
    prefetch_read,
    prefetch_write,
    real_type,
    stack_vectors,
    store,
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


Tile = list[list[list[ir.Value]]]  # [plane][row][vector]


class _Kernel:
    """The values that the parts of one kernel share while it is written."""

    def __init__(self, spec: KernelSpec, access: Access, b: ir.IRBuilder, args: dict[str, ir.Value]) -> None:
        self.spec, self.access, self.b, self.args = spec, access, b, args
        self.real = real_type(spec.real_bits)
        self.real_bytes = spec.real_bits // 8
        self.vector = ir.VectorType(self.real, spec.lanes)
        self.zero = ir.Constant(self.vector, None)

    def emit(self) -> None:
        self.prefetch_c()
        sums = self.sum_over_p()
        self.update_c(self.form_tile(sums))

    def emit_fma(self, x: ir.Value, y: ir.Value, acc: ir.Value, name: str = "") -> ir.Value:
        return fma(self.b, x, y, acc, fused=self.spec.isa.fma, name=name)

    def row_of_c(self, i: int) -> ir.Value:
        return at(self.b, self.args["c"], self.b.mul(self.args["rs_c"], I64(i)), name=f"c_row_{i}")

    def prefetch_c(self) -> None:
        """Ask for the lines of C early: they arrive while p runs."""
        for i in range(self.spec.mr):  # generation loop
            for offset in range(0, self.spec.nr * self.spec.itemsize, 64):
                prefetch_write(self.b, at(self.b, self.row_of_c(i), offset))

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

    def column_masks(self) -> list[ir.Value]:
        """Emit one mask per vector of memory in a row of the tile; complex rows hold (re, im) pairs."""
        spec = self.spec
        per_vector = spec.lanes // spec.planes
        columns = range(0, spec.nr, per_vector)
        return [
            lane_mask(self.b, self.args["n_cur"], [first + lane // spec.planes for lane in range(spec.lanes)], "mask")
            for first in columns
        ]

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

    # ---- C -------------------------------------------------------------------------------

    def form_tile(self, sums: list[ir.Value]) -> Tile:
        """Emit s as [plane][row][vector]: for complex, the four chains become re and im."""
        spec, b = self.spec, self.b
        per_row = spec.row_vectors * spec.chains
        if spec.chains == 1:
            return [[sums[i * per_row : (i + 1) * per_row] for i in range(spec.mr)]]
        # conj(x) * y etc.: re = rr - sign_a sign_b ii, im = sign_b ri + sign_a ir
        sign_a, sign_b = (self.conj_sign(bit) for bit in (0, 1))
        sign_ii = b.fneg(b.fmul(sign_a, sign_b), name="sign_ii")
        tile: Tile = [[], []]
        for i in range(spec.mr):  # generation loop
            re, im = [], []
            for v in range(spec.row_vectors):
                rr, ii, ri, ir_ = sums[i * per_row + v * 4 : i * per_row + v * 4 + 4]
                re.append(b.fadd(rr, b.fmul(ii, sign_ii), name=f"re_{i}_{v}"))  # products by ±1 are exact
                im.append(b.fadd(b.fmul(ri, sign_b), b.fmul(ir_, sign_a), name=f"im_{i}_{v}"))
            tile[0].append(re)
            tile[1].append(im)
        return tile

    def conj_sign(self, bit: int) -> ir.Value:
        b = self.b
        is_set = b.icmp_signed("!=", b.and_(self.args["conj"], I64(1 << bit)), I64(0))
        sign = b.select(is_set, ir.Constant(self.real, -1.0), ir.Constant(self.real, 1.0))
        return broadcast(b, sign, self.spec.lanes, f"sign_{'ab'[bit]}")

    def update_c(self, tile: Tile) -> None:
        """Emit the three ways to write C: whole vectors, masked vectors, element by element."""
        spec, b, args = self.spec, self.b, self.args
        whole, edge, scalar, done = (b.append_basic_block(n) for n in ("c_whole", "c_edge", "c_scalar", "c_done"))
        vectors_fit = b.icmp_signed("==", args["cs_c"], I64(spec.itemsize))
        if spec.complex:
            real_factors = b.and_(self.is_zero(args["alpha_im"]), self.is_zero(args["beta_im"]))
            vectors_fit = b.and_(vectors_fit, real_factors)
        full = b.icmp_signed("==", args["n_cur"], I64(spec.nr))
        not_whole = b.append_basic_block("c_not_whole")
        b.cbranch(b.and_(vectors_fit, full), whole, not_whole)
        b.position_at_end(not_whole)
        b.cbranch(b.and_(vectors_fit, I1(int(spec.isa.masks))), edge, scalar)

        for block, masked in ((whole, False), (edge, True)):
            b.position_at_end(block)
            masks = self.column_masks() if masked else None
            zero_block, blend_block = b.append_basic_block("beta_zero"), b.append_basic_block("beta_nonzero")
            b.cbranch(self.is_zero(args["beta_re"]), zero_block, blend_block)
            for target, beta_zero in ((zero_block, True), (blend_block, False)):
                b.position_at_end(target)
                self.store_rows(tile, masks, beta_zero, done)
        b.position_at_end(scalar)
        self.store_elements(tile)
        b.branch(done)
        b.position_at_end(done)
        b.ret_void()

    def is_zero(self, value: ir.Value) -> ir.Value:
        return self.b.fcmp_ordered("==", value, ir.Constant(self.real, 0.0))

    def store_rows(self, tile: Tile, masks: list[ir.Value] | None, beta_zero: bool, done: ir.Block) -> None:
        """Emit row after row until m_cur; real alpha and beta, unit column stride."""
        spec, b = self.spec, self.b
        alpha = broadcast(b, self.args["alpha_re"], spec.lanes, "alpha")
        beta = broadcast(b, self.args["beta_re"], spec.lanes, "beta")
        for i in range(spec.mr):  # generation loop
            if i:
                following = b.append_basic_block(f"row_{i}")
                b.cbranch(b.icmp_signed(">", self.args["m_cur"], I64(i)), following, done)
                b.position_at_end(following)
            row = self.row_of_c(i)
            for v, s in enumerate(self.memory_order([plane[i] for plane in tile])):
                address = at(b, row, v * spec.isa.vector_bytes)
                if beta_zero:
                    value = b.fmul(alpha, s)
                else:
                    old = (
                        load(b, address, self.vector)
                        if masks is None
                        else masked_load(b, address, masks[v], self.vector)
                    )
                    value = self.emit_fma(alpha, s, b.fmul(beta, old))
                if masks is None:
                    store(b, value, address)
                else:
                    masked_store(b, value, address, masks[v])
        b.branch(done)

    def memory_order(self, planes: list[list[ir.Value]]) -> list[ir.Value]:
        """Emit one row of the tile as the vectors that lie in memory: complex as (re, im) pairs."""
        if len(planes) == 1:
            return planes[0]
        return [
            vector
            for re, im in zip(planes[0], planes[1], strict=True)
            for vector in interleave(self.b, re, im, self.spec.lanes)
        ]

    def store_elements(self, tile: Tile) -> None:
        """Emit the way for any strides of C and complex alpha, beta: through a tile on the stack."""
        spec, b, args = self.spec, self.b, self.args
        row_bytes = spec.nr * spec.itemsize
        scratch = stack_vectors(b, self.vector, spec.mr * spec.row_vectors * spec.planes, "scratch")
        for i in range(spec.mr):  # generation loop
            for v, s in enumerate(self.memory_order([plane[i] for plane in tile])):
                store(b, s, at(b, scratch, i * row_bytes + v * spec.isa.vector_bytes))

        def element(i: ir.Value, j: ir.Value) -> None:
            source = at(b, scratch, b.add(b.mul(i, I64(row_bytes)), b.mul(j, I64(spec.itemsize))))
            target = at(b, args["c"], b.add(b.mul(i, args["rs_c"]), b.mul(j, args["cs_c"])))
            offsets = [plane * self.real_bytes for plane in range(spec.planes)]
            s = [load(b, at(b, source, offset), self.real) for offset in offsets]
            beta_zero = self.is_zero(args["beta_re"])
            if spec.complex:
                beta_zero = b.and_(beta_zero, self.is_zero(args["beta_im"]))
            with b.if_else(beta_zero) as (then, otherwise):
                with then:
                    for value, offset in zip(self.scale("alpha", s, None), offsets, strict=True):
                        store(b, value, at(b, target, offset))
                with otherwise:
                    old = self.scale("beta", [load(b, at(b, target, offset), self.real) for offset in offsets], None)
                    for value, offset in zip(self.scale("alpha", s, old), offsets, strict=True):
                        store(b, value, at(b, target, offset))

        def row(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            def column(j: ir.Value, __: list[ir.Value]) -> list[ir.Value]:
                element(i, j)
                return []

            return count_loop(b, args["n_cur"], [], column, "edge_j")

        count_loop(b, args["m_cur"], [], row, "edge_i")

    def scale(self, factor: str, x: list[ir.Value], plus: list[ir.Value] | None) -> list[ir.Value]:
        """Emit ``factor * x (+ plus)`` with one pinned rounding, element by element.

        Real: fma(f, x, plus). Complex: re = fma(f_re, x_re, fma(-f_im, x_im, plus_re)),
        im = fma(f_re, x_im, fma(f_im, x_re, plus_im)); where f_im = 0 its terms are left out, so that
        an infinite x isn't multiplied by that zero.
        """
        b, f_re = self.b, self.args[f"{factor}_re"]
        if not self.spec.complex:
            return [b.fmul(f_re, x[0]) if plus is None else self.emit_fma(f_re, x[0], plus[0])]
        f_im = self.args[f"{factor}_im"]
        is_real = self.is_zero(f_im)
        crossed = [(b.fneg(f_im), x[1]), (f_im, x[0])]
        out = []
        for plane in range(2):
            f, other = crossed[plane]
            if plus is None:
                inner, plain = b.fmul(f, other), b.fmul(f_re, x[plane])
            else:
                inner, plain = self.emit_fma(f, other, plus[plane]), self.emit_fma(f_re, x[plane], plus[plane])
            out.append(b.select(is_real, plain, self.emit_fma(f_re, x[plane], inner)))
        return out
