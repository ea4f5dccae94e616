"""A few rows of C by long rows of B: the kernel of products whose matrix passes by once, along its rows.

Knows: how a few rows of A meet a few whole rows of B at once. Does not know: who calls it how often
(``loops.sweep_rows``). Called by ``bind`` only.

A micro-tile would read 64 or 128 bytes of a row of B, then as much of the next row, a page further on; memory wants
to be read along its rows. Here ``SWEEP_STEPS`` rows of B pass side by side while the sums of whole rows of C wait in
memory (in L1 or L2). A tile of up to ``sweep_rows`` rows by a few vectors goes along them, so that each vector of B is
loaded once for all these rows::

    for each tile:    load its s_ij;    for p ascending:  s_ij = fma(a_ip, b_pj, s_ij);    store its s_ij

The chain of every element is that of any other kernel: from +0, p ascending, one fma per term.

    sums:  row after row;  s_0 s_1 s_2 ...    one vector each; complex: rr ii ri ir of s_0, then of s_1, ...

One row of reals alone is bound by loads: its elements of A stay in registers for all columns. Each number of rows has
a function of its own, since in one for all LLVM 22 kept addresses of the loops on the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from .microtile import MicroTile
from .operand import StepOfB, load_column_of_a, load_row_of_b
from .spec import SWEEP_STEPS, KernelSpec, vectors_of_sweep
from .vec import (
    I1,
    I64,
    PTR,
    add_target,
    at,
    broadcast,
    count_loop,
    lane_mask,
    load,
    masked_load,
    masked_store,
    store,
)

__all__ = ["emit_sums", "emit_sweep"]

_OF_SUMS = ("n_cur", "p_cur", "a", "b", "rs_b", "sums", "rs_a", "cs_a", "rs_sums")
_ARGUMENTS = ("m_cur", *_OF_SUMS, "c", "rs_c", "cs_c", "factors", "conj", "last")
_POINTERS = {"a", "b", "c", "factors", "sums"}

AT_ONCE = 2  # vectors of one row in a turn; our choice: the next turn's loads don't wait for this one's fmas


def emit_sweep(module: ir.Module, spec: KernelSpec) -> ir.Function:
    """Return ``sweep(...)`` of ``_ARGUMENTS`` for a kernel's vector set and dtype, emitted once a module."""
    function, args, is_new = _function(module, spec, "", _ARGUMENTS, ir.VoidType())
    if is_new:
        b = ir.IRBuilder(function.append_basic_block("entry"))
        of_rows = [emit_sums(module, spec, rows) for rows in range(1, spec.sweep_rows + 1)]
        _Sweep(spec, b, args).emit(of_rows)
    return function


def emit_sums(module: ir.Module, spec: KernelSpec, rows: int) -> ir.Function:
    """Return the function that adds p_cur terms to the sums of ``rows`` rows, in whole tiles of columns.

    It returns how many vectors of columns these are; fewer than a tile holds are left.
    """
    function, args, is_new = _function(module, spec, f"_rows_{rows}", _OF_SUMS, I64)
    if is_new:
        b = ir.IRBuilder(function.append_basic_block("entry"))
        sums = _Sums(spec, b, args)
        if rows == 1 and not spec.complex:
            in_registers = b.icmp_signed("==", args["p_cur"], I64(SWEEP_STEPS))
            with b.if_then(in_registers):
                b.ret(sums.add_row())
        b.ret(sums.add_tiles(rows))
    return function


