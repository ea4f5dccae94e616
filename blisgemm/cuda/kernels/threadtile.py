"""The sums of a thread: what one k slab adds to them.

Knows: which elements of a slab a thread reads and how it multiplies them: by fmas, or by the tensor cores of float64.
Does not know: how slabs come into shared memory, what becomes of the sums. Called by ``gemm``.

By fmas, lane (x, y) of a warp tile holds the rows ``place_m(i)`` and columns ``place_n(j)``. Where an operand's
elements lie along p (layout k) it reads 16 bytes of steps at once, and its rows are ``lanes`` apart; where they lie
along its rows (layout r), 16 bytes of rows, and groups of these are ``lanes`` groups apart::

    k:  row i of lane x = i * lanes + x            r:  row i of lane x = (i // G * lanes + x) * G + i % G

so that the lanes of a warp read different banks. By tensor cores, a warp's fragments are as PTX defines them.

What a thread holds between slabs, its *state*, is its sums and the elements that it multiplies next: they are read from
shared memory while those before are multiplied, also from one slab to the next::

    first(slab 0)      read step 0
    most(slab)         read step p + 1, multiply step p, for all p but the last
    (wait for the next slab)
    last(next slab)    read its step 0, multiply the last step of this one

Source: PTX ISA 8.8, "Warp-level matrix instructions", m8n8k4 and m16n8k8 of .f64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ..ptx import F32, F64, SHARED, address_of, asm, fma, intrinsic_of, load, of_type, pack, types, unpack
from ..tiles import KernelSpec, Operand

Planes = list[ir.Value]

__all__ = ["Fragments", "StateWords", "add_product", "fragments_of", "state_words_of", "zeros_of"]


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
    if tile.engine == "dots":  # every lane has all sums of its warp; what is beyond m is not stored, but by lane 0
        return Fragments(tuple((i, j) for i in range(tile.tm) for j in range(tile.tn)), 1, tile.tm, 0)
    if tile.engine == "rows":  # and here every warp has those of the block
        columns = [j // spec.b.vector * 32 * spec.b.vector + j % spec.b.vector for j in range(tile.tn)]
        return Fragments(tuple((i, j) for i in range(tile.tm) for j in columns), 32, 0, spec.b.vector)
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


@dataclass(frozen=True)
class StateWords:
    """The words that make and change a thread's state; a, b: addresses of this lane's first elements of a slab.

    first(a, b) and last(state, next a, next b) read step 0 of a slab; most(state, a, b); sums(state).
    """

    first: Any
    most: Any
    last: Any
    sums: Any


def state_words_of(spec: KernelSpec) -> StateWords:
    """Return the words of a kernel."""
    steps = _Tensor(spec) if spec.dmma else _Fmas(spec)
    numba_type, real = of_type(spec.reals)
    state = types.UniTuple(numba_type, spec.sums + steps.held)
    sums = types.UniTuple(numba_type, spec.sums)
    place = (types.int32, types.int32)

    def first(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        zeros = [ir.Constant(real, 0.0)] * spec.sums
        return pack(b, zeros + steps.read(b, args[0], args[1], 0))

    def most(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        values, held = halves(b, args[0])
        for p in range(0, steps.last, steps.depth):  # generation loop
            following = steps.read(b, args[1], args[2], p + steps.depth, held)
            steps.multiply(b, values, held, p)
            held = following
        return pack(b, values + held)

    def last(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        values, held = halves(b, args[0])
        following = steps.read(b, args[1], args[2], 0)
        steps.multiply(b, values, held, steps.last)
        return pack(b, values + following)

    def halves(b: ir.IRBuilder, packed: ir.Value) -> tuple[list[ir.Value], list[ir.Value]]:
        values = unpack(b, packed, spec.sums + steps.held)
        return values[: spec.sums], values[spec.sums :]

    return StateWords(
        intrinsic_of("first", place, first, state),
        intrinsic_of("most", (state, *place), most, state),
        intrinsic_of("last", (state, *place), last, state),
        intrinsic_of("sums_of", (state,), lambda b, args: pack(b, halves(b, args[0])[0]), sums),
    )


class _Fmas:
    """Steps of p by fmas. Attributes: depth: steps of p at once; last: where the last begin; held: reals held ahead.

    Of an operand whose elements lie along p one load holds several steps, so it is read every so many steps only.
    """

    def __init__(self, spec: KernelSpec) -> None:
        tile = spec.tile
        self.spec, self.depth, self.last = spec, 1, tile.bk - 1
        self.sides = (
            (spec.a, tile.tm, tile.wm // tile.tm, tile.bm),
            (spec.b, tile.tn, tile.wn // tile.tn, tile.bn),
        )  # operand, elements of a thread, lanes, rows of the slab
        self.steps = [spec.group_elements if operand.shared == "k" else 1 for operand, *_ in self.sides]
        self.sizes = [side[1] * steps * spec.planes for side, steps in zip(self.sides, self.steps, strict=True)]
        self.held = sum(self.sizes)

    def read(
        self, b: ir.IRBuilder, at_a: ir.Value, at_b: ir.Value, p: int, held: list[ir.Value] | None = None
    ) -> Planes:
        """Emit the loads that begin at step p; what doesn't begin there stays as it is held."""
        found, begin = [], 0
        for base, side, steps, size in zip((at_a, at_b), self.sides, self.steps, self.sizes, strict=True):
            found += self._read(b, base, *side, p) if p % steps == 0 or held is None else held[begin : begin + size]
            begin += size
        return found

    def _read(
        self, b: ir.IRBuilder, base: ir.Value, operand: Operand, count: int, lanes: int, rows: int, p: int
    ) -> Planes:
        """Emit loads of 16 bytes; return [step][element][plane], flat."""
        spec, group = self.spec, self.spec.group_elements
        leading, planes = spec.leading(operand, rows), spec.planes
        real = F32 if spec.reals == "float32" else F64

        def load_at(element: int) -> Planes:
            return load(b, address_of(b, base, element * spec.itemsize), real, group * planes, SHARED)

        if operand.shared != "k":
            return [x for g in range(count // group) for x in load_at(p * leading + g * lanes * group)]
        vectors = [load_at(i * lanes * leading + p) for i in range(count)]
        return [x for q in range(group) for vector in vectors for x in vector[q * planes : (q + 1) * planes]]

    def multiply(self, b: ir.IRBuilder, values: Planes, held: Planes, p: int) -> None:
        """Emit what step p adds to the sums."""
        tile, planes = self.spec.tile, self.spec.planes
        of_a = self._elements(held[: self.sizes[0]], 0, p)
        of_b = self._elements(held[self.sizes[0] :], 1, p)
        for i in range(tile.tm):
            # serpentine: neighbours share an operand
            columns = range(tile.tn) if i % 2 == 0 else reversed(range(tile.tn))
            for j in columns:
                add_product(b, self.spec, values, (i * tile.tn + j) * planes, of_a[i], of_b[j])

    def _elements(self, held: Planes, side: int, p: int) -> list[Planes]:
        """Return the planes of each element of step p."""
        planes, count = self.spec.planes, self.sides[side][1]
        first = p % self.steps[side] * count * planes
        return [held[first + i * planes : first + (i + 1) * planes] for i in range(count)]


def add_product(
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


class _Tensor:
    """Steps of p by the tensor cores of float64; attributes as ``_Fmas``."""

    def __init__(self, spec: KernelSpec) -> None:
        tile = spec.tile
        self.spec, tall = spec, tile.engine == "dmma8"
        self.height, self.depth, self.halves, self.quarters = (16, 8, 2, 2) if tall else (8, 4, 1, 1)
        self.last = tile.bk - self.depth
        self.a_size = tile.wm // self.height * self.halves * self.quarters * spec.planes
        self.held = self.a_size + tile.wn // 8 * self.quarters * spec.planes

    def read(self, b: ir.IRBuilder, at_a: ir.Value, at_b: ir.Value, p: int, held: Planes | None = None) -> Planes:
        """Emit loads of all fragments of step p: [block][quarter of the steps][half of the rows][plane], flat."""
        tile = self.spec.tile
        return self._read(b, self.spec.a, at_a, tile.bm, tile.wm, self.halves, p) + self._read(
            b, self.spec.b, at_b, tile.bn, tile.wn, 1, p
        )

    def _read(
        self, b: ir.IRBuilder, operand: Operand, base: ir.Value, rows: int, warp_rows: int, halves: int, p: int
    ) -> Planes:
        spec, leading = self.spec, self.spec.leading(operand, rows)
        places = [
            (row + 8 * h, p + 4 * q)
            for row in range(0, warp_rows, 8 * halves)
            for q in range(self.quarters)
            for h in range(halves)
        ]
        offsets = [row * leading + step if operand.shared == "k" else step * leading + row for row, step in places]
        return [x for at in offsets for x in load(b, address_of(b, base, at * spec.itemsize), F64, spec.planes, SHARED)]

    def multiply(self, b: ir.IRBuilder, values: Planes, held: Planes, p: int) -> None:
        """Emit what step p adds to the sums."""
        spec, per_block = self.spec, 2 * self.halves
        of_a = self._blocks(held[: self.a_size], self.halves * self.quarters)
        of_b = self._blocks(held[self.a_size :], self.quarters)
        text = _dmma_text(self.height, self.depth, per_block, self.halves * self.quarters, self.quarters)
        for i, x in enumerate(of_a):
            columns = range(len(of_b)) if i % 2 == 0 else reversed(range(len(of_b)))
            for j in columns:
                at = (i * len(of_b) + j) * per_block
                for plane, x_plane, y_plane, sign in _terms(spec):
                    where = [(at + q) * spec.planes + plane for q in range(per_block)]
                    left = [e[x_plane] if sign > 0 else _sign_changed(b, e[x_plane]) for e in x]
                    inputs = [*(values[q] for q in where), *left, *(e[y_plane] for e in of_b[j])]
                    done = asm(b, text, inputs, [F64] * per_block, tied=per_block, ordered=False)
                    for q, value in zip(where, done, strict=True):
                        values[q] = value

    def _blocks(self, held: Planes, count: int) -> list[list[Planes]]:
        """Return [block][element][plane] of fragments of ``count`` elements."""
        planes = self.spec.planes
        elements = [held[i : i + planes] for i in range(0, len(held), planes)]
        return [elements[i : i + count] for i in range(0, len(elements), count)]


def _terms(spec: KernelSpec) -> list[tuple[int, int, int, int]]:
    """Return the real products that make one of two elements: (plane of the sum, of A, of B, sign)."""
    if not spec.complex:
        return [(0, 0, 0, 1)]
    sign_a, sign_b = -1 if spec.conj_a else 1, -1 if spec.conj_b else 1
    return [(0, 0, 0, 1), (0, 1, 1, -sign_a * sign_b), (1, 0, 1, sign_b), (1, 1, 0, sign_a)]


def _sign_changed(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit a changed sign bit. A ``neg`` before m16n8k8 gives wrong sums (nvJitLink of CUDA 13.0, one H200)."""
    return asm(b, "xor.b64 $0, $1, 0x8000000000000000;", [x], [F64], ordered=False)


def _dmma_text(height: int, depth: int, per_block: int, of_a: int, of_b: int) -> str:
    names = [f"${i}" for i in range(2 * per_block + of_a + of_b)]
    outputs, inputs, factors = names[:per_block], names[per_block : 2 * per_block], names[2 * per_block :]
    parts = (outputs, factors[:of_a], factors[of_a:], inputs)
    shape = f"mma.sync.aligned.m{height}n8k{depth}.row.col.f64.f64.f64.f64"
    return f"{shape} {', '.join('{' + ', '.join(part) + '}' for part in parts)};"
