"""The sums of a thread: what one k slab adds to them.

Knows: which elements of a slab a thread reads and how it multiplies them: by fmas, or by the tensor cores of float64.
Does not know: how slabs come into shared memory, what becomes of the sums. Called by ``gemm``.

By fmas, lane (x, y) of a warp tile holds the rows ``place_m(i)`` and columns ``place_n(j)``. Where an operand's
elements lie along p (layout k) it reads 16 bytes of steps at once, and its rows are ``lanes`` apart; where they lie
along its rows (layout r), 16 bytes of rows, and groups of these are ``lanes`` groups apart::

    k:  row i of lane x = i * lanes + x            r:  row i of lane x = (i // G * lanes + x) * G + i % G

so that the lanes of a warp read different banks. By tensor cores, a warp's fragments are as PTX defines them.

Source: PTX ISA 8.8, "Warp-level matrix instructions", m8n8k4 and m16n8k8 of .f64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ..ptx import F32, F64, SHARED, address_of, asm, fma, intrinsic_of, load, of_type, pack, types, unpack
from ..tiles import KernelSpec, Operand

Planes = list[ir.Value]

__all__ = ["Fragments", "fragments_of", "multiply_of", "zeros_of"]


@dataclass(frozen=True)
class Fragments:
    """Where a thread's sums are in a warp tile, beside the place of its lane.

    places: (row, column) of each element, in the order of the sums. n_lanes: lanes along columns (lane = x * n_lanes +
    y).
    m_unit, n_unit: rows and columns that the next lane's elements are further.
    """

    places: tuple[tuple[int, int], ...]
    n_lanes: int
    m_unit: int
    n_unit: int


def fragments_of(spec: KernelSpec) -> Fragments:
    """Return where the sums of a kernel's threads are."""
    tile = spec.tile
    if spec.dmma:
        return _fragments_of_dmma(spec)
    m_lanes, n_lanes = tile.wm // tile.tm, tile.wn // tile.tn
    rows, columns = (_places(spec, x, t, n) for x, t, n in ((spec.a, tile.tm, m_lanes), (spec.b, tile.tn, n_lanes)))
    return Fragments(tuple((i, j) for i in rows for j in columns), n_lanes, _unit(spec, spec.a), _unit(spec, spec.b))


def _unit(spec: KernelSpec, operand: Operand) -> int:
    return 1 if operand.shared == "k" else spec.group_elements