def _function(
    module: ir.Module, spec: KernelSpec, name: str, names: Sequence[str], result: ir.Type
) -> tuple[ir.Function, dict[str, ir.Value], bool]:
    """Return a function of the module, its arguments by name, and whether it is new."""
    name = f"blisgemm_sweep_{spec.acc_dtype}_{spec.isa.name}{name}"
    function = module.globals.get(name)
    is_new = function is None
    if is_new:
        types = [PTR if arg in _POINTERS else I64 for arg in names]
        function = ir.Function(module, ir.FunctionType(result, types), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        add_target(function, spec.isa.llvm_cpu)
        for argument, text in zip(function.args, names, strict=True):
            argument.name = text
    return function, dict(zip(names, function.args, strict=True)), is_new


class _Sums(MicroTile):
    """The sums of one or more rows, by tiles of whole or masked vectors."""

    def __init__(self, spec: KernelSpec, b: ir.IRBuilder, args: dict[str, ir.Value]) -> None:
        super().__init__(spec, b, args, rows=1, vectors=1)
        self.vector_bytes = spec.isa.vector_bytes

    def waiting(self, rows: int, start: ir.Value, count: int) -> list[ir.Value]:
        """Emit where the sums of ``count`` vectors of each row from ``start`` on are: [row][vector][chain]."""
        b, chains = self.b, self.spec.chains
        here = at(b, self.args["sums"], b.mul(start, I64(chains * self.vector_bytes)))
        firsts = [at(b, here, b.mul(self.args["rs_sums"], I64(i))) for i in range(rows)]
        return [at(b, first, x * self.vector_bytes) for first in firsts for x in range(count * chains)]

    def columns(self, start: ir.Value) -> ir.Value:
        """Emit the address of vector ``start`` of the first row of B."""
        return at(self.b, self.args["b"], self.b.mul(start, I64(self.spec.lanes * self.spec.itemsize)))

    def accumulate(self, sums: list[ir.Value], a_planes: list[ir.Value], of_b: StepOfB) -> list[ir.Value]:
        """Emit one fma for each sum of a row, ordered [vector][chain]."""
        chains = ((0, 0), (1, 1), (0, 1), (1, 0))[: self.spec.chains]  # rr, ii, ri, ir: planes of A and B
        factors = [(a_planes[pa], of_b[pb][v]) for v in range(len(of_b[0])) for pa, pb in chains]
        return [self.emit_fma(x, y, acc) for (x, y), acc in zip(factors, sums, strict=True)]

    def add_tiles(self, rows: int) -> ir.Value:
        """Emit ``sums += a b`` for whole tiles; return how many vectors of columns they cover."""
        b, count = self.b, vectors_of_sweep(self.spec, rows)

        def tile(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self.add_tile(rows, b.mul(index, I64(count)), count, None)
            return []

        tiles = b.sdiv(self.args["n_cur"], I64(count * self.spec.lanes))
        count_loop(b, tiles, [], tile, "tile")
        return b.mul(tiles, I64(count))

    def add_tile(self, rows: int, start: ir.Value, count: int, masks: list[ir.Value] | None) -> None:
        """Emit the run loop over p for ``count`` vectors of each row from ``start`` on, their sums in registers."""
        b, spec, args = self.b, self.spec, self.args
        waiting = self.waiting(rows, start, count)
        rows_of_a = [at(b, args["a"], b.mul(args["rs_a"], I64(i))) for i in range(rows)]

        def step(p: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            a_offset, row, *sums = carried
            of_b = load_row_of_b(b, spec, row, count, masks, packed=False)
            element_of_a = load_column_of_a(b, spec, rows_of_a, a_offset, packed=False)
            per_row, following = count * spec.chains, []
            for i in range(rows):  # generation loop
                following += self.accumulate(sums[i * per_row : (i + 1) * per_row], element_of_a(i), of_b)
            return [b.add(a_offset, args["cs_a"]), at(b, row, args["rs_b"]), *following]

        sums = [load(b, address, self.vector, align=16) for address in waiting]
        _, _, *sums = count_loop(b, args["p_cur"], [I64(0), self.columns(start), *sums], step, "p")
        for value, address in zip(sums, waiting, strict=True):
            store(b, value, address, align=16)

    def add_row(self) -> ir.Value:
        """Emit the same for one row and SWEEP_STEPS values of p, their elements of A in registers."""
        b, spec, args = self.b, self.spec, self.args
        steps = [I64(p) for p in range(SWEEP_STEPS)]
        of_a = [load_column_of_a(b, spec, [args["a"]], b.mul(args["cs_a"], p), packed=False)(0) for p in steps]
        distances, width = [b.mul(args["rs_b"], p) for p in steps], self.vector_bytes

        def turn(_: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            waiting, column = carried
            for v in range(AT_ONCE):  # generation loop
                address, first = at(b, waiting, v * width), at(b, column, v * width)
                sums = [load(b, address, self.vector, align=16)]
                for a_planes, distance in zip(of_a, distances, strict=True):
                    of_b = load_row_of_b(b, spec, at(b, first, distance), 1, None, packed=False)
                    sums = self.accumulate(sums, a_planes, of_b)
                store(b, sums[0], address, align=16)
            return [at(b, waiting, AT_ONCE * width), at(b, column, AT_ONCE * width)]

        turns = b.sdiv(args["n_cur"], I64(AT_ONCE * spec.lanes))
        count_loop(b, turns, [args["sums"], args["b"]], turn, "turn")
        return b.mul(turns, I64(AT_ONCE))

    def masks_from(self, first: ir.Value) -> list[ir.Value]:
        """Emit the masks of the columns from ``first`` on, one per vector of memory."""
        spec = self.spec
        left = self.b.sub(self.args["n_cur"], first)
        per_vector = spec.lanes // spec.planes
        return [
            lane_mask(self.b, left, [start + lane // spec.planes for lane in range(spec.lanes)])
            for start in range(0, spec.lanes, per_vector)
        ]


class _Sweep(_Sums):
    """The whole word: the sums of all rows, and with the last terms of a kc block the update of C."""

    def emit(self, of_rows: list[ir.Function]) -> None:
        b, args, lanes = self.b, self.args, self.spec.lanes
        never, added = b.append_basic_block("never"), b.append_basic_block("added")
        choice, covered = b.switch(args["m_cur"], never), []
        for rows, function in enumerate(of_rows, start=1):  # generation loop
            block = b.append_basic_block(f"rows_{rows}")
            choice.add_case(I64(rows), block)
            b.position_at_end(block)
            covered.append((b.call(function, [args[name] for name in _OF_SUMS]), block))
            b.branch(added)
        b.position_at_end(never)
        b.unreachable()
        b.position_at_end(added)
        begun = b.phi(I64, name="begun")
        for vectors, block in covered:
            begun.add_incoming(vectors, block)
        total = b.sdiv(b.add(args["n_cur"], I64(lanes - 1)), I64(lanes))
        left = b.sub(total, begun)
        self.each_row(lambda: self.add_edge(begun, left))
        with b.if_then(b.icmp_signed("!=", args["last"], I64(0))):
            self.each_row(lambda: self.update_row(total))
        b.ret_void()

    def each_row(self, emit: Callable[[], None]) -> None:
        """Emit a run loop over the rows, in each turn of which ``args`` are of that row alone."""
        b, args = self.b, self.args

        def row(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            here = {name: at(b, args[name], b.mul(i, args[f"rs_{name}"])) for name in ("a", "c", "sums")}
            self.args = args | here | {"m_cur": I64(1)}
            emit()
            self.args = args
            return []

        count_loop(b, args["m_cur"], [], row, "row")

    def add_edge(self, begun: ir.Value, left: ir.Value) -> None:
        """Emit ``sums += a b`` for ``left`` vectors of a row from ``begun`` on, of which the last may be a part."""
        b = self.b

        def vector(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            start = b.add(begun, index)
            self.add_tile(1, start, 1, self.masks_from(b.mul(start, I64(self.spec.lanes))))
            return []

        count_loop(b, left, [], vector, "edge")

    def update_row(self, total: ir.Value) -> None:
        """Emit the update of a row of C by ``total`` vectors of sums: by vectors where they fit, else by elements."""
        b, spec, args = self.b, self.spec, self.args
        if spec.complex:  # re and im, in memory order, to where the row of sums begins: never past what was read

            def form(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                source = at(b, args["sums"], b.mul(index, I64(spec.chains * self.vector_bytes)))
                sums = [load(b, at(b, source, i * self.vector_bytes), self.vector) for i in range(spec.chains)]
                target = at(b, args["sums"], b.mul(index, I64(spec.planes * self.vector_bytes)))
                row = self.memory_order([plane[0] for plane in self.form_tile(sums)])
                for v, value in enumerate(row):
                    store(b, value, at(b, target, v * self.vector_bytes))
                return []

            count_loop(b, total, [], form, "form")
        with b.if_else(b.and_(self.vectors_fit(), I1(int(spec.isa.masks)))) as (by_vectors, by_elements):
            with by_vectors:
                self.blend_row(total)
            with by_elements:
                self.store_elements(args["sums"])

    def blend_row(self, total: ir.Value) -> None:
        """Emit the update of a row by vectors: unit column stride, real alpha and beta."""
        b, spec, args = self.b, self.spec, self.args
        alpha, beta = (broadcast(b, self.factor(f"{name}_re"), spec.lanes, name) for name in ("alpha", "beta"))
        beta_zero = self.is_zero(self.factor("beta_re"))

        def blend(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            offset = b.mul(index, I64(spec.planes * self.vector_bytes))
            masks = self.masks_from(b.mul(index, I64(spec.lanes)))
            inside = [b.add(offset, I64(v * self.vector_bytes)) for v in range(len(masks))]
            sums = [load(b, at(b, args["sums"], where), self.vector) for where in inside]
            targets = [at(b, args["c"], where) for where in inside]
            with b.if_else(beta_zero) as (then, otherwise):
                with then:
                    for s, target, mask in zip(sums, targets, masks, strict=True):
                        masked_store(b, b.fmul(alpha, s), target, mask)
                with otherwise:
                    for s, target, mask in zip(sums, targets, masks, strict=True):
                        old = masked_load(b, target, mask, self.vector)
                        masked_store(b, self.emit_fma(alpha, s, b.fmul(beta, old)), target, mask)
            return []

        count_loop(b, total, [], blend, "blend")
