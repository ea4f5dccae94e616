"""The micro-tile of C while a kernel is written: what becomes of the sums.

Knows: alpha, beta, edges, strides of C; how four real sums become a complex number. Does not know: A, B or the
loop over p (``emit``, whose kernel this is the base of). Called by ``emit`` only.

A tile is written in one of three ways, chosen when it runs:

    whole    all nr columns exist, unit column stride:   vectors, row after row until m_cur
    edge     some columns lack, unit column stride:      masked vectors (where the set has masks)
    scalar   any other strides, complex alpha or beta:   element by element, through a tile on the stack
"""

from __future__ import annotations

from llvmlite import ir

from .spec import KernelSpec
from .vec import (
    I1,
    I64,
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
    prefetch_write,
    real_type,
    stack_vectors,
    store,
    store_first,
)

__all__ = ["FACTORS", "MicroTile", "Tile"]

Tile = list[list[list[ir.Value]]]  # [plane][row][vector]

FACTORS = ("alpha_re", "alpha_im", "beta_re", "beta_im")  # as they lie at the address ``factors``


class MicroTile:
    """The values that the parts of one kernel share while it is written, and the parts that touch C."""

    def __init__(self, spec: KernelSpec, b: ir.IRBuilder, args: dict[str, ir.Value], rows: int, vectors: int) -> None:
        self.spec, self.b, self.args = spec, b, args
        self.rows, self.vectors = rows, vectors  # of the tile that are computed
        self.exact = True  # whether m_cur is ``rows``
        self.real = real_type(spec.real_bits)
        self.real_bytes = spec.real_bits // 8
        self.vector = ir.VectorType(self.real, spec.lanes)

    def emit_fma(self, x: ir.Value, y: ir.Value, acc: ir.Value, name: str = "") -> ir.Value:
        return fma(self.b, x, y, acc, fused=self.spec.isa.fma, name=name)

    def factor(self, name: str) -> ir.Value:
        """Emit a load of a part of alpha or beta. They come by address: in registers they would be alive across the
        k loop, and a 6x16 tile on AVX2 has none to spare (it spilled two accumulators per step)."""
        return load(self.b, at(self.b, self.args["factors"], FACTORS.index(name) * self.real_bytes), self.real, name)

    def row_of_c(self, i: int) -> ir.Value:
        return at(self.b, self.args["c"], self.b.mul(self.args["rs_c"], I64(i)), name=f"c_row_{i}")

    def prefetch_row_of_c(self, i: ir.Value) -> None:
        """Ask for the lines of a row of C early: they arrive while p runs.

        All rows at once would take every line buffer of L1 for as long as C is away, and keep the panels waiting: one
        by one was 2 to 6 % faster at n = 1000 and 2000, f32 and f64, on Emerald Rapids (2026-11-30), and level on
        Zen 3.
        """
        row = at(self.b, self.args["c"], self.b.mul(self.args["rs_c"], i))
        for offset in range(0, self.spec.nr * self.spec.itemsize, 64):  # generation loop
            prefetch_write(self.b, at(self.b, row, offset))

    def edge_masks(self) -> list[ir.Value]:
        """Emit the masks of the last vector of a row, one per plane in memory; complex rows hold (re, im) pairs."""
        spec = self.spec
        per_vector = spec.lanes // spec.planes
        start = (self.vectors - 1) * spec.lanes
        return [
            lane_mask(self.b, self.args["n_cur"], [first + lane // spec.planes for lane in range(spec.lanes)], "mask")
            for first in range(start, start + spec.lanes, per_vector)
        ]

    def all_masks(self) -> list[ir.Value]:
        """Emit one mask per vector of memory in a row of the tile."""
        spec = self.spec
        per_vector = spec.lanes // spec.planes
        return [
            lane_mask(self.b, self.args["n_cur"], [first + lane // spec.planes for lane in range(spec.lanes)], "mask")
            for first in range(0, spec.nr, per_vector)
        ]

    def form_tile(self, sums: list[ir.Value]) -> Tile:
        """Emit s as [plane][row][vector]: for complex, the four chains become re and im."""
        spec, b = self.spec, self.b
        per_row = self.vectors * spec.chains
        if spec.chains == 1:
            return [[sums[i * per_row : (i + 1) * per_row] for i in range(self.rows)]]
        # conj(x) * y etc.: re = rr - sign_a sign_b ii, im = sign_b ri + sign_a ir
        sign_a, sign_b = (self.conj_sign(bit) for bit in (0, 1))
        sign_ii = b.fneg(b.fmul(sign_a, sign_b), name="sign_ii")
        tile: Tile = [[], []]
        for i in range(self.rows):  # generation loop
            re, im = [], []
            for v in range(self.vectors):
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

    def vectors_fit(self) -> ir.Value:
        """Emit whether C can be updated by vectors: unit column stride, real alpha and beta."""
        b, args = self.b, self.args
        fit = b.icmp_signed("==", args["cs_c"], I64(self.spec.itemsize))
        if self.spec.complex:
            fit = b.and_(fit, b.and_(self.is_zero(self.factor("alpha_im")), self.is_zero(self.factor("beta_im"))))
        return fit

    def update_c(self, tile: Tile) -> None:
        """Emit the three ways to write C: whole vectors, masked vectors, element by element."""
        spec, b, args = self.spec, self.b, self.args
        whole, edge, scalar, done = (b.append_basic_block(n) for n in ("c_whole", "c_edge", "c_scalar", "c_done"))
        vectors_fit = self.vectors_fit()
        full = b.icmp_signed("==", args["n_cur"], I64(spec.nr))
        not_whole = b.append_basic_block("c_not_whole")
        b.cbranch(b.and_(vectors_fit, full), whole, not_whole)
        b.position_at_end(not_whole)
        b.cbranch(b.and_(vectors_fit, I1(int(spec.isa.masks))), edge, scalar)

        for block, masked in ((whole, False), (edge, True)):
            b.position_at_end(block)
            masks = self.all_masks() if masked else None
            zero_block, blend_block = b.append_basic_block("beta_zero"), b.append_basic_block("beta_nonzero")
            b.cbranch(self.is_zero(self.factor("beta_re")), zero_block, blend_block)
            for target, beta_zero in ((zero_block, True), (blend_block, False)):
                b.position_at_end(target)
                self.store_rows(tile, masks, beta_zero, done)
        b.position_at_end(scalar)
        scratch = self.scratch_tile()
        self.fill(scratch, tile)
        self.store_elements(scratch)
        b.branch(done)
        b.position_at_end(done)
        b.ret_void()

    # ---- direct kernels: a fast way per variant, one slow way for all -------------------------------

    def store_or_share(self, tile: Tile, *, masked: bool, scratch: ir.Value, shared: ir.Block) -> None:
        """Emit the end of a variant: where beta = 0 and vectors fit, its own stores; else by way of ``shared``."""
        b = self.b
        if self.exact:
            fast, slow = b.append_basic_block("store"), b.append_basic_block("share")
            plain = b.and_(self.vectors_fit(), self.is_zero(self.factor("beta_re")))
            b.cbranch(plain, fast, slow)
            b.position_at_end(fast)
            self.store_products(tile, masked=masked)
            b.ret_void()
            b.position_at_end(slow)
        self.fill(scratch, tile)
        b.branch(shared)

    def store_products(self, tile: Tile, *, masked: bool) -> None:
        """Emit ``c := alpha * s`` for all rows of the variant."""
        spec, b = self.spec, self.b
        alpha = broadcast(b, self.factor("alpha_re"), spec.lanes, "alpha")
        width, whole = spec.isa.vector_bytes, (self.vectors - int(masked)) * spec.planes
        masks = self.edge_masks() if masked and spec.isa.masked_stores else None
        edges, addresses = [], []
        for i in range(self.rows):  # generation loop
            row = self.row_of_c(i)
            products = [b.fmul(alpha, s) for s in self.memory_order([plane[i] for plane in tile])]
            for v, value in enumerate(products[:whole]):
                store(b, value, at(b, row, v * width))
            if masks is not None:
                for v, (value, mask) in enumerate(zip(products[whole:], masks, strict=True)):
                    masked_store(b, value, at(b, row, (whole + v) * width), mask)
            edges.append(products[whole:])
            addresses.append(at(b, row, whole * width))
        if masked and masks is None:
            columns = b.sub(self.args["n_cur"], I64((self.vectors - 1) * spec.lanes))
            store_first(b, edges, addresses, b.mul(columns, I64(spec.planes)))

    def scratch_tile(self) -> ir.Value:
        """Emit room on the stack for a whole tile in memory order."""
        spec = self.spec
        return stack_vectors(self.b, self.vector, spec.mr * spec.row_vectors * spec.planes, "scratch")

    def scratch_at(self, scratch: ir.Value, i: ir.Value | int, v: int) -> ir.Value:
        row_bytes, inside = self.spec.nr * self.spec.itemsize, v * self.spec.isa.vector_bytes
        if isinstance(i, int):
            return at(self.b, scratch, i * row_bytes + inside)
        return at(self.b, at(self.b, scratch, self.b.mul(i, I64(row_bytes))), inside)

    def fill(self, scratch: ir.Value, tile: Tile) -> None:
        """Emit stores of the tile to the stack, in memory order."""
        for i in range(self.rows):  # generation loop
            for v, s in enumerate(self.memory_order([plane[i] for plane in tile])):
                store(self.b, s, self.scratch_at(scratch, i, v))

    def update_c_from(self, scratch: ir.Value) -> None:
        """Emit the update of C by a tile on the stack, in run loops: by vectors where they fit, else by elements."""
        spec, b, args = self.spec, self.b, self.args
        by_vectors, by_elements, done = (b.append_basic_block(n) for n in ("by_vectors", "by_elements", "c_done"))
        b.cbranch(b.and_(self.vectors_fit(), I1(int(spec.isa.masks))), by_vectors, by_elements)
        b.position_at_end(by_vectors)
        alpha = broadcast(b, self.factor("alpha_re"), spec.lanes, "alpha")
        beta = broadcast(b, self.factor("beta_re"), spec.lanes, "beta")
        beta_zero = self.is_zero(self.factor("beta_re"))
        masks = self.all_masks()

        def row(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            target = at(b, args["c"], b.mul(args["rs_c"], i))
            sums = [load(b, self.scratch_at(scratch, i, v), self.vector) for v in range(len(masks))]
            addresses = [at(b, target, v * spec.isa.vector_bytes) for v in range(len(masks))]
            with b.if_else(beta_zero) as (then, otherwise):
                with then:
                    for s, address, mask in zip(sums, addresses, masks, strict=True):
                        masked_store(b, b.fmul(alpha, s), address, mask)
                with otherwise:
                    for s, address, mask in zip(sums, addresses, masks, strict=True):
                        old = masked_load(b, address, mask, self.vector)
                        masked_store(b, self.emit_fma(alpha, s, b.fmul(beta, old)), address, mask)
            return []

        count_loop(b, args["m_cur"], [], row, "row")
        b.branch(done)
        b.position_at_end(by_elements)
        self.store_elements(scratch)
        b.branch(done)
        b.position_at_end(done)
        b.ret_void()

    def is_zero(self, value: ir.Value) -> ir.Value:
        return self.b.fcmp_ordered("==", value, ir.Constant(self.real, 0.0))

    def store_rows(self, tile: Tile, masks: list[ir.Value] | None, beta_zero: bool, done: ir.Block) -> None:
        """Emit row after row until m_cur; real alpha and beta, unit column stride."""
        spec, b = self.spec, self.b
        alpha = broadcast(b, self.factor("alpha_re"), spec.lanes, "alpha")
        beta = broadcast(b, self.factor("beta_re"), spec.lanes, "beta")
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

    def store_elements(self, scratch: ir.Value) -> None:
        """Emit the way for any strides of C and complex alpha, beta, from a tile on the stack."""
        spec, b, args = self.spec, self.b, self.args
        row_bytes = spec.nr * spec.itemsize

        def element(i: ir.Value, j: ir.Value) -> None:
            keep_loads_here(b)  # or LLVM makes vector loops of this, in several versions
            source = at(b, scratch, b.add(b.mul(i, I64(row_bytes)), b.mul(j, I64(spec.itemsize))))
            target = at(b, args["c"], b.add(b.mul(i, args["rs_c"]), b.mul(j, args["cs_c"])))
            offsets = [plane * self.real_bytes for plane in range(spec.planes)]
            s = [load(b, at(b, source, offset), self.real) for offset in offsets]
            beta_zero = self.is_zero(self.factor("beta_re"))
            if spec.complex:
                beta_zero = b.and_(beta_zero, self.is_zero(self.factor("beta_im")))
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
        b, f_re = self.b, self.factor(f"{factor}_re")
        if not self.spec.complex:
            return [b.fmul(f_re, x[0]) if plus is None else self.emit_fma(f_re, x[0], plus[0])]
        f_im = self.factor(f"{factor}_im")
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
