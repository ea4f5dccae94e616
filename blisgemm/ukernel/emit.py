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

Access: A and B each come either ``packed`` or from the matrices themselves (``operand``). A packed kernel always
computes its whole tile: panels are padded with zeros. So does a ``half`` packed one, whose A is read as it lies, with
its last row in place of those that lack. A direct one has a variant per number of rows and of vectors that exist
(``variants``), the last vector masked or not, so that edges cost what they hold.

A kernel of ``parts`` begins from sums that an earlier call left in memory and leaves its own there until the ``last``
call: a kc block can then be walked in short steps of p, each along whole rows of B, with the same chain of additions.

Complex keeps four real sums per element, rr ii ri ir, and forms re = rr - ii, im = ri + ir once:
swapping the operands swaps ri and ir only, and conjugation is a sign (``conj`` bit 0: A, bit 1: B).

A Python ``for`` below is a *generation* loop (it writes mr or nr copies); ``count_loop`` writes
a *run* loop. Nothing runs over m or n here but the scalar edge loop at the end.

Source: Van Zee and van de Geijn, BLIS, TOMS 41(3), 2015; Goto and van de Geijn, TOMS 34(3), 2008.
"""

from __future__ import annotations

from itertools import product

from llvmlite import ir

from .microtile import MicroTile
from .operand import (
    PACKED_ROWS_AHEAD,
    ROWS_OF_B_AHEAD,
    STRIPS_AHEAD,
    WIDE_ROW,
    Access,
    Columns,
    StepOfB,
    gather_row_of_b,
    load_column_of_a,
    load_columns_of_b,
    load_row_of_b,
    steps_of_columns,
)
from .spec import KernelSpec
from .vec import I64, PTR, add_target, at, count_loop, keep_loads_here, load, prefetch_read, store

__all__ = ["ARGUMENTS", "Access", "arguments", "emit_microkernel", "variants"]

# The C-like signature; strides in bytes, conj as above, ``factors`` the address of alpha and beta
# (``microtile.FACTORS``). Kernels of parts and of strips take more.
ARGUMENTS = (
    "m_cur", "n_cur", "kc_cur", "a", "rs_a", "cs_a", "b", "rs_b", "c", "rs_c", "cs_c", "factors", "conj",
)  # fmt: skip
OF_PARTS = ("sums", "last")
OF_STRIPS = (*OF_PARTS, "ahead", "rs_ahead", "rows_ahead")  # what is asked for meanwhile: a row of nr columns a step
# How many, bytes from one to the next, and what is asked for ahead: ``turns`` times an item, from each matrix, first
# ``ahead`` bytes from where the item begins, then ``step`` bytes further every time.
OF_ITEMS = (
    "items", "next_a", "next_b", "next_c", "turns", "ahead_a", "ahead_b", "ahead_c", "step_a", "step_b", "step_c",
)  # fmt: skip
_POINTERS = {"a", "b", "c", "factors", "sums", "ahead"}

# A direct kernel has a variant for every number of rows while its largest tile has at most so many vectors. A
# larger one, or one that transposes columns, has them for powers of two, and the rows in between are computed as the
# next of these. It bounds the code: f32_8x32_avx512 for columns took 2.0 s to compile with all, and 0.9 s so.
EVERY_ROW = 16


def arguments(access: Access) -> tuple[str, ...]:
    """Return the names of the arguments of a kernel with this access."""
    return ARGUMENTS + {Access.PARTS: OF_PARTS, Access.STRIP: OF_STRIPS, Access.ITEMS: OF_ITEMS}.get(access, ())


def variants(spec: KernelSpec, access: Access) -> tuple[int, ...]:
    """Return the numbers of rows that a direct kernel has variants for, ascending, the last one mr."""
    if access is Access.ITEMS or (
        access is not Access.COLUMNS and spec.mr * spec.row_vectors * spec.planes <= EVERY_ROW
    ):
        return tuple(range(1, spec.mr + 1))
    return tuple(sorted({spec.mr, *(1 << e for e in range(spec.mr.bit_length()) if 1 << e < spec.mr)}))


def emit_microkernel(module: ir.Module, spec: KernelSpec, access: Access) -> ir.Function:
    """Return the LLVM function of ``spec``, emitted into ``module`` at the first request."""
    name = f"blisgemm_{spec.name}_{access.value}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    names = arguments(access)
    types = [PTR if arg in _POINTERS else I64 for arg in names]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    add_target(function, spec.isa.llvm_cpu)
    for argument, text in zip(function.args, names, strict=True):
        argument.name = text
    b = ir.IRBuilder(function.append_basic_block("entry"))
    args = dict(zip(names, function.args, strict=True))
    if access in (Access.PACKED, Access.HALF, Access.STRIP):
        tile = _Kernel(spec, access, b, args, spec.mr, spec.row_vectors, exact=access is not Access.HALF)
        sums = tile.sum_over_p(masked=False)
        if access is Access.STRIP:
            tile.leave_unless_last(sums)
        tile.update_c(tile.form_tile(sums))
    else:
        _emit_variants(spec, access, b, args)
    return function


def _emit_variants(spec: KernelSpec, access: Access, b: ir.IRBuilder, args: dict[str, ir.Value]) -> None:
    """Emit a switch over the rows and vectors that exist, and a kernel for each; all share one slow way to C."""
    rows_of = variants(spec, access)
    shared, scratch = None, None
    if access is not Access.ITEMS:
        shared = b.append_basic_block("shared")
        whole_tile = _Kernel(spec, access, b, args, spec.mr, spec.row_vectors)
        scratch = whole_tile.scratch_tile()
        before = b.block
        b.position_at_end(shared)
        whole_tile.update_c_from(scratch)
        b.position_at_end(before)

    widths = list(product(range(1, spec.row_vectors + 1), (False, True)))
    vectors = b.sdiv(b.add(args["n_cur"], I64(spec.lanes - 1)), I64(spec.lanes))
    edge_exists = b.icmp_signed("!=", args["n_cur"], b.mul(vectors, I64(spec.lanes)))
    width = b.add(b.mul(b.sub(vectors, I64(1)), I64(2)), b.zext(edge_exists, I64))
    index = b.add(b.mul(width, I64(spec.mr)), args["m_cur"])
    never = b.append_basic_block("never")
    choice = b.switch(index, never)
    b.position_at_end(never)
    b.unreachable()
    below = 0
    for rows in rows_of:
        for number, (v, edge) in enumerate(widths):  # generation loop
            block = b.append_basic_block(f"rows_{rows}_vectors_{v}{'_edge' if edge else ''}")
            for m_cur in range(below + 1, rows + 1):
                choice.add_case(I64(number * spec.mr + m_cur), block)
            b.position_at_end(block)
            kernel = _Kernel(spec, access, b, args, rows, v, exact=rows == below + 1)
            if access is Access.ITEMS:
                kernel.emit_items(masked=edge)
                continue
            sums = kernel.sum_over_p(masked=edge)
            if access is Access.PARTS:
                kernel.leave_unless_last(sums)
            kernel.store_or_share(kernel.form_tile(sums), masked=edge, scratch=scratch, shared=shared)
        below = rows


def emit_ask_ahead(module: ir.Module) -> ir.Function:
    """Return the LLVM function of (turns, a, b, c, a step for each) that prefetches the lines at three addresses.

    It does so ``turns`` times, each time ``step`` bytes further. One loop serves all three, with as many turns for
    every item, so that its end is foreseen.
    """
    name = "blisgemm_ask_ahead"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, PTR, PTR, PTR, I64, I64, I64]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    turns, *args = function.args

    def turn(index: ir.Value, addresses: list[ir.Value]) -> list[ir.Value]:
        for address in addresses:
            prefetch_read(b, address)
        return [at(b, here, step) for here, step in zip(addresses, args[3:], strict=True)]

    count_loop(b, turns, args[:3], turn, "ahead")
    b.ret_void()
    return function


class _Kernel(MicroTile):
    """The sum over p of one variant; what becomes of it is ``MicroTile``'s.

    ``rows`` x ``vectors`` is the part of the tile that is computed; ``exact``: m_cur is ``rows``, not less.
    """

    def __init__(
        self, spec: KernelSpec, access: Access, b: ir.IRBuilder, args: dict[str, ir.Value], rows: int, vectors: int,
        *, exact: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(spec, b, args, rows, vectors)
        self.access, self.exact = access, exact
        self.a_packed = access in (Access.PACKED, Access.STRIP)
        self.b_packed = self.a_packed or access is Access.HALF

    # ---- the sum over p ------------------------------------------------------------------

    def sum_over_p(self, *, masked: bool) -> list[ir.Value]:
        """Emit the k loop; return the accumulators, ordered as in ``accumulate``."""
        b, access = self.b, self.access
        kc, start = self.args["kc_cur"], self.first_sums()
        if access is Access.COLUMNS:
            return self.loop_over_columns(kc, start, masked=masked)
        masks = self.edge_masks() if masked else None
        a_step, b_step = self.step_of_a(), self.step_of_b()
        rows, turn_steps = self.row_pointers(), self.spec.unroll if self.b_packed else 1
        ahead = self.distance_ahead()

        def steps(count: int):  # type: ignore[no-untyped-def]
            def turn(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                a_offset, b_offset, *sums = carried
                for u in range(count):  # generation loop
                    row = at(b, self.args["b"], self.step_offset(b_offset, b_step, u))
                    of_b = load_row_of_b(
                        b, self.spec, row, self.vectors, masks, packed=self.b_packed, ahead_bytes=ahead
                    )
                    sums = self.accumulate(sums, rows, self.step_offset(a_offset, a_step, u), of_b)
                advance = (b.mul(a_step, I64(count)), b.mul(b_step, I64(count)))
                return [b.add(a_offset, advance[0]), b.add(b_offset, advance[1]), *sums]

            return turn

        carried = [I64(0), I64(0), *start]
        if access is Access.STRIP:
            asking = self.asking(steps(1))
            carried = count_loop(b, self.args["rows_ahead"], [self.args["ahead"], *carried], asking, "asking")[1:]
            kc = b.sub(kc, self.args["rows_ahead"])
        elif self.b_packed:  # the rows of C are asked for one after the other, while p runs
            turns = b.udiv(kc, I64(self.spec.mr * turn_steps))

            def row(i: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                self.prefetch_row_of_c(i)
                return count_loop(b, turns, carried, steps(turn_steps), "k")

            carried = count_loop(b, I64(self.spec.mr), carried, row, "row")
            kc = b.sub(kc, b.mul(turns, I64(self.spec.mr * turn_steps)))
        return self.turns(kc, carried, turn_steps, steps)[2:]

    def asking(self, step):  # type: ignore[no-untyped-def]
        """Return a turn that asks for a row of what a later call needs, and then does one step."""
        b, line_bytes = self.b, 64

        def turn(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            row, *rest = carried
            for line in range(0, self.spec.nr * self.spec.itemsize, line_bytes):  # generation loop
                prefetch_read(b, at(b, row, line))
            return [at(b, row, self.args["rs_ahead"]), *step(index, rest)]

        return turn

    def loop_over_columns(self, kc: ir.Value, start: list[ir.Value], *, masked: bool) -> list[ir.Value]:
        """Emit the k loop over B's own columns: transposed parts, then step by step what fills no part."""
        b, spec = self.b, self.spec
        columns, rows, a_step = self.column_pointers(masked=masked), self.row_pointers(), self.step_of_a()
        side = steps_of_columns(spec)

        def part(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            a_offset, here, *sums = carried
            for v in range(self.vectors):  # generation loop
                keep_loads_here(b)  # one vector's columns after the other's
                for u, of_b in enumerate(load_columns_of_b(b, spec, columns, here, v)):
                    at_step = self.step_offset(a_offset, a_step, u)
                    sums = self.accumulate(sums, rows, at_step, [[plane] for plane in of_b], first_vector=v)
            return [b.add(a_offset, b.mul(a_step, I64(side))), at(b, here, side * spec.itemsize), *sums]

        def single(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            a_offset, here, *sums = carried
            of_b = gather_row_of_b(b, spec, self.args["rs_b"], here, self.args["n_cur"], self.vectors)
            sums = self.accumulate(sums, rows, a_offset, of_b)
            return [b.add(a_offset, a_step), at(b, here, spec.itemsize), *sums]

        carried = [I64(0), self.args["b"], *start]
        carried = count_loop(b, b.sdiv(kc, I64(side)), carried, part, "k")
        if side > 1:
            carried = count_loop(b, b.srem(kc, I64(side)), carried, single, "k_rest")
        return carried[2:]

    def turns(self, kc: ir.Value, carried: list[ir.Value], unroll: int, steps):  # type: ignore[no-untyped-def]
        """Emit the run loop over p, ``unroll`` steps a turn, then the p that are left."""
        b = self.b
        if unroll > 1:
            carried = count_loop(b, b.udiv(kc, I64(unroll)), carried, steps(unroll), "k")
            kc = b.urem(kc, I64(unroll))
        return count_loop(b, kc, carried, steps(1), "k_rest" if unroll > 1 else "k")

    def distance_ahead(self) -> ir.Value | None:
        """Emit how far ahead rows of B are asked for, if at all."""
        from_l2 = self.b_packed and self.access is not Access.STRIP
        steps = PACKED_ROWS_AHEAD.get(self.spec.isa.vector_bytes) if from_l2 else None
        if steps is not None:
            return I64(steps * self.spec.nr * self.spec.itemsize)
        if self.access is Access.ROWS and self.vectors >= WIDE_ROW:
            return self.b.mul(self.args["rs_b"], I64(ROWS_OF_B_AHEAD))
        strips = STRIPS_AHEAD.get(self.spec.isa.vector_bytes) if self.access is Access.PARTS else None
        return None if strips is None else I64(strips * self.spec.nr * self.spec.itemsize)

    def step_of_a(self) -> ir.Value:
        if self.access is Access.HALF:
            return I64(self.spec.itemsize)
        return I64(self.spec.mr * self.spec.itemsize) if self.a_packed else self.args["cs_a"]

    def step_of_b(self) -> ir.Value:
        return I64(self.spec.nr * self.spec.itemsize) if self.b_packed else self.args["rs_b"]

    def step_offset(self, offset: ir.Value, step: ir.Value, u: int) -> ir.Value:
        if isinstance(step, ir.Constant):
            return offset if u == 0 else self.b.add(offset, I64(step.constant * u))
        return offset if u == 0 else self.b.add(offset, self.b.mul(step, I64(u)))

    def row_pointers(self) -> list[ir.Value]:
        """Emit where row i of A starts; rows past m_cur are clamped to the last one that exists."""
        b, a = self.b, self.args["a"]
        if self.a_packed:
            return [at(b, a, i * self.real_bytes) for i in range(self.rows)]
        rows = [a]
        for i in range(1, self.rows):  # generation loop
            row = at(b, a, b.mul(self.args["rs_a"], I64(i)), name=f"a_row_{i}")
            if not self.exact:
                row = b.select(b.icmp_signed(">", self.args["m_cur"], I64(i)), row, rows[-1])
            rows.append(row)
        return rows

    def column_pointers(self, *, masked: bool) -> Columns:
        """Emit where column j of B starts, for every lane; columns past n_cur are clamped to the last one."""
        b, start, step = self.b, self.args["b"], self.args["rs_b"]
        if not masked:
            return Columns(start, step, None)
        pointers = [start]
        for j in range(1, self.vectors * self.spec.lanes):  # generation loop
            column = at(b, start, b.mul(step, I64(j)))
            if j > (self.vectors - 1) * self.spec.lanes:
                column = b.select(b.icmp_signed(">", self.args["n_cur"], I64(j)), column, pointers[-1])
            pointers.append(column)
        return Columns(start, step, pointers)

    def accumulate(
        self, sums: list[ir.Value], rows: list[ir.Value], a_offset: ir.Value, of_b: StepOfB, first_vector: int = 0
    ) -> list[ir.Value]:
        """Emit one k step: one fma per accumulator of the vectors given, ordered [row][vector][chain]."""
        spec = self.spec
        element_of_a = load_column_of_a(self.b, spec, rows, a_offset, packed=self.a_packed)
        # chain -> (plane of A, plane of B): rr, ii, ri, ir
        chains = ((0, 0), (1, 1), (0, 1), (1, 0))[: spec.chains]
        following = list(sums)
        for i in range(self.rows):  # generation loop
            a_planes = element_of_a(i)
            for v in range(len(of_b[0])):
                first = (i * self.vectors + first_vector + v) * spec.chains
                for chain, (pa, pb) in enumerate(chains):
                    acc = sums[first + chain]
                    following[first + chain] = self.emit_fma(a_planes[pa], of_b[pb][v], acc, name=f"acc_{i}_{v}")
        return following

    def emit_items(self, *, masked: bool) -> None:
        """Emit the run loop over items, which spares each of them the call and the choice of its variant."""
        b, args = self.b, self.args

        def item(index: ir.Value, addresses: list[ir.Value]) -> list[ir.Value]:
            self.args = {**args, **dict(zip("abc", addresses, strict=True))}
            self.ask_for_items_ahead()
            self.store_products(self.form_tile(self.sum_over_p(masked=masked)), masked=masked)
            return [at(b, here, args[f"next_{name}"]) for name, here in zip("abc", addresses, strict=True)]

        count_loop(b, args["items"], [args[name] for name in "abc"], item, "items")
        b.ret_void()

    def ask_for_items_ahead(self) -> None:
        """Emit the call of ``emit_ask_ahead``'s function, where there is anything to ask for."""
        b, args = self.b, self.args
        with b.if_then(b.icmp_signed(">", args["turns"], I64(0))):
            addresses = [at(b, args[name], args[f"ahead_{name}"]) for name in "abc"]
            steps = [args[f"step_{name}"] for name in "abc"]
            b.call(emit_ask_ahead(b.module), [args["turns"], *addresses, *steps])

    # ---- sums that stay in memory between calls ------------------------------------------------

    def address_of_sum(self, index: int) -> ir.Value:
        return at(self.b, self.args["sums"], index * self.spec.isa.vector_bytes)

    def first_sums(self) -> list[ir.Value]:
        count = self.rows * self.vectors * self.spec.chains
        if self.access not in (Access.PARTS, Access.STRIP):
            return [ir.Constant(self.vector, None)] * count
        return [load(self.b, self.address_of_sum(i), self.vector, align=16) for i in range(count)]

    def leave_unless_last(self, sums: list[ir.Value]) -> None:
        """Emit: unless this is the last call of the kc block, put the sums back and return."""
        b = self.b
        keep, finish = b.append_basic_block("keep"), b.append_basic_block("finish")
        b.cbranch(b.icmp_signed("==", self.args["last"], I64(0)), keep, finish)
        b.position_at_end(keep)
        for i, value in enumerate(sums):  # generation loop
            store(b, value, self.address_of_sum(i), align=16)
        b.ret_void()
        b.position_at_end(finish)
