"""A row of C by long rows of B: the kernel of matrix-vector products whose matrix lies by rows.

Knows: how a few values of p meet whole rows of B at once. Does not know: tiles (``emit``), who calls it how often
(``loops.sweep``). Called by ``bind`` only.

A micro-tile would read 64 or 128 bytes of a row of B, then as much of the next row, a page further on; memory wants
to be read along its rows. Here ``steps_of_sweep`` rows pass side by side, their elements of A in registers, and the
sums of the whole row of C wait in memory (in L1)::

    for each vector j:   s_j = fma(a_0, b_0j, s_j); s_j = fma(a_1, b_1j, s_j); ...      one chain, p ascending

The chain of every element is that of any other kernel: from +0, p ascending, one fma per term.

    sums:  s_0 s_1 s_2 ...    one vector each; complex: rr ii ri ir of s_0, then of s_1, ...
"""

from __future__ import annotations

from llvmlite import ir

from .microtile import MicroTile
from .operand import load_row_of_b
from .spec import KernelSpec, steps_of_sweep
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

__all__ = ["emit_sweep"]

_ARGUMENTS = ("n_cur", "p_cur", "a", "cs_a", "b", "rs_b", "c", "cs_c", "factors", "conj", "sums", "last")
_POINTERS = {"a", "b", "c", "factors", "sums"}

AT_ONCE = 2  # vectors of sums in one turn; our choice: the next turn's loads don't wait for this one's fmas


def emit_sweep(module: ir.Module, spec: KernelSpec) -> ir.Function:
    """Return ``sweep(...)`` of ``_ARGUMENTS`` for a kernel's vector set and dtype, emitted once a module."""
    name = f"blisgemm_sweep_{spec.acc_dtype}_{spec.isa.name}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    types = [PTR if arg in _POINTERS else I64 for arg in _ARGUMENTS]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    add_target(function, spec.isa.llvm_cpu)
    for argument, text in zip(function.args, _ARGUMENTS, strict=True):
        argument.name = text
    args = dict(zip(_ARGUMENTS, function.args, strict=True))
    args |= {"m_cur": I64(1), "rs_c": I64(0)}
    _Sweep(spec, ir.IRBuilder(function.append_basic_block("entry")), args).emit()
    return function


class _Sweep(MicroTile):
    def __init__(self, spec: KernelSpec, b: ir.IRBuilder, args: dict[str, ir.Value]) -> None:
        super().__init__(spec, b, args, rows=1, vectors=1)
        self.vector_bytes = spec.isa.vector_bytes

    def emit(self) -> None:
        b, args, steps = self.b, self.args, steps_of_sweep(self.spec)
        at_once, one_by_one, done = (b.append_basic_block(n) for n in ("at_once", "one_by_one", "swept"))
        b.cbranch(b.icmp_signed("==", args["p_cur"], I64(steps)), at_once, one_by_one)
        b.position_at_end(at_once)
        self.add_rows(args["a"], args["b"], steps)
        b.branch(done)
        b.position_at_end(one_by_one)

        def single(p: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self.add_rows(at(b, args["a"], b.mul(p, args["cs_a"])), at(b, args["b"], b.mul(p, args["rs_b"])), 1)
            return []

        count_loop(b, args["p_cur"], [], single, "p")
        b.branch(done)
        b.position_at_end(done)
        update, keep = b.append_basic_block("update"), b.append_basic_block("keep")
        b.cbranch(b.icmp_signed("!=", args["last"], I64(0)), update, keep)
        b.position_at_end(keep)
        b.ret_void()
        b.position_at_end(update)
        self.update_row()

    def add_rows(self, a: ir.Value, first_row: ir.Value, steps: int) -> None:
        """Emit ``sums += a[p] * b[p]`` for ``steps`` values of p: whole vectors, then masked ones."""
        b, spec, args = self.b, self.spec, self.args
        of_a = []
        for p in range(steps):  # generation loop
            address = at(b, a, b.mul(args["cs_a"], I64(p)))
            of_a.append(
                [
                    broadcast(b, load(b, at(b, address, plane * self.real_bytes), self.real), spec.lanes, f"a_{p}")
                    for plane in range(spec.planes)
                ]
            )
        rows = [at(b, first_row, b.mul(args["rs_b"], I64(p))) for p in range(steps)]
        lanes, chains = spec.lanes, spec.chains
        row_bytes, sum_bytes = lanes * spec.itemsize, chains * self.vector_bytes  # of one vector of sums

        def vectors(start: ir.Value, count: int, masks: list[ir.Value] | None) -> None:
            for v in range(count):  # generation loop
                here = at(b, at(b, args["sums"], b.mul(start, I64(sum_bytes))), v * sum_bytes)
                waiting = [at(b, here, chain * self.vector_bytes) for chain in range(chains)]
                sums = [load(b, address, self.vector, align=16) for address in waiting]
                offset = b.add(b.mul(start, I64(row_bytes)), I64(v * row_bytes))
                for a_planes, row in zip(of_a, rows, strict=True):
                    b_planes = load_row_of_b(b, spec, at(b, row, offset), 1, masks, packed=False)
                    for chain, (pa, pb) in enumerate(((0, 0), (1, 1), (0, 1), (1, 0))[:chains]):
                        sums[chain] = self.emit_fma(a_planes[pa], b_planes[pb][0], sums[chain])
                for address, value in zip(waiting, sums, strict=True):
                    store(b, value, address, align=16)

        def whole(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            vectors(b.mul(index, I64(AT_ONCE)), AT_ONCE, None)
            return []

        turns = b.sdiv(args["n_cur"], I64(AT_ONCE * lanes))
        count_loop(b, turns, [], whole, "whole")
        begun = b.mul(turns, I64(AT_ONCE))
        total = b.sdiv(b.add(args["n_cur"], I64(lanes - 1)), I64(lanes))

        def edge(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            start = b.add(begun, index)
            vectors(start, 1, self.masks_from(b.mul(start, I64(lanes))))
            return []

        count_loop(b, b.sub(total, begun), [], edge, "edge")

    def masks_from(self, first: ir.Value) -> list[ir.Value]:
        """Emit the masks of the columns from ``first`` on, one per vector of memory."""
        spec = self.spec
        left = self.b.sub(self.args["n_cur"], first)
        per_vector = spec.lanes // spec.planes
        return [
            lane_mask(self.b, left, [start + lane // spec.planes for lane in range(spec.lanes)])
            for start in range(0, spec.lanes, per_vector)
        ]

    def update_row(self) -> None:
        """Emit the update of the row of C by the sums: by vectors where they fit, else element by element."""
        b, spec, args = self.b, self.spec, self.args
        total = b.sdiv(b.add(args["n_cur"], I64(spec.lanes - 1)), I64(spec.lanes))
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
        by_vectors, by_elements = b.append_basic_block("by_vectors"), b.append_basic_block("by_elements")
        b.cbranch(b.and_(self.vectors_fit(), I1(int(spec.isa.masks))), by_vectors, by_elements)
        b.position_at_end(by_elements)
        self.store_elements(args["sums"])
        b.ret_void()
        b.position_at_end(by_vectors)
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
        b.ret_void()