def _places(spec: KernelSpec, operand: Operand, count: int, lanes: int) -> list[int]:
    unit = _unit(spec, operand)
    return [i // unit * lanes * unit + i % unit for i in range(count)]


def _fragments_of_dmma(spec: KernelSpec) -> Fragments:
    """Return where tensor cores leave the sums of lane 4 x + y: in rows x and x + 8, columns 2 y and 2 y + 1."""
    tile, tall = spec.tile, spec.tile.engine == "dmma8"
    blocks = [(i, j) for i in range(0, tile.wm, 16 if tall else 8) for j in range(0, tile.wn, 8)]
    inside = [(h, q) for h in ((0, 8) if tall else (0,)) for q in (0, 1)]
    return Fragments(tuple((i + h, j + q) for i, j in blocks for h, q in inside), 4, 1, 2)


def zeros_of(spec: KernelSpec) -> Any:
    """Return the word ``zeros()``: the sums before the first slab."""
    numba_type, real = of_type(spec.reals)

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        return pack(b, [ir.Constant(real, 0.0)] * spec.sums)

    return intrinsic_of("zeros", (), emit, types.UniTuple(numba_type, spec.sums))


def multiply_of(spec: KernelSpec) -> Any:
    """Return the word ``multiply(sums, a, b)``: the sums after the slabs at these addresses of shared memory.

    a, b: addresses of this lane's first elements.
    """
    sums = types.UniTuple(of_type(spec.reals)[0], spec.sums)
    emit = _emit_dmma if spec.dmma else _emit_fmas
    return intrinsic_of("multiply", (sums, types.int32, types.int32), lambda b, args: emit(b, spec, *args), sums)


class _Reader:
    """Loads of one operand's elements for one step of p, ahead of their use."""

    def __init__(self, b: ir.IRBuilder, spec: KernelSpec, operand: Operand, base: ir.Value, count: int, lanes: int,
                 rows: int) -> None:  # fmt: skip
        self.b, self.spec, self.operand, self.base, self.count, self.lanes = b, spec, operand, base, count, lanes
        self.leading, self.group = spec.leading(operand, rows), spec.group_elements
        self.real = F32 if spec.reals == "float32" else F64

    def read(self, p: int) -> list[list[list[ir.Value]]]:
        """Emit loads that begin at step p; return [step][element][plane] for as many steps as one load holds."""
        if self.operand.shared == "k":
            vectors = [self._load(i * self.lanes * self.leading + p) for i in range(self.count)]
            return [[vector[q] for vector in vectors] for q in range(self.group)]
        groups = range(self.count // self.group)
        return [[x for g in groups for x in self._load(p * self.leading + g * self.lanes * self.group)]]

    @property
    def steps(self) -> int:
        """Steps of p in one load."""
        return self.group if self.operand.shared == "k" else 1

    def _load(self, element: int) -> list[list[ir.Value]]:
        """Emit a load of ``group`` elements; return each as its planes."""
        planes = self.spec.planes
        address = address_of(self.b, self.base, element * self.spec.itemsize)
        reals = load(self.b, address, self.real, self.group * planes, SHARED)
        return [reals[i : i + planes] for i in range(0, len(reals), planes)]


def _emit_fmas(b: ir.IRBuilder, spec: KernelSpec, sums: ir.Value, a: ir.Value, at_b: ir.Value) -> ir.Value:
    tile = spec.tile
    m_lanes, n_lanes = tile.wm // tile.tm, tile.wn // tile.tn
    readers = (
        _Reader(b, spec, spec.a, a, tile.tm, m_lanes, tile.bm),
        _Reader(b, spec, spec.b, at_b, tile.tn, n_lanes, tile.bn),
    )
    held = [reader.read(0) for reader in readers]
    following: list[Any] = [None, None]
    values = unpack(b, sums, spec.sums)
    for p in range(tile.bk):  # generation loop
        for which, reader in enumerate(readers):  # the next step's elements are on their way during this one's fmas
            if p % reader.steps == reader.steps - 1 and p + 1 < tile.bk:
                following[which] = reader.read(p + 1)
        of_a, of_b = (held[which][p % reader.steps] for which, reader in enumerate(readers))
        for i in range(tile.tm):
            # serpentine: neighbours share an operand
            columns = range(tile.tn) if i % 2 == 0 else reversed(range(tile.tn))
            for j in columns:
                _add_product(b, spec, values, (i * tile.tn + j) * spec.planes, of_a[i], of_b[j])
        for which, reader in enumerate(readers):
            if p % reader.steps == reader.steps - 1:
                held[which] = following[which]
    return pack(b, values)


def _add_product(
    b: ir.IRBuilder, spec: KernelSpec, values: list[ir.Value], at: int, x: list[ir.Value], y: list[ir.Value]
) -> None:
    """Emit ``values[at] += x * y``, each operand conjugated where the kernel says so."""
    if not spec.complex:
        values[at] = fma(b, x[0], y[0], values[at])
        return
    # (xr + i xi)(yr + i yi); a conjugated operand's imaginary part has the other sign
    minus_x = _negative(b, x[1])
    xi, xi_opposite = (minus_x, x[1]) if spec.conj_a else (x[1], minus_x)
    real_i, imag_j = (xi, y[1]) if spec.conj_b else (xi_opposite, y[1])
    values[at] = fma(b, real_i, imag_j, fma(b, x[0], y[0], values[at]))
    sign_j = _negative(b, y[1]) if spec.conj_b else y[1]
    values[at + 1] = fma(b, xi, y[0], fma(b, x[0], sign_j, values[at + 1]))


def _negative(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.fsub(ir.Constant(x.type, -0.0), x)  # NVVM's LLVM has no fneg yet; ptxas makes it a sign of the fma


def _emit_dmma(b: ir.IRBuilder, spec: KernelSpec, sums: ir.Value, a: ir.Value, at_b: ir.Value) -> ir.Value:
    tile, tall = spec.tile, spec.tile.engine == "dmma8"
    height, depth, halves, quarters = (16, 8, 2, 2) if tall else (8, 4, 1, 1)
    per_block = 2 * halves
    text = _dmma_text(height, depth, per_block, halves * quarters, quarters)

    def read(p: int) -> tuple[list[list[Planes]], list[list[Planes]]]:
        """Emit loads of all fragments of one step; an element of a fragment is its planes."""
        of_a = _read_blocks(b, spec, spec.a, a, tile.bm, tile.wm // height, halves, quarters, p)
        of_b = _read_blocks(b, spec, spec.b, at_b, tile.bn, tile.wn // 8, 1, quarters, p)
        return of_a, of_b

    values = unpack(b, sums, spec.sums)
    held = read(0)
    for p in range(0, tile.bk, depth):  # generation loop
        following = read(p + depth) if p + depth < tile.bk else None
        of_a, of_b = held
        for i, x in enumerate(of_a):
            columns = range(len(of_b)) if i % 2 == 0 else reversed(range(len(of_b)))
            for j in columns:
                at = (i * len(of_b) + j) * per_block
                for plane, x_plane, y_plane, sign in _terms(spec):
                    where = [(at + q) * spec.planes + plane for q in range(per_block)]
                    left = [e[x_plane] if sign > 0 else _negative(b, e[x_plane]) for e in x]
                    inputs = [*(values[q] for q in where), *left, *(e[y_plane] for e in of_b[j])]
                    done = asm(b, text, inputs, [F64] * per_block, tied=per_block, ordered=False)
                    for q, value in zip(where, done, strict=True):
                        values[q] = value
        if following is not None:
            held = following
    return pack(b, values)


def _terms(spec: KernelSpec) -> list[tuple[int, int, int, int]]:
    """Return the real products that make one of two elements: (plane of the sum, of A, of B, sign)."""
    if not spec.complex:
        return [(0, 0, 0, 1)]
    sign_a, sign_b = -1 if spec.conj_a else 1, -1 if spec.conj_b else 1
    return [(0, 0, 0, 1), (0, 1, 1, -sign_a * sign_b), (1, 0, 1, sign_b), (1, 1, 0, sign_a)]


def _dmma_text(height: int, depth: int, per_block: int, of_a: int, of_b: int) -> str:
    names = [f"${i}" for i in range(2 * per_block + of_a + of_b)]
    outputs, inputs, factors = names[:per_block], names[per_block : 2 * per_block], names[2 * per_block :]
    parts = (outputs, factors[:of_a], factors[of_a:], inputs)
    shape = f"mma.sync.aligned.m{height}n8k{depth}.row.col.f64.f64.f64.f64"
    return f"{shape} {', '.join('{' + ', '.join(part) + '}' for part in parts)};"


def _read_blocks(
    b: ir.IRBuilder, spec: KernelSpec, operand: Operand, base: ir.Value, rows: int, blocks: int, halves: int,
    quarters: int, p: int,
) -> list[list[Planes]]:  # fmt: skip
    """Emit the fragments of all blocks of an operand at step p: [block][quarter of the steps, half of the rows]."""
    leading, height = spec.leading(operand, rows), 8 * halves

    def load_at(row: int, step: int, reals: int) -> list[ir.Value]:
        offset = row * leading + step if operand.shared == "k" else step * leading + row
        return load(b, address_of(b, base, offset * spec.itemsize), F64, reals, SHARED)

    return [
        [load_at(i * height + 8 * h, p + 4 * q, spec.planes) for q in range(quarters) for h in range(halves)]
        for i in range(blocks)
    ]
